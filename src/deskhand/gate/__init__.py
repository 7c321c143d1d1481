"""The gate: the only way from a proposal to a hand. Propose, decide, perform.

`submit` is the one order of checks, `heed` the one place that decides, `_perform` the one place that sends.
Nothing leaves unapproved: `_perform` gets its row only from a claim, and a claim takes the person's file.
Nothing leaves altered: what is sent is composed from the row whose digest that file carries.
Nothing leaves twice: only one can take the file, the token is written down before the send, and a lost answer is
looked up before anything is sent again.
"""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

import anyio

from deskhand import audit, clock
from deskhand.audit import vault_log
from deskhand.config import Settings
from deskhand.errors import (
    AuthRequired,
    Changed,
    Denied,
    DeskError,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    RateLimited,
    SendFailed,
    TimedOut,
)
from deskhand.gate import drafts, ledger
from deskhand.gate.actions import Action, Proposal, ReplyEmail, SendEmail, completed, outgoing
from deskhand.gate.approvals import Approvals, Found, covers, edited
from deskhand.gate.ledger import BY_DRAFT, BY_HAND, Lost, Row
from deskhand.gate.policy import Limits, Wait
from deskhand.mail import FullMessage, Mailbox, NotSent, Outgoing, Sent, Unclear
from deskhand.mail.addresses import people
from deskhand.store import Store, Transaction

LIFETIME = timedelta(days=7)
"""How long a request and the yes to it are good for."""
LEASE = timedelta(seconds=120)
"""How long a send may be under way; a live process has its answer, or has looked, within half of it."""
_TRIES = 3
_ONCE_MORE = "once more"
_LATER = "call again in a moment; the desk looks what became of it and does not send it twice"
_CERTAINLY_NOT_SENT = (SendFailed, RateLimited, AuthRequired, Denied, InvalidInput)


@dataclass(frozen=True, slots=True)
class Released:
    """It left, exactly as the person approved it."""

    mail: Sent
    at: datetime
    edited: bool
    """The person changed what was proposed before saying yes."""


@dataclass(frozen=True, slots=True)
class DevMode:
    pass


@dataclass(frozen=True, slots=True)
class NotApproved:
    """Not yet answered, answered with no, and expired are different answers."""

    why: Literal["waiting", "rejected", "expired", "changed"]
    request: str
    """Where the request lies in the vault."""
    note: str


@dataclass(frozen=True, slots=True)
class Limited:
    limits: Limits
    wait: timedelta


@dataclass(frozen=True, slots=True)
class Failed:
    error: DeskError


