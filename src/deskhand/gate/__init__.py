"""The gate: the only way from an action to a hand. Propose, answer, release.

`propose` is the one order of checks: DEV_MODE, approval, rate limit, send, consume, record. `answers` is the person's
word, `performer` goes on with it, `delivery` is the danger. The ledger decides; the vault is a door.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from deskhand import audit
from deskhand.clock import iso
from deskhand.config import Settings
from deskhand.errors import Changed, DeskError, NotFound
from deskhand.gate import enclosures, follow_ups, ledger
from deskhand.gate.actions import (
    Action,
    Mail,
    Proposal,
    ReplyEmail,
    SendEmail,
    demand_in_time,
    demand_sendable,
)
from deskhand.gate.asking import Asking, nobody_asked, open_request
from deskhand.gate.completing import complete, finish
from deskhand.gate.correspondents import learn_about
from deskhand.gate.delivery import LEASE, Delivery
from deskhand.gate.door import Door
from deskhand.gate.hands import Servers, no_servers
from deskhand.gate.leaving import LeaveList
from deskhand.gate.outcomes import (
    Departure,
    Failed,
    Limited,
    NotApproved,
    Outcome,
    Released,
    SendingOff,
)
from deskhand.gate.performer import Performer
from deskhand.gate.question import Question
from deskhand.gate.record import GateCall, call_of
from deskhand.gate.requests import Request
from deskhand.gate.toolcall import ToolCall
from deskhand.mail import FullMessage, Mailbox
from deskhand.mail.answering import name_author
from deskhand.mail.mailboxes import find_own
from deskhand.store import Store

if TYPE_CHECKING:
    from deskhand.gate.permitting import Permitting

__all__ = [
    "LEASE",
    "Departure",
    "Failed",
    "Gate",
    "Limited",
    "NotApproved",
    "Outcome",
    "Released",
    "SendingOff",
]


class Gate(Performer):
    def __init__(
        self,
        settings: Settings,
        store: Store,
        mailbox: Callable[[], Mailbox],
        door: Door,
        now: Callable[[], datetime],
        lease: timedelta = LEASE,
        servers: Callable[[], Servers] = no_servers,
        permitting: "Callable[[], Permitting] | None" = None,
    ) -> None:
        delivery = Delivery(settings, store, mailbox, door, now, lease, servers)
        super().__init__(settings, store, door, now, delivery)
        self._mailbox = mailbox
        self._asking = Asking(store, door)
        self._permitting = permitting

    async def keep_attachments(self, contents: Sequence[bytes]) -> None:
        """Keep the bytes of attachments, before anybody is asked about them."""
        now = self._now()
        await self._store.write(enclosures.sweep, now - timedelta(days=1))
        await self._store.write(enclosures.keep, contents, now)

    async def propose(
        self,
        proposal: Proposal,
        by: str,
        *,
        client: str | None = None,
        note: str | None = None,
    ) -> Outcome:
        """Ask for something to leave the desk. What is returned is on the record; `note` is for the card."""
        call = call_of(proposal, by, client, self._now())
        if off := self._settings.sending_off:
            return await self._record(call, SendingOff(off))
        try:
            meant, answered = await self._complete(proposal)
            # Nobody is asked about what could not be sent as it reads; of a long text that takes a moment.
            action = await asyncio.to_thread(finish, meant, proposal, self._settings)
            await asyncio.to_thread(demand_sendable, action, call.started)
            call = replace(call, target=action.target)
            request = await self.find_asked(action)
            if request and (told := await self._tell_or_deliver(request, call)):
                return told
            demand_in_time(action, call.started)
            given = (action, by, answered, call.started, request)
            fresh = await asyncio.to_thread(open_request, *given)
            fresh = replace(fresh, note=" ".join(filter(None, (fresh.note, note))) or None)
            await self._await_answer(proposal, request, fresh)
            author = await self._name_author(action, answered)
            written, used = await self._door.find_hand_written(action, author)
            for found in written:
                yes = replace(fresh, state="approved", file=found.name, folder="Approved")
                with suppress(Changed):  # another process was faster with this file
                    return await self._delivery.deliver_by_hand(yes, found, call)
            if isinstance(action, Mail) and (
                request is None or request.state not in ("waiting", "held")
            ):
                await learn_about(self._store, self._mailbox(), action.everybody)
            asked = await self._asking.ask(fresh, request, used)
            if let := await self._let_through(fresh):
                return await self._tell_permitted(let, asked, call)
        except DeskError as error:
            if not isinstance(error, NotFound) or await self._may_tell_missing(proposal):
                return await self._record(call, Failed(error))
            asked = nobody_asked(error)
        result: audit.Result = "waiting" if asked.waits else "rejected"
        named = {"action_id": asked.waits} if asked.waits else {}
        await self._delivery.write_entry(
            call.entry(result, f"no approval: {asked.why}", self._now(), **named)
        )
        return asked

    async def _await_answer(
        self, proposal: Proposal, known: Request | None, fresh: Request
    ) -> None:
        """Write down beside the request that waits when the person is told if nobody answers."""
        if not isinstance(proposal, SendEmail | ReplyEmail) or proposal.follow_up is None:
            return
        waits = known if known is not None and known.state in ("waiting", "held") else fresh
        follow_ups.demand_later(proposal.follow_up, fresh.action.send_at, self._now())
        await self._store.write(follow_ups.begin, waits.id, proposal.follow_up, self._now())

    async def _complete(self, proposal: Proposal) -> tuple[Action, FullMessage | None]:
        if isinstance(proposal, LeaveList | ToolCall | Question):
            return proposal, None
        own = await self._find_own() if isinstance(proposal, ReplyEmail) else frozenset()
        return await complete(proposal, self._mailbox(), own)

    async def _find_own(self) -> frozenset[str]:
        return await find_own(self._mailbox(), self._settings)

    async def _name_author(
        self, action: Action, answered: FullMessage | None
    ) -> str | None:
        if answered is None or not isinstance(action, Mail):
            return None
        own = {action.account, *await self._find_own()}
        return await asyncio.to_thread(name_author, answered, own)

    async def _let_through(self, fresh: Request) -> Request | None:
        """The request that was just made, where a permission says yes to it."""
        if self._permitting is None:
            return None
        made = await self._store.read(ledger.find, fresh.id)
        return made and await self._permitting().let_through(made)

    async def _tell_permitted(
        self, request: Request, asked: NotApproved, call: GateCall
    ) -> Outcome:
        """What comes of a request that a permission let through: it leaves now, or when it has rested."""
        if request.due is not None and request.due <= self._now():
            return await self._delivery.deliver(await self.end_hold(request), call)
        until = iso(request.due or self._now())
        note = f"It leaves at {until} under a permission of the person, unless they stop it. Do not send it again."
        return NotApproved("permitted", asked.request, note, request.id, waiting_note=note)

    async def _may_tell_missing(self, proposal: Proposal) -> bool:
        """Whether it may be said that the answered mail is not there: who has no approval hears that first."""
        if not isinstance(proposal, ReplyEmail):
            return True
        return await self._door.has_approved_thread(proposal.thread_id)

    async def find_asked(self, action: Action) -> Request | None:
        """What became of exactly this, when it was asked for last."""
        found = await self._store.read(ledger.find_asked, action.digest)
        if found is None:
            return None
        return await self.refresh(found)
