"""Looks whether somebody answered the mails after which the person wants to be told if nobody does, and tells them."""

import logging
from datetime import timedelta
from email.parser import BytesHeaderParser

from anyio import to_thread

from deskhand.app import Desk
from deskhand.askers import asking_as
from deskhand.errors import DeskError, NotFound
from deskhand.gate import follow_ups
from deskhand.gate.follow_ups import AwaitedAnswer
from deskhand.mail import Mailbox, MailSummary
from deskhand.mail.addresses import addresses_in, first_person
from deskhand.mail.answering import mailbox_of
from deskhand.mail.mailboxes import find_own, open_owned, split
from deskhand.mail.mime import reply_subject

log = logging.getLogger("deskhand.reminding")

EVERY = 30.0
"""Seconds between two looks at what is awaited."""
_PATIENCE = timedelta(days=1)
"""For so long after its time a mailbox that does not answer is asked again."""
_CLOCKS = timedelta(minutes=1)
"""So far the mailbox's clock may be behind."""
_MOST_ASKED = 10
"""Recipients of a mail whose other mails are looked for."""
_MOST_LOOKED_AT = 20
_MOST_NAMED = 3
_NO_PERSON = ("x-autoreply", "x-autorespond", "x-autoresponder", "x-failed-recipients")
_MACHINES = frozenset({"mailer-daemon", "postmaster"})


async def look(desk: Desk, *, all_of_them: bool = False) -> None:
    """One pass; all of them, or those whose turn it is."""
    for question in await desk.store.write(follow_ups.take_up_answers, desk.now()):
        # Where the last process ended before its file lay there.
        await desk.door.ensure_waiting(question)
    for awaited in await desk.store.write(
        follow_ups.take_to_look_at, desk.now(), all_of_them=all_of_them
    ):
        await _look_at(desk, awaited)


async def _look_at(desk: Desk, awaited: AwaitedAnswer) -> None:
    unseen: str | None = None
    elsewhere: list[MailSummary] = []
    is_due = desk.now() >= awaited.due
    try:
        if await _is_answered(desk, awaited):
            await desk.store.write(follow_ups.mark_answered, awaited)
            return
        elsewhere = await _find_elsewhere(desk, awaited)
        if any(_is_about_it(each, awaited) for each in elsewhere):
            await desk.store.write(follow_ups.mark_answered, awaited)
            return
    except DeskError as error:
        unseen = error.message
        log.warning(
            "not_looked_at", extra={"request": awaited.request.id, "why": error.message}
        )
        is_due = desk.now() >= awaited.due + _PATIENCE
    if is_due:
        with asking_as("your desk, because you wanted to be told"):
            question = follow_ups.ask_about(
                awaited, desk.settings.timezone, unseen, elsewhere[:_MOST_NAMED]
            )
            asked = await desk.store.write(follow_ups.tell, awaited, question, desk.now())
        if asked is not None:
            await desk.door.ensure_waiting(asked)


async def _is_answered(desk: Desk, awaited: AwaitedAnswer) -> bool:
    """Whether a person wrote in the thread after the mail had left."""
    request = awaited.request
    own = await _own_mailboxes(desk, awaited)
    # By its address, whatever the account was called when the mail left.
    box = await open_owned(desk.mailbox, request.action.account)
    thread_id = request.thread_id or request.action.thread_id or ""
    try:
        thread = await box.thread(split(thread_id)[1])
    except NotFound:
        return False
    ids = (request.message_id, request.action.reply_to_message_id)
    known = {split(each)[1] for each in ids if each}
    for mail in thread:
        is_new = mail.id not in known and mail.date >= request.left - _CLOCKS
        if is_new and _is_from_others(mail, own) and await _is_by_person(box, mail):
            return True
    return False


async def _find_elsewhere(desk: Desk, awaited: AwaitedAnswer) -> list[MailSummary]:
    """What those whom the mail went to have written since, in whatever thread, newest
    first; oneself is not asked."""
    request = awaited.request
    own = await _own_mailboxes(desk, awaited)
    others = [each for each in request.action.everybody if mailbox_of(each) not in own]
    asked = others[:_MOST_ASKED]
    if not asked:
        return []
    day = request.left.date() - timedelta(days=1)  # a search may count days in another zone
    senders = " ".join(f'from:"{each}"' for each in asked)
    found = await desk.mailbox.search(
        f"{{{senders}}} after:{day:%Y/%m/%d}", _MOST_LOOKED_AT
    )
    known = set(map(mailbox_of, asked))
    return [
        mail
        for mail in found
        if mail.date >= request.left - _CLOCKS
        and not known.isdisjoint(map(mailbox_of, addresses_in(mail.sender)))
        and await _is_by_person(desk.mailbox, mail)
    ]


async def _own_mailboxes(desk: Desk, awaited: AwaitedAnswer) -> set[str]:
    known = await find_own(desk.mailbox, desk.settings)
    own = (awaited.request.action.account, *known)
    return set(map(mailbox_of, own))


def _is_about_it(mail: MailSummary, awaited: AwaitedAnswer) -> bool:
    """Whether it has the same subject: some programs answer without saying which mail it is that they answer."""
    subject = awaited.request.action.subject
    return bool(subject.strip()) and _topic(mail.subject) == _topic(subject)


def _topic(subject: str) -> str:
    return " ".join(reply_subject(subject).casefold().split())


def _is_from_others(mail: MailSummary, own: set[str]) -> bool:
    senders = set(map(mailbox_of, addresses_in(mail.sender)))
    return bool(senders) and senders.isdisjoint(own)


async def _is_by_person(mailbox: Mailbox, mail: MailSummary) -> bool:
    raw = await mailbox.read_raw(mail.id)
    return not await to_thread.run_sync(is_by_machine, raw)


def is_by_machine(raw: bytes) -> bool:
    """Whether a program wrote the mail by itself: an absence note, a receipt, a bounce."""
    head = BytesHeaderParser().parsebytes(raw)

    def first(name: str) -> str:
        return str(head.get(name, "")).strip().casefold()

    sender = first_person(first("From"))
    return (
        first("Auto-Submitted").partition(";")[0].strip() not in ("", "no")
        or any(name in head for name in _NO_PERSON)
        or first("Precedence") in ("auto_reply", "bulk", "junk")
        or first("Return-Path") == "<>"
        or head.get_content_type() == "multipart/report"
        or (sender is not None and sender.address.partition("@")[0] in _MACHINES)
    )
