"""The first look into a mailbox: the person says whether its unread mail is brought in, before a note is written."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from deskhand.app import Desk
from deskhand.errors import DeskError, FieldProblem, InvalidInput, NotFound, printable
from deskhand.orchestrator import steps
from deskhand.orchestrator.watcher import FIRST_MOST, mailbox_name, recent_mail
from deskhand.store import Row, Transaction

Answer = Literal["all", "new", "none"]
ANSWERS: tuple[Answer, ...] = get_args(Answer)
GLANCE = 0.5
_COLUMNS = "mailbox, found, days, cursor, answer"


@dataclass(frozen=True, slots=True)
class FirstLook:
    mailbox: str
    found: int
    """How many mails would be brought in."""
    days: int
    cursor: str
    """The end of the mailbox when the person was asked: what came later is new."""
    answer: Answer | None

    @property
    def question(self) -> str:
        more = "or more " if self.found >= FIRST_MOST else ""
        mails = "mail" if self.found == 1 else "mails"
        them = "it" if self.found == 1 else "them"
        days = "day" if self.days == 1 else f"{self.days} days"
        return f"{self.found} {more}unread {mails} of the last {days} in {self.address}: bring {them} in?"

    @property
    def address(self) -> str:
        return self.mailbox.partition(":")[2]


async def may_begin(desk: Desk, account: str, *, asks: bool) -> bool:
    """Whether mail of this account is brought in; where nobody has said so yet, the person is asked or it is."""
    mailbox = await mailbox_name(desk, account)
    if await desk.store.read(steps.cursor, mailbox) is not None:
        return True
    look = await desk.store.read(find, mailbox)
    answer = look.answer if look else None
    if answer is None and desk.settings.first_mail != "ask":
        answer = desk.settings.first_mail
    if answer is None and asks:
        return look is None and not await _ask(desk, account, mailbox)
    if answer == "new":
        position = look.cursor if look else await desk.account_mailbox(account).position()
        await desk.store.write(
            partial(steps.advance, mailbox=mailbox, old=None, new=position)
        )
    return answer != "none"


async def _ask(desk: Desk, account: str, mailbox: str) -> bool:
    """Whether there is anything to ask about; the question is written down then."""
    position = await desk.account_mailbox(account).position()
    mails = await recent_mail(desk, account)
    if not mails:
        return False
    await desk.store.write(
        _insert, FirstLook(mailbox, len(mails), desk.settings.first_days, position, None)
    )
    return True


async def ask_everywhere(
    desk: Desk,
) -> tuple[list[FirstLook], dict[str, DeskError]]:
    """What the person has to answer, for every account of the desk; and which of several
    accounts do not answer."""
    names = [account.name for account in desk.settings.mail_accounts]
    silent: dict[str, DeskError] = {}
    for name in names:
        try:
            await may_begin(desk, name, asks=True)
        except DeskError as error:
            silent[name] = error
    if len(silent) == len(names):
        raise silent[names[0]]
    return await desk.store.read(list_open), silent


async def answer(desk: Desk, mailbox: str, given: str) -> FirstLook:
    """The person's word; a later one counts as long as no mail was brought in."""
    said = next((each for each in ANSWERS if each == given), None)
    if said is None:
        problem = FieldProblem(
            "answer", "is none of the answers", printable(given), ", ".join(ANSWERS)
        )
        raise InvalidInput("that is no answer", fields=[problem])
    look = await desk.store.write(_set_answer, mailbox, said)
    if look is None:
        raise NotFound(
            f"nobody asks about a mailbox {printable(mailbox)}", hint="reload the page"
        )
    await desk.record(
        "person", "bring_in", look.address, {"answer": said, "found": look.found}
    )
    return look


async def wait_for_answer(desk: Desk, mailbox: str, seconds: float) -> None:
    """Return when the person has said something new, at the latest after `seconds`."""
    before = await desk.store.read(find, mailbox)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while await desk.store.read(find, mailbox) == before:  # noqa: ASYNC110 - another process may answer
                await asyncio.sleep(GLANCE)


# Its table.


def find(tx: Transaction, mailbox: str) -> FirstLook | None:
    row = tx.one(f"SELECT {_COLUMNS} FROM first_looks WHERE mailbox = ?", mailbox)
    return _look(row) if row else None


def list_open(tx: Transaction) -> list[FirstLook]:
    """The questions that wait for an answer."""
    sql = f"SELECT {_COLUMNS} FROM first_looks WHERE answer IS NULL ORDER BY mailbox"
    return [_look(row) for row in tx.all(sql)]


def list_declined(tx: Transaction) -> list[FirstLook]:
    """The mailboxes out of which the person wants nothing brought in."""
    sql = f"SELECT {_COLUMNS} FROM first_looks WHERE answer = 'none' ORDER BY mailbox"
    return [_look(row) for row in tx.all(sql)]


def _insert(tx: Transaction, look: FirstLook) -> None:
    tx.execute(
        f"INSERT INTO first_looks ({_COLUMNS}) VALUES (?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING",
        *(look.mailbox, look.found, look.days, look.cursor),
    )


def _set_answer(tx: Transaction, mailbox: str, said: Answer) -> FirstLook | None:
    tx.execute("UPDATE first_looks SET answer = ? WHERE mailbox = ?", said, mailbox)
    return find(tx, mailbox)


def _look(row: Row) -> FirstLook:
    return FirstLook(*row)
