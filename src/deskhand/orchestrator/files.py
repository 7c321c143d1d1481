"""The desk's own folders in the vault, for the desk's own code: closed ones included, links never followed."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from deskhand.errors import Changed, Denied, DeskError, Exists, NotFound, Unreadable
from deskhand.gate.folders import free_name
from deskhand.notes import disk, frontmatter, paths

NEEDS_ACTION, DRAFTS, REJECTED, DONE = "Needs_Action", "Drafts", "Rejected", "Done"
_ANYWHERE = ((NEEDS_ACTION,), (DRAFTS,), ("Approved",), (REJECTED,), (DONE,))
_TRIES = 5


def make_places(root: Path) -> None:
    """The folders of the way from a mail to its answer, beside those by which the person answers."""
    if (root / "Approved").is_dir():  # where that one stays away, so do these
        with suppress(DeskError, OSError):  # whoever writes there says what is wrong
            for folder in (NEEDS_ACTION, DRAFTS, DONE):
                with paths.opened(root, (folder,), create=True):
                    pass


def place(root: Path, folder: str, name: str, text: str) -> None:
    """Write the file, unless it is there or was moved on by a person meanwhile."""
    if where(root, name) is None:
        with (
            paths.opened(root, (folder,), create=True) as (opened, _),
            disk.locked(opened),
            suppress(Exists),
        ):
            disk.create(opened, name, text.encode())


def where(root: Path, name: str) -> str | None:
    """The folder in which the file lies."""
    for folders in _ANYWHERE:
        with (
            suppress(NotFound, Denied),
            paths.opened(root, folders) as (opened, _),
            suppress(FileNotFoundError),
        ):
            os.stat(name, dir_fd=opened, follow_symlinks=False)
            return folders[0]
    return None


def read(root: Path, folder: str, name: str) -> frontmatter.Note:
    with paths.opened(root, (folder,)) as (opened, _):
        return frontmatter.parse(_decode(disk.read(opened, name)))


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(
            "It is no text in UTF-8.", hint="Save it as UTF-8.", reason="encoding"
        ) from error


def mark(
    root: Path, folder: str, name: str, changes: dict[str, Any], appended: str = ""
) -> None:
    """Set these keys and leave every other byte; `appended` goes to the end of the body, once."""

    def marked(old: bytes | None) -> bytes:
        if old is None:
            raise FileNotFoundError(name)
        text = frontmatter.merge(_decode(old), changes)
        if appended and appended not in text:
            text = f"{_end_paragraph(text)}{appended}\n"
        return text.encode()

    change(root, (folder,), name, marked)


def finish(root: Path, name: str, changes: dict[str, Any]) -> None:
    """Set these keys in a note that still waits, and put it to those that are done."""
    if where(root, name) == NEEDS_ACTION:
        with suppress(FileNotFoundError, NotFound):  # a person has just moved it on
            mark(root, NEEDS_ACTION, name, changes)
            move(root, name, NEEDS_ACTION, DONE)


def reopen(root: Path, name: str) -> None:
    """Let a note wait again that was done for a newer mail of its conversation, or because its mail was gone."""

    def reopened(old: bytes | None) -> bytes:
        text = _decode(old or b"")
        said = frontmatter.parse(text).frontmatter | {"status": "needs_info"}
        for mark in ("continued_by", "left_inbox"):
            said.pop(mark, None)
        return (frontmatter.alter(text, said) or text).encode()

    if where(root, name) == DONE:
        with suppress(FileNotFoundError, NotFound):  # a person has just moved it on
            move(root, name, DONE, NEEDS_ACTION)
            change(root, (NEEDS_ACTION,), name, reopened)


def _end_paragraph(text: str) -> str:
    """The text with the line ends that it lacks before another paragraph."""
    if text.endswith(("\n\n", "\n\r\n")):
        return text
    if text.endswith("\n"):
        return f"{text}\n"
    return f"{text}\n\n"


def change(
    root: Path,
    folders: tuple[str, ...],
    name: str,
    changed: Callable[[bytes | None], bytes],
) -> None:
    """Put there what `changed` makes of what is there; what another program writes meanwhile is never lost."""
    with paths.opened(root, folders, create=True) as (opened, _):
        for _ in range(_TRIES):
            old = None
            with suppress(FileNotFoundError):
                old = disk.read(opened, name)
            new = changed(old)
            if new == old:
                return
            with suppress(Changed, Exists), disk.locked(opened):
                if old is None:
                    disk.create(opened, name, new)
                else:
                    disk.replace(opened, name, new, old)
                return
    raise Changed(f"{'/'.join((*folders, name))} is being written all the time")


def move(root: Path, name: str, source: str, target: str) -> None:
    """A file that is gone was moved by somebody else; where the target has one of that name, it gets another."""
    with (
        paths.opened(root, (source,)) as (old, _),
        paths.opened(root, (target,), create=True) as (new, _),
        suppress(FileNotFoundError),
        disk.locked(old, new),
    ):
        disk.move(old, name, new, free_name(new, name))


def names(root: Path, folder: str) -> list[str]:
    with suppress(DeskError), paths.opened(root, (folder,)) as (opened, _):
        return sorted(
            entry.name for entry in os.scandir(opened) if entry.name.lower().endswith(".md")
        )
    return []


class Stamp(NamedTuple):
    """A note as it stands there: another one after each change."""

    name: str
    changed: int
    size: int


def stamps(root: Path, folder: str) -> list[Stamp]:
    """The notes of a folder, the oldest first; none where there is no such folder."""
    found = []
    with suppress(NotFound), paths.opened(root, (folder,)) as (opened, _):
        for entry in os.scandir(opened):
            if entry.name.lower().endswith(".md") and not entry.name.startswith("."):
                with suppress(FileNotFoundError):
                    info = entry.stat(follow_symlinks=False)
                    found.append(Stamp(entry.name, info.st_mtime_ns, info.st_size))
    return sorted(found, key=lambda each: (each.changed, each.name))


def stamp(root: Path, folder: str) -> int:
    """Changes whenever a file enters or leaves the folder."""
    with suppress(OSError):  # whoever looks then says what is wrong
        return (root / folder).lstat().st_mtime_ns
    return 0


def read_own(root: Path, folder: str, name: str) -> bytes | None:
    """A file of the desk's own; None where it cannot be read, or is none that the desk wrote."""
    with suppress(DeskError, OSError), paths.opened(root, (folder,)) as (opened, _):
        return disk.read(opened, name)
    return None


def write(root: Path, folders: tuple[str, ...], name: str, data: bytes) -> None:
    """Put a file of the desk's own there, whole, whatever was there before."""
    with paths.opened(root, folders, create=True) as (opened, _), disk.locked(opened):
        try:
            if disk.read(opened, name) != data:
                disk.replace(opened, name, data, None)
        except FileNotFoundError:
            disk.create(opened, name, data)
        except (DeskError, OSError):  # a link, a pipe, or nothing that the desk may read
            disk.replace(opened, name, data, None)
