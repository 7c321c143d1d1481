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
import json
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
# Python reads these when it starts; whoever gives one gets a Python that starts.
EARLY = ("PYTHON", "LC_", "LANG")

LAUNCHER = """\
#!{python} -SIE
import json, os, signal, socket, sys

early = {{name for name in os.environ if name.startswith({early})}}
if os.environ.get("LC_CTYPE") == "C.UTF-8":  # Python's own doing, where nothing else was said
    early.remove("LC_CTYPE")
if sys.argv[1:3] != ["-m", "deskhand"] or early:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
umask = os.umask(0)
order = {{"arguments": sys.argv[3:], "environment": dict(os.environ), "folder": os.getcwd(), "umask": umask}}
forge = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
forge.connect({place!r})
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, _: forge.send(bytes([number])))
socket.send_fds(forge, [json.dumps(order).encode()], [0, 1, 2])
null = os.open(os.devnull, os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(null, number)
code = json.loads(forge.recv(100) or "1")
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@cache
def warm_python() -> str:
    """A program to be called as `PROGRAM -m deskhand …`."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    place = str(folder / "socket")
    launcher = folder / "python"
    launcher.write_text(LAUNCHER.format(python=sys.executable, early=EARLY, place=place))
    launcher.chmod(0o755)
    # As bare as the environment of a test's desk; coverage alone wants to be known.
    names = ("PATH", "HOME", "COVERAGE_PROCESS_CONFIG", "TMPDIR")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    command = [sys.executable, str(Path(__file__)), place]
    forge = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert forge.stdin is not None
    assert forge.stdout is not None
    assert forge.stdout.read(1) == b"."
    forge.stdout.close()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(forge.wait, timeout=20)
    atexit.register(forge.stdin.close)
    return str(launcher)


def main(place: str) -> NoReturn:
    """Import, then fork for whoever asks, until the test run ends."""
    sys.path.pop(0)  # this file's folder
    for name in HEAVY:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(place)
        listener.listen(100)
        gc.collect()
        gc.freeze()
        os.write(1, b".")
        while True:
            ready, _, _ = select.select([listener.fileno(), 0], [], [])
            if 0 in ready:
                os._exit(0)
            connection, _ = listener.accept()
            reap()
            if not os.fork():
                listener.close()
                attend(connection)
            connection.close()


def reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def attend(connection: socket.socket) -> NoReturn:
    """Between the launcher and its fork: signals go there, the exit code comes back."""
    message, files, _, _ = socket.recv_fds(connection, LONGEST, 3)
    pid = os.fork()
    if not pid:
        connection.close()
        become(files, **json.loads(message))
    for file in (0, 1, 2, *files):
        os.close(file)
    fork = os.pidfd_open(pid)
    while True:
        ready, _, _ = select.select([connection.fileno(), fork], [], [])
        if fork in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with contextlib.suppress(OSError):
                connection.send(json.dumps(code).encode())
            os._exit(0)
        # A launcher that is gone was killed, with its group.
        number = connection.recv(1)
        with contextlib.suppress(ProcessLookupError):
            if number:
                os.kill(pid, number[0])
            else:
                os.killpg(pid, signal.SIGKILL)


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
    main(sys.argv[1])
