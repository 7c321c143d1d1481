"""The person's last decision about a mail: taken back while its seconds last, all of it or nothing.

What a decision changes is looked at before and after it: the mail's step, its note, and where the mail lies.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from deskhand.app import Desk
from deskhand.errors import Denied, DeskError, NotFound
from deskhand.gate import ledger
from deskhand.gate.ledger import Conflict
from deskhand.gate.requests import Request
from deskhand.mail import MailSummary
from deskhand.mail.changes import Deed, find_way_back
from deskhand.orchestrator import conversations, elsewhere, files, steps
from deskhand.orchestrator.steps import Step
from deskhand.orchestrator.watcher import key_of
from deskhand.store import Transaction

Word = Literal["replied", "archived", "later", "handed"]


@dataclass(frozen=True, slots=True)
class _NoteSeen:
    folder: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Before:
    """A mail that is about to be decided, with all that the decision may change."""

    message_id: str
    step: Step
    later: datetime | None
    note: _NoteSeen | None
    mails: Sequence[MailSummary]

    @property
    def subject(self) -> str:
        return self.mails[0].subject if self.mails else ""


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided, and what is needed to take it back."""

    word: Word
    at: datetime
    before: Before
    after: Step
    later: datetime | None
    note: _NoteSeen | None
    typed: dict[str, str]
    """The reply as it was typed: it is offered again."""

    @property
    def message_id(self) -> str:
        return self.before.message_id


async def look_before(desk: Desk, message_id: str) -> Before | None:
    """The mail as it is now; None where no decision about it is left."""
    step = await desk.store.read(steps.find, await key_of(desk, message_id))
    if step is None:
        return None
    mails: list[MailSummary] = []
    for each in (message_id, *await conversations.list_behind(desk, step)):
        with suppress(NotFound):
            mails += await desk.mailbox.list_mails([each])
    later = await desk.store.read(steps.find_later, step.key)
    return Before(message_id, step, later, await _see_note(desk, step), mails)


async def remember(
    desk: Desk, word: Word, before: Before, typed: dict[str, str]
) -> Decided | None:
    """What was decided just now, by how the mail is afterwards."""
    after = await desk.store.read(steps.find, before.step.key)
    if after is None:
        return None
    later = await desk.store.read(steps.find_later, after.key)
    note = await _see_note(desk, after)
    return Decided(word, desk.now(), before, after, later, note, typed)


async def take_back(desk: Desk, decided: Decided) -> None:
    """The mail waits for the person again, as before."""
    draft = await desk.store.write(_take_back, decided)
    if draft is not None:
        await desk.door.follow(draft)
    if decided.word == "archived":
        for deed, ids in find_way_back(Deed("archive"), decided.before.mails):
            await desk.mailbox.change(ids, deed)
            await elsewhere.heed(desk, ids, deed)
    name = decided.before.step.data.note
    seen, now = decided.before.note, decided.note
    if name is not None and seen is not None and now is not None:
        await asyncio.to_thread(_put_back, desk.own_root, name, seen, now)
    await conversations.gather(desk, decided.before.step)


def _take_back(tx: Transaction, decided: Decided) -> Request | None:
    """The step as it was, and the draft of a reply withdrawn; the number of drafts stays: no two have one id."""
    before, after = decided.before, decided.after
    data = before.step.data.model_copy(update={"drafts": after.data.drafts})
    if not steps.restore(tx, after, before.step.state, data, before.later):
        raise _too_late()
    if decided.word != "replied" or after.data.draft_id is None:
        return None
    draft = ledger.find(tx, after.data.draft_id)
    if draft is None or draft.state != "waiting" or draft.action != draft.proposed:
        raise _too_late()
    closed = ledger.change(tx, draft, "withdrawn", due=None, note="You took it back.")
    if isinstance(closed, Conflict):
        raise _too_late()
    return closed


def _too_late() -> Denied:
    return Denied(
        "It is too late to undo that: it went on meanwhile. Nothing was changed.",
        reason="left",
    )


async def _see_note(desk: Desk, step: Step) -> _NoteSeen | None:
    if step.data.note is None or desk.settings.vault_path is None:
        return None
    with suppress(DeskError, OSError):
        return await asyncio.to_thread(_read_note, desk.own_root, step.data.note)
    return None


def _read_note(root: Path, name: str) -> _NoteSeen | None:
    folder = files.where(root, name)
    if folder is None:
        return None
    data = files.read_own(root, folder, name)
    if data is None:
        return None
    return _NoteSeen(folder, data)


def _put_back(root: Path, name: str, before: _NoteSeen, after: _NoteSeen) -> None:
    """The note where and as it was; one that somebody has changed meanwhile keeps what it says."""
    if files.where(root, name) != after.folder:
        return
    if before.folder != after.folder:
        files.move(root, name, after.folder, before.folder)

    def unchanged(old: bytes | None) -> bytes:
        if old is None or old != after.data:
            return old or b""
        return before.data

    files.change(root, (before.folder,), name, unchanged)
