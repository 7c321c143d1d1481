"""What is to be done with each mail, one row: a unique key, a lease, when it is due, and what became of it.

    arrived ─► decided ─► archived | needs_info | delegated | drafted ─► answered | rejected
                                          ├─► handed (the person left it to an assistant)
                                          └─► continued (a newer mail of its conversation waits instead)

A row without `due` rests. A worker claims a due row by its lease and keeps the lease alive; of any number of workers
one has it, and when that one dies another takes over. Every step may be begun again from its start. What a person
approved is no step but a request of the gate.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import not_
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from deskhand import clock
from deskhand.errors import DeskError
from deskhand.gate.ledger import AHEAD
from deskhand.orchestrator.triage import Decision
from deskhand.store import Row, Store, Transaction, marks

State = Literal[
    "arrived",
    "decided",
    "archived",
    "needs_info",
    "handed",
    "continued",
    "delegated",
    "drafted",
    "answered",
    "rejected",
]
Gone = Literal["archived", "trashed", "spam", "deleted"]
LEFT: tuple[State, ...] = ("needs_info", "delegated")
"""States in which a mail is left to the person."""
OPEN: tuple[State, ...] = (*LEFT, "handed")
"""States in which the person may still decide."""
_GATHERED: tuple[State, ...] = (*LEFT, "continued")
MOST_LEFT = 1000
LONGEST_BACKOFF = timedelta(minutes=15)
_COLUMNS = "key, state, data, due, lease, tried, attempts, error, created"


class MailFacts(BaseModel):
    """How far the desk has come with one mail."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    message_id: str
    note: str | None = None
    """The name of its note."""
    from_note: bool = False
    """Somebody else wrote that note, and by it the desk knows of the mail."""
    sender: str = ""
    people: tuple[str, ...] = Field((), exclude_if=not_)
    """Who takes part in its conversation, as far as its sender says: the addresses in its
    head without the person's."""
    header: str = Field("", exclude_if=not_)
    """Its Message-ID without brackets."""
    in_inbox: bool = Field(default=False, exclude_if=not_)
    """Whether it lay in the inbox when it began to wait."""
    gone: Gone | None = Field(None, exclude_if=not_)
    """What was done with it elsewhere, by which it was decided."""
    decision: Decision | None = None
    decided_by: str = ""
    decided_at: str = ""
    draft_id: str | None = None
    drafts: int = 0
    """How many replies were drafted to it so far."""
    warnings: tuple[str, ...] = ()
    leaves_inbox: bool = Field(default=False, exclude_if=not_)
    """It is still to be taken out of the inbox of its mailbox, as the rule that archived it says."""
    filed: bool = False
    """What follows from the decision is in the vault."""
    proposed: Decision | None = None
    """What the person or an assistant decided; it is taken up at the next step."""
    by_person: bool = False
    """Whether the person decided that."""
    proposed_by: str = Field("", exclude_if=not_)
    """Which assistant decided that, in words."""
    to_all: bool = False
    """Whether the person answers everybody whom the mail names, not its author alone."""
    asked: str | None = None
    """What the person asks of the assistant to whom they left it."""
    words: str | None = None
    """How the person wants it answered instead."""


@dataclass(frozen=True, slots=True)
class Step:
    key: str
    state: State
    data: MailFacts
    due: int | None
    lease: int
    tried: int
    attempts: int
    error: str | None
    created: int


def name_key(mailbox: str, mail: str) -> str:
    """The key of a mail's step, by the mailbox that has it and the id that it has there."""
    return f"mail:{mailbox}:{mail}"


def add(tx: Transaction, key: str, data: MailFacts, now: datetime) -> bool:
    """Whether the mail is new: there is one step for each, and never a second one."""
    moment = clock.to_ms(now)
    done = tx.execute(
        f"INSERT INTO steps (kind, {_COLUMNS}) VALUES ('mail', ?, 'arrived', ?, ?, 0, 0, 0, NULL, ?)"
        " ON CONFLICT DO NOTHING",
        *(key, data.model_dump_json(), moment, moment),
    )
    return done == 1


def find(tx: Transaction, key: str) -> Step | None:
    row = tx.one(f"SELECT {_COLUMNS} FROM steps WHERE key = ?", key)
    return _step(row) if row else None


