"""What waits for the person: the one list behind the page, the terminal, MCP, notifications and the dashboard.

A card is made from the action itself, never from an assistant's words about it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from pydantic import TypeAdapter

from deskhand import clock, unseen
from deskhand.errors import DeskError, FieldProblem, InvalidInput, NotFound
from deskhand.foreign.arguments import shorten_rows
from deskhand.foreign.edits import TextEdit
from deskhand.gate import enclosures, ledger, recipients
from deskhand.gate.actions import addresses_of
from deskhand.gate.askers import describe_asker
from deskhand.gate.card_filter import EVERY, CardFilter
from deskhand.gate.enclosures import Enclosure
from deskhand.gate.recipients import Acquaintance, Recipient
from deskhand.gate.requests import OPEN, Request, State, describe_earlier_send
from deskhand.gate.risk import Risk, assess_action
from deskhand.mail import FullMessage, Mailbox
from deskhand.store import Store, Transaction

Kind = Literal["send_email", "reply_email", "forward_email", "update_emails", "call_tool", "ask_person", "draft"]
CardState = State | Literal["snoozed"]
MOST_RISKS = 2000
_AT_ONCE = 200
"""Cards that are made at once where some of them are looked for."""
_FURTHEST = 18
"""Digits of a time in a cursor."""


@dataclass(frozen=True, slots=True)
class Original:
    """The mail it answers."""

    message_id: str
    sender: str
    subject: str
    date: str
    text: str
    warnings: tuple[str, ...]
    """What is odd about it: hidden text, a link that shows one host and leads to another, right-to-left override."""


@dataclass(frozen=True, slots=True)
class Card:
    """A request as the person sees it."""

    id: str
    kind: Kind
    state: CardState
    digest: str
    """Of everything that would be sent; the answer names it."""
    revision: int
    account: str
    to: tuple[Recipient, ...]
    cc: tuple[Recipient, ...]
    bcc: tuple[Recipient, ...]
    subject: str
    body: str
    rows: tuple[tuple[str, str], ...]
    """The arguments of a call, each by its path."""
    unshown: int
    """So many of them are too much for a card."""
    edits: tuple[TextEdit, ...]
    """What a call would change in texts."""
    attachments: tuple[Enclosure, ...]
    send_at: datetime | None
    as_text: bool
    """It leaves as plain text, though its body is written as a page."""
    answers: str | None
    """The message id of the mail it answers."""
    difference: str | None
    """To what was proposed, as a unified diff."""
    asked_by: str
    asker: str
    """Who asks, in words."""
    """Which door proposed it, and for a draft by which rule or model."""
    reason: str | None
    """Why it was drafted, as the rule or the model said it; not the desk's own words."""
    risk: Risk
    created: datetime
    expires: datetime | None
    until: datetime | None
    """When its hold or its snooze ends, or the rate limit lets it leave."""
    note: str | None
    urgent: bool = False
    fault: str | None = None
    """Why it cannot be sent as it stands."""
    answered: datetime | None = None
    """When the person answered it; what is said about its risk and its recipients is of that moment then."""
    left: datetime | None = None
    """When it was sent."""
    message_id: str | None = None
    """What the mailbox calls the mail that left."""
    words: str | None = None
    """How the person wants it done instead."""
    decided_by: str | None = None

    @property
    def everybody(self) -> tuple[Recipient, ...]:
        return (*self.to, *self.cc, *self.bcc)

    @property
    def cursor(self) -> str:
        """Its place in the list."""
        return _cursor(self.urgent, self.created, self.id)


Named = tuple[tuple[Recipient, ...], tuple[Recipient, ...], tuple[Recipient, ...]]
"""Whom it goes to, who gets a copy, and who a blind one."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a card said when the person answered it."""

    risk: Risk
    named: Named


_ASSESSMENT = TypeAdapter(Assessment)


@dataclass(frozen=True, slots=True)
class Counts:
    waiting: int
    held: int
    snoozed: int


