"""The vault: what can be done with notes, safely. Knows nothing of MCP and nothing of approval."""

import os
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from deskhand.errors import Changed, Denied, FieldProblem, InvalidInput, NotFound, TooLarge, Unreadable, printable
from deskhand.notes import disk, frontmatter, paths, walk
from deskhand.notes.index import Index, NoteList, is_absent
from deskhand.notes.links import Move, relink, same, stem, wikilinks

_TRIES = 5
_PAGE = 1000
_BACKLINKS = 30


class NoteContent(BaseModel):
    path: str = Field(description="vault-relative path (canonical)")
    frontmatter: dict[str, Any]
    body: str
    etag: str = Field(description="pass it as if_match to write only if nobody changed the note since")
    warning: str | None = Field(None, exclude_if=is_absent)


@dataclass(frozen=True, slots=True)
class FolderListing:
    """What lies directly in a folder, by name."""

    path: str
    folders: list[str]
    notes: list[str]


class MovedNote(BaseModel):
    moved: bool = True
    links_updated: int | None = Field(None, exclude_if=is_absent)
    links_left: list[str] | None = Field(None, exclude_if=is_absent)


class Vault:
    def __init__(self, root: Path, index_file: Path, sign: Callable[[str], object]) -> None:
        """`sign` is given the text of each note before a tool writes or moves it."""
        self._root = root
        self._sign = sign
        self._index = Index(root, index_file)

    def close(self) -> None:
        self._index.close()

    @property
    def index(self) -> Index:
        return self._index

    def read(self, path: str) -> NoteContent:
        return _content(*self._bytes(path))

    def text(self, path: str) -> str:
        """The note as it lies on the disk, frontmatter and all."""
        canonical, data = self._bytes(path)
        return _decode(data, canonical)

    def _bytes(self, path: str) -> tuple[str, bytes]:
        *folders, name = paths.note_path(path)
        with paths.opened(self._root, tuple(folders)) as (folder, found):
            actual = paths.on_disk(folder, name)
            if actual is None:
                raise NotFound(f"there is no note {path}", path=path, hint="list_notes shows what is there")
            return "/".join((*found, actual)), disk.read(folder, actual)

    def write(
        self, path: str, properties: dict[str, Any], body: str, *, if_match: str | None = None, merge: bool = False
    ) -> NoteContent:
        names = paths.note_path(path)
        paths.deny_protected(names)
        fresh = _encode(frontmatter.render(properties, body), path)
        with paths.opened(self._root, names[:-1], create=if_match is None) as (folder, found), disk.locked(folder):
            actual = paths.on_disk(folder, names[-1]) or unicodedata.normalize("NFC", names[-1])
            canonical = "/".join((*found, actual))
            try:
                old = disk.read(folder, actual)
            except FileNotFoundError:
                if if_match is not None:
                    raise Changed(f"{path} is gone", hint="write it without if_match to make it anew") from None
                self._sign(fresh.decode())
                disk.create(folder, actual, fresh)
                new = fresh
            else:
                if if_match not in (None, disk.etag(old)):
                    raise Changed(f"{path} was changed since it was read", hint="read it again, then decide")
                new = _rewrite(old, canonical, properties, body, merge=merge)
                if new != old:
                    self._sign(_decode(new, canonical))
                    disk.replace(folder, actual, new, if_match)
        self._index.touch(canonical)
        return _content(canonical, new)

    def move(self, source: str, destination: str, *, update_links: bool = False) -> MovedNote:
        old_names = paths.note_path(source, "source")
        new_names = paths.note_path(destination, "destination")
        paths.deny_protected(old_names)
        paths.deny_protected(new_names)
        with paths.opened(self._root, old_names[:-1]) as (folder, old_folders):
            name = paths.on_disk(folder, old_names[-1])
            if name is None:
                raise NotFound(f"there is no note {source}", path=source)
            old = "/".join((*old_folders, name))
            with paths.opened(self._root, new_names[:-1], create=True) as (target, new_folders):
                new_name = unicodedata.normalize("NFC", new_names[-1])
                new = "/".join((*new_folders, new_name))
                with disk.locked(folder, target):
                    _demand_free(target, new_name, old, new)
                    try:
                        self._sign(disk.read(folder, name).decode(errors="replace"))
                        disk.move(folder, name, target, new_name)
                    except FileNotFoundError:
                        raise NotFound(f"there is no note {source}", path=source) from None
        self._index.touch(old, new)
        if update_links:
            return self._update_links(old, new)
        return MovedNote()

    def list_notes(self, directory: str, filter_: str | None, limit: int, cursor: str | None) -> NoteList:
        with paths.opened(self._root, paths.folder_path(directory)) as (_, found):
            return self._index.list("/".join(found), _field(filter_), limit, cursor)

    def search(self, query: str, limit: int, cursor: str | None) -> NoteList:
        return self._index.search(query, limit, cursor)

    def folder(self, directory: str) -> FolderListing:
        with paths.opened(self._root, paths.folder_path(directory)) as (folder, found), os.scandir(folder) as listed:
            entries = [entry for entry in listed if walk.is_visible(entry.name)]
            folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            files = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        notes = filter(walk.is_note, files)
        return FolderListing("/".join(found), sorted(folders, key=str.casefold), sorted(notes, key=str.casefold))

    def paths_named(self, name: str) -> list[str]:
        """The notes that a link means by their bare name, the ones nearest to the top first."""
        found = [path for path in _all_paths(partial(self._index.list, "", None, _PAGE)) if same(stem(path), name)]
        return sorted(found, key=lambda path: (path.count("/"), path))

    def linked_from(self, path: str) -> list[str]:
        """Notes that name this one in a wikilink, among the newest few that mention it."""
        found = self._index.search(f"[[{stem(path)}", _BACKLINKS, None).notes
        return [note.path for note in found if note.path != path and self._has_link(note.path, path)]

    def _has_link(self, holder: str, path: str) -> bool:
        try:
            body = self.read(holder).body
        except (NotFound, Unreadable, Denied):
            return False
        ends = (path[: -len(".md")], stem(path))
        return any(same(target.removesuffix(".md"), end) for target in wikilinks(body) for end in ends)

    def _update_links(self, old: str, new: str) -> MovedNote:
        """Let links to the moved note follow it, one note at a time, each as safely as any other write."""
        holders = self._mentions(stem(old))
        namesakes = [path for path in holders if same(stem(path), stem(old)) and path != new]
        others = [path for path in self._mentions(stem(new)) if same(stem(path), stem(new)) and path != new]
        way = Move(old, new, old_name_is_unique=not namesakes, new_name_is_unique=not others)
        updated = 0
        left: list[str] = []
        for holder in holders:
            try:
                updated += self._relink(holder, way)
            except (Denied, Unreadable):
                left.append(holder)
        return MovedNote(links_updated=updated, links_left=left or None)

    def _mentions(self, name: str) -> list[str]:
        found: dict[str, None] = {}
        for query in {name, name.replace(" ", "%20")}:
            found |= dict.fromkeys(_all_paths(partial(self._index.search, query, _PAGE)))
        return list(found)

    def _relink(self, holder: str, way: Move) -> int:
        names = paths.note_path(holder)
        with paths.opened(self._root, names[:-1]) as (folder, _):
            for _ in range(_TRIES):
                old = disk.read(folder, names[-1])
                text = relink(_decode(old, holder), holder, way)
                if text.encode() == old:
                    return 0
                paths.deny_protected(names)
                try:
                    with disk.locked(folder):
                        disk.replace(folder, names[-1], text.encode(), disk.etag(old))
                except Changed:
                    continue
                self._index.touch(holder)
                return 1
        raise Changed(f"{holder} is being written all the time")


