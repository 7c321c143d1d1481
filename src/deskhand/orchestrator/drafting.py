"""Drafts of the person's own words that belong to no step: a new mail, and a reply to a mail that was decided."""

import asyncio
import re
import uuid
from collections.abc import Sequence
from dataclasses import replace

from deskhand.app import Desk
from deskhand.askers import PERSON
from deskhand.errors import FieldProblem, InvalidInput, printable
from deskhand.gate import ledger
from deskhand.gate.actions import Mail, address_lines, demand_sendable
from deskhand.gate.asking import participants_of
from deskhand.gate.completing import in_thread, own_address, with_signature
from deskhand.gate.correspondents import learn_about
from deskhand.gate.fields import demand_body
from deskhand.gate.letters import Letter
from deskhand.gate.requests import DRAFT_PREFIX, Request, open_draft
from deskhand.mail.addresses import people
from deskhand.mail.mailboxes import Mailboxes, find_own
from deskhand.orchestrator import mails
from deskhand.orchestrator.triage import sender
from deskhand.orchestrator.watcher import fingerprint


async def draft_new(desk: Desk, letter: Letter, account: str, form: str) -> str:
    """Draft this mail from that account; the id of the draft. The same words of one `form` are one draft."""
    own = await _find_address(desk, account)
    mail = await asyncio.to_thread(_write, desk, letter, own)
    name = fingerprint(f"{form or uuid.uuid4().hex} {mail.digest}")
    draft = open_draft(f"{DRAFT_PREFIX}{name}", mail, fingerprint(name), desk.now())
    draft = replace(draft, reason="You wrote this mail.", asked_by=PERSON)
    await _put_up(desk, draft, mail.everybody)
    return draft.id


async def _find_address(desk: Desk, account: str) -> str:
    """From which address the account of this name sends; without a name the default one."""
    if not account:
        return await desk.mailbox.address()
    name = desk.settings.find_account(account).name
    if isinstance(desk.mailbox, Mailboxes):
        return await desk.mailbox.address_of(name)
    return await desk.mailbox.address()


def _write(desk: Desk, letter: Letter, own: str) -> Mail:
    """The mail exactly as it would leave; what cannot be sent as it reads is refused."""
    lines = {
        "to": _read_people(letter.to, "to"),
        "cc": _read_people(letter.cc or "", "cc"),
        "bcc": _read_people(letter.bcc or "", "bcc"),
    }
    if not lines["to"]:
        problem = FieldProblem("to", "Write one address, or several")
        raise InvalidInput("Nobody is named who gets it.", fields=[problem])
    text = demand_body(letter.body).strip()
    body = with_signature(f"{text}\n", desk.settings.signature_of(own))
    subject = letter.subject.strip()
    mail = Mail(kind="send_email", account=own, subject=subject, body=body, **lines)
    mail = mail.model_copy(update=address_lines(mail.to, mail.cc, mail.bcc))
    demand_sendable(mail, desk.now())
    return mail


_PART = r"[^\s<>(),;:\"|/&@]"
_TYPED = re.compile(rf"(?<!{_PART}){_PART}++@{_PART}++")
"""What looks like an address."""


def _read_people(line: str, field: str) -> str:
    """The addresses alone, of a line that may name people as other mail programs do: Ann <ann@example.org>."""
    found = [each.address for each in people(line)]
    known = {each.lower() for each in found}
    for typed in _TYPED.findall(line):
        name = typed.strip(".'")
        if name.lower() not in known:
            raise InvalidInput(
                f"{printable(name, 100)} is named and would not get it.",
                fields=[FieldProblem(field, "would not get it", printable(name, 100))],
                hint="Put commas between people, and an address alone into < >.",
            )
    return ", ".join(found)


async def draft_reply(desk: Desk, message_id: str, text: str, *, to_all: bool) -> str:
    """Draft a reply to a mail that waits for no decision; the id of the draft."""
    mail = await desk.mailbox.get(message_id)
    account = await own_address(desk.mailbox, mail)
    own = {account, *await find_own(desk.mailbox, desk.settings)}
    signature = desk.settings.signature_of(account)
    written = mails.write_reply(mail, text, account, own, signature, to_all=to_all)
    action = in_thread(written, mail)
    draft_id = f"{DRAFT_PREFIX}{uuid.uuid4().hex[:16]}"
    draft = replace(
        open_draft(draft_id, action, fingerprint(draft_id), desk.now()),
        reason="You wrote this reply.",
        asked_by=PERSON,
        sender=sender(mail),
        participants=participants_of(mail),
        warnings=mails.find_warnings(mail, written),
    )
    await _put_up(desk, draft, action.everybody)
    return draft_id


async def _put_up(desk: Desk, draft: Request, everybody: Sequence[str]) -> None:
    """Let it wait where the person looks; one that does already stays as it is."""
    await learn_about(desk.store, desk.mailbox, everybody)
    if await desk.store.write(ledger.insert, draft):
        await desk.door.follow(draft)
