"""The desk's folders of requests on the disk: files read, written and moved, links never followed."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

from deskhand.errors import DeskError, NotFound, Unreadable, printable
from deskhand.gate.requests import Folder
from deskhand.notes import disk, frontmatter, paths
from deskhand.notes.walk import is_visible


@dataclass(frozen=True, slots=True)
class RequestFile:
    """A file in one of the folders, and what was in it."""

    folder: Folder
    name: str
    text: str
    properties: dict[str, Any]
    body: str = ""
    written: int = 0
    """When it was written last, in milliseconds."""

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def content(self) -> str:
        """By what a hand-written approval is used up: no copy of it releases anything again."""
        return sha256(self.text.encode()).hexdigest()


def as_file(folder: Folder, name: str, text: str, written: int = 0) -> RequestFile:
    try:
        note = _parse(text)
    except Unreadable:
        return RequestFile(folder, name, text, {}, written=written)
    return RequestFile(folder, name, text, note.frontmatter, note.body, written)


@lru_cache(64)
def _parse(text: str) -> frontmatter.Note:
    """The files of a page of cards are read again and again, and hardly ever change."""
    return frontmatter.parse(text)


class Folders:
    def __init__(
        self,
        vault: Path,
        inside: tuple[str, ...] = (),
        kept: Mapping[Folder, int | None] | None = None,
    ) -> None:
        """`inside`: the folder of the vault in which they lie, if they lie in one. `kept`:
        those that are open."""
        self._vault = vault
        self._inside = inside
        self._kept = kept or {}

    @property
    def _root(self) -> Path:
        return self._vault.joinpath(*self._inside)

    def name_place(self, folder: Folder, name: str) -> str:
        """The file's path as the vault has it."""
        return "/".join((*self._inside, folder, name))

    def names(self, folder: Folder) -> list[tuple[str, int, int]]:
        """Each note's name, when it was changed (in nanoseconds) and its size; the newest first."""
        with self._look_into(folder) as opened:
            if opened is None:
                return []
            found = [_stamp(entry) for entry in os.scandir(opened) if _is_note(entry.name)]
        return sorted(found, key=lambda each: (each[1], each[0]), reverse=True)

    def others(self, folder: Folder) -> list[str]:
        """What lies there and is no note: files with another ending or with a name that is
        no text, and folders."""
        with self._look_into(folder) as opened:
            if opened is None:
                return []
            names = [entry.name for entry in os.scandir(opened)]
        return [
            printable(name)
            for name in names
            if not name.startswith(".") and not _is_note(name)
        ]

    def files(self, folder: Folder, since: int = 0) -> Iterator[RequestFile]:
        """Those that were written since then, the newest first. One that cannot be read hides no other."""
        unread: OSError | None = None
        for name, changed, _ in self.names(folder):
            try:
                if changed >= since and (found := self.read(folder, name)):
                    yield found
            except OSError as error:
                unread = error
        if unread is not None:
            raise unread

    def read(self, folder: Folder, name: str) -> RequestFile | None:
        with self._look_into(folder) as opened:
            if opened is None:
                return None
            try:
                written = (
                    os.stat(name, dir_fd=opened, follow_symlinks=False).st_mtime_ns
                    // 1_000_000
                )
                text = disk.read(opened, name).decode()
            except (FileNotFoundError, UnicodeDecodeError, DeskError):
                return None  # no ordinary text file: it can release nothing
        return as_file(folder, name, text, written)

    def create(self, folder: Folder, name: str, text: str) -> None:
        """Write the file, unless there is one of that name."""
        with self._open(folder) as opened, disk.locked(opened):
            if paths.on_disk(opened, name) is None:
                disk.create(opened, name, text.encode())

    def rewrite(self, found: RequestFile, text: str) -> None:
        """Only where the file still says what was found."""
        with self._open(found.folder) as folder, disk.locked(folder):
            disk.replace(folder, found.name, text.encode(), found.text.encode())

    def overwrite(self, found: RequestFile, text: str) -> None:
        with self._open(found.folder) as folder, disk.locked(folder):
            disk.replace(folder, found.name, text.encode(), None)

    def move(
        self, found: RequestFile, folder: Folder, name: str | None = None
    ) -> RequestFile:
        with self._open(found.folder) as source, self._open(folder) as target:
            free = free_name(target, name or found.name)
            disk.move(source, found.name, target, free)
        return replace(found, folder=folder, name=free)

    def mark(self, found: RequestFile, changes: Mapping[str, Any]) -> None:
        """Note in the file what became of it, a value of None by taking its key out; what
        cannot take it stays."""
        with self._open(found.folder) as folder, disk.locked(folder):
            try:
                text = disk.read(folder, found.name).decode()
                marked = _marked(text, changes)
                if marked != text:
                    disk.replace(folder, found.name, marked.encode(), None)
            except (FileNotFoundError, UnicodeDecodeError, DeskError):
                return

    def stamp(self, folder: Folder) -> int:
        """Changes whenever a file enters or leaves the folder."""
        try:
            return (self._root / folder).lstat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def claimed(self) -> list[str]:
        """Files that an earlier version put aside while it was sending: the id that the
        mail carries, and the name."""
        if not (self._root / "Approved" / ".sending").is_dir():
            return []
        with self._open("Approved", ".sending") as source:
            return [name for name in os.listdir(source) if not name.startswith(".")]  # noqa: PTH208 - a descriptor

    def return_claimed(self, claimed: str, folder: Folder) -> RequestFile | None:
        """None where another process was faster."""
        with self._open("Approved", ".sending") as source, self._open(folder) as target:
            name = free_name(target, claimed.partition(" ")[2] or claimed)
            try:
                disk.move(source, claimed, target, name)
            except FileNotFoundError:
                return None
        return self.read(folder, name)

    def has(self, folder: Folder) -> bool:
        """Whether there is such a folder. None is made by looking: a missing folder says that the
        vault is missing."""
        try:
            with paths.opened(self._vault, self._inside) as (opened, _):
                return paths.on_disk(opened, folder) is not None
        except NotFound:
            return False

    def make(self, *folders: Folder) -> None:
        for folder in folders:
            with self._open(folder):
                pass

    @contextmanager
    def keep_open(self) -> Iterator["Folders"]:
        """These folders, each opened once, for whoever looks at many files."""
        with ExitStack() as stack:
            kept = {
                folder: stack.enter_context(self._look_into(folder))
                for folder in get_args(Folder)
            }
            yield Folders(self._vault, self._inside, kept)

    @contextmanager
    def _look_into(self, folder: Folder) -> Iterator[int | None]:
        """None where there is no such folder."""
        if folder in self._kept:
            yield self._kept[folder]
            return
        if not self.has(folder):
            yield None
            return
        with self._open(folder) as opened:
            yield opened

    @contextmanager
    def _open(self, *folders: str) -> Iterator[int]:
        with paths.opened(self._vault, (*self._inside, *folders), create=True) as (
            opened,
            _,
        ):
            yield opened


def _marked(text: str, changes: Mapping[str, Any]) -> str:
    note = frontmatter.parse(text)
    gone = {key for key, value in changes.items() if value is None}
    properties = {
        key: value
        for key, value in (note.frontmatter | dict(changes)).items()
        if key not in gone
    }
    return frontmatter.rewrite(text, properties, note.body)


def _is_note(name: str) -> bool:
    return is_visible(name) and name.lower().endswith(".md")


def _stamp(entry: "os.DirEntry[str]") -> tuple[str, int, int]:
    try:
        info = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return entry.name, 0, 0
    return entry.name, info.st_mtime_ns, info.st_size


def free_name(folder: int, name: str) -> str:
    stem, _, ending = name.rpartition(".")
    wanted = name
    number = 1
    while paths.on_disk(folder, wanted) is not None:
        number += 1
        wanted = f"{stem} ({number}).{ending}"
    return wanted