def in_states(
    tx: Transaction, states: tuple[State, ...], limit: int, after: Step | None = None
) -> list[Step]:
    """Oldest first."""
    created = after.created if after else 0
    key = after.key if after else ""
    sql = (
        f"SELECT {_COLUMNS} FROM steps WHERE kind = 'mail' AND state IN ({marks(states)})"
        " AND (created > ? OR (created = ? AND key > ?)) ORDER BY created, key LIMIT ?"
    )
    return [_step(row) for row in tx.all(sql, *states, created, created, key, limit)]


def list_left(
    tx: Transaction, now: datetime, limit: int, after: Step | None = None
) -> list[Step]:
    """The mails that wait for the person's decision, oldest first."""
    created = after.created if after else 0
    key = after.key if after else ""
    rows = tx.all(
        f"SELECT {_COLUMNS} FROM steps WHERE kind = 'mail' AND state IN ({marks(LEFT)}) AND due IS NULL"
        " AND (later IS NULL OR later <= ?) AND (created > ? OR (created = ? AND key > ?))"
        " ORDER BY created, key LIMIT ?",
        *(*LEFT, clock.to_ms(now), created, created, key, limit),
    )
    return [_step(row) for row in rows]


def count_left(tx: Transaction, now: datetime) -> int:
    sql = (
        f"SELECT count(*) FROM steps WHERE kind = 'mail' AND state IN ({marks(LEFT)}) AND due IS NULL"
        " AND (later IS NULL OR later <= ?)"
    )
    (count,) = tx.all(sql, *LEFT, clock.to_ms(now))[0]
    return int(count)


def count_put_off(tx: Transaction, now: datetime) -> int:
    """How many mails come back by themselves to be decided."""
    sql = f"SELECT count(*) FROM steps WHERE kind = 'mail' AND state IN ({marks(LEFT)}) AND later > ?"
    (count,) = tx.all(sql, *LEFT, clock.to_ms(now))[0]
    return int(count)


def list_handed(tx: Transaction, limit: int) -> list[Step]:
    """The mails that the person left to an assistant."""
    return in_states(tx, ("handed",), limit)


def list_put_off(tx: Transaction, now: datetime, limit: int) -> list[tuple[Step, datetime]]:
    """The mails that come back by themselves, and when; the next one first."""
    sql = (
        f"SELECT later, {_COLUMNS} FROM steps WHERE state IN ({marks(LEFT)})"
        " AND later > ? ORDER BY later, key LIMIT ?"
    )
    rows = tx.all(sql, *LEFT, clock.to_ms(now), limit)
    return [(_step(tuple(row)), clock.from_ms(later)) for later, *row in rows]


def put_off(tx: Transaction, key: str, until: datetime | None) -> bool:
    """Let a mail that waits for the person rest until then; without a time it is back."""
    later = until and clock.to_ms(until)
    sql = f"UPDATE steps SET later = ? WHERE key = ? AND due IS NULL AND state IN ({marks(LEFT)})"
    return tx.execute(sql, later, key, *LEFT) == 1


def find_later(tx: Transaction, key: str) -> datetime | None:
    """Until when a mail was put off."""
    row = tx.one("SELECT later FROM steps WHERE key = ?", key)
    if row is None or row[0] is None:
        return None
    return clock.from_ms(row[0])


def restore(
    tx: Transaction, seen: Step, state: State, data: MailFacts, later: datetime | None
) -> bool:
    """Take back what was decided, where the step rests as it was `seen` after that."""
    sql = (
        "UPDATE steps SET state = ?, data = ?, later = ?, error = NULL"
        " WHERE key = ? AND due IS NULL AND state = ? AND data = ?"
    )
    until = later and clock.to_ms(later)
    was = (seen.key, seen.state, seen.data.model_dump_json())
    return tx.execute(sql, state, data.model_dump_json(), until, *was) == 1


def hand_over(tx: Transaction, step: Step, asked: str | None) -> bool:
    """Leave a mail to an assistant, with the person's words; without any it is the person's again."""
    state: State = "handed" if asked else "needs_info"
    among: tuple[State, ...] = LEFT if asked else ("handed",)
    data = step.data.model_copy(update={"asked": asked}).model_dump_json()
    sql = (
        f"UPDATE steps SET state = ?, data = ?, later = NULL"
        f" WHERE key = ? AND due IS NULL AND state IN ({marks(among)})"
    )
    return tx.execute(sql, state, data, step.key, *among) == 1


# Conversations.


