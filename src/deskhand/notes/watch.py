"""What changes below a folder, as the system reports it: a hint, since reports can get lost."""

import ctypes
import logging
import os
import struct
import sys
import threading
from pathlib import Path

from deskhand.notes import walk

STEP_MS = 20
DEBOUNCE_MS = 40
# The first report, even an empty one, says that the watch stands.
REPORT_MS = 250

# IN_MODIFY, IN_ATTRIB, IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF
# and IN_ONLYDIR.
_EVENTS = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800 | 0x1000000
# File systems whose files no other machine changes: ext, tmpfs, xfs, btrfs, f2fs, overlayfs, zfs, bcachefs.
_OWN = frozenset(
    {
        0xEF53,
        0x1021994,
        0x58465342,
        0x9123683E,
        0xF2F52010,
        0x794C7630,
        0x2FC12FC1,
        0xCA451A4E,
    }
)

log = logging.getLogger(__name__)


class ChangeQueue:
    """Linux's own queue of changes in folders. What was done before it is asked is in it, so it needs no thread and no
    waiting; it is there only for file systems of this machine, and counts for nothing once it could not be joined."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._root: tuple[int, int] | None = None

    def begin(self, root: walk.Root) -> None:
        """Forget what was, for a scan of this folder that begins now."""
        status = os.fstat(root.fd)
        place = (status.st_dev, status.st_ino)
        if self._fd is not None and self._root == place:
            self.is_empty()
            return
        self.close()
        if sys.platform == "linux" and _file_system(root.fd) in _OWN:
            self._fd = _call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
            self._root = place

    def watch(self, folder: int) -> None:
        """Take the changes in this folder into the queue; a scan does so before it lists the folder."""
        place = f"/proc/self/fd/{folder}".encode()
        if (
            self._fd is not None
            and _call("inotify_add_watch", self._fd, place, _EVENTS) is None
        ):
            self.close()

    def covers(self, root: walk.Root) -> bool:
        status = os.fstat(root.fd)
        return self._fd is not None and self._root == (status.st_dev, status.st_ino)

    def is_empty(self) -> bool:
        """Whether nothing was changed since the last time this was asked."""
        if self._fd is None:
            return False
        is_empty = True
        try:
            while os.read(self._fd, 1 << 16):
                is_empty = False
        except BlockingIOError:
            return is_empty
        return False

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None


def _call(name: str, *arguments: object) -> int | None:
    """What the C library's function returns; None where it fails or is not there."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = getattr(libc, name, None)
    result = found(*arguments) if found else -1
    return None if result < 0 else int(result)


def _file_system(folder: int) -> int | None:
    """The number of the folder's file system."""
    status = ctypes.create_string_buffer(512)
    if _call("fstatfs", folder, status) is None:
        return None
    return int(struct.unpack_from("l", status)[0]) & 0xFFFFFFFF


class VaultWatch:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._watched: tuple[int, int] | None = None
        self._named: set[str] = set()
        self._failed = False

    def start(self) -> None:
        with self._lock:
            if self._failed or (self._thread and self._thread.is_alive()):
                return
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._stop,), name="notes-watch", daemon=True
            )
            self._thread.start()

    def covers(self, root: walk.Root) -> bool:
        """Whether changes below this very folder are reported; a folder put in its place is another one."""
        status = os.fstat(root.fd)
        with self._lock:
            if self._watched is None:
                return False
            if self._watched != (status.st_dev, status.st_ino):
                self._stop.set()
                return False
            return bool(self._thread and self._thread.is_alive())

    def drain(self) -> set[str]:
        """The paths reported since the last call."""
        with self._lock:
            named, self._named = self._named, set()
        return named

    def close(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()

    def _run(self, stop: threading.Event) -> None:
        from watchfiles import watch

        root = os.path.realpath(self._root)
        try:
            status = Path(root).stat()
            for changes in watch(
                root,
                watch_filter=None,
                debounce=DEBOUNCE_MS,
                step=STEP_MS,
                stop_event=stop,
                rust_timeout=REPORT_MS,
                yield_on_timeout=True,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                named = {
                    os.path.relpath(path, root)
                    for _, path in changes
                    if _matters(path, root)
                }
                with self._lock:
                    self._watched = (status.st_dev, status.st_ino)
                    self._named |= named
        except (OSError, RuntimeError) as exc:
            self._failed = True
            log.warning(
                "The vault cannot be watched (%s), so it is scanned for every question.",
                exc,
            )
        finally:
            with self._lock:
                self._watched = None


def _matters(path: str, root: str) -> bool:
    """A note, or a folder that may hold some; what is gone may have been either."""
    inside = path.removeprefix(root + "/")
    if not all(map(walk.is_visible, inside.split("/"))) or inside == path:
        return False
    return walk.is_note(inside) or not Path(path).is_file()
