"""The vault: what can be done with notes, safely. Knows nothing of MCP and nothing of approval."""

import json
import os
import posixpath
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from deskhand.clock import utc_now
from deskhand.errors import (
    Changed,
    Denied,
    DeskError,
    FieldProblem,
    InvalidInput,
    NotFound,
    TooLarge,
    Unreadable,
    printable,
)
from deskhand.notes import (
    attachments,
    catalog,
    disk,
    editing,
    frontmatter,
    paths,
    ticking,
    walk,
)
from deskhand.notes.attached import read_file
from deskhand.notes.editing import Edit, EditedText
from deskhand.notes.index import Index, Last, Missing, NoteList, NoteMatch, is_absent
from deskhand.notes.links import Move, ending, is_attachment, name_key, relink, same, stem
from deskhand.notes.meaning import Likeness, Meaning
from deskhand.notes.outline import Lines, keep_outline, read_outline
from deskhand.notes.templates import DATE, Filler, format_date

SearchBy = Literal["words", "meaning", "both"]
_TRIES = 5
_SNIPPET = 160
_RANKS = 60
_PAGE = 1000
_LISTED = 200
_TAGS = 500
_LONGEST = 200


class NoteContent(BaseModel):
    path: str = Field(description="vault-relative path (canonical)")
    frontmatter: dict[str, Any]
    body: str
    etag: str = Field(
        description="pass it as if_match to write only if nobody changed the note since"
    )
    warning: str | None = Field(None, exclude_if=is_absent)


@dataclass(frozen=True, slots=True)
class FolderListing:
    """What lies directly in a folder, by name."""

    path: str
    folders: list[str]
    notes: list[str]


class EditedNote(BaseModel):
    path: str
    etag: str = Field(description="of the note as it is now")
    lines: list[str] = Field(description="where each edit of the body stands now")
    created: bool | None = Field(None, exclude_if=is_absent)


class OutlineHeading(BaseModel):
    level: int
    text: str
    line: int


class OutlineBlock(BaseModel):
    id: str
    line: int


class NoteOutline(BaseModel):
    path: str
    etag: str
    lines: int = Field(description="how many lines the file has")
    body_line: int = Field(description="the line in which the body begins")
    headings: list[OutlineHeading]
    blocks: list[OutlineBlock] = Field(description="block ids")
    left_out: int | None = Field(None, exclude_if=is_absent, description="so many more")


class OutgoingLink(BaseModel):
    link: str = Field(description="as it is written")
    path: str


class NoteLinks(BaseModel):
    path: str
    outgoing: list[OutgoingLink]
    backlinks: list[str]
    unresolved: list[str] = Field(description="links to notes that are not there")
    files: list[str] = Field(description="links to files that are no notes")
    left_out: int | None = Field(None, exclude_if=is_absent, description="so many more")


# No schema for each of them: a client that checks them one by one takes longer than the desk.
TagCounts = Annotated[dict[str, int], WithJsonSchema({"type": "object"})]


class TagList(BaseModel):
    tags: TagCounts = Field(
        description="each with the number of its notes, the most used first"
    )
    left_out: int | None = Field(None, exclude_if=is_absent, description="so many more")
    missing: Missing = Field(None, exclude_if=is_absent)


class DailyNote(BaseModel):
    path: str
    date: str
    exists: bool
    created: bool = False
    etag: str | None = Field(None, exclude_if=is_absent)


class TemplatedNote(BaseModel):
    path: str
    etag: str
    left: list[str] = Field(description="placeholders that nothing was given for")


class MovedNote(BaseModel):
    moved: bool = True
    links_updated: int | None = Field(None, exclude_if=is_absent)
    links_left: list[str] | None = Field(None, exclude_if=is_absent)


