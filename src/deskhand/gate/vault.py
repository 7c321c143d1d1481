"""The vault as a door: the person answers by moving a file, and the files follow their rows.

    Pending_Approval/, Drafts/ ─► Approved/ ─► Done/
                              └─► Rejected/

`hear` turns what the person did with a file into an answer, checked like any other and written down. `follow` puts a
file where its row says. Where a file lies decides nothing by itself, and what is sent is never read from one.
"""

import asyncio
import logging
from collections.abc import Sequence
from copy import copy
from typing import Any

from deskhand.errors import Changed, DeskError, InvalidInput, NotFound, Unavailable
from deskhand.gate import files, ledger
from deskhand.gate.actions import Action
from deskhand.gate.differences import describe_difference
from deskhand.gate.doubts import LEFT, doubt
from deskhand.gate.drafts import HEARD, DraftReader
from deskhand.gate.folders import RequestFile
from deskhand.gate.following import knows_thread, says_the_same
from deskhand.gate.ledger import Change, Conflict
from deskhand.gate.moves import (
    Away,
    Edited,
    Left,
    Misplaced,
    Move,
    No,
    Outdated,
    TakenBack,
    Yes,
    lies_in_done,
    see,
)
from deskhand.gate.requests import Request
from deskhand.gate.written_answers import approve, carry_over_yes, decision_of, give
from deskhand.store import Transaction
from deskhand.wording import begin_small

log = logging.getLogger("deskhand.vault")

_LOST = "It was changed after your yes, which counts no more. It is waiting again."
_CONFIRM = "It was asked for in the vault; confirm it here."
_CONFIRM_NO = "In the vault it was asked to reject it; confirm it here."
_RESTORED = "Its file was changed in the vault, which counts for nothing here: what would leave is what stands here."


