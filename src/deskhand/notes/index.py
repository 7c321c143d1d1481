"""Lists and searches a vault of any size through a disposable index, always as the files are now.

The index names candidates; every hit is verified in its file before it is shown. So an index that is behind, or
not yet complete, can make an answer slower but never wrong.
"""

import base64
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

from deskhand.errors import FieldProblem, InvalidInput, Unavailable, printable
from deskhand.notes import catalog, frontmatter, lookup, matching, walk
from deskhand.notes.lookup import Candidate
from deskhand.notes.matching import Query, fold
from deskhand.notes.upkeep import Upkeep, View

SCAN_BUDGET = 0.015
BATCH = 500
NEWEST = (1 << 63) - 1

_Answer = TypeVar("_Answer")
_Place = TypeVar("_Place", bound=tuple[Any, ...])

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hit:
    path: str
    snippet: str | None


@dataclass(frozen=True, slots=True)
class Page:
    """`total` comes with a next page: exact where that is cheap, else the most there can be."""

    hits: list[Hit]
    next_cursor: str | None
    total: int | None
    as_of: datetime | None


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

    def list(self, directory: str, field: tuple[str, str] | None, limit: int, cursor: str | None) -> Page:
        folder = directory.strip("/")
        wanted = (fold(field[0]), fold(field[1])) if field else None
        return self._ask(lambda session: _listed(session, folder, wanted, limit, cursor))

    def search(self, query: str, limit: int, cursor: str | None) -> Page:
        asked = matching.query(query)
        return self._ask(lambda session: _found(session, asked, limit, cursor))

    def touch(self, *paths: str) -> None:
        """These paths were just written, moved or deleted: the next question must see it."""
        self._upkeep.touch({path.strip("/") for path in paths})

    def build(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Bring the index completely up to date, in the foreground."""
        self._guarded(lambda: self._upkeep.build(progress or (lambda _done, _total: None)))

    def close(self) -> None:
        self._upkeep.close()

    def _ask(self, answer: Callable[[View], Page]) -> Page:
        def attempt() -> Page:
            with self._upkeep.session() as session:
                return answer(session)

        return self._guarded(attempt)

    def _guarded(self, attempt: Callable[[], _Answer]) -> _Answer:
        """A damaged index is thrown away and made anew, once."""
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


def _listed(session: View, folder: str, wanted: tuple[str, str] | None, limit: int, cursor: str | None) -> Page:
    low, high = (f"{folder}/", f"{folder}0") if folder else ("", lookup.END)
    stamp = _stamp("list", folder, wanted)
    (after,) = _position(cursor, stamp, (low,))
    candidates = lookup.paths_with(session.db, wanted, after, high)
    found = (path for path, unsure in candidates if _is_there(session, path, wanted if unsure else None))
    hits = [Hit(path, None) for path in islice(found, _checked(limit))]
    if next(found, None) is None:
        return Page(hits, None, None, session.as_of)
    total = lookup.count_paths(session.db, wanted, low, high)
    return Page(hits, _cursor(stamp, hits[-1].path), total, session.as_of)


def _is_there(session: View, path: str, wanted: tuple[str, str] | None) -> bool:
    if wanted is None:
        return walk.look(session.root, path) is not None
    content = walk.read(session.root, path)
    if content is None:
        return False
    source = catalog.decoded(content[0])
    block, _ = frontmatter.split(source)
    if not block or not all(matching.may_hold(block, word) for word in wanted[1].split()):
        return False
    return wanted in catalog.text_of(source).properties


def _found(session: View, asked: Query, limit: int, cursor: str | None) -> Page:
    stamp = _stamp("search", asked.whole, catalog.generation(session.db))
    tier, before = _position(cursor, stamp, (1, NEWEST))
    parts = lookup.parts(session.db, asked)
    page = list(islice(_matches(session, asked, parts, tier, before), _checked(limit) + 1))
    hits = [match.hit(asked) for match in page[:limit]]
    if len(page) <= limit:
        return Page(hits, None, None, session.as_of)
    last = page[limit - 1]
    total = lookup.count_matches(session.db, parts)
    return Page(hits, _cursor(stamp, last.tier, last.id), total, session.as_of)


@dataclass(frozen=True, slots=True)
class _Match:
    tier: int
    id: int
    path: str
    source: str

    def hit(self, asked: Query) -> Hit:
        def values() -> list[str]:
            text = catalog.text_of(self.source)
            return [*text.values, text.body]

        _, body = frontmatter.split(self.source)
        # In the second tier the whole query is nowhere, and looking for it would parse every frontmatter.
        needles = [asked.whole] if self.tier == 1 else asked.words
        return Hit(self.path, matching.snippet(needles, self.path, values, body))


def _matches(session: View, asked: Query, parts: lookup.Parts, tier: int, before: int) -> Iterator[_Match]:
    for current in range(tier, 2 if len(asked.words) == 1 else 3):
        for row in lookup.candidates(session.db, asked, parts, current, before):
            match = _verified(session, row, asked, current)
            if match and match.tier == current:
                yield match
        before = NEWEST


def _verified(session: View, row: Candidate, asked: Query, tier: int) -> _Match | None:
    """The match as it is in the file now."""
    content = walk.read(session.root, row.path)
    if content is None:
        return None
    data, key = content
    source = catalog.decoded(data)
    now = tier if row.is_filed_as(key) else _tier(asked, row.path, source)
    return _Match(now, row.id, row.path, source) if now else None


def _tier(asked: Query, path: str, source: str) -> int | None:
    block, body = frontmatter.split(source)
    rough = f"{fold(path)}\n{fold(body)}"
    # Parsing costs more than all the rest, and most notes need none.
    if any(word not in rough and not matching.may_hold(block or "", word) for word in asked.words):
        return None
    return asked.tier(catalog.text_of(source).folded(path))


def _checked(limit: int) -> int:
    if limit < 1:
        raise InvalidInput("A page has at least one entry.", fields=[FieldProblem("limit", "is below 1", str(limit))])
    return limit


def _stamp(*question: object) -> str:
    """A cursor continues the question that it came from, and no other."""
    return blake2b(json.dumps(question).encode(), digest_size=6).hexdigest()


def _cursor(stamp: str, *position: object) -> str:
    return base64.urlsafe_b64encode(json.dumps([stamp, *position]).encode()).decode()


def _position(cursor: str | None, stamp: str, start: _Place) -> _Place:
    """Where the cursor points, in the form of `start`, which is where one begins without a cursor."""
    if cursor is None:
        return start
    try:
        given, *position = json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
    except (ValueError, TypeError, RecursionError):
        given, position = None, []
    if given != stamp or [*map(type, position)] != [*map(type, start)]:
        raise InvalidInput(
            "This cursor does not continue this question.",
            fields=[FieldProblem("cursor", "is not of this question or no longer valid", printable(cursor))],
            hint="Ask again without a cursor.",
        )
    return cast("_Place", tuple(position))
