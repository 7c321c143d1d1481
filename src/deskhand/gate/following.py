"""The files follow their rows: each is written, moved and marked as its request says.

A file that cannot be moved now is moved at the next look over all; nothing else waits for it.
"""

import asyncio
import logging
from typing import Any

from deskhand import clock
from deskhand.errors import Changed, DeskError, InvalidInput
from deskhand.gate import files, ledger, lists
from deskhand.gate.actions import Action
from deskhand.gate.folders import Folders, RequestFile, as_file
from deskhand.gate.proofs import Policy
from deskhand.gate.requests import ANSWERABLE, Folder, Request
from deskhand.store import Store

log = logging.getLogger("deskhand.vault")

_SECOND = 1_000_000_000
_WAITS_AGAIN = {"status": "pending_approval", "rejected_reason": None}
"""What a file says whose no was taken back."""


class Follower:
    def __init__(self, store: Store, folders: Folders, key: bytes, policy: Policy) -> None:
        self.folders = folders
        self.policy = policy
        self._store = store
        self._key = key
        self._returned = False
        """Whether the files that an earlier version had put aside are back."""
        self._left_aside: set[str] = set()
        """Those that cannot be moved; each is told of once."""

    def show(self, request: Request) -> str:
        """The request as the person reads it: made from the action, never from anybody's words about it."""
        if request.home == "Drafts":
            return files.render_draft(request)
        return files.render_request(
            request, self._key, wish=not self.policy.counts("vault")
        )

    async def return_claimed(self) -> None:
        """Bring back what an earlier version put aside, each file by itself; what stays is tried again."""
        if self._returned:
            return
        try:
            aside = await asyncio.to_thread(self.folders.claimed)
        except (DeskError, OSError) as error:
            self._leave_aside(".sending", error)
            return
        left = False
        for claimed in aside:
            try:
                await self._return(claimed)
            except (DeskError, OSError) as error:
                self._leave_aside(claimed, error)
                left = True
        self._returned = not left

    def _leave_aside(self, name: str, error: Exception) -> None:
        if name not in self._left_aside:
            log.warning("not_returned", extra={"file": name, "why": str(error)})
        self._left_aside.add(name)

    async def _return(self, claimed: str) -> None:
        """A file that an earlier version put aside lies where its request says, like all others."""
        send_id = claimed.partition(" ")[0]
        request = await self._store.read(lambda tx: ledger.find_sent_as(tx, send_id))
        if request is not None and request.state not in (
            "waiting",
            "held",
            "approved",
            "sending",
            "failed",
        ):
            found = await asyncio.to_thread(self.folders.return_claimed, claimed, "Done")
            if found is not None:
                marks = marks_of(request) or {"status": request.state}
                await asyncio.to_thread(self.folders.mark, found, marks)
            return
        found = await asyncio.to_thread(self.folders.return_claimed, claimed, "Approved")
        if (
            found is not None
            and request is not None
            and request.state in ("approved", "sending")
        ):
            place = (found.folder, found.name)
            await self._store.write(
                lambda tx: ledger.remember_place(tx, request.id, *place)
            )

    async def follow(self, request: Request) -> None:
        """Put the file where its row says; what cannot be moved now is moved at the next look over all."""
        now = await self._store.read(ledger.find, request.id)
        # As it is, not as it was when somebody decided to follow it.
        request = now or request
        try:
            placed = await asyncio.to_thread(self._follow, request)
        except (DeskError, OSError) as error:
            log.warning("not_followed", extra={"request": request.id, "why": str(error)})
            return
        if placed != (request.folder, request.file):
            await self._store.write(ledger.remember_place, request.id, *placed)

    async def follow_all(self) -> None:
        for request in await self._store.read(lists.find_misplaced, 1000):
            await self.follow(request)

    def _follow(self, request: Request) -> tuple[Folder, str]:
        found = self.folders.read(request.folder, request.file) or self.locate(request)
        if found is None:
            if request.place == request.home:
                self.folders.create(request.home, request.file, self.show(request))
            if request.place == "Approved":
                # Asked where there is no vault: who remembers it in Approved/ would take its absence for a no.
                return request.folder, request.file
            return request.place, request.file
        if found.folder == request.place or request.state == "failed":
            self._mark(found, request)  # the person moved it there, and says nothing else
            return found.folder, found.name
        if request.place == "Approved" and found.folder != request.folder:
            # The person moved it meanwhile: that is heard first.
            return request.folder, request.file
        if request.place == "Approved" and not self._is_unchanged(found, request):
            return found.folder, found.name  # heard as an edit at the next look
        self._mark(found, request)
        moved = self.folders.move(found, request.place)
        there = self.folders.read(moved.folder, moved.name)
        if request.place == "Approved" and (
            there is None or not self._is_unchanged(there, request)
        ):
            # It was changed in this very moment: what nobody has seen must not lie among what was approved.
            moved = self.folders.move(moved, found.folder, found.name)
        return moved.folder, moved.name

    def _mark(self, found: RequestFile, request: Request) -> None:
        marks = marks_of(request)
        if request.state in ANSWERABLE and found.properties.get("status") == "rejected":
            marks = {**_WAITS_AGAIN}
        if "approved_at" in found.properties:
            marks.pop("approved_at", None)  # the person wrote it themselves
        if marks:
            self.folders.mark(found, marks)

    async def open_again(self, request: Request, found: RequestFile) -> None:
        """Before a no becomes a yes: with the no in it the file would not be what was shown."""
        if request.state == "rejected":
            await asyncio.to_thread(self.folders.mark, found, _WAITS_AGAIN)

    def _is_unchanged(self, found: RequestFile, request: Request) -> bool:
        if request.home == "Drafts":
            return says_the_same(found, request)
        return files.is_intact(found, request, self._key)

    async def read_if_open(self, request: Request) -> RequestFile | None:
        """The request's file where it waits. A vault that cannot be read now stops nobody
        who answers elsewhere."""
        try:
            return await asyncio.to_thread(self.folders.read, request.home, request.file)
        except (DeskError, OSError) as error:
            log.warning("not_heard", extra={"request": request.id, "why": str(error)})
            return None

    async def ensure_waiting(self, request: Request) -> str:
        """See to it that the request's file lies where the person looks; its path. The
        page shows it in any case."""
        try:
            await self.make_places()
            text = await asyncio.to_thread(self.show, request)
            await asyncio.to_thread(self.folders.create, request.home, request.file, text)
        except (DeskError, OSError) as error:
            log.warning("not_followed", extra={"request": request.id, "why": str(error)})
            return name_in_inbox(request)
        now = await self._store.read(ledger.find, request.id)
        if now is not None and now.place != request.home:
            await self.follow(now)  # it was answered before it had a file
        return self.name_place(request.home, request.file)

    def name_place(self, folder: Folder, name: str) -> str:
        """The file's path as the vault has it."""
        return self.folders.name_place(folder, name)

    async def make_places(self) -> None:
        """The folders by which the person answers. One that is gone with what lay in it
        stays away: so is the vault."""
        if await asyncio.to_thread(
            self.folders.has, "Approved"
        ) or not await self._store.read(lists.has_approved):
            await asyncio.to_thread(self.folders.make, "Approved", "Rejected")

    async def write_edit(self, request: Request, action: Action) -> None:
        """A draft's file gets the person's new words before its row does."""
        if request.home != "Drafts":
            return
        try:
            await asyncio.to_thread(self._write_edit, request, action)
        except (InvalidInput, Changed):
            raise
        except (DeskError, OSError) as error:
            log.warning("not_replaced", extra={"request": request.id, "why": str(error)})

    def _write_edit(self, request: Request, action: Action) -> None:
        if found := self.locate(request):
            text = files.rewrite_draft(found, action)
            # What is no mail afterwards is refused now.
            files.read_draft(as_file(found.folder, found.name, text))
            self.folders.rewrite(found, text)

    async def replace(self, old: Request, new: Request) -> None:
        """A sealed file makes room for that of the new revision: out of Approved/ first, then rewritten."""
        if new.home == "Drafts":
            return
        try:
            await asyncio.to_thread(self._replace, old, new)
        except (DeskError, OSError) as error:
            log.warning("not_replaced", extra={"request": new.id, "why": str(error)})

    def _replace(self, old: Request, new: Request) -> None:
        found = self.locate(old)
        if found is None:
            self.folders.create(new.home, new.file, self.show(new))
            return
        if found.folder != new.home or found.name != new.file:
            found = self.folders.move(found, new.home, new.file)
        self.folders.overwrite(found, self.show(new))

    async def retire(self, request: Request) -> None:
        """A draft's file whose request waits in another form from now on: nobody knows whether it left."""
        found = await asyncio.to_thread(self.locate, request)
        if found is not None and files.is_draft(found):
            await asyncio.to_thread(self.folders.mark, found, {"status": "unknown"})
            await asyncio.to_thread(self.folders.move, found, "Done")

    async def explain(self, request: Request, marks: dict[str, Any]) -> None:
        """The reason why it has not left, in the draft that lies in Approved/."""
        try:
            found = await asyncio.to_thread(self.locate, request)
            if found is not None and files.is_draft(found):
                await asyncio.to_thread(self.folders.mark, found, marks)
        except (DeskError, OSError) as error:
            log.warning("not_followed", extra={"request": request.id, "why": str(error)})

    def locate(self, request: Request) -> RequestFile | None:
        """Where the request's file lies now. A no counts before a yes, should there be copies in both folders."""
        by_name: tuple[Folder, ...] = ("Rejected", "Approved", request.home)
        for folder in by_name:
            if found := self.folders.read(folder, request.file):
                return found
        # Obsidian and the person may have renamed it.
        others: set[Folder] = {"Approved", request.home}
        if request.origin == "draft":  # the draft itself may not be retired yet
            others.add("Drafts")
        for folder in ("Rejected", *sorted(others)):
            if found := self.find_renamed(request, folder):
                return found
        return None

    def find_renamed(self, request: Request, folder: Folder) -> RequestFile | None:
        """The request's file in a folder, by what it says; Rejected/ is looked at as far
        back as the request goes."""
        since = 0
        if folder == "Rejected":
            since = round(request.created.timestamp() * 1e9) - _SECOND
        for found in self.folders.files(folder, since):
            if files.is_file_of(found, request):
                return found
        return None


