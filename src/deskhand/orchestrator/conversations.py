"""Conversations: of the mails that wait the newest stands for the earlier ones, and the person's answer ends it."""

import asyncio
from contextlib import suppress
from typing import Any

from deskhand.app import Desk
from deskhand.clock import iso
from deskhand.errors import NotFound
from deskhand.mail import FullMessage, MailSummary
from deskhand.mail.forwarding import is_forward
from deskhand.mail.mailboxes import split
from deskhand.orchestrator import files, pending, steps, watcher
from deskhand.orchestrator.reminding import is_by_machine
from deskhand.orchestrator.steps import Step

MOST_SENT = 50
"""The person's own mails that are looked at for an answer, the newest."""


async def settle(desk: Desk, step: Step, mail: FullMessage) -> None:
    """Put a mail that waits for the person to the others of its conversation."""
    thread = ""
    if mail.summary.thread_id:
        thread = name_thread(watcher.mailbox_of(step), mail.summary)
    date = mail.summary.date
    await desk.store.write(steps.place, step.key, thread, date, is_bulk=mail.list_mail)
    await gather(desk, step)


def name_thread(mailbox: str, mail: MailSummary) -> str:
    """How the rows know a conversation, whatever the person calls the account."""
    return f"{mailbox}:{split(mail.thread_id)[1]}"


async def gather(desk: Desk, step: Step) -> None:
    """Let the newest mail of its conversation that waits stand for the others, whose notes are done."""
    gathered = await desk.store.write(steps.gather, step.key)
    if gathered is None:
        return
    newest, earlier = gathered
    by = newest.data.note or newest.data.message_id
    for each in earlier:
        await _finish(desk, each, {"continued_by": by})


async def list_behind(desk: Desk, step: Step) -> list[str]:
    """The earlier mails for which this one waits, by the ids that they have now."""
    behind = await desk.store.read(steps.list_behind, step.key)
    return [await watcher.find_id(desk, each) for each in behind]


async def _finish(desk: Desk, step: Step, marks: dict[str, Any]) -> None:
    if step.data.note is not None and desk.settings.vault_path is not None:
        done = {"status": "done", **marks}
        await asyncio.to_thread(files.finish, desk.own_root, step.data.note, done)


class Conversations:
    """Looks whether the person has answered, here or in another program, what still waits for them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._seen: dict[str, tuple[str, int]] = {}
        """Of each mailbox the last own mail, and the last work at what waits, that were looked at."""

    async def look(self, account: str) -> None:
        desk = self._desk
        mailbox = await watcher.mailbox_name(desk, account)
        await self._place_old(mailbox)
        tried = await desk.store.read(steps.last_tried)
        if tried is None:
            return
        box = desk.account_mailbox(account)
        newest = await box.search("in:sent", 1)
        if not newest or self._seen.get(mailbox) == (newest[0].id, tried):
            return
        sent = await box.search("in:sent", MOST_SENT)
        await self._end_answered(account, mailbox, sent)
        self._seen[mailbox] = (newest[0].id, tried)

    async def _place_old(self, mailbox: str) -> None:
        """Mails that waited before the desk knew of conversations, or while it was ended."""
        desk = self._desk
        for step in await desk.store.read(steps.list_unplaced, steps.MOST_LEFT):
            if watcher.mailbox_of(step) != mailbox:
                continue
            try:
                mail = await pending.fetch(desk, step)
            except NotFound:
                await desk.store.write(steps.place, step.key, "", desk.now(), is_bulk=False)
            else:
                await settle(desk, step, mail)

    async def _end_answered(
        self, account: str, mailbox: str, sent: list[MailSummary]
    ) -> None:
        desk = self._desk
        box = desk.account_mailbox(account)
        replies = [mail for mail in sent if not is_forward(mail.subject)]
        threads = {name_thread(mailbox, mail) for mail in replies}
        for thread, received, step in await desk.store.read(steps.list_open_in, threads):
            own_id = split(step.data.message_id)[1]
            for mail in replies:
                is_later = mail.date >= received and mail.id != own_id
                if name_thread(mailbox, mail) != thread or not is_later:
                    continue
                with suppress(NotFound):
                    raw = await box.read_raw(mail.id)
                    if not await asyncio.to_thread(is_by_machine, raw):
                        await self._end(step)
                        break

    async def _end(self, step: Step) -> None:
        desk = self._desk
        if await desk.store.write(steps.become, step.key, "answered", steps.OPEN):
            await _finish(desk, step, {"answered_at": iso(desk.now())})
            facts = {"done": "answered"}
            await desk.record(
                "orchestrator", "decide_mail", step.data.message_id, facts, None, 0
            )
