"""The record's newest line, noted where a damaged database does not reach: beside it, and in the vault's logs.

A database that lost its end is whole in itself; only somebody else knows that there was more.
"""

import json
from datetime import datetime
from pathlib import Path

from deskhand import clock
from deskhand.audit import Broken, Mark, head, search
from deskhand.errors import DeskError
from deskhand.notes import disk, paths
from deskhand.store import Store, Transaction

FILE = "record.json"
"""In the vault, under Logs."""
BESIDE = "head"
"""What the note beside the database is called."""


def describe(mark: Mark, now: datetime) -> bytes:
    """The note for the vault."""
    return (
        json.dumps({"lines": mark.seq, "hash": mark.hash, "at": clock.iso(now)}).encode()
        + b"\n"
    )


async def find_lost_end(store: Store, own_place: Path | None) -> Broken | None:
    """The first of the lines that the record had once and has no more; `own_place` is
    where the vault's Logs lie."""
    beside = _read_beside(store.read_beside(BESIDE))
    in_vault, since = _read_in_vault(own_place)
    return await store.read(_find_lost, beside, in_vault, since)


def _find_lost(
    tx: Transaction, beside: Mark | None, in_vault: Mark | None, since: str
) -> Broken | None:
    for mark, place in ((beside, "beside the database"), (in_vault, "in the vault")):
        if mark is None or not mark.seq:
            continue
        row = tx.one("SELECT hash FROM audit WHERE seq = ?", mark.seq)
        if row == (mark.hash,):
            continue
        if mark is in_vault and _was_restored(tx, since):
            continue
        why = f"the record had {mark.seq} lines, as is noted {place}; its end is another one now"
        return Broken(min(mark.seq, head(tx).seq + 1), why)
    return None


def _was_restored(tx: Transaction, since: str) -> bool:
    """Whether the desk was brought back from a backup after that time: then the record is
    an earlier one rightly."""
    found = search.find(tx, search.EntryFilter(action="restore"), limit=1).entries
    return any(entry.timestamp >= since for _, entry in found)


def _read_beside(text: str | None) -> Mark | None:
    match (text or "").split():
        case [seq, digest] if seq.isdecimal():
            return Mark(int(seq), digest)
    return None


def _read_in_vault(own_place: Path | None) -> tuple[Mark | None, str]:
    if own_place is None:
        return None, ""
    try:
        with paths.opened(own_place, ("Logs",)) as (folder, _):
            found = json.loads(disk.read(folder, FILE))
        return Mark(int(found["lines"]), str(found["hash"])), str(found["at"])
    except (DeskError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None, ""