def _all_paths(ask: Callable[[str | None], NoteList]) -> Iterator[str]:
    """The paths of every page; `ask` takes a cursor."""
    page = ask(None)
    yield from (note.path for note in page.notes)
    while page.next_cursor:
        page = ask(page.next_cursor)
        yield from (note.path for note in page.notes)


def _content(path: str, data: bytes) -> NoteContent:
    note = frontmatter.parse(_decode(data, path))
    return NoteContent(
        path=path, frontmatter=note.frontmatter, body=note.body, etag=disk.etag(data), warning=note.warning
    )


def _rewrite(old: bytes, path: str, properties: dict[str, Any], body: str, *, merge: bool) -> bytes:
    text = _decode(old, path)
    if merge:
        properties = frontmatter.parse(text).frontmatter | properties
    return _encode(frontmatter.rewrite(text, properties, body), path)


def _decode(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(
            f"{path} is not UTF-8 (byte {error.start})",
            hint="convert it in an editor; nothing was changed",
            reason="encoding",
            path=path,
        ) from error


def _encode(text: str, path: str) -> bytes:
    data = text.encode()
    if len(data) > disk.SIZE_LIMIT:
        raise TooLarge(f"{path} would be too large for a note", limit=disk.SIZE_LIMIT)
    return data


def _demand_free(folder: int, name: str, old: str, new: str) -> None:
    """A name that differs from another only in case or Unicode form is taken as well, except by the note itself."""
    taken = paths.on_disk(folder, name)
    if taken is not None and new != old and not (taken != name and same(old, new)):
        raise Denied(f"{new} exists already", reason="exists", hint="choose another destination", path=new)


def _field(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    key, colon, value = text.partition(":")
    if not colon or not key.strip():
        raise InvalidInput(
            "the filter is not of the form field:value",
            fields=[FieldProblem("filter", "must be field:value", printable(text), "status:pending")],
        )
    return key.strip(), value.strip()
