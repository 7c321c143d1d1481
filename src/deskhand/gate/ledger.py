"""One row for each action: its state, its lease, and what was written down before anything left.

    waiting ─► approved ─► sending ─► sent
       │  ▲        │          ├─► approved   certainly not sent: the approval is put back
       │  └────────┘          ├─► failed     the same, where a hand-written file had released it
       ├─► rejected ─► …      └─► unknown ─► approved   a person has looked and says: once more
       ├─► expired
       └─► withdrawn          a hand-written approval released the same mail

A row changes its state by compare-and-set in one transaction, so that of any number of processes one wins.
"""

import json
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from deskhand import clock
from deskhand.gate.actions import Action
from deskhand.gate.policy import Allow, Limits, Wait, judge
from deskhand.mail import Sent
from deskhand.store import Transaction

State = Literal["waiting", "approved", "rejected", "expired", "withdrawn", "sending", "sent", "unknown", "failed"]
OPEN: tuple[State, ...] = ("waiting", "approved", "sending", "unknown")
BY_HAND = "hand-written approval"
BY_DRAFT = "approved draft"


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    asked: str
    """The digest of what was proposed; a person's edit changes the action, not this."""
    action: Action
    state: State
    revision: int
    file: str
    """The name of its approval file, in whichever folder that lies."""
    created: datetime
    expires: datetime
    difference: str | None = None
    decided_by: str | None = None
    note: str | None = None
    frozen: datetime | None = None
    """The Date of the bytes that are sent: they are the same at every attempt."""
    lease: datetime | None = None
    token: str | None = None
    message_id: str | None = None
    thread_id: str | None = None
    asked_by: str | None = None
    """The door by which it was proposed."""
    decided: datetime | None = None
    """When a person decided it."""
    untold: int = 0
    """1 where the desk sent it itself and whoever proposed it does not know yet."""
    sender: str | None = None
    """Whose mail it answers, as the desk read it."""
    warnings: tuple[str, ...] = ()
    """What was odd about that mail."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Somebody else was faster, or the person took the approval away."""


_NAMES = tuple(field.name for field in fields(Row))
_COLUMNS = ", ".join(_NAMES)
_TIMES = frozenset({"created", "expires", "frozen", "lease", "decided"})


def insert(tx: Transaction, row: Row) -> bool:
    """Whether it is in; not where the same proposal has an open row already."""
    values = [_stored(name, getattr(row, name)) for name in _NAMES] + [row.action.to.casefold()]
    marks = ", ".join("?" for _ in values)
    sql = f"INSERT INTO actions ({_COLUMNS}, recipient) VALUES ({marks}) ON CONFLICT DO NOTHING"
    return tx.execute(sql, *values) == 1


def by_id(tx: Transaction, action_id: str) -> Row | None:
    found = tx.one(f"SELECT {_COLUMNS} FROM actions WHERE id = ?", action_id)
    return _row(found) if found else None


def latest(tx: Transaction, asked: str) -> Row | None:
    """What became of this proposal last; an open row before any other."""
    found = tx.one(
        f"SELECT {_COLUMNS} FROM actions WHERE asked = ?"
        " ORDER BY CASE WHEN state IN ('waiting', 'approved', 'sending', 'unknown') THEN 0 ELSE 1 END, created DESC"
        " LIMIT 1",
        asked,
    )
    return _row(found) if found else None


def listed(tx: Transaction, states: tuple[State, ...], limit: int, after: tuple[int, str] = (0, "")) -> list[Row]:
    """The oldest first; `after` is the time (ms) and the id of the last one of the page before."""
    marks = ", ".join("?" for _ in states)
    rows = tx.all(
        f"SELECT {_COLUMNS} FROM actions WHERE state IN ({marks}) AND (created > ? OR (created = ? AND id > ?))"
        " ORDER BY created, id LIMIT ?",
        *(*states, after[0], *after, limit),
    )
    return [_row(found) for found in rows]


