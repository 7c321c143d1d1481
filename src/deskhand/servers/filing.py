"""How tools change mails: at once where the gate lets them, else the person is asked."""

from collections.abc import Sequence

from deskhand.app import Desk
from deskhand.errors import Denied, DeskError
from deskhand.gate import (
    Failed,
    Limited,
    NotApproved,
    Outcome,
    Released,
    SendingOff,
    filing,
)
from deskhand.gate.mailchange import ListedMail, UpdateEmails
from deskhand.gate.outcomes import refuse_off
from deskhand.mail import MailSummary
from deskhand.mail.changes import Deed
from deskhand.servers.callers import client
from deskhand.servers.email import refusal_of
from deskhand.servers.mail import one_line, view_account_of


async def needs_yes(desk: Desk, change: Deed, mails: Sequence[MailSummary]) -> bool:
    return await desk.store.read(
        filing.needs_yes, await _recall(desk, change, mails), desk.now()
    )


async def change_mails(
    desk: Desk, change: Deed, mails: Sequence[MailSummary], by: str
) -> int | Outcome:
    """How many were changed at once, or what came of asking."""
    outcome = await ask_if_needed(
        desk, change, mails, by, always=desk.settings.sending_off is not None
    )
    ids = [mail.id for mail in mails]
    if outcome is None:
        count = await desk.mailbox.change(ids, change)
        await _heed(desk, ids, change)
        return count
    if isinstance(outcome, Released):
        await _heed(desk, ids, change)
    return outcome


async def _heed(desk: Desk, ids: Sequence[str], change: Deed) -> None:
    from deskhand.orchestrator import elsewhere

    await elsewhere.heed(desk, ids, change)


async def ask_if_needed(
    desk: Desk, change: Deed, mails: Sequence[MailSummary], by: str, *, always: bool = False
) -> Outcome | None:
    """What came of asking; None where it may be done at once, and is counted."""
    asked = await _recall(desk, change, mails)
    if not always and await desk.store.write(filing.take, asked, desk.now()):
        await desk.settle_record()
        return None
    with view_account_of(*mails):
        return await desk.gate.propose(asked, by, client=client())


def describe_refusal(outcome: Outcome, count: int) -> DeskError | None:
    """Why they were not changed; None where they were."""
    match outcome:
        case Released():
            return None
        case NotApproved(why, request, said) as asked:
            mails = "1 mail is" if count == 1 else f"{count} mails are"
            text = f"{mails} changed only after the person said yes"
            return refusal_of(asked, text, approval=why, request=request, hint=said)
        case SendingOff(off):
            return refuse_off(off, "logged, not done")
        case Failed(error):
            return error
        case Limited():
            return Denied("too much left the desk in this window", reason="rate_limited")


async def _recall(desk: Desk, change: Deed, mails: Sequence[MailSummary]) -> UpdateEmails:
    asked = UpdateEmails(do=change.do, label=change.label, mails=tuple(map(_listed, mails)))
    return await desk.store.read(filing.recall, asked, desk.now())


def _listed(mail: MailSummary) -> ListedMail:
    sender = one_line(mail.sender)[:200]
    return ListedMail(
        id=mail.id,
        sender=sender,
        subject=one_line(mail.subject)[:200],
        unread="UNREAD" in mail.labels,
    )
