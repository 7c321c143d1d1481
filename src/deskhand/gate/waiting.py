"""What waits for the person: the one list behind the page, the terminal, MCP, notifications and the dashboard."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from deskhand import clock, unseen
from deskhand.errors import DeskError, InvalidInput, NotFound
from deskhand.gate import enclosures, lists, recipients
from deskhand.gate.asking import participants_of
from deskhand.gate.cards import (
    ASSESSMENT,
    EVERY,
    Assessment,
    Card,
    CardFilter,
    Original,
    assess_card,
    card_of,
    name_recipients,
)
from deskhand.gate.recipients import Acquaintance
from deskhand.gate.requests import OPEN, Request
from deskhand.gate.risk import Risk
from deskhand.mail import FullMessage, Mailbox
from deskhand.store import Store, Transaction

MOST_RISKS = 2000
SHORTEST = 4
"""How many characters of an id the person has to type."""
_AT_ONCE = 200
"""Cards that are made at once where some of them are looked for."""
_NAMED = 10
"""How many ids are named where a beginning fits several."""


@dataclass(frozen=True, slots=True)
class Counts:
    waiting: int = 0
    held: int = 0
    snoozed: int = 0


def count_waiting(tx: Transaction, now: datetime) -> Counts:
    return Counts(**lists.count_undecided(tx, now))


class Waiting:
    def __init__(
        self,
        store: Store,
        find: Callable[[str], Awaitable[Request]],
        refresh_all: Callable[[Sequence[Request]], Awaitable[list[Request]]],
        notice: Callable[[], Awaitable[None]],
        mailbox: Callable[[], Mailbox],
        now: Callable[[], datetime],
        zone: str,
    ) -> None:
        self._zone = zone
        self._store = store
        self.find = find
        """One request, after what the person did with its file."""
        self._refresh_all = refresh_all
        self.notice = notice
        """Hear what the person did with files."""
        self._mailbox = mailbox
        self._now = now
        self._risks: dict[tuple[object, ...], Risk] = {}
        """By what was looked at: a text is looked at once, however many pages ask for its card each second."""

    async def requests(
        self, *, limit: int = 50, after: str | None = None, snoozed: bool | None = None
    ) -> tuple[list[Request], str | None]:
        """A page of what waits or is under way, in the order of `lists.page`, and the cursor of the next."""
        place = lists.read_cursor(after)
        await self.notice()
        now = self._now()
        rows = await self._store.read(lists.page, place, limit + 1, now, snoozed=snoozed)
        more = None
        if len(rows) > limit:
            last = rows[limit - 1]
            more = lists.write_cursor(
                lists.rank(last.urgent, last.waits_for_limit), last.created, last.id
            )
        heard = await self._refresh_all(rows[:limit])
        return [request for request in heard if request.state in OPEN], more

    async def cards(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        snoozed: bool = False,
        wanted: CardFilter = EVERY,
    ) -> tuple[list[Card], str | None]:
        """A page of the cards that are wanted, and the cursor of the next page."""
        found: list[Card] = []
        async for cards, more in self._pages(limit, after, snoozed=snoozed):
            found += [card for card in cards if wanted.takes(card)]
            if len(found) > limit:
                return found[:limit], found[limit - 1].cursor
            if len(found) == limit:
                return found, more
        return found, None

    async def find_next(
        self, card: Card, *, snoozed: bool, wanted: CardFilter = EVERY
    ) -> Card | None:
        """The card that the person answers after this one: the next that waits, else the first that does."""
        for start in (card.cursor, None):
            # Most often it is the very next.
            async for cards, _ in self._pages(5, start, snoozed=snoozed):
                for each in cards:
                    if (
                        each.id != card.id
                        and each.state in ("waiting", "unknown", "snoozed")
                        and wanted.takes(each)
                    ):
                        return each
        return None

    async def _pages(
        self, limit: int, after: str | None, *, snoozed: bool
    ) -> AsyncIterator[tuple[list[Card], str | None]]:
        more = after
        while True:
            found, more = await self.requests(limit=limit, after=more, snoozed=snoozed)
            yield await self._cards_of(found), more
            if more is None:
                return
            limit = max(limit, _AT_ONCE)

    async def complete_id(self, beginning: str) -> str:
        """The id that begins so, where it is only one; what begins no id stays as it is."""
        found = await self._store.read(lists.find_beginning, beginning, _NAMED + 1)
        if beginning in found or not found:
            return beginning
        if len(beginning) < SHORTEST:
            raise NotFound(
                f"the id {beginning} is too short to name a request",
                hint=f"type at least {SHORTEST} characters of its id; `deskhand approvals` lists what waits",
            )
        if len(found) > 1:
            more = ", …" if len(found) > _NAMED else ""
            raise InvalidInput(
                f"several requests begin with {beginning}",
                hint=f"type more of it: {', '.join(found[:_NAMED])}{more}",
            )
        return found[0]

    async def assess(self, request: Request) -> str:
        """What the card says in this moment, to be kept with the answer."""
        (card,) = await self._cards_of([request])
        return ASSESSMENT.dump_json(
            Assessment(card.risk, (card.to, card.cc, card.bcc))
        ).decode()

    async def card(self, request_id: str) -> Card:
        """The card of one request, whatever became of it."""
        (card,) = await self._cards_of([await self.find(request_id)])
        return card

    async def card_as_answered(self, request_id: str) -> Card:
        """The card of one request with the risk and the recipients as they were when the person
        answered. A yes rests on `card`, which knows what is known now."""
        request = await self.find(request_id)
        (card,) = await self._cards_of([request])
        if request.assessed is None or request.state in ("waiting", "unknown"):
            return card
        kept = ASSESSMENT.validate_json(request.assessed)
        to, cc, bcc = kept.named
        return replace(card, risk=kept.risk, to=to, cc=cc, bcc=bcc)

    async def counts(self) -> Counts:
        return await self._store.read(count_waiting, self._now())

    async def ids(self) -> frozenset[str]:
        """What is neither answered nor put off."""
        return frozenset(await self._store.read(lists.list_awake, self._now()))

    async def original(self, card: Card) -> Original | None:
        """The mail it answers, as plain text; None where it answers none, or that one is gone."""
        if card.answers is None:
            return None
        try:
            mail = await self._mailbox().get(card.answers)
        except NotFound:
            return None
        except DeskError as error:
            return Original(
                card.answers,
                "",
                "",
                "",
                "",
                (),
                (f"the mailbox cannot show it now: {error.message}",),
            )
        odd = await asyncio.to_thread(_describe_unseen, mail)
        return Original(
            message_id=mail.summary.id,
            sender=mail.summary.sender,
            subject=mail.summary.subject,
            date=clock.iso(mail.summary.date),
            text=mail.body,
            named=await asyncio.to_thread(participants_of, mail),
            warnings=(*mail.alarms, *odd),
        )

    async def load_attachments(self, card: Card) -> list[bytes | None]:
        """The bytes of each attachment; None where the desk no longer keeps them."""
        return [await self._store.read(enclosures.find, each) for each in card.attachments]

    async def _cards_of(self, found: Sequence[Request]) -> list[Card]:
        """All in a few queries, however many they are."""
        addresses = [each for request in found for each in request.action.everybody]
        digests = [request.digest for request in found if request.state in OPEN]
        now = self._now()

        def ask(tx: Transaction) -> tuple[Acquaintance, dict[str, tuple[str, datetime]]]:
            return recipients.find(tx, addresses, self._zone), lists.earlier_sends(
                tx, digests
            )

        known, sent = await self._store.read(ask)

        def make() -> list[Card]:
            return [
                self._card_of(request, known, now, sent.get(request.digest))
                for request in found
            ]

        return await asyncio.to_thread(make)

    def _card_of(
        self,
        request: Request,
        known: Acquaintance,
        now: datetime,
        sent: tuple[str, datetime] | None,
    ) -> Card:
        named = name_recipients(request, known)
        looked_at = (
            request.digest,
            *((each.known, each.alike) for line in named for each in line),
            request.sender,
            known.domains,
            request.warnings,
            sent,
            request.fault,
        )
        risk = self._risks.get(looked_at)
        if risk is None:
            if len(self._risks) >= MOST_RISKS:
                self._risks.clear()
            risk = self._risks[looked_at] = assess_card(request, named, known, sent)
        return card_of(request, named, risk, now)


def _describe_unseen(mail: FullMessage) -> list[str]:
    parts = {
        "sender": mail.summary.sender,
        "subject": mail.summary.subject,
        "text": mail.body,
    }
    return [
        f"its {name} holds {each}"
        for name, text in parts.items()
        for each in unseen.describe(text)
    ]
