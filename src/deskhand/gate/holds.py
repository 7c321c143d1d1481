"""A yes that can still be taken back, and a card that is put off: rows beside the ledger, nothing in the vault.

A hold that ended is taken by compare-and-set under a lease, so that of any number of processes one acts on it, and
another takes over where that one died. Acting means to decide and release through the gate, whose claim stays the only
way out; a hold that is taken twice sends nothing twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from deskhand import clock
from deskhand.store import Row, Transaction

LEASE = timedelta(seconds=120)
"""How long acting on a hold may take before another process looks after it."""


@dataclass(frozen=True, slots=True)
class Hold:
    id: str
    digest: str
    """Of what the person said yes to."""
    by: str
    until: datetime
    taken: int | None = None
    """When the lease of whoever acts on it ends."""
    note: str | None = None
    """Why it came to nothing."""


_COLUMNS = "id, digest, decided_by, until, taken, note"


def put(tx: Transaction, hold: Hold) -> bool:
    """Whether it rests now; not where the same yes rests already or is being acted on."""
    done = tx.execute(
        "INSERT INTO holds (id, digest, decided_by, until) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
        " digest = excluded.digest, decided_by = excluded.decided_by, until = excluded.until, taken = NULL, note = NULL"
        " WHERE holds.note IS NOT NULL OR (holds.taken IS NULL AND holds.digest <> excluded.digest)",
        hold.id,
        hold.digest,
        hold.by,
        clock.to_ms(hold.until),
    )
    return done == 1


def drop(tx: Transaction, card_id: str) -> Literal["dropped", "taken", "none"]:
    """Take a yes back, unless somebody acts on it by now. What is left of one that came to nothing goes too."""
    found = tx.one("SELECT note FROM holds WHERE id = ?", card_id)
    if found is None:
        return "none"
    if tx.execute("DELETE FROM holds WHERE id = ? AND (taken IS NULL OR note IS NOT NULL)", card_id) != 1:
        return "taken"
    return "dropped" if found[0] is None else "none"


def among(tx: Transaction, ids: Sequence[str]) -> dict[str, Hold]:
    marks = ", ".join("?" for _ in ids) or "NULL"
    rows = tx.all(f"SELECT {_COLUMNS} FROM holds WHERE id IN ({marks})", *ids)
    return {row[0]: _hold(row) for row in rows}


def resting(tx: Transaction) -> set[str]:
    """The ids of all that are held."""
    return {str(name) for (name,) in tx.all("SELECT id FROM holds WHERE note IS NULL")}


def take(tx: Transaction, now: datetime, card_id: str | None = None) -> Hold | None:
    """One hold that ended and that nobody acts on; the oldest, or this one."""
    moment = clock.to_ms(now)
    named, values = (" AND id = ?", (card_id,)) if card_id else ("", ())
    locked = " FOR UPDATE SKIP LOCKED" if tx.dialect == "postgresql" else ""
    row = tx.one(
        f"SELECT {_COLUMNS} FROM holds WHERE note IS NULL AND until <= ? AND COALESCE(taken, 0) <= ?{named}"
        f" ORDER BY until, id LIMIT 1{locked}",
        moment,
        moment,
        *values,
    )
    if row is None:
        return None
    until = clock.to_ms(now + LEASE)
    tx.execute("UPDATE holds SET taken = ? WHERE id = ?", until, row[0])
    return _hold((*row[:4], until, None))


def done(tx: Transaction, hold: Hold, note: str | None) -> None:
    """It was acted on; with `note` it came to nothing, or to less than was meant, and the card says so."""
    if note is None:
        tx.execute("DELETE FROM holds WHERE id = ? AND taken = ?", hold.id, hold.taken)
    else:
        tx.execute("UPDATE holds SET note = ? WHERE id = ? AND taken = ?", note, hold.id, hold.taken)


def next_due(tx: Transaction) -> datetime | None:
    (found,) = tx.one(
        "SELECT MIN(CASE WHEN taken IS NULL THEN until ELSE taken END) FROM holds WHERE note IS NULL"
    ) or (None,)
    return None if found is None else clock.from_ms(found)


# Snoozes.


def snooze(tx: Transaction, card_id: str, until: datetime) -> None:
    tx.execute(
        "INSERT INTO snoozes (id, until) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET until = excluded.until",
        card_id,
        clock.to_ms(until),
    )


def wake(tx: Transaction, card_id: str) -> bool:
    return tx.execute("DELETE FROM snoozes WHERE id = ?", card_id) == 1


def asleep(tx: Transaction, now: datetime) -> dict[str, datetime]:
    """Until when each card that is put off sleeps."""
    rows = tx.all("SELECT id, until FROM snoozes WHERE until > ?", clock.to_ms(now))
    return {str(name): clock.from_ms(until) for name, until in rows}


def _hold(row: Row) -> Hold:
    name, digest, by, until, taken, note = row
    return Hold(name, digest, by, clock.from_ms(until), taken, note)
