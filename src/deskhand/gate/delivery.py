"""From a yes to the hand: claim, prepare, send, check. The only caller of a hand.

Nothing leaves unapproved: a claim takes an approved row, and the person's yes must name the digest that is sent.
Nothing leaves altered: what is sent is composed from that row.
Nothing leaves twice: one process can claim, the hand has its token written down at the point of no return, and what
passed it is looked up before anything is sent again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import anyio

from deskhand import audit
from deskhand.audit import vault_log
from deskhand.config import Settings
from deskhand.errors import (
    Denied,
    DeskError,
    OutcomeUnknown,
    SendFailed,
    TimedOut,
    UnderWay,
)
from deskhand.gate import doubts, later, ledger, results, returning, sends, written_answers
from deskhand.gate.door import Door
from deskhand.gate.folders import RequestFile
from deskhand.gate.hands import Hand, Servers, hand_for, no_servers
from deskhand.gate.ledger import Conflict
from deskhand.gate.outcomes import (
    Attempt,
    Departure,
    Failed,
    Limited,
    NotSeen,
    NotTaken,
    Released,
    explain,
    result_of,
    says_not_sent,
)
from deskhand.gate.rate import Wait, limits_of
from deskhand.gate.record import GateCall, announce, facts_of
from deskhand.gate.requests import Request
from deskhand.mail import Mailbox, NotSent, Sent, Unclear
from deskhand.store import Store, Transaction

LEASE = timedelta(seconds=120)
"""How long a send may be under way; a live process has its answer, or has looked, within half of it."""
_TRIES = 3
_LATER = (
    "call again in a moment; the desk looks what became of it and does not send it twice"
)


class Delivery:
    def __init__(
        self,
        settings: Settings,
        store: Store,
        mailbox: Callable[[], Mailbox],
        door: Door,
        now: Callable[[], datetime],
        lease: timedelta = LEASE,
        servers: Callable[[], Servers] = no_servers,
    ) -> None:
        self._settings = settings
        self._store = store
        self._mailbox = mailbox
        self._servers = servers
        self._door = door
        self._now = now
        self._lease = lease
        self._step = (lease / 4).total_seconds()
        self._limits = limits_of(settings)

    async def deliver(self, request: Request, call: GateCall) -> Departure:
        """Send what a person has approved, or finish what a process that died has begun."""
        match request.state:
            case "approved" if request.is_early(self._now()):
                raise UnderWay(
                    "it is approved and leaves at its time",
                    hint="nothing has to be done; do not send it again",
                )
            case "approved":
                await self._demand_yes(request)
                await returning.demand_same_files(
                    self._settings, self._store, self._door, request, self._now()
                )
                named = replace(call, parameters={**call.parameters, **facts_of(request)})
                outcome = await self._carry_out(lambda tx: self._claim(tx, request), named)
                await later.postpone(self._store, request, outcome, self._now())
                return outcome
            case "sending" if not ledger.is_held(request, self._now(), self._lease):
                await self._demand_yes(request)
                return await self._carry_out(lambda tx: self._take_over(tx, request), call)
            case "sending":
                raise _under_way()
            case "unknown":
                await self._door.ensure_waiting(request)
                raise self._describe_unknown(request, request.file)
            case _:
                raise Denied(
                    f"the request {request.id} is {request.state}",
                    reason="no_approval",
                    request=request.file,
                )

    async def deliver_by_hand(
        self, request: Request, found: RequestFile, call: GateCall
    ) -> Departure:
        """Send a mail that a file covers which the person wrote by hand; the file is used up by it."""
        withdrawn: list[Request] = []

        def work(tx: Transaction) -> Request | Wait | Conflict:
            sends.take_turns(tx)
            now = self._now()
            verdict = sends.allow(tx, request.action, now=now, limits=self._limits)
            if isinstance(verdict, Wait):
                return verdict
            withdrawn.extend(ledger.withdraw(tx, request.asked))
            used = sends.use_approval(tx, request, found, self._now())
            if not used or not ledger.insert(tx, request):
                raise _under_way()
            self._door.demand_unchanged(found)
            answer = self._door.policy.answer("approved", call.by, "hand-written")
            approved = written_answers.note_hand_written(tx, request, answer, self._now())
            return self._take(tx, approved)

        outcome = await self._carry_out(work, call)
        for each in withdrawn:
            await self._door.follow(each)
        return outcome

    async def _demand_yes(self, request: Request) -> None:
        """Refuse what the person has not said yes to; it waits again, and says so."""
        policy = self._door.policy
        released = await self._store.read(policy.releases, request)
        if released and await policy.finds_whole_record(self._store):
            return
        await self._store.write(
            ledger.change, request, request.unanswered, due=None, note=request.lost_yes
        )
        raise _no_approval(request)

    def _claim(self, tx: Transaction, request: Request) -> Request | Wait | Conflict:
        sends.take_turns(tx)
        verdict = sends.allow(tx, request.action, now=self._now(), limits=self._limits)
        if isinstance(verdict, Wait):
            return verdict
        if not self._door.policy.releases(tx, request):
            raise _no_approval(request)
        claimed = self._take(tx, request)
        if isinstance(claimed, Request):
            self._door.demand_unmoved(request)  # where this raises, the row stays as it was
        return claimed

    def _take(self, tx: Transaction, request: Request) -> Request | Conflict:
        now = self._now()
        claimed = ledger.claim(tx, request, now=now, lease=self._lease)
        if isinstance(claimed, Request):
            sends.count(tx, claimed, now)
        return claimed

    def _take_over(self, tx: Transaction, request: Request) -> Request | Conflict:
        return ledger.take_over(tx, request, now=self._now(), lease=self._lease)

    async def _carry_out(
        self, claim: Callable[[Transaction], Request | Wait | Conflict], call: GateCall
    ) -> Departure:
        """Cancelled or not: what was claimed is brought to an end that is written down."""
        outcome: Departure
        with anyio.CancelScope(shield=True):
            match await self._store.write_in_thread(claim):
                case Wait(until):
                    outcome = Limited(self._limits, until - self._now())
                    await self.record(call, outcome)
                case Conflict():
                    raise _under_way()
                case Request() as claimed:
                    outcome = await self._send_and_settle(claimed, call)
        return outcome

    async def _send_and_settle(self, request: Request, call: GateCall) -> Departure:
        """The row is `sending`, and ours until its lease ends."""
        call = replace(call, parameters={**call.parameters, **facts_of(request)})
        match await self._try(request, call):
            case Sent() as sent:
                done: Departure = Released(
                    sent,
                    self._now(),
                    edited=request.digest != request.asked,
                    action=request.action,
                )
                untold = not call.proposed and request.origin == "tool"
                await self.record(
                    call, done, lambda tx: self._mark_sent(tx, request, sent, untold=untold)
                )
            case NotTaken(error) if returning.is_gone(request, error):
                done = Failed(error)
                await self.record(
                    call,
                    done,
                    lambda tx: returning.put_before_person(tx, request, error, self._now()),
                )
                await returning.show_again(self._store, self._door, request)
                return done
            case NotTaken(error):
                done = Failed(error)
                await self.record(
                    call, done, lambda tx: later.put_back(tx, request, error, self._now())
                )
            case NotSeen(error):
                message = f"outcome unknown; the mailbox did not say ({error.message})"
                done = Failed(OutcomeUnknown(message, hint=_LATER))
                await self.record(
                    call, done, lambda tx: ledger.end_lease(tx, request, self._now())
                )
            case Unclear(why):
                return await self._leave_to_person(request, why, call)
        await self._door.follow(request)
        return done

    def _mark_sent(
        self, tx: Transaction, request: Request, sent: Sent, *, untold: bool
    ) -> None:
        ledger.mark_sent(tx, request, sent, untold=untold)
        if sent.result is not None:
            results.keep(tx, request.id, sent.result, self._now())

    async def _try(self, request: Request, call: GateCall) -> Attempt:
        """Send once. Where the answer is lost, look; only what is certainly not sent is sent again."""
        try:
            hand = await hand_for(request, self._mailbox, self._store, self._servers)
        except SendFailed as error:  # the bytes of an attachment are gone
            return NotTaken(error) if request.token is None else NotSeen(error)
        found = await self._prepare_or_check(request, hand, call)
        tries = 0
        while isinstance(found, NotSent):
            if tries == _TRIES:
                return NotTaken(SendFailed("the provider did not take the mail"))
            found = await self._send_once(request, found.token, hand)
            tries += 1
        return found

    async def _prepare_or_check(
        self, request: Request, hand: Hand, call: GateCall
    ) -> Attempt | NotSent:
        """A token to send by; for a mail that somebody began to send before, first what became of it."""
        if request.token is not None:
            found = await self._check(request.token, hand)
            if not isinstance(found, Unclear) or not request.once_more:
                return found
        try:
            must = self._door.policy.counts("vault")
            now = self._now()
            await asyncio.to_thread(announce, self._settings, request, call, now, must=must)
            with anyio.fail_after(self._step + request.upload.total_seconds()):
                return NotSent(await hand.prepare())
        except (DeskError, TimeoutError) as error:
            return NotTaken(explain(error))

    async def _send_once(
        self, request: Request, token: str, hand: Hand
    ) -> Attempt | NotSent:
        """The one place where something leaves the desk: the lease is ours, and the hand
        says when it may leave."""
        patience = self._step * hand.steps + request.upload.total_seconds()
        if (
            request.lease is None
            or self._now() + timedelta(seconds=patience) > request.lease
        ):
            return NotSeen(_under_way())
        kept: list[str] = []

        async def keep(given: str) -> None:
            if not await self._store.write(ledger.keep_token, request, given):
                raise _under_way()
            kept.append(given)

        try:
            with anyio.fail_after(patience):
                return await hand.send(token, keep)
        except UnderWay as error:
            return NotSeen(error)
        except (DeskError, TimeoutError) as error:
            if kept and not says_not_sent(error):
                return await self._check(kept[-1], hand)
            return NotTaken(explain(error))

    async def _check(self, token: str, hand: Hand) -> Sent | NotSent | Unclear | NotSeen:
        try:
            with anyio.fail_after(self._step):
                return await hand.check(token)
        except DeskError as error:
            return NotSeen(error)
        except TimeoutError:
            return NotSeen(TimedOut("it did not answer in time"))

    async def _leave_to_person(self, request: Request, why: str, call: GateCall) -> Failed:
        """Nobody knows whether it was sent: it waits for the person again, and says so."""
        changes = request.wait_again(
            doubts.describe_doubt(request.action, why), self._now()
        )
        failed = Failed(self._describe_unknown(request, changes["file"]))
        await self.record(
            call, failed, lambda tx: ledger.change(tx, request, "unknown", **changes)
        )
        await returning.show_again(self._store, self._door, request)
        return failed

    def _describe_unknown(self, request: Request, file: str) -> OutcomeUnknown:
        return doubts.describe_unknown(self._settings, request.action, file)

    async def record(
        self,
        call: GateCall,
        outcome: Departure,
        work: Callable[[Transaction], object] | None = None,
    ) -> None:
        """Put the outcome on the record, in one transaction with the change of state that it means."""
        result, error = result_of(outcome)
        await self.write_entry(call.entry(result, error, self._now()), work)

    async def write_entry(
        self, entry: audit.Entry, work: Callable[[Transaction], object] | None = None
    ) -> None:
        def together(tx: Transaction) -> None:
            if work is not None:
                work(tx)
            audit.append(tx, entry)

        await self._store.write(together)
        if self._settings.vault_path is not None:
            place = (self._settings.vault_path, self._settings.logs)
            await asyncio.to_thread(vault_log.write_entry, *place, entry)


def _no_approval(request: Request) -> Denied:
    said = f"nobody approved exactly this text of {request.id}"
    return Denied(said, reason="no_approval")


def _under_way() -> UnderWay:
    return UnderWay("another process is sending this mail right now", hint=_LATER)
