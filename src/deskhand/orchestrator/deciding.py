"""What the person does with a mail that triage left to them: reply, archive, later, or leave it to an assistant.

A reply can be drafted to every other mail too.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from deskhand.app import Desk
from deskhand.clock import iso
from deskhand.errors import (
    AuthRequired,
    Denied,
    DeskError,
    InvalidInput,
    NotFound,
    Unavailable,
    printable,
)
from deskhand.gate.completing import own_address
from deskhand.gate.files import fenced
from deskhand.gate.outcomes import refuse_off
from deskhand.mail import FullMessage
from deskhand.mail.addresses import addresses_in
from deskhand.mail.answering import address_all, address_author, left_out
from deskhand.mail.changes import Deed
from deskhand.mail.mailboxes import find_own
from deskhand.orchestrator import conversations, drafting, files, mails, rules, steps
from deskhand.orchestrator.steps import Held, LeaseLost, Step
from deskhand.orchestrator.triage import Decision
from deskhand.orchestrator.watcher import find_id, key_of
from deskhand.store import Transaction

LONGEST_WORDS = 2000


async def find(desk: Desk, message_id: str) -> Step:
    """The step of a mail that the person may decide; Denied where it was decided."""
    step = await desk.store.read(steps.find, await key_of(desk, message_id))
    if step is None:
        raise NotFound(f"no mail {printable(message_id)} waits for your decision")
    if step.state not in steps.OPEN:
        raise _decided(step)
    return step


async def find_open(desk: Desk, message_id: str) -> Step:
    """The step that the person may decide for this mail: its own, or that of the newer
    mail of its conversation behind which it waits."""
    key = await key_of(desk, message_id)
    newer = await desk.store.read(steps.find_in_front, key)
    if newer is not None and newer.state in steps.OPEN:
        return newer
    return await find(desk, message_id)


async def reply(desk: Desk, message_id: str, text: str, *, to_all: bool) -> str:
    """Draft this reply; the id of the draft, which waits for the person's yes like any other."""
    if not text.strip():
        raise InvalidInput("Write the reply first; nothing was done.")
    decision = Decision(
        decision="draft_reply",
        confidence=1,
        reasoning="You wrote this reply.",
        reply_body=text,
    )
    step = await _decide(desk, await find(desk, message_id), decision, to_all=to_all)
    if step.data.draft_id is None:
        said = (
            step.data.decision.reasoning
            if step.data.decision
            else "it was decided otherwise"
        )
        raise InvalidInput(f"No draft could be made: {said}")
    return step.data.draft_id


async def reply_to_any(desk: Desk, message_id: str, text: str, *, to_all: bool) -> str:
    """Draft a reply to a mail, whatever became of it; one that waits for a decision is decided by that."""
    if not text.strip():
        raise InvalidInput("Write the reply first; nothing was done.")
    try:
        await find(desk, message_id)
    except (Denied, NotFound):
        return await drafting.draft_reply(desk, message_id, text.strip(), to_all=to_all)
    return await reply(desk, message_id, text, to_all=to_all)


async def find_addressees(desk: Desk, mail: FullMessage) -> tuple[str, list[str]] | None:
    """Whom an answer goes to, and whom one to all goes to as well; None where there is nobody."""
    account = await own_address(desk.mailbox, mail)
    own = {account, *await find_own(desk.mailbox, desk.settings)}
    return await asyncio.to_thread(_read_addressees, mail, own)


def _read_addressees(mail: FullMessage, own: set[str]) -> tuple[str, list[str]] | None:
    try:
        author = address_author(mail, own)
        lines = address_all(mail, own)
    except InvalidInput:
        return None
    everybody = [each for line in lines for each in addresses_in(line)]
    return author, left_out(everybody, own, {author})


async def demand_shown(desk: Desk, message_id: str, seen: str) -> None:
    """Refuse to decide about a mail behind which others wait than the person was shown."""
    key = await key_of(desk, message_id)
    _demand_same(await desk.store.read(steps.list_behind, key), seen)


def _demand_same(behind: Sequence[Step], seen: str) -> None:
    if conversations.digest(behind) != seen:
        raise Denied(
            "Another earlier mail of this conversation came since you were shown it. Nothing was done.",
            reason="changed",
            hint="look at it, and decide again",
        )


