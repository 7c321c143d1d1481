"""What waits for the person, as the page and the terminal show it, and the person's answers.

A card is made from the action itself, never from an assistant's words about it. Each answer names the digest of what
was shown: what has changed since is shown again instead of being answered.
"""

import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from deskhand import audit, clock, unseen
from deskhand.audit import vault_log
from deskhand.config import Settings
from deskhand.errors import Changed, Denied, DeskError, FieldProblem, InvalidInput, NotFound, printable
from deskhand.gate import (
    Departure,
    DevMode,
    Failed,
    Gate,
    Limited,
    Released,
    acquaintance,
    drafts,
    holds,
    ledger,
    policy,
)
from deskhand.gate.acquaintance import Acquaintance, Recipient
from deskhand.gate.actions import Action
from deskhand.gate.approvals import Found
from deskhand.gate.drafts import Drafts, Listed, Proposed
from deskhand.gate.holds import Hold
from deskhand.gate.ledger import Row
from deskhand.gate.policy import Level, Risk
from deskhand.mail import Mailbox
from deskhand.store import Store, Transaction

__all__ = ["Card", "CardState", "Cards", "Counts", "Kind", "Letter", "Level", "Original", "Recipient", "Risk"]

log = logging.getLogger("deskhand.cards")

Kind = Literal["send_email", "reply_email", "draft"]
CardState = Literal[
    "waiting",
    "held",
    "snoozed",
    "approved",
    "sending",
    "unknown",
    "sent",
    "rejected",
    "expired",
    "withdrawn",
    "failed",
]
_OPEN: tuple[CardState, ...] = ("waiting", "held", "snoozed", "unknown")
"""States in which there is something left to answer."""
RESPONSE = "do it this way: "


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
class Letter:
    """What a person may change before saying yes."""

    to: str
    subject: str
    body: str


@dataclass(frozen=True, slots=True)
class Card:
    id: str
    kind: Kind
    state: CardState
    digest: str
    """Of everything that would be sent; the answer names it."""
    revision: int
    account: str
    to: tuple[Recipient, ...]
    subject: str
    body: str
    attachments: tuple[str, ...]
    answers: str | None
    """The message id of the mail it answers."""
    difference: str | None
    """To the last revision, as a unified diff; of a draft, to how the desk drafted it."""
    asked_by: str
    """Which door proposed it, and for a draft by which rule or model."""
    reason: str | None
    """Why it was drafted, as the rule or the model said it; not the desk's own words."""
    risk: Risk
    created: datetime
    expires: datetime | None
    until: datetime | None
    """When its hold or its snooze ends."""
    note: str | None


@dataclass(frozen=True, slots=True)
class Counts:
    waiting: int
    held: int
    snoozed: int


@dataclass(frozen=True, slots=True)
class _Around:
    """What the desk knows about the cards of one page, asked once for all of them."""

    holds: dict[str, Hold]
    asleep: dict[str, datetime]
    known: Acquaintance
    proposed: dict[str, Proposed]
    released: dict[str, Row]
    """The ledger's rows of drafts that left or are leaving."""
    account: str


