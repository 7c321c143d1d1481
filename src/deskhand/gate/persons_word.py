"""Whose word it is: what somebody proves before they may answer or permit, and what a passkey has to sign for it."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from deskhand.config import Settings
from deskhand.errors import Denied
from deskhand.gate import permissions
from deskhand.gate.cards import Card
from deskhand.gate.claims import Claim, Claims
from deskhand.gate.door import Door
from deskhand.gate.letters import Letter, edit_action
from deskhand.gate.permissions import Permission, Terms
from deskhand.gate.permitting import Permitting
from deskhand.gate.proofs import TERMS, Answer, say_answer
from deskhand.gate.refusals import not_what_was_seen
from deskhand.gate.requests import Request, Word
from deskhand.gate.waiting import Waiting
from deskhand.gate.webauthn import Said
from deskhand.store import Store


class PersonsWord:
    def __init__(
        self,
        settings: Settings,
        store: Store,
        waiting: Waiting,
        door: Door,
        go_on: Callable[[Request], Awaitable[object]],
        now: Callable[[], datetime],
        permitting: Permitting,
    ) -> None:
        self._permitting = permitting
        self._store = store
        self._waiting = waiting
        self._door = door
        self._policy = door.policy
        self._claims = Claims(store, door.policy, now)
        self._go_on = go_on
        self._hold_time = timedelta(seconds=settings.hold_seconds)
        self._now = now

    async def permit(
        self, request_id: str, digest: str, terms: Terms, by: str, proof: Claim = "page"
    ) -> Permission:
        """From now on others like this one leave without a question, so often and until then."""
        request = demand_seen(await self._waiting.find(request_id), digest)
        if request.state not in ("held", "approved", "sending", "sent"):
            raise Denied(
                "you have not said yes to this one",
                reason="no_approval",
                hint="answer it first",
            )
        card = await self._waiting.card(request_id)
        proven = await self._claims.prove(
            by, proof, _make_said_to_permit(request, card, terms)
        )
        return await self._permitting.make(
            request, card, terms, self._policy.answer("permitted", by, proven)
        )

    async def demand_person(self, by: str, proof: Claim, said: Said) -> None:
        """Refuse who proves too little to answer: what only the person may do, they may not either."""
        proven = await self._claims.prove(by, proof, said)
        self._policy.demand(proven.proof)

    async def permit_again(self, by: str, proof: Claim = "page") -> None:
        """Permissions that were turned off count again."""
        await self.demand_person(by, proof, Said(word="permit again"))
        await self._permitting.turn(by, on=True)

    async def make_said(
        self,
        signed: str,
        requests: Sequence[tuple[str, str]],
        letter: Letter | None = None,
        words: str | None = None,
    ) -> Said:
        """What a passkey has to sign for this answer; of an edited text the digest is the new one."""
        requests = [(name, _digest_of(seen)) for name, seen in requests]
        if letter is not None:
            requests = [
                (name, edit_action(await self._waiting.find(name), letter).digest)
                for name, _ in requests
            ]
        return say_answer(signed, requests, words)

    async def make_said_to_permit(self, request_id: str, digest: str, terms: Terms) -> Said:
        """What a passkey has to sign for a permission: the card that it is made from, and each of its terms."""
        request = demand_seen(await self._waiting.find(request_id), digest)
        return _make_said_to_permit(request, await self._waiting.card(request_id), terms)

    async def _answer(
        self,
        word: Word,
        by: str,
        claim: Claim,
        *requests: Request,
        words: str | None = None,
        signed: str | None = None,
    ) -> Answer:
        about = [(request.id, request.digest) for request in requests]
        said = say_answer(signed or word, about, words)
        return self._policy.answer(
            word, by, await self._claims.prove(by, claim, said), words
        )


def _make_said_to_permit(request: Request, card: Card, terms: Terms) -> Said:
    agreed = (TERMS, permissions.digest_agreed(card, request.action, terms))
    return Said(word="permitted", about=((request.id, request.digest), agreed))


def demand_seen(request: Request, seen: str | None) -> Request:
    """The request, where it is what the person saw; an answer to anything else leaves a
    yes that rests as it is."""
    if seen is not None and request.digest != _digest_of(seen):
        raise not_what_was_seen(request)
    return request


def demand_doubt_seen(request: Request, seen: str | None) -> Request:
    """For a yes: the same, and where the mail may have left by now, the person saw that it may."""
    if seen is not None and request.state == "unknown" and request.seen != seen:
        raise not_what_was_seen(request)
    return demand_seen(request, seen)


def _digest_of(seen: str) -> str:
    return seen.partition("-")[0]
