"""Waiting for a lock: not for ever, and whoever gave up says which process has it."""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from deskhand.errors import Unavailable

SECONDS = 10.0
_PAUSE = 0.01
_STOPPED = frozenset("Tt")


def wait_for_lock(opened: int, what: str, seconds: float | None = None) -> None:
    """Take the flock on an open file or folder. Who is killed lets go of it; who is stopped keeps it."""
    until = time.monotonic() + (seconds or SECONDS)
    while True:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise Unavailable(
                    f"{what} is held by {find_holder(opened, 'FLOCK')}",
                    hint="let that process go on, or end it",
                    reason="locked",
                ) from None
            time.sleep(_PAUSE)
        else:
            return


def find_holder(file: int | str, kind: str, byte: int = 0) -> str:
    """Which process has a lock on the file, which may be open here, as the system says; in words."""
    with suppress(OSError):
        inode = os.stat(file).st_ino  # noqa: PTH116 - it may be a descriptor
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            match line.split():
                case [_, found, _, "WRITE", pid, place, first, last] if (
                    found == kind and place.endswith(f":{inode}")
                ):
                    if int(first) <= byte and (last == "EOF" or byte <= int(last)):
                        return _describe_process(pid)
    return "another process"


def _describe_process(pid: str) -> str:
    with suppress(OSError, IndexError):
        name, _, rest = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")
        )
        stopped = ", which is stopped" if rest.split()[0] in _STOPPED else ""
        return f"process {pid} ({name.partition('(')[2]}{stopped})"
    return f"process {pid}"