def answers_to(tx: Transaction, message_id: str) -> list[str]:
    """The ids of the open requests and of the drafts that answer a mail."""
    marks = ", ".join("?" for _ in OPEN)
    rows = tx.all(f"SELECT id, action FROM actions WHERE state IN ({marks}) ORDER BY created, id", *OPEN)
    # Parsing a thousand texts for one mail would be felt; most do not even name it.
    named = [(key, Action.model_validate_json(text)) for key, text in rows if message_id in text]
    drafts = tx.all("SELECT id FROM drafts WHERE mail = ? ORDER BY created", message_id)
    return [key for key, action in named if action.reply_to_message_id == message_id] + [key for (key,) in drafts]


def decisions(tx: Transaction, since: datetime, limit: int) -> list[timedelta]:
    """How long the newest requests and drafts that were answered had waited for the person."""
    rows = tx.all(
        "SELECT decided - created FROM (SELECT decided, created FROM actions WHERE decided >= ?"
        " UNION ALL SELECT decided, created FROM drafts WHERE decided >= ?) AS answered ORDER BY decided DESC LIMIT ?",
        *(clock.to_ms(since), clock.to_ms(since), limit),
    )
    return [timedelta(milliseconds=max(0, waited)) for (waited,) in rows]


def sent_since(tx: Transaction, since: datetime) -> list[datetime]:
    """When mails left that still count in the rate window, oldest first."""
    rows = tx.all("SELECT at FROM sends WHERE at > ? ORDER BY at", clock.to_ms(since))
    return [clock.from_ms(at) for (at,) in rows]


def page(
    tx: Transaction, states: tuple[State, ...], after: tuple[int, str], limit: int, now: datetime, *, snoozed: bool
) -> list[Row]:
    """The oldest rows behind a place; those that are put off, or those that are not."""
    marks = ", ".join("?" for _ in states)
    rows = tx.all(
        f"SELECT {_COLUMNS} FROM actions WHERE state IN ({marks}) AND (created, id) > (?, ?)"
        f" AND id {'IN' if snoozed else 'NOT IN'} (SELECT id FROM snoozes WHERE until > ?)"
        " ORDER BY created, id LIMIT ?",
        *states,
        *after,
        clock.to_ms(now),
        limit,
    )
    return [_row(found) for found in rows]


def change(tx: Transaction, row: Row, state: State, **changes: Any) -> Row | Lost:
    """Compare-and-set: the row as the caller saw it becomes `state`, or somebody else was faster."""
    values = {"state": state} | changes
    if "action" in changes:
        values["recipient"] = changes["action"].to.casefold()
    names = ", ".join(f"{name} = ?" for name in values)
    done = tx.execute(
        f"UPDATE actions SET {names} WHERE id = ? AND state = ? AND revision = ? AND COALESCE(lease, 0) = ?",
        *(_stored(name, value) for name, value in values.items()),
        row.id,
        row.state,
        row.revision,
        _stored("lease", row.lease) or 0,
    )
    return replace(row, state=state, **changes) if done else Lost()


def permitted(tx: Transaction, *, now: datetime, limits: Limits) -> Allow | Wait:
    """Whether the rate lets one more mail leave now. Holds until the transaction ends: see `in_turn`."""
    sent_at = tx.all("SELECT at FROM sends WHERE at > ?", clock.to_ms(now - limits.window))
    return judge(sent=[clock.from_ms(at) for (at,) in sent_at], now=now, limits=limits)


def claim(tx: Transaction, row: Row, *, now: datetime, lease: timedelta) -> Row | Lost:
    """approved -> sending, counted in the rate window."""
    # Whatever the caller takes the row for, nothing but an approved one becomes `sending`.
    claimed = change(
        tx,
        replace(row, state="approved"),
        "sending",
        frozen=row.frozen or now.replace(microsecond=0),
        lease=now + lease,
    )
    if isinstance(claimed, Row):
        tx.execute("INSERT INTO sends (action_id, at) VALUES (?, ?)", row.id, clock.to_ms(now))
    return claimed


def use(tx: Transaction, row: Row, content: str, now: datetime) -> bool:
    """Write down that a hand-written approval with this content is used; not where it was used before."""
    done = tx.execute(
        "INSERT INTO used_approvals (content, action_id, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        content,
        row.id,
        clock.to_ms(now),
    )
    return done == 1


