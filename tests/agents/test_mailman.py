"""The mailman in real tmux, with a program that behaves like an agent's input line."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Literal

import pytest

from deskhand.agents import mailman, tmux
from deskhand.agents.files import FilesRoom
from deskhand.agents.mail import AgentMessage, instant, timestamp
from tests.requirements import requirement
from tests.terminal import AGENTMAIL, Terminal, until_it_listens

NOW = instant("2026-11-15T10:00:00Z") or 0
SECOND = 1_000_000_000
# Echoes what is typed after a prompt, as agents do, and writes each line that was entered to a file.
AGENT = """
import sys
typed = open(sys.argv[1], "a")
while True:
    print("> ", end="", flush=True)
    typed.write(sys.stdin.readline())
    typed.flush()
"""


class Workplace:
    """Windows with programs in them, and a mailman whose clock the test holds."""

    def __init__(self, terminal: Terminal, folder: Path) -> None:
        self.terminal = terminal
        self.room = FilesRoom(str(terminal.repository))
        self.now = NOW
        self.said: list[str] = []
        self._folder = folder
        self.mailman = mailman.Mailman(
            str(terminal.repository),
            self.room,
            ["agent", "bash"],
            say=self.said.append,
            clock=lambda: self.now,
        )

    def python(self, called: str) -> Path:
        """A Python that tmux knows by another name."""
        link = self._folder / called
        if not link.exists():
            link.symlink_to(os.path.realpath(sys.executable))
        return link

    def agent(self, name: str) -> Path:
        script, entered = self._folder / "agent.py", self._folder / f"{name}.entered"
        script.write_text(AGENT)
        entered.touch()
        self.terminal.open(name, program=f"exec {self.python('agent')} {script} {entered}")
        self.until(name, ">")
        return entered

    def until(self, name: str, text: str) -> None:
        """Wait for the text on the window's screen; pytest's own limit ends a wait in vain."""
        while text not in self.terminal.screen(name):
            pass

    def send(self, name: str) -> None:
        self.room.append(
            AgentMessage(
                f"id{len(self.room.messages(name)):06}",
                "a1",
                name,
                "hello",
                timestamp(self.now),
            )
        )

    def untouched(self, name: str) -> bool:
        return mailman.TEXT not in self.terminal.screen(name)


@pytest.fixture
def place(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    monkeypatch.setenv("TMUX_TMPDIR", terminal.environment["TMUX_TMPDIR"])
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setattr(mailman, "ENTER_SECONDS", 0.5)
    terminal.tmux("set-option", "-g", "default-shell", "/bin/bash")
    return Workplace(terminal, tmp_path)


@requirement("agents:mailman")
def test_an_agent_with_mail_is_told_once_a_minute_until_it_reads(place: Workplace) -> None:
    entered = place.agent("worker")
    place.send("worker")

    for seconds in (0, 30, 59, 60, 61):
        place.now = NOW + seconds * SECOND
        place.mailman.go_round()
        while (
            mailman.read_input_line(place.terminal.panes["worker"]) != ""
        ):  # until it has taken what was entered
            pass
    place.room.take("worker")
    place.now = NOW + 200 * SECOND
    place.mailman.go_round()

    assert place.said == ["[mailman] told worker\n"] * 2
    while entered.read_text().count("\n") < 2:
        pass
    assert entered.read_text() == f"{mailman.TEXT}\n" * 2


@requirement("agents:mailman")
def test_states_decide_who_is_told(place: Workplace) -> None:
    states: dict[str, Literal["work", "offline", "ready"]] = {
        "busy": "work",
        "away": "offline",
        "idle": "ready",
    }
    for name, status in states.items():
        place.agent(name)
        place.room.set_status(name, status, timestamp(NOW))
        place.send(name)

    place.mailman.go_round()
    told = list(place.said)
    place.now = NOW + 30 * SECOND
    place.room.set_status("idle", "ready", timestamp(place.now))
    place.mailman.go_round()
    again_too_soon = place.said[len(told) :]
    place.now = NOW + 2 * 3600 * SECOND
    place.mailman.go_round()

    assert told == ["[mailman] told idle\n"]
    assert again_too_soon == []
    # After an hour without a word only who said that it is offline is still known to be.
    assert [(entry.name, entry.status) for entry in place.room.states()] == [
        ("away", "offline")
    ]
    assert place.untouched("busy")
    place.now += SECOND
    place.mailman.go_round()
    assert "[mailman] told busy\n" in place.said
    assert place.untouched("away")


@requirement("agents:no-stray-keys")
def test_a_shell_an_editor_and_a_half_typed_line_never_get_a_keystroke(
    place: Workplace,
) -> None:
    place.terminal.open("shell", program="PS1='> ' exec bash --norc")
    place.until("shell", ">")
    place.terminal.open("editor", program=f"exec {place.python('vi')} -c 'input(\"> \")'")
    place.until("editor", ">")
    place.agent("half")
    place.terminal.tmux(
        "send-keys", "-t", place.terminal.panes["half"], "-l", "rm -rf dear"
    )
    place.until("half", "dear")
    place.agent("reading")
    place.terminal.tmux("copy-mode", "-t", place.terminal.panes["reading"])
    place.terminal.open("plain", program=f"exec {place.python('agent')} -c 'input()'")
    place.agent("2")
    names = ["shell", "editor", "half", "reading", "plain"]
    before = {name: place.terminal.screen(name) for name in names}
    for name in names:
        place.send(name)

    place.mailman.go_round()
    place.now += 120 * SECOND
    place.mailman.go_round()

    assert place.said == []
    assert {name: place.terminal.screen(name) for name in names} == before
    assert place.untouched("2")


@requirement("agents:no-stray-keys")
def test_a_name_that_tmux_would_take_for_another_window_reaches_its_own(
    place: Workplace,
) -> None:
    entered = {name: place.agent(name) for name in ("2", "work", "worker")}
    place.send("2")
    place.send("work")

    place.mailman.go_round()

    assert sorted(place.said) == ["[mailman] told 2\n", "[mailman] told work\n"]
    while not (entered["2"].read_text() and entered["work"].read_text()):
        pass
    assert entered["worker"].read_text() == ""


@requirement("agents:no-stray-keys")
def test_enter_is_not_pressed_when_somebody_types_meanwhile(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = place.agent("worker")
    pane = place.terminal.panes["worker"]
    place.send("worker")
    monkeypatch.setattr(mailman, "ENTER_SECONDS", 2)

    def type_too() -> None:
        place.until("worker", mailman.TEXT)
        tmux.run("send-keys", "-t", pane, "-l", " please not")

    person = threading.Thread(target=type_too)
    person.start()
    place.mailman.go_round()
    person.join()

    assert place.said == [
        "[mailman] somebody typed into the line of worker, so Enter was not pressed\n"
    ]
    assert entered.read_text() == ""


@requirement("agents:no-stray-keys")
@pytest.mark.parametrize(
    ("shown", "typed"),
    [
        ("> ", ""),
        ("│ > \\033[7m \\033[27m      │\\n╰──────────╯", ""),
        ("│ > \\033[7mT\\033[27m\\033[2mry this\\033[22m │\\n╰──────────╯", ""),
        ("│ > hello\\033[7m \\033[27m     │\\n╰──────────╯", "hello"),
        ("│ > first line    │\\n│   second        │\\n╰──────────╯", None),
        ("❯ half", "half"),
        ("$ ", None),
        ("no prompt", None),
    ],
)
def test_the_input_line_is_told_from_what_is_only_shown(
    place: Workplace, shown: str, typed: str | None
) -> None:
    hide = "\\033[?25l" if "\\n" in shown else ""
    place.terminal.open(
        "drawn", program=f"printf '{hide}{shown}END\\b\\b\\b   \\b\\b\\b'; exec cat"
    )
    pane = place.terminal.panes["drawn"]
    while (
        place.terminal.tmux("display-message", "-p", "-t", pane, "#{pane_current_command}")
        != "cat"
    ):
        pass

    assert mailman.read_input_line(pane) == typed


@requirement("agents:mailman")
def test_there_is_one_mailman_and_it_says_its_real_process_id(terminal: Terminal) -> None:
    pid_file = terminal.repository / ".agentmail" / "mailman.pid"
    started = terminal.agentmail("a1", "mailman", "--daemon")
    pid = int(pid_file.read_text())
    second = terminal.agentmail("a1", "mailman")
    command_line = Path(f"/proc/{pid}/cmdline").read_text()
    os.kill(pid, 15)
    while pid_file.exists():
        pass

    assert (started.returncode, started.stdout) == (
        0,
        f"Mailman daemon started in background (PID: {pid})\n",
    )
    assert (second.returncode, second.stderr) == (
        2,
        f"error: mailman daemon already running (PID: {pid})\n",
    )
    assert "mailman" in command_line


@requirement("agents:mailman")
def test_a_stale_pid_file_is_cleaned_up_and_a_signal_ends_with_code_0(
    terminal: Terminal,
) -> None:
    pid_file = terminal.repository / ".agentmail" / "mailman.pid"
    pid_file.parent.mkdir()
    pid_file.write_text(f"{os.getpid()}\n")  # alive, but no mailman
    pipes: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    with subprocess.Popen(
        [AGENTMAIL, "mailman"],
        env=terminal.variables("a1"),
        cwd=terminal.repository,
        **pipes,
    ) as running:
        first = running.stdout.readline()
        running.terminate()
        _, complaint = running.communicate(timeout=20)

    assert first == f"Mailman daemon started (PID: {running.pid})\n"
    assert complaint == "Warning: Stale PID file found, cleaning up\n"
    assert running.returncode == 0
    assert not pid_file.exists()


@requirement("agents:mailman")
def test_the_running_mailman_hears_of_new_mail_and_outlives_its_watched_folder(
    place: Workplace,
) -> None:
    entered = place.agent("worker")
    variables = place.terminal.variables("a1") | {"DESKHAND_AGENTS_PROGRAMS": "agent"}
    with subprocess.Popen(
        [AGENTMAIL, "mailman"],
        env=variables,
        cwd=place.terminal.repository,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        said = [running.stdout.readline()]
        until_it_listens(running, folders=2)
        shutil.rmtree(place.terminal.repository / ".agentmail" / "mailboxes")
        said.append(running.stdout.readline())
        place.send("worker")
        said.append(running.stdout.readline())
        while not entered.read_text():
            pass
        running.terminate()

    assert said[1:] == [
        "[mailman] cannot watch: the watched folder is gone\n",
        "[mailman] told worker\n",
    ]
    assert entered.read_text() == f"{mailman.TEXT}\n"