Departure = Released | DevMode | Limited | Failed
"""What comes of a mail that a person has approved."""
Outcome = Departure | NotApproved
_O = TypeVar("_O", bound=Outcome)
Announce = Callable[[Action], None]
"""Called with what is about to leave, before the mailbox is."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """Certainly not sent."""

    error: DeskError


@dataclass(frozen=True, slots=True)
class _Unseen:
    """The answer was lost, and looking failed too: whoever comes next looks again."""

    error: DeskError


_Delivery = Sent | Unclear | _Refused | _Unseen


@dataclass(frozen=True, slots=True)
class _Call:
    """Who asks for what, for the record."""

    by: str
    kind: str
    target: str
    parameters: dict[str, Any]
    started: datetime
    announce: Announce | None = None
    proposed: bool = False
    """Whether whoever proposed it is on the line and hears the outcome."""


class Gate:
    def __init__(
        self,
        settings: Settings,
        store: Store,
        mailbox: Callable[[], Mailbox],
        approvals: Approvals,
        now: Callable[[], datetime],
        lease: timedelta = LEASE,
    ) -> None:
        self._settings = settings
        self._store = store
        self._mailbox = mailbox
        self._approvals = approvals
        self._now = now
        self._lease = lease
        self._step = lease / 4
        self._limits = Limits(settings.max_sends, timedelta(seconds=settings.window_seconds))

    # Proposing.

    async def submit(
        self, proposal: Proposal, by: str, announce: Announce | None = None, *, client: str | None = None
    ) -> Outcome:
        """Seed 002's order: DEV_MODE, approval, rate limit, send, consume, audit. What is returned is on the record."""
        call = _proposed(proposal, by, self._now(), announce)
        if client is not None:
            call = replace(call, parameters=call.parameters | {"client": client})
        if self._settings.dev_mode:
            return await self._recorded(call, DevMode())
        try:
            action, answered = await completed(proposal, self._mailbox())
            outgoing(action, "check", call.started)  # nobody is asked about what could not be sent as it reads
            call = replace(call, target=action.to)
            await self.tidy()
            known = await self._store.read(lambda tx: ledger.latest(tx, action.digest))
            row = None if known is None else await self.heed(known)
            if row is not None and row.state in ("approved", "sending", "unknown"):
                return await self._release(row, call)
            if row is not None and (told := await self._told(row, call)) is not None:
                return told
            written, used = await self._hand_written(action)
            for found in written:
                with suppress(Changed):  # another process was faster with this file
                    return await self._release_by_hand(action, found, call)
            return await self._recorded(call, await self._asked(self._new(action, "waiting", by, answered), row, used))
        except DeskError as error:
            return await self._recorded(call, Failed(error))

    async def release(self, action_id: str, by: str, announce: Announce | None = None) -> Departure:
        """Send what a person has approved, without another call of whoever proposed it."""
        await self.tidy()
        row = await self.heed(await self.find(action_id))
        call = _Call(by, row.action.kind, row.action.to, _parameters(row), self._now(), announce)
        if self._settings.dev_mode:
            return await self._recorded(call, DevMode())
        try:
            return await self._release(row, call)
        except DeskError as error:
            return await self._recorded(call, Failed(error))

    async def _told(self, row: Row, call: _Call) -> Released | None:
        """What the desk sent by itself while nobody was on the line: said once, and no second request is made."""
        sent = row.state == "sent" and row.untold and self._now() < row.expires
        if not sent or not await self._store.write(lambda tx: ledger.told(tx, row)):
            return None
        mail = Sent(row.message_id or "", row.thread_id or "")
        done = Released(mail, row.frozen or row.created, edited=row.action.digest != row.asked)
        told = replace(call, kind="told", parameters=call.parameters | _parameters(row))
        return await self._recorded(told, done)

    async def _asked(self, made: Row, row: Row | None, used: Sequence[Found]) -> NotApproved:
        """See to it that the request waits where the person looks, and say so."""
        if row is not None and row.state == "rejected":
            reason = f": {row.note}" if row.note else ""
            return NotApproved("rejected", f"Rejected/{row.file}", f"The person said no to it{reason}.")
        fresh = made if row is None or row.state != "waiting" else row
        if fresh is not row and not await self._store.write(lambda tx: ledger.insert(tx, fresh)):
            theirs = await self._store.read(lambda tx: ledger.latest(tx, made.asked))
            if theirs is None or theirs.state != "waiting":
                raise _under_way()
            fresh = theirs
        request = await asyncio.to_thread(self._approvals.request, fresh)
        where = f"The request waits in {request}; when the person moves it to Approved/, the same call sends it."
        if used:
            where = f"{used[0].path} was used before and is no new yes. {where}"
        if fresh.revision > 1:
            return NotApproved("changed", request, f"The approval file was edited, so it released nothing. {where}")
        if row is not None and row.state == "expired":
            said = f"The request of {clock.iso(row.created)} expired on {clock.iso(row.expires)}."
            return NotApproved("expired", request, f"{said} {where}")
        return NotApproved("waiting", request, where)

    def _new(
        self, action: Action, state: ledger.State, by: str, answered: FullMessage | None = None, **more: Any
    ) -> Row:
        now, action_id = self._now(), uuid.uuid4().hex[:16]
        name = _file_name(action, action_id, 1)
        if answered is not None:
            more |= {"sender": _sender(answered), "warnings": answered.warnings}
        return Row(action_id, action.digest, action, state, 1, name, now, now + LIFETIME, asked_by=by, **more)

    # Deciding.

    async def find(self, action_id: str) -> Row:
        row = await self._store.read(lambda tx: ledger.by_id(tx, action_id))
        if row is None:
            raise NotFound(f"there is no request {action_id}", hint="`deskhand approvals` lists what waits")
        return row

    async def open(self, limit: int = 1000) -> list[Row]:
        """What waits for the person or is under way, oldest first."""
        rows = await self._store.read(lambda tx: ledger.listed(tx, ledger.OPEN, limit))
        heeded = [await self.heed(row) for row in rows]
        return [row for row in heeded if row.state in ledger.OPEN]

    def shown(self, row: Row) -> str:
        """The request as the person reads it: made from the action, never from anybody's words about it."""
        return self._approvals.rendered(row)

    async def decide(
        self,
        action_id: str,
        answer: Literal["approved", "rejected"],
        by: str,
        note: str | None,
        *,
        digest: str | None = None,
    ) -> Row:
        """The command line's and the page's way: put the file where the answer is, then heed it like any other.

        With `digest` only what has this digest is decided.
        """
        row = await self.heed(await self.find(action_id))
        if row.state not in ("waiting", "approved", "rejected", "unknown"):
            raise Denied(f"the request {action_id} is {row.state}; nothing is left to decide", reason="decided")
        if digest is not None and row.action.digest != digest:
            raise _not_what_was_seen(row)
        await asyncio.to_thread(self._place, row, "Approved" if answer == "approved" else "Rejected")
        decided = await self.heed(row, by, note)
        call = _Call(by, answer, row.action.to, _parameters(decided), self._now())
        if decided.state != answer:
            error = Changed(
                f"the request {action_id} is {decided.state}, as revision {decided.revision}: its file was edited"
            )
            await self._recorded(call, Failed(error))
            raise error
        await self._store.write(lambda tx: audit.append(tx, _entry(call, "success", None, self._now())))
        return decided

    async def edit(self, action_id: str, digest: str, changes: dict[str, str], by: str) -> Row:
        """The person's own words in place of what was proposed: a new revision, which waits for its own yes."""
        row = await self.heed(await self.find(action_id))
        if row.state != "waiting":
            raise Denied(f"the request {action_id} is {row.state} and can no longer be edited", reason="decided")
        if row.action.digest != digest:
            raise _not_what_was_seen(row)
        action = Action.model_validate(row.action.model_dump() | changes)
        if action == row.action:
            return row
        outgoing(action, "check", self._now())
        revision = row.revision + 1
        difference = drafts.difference(row.action.model_dump(), action.model_dump(), "as it was proposed")
        made = {"revision": revision, "action": action, "file": _file_name(action, row.id, revision)}
        call = _Call(by, "edited", action.to, {}, self._now())

        def work(tx: Transaction) -> Row | Lost:
            revised = ledger.change(tx, row, "waiting", difference=difference, **made)
            if isinstance(revised, Row):
                noted = replace(call, parameters=_parameters(revised))
                audit.append(tx, _entry(noted, "success", None, self._now()))
            return revised

        revised = await self._store.write(work)
        if isinstance(revised, Lost):
            raise _not_what_was_seen(row)
        await asyncio.to_thread(self._rewritten, row, revised)
        return revised

    def _rewritten(self, old: Row, new: Row) -> None:
        found = self._approvals.locate(old)
        if found is None:
            self._approvals.request(new)
        else:
            self._approvals.replace(found, new)

    async def heed(self, row: Row, by: str = "vault", note: str | None = None) -> Row:
        """The one place that decides: where the request's file lies is what the person says."""
        if row.state not in ("waiting", "approved", "rejected", "unknown"):
            return row
        found = await asyncio.to_thread(self._approvals.locate, row)
        said_no = found is not None and found.folder == "Rejected"
        if row.state in ("waiting", "approved") and self._now() >= row.expires and not said_no:
            await asyncio.to_thread(self._approvals.close, row, "expired")
            return await self._changed(row, "expired")
        if found and found.folder == "Approved" and not self._approvals.is_intact(found, row):
            return await self._revised(row, found)
        answer = _answer(row, found)
        if answer == row.state:
            return row
        changes: dict[str, Any] = {}
        if answer not in ("waiting", "unknown"):
            changes = {"decided_by": by, "note": note, "decided": self._now()}
        if answer == "approved" and found:
            changes |= {"file": found.name, "note": _ONCE_MORE if row.state == "unknown" else None}
        return await self._changed(row, answer, **changes)

    def _place(self, row: Row, folder: Literal["Approved", "Rejected"]) -> None:
        found = self._approvals.locate(row)
        revision = _revision(found) if found else 0
        if revision > row.revision:
            raise _not_what_was_seen(row)  # the file is of a later revision, which is not what is being answered
        if revision < row.revision:
            self._rewritten(row, row)  # it is missing, or a process died before it could rewrite it
            found = self._approvals.locate(row)
        if found is not None and found.folder != folder:
            self._approvals.move(found, folder)

    async def _revised(self, row: Row, found: Found) -> Row:
        """An edited file releases nothing: it waits again, as a new revision that shows what was changed."""
        # A mail that may have left already must stay what it was, or nobody could find out whether it did.
        may_have_left = row.token is not None
        changes = {
            "revision": row.revision + 1,
            "action": row.action if may_have_left else edited(row.action, found),
            "file": _file_name(row.action, row.id, row.revision + 1),
            "difference": await asyncio.to_thread(self._approvals.difference, row, found),
        }
        state: ledger.State = "unknown" if may_have_left else "waiting"
        revised = await self._store.write(lambda tx: ledger.change(tx, row, state, **changes))
        if isinstance(revised, Lost):
            return await self.find(row.id)
        await asyncio.to_thread(self._approvals.replace, found, revised)
        return revised

    async def _changed(self, row: Row, state: ledger.State, **changes: Any) -> Row:
        """The row in its new state, or as somebody else has just changed it."""
        changed = await self._store.write(lambda tx: ledger.change(tx, row, state, **changes))
        return await self.find(row.id) if isinstance(changed, Lost) else changed

    # Claiming: the file and the row, in one transaction with the rate window.

    async def _release(self, row: Row, call: _Call) -> Departure:
        match row.state:
            case "approved":
                found = await asyncio.to_thread(self._approvals.locate, row)
                if found is None or found.folder != "Approved" or not self._approvals.is_intact(found, row):
                    raise Changed("the approval was taken away or changed in this moment", hint="call again")
                return await self._carry_out(lambda tx: self._claim(tx, row, found), call)
            case "sending" if row.lease is None or row.lease <= self._now():
                now, lease = self._now(), self._lease
                return await self._carry_out(lambda tx: ledger.take_over(tx, row, now=now, lease=lease), call)
            case "sending":
                raise _under_way()
            case "unknown":
                await asyncio.to_thread(self._approvals.request, row)
                raise _unknown(row)
            case _:
                raise Denied(f"the request {row.id} is {row.state}", reason="no_approval", request=row.file)

    def _claim(self, tx: Transaction, row: Row, found: Found) -> Row | Wait | Lost:
        now = self._now()
        ledger.in_turn(tx)
        if isinstance(verdict := ledger.permitted(tx, now=now, limits=self._limits), Wait):
            return verdict
        claimed = ledger.claim(tx, row, now=now, lease=self._lease)
        if isinstance(claimed, Row):
            self._approvals.take(found, claimed)  # where the file is gone this raises, and the row stays as it was
        return claimed

    async def _hand_written(self, action: Action) -> tuple[list[Found], list[Found]]:
        """The person's own files that cover this mail, and those that did so once and are used up."""
        files = await asyncio.to_thread(self._covering, action)
        found = files if self._settings.approvals == "any" else await self._store.read(lambda tx: _blessed(tx, files))
        used = await self._store.read(lambda tx: [each for each in found if ledger.was_used(tx, each.content)])
        return [each for each in found if each not in used], used

    def _covering(self, action: Action) -> list[Found]:
        """The files in Approved/ by which a person released such a mail, the most recent first."""
        now, files = self._now(), self._approvals.files("Approved")
        return [each for each in files if covers(each.properties, action, now) or drafts.covers(each, action)]

    async def _release_by_hand(self, action: Action, found: Found, call: _Call) -> Departure:
        by = BY_DRAFT if found.is_draft else BY_HAND
        difference = await self._store.read(lambda tx: _changed_by_the_person(tx, found))
        row = self._new(action, "approved", call.by, decided_by=by, difference=difference)
        withdrawn: list[Row] = []

        def work(tx: Transaction) -> Row | Wait | Lost:
            ledger.in_turn(tx)
            if isinstance(verdict := ledger.permitted(tx, now=self._now(), limits=self._limits), Wait):
                return verdict
            withdrawn.extend(ledger.withdraw(tx, action.digest))
            if not ledger.insert(tx, row) or not ledger.use(tx, row, found.content, self._now()):
                raise _under_way()
            return self._claim(tx, row, found)

        outcome = await self._carry_out(work, call)
        with suppress(OSError, DeskError):  # a request that was withdrawn releases nothing, wherever its file lies
            for request in withdrawn:
                await asyncio.to_thread(self._approvals.close, request, "withdrawn")
        return outcome

    async def _carry_out(self, claim: Callable[[Transaction], Row | Wait | Lost], call: _Call) -> Departure:
        """Cancelled or not: what was claimed is brought to an end that is written down."""
        outcome: Departure
        with anyio.CancelScope(shield=True):
            match await self._store.write_in_thread(claim):
                case Wait(until):
                    outcome = await self._recorded(call, Limited(self._limits, until - self._now()))
                case Lost():
                    raise _under_way()
                case Row() as claimed:
                    outcome = await self._perform(claimed, call)
        return outcome

    # Performing.

    async def _perform(self, row: Row, call: _Call) -> Released | Failed:
        """The only place that calls a hand. The row is `sending`, and ours until its lease ends."""
        mail = outgoing(row.action, row.id, row.frozen or row.created)
        call = replace(call, parameters=call.parameters | _parameters(row))
        done: Released | Failed
        match await self._delivered(row, mail, call.announce):
            case Sent() as sent:
                done = Released(sent, self._now(), edited=row.action.digest != row.asked)
                untold = not call.proposed
                await self._recorded(call, done, lambda tx: ledger.sent(tx, row, sent, untold=untold))
            case _Refused(error):
                done = await self._recorded(call, Failed(error), lambda tx: ledger.put_back(tx, row))
            case _Unseen(error):
                done = Failed(
                    OutcomeUnknown(f"outcome unknown; the mailbox did not say ({error.message})", hint=_LATER)
                )
                await self._recorded(call, done, lambda tx: ledger.let_go(tx, row, self._now()))
            case Unclear(why):
                done = await self._left_to_the_person(row, why, call)
        # What happened is written down; that a file is still in the wrong folder is mended at the next call.
        with suppress(OSError, DeskError):
            await self.tidy()
        return done

    async def _delivered(self, row: Row, mail: Outgoing, announce: Announce | None) -> _Delivery:
        """Send once. Where the answer is lost, look; only what is certainly not sent is sent again."""
        found = await self._begun(row, mail, announce)
        for _ in range(_TRIES):
            if not isinstance(found, NotSent):
                return found
            found = await self._sent(row, found.token, mail)
        return _Refused(SendFailed("the provider did not take the mail")) if isinstance(found, NotSent) else found

    async def _begun(self, row: Row, mail: Outgoing, announce: Announce | None) -> _Delivery | NotSent:
        """A token to send by; for a mail that somebody began to send before, first what became of it."""
        if row.token is not None:
            found = await self._looked(row.token, mail)
            if not isinstance(found, Unclear) or row.note != _ONCE_MORE:
                return found
        try:
            if announce is not None:
                await asyncio.to_thread(announce, row.action)
            with anyio.fail_after(self._step.total_seconds()):
                return NotSent(await self._mailbox().prepare(mail))
        except DeskError as error:
            return _Refused(error)
        except TimeoutError:
            return _Refused(TimedOut("the mailbox did not answer in time"))
        except OSError as error:
            return _Refused(SendFailed(f"the line that goes before a send cannot be written: {error.strerror}"))

    async def _sent(self, row: Row, token: str, mail: Outgoing) -> _Delivery | NotSent:
        kept = await self._store.write(lambda tx: ledger.keep_token(tx, row, token))
        if not kept or row.lease is None or self._now() + self._step > row.lease:
            return _Unseen(_under_way())
        try:
            with anyio.fail_after(self._step.total_seconds()):
                return await self._mailbox().send(token, mail)
        except (DeskError, TimeoutError) as error:
            if isinstance(error, _CERTAINLY_NOT_SENT) and not isinstance(error, OutcomeUnknown):
                return _Refused(error)
            return await self._looked(token, mail)

    async def _looked(self, token: str, mail: Outgoing) -> Sent | NotSent | Unclear | _Unseen:
        try:
            with anyio.fail_after(self._step.total_seconds()):
                return await self._mailbox().check(token, mail)
        except DeskError as error:
            return _Unseen(error)
        except TimeoutError:
            return _Unseen(TimedOut("it did not answer in time"))

    async def _left_to_the_person(self, row: Row, why: str, call: _Call) -> Failed:
        """Nobody knows whether it was sent: it waits for the person again, and says so."""
        revision = row.revision + 1
        changes: dict[str, Any] = {
            "revision": revision,
            "file": _file_name(row.action, row.id, revision),
            "note": f"This mail may have been sent already ({why}). Look into your Sent folder. To send it once more,"
            " move this file to Approved/; to leave it at that, to Rejected/.",
            "expires": self._now() + LIFETIME,
            "lease": None,
        }
        asked = replace(row, state="unknown", **changes)
        failed = Failed(_unknown(asked))
        await self._recorded(call, failed, lambda tx: ledger.change(tx, row, "unknown", **changes))
        with suppress(OSError, DeskError):  # the next call writes it, where this one cannot
            await asyncio.to_thread(self._approvals.request, asked)
        return failed

    # Order and record.

    async def tidy(self) -> None:
        """Bring each claimed file to where its row says it belongs: a process may have died in between."""
        if not await asyncio.to_thread(self._approvals.claimed):
            return

        def work(tx: Transaction) -> None:
            ledger.in_turn(tx)
            for action_id in self._approvals.claimed():
                row = ledger.by_id(tx, action_id)
                match row.state if row else None:
                    case "sending":
                        pass
                    case "sent" if row:
                        marks = {"status": "done", "action_id": row.id, "message_id": row.message_id}
                        marks |= {"thread_id": row.thread_id}
                        self._approvals.put(action_id, "Done", marks)
                    case None | "approved" | "waiting" | "failed":
                        self._approvals.put(action_id, "Approved", {})
                    case state:
                        self._approvals.put(action_id, "Done", {"status": state})

        await self._store.write_in_thread(work)

    async def _recorded(self, call: _Call, outcome: _O, work: Callable[[Transaction], object] | None = None) -> _O:
        """Put the outcome on the record, in one transaction with the change of state that it means."""
        result, error = _result(outcome)
        entry = _entry(call, result, error, self._now())

        def together(tx: Transaction) -> None:
            if work is not None:
                work(tx)
            audit.append(tx, entry)

        await self._store.write(together)
        await asyncio.to_thread(vault_log.write_entry, self._settings.vault, entry)
        return outcome


