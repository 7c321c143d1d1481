"""One mail's way: its note, a decision that is written down before anything follows from it, and what follows."""

import asyncio
from dataclasses import dataclass
from typing import Any

from deskhand.app import Desk
from deskhand.clock import iso
from deskhand.errors import Denied, DeskError, InvalidInput, NotFound
from deskhand.gate import drafts
from deskhand.gate.approvals import DRAFT, fenced
from deskhand.gate.drafts import Proposed
from deskhand.mail import FullMessage, mime
from deskhand.notes import frontmatter
from deskhand.orchestrator import files, steps, triage, watcher
from deskhand.orchestrator.model import Model
from deskhand.orchestrator.steps import Held
from deskhand.orchestrator.triage import Decision, Letter, Rules

LABEL = "AI_PROCESSED"
REDECIDED: tuple[steps.State, ...] = ("arrived", "needs_info", "rejected")
"""States in which an assistant may still propose a decision."""


@dataclass(frozen=True, slots=True)
class Triage:
    rules: Rules
    model: Model | None

    async def decide(self, letter: Letter) -> tuple[str, Decision]:
        if letter.words is not None and self.model is None:
            return "person", triage.told(letter.words)
        if letter.words is not None and self.model is not None:
            return self.model.name, await self.model.decide(letter)
        if found := self.rules.match(letter):
            return found
        if self.model is not None:
            return self.model.name, await self.model.decide(letter)
        return "rule:default", self.rules.default.decide("the default")


async def advance(desk: Desk, by: Triage, held: Held) -> None:
    """From wherever the mail is to where it rests."""
    if held.step.state == "arrived":
        try:
            mail = await desk.mailbox.get(held.step.data["message_id"])
        except NotFound:
            await held.rest("archived", "the mail was deleted before the desk read it")
            return
        await _decide(desk, by, held, mail)
    data = held.step.data
    decision = Decision.model_validate(data["decision"])
    if not data.get("filed"):
        await asyncio.to_thread(_file, desk, data, decision)
    await held.rest(_RESTS[decision.decision], await _label(desk, held))


_RESTS: dict[triage.Choice, steps.State] = {
    "draft_reply": "drafted",
    "archive": "archived",
    "needs_info": "needs_info",
    "urgent": "drafted",
    "delegate": "delegated",
}


async def _decide(desk: Desk, by: Triage, held: Held, mail: FullMessage) -> None:
    """The note first, so that the mail is visible while a model thinks or fails; then the decision, for ever."""
    name = held.step.data.get("note") or watcher.note_name(mail, held.step.key)
    thread = await watcher.earlier(desk, mail)
    await watcher.write_note(desk, mail, thread, name)
    sender = triage.sender(mail)
    if by.model is not None and "note" not in held.step.data:
        await held.note("arrived", note=name, sender=sender)  # a model may take long, and others look meanwhile
    corrections = await desk.store.read(lambda tx: steps.corrections(tx, sender))
    if proposed := held.step.data.get("proposed"):
        decided_by = "assistant"
        decision = triage.restrained(Decision.model_validate(proposed), mail)
    else:
        decided_by, decision = await by.decide(Letter(mail, thread, corrections, held.step.data.get("words")))
    letter: dict[str, Any] | None = None
    account = ""
    if decision.decision in ("draft_reply", "urgent"):
        account = await desk.mailbox.address()
        try:
            letter = _reply(mail, decision.reply_body or "", account)
        except InvalidInput as error:
            decision = Decision(
                decision="needs_info", confidence=0, reasoning=error.message, info_needed="whom to answer"
            )
    now, number = desk.now(), held.step.data.get("drafts", 0) + 1
    draft_id = f"{drafts.PREFIX}{watcher.fingerprint(held.step.key)}{f'-{number}' if number > 1 else ''}"

    def propose(tx: Any) -> None:
        if letter is not None:
            why = (decided_by, decision.reasoning, account, mail.warnings)
            drafts.propose(tx, Proposed(draft_id, held.step.key, sender, letter, None, now, *why))

    await held.note(
        "decided",
        propose,
        note=name,
        sender=sender,
        decision=decision.model_dump(),
        decided_by=decided_by,
        decided_at=iso(now),
        letter=letter,
        draft_id=draft_id if letter else None,
        drafts=number if letter else number - 1,
        warnings=_warnings(mail, letter),
        filed=False,
        proposed=None,
        words=None,
    )


def _reply(mail: FullMessage, body: str, account: str) -> dict[str, Any]:
    """Whom it goes to is read from the headers; nobody who decides can choose it."""
    return {
        "to": mime.reply_recipient(mail, account),
        "subject": mime.reply_subject(mail.summary.subject),
        "body": f"{body.strip()}\n" if body.strip() else "",
        "reply_to_message_id": mail.summary.id,
    }


def _warnings(mail: FullMessage, letter: dict[str, Any] | None) -> list[str]:
    found = list(mail.warnings)
    if letter and letter["to"].casefold() != triage.sender(mail):
        found.append(f"The answer goes to {letter['to']}, where the mail asked for it, not to its sender.")
    return found


def _file(desk: Desk, data: dict[str, Any], decision: Decision) -> None:
    """What follows from the decision, in the vault; each part of it may be done again."""
    root, name = desk.settings.vault, data["note"]
    marks: dict[str, Any] = {
        "decision": decision.decision,
        "decision_reason": decision.reasoning,
        "decided_by": data["decided_by"],
        "decided_at": data["decided_at"],
    }
    appended = ""
    match decision.decision:
        case "archive":
            marks["status"] = "done"
        case "needs_info":
            marks |= {"status": "needs_info", "info_needed": decision.info_needed}
        case "delegate":
            marks |= {"status": "pending_approval", "delegation_target": decision.delegation_target}
            target, why = decision.delegation_target or "", decision.reasoning
            appended = f"## Delegation\n\n{fenced(f'To: {target}{chr(10)}Why: {why}')}"
        case "draft_reply" | "urgent":
            draft = draft_name(data)
            files.place(root, files.DRAFTS, draft, _draft(data, urgent=decision.decision == "urgent"))
            marks |= {"status": "drafted", "draft_path": f"{files.DRAFTS}/{draft}"}
    if files.where(root, name) == files.NEEDS_ACTION:
        files.mark(root, files.NEEDS_ACTION, name, marks, appended)
        if decision.decision == "archive":
            files.move(root, name, files.NEEDS_ACTION, files.DONE)


def draft_name(data: dict[str, Any]) -> str:
    return drafts.file_name(data["draft_id"])


def _draft(data: dict[str, Any], *, urgent: bool) -> str:
    letter = data["letter"]
    properties = {
        "type": DRAFT,
        "status": "pending_approval",
        "to": letter["to"],
        "subject": letter["subject"],
        "reply_to_message_id": letter["reply_to_message_id"],
        "draft_id": data["draft_id"],
        "drafted_by": data["decided_by"],
        "drafted_at": data["decided_at"],
    }
    more = {"priority": "urgent" if urgent else None, "warnings": data["warnings"], "answers": data["note"]}
    return frontmatter.render(properties | {key: value for key, value in more.items() if value}, letter["body"])


async def _label(desk: Desk, held: Held) -> str | None:
    """The decision is on record, so the mail is marked in the mailbox; what the mailbox cannot do is said."""
    try:
        await desk.mailbox.add_label(held.step.data["message_id"], LABEL)
    except (NotFound, Denied) as error:
        return f"{LABEL}: {error.message}"
    except DeskError:
        # The files are in place; from now on they are the person's, and only the label is tried again.
        await held.note("decided", filed=True)
        raise
    return None
