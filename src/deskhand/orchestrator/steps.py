"""What is to be done, one row each: a unique key, a lease, when it is due, and what became of it.

    mail:   arrived ─► decided ─► archived | needs_info | delegated | drafted ─► answered | rejected
    send:   approved ─► sent | unknown | withdrawn
                └─► dev_mode

A row without `due` rests. A worker claims a due row by its lease and keeps the lease alive; of any number of workers
one has it, and when that one dies another takes over. Every step may be begun again from its start.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, Self

from deskhand import clock
from deskhand.errors import Unavailable
from deskhand.store import Store, Transaction

Kind = Literal["mail", "send"]
State = Literal[
    "arrived",
    "decided",
    "archived",
    "needs_info",
    "delegated",
    "drafted",
    "answered",
    "rejected",
    "approved",
    "dev_mode",
    "sent",
    "unknown",
    "withdrawn",
]
LONGEST_BACKOFF = timedelta(minutes=15)
_COLUMNS = "key, kind, state, data, due, lease, tried, attempts, error, created"


@dataclass(frozen=True, slots=True)
class Step:
    key: str
    kind: Kind
    state: State
    data: dict[str, Any]
    due: int | None
    lease: int
    tried: int
    attempts: int
    error: str | None
    created: int


def add(tx: Transaction, kind: Kind, name: str, state: State, data: dict[str, Any], now: datetime) -> bool:
    """Whether it is new: one step for one name, for ever."""
    moment = clock.to_ms(now)
    done = tx.execute(
        f"INSERT INTO steps ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, 0, 0, 0, NULL, ?) ON CONFLICT DO NOTHING",
        f"{kind}:{name}",
        kind,
        state,
        json.dumps(data),
        moment,
        moment,
    )
    return done == 1


def find(tx: Transaction, key: str) -> Step | None:
    row = tx.one(f"SELECT {_COLUMNS} FROM steps WHERE key = ?", key)
    return _step(row) if row else None


def in_states(tx: Transaction, kind: Kind, states: tuple[State, ...], limit: int) -> list[Step]:
    marks = ", ".join("?" for _ in states)
    rows = tx.all(
        f"SELECT {_COLUMNS} FROM steps WHERE kind = ? AND state IN ({marks}) ORDER BY created, key LIMIT ?",
        kind,
        *states,
        limit,
    )
    return [_step(row) for row in rows]


def claim(tx: Transaction, now: datetime, lease: timedelta, untried_since: datetime | None = None) -> Step | None:
    """A due row that nobody holds; with `untried_since` one that no pass has tried since then, due or not."""
    moment, until = clock.to_ms(now), clock.to_ms(now + lease)
    turn, value = ("due <= ?", moment) if untried_since is None else ("tried < ?", clock.to_ms(untried_since))
    locked = " FOR UPDATE SKIP LOCKED" if tx.dialect == "postgresql" else ""
    row = tx.one(
        f"SELECT {_COLUMNS} FROM steps WHERE due IS NOT NULL AND {turn} AND lease <= ?"
        f" ORDER BY due, key LIMIT 1{locked}",
        value,
        moment,
    )
    if row is None:
        return None
    step = replace(_step(row), lease=until, tried=moment)
    tx.execute("UPDATE steps SET lease = ?, tried = ? WHERE key = ?", until, moment, step.key)
    return step


def waits(tx: Transaction, now: datetime) -> bool:
    """Whether there is anything to claim."""
    moment = clock.to_ms(now)
    return tx.one("SELECT 1 FROM steps WHERE due <= ? AND lease <= ? LIMIT 1", moment, moment) is not None


def keep(tx: Transaction, step: Step, until: datetime) -> Step | None:
    """The step with a longer lease; None where somebody else has it by now."""
    longer = clock.to_ms(until)
    done = tx.execute("UPDATE steps SET lease = ? WHERE key = ? AND lease = ?", longer, step.key, step.lease)
    return replace(step, lease=longer) if done else None


def note(tx: Transaction, step: Step, state: State, data: dict[str, Any]) -> bool:
    """Write down how far it is and go on holding it; not where the lease was lost."""
    sql = "UPDATE steps SET state = ?, data = ? WHERE key = ? AND lease = ?"
    return tx.execute(sql, state, json.dumps(data), step.key, step.lease) == 1


def rest(tx: Transaction, step: Step, state: State, data: dict[str, Any], error: str | None = None) -> bool:
    """Nothing more to do until somebody wakes it."""
    sql = "UPDATE steps SET state = ?, data = ?, due = NULL, lease = 0, error = ? WHERE key = ? AND lease = ?"
    return tx.execute(sql, state, json.dumps(data), error, step.key, step.lease) == 1


def later(tx: Transaction, step: Step, error: str, at: datetime) -> bool:
    """Let go of it; it is due again at that time."""
    sql = "UPDATE steps SET due = ?, lease = 0, attempts = attempts + 1, error = ? WHERE key = ? AND lease = ?"
    return tx.execute(sql, clock.to_ms(at), error, step.key, step.lease) == 1


def wake(
    tx: Transaction, key: str, state: State, among: tuple[State, ...], data: dict[str, Any], now: datetime
) -> bool:
    """Begin again with a step that nobody holds and that is in one of these states."""
    marks = ", ".join("?" for _ in among)
    done = tx.execute(
        f"UPDATE steps SET state = ?, data = ?, due = ?, attempts = 0, error = NULL"
        f" WHERE key = ? AND lease <= ? AND state IN ({marks})",
        state,
        json.dumps(data),
        clock.to_ms(now),
        key,
        clock.to_ms(now),
        *among,
    )
    return done == 1


def become(tx: Transaction, key: str, state: State, among: tuple[State, ...]) -> bool:
    """A resting step goes on because of what a person did."""
    marks = ", ".join("?" for _ in among)
    sql = f"UPDATE steps SET state = ? WHERE key = ? AND due IS NULL AND state IN ({marks})"
    return tx.execute(sql, state, key, *among) == 1


def backoff(attempts: int, chance: float) -> timedelta:
    """1, 2, 4 … seconds up to a quarter of an hour, with jitter so that workers do not come back all at once."""
    return min(timedelta(seconds=2.0 ** min(attempts, 12)), LONGEST_BACKOFF) * (0.75 + chance / 2)


class LeaseLost(Exception):
    """Another worker has the step by now; this one stops where it is."""


class Held:
    """A claimed step whose lease is kept alive while it is worked on."""

    def __init__(self, store: Store, step: Step, lease: timedelta, now: Callable[[], datetime]) -> None:
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
        with suppress(asyncio.CancelledError, Unavailable):
            await self._beating

    async def note(self, state: State, also: Callable[[Transaction], object] | None = None, **data: Any) -> None:
        """Write down how far it is, together with `also`, and go on."""
        changed = self.step.data | data

        def work(tx: Transaction) -> bool:
            if also is not None:
                also(tx)
            return note(tx, self.step, state, changed)

        await self._written(work)
        self.step = replace(self.step, state=state, data=changed)

    async def rest(self, state: State, error: str | None = None) -> None:
        await self._written(lambda tx: rest(tx, self.step, state, self.step.data, error))

    async def later(self, error: str, at: datetime) -> None:
        await self._written(lambda tx: later(tx, self.step, error, at))

    async def _written(self, work: Callable[[Transaction], bool]) -> None:
        async with self._turn:
            await self._store.write(lambda tx: work(tx) or _undo())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            async with self._turn:
                kept = await self._store.write(lambda tx: keep(tx, self.step, self.now() + self._lease))
                if kept is None:
                    return
                self.step = replace(self.step, lease=kept.lease)


def _undo() -> bool:
    raise LeaseLost


# The watcher's place in the mailbox.


def cursor(tx: Transaction, mailbox: str) -> str | None:
    row = tx.one("SELECT cursor FROM cursors WHERE mailbox = ?", mailbox)
    return None if row is None else str(row[0])


def advance(tx: Transaction, mailbox: str, old: str | None, new: str) -> bool:
    """Compare-and-set: not where another worker has moved it meanwhile."""
    if old is None:
        sql = "INSERT INTO cursors (mailbox, cursor) VALUES (?, ?) ON CONFLICT DO NOTHING"
        return tx.execute(sql, mailbox, new) == 1
    return tx.execute("UPDATE cursors SET cursor = ? WHERE mailbox = ? AND cursor = ?", new, mailbox, old) == 1


# What the person corrected, by sender.


def correct(tx: Transaction, draft_id: str, kind: str, sender: str, text: str, now: datetime) -> None:
    tx.execute(
        "INSERT INTO corrections (draft_id, kind, sender, text, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        draft_id,
        kind,
        sender.casefold(),
        text,
        clock.to_ms(now),
    )


def corrections(tx: Transaction, sender: str, limit: int = 5) -> list[tuple[str, str]]:
    """(`edited` or `rejected`, what), the newest first."""
    sql = "SELECT kind, text FROM corrections WHERE sender = ? ORDER BY at DESC LIMIT ?"
    return [(str(kind), str(text)) for kind, text in tx.all(sql, sender.casefold(), limit)]


def _step(row: tuple[Any, ...]) -> Step:
    key, kind, state, data, *rest = row
    return Step(key, kind, state, json.loads(data), *rest)
