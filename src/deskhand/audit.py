"""The record of what was done at this desk: append-only, redacted, hash-chained.

Each entry's hash covers its text and the hash before it, and the head keeps the last one: a line that was
changed, removed, inserted or cut off at the end is found by `verify`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from deskhand.store import Transaction

Result = Literal["success", "rejected", "rate_limited", "error", "dev_mode"]

SUBJECT_LIMIT = 50
_PAGE = 1000
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


def append(tx: Transaction, entry: Entry) -> int:
    """Add `entry`, redacted, in the caller's transaction; its number in the chain."""
    text = redacted(entry).model_dump_json(exclude_none=True)
    # The head row is the lock: appends by any process or machine follow each other.
    tx.execute("UPDATE audit_head SET seq = seq + 1 WHERE id = 1")
    head = tx.one("SELECT seq, hash FROM audit_head WHERE id = 1")
    assert head is not None  # noqa: S101 - the schema inserts it
    seq, previous = head
    digest = _link(previous, seq, text)
    tx.execute("INSERT INTO audit (seq, entry, hash) VALUES (?, ?, ?)", seq, text, digest)
    tx.execute("UPDATE audit_head SET hash = ? WHERE id = 1", digest)
    return int(seq)


def entries(tx: Transaction, *, before: int | None = None, limit: int = 50) -> list[tuple[int, Entry]]:
    """The newest entries, newest first; `before` pages back."""
    rows = tx.all(
        "SELECT seq, entry FROM audit WHERE seq < ? ORDER BY seq DESC LIMIT ?",
        2**62 if before is None else before,
        limit,
    )
    return [(seq, Entry.model_validate_json(text)) for seq, text in rows]


def verify(tx: Transaction) -> Verified | Broken:
    """Walk the whole chain; the first line that is not as it was written, if there is one."""
    previous, expected = "", 0
    for seq, text, digest in _lines(tx):
        expected += 1
        if seq != expected:
            return Broken(expected, "the line is missing")
        if digest != _link(previous, seq, text):
            return Broken(seq, "the line was changed")
        previous = digest
    head = tx.one("SELECT seq, hash FROM audit_head WHERE id = 1")
    if head is None or head[0] > expected:
        return Broken(expected + 1, "the line is missing at the end")
    if head != (expected, previous):
        return Broken(expected, "the line does not match the head of the chain")
    return Verified(expected)


def masked(address: str) -> str:
    """`j***@example.com`, however strange the local part is."""
    local, at, domain = address.rpartition("@")
    return f"{local[:1]}***@{domain}" if at else address


def iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _lines(tx: Transaction) -> Iterator[tuple[int, str, str]]:
    last = 0
    while rows := tx.all("SELECT seq, entry, hash FROM audit WHERE seq > ? ORDER BY seq LIMIT ?", last, _PAGE):
        yield from rows
        last = rows[-1][0]


def _link(previous: str, seq: int, text: str) -> str:
    return sha256(f"{previous}\n{seq}\n{text}".encode()).hexdigest()
