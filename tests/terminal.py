"""A tmux server of a test's own, whose windows work in a git repository."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess

AGENTMAIL = str(Path(sys.executable).with_name("agentmail"))


def until_it_listens(process: "subprocess.Popen[str]", folders: int = 1) -> None:
    """Return when the process watches so many folders; pytest's own limit ends a wait in vain."""
    descriptors = Path(f"/proc/{process.pid}/fdinfo")
    watched = 0
    while watched < folders:
        assert process.poll() is None
        with suppress(FileNotFoundError):
            watched = sum(
                file.read_text().count("inotify wd:") for file in descriptors.iterdir()
            )


class Terminal:
    def __init__(
        self,
        repository: Path,
        environment: dict[str, str],
        windows: tuple[str, ...] = ("a1", "a2"),
    ) -> None:
        self.repository = repository
        # A socket's path must be short.
        self._sockets = tempfile.TemporaryDirectory(prefix="dh")
        self._plain = environment | {"TMUX_TMPDIR": self._sockets.name, "LANG": "C.UTF-8"}
        repository.mkdir(exist_ok=True)
        subprocess.run(["git", "init", "-q", str(repository)], check=True)
        self.panes: dict[str, str] = {}
        self.open(windows[0], "new-session", "-d", "-s", "work", "-x", "120", "-y", "30")
        server = self.tmux("display-message", "-p", "#{socket_path},#{pid},0")
        self.environment = self._plain | {"TMUX": server}
        for name in windows[1:]:
            self.open(name)

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-f", "/dev/null", *arguments]
        done = subprocess.run(
            command,
            env=self._plain,
            cwd=self.repository,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def open(
        self, name: str, *how: str, program: str = "exec cat", folder: Path | None = None
    ) -> str:
        """A new window that runs `program`; its pane's id. A second window of a name is `NAME~2` here."""
        where = str(folder or self.repository)
        command = how or ("new-window", "-d", "-t", "work:")
        pane = self.tmux(
            *command, "-P", "-F", "#{pane_id}", "-n", name, "-c", where, program
        )
        self.panes[name if name not in self.panes else f"{name}~2"] = pane
        return pane

    def variables(self, window: str | None) -> dict[str, str]:
        return (
            self._plain
            if window is None
            else self.environment | {"TMUX_PANE": self.panes[window]}
        )

    def agentmail(
        self,
        window: str | None,
        *arguments: str,
        stdin: str | None = None,
        folder: Path | None = None,
        under: Sequence[str] = (),
        **variables: str,
    ) -> CompletedProcess[str]:
        """Run `agentmail ARGUMENTS` as the agent in the window (None: as nobody in tmux), `under` another program."""
        given = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run(
            [*under, AGENTMAIL, *arguments],
            env=self.variables(window) | variables,
            cwd=folder or self.repository,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            **given,
        )

    def screen(self, window: str) -> str:
        return self.tmux("capture-pane", "-p", "-t", self.panes[window])

    def close(self) -> None:
        subprocess.run(
            ["tmux", "kill-server"], env=self._plain, check=False, capture_output=True
        )
        self._sockets.cleanup()
