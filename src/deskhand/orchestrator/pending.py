"""Notes in Needs_Action that somebody else wrote: another watcher, the person, an assistant.

Each names a mail by its id, and for each mail there is one step, for ever: however often its note is copied, renamed or
brought back, it is decided once. Where the mailbox has the mail, what it says counts and not what the note says.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from deskhand.app import Desk
from deskhand.errors import DeskError, InvalidInput, NotFound, printable
from deskhand.gate import lists
from deskhand.mail import FullMessage, MailSummary
from deskhand.mail.addresses import people
from deskhand.notes import frontmatter
from deskhand.orchestrator import files, steps, watcher
from deskhand.orchestrator.steps import MailFacts, Step
from deskhand.store import Transaction

log = logging.getLogger("deskhand.pending")

_MESSAGE_ID = (
    "message_id",
    "id",
    "gmail_id",
    "email_id",
    "source_message_id",
    "original_message_id",
)
_SENDER = ("from", "sender", "from_address")
_FRESH = timedelta(seconds=10)
_MOST_FRESH = 50
_LONGEST_ID = 998
_LONGEST_FIELD = 2000
_HEADER_ID = re.compile(r"[^\s<>\"()]+@[^\s<>\"()]+")
_OURS = ("email_send", "email_reply", "email_draft")
"""Requests and drafts are no mail that came in."""
_STATUS: dict[steps.State, str] = {
    "archived": "done",
    "answered": "done",
    "needs_info": "needs_info",
    "handed": "needs_info",
    "continued": "done",
    "delegated": "pending_approval",
    "drafted": "drafted",
    "rejected": "rejected",
}
"""What the note of a mail that was decided says."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a note says about a mail; anybody may have written it."""

    message_id: str
    sender: str
    subject: str
    text: str


def is_pending(note: frontmatter.Note) -> bool:
    """Whether it waits to be triaged; one whose properties cannot be read may well."""
    return (
        note.warning is not None
        or _text(_properties(note), "status").casefold() == "pending"
    )


def read_claim(note: frontmatter.Note) -> Claim:
    """A note that names no mail is refused with the reason."""
    if note.warning is not None:
        raise InvalidInput(note.warning)
    given = _properties(note)
    kind = _text(given, "type").casefold()
    if kind and ("mail" not in kind or kind in _OURS):
        raise InvalidInput(f"its type is {kind[:40]}, and only mail is triaged")
    message_id = _text(given, *_MESSAGE_ID).strip("<>")
    if not message_id:
        raise InvalidInput(
            "it has no message_id, so nobody could tell whether its mail was answered before"
        )
    if len(message_id) > _LONGEST_ID or not message_id.isprintable():
        raise InvalidInput("its message_id is none that a mailbox would give")
    return Claim(
        message_id,
        _text(given, *_SENDER),
        _text(given, "subject"),
        note.body[: watcher.LONGEST_TEXT],
    )


def _properties(note: frontmatter.Note) -> dict[str, Any]:
    """By their names, however those are written: `Message-ID` is `message_id`."""
    return {
        re.sub(r"[-\s]", "_", key.strip().casefold()): value
        for key, value in note.frontmatter.items()
    }


def _text(given: Mapping[str, Any], *names: str) -> str:
    """The first of these properties that is given; a mailbox may well give a number for an id."""
    for name in names:
        value = given.get(name)
        if (
            isinstance(value, str | int)
            and not isinstance(value, bool)
            and str(value).strip()
        ):
            return str(value).strip()[:_LONGEST_FIELD]
    return ""


# From a note to its step.


