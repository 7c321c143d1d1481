"""Writes a file whole: whoever reads it, also after a crash, finds the old file or the new one, never half of it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deskhand.durable import sync


def write_atomically(path: Path, data: bytes, mode: int | None = 0o600) -> None:
    """Put `data` into the file, whether it is there or not. With the mode None the umask decides."""
    with temporary_beside(path) as made:
        _write(made, data, mode)
        made.replace(path)
    sync_folder(path.parent)


def create_once(path: Path, data: bytes) -> None:
    """Make the file with `data` unless it is there: of several processes one makes it, and all find the same."""
    with temporary_beside(path) as made:
        _write(made, data, 0o600)
        try:
            os.link(made, path)
        except FileExistsError:
            return
    sync_folder(path.parent)


@contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """A free name in the same folder. What is left under it at the end is removed."""
    made = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        yield made
    finally:
        made.unlink(missing_ok=True)


def private_mode(folder: int, mode: int) -> int:
    """The mode of something new in the folder that only its owner may use, and whom the folder's own entries name.

    Where access-control entries are inherited, the group's bits are the mask that lets the others in.
    """
    if sys.platform != "linux":
        return mode
    try:
        inherited = "system.posix_acl_default" in os.listxattr(folder)
    except OSError:  # a file system without them
        return mode
    return mode | (mode >> 3 & 0o070) if inherited else mode


def open_private(path: str, flags: int) -> int:
    """For `open(…, opener=open_private)`: a file that is made so is its owner's alone from the first moment."""
    return os.open(path, flags, 0o600)


def _write(made: Path, data: bytes, mode: int | None) -> None:
    descriptor = os.open(
        made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode or 0o666
    )
    with os.fdopen(descriptor, "wb") as opened:
        if mode is not None:
            os.fchmod(descriptor, mode)  # also what the umask would take away
        opened.write(data)
        opened.flush()
        sync(opened.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in the folder are on the disk: what has no name after a power cut is gone."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(opened)
    finally:
        os.close(opened)
