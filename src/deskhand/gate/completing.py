"""From what a tool was told to the exact mail: from which account it leaves, whom it answers, in which thread."""

import asyncio
from collections.abc import Collection
from typing import Any

from deskhand.config import Settings
from deskhand.errors import NotFound
from deskhand.gate.actions import (
    Action,
    Mail,
    Proposal,
    ReplyEmail,
    SendEmail,
    address_lines,
)
from deskhand.gate.mailchange import MailChange, UpdateEmails
from deskhand.mail import FullMessage, Mailbox, mime
from deskhand.mail.answering import address_all, address_author


async def complete(
    proposal: SendEmail | ReplyEmail | UpdateEmails,
    mailbox: Mailbox,
    own: Collection[str] = (),
) -> tuple[Action, FullMessage | None]:
    """What is meant, and the mail that it answers, from which it is read who gets a reply.
    `own` are the aliases."""
    more: dict[str, Any] = {}
    match proposal:
        case UpdateEmails(do=do, label=label, mails=mails):
            return MailChange(
                account=await mailbox.address(), do=do, label=label, mails=mails
            ), None
        case SendEmail(
            to=to,
            cc=cc,
            bcc=bcc,
            subject=subject,
            body=body,
            reply_to_message_id=message_id,
        ):
            lines = address_lines(to, cc, bcc)
            more["send_at"] = proposal.send_at
            found = await mailbox.get(message_id) if message_id is not None else None
            account = proposal.sender or await own_address(mailbox, found)
        case ReplyEmail(message_id=message_id, body=body):
            found = await mailbox.get(message_id)
            account = await own_address(mailbox, found)
            if found.summary.thread_id != proposal.thread_id:
                raise NotFound(
                    f"there is no message {message_id} in thread {proposal.thread_id}"
                )
            to, cc = await asyncio.to_thread(
                _address_reply, proposal, found, {account, *own}
            )
            lines = address_lines(to, ", ".join(filter(None, (cc, proposal.cc))), "")
            subject = mime.reply_subject(found.summary.subject)
    as_text = proposal.as_text and mime.is_html(body)
    more |= {"as_text": as_text, "attachments": proposal.attachments}
    mail = Mail(
        kind=proposal.kind, account=account, subject=subject, body=body, **lines, **more
    )
    # It leaves from the account that has the mail, in no thread.
    if found is None or mail.kind == "forward_email":
        return mail, None
    return in_thread(mail, found), found


def _address_reply(
    reply: ReplyEmail, mail: FullMessage, own: Collection[str]
) -> tuple[str, str]:
    if reply.all:
        return address_all(mail, own)
    return address_author(mail, own), ""


async def own_address(mailbox: Mailbox, answered: FullMessage | None) -> str:
    """From where a mail leaves: an answer from the account that has the mail it answers."""
    if answered is not None and answered.summary.account:
        return answered.summary.account
    return await mailbox.address()


def in_thread(mail: Mail, original: FullMessage) -> Mail:
    """The mail as an answer to another one."""
    references = original.references
    if original.message_id:
        references = (*references, original.message_id)
    place = {
        "thread_id": original.summary.thread_id,
        "reply_to_message_id": original.summary.id,
        "in_reply_to": original.message_id or None,
        "references": references,
    }
    return mail.model_copy(update=place)


def add_signature(action: Action, settings: Settings) -> Action:
    """The mail with its account's signature under it. A text that leaves as a page has none."""
    if not isinstance(action, Mail) or (mime.is_html(action.body) and not action.as_text):
        return action
    return action.model_copy(
        update={"body": with_signature(action.body, settings.signature_of(action.account))}
    )


def finish(meant: Action, proposal: Proposal, settings: Settings) -> Action:
    """What was meant, exactly as it would leave: with its signature, and as HTML where that was asked for."""
    action = add_signature(meant, settings)
    if isinstance(action, Mail) and isinstance(proposal, SendEmail) and proposal.html:
        return action.with_html()
    return action


def with_signature(body: str, signature: str) -> str:
    """The text with the signature under it, once; an empty text is still to be written."""
    block = f"-- \n{signature.strip()}\n"
    if not signature.strip() or not body.strip() or body.endswith(block):
        return body
    return f"{body.rstrip()}\n\n{block}"
