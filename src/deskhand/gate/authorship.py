"""Which notes a tool wrote or moved: none of them is the person's own word, wherever it lies and whatever it is called.

A note is known again by what it says, not by its name, its place or its bytes: those change on its way to Approved/.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from itertools import combinations
from typing import Any

from deskhand.errors import Unreadable
from deskhand.gate.actions import MAIL_TYPES
from deskhand.notes import frontmatter
from deskhand.store import Transaction

_NAMING = ("to", "thread_id", "subject", "reply_to_message_id")
_PARTS = [kept for size in range(1, 4) for kept in combinations(_NAMING, size)]


def marks_of(text: str) -> list[str]:
    """The marks of a note that could pass for an approval or for a draft; none where it names nobody to write to."""
    try:
        note = frontmatter.parse(text)
    except Unreadable:
        return []
    given = note.frontmatter
    found = [mark_of(given), mark_of(given, note.body)]
    if given.get("type") in MAIL_TYPES.values():
        # An approval that names less covers more, so it is known by every part of what it names.
        parts = [{key: given.get(key) for key in kept} for kept in _PARTS]
        found += [mark_of(part) for part in parts]
    return list({mark: None for mark in found if mark})


def mark_of(properties: Mapping[str, Any], body: str = "") -> str | None:
    """An approval is known by whom and what it names, a draft by its words too."""
    named = {key: _plain(str(properties[key])) for key in _NAMING if properties.get(key)}
    if not named.keys() & {"to", "thread_id"}:
        return None
    return sha256(json.dumps([named, _plain(body)], sort_keys=True).encode()).hexdigest()


def remember(tx: Transaction, marks: list[str]) -> None:
    for mark in marks:
        tx.execute("INSERT INTO tool_notes (mark) VALUES (?) ON CONFLICT DO NOTHING", mark)


def is_a_tools(tx: Transaction, properties: Mapping[str, Any], body: str = "") -> bool:
    mark = mark_of(properties, body)
    return (
        mark is not None
        and tx.one("SELECT 1 FROM tool_notes WHERE mark = ?", mark) is not None
    )


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