def list_unplaced(tx: Transaction, limit: int) -> list[Step]:
    """The mails that wait for the person and of which nobody has said yet to which conversation they belong."""
    sql = (
        f"SELECT {_COLUMNS} FROM steps WHERE kind = 'mail' AND state IN ({marks(LEFT)})"
        " AND due IS NULL AND thread IS NULL ORDER BY created, key LIMIT ?"
    )
    return [_step(row) for row in tx.all(sql, *LEFT, limit)]


@dataclass(frozen=True, slots=True)
class Placing:
    """Where a mail belongs among the others."""

    thread: str
    received: datetime
    people: tuple[str, ...] = ()
    header: str = ""
    in_inbox: bool = False
    is_bulk: bool = False
    """Whether it was sent to many."""


def place(tx: Transaction, key: str, placing: Placing) -> None:
    """Write down to which conversation a resting mail belongs, and who takes part in it."""
    row = tx.one("SELECT data FROM steps WHERE key = ? AND due IS NULL", key)
    if row is None:
        return
    known = MailFacts.model_validate_json(row[0])
    placed = {"people": placing.people, "header": placing.header}
    data = known.model_copy(update={**placed, "in_inbox": placing.in_inbox})
    sql = "UPDATE steps SET thread = ?, received = ?, bulk = ?, data = ? WHERE key = ? AND due IS NULL AND data = ?"
    values = (placing.thread, clock.to_ms(placing.received), int(placing.is_bulk))
    tx.execute(sql, *values, data.model_dump_json(), key, row[0])


def gather(tx: Transaction, key: str) -> list[tuple[Step, Step]]:
    """Of a mail's conversation let newer mails that wait stand for those whose people their senders are among; each
    that does not wait by itself any more, with the one that now stands for it.

    To be in the same conversation proves nothing: any stranger can name a mail as the one that theirs answers.
    """
    sql = (
        f"SELECT bulk, behind, {_COLUMNS} FROM steps WHERE thread = (SELECT thread FROM steps WHERE key = ?)"
        f" AND thread <> '' AND due IS NULL AND state IN ({marks(_GATHERED)})"
        " ORDER BY received DESC, created DESC, key DESC"
    )
    newer: list[tuple[int, Step]] = []
    fronts: dict[str, Step] = {}
    gathered = []
    for bulk, behind, *row in tx.all(sql, key, *_GATHERED):
        step = _step(tuple(row))
        if step.state == "continued":
            if behind in fronts:
                fronts[step.key] = fronts[behind]
                newer.append((bulk, step))
            continue
        alike = (each for its_bulk, each in newer if its_bulk == bulk)
        before = next((each for each in alike if _continues(each, step)), None)
        newer.append((bulk, step))
        if before is None:
            fronts[step.key] = step
            continue
        front = fronts[step.key] = fronts[before.key]
        _put_behind(tx, step, front)
        gathered.append((step, front))
    return gathered


def _put_behind(tx: Transaction, step: Step, front: Step) -> None:
    """Let a mail and all for which it stood wait behind another one."""
    tx.execute("UPDATE steps SET behind = ? WHERE behind = ?", front.key, step.key)
    tx.execute(
        "UPDATE steps SET state = 'continued', later = NULL, behind = ? WHERE key = ?",
        *(front.key, step.key),
    )


def _continues(newer: Step, older: Step) -> bool:
    """Whether the sender of the newer mail took part when the older one was written."""
    return bool(newer.data.sender) and newer.data.sender in (
        older.data.sender,
        *older.data.people,
    )


def release(tx: Transaction, key: str, but: Collection[str] = ()) -> list[Step]:
    """Let the mails for which this one stood wait by themselves again, without those named in `but`."""
    released = [step for step in list_behind(tx, key) if step.key not in but]
    for step in released:
        sql = "UPDATE steps SET state = 'needs_info', behind = NULL WHERE key = ?"
        tx.execute(sql, step.key)
    return released


def list_behind(tx: Transaction, key: str) -> list[Step]:
    """The earlier mails for which this one waits, the latest first."""
    sql = f"SELECT {_COLUMNS} FROM steps WHERE behind = ? AND state = 'continued' ORDER BY received DESC, key"
    return [_step(row) for row in tx.all(sql, key)]


