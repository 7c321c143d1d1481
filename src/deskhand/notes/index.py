"""Lists and searches a vault of any size through a disposable index, always as the files are now.

The index names candidates; every hit is verified in its file before it is shown. So an index that is behind, or
not yet complete, can make an answer slower but never wrong.
"""

import base64
import json
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from deskhand.errors import FieldProblem, InvalidInput, Unavailable, printable
from deskhand.notes import catalog, frontmatter, links, lookup, matching, walk
from deskhand.notes.lookup import Candidate
from deskhand.notes.matching import Query, fold
from deskhand.notes.upkeep import Upkeep, View

SCAN_BUDGET = 0.015
"""The vault is scanned for every question as long as a scan takes no longer than this, in seconds."""
BATCH = 500
NEWEST = (1 << 63) - 1
Last = Callable[[str], bool] | None
"""Says of a path whether its note comes behind all others of a search; None: none does."""

_Answer = TypeVar("_Answer")
_Place = TypeVar("_Place", bound=tuple[Any, ...])

log = logging.getLogger(__name__)


def is_absent(value: object) -> bool:
    """The optional extras are said only where there is something to say: without them it
    is the contract's shape."""
    return value is None


Missing = SkipJsonSchema[dict[str, str] | None]
"""Vaults that do not answer, each with the reason; where there are several."""


class NoteMatch(BaseModel):
    path: str
    snippet: str | None = None
    vault: str | None = Field(None, exclude_if=is_absent)
    why: str | None = Field(
        None,
        exclude_if=is_absent,
        description="words, or meaning with how alike from 0 to 1",
    )
    # For whoever puts several answers together; they are said to nobody.
    tier: SkipJsonSchema[int] = Field(1, exclude=True)
    id: SkipJsonSchema[int] = Field(0, exclude=True)


class NoteList(BaseModel):
    notes: list[NoteMatch]
    next_cursor: str | None = Field(None, exclude_if=is_absent)
    # It comes with a next page: exact where that is cheap, else the most there can be.
    total: int | None = Field(None, exclude_if=is_absent)
    as_of: datetime | None = Field(None, exclude_if=is_absent)
    not_known: int | None = Field(
        None, exclude_if=is_absent, description="notes the model has not seen yet"
    )
    missing: Missing = Field(None, exclude_if=is_absent)
    stamp: SkipJsonSchema[str] = Field("", exclude=True)


