"""The rows of requests. A row changes by compare-and-set in one transaction: of any number of processes one wins."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from deskhand import clock
from deskhand.gate.requests import OPEN, Folder, Request, State
from deskhand.gate.rows import COLUMNS, NAMES, as_kept, find_one, find_where, to_column
from deskhand.mail import Sent
from deskhand.store import Transaction, marks


@dataclass(frozen=True, slots=True)
class Conflict:
    """Somebody else changed the row in this moment."""


Change = Callable[..., Request | Conflict]
"""Work that changes the row of a request, which it gets behind the transaction."""
AHEAD = timedelta(minutes=1)
"""How far apart the clocks of two machines may be."""


# Reading.


def find(tx: Transaction, request_id: str) -> Request | None:
    return find_one(tx, "id = ?", request_id)


def find_sent_as(tx: Transaction, send_id: str) -> Request | None:
    """The request whose mail carries this id."""
    return find_one(tx, "send_id = ?", send_id)


def find_asked(tx: Transaction, digest: str) -> Request | None:
    """What became of this mail last; an open request before any other, one that may leave
    before one that waits."""
    return find_one(
        tx,
        "asked = ? OR (origin = 'draft' AND digest = ?)"
        " ORDER BY CASE state WHEN 'sending' THEN 0 WHEN 'approved' THEN 1 WHEN 'unknown' THEN 2"
        " WHEN 'held' THEN 3 WHEN 'waiting' THEN 3 ELSE 4 END, created DESC LIMIT 1",
        *(digest, digest),
    )


# Changing.


def insert(tx: Transaction, request: Request) -> bool:
    """Add the row. False where it is there already, or the same proposal of a tool is open."""
    values = [to_column(name, getattr(request, name)) for name in NAMES]
    sql = (
        f"INSERT INTO requests ({COLUMNS}) VALUES ({marks(values)}) ON CONFLICT DO NOTHING"
    )
    return tx.execute(sql, *values) == 1


def change(
    tx: Transaction, /, request: Request, state: State, **changes: Any
) -> Request | Conflict:
    """The request as the caller saw it becomes `state`, or somebody else was faster."""
    if state in OPEN and request.state not in OPEN and not _make_room(tx, request):
        return Conflict()
    changes = {name: as_kept(name, value) for name, value in changes.items()}
    changed = replace(request, state=state, **changes)
    if "action" in changes:
        changed = replace(changed, digest=changed.action.digest)
        changes["digest"] = changed.digest
    values = {
        name: to_column(name, value) for name, value in ({"state": state} | changes).items()
    }
    names = ", ".join(f"{name} = ?" for name in values)
    done = tx.execute(
        f"UPDATE requests SET {names} WHERE id = ? AND state = ? AND revision = ? AND COALESCE(lease, 0) = ?",
        *(
            *values.values(),
            request.id,
            request.state,
            request.revision,
            to_column("lease", request.lease) or 0,
        ),
    )
    return changed if done else Conflict()


def _make_room(tx: Transaction, request: Request) -> bool:
    """One request for one proposal: what is opened again takes the place of one that waits meanwhile."""
    sql = "UPDATE requests SET state = 'withdrawn', due = NULL WHERE asked = ? AND origin = 'tool' AND id <> ?"
    tx.execute(
        f"{sql} AND state IN ('waiting', 'held', 'approved')", request.asked, request.id
    )
    sql = "SELECT 1 FROM requests WHERE asked = ? AND origin = 'tool' AND id <> ? AND state IN ('sending', 'unknown')"
    return tx.one(sql, request.asked, request.id) is None


def remember_place(tx: Transaction, request_id: str, folder: Folder, file: str) -> None:
    tx.execute(
        "UPDATE requests SET folder = ?, file = ? WHERE id = ?", folder, file, request_id
    )


def mark_settled(tx: Transaction, request: Request) -> None:
    """The note of the mail that a draft answers says what became of it; while it waits, nothing."""
    tx.execute(
        "UPDATE requests SET settled = ? WHERE id = ?",
        int(request.state != "waiting"),
        request.id,
    )


def take_due(
    tx: Transaction, now: datetime, turn: timedelta, untried_since: datetime | None = None
) -> Request | None:
    """One request that somebody has to go on with, and that nobody else takes up for the length of a turn."""
    wanted = "due <= ?"
    moment = clock.to_ms(now)
    # A pass over everything tries what is due later too, but each once.
    if untried_since is not None:
        wanted = "COALESCE(tried, 0) < ? AND (state = 'approved' OR due <= ?)"
    values = [moment] if untried_since is None else [clock.to_ms(untried_since), moment]
    locked = " FOR UPDATE SKIP LOCKED" if tx.dialect == "postgresql" else ""
    condition = f"due IS NOT NULL AND {wanted} ORDER BY due, created, id LIMIT 1{locked}"
    request = find_one(tx, condition, *values)
    if request is None:
        return None
    until = now + turn
    # Whose turn for the limit has come is no longer in the row of those who wait for theirs.
    tx.execute(
        "UPDATE requests SET due = ?, tried = ?, resting = NULLIF(resting, 'rate') WHERE id = ?",
        clock.to_ms(until),
        moment,
        request.id,
    )
    return replace(request, due=until, tried=now)


def next_due(tx: Transaction) -> datetime | None:
    row = tx.one("SELECT MIN(due) FROM requests WHERE due IS NOT NULL")
    return clock.from_ms(row[0]) if row and row[0] is not None else None


def forget_future(tx: Transaction, now: datetime) -> None:
    """What a clock that was ahead wrote down holds nobody up: a turn, a lease or a rest
    that began later than now."""
    moment = clock.to_ms(now)
    ahead = clock.to_ms(now + AHEAD)
    tx.execute("UPDATE sends SET at = ? WHERE at > ?", moment, ahead)
    tx.execute(
        "UPDATE requests SET due = ?, tried = ? WHERE due IS NOT NULL AND tried > ?",
        moment,
        moment,
        ahead,
    )
    tx.execute(
        "UPDATE requests SET due = ? WHERE state = 'held' AND decided > ? AND due > ?",
        moment,
        ahead,
        moment,
    )


def wake_rested(tx: Transaction, now: datetime) -> None:
    """Sending is on again: what rested because it was off is tried."""
    sql = "UPDATE requests SET due = ?, resting = NULL, note = NULL WHERE resting = 'dev_mode' AND state = 'approved'"
    tx.execute(sql, clock.to_ms(now))


def postpone(
    tx: Transaction, /, request: Request, due: datetime | None, **changes: Any
) -> None:
    """Try an approved request again at that time, or not by itself."""
    values = {name: to_column(name, value) for name, value in changes.items()}
    names = "".join(f", {name} = ?" for name in values)
    sql = f"UPDATE requests SET due = ?{names} WHERE id = ? AND state = 'approved'"
    tx.execute(sql, to_column("due", due), *values.values(), request.id)


def rest_until_its_time(tx: Transaction, request: Request) -> None:
    """What has a time of its own rests until then."""
    sql = "UPDATE requests SET due = ? WHERE id = ? AND state IN ('held', 'approved')"
    tx.execute(sql, to_column("due", request.action.send_at), request.id)


# Sending.


def claim(
    tx: Transaction, request: Request, *, now: datetime, lease: timedelta
) -> Request | Conflict:
    """approved -> sending. Nothing but an approved request is claimed."""
    until = now + _length_of(lease, request)
    return change(
        tx,
        replace(request, state="approved"),
        "sending",
        frozen=request.frozen or now.replace(microsecond=0),
        lease=until,
        due=until,
        tried=now,
    )


def take_over(
    tx: Transaction, request: Request, *, now: datetime, lease: timedelta
) -> Request | Conflict:
    """A request whose process died in the middle of sending: ours, unless somebody else took it over by now."""
    until = now + _length_of(lease, request)
    return change(tx, request, "sending", lease=until, due=until, tried=now)


def is_held(request: Request, now: datetime, lease: timedelta) -> bool:
    """Whether somebody has the request now. A lease of a clock that was ahead, longer than
    any can be, is none."""
    latest = now + _length_of(lease, request) + AHEAD
    return request.lease is not None and now < request.lease <= latest


def _length_of(lease: timedelta, request: Request) -> timedelta:
    """Files may be handed over twice in it: when the mail is prepared, and when it is sent."""
    return lease + 2 * request.upload


def keep_token(tx: Transaction, request: Request, token: str) -> bool:
    """Write down by which token it is sent now, and use "once more" up. False where the lease
    was lost meanwhile."""
    kept = change(tx, request, "sending", token=token, once_more=False)
    return isinstance(kept, Request)


def end_lease(tx: Transaction, request: Request, now: datetime) -> None:
    """Whoever comes next may look what became of it."""
    change(tx, request, "sending", lease=now, due=now)


def put_back(
    tx: Transaction, request: Request, due: datetime, **changes: Any
) -> Request | Conflict:
    """It was certainly not sent: the yes is not spent, unless it was written by hand."""
    changes |= {
        "lease": None,
        "token": None,
        "attempts": request.attempts + 1,
        "once_more": request.once_more,
    }
    if request.proof == "hand-written":
        return change(tx, request, "failed", due=None, **changes)
    return change(tx, request, "approved", due=due, **changes)


def mark_sent(tx: Transaction, request: Request, mail: Sent, *, untold: bool) -> None:
    # Unconditional: that it was sent is a fact, whoever holds the lease by now.
    tx.execute(
        "UPDATE requests SET state = 'sent', message_id = ?, thread_id = ?, untold = ?, due = NULL, error = NULL,"
        " note = ? WHERE id = ?",
        *(mail.message_id, mail.thread_id, int(untold), mail.remark, request.id),
    )
    for address in {each.lower() for each in request.action.everybody}:
        tx.execute(
            "INSERT INTO written_to (address, request_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
            address,
            request.id,
        )


def mark_told(tx: Transaction, request: Request) -> bool:
    """Whoever proposed it is told now that it was sent; once."""
    return (
        tx.execute("UPDATE requests SET untold = 0 WHERE id = ? AND untold = 1", request.id)
        == 1
    )


def take_back_all(tx: Transaction, note: str) -> None:
    """No yes counts any more: what it was given to may have left since this database was written."""
    tx.execute(
        "UPDATE requests SET state = CASE WHEN token IS NULL AND once_more = 0 THEN 'waiting' ELSE 'unknown' END,"
        " due = NULL, note = ? WHERE state IN ('held', 'approved')",
        note,
    )
    tx.execute(
        "UPDATE requests SET state = 'unknown', token = COALESCE(token, send_id), due = NULL, lease = NULL, note = ?"
        " WHERE state = 'sending'",
        note,
    )


def withdraw(tx: Transaction, asked: str) -> list[Request]:
    """Close the waiting requests of a proposal that a hand-written approval released."""
    found = find_where(tx, "asked = ? AND state IN ('waiting', 'held', 'approved')", asked)
    closed = [change(tx, each, "withdrawn", due=None) for each in found]
    return [request for request in closed if isinstance(request, Request)]