def group_behind(tx: Transaction, keys: Collection[str]) -> dict[str, list[Step]]:
    """The earlier mails for which each of these waits; those that wait for none are left out."""
    if not keys:
        return {}
    sql = (
        f"SELECT behind, {_COLUMNS} FROM steps WHERE state = 'continued'"
        f" AND behind IN ({marks(keys)}) ORDER BY received DESC, key"
    )
    found: dict[str, list[Step]] = {}
    for front, *row in tx.all(sql, *keys):
        found.setdefault(front, []).append(_step(tuple(row)))
    return found


def find_in_front(tx: Transaction, key: str) -> Step | None:
    """The mail that waits instead of this one."""
    row = tx.one("SELECT behind FROM steps WHERE key = ? AND state = 'continued'", key)
    return find(tx, row[0]) if row else None


def last_tried(tx: Transaction) -> int | None:
    """When somebody last worked at a mail of a conversation that is open; None where none is."""
    sql = f"SELECT max(tried) FROM steps WHERE kind = 'mail' AND state IN ({marks(OPEN)}) AND thread <> ''"
    ((latest,),) = tx.all(sql, *OPEN)
    return None if latest is None else int(latest)


def list_open_in(
    tx: Transaction, threads: Collection[str]
) -> list[tuple[str, datetime, Step]]:
    """The mails of these conversations that are open, with the conversation and when each arrived."""
    if not threads:
        return []
    sql = (
        f"SELECT thread, received, {_COLUMNS} FROM steps WHERE thread IN ({marks(threads)})"
        f" AND due IS NULL AND state IN ({marks(OPEN)})"
    )
    return [
        (thread, clock.from_ms(received), _step(tuple(row)))
        for thread, received, *row in tx.all(sql, *threads, *OPEN)
    ]


def list_in_mailbox(tx: Transaction, mailbox: str, after: str, limit: int) -> list[Step]:
    """By their keys, the mails of a mailbox that are open, or behind one that is."""
    start = name_key(mailbox, "")
    opened = f"state IN ({marks(OPEN)}) AND due IS NULL"
    sql = (
        f"SELECT {_COLUMNS} FROM steps WHERE kind = 'mail' AND key > ? AND substr(key, 1, ?) = ?"
        f" AND ({opened} OR state = 'continued' AND behind IN (SELECT key FROM steps WHERE {opened}))"
        " ORDER BY key LIMIT ?"
    )
    rows = tx.all(sql, after, len(start), start, *OPEN, *OPEN, limit)
    return [_step(row) for row in rows]


def end_gone(tx: Transaction, key: str, gone: Gone) -> bool:
    """Whether this ends a mail that still waited for the person, or stood behind one that did."""
    return _change_gone(tx, key, (*OPEN, "continued"), "archived", gone)


def reopen_gone(tx: Transaction, key: str) -> bool:
    """Whether this lets a mail wait again that was ended because it had left the inbox."""
    step = find(tx, key)
    if step is None or step.data.gone is None:
        return False
    return _change_gone(tx, key, ("archived",), "needs_info", None)


def _change_gone(
    tx: Transaction, key: str, among: tuple[State, ...], state: State, gone: Gone | None
) -> bool:
    step = find(tx, key)
    if step is None:
        return False
    data = step.data.model_copy(update={"gone": gone}).model_dump_json()
    sql = (
        "UPDATE steps SET state = ?, data = ?, later = NULL, behind = NULL"
        f" WHERE key = ? AND due IS NULL AND state = ? AND state IN ({marks(among)})"
    )
    return tx.execute(sql, state, data, key, step.state, *among) == 1


def count_states(tx: Transaction) -> dict[str, int]:
    return dict(
        tx.all(
            "SELECT state, count(*) FROM steps WHERE kind = 'mail' GROUP BY state ORDER BY state"
        )
    )


def troubles(tx: Transaction, limit: int) -> list[Step]:
    """Steps whose last try failed, the latest first."""
    sql = (
        f"SELECT {_COLUMNS} FROM steps WHERE error IS NOT NULL ORDER BY tried DESC LIMIT ?"
    )
    return [_step(row) for row in tx.all(sql, limit)]


def claim(
    tx: Transaction, now: datetime, lease: timedelta, untried_since: datetime | None = None
) -> Step | None:
    """A due row that nobody holds; with `untried_since` one that no pass has tried since then, due or not."""
    moment = clock.to_ms(now)
    turn = "due <= ?"
    value = moment
    if untried_since is not None:
        turn = "tried < ?"
        value = clock.to_ms(untried_since)
    row = tx.one(
        f"SELECT {_COLUMNS} FROM steps WHERE due IS NOT NULL AND {turn} AND lease <= ?"
        f" ORDER BY due, key LIMIT 1{_lock_row(tx)}",
        *(value, moment),
    )
    return _hold(tx, _step(row), now, lease) if row else None


