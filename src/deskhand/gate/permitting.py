"""What a permission covers rests as if the person had said yes; how the person makes one, and ends it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from deskhand import audit
from deskhand.config import Settings
from deskhand.errors import Changed
from deskhand.gate import permissions
from deskhand.gate.actions import Action, read_action
from deskhand.gate.cards import Card
from deskhand.gate.ledger import Conflict
from deskhand.gate.permissions import EQUAL_ANSWERS, Permission, Terms, may_permit
from deskhand.gate.proofs import Answer, Policy
from deskhand.gate.record import GateCall
from deskhand.gate.requests import Request
from deskhand.gate.waiting import Waiting
from deskhand.gate.written_answers import approve, give
from deskhand.store import Store, Transaction

_MOST_ALIKE = 200
"""How many cards are looked at before a permission is proposed."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A permission as the person sees it."""

    permission: Permission
    uses: list[tuple[str, datetime]]
    counts: bool
    """Whether it lets anything through now."""


class Permitting:
    def __init__(
        self,
        settings: Settings,
        store: Store,
        waiting: Waiting,
        policy: Policy,
        now: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._store = store
        self._waiting = waiting
        self._policy = policy
        self._now = now

    async def let_through(self, request: Request) -> Request | None:
        """The request with the yes of a permission that covers it; None where none does, and it waits."""
        if not request.action.may_be_permitted or request.state != "waiting":
            return None
        if not await self._store.read(permissions.find_open, request.action):
            return None
        card = await self._waiting.card(request.id)
        now = self._now()
        until = now + timedelta(seconds=self._settings.hold_seconds)

        def work(tx: Transaction) -> Request | None:
            if permissions.is_off(tx):
                return None
            for each in permissions.find_open(tx, request.action, to_use=True):
                if not self._policy.vouches(tx, each) or not each.covers(
                    request.action, card
                ):
                    continue
                if not permissions.use(tx, each, request, now):
                    continue
                held = approve(tx, request, self._policy.answer_under(each), now, due=until)
                if isinstance(held, Conflict):
                    # And this use of the permission is not counted.
                    raise Changed("it changed in this moment")
                return held
            return None

        with suppress(Changed):
            return await self._store.write(work)
        return None

    async def make(
        self, request: Request, card: Card, terms: Terms, answer: Answer
    ) -> Permission:
        """From now on others like this one leave without a question."""
        now = self._now()
        made = permissions.make(card, request.action, terms, answer.proof, now)
        signed = replace(made, evidence=self._policy.sign_terms(made))

        def work(tx: Transaction) -> None:
            permissions.insert(tx, signed)
            give(tx, request, answer, request.state, now)

        await self._store.write(work)
        return signed

    async def list_all(self) -> list[Standing]:
        now = self._now()

        def work(tx: Transaction) -> list[Standing]:
            off = permissions.is_off(tx)
            return [
                self._standing(tx, each, now, off=off) for each in permissions.list_all(tx)
            ]

        return await self._store.read(work)

    async def find(self, permission_id: str) -> Standing:
        now = self._now()

        def work(tx: Transaction) -> Standing:
            return self._standing(
                tx, permissions.find(tx, permission_id), now, off=permissions.is_off(tx)
            )

        return await self._store.read(work)

    def _standing(
        self, tx: Transaction, each: Permission, now: datetime, *, off: bool
    ) -> Standing:
        counts = (
            not off
            and each.closed is None
            and now < each.ends
            and self._policy.vouches(tx, each)
        )
        return Standing(each, permissions.uses_of(tx, each.id), counts)

    async def is_off(self) -> bool:
        return await self._store.read(permissions.is_off)

    async def revoke(self, permission_id: str, by: str) -> None:
        now = self._now()

        def work(tx: Transaction) -> None:
            found = permissions.find(tx, permission_id)
            if permissions.close(tx, found.id, by, now):
                audit.append(
                    tx,
                    GateCall(by, "revoke_permission", found.id, now).entry(
                        "success", None, now
                    ),
                )

        await self._store.write(work)

    async def turn(self, by: str, *, on: bool) -> None:
        """One switch for all of them. To turn them on again takes what an answer takes:
        see `Answers.permit_again`."""
        now = self._now()
        word = "permissions_on" if on else "permissions_off"

        def work(tx: Transaction) -> None:
            permissions.turn(tx, now, on=on)
            audit.append(tx, GateCall(by, word, "all", now).entry("success", None, now))

        await self._store.write(work)

    async def suggest(self, request: Request, card: Card) -> list[Card]:
        """The cards that a permission like this would have let through lately, those with a no as well.

        Empty unless the last five answers to such cards were a yes.
        """
        action = request.action
        if not may_permit(action, card):
            return []
        now = self._now()
        rows = await self._store.read(permissions.answered_lately, now)
        alike = await asyncio.to_thread(_keep_alike, rows, action)
        answers = [state for _, state in alike if state != "expired"][:EQUAL_ANSWERS]
        if len(answers) < EQUAL_ANSWERS or "rejected" in answers:
            return []
        model = permissions.make(
            card, action, Terms(1, now + timedelta(days=1)), "page", now
        )
        cards = [await self._waiting.card(name) for name, _ in alike[:_MOST_ALIKE]]
        return [each for each in cards if _would_cover(model, each)]


def _keep_alike(rows: list[tuple[str, str, str]], action: Action) -> list[tuple[str, str]]:
    """The id and the state of those that a permission would name in the same way."""
    names = action.named()
    return [
        (name, state) for name, text, state in rows if read_action(text).named() == names
    ]


def _would_cover(model: Permission, card: Card) -> bool:
    return card.risk.level != "high" and set(card.risk.reasons) <= set(model.seen)


def describe(permission: Permission, until: str) -> str:
    """What it lets through, in a sentence."""
    names = permission.names
    if "tool" in names:
        what = f"{names['tool']} of {names['server']} with exactly {names['arguments']}, for {names['asker']}"
        if "at" in names:
            what += f" in {names['at']['folder']}"
    else:
        where = (
            f" in the thread of “{names['subject']}”"
            if names.get("thread_id")
            else f" about “{names['subject']}”"
        )
        everybody = ", ".join(
            names[name] for name in ("to", "cc", "bcc") if names.get(name)
        )
        what = f"mail from {names['account']} to {everybody}{where}"
    return f"{what}; at most {permission.per_day} a day, until {until}"