class Waiting:
    def __init__(
        self,
        store: Store,
        find: Callable[[str], Awaitable[Request]],
        refresh: Callable[[Request], Awaitable[Request]],
        notice: Callable[[], Awaitable[None]],
        mailbox: Callable[[], Mailbox],
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self.find = find
        """One request, after what the person did with its file."""
        self._refresh = refresh
        self._notice = notice
        self._mailbox = mailbox
        self._now = now
        self._risks: dict[tuple[object, ...], Risk] = {}
        """By what was looked at: a text is looked at once, however many pages ask for its card each second."""

    async def requests(
        self, *, limit: int = 50, after: str | None = None, snoozed: bool | None = None
    ) -> tuple[list[Request], str | None]:
        """A page of what waits or is under way, the urgent and then the oldest first, and the cursor of the next."""
        place = _place(after)
        await self._notice()
        now = self._now()
        rows = await self._store.read(ledger.page, place, limit + 1, now, snoozed=snoozed)
        more = None
        if len(rows) > limit:
            last = rows[limit - 1]
            more = _cursor(last.urgent, last.created, last.id)
        heard = [await self._refresh(row) for row in rows[:limit]]
        return [request for request in heard if request.state in OPEN], more

    async def cards(
        self, *, limit: int = 50, after: str | None = None, snoozed: bool = False, wanted: CardFilter = EVERY
    ) -> tuple[list[Card], str | None]:
        """A page of the cards that are wanted, and the cursor of the next page."""
        found: list[Card] = []
        async for cards, more in self._pages(limit, after, snoozed=snoozed):
            found += [card for card in cards if wanted.takes(card)]
            if len(found) > limit:
                return found[:limit], found[limit - 1].cursor
            if len(found) == limit or more is None:
                break
        return found, more

    async def following(self, card: Card, *, snoozed: bool, wanted: CardFilter = EVERY) -> Card | None:
        """The card that the person answers after this one: the next that waits, else the first that does."""
        for start in (card.cursor, None):
            async for cards, _ in self._pages(5, start, snoozed=snoozed):  # most often it is the very next
                for each in cards:
                    if each.id != card.id and each.state in ("waiting", "unknown", "snoozed") and wanted.takes(each):
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

    async def assess(self, request: Request) -> str:
        """What the card says in this moment, to be kept with the answer."""
        (card,) = await self._cards_of([request])
        return _ASSESSMENT.dump_json(Assessment(card.risk, (card.to, card.cc, card.bcc))).decode()

    async def card(self, request_id: str) -> Card:
        """The card of one request, whatever became of it."""
        (card,) = await self._cards_of([await self.find(request_id)])
        return card

    async def card_as_answered(self, request_id: str) -> Card:
        """The same with what was known when the person answered; what a yes rests on is `card`, which knows more."""
        request = await self.find(request_id)
        (card,) = await self._cards_of([request])
        if request.assessed is None or request.state in ("waiting", "unknown"):
            return card
        kept = _ASSESSMENT.validate_json(request.assessed)
        to, cc, bcc = kept.named
        return replace(card, risk=kept.risk, to=to, cc=cc, bcc=bcc)

    async def counts(self) -> Counts:
        found = await self._store.read(ledger.waiting_ids, self._now())
        held = sum(state == "held" for _, state, _ in found)
        snoozed = sum(asleep for _, state, asleep in found if state != "held")
        return Counts(len(found) - held - snoozed, held, snoozed)

    async def ids(self) -> frozenset[str]:
        """What is neither answered nor put off."""
        found = await self._store.read(ledger.waiting_ids, self._now())
        return frozenset(name for name, state, asleep in found if state != "held" and not asleep)

    async def original(self, card: Card) -> Original | None:
        """The mail it answers, as plain text; None where it answers none, or that one is gone."""
        if card.answers is None:
            return None
        try:
            mail = await self._mailbox().get(card.answers)
        except NotFound:
            return None
        except DeskError as error:
            return Original(card.answers, "", "", "", "", (f"the mailbox cannot show it now: {error.message}",))
        odd = await asyncio.to_thread(_describe_unseen, mail)
        return Original(
            message_id=mail.summary.id,
            sender=mail.summary.sender,
            subject=mail.summary.subject,
            date=clock.iso(mail.summary.date),
            text=mail.body,
            warnings=(*mail.warnings, *odd),
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
            return recipients.find(tx, addresses), ledger.earlier_sends(tx, digests)

        known, sent = await self._store.read(ask)

        def make() -> list[Card]:
            return [self._card_of(request, known, now, sent.get(request.digest)) for request in found]

        return await asyncio.to_thread(make)

    def _card_of(self, request: Request, known: Acquaintance, now: datetime, sent: tuple[str, datetime] | None) -> Card:
        named = name_recipients(request, known)
        looked_at = (
            request.digest,
            *(each.known for line in named for each in line),
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
            risk = self._risks[looked_at] = _risk(request, named, known, sent)
        return card_of(request, named, risk, now)


def _describe_unseen(mail: FullMessage) -> list[str]:
    parts = {"sender": mail.summary.sender, "subject": mail.summary.subject, "text": mail.body}
    return [f"its {name} holds {each}" for name, text in parts.items() for each in unseen.describe(text)]


def name_recipients(request: Request, known: Acquaintance) -> Named:
    def read(line: str) -> tuple[Recipient, ...]:
        return tuple(known.recipient(each, request.sender, request.participants) for each in addresses_of(line))

    action = request.action
    return read(action.to), read(action.cc), read(action.bcc)


def card_of(request: Request, named: Named, risk: Risk, now: datetime) -> Card:
    mail = request.action
    state, until = _standing(request, now)
    rows, unshown = shorten_rows(mail.rows)
    return Card(
        id=request.id,
        kind="draft" if request.origin == "draft" else mail.kind,
        state=state,
        digest=request.digest,
        revision=request.revision,
        account=mail.account,
        to=named[0],
        cc=named[1],
        bcc=named[2],
        subject=mail.subject,
        body=mail.body,
        rows=rows,
        unshown=unshown,
        edits=mail.edits,
        attachments=mail.attachments,
        send_at=mail.send_at,
        as_text=mail.as_text,
        answers=mail.reply_to_message_id,
        difference=request.difference,
        asked_by=request.asked_by or "not written down",
        asker=describe_asker(request.asker, request.asked_by),
        reason=request.reason,
        risk=risk,
        created=request.created,
        expires=request.expires,
        until=until,
        note=request.note,
        urgent=request.urgent,
        fault=request.fault,
        answered=None if state in ("waiting", "snoozed", "unknown") else request.decided,
        left=request.left if state == "sent" else None,
        message_id=request.message_id,
        words=request.words,
        decided_by=request.decided_by,
    )


def _risk(request: Request, named: Named, known: Acquaintance, sent: tuple[str, datetime] | None) -> Risk:
    found = assess_action(
        request.action,
        new=frozenset(each.address for line in named for each in line if not each.known),
        sender=request.sender,
        participants=request.participants,
        domains=known.domains,
        warnings=request.warnings,
        sent_before=describe_earlier_send(*sent, request.action.noun) if sent else None,
    )
    if request.fault is None:
        return found
    return Risk("high", (f"It cannot be sent as its file stands: {request.fault}.", *found.reasons))


def _standing(request: Request, now: datetime) -> tuple[CardState, datetime | None]:
    """The state as the person sees it, and until when it is so."""
    if request.state == "held":
        return "held", request.due
    if request.snoozed is not None and request.snoozed > now and request.state in ("waiting", "unknown"):
        return "snoozed", request.snoozed
    if request.state == "approved" and request.resting == "rate":
        return request.state, request.due
    return request.state, None


def _cursor(urgent: bool, created: datetime, name: str) -> str:
    return f"{'u' if urgent else 'o'}{clock.to_ms(created)}-{name}"


def _place(cursor: str | None) -> tuple[int, int, str]:
    if cursor is None:
        return (0, 0, "")
    kind = cursor[:1]
    created, dash, name = cursor[1:].partition("-")
    is_time = created.isdecimal() and created.isascii() and len(created) <= _FURTHEST
    if kind not in ("u", "o") or not dash or not is_time or not name.isascii() or not name.isprintable():
        problem = FieldProblem("cursor", "is not a cursor of this list", cursor[:60], "Ask without a cursor")
        raise InvalidInput("this cursor does not continue this list", fields=[problem])
    return int(kind == "o"), int(created), name