class Cards:
    """What waits for the person, and the person's answers, whatever the door."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        gate: Gate,
        drafts: Drafts,
        mailbox: Callable[[], Mailbox],
        now: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._store = store
        self._gate = gate
        self._drafts = drafts
        self._mailbox = mailbox
        self._now = now

    # Looking.

    async def waiting(
        self, *, limit: int = 50, after: str | None = None, snoozed: bool = False
    ) -> tuple[list[Card], str | None]:
        """A page of what waits or is under way, the oldest first, and the cursor of the next page."""
        place, now = _place(after), self._now()
        files = [*await self._drafts.listed("Drafts"), *await self._drafts.listed("Approved")]

        def look(tx: Transaction) -> tuple[list[Row], dict[str, datetime]]:
            rows = ledger.page(tx, ledger.OPEN, place, limit + 1, now, snoozed=snoozed)
            return rows, holds.asleep(tx, now)

        rows, asleep = await self._store.read(look)
        waiting: list[tuple[tuple[int, str], Row | Listed]] = [
            ((each.created, each.id), each) for each in files if (each.id in asleep) == snoozed
        ]
        waiting = [each for each in waiting if each[0] > place]
        waiting += [((clock.to_ms(row.created), row.id), row) for row in rows]
        waiting.sort(key=lambda each: each[0])
        page = waiting[:limit]
        more = "{}-{}".format(*page[-1][0]) if len(waiting) > limit else None
        heeded = [await self._gate.heed(each) for _, each in page if isinstance(each, Row)]
        read = [await self._drafts.read(each) for _, each in page if isinstance(each, Listed)]
        cards = await self._made([row for row in heeded if row.state in ledger.OPEN], [each for each in read if each])
        return cards, more

    async def counts(self) -> Counts:
        now = self._now()
        ids = [each.id for each in await self._drafts.listed()]

        def look(tx: Transaction) -> Counts:
            rows = tx.all(
                "SELECT id FROM actions WHERE state = 'unknown' OR (state = 'waiting' AND expires > ?)",
                clock.to_ms(now),
            )
            open_ids = {*ids, *(str(name) for (name,) in rows)}
            held = holds.resting(tx)
            snoozed = holds.asleep(tx, now).keys() & open_ids - held
            return Counts(len(open_ids - held - snoozed), len(held), len(snoozed))

        return await self._store.read(look)

    async def card(self, card_id: str) -> Card:
        """In whatever state it is."""
        if not card_id.startswith(drafts.PREFIX):
            (card,) = await self._made([await self._gate.heed(await self._gate.find(card_id))], [])
            return card
        try:
            (card,) = await self._made([], [await self._drafts.find(card_id)])
        except NotFound:
            # The gate has claimed its file: it is leaving in this moment.
            row = await self._store.read(lambda tx: _row_of(tx, card_id))
            if row is None:
                raise
            (made,) = await self._made([row], [])
            card = replace(made, id=card_id, kind="draft")
        return card

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
        odd = [
            f"its {name} holds {each}"
            for name, text in _parts(mail.summary.sender, mail.summary.subject, mail.body)
            for each in unseen.describe(text)
        ]
        return Original(
            mail.summary.id,
            mail.summary.sender,
            mail.summary.subject,
            clock.iso(mail.summary.date),
            mail.body,
            (*mail.warnings, *odd),
        )

    # Answering.

    async def approve(self, card_id: str, digest: str, by: str) -> Card:
        """A yes that rests for `hold_seconds` and can be taken back until then."""
        await self._hold([await self._open(card_id, digest)], by)
        return await self.card(card_id)

    async def approve_all(self, answers: Sequence[tuple[str, str]], by: str) -> list[Card]:
        """Yes to all of them, or to none: only where each is of low risk."""
        if not answers:
            raise InvalidInput("nothing was chosen", hint="choose the cards that you want to approve")
        cards = [await self._open(card_id, digest) for card_id, digest in dict(answers).items()]
        for card in cards:
            if card.risk.level != "low" or card.state != "waiting":
                why = f"{card.risk.level} risk" if card.state == "waiting" else card.state
                raise Denied(
                    f"{card.id} ({printable(card.subject, 60)}) is {why}; nothing was approved",
                    reason="not_low_risk",
                    hint="together only waiting cards of low risk are approved; answer the others one by one",
                )
        await self._hold(cards, by)
        return [await self.card(card.id) for card in cards]

    async def approve_now(self, card_id: str, digest: str | None, by: str) -> Card:
        """The terminal's yes, without a hold: to this digest, or to what is there in this moment."""
        card = _seen(await self.card(card_id), digest)
        await self._drop_hold(card)
        await self._decide(card_id, "approved", by, None, card.digest)
        return await self.card(card_id)

    async def edit(self, card_id: str, digest: str, letter: Letter, by: str) -> Card:
        """The person's own words in place of what was proposed; they wait for their own yes."""
        card = await self._open(card_id, digest)
        if card.state == "held":
            raise Denied(f"{card_id} is approved already", reason="held", hint="undo it first")
        changes = asdict(letter) | {"body": letter.body.replace("\r\n", "\n")}
        if _is_draft(card_id):
            await self._drafts.edit(card_id, digest, changes, by)
        else:
            await self._gate.edit(card_id, digest, changes, by)
        return await self.card(card_id)

    async def approve_edited(self, card_id: str, digest: str, letter: Letter, by: str) -> Card:
        edited = await self.edit(card_id, digest, letter, by)
        return await self.approve(card_id, edited.digest, by)

    async def reject(self, card_id: str, digest: str | None, reason: str | None, by: str) -> Card:
        card = _seen(await self.card(card_id), digest)
        await self._drop_hold(card)
        await self._decide(card_id, "rejected", by, reason, card.digest)
        return await self.card(card_id)

    async def respond(self, card_id: str, digest: str, words: str, by: str) -> Card:
        """Not so, but this way: whoever proposed it is told the words."""
        if not words.strip():
            raise InvalidInput("there are no words", fields=[FieldProblem("words", "is empty", "")])
        card = await self._open(card_id, digest)
        await self._drop_hold(card)
        await self._decide(card_id, "rejected", by, f"{RESPONSE}{words.strip()}", digest, words.strip())
        await self._store.write(lambda tx: audit.append(tx, self._entry(by, "responded", card)))
        return await self.card(card_id)

    async def snooze(self, card_id: str, until: datetime, by: str) -> Card:
        """Out of sight until then; it expires all the same."""
        card = await self._open(card_id, None)
        if card.state == "held":
            raise Denied(f"{card_id} is approved already", reason="held", hint="undo it first")
        if until <= self._now():
            problem = FieldProblem("until", "is not in the future", clock.iso(until))
            raise InvalidInput("a card can be put off only until later", fields=[problem])

        def work(tx: Transaction) -> None:
            holds.snooze(tx, card_id, until)
            audit.append(tx, self._entry(by, "snoozed", card, until=clock.iso(until)))

        await self._store.write(work)
        return await self.card(card_id)

    async def wake(self, card_id: str, by: str) -> Card:
        card = await self.card(card_id)

        def work(tx: Transaction) -> None:
            if holds.wake(tx, card_id):
                audit.append(tx, self._entry(by, "woken", card))

        await self._store.write(work)
        return await self.card(card_id)

    async def undo(self, card_id: str, by: str) -> Card:
        """Take a yes back while it rests."""
        card = await self.card(card_id)

        def work(tx: Transaction) -> Literal["dropped", "taken", "none"]:
            done = holds.drop(tx, card_id)
            if done == "dropped":
                audit.append(tx, self._entry(by, "undone", card))
            return done

        if await self._store.write(work) != "dropped":
            raise _left(card)
        return await self.card(card_id)

    # Acting on what was held.

    async def perform_due(self, by: str = "desk") -> list[str]:
        """Act on each yes whose hold has ended; the ids of those that this process acted on."""
        done: list[str] = []
        while (hold := await self._store.write(lambda tx: holds.take(tx, self._now()))) is not None:
            await self._act(hold, by)
            done.append(hold.id)
        return done

    async def next_due(self) -> datetime | None:
        return await self._store.read(holds.next_due)

    async def _act(self, hold: Hold, by: str) -> None:
        try:
            note = await (self._let_draft_go(hold) if _is_draft(hold.id) else self._let_go(hold, by))
        except (Denied, InvalidInput, NotFound) as error:
            note = f"Your yes came to nothing: {error.message}."
        except (DeskError, OSError) as error:
            # Nobody knows how far it came: when the lease ends, somebody looks and goes on from there.
            log.warning("hold_postponed", extra={"card": hold.id, "why": str(error)})
            return
        await self._store.write(lambda tx: holds.done(tx, hold, note))

    async def _let_go(self, hold: Hold, by: str) -> str | None:
        """Decide and release; what a process that died has begun is only finished."""
        row = await self._gate.heed(await self._gate.find(hold.id))
        if row.state in ("waiting", "unknown"):
            row = await self._gate.decide(hold.id, "approved", hold.by, None, digest=hold.digest)
        if row.action.digest != hold.digest:
            raise Changed(f"the request {hold.id} was changed meanwhile")
        match row.state:
            case "sent":
                return None
            case "approved" | "sending":
                return _said(await self._gate.release(hold.id, by, self._announce))
            case state:
                raise Denied(f"the request {hold.id} is {state}", reason="decided")

    async def _let_draft_go(self, hold: Hold) -> None:
        """It goes to Approved/, from where the orchestrator sends it."""
        await self._drafts.decide(hold.id, "approved", hold.by, None, digest=hold.digest)

    def _announce(self, leaving: Action) -> None:
        vault_log.write_pre_send(self._settings.vault, leaving, self._now())

    # Together.

    async def _open(self, card_id: str, digest: str | None) -> Card:
        """The card, where there is something left to answer and it is what the person saw."""
        card = await self.card(card_id)
        if card.state not in _OPEN:
            raise Denied(f"{card_id} is {card.state}; nothing is left to decide", reason="decided")
        return _seen(card, digest)

    async def _hold(self, cards: Sequence[Card], by: str) -> None:
        now = self._now()
        until = now + timedelta(seconds=self._settings.hold_seconds)

        def work(tx: Transaction) -> list[Card]:
            fresh = [card for card in cards if holds.put(tx, Hold(card.id, card.digest, by, until))]
            for card in fresh:
                holds.wake(tx, card.id)
                audit.append(tx, self._entry(by, "held", card, until=clock.iso(until)))
            return fresh

        for card in await self._store.write(work):
            # Without a hold it acts at once; the row is there all the same, should this process die.
            if until <= now and (hold := await self._store.write(_taker(card.id, now))) is not None:
                await self._act(hold, "desk")

    async def _drop_hold(self, card: Card) -> None:
        if await self._store.write(lambda tx: holds.drop(tx, card.id)) == "taken":
            raise _left(card)

    async def _decide(
        self,
        card_id: str,
        answer: Literal["approved", "rejected"],
        by: str,
        note: str | None,
        digest: str,
        words: str | None = None,
    ) -> None:
        if _is_draft(card_id):
            await self._drafts.decide(card_id, answer, by, note, digest=digest, words=words)
        else:
            await self._gate.decide(card_id, answer, by, note, digest=digest)
        await self._store.write(lambda tx: holds.wake(tx, card_id))

    def _entry(self, by: str, what: str, card: Card, **more: Any) -> audit.Entry:
        return audit.Entry(
            timestamp=clock.iso(self._now()),
            correlation_id=str(uuid.uuid4()),
            actor=by,
            action_type=what,
            target=", ".join(audit.masked(each.address) for each in card.to),
            result="success",
            duration_ms=0,
            parameters={("draft_id" if card.kind == "draft" else "action_id"): card.id, "digest": card.digest} | more,
        )

    # Making.

    async def _made(self, rows: Sequence[Row], files: Sequence[Found]) -> list[Card]:
        """All in a few queries, however many they are."""
        ids = [*(row.id for row in rows), *(str(each.properties.get("draft_id")) for each in files)]
        letters = [_letter(each) for each in files]
        addresses = [*(row.action.to for row in rows), *(letter.to for letter in letters if letter)]
        done = {str(each.properties.get("draft_id")) for each in files if each.folder == "Done"}
        now, account = self._now(), await self._account() if files else ""

        def look(tx: Transaction) -> _Around:
            return _Around(
                holds.among(tx, ids),
                holds.asleep(tx, now),
                acquaintance.look(tx, addresses),
                drafts.among(tx, ids),
                {each: row for each in done if (row := _row_of(tx, each))},
                account,
            )

        around = await self._store.read(look)
        cards = [_of_row(row, around) for row in rows]
        cards += [_of_draft(each, letter, around) for each, letter in zip(files, letters, strict=True)]
        return sorted(cards, key=lambda card: (card.created, card.id))

    async def _account(self) -> str:
        with suppress(DeskError):
            return await self._mailbox().address()
        return ""


