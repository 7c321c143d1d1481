"""What the record says of a request. Whoever can change the rows of a database has to change the chain as well."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import get_args

from deskhand import audit, clock
from deskhand.audit import Broken, Entry, Mark
from deskhand.gate.requests import YES, Word
from deskhand.store import Transaction

_DECISIVE: tuple[Word, ...] = (*YES, "rejected", "undone", "edited")
_ANSWERS = get_args(Word)


def ends_with_yes(tx: Transaction, request_id: str, digest: str, since: datetime) -> bool:
    """Whether the last word about it on the record is a yes to this digest, after which nothing left."""
    return _left_since_yes(tx, request_id, digest, since) == []


def is_untold(tx: Transaction, request_id: str, digest: str, since: datetime) -> bool:
    """Whether the last word about it on the record is a yes to this digest, of which nobody has heard yet."""
    left = _left_since_yes(tx, request_id, digest, since)
    return left is not None and not any(map(_was_heard, left))


def _was_heard(entry: Entry) -> bool:
    """Whether whoever asked was on the line: what the desk sees to by itself says who did."""
    facts = entry.parameters or {}
    return "told" in facts or "sent_by" not in facts


def _left_since_yes(
    tx: Transaction, request_id: str, digest: str, since: datetime
) -> list[Entry] | None:
    """What left after the last word about it, where that is a yes to this digest; None where it is not.

    It was said at `since`; lines from the beginning of that day are looked at, and their chain must be whole.
    """
    row = tx.one(
        "SELECT MIN(first_seq) FROM audit_days WHERE day >= ?", clock.iso(since)[:10]
    )
    if row is None or row[0] is None:
        return None
    first = int(row[0])
    before = tx.one("SELECT seq, hash FROM audit WHERE seq = ?", first - 1) or audit.START
    if isinstance(audit.follow(tx, Mark(*before)), Broken):
        return None
    left: list[Entry] | None = None
    for entry in _entries_about(tx, request_id, first):
        is_same = (entry.parameters or {}).get("digest") == digest
        if entry.action_type in _DECISIVE:
            left = [] if entry.action_type in YES and is_same else None
        elif is_same and entry.action_type not in _ANSWERS and entry.result == "success":
            left = None if left is None else [*left, entry]
    return left


def signed_answers(tx: Transaction, since: datetime) -> list[tuple[str, str, str]]:
    """Of each answer that a passkey signed, as the record has it: the request, the word and the digest."""
    rows = tx.all(
        "SELECT entry FROM audit WHERE entry LIKE ? ORDER BY seq", '%"kind":"passkey"%'
    )
    found = [Entry.model_validate_json(text) for (text,) in rows]
    found = [entry for entry in found if entry.timestamp >= clock.iso(since)]
    facts = [
        (entry.action_type, entry.parameters or {})
        for entry in found
        if entry.action_type in _ANSWERS
    ]
    return [
        (str(given.get("action_id")), word, str(given.get("digest")))
        for word, given in facts
    ]


def _entries_about(tx: Transaction, request_id: str, first: int) -> Iterator[Entry]:
    sql = "SELECT entry FROM audit WHERE seq >= ? AND entry LIKE ? ORDER BY seq"
    for (text,) in tx.all(sql, first, f"%{json.dumps(request_id)}%"):
        entry = Entry.model_validate_json(text)
        if (entry.parameters or {}).get("action_id") == request_id:
            yield entry
