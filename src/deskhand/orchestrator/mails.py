"""One mail's way: its note, a decision that is written down before anything follows from it, and what follows."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from deskhand import audit
from deskhand.app import Desk
from deskhand.clock import iso
from deskhand.errors import Denied, DeskError, Internal, InvalidInput, NotFound
from deskhand.gate import ledger, lists
from deskhand.gate.actions import Mail, address_lines
from deskhand.gate.asking import participants_of
from deskhand.gate.completing import in_thread, own_address, with_signature
from deskhand.gate.files import fenced
from deskhand.gate.outcomes import refuse_off
from deskhand.gate.requests import DRAFT_PREFIX, Request, draft_file_name, open_draft
from deskhand.mail import FullMessage, MailSummary, mime
from deskhand.mail.answering import address_all, address_author
from deskhand.mail.changes import Deed
from deskhand.mail.mailboxes import find_own
from deskhand.orchestrator import (
    conversations,
    files,
    pending,
    steps,
    triage,
    watcher,
)
from deskhand.orchestrator.model import Model
from deskhand.orchestrator.rules import RulesFile
from deskhand.orchestrator.steps import Held, MailFacts, Step
from deskhand.orchestrator.triage import Decision, MailToDecide, Ruling
from deskhand.store import Transaction

LABEL = "AI_PROCESSED"
REDECIDED: tuple[steps.State, ...] = ("arrived", "needs_info", "handed", "rejected")
"""States in which an assistant may still propose a decision."""


@dataclass(frozen=True, slots=True)
class Triage:
    rules: RulesFile
    model: Model | None

    async def decide(self, letter: MailToDecide) -> Ruling:
        if letter.words is not None and self.model is None:
            return Ruling("person", triage.follow_words(letter.words))
        if letter.words is not None and self.model is not None:
            return Ruling(self.model.name, await self.model.decide(letter))
        rules = self.rules.read()
        if found := rules.match(letter):
            return found
        if self.model is not None:
            return Ruling(self.model.name, await self.model.decide(letter))
        return Ruling("rule:default", rules.default.decide("the default"))


async def advance(desk: Desk, by: Triage, held: Held) -> None:
    """From wherever the mail is to where it rests."""
    mail = None
    if held.step.state == "arrived":
        try:
            mail = await pending.fetch(desk, held.step)
        except NotFound:
            why = "the mail was deleted before the desk read it"
            await conversations.rest_alone(desk, held, "archived", why)
            return
        if await _was_decided_by_note(desk, held.step, mail):
            why = "a note spoke of this mail before it came, and it was decided then"
            await conversations.rest_alone(desk, held, "archived", why)
            return
        await _decide(desk, by, held, mail)
    data = held.step.data
    decision = data.decision
    if decision is None:
        raise Internal("a mail was decided without a decision", reference=held.step.key)
    if not data.filed:
        await _file(desk, data, decision)
    rests = _RESTS[decision.decision]
    error = await _mark_mail(desk, held)
    if rests == "archived" and held.step.data.decided_by != "person":
        await conversations.rest_alone(desk, held, rests, error)
    else:
        await held.rest(rests, error)
    if mail is not None and rests in steps.LEFT:
        await conversations.settle(desk, held.step, mail)


async def _was_decided_by_note(desk: Desk, step: Step, mail: FullMessage) -> bool:
    """Whether a note named this mail by its Message-ID header while the mailbox had no such mail."""
    header = mail.message_id.strip("<>")
    key = steps.name_key(watcher.mailbox_of(step), header)
    found = await desk.store.read(steps.find, key) if header else None
    return found is not None and found.key != step.key


_RESTS: dict[triage.Choice, steps.State] = {
    "draft_reply": "drafted",
    "archive": "archived",
    "needs_info": "needs_info",
    "urgent": "drafted",
    "delegate": "delegated",
}


_OF_EARLIER_DECISION = {
    "draft_id": None,
    "filed": False,
    "proposed": None,
    "by_person": False,
    "proposed_by": "",
    "to_all": False,
    "asked": None,
    "words": None,
    "gone": None,
}
"""What a new decision takes back."""


async def _decide(desk: Desk, by: Triage, held: Held, mail: FullMessage) -> None:
    """The note first, so that the mail is visible while a model thinks or fails; then the decision, for ever."""
    known = held.step.data
    name = known.note or watcher.note_name(mail, held.step.key)
    thread = await watcher.earlier(desk, mail)
    if not known.from_note:
        await watcher.write_note(desk, mail, thread, name)
    sender = triage.sender(mail)
    if by.model is not None and known.note is None:
        # A model may take long, and others look meanwhile.
        await held.note("arrived", note=name, sender=sender)
    ruling = await _choose(desk, by, known, mail, thread)
    decision = ruling.decision
    now = desk.now()
    draft = None
    if decision.decision in ("draft_reply", "urgent"):
        account = await own_address(desk.mailbox, mail)
        try:
            signature = desk.settings.signature_of(account)
            own = {account, *await find_own(desk.mailbox, desk.settings)}
            given = (held, mail, decision, account, own, signature, now)
            draft = await asyncio.to_thread(_draft, *given)
        except InvalidInput as error:
            decision = triage.ask(error.message, "whom to answer")
    if draft is not None and known.words is None and not known.by_person:
        refused = await desk.store.read(lists.find_refused, held.step.key)
        decision, draft = _heed_refusals(decision, draft, refused)
    changes: dict[str, Any] = {
        "note": name,
        "sender": sender,
        "decision": decision,
        "decided_by": ruling.by,
        "leaves_inbox": ruling.leaves_inbox,
        "decided_at": iso(now),
    }
    changes |= _OF_EARLIER_DECISION
    if draft is None:
        await held.note("decided", **changes)
        return
    asker = known.proposed_by or None
    request = replace(draft, asked_by=ruling.by, asker=asker, about=name)
    changes |= {
        "draft_id": request.id,
        "drafts": known.drafts + 1,
        "warnings": request.warnings,
    }
    await held.note("decided", lambda tx: ledger.insert(tx, request), **changes)


async def _choose(
    desk: Desk,
    by: Triage,
    known: MailFacts,
    mail: FullMessage,
    thread: list[MailSummary],
) -> Ruling:
    """Who decides, and how: what the person or an assistant proposed goes before rules and models."""
    if known.proposed is None:
        corrections = await desk.store.read(steps.corrections, triage.sender(mail))
        return await by.decide(MailToDecide(mail, thread, corrections, known.words))
    if known.by_person:
        return Ruling("person", known.proposed)
    restrained = await asyncio.to_thread(triage.restrain, known.proposed, mail)
    return Ruling("assistant", restrained)


def _heed_refusals(
    decision: Decision, draft: Request, refused: list[Request]
) -> tuple[Decision, Request | None]:
    """A draft says that the person refused another one before; the same words are not drafted again."""
    if not refused:
        return decision, draft
    said = f"You said no to an earlier answer to it: {refused[-1].note or 'no reason was given'}"
    if any(_words(draft) == _words(each) for each in refused):
        return triage.ask(said, "another answer; this one was rejected"), None
    return decision, replace(draft, warnings=(*draft.warnings, said))


def _draft(
    held: Held,
    mail: FullMessage,
    decision: Decision,
    account: str,
    own: set[str],
    signature: str,
    now: datetime,
) -> Request:
    """The reply as a request. Whom it goes to is read from the headers; whoever decides names nobody."""
    number = held.step.data.drafts + 1
    ending = f"-{number}" if number > 1 else ""
    draft_id = f"{DRAFT_PREFIX}{watcher.fingerprint(held.step.key)}{ending}"
    body = (decision.reply_body or "").strip()
    reply = write_reply(mail, body, account, own, signature, to_all=held.step.data.to_all)
    action = reply
    sender = None
    participants: tuple[str, ...] = ()
    if not pending.is_claimed(mail):
        action = in_thread(reply, mail)
        sender = triage.sender(mail)
        participants = participants_of(mail)
    return replace(
        open_draft(draft_id, action, watcher.fingerprint(draft_id), now),
        reason=decision.reasoning,
        mail=held.step.key,
        sender=sender,
        participants=participants,
        urgent=decision.decision == "urgent",
        warnings=find_warnings(mail, reply),
        fault=None if body else "The body is empty",
    )


def write_reply(
    mail: FullMessage,
    body: str,
    account: str,
    own: set[str],
    signature: str,
    *,
    to_all: bool,
) -> Mail:
    """An answer to the author, or to everybody whom the mail names; not yet in its thread."""
    to, cc = address_author(mail, own), ""
    if to_all:
        to, cc = address_all(mail, own)
    return Mail(
        kind="send_email",
        account=account,
        **address_lines(to, cc, ""),
        subject=mime.reply_subject(mail.summary.subject),
        body=with_signature(f"{body}\n" if body else "", signature),
    )


def _words(request: Request) -> str:
    return " ".join(request.proposed.body.split()).casefold()


def find_warnings(mail: FullMessage, reply: Mail) -> tuple[str, ...]:
    """What is odd about the mail, and where its answer goes."""
    if triage.sender(mail) in map(str.lower, reply.everybody):
        return mail.alarms
    astray = (
        f"The answer goes to {reply.to}, where the mail asked for it, not to its sender."
    )
    return (*mail.alarms, astray)


async def _file(desk: Desk, data: MailFacts, decision: Decision) -> None:
    """What follows from the decision, in the vault; each part of it may be done again."""
    marks: dict[str, Any] = {
        "decision": decision.decision,
        "decision_reason": decision.reasoning,
        "decided_by": data.decided_by,
        "decided_at": data.decided_at,
    }
    appended = ""
    match decision.decision:
        case "archive":
            marks["status"] = "done"
        case "needs_info":
            marks |= {"status": "needs_info", "info_needed": decision.info_needed}
        case "delegate":
            marks |= {
                "status": "pending_approval",
                "delegation_target": decision.delegation_target,
            }
            said = f"To: {decision.delegation_target}\nWhy: {decision.reasoning}"
            appended = f"## Delegation\n\n{fenced(said)}"
        case "draft_reply" | "urgent" if data.draft_id is not None:
            draft_id = data.draft_id
            request = await desk.store.read(ledger.find, draft_id)
            if request is not None:
                # Done once more after a kill, the person may have moved it already.
                await desk.door.follow(await desk.door.hear(request))
            marks |= {
                "status": "drafted",
                "draft_path": desk.settings.own_path(
                    files.DRAFTS, draft_file_name(draft_id)
                ),
            }
    if data.note is not None:
        archived = decision.decision == "archive"
        await asyncio.to_thread(
            _mark_note, desk.own_root, data.note, marks, appended, archived=archived
        )


def _mark_note(
    root: Path, name: str, marks: dict[str, Any], appended: str, *, archived: bool
) -> None:
    if files.where(root, name) == files.NEEDS_ACTION:
        files.mark(root, files.NEEDS_ACTION, name, marks, appended)
        if archived:
            files.move(root, name, files.NEEDS_ACTION, files.DONE)


async def _mark_mail(desk: Desk, held: Held) -> str | None:
    """The decision is on record, so the mail is marked in the mailbox, and leaves its inbox where the rule says so;
    what the mailbox cannot do is said.
    """
    said = [await _try_to(desk, held, LABEL, _label)]
    if held.step.data.leaves_inbox:
        said.append(await _try_to(desk, held, "inbox", _leave_inbox))
    return "; ".join(filter(None, said)) or None


async def _try_to(
    desk: Desk, held: Held, what: str, do: Callable[[Desk, Held], Awaitable[None]]
) -> str | None:
    try:
        await do(desk, held)
    except (NotFound, Denied) as error:
        if held.step.data.from_note and isinstance(error, NotFound):
            return None  # only a note speaks of this mail
        return f"{what}: {error.message}"
    except DeskError:
        # The files are in place; from now on they are the person's, and only this is tried again.
        await held.note("decided", filed=True)
        raise
    return None


async def _label(desk: Desk, held: Held) -> None:
    await desk.mailbox.add_label(await watcher.find_id(desk, held.step), LABEL)


async def _leave_inbox(desk: Desk, held: Held) -> None:
    """Out of the inbox, which may be done again; the record has it once, with the row that says that it is done."""
    if off := desk.settings.sending_off:
        raise refuse_off(off, "it stays in the inbox")
    data = held.step.data
    message_id = await watcher.find_id(desk, held.step)
    await desk.mailbox.change([message_id], Deed("archive"))
    facts = {"done": "archived", "by": data.decided_by}
    given = (desk.now(), "orchestrator", "decide_mail", data.message_id)
    entry = audit.Entry.of(*given, parameters=facts)

    def write_down(tx: Transaction) -> None:
        audit.append(tx, entry)

    await held.note("decided", write_down, leaves_inbox=False, filed=True)
