"""What the person writes in the vault themselves: drafts of their own, and approvals by hand."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from deskhand.errors import Changed, DeskError, InvalidInput
from deskhand.gate import authorship, files, handwritten, ledger, lists, sends
from deskhand.gate.actions import Action
from deskhand.gate.completing import complete
from deskhand.gate.folders import Folders, RequestFile
from deskhand.gate.following import Follower, knows_thread
from deskhand.gate.idle import IdleFile
from deskhand.gate.idle import find as find_idle
from deskhand.gate.proofs import Policy
from deskhand.gate.requests import (
    DRAFT_PREFIX,
    Folder,
    Request,
    State,
    is_draft_id,
    open_draft,
)
from deskhand.mail import Mailbox
from deskhand.store import Store, Transaction

HEARD: tuple[State, ...] = ("waiting", "held", "approved", "rejected", "unknown")
"""States in which it matters what the person does with the file."""
log = logging.getLogger("deskhand.vault")

UNWRITTEN = "a note in Drafts/ that the desk did not write"


class DraftReader(Follower):
    """Knows the request behind each file, and makes one of a draft that the person wrote."""

    def __init__(
        self,
        store: Store,
        folders: Folders,
        key: bytes,
        mailbox: Callable[[], Mailbox],
        now: Callable[[], datetime],
        policy: Policy,
        *,
        sealed: bool,
    ) -> None:
        """`sealed`: a draft that was merely moved is no yes, nor is a file that the person wrote by hand."""
        super().__init__(store, folders, key, policy)
        self._mailbox = mailbox
        self._now = now
        self._sealed = sealed or not policy.counts("vault")
        self._stamp = 0
        """Of Drafts/, when it was looked at last."""
        self._foreign: set[tuple[str, int, int]] = set()
        """Files that are nobody's request, so that none is read twice."""
        self._unopened: dict[str, str] = {}
        """Why a draft that the person wrote is no request yet, by its path."""
        self._named: frozenset[IdleFile] = frozenset()
        """Files that release nothing, as the log has them."""

    async def notice_drafts(self) -> None:
        """A draft that the person put into Drafts/ becomes a request."""
        try:
            stamp = await asyncio.to_thread(self.folders.stamp, "Drafts")
            if stamp != self._stamp:
                self._stamp = stamp
                await self.find_touched("Drafts")
        except (
            DeskError,
            OSError,
        ) as error:  # what else waits is shown all the same; doctor names the folder
            log.warning("not_heard", extra={"folder": "Drafts", "why": str(error)})

    async def read_action(self, found: RequestFile, request: Request | None) -> Action:
        letter = files.read_draft(found)
        if request is None:
            files.demand_open(found)
        if await self._store.read(authorship.is_a_tools_mail, found.properties, found.body):
            raise InvalidInput(
                "an assistant wrote this text, and only the person and the desk write drafts"
            )
        old = request.action if request else None
        if (
            old
            and old.reply_to_message_id == letter.reply_to_message_id
            and knows_thread(old)
        ):
            return old.edit(
                letter.model_dump(include={"to", "cc", "bcc", "subject", "body"})
            )
        action, _ = await complete(letter, self._mailbox())
        return action

    async def find_touched(self, folder: Folder) -> list[Request]:
        """The requests whose files lie in a folder where they were not seen before, or wait there to be sent."""
        names = await asyncio.to_thread(self.folders.names, folder)
        known = await self._store.read(lists.find_files, [name for name, _, _ in names])
        moved = [
            request_id
            for request_id, seen, state in known.values()
            if state in HEARD and (seen != folder or folder == "Approved")
        ]
        found = [
            request
            for each in moved
            if (request := await self._store.read(ledger.find, each))
        ]
        if folder == "Rejected":
            return found
        # A name may have been that of a request which is over: what lies there now is read.
        open_names = {name for name, (_, _, state) in known.items() if state in HEARD}
        strangers = [
            each
            for each in names
            if each[0] not in open_names and each not in self._foreign
        ]
        return found + [
            request for each in strangers if (request := await self._adopt(folder, each))
        ]

    async def _adopt(self, folder: Folder, name: tuple[str, int, int]) -> Request | None:
        """The request behind a file that was renamed, or that the person wrote."""
        try:
            found = await asyncio.to_thread(self.folders.read, folder, name[0])
        except OSError as error:  # it stops no other, and is looked at again
            log.warning("not_heard", extra={"file": name[0], "why": str(error)})
            return None
        if found is None:
            return None
        draft_id = found.properties.get("draft_id")
        if files.is_draft(found) and folder == "Approved" and not is_draft_id(draft_id):
            draft_id = f"{DRAFT_PREFIX}{sha256(found.text.encode()).hexdigest()[:16]}"
            await asyncio.to_thread(self.folders.mark, found, {"draft_id": draft_id})
        request_id = (
            draft_id if files.is_draft(found) else found.properties.get("action_id")
        )
        if not isinstance(request_id, str):
            self._foreign.add(name)
            return None
        known = await self._store.read(ledger.find, request_id)
        if known is not None and known.state not in HEARD:
            self._foreign.add(name)
        if known is not None or not is_draft_id(request_id) or not files.is_draft(found):
            return known
        return await self._open_draft(request_id, found, name)

    async def _open_draft(
        self, draft_id: str, found: RequestFile, name: tuple[str, int, int]
    ) -> Request | None:
        try:
            action = await self.read_action(found, None)
        except DeskError as error:
            # Not yet a mail, or the one that it answers cannot be read now: it is looked at again, and stops no other.
            log.info("no_draft", extra={"file": found.path, "why": error.message})
            self._unopened[found.path] = error.message
            return None
        send_id = sha256(f"{draft_id} {name[1]}".encode()).hexdigest()[:16]
        request = replace(
            open_draft(draft_id, action, send_id, self._now()),
            file=found.name,
            asked_by=UNWRITTEN,
        )
        if not await self._store.write(ledger.insert, request):
            return None
        return request

    # A yes by hand.

    async def find_hand_written(
        self, action: Action, author: str | None = None
    ) -> tuple[list[RequestFile], list[RequestFile]]:
        """The person's own files that cover this mail, the most recent first, and those that are used up.

        `author` wrote the mail that it answers.
        """
        if self._sealed:
            return [], []
        now = self._now()
        return await self._find_unused(
            lambda given: handwritten.covers(given, action, now, author)
        )

    async def has_approved_thread(self, thread_id: str) -> bool:
        """Whether the person wrote a yes to an answer in this thread; of one that is gone nobody knows more."""
        if self._sealed:
            return False
        now = self._now()
        written, _ = await self._find_unused(
            lambda given: handwritten.covers_thread(given, thread_id, now)
        )
        return bool(written)

    async def _find_unused(
        self, covers: Callable[[Mapping[str, Any]], bool]
    ) -> tuple[list[RequestFile], list[RequestFile]]:
        found = await asyncio.to_thread(self._list_covering, covers)

        def ask(tx: Transaction) -> tuple[list[RequestFile], list[RequestFile]]:
            written = [
                each for each in found if not authorship.is_a_tools_yes(tx, each.properties)
            ]
            used = [each for each in written if sends.was_used(tx, each)]
            return [each for each in written if each not in used], used

        return await self._store.read(ask)

    def _list_covering(
        self, covers: Callable[[Mapping[str, Any]], bool]
    ) -> list[RequestFile]:
        found, _ = self._look_into_approved()
        return [each for each in found if covers(each.properties)]

    async def find_idle(self) -> list[IdleFile]:
        """The files in Approved/ that release nothing, each named in the log when it is first seen."""
        try:
            found, others = await asyncio.to_thread(self._look_into_approved)
        except (DeskError, OSError) as error:
            return [IdleFile("Approved", f"it cannot be read now: {error}")]
        now = self._now()
        idle = others + await self._store.read(
            lambda tx: find_idle(tx, found, now, self._unopened, sealed=self._sealed)
        )
        for each in idle:
            if each not in self._named:
                log.warning("releases_nothing", extra={"file": each.path, "why": each.why})
        self._named = frozenset(idle)
        return sorted(idle, key=lambda each: each.path)

    def _look_into_approved(self) -> tuple[list[RequestFile], list[IdleFile]]:
        """The notes in it, and what is none."""
        others = [
            IdleFile(f"Approved/{name}", "only a note (.md) counts")
            for name in self.folders.others("Approved")
        ]
        found = []
        for name, _, _ in self.folders.names("Approved"):
            why = "it is no text that can be read, or a link"
            try:
                if note := self.folders.read("Approved", name):
                    found.append(note)
                    continue
            except OSError as error:
                why = f"it cannot be read now: {error.strerror}"
            others.append(IdleFile(f"Approved/{name}", why))
        return found, others

    def demand_unchanged(self, found: RequestFile) -> None:
        """Within a claim: the hand-written file still says what was read."""
        try:
            now = self.folders.read(found.folder, found.name)
        except OSError as error:
            raise Changed(f"{found.path} cannot be read now: {error.strerror}") from error
        if now is None:
            raise Changed(f"{found.path} is gone")
        if now.text != found.text:
            raise Changed(f"{found.path} was changed in this moment")
