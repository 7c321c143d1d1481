"""One desk runs once: whoever started it holds a lock in its home, and says there where it listens and what is down."""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import Self

from deskhand.errors import Unavailable

FILE = "running.json"
_TRIES = 100
_PAUSE = 0.01
"""Seconds between two tries: whoever only looks holds the lock for less."""


@dataclass(frozen=True, slots=True)
class RunningDesk:
    """The process that runs the desk of a home, and where it listens."""

    pid: int
    port: int
    down: dict[str, str] = field(default_factory=dict)
    """The parts that do not run, and why."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class DeskLock:
    """The right to run the desk in this home, until it is closed or the process ends in any way."""

    def __init__(self, opened: int) -> None:
        self._opened = opened

    def announce(self, port: int, down: Mapping[str, str]) -> None:
        """Say where the desk listens and which of its parts do not run, for those who look for it."""
        text = json.dumps({"pid": os.getpid(), "port": port, "down": dict(down)})
        # First longer, then shorter: who reads in between finds blanks behind the text and never half of it.
        size = os.fstat(self._opened).st_size
        os.pwrite(self._opened, text.ljust(size).encode(), 0)
        os.ftruncate(self._opened, len(text))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        os.ftruncate(self._opened, 0)
        os.close(self._opened)


def acquire(home: Path) -> DeskLock | RunningDesk:
    """The right to run a desk in this home, or the desk that has it."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    opened = os.open(home / FILE, os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(_TRIES):
        if _try_lock(opened, fcntl.LOCK_EX):
            os.ftruncate(opened, 0)
            return DeskLock(opened)
        # Whoever only looks shares the lock for a moment; whoever runs shares it with nobody.
        if not _try_lock(opened, fcntl.LOCK_SH):
            break
        fcntl.flock(opened, fcntl.LOCK_UN)
        time.sleep(_PAUSE)
    try:
        return _read(opened, home)
    finally:
        os.close(opened)


def find(home: Path) -> RunningDesk | None:
    """The desk that runs in this home, if one does."""
    try:
        # In a home that is not ours, it may be a pipe or anything else.
        opened = os.open(home / FILE, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        if not S_ISREG(os.fstat(opened).st_mode) or _try_lock(opened, fcntl.LOCK_SH):
            return None
        return _read(opened, home)
    finally:
        os.close(opened)


def has_died(home: Path) -> bool:
    """Whether a desk ran in this home last and was ended before it could say so."""
    if find(home) is not None:
        return False
    with suppress(OSError):
        return (home / FILE).stat().st_size > 0
    return False


def _try_lock(opened: int, how: int) -> bool:
    try:
        fcntl.flock(opened, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(opened: int, home: Path) -> RunningDesk:
    text = os.pread(opened, 1 << 20, 0)
    if not text:
        raise Unavailable(
            f"the desk in {home} is just starting or ending", hint="try again in a moment"
        )
    try:
        return RunningDesk(**json.loads(text))
    except (ValueError, TypeError):
        hint = "end the program that holds it, and remove it"
        raise Unavailable(f"{home / FILE} is no desk's", hint=hint) from None