def was_used(tx: Transaction, content: str) -> bool:
    return tx.one("SELECT 1 FROM used_approvals WHERE content = ?", content) is not None


def withdraw(tx: Transaction, asked: str) -> list[Row]:
    """Close the waiting requests of a proposal that a hand-written approval released."""
    found = tx.all(f"SELECT {_COLUMNS} FROM actions WHERE asked = ? AND state IN ('waiting', 'approved')", asked)
    rows = [_row(each) for each in found]
    for row in rows:
        change(tx, row, "withdrawn")
    return rows


def take_over(tx: Transaction, row: Row, *, now: datetime, lease: timedelta) -> Row | Lost:
    """A row whose process died in the middle of sending, once its lease has ended."""
    done = tx.execute(
        "UPDATE actions SET lease = ? WHERE id = ? AND state = 'sending' AND lease = ? AND lease <= ?",
        clock.to_ms(now + lease),
        row.id,
        _stored("lease", row.lease),
        clock.to_ms(now),
    )
    return replace(row, lease=now + lease) if done else Lost()


def keep_token(tx: Transaction, row: Row, token: str) -> bool:
    """Write down by which token it will be sent; not where the lease was lost meanwhile."""
    done = tx.execute(
        "UPDATE actions SET token = ? WHERE id = ? AND state = 'sending' AND lease = ?",
        token,
        row.id,
        _stored("lease", row.lease),
    )
    return done == 1


def sent(tx: Transaction, row: Row, mail: Sent, *, untold: bool) -> None:
    # Unconditional: that it was sent is a fact, whoever holds the lease by now.
    tx.execute(
        "UPDATE actions SET state = 'sent', message_id = ?, thread_id = ?, untold = ? WHERE id = ?",
        mail.message_id,
        mail.thread_id,
        int(untold),
        row.id,
    )


def told(tx: Transaction, row: Row) -> bool:
    """Whoever proposed it is told now that it was sent; once."""
    return tx.execute("UPDATE actions SET untold = 0 WHERE id = ? AND untold = 1", row.id) == 1


def put_back(tx: Transaction, row: Row) -> bool:
    """Certainly not sent: neither the rate nor the approval is spent. Not where the lease was lost meanwhile."""
    by_hand = row.decided_by in (BY_HAND, BY_DRAFT)
    if isinstance(change(tx, row, "failed" if by_hand else "approved", lease=None, token=None), Lost):
        return False
    if by_hand:
        tx.execute("DELETE FROM used_approvals WHERE action_id = ?", row.id)
    tx.execute(
        "DELETE FROM sends WHERE action_id = ? AND at = (SELECT MAX(at) FROM sends WHERE action_id = ?)",
        row.id,
        row.id,
    )
    return True


def let_go(tx: Transaction, row: Row, now: datetime) -> None:
    """End the lease: whoever comes next may look."""
    tx.execute(
        "UPDATE actions SET lease = ? WHERE id = ? AND state = 'sending' AND lease = ?",
        clock.to_ms(now),
        row.id,
        _stored("lease", row.lease),
    )


def in_turn(tx: Transaction) -> None:
    """Claims and repairs follow each other, on PostgreSQL too; SQLite has one writer anyway."""
    if tx.dialect == "postgresql":
        tx.execute("LOCK TABLE sends IN SHARE ROW EXCLUSIVE MODE")


def _stored(name: str, value: Any) -> Any:
    if name == "action":
        return value.model_dump_json()
    if name == "warnings":
        return json.dumps(value) if value else None
    return clock.to_ms(value) if name in _TIMES and value is not None else value


def _row(values: tuple[Any, ...]) -> Row:
    found = dict(zip(_NAMES, values, strict=True))
    found["action"] = Action.model_validate_json(found["action"])
    found["warnings"] = tuple(json.loads(found["warnings"] or "[]"))
    found |= {name: clock.from_ms(found[name]) for name in _TIMES if found[name] is not None}
    return Row(**found)