async def archive(desk: Desk, message_id: str, seen: str) -> None:
    """Out of the inbox with the earlier mails of its conversation that were shown, and its note to Done."""
    if off := desk.settings.sending_off:
        raise refuse_off(off, "nothing is changed")
    step = await find(desk, message_id)
    behind = await desk.store.read(steps.list_behind, step.key)
    _demand_same(behind, seen)
    ids = [message_id, *[await find_id(desk, each) for each in behind]]
    await desk.mailbox.change(ids, Deed("archive"))
    decision = Decision(decision="archive", confidence=1, reasoning="You archived it.")
    try:
        await _decide(desk, step, decision)
    except Denied:
        after = await desk.store.read(steps.find, step.key)
        if after is None or after.data.gone is None:
            raise
        # That it had left the inbox was seen, and taken up, in this very moment.
    shown = {each.key for each in behind}
    came = await desk.store.write(partial(steps.release, key=step.key, but=shown))
    await conversations.bring_back(desk, came)


async def put_off(desk: Desk, message_id: str, until: datetime | None) -> None:
    """Until then it is not shown; without a time it is back."""
    if until is not None and until <= desk.now():
        raise InvalidInput("That time is over; nothing was changed.")
    step = await find(desk, message_id)
    if not await desk.store.write(steps.put_off, step.key, until):
        raise _decided(step)


async def hand_over(desk: Desk, message_id: str, words: str) -> None:
    """Leave it to an assistant: `list_pending` tells it what the person asks for."""
    asked = words.strip()[:LONGEST_WORDS]
    if not asked:
        raise InvalidInput("Say what the assistant should do; nothing was done.")
    step = await find(desk, message_id)
    if not await desk.store.write(steps.hand_over, step, asked):
        raise _decided(step)
    await _mark(
        desk,
        step,
        {"handed_over": iso(desk.now())},
        f"## For an assistant\n\n{fenced(asked)}",
    )


async def take_back(desk: Desk, message_id: str) -> None:
    step = await find(desk, message_id)
    if not await desk.store.write(steps.hand_over, step, None):
        raise _decided(step)
    await conversations.gather(desk, step)


async def apply_rules(desk: Desk, rule: rules.Rule) -> int:
    """Let the rules decide again about what waits and suits this one; how many mails that are.

    Of a conversation those behind a mail that suits it are decided too where it suits them; the others wait again.
    """
    woken = 0
    for step in await desk.store.read(steps.list_left, desk.now(), steps.MOST_LEFT):
        if not await _suits(desk, rule, step):
            continue
        behind = await desk.store.read(steps.list_behind, step.key)
        also = [each for each in behind if await _suits(desk, rule, each)]
        woken += await desk.store.write(_wake_all, [step, *also], desk.now())
    return woken


def _wake_all(tx: Transaction, chosen: Sequence[Step], now: datetime) -> int:
    states: tuple[steps.State, ...] = (*steps.LEFT, "continued")
    return sum(steps.wake(tx, step, step.data, states, now) for step in chosen)


async def _suits(desk: Desk, rule: rules.Rule, step: Step) -> bool:
    """Whether the rule is about this mail; one that cannot be read now stays with the person."""
    with suppress(NotFound, Unavailable, AuthRequired):
        return rule.holds(await desk.mailbox.get(await find_id(desk, step)))
    return False


async def _decide(
    desk: Desk, step: Step, decision: Decision, *, to_all: bool = False
) -> Step:
    """Carry the decision out now, as a worker would; what cannot be done now a worker tries again."""
    lease = timedelta(seconds=desk.settings.lease_seconds)
    decided = {"proposed": decision, "by_person": True, "to_all": to_all}
    data = step.data.model_copy(update=decided)
    claimed = None
    if await desk.store.write(steps.wake, step, data, steps.OPEN, desk.now()):
        claimed = await desk.store.write(steps.claim_named, step.key, desk.now(), lease)
    if claimed is None:
        raise _decided(step)
    by = mails.Triage(rules.RulesFile(desk.settings.home), None)
    async with Held(desk.store, claimed, lease, desk.now) as held:
        try:
            await mails.advance(desk, by, held)
        except LeaseLost:
            raise _decided(step) from None
        except DeskError as error:
            await held.postpone(error.line, desk.now() + steps.backoff(0, 0.5))
            raise
        return held.step


async def _mark(desk: Desk, step: Step, marks: dict[str, Any], appended: str) -> None:
    if step.data.note is not None:
        with suppress(FileNotFoundError, NotFound):
            await asyncio.to_thread(
                files.mark,
                desk.own_root,
                files.NEEDS_ACTION,
                step.data.note,
                marks,
                appended,
            )


def _decided(step: Step) -> Denied:
    if step.state == "continued":
        return Denied(
            "A newer mail of this conversation has come, and waits for your decision. Nothing was done.",
            reason="decided",
        )
    return Denied(
        f"This mail was decided meanwhile ({step.state}). Nothing was done.",
        reason="decided",
    )
