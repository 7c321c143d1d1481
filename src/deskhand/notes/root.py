"""How the vault's own folder is opened, before anything inside it.

The folders above it may belong to somebody else: a guarded desk works in a vault of the person's account, and whatever
runs there can put a link in its place. A link is followed where it is root's or this user's own, and nobody else's.
Where the desk's home lies in a vault, no path and no search leads into it.
"""

import ctypes
import errno
import os
import stat
import struct
import sys
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A folder that may only be passed through cannot be opened for reading.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
_HERE = -100
"""AT_FDCWD, which does not matter to an absolute path."""
# openat2 has the same number on every processor. RESOLVE_NO_MAGICLINKS and RESOLVE_NO_SYMLINKS.
_OPENAT2 = 437
NO_LINKS = 0x2 | 0x4
BENEATH = 0x8
"""RESOLVE_BENEATH: not out of the folder in which it begins."""
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


def has_shut(root: Path) -> bool:
    """Whether a desk's home lies in the vault at all."""
    return root in _SHUT


def loose(name: str) -> str:
    """What names have in common that some file systems take for the same."""
    return unicodedata.normalize("NFC", name).casefold()


def has_same_letters(one: str, other: str) -> bool:
    """Whether names differ in the case of letters and in form alone: Maße and Masse do not."""
    folded, expected = (
        [*map(str.casefold, unicodedata.normalize("NFC", name))] for name in (one, other)
    )
    return folded == expected


def open_folder(path: Path) -> int:
    """A descriptor of the folder at this path."""
    if sys.platform != "linux":  # where no desk is guarded
        return os.open(path, _FOLDER)
    with suppress(
        OSError
    ):  # there is a link, or something that the walk says in its own words
        found = open_at_once(_HERE, str(path.absolute()), _FOLDER, NO_LINKS)
        if found is not None:
            return found
    reached = _walk(str(path.absolute()))
    try:
        return os.open(".", _FOLDER, dir_fd=reached)
    finally:
        os.close(reached)


@cache
def _system_call() -> Any:
    """The C library's way to call the system; None where openat2 cannot be called so."""
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "syscall", None)


@cache
def _how(flags: int, resolve: int) -> bytes:
    return struct.pack("QQQ", flags, 0, resolve)


def open_at_once(folder: int, path: str, flags: int, resolve: int) -> int | None:
    """What a walk from folder to folder gives, by one call of the system; None where it has none for that."""
    call = _system_call()
    if call is None:
        return None
    how = _how(flags, resolve)
    found = int(call(_OPENAT2, folder, os.fsencode(path), how, len(how)))
    if found >= 0:
        return found
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
        return None
    raise OSError(code, os.strerror(code), path)


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
