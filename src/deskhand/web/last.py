"""The last answer in a sentence, for every page on which it can be undone."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from deskhand import clock
from deskhand.gate.actions import Mail
from deskhand.gate.answers import LAST_CALL
from deskhand.gate.cards import ACTS
from deskhand.gate.question import Question
from deskhand.gate.undo import LastAnswer
from deskhand.orchestrator.undeciding import Decided
from deskhand.wording import STAYS_HERE


@dataclass(frozen=True, slots=True)
class Undoable:
    said: str
    subject: str | None
    """Of the mail, or of the one card that was answered; None of a batch."""
    at: int
    """By which the answer is named."""
    seconds: float
    """How long it can still be undone."""
    card: str | None = None
    """The one card that was answered."""


def describe_decided(
    decided: Decided, now: datetime, hold: timedelta, zone: str
) -> Undoable | None:
    """What was decided about a mail; None where it is too late to take that back."""
    left = (decided.at + hold - now).total_seconds()
    if left <= 0:
        return None
    said = _DECIDED[decided.word]
    if decided.word == "later" and decided.later is not None:
        until = clock.natural(decided.later, now, zone)
        said = f"Put off until {until}. It comes back by itself."
    return Undoable(said, decided.before.subject, clock.to_ms(decided.at), left)


def describe_last(
    last: LastAnswer, now: datetime, zone: str, *, reaches_nobody: bool
) -> Undoable:
    """With `reaches_nobody` every mail of the desk stays on this machine."""
    first = last.requests[0]
    several = len(last.requests) > 1
    said = _SAID.get(last.word, "Answered.")
    match last.word:
        case "held" if several:
            said = f"{len(last.requests)} approved."
        case "held" if acts := ACTS.get(first.action.kind):
            yes = "Answered with yes" if isinstance(first.action, Question) else "Approved"
            said = f"{yes}. It {acts} in a moment."
        case "held" if first.is_early(now) and first.due is not None:
            said = f"Approved. It leaves {clock.natural(first.due, now, zone)}."
        case "held" if reaches_nobody and isinstance(first.action, Mail):
            said = f"Approved. {STAYS_HERE}"
        case "snoozed" if first.snoozed is not None:
            said = f"Snoozed until {clock.natural(first.snoozed, now, zone)}"
            said += _say_end(first.expires, first.snoozed, now, zone)
    seconds = max(0.0, (last.until - now).total_seconds())
    at = clock.to_ms(last.at)
    if several:
        return Undoable(said, None, at, seconds)
    return Undoable(said, first.action.subject, at, seconds, first.id)


def _say_end(expires: datetime | None, snoozed: datetime, now: datetime, zone: str) -> str:
    """Why a card that expires comes back sooner than the person may have said."""
    if expires is None or expires - snoozed > LAST_CALL:
        return "."
    return f", before it expires {clock.natural(expires, now, zone)}."


_SAID = {
    "held": "Approved. Sending in a moment.",
    "rejected": "Rejected. Nothing was sent.",
    "responded": "Sent back with your note. Nothing was sent.",
}

_DECIDED = {
    "replied": "Your reply is drafted. It waits for your yes.",
    "archived": "Archived.",
    "later": "Put off. It comes back by itself.",
    "handed": "Left to an assistant, with your words.",
}