def _is_draft(card_id: str) -> bool:
    return card_id.startswith(drafts.PREFIX)


def _place(cursor: str | None) -> tuple[int, str]:
    if cursor is None:
        return (0, "")
    created, dash, name = cursor.partition("-")
    if not dash or not created.isdecimal() or not created.isascii() or len(created) > 18:
        raise InvalidInput("that is no place in the list", fields=[FieldProblem("after", "is no cursor", cursor[:60])])
    return int(created), name


def _seen(card: Card, digest: str | None) -> Card:
    """The card, where it is what the person saw; an answer to anything else leaves a yes that rests as it is."""
    if digest is not None and card.digest != digest:
        raise Changed(f"{card.id} is no longer what was shown", hint="look at it again; nothing was decided")
    return card


def _taker(card_id: str, now: datetime) -> Callable[[Transaction], Hold | None]:
    return lambda tx: holds.take(tx, now, card_id)


def _left(card: Card) -> Denied:
    return Denied(
        f"{card.id} can no longer be taken back: it is {card.state}",
        reason="left",
        hint="only a yes that still rests can be undone",
    )


def _row_of(tx: Transaction, draft_id: str) -> Row | None:
    action_id = drafts.released(tx, draft_id)
    return ledger.by_id(tx, action_id) if action_id else None


