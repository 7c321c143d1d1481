"""A request that waits where the person looks: made once for one mail, whoever asks, however often."""

import uuid
from collections.abc import Sequence
from datetime import datetime

from deskhand import askers
from deskhand.clock import from_ms, iso, to_ms
from deskhand.errors import DeskError, UnderWay
from deskhand.gate import ledger
from deskhand.gate.actions import Action
from deskhand.gate.door import Door
from deskhand.gate.folders import RequestFile
from deskhand.gate.outcomes import NotApproved
from deskhand.gate.requests import LIFETIME, Request, describe_earlier_send, file_name
from deskhand.mail import FullMessage
from deskhand.mail.addresses import addresses_in
from deskhand.store import Store
from deskhand.wording import quoted


class Asking:
    def __init__(self, store: Store, door: Door) -> None:
        self._store = store
        self._door = door

    async def ask(
        self, fresh: Request, known: Request | None, used: Sequence[RequestFile]
    ) -> NotApproved:
        """See to it that the request waits, and say where.

        `known` is what became of the same mail before, `used` are hand-written approvals that have done their service.
        """
        if known is not None and known.state == "rejected":
            place = self._door.name_place("Rejected", known.file)
            return NotApproved("rejected", place, _describe_no(known))
        request = known
        if request is None or request.state not in ("waiting", "held"):
            request = await self._insert(fresh)
        path = await self._door.ensure_waiting(request)
        where = (
            f"That is for the person alone, and they have it already: the request waits in {path};"
            f" {self._door.how}, the same call {request.action.effect}."
        )
        if used:
            where = (
                f"{used[0].path}, or a file with its very words, was used before and is no new yes."
                f" {where}"
            )
        waits = _describe_wait(request)
        if request.revision > 1:
            said = f"The approval file was edited, so it released nothing. {where}"
            return NotApproved("changed", path, said, request.id, waiting_note=waits)
        if known is not None and known.state == "expired" and known.expires is not None:
            said = f"The request of {iso(known.created)} expired on {iso(known.expires)}."
            return NotApproved(
                "expired", path, f"{said} {where}", request.id, request is fresh, waits
            )
        return NotApproved("waiting", path, where, request.id, request is fresh, waits)

    async def _insert(self, request: Request) -> Request:
        if await self._store.write(ledger.insert, request):
            return request
        theirs = await self._store.read(ledger.find_asked, request.asked)
        if theirs is None or theirs.state != "waiting":
            raise UnderWay(
                "another process is sending this mail right now",
                hint="call again in a moment",
            )
        return theirs


def nobody_asked(error: DeskError) -> NotApproved:
    """What it is about is not there, so there is nothing to ask the person."""
    return NotApproved("not_found", "", f"Nobody was asked: {error.message.rstrip('.')}.")


def _describe_no(request: Request) -> str:
    if request.words:
        return (
            f"The person sent it back with a note: {quoted(request.words)} "
            "Change it accordingly before you ask again."
        )
    said = f": {quoted(request.note)}" if request.note else "."
    return f"The person said no to it{said} Do not ask for the same again."


def _describe_wait(request: Request) -> str:
    def kept(at: datetime) -> str:
        # As the row has it, and whoever asks for it later hears it.
        return iso(from_ms(to_ms(at)))

    until = f", expires {kept(request.expires)}" if request.expires else ""
    return f"Waiting for the person (id {request.id}, since {kept(request.created)}{until}); do not send again."


def open_request(
    action: Action,
    by: str,
    answered: FullMessage | None,
    now: datetime,
    before: Request | None = None,
) -> Request:
    """A request of a tool, as it begins; `before` is what became of the same mail."""
    note = None
    if before is not None and before.state == "sent":
        note = describe_earlier_send(before.id, iso(before.left), before.action)
    name = uuid.uuid4().hex[:16]
    sender = None
    participants: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    if answered is not None:
        sender = _sender_of(answered)
        participants = participants_of(answered)
        warnings = answered.alarms
    return Request(
        id=name,
        origin="tool",
        send_id=name,
        asked=action.digest,
        proposed=action,
        action=action,
        digest=action.digest,
        state="waiting",
        file=file_name(name, action.kind, 1),
        folder="Pending_Approval",
        created=now,
        expires=max(now, action.send_at or now) + (action.lifetime or LIFETIME),
        asked_by=by,
        asker=askers.current_asker(),
        sender=sender,
        participants=participants,
        warnings=warnings,
        note=note,
    )


def participants_of(mail: FullMessage) -> tuple[str, ...]:
    lines = (mail.summary.sender, mail.summary.to, mail.cc)
    return tuple(
        {address.lower(): None for line in lines for address in addresses_in(line)}
    )


def _sender_of(mail: FullMessage) -> str:
    """The address in From, or as much of it as there is."""
    first, *_ = *addresses_in(mail.summary.sender), mail.summary.sender
    return first.lower()