def _proposed(proposal: Proposal, by: str, started: datetime, announce: Announce | None) -> _Call:
    match proposal:
        case SendEmail():
            parameters: dict[str, Any] = {"to": audit.masked(proposal.to), "subject": proposal.subject}
            if proposal.reply_to_message_id:
                parameters["reply_to_message_id"] = proposal.reply_to_message_id
            target = proposal.to
        case ReplyEmail():
            parameters = {"thread_id": proposal.thread_id, "message_id": proposal.message_id}
            target = f"thread {proposal.thread_id}"
    return _Call(by, proposal.kind, target, parameters, started, announce, proposed=True)


def _sender(mail: FullMessage) -> str:
    """The address in From, or as much of it as there is."""
    found = people(mail.summary.sender)
    return (found[0].address if found else mail.summary.sender).casefold()


def _revision(found: Found) -> int:
    written = found.properties.get("revision", 1)
    return written if isinstance(written, int) else 1


def _not_what_was_seen(row: Row) -> Changed:
    return Changed(
        f"the request {row.id} is no longer what was shown; it is at revision {row.revision} now",
        hint="look at it again; nothing was decided",
    )


def _parameters(row: Row) -> dict[str, Any]:
    found = {"action_id": row.id, "digest": row.action.digest, "approved_by": row.decided_by}
    return found | ({"edited_by_person": _extent(row.difference)} if row.difference else {})


