"""The notes below a folder, as the file system has them: regular files, no links, no dot-names."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG

from deskhand.errors import Unavailable
from deskhand.notes.disk import SIZE_LIMIT
from deskhand.notes.root import (
    BENEATH,
    NO_LINKS,
    has_shut,
    is_shut,
    open_at_once,
    open_folder,
)

# mtime_ns, size, inode, ctime_ns: as long as these are the same, so is the file
Key = tuple[int, int, int, int]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO that somebody named like a note must not block the open.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SIGNED = (1 << 63) - 1
_REACHED = 64
_ENDINGS = (".md", ".MD", ".Md", ".mD")


class Root:
    """The vault's folder, open, and the folders below it that were reached last: most notes share theirs."""

    def __init__(self, fd: int, place: Path) -> None:
        self.fd = fd
        self._place = place
        self._has_shut = has_shut(place)
        self._reached: dict[str, int] = {}

    def reach(self, path: str) -> int:
        """A descriptor of the folder, reached without following any link; it is closed with the root."""
        self._demand_open(path)
        if not path:
            return self.fd
        if path not in self._reached:
            inner = self._open_folder(path)
            if len(self._reached) >= _REACHED:
                self._let_go()
            self._reached[path] = inner
        return self._reached[path]

    def _open_folder(self, path: str) -> int:
        """From the nearest folder that is open: step by step, since they may lie thousands deep."""
        near = path.rpartition("/")[0]
        while near and near not in self._reached:
            near = near.rpartition("/")[0]
        inner = os.dup(self._reached.get(near, self.fd))
        for name in path[len(near) :].lstrip("/").split("/"):
            outer = inner
            try:
                inner = os.open(name, _FOLDER, dir_fd=outer)
            finally:
                os.close(outer)
        return inner

    def open(self, path: str) -> int:
        """A descriptor of the file, reached without following any link."""
        self._demand_open(path)
        found = open_at_once(self.fd, path, _FILE, NO_LINKS | BENEATH)
        if found is not None:
            return found
        folder, _, name = path.rpartition("/")
        return os.open(name, _FILE, dir_fd=self.reach(folder))

    def close(self) -> None:
        self._let_go()
        os.close(self.fd)

    def _demand_open(self, path: str) -> None:
        if self._has_shut and is_shut(self._place, path.split("/")):
            raise PermissionError(errno.EACCES, "The desk's home lies there", path)

    def _let_go(self) -> None:
        for fd in self._reached.values():
            os.close(fd)
        self._reached.clear()


@contextmanager
def open_root(root: Path) -> Iterator[Root]:
    try:
        folder = Root(open_folder(root), root)
    except OSError as exc:
        raise Unavailable(
            f"The vault cannot be opened: {exc.strerror}.",
            hint="Check that the folder exists, is mounted and may be read.",
            path=str(root),
        ) from exc
    try:
        yield folder
    finally:
        folder.close()


def scan(
    root: Root,
    start: str = "",
    pause: Callable[[], None] | None = None,
    enter: Callable[[int], None] | None = None,
) -> dict[str, Key]:
    """Every note at or below `start`, with its key. Before each folder, `pause` and
    `enter` (with its descriptor)."""
    if start and not all(map(is_visible, start.split("/"))):
        return {}
    found: dict[str, Key] = {}
    if is_note(start) and (key := key_of(root, start)):
        found[start] = key
    folders = [start]
    while folders:
        if pause:
            pause()
        folder = folders.pop()
        try:
            reached = root.reach(folder)
            if enter:
                enter(reached)
            with os.scandir(reached) as entries:
                _sort(entries, f"{folder}/".lstrip("/"), found, folders)
        except OSError:
            continue  # gone, replaced by a link or not ours to read: nothing there to show
    return found


def key_of(root: Root, path: str) -> Key | None:
    """The note's key; None when there is no note."""
    folder, _, name = path.rpartition("/")
    try:
        return _key_in(os.stat(name, dir_fd=root.reach(folder), follow_symlinks=False))
    except OSError:
        return None


def read(root: Root, path: str) -> tuple[bytes, Key] | None:
    """The note's bytes and the key it had before they were read; None when it is no note (any more)."""
    try:
        file = root.open(path)
    except PermissionError:
        key = key_of(root, path)
        return key and (b"", key)
    except OSError:
        return None
    try:
        key = _key_in(os.fstat(file))
        return key and (_content(file, key[1]), key)
    except OSError:
        return None
    finally:
        os.close(file)


def is_note(name: str) -> bool:
    return name.endswith(_ENDINGS)


def is_visible(name: str) -> bool:
    if name[:1] == ".":
        return False
    # A name that is not UTF-8 cannot be said over MCP, so such a file could never be opened by its name.
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _sort(
    entries: Iterator["os.DirEntry[str]"],
    prefix: str,
    found: dict[str, Key],
    folders: list[str],
) -> None:
    for entry in entries:
        name = entry.name
        if not is_visible(name):
            continue
        if entry.is_dir(follow_symlinks=False):
            folders.append(prefix + name)
        elif name.endswith(_ENDINGS):
            try:
                key = _key_in(entry.stat(follow_symlinks=False))
            except FileNotFoundError:
                continue
            if key:
                found[prefix + name] = key


def _key_in(status: os.stat_result) -> Key | None:
    # No name at all: it was replaced since it was opened, and is still a whole note.
    if not S_ISREG(status.st_mode) or status.st_nlink > 1:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino & _SIGNED, status.st_ctime_ns


def _content(file: int, size: int) -> bytes:
    """Nothing of what is too large for a note: by its name it is there all the same."""
    if size > SIZE_LIMIT:
        return b""
    data = os.read(file, size + 1)
    while (
        data
        and len(data) != size
        and len(data) <= SIZE_LIMIT
        and (more := os.read(file, 1 << 20))
    ):
        data += more
    return data
