"""The orchestrator's drafts: what the person makes of one is what leaves.

    Drafts/ ─► Approved/ ─► Approved/.sending/ ─► Done/
          └──► Rejected/

A draft is not sealed: the person may edit it, and what stands in the file when it lies in Approved/ is sent, once for
one draft, however often the file is copied. With sealed approvals a file that was merely moved releases nothing; the
page and `deskhand approve` write down what exactly was approved.
"""

import asyncio
import difflib
import json
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from deskhand import audit, clock
from deskhand.errors import Changed, Denied, DeskError, FieldProblem, InvalidInput, NotFound, printable
from deskhand.gate.actions import Action, Address, Body, Subject
from deskhand.gate.approvals import DRAFT, Approvals, Folder, Found
from deskhand.notes import frontmatter
from deskhand.store import Row, Store, Transaction

PREFIX = "draft-"
"""Every draft's id begins so; no action's does."""
_ID = re.compile(rf"{PREFIX}[0-9A-Za-z_-]{{1,64}}")
_MANY = 5000
_FOLDERS: tuple[Folder, ...] = ("Drafts", "Approved", "Rejected", "Done")


class ApprovedDraft(BaseModel):
    """Seed 000's model: what a draft file says, and nothing else, is what would leave."""

    model_config = ConfigDict(frozen=True)

    filepath: Path
    to: Address
    subject: Subject
    body: Body
    reply_to_message_id: str | None = None
    draft_id: str | None = None

    @property
    def letter(self) -> dict[str, Any]:
        """The Gmail server's send_email takes exactly these."""
        return self.model_dump(include={"to", "subject", "body", "reply_to_message_id"})

    @property
    def digest(self) -> str:
        return sha256(json.dumps(self.letter, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Proposed:
    """A draft as the desk wrote it."""

    id: str
    mail: str
    """The orchestrator's key of the mail it answers."""
    sender: str
    """Whose mail it answers."""
    letter: dict[str, Any]
    approved: str | None
    """The digest that a person approved on the page or the command line."""
    created: datetime
    drafted_by: str | None = None
    """The rule, the model or the assistant that decided so."""
    reason: str | None = None
    """Why, in its words."""
    account: str = ""
    warnings: tuple[str, ...] = ()
    """What was odd about the mail it answers."""
    words: str | None = None
    """What the person said instead of yes: do it this way."""


def is_id(text: object) -> bool:
    """Whether it names a draft. A tool may write what it likes: a name that is part of an address leads elsewhere."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def read(found: Found) -> ApprovedDraft:
    """What the file says now. A file that is no mail any more is refused with the reason."""
    given = {key: found.properties.get(key) for key in ("to", "subject", "reply_to_message_id", "draft_id")}
    for key, value in given.items():
        if not isinstance(value, str) and (value is not None or key in ("to", "subject")):
            problem = FieldProblem(key, "is missing or no text", printable(value))
            raise InvalidInput(f"the draft's {key} is missing or no text", fields=[problem])
    return ApprovedDraft(filepath=Path(found.path), body=_as_read(found.body), **given)


def covers(found: Found, action: Action) -> bool:
    """Whether the file says exactly this mail."""
    if not found.is_draft or action.kind != "send_email":
        return False
    try:
        draft = read(found)
    except DeskError:
        return False
    return (draft.to, draft.subject, draft.body, draft.reply_to_message_id) == (
        action.to,
        action.subject,
        action.body,
        action.reply_to_message_id,
    )


def difference(proposed: dict[str, Any], letter: dict[str, Any], before: str = "as the desk drafted it") -> str:
    """What the person changed; empty where they changed nothing."""
    old, new = _shown(proposed), _shown(letter)
    return "\n".join(difflib.unified_diff(old, new, before, "as it was edited", lineterm="", n=1))


def _shown(letter: dict[str, Any]) -> list[str]:
    return [f"To: {letter['to']}", f"Subject: {letter['subject']}", "", *letter["body"].splitlines()]


# The rows.


def propose(tx: Transaction, draft: Proposed) -> None:
    tx.execute(
        "INSERT INTO drafts (id, mail, sender, proposed, created, drafted_by, reason, account, warnings)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        draft.id,
        draft.mail,
        draft.sender,
        json.dumps(draft.letter),
        clock.to_ms(draft.created),
        draft.drafted_by,
        draft.reason,
        draft.account,
        json.dumps(draft.warnings),
    )


_COLUMNS = "id, mail, sender, proposed, approved, created, drafted_by, reason, account, warnings, words"


def proposed(tx: Transaction, draft_id: str | None) -> Proposed | None:
    return among(tx, [draft_id]).get(draft_id) if draft_id is not None else None


def among(tx: Transaction, ids: Sequence[str]) -> dict[str, Proposed]:
    marks = ", ".join("?" for _ in ids) or "NULL"
    rows = tx.all(f"SELECT {_COLUMNS} FROM drafts WHERE id IN ({marks})", *ids)
    return {row[0]: _proposed(row) for row in rows}


def _proposed(row: Row) -> Proposed:
    name, mail, sender, letter, approved, created, drafted_by, reason, account, warnings, words = row
    return Proposed(
        name,
        mail,
        sender,
        json.loads(letter),
        approved,
        datetime.fromtimestamp(created / 1000, UTC),
        drafted_by,
        reason,
        account or "",
        tuple(json.loads(warnings or "[]")),
        words,
    )


def _begun(tx: Transaction, ids: Sequence[str]) -> dict[str, int]:
    """When each of these drafts was made."""
    found: dict[str, int] = {}
    for at in range(0, len(ids), _MANY):
        some = ids[at : at + _MANY]
        marks = ", ".join("?" for _ in some)
        found |= dict(tx.all(f"SELECT id, created FROM drafts WHERE id IN ({marks})", *some))
    return found


def released(tx: Transaction, draft_id: str) -> str | None:
    """The action by which this draft left or is leaving."""
    row = tx.one("SELECT action_id FROM used_approvals WHERE content = ?", f"{DRAFT}:{draft_id}")
    return None if row is None else str(row[0])


def behind(tx: Transaction, action_id: str) -> str | None:
    """The draft that an action came from, if it came from one."""
    row = tx.one("SELECT content FROM used_approvals WHERE action_id = ?", action_id)
    kind, _, draft_id = str(row[0] if row else "").partition(":")
    return draft_id if kind == DRAFT else None


@dataclass(frozen=True, slots=True)
class Listed:
    """A draft by the name of its file; what it says is not read yet."""

    id: str
    created: int
    folder: Folder
    name: str


def file_name(draft_id: str) -> str:
    return f"reply-{draft_id.removeprefix(PREFIX)}.md"


class Drafts:
    """What the person can do with the drafts that wait, whatever the door."""

    def __init__(self, store: Store, approvals: Approvals, now: Callable[[], datetime]) -> None:
        self._store = store
        self._approvals = approvals
        self._now = now
        self._read: dict[tuple[str, int, int], str | None] = {}
        """The id in each file whose name does not tell it, so that none is read twice."""

    async def waiting(self, folder: Folder = "Drafts") -> list[Found]:
        """The oldest first."""
        return await asyncio.to_thread(lambda: [each for each in self._approvals.files(folder) if each.is_draft][::-1])

    async def listed(self, folder: Folder = "Drafts") -> list[Listed]:
        """The same from the files' names and one query, as far as that goes: a thousand cost next to nothing."""
        names = await asyncio.to_thread(self._approvals.names, folder)
        ids = {name: f"{PREFIX}{name.removeprefix('reply-').removesuffix('.md')}" for name, _, _ in names}
        begun = await self._store.read(lambda tx: _begun(tx, list(ids.values())))
        found: dict[str, Listed] = {}
        for name, changed, size in names:
            made = begun.get(ids[name])
            if made is not None:
                found[ids[name]] = Listed(ids[name], made, folder, name)
            elif (draft_id := await asyncio.to_thread(self._named, folder, name, changed, size)) is not None:
                found.setdefault(draft_id, Listed(draft_id, changed // 1_000_000, folder, name))
        return sorted(found.values(), key=lambda each: (each.created, each.id))

    def _named(self, folder: Folder, name: str, changed: int, size: int) -> str | None:
        key = (f"{folder}/{name}", changed, size)
        if key not in self._read:
            found = self._approvals.read(folder, name)
            named = found.properties.get("draft_id") if found and found.is_draft else None
            self._read[key] = named if is_id(named) else None
        return self._read[key]

    async def read(self, listed: Listed) -> Found | None:
        """The file; None where it is gone, or is no draft."""
        found = await asyncio.to_thread(self._approvals.read, listed.folder, listed.name)
        return found if found is not None and found.properties.get("draft_id") == listed.id and found.is_draft else None

    async def find(self, draft_id: str) -> Found:
        folders = _FOLDERS if is_id(draft_id) else ()
        for folder in folders:
            if (found := await self.read(Listed(draft_id, 0, folder, file_name(draft_id)))) is not None:
                return found
        for folder in folders:
            for found in await self.waiting(folder):
                if found.properties.get("draft_id") == draft_id:
                    return found
        raise NotFound(f"there is no draft {printable(draft_id)}", hint="`deskhand approvals` lists what waits")

    async def shown(self, found: Found) -> str:
        """The draft as it would leave, and what was changed since the desk wrote it."""
        draft = read(found)
        known = await self._store.read(lambda tx: proposed(tx, draft.draft_id))
        changed = difference(known.letter, draft.letter) if known else ""
        return found.text if not changed else f"{found.text}\n## What was changed\n\n{changed}\n"

    async def decide(
        self,
        draft_id: str,
        answer: Literal["approved", "rejected"],
        by: str,
        note: str | None,
        *,
        digest: str | None = None,
        words: str | None = None,
    ) -> Found:
        """The page's and the command line's way. What is approved is what the file says in this moment.

        With `digest` only what has this digest is decided; `words` say how it should be done instead.
        """
        found = await self.find(draft_id)
        if found.folder not in ("Drafts", "Approved"):
            raise Denied(f"{found.path} is decided; nothing is left to decide", reason="decided")
        seen = fingerprint(found)
        if digest is not None and seen != digest:
            raise _not_what_was_seen(found)
        approved = read(found).digest if answer == "approved" else None
        await self._store.write(lambda tx: _decided(tx, draft_id, approved, words, self._now()))
        if answer == "rejected":
            moved = await asyncio.to_thread(self._rejected, found, note)
        else:
            moved = found if found.folder == "Approved" else await asyncio.to_thread(self._approved, found)
        await self._store.write(lambda tx: audit.append(tx, _entry(by, answer, moved, seen, self._now())))
        return moved

    async def edit(self, draft_id: str, digest: str, changes: dict[str, str], by: str) -> Found:
        """The person's own words in the file; they wait for their own yes."""
        found = await self.find(draft_id)
        if found.folder != "Drafts":
            raise Denied(f"{found.path} is decided and can no longer be edited", reason="decided")
        if fingerprint(found) != digest:
            raise _not_what_was_seen(found)
        heading = {key: changes[key] for key in ("to", "subject")}
        wanted = read(replace(found, properties=found.properties | heading, body=changes["body"]))
        heading = {"to": wanted.to, "subject": wanted.subject}
        text = frontmatter.rewrite(found.text, found.properties | heading, wanted.body)
        note = frontmatter.parse(text)
        edited = Found(found.folder, found.name, text, note.frontmatter, note.body)
        if text != found.text:
            await asyncio.to_thread(self._approvals.rewrite, found, text)
            entry = _entry(by, "edited", edited, wanted.digest, self._now())
            await self._store.write(lambda tx: audit.append(tx, entry))
        return edited

    def _approved(self, found: Found) -> Found:
        moved = self._approvals.move(found, "Approved")
        there = self._approvals.read("Approved", moved.name)
        if there is None or there.text != found.text:
            # Tools may write into Drafts/, not into Approved/: what slipped in before the move was never seen.
            self._approvals.move(moved, "Drafts", found.name)
            raise _not_what_was_seen(found)
        return moved

    def _rejected(self, found: Found, note: str | None) -> Found:
        marks = {"status": "rejected"} | ({"rejected_reason": note} if note else {})
        self._approvals.mark(found, marks)
        return self._approvals.move(found, "Rejected")


def _as_read(body: str) -> str:
    """The same text, whichever line ends the person's editor writes."""
    text = body.replace("\r\n", "\n").strip()
    return f"{text}\n" if text else ""


def fingerprint(found: Found) -> str:
    """Of what would be sent; of the whole file where it cannot be sent at all."""
    try:
        return read(found).digest
    except InvalidInput:
        return sha256(found.text.encode()).hexdigest()


def _not_what_was_seen(found: Found) -> Changed:
    return Changed(f"{found.path} is no longer what was shown", hint="look at it again; nothing was decided")


def _decided(tx: Transaction, draft_id: str, approved: str | None, words: str | None, now: datetime) -> None:
    sql = "UPDATE drafts SET approved = ?, words = ?, decided = ? WHERE id = ?"
    tx.execute(sql, approved, words, clock.to_ms(now), draft_id)


def _entry(by: str, what: str, found: Found, digest: str, now: datetime) -> audit.Entry:
    return audit.Entry(
        timestamp=clock.iso(now),
        correlation_id=str(uuid.uuid4()),
        actor=by,
        action_type=what,
        target=found.path,
        result="success",
        duration_ms=0,
        parameters={"draft_id": found.properties.get("draft_id"), "digest": digest},
    )
