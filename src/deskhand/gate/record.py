"""What the gate puts on the record: one entry for each call and each answer, in one transaction with its effect."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from deskhand import audit
from deskhand.audit import vault_log
from deskhand.clock import iso
from deskhand.config import Settings
from deskhand.errors import DeskError, SendFailed
from deskhand.gate.actions import Proposal, ReplyEmail, SendEmail
from deskhand.gate.enclosures import Enclosure
from deskhand.gate.leaving import LeaveList
from deskhand.gate.mailchange import UpdateEmails
from deskhand.gate.question import Question
from deskhand.gate.requests import Request
from deskhand.gate.toolcall import ToolCall

log = logging.getLogger("deskhand.delivery")


@dataclass(frozen=True, slots=True)
class GateCall:
    """Who asks the gate for what."""

    by: str
    kind: str
    target: str
    started: datetime
    parameters: Mapping[str, Any] = field(default_factory=dict)
    proposed: bool = False
    """Whether whoever proposed it is on the line and hears the outcome."""

    def entry(
        self, result: audit.Result, error: str | None, now: datetime, **more: Any
    ) -> audit.Entry:
        took = round((now - self.started).total_seconds() * 1000)
        facts = {**self.parameters, **more}
        target = audit.masked_line(self.target)
        return audit.Entry.of(
            now,
            self.by,
            self.kind,
            target,
            parameters=facts,
            error=error,
            result=result,
            milliseconds=took,
        )


def call_of(proposal: Proposal, by: str, client: str | None, started: datetime) -> GateCall:
    parameters: dict[str, Any]
    match proposal:
        case SendEmail():
            target = ", ".join(filter(None, (proposal.to, proposal.cc, proposal.bcc)))
            parameters = _name_mail(proposal)
        case ReplyEmail():
            target = f"thread {proposal.thread_id}"
            parameters = {
                "thread_id": proposal.thread_id,
                "message_id": proposal.message_id,
            }
            parameters |= {
                name: value for name, value in _reach_of(proposal).items() if value
            }
            parameters |= _name_follow_up(proposal)
            parameters |= _name_files(proposal.attachments)
        case UpdateEmails():
            target = f"{len(proposal.mails)} mails"
            parameters = {
                "do": proposal.do,
                "label": proposal.label,
                "mails": len(proposal.mails),
            }
        case LeaveList():
            target = proposal.host
            parameters = {"list": proposal.sender, "signed_by": proposal.signed_by}
        case Question():
            target = proposal.target
            parameters = {
                "choices": len(proposal.choices),
                "characters": len(proposal.text),
            }
        case ToolCall():
            target = proposal.target
            parameters = {
                "server": proposal.server,
                "tool": proposal.tool,
                "definition": proposal.definition,
            }
    if client is not None:
        parameters["client"] = client
    return GateCall(by, proposal.kind, target, started, parameters, proposed=True)


def _name_mail(proposal: SendEmail) -> dict[str, Any]:
    lines = {"to": proposal.to, "cc": proposal.cc, "bcc": proposal.bcc}
    found: dict[str, Any] = {
        name: audit.masked_line(line) for name, line in lines.items() if line
    }
    found["subject"] = proposal.subject
    if proposal.send_at:
        found["send_at"] = iso(proposal.send_at)
    found |= _name_follow_up(proposal)
    found |= _name_files(proposal.attachments)
    if proposal.reply_to_message_id:
        found["reply_to_message_id"] = proposal.reply_to_message_id
    return found


def announce(
    settings: Settings, request: Request, call: GateCall, now: datetime, *, must: bool
) -> None:
    """The Gmail server's contract has a line before each of its mails, which shows how the text begins.

    With `must` no mail leaves without it. Where the vault is no door to the gate, it cannot shut the gate either.
    """
    vault = settings.vault_path
    if vault is None or (call.by != "gmail_mcp" and request.origin != "draft"):
        return
    try:
        vault_log.write_pre_send(vault, settings.logs, request.action, now)
    except (OSError, DeskError) as error:
        if not must:
            facts = facts_of(request) | {"why": str(error)}
            log.critical("not_announced_in_the_vault", extra=facts)
            return
        raise SendFailed(
            f"the line that goes before a send cannot be written: {error}"
        ) from error


def _reach_of(answer: ReplyEmail) -> dict[str, Any]:
    return {"all": answer.all, "cc": answer.cc and audit.masked_line(answer.cc)}


def _name_follow_up(proposal: SendEmail | ReplyEmail) -> dict[str, Any]:
    if proposal.follow_up is None:
        return {}
    if isinstance(proposal.follow_up, timedelta):
        return {"follow_up": str(proposal.follow_up)}
    return {"follow_up": iso(proposal.follow_up)}


def _name_files(attachments: Sequence[Enclosure]) -> dict[str, Any]:
    if not attachments:
        return {}
    return {"attachments": [f"{each.name} {each.sha256}" for each in attachments]}


def call_to_release(request: Request, by: str, started: datetime) -> GateCall:
    """What is sent without a further call: the actor is still the door that asked, and
    `sent_by` who sees to it."""
    actor = by
    if request.origin == "tool" and request.asked_by is not None:
        actor = request.asked_by
    return GateCall(
        actor,
        request.action.kind,
        request.action.target,
        started,
        facts_of(request) | {"sent_by": by},
    )


def facts_of(request: Request) -> dict[str, Any]:
    """What the record says about a request; its text does not belong there."""
    found: dict[str, Any] = {"action_id": request.id, "digest": request.digest}
    if request.origin == "draft":
        found["draft_id"] = request.id
    if request.decided_by:
        found["approved_by"] = request.decided_by
    if request.difference:
        found["edited_by_person"] = _extent(request.difference)
    return found


def _extent(difference: str) -> str:
    signs = [line[:1] for line in difference.splitlines()[2:]]
    return f"+{signs.count('+')} -{signs.count('-')} lines"
