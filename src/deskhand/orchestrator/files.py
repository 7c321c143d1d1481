"""The desk's own folders in the vault, for the desk's own code: closed ones included, links never followed."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from deskhand.errors import Changed, DeskError, Exists
from deskhand.notes import disk, frontmatter, paths

NEEDS_ACTION, DRAFTS, DONE = "Needs_Action", "Drafts", "Done"
_ANYWHERE = ((NEEDS_ACTION,), (DRAFTS,), ("Approved",), ("Rejected",), (DONE,))
_TRIES = 5


def place(root: Path, folder: str, name: str, text: str) -> None:
    """Write the file, unless it is there or was moved on by a person meanwhile."""
    if where(root, name) is None:
        with paths.opened(root, (folder,), create=True) as (opened, _), disk.locked(opened), suppress(Exists):
            disk.create(opened, name, text.encode())


def where(root: Path, name: str) -> str | None:
    """The folder in which the file lies."""
    for folders in _ANYWHERE:
        with suppress(DeskError), paths.opened(root, folders) as (opened, _), suppress(FileNotFoundError):
            os.stat(name, dir_fd=opened, follow_symlinks=False)
            return folders[0]
    return None


def read(root: Path, folder: str, name: str) -> frontmatter.Note:
    with paths.opened(root, (folder,)) as (opened, _):
        return frontmatter.parse(disk.read(opened, name).decode())


def mark(root: Path, folder: str, name: str, changes: dict[str, Any], appended: str = "") -> None:
    """Set these keys and leave every other byte; `appended` goes to the end of the body, once."""
    with paths.opened(root, (folder,)) as (opened, _):
        for _ in range(_TRIES):
            old = disk.read(opened, name)
            text = frontmatter.merge(old.decode(), changes)
            if appended and appended not in text:
                text = f"{text.rstrip()}\n\n{appended}\n"
            if text.encode() == old:
                return
            with suppress(Changed), disk.locked(opened):
                disk.replace(opened, name, text.encode(), disk.etag(old))
                return
    raise Changed(f"{folder}/{name} is being written all the time")


def move(root: Path, name: str, source: str, target: str) -> None:
    """A file that is gone was moved by somebody else; one of that name in the target is never replaced."""
    with (
        paths.opened(root, (source,)) as (old, _),
        paths.opened(root, (target,), create=True) as (new, _),
        suppress(FileNotFoundError),
        disk.locked(old, new),
    ):
        disk.move(old, name, new, name)


def names(root: Path, folder: str) -> list[str]:
    with suppress(DeskError), paths.opened(root, (folder,)) as (opened, _):
        return sorted(entry.name for entry in os.scandir(opened) if entry.name.lower().endswith(".md"))
    return []


def stamp(root: Path, folder: str) -> int:
    """Changes whenever a file enters or leaves the folder."""
    with suppress(FileNotFoundError):
        return (root / folder).lstat().st_mtime_ns
    return 0


def write(root: Path, folders: tuple[str, ...], name: str, text: str) -> None:
    """Put a file of the desk's own there, whole, whatever was there before."""
    with paths.opened(root, folders, create=True) as (opened, _), disk.locked(opened):
        try:
            if disk.read(opened, name) != text.encode():
                disk.replace(opened, name, text.encode(), None)
        except FileNotFoundError:
            disk.create(opened, name, text.encode())
