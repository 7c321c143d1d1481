"""What was approved and could not leave waits for the person again, and says why."""

import asyncio
import logging
from datetime import datetime

from deskhand.config import Settings
from deskhand.errors import Changed, DeskError, OutcomeUnknown
from deskhand.gate import enclosures, ledger
from deskhand.gate.actions import Action
from deskhand.gate.door import Door
from deskhand.gate.requests import Request
from deskhand.store import Store

log = logging.getLogger("deskhand.delivery")


async def demand_same_files(
    settings: Settings, store: Store, door: Door, request: Request, now: datetime
) -> None:
    """A file that was changed after it was proposed is not sent, not even as it was: the person is told."""
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


async def show_again(store: Store, door: Door, request: Request) -> None:
    """Its file is that of the new revision; where it cannot be written now, the next call writes it."""
    left = await store.read(ledger.find, request.id) or request
    try:
        await door.retire(request)
        await door.replace(request, left)
    except (OSError, DeskError) as error:
        log.warning("not_followed", extra={"request": request.id, "why": str(error)})


def describe_doubt(action: Action, why: str) -> str:
    """What its card says where nobody knows whether it left."""
    return (
        f"This {action.noun} may have {action.done} already ({why}). {action.where_to_look} To {action.again} it"
        " once more, move this file to Approved/; to leave it at that, to Rejected/."
    )


def describe_unknown(settings: Settings, action: Action, file: str) -> OutcomeUnknown:
    path = settings.own_path("Pending_Approval", file)
    return OutcomeUnknown(
        f"outcome unknown; {action.unknown}",
        hint=f"the person can look into the Sent folder and decide with {path}",
        reason="unknown",
        request=path,
    )