class Index:
    def __init__(
        self,
        root: Path,
        file: Path,
        now: Callable[[], float] = time.time,
        *,
        scan_budget: float = SCAN_BUDGET,
        batch: int = BATCH,
        background: bool = True,
    ) -> None:
        self._upkeep = Upkeep(root, file, now, scan_budget, batch, background=background)

    def list(
        self, directory: str, field: tuple[str, str] | None, limit: int, cursor: str | None
    ) -> NoteList:
        folder = directory.strip("/")
        wanted = field and (fold(field[0]), fold(field[1]))
        return self._answer(lambda view: _list(view, folder, wanted, limit, cursor))

    def search(
        self, query: str, limit: int, cursor: str | None, last: Last = None
    ) -> NoteList:
        asked = matching.query(query)
        return self._answer(lambda view: _search(view, asked, limit, cursor, last))

    def paths_named(self, name: str) -> Sequence[str]:
        """The notes that a link may mean by their bare name."""
        return self._answer(
            lambda view: _there(view, lookup.paths_named(view.db, links.link_key(name)))
        )

    def resolve(self, targets: Iterable[str], holder: str) -> dict[str, str | None]:
        """Which note each link in the note `holder` means, if there is one."""
        written = [*targets]

        def ask(view: View) -> dict[str, str | None]:
            return {target: _resolve(view, target, holder) for target in written}

        return self._answer(ask)

    def backlinks(self, path: str, limit: int) -> tuple[Sequence[str], int]:
        """The notes with a link to this one, by path, and how many there are at most."""
        return self._answer(lambda view: _backlinks(view, path, limit))

    def tags(self) -> Sequence[tuple[str, int]]:
        """Every tag with the number of notes that have it."""
        return self._answer(_tags)

    def touch(self, *paths: str) -> None:
        """These paths were just written, moved or deleted: the next question must see it."""
        self._upkeep.touch({path.strip("/") for path in paths})

    def build(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Bring the index completely up to date, in the foreground."""
        self._attempt_twice(partial(self._upkeep.build, progress))

    def close(self) -> None:
        self._upkeep.close()

    def _answer(self, ask: Callable[[View], _Answer]) -> _Answer:
        def attempt() -> _Answer:
            with self._upkeep.view() as view:
                return ask(view)

        return self._attempt_twice(attempt)

    def _attempt_twice(self, attempt: Callable[[], _Answer]) -> _Answer:
        """A damaged index is thrown away and made again, once."""
        try:
            return attempt()
        except sqlite3.DatabaseError as exc:
            if catalog.is_busy(exc):
                raise _unusable(exc) from exc
            log.warning("The index of the notes is damaged (%s) and is made anew.", exc)
            self._upkeep.discard()
        except OSError as exc:
            raise _unusable(exc) from exc
        try:
            return attempt()
        except (sqlite3.DatabaseError, OSError) as exc:
            raise _unusable(exc) from exc


def _unusable(error: Exception) -> Unavailable:
    return Unavailable(
        f"The index of the notes cannot be used: {error}.",
        hint="Check that its folder may be written and the disk is not full; the index itself may be deleted.",
    )


def _list(
    view: View, folder: str, wanted: tuple[str, str] | None, limit: int, cursor: str | None
) -> NoteList:
    low, high = catalog.paths_below(folder)
    stamp = _stamp("list", folder, wanted)
    (after,) = _position(cursor, stamp, (low,))
    found = _verify_paths(view, wanted, after, high)
    notes = [NoteMatch(path=path) for path in islice(found, demand_limit(limit))]
    page = NoteList(notes=notes, as_of=view.as_of)
    if next(found, None) is not None:
        page.next_cursor = _cursor(stamp, notes[-1].path)
        page.total = lookup.count_paths(view.db, wanted, low, high)
    return page


def _verify_paths(
    view: View, wanted: tuple[str, str] | None, after: str, high: str
) -> Iterator[str]:
    for path, unsure in lookup.paths_with(view.db, wanted, after, high):
        is_there = (
            _has_property(view, path, wanted)
            if unsure and wanted
            else walk.key_of(view.root, path)
        )
        if is_there:
            yield path


def _has_property(view: View, path: str, wanted: tuple[str, str]) -> bool:
    content = walk.read(view.root, path)
    if content is None:
        return False
    source = content[0].decode("utf-8", "replace")
    block, _ = frontmatter.split(source)
    # What is null need not be written as that word.
    words = [] if wanted[1] == frontmatter.NULL else wanted[1].split()
    if not block or not all(matching.may_hold(block, word) for word in words):
        return False
    return wanted in catalog.text_of(source).properties


def _there(view: View, found: Iterable[str]) -> list[str]:
    return [path for path in found if walk.key_of(view.root, path)]


def _resolve(view: View, target: str, holder: str) -> str | None:
    return links.resolve(
        target, holder, _there(view, lookup.paths_named(view.db, links.link_key(target)))
    )


def _backlinks(view: View, path: str, limit: int) -> tuple[list[str], int]:
    name = links.link_key(path)
    namesakes = lookup.paths_named(view.db, name)

    def leads_here(holder: str, targets: Iterable[str]) -> bool:
        if holder == path:
            return False
        if len(namesakes) == 1 and any("/" not in target for target in targets):
            return True
        return any(links.resolve(target, holder, namesakes) == path for target in targets)

    filed = groupby(lookup.links_to(view.db, name), key=itemgetter(0))
    found = [
        holder
        for holder, rows in filed
        if leads_here(holder, [target for _, target in rows])
    ]
    for holder in lookup.stale_notes(view.db):
        source = _source(view, holder) or ""
        if name not in fold(source) and "%" not in source:
            continue
        if leads_here(
            holder,
            [
                each
                for each in catalog.marks_of(source).targets
                if links.link_key(each) == name
            ],
        ):
            found.append(holder)
    found.sort()
    return _there(view, found[:limit]), len(found)


def _tags(view: View) -> list[tuple[str, int]]:
    stale = [*lookup.stale_notes(view.db)]
    if not stale:
        return [(written, notes) for _, written, notes in lookup.every_tag(view.db)]
    shown: dict[str, str] = {}
    counted: Counter[str] = Counter()
    for name, written, notes in lookup.every_tag(view.db):
        shown[name] = written
        counted[name] = notes
    for filed in lookup.filed_tags_of_stale(view.db):
        counted.subtract(map(links.name_key, json.loads(filed)))
    for path in stale:
        for tag in catalog.marks_of(_source(view, path) or "").tags:
            shown.setdefault(links.name_key(tag), tag)
            counted[links.name_key(tag)] += 1
    return [(shown[name], notes) for name, notes in counted.items() if notes > 0]


def _source(view: View, path: str) -> str | None:
    content = walk.read(view.root, path)
    return content and content[0].decode("utf-8", "replace")


def _search(
    view: View, asked: Query, limit: int, cursor: str | None, last: Last
) -> NoteList:
    order = "search" if last is None else "search, some last"
    stamp = _stamp(order, asked.whole, catalog.generation(view.db))
    tier, before = _position(cursor, stamp, (1, NEWEST))
    parts = lookup.parts(view.db, asked)
    matches = list(
        islice(_matches(view, asked, parts, tier, before, last), demand_limit(limit) + 1)
    )
    page = NoteList(
        notes=[match.note(asked) for match in matches[:limit]],
        as_of=view.as_of,
        stamp=stamp,
    )
    if len(matches) > limit:
        page.next_cursor = cursor_behind(page, page.notes[-1])
        page.total = lookup.count_matches(view.db, parts)
    return page


LATER = 2
"""Added to the tier of a note that comes behind all others."""
TIERS = (1, 2, 1 + LATER, 2 + LATER)
"""The whole query or each of its words; then both once more for what comes last."""


@dataclass(frozen=True, slots=True)
class _Match:
    tier: int
    id: int
    path: str
    source: str

    def note(self, asked: Query) -> NoteMatch:
        block, body = frontmatter.split(self.source)

        def values(needle: str) -> list[str]:
            # Parsing costs more than all the rest, and most needles are not there.
            if not all(matching.may_hold(block or "", word) for word in needle.split()):
                return []
            text = catalog.text_of(self.source)
            return [*text.values, text.body]

        # In the second tier the whole query is nowhere, and looking for it would parse every frontmatter.
        whole = self.tier in (1, 1 + LATER)
        needles = (asked.whole,) if whole else asked.words
        snippet = matching.snippet(needles, self.path, values, body)
        return NoteMatch(path=self.path, snippet=snippet, tier=self.tier, id=self.id)


def _matches(
    view: View,
    asked: Query,
    parts: lookup.Parts,
    tier: int,
    before: int,
    last: Last,
) -> Iterator[_Match]:
    tiers = range(1, min(len(asked.words), 2) + 1)
    turns = [(each, 0) for each in tiers]
    if last is not None:
        turns += [(each, LATER) for each in tiers]
    for current, later in turns:
        if current + later < tier:
            continue
        for candidate in lookup.candidates(view.db, asked, parts, current, before):
            if last is not None and last(candidate.path) != bool(later):
                continue
            match = _verify(view, candidate, asked, current)
            if match and match.tier == current:
                if later:
                    match = replace(match, tier=current + later)
                yield match
        before = NEWEST


def _verify(view: View, candidate: Candidate, asked: Query, tier: int) -> _Match | None:
    """The match as it is in the file now."""
    content = walk.read(view.root, candidate.path)
    if content is None:
        return None
    data, key = content
    source = data.decode("utf-8", "replace")
    now = tier if candidate.is_filed_as(key) else _tier(asked, candidate.path, source)
    return _Match(now, candidate.id, candidate.path, source) if now else None


def _tier(asked: Query, path: str, source: str) -> int | None:
    block, body = frontmatter.split(source)
    rough = f"{fold(path)}\n{fold(body)}"
    # Parsing costs more than all the rest, and most notes need none.
    if any(
        word not in rough and not matching.may_hold(block or "", word)
        for word in asked.words
    ):
        return None
    return asked.tier(catalog.text_of(source).fold(path))


def demand_limit(limit: int) -> int:
    if limit < 1:
        raise InvalidInput(
            "A page has at least one entry.",
            fields=[FieldProblem("limit", "is below 1", str(limit))],
        )
    return limit


def _stamp(*question: object) -> str:
    """A cursor continues the question that it came from, and no other."""
    return blake2b(json.dumps(question).encode(), digest_size=6).hexdigest()


def cursor_behind(page: NoteList, note: NoteMatch) -> str:
    """Where a search goes on behind this match of a page."""
    return _cursor(page.stamp, note.tier, note.id)


def _cursor(stamp: str, *position: object) -> str:
    return base64.urlsafe_b64encode(json.dumps([stamp, *position]).encode()).decode()


def _position(cursor: str | None, stamp: str, start: _Place) -> _Place:
    """Where the cursor points, in the form of `start`, which is where one begins without a cursor."""
    if cursor is None:
        return start
    try:
        given, *position = json.loads(
            base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
        )
    except (ValueError, TypeError, RecursionError):
        given, position = None, []
    if given != stamp or [*map(type, position)] != [*map(type, start)]:
        raise strange_cursor(cursor)
    return cast("_Place", tuple(position))


def strange_cursor(cursor: str) -> InvalidInput:
    return InvalidInput(
        "This cursor does not continue this question.",
        fields=[
            FieldProblem(
                "cursor", "is not of this question or no longer valid", printable(cursor)
            )
        ],
        hint="Ask again without a cursor.",
    )
