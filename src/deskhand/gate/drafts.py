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
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from deskhand.errors import Denied, DeskError, FieldProblem, InvalidInput, NotFound, printable
from deskhand.gate.actions import Action, Address, Body, Subject
from deskhand.gate.approvals import DRAFT, Approvals, Folder, Found
from deskhand.gate.ledger import milliseconds
from deskhand.store import Store, Transaction

PREFIX = "draft-"
"""Every draft's id begins so; no action's does."""


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


def read(found: Found) -> ApprovedDraft:
    """What the file says now. A file that is no mail any more is refused with the reason."""
    given = {key: found.properties.get(key) for key in ("to", "subject", "reply_to_message_id", "draft_id")}
    for key, value in given.items():
        if not isinstance(value, str) and (value is not None or key in ("to", "subject")):
            problem = FieldProblem(key, "is missing or no text", printable(value))
            raise InvalidInput(f"the draft's {key} is missing or no text", fields=[problem])
    return ApprovedDraft(
        filepath=Path(found.path), body=f"{found.body.strip()}\n" if found.body.strip() else "", **given
    )


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


def difference(proposed: dict[str, Any], letter: dict[str, Any]) -> str:
    """What the person changed; empty where they changed nothing."""
    old, new = _shown(proposed), _shown(letter)
    return "\n".join(difflib.unified_diff(old, new, "as the desk drafted it", "as it was edited", lineterm="", n=1))


def _shown(letter: dict[str, Any]) -> list[str]:
    return [f"To: {letter['to']}", f"Subject: {letter['subject']}", "", *letter["body"].splitlines()]


# The rows.


def propose(tx: Transaction, draft_id: str, mail: str, sender: str, letter: dict[str, Any], now: datetime) -> None:
    tx.execute(
        "INSERT INTO drafts (id, mail, sender, proposed, created) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        draft_id,
        mail,
        sender,
        json.dumps(letter),
        milliseconds(now),
    )


def proposed(tx: Transaction, draft_id: str | None) -> Proposed | None:
    row = tx.one("SELECT id, mail, sender, proposed, approved, created FROM drafts WHERE id = ?", draft_id)
    if row is None:
        return None
    name, mail, sender, letter, approved, created = row
    return Proposed(name, mail, sender, json.loads(letter), approved, datetime.fromtimestamp(created / 1000, UTC))


def released(tx: Transaction, draft_id: str) -> str | None:
    """The action by which this draft left or is leaving."""
    row = tx.one("SELECT action_id FROM used_approvals WHERE content = ?", f"{DRAFT}:{draft_id}")
    return None if row is None else str(row[0])


def behind(tx: Transaction, action_id: str) -> str | None:
    """The draft that an action came from, if it came from one."""
    row = tx.one("SELECT content FROM used_approvals WHERE action_id = ?", action_id)
    kind, _, draft_id = str(row[0] if row else "").partition(":")
    return draft_id if kind == DRAFT else None


class Drafts:
    """What the person can do with the drafts that wait, whatever the door."""

    def __init__(self, store: Store, approvals: Approvals, now: Callable[[], datetime]) -> None:
        self._store = store
        self._approvals = approvals
        self._now = now

    async def waiting(self, folder: Folder = "Drafts") -> list[Found]:
        """The oldest first."""
        return await asyncio.to_thread(lambda: [each for each in self._approvals.files(folder) if each.is_draft][::-1])

    async def find(self, draft_id: str) -> Found:
        places: tuple[Folder, ...] = ("Drafts", "Approved", "Rejected", "Done")
        for folder in places:
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

    async def decide(self, draft_id: str, answer: Literal["approved", "rejected"], note: str | None) -> Found:
        """The page's and the command line's way. What is approved is what the file says in this moment."""
        found = await self.find(draft_id)
        if found.folder not in ("Drafts", "Approved"):
            raise Denied(f"{found.path} is decided; nothing is left to decide", reason="decided")
        if answer == "rejected":
            return await asyncio.to_thread(self._rejected, found, note)
        digest = read(found).digest
        await self._store.write(lambda tx: tx.execute("UPDATE drafts SET approved = ? WHERE id = ?", digest, draft_id))
        if found.folder == "Approved":
            return found
        return await asyncio.to_thread(self._approvals.move, found, "Approved")

    def _rejected(self, found: Found, note: str | None) -> Found:
        marks = {"status": "rejected"} | ({"rejected_reason": note} if note else {})
        self._approvals.mark(found, marks)
        return self._approvals.move(found, "Rejected")
