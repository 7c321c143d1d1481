"""The record of what was done at this desk: append-only, redacted, hash-chained.

Each entry's hash covers its text and the hash before it, and the head keeps the last one: a line that was
changed, removed, inserted or cut off at the end is found by `verify`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from deskhand.store import Transaction

Result = Literal["success", "rejected", "rate_limited", "error", "dev_mode"]

SUBJECT_LIMIT = 50
SCAN = 5000
"""So many lines are read for one page of a search at most; the next page goes on from there."""
_PAGE = 1000
_DAYS = 400
_NAME = 100
_END = 2**62
_ADDRESS = re.compile(r"([^\s<>()\[\],;:\"@])[^\s<>()\[\],;:\"@]*@([^\s<>()\[\],;:\"'=@]+)")
_QUOTED = re.compile(r'"[^"]*"@')
_NEVER = frozenset({"body", "token", "password", "secret", "api_key", "authorization", "message"})


class Entry(BaseModel):
    """Seed 001's AuditLogEntry."""

    model_config = ConfigDict(frozen=True)

    timestamp: str
    correlation_id: str
    actor: str
    action_type: str
    target: str
    result: Result
    duration_ms: int | None = None
    parameters: dict[str, Any] | None = None
    error: str | None = None


class Mark(NamedTuple):
    """A line up to which the chain was found whole."""

    seq: int
    hash: str


START = Mark(0, "")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries are looked for; None is any."""

    actor: str | None = None
    action: str | None = None
    result: str | None = None
    day: str | None = None
    text: str | None = None

    def suits(self, entry: Entry) -> bool:
        pairs = ((self.actor, entry.actor), (self.action, entry.action_type), (self.result, entry.result))
        if any(wanted not in (None, _name(there)) for wanted, there in pairs):
            return False
        if self.day not in (None, entry.timestamp[:10]):
            return False
        return self.text is None or self.text.casefold() in f"{entry.target}\n{entry.error or ''}".casefold()


@dataclass(frozen=True, slots=True)
class Found:
    entries: list[tuple[int, Entry]]
    older: int | None
    """Where the search goes on: what lies before this line was not looked at."""


@dataclass(frozen=True, slots=True)
class Verified:
    entries: int


@dataclass(frozen=True, slots=True)
class Broken:
    seq: int
    why: str


def redact(value: Any) -> Any:
    """What may be kept: addresses as `j***@example.com`, a subject's beginning, never a body or a secret."""
    match value:
        case str() if "@" not in value:
            return value
        case str():
            return _QUOTED.sub('"***"@', _ADDRESS.sub(r"\1***@\2", value))
        case Mapping():
            return {
                # Cut last: half an address would no longer be seen for one.
                redact(key): redact(item)[:SUBJECT_LIMIT]
                if key == "subject" and isinstance(item, str)
                else redact(item)
                for key, item in value.items()
                if str(key).lower() not in _NEVER
            }
        case list() | tuple():
            return [redact(item) for item in value]
        case _:
            return value


def redacted(entry: Entry) -> Entry:
    return Entry(
        timestamp=entry.timestamp,
        correlation_id=entry.correlation_id,
        actor=entry.actor,
        action_type=entry.action_type,
        target=redact(entry.target),
        result=entry.result,
        duration_ms=entry.duration_ms,
        parameters=redact(entry.parameters),
        error=redact(entry.error),
    )


def append(tx: Transaction, entry: Entry) -> None:
    """Add `entry`, redacted, to the chain, in the caller's transaction."""
    text = redacted(entry).model_dump_json(exclude_none=True)
    names = (entry.timestamp[:10], _name(entry.actor), _name(entry.action_type), entry.result)
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


def entries(tx: Transaction, *, before: int | None = None, limit: int = 50) -> list[tuple[int, Entry]]:
    """The newest entries, newest first; `before` pages back."""
    lines = _texts(tx, 0, _END if before is None else before, limit)
    return [(seq, Entry.model_validate_json(text)) for seq, text in lines]


