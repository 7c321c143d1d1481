"""The mailman: tells an agent in tmux that mail has come, by typing into its input line.

It types only where it cannot do harm: into a pane of this repository whose program is a known agent with an empty
input line. It looks again before it presses Enter. A shell, an editor or half a line of a person gets no keystroke.
"""

import fcntl
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from deskhand.agents import paths, tmux
from deskhand.agents.mail import Mailroom, instant, timestamp
from deskhand.errors import Denied, DeskError
from deskhand.store import Bell

TEXT = "Check your agentmail"
AGAIN_SECONDS = 60
"""After this time an agent is told again, and every mailbox is looked at."""
QUIET_SECONDS = 0.5
"""A round begins when nothing has changed for so long."""
ENTER_SECONDS = 1.0
"""So long a person has to type something, which keeps Enter from being pressed."""
FORGET_SECONDS = 3600
"""A state that was not set for so long is removed."""
_SHELLS = frozenset(
    {
        "sh",
        "ash",
        "bash",
        "dash",
        "fish",
        "ksh",
        "zsh",
        "csh",
        "tcsh",
        "nu",
        "elvish",
        "xonsh",
        "pwsh",
    }
)
_SECOND = 1_000_000_000

_PROMPT = re.compile(r"^[\s│┃|]*[>\u276f\u203a»](.*?)[\s│┃|]*$")
_BORDER = re.compile(r"^[\s─━═╌┄╰╯└┘┗┛╚╝▀▄_-]*$")
_STYLED = re.compile(r"\x1b\[([\d;:]*)m([^\x1b]*)")


