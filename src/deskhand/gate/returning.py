"""What was approved and could not leave waits for the person again, and says why."""

import asyncio
import logging
from datetime import datetime

from deskhand.config import Settings
from deskhand.errors import Changed, DeskError, NotFound
from deskhand.gate import enclosures, ledger
from deskhand.gate.door import Door
from deskhand.gate.requests import Request
from deskhand.gate.toolcall import ToolCall
from deskhand.store import Store, Transaction

log = logging.getLogger("deskhand.delivery")


async def demand_same_files(
    settings: Settings, store: Store, door: Door, request: Request, now: datetime
) -> None:
    """A file that was changed after it was proposed is not sent, not even as it was: the person is told.

    Where the vault is no door to the gate it takes no yes back: the bytes leave that were on the card.
    """
    if not door.policy.counts("vault"):
        return
    changed = await asyncio.to_thread(
        enclosures.find_changed, settings, request.action.attachments
    )
    if changed is None:
        return
    note = f"Nothing was sent: {changed} since this was asked. Bring the file back, or say no and have it asked anew."
    changes = request.wait_again(note, now)
    await store.write(ledger.change, request, request.unanswered, **changes)
    await show_again(store, door, request)
    raise Changed(
        f"{changed} since the person was asked", hint="ask again with the file as it is now"
    )


def is_gone(request: Request, error: DeskError) -> bool:
    """Whether what a call goes to does not exist any more, so that trying again mends nothing."""
    return (
        isinstance(request.action, ToolCall)
        and isinstance(error, NotFound)
        and request.proof != "hand-written"
    )


def put_before_person(
    tx: Transaction, request: Request, error: DeskError, now: datetime
) -> None:
    """It was certainly not done, and waits for the person again as a new revision."""
    note = f"Not done: {error.message.rstrip('.')}. It waits for you again."
    changes = request.wait_again(note, now) | {"token": None}
    ledger.change(tx, request, request.unanswered, error=error.line, **changes)


async def show_again(store: Store, door: Door, request: Request) -> None:
    """Put the file of the new revision where the person looks; what cannot be written now the next call writes."""
    left = await store.read(ledger.find, request.id) or request
    try:
        await door.retire(request)
        await door.replace(request, left)
    except (OSError, DeskError) as error:
        log.warning("not_followed", extra={"request": request.id, "why": str(error)})