def find(tx: Transaction, wanted: Wanted, *, before: int | None = None, limit: int = 50, budget: int = SCAN) -> Found:
    """The newest entries that suit, among at most `budget` lines of the days that have some at all."""
    top = _END if before is None else before
    found: list[tuple[int, Entry]] = []
    spans, marks, size = _spans(tx, wanted, top), _marks(wanted), limit
    for first, last in spans:
        top = min(top, last + 1)
        while top > first and (lines := _texts(tx, first, top, min(budget, size))):
            size = min(2 * size, _PAGE)
            for seq, text in lines:
                top = seq
                if (entry := _suiting(text, wanted, marks)) is not None:
                    found.append((seq, entry))
                if len(found) == limit:
                    return Found(found, _before(seq))
            budget -= len(lines)
            if budget <= 0:
                return Found(found, _before(top))
    return Found(found, top if len(spans) == _DAYS else None)


def _before(seq: int) -> int | None:
    return seq if seq > 1 else None


def names(tx: Transaction, since: str) -> tuple[list[str], list[str]]:
    """Who acted since that day, and what was done."""
    actors, actions = (
        [name for (name,) in tx.all(f"SELECT DISTINCT {column} FROM audit_days WHERE day >= ? ORDER BY 1", since)]
        for column in ("actor", "action")
    )
    return actors, actions


def by_day(tx: Transaction, since: str) -> list[tuple[str, str, int]]:
    """Day, result and how many entries, since that day."""
    rows = tx.all(
        "SELECT day, result, SUM(entries) FROM audit_days WHERE day >= ? GROUP BY day, result ORDER BY day, result",
        since,
    )
    return [(day, result, int(entries)) for day, result, entries in rows]


def verify(tx: Transaction) -> Verified | Broken:
    """Walk the whole chain; the first line that is not as it was written, if there is one."""
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
    """Walk on from a good line, over so many at most; the last good one."""
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


def masked(address: str) -> str:
    """`j***@example.com`, however strange the local part is."""
    local, at, domain = address.rpartition("@")
    return f"{local[:1]}***@{domain}" if at else address


def _spans(tx: Transaction, wanted: Wanted, top: int) -> list[tuple[int, int]]:
    """From which line to which one a search has to read, newest first."""
    columns = {"actor": wanted.actor, "action": wanted.action, "result": wanted.result, "day": wanted.day}
    asked = {column: value for column, value in columns.items() if value is not None}
    if not asked:
        return [(1, top - 1)]
    where = "".join(f" AND {column} = ?" for column in asked)
    rows = tx.all(
        f"SELECT MIN(first_seq), MAX(last_seq) FROM audit_days WHERE first_seq < ?{where}"
        f" GROUP BY day ORDER BY 2 DESC LIMIT {_DAYS}",
        top,
        *asked.values(),
    )
    return [(int(first), int(last)) for first, last in rows]


def _texts(tx: Transaction, first: int, before: int, limit: int) -> list[tuple[int, str]]:
    rows = tx.all(
        "SELECT seq, entry FROM audit WHERE seq >= ? AND seq < ? ORDER BY seq DESC LIMIT ?", first, before, limit
    )
    return [(seq, text) for seq, text in rows]


def _marks(wanted: Wanted) -> list[str]:
    """What the text of an entry that suits surely holds: most lines are passed over without being parsed."""
    fields = {"actor": wanted.actor, "action_type": wanted.action, "result": wanted.result}
    plain = {key: value for key, value in fields.items() if value and re.fullmatch(r"[a-zA-Z0-9_.-]+", value)}
    return [f'"{key}":"{value}' for key, value in plain.items()]


def _suiting(text: str, wanted: Wanted, marks: list[str]) -> Entry | None:
    if not all(mark in text for mark in marks):
        return None
    entry = Entry.model_validate_json(text)
    return entry if wanted.suits(entry) else None


def _name(text: str) -> str:
    # PostgreSQL's texts hold no NUL, and nobody may fill the counters with long names.
    return text.replace("\0", "\ufffd")[:_NAME]


def _lines(tx: Transaction, last: int) -> Iterator[tuple[int, str, str]]:
    while rows := tx.all("SELECT seq, entry, hash FROM audit WHERE seq > ? ORDER BY seq LIMIT ?", last, _PAGE):
        yield from rows
        last = rows[-1][0]


def _link(previous: str, seq: int, text: str) -> str:
    return sha256(f"{previous}\n{seq}\n{text}".encode()).hexdigest()
