"""Asking the catalog: what may match, in the order of the answer.

The vocabulary has every word that occurs. A word of a query is looked up in it as a part of words, and what was
found is looked up in the postings, so that a part of a word costs hardly more than a whole one.
"""

import heapq
from collections.abc import Iterator
from itertools import chain
from sqlite3 import Connection
from typing import NamedTuple

from deskhand.notes import matching
from deskhand.notes.catalog import count_stale
from deskhand.notes.matching import Query
from deskhand.notes.walk import Key

COUNTING = 8_000
"""How many postings are counted at most, whatever the number of words."""
# What is in more words than this is in so many notes that going through the newest finds a page of them soon.
WORDS = 128
CONSTRAINTS = 8

Parts = list[list[str]]
"""For each word of a query the vocabulary's words with it; none where they are too many to ask for."""

# Bytes are compared in two thirds of the time that characters take, and say the same in UTF-8.
_HOLDS = "instr(CAST(text.folded AS BLOB), ?)"
_ROW = "note.id, path, mtime_ns, size, inode, ctime_ns, stale"


class Candidate(NamedTuple):
    id: int
    path: str
    mtime_ns: int
    size: int
    inode: int
    ctime_ns: int
    stale: int

    def is_filed_as(self, key: Key) -> bool:
        return not self.stale and key == (
            self.mtime_ns,
            self.size,
            self.inode,
            self.ctime_ns,
        )


def parts(db: Connection, asked: Query) -> Parts:
    return [_words_with(db, matching.probe(word)) for word in asked.words[:CONSTRAINTS]]


def _words_with(db: Connection, part: str) -> list[str]:
    """The vocabulary's words that contain `part`: none when they are too many, only `part`
    itself if there are none."""
    if len(part) > 2:
        table, grams = "tri", matching.all_of(matching.trigrams(part))
    elif len(part) == 2 or not part.isascii():
        table, grams = "pair", matching.all_of([part])
    else:
        return []
    rows = db.execute(
        f"SELECT word.text FROM {table} CROSS JOIN word ON word.id = {table}.rowid "
        f"WHERE {table} MATCH ? AND instr(word.text, ?) LIMIT {WORDS + 1}",
        (grams, part),
    )
    found = [word for (word,) in rows] or [part]
    return found if len(found) <= WORDS else []


def candidates(
    db: Connection, asked: Query, parts: Parts, tier: int, before: int
) -> Iterator[Candidate]:
    """Every note that matches by the catalog or is stale, below the id `before`, newest first."""
    source, holds, grams = _source(asked, parts, tier)
    conditions = [_HOLDS]
    needles = [asked.whole]
    if tier == 2:
        conditions = [f"NOT {_HOLDS}", *[_HOLDS] * len(asked.words)]
        needles += asked.words
    filed = db.execute(
        f"SELECT {_ROW} FROM {source} AS found CROSS JOIN note ON note.id = found.rowid "
        "CROSS JOIN text ON text.id = found.rowid "
        f"WHERE {holds} AND found.rowid < ? AND NOT stale AND {' AND '.join(conditions)} ORDER BY found.rowid DESC",
        (*grams, before, *map(str.encode, needles)),
    )
    stale = db.execute(
        f"SELECT {_ROW} FROM note WHERE stale AND id < ? ORDER BY id DESC", (before,)
    )
    first = stale.fetchone()
    if first is None:  # as it mostly is, and merging would cost as much as asking
        return map(Candidate._make, filed)
    return heapq.merge(
        map(Candidate._make, filed),
        map(Candidate._make, chain([first], stale)),
        key=lambda row: -row.id,
    )


def count_matches(db: Connection, parts: Parts) -> int:
    """Exact up to some thousands, else the most there can be: counting on would cost more than it tells."""
    newest = _newest(db)
    if not any(parts):
        return newest
    limit = COUNTING // sum(map(len, parts))
    counted, oldest = db.execute(
        "SELECT count(*), min(rowid) FROM "
        "(SELECT rowid FROM posting WHERE posting MATCH ? ORDER BY rowid DESC LIMIT ?)",
        (" AND ".join(map(matching.any_of, filter(None, parts))), limit),
    ).fetchone()
    most = int(counted) + count_stale(db)
    if counted == limit:
        most += oldest - 1
    return min(newest, most)