def claim_named(tx: Transaction, key: str, now: datetime, lease: timedelta) -> Step | None:
    """This one row, where it is due and nobody holds it."""
    moment = clock.to_ms(now)
    sql = f"SELECT {_COLUMNS} FROM steps WHERE key = ? AND due IS NOT NULL AND lease <= ?{_lock_row(tx)}"
    row = tx.one(sql, key, moment)
    return _hold(tx, _step(row), now, lease) if row else None


def _hold(tx: Transaction, step: Step, now: datetime, lease: timedelta) -> Step:
    moment = clock.to_ms(now)
    held = replace(step, lease=clock.to_ms(now + lease), tried=moment)
    tx.execute(
        "UPDATE steps SET lease = ?, tried = ? WHERE key = ?", held.lease, moment, held.key
    )
    return held


def _lock_row(tx: Transaction) -> str:
    """SQLite has one writer anyway."""
    return " FOR UPDATE SKIP LOCKED" if tx.dialect == "postgresql" else ""


def is_any_due(tx: Transaction, now: datetime) -> bool:
    """Whether there is anything to claim."""
    moment = clock.to_ms(now)
    return (
        tx.one("SELECT 1 FROM steps WHERE due <= ? AND lease <= ? LIMIT 1", moment, moment)
        is not None
    )


def forget_future(tx: Transaction, now: datetime) -> None:
    """Let go of what a clock that was ahead took up or put off."""
    moment = clock.to_ms(now)
    sql = (
        "UPDATE steps SET due = ?, lease = 0, tried = ? WHERE due IS NOT NULL AND tried > ?"
    )
    tx.execute(sql, moment, moment, clock.to_ms(now + AHEAD))


def keep(tx: Transaction, step: Step, until: datetime) -> Step | None:
    """The step with a longer lease; None where somebody else has it by now."""
    longer = clock.to_ms(until)
    done = tx.execute(
        "UPDATE steps SET lease = ? WHERE key = ? AND lease = ?",
        longer,
        step.key,
        step.lease,
    )
    return replace(step, lease=longer) if done else None


def note(tx: Transaction, step: Step, state: State, data: MailFacts) -> bool:
    """Write down how far it is and go on holding it; not where the lease was lost."""
    sql = "UPDATE steps SET state = ?, data = ? WHERE key = ? AND lease = ?"
    return tx.execute(sql, state, data.model_dump_json(), step.key, step.lease) == 1


def rest(tx: Transaction, step: Step, state: State, error: str | None = None) -> bool:
    """Nothing more to do until somebody wakes it."""
    sql = "UPDATE steps SET state = ?, due = NULL, lease = 0, error = ? WHERE key = ? AND lease = ?"
    return tx.execute(sql, state, error, step.key, step.lease) == 1


def postpone(tx: Transaction, step: Step, error: str, at: datetime) -> bool:
    """Let go of it; it is due again at that time."""
    sql = "UPDATE steps SET due = ?, lease = 0, attempts = attempts + 1, error = ? WHERE key = ? AND lease = ?"
    return tx.execute(sql, clock.to_ms(at), error, step.key, step.lease) == 1


def wake(
    tx: Transaction, step: Step, data: MailFacts, among: tuple[State, ...], now: datetime
) -> bool:
    """Begin again with a mail that nobody holds and that is in one of these states."""
    moment = clock.to_ms(now)
    done = tx.execute(
        "UPDATE steps SET state = 'arrived', data = ?, due = ?, attempts = 0, error = NULL, later = NULL"
        f" WHERE key = ? AND lease <= ? AND state IN ({marks(among)})",
        *(data.model_dump_json(), moment, step.key, moment, *among),
    )
    return done == 1


def adopt_note(tx: Transaction, key: str, name: str, now: datetime) -> Step | None:
    """The step with another note from now on; None where somebody holds it."""
    sql = f"SELECT {_COLUMNS} FROM steps WHERE key = ? AND lease <= ?{_lock_row(tx)}"
    row = tx.one(sql, key, clock.to_ms(now))
    if row is None:
        return None
    step = _step(row)
    data = step.data.model_copy(update={"note": name})
    tx.execute("UPDATE steps SET data = ? WHERE key = ?", data.model_dump_json(), key)
    return replace(step, data=data)