def name_in_inbox(request: Request) -> str:
    """Where a request waits that has no file."""
    return f"the person's inbox as {request.id}"


def says_the_same(found: RequestFile, request: Request) -> bool:
    """Whether a draft's file says what its row does."""
    try:
        letter = files.read_draft(found)
    except InvalidInput as error:
        return request.fault == error.message
    action = request.action
    names = ("to", "cc", "bcc", "subject", "body", "reply_to_message_id")
    same = all(getattr(letter, name) == getattr(action, name) for name in names)
    return same and request.fault is None and knows_thread(action)


def knows_thread(action: Action) -> bool:
    return action.reply_to_message_id is None or action.thread_id is not None


def marks_of(request: Request) -> dict[str, Any]:
    """What the file says about its end; how often it was tried before is over then."""
    tries = dict.fromkeys(("last_error", "attempts", "next_try"))
    match request.state:
        case "sent":
            ids = {"message_id": request.message_id, "thread_id": request.thread_id}
            approved = {"approved_at": clock.iso(request.decided or request.created)}
            return {"status": "done", "action_id": request.send_id} | ids | approved | tries
        case "expired" | "withdrawn":
            return {"status": request.state} | tries
        case "waiting" if request.origin == "draft":
            return {**_WAITS_AGAIN}
        case "rejected" if request.note:
            return {"status": "rejected", "rejected_reason": request.note} | tries
        case "rejected":
            return {"status": "rejected"} | tries
        case _:
            return {}