class VaultDoor(DraftReader):
    @property
    def how(self) -> str:
        """How a yes comes in by this door."""
        if self.policy.counts("vault"):
            return f"when the person moves it to {self.name_place('Approved', '')}"
        return "once the person approved it on the page"

    # Hearing.

    async def hear(self, request: Request) -> Request:
        """Take up what the person did with the request's file; the request after it."""
        if request.state not in HEARD:
            return request
        try:
            await self.return_claimed()
            move = await asyncio.to_thread(self.look, request)
            if move is None or isinstance(move, Away) or self._is_too_late(request, move):
                return request
            if self.policy.counts("vault"):
                return await self._take_up(request, move)
            return await self._take_as_wish(request, move)
        except (DeskError, OSError) as error:
            log.warning("not_heard", extra={"request": request.id, "why": str(error)})
            return request

    async def find_moved(self, requests: Sequence[Request]) -> set[str]:
        """Those of which `hear` has something to say: all files are looked at in one go."""

        def look() -> set[str]:
            looker = copy(self)
            with self.folders.keep_open() as looker.folders:
                return {each.id for each in requests if looker.look(each)}

        try:
            return await asyncio.to_thread(look)
        except (DeskError, OSError):  # and `hear` says why
            return {each.id for each in requests}

    async def hear_all(self) -> None:
        """What the person did with any file; a draft that they wrote themselves becomes a request."""
        await self.return_claimed()
        await self.make_places()
        for folder in ("Drafts", "Approved", "Rejected"):
            for request in await self.find_touched(folder):
                await self.hear(request)

    async def catch_edit(self, request: Request) -> Request:
        """Before a yes by another door: an edited file is no longer what was shown, wherever it lies."""
        found = None
        if request.home != "Drafts" and request.state in ("waiting", "unknown"):
            found = await self.read_if_open(request)
        if found is None or files.is_intact(found, request, self._key):
            return request
        if files.written_revision(found) < request.revision:
            return request
        if self.policy.counts("vault"):
            return await self._revise(request, found)
        await self.replace(request, request)
        return request

    def demand_unmoved(self, request: Request) -> None:
        """Within a claim: the person has not taken the yes back in this very moment."""
        if not self.policy.counts("vault"):
            return
        try:
            move = see(request, self.locate(request), self.folders, self._key)
        except (DeskError, OSError) as error:
            # The yes is in the ledger; a vault that is away for a moment takes nothing back.
            log.warning("not_heard", extra={"request": request.id, "why": str(error)})
            return
        match move:
            case None | Outdated() | Misplaced() | Left():
                return
            case TakenBack():
                raise Changed(f"Approved/{request.file} is gone")
            case Away():
                raise Unavailable(
                    "Approved/ is missing in the vault",
                    hint="the yes rests until it is back",
                )
            case Yes(found) | No(found) | Edited(found):
                raise Changed(f"{found.path} was changed in this moment")

    def look(self, request: Request) -> Move | None:
        """What the person did with its file. A no counts before a yes, under whatever name its copy lies there."""
        if request.state not in HEARD:
            return None
        if lies_in_done(request, self.folders):
            return Left()
        move = see(request, self.locate(request), self.folders, self._key)
        if isinstance(move, Yes) and (found := self.find_renamed(request, "Rejected")):
            return No(found)
        return move

    async def _doubt(self, request: Request) -> Request:
        log.warning("may_have_left", extra={"request": request.id, "why": LEFT})
        doubted = await self._write(request, doubt, self._now())
        if doubted.state == "unknown":
            await self.replace(request, doubted)
        return doubted

    def _is_too_late(self, request: Request, move: Move) -> bool:
        """What has expired can still be refused; of what may have left the person decides at any time."""
        late = request.is_late(self._now()) and request.state != "unknown"
        return late and not isinstance(move, No)

    async def _take_up(self, request: Request, move: Move) -> Request:
        match move:
            case Left():
                request = await self._doubt(request)
            case TakenBack():
                request = await self._take_back(request)
            case No(found):
                request = await self._reject(request, found)
            case Misplaced():
                await self.follow(request)
            case Outdated():
                await self.retire(request)
                await self.replace(request, request)
            case Yes(found) | Edited(found) if (
                request.home == "Drafts" and found.folder == "Approved"
            ):
                request = await self._approve_draft(request, found)
            case Edited(found) if request.home == "Drafts":
                request = await self._take_edit(request, found)
            case Yes(found):
                request = await self._approve(request, found)
            case Edited(found):
                request = await self._revise(request, found)
        return request

    async def _take_as_wish(self, request: Request, move: Move) -> Request:
        """Where a file is no answer: the row stays as it is, its card says what was asked for, and the file follows."""
        open_ = request.state in ("waiting", "unknown")
        match move:
            case Outdated():
                return await self._take_up(request, move)
            case Left() if open_:
                return await self._doubt(request)
            case Yes(found) | Edited(found) if (
                open_ and request.home == "Drafts" and found.folder == "Approved"
            ):
                return await self._approve_draft(request, found)
            case Edited(found) if open_ and request.home == "Drafts":
                return await self._take_edit(request, found)
            case Yes(found) if open_:
                place = {
                    "folder": found.folder,
                    "file": found.name,
                    "resting": "unconfirmed",
                }
                return await self._note_wish(request, _CONFIRM, **place)
            case No() if open_:
                request = await self._note_wish(request, _CONFIRM_NO)
            case Edited() if open_:
                request = await self._note_wish(request, _RESTORED)
                await self.replace(request, request)
        await self.follow(request)
        return request

    async def _note_wish(self, request: Request, note: str, **changes: Any) -> Request:
        log.warning("only_a_wish", extra={"request": request.id, "why": note})
        return await self._write(
            request, ledger.change, request.state, note=note, **changes
        )

    async def _approve(self, request: Request, found: RequestFile) -> Request:
        await self.open_again(request, found)
        now = self._now()
        answer = self.policy.answer("approved", "vault", "vault")
        place = {"folder": found.folder, "file": found.name}
        return await self._write(request, approve, answer, now, due=now, **place)

    async def _reject(self, request: Request, found: RequestFile) -> Request:
        now = self._now()
        reason = found.properties.get("rejected_reason")
        note = str(reason) if reason else None
        if request.state == "held" and note is None:
            note = "Its file was moved to Rejected/ after your yes."
        answer = self.policy.answer("rejected", "vault", "vault", note)
        place = {"folder": found.folder, "file": found.name, "note": note}
        no = decision_of(answer, now) | place
        rejected = await self._write(request, give, answer, "rejected", now, **no)
        await self.follow(rejected)
        return rejected

    async def _take_back(self, request: Request) -> Request:
        now = self._now()
        answer = self.policy.answer("undone", "vault", "vault")
        changes = {"folder": request.home, "due": None, "proof": None, "note": None}
        undone = await self._write(
            request, give, answer, request.unanswered, now, **changes
        )
        await self.follow(undone)
        return undone

    async def _revise(self, request: Request, found: RequestFile) -> Request:
        """An edited file releases nothing: it waits again, as a new revision that shows what was changed."""
        action = request.action
        # One that may have left must stay what it was, or nobody could find out.
        if not request.may_have_left:
            action = await asyncio.to_thread(files.read_edit, request.action, found)
        changes = request.next_revision | {
            "action": action,
            "difference": await asyncio.to_thread(
                describe_difference, request.proposed, action
            ),
            "folder": request.home,
            "due": None,
            "note": _note_of_lost(request),
        }
        answer = self.policy.answer("edited", "vault", "vault")
        revised = await self._write(
            request, give, answer, request.unanswered, self._now(), **changes
        )
        if revised.revision > request.revision:
            await self.replace(request, revised)
        return revised

    # Drafts.

    async def _approve_draft(self, request: Request, found: RequestFile) -> Request:
        if not says_the_same(found, request):
            request = await self._take_edit(request, found)
        if request.state == "approved":
            return request
        if request.fault is None and not self._sealed:
            return await self._approve(request, found)
        why = request.fault
        if why is None:
            how = f"run `deskhand approve {request.id}`"
            why = f"permission_denied: approvals are sealed here, and nobody approved exactly this text; {how}"
        await asyncio.to_thread(self.folders.mark, found, {"last_error": why})
        changes = {"folder": found.folder, "file": found.name, "resting": "unconfirmed"}
        if request.state in ("waiting", "unknown"):
            changes["note"] = _CONFIRM
            if request.fault is not None:
                said = begin_small(request.fault).rstrip(".")
                changes["note"] = f"Not sent: {said}. It is waiting again."
        return await self._write(request, ledger.change, request.state, **changes)

    async def _take_edit(self, request: Request, found: RequestFile) -> Request:
        """The person's words in a draft's file are the draft; a yes to other words is none to these."""
        changes: dict[str, Any] = {
            "revision": request.revision + 1,
            "note": _note_of_lost(request),
            "due": None,
        }
        try:
            action = await self.read_action(found, request)
        except (InvalidInput, NotFound) as error:
            if request.fault == error.message:
                return request
            changes["fault"] = error.message
        else:
            difference = await asyncio.to_thread(
                describe_difference, request.proposed, action
            )
            changes |= {"action": action, "difference": difference, "fault": None}
            if not knows_thread(request.action):
                return await self._take_over(request, changes)
        return await self._write(request, ledger.change, request.unanswered, **changes)

    async def _take_over(self, request: Request, changes: dict[str, Any]) -> Request:
        """A draft of an earlier version gets its thread; a yes to the words that stand there now still counts."""
        action: Action = changes["action"]
        words = files.digest_draft_words(action)
        if changes["difference"] is None:
            changes |= {
                "revision": request.revision,
                "proposed": action,
                "asked": action.digest,
            }

        def work(tx: Transaction, request: Request) -> Request | Conflict:
            carried = carry_over_yes(tx, request, words, action.digest)
            if carried and request.state in ("held", "approved"):
                kept = {"note": request.note, "due": request.due}
                return ledger.change(tx, request, request.state, **changes | kept)
            return ledger.change(tx, request, request.unanswered, **changes)

        return await self._write(request, work)

    async def _write(
        self, request: Request, work: Change, *given: Any, **named: Any
    ) -> Request:
        """The request after the change, or as somebody else has just changed it."""
        changed = await self._store.write(work, request, *given, **named)
        if isinstance(changed, Request):
            return changed
        return await self._store.read(ledger.find, request.id) or request


def _note_of_lost(request: Request) -> str | None:
    return _LOST if request.state in ("held", "approved") else None
