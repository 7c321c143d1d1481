"""The person's answers: what they say to a request, by which proof, and what it does to the row.

An answer names the digest of what was shown: what has changed since is shown again instead of being answered. It
changes the row and is written down with it, in one transaction; the vault's files follow.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from deskhand import clock
from deskhand.errors import Changed, Denied, FieldProblem, InvalidInput
from deskhand.gate.actions import Action, demand_sendable
from deskhand.gate.cards import Card
from deskhand.gate.claims import Claim, Signed
from deskhand.gate.differences import describe_difference
from deskhand.gate.ledger import Change, Conflict
from deskhand.gate.letters import Letter, edit_action
from deskhand.gate.persons_word import PersonsWord, demand_doubt_seen, demand_seen
from deskhand.gate.proofs import Answer
from deskhand.gate.question import Question
from deskhand.gate.refusals import decided, not_together, not_what_was_seen, too_late
from deskhand.gate.requests import ANSWERABLE, Request, Word
from deskhand.gate.undo import LastAnswer, find_last, take_back
from deskhand.gate.webauthn import Said
from deskhand.gate.written_answers import approve, decision_of, give
from deskhand.store import Transaction
from deskhand.wording import begin_small

RESPONSE = "do it this way: "
LAST_CALL = timedelta(hours=1)
"""How long before it expires a card that was put off comes back."""


class Answers(PersonsWord):
    async def approve(
        self, request_id: str, digest: str, by: str, proof: Claim = "page"
    ) -> Card:
        """A yes that rests for `hold_seconds` and can be taken back until then."""
        request = demand_doubt_seen(await self._open(request_id, digest), digest)
        await self._hold([request], by, proof)
        return await self._waiting.card(request_id)

    async def approve_all(
        self, answers: Sequence[tuple[str, str]], by: str, proof: Claim = "page"
    ) -> list[Card]:
        """Yes to all of them, or to none: only where each is of low risk."""
        if not answers:
            raise InvalidInput(
                "nothing was chosen", hint="choose the cards that you want to approve"
            )
        chosen = dict(answers)
        requests = [await self._open(name, digest) for name, digest in chosen.items()]
        for card in [await self._waiting.card(name) for name in chosen]:
            if card.state != "waiting":
                raise not_together(card, card.state)
            if card.risk.level != "low":
                raise not_together(card, f"{card.risk.level} risk")
        await self._hold(requests, by, proof)
        return [await self._waiting.card(name) for name in chosen]

    async def approve_now(
        self, request_id: str, digest: str | None, by: str, proof: Claim = "terminal"
    ) -> Card:
        """A yes without a hold: to this digest, or to what is there in this moment."""
        request = demand_doubt_seen(await self._demand_undecided(request_id), digest)
        if request.state != "approved":
            now = self._now()
            word: Word = "held" if request.is_early(now) else "approved"
            answer = await self._answer(word, by, proof, request)
            await self._demand_approvable(request)
            seen = await self._waiting.assess(request)
            await self._write(request, approve, answer, now, due=now, assessed=seen)
        return await self._waiting.card(request_id)

    async def edit(
        self, request_id: str, digest: str, letter: Letter, by: str, proof: Claim = "page"
    ) -> Card:
        """The person's own words in place of what was proposed; they wait for their own yes."""
        request = await self._waiting.find(request_id)
        if request.state not in ("waiting", "held"):
            raise decided(request, ", it can no longer be edited")
        demand_seen(request, digest)
        _demand_unheld(request)
        action = edit_action(request, letter)
        said = Said(word="edited", about=((request.id, action.digest),))
        proven = await self._claims.prove(by, proof, said)
        await self._revise(request, action, self._policy.answer("edited", by, proven))
        return await self._waiting.card(request_id)

    async def approve_edited(
        self, request_id: str, digest: str, letter: Letter, by: str, proof: Claim = "page"
    ) -> Card:
        said = Said(word="approved")
        if isinstance(proof, Signed):
            said = await self.make_said("approved", [(request_id, digest)], letter)
        proven = await self._claims.prove(by, proof, said)
        meant = edit_action(await self._waiting.find(request_id), letter)
        await self.edit(request_id, digest, letter, by, proven)
        # What the person typed, not what stands there by now: a draft's file may have been written meanwhile.
        return await self.approve(request_id, meant.digest, by, proven)

    async def reject(
        self,
        request_id: str,
        digest: str | None,
        reason: str | None,
        by: str,
        proof: Claim = "page",
    ) -> Card:
        """A no; said again without a reason it changes nothing, and the first reason stands."""
        request = demand_seen(await self._demand_undecided(request_id), digest)
        answer = await self._answer("rejected", by, proof, request, words=reason)
        if request.state != "rejected" or reason:
            await self._reject(request, answer, note=reason, words=None)
        return await self._waiting.card(request_id)

    async def respond(
        self, request_id: str, digest: str, words: str, by: str, proof: Claim = "page"
    ) -> Card:
        """Not so, but this way: whoever proposed it is told the words."""
        wish = words.strip()
        if not wish:
            raise InvalidInput(
                "there are no words", fields=[FieldProblem("words", "is empty", "")]
            )
        found = await self._waiting.find(request_id)
        if isinstance(found.action, Question):
            request = demand_seen(await self._demand_undecided(request_id), digest)
            found.action.demand_answer(wish, request_id)
            return await self._reply(request, wish, by, proof)
        request = await self._open(request_id, digest)
        answer = await self._answer(
            "rejected", by, proof, request, words=wish, signed="responded"
        )
        rejected = await self._reject(request, answer, note=f"{RESPONSE}{wish}", words=wish)
        responded = replace(answer, word="responded")
        now = self._now()
        await self._store.write(give, rejected, responded, "rejected", now)
        return await self._waiting.card(request_id)

    async def _reply(self, request: Request, words: str, by: str, proof: Claim) -> Card:
        """The words are all that was asked for: it is done with them."""
        answer = await self._answer(
            "replied", by, proof, request, words=words, signed="responded"
        )
        now = self._now()
        done = decision_of(answer, now) | {"tried": now, "words": words, "untold": True}
        await self._write(request, give, answer, "sent", now, **done)
        return await self._waiting.card(request.id)

    async def snooze(
        self,
        request_id: str,
        until: datetime,
        by: str,
        proof: Claim = "page",
        words: str | None = None,
    ) -> Card:
        """Out of sight until then, in the person's own words; what expires comes back in time before that."""
        request = await self._open(request_id, None)
        _demand_unheld(request)
        now = self._now()
        if until <= now:
            problem = FieldProblem("until", "is not in the future", clock.iso(until))
            past = InvalidInput("a card can be put off only until later", fields=[problem])
            past.to_person = (past.message, "name a time that is yet to come")
            raise past
        if request.expires is not None:
            until = min(
                until, max(request.expires - LAST_CALL, now + (request.expires - now) / 2)
            )
        answer = await self._answer("snoozed", by, proof, request, words=words)
        await self._write(request, give, answer, request.state, now, snoozed=until)
        return await self._waiting.card(request_id)

    async def wake(self, request_id: str, by: str, proof: Claim = "page") -> Card:
        request = await self._waiting.find(request_id)
        now = self._now()
        if request.snoozed is not None and request.snoozed > now:
            answer = await self._answer("woken", by, proof, request)
            await self._write(request, give, answer, request.state, now, snoozed=None)
        return await self._waiting.card(request_id)

    async def undo(self, request_id: str, by: str, proof: Claim = "page") -> Card:
        """Take a yes back while it rests."""
        request = await self._waiting.find(request_id)
        if request.state != "held":
            raise too_late(request)
        answer = await self._answer("undone", by, proof, request)
        state = request.unanswered
        now = self._now()
        undone = await self._store.write(
            give, request, answer, state, now, due=None, proof=None
        )
        if isinstance(undone, Conflict):
            raise too_late(await self._waiting.find(request_id))
        return await self._waiting.card(request_id)

    async def last(self) -> LastAnswer | None:
        """The person's last answer, where it can still be taken back."""
        return await self._store.read(find_last, self._now(), self._hold_time)

    async def undo_last(self, at: int, by: str, proof: Claim = "page") -> list[Card]:
        """Take the last answer back, which was given at that moment: a yes, a no, other
        words, a snooze, a batch."""
        last = await self.last()
        if last is None or clock.to_ms(last.at) != at:
            raise Denied(
                "it is too late to undo that", reason="left", hint="nothing was changed"
            )
        answer = await self._answer("undone", by, proof, *last.requests)
        now = self._now()
        for request in await self._store.write(take_back, last, answer, now):
            await self._door.follow(request)
        return [await self._waiting.card(request.id) for request in last.requests]

    async def _open(self, request_id: str, digest: str | None) -> Request:
        """The request, where there is something left to answer and it is what the person saw."""
        request = await self._waiting.find(request_id)
        if request.state not in ANSWERABLE:
            raise decided(request)
        return demand_seen(request, digest)

    async def _demand_undecided(self, request_id: str) -> Request:
        """The request, where a no can still stop it or a yes still release it."""
        request = await self._waiting.find(request_id)
        if request.state == "sending":
            raise too_late(request)
        if request.state not in (*ANSWERABLE, "approved", "rejected"):
            raise decided(request)
        return request

    async def _hold(self, requests: Sequence[Request], by: str, proof: Claim) -> None:
        answer = await self._answer("held", by, proof, *requests, signed="approved")
        now = self._now()
        until = now + self._hold_time
        seen: dict[str, str] = {}
        for request in requests:
            await self._demand_approvable(request)
            seen[request.id] = await self._waiting.assess(request)

        def work(tx: Transaction) -> list[Request]:
            fresh = [request for request in requests if request.state != "held"]
            held = [
                approve(tx, each, answer, now, due=until, assessed=seen[each.id])
                for each in fresh
            ]
            for request in held:
                if isinstance(request, Conflict):
                    raise Changed(
                        "it changed in this moment",
                        hint="look at it again; nothing was decided",
                    )
            return [request for request in held if isinstance(request, Request)]

        for request in await self._store.write(work):
            # Without a hold it acts at once; the row is there all the same, should this process die.
            if until <= now:
                await self._go_on(request)

    async def _demand_approvable(self, request: Request) -> None:
        """Refuse a yes to what no yes answers, cannot be sent, or is no longer what was shown."""
        if isinstance(request.action, Question):
            request.action.demand_answer("yes", request.id)
        if request.fault is not None:
            raise InvalidInput(
                f"it cannot be sent as it stands: {begin_small(request.fault)}",
                hint="edit it first",
            )
        now = await self._door.catch_edit(request)
        if now.revision != request.revision:
            raise not_what_was_seen(now)

    async def _reject(self, request: Request, answer: Answer, **changes: Any) -> Request:
        now = self._now()
        seen = await self._waiting.assess(request)
        no = decision_of(answer, now) | {"assessed": seen} | changes
        return await self._write(request, give, answer, "rejected", now, **no)

    async def _revise(self, request: Request, action: Action, answer: Answer) -> None:
        if action == request.action and request.fault is None:
            return
        now = self._now()
        await asyncio.to_thread(demand_sendable, action, now)
        changes = request.next_revision | {
            "action": action,
            "difference": await asyncio.to_thread(
                describe_difference, request.proposed, action
            ),
            "fault": None,
            "note": None,
        }
        if request.home == "Drafts":
            del changes["file"]
        # A draft's file comes first: should this process die, the person's new words are in it.
        await self._door.write_edit(request, action)
        revised = await self._store.write(give, request, answer, "waiting", now, **changes)
        if isinstance(revised, Request):
            await self._door.replace(request, revised)
        elif (await self._waiting.find(request.id)).digest != action.digest:
            raise not_what_was_seen(request)

    async def _write(
        self, request: Request, work: Change, *given: Any, **named: Any
    ) -> Request:
        """Write an answer down; the files follow."""
        changed = await self._store.write(work, request, *given, **named)
        if isinstance(changed, Conflict):
            if (await self._waiting.find(request.id)).state == "sending":
                raise too_late(request)
            raise not_what_was_seen(request)
        await self._door.follow(changed)
        return changed


def _demand_unheld(request: Request) -> None:
    if request.state == "held":
        raise Denied(
            f"{request.id} is approved already", reason="held", hint="undo it first"
        )
