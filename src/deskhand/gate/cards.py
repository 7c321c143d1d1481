"""A request as the person sees it. A card is made from the action itself, never from an assistant's words about it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import TypeAdapter

from deskhand.askers import PERSON, describe_asker
from deskhand.clock import dated
from deskhand.foreign.arguments import shorten_rows
from deskhand.foreign.edits import TextEdit
from deskhand.gate import lists
from deskhand.gate.actions import Mail, addresses_of
from deskhand.gate.enclosures import Enclosure
from deskhand.gate.permissions import name_used
from deskhand.gate.recipients import Acquaintance, Recipient
from deskhand.gate.requests import Request, State, describe_earlier_send
from deskhand.gate.risk import Risk, assess_action
from deskhand.wording import begin_small

Kind = Literal[
    "send_email",
    "reply_email",
    "forward_email",
    "update_emails",
    "unsubscribe",
    "call_tool",
    "ask_person",
    "draft",
]
TARGETS: dict[Kind, str] = {
    "call_tool": "tool",
    "unsubscribe": "host",
    "update_emails": "account",
}
"""What an action that is no mail goes to."""
WORDS: dict[Kind, str] = {
    "send_email": "new mail",
    "reply_email": "reply",
    "forward_email": "forwarded mail",
    "update_emails": "change of mails",
    "unsubscribe": "leave a list",
    "call_tool": "call of a tool",
    "ask_person": "question",
    "draft": "drafted reply",
}
"""What the person reads for each kind."""
ACTS: dict[Kind, str] = {
    "update_emails": "is done",
    "call_tool": "counts",
    "ask_person": "counts",
}
"""What comes of a yes when its hold ends, where nothing leaves."""
_RULE = "rule:"
"""Before the name of the person's rule that drafted it."""
CardState = State | Literal["snoozed"]


@dataclass(frozen=True, slots=True)
class Original:
    """The mail it answers."""

    message_id: str
    sender: str
    subject: str
    date: str
    text: str
    named: tuple[str, ...]
    """Every address in its From, To and Cc."""
    warnings: tuple[str, ...]
    """What is odd about it: hidden text, a link that shows one host and leads to another,
    right-to-left override."""


@dataclass(frozen=True, slots=True)
class Card:
    """A request as the person sees it."""

    id: str
    kind: Kind
    state: CardState
    digest: str
    """Of everything that would be sent."""
    seen: str
    """What an answer names."""
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
    """How many of them the card leaves out."""
    edits: tuple[TextEdit, ...]
    """What a call would change in texts."""
    attachments: tuple[Enclosure, ...]
    send_at: datetime | None
    html: str
    """The same text as HTML, which leaves beside it; empty where none does."""
    as_text: bool
    """It leaves as plain text, though its body is written as a page."""
    answers: str | None
    """The message id of the mail it answers."""
    difference: str | None
    """To what was proposed, as a unified diff."""
    asked_by: str
    """Which door proposed it, and for a draft by which rule or model."""
    asker: str
    """Who asks, in words."""
    reason: str | None
    """Why it was drafted, as the rule or the model said it; not the desk's own words."""
    risk: Risk
    created: datetime
    expires: datetime | None
    until: datetime | None
    """When its hold or its snooze ends, or the rate limit lets it leave."""
    retry: datetime | None
    """When one that was approved and did not leave is tried again."""
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
    permission: str | None = None
    """The id of the permission that let it through."""

    @property
    def everybody(self) -> tuple[Recipient, ...]:
        return (*self.to, *self.cc, *self.bcc)

    @property
    def what(self) -> str:
        """Its kind, in words."""
        return describe_kind(self.kind, self.answers)

    @property
    def acts(self) -> str:
        """What it does when its hold ends."""
        return ACTS.get(self.kind, "leaves")

    @property
    def claim(self) -> str | None:
        """Why it is asked for, as whoever asks says it. The person's own rule claims nothing: see `rule_says`."""
        return None if self.asked_by.startswith(_RULE) else self.reason

    @property
    def rule_says(self) -> str | None:
        """The words that the person wrote into their rule; a rule without any is named as who asks."""
        name = self.asked_by.removeprefix(_RULE)
        if name == self.asked_by or self.reason == f"the rule '{name}'":
            return None
        return self.reason

    @property
    def choices(self) -> tuple[str, ...]:
        """The answers that are taken; none where any words are, or it is no question."""
        if self.kind != "ask_person":
            return ()
        return tuple(choice for _, choice in self.rows)

    @property
    def cursor(self) -> str:
        """Its place in the list."""
        limited = self.state == "approved" and self.until is not None
        return lists.write_cursor(lists.rank(self.urgent, limited), self.created, self.id)