def _extent(difference: str) -> str:
    """How much was changed; the text itself does not belong into the record."""
    lines = difference.splitlines()[2:]
    return f"+{sum(line[:1] == '+' for line in lines)} -{sum(line[:1] == '-' for line in lines)} lines"


def _blessed(tx: Transaction, files: Sequence[Found]) -> list[Found]:
    """Drafts of which a person approved exactly this text on the page or the command line."""
    read = [(each, drafts.read(each)) for each in files if each.is_draft]
    known = [(each, draft, drafts.proposed(tx, draft.draft_id)) for each, draft in read]
    return [each for each, draft, row in known if row is not None and row.approved == draft.digest]


def _changed_by_the_person(tx: Transaction, found: Found) -> str | None:
    if not found.is_draft:
        return None
    draft = drafts.read(found)
    known = drafts.proposed(tx, draft.draft_id)
    return (known and drafts.difference(known.letter, draft.letter)) or None


def _entry(call: _Call, result: audit.Result, error: str | None, now: datetime) -> audit.Entry:
    return audit.Entry(
        timestamp=clock.iso(now),
        correlation_id=str(uuid.uuid4()),
        actor=call.by,
        action_type=call.kind,
        target=audit.masked(call.target),
        result=result,
        duration_ms=round((now - call.started).total_seconds() * 1000),
        parameters=call.parameters,
        error=error,
    )


