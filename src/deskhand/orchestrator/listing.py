"""The mails that wait, as a list shows them: an account that has gone or does not answer hides no mail of another."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from deskhand.app import Desk
from deskhand.errors import DeskError, NoAccount, NotFound, TimedOut
from deskhand.mail import MailSummary
from deskhand.mail.mailboxes import PATIENCE, Mailboxes, carry, split
from deskhand.orchestrator import pending
from deskhand.orchestrator.steps import Step
from deskhand.orchestrator.watcher import find_account, mailbox_of


@dataclass(frozen=True, slots=True)
class WaitingMail:
    step: Step
    """Its mail has the id by which the desk knows it now."""
    summary: MailSummary | None
    """None where the mailbox does not have it, or does not answer."""


@dataclass(slots=True)
class Listing:
    mails: list[WaitingMail]
    silent: dict[str, DeskError] = field(default_factory=dict)
    """Why mails could only be named, by the account or its address."""

    def describe_silent(self) -> list[str]:
        return [_describe(name, error) for name, error in self.silent.items()]


def _describe(name: str, error: DeskError) -> str:
    if isinstance(error, NoAccount):
        return f"{error.message[0].upper()}{error.message[1:]}: {error.hint}."
    return f"The mail account {name} did not answer, so its mails are only named here: {error.message}"


async def list_mails(desk: Desk, found: Sequence[Step]) -> Listing:
    """Each step with its mail. A desk of one account that does not answer has nothing to show, and says so."""
    several = desk.mailbox
    if not isinstance(several, Mailboxes):
        return Listing(await _list(desk, found))
    groups: dict[str, list[Step]] = {}
    for step in found:
        groups.setdefault(mailbox_of(step), []).append(step)
    answers = await asyncio.gather(
        *(_listen(desk, several, group) for group in groups.values())
    )
    listing = Listing([])
    shown: dict[str, WaitingMail] = {}
    for group, answer in zip(groups.values(), answers, strict=True):
        if isinstance(answer, _Silence):
            listing.silent[answer.name] = answer.error
            shown |= {step.key: WaitingMail(step, None) for step in group}
        else:
            shown |= {each.step.key: each for each in answer}
    listing.mails = [shown[step.key] for step in found]
    return listing


@dataclass(frozen=True, slots=True)
class _Silence:
    name: str
    error: DeskError


async def _listen(
    desk: Desk, mailboxes: Mailboxes, group: Sequence[Step]
) -> list[WaitingMail] | _Silence:
    """The mails of one account, as long as somebody waits for it who wants to see the others."""
    name = mailbox_of(group[0]).partition(":")[2]
    try:
        async with asyncio.timeout(PATIENCE.brief):
            name = await find_account(desk, group[0])
    except TimeoutError:
        return _Silence(name, TimedOut("it did not answer in time"))
    except DeskError as error:
        return _Silence(name, error)
    placed = [place(step, name) for step in group]
    answer = await mailboxes.listen_to(name, _list(desk, placed))
    if isinstance(answer, DeskError):
        return _Silence(name, answer)
    return answer


def place(step: Step, account: str) -> Step:
    """The step, its mail by the id that it has in the account of this name."""
    own = split(step.data.message_id)[1]
    if "@" in own:
        return step
    data = step.data.model_copy(update={"message_id": carry(account, own)})
    return replace(step, data=data)


async def _list(desk: Desk, placed: Sequence[Step]) -> list[WaitingMail]:
    ids = [step.data.message_id for step in placed]
    try:
        mails = {mail.id: mail for mail in await desk.mailbox.list_mails(ids)}
    except NotFound:
        every = await asyncio.gather(*(_summary(desk, step) for step in placed))
        return list(map(WaitingMail, placed, every))
    return [WaitingMail(step, mails.get(step.data.message_id)) for step in placed]


async def _summary(desk: Desk, step: Step) -> MailSummary | None:
    try:
        return (await pending.fetch(desk, step)).summary
    except NotFound:
        return None