class PendingNotes:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._settled: set[files.Stamp] = set()
        """Notes with which nothing is left to do, so that none is read twice."""
        self.refused: dict[str, str] = {}
        """The notes that wait and are not triaged, and why."""
        self._fresh: list[str] = []
        """Notes that were written a moment ago: perhaps only their beginning."""

    @property
    def watched(self) -> tuple[str, ...]:
        """Where a change means that somebody should look: the folder, and each note that may not be complete."""
        return (files.NEEDS_ACTION, *self.refused, *self._fresh)

    async def look(self) -> None:
        """Make a step of each note that is new; one that cannot be taken up stops no other."""
        root = self._desk.own_root
        lying = await asyncio.to_thread(files.stamps, root, files.NEEDS_ACTION)
        self._settled.intersection_update(lying)
        since = (self._desk.now() - _FRESH).timestamp() * 1e9
        self._fresh = [
            f"{files.NEEDS_ACTION}/{stamp.name}"
            for stamp in lying[-_MOST_FRESH:]
            if stamp.changed > since
        ]
        refused: dict[str, str] = {}
        for stamp in lying:
            if stamp not in self._settled and (why := await self._explain_refusal(stamp)):
                refused[f"{files.NEEDS_ACTION}/{printable(stamp.name)}"] = why
        for path, why in refused.items():
            if self.refused.get(path) != why:
                log.warning("not_triaged", extra={"note": path, "why": why})
        self.refused = refused

    async def _explain_refusal(self, stamp: files.Stamp) -> str | None:
        """Take the note up; where that cannot be, why."""
        try:
            if await self._take_up(stamp.name):
                self._settled.add(stamp)
        except FileNotFoundError:
            return None  # it was moved in this moment
        except DeskError as error:
            return error.message
        except OSError as error:
            return f"it cannot be read: {error.strerror}"
        return None

    async def _take_up(self, name: str) -> bool:
        """Whether there is nothing more to do with the note itself."""
        root = self._desk.own_root
        note = await asyncio.to_thread(files.read, root, files.NEEDS_ACTION, name)
        if not is_pending(note):
            return True
        message_id = read_claim(note).message_id
        step = await self._find_step(message_id)
        if step is None:
            message_id = await self._find_id(message_id)
            step = await self._find_step(message_id)
        if step is None:
            data = MailFacts(message_id=message_id, note=name, from_note=True)
            key = await watcher.key_of(self._desk, message_id)
            await self._desk.store.write(steps.add, key, data, self._desk.now())
            return False  # another note of the same mail may have been faster
        known = step.data.note
        if known != name and (
            known is None or await asyncio.to_thread(files.where, root, known) is None
        ):
            step = await self._desk.store.write(
                steps.adopt_note, step.key, name, self._desk.now()
            )
            if step is None:
                return False  # somebody is at work on it
        if step.state in ("needs_info", "handed") and step.data.note == name:
            # Nobody has answered it, and whoever made it pending again wants it looked at again.
            await self._desk.store.write(
                steps.wake, step, step.data, (step.state,), self._desk.now()
            )
            return False
        if step.state in _STATUS:
            await asyncio.to_thread(self._mark, name, step)
        return step.state in _STATUS or step.data.note == name

    async def _find_step(self, message_id: str) -> Step | None:
        key = await watcher.key_of(self._desk, message_id)
        return await self._desk.store.read(_read_step, key, message_id)

    async def _find_id(self, message_id: str) -> str:
        """The id by which the mailbox itself knows the mail, whichever way the note names it."""
        with suppress(NotFound):
            return (await self._desk.mailbox.get(message_id)).summary.id
        if _HEADER_ID.fullmatch(message_id):
            for found in await self._desk.mailbox.search(f"rfc822msgid:{message_id}", 1):
                return found.id
        return message_id

    def _mark(self, name: str, step: Step) -> None:
        """The mail was decided before: its own note says how, any other that it is one more."""
        root = self._desk.own_root
        if step.data.note != name:
            marks = {"status": "duplicate", "duplicate_of": step.data.note}
            files.mark(root, files.NEEDS_ACTION, name, marks)
            return
        decision = step.data.decision
        marks = {
            "status": _STATUS[step.state],
            "decided_by": step.data.decided_by,
            "decided_at": step.data.decided_at,
        }
        if decision is not None:
            marks |= {"decision": decision.decision, "decision_reason": decision.reasoning}
        files.mark(root, files.NEEDS_ACTION, name, marks)
        if marks["status"] == "done":
            files.move(root, name, files.NEEDS_ACTION, files.DONE)


def _read_step(tx: Transaction, key: str, message_id: str) -> Step | None:
    """The step of a mail, also of one that was answered and is no longer in the mailbox."""
    answered = lists.find_answered(tx, message_id) if "@" in message_id else None
    return steps.find(tx, answered or key)


# From a step to its mail.


async def fetch(desk: Desk, step: Step) -> FullMessage:
    """The mail of a step: the mailbox's, else what its note says of it; NotFound where there is neither."""
    data = step.data
    claim = None
    if data.from_note and data.note is not None:
        with suppress(DeskError, FileNotFoundError):
            note = await asyncio.to_thread(
                files.read, desk.own_root, files.NEEDS_ACTION, data.note
            )
            claim = read_claim(note)
    try:
        mail = await desk.mailbox.get(await watcher.find_id(desk, step))
    except NotFound:
        if claim is None or claim.message_id != data.message_id:
            raise
        return _claimed(claim, data, desk.now())
    if claim is None:
        return mail
    return replace(mail, warnings=(*mail.warnings, *_differences(claim, mail)))


def is_claimed(mail: FullMessage) -> bool:
    """Whether only a note speaks of this mail."""
    return not mail.summary.thread_id


def _claimed(claim: Claim, data: MailFacts, now: datetime) -> FullMessage:
    warning = (
        f"the mailbox has no such mail: sender, subject and text are what the note {data.note} says,"
        " and a person, a program or an assistant may have written it"
    )
    summary = MailSummary(
        id=data.message_id,
        thread_id="",
        sender=claim.sender,
        to="",
        subject=claim.subject,
        date=now,
        date_header="",
        snippet=claim.text[:200],
        labels=(),
    )
    return FullMessage(
        summary=summary,
        cc="",
        reply_to="",
        message_id="",
        references=(),
        body=claim.text,
        body_from="plain",
        warnings=(warning,),
        attachments=(),
        list_mail=False,
    )


def _differences(claim: Claim, mail: FullMessage) -> list[str]:
    """Where a note speaks of another mail than the one that it names."""
    said = {person.address.lower() for person in people(claim.sender)}
    true = {person.address.lower() for person in people(mail.summary.sender)}
    found = []
    if said and not said & true:
        found.append(
            f"its note says that {', '.join(sorted(said))[:100]} wrote it, the mailbox says otherwise"
        )
    short, long = sorted((_plain(claim.subject), _plain(mail.summary.subject)), key=len)
    if claim.subject and not long.startswith(short.rstrip(".…")):
        found.append(f"its note gives it another subject: {printable(claim.subject, 100)}")
    return found


def _plain(subject: str) -> str:
    return " ".join(subject.casefold().split())
