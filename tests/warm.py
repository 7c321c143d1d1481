"""`deskhand` processes that need not import it first: half of what the tests cost was importing.

A process of the test run has imported the desk and waits. `PYTHON -m deskhand …`, with the PYTHON that `warm_python`
gives, asks it to fork, and hands over its arguments, environment, folder and open files: what runs is a process of its
own. A signal to PYTHON goes on to the fork, and both end with one exit code. A test to which more matters (the id of
the process, another user, limits, a terminal, what is imported) starts `sys.executable` instead.
"""

import atexit
import contextlib
import gc
import importlib
import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

HEAVY = [
    "deskhand.cli",
    "deskhand.orchestrator.loop",
    "deskhand.resident.up",
    "deskhand.servers.desk",
    "deskhand.setup.doctor",
    "deskhand.tasks.api",
]
LONGEST = 200_000
SHARED = "WARM_PYTHON"
GREETING = b"?"
# Python reads these when it starts; whoever gives one gets a Python that starts.
EARLY = ("PYTHON", "LC_", "LANG")

# Nothing but what Python has built in: `json` and `socket` take longer to import than Python itself takes to start.
LAUNCHER = """\
#!{python} -SIE
import _signal, _socket, marshal, os, sys

early = {{name for name in os.environ if name.startswith({early})}}
for name in ("LC_CTYPE", "LANG"):
    if os.environ.get(name) == "C.UTF-8":  # as Python itself says where nobody says anything
        early.remove(name)
if sys.argv[1:3] != ["-m", "deskhand"] or early:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
umask = os.umask(0)
order = {{"arguments": sys.argv[3:], "environment": dict(os.environ), "folder": os.getcwd(), "umask": umask}}
forge = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
forge.connect({place!r})
signals = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP)
_signal.pthread_sigmask(_signal.SIG_BLOCK, signals)  # none comes before the order
for number in signals:
    _signal.signal(number, lambda number, _: forge.send(bytes([number])))
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
forge.sendmsg([marshal.dumps(order)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
_signal.pthread_sigmask(_signal.SIG_UNBLOCK, signals)
null = os.open(os.devnull, os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(null, number)
code = int(forge.recv(100) or b"1")
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@cache
def warm_python() -> str:
    """A program to be called as `PROGRAM -m deskhand …`, as soon as nothing has to be imported for it any more."""
    folder = Path(os.environ.get(SHARED) or start_forge())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waiting:
        waiting.connect(str(folder / "socket"))
        waiting.send(GREETING)
        assert waiting.recv(1) == GREETING
    return str(folder / "python")


def start_forge() -> str:
    """A forge for this process and all that it starts; its folder."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    place = str(folder / "socket")
    launcher = folder / "python"
    launcher.write_text(LAUNCHER.format(python=sys.executable, early=EARLY, place=place))
    launcher.chmod(0o755)
    # As bare as the environment of a test's desk; coverage alone wants to be known.
    names = ("PATH", "HOME", "COVERAGE_PROCESS_CONFIG", "TMPDIR")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(place)
        listener.listen(100)
        number = listener.fileno()
        forge = subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(number), str(folder)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[number],
        )
    assert forge.stdin is not None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(forge.wait, timeout=20)
    atexit.register(forge.stdin.close)
    os.environ[SHARED] = str(folder)
    return str(folder)


def main(number: int, folder: Path) -> NoReturn:
    """Import, then fork for whoever asks, until the test run ends."""
    sys.path.pop(0)  # this file's folder
    for name in HEAVY:
        importlib.import_module(name)
    prepare(folder / "home")
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=number) as listener:
        Forge(listener).run()


def prepare(folder: Path) -> None:
    """Make what a process makes once, and every fork then has: the command line and the form of each tool."""
    from deskhand.app import Desk
    from deskhand.cli import parser
    from deskhand.config import load
    from deskhand.servers import SERVERS

    desk = Desk(
        load({"DESKHAND_HOME": str(folder), "VAULT_PATH": str(folder.parent)}).settings
    )
    parser()
    for kind in SERVERS.values():
        if kind.name != "agentmail":  # which is of an agent, and none is here
            kind.make(desk)
    desk.close()


class Forge:
    """Forks for launchers; signals go from each to its fork, the exit code comes back."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._launchers: dict[int, socket.socket] = {}
        self._pids: dict[int, int] = {}
        """The forks by the descriptors of their launchers."""
        self._forks: dict[int, int] = {}
        """The descriptors of launchers by those of their forks."""
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._poll.register(0, select.POLLIN)

    def run(self) -> NoReturn:
        while True:
            for file, _ in self._poll.poll():
                if file == 0:
                    os._exit(0)
                elif file == self._listener.fileno():
                    connection, _ = self._listener.accept()
                    self._launchers[connection.fileno()] = connection
                    self._poll.register(connection, select.POLLIN)
                elif file in self._forks:
                    self._tell_end(file)
                elif file in self._launchers:
                    self._hear(file)

    def _hear(self, file: int) -> None:
        connection = self._launchers[file]
        if file not in self._pids:
            self._fork(connection)
            return
        # A launcher that is gone was killed, with its group.
        number = connection.recv(1)
        if not number:
            self._poll.unregister(connection)
        with contextlib.suppress(ProcessLookupError):
            if number:
                os.kill(self._pids[file], number[0])
            else:
                os.killpg(self._pids[file], signal.SIGKILL)

    def _fork(self, connection: socket.socket) -> None:
        message, files, _, _ = socket.recv_fds(connection, LONGEST, 3)
        if message in (b"", GREETING):
            with contextlib.suppress(OSError):
                connection.send(message)
            self._forget(connection)
            return
        pid = os.fork()
        if not pid:
            self._close()
            become(files, **marshal.loads(message))
        for each in files:
            os.close(each)
        fork = os.pidfd_open(pid)
        self._pids[connection.fileno()] = pid
        self._forks[fork] = connection.fileno()
        self._poll.register(fork, select.POLLIN)

    def _tell_end(self, fork: int) -> None:
        connection = self._launchers[self._forks.pop(fork)]
        pid = self._pids.pop(connection.fileno())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(OSError):
            connection.send(str(code).encode())
        self._poll.unregister(fork)
        os.close(fork)
        self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        with contextlib.suppress(KeyError):
            self._poll.unregister(connection)
        del self._launchers[connection.fileno()]
        connection.close()

    def _close(self) -> None:
        """In a fork: what it need not have."""
        self._listener.close()
        for connection in self._launchers.values():
            connection.close()
        for fork in self._forks:
            os.close(fork)


def become(
    files: list[int],
    arguments: list[str],
    environment: dict[str, str],
    folder: str,
    umask: int,
) -> NoReturn:
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv[1:] = arguments
    sys.stdin = renew(sys.stdin, 0, "r")
    sys.stdout = renew(sys.stdout, 1, "w")
    sys.stderr = renew(sys.stderr, 2, "w")
    leave(run_desk())


def run_desk() -> int:
    from deskhand.__main__ import main as run

    try:
        return run()
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 1


def leave(code: int) -> NoReturn:
    """As Python ends, but for taking apart everything that was ever imported, which takes longer than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def renew(stream: Any, number: int, mode: str) -> Any:
    """What Python would have made of this file at its start."""
    buffering = 1 if number == 2 else -1
    return open(number, mode, buffering, stream.encoding, stream.errors, closefd=False)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