def _said(outcome: Departure) -> str | None:
    """What the card says about a release; nothing where there is nothing to say."""
    match outcome:
        case Released():
            return None
        case DevMode():
            return "You approved it; DEV_MODE is on, so it was logged and not sent."
        case Limited(limits, wait):
            minutes = max(1, round(wait.total_seconds() / 60))
            return (
                f"You approved it; {limits.most} mails have left in this window, the next one can in {minutes} minutes."
            )
        case Failed(error) if error.details.get("reason") == "under_way":
            return None
        case Failed(error):
            return f"You approved it, but it is not known to have left: {error.message}."


def _parts(sender: str, subject: str, body: str) -> list[tuple[str, str]]:
    return [("sender", sender), ("subject", subject), ("text", body)]


def _of_row(row: Row, around: _Around) -> Card:
    action = row.action
    to = around.known.recipient(action.to, row.sender)
    state, until, note = _standing(row.id, row.state, action.digest, around)
    facts = policy.Facts(
        action.account, action.to, action.subject, action.body, to.known, row.sender, around.known.domains, row.warnings
    )
    return Card(
        id=row.id,
        kind=action.kind,
        state=state,
        digest=action.digest,
        revision=row.revision,
        account=action.account,
        to=(to,),
        subject=action.subject,
        body=action.body,
        attachments=(),
        answers=action.reply_to_message_id,
        difference=row.difference,
        asked_by=row.asked_by or "not written down",
        reason=None,
        risk=policy.risk(facts),
        created=row.created,
        expires=row.expires,
        until=until,
        note=note or row.note,
    )


