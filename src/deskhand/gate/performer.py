"""Goes on with what the person answered: ends a hold, lets a yes leave when its time has come, lets it expire."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from deskhand import audit, clock
from deskhand.config import Settings
from deskhand.errors import DeskError, NotFound
from deskhand.gate import later, ledger, lists, results
from deskhand.gate.delivery import Delivery
from deskhand.gate.door import Door
from deskhand.gate.ledger import Conflict
from deskhand.gate.outcomes import Departure, Failed, Released, SendingOff
from deskhand.gate.record import GateCall, call_to_release, facts_of
from deskhand.gate.requests import REPEATED, Request
from deskhand.mail import Sent
from deskhand.store import Store, Transaction


class Performer:
    def __init__(
        self,
        settings: Settings,
        store: Store,
        door: Door,
        now: Callable[[], datetime],
        delivery: Delivery,
    ) -> None:
        self._settings = settings
        self._store = store
        self._door = door
        self._now = now
        self._delivery = delivery
        self._turn = timedelta(seconds=settings.lease_seconds)
        """How long nobody else takes up what somebody has taken up; a send under way has
        its own, longer lease."""

    async def release(self, request_id: str, by: str) -> Departure:
        """Send what a person has approved, without another call of whoever proposed it."""
        request = await self.find(request_id)
        call = call_to_release(request, by, self._now())
        try:
            if off := self._settings.sending_off:
                resting = await self._record(call, SendingOff(off))
                await later.postpone(self._store, request, resting, self._now())
                return resting
            return await self._delivery.deliver(request, call)
        except DeskError as error:
            return await self._record(call, Failed(error))

    async def _release(self, request: Request) -> Departure:
        return await self.release(request.id, "desk")

    async def release_due(self) -> list[str]:
        """Go on with everything whose time has come; the ids of what this process went on with."""
        done: list[str] = []
        while request := await self.take_due():
            if await self.go_on(request, self._release):
                done.append(request.id)
        return done

    async def take_due(self, untried_since: datetime | None = None) -> Request | None:
        now = self._now()
        return await self._store.write(ledger.take_due, now, self._turn, untried_since)

    async def next_due(self) -> datetime | None:
        return await self._store.read(ledger.next_due)

    async def go_on(
        self, request: Request, send: Callable[[Request], Awaitable[object]]
    ) -> bool:
        """End a hold, and hand what is approved to whoever sends it; whether there was anything to do."""
        taken = request.decided
        request = await self.find(request.id)
        if request.state == "held" and request.decided != taken:
            return False  # taken back and given again: that yes has its own rest
        if request.is_early(self._now()) and request.state in ("held", "approved"):
            await self._store.write(ledger.rest_until_its_time, request)
            return False
        if request.state == "held":
            request = await self.end_hold(request)
        if request.state not in ("approved", "sending"):
            return request.state not in ("waiting", "unknown")
        await send(request)
        return True

    async def act_at_once(self, request: Request) -> None:
        """Without a hold: what a tool proposed leaves now, a draft as soon as the orchestrator sees it."""
        if request.origin == "draft":
            await self.end_hold(request)
        else:
            await self.go_on(request, self._release)

    async def end_hold(self, request: Request) -> Request:
        """The person's yes has rested long enough to act upon."""
        now = self._now()
        call = GateCall(
            request.decided_by or "person", "approved", request.action.target, now
        )

        def work(tx: Transaction) -> Request | Conflict:
            approved = ledger.change(tx, request, "approved")
            if isinstance(approved, Request):
                more = facts_of(approved)
                if approved.decided is not None:
                    more["answered"] = clock.iso(approved.decided)
                audit.append(tx, call.entry("success", None, now, **more))
            return approved

        approved = await self._store.write(work)
        if isinstance(approved, Conflict):
            return await self.find(request.id)
        await self._door.follow(approved)
        return approved

    async def _tell_or_deliver(self, request: Request, call: GateCall) -> Departure | None:
        """What comes of a request that was answered already; None where it has to be asked, again or still."""
        if request.state in ("approved", "sending", "unknown"):
            return await self._delivery.deliver(request, call)
        return await self._report_earlier_send(request, call)

    async def _report_earlier_send(
        self, request: Request, call: GateCall
    ) -> Released | None:
        """The answer to a call that was lost, or that nobody was on the line for: no
        second request is made of it."""
        now = self._now()
        repeated = (
            request.asked_by == call.by
            and now < request.left + REPEATED
            and request.action.is_told_again
        )
        if request.state != "sent" or not (
            repeated or (request.untold and not request.is_late(now))
        ):
            return None
        if not await self.has_persons_word(request):
            return None
        if not await self._store.write(ledger.mark_told, request) and not repeated:
            return None
        result = await self._store.read(results.find, request.id, now)
        mail = Sent(request.message_id or "", request.thread_id or "", result=result)
        edited = request.digest != request.asked
        done = Released(mail, request.left, edited, request.action, earlier=request.id)
        parameters = {**call.parameters, **facts_of(request), "told": True}
        await self._delivery.record(replace(call, parameters=parameters), done)
        return done

    async def has_persons_word(self, request: Request) -> bool:
        """Whether what is told of its end is what the person said, where their word is all that was asked for."""
        if not request.action.is_only_told:
            return True
        policy = self._door.policy
        said = await self._store.read(policy.vouches_for_end, request)
        return said and await policy.finds_whole_record(self._store)

    async def find(self, request_id: str) -> Request:
        """One request, after what the person did with its file."""
        request = await self._store.read(ledger.find, request_id)
        if request is None:
            raise NotFound(
                f"there is no request {request_id}",
                hint="`deskhand approvals` lists what waits",
            )
        return await self.refresh(request)

    async def refresh(self, request: Request) -> Request:
        """The request after what the person did with its file, and after its time has run out."""
        heard = await self._door.hear(request)
        if not self._is_late(heard):
            return heard
        note = heard.note
        result: audit.Result = "success"
        why = None
        if heard.state in ("held", "approved"):
            note = "You said yes, and it expired before it could leave."
            result = "error"
            why = note
        now = self._now()
        call = GateCall("desk", "expired", heard.action.target, now)

        def work(tx: Transaction) -> Request | Conflict:
            changed = ledger.change(tx, heard, "expired", due=None, note=note)
            if isinstance(changed, Request):
                audit.append(tx, call.entry(result, why, now, **facts_of(changed)))
            return changed

        expired = await self._store.write(work)
        if isinstance(expired, Conflict):
            return await self.find(heard.id)
        await self._door.follow(expired)
        return expired

    async def expire_late(self) -> None:
        """Let expire what nobody has answered in its time, so that the record says so."""
        for name in await self._store.read(lists.list_late, self._now()):
            await self.find(name)

    async def withdraw(self, request: Request, note: str) -> bool:
        """Close what waits and needs no answer any more; whether it was closed, or somebody was faster."""
        closed = await self._store.write(
            ledger.change, request, "withdrawn", due=None, note=note
        )
        if isinstance(closed, Conflict):
            return False
        await self._door.follow(closed)
        return True

    async def refresh_all(self, requests: Sequence[Request]) -> list[Request]:
        """`refresh` for many: most often nobody touched any of their files."""
        moved = await self._door.find_moved(requests)
        return [
            await self.refresh(each) if each.id in moved or self._is_late(each) else each
            for each in requests
        ]

    def _is_late(self, request: Request) -> bool:
        may_expire = request.state in ("waiting", "held", "approved")
        return may_expire and request.is_late(self._now())

    async def _record(self, call: GateCall, outcome: Departure) -> Departure:
        await self._delivery.record(call, outcome)
        return outcome