class Vault:
    def __init__(
        self,
        root: Path,
        index_file: Path,
        sign: Callable[[str], object],
        follow: Callable[[str, str], object],
        now: Callable[[], datetime] = utc_now,
        *,
        inside: paths.Inside = (),
    ) -> None:
        """`sign` is given the text of each note before a tool writes or moves it, `follow` what it said before and says
        then where the person writes; `now` is the person's local time."""
        self._root = root
        self._inside = inside
        self._sign = sign
        self._follow = follow
        self._now = now
        self._index = Index(root, index_file)

    def close(self) -> None:
        self._index.close()

    meaning: Meaning | None = None
    """The search by meaning, where a model for it is configured."""

    @property
    def index(self) -> Index:
        return self._index

    def read(self, path: str) -> NoteContent:
        return _content(*self._bytes(path))

    def text(self, path: str) -> str:
        """The note as it lies on the disk, frontmatter and all."""
        canonical, data = self._bytes(path)
        return _decode(data, canonical)

    def file(self, path: str) -> tuple[str, bytes]:
        """A file of any kind: its path as it is on the disk, and what is in it."""
        return self._bytes(path, paths.file_path)

    def attach(self, path: str, limit: int) -> tuple[str, bytes]:
        """The same for whoever sends it away: what is the desk's own stays here."""
        return read_file(self._root, path, limit, self._inside)

    def locate(self, targets: Iterable[str], holder: str) -> dict[str, str]:
        """Where the notes and files are that the note `holder` names; those that are not there are left out."""
        wanted = [*dict.fromkeys(targets)]
        notes = self._index.resolve(
            [target for target in wanted if not is_attachment(target)], holder
        )
        found = {target: path for target, path in notes.items() if path}
        files = [
            target
            for target in wanted
            if ending(target) not in ("", "md") and target not in found
        ]
        return found | attachments.find(self._root, files, holder)

    def _bytes(
        self, path: str, names: Callable[[str], tuple[str, ...]] = paths.note_path
    ) -> tuple[str, bytes]:
        *folders, name = names(path)
        with paths.opened(self._root, tuple(folders)) as (folder, found):
            actual = paths.on_disk(folder, name)
            if actual is None:
                raise _missing(path)
            return "/".join((*found, actual)), disk.read(folder, actual)

    def write(
        self,
        path: str,
        properties: dict[str, Any],
        body: str,
        *,
        if_match: str | None = None,
        merge: bool = False,
    ) -> NoteContent:
        names = paths.note_path(path)
        paths.deny_protected(names, self._inside)
        fresh = _encode(frontmatter.render(properties, body), path)
        with (
            paths.opened(self._root, names[:-1], create=if_match is None) as (
                folder,
                found,
            ),
            disk.locked(folder),
        ):
            actual = paths.on_disk(folder, names[-1]) or unicodedata.normalize(
                "NFC", names[-1]
            )
            canonical = "/".join((*found, actual))
            try:
                old = disk.read(folder, actual)
            except FileNotFoundError:
                if if_match is not None:
                    raise Changed(
                        f"{path} is gone", hint="write it without if_match to make it anew"
                    ) from None
                made = self._read_while_writing(canonical, fresh)
                disk.create(folder, actual, fresh, made)
            else:
                _demand_match(path, old, if_match)
                new = _rewrite(old, canonical, properties, body, merge=merge)
                if new == old:
                    self._index.touch(canonical)
                    return _content(canonical, old)
                made = self._read_while_writing(canonical, new)
                disk.replace(folder, actual, new, old if if_match else None, made)
        self._index.touch(canonical)
        return made.result()

    def _read_while_writing(self, path: str, data: bytes) -> disk.Meanwhile[NoteContent]:
        return disk.Meanwhile(
            partial(self._sign, _decode(data, path)), partial(_content, path, data)
        )

    def append(
        self, path: str, text: str, heading: str | None = None, *, create: bool = False
    ) -> EditedNote:
        """Add a text at the end of a note, or of what stands directly under a heading."""
        _demand_text(text)
        return self._change(
            path,
            partial(editing.append, added=text, heading=heading, create=create),
            create=create,
        )

    def edit(
        self, path: str, edits: Sequence[Edit], *, if_match: str | None = None
    ) -> EditedNote:
        """Make all the edits or none; every byte outside them stays."""
        return self._change(path, partial(editing.edit, edits=edits), if_match=if_match)

    def tick(self, path: str, line: int, mark: str, if_match: str) -> EditedNote:
        """Put another mark into the checkbox on a line of the body; every other byte stays."""
        return self._change(
            path,
            partial(ticking.tick, line=line, mark=mark),
            if_match=if_match,
            by_person=True,
        )

    def is_closed(self, path: str) -> bool:
        """Whether the note lies where only the person's own editor changes anything."""
        try:
            paths.deny_protected(paths.note_path(path), self._inside)
        except DeskError:
            return True
        return False

    def _change(
        self,
        path: str,
        change: Callable[[str], EditedText],
        *,
        if_match: str | None = None,
        create: bool = False,
        by_person: bool = False,
    ) -> EditedNote:
        names = paths.note_path(path)
        paths.deny_protected(names, self._inside)
        with paths.opened(self._root, names[:-1], create=create) as (folder, found):
            for _ in range(_TRIES):
                with disk.locked(folder):
                    actual = paths.on_disk(folder, names[-1])
                    canonical = "/".join(
                        (*found, actual or unicodedata.normalize("NFC", names[-1]))
                    )
                    old = disk.read(folder, actual) if actual else None
                    if old is None and not create:
                        raise _missing(path)
                    _demand_match(path, old or b"", if_match)
                    before = _decode(old or b"", canonical)
                    edited = change(before)
                    sign = partial(self._sign, edited.text)
                    if by_person:
                        sign = partial(self._follow, before, edited.text)
                    try:
                        tag = self._put(folder, canonical, old, edited, sign)
                    except Changed:
                        if if_match is not None:
                            raise
                        continue  # another program saved meanwhile: the same edit, in what it saved
                self._index.touch(canonical)
                created = True if old is None else None
                return EditedNote(
                    path=canonical, etag=tag, lines=edited.lines, created=created
                )
        raise Changed(f"{path} is being written all the time")

    def _put(
        self,
        folder: int,
        path: str,
        old: bytes | None,
        made: EditedText,
        sign: Callable[[], object],
    ) -> str:
        """Put the text of a note in the place of the old bytes, if those are still there; its etag."""
        new = _encode(made.text, path)
        if new == old:
            return disk.etag(new)
        name = path.rpartition("/")[2]

        def count_and_tag() -> str:
            _ = made.lines
            return disk.etag(new)

        meanwhile = disk.Meanwhile(sign, count_and_tag)
        if old is None:
            disk.create(folder, name, new, meanwhile)
        else:
            disk.replace(folder, name, new, old, meanwhile)
        disk.do_later(keep_outline(made.text).read_headings)
        return meanwhile.result()

    def outline(self, path: str) -> NoteOutline:
        canonical, data = self._bytes(path)
        outline = read_outline(_decode(data, canonical))
        number = Lines(outline.flat)
        headings = [
            OutlineHeading(
                level=each.level, text=each.text[:_LONGEST], line=number.at(each.start)
            )
            for each in outline.headings[:_LISTED]
        ]
        number = Lines(outline.flat)
        blocks = [
            OutlineBlock(id=name, line=number.at(place))
            for name, place in editing.block_ids(outline)
        ]
        return NoteOutline(
            path=canonical,
            etag=disk.etag(data),
            lines=outline.flat.count("\n") + (outline.flat[-1:] not in ("", "\n")),
            body_line=outline.line_of(outline.body),
            headings=headings,
            blocks=blocks[:_LISTED],
            left_out=_left_out(
                (len(outline.headings), len(headings)), (len(blocks), _LISTED)
            ),
        )

    def links(self, path: str) -> NoteLinks:
        canonical, data = self._bytes(path)
        targets = catalog.marks_of(_decode(data, canonical)).targets
        files = [target for target in targets if is_attachment(target)]
        found = self._index.resolve(
            [target for target in targets if not is_attachment(target)], canonical
        )
        outgoing = [
            OutgoingLink(link=target, path=path) for target, path in found.items() if path
        ]
        unresolved = [target for target, path in found.items() if path is None]
        backlinks, count = self._index.backlinks(canonical, _LISTED)
        return NoteLinks(
            path=canonical,
            outgoing=outgoing[:_LISTED],
            backlinks=[*backlinks],
            unresolved=unresolved[:_LISTED],
            files=files[:_LISTED],
            left_out=_left_out(
                (len(outgoing), _LISTED),
                (count, _LISTED),
                (len(unresolved), _LISTED),
                (len(files), _LISTED),
            ),
        )

    def daily(self, when: str | None, *, create: bool = False) -> DailyNote:
        """The note of a day, where and as Obsidian makes it in this vault."""
        now = self._now()
        day = _day(when, now)
        settings = self._daily_settings()
        name = format_date(settings.get("format") or DATE, day)
        path = _as_note(
            posixpath.join(settings.get("folder") or "", name.lstrip("/")).strip("/")
        )
        try:
            canonical, data = self._bytes(path)
        except NotFound:
            if not create:
                return DailyNote(path=path, date=day.date().isoformat(), exists=False)
        else:
            return DailyNote(
                path=canonical,
                date=day.date().isoformat(),
                exists=True,
                etag=disk.etag(data),
            )
        text = ""
        if template := settings.get("template"):
            text = self._filler(path, day, {}).fill(self.text(_as_note(template)))
        made, tag = self._create(path, text)
        return DailyNote(
            path=made, date=day.date().isoformat(), exists=True, created=True, etag=tag
        )

    def from_template(
        self, template: str, path: str, values: Mapping[str, Any]
    ) -> TemplatedNote:
        """A new note from a template of the vault; never in the place of another note."""
        filler = self._filler(path, self._now(), values)
        made, tag = self._create(path, filler.fill(self._template(template)))
        return TemplatedNote(path=made, etag=tag, left=[*filler.left])

    def _create(self, path: str, text: str) -> tuple[str, str]:
        """Make a new note; its path as it is on the disk, and its etag."""
        names = paths.note_path(path)
        paths.deny_protected(names, self._inside)
        _encode(text, path)  # what is no note must not leave a folder behind
        with (
            paths.opened(self._root, names[:-1], create=True) as (folder, found),
            disk.locked(folder),
        ):
            name = unicodedata.normalize("NFC", names[-1])
            canonical = "/".join((*found, name))
            _demand_free(folder, name, "", canonical)
            sign = partial(self._sign, text)
            tag = self._put(folder, canonical, None, EditedText(text), sign)
        self._index.touch(canonical)
        return canonical, tag

    def _template(self, name: str) -> str:
        """The template of this path, or of this name in the folder that Obsidian has for them."""
        try:
            return self.text(_as_note(name))
        except NotFound:
            folder = self._obsidian_settings("templates.json").get("folder")
            if not folder:
                raise
            return self.text(posixpath.join(folder.strip("/"), _as_note(name)))

    def _filler(self, path: str, day: datetime, values: Mapping[str, Any]) -> Filler:
        formats = self._obsidian_settings("templates.json")
        given = {"date": formats.get("dateFormat"), "time": formats.get("timeFormat")}
        return Filler(stem(path), day, self._now(), values, given)

    def _daily_settings(self) -> dict[str, str]:
        """Those of the community's periodic notes where it makes the daily ones, else Obsidian's own."""
        periodic = self._obsidian_file("plugins", "periodic-notes", "data.json").get(
            "daily"
        )
        if isinstance(periodic, dict) and periodic.get("enabled"):
            return _texts_in(periodic)
        return self._obsidian_settings("daily-notes.json")

    def _obsidian_settings(self, *names: str) -> dict[str, str]:
        """The texts in a file of Obsidian's settings; nothing where it has none."""
        return _texts_in(self._obsidian_file(*names))

    def _obsidian_file(self, *names: str) -> dict[str, Any]:
        place = "/".join((".obsidian", *names))
        try:
            with paths.opened(self._root, (".obsidian", *names[:-1])) as (folder, _):
                found = json.loads(disk.read(folder, names[-1]))
        except (NotFound, FileNotFoundError):
            return {}
        except (ValueError, RecursionError) as error:
            raise Unreadable(
                f"{place} is not JSON", hint="correct it in Obsidian's settings"
            ) from error
        return found if isinstance(found, dict) else {}

    def save(self, path: str, data: bytes) -> str:
        """Put a file of any kind into the vault, never in another's place; its path."""
        names = paths.file_path(path)
        paths.deny_protected(names, self._inside)
        with (
            paths.opened(self._root, names[:-1], create=True) as (folder, found),
            disk.locked(folder),
        ):
            name = paths.on_disk(folder, names[-1]) or unicodedata.normalize(
                "NFC", names[-1]
            )
            self._sign(data.decode(errors="replace"))
            disk.create(folder, name, data)
        canonical = "/".join((*found, name))
        if name.lower().endswith(".md"):
            self._index.touch(canonical)
        return canonical

    def move(
        self, source: str, destination: str, *, update_links: bool = False
    ) -> MovedNote:
        old_names = paths.note_path(source, "source")
        new_names = paths.note_path(destination, "destination")
        paths.deny_protected(old_names, self._inside)
        paths.deny_protected(new_names, self._inside)
        with paths.opened(self._root, old_names[:-1]) as (folder, old_folders):
            name = paths.on_disk(folder, old_names[-1])
            if name is None:
                raise NotFound(f"there is no note {source}", path=source)
            old = "/".join((*old_folders, name))
            with paths.opened(self._root, new_names[:-1], create=True) as (
                target,
                new_folders,
            ):
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

    def list_notes(
        self, directory: str, filter_: str | None, limit: int, cursor: str | None
    ) -> NoteList:
        with paths.opened(self._root, paths.folder_path(directory)) as (_, found):
            return self._index.list("/".join(found), _field(filter_), limit, cursor)

    def search(
        self,
        query: str,
        limit: int,
        cursor: str | None,
        by: SearchBy = "words",
        last: Last = None,
    ) -> NoteList:
        """`last` says of a path whether it comes behind all others."""
        if by == "words":
            return self._index.search(query, limit, cursor, last)
        if self.meaning is None:
            raise InvalidInput(
                "This desk does not search notes by meaning.",
                fields=[FieldProblem("by", "needs an embedding model", by, "words")],
                hint="The person can set notes.embedding_url and notes.embedding_model; by=words works always.",
            )
        if cursor is not None:
            raise InvalidInput(
                "By meaning there is one page.",
                hint="Ask without a cursor, with a higher limit.",
            )
        found, left = self.meaning.search(query, limit)
        alike = [_describe_likeness(each) for each in found]
        page = NoteList(notes=alike, not_known=left or None)
        if by == "both":
            worded = self._index.search(query, limit, None).notes
            page.notes = _merged(
                [note.model_copy(update={"why": "words"}) for note in worded], alike
            )[:limit]
        return page

    def folder(self, directory: str) -> FolderListing:
        with (
            paths.opened(self._root, paths.folder_path(directory)) as (folder, found),
            os.scandir(folder) as listed,
        ):
            entries = [entry for entry in listed if walk.is_visible(entry.name)]
            folders = [
                entry.name for entry in entries if entry.is_dir(follow_symlinks=False)
            ]
            files = [
                entry.name for entry in entries if entry.is_file(follow_symlinks=False)
            ]
        notes = filter(walk.is_note, files)
        return FolderListing(
            "/".join(found),
            sorted(folders, key=str.casefold),
            sorted(notes, key=str.casefold),
        )

    def paths_named(self, name: str) -> list[str]:
        """The notes that a link means by their bare name, the ones nearest to the top first."""
        return sorted(
            self._index.paths_named(name), key=lambda path: (path.count("/"), path)
        )

    def _update_links(self, old: str, new: str) -> MovedNote:
        """Let links to the moved note follow it, one note at a time, each as safely as any other write."""
        holders = self._mentions(stem(old))
        namesakes = [
            path for path in holders if same(stem(path), stem(old)) and path != new
        ]
        others = [
            path
            for path in self._mentions(stem(new))
            if same(stem(path), stem(new)) and path != new
        ]
        way = Move(
            old, new, old_name_is_unique=not namesakes, new_name_is_unique=not others
        )
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
                paths.deny_protected(names, self._inside)
                self._sign(text)
                try:
                    with disk.locked(folder):
                        disk.replace(folder, names[-1], text.encode(), old)
                except Changed:
                    continue
                self._index.touch(holder)
                return 1
        raise Changed(f"{holder} is being written all the time")


