"""The pipe hands its stdin and stdout to the desk: which it takes, that it holds them no longer than it should."""

import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from deskhand import __version__, pipe
from tests.requirements import requirement
from tests.resident.test_joining import INITIALIZE, JOINED, desk, environment, run_pipe
from tests.resident.test_up import Running
from tests.warm import warm_python

__all__ = ["desk", "environment"]
READY = {"method": "notifications/initialized"}
LIST = {"method": "tools/list", "params": {}}


class Ends:
    """A client that made both ends of what it reads and writes, and keeps what it gives to others."""

    def __init__(self, stack: ExitStack, kind: str, place: Path) -> None:
        match kind:
            case "pipes":
                self.given, self._says = os.pipe()
                self._hears, self.taken = os.pipe()
            case "sockets":
                self.given, self._says = _make_pair(socket.socketpair())
                self._hears, self.taken = _make_pair(socket.socketpair())
            case "one socket":
                self.given, self._says = _make_pair(socket.socketpair())
                self._hears, self.taken = os.dup(self._says), os.dup(self.given)
            case "terminal":
                self._says, self.given = pty.openpty()
                self._hears, self.taken = os.pipe()
            case "file":
                self.given, self._says = os.pipe()
                (place / "heard").touch()
                self.taken = os.open(place / "heard", os.O_WRONLY | os.O_APPEND)
                self._hears = os.open(place / "heard", os.O_RDONLY)
            case _:
                self.given, self._says = _make_pair(_connect(kind, place))
                self._hears, self.taken = os.dup(self._says), os.dup(self.given)
        self._open = {self.given, self._says, self._hears, self.taken}
        stack.callback(self.close)
        self._links = {str(Path(f"/proc/self/fd/{each}").readlink()) for each in self._open}
        self._rest = b""

    def close(self, *files: int) -> None:
        """These, or whatever is left."""
        for file in files or [*self._open]:
            self._open.discard(file)
            os.close(file)

    def say(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            data = json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n"
            os.write(self._says, data)

    def hear(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            self._rest += os.read(self._hears, 1 << 16)
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def ask(self, number: int) -> Any:
        self.say(LIST | {"id": number})
        while (answer := self.hear()).get("id") != number:
            pass
        return answer["result"]

    def stop_saying(self) -> None:
        self.close(self.given, self._says)

    def stop_hearing(self) -> None:
        self.close(self.taken, self._hears)

    def is_held_by(self, process: int) -> bool:
        return not self._links.isdisjoint(links_of(process))


def _make_pair(sockets: Sequence[socket.socket]) -> list[int]:
    return [each.detach() for each in sockets]


def _connect(kind: str, place: Path) -> tuple[socket.socket, socket.socket]:
    """The two ends of a connection between two that have names."""
    with socket.socket(
        socket.AF_INET if kind == "internet" else socket.AF_UNIX
    ) as listener:
        listener.bind(("127.0.0.1", 0) if kind == "internet" else str(place / "named"))
        listener.listen()
        one = socket.socket(listener.family)
        one.connect(listener.getsockname())
        return one, listener.accept()[0]


def links_of(process: int) -> list[str]:
    """What the process has open."""
    found = []
    for each in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            found.append(str(each.readlink()))
    return found


@contextmanager
def joined(
    environment: dict[str, str], folder: Path, ends: Ends
) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [warm_python(), "-m", "deskhand", "mcp", "obsidian"],
        env=environment,
        cwd=folder,
        stdin=ends.given,
        stdout=ends.taken,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == JOINED
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


@requirement("joining:straight")
@pytest.mark.parametrize("kind", ["pipes", "sockets", "one socket"])
def test_no_byte_of_a_client_goes_through_the_pipe_and_it_ends_as_before(
    desk: Running,
    environment: dict[str, str],
    tmp_path: Path,
    stack: ExitStack,
    kind: str,
) -> None:
    ends = Ends(stack, kind, tmp_path)
    with joined(environment, tmp_path, ends) as process:
        process.send_signal(signal.SIGSTOP)
        ends.say(INITIALIZE)
        assert ends.hear()["id"] == "first"
        ends.say(READY)
        assert ends.ask(2)["tools"]
        for file in (ends.given, ends.taken):  # others share this property of it
            assert not fcntl.fcntl(file, fcntl.F_GETFL) & os.O_NONBLOCK
        process.send_signal(signal.SIGCONT)
        ends.stop_saying()
        if kind == "one socket":
            ends.stop_hearing()
        assert process.wait(timeout=60) == 0
    until_closed(desk, environment, tmp_path, ends)


@requirement("joining:straight")
@pytest.mark.parametrize("kind", ["terminal", "file", "internet", "named"])
def test_what_is_no_pipe_between_two_programs_is_not_handed_over(
    desk: Running,
    environment: dict[str, str],
    tmp_path: Path,
    stack: ExitStack,
    kind: str,
) -> None:
    ends = Ends(stack, kind, tmp_path)
    with joined(environment, tmp_path, ends) as process:
        assert not ends.is_held_by(desk.process.pid)
        ends.say(INITIALIZE)
        while kind != "file" and ends.hear().get("id") != "first":
            pass  # a terminal says again what was said
        process.kill()


@requirement("joining:ends")
def test_with_the_pipe_the_desk_lets_go_of_what_it_was_handed(
    desk: Running, environment: dict[str, str], tmp_path: Path, stack: ExitStack
) -> None:
    ends = Ends(stack, "pipes", tmp_path)
    with joined(environment, tmp_path, ends) as process:
        ends.say(INITIALIZE)
        assert ends.hear()["id"] == "first"
        assert ends.is_held_by(desk.process.pid)
        process.kill()
        process.wait()
    until_closed(desk, environment, tmp_path, ends)


def until_closed(
    desk: Running, environment: dict[str, str], folder: Path, ends: Ends
) -> None:
    """Until the desk has none of it open; others are served meanwhile."""
    while ends.is_held_by(desk.process.pid):
        assert run_pipe(environment, folder, "obsidian").stderr == JOINED


@contextmanager
def greeting(desk: Running, files: Sequence[int]) -> Iterator[socket.socket]:
    """Somebody who says what a pipe says, and sends what they like along with it."""
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(60)
        door.connect(pipe.reachable(str(desk.home / pipe.SOCKET)))
        assert hear(door)[:2] == ["deskhand", __version__]
        wanted = pipe.pack("obsidian", "", "/")
        if files:
            socket.send_fds(door, [wanted], files)
        else:
            door.sendall(wanted)
        yield door


def hear(door: socket.socket) -> list[str]:
    """The next word of the desk; nothing where it has closed the door."""
    read = b""
    while not read.endswith(b"\0\n"):
        more = door.recv(1)
        if not more:
            return []
        read += more
    return pipe.unpack(read)


@requirement("joining:straight")
def test_whoever_hands_over_nonsense_is_a_pipe_like_others_or_is_let_go(
    desk: Running, environment: dict[str, str], tmp_path: Path, stack: ExitStack
) -> None:
    run_pipe(environment, tmp_path, "obsidian")
    before = len(links_of(desk.process.pid))
    ends = Ends(stack, "pipes", tmp_path)
    nonsense: list[list[int]] = [
        [],
        [ends.given],
        [ends.taken, ends.given],
        [ends.given, ends.given],
    ]
    for files in nonsense:
        with greeting(desk, files) as door:
            assert hear(door) == ["joined"]
            door.sendall(json.dumps({"jsonrpc": "2.0"} | INITIALIZE).encode() + b"\n")
            assert b'"id":"first"' in door.recv(1 << 16)
    for files in ([ends.given] * 3, [ends.given, ends.taken] * 2 + [ends.given]):
        with greeting(desk, files) as door:
            assert hear(door) == []
    with greeting(desk, [ends.given, ends.taken]) as door:
        assert hear(door) == ["joined", pipe.HANDED]
        door.sendall(b"{}\n")  # it has no more to say here
        assert hear(door) == []
    silent = Ends(stack, "pipes", tmp_path)
    silent.close(silent._says)
    with greeting(desk, [silent.given, silent.taken]) as door:
        assert hear(door) == ["joined", pipe.HANDED]
        assert hear(door) == ["ended"]
        assert hear(door) == []
    deaf = Ends(stack, "pipes", tmp_path)
    deaf.close(deaf._hears)
    with greeting(desk, [deaf.given, deaf.taken]) as door:
        assert hear(door) == ["joined", pipe.HANDED]
        deaf.say(INITIALIZE)
        assert hear(door) == []
    while len(links_of(desk.process.pid)) > before:
        assert run_pipe(environment, tmp_path, "obsidian").stderr == JOINED


@requirement("joining:straight")
def test_a_client_that_never_reads_keeps_nobody_waiting(
    desk: Running, environment: dict[str, str], tmp_path: Path, stack: ExitStack
) -> None:
    ends = Ends(stack, "pipes", tmp_path)
    with greeting(desk, [ends.given, ends.taken]) as door:
        assert hear(door) == ["joined", pipe.HANDED]
        ends.say(INITIALIZE, READY)
        ends.say(*(LIST | {"id": number} for number in range(300)))
        assert run_pipe(environment, tmp_path, "obsidian").stderr == JOINED
        other = Ends(stack, "pipes", tmp_path)
        with joined(environment, tmp_path, other):
            other.say(INITIALIZE)
            assert other.hear()["id"] == "first"
        assert {ends.hear()["id"] for _ in range(301)} == {"first", *range(300)}
        ends.say(*(LIST | {"id": number} for number in range(300)))
    until_closed(desk, environment, tmp_path, ends)
