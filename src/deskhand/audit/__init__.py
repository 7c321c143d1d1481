"""The record of what was done at this desk: append-only, redacted, hash-chained.

Each line's hash covers its text and the hash before it, and the head keeps the last one: a line that was changed,
removed, inserted or cut off at the end is found by `verify`. Beside it, search finds lines again, vault_log writes the
log files in the vault, and witness knows when the whole database lost its end.
"""

import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from itertools import islice
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict

from deskhand import clock
from deskhand.errors import Denied, DeskError, InvalidInput, NotFound, printable
from deskhand.log import mask_addresses, mask_beginning
from deskhand.store import Transaction

Result = Literal["success", "waiting", "rejected", "rate_limited", "error", "dev_mode"]
"""`waiting`: nobody has said yes or no yet. Lines of earlier versions call that `rejected`."""

SUBJECT_LIMIT = 50

_NEVER = frozenset(
    {"body", "token", "password", "secret", "api_key", "authorization", "message"}
)
_AT_ONCE = 1000
"""How many lines are read from the database in one piece."""
_NAME_LENGTH = 100
_SHORT = 200
_LONGEST = 20_000
"""Of a text that is kept whole: what is longer is no name, no address and no error."""
_LARGEST = 2**63
"""From here on a number is text: it may be as long as whoever gave it likes."""
END = 2**62
"""More lines than any record has."""


class Entry(BaseModel):
    """The contract's AuditLogEntry."""

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

    def __hash__(self) -> int:
        """Of its id alone, since a dictionary has none; what is equal has one id."""
        return hash(self.correlation_id)

    @classmethod
    def of(
        cls,
        now: datetime,
        by: str,
        what: str,
        target: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        error: DeskError | str | None = None,
        result: Result | None = None,
        milliseconds: int | None = None,
    ) -> Self:
        """An entry with an id of its own. Without a `result` it is the one that the error means."""
        return cls(
            timestamp=clock.iso(now),
            correlation_id=str(uuid.uuid4()),
            actor=by,
            action_type=what,
            target=target,
            result=result or _result_of(error),
            duration_ms=milliseconds,
            parameters=None if parameters is None else dict(parameters),
            error=_text_of(error),
        )

    def finish(self, now: datetime, error: DeskError | None, milliseconds: int) -> Self:
        """The entry of what has ended, made of the one from when it began."""
        known = {
            "timestamp": clock.iso(now),
            "result": _result_of(error),
            "duration_ms": milliseconds,
            "error": _text_of(error),
        }
        return self.model_copy(update=known)


def _text_of(error: DeskError | str | None) -> str | None:
    if isinstance(error, DeskError):
        return error.line
    return error


def _result_of(error: DeskError | str | None) -> Result:
    match error:
        case None:
            return "success"
        case Denied() | InvalidInput() | NotFound():
            return "rejected"
        case _:
            return "error"


def parameter_of(value: object) -> str | float | bool | None:
    """A parameter as an entry has it: a number, yes, no or nothing as it is, anything else as short text."""
    match value:
        case bool() | None:
            return value
        case int() | float() if -_LARGEST < value < _LARGEST:
            return value
        case _:
            return short_text(value)


def short_text(value: object) -> str:
    """Any value as text of an entry. Masked first: half an address would no longer be seen for one."""
    text = value if isinstance(value, str) else repr(value)
    if len(text) <= _SHORT:
        return printable(mask_addresses(text))
    return f"{printable(mask_beginning(text, _SHORT))}… ({len(text)} characters)"


def redact(value: Any) -> Any:
    """What may be kept: addresses as `j***@example.com`, a subject's beginning, never a body or a secret."""
    match value:
        case str() if len(value) > _LONGEST:
            return f"{mask_beginning(value, _LONGEST)}… ({len(value)} characters)"
        case str():
            return mask_addresses(value)
        case Mapping():
            return {
                redact(key): _redact_item(key, item)
                for key, item in value.items()
                if str(key).lower() not in _NEVER
            }
        case list() | tuple():
            return [redact(item) for item in value]
        case _:
            return value


def _redact_item(key: Any, item: Any) -> Any:
    kept = redact(item)
    if key == "subject" and isinstance(item, str):
        # Cut last: half an address would no longer be seen for one.
        return kept[:SUBJECT_LIMIT]
    return kept


def redact_entry(entry: Entry) -> Entry:
    """The entry as it may be kept."""
    kept = {
        name: redact(getattr(entry, name)) for name in ("target", "parameters", "error")
    }
    return entry.model_copy(update=kept)


def masked(address: str) -> str:
    """`j***@example.com`, however strange the local part is; a name before it in brackets stays."""
    if len(address) > _LONGEST:
        return short_text(address)
    address = address.strip()
    before, bracket, inner = address.rpartition("<")
    if bracket and inner.endswith(">"):
        return f"{mask_addresses(before)}<{masked(inner[:-1])}>"
    local, at, domain = address.rpartition("@")
    if not at:
        return mask_addresses(address)
    several = [each for each in re.split(r"[\s,;]+", address) if "@" in each]
    if len(several) > 1 and '"' not in address:
        # The first letter of one and the domain of another would be an address that nobody wrote.
        return ", ".join(map(masked, several))
    return f"{local[:1]}***@{domain}"


