"""What waits for the person, as the page and the terminal show it, and the person's answers.

A card is made from the action itself, never from an assistant's words about it. Each answer names the digest of what
was shown: what has changed since is shown again instead of being answered.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Level = Literal["low", "medium", "high"]
Kind = Literal["send_email", "reply_email", "draft"]
CardState = Literal["waiting", "held", "snoozed", "approved", "sending", "unknown", "sent", "rejected", "expired"]


@dataclass(frozen=True, slots=True)
class Recipient:
    address: str
    known: bool
    """Whether this desk has written to the address before, or it is the sender of a mail that is answered."""
    since: str
    """One phrase for the badge: "3 mails sent, last on 2026-11-02" or "never written to"."""


@dataclass(frozen=True, slots=True)
class Risk:
    level: Level
    reasons: tuple[str, ...]


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
    """To the last revision, as a unified diff."""
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
