"""Conversations: of the mails that wait the newest stands for the earlier ones, and the person's answer ends it.

A mail stands for another one only where its sender took part in that; what somebody else than the person decides about
it counts for it alone.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any

from deskhand.app import Desk
from deskhand.clock import iso
from deskhand.errors import NotFound
from deskhand.gate.completing import own_address
from deskhand.mail import FullMessage, MailSummary, mime
from deskhand.mail.addresses import addresses_in
from deskhand.mail.forwarding import is_forward
from deskhand.mail.mailboxes import find_own, split
from deskhand.orchestrator import files, pending, steps, watcher
from deskhand.orchestrator.reminding import is_by_machine
from deskhand.orchestrator.steps import Held, Placing, State, Step

MOST_SENT = 50
"""The person's own mails that are looked at for an answer, the newest."""
MOST_PEOPLE = 100
"""Of one mail, who are known to take part; what a mail to more people gathers is not worth its row."""


async def settle(
    desk: Desk, step: Step, mail: FullMessage, *, has_waited: bool = False
) -> None:
    """Put a mail that waits for the person to the others of its conversation.

    One that `has_waited` for long began in the inbox, from which all come but what only a note named.
    """
    thread = ""
    if mail.summary.thread_id:
        thread = name_thread(watcher.mailbox_of(step), mail.summary)
    own = {
        await own_address(desk.mailbox, mail),
        *await find_own(desk.mailbox, desk.settings),
    }
    people = await asyncio.to_thread(_list_people, mail, own)
    lay_there = has_waited and not step.data.from_note
    placing = Placing(
        thread,
        mail.summary.date,
        people,
        header=mail.message_id.strip("<>"),
        in_inbox=lay_there or "INBOX" in mail.summary.labels,
        is_bulk=mail.list_mail,
    )
    await desk.store.write(steps.place, step.key, placing)
    await gather(desk, step)


def _list_people(mail: FullMessage, own: set[str]) -> tuple[str, ...]:
    """Whom the mail names in its head, without the person."""
    head = mail.summary
    lines = (head.sender, mail.reply_to, mail.list_post, head.to, mail.cc)
    mine = {address.lower() for address in own}
    named = (address.lower() for line in lines for address in addresses_in(line))
    return tuple(dict.fromkeys(each for each in named if each not in mine))[:MOST_PEOPLE]


def name_thread(mailbox: str, mail: MailSummary) -> str:
    """How the rows know a conversation, whatever the person calls the account."""
    return f"{mailbox}:{split(mail.thread_id)[1]}"


async def gather(desk: Desk, step: Step) -> None:
    """Let newer mails of its conversation that wait stand for earlier ones, whose notes are done."""
    for earlier, newer in await desk.store.write(steps.gather, step.key):
        by = newer.data.note or newer.data.message_id
        await finish(desk, earlier, {"continued_by": by})


async def list_behind(desk: Desk, step: Step) -> list[str]:
    """The earlier mails for which this one waits, by the ids that they have now."""
    behind = await desk.store.read(steps.list_behind, step.key)
    return [await watcher.find_id(desk, each) for each in behind]


def digest(behind: Sequence[Step]) -> str:
    """By which those behind a mail are known to be the ones that the person was shown;
    empty where there are none."""
    keys = sorted(step.key for step in behind)
    return sha256(json.dumps(keys).encode()).hexdigest() if keys else ""


async def rest_alone(
    desk: Desk, held: Held, state: State, error: str | None = None
) -> None:
    """Let a mail rest that somebody else than the person ended: the earlier ones wait for the person again."""
    released: list[Step] = []
    key = held.step.key
    await held.rest(state, error, lambda tx: released.extend(steps.release(tx, key)))
    await bring_back(desk, released)


async def bring_back(desk: Desk, released: Sequence[Step]) -> None:
    """The notes of mails that wait again lie where such notes do; of these too newer mails
    stand for earlier ones."""
    if desk.settings.vault_path is not None:
        for each in released:
            if each.data.note is not None:
                await asyncio.to_thread(files.reopen, desk.own_root, each.data.note)
    for each in released[:1]:
        await gather(desk, each)


def _answers(raw: bytes, step: Step) -> bool:
    """Whether the person's own mail answers this one of its conversation: it goes to
    somebody who takes part in it."""
    if is_by_machine(raw):
        return False
    people = {step.data.sender, *step.data.people}
    sent = mime.parse(raw)
    named = (each for line in (sent.to, sent.cc) for each in addresses_in(line))
    return any(address.lower() in people for address in named)


async def finish(desk: Desk, step: Step, marks: dict[str, Any]) -> None:
    """Its note is done, and says why."""
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
                await desk.store.write(steps.place, step.key, Placing("", desk.now()))
            else:
                await settle(desk, step, mail, has_waited=True)

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
                    if await asyncio.to_thread(_answers, raw, step):
                        await self._end(step)
                        break

    async def _end(self, step: Step) -> None:
        desk = self._desk
        if await desk.store.write(steps.become, step.key, "answered", steps.OPEN):
            await finish(desk, step, {"answered_at": iso(desk.now())})
            facts = {"done": "answered"}
            await desk.record("orchestrator", "decide_mail", step.data.message_id, facts)
