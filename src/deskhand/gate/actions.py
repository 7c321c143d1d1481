"""What may be asked, and exactly what would leave the desk.

A Proposal is what a tool was told. The gate completes it to an Action: account, recipient, subject, text and thread, as
they would be sent. Whoever approves an action approves its digest, which covers every one of these fields.
"""

import json
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from deskhand.errors import FieldProblem, InvalidInput, NotFound, printable
from deskhand.mail import FullMessage, Mailbox, Outgoing, mime
from deskhand.mail.addresses import recipient

SUBJECT_LIMIT = 998
BODY_LIMIT = 2_000_000


def _subject(text: str) -> str:
    if len(text) > SUBJECT_LIMIT:
        raise _invalid("subject", f"The subject has {len(text)} characters; at most {SUBJECT_LIMIT} are allowed", text)
    if any(ord(char) < 32 or char in "\x7f\x85\u2028\u2029" for char in text):
        raise _invalid("subject", "The subject must be one line without control characters", text)
    return text


def _body(text: str) -> str:
    if not text.strip():
        raise _invalid("body", "The body is empty", "")
    if len(text) > BODY_LIMIT:
        raise _invalid("body", f"The body has {len(text):,} characters; at most {BODY_LIMIT:,} are allowed", "")
    if "\0" in text:
        raise _invalid("body", "The body holds a NUL character", "")
    return text


def _invalid(field: str, message: str, received: str) -> InvalidInput:
    return InvalidInput(message, fields=[FieldProblem(field, message, printable(received, 60))])


Address = Annotated[str, AfterValidator(recipient)]
Subject = Annotated[str, AfterValidator(_subject)]
Body = Annotated[str, AfterValidator(_body)]


class SendEmail(BaseModel):
    model_config = ConfigDict(frozen=True)

    kind: Literal["send_email"] = "send_email"
    to: Address
    subject: Subject
    body: Body
    reply_to_message_id: str | None = None


class ReplyEmail(BaseModel):
    model_config = ConfigDict(frozen=True)

    kind: Literal["reply_email"] = "reply_email"
    thread_id: str
    message_id: str
    body: Body


Proposal = SendEmail | ReplyEmail


class Action(BaseModel):
    model_config = ConfigDict(frozen=True)

    kind: Literal["send_email", "reply_email"]
    account: str
    to: Address
    subject: Subject
    body: Body
    thread_id: str | None = None
    reply_to_message_id: str | None = None
    in_reply_to: str | None = None
    references: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        fields = self.model_dump(mode="json")
        return sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


async def completed(proposal: Proposal, mailbox: Mailbox) -> tuple[Action, FullMessage | None]:
    """The action that this means in the mailbox, and the mail that it answers. Who gets a reply is read from that."""
    account = await mailbox.address()
    match proposal:
        case SendEmail():
            if proposal.reply_to_message_id is None:
                alone = Action(
                    kind=proposal.kind, account=account, to=proposal.to, subject=proposal.subject, body=proposal.body
                )
                return alone, None
            found = await mailbox.get(proposal.reply_to_message_id)
            return _in_thread(proposal.kind, account, proposal.to, proposal.subject, proposal.body, found), found
        case ReplyEmail():
            found = await mailbox.get(proposal.message_id)
            if found.summary.thread_id != proposal.thread_id:
                raise NotFound(f"there is no message {proposal.message_id} in thread {proposal.thread_id}")
            to, subject = mime.reply_recipient(found, account), mime.reply_subject(found.summary.subject)
            return _in_thread(proposal.kind, account, to, subject, proposal.body, found), found


def _in_thread(
    kind: Literal["send_email", "reply_email"], account: str, to: str, subject: str, body: str, original: FullMessage
) -> Action:
    return Action(
        kind=kind,
        account=account,
        to=to,
        subject=subject,
        body=body,
        thread_id=original.summary.thread_id,
        reply_to_message_id=original.summary.id,
        in_reply_to=original.message_id or None,
        references=(*original.references, original.message_id) if original.message_id else original.references,
    )


def outgoing(action: Action, action_id: str, date: datetime) -> Outgoing:
    """The bytes, always the same ones for the same action, id and date; what cannot be sent as it reads is refused."""
    message_id = f"<{action_id}@{action.account.rpartition('@')[2]}>"
    raw = mime.compose(
        sender=action.account,
        to=[action.to],
        subject=action.subject,
        body=action.body,
        message_id=message_id,
        date=date,
        action_id=action_id,
        in_reply_to=action.in_reply_to,
        references=action.references,
    )
    return Outgoing(raw, (action.to,), message_id, action_id, action.thread_id)
