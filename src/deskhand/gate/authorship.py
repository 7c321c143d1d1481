"""Which notes a tool wrote or moved: none of them is the person's own word, wherever it lies and whatever it is called.

A note is known again by what it says, not by its name, its place or its bytes: those change on its way to Approved/.
"""

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import combinations, islice
from typing import Any

from deskhand.errors import Unreadable
from deskhand.gate.actions import MAIL_TYPES
from deskhand.notes import frontmatter
from deskhand.notes.frontmatter import Note
from deskhand.store import Transaction

_NAMING = ("to", "thread_id", "subject", "reply_to_message_id")
_PARTS = [kept for size in range(1, 4) for kept in combinations(_NAMING, size)]
_FENCE = re.compile(r"^---[ \t]*\r?$\n?", re.MULTILINE)
_FENCES = 8
_PROPERTY = re.compile(
    rf"^[ \t\"']*(type|{'|'.join(_NAMING)})[ \t\"']*:(.*)$", re.MULTILINE
)


def marks_of(text: str) -> list[str]:
    """The marks of a note that could pass for an approval or for a draft; none where it names nobody to write to."""
    found: list[str | None] = []
    for note in _readings(text):
        given = note.frontmatter
        found += [mark_of(given), *_marks_of_words(given, note.body)]
        if given.get("type") in MAIL_TYPES.values():
            # An approval that names less covers more, so it is known by every part of what it names.
            parts = [{key: given.get(key) for key in kept} for kept in _PARTS]
            found += [mark_of(part) for part in parts]
    return list({mark: None for mark in found if mark})


def _readings(text: str) -> Iterator[Note]:
    """Each note that it is or becomes once somebody takes out what stands before its properties, or a fault in them."""
    start = 0
    for fence in islice(_FENCE.finditer(text), _FENCES):
        yield _read(text[start : fence.start()], text[fence.end() :])
        start = fence.end()
    yield _read(text[start:], "")


def _read(block: str, body: str) -> Note:
    try:
        note = frontmatter.parse(f"---\n{block}\n---\n{body}")
    except Unreadable:
        note = Note({}, body)
    if note.frontmatter:
        return note
    named = {key: value.strip(" \t\r\"'") for key, value in _PROPERTY.findall(block)}
    return Note(named, body)


def mark_of(properties: Mapping[str, Any], body: str = "") -> str | None:
    """An approval is known by whom and what it names, a draft by its words too."""
    named = {key: _plain(str(properties[key])) for key in _NAMING if properties.get(key)}
    if not named.keys() & {"to", "thread_id"}:
        return None
    return sha256(json.dumps([named, _plain(body)], sort_keys=True).encode()).hexdigest()


def _marks_of_words(properties: Mapping[str, Any], body: str) -> list[str | None]:
    """Of all its words, and of its longest line: a heading or a date that comes along makes it nobody else's."""
    longest = max(body.splitlines(), key=len, default="")
    return [mark_of(properties, body), mark_of(properties, f"\n{longest}")]


def remember(tx: Transaction, marks: list[str]) -> None:
    for mark in marks:
        tx.execute("INSERT INTO tool_notes (mark) VALUES (?) ON CONFLICT DO NOTHING", mark)


def is_a_tools(tx: Transaction, properties: Mapping[str, Any], body: str = "") -> bool:
    marks = [mark_of(properties)]
    if body.strip():
        marks = _marks_of_words(properties, body)
    return any(
        tx.one("SELECT 1 FROM tool_notes WHERE mark = ?", mark) is not None
        for mark in marks
        if mark is not None
    )


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