def count_tags(indexes: Sequence[Sequence[tuple[str, int]]]) -> TagList:
    """The tags of one or several indexes, the most used first."""
    # In one index no tag is written in two ways.
    found = indexes[0] if len(indexes) == 1 else _add_up(chain(*indexes))
    ordered = sorted(found, key=lambda each: (-each[1], each[0].casefold()))
    return TagList(tags=dict(ordered[:_TAGS]), left_out=_left_out((len(ordered), _TAGS)))


def _add_up(found: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    shown: dict[str, str] = {}
    counted: Counter[str] = Counter()
    for tag, notes in found:
        name = name_key(tag)
        counted[name] += notes
        shown.setdefault(name, tag)
    return [(shown[name], notes) for name, notes in counted.items()]


def _describe_likeness(found: Likeness) -> NoteMatch:
    line = " ".join(found.text.split())[:_SNIPPET]
    return NoteMatch(
        path=found.path, snippet=line or None, why=f"meaning {found.score:.2f}"
    )


def _merged(worded: Sequence[NoteMatch], alike: Sequence[NoteMatch]) -> list[NoteMatch]:
    """Both lists as one: who stands high in either stands high, who is in both highest."""
    scores: dict[str, float] = defaultdict(float)
    shown: dict[str, NoteMatch] = {}
    for note in (*worded, *alike):
        known = shown.setdefault(note.path, note)
        if known is not note:
            shown[note.path] = known.model_copy(update={"why": f"{known.why}, {note.why}"})
    for listed in (worded, alike):
        for rank, note in enumerate(listed):
            scores[note.path] += 1 / (_RANKS + rank)
    return [shown[path] for path in sorted(scores, key=scores.__getitem__, reverse=True)]


def _texts_in(settings: Mapping[str, Any]) -> dict[str, str]:
    """Whatever else somebody wrote there is none of Obsidian's."""
    return {key: value for key, value in settings.items() if isinstance(value, str)}


def _as_note(path: str) -> str:
    """Obsidian names a template without its ending."""
    return path if path.lower().endswith(".md") else f"{path}.md"


def _day(text: str | None, now: datetime) -> datetime:
    """The day that is meant, at this time of day."""
    days = {"today": 0, "yesterday": -1, "tomorrow": 1}
    word = (text or "today").strip().lower()
    if word in days:
        return now + timedelta(days=days[word])
    try:
        found = date.fromisoformat(word)
    except ValueError:
        problem = FieldProblem(
            "date", "is not a date", printable(text), now.date().isoformat()
        )
        raise InvalidInput(
            "The date cannot be read.", fields=[problem], hint="Write it as 2026-11-30."
        ) from None
    return now.replace(year=found.year, month=found.month, day=found.day)


def _missing(path: str) -> NotFound:
    missing = NotFound(
        f"there is no note {path}", path=path, hint="list_notes shows what is there"
    )
    missing.to_person = (
        missing.message,
        "`deskhand notes list`, or Notes on the page, shows what is there",
    )
    return missing


def _demand_match(path: str, data: bytes, if_match: str | None) -> None:
    if if_match is not None and if_match != disk.etag(data):
        raise Changed(
            f"{path} was changed since it was read", hint="read it again, then decide"
        )


def _demand_text(text: str) -> None:
    if not text.strip():
        raise InvalidInput(
            "There is nothing to add.", fields=[FieldProblem("text", "must not be blank")]
        )


def _left_out(*lists: tuple[int, int]) -> int | None:
    """How many are left out, of lists of which so many are there and so many are shown."""
    return sum(max(0, there - shown) for there, shown in lists) or None


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
        path=path,
        frontmatter=note.frontmatter,
        body=note.body,
        etag=disk.etag(data),
        warning=note.warning,
    )


def _rewrite(
    old: bytes, path: str, properties: dict[str, Any], body: str, *, merge: bool
) -> bytes:
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
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"What would be in {path} is not valid Unicode.") from None
    if len(data) > disk.SIZE_LIMIT:
        raise TooLarge(f"{path} would be too large for a note", limit=disk.SIZE_LIMIT)
    return data


def _demand_free(folder: int, name: str, old: str, new: str) -> None:
    """A name that differs from another only in case or Unicode form is taken as well,
    except by the note itself."""
    taken = paths.on_disk(folder, name)
    if taken is not None and new != old and not (taken != name and same(old, new)):
        raise Denied(
            f"{new} exists already",
            reason="exists",
            hint="choose another destination",
            path=new,
        )


def _field(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    key, colon, value = text.partition(":")
    if not colon or not key.strip():
        raise InvalidInput(
            "the filter is not of the form field:value",
            fields=[
                FieldProblem(
                    "filter", "must be field:value", printable(text), "status:pending"
                )
            ],
        )
    return key.strip(), value.strip()