def _source(asked: Query, parts: Parts, tier: int) -> tuple[str, str, tuple[str, ...]]:
    """The table that names the candidates, the condition on it and its parameters."""
    gaps: list[str] = []
    if tier == 1 and len(asked.words) > 1:
        parts = _narrow(asked, parts)
        gaps = matching.gaps(asked.whole)[:CONSTRAINTS]
    expressions = [*map(matching.any_of, filter(None, parts))]
    if gaps:
        expressions.append(matching.all_of(gaps))
    if not expressions:
        return "text", "TRUE", ()
    return "posting", "posting MATCH ?", (" AND ".join(expressions),)


def _narrow(asked: Query, parts: Parts) -> Parts:
    """In a phrase the first word ends a word of the text, the last one begins one, and
    those between are whole."""
    words = [*map(matching.replace_controls, asked.words)]
    narrow: Parts = []
    for place, (word, found) in enumerate(zip(words, parts, strict=False)):
        if 0 < place < len(words) - 1 and len(word) <= matching.PIECE:
            narrow.append([word])
        elif not found or len(word) > matching.PROBE:
            narrow.append(found)
        else:
            fits = str.endswith if place == 0 else str.startswith
            narrow.append([each for each in found if fits(each, word)] or [word])
    return narrow


def paths_with(
    db: Connection, field: tuple[str, str] | None, low: str, high: str
) -> Iterator[tuple[str, bool]]:
    """In order of path: who has the field by the tables, and with True the stale notes, which may have it."""
    if field is None:
        every = db.execute(
            "SELECT path FROM note WHERE path > ? AND path < ? ORDER BY path", (low, high)
        )
        return ((path, False) for (path,) in every)
    filed = db.execute(
        "SELECT path, 0 FROM prop WHERE key = ? AND value = ? AND path > ? AND path < ? "
        "AND NOT EXISTS (SELECT 1 FROM note WHERE note.path = prop.path AND stale) ORDER BY path",
        (*field, low, high),
    )
    stale = db.execute(
        "SELECT path, 1 FROM note WHERE stale AND path > ? AND path < ? ORDER BY path",
        (low, high),
    )
    return ((path, bool(unsure)) for path, unsure in heapq.merge(filed, stale))


def count_paths(db: Connection, field: tuple[str, str] | None, low: str, high: str) -> int:
    """Exact up to some thousands, else the most there can be."""
    rows = "SELECT 1 FROM note WHERE path > ? AND path < ?"
    stale = 0
    if field is not None:
        rows = "SELECT 1 FROM prop WHERE key = ? AND value = ? AND path > ? AND path < ?"
        stale = count_stale(db)
    limited = f"SELECT count(*) FROM ({rows} LIMIT {COUNTING})"
    (counted,) = db.execute(limited, (*(field or ()), low, high)).fetchone()
    if counted < COUNTING:
        return int(counted) + stale
    return _newest(db)


def _newest(db: Connection) -> int:
    """The highest id: there are at most so many notes."""
    return int(db.execute("SELECT max(id) FROM note").fetchone()[0] or 0)


def paths_named(db: Connection, name: str) -> list[str]:
    """The notes of this bare name; they have it whether or not their text is filed."""
    return [
        path
        for (path,) in db.execute(
            "SELECT path FROM note WHERE name = ? ORDER BY path", (name,)
        )
    ]


def links_to(db: Connection, name: str) -> Iterator[tuple[str, str]]:
    """Who has a link that ends in this bare name, with what it says; by path. Stale notes are not asked."""
    return db.execute(
        "SELECT path, target FROM link WHERE name = ? "
        "AND NOT EXISTS (SELECT 1 FROM note WHERE note.path = link.path AND stale) ORDER BY path",
        (name,),
    )


def every_tag(db: Connection) -> Iterator[tuple[str, str, int]]:
    """Each tag with how it is shown and how many notes have it, as far as they are filed."""
    return db.execute("SELECT name, shown, notes FROM tag")


def filed_tags_of_stale(db: Connection) -> Iterator[str]:
    """The tags that stale notes had when they were filed, for each note a JSON list."""
    return (
        tags
        for (tags,) in db.execute("SELECT tags FROM note WHERE stale AND tags IS NOT NULL")
    )


def stale_notes(db: Connection) -> Iterator[str]:
    return (
        path for (path,) in db.execute("SELECT path FROM note WHERE stale ORDER BY path")
    )