def kind_of(request: Request) -> Kind:
    return "draft" if request.origin == "draft" else request.action.kind


def describe_kind(kind: Kind, answers: str | None) -> str:
    """A kind in words. A draft that answers nothing is a new mail."""
    if kind == "draft" and answers is None:
        return WORDS["send_email"]
    return WORDS[kind]


Named = tuple[tuple[Recipient, ...], tuple[Recipient, ...], tuple[Recipient, ...]]
"""Whom it goes to, who gets a copy, and who a blind one."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a card said when the person answered it."""

    risk: Risk
    named: Named


ASSESSMENT = TypeAdapter(Assessment)


def name_recipients(request: Request, known: Acquaintance) -> Named:
    def read(line: str) -> tuple[Recipient, ...]:
        return tuple(
            known.recipient(each, request.sender, request.participants)
            for each in addresses_of(line)
        )

    action = request.action
    if not isinstance(action, Mail):
        return tuple(Recipient(each, True, "") for each in (action.to,) if each), (), ()
    return read(action.to), read(action.cc), read(action.bcc)


def card_of(request: Request, named: Named, risk: Risk, now: datetime) -> Card:
    mail = request.action
    state, until = _standing(request, now)
    rows, unshown = shorten_rows(mail.rows)
    return Card(
        id=request.id,
        kind=kind_of(request),
        state=state,
        digest=request.digest,
        seen=request.seen,
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
        html=mail.html,
        as_text=mail.as_text,
        answers=mail.reply_to_message_id,
        difference=request.difference,
        asked_by=request.asked_by or "not written down",
        asker=describe_asker(request.asker, request.asked_by),
        reason=request.reason if request.asked_by != PERSON else None,
        risk=risk,
        created=request.created,
        expires=request.expires,
        until=until,
        retry=_next_try(request),
        note=request.note,
        urgent=request.urgent,
        fault=request.fault,
        answered=None if state in ("waiting", "snoozed", "unknown") else request.decided,
        left=request.left if state == "sent" else None,
        message_id=request.message_id,
        words=request.words,
        permission=name_used(request),
    )


def assess_card(
    request: Request, named: Named, known: Acquaintance, sent: tuple[str, datetime] | None
) -> Risk:
    earlier = None
    if sent:
        name, at = sent
        earlier = describe_earlier_send(name, dated(at, known.zone), request.action)
    found = assess_action(
        request.action,
        new=frozenset(each.address for line in named for each in line if not each.known),
        sender=request.sender,
        participants=request.participants,
        domains=known.domains,
        alike=tuple(
            (each.address, each.alike) for line in named for each in line if each.alike
        ),
        warnings=request.warnings,
        sent_before=earlier,
    )
    if request.fault is None:
        return found
    return Risk(
        "high",
        (f"It cannot be sent as it stands: {begin_small(request.fault)}.", *found.reasons),
    )


def _standing(request: Request, now: datetime) -> tuple[CardState, datetime | None]:
    """The state as the person sees it, and until when it is so."""
    if request.state == "held":
        return "held", request.due
    if (
        request.snoozed is not None
        and request.snoozed > now
        and request.state in ("waiting", "unknown")
    ):
        return "snoozed", request.snoozed
    if request.waits_for_limit:
        return request.state, request.due
    return request.state, None


def _next_try(request: Request) -> datetime | None:
    has_failed = request.state == "approved" and request.error is not None
    return request.due if has_failed and not request.waits_for_limit else None


@dataclass(frozen=True, slots=True)
class CardFilter:
    """Which cards are looked for; empty is any."""

    text: str = ""
    asker: str = ""
    risk: str = ""
    kind: str = ""
    account: str = ""

    def takes(self, card: Card) -> bool:
        if self.asker not in ("", card.asker) or self.account not in ("", card.account):
            return False
        if self.risk not in ("", card.risk.level) or self.kind not in ("", card.kind):
            return False
        named = [
            card.subject,
            card.asker,
            card.account,
            *(each.address for each in card.everybody),
        ]
        text = "\n".join(named).casefold()
        return all(word in text for word in self.text.casefold().split())


EVERY = CardFilter()