def masked_line(line: str) -> str:
    """Each of the bare addresses in a line, between which there are commas."""
    return ", ".join(map(masked, line.split(", ")))


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


class RecordLine(NamedTuple):
    """An entry as it is kept: redacted, and written."""

    name: str
    """The entry's correlation id."""
    text: str
    at: str
    actor: str
    action: str
    result: Result

    @property
    def day(self) -> str:
        """The day of UTC."""
        return self.at[:10]

    @property
    def quarter(self) -> str:
        """The quarter of an hour, of which every zone's midnight begins one: `2026-11-18T16:45`."""
        return f"{self.at[:14]}{int(self.at[14:16]) // 15 * 15:02}"


def line_of(entry: Entry) -> RecordLine:
    text = redact_entry(entry).model_dump_json(exclude_none=True)
    return RecordLine(
        entry.correlation_id,
        text,
        entry.timestamp,
        entry.actor,
        entry.action_type,
        entry.result,
    )


def append(tx: Transaction, entry: Entry) -> None:
    """Add `entry`, redacted, to the chain, in the caller's transaction."""
    append_lines(tx, [line_of(entry)])


def append_lines(tx: Transaction, lines: Sequence[RecordLine]) -> None:
    if tx.dialect == "postgresql":
        # Chained by the commit itself: the head is locked while the server commits, never while a client thinks.
        sql = (
            "INSERT INTO audit_queue (entry, quarter, day, actor, action, result)"
            " VALUES (?, ?, ?, ?, ?, ?)"
        )
        for line in lines:
            tx.execute(sql, line.text, line.quarter, *_counted_as(line))
    else:
        _chain(tx, lines)


def _counted_as(line: RecordLine) -> tuple[str, str, str, str]:
    return line.day, index_name(line.actor), index_name(line.action), line.result


def _chain(tx: Transaction, lines: Sequence[RecordLine]) -> None:
    # Nobody else writes until this transaction ends.
    ((first, digest),) = tx.all("SELECT seq, hash FROM audit_head WHERE id = 1")
    last = first + len(lines)
    rows: list[tuple[int, str, str]] = []
    found: dict[tuple[str, ...], list[int]] = {}
    quarters: Counter[tuple[str, str]] = Counter()
    for seq, line in enumerate(lines, first + 1):
        digest = _link(digest, seq, line.text)
        rows.append((seq, line.text, digest))
        found.setdefault(_counted_as(line), []).append(seq)
        quarters[line.quarter, line.result] += 1
    tx.many("INSERT INTO audit (seq, entry, hash) VALUES (?, ?, ?)", rows)
    tx.execute("UPDATE audit_head SET seq = ?, hash = ? WHERE id = 1", last, digest)
    tx.note_beside("head", f"{last} {digest}")
    # Counters by day, so that neither a plot nor a search has to read the whole record; no part of the proof.
    tx.many(
        "INSERT INTO audit_days (day, actor, action, result, entries, first_seq, last_seq) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (day, actor, action, result)"
        " DO UPDATE SET entries = audit_days.entries + excluded.entries, last_seq = excluded.last_seq",
        [(*names, len(seqs), seqs[0], seqs[-1]) for names, seqs in found.items()],
    )
    # And by quarters of an hour, of which a plot makes days where the person is.
    tx.many(
        "INSERT INTO audit_quarters (quarter, result, entries) VALUES (?, ?, ?) ON CONFLICT (quarter, result)"
        " DO UPDATE SET entries = audit_quarters.entries + excluded.entries",
        [(*names, count) for names, count in quarters.items()],
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
    while rows := tx.all(
        "SELECT seq, entry, hash FROM audit WHERE seq > ? ORDER BY seq LIMIT ?",
        last,
        _AT_ONCE,
    ):
        yield from rows
        last = rows[-1][0]


def _link(previous: str, seq: int, text: str) -> str:
    return sha256(f"{previous}\n{seq}\n{text}".encode()).hexdigest()


def entries(
    tx: Transaction, *, before: int = END, limit: int = 50
) -> list[tuple[int, Entry]]:
    """The newest entries, newest first; `before` pages back."""
    return [
        (seq, Entry.model_validate_json(text)) for seq, text in texts(tx, 0, before, limit)
    ]


def texts(tx: Transaction, first: int, before: int, limit: int) -> list[tuple[int, str]]:
    """The lines from `first` up to `before`, newest first, as they are written."""
    sql = (
        "SELECT seq, entry FROM audit WHERE seq >= ? AND seq < ? ORDER BY seq DESC LIMIT ?"
    )
    return [(seq, text) for seq, text in tx.all(sql, first, before, limit)]
