"""What the person answered, and what ended without an answer: when, and what came of it. Nothing here changes a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from deskhand import clock
from deskhand.askers import describe_asker
from deskhand.gate.cards import kind_of
from deskhand.gate.requests import Request, State
from deskhand.gate.rows import find_where
from deskhand.store import Transaction, marks
from deskhand.wording import quoted

_AT = "CASE WHEN state = 'expired' THEN expires ELSE COALESCE(decided, created) END"
"""When it was answered; of what nobody answered when its time was over. An index has the same words."""
_ANSWERED = "(decided IS NOT NULL OR state IN ('expired', 'withdrawn'))"
_AT_ONCE = 200
_LOOKED_AT = 2000
"""How many rows are looked at for one page of a search."""
_NAMED = 1000
"""From how many of the newest rows the list of who asked is made."""
Upshot = Literal["sent", "rejected", "back", "under way", "unclear", "unsent", "expired"]
UPSHOTS: dict[Upshot, str] = {
    "sent": "sent or done",
    "rejected": "rejected",
    "back": "sent back with a note",
    "under way": "approved, not gone yet",
    "unclear": "unclear",
    "unsent": "not sent",
    "expired": "expired",
}
_STATES: dict[Upshot, tuple[State, ...]] = {
    "sent": ("sent",),
    "rejected": ("rejected",),
    "back": ("rejected",),
    "under way": ("held", "approved", "sending"),
    "unclear": ("unknown",),
    "unsent": ("failed", "withdrawn"),
    "expired": ("expired",),
}
_EVERY: tuple[State, ...] = tuple(
    dict.fromkeys(state for several in _STATES.values() for state in several)
)
Place = tuple[int, str]
"""Of a row in the list: when, and its id."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for; empty is any."""

    text: str = ""
    outcome: Upshot | None = None
    kind: str = ""
    asker: str = ""

    def takes(self, request: Request) -> bool:
        asker = describe_asker(request.asker, request.asked_by)
        if self.asker not in ("", asker) or self.kind not in ("", kind_of(request)):
            return False
        if self.outcome in ("rejected", "back"):
            is_back = request.words is not None
            if is_back != (self.outcome == "back"):
                return False
        action = request.action
        named = (action.subject, asker, action.account, action.to, *action.everybody)
        said = (request.words or "", request.note or "")
        text = "\n".join((*named, *said)).casefold()
        return all(word in text for word in self.text.casefold().split())


@dataclass(frozen=True, slots=True)
class Page:
    requests: Sequence[Request]
    older: Place | None
    """Behind which the next page begins."""
    partly: bool
    """Whether there are older ones that were not looked at."""


def find(tx: Transaction, wanted: Wanted, behind: Place | None, limit: int) -> Page:
    """The newest first."""
    states = _STATES[wanted.outcome] if wanted.outcome else _EVERY
    found: list[Request] = []
    for _ in range(_LOOKED_AT // _AT_ONCE):
        after = f" AND ({_AT}, id) < (?, ?)" if behind else ""
        rows = find_where(
            tx,
            f"state <> 'waiting' AND state IN ({marks(states)}) AND {_ANSWERED}{after}"
            f" ORDER BY {_AT} DESC, id DESC LIMIT ?",
            *(*states, *(behind or ()), _AT_ONCE),
        )
        for request in rows:
            behind = (clock.to_ms(ended(request)), request.id)
            if wanted.takes(request):
                found.append(request)
            if len(found) == limit:
                is_last = request is rows[-1] and len(rows) < _AT_ONCE
                return Page(found, None if is_last else behind, partly=False)
        if len(rows) < _AT_ONCE:
            return Page(found, None, partly=False)
    return Page(found, behind, partly=True)


def list_askers(tx: Transaction) -> list[str]:
    """Who asked for the newest of them, as the cards name them."""
    rows = tx.all(
        "SELECT DISTINCT asker, asked_by FROM (SELECT asker, asked_by FROM requests"
        f" WHERE state <> 'waiting' ORDER BY {_AT} DESC, id DESC LIMIT ?) AS newest",
        _NAMED,
    )
    return sorted({describe_asker(*row) for row in rows})


def ended(request: Request) -> datetime:
    """When it was answered, or its time was over."""
    if request.state == "expired" and request.expires is not None:
        return request.expires
    return request.decided or request.created


def describe_answer(request: Request) -> str:
    """What the person said to it, as a sentence."""
    match request.state:
        case "expired" if request.decided is not None and request.note:
            return request.note
        case "expired":
            return "You did not answer in time."
        case "withdrawn":
            return "Withdrawn."
        case "rejected":
            return _describe_no(request)
    return _describe_yes(request)


def _describe_no(request: Request) -> str:
    if request.words is not None:
        return f"You sent it back: {quoted(request.words)}"
    if request.note:
        return f"You rejected it: {quoted(request.note)}"
    return "You rejected it."


def _describe_yes(request: Request) -> str:
    if request.proof == "permission":
        return "Your permission let it through."
    if request.proof == "hand-written":
        return "You approved it by hand, in the vault."
    if request.action.kind == "ask_person":
        return f"You answered: {quoted(request.words or 'yes')}"
    if request.action != request.proposed:
        return "You approved it as you had edited it."
    return "You approved it."