def become(tx: Transaction, key: str, state: State, among: tuple[State, ...]) -> bool:
    """A resting step goes on because of what a person did."""
    sql = f"UPDATE steps SET state = ? WHERE key = ? AND due IS NULL AND state IN ({marks(among)})"
    return tx.execute(sql, state, key, *among) == 1


def backoff(attempts: int, chance: float) -> timedelta:
    """1, 2, 4 … seconds up to a quarter of an hour, with jitter so that workers do not come back all at once."""
    return min(timedelta(seconds=2.0 ** min(attempts, 12)), LONGEST_BACKOFF) * (
        0.75 + chance / 2
    )


class LeaseLost(Exception):
    """Another worker has the step by now; this one stops where it is."""


class Held:
    """A claimed step whose lease is kept alive while it is worked on."""

    def __init__(
        self, store: Store, step: Step, lease: timedelta, now: Callable[[], datetime]
    ) -> None:
        self.step = step
        self.now = now
        self._store = store
        self._lease = lease
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._beating.cancel()
        with suppress(asyncio.CancelledError, DeskError):
            await self._beating

    async def note(
        self,
        state: State,
        also: Callable[[Transaction], object] | None = None,
        **changes: Any,
    ) -> None:
        """Write down how far it is, together with `also`, and go on."""
        data = self.step.data.model_copy(update=changes)

        def work(tx: Transaction) -> bool:
            if also is not None:
                also(tx)
            return note(tx, self.step, state, data)

        await self._write(work)
        self.step = replace(self.step, state=state, data=data)

    async def rest(
        self,
        state: State,
        error: str | None = None,
        also: Callable[[Transaction], object] | None = None,
    ) -> None:
        """Let go of it, together with `also`."""

        def work(tx: Transaction) -> bool:
            if also is not None:
                also(tx)
            return rest(tx, self.step, state, error)

        await self._write(work)

    async def postpone(self, error: str, at: datetime) -> None:
        await self._write(lambda tx: postpone(tx, self.step, error, at))

    async def _write(self, work: Callable[[Transaction], bool]) -> None:
        def work_or_stop(tx: Transaction) -> None:
            if not work(tx):
                raise LeaseLost

        async with self._turn:
            await self._store.write(work_or_stop)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            async with self._turn:
                kept = await self._store.write(keep, self.step, self.now() + self._lease)
                if kept is None:
                    return
                self.step = replace(self.step, lease=kept.lease)


# The watcher's place in the mailbox.


def cursor(tx: Transaction, mailbox: str) -> str | None:
    row = tx.one("SELECT cursor FROM cursors WHERE mailbox = ?", mailbox)
    return None if row is None else str(row[0])


def advance(tx: Transaction, mailbox: str, old: str | None, new: str) -> bool:
    """Compare-and-set: not where another worker has moved it meanwhile."""
    if old is None:
        sql = "INSERT INTO cursors (mailbox, cursor) VALUES (?, ?) ON CONFLICT DO NOTHING"
        return tx.execute(sql, mailbox, new) == 1
    return (
        tx.execute(
            "UPDATE cursors SET cursor = ? WHERE mailbox = ? AND cursor = ?",
            new,
            mailbox,
            old,
        )
        == 1
    )


# What the person corrected, by sender.


def correct(
    tx: Transaction, draft_id: str, kind: str, sender: str, text: str, now: datetime
) -> None:
    tx.execute(
        "INSERT INTO corrections (draft_id, kind, sender, text, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        *(draft_id, kind, sender.lower(), text, clock.to_ms(now)),
    )


def forget_correction(tx: Transaction, draft_id: str) -> None:
    """The person took their no back."""
    tx.execute("DELETE FROM corrections WHERE draft_id = ?", draft_id)


def corrections(tx: Transaction, sender: str, limit: int = 5) -> list[tuple[str, str]]:
    """(`edited` or `rejected`, what), the newest first."""
    sql = "SELECT kind, text FROM corrections WHERE sender = ? ORDER BY at DESC LIMIT ?"
    return [(str(kind), str(text)) for kind, text in tx.all(sql, sender.lower(), limit)]


def _step(row: Row) -> Step:
    key, state, data, *rest = row
    return Step(key, state, MailFacts.model_validate_json(data), *rest)