class Mailman:
    def __init__(
        self,
        root: str | None,
        room: Mailroom,
        programs: Sequence[str],
        *,
        say: Callable[[str], None],
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._root = root
        """Whose panes are told; None: those of every repository."""
        self._room = room
        self._programs = frozenset(programs) - _SHELLS
        self._say = say
        self._clock = clock
        self._told: dict[str, int] = {}
        """When agents without a state were last told; a restart tells them again."""

    def serve(self) -> None:
        """Go round whenever something changes, and every minute; until a signal ends the process."""
        failures = 0
        while True:
            try:
                with self._room.bell(None) as bell:
                    failures = 0
                    self._rounds(bell)
            except (DeskError, OSError) as error:
                # Nothing is watched now: watch again, and go round all the same.
                self._say(f"[mailman] cannot watch: {error}\n")
                threading.Event().wait(min(QUIET_SECONDS * 2**failures, AGAIN_SECONDS))
                failures += 1
                self.go_round()

    def _rounds(self, bell: Bell) -> None:
        while True:
            self.go_round()
            if bell.wait(AGAIN_SECONDS):
                until = time.monotonic() + AGAIN_SECONDS
                while time.monotonic() < until and bell.wait(QUIET_SECONDS):
                    pass

    def go_round(self) -> None:
        """Tell everybody who should be told now."""
        try:
            due = self._due()
            panes = tmux.all_panes() if due else []
            for name, has_state in due:
                self._tell(
                    name, has_state, [pane for pane in panes if self._belongs(pane, name)]
                )
            old = self._clock() - FORGET_SECONDS * _SECOND
            # Who said that it is offline stays so, however long ago that was.
            said = [
                (e.name, instant(e.updated_at))
                for e in self._room.states()
                if e.status != "offline"
            ]
            gone = [name for name, at in said if at is not None and at < old]
            if gone:
                self._room.remove_states(gone)
        except (DeskError, OSError, tmux.TmuxFailed) as error:
            self._say(f"[mailman] this round failed: {error}\n")

    def _due(self) -> list[tuple[str, bool]]:
        """Who has mail and was not told within the last minute, and whether it has a state."""
        before = self._clock() - AGAIN_SECONDS * _SECOND
        states = {state.name: state for state in self._room.states()}
        told = {
            name: instant(state.notified_at) or 0
            for name, state in states.items()
            if state.status == "ready"
        }
        told |= {
            name: self._told.get(name, 0)
            for name in self._room.mailboxes()
            if name not in states
        }
        return [
            (name, name in states)
            for name, at in told.items()
            if at <= before and self._room.has_unread(name)
        ]

    def _belongs(self, pane: dict[str, str], name: str) -> bool:
        if pane["address"] != name:
            return False
        return (
            self._root is None or paths.repository(pane["pane_current_path"]) == self._root
        )

    def _tell(self, name: str, has_state: bool, panes: list[dict[str, str]]) -> None:
        pane = next((pane["pane_id"] for pane in panes if self._may_type(pane)), None)
        if pane is None:
            return
        if notify(pane):
            self._say(f"[mailman] told {name}\n")
        else:
            self._say(
                f"[mailman] somebody typed into the line of {name}, so Enter was not pressed\n"
            )
        if has_state:
            self._room.set_notified(name, timestamp(self._clock()))
        else:
            self._told[name] = self._clock()

    def _may_type(self, pane: dict[str, str]) -> bool:
        known = pane["pane_current_command"] in self._programs
        return (
            known and "1" not in pane["closed"] and read_input_line(pane["pane_id"]) == ""
        )


def notify(pane: str) -> bool:
    """Type the text, then press Enter unless something else came into the line; returns
    whether it was pressed."""
    tmux.run("send-keys", "-t", pane, "-l", "--", TEXT)
    threading.Event().wait(ENTER_SECONDS)
    if read_input_line(pane) != TEXT:
        return False
    tmux.run("send-keys", "-t", pane, "Enter")
    return True


def read_input_line(pane: str) -> str | None:
    """What stands in the input line of the program in the pane; None if no input line can be told."""
    visible, row = tmux.run(
        "display-message", "-p", "-t", pane, "#{cursor_flag} #{cursor_y}"
    ).split()
    lines = [
        _strip_faint(line)
        for line in tmux.run("capture-pane", "-p", "-e", "-t", pane).split("\n")
    ]
    numbers = list(reversed(range(len(lines))))
    if visible == "1":
        numbers = [number for number in numbers if number == int(row)]
    for number in numbers:
        if found := _PROMPT.match(lines[number]):
            below = "".join(lines[number + 1 : number + 2])
            if _BORDER.match(below):
                return found[1].strip()
            return None
    return None


def _strip_faint(line: str) -> str:
    """The line without faint text, which is a suggestion, and without the cursor some programs draw upon it."""
    kept: list[tuple[str, bool]] = [(line.split("\x1b", 1)[0], False)]
    faint = inverse = False
    for codes, text in _STYLED.findall(line):
        for code in (codes or "0").split(";"):
            faint = code == "2" or (faint and code not in ("0", "22", ""))
            inverse = code == "7" or (inverse and code not in ("0", "27", ""))
        if faint and kept[-1][1] and len(kept[-1][0]) == 1:
            kept.pop()
        if not faint:
            kept.append((text, inverse))
    return "".join(text for text, _ in kept)


class PidFile:
    """Lets one mailman run in a repository: a file that is locked and holds the mailman's process id."""

    def __init__(self, root: str) -> None:
        self._file = Path(root) / paths.STORE / "mailman.pid"
        self.warning: str | None = None

    def __enter__(self) -> Self:
        self._file.parent.mkdir(0o750, parents=True, exist_ok=True)
        while True:
            self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            found = os.pread(self._fd, 32, 0).strip().decode(errors="replace")
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise self._running(found) from None
            if (
                self._file.exists()
                and os.fstat(self._fd).st_ino == self._file.stat().st_ino
            ):
                break
            os.close(self._fd)
        if found.isdigit() and _is_mailman(int(found)):
            raise self._running(found)
        if found:
            self.warning = "Warning: Stale PID file found, cleaning up"
        self._write(os.getpid())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _exit)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(FileNotFoundError):
            self._file.unlink()
        os.close(self._fd)

    def detach(self) -> int:
        """Go on in the background; the child's id in the parent, 0 in the child, which keeps the lock."""
        child = os.fork()
        if child:
            self._write(child)
            return child
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        return 0

    def _write(self, pid: int) -> None:
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{pid}\n".encode(), 0)

    def _running(self, pid: str) -> Denied:
        os.close(self._fd)
        return Denied(f"mailman daemon already running (PID: {pid})", reason="running")


def _exit(*_: object) -> None:
    sys.exit(0)


def _is_mailman(pid: int) -> bool:
    """Whether the process lives and is a mailman: the system gives the number of a dead one to other programs."""
    try:
        return "mailman" in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return False
