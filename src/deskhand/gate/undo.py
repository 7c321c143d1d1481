"""The person's last answer, for as long as it can be taken back: one card's, or those of a batch together."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from deskhand import clock
from deskhand.errors import Changed
from deskhand.gate import ledger
from deskhand.gate.ledger import Conflict
from deskhand.gate.proofs import Answer
from deskhand.gate.requests import Request, Word
from deskhand.gate.written_answers import give
from deskhand.store import Transaction

_MOST = 1000


@dataclass(frozen=True, slots=True)
class LastAnswer:
    word: Word
    at: datetime
    until: datetime
    """Until then it can be taken back."""
    requests: tuple[Request, ...]


def find_last(tx: Transaction, now: datetime, hold: timedelta) -> LastAnswer | None:
    """What the person said last, unless it is too late to take it back or it was taken back already."""
    rows = tx.all(
        "SELECT request_id, word, at FROM answers AS given WHERE at > ? AND said_by = 'person'"
        " AND number = (SELECT MAX(number) FROM answers WHERE request_id = given.request_id)"
        " ORDER BY at DESC LIMIT ?",
        *(clock.to_ms(now - hold), _MOST),
    )
    last: LastAnswer | None = None
    for name, word, at in rows:
        request = ledger.find(tx, name)
        if last is not None and clock.to_ms(last.at) != at:
            break
        if request is not None and _stands(request, word, now):
            given = clock.from_ms(at)
            others = last.requests if last else ()
            last = LastAnswer(word, given, given + hold, (*others, request))
    return last


def _stands(request: Request, word: Word, now: datetime) -> bool:
    """Whether the request is still as this answer left it."""
    match word:
        case "held":
            return request.state == "held" and request.due is not None and request.due > now
        case "rejected":
            return request.state == "rejected"
        case "responded":
            # The orchestrator drafts anew as soon as it has heard the words.
            return request.state == "rejected" and not request.settled
        case "snoozed":
            return request.snoozed is not None and request.snoozed > now
        case _:
            return False


def take_back(
    tx: Transaction, last: LastAnswer, answer: Answer, now: datetime
) -> list[Request]:
    """All of it, or nothing where somebody else was faster with one of them."""
    changed = []
    for request in last.requests:
        undone = give(tx, request, answer, request.unanswered, now, **_changes(last.word))
        if isinstance(undone, Conflict):
            raise Changed(
                "it changed in this moment", hint="look at it again; nothing was undone"
            )
        changed.append(undone)
    return changed


def _changes(word: Word) -> dict[str, Any]:
    if word == "snoozed":
        return {"snoozed": None}
    changes: dict[str, Any] = {"due": None, "proof": None}
    if word != "held":
        changes |= {"note": None, "words": None}
    return changes
