"""What was approved and could not leave waits for the person again, and says why."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from deskhand.config import Settings
from deskhand.errors import Changed, DeskError
from deskhand.gate import enclosures, ledger
from deskhand.gate.door import Door
from deskhand.gate.requests import LIFETIME, Request, State, file_name
from deskhand.store import Store, Transaction

log = logging.getLogger("deskhand.delivery")

Write = Callable[[Callable[[Transaction], object]], Awaitable[object]]


async def return_to_person(
    write: Write,
    store: Store,
    door: Door,
    request: Request,
    state: State,
    note: str,
    now: datetime,
) -> None:
    """It waits as a new revision, so that the file which said yes says nothing any more."""
    revision = request.revision + 1
    changes: dict[str, Any] = {
        "revision": revision,
        "file": file_name(request.id, request.action.kind, revision),
        "folder": "Pending_Approval",
        "note": note,
        "expires": now + LIFETIME,
        "lease": None,
        "due": None,
    }
    await write(lambda tx: ledger.change(tx, request, state, **changes))
    left = await store.read(ledger.find, request.id) or request
    try:
        await door.retire(request)
        await door.replace(request, left)
    except (OSError, DeskError) as error:  # the next call writes it, where this one cannot
        log.warning("not_followed", extra={"request": request.id, "why": str(error)})


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
    await return_to_person(store.write, store, door, request, request.unanswered, note, now)
    raise Changed(
        f"{changed} since the person was asked", hint="ask again with the file as it is now"
    )
