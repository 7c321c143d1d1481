"""What the person approved leaves, and what they decided about a draft is told in the note of the mail it answers."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from deskhand.app import Desk
from deskhand.clock import iso
from deskhand.errors import Denied, DeskError, NoAccount, NotFound, SendFailed
from deskhand.gate import SendingOff, later, ledger, lists, sends
from deskhand.gate.actions import SendEmail
from deskhand.gate.completing import add_signature, complete
from deskhand.gate.mailchange import MailChange
from deskhand.gate.rate import limits_of
from deskhand.gate.requests import Request, draft_file_name
from deskhand.mail.changes import Deed
from deskhand.orchestrator import conversations, elsewhere, files, steps
from deskhand.store import Transaction

if TYPE_CHECKING:
    from deskhand.orchestrator.mcp_client import MCPClient

log = logging.getLogger("deskhand.replies")

_MANY = 1000


async def look_around(desk: Desk) -> None:
    """Take up what the person did in the vault, and put every file and note where it belongs."""
    await desk.store.write(_forget_future, desk.now())
    if desk.settings.sending_off is None:
        await desk.store.write(ledger.wake_rested, desk.now())
        await desk.store.write(sends.wake_limited, desk.now(), limits_of(desk.settings))
    try:
        await desk.door.hear_all()
        await desk.gate.expire_late()
        if desk.settings.vault_path is not None:
            await asyncio.to_thread(files.make_places, desk.own_root)
    finally:
        await desk.door.follow_all()
        await settle_all(desk)


def _forget_future(tx: Transaction, now: datetime) -> None:
    ledger.forget_future(tx, now)
    steps.forget_future(tx, now)


async def send(desk: Desk, open_gmail: Callable[[], "MCPClient"], request: Request) -> None:
    """A draft leaves through the Gmail server, as its contract says; everything else through the gate itself."""
    if await _goes_by_server(desk, request):
        await _send_draft(desk, open_gmail(), request)
    else:
        await desk.gate.release(request.id, "orchestrator")
    if isinstance(request.action, MailChange):
        await _heed(desk, request)
    await settle_all(desk)


async def _heed(desk: Desk, request: Request) -> None:
    """What was done with mails that wait for a decision counts at once."""
    after = await desk.gate.find(request.id)
    if isinstance(after.action, MailChange) and after.state == "sent":
        ids = [mail.id for mail in after.action.mails]
        await elsewhere.heed(desk, ids, Deed(after.action.do, after.action.label))


async def _goes_by_server(desk: Desk, request: Request) -> bool:
    """Whether the Gmail server, asked for this draft, would send exactly what was approved."""
    if (
        request.origin != "draft"
        or request.may_have_left
        or desk.settings.vault_path is None
    ):
        return False
    if len(request.action.everybody) > 1:  # its contract knows one recipient
        return False
    try:
        _ = desk.own_root  # where it writes before it sends
    except (DeskError, OSError):
        return False
    try:
        action, _ = await complete(_letter(request), desk.mailbox)
    except (NotFound, NoAccount):
        return False  # the mail that it answers is gone; the approved reply is whole without it
    return add_signature(action, desk.settings).digest == request.digest


def _letter(request: Request) -> SendEmail:
    mail = request.action
    return SendEmail(
        to=mail.to,
        subject=mail.subject,
        body=mail.body,
        reply_to_message_id=mail.reply_to_message_id,
    )


async def _send_draft(desk: Desk, gmail: "MCPClient", request: Request) -> None:
    # What its tool takes.
    letter = _letter(request).model_dump(
        include={"to", "subject", "body", "reply_to_message_id"}
    )
    failure: DeskError = SendFailed("the ledger does not say that it was sent")
    try:
        await gmail.call_tool("send_email", letter)
    except Denied as error:
        off = desk.settings.sending_off
        if off is not None and error.details.get("reason") == off:
            await later.postpone(desk.store, request, SendingOff(off), desk.now())
            return
        failure = error
    except DeskError as error:
        failure = error
    # That a mail was sent is read from the ledger, never from an answer: a lost answer is no failure.
    after = await desk.gate.find(request.id)
    if after.waits_for_limit and after.due is not None:
        # No failure: the gate has written down from when on it may leave.
        said = {"last_error": failure.line, "next_try": iso(after.due)}
        await desk.door.explain(after, said)
    elif after.state == "approved":
        # Counted from before the try: the gate has counted it too, where it came as far as that.
        again = await later.fail(desk.store, request, failure, desk.now())
        marks = {
            "last_error": failure.line,
            "attempts": request.attempts + 1,
            "next_try": iso(again),
        }
        await desk.door.explain(after, marks)


# The note of the mail that a draft answers.


async def settle_all(desk: Desk) -> None:
    if desk.settings.vault_path is None:
        return  # the notes are in the vault of another worker, who looks around too
    for request in await desk.store.read(lists.find_unsettled, _MANY):
        try:
            await _settle(desk, request)
        except (
            DeskError,
            OSError,
        ) as error:  # this note is tried again at the next look; the others need not wait
            log.warning("not_settled", extra={"request": request.id, "why": str(error)})


async def _settle(desk: Desk, request: Request) -> None:
    step = None
    if request.mail is not None:
        key = request.mail
        step = await desk.store.read(steps.find, key)
    if step is not None and step.state == "decided":
        return  # somebody is filing this mail now; it is settled at the next look
    if step is not None and step.data.note is not None:
        with suppress(
            FileNotFoundError
        ):  # another one who settles it has just moved the note
            await asyncio.to_thread(_mark_note, desk, request, step.data.note)

    def remember(tx: Transaction) -> list[steps.Step]:
        released = [] if step is None else _finish_step(desk, tx, request, step)
        ledger.mark_settled(tx, request)
        return released

    await conversations.bring_back(desk, await desk.store.write(remember))


def _finish_step(
    desk: Desk, tx: Transaction, request: Request, step: steps.Step
) -> list[steps.Step]:
    """The mail is answered or left alone, and what the person changed is remembered for the next draft; the earlier
    mails of its conversation that wait again."""
    sender = request.sender or step.data.sender
    if request.state == "waiting":
        steps.become(tx, step.key, "drafted", ("rejected",))
        steps.forget_correction(tx, request.id)
        return []
    if request.state == "sent":
        steps.become(tx, step.key, "answered", ("drafted", "rejected"))
        if request.difference:
            steps.correct(
                tx, request.id, "edited", sender, request.difference[:4000], desk.now()
            )
        return []
    steps.correct(tx, request.id, "rejected", sender, _reason(request), desk.now())
    if request.words is None:
        steps.become(tx, step.key, "rejected", ("drafted",))
        return steps.release(tx, step.key)
    data = step.data.model_copy(update={"words": request.words})
    steps.wake(tx, step, data, ("drafted",), desk.now())
    return []


def _mark_note(desk: Desk, request: Request, name: str) -> None:
    root = desk.own_root
    if files.where(root, name) != files.NEEDS_ACTION:
        return

    def draft_in(folder: str) -> str:
        return desk.settings.own_path(folder, draft_file_name(request.id))

    if request.state == "waiting":
        marks = {"status": "drafted", "draft_path": draft_in(files.DRAFTS)}
        files.mark(root, files.NEEDS_ACTION, name, marks)
        return
    if request.state == "rejected":
        marks = {
            "status": "rejected",
            "rejected_reason": _reason(request),
            "draft_path": draft_in(files.REJECTED),
        }
        files.mark(root, files.NEEDS_ACTION, name, marks)
        return
    done = {
        "status": "done",
        "reply_message_id": request.message_id,
        "reply_thread_id": request.thread_id,
        "answered_at": iso(desk.now()),
        "draft_path": draft_in(files.DONE),
    }
    files.mark(root, files.NEEDS_ACTION, name, done)
    files.move(root, name, files.NEEDS_ACTION, files.DONE)


def _reason(request: Request) -> str:
    return request.note or "no reason was given"
