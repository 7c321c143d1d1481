"""An approved request that did not leave: when it is tried again, and what its card says meanwhile."""

from datetime import datetime, timedelta
from typing import Any

from deskhand.clock import length
from deskhand.errors import DeskError
from deskhand.gate import ledger, sends
from deskhand.gate.actions import Mail
from deskhand.gate.outcomes import Departure, Limited, SendingOff, say_off
from deskhand.gate.requests import Request
from deskhand.store import Store, Transaction

LONGEST_BACKOFF = timedelta(minutes=15)


def backoff(attempts: int) -> timedelta:
    """1, 2, 4 … seconds up to a quarter of an hour."""
    return min(timedelta(seconds=2.0 ** min(attempts, 12)), LONGEST_BACKOFF)


async def postpone(
    store: Store, request: Request, outcome: Departure, now: datetime
) -> None:
    """It may not leave yet: where sending is off it rests, and the rate says from when on it may."""
    changes: dict[str, Any] = {}
    due = None
    match outcome:
        case SendingOff(why):
            said = say_off(why, "it was logged and not sent")
            note = f"{said[:1].upper()}{said[1:]}."
            changes = {"resting": "dev_mode", "note": note}
        case Limited(limits, wait):
            window = length(int(limits.window.total_seconds())).removeprefix("1 ")
            note = f"{limits.most} of {limits.most} emails sent in the last {window}."
            changes = {"resting": "rate", "note": note}
            due = now + wait
        case _:
            return
    await store.write(ledger.postpone, request, due, **changes)


def describe_failure(request: Request, error: DeskError) -> str:
    """What the card of an approved request says that did not leave."""
    done = "sent" if isinstance(request.action, Mail) else "done"
    return f"Not {done} yet: {error.message.rstrip('.')}."


def put_back(tx: Transaction, request: Request, error: DeskError, now: datetime) -> None:
    """It was begun and certainly did not leave: the yes stays, and it is tried again."""
    due = now + backoff(request.attempts)
    note = describe_failure(request, error)
    back = ledger.put_back(tx, request, due, error=error.line, note=note)
    if isinstance(back, Request):
        sends.give_back(tx, back)


async def fail(store: Store, request: Request, error: DeskError, now: datetime) -> datetime:
    """After a try that failed: it is approved still, and tried again at the time that is returned.

    `request` is as it was before the try."""
    asked_for = timedelta(seconds=error.details.get("retry_after_seconds") or 0)
    due = now + max(backoff(request.attempts), asked_for)
    attempts = request.attempts + 1
    note = describe_failure(request, error)
    await store.write(
        ledger.postpone, request, due, attempts=attempts, error=error.line, note=note
    )
    return due
