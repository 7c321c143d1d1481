"""What was done elsewhere with mails that wait: one that was archived or trashed is decided, and waits no more.

What the desk itself does with mails, for the person or a tool, is heeded at once; what other programs do is looked for.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from deskhand.app import Desk
from deskhand.errors import NoAccount, NotFound
from deskhand.mail import Mailbox, MailSummary
from deskhand.mail.changes import Deed
from deskhand.mail.mailboxes import split
from deskhand.orchestrator import conversations, steps, watcher
from deskhand.orchestrator.steps import Gone, Step
from deskhand.store import Transaction

EVERY = timedelta(seconds=20)
"""No mailbox is asked more often, however much arrives."""
_IN_ONE_SEARCH = 20
_AT_ONCE = 100
"""Mails that are looked for at a time; where more wait, the others have the next turns."""
_MOST_MISSING = 25
"""Mails that are looked up one by one at a time."""
_SEARCHED = re.compile(r"[!#-'*-;=?-\[\]-z|~]{1,150}")
"""A Message-ID that can stand in a search: of printable ASCII, without brackets, quotes and backslashes."""


class Elsewhere:
    """Looks whether mails that wait are still in the inbox."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._looked: dict[str, datetime] = {}
        """When each mailbox was asked last."""
        self._after: dict[str, str] = {}
        """The key after which the next turn of a mailbox begins."""

    async def look(self, account: str, mailbox: str) -> None:
        now = self._desk.now()
        last = self._looked.get(mailbox)
        if last is not None and timedelta(0) <= now - last < EVERY:
            return
        self._looked[mailbox] = now
        chosen = await self._choose(mailbox)
        box = self._desk.account_mailbox(account)
        found = [
            (step, gone)
            for step, mail in await _read(box, await _find_missing(box, chosen))
            if (gone := _name_place(mail)) is not None
        ]
        await _end(self._desk, found)

    async def _choose(self, mailbox: str) -> list[Step]:
        """Those whose turn it is and that lay in the inbox when they began to wait."""
        after = self._after.get(mailbox, "")
        turn = await self._desk.store.read(steps.list_in_mailbox, mailbox, after, _AT_ONCE)
        self._after[mailbox] = turn[-1].key if len(turn) == _AT_ONCE else ""
        return [
            step
            for step in turn
            if step.data.in_inbox and watcher.mailbox_of(step) == mailbox
        ]


async def _find_missing(box: Mailbox, waiting: Sequence[Step]) -> list[Step]:
    """Those that a search of the inbox does not find, or that no search can name."""
    named = [step for step in waiting if _SEARCHED.fullmatch(step.data.header)]
    seen: set[str] = set()
    for at in range(0, len(named), _IN_ONE_SEARCH):
        some = named[at : at + _IN_ONE_SEARCH]
        any_of = " OR ".join(f"rfc822msgid:{step.data.header}" for step in some)
        found = await box.search(f"in:inbox ({any_of})", 2 * _IN_ONE_SEARCH)
        seen |= {mail.id for mail in found}
    unseen = [step for step in waiting if _own_id(step) not in seen]
    unseen.sort(key=named.__contains__, reverse=True)  # of the others most are there
    return unseen[:_MOST_MISSING]


async def _read(
    box: Mailbox, missing: Sequence[Step]
) -> list[tuple[Step, MailSummary | None]]:
    """Each with its mail; None where the mailbox does not have it any more."""
    try:
        mails = await box.list_mails([_own_id(step) for step in missing])
    except NotFound:
        if len(missing) == 1:
            return [(missing[0], None)]
        return [pair for step in missing for pair in await _read(box, [step])]
    return list(zip(missing, mails, strict=True))


def _own_id(step: Step) -> str:
    return split(step.data.message_id)[1]


def _name_place(mail: MailSummary | None) -> Gone | None:
    """What became of a mail that was in the inbox; None where it is there."""
    if mail is None:
        return "deleted"
    if "TRASH" in mail.labels:
        return "trashed"
    if "SPAM" in mail.labels:
        return "spam"
    return None if "INBOX" in mail.labels else "archived"


# What the desk itself does.


async def heed(desk: Desk, ids: Iterable[str], change: Deed) -> None:
    """Take up what the person or a tool has just done with mails through this desk."""
    if change.do not in ("archive", "trash", "unarchive", "untrash"):
        return
    keys = []
    for message_id in ids:
        with suppress(NoAccount):
            keys.append(await watcher.key_of(desk, message_id))
    found = await desk.store.read(_find_all, keys)
    if change.do == "trash":
        await _end(desk, [(step, "trashed") for step in found])
    elif change.do == "archive":
        await _end(desk, [(step, "archived") for step in found if step.data.in_inbox])
    else:
        await _bring_back(desk, found)


def _find_all(tx: Transaction, keys: Sequence[str]) -> list[Step]:
    return [step for key in keys if (step := steps.find(tx, key)) is not None]


async def _end(desk: Desk, found: Sequence[tuple[Step, Gone]]) -> None:
    """End these; those behind one of them that are still there wait again."""
    ended = []
    for step, gone in found:
        if await desk.store.write(steps.end_gone, step.key, gone):
            ended.append(step)
            await conversations.finish(desk, step, {"left_inbox": gone})
            facts = {"done": gone}
            await desk.record("orchestrator", "decide_mail", step.data.message_id, facts)
    for step in ended:
        released = await desk.store.write(steps.release, step.key)
        await conversations.bring_back(desk, released)


async def _bring_back(desk: Desk, found: Sequence[Step]) -> None:
    """Those that were ended because they were archived or trashed wait again, now that they are back."""
    for step in found:
        if not await desk.store.write(steps.reopen_gone, step.key):
            continue
        await conversations.bring_back(desk, [step])
        facts = {"done": "back"}
        await desk.record("orchestrator", "decide_mail", step.data.message_id, facts)