def _answer(row: Row, found: Found | None) -> ledger.State:
    match found.folder if found else None:
        case "Approved":
            return "approved"
        case "Rejected":
            return "rejected"
        case None if row.state != "approved":
            return row.state
        case _:
            # One that may have left already is never again an ordinary request.
            return "waiting" if row.token is None else "unknown"


def _result(outcome: Outcome) -> tuple[audit.Result, str | None]:
    match outcome:
        case Released():
            return "success", None
        case DevMode():
            return "dev_mode", None
        case NotApproved(why):
            return "rejected", f"no approval: {why}"
        case Limited():
            return "rate_limited", None
        case Failed(error):
            return "error", f"{error.code}: {error.message}"


def _file_name(action: Action, action_id: str, revision: int) -> str:
    kind = "send" if action.kind == "send_email" else "reply"
    return f"email-{kind}-{action_id}{f'-{revision}' if revision > 1 else ''}.md"


def _under_way() -> SendFailed:
    return SendFailed("another process is sending this mail right now", reason="under_way", hint=_LATER)


def _unknown(row: Row) -> OutcomeUnknown:
    return OutcomeUnknown(
        "outcome unknown; the mail may or may not have been sent, and it is not sent again by itself",
        hint=f"the person can look into the Sent folder and decide with Pending_Approval/{row.file}",
        reason="unknown",
        request=f"Pending_Approval/{row.file}",
    )
