"""One desk runs once: whoever started it holds a lock in its home and says there where it listens."""

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from deskhand.errors import Unavailable

FILE = "running.json"
_GLANCE = 0.01
_GLANCES = 100


@dataclass(frozen=True, slots=True)
class RunningDesk:
    pid: int
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class DeskLock:
    """The right to run the desk in this home, until it is closed or the process ends in any way."""

    def __init__(self, opened: int) -> None:
        self._opened = opened

    def tell(self, port: int) -> None:
        os.ftruncate(self._opened, 0)
        os.pwrite(self._opened, json.dumps({"pid": os.getpid(), "port": port}).encode(), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.ftruncate(self._opened, 0)
        os.close(self._opened)


def acquire(home: Path) -> DeskLock | RunningDesk:
    """The right to run here, or who has it."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    opened = os.open(home / FILE, os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(_GLANCES):
        if _locked(opened, fcntl.LOCK_EX):
            os.ftruncate(opened, 0)
            return DeskLock(opened)
        # Whoever only looks shares the lock for a moment; whoever runs shares it with nobody.
        if not _locked(opened, fcntl.LOCK_SH):
            break
        fcntl.flock(opened, fcntl.LOCK_UN)
        time.sleep(_GLANCE)
    try:
        return _said(opened, home)
    finally:
        os.close(opened)


def find(home: Path) -> RunningDesk | None:
    """The desk that runs in this home, if one does."""
    try:
        opened = os.open(home / FILE, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return None if _locked(opened, fcntl.LOCK_SH) else _said(opened, home)
    finally:
        os.close(opened)


def _locked(opened: int, how: int) -> bool:
    try:
        fcntl.flock(opened, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _said(opened: int, home: Path) -> RunningDesk:
    text = os.pread(opened, 1000, 0)
    if not text:
        raise Unavailable(f"the desk in {home} is just starting or ending", hint="try again in a moment")
    return RunningDesk(**json.loads(text))
