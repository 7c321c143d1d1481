"""The right to write the last dot of a mail: a file that can be taken once.

Whoever sends takes it in that moment, and whoever looks what became of a mail and finds it knows that nothing was sent.
A process that was only stopped may go on: of all who have the mail in hand, one gets the permit. Nobody waits for the
disk: after a power cut a file may be there again, and so it counts only while the machine has not been started anew.
"""

import os
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_OLD = timedelta(days=1)


def grant(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / name).write_text(_boot())


def stands(folder: Path, name: str) -> bool:
    """Whether it was granted since the machine was started, and nobody took it."""
    try:
        return (folder / name).read_text() == _boot()
    except OSError:
        return False


def take(folder: Path, name: str) -> bool:
    """Whether the one who asks may write the dot."""
    if not stands(folder, name):
        return False
    try:
        (folder / name).unlink()
    except FileNotFoundError:
        return False
    return True


def sweep(folder: Path, now: datetime) -> None:
    """Remove what those left behind who failed or were killed."""
    with suppress(FileNotFoundError):
        for file in folder.iterdir():
            if file.stat().st_mtime < (now - _OLD).timestamp():
                file.unlink()


@cache
def _boot() -> str:
    """Another after each start of the machine; where the machine does not say, after each
    start of the process."""
    try:
        return _BOOT.read_text()
    except OSError:
        return os.urandom(16).hex()
