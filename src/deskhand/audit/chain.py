"""The lines of the record as a chain.

Each line's hash covers its text and the hash before it, and the head keeps the last one: a line that was changed,
removed, inserted or cut off at the end is found by `verify`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

from deskhand.audit.entry import Entry
from deskhand.audit.redact import redact_entry
from deskhand.store import Transaction

_AT_ONCE = 1000
"""How many lines are read from the database in one piece."""
_NAME_LENGTH = 100


class Mark(NamedTuple):
    """A line up to which the chain was found whole."""

    seq: int
    hash: str


START = Mark(0, "")


@dataclass(frozen=True, slots=True)
class Verified:
    entries: int


@dataclass(frozen=True, slots=True)
class Broken:
    """The first line that is not as it was written."""

    seq: int
    why: str


def append(tx: Transaction, entry: Entry) -> None:
    """Add `entry`, redacted, to the chain, in the caller's transaction."""
    text = redact_entry(entry).model_dump_json(exclude_none=True)
    names = (entry.timestamp[:10], index_name(entry.actor), index_name(entry.action_type), entry.result)
    if tx.dialect == "postgresql":
        # Chained by the commit itself: the head is locked while the server commits, never while a client thinks.
        sql = "INSERT INTO audit_queue (entry, day, actor, action, result) VALUES (?, ?, ?, ?, ?)"
        tx.execute(sql, text, *names)
    else:
        _chain(tx, text, names)


def _chain(tx: Transaction, text: str, names: tuple[str, ...]) -> None:
    ((seq, previous),) = tx.all("UPDATE audit_head SET seq = seq + 1 WHERE id = 1 RETURNING seq, hash")
    digest = _link(previous, seq, text)
    tx.execute("INSERT INTO audit (seq, entry, hash) VALUES (?, ?, ?)", seq, text, digest)
    tx.execute("UPDATE audit_head SET hash = ? WHERE id = 1", digest)
    # Counters by day, so that neither a plot nor a search has to read the whole record; no part of the proof.
    tx.execute(
        "INSERT INTO audit_days (day, actor, action, result, entries, first_seq, last_seq) VALUES (?, ?, ?, ?, 1, ?, ?)"
        " ON CONFLICT (day, actor, action, result)"
        " DO UPDATE SET entries = audit_days.entries + 1, last_seq = excluded.last_seq",
        *(*names, seq, seq),
    )


def index_name(text: str) -> str:
    """The name under which an actor or an action is counted."""
    # PostgreSQL's texts hold no NUL, and nobody may fill the counters with long names.
    return text.replace("\0", "\ufffd")[:_NAME_LENGTH]


def verify(tx: Transaction) -> Verified | Broken:
    """Walk the whole chain."""
    mark = follow(tx, START)
    if isinstance(mark, Broken):
        return mark
    last = tx.one("SELECT seq, hash FROM audit_head WHERE id = 1")
    if last is None or last[0] > mark.seq:
        return Broken(mark.seq + 1, "the line is missing at the end")
    if last != mark:
        return Broken(mark.seq, "the line does not match the head of the chain")
    return Verified(mark.seq)


def follow(tx: Transaction, mark: Mark, limit: int | None = None) -> Mark | Broken:
    """Walk on from a good line, at most `limit` lines further, to the last good one."""
    for seq, text, digest in islice(_lines(tx, mark.seq), limit):
        if seq != mark.seq + 1:
            return Broken(mark.seq + 1, "the line is missing")
        if digest != _link(mark.hash, seq, text):
            return Broken(seq, "the line was changed")
        mark = Mark(seq, digest)
    return mark


def head(tx: Transaction) -> Mark:
    """What the chain says its last line is."""
    row = tx.one("SELECT seq, hash FROM audit_head WHERE id = 1")
    return Mark(*row) if row else START


def _lines(tx: Transaction, last: int) -> Iterator[tuple[int, str, str]]:
    while rows := tx.all("SELECT seq, entry, hash FROM audit WHERE seq > ? ORDER BY seq LIMIT ?", last, _AT_ONCE):
        yield from rows
        last = rows[-1][0]


def _link(previous: str, seq: int, text: str) -> str:
    return sha256(f"{previous}\n{seq}\n{text}".encode()).hexdigest()
