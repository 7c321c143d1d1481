"""How the vault's own folder is opened, before anything inside it.

The folders above it may belong to somebody else: a guarded desk works in a vault of the person's account, and whatever
runs there can put a link in its place. A link is followed where it is root's or this user's own, and nobody else's.
Where the desk's home lies in a vault, no path and no search leads into it.
"""

import errno
import os
import stat
import sys
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A folder that may only be passed through cannot be opened for reading.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
_SHUT: dict[Path, set[tuple[str, ...]]] = {}
"""By the vault: the folders in it that are a desk's home."""


def shut(root: Path, home: Path) -> None:
    """Let nobody reach the desk's home by way of this vault, if it lies there."""
    with suppress(ValueError):
        names = home.resolve().relative_to(root.resolve()).parts
        _SHUT.setdefault(root, set()).add(tuple(map(loose, names)))


def is_shut(root: Path, names: Sequence[str]) -> bool:
    """Whether this folder of the vault is the desk's home, or lies in it."""
    return any(
        tuple(map(loose, names[: len(home)])) == home for home in _SHUT.get(root, ())
    )


def loose(name: str) -> str:
    """What names have in common that some file systems take for the same."""
    return unicodedata.normalize("NFC", name).casefold()


def open_folder(path: Path) -> int:
    """A descriptor of the folder at this path."""
    if sys.platform != "linux":  # where no desk is guarded
        return os.open(path, _FOLDER)
    reached = _walk(str(path.absolute()))
    try:
        return os.open(".", _FOLDER, dir_fd=reached)
    finally:
        os.close(reached)


def _walk(path: str) -> int:
    names = path.split("/")[::-1]
    reached = os.open("/", _STEP)
    links = 0
    try:
        while names:
            name = names.pop()
            if name in ("", "."):
                continue
            start = name
            if _is_link(name, reached, path):
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, "Too many links on the way", path)  # noqa: TRY301 - see below
                target = os.readlink(name, dir_fd=reached)
                names += target.split("/")[::-1]
                if not target.startswith("/"):
                    continue
                start = "/"
            inner = os.open(start, _STEP, dir_fd=reached)
            os.close(reached)
            reached = inner
    except OSError:
        os.close(reached)
        raise
    return reached


def _is_link(name: str, folder: int, path: str) -> bool:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        return False
    if found.st_uid not in (0, os.geteuid()):
        raise OSError(errno.ELOOP, "Somebody else has put a link on the way to it", path)
    return True
