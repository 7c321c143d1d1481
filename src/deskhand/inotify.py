"""A doorbell that the kernel rings when files in a folder change; programs that know nothing of us ring it too."""

import ctypes
import ctypes.util
import os
import select
import struct
import sys
from collections.abc import Sequence
from typing import Self

from deskhand.errors import Unavailable

_MODIFY, _MOVED_TO, _CREATE, _OVERFLOW, _IGNORED = 0x2, 0x80, 0x100, 0x4000, 0x8000
_EVENT = struct.Struct("iIII")


class Bell:
    """Rings for changes made since it was hung up: hang it up, look, and only then wait."""

    def __init__(self, *folders: str, names: Sequence[str] = ()) -> None:
        """Listen for the files called `names` in `folders`; for all of them where no name is given."""
        if not sys.platform.startswith("linux"):
            raise Unavailable("waiting for mail needs Linux's inotify", hint="ask again without waiting")
        self._names = frozenset(map(os.fsencode, names))
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        for folder in folders:
            watched = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), _MODIFY | _MOVED_TO | _CREATE)
            self._checked(watched)

    def wait(self, seconds: float) -> bool:
        """Whether it rang within so many seconds; it may ring for nothing, never keep silent."""
        if not select.select([self._fd], [], [], max(seconds, 0))[0]:
            return False
        return self._mine(os.read(self._fd, 65536))

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mine(self, events: bytes) -> bool:
        position = 0
        while position < len(events):
            _, mask, _, length = _EVENT.unpack_from(events, position)
            position += _EVENT.size + length
            if mask & _IGNORED:
                raise Unavailable("the watched folder is gone", reason="no_watch")
            name = events[position - length : position].rstrip(b"\0")
            if not self._names or name in self._names or mask & _OVERFLOW:
                return True
        return False

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise Unavailable(f"the folder cannot be watched: {os.strerror(number)}", reason="no_watch")
        return result