def _letter(found: Found) -> drafts.ApprovedDraft | None:
    try:
        return drafts.read(found)
    except InvalidInput:
        return None


_FOLDERS: dict[str, CardState] = {
    "Drafts": "waiting",
    "Approved": "approved",
    "Rejected": "rejected",
    "Done": "rejected",
}


def _of_draft(found: Found, letter: drafts.ApprovedDraft | None, around: _Around) -> Card:
    """Who drafted it and why comes from the row: a tool may write into Drafts/."""
    draft_id, digest = str(found.properties.get("draft_id")), drafts.fingerprint(found)
    known, row = around.proposed.get(draft_id), around.released.get(draft_id)
    state, until, note = _standing(draft_id, row.state if row else _FOLDERS[found.folder], digest, around)
    reason = found.properties.get("rejected_reason") if found.folder == "Rejected" else None
    card = Card(
        id=draft_id,
        kind="draft",
        state=state,
        digest=digest,
        revision=1,
        account=(known and known.account) or around.account,
        to=(),
        subject="",
        body=found.body,
        attachments=(),
        answers=None,
        difference=None,
        asked_by=(known and known.drafted_by) or "a note in Drafts/ that the desk did not write",
        reason=known.reason if known else None,
        risk=Risk("high", ("It cannot be sent as it stands.",)),
        created=known.created if known else datetime.fromtimestamp(found.changed / 1e9, UTC),
        expires=None,
        until=until,
        note=note or (str(reason) if reason else None),
    )
    return card if letter is None else _with_letter(card, letter, known, around)


def _with_letter(card: Card, letter: drafts.ApprovedDraft, known: Proposed | None, around: _Around) -> Card:
    sender, warnings = (known.sender, known.warnings) if known else (None, ())
    to = around.known.recipient(letter.to, sender)
    domains = around.known.domains
    facts = policy.Facts(card.account, letter.to, letter.subject, letter.body, to.known, sender, domains, warnings)
    difference = drafts.difference(known.letter, letter.letter) if known else ""
    return replace(
        card,
        revision=2 if difference else 1,
        to=(to,),
        subject=letter.subject,
        body=letter.body,
        answers=letter.reply_to_message_id,
        difference=difference or None,
        risk=policy.risk(facts),
    )


def _standing(
    card_id: str, state: CardState, digest: str, around: _Around
) -> tuple[CardState, datetime | None, str | None]:
    """The card's state as the person sees it, until when it is so, and what there is to say about it."""
    hold, asleep = around.holds.get(card_id), around.asleep.get(card_id)
    if hold is not None and state != "sent":
        if hold.note is not None:
            return state, None, hold.note
        if hold.digest != digest:
            return state, None, "It was changed after your yes, so that yes releases nothing. Look at it again."
        if state in ("waiting", "unknown"):
            return "held", hold.until, None
    if asleep is not None and state in ("waiting", "unknown"):
        return "snoozed", asleep, None
    return state, None, None
