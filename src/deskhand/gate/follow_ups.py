"""Tell me if nobody answers: which mails an answer is awaited to, until when, and what became of it.

A row stands beside the request of its mail from the asking on, and counts from the moment in which the mail left. It
ends once: an answer came, the person no longer wants to know, or the person was told by a question of the desk's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from deskhand import audit, clock
from deskhand.errors import FieldProblem, InvalidInput, NotFound
from deskhand.gate import ledger
from deskhand.gate.actions import FURTHEST, Mail
from deskhand.gate.asking import open_request
from deskhand.gate.question import Question
from deskhand.gate.record import GateCall, facts_of
from deskhand.gate.requests import OPEN, Request
from deskhand.mail import MailSummary
from deskhand.store import Transaction

FollowState = Literal["open", "answered", "cancelled", "told"]
ACTOR = "follow_up"
AGAIN = "Tell me again in 3 days"
LEAVE = "Leave it at that"
LOOK_EVERY = timedelta(minutes=5)
_LATER = timedelta(days=3)
_ALIVE = (*OPEN, "sent")


@dataclass(frozen=True, slots=True)
class AwaitedAnswer:
    request: Request
    due: datetime
    """When the person is told: as long after the mail left as was meant, or at the time that was named."""
    state: FollowState


def begin(
    tx: Transaction, request_id: str, wanted: datetime | timedelta, now: datetime
) -> None:
    """What a tool asks for; where the person has said something about it, that stands."""
    _insert(tx, request_id, wanted, now, "DO NOTHING")


def await_answer(
    tx: Transaction, request: Request, wanted: datetime | timedelta, now: datetime
) -> datetime:
    """The person wants to be told of this mail, whatever was said before; when that will be."""
    if not isinstance(request.action, Mail) or request.state not in _ALIVE:
        raise InvalidInput(
            "to this nobody can answer",
            hint="choose a mail that waits for you, or that has left",
        )
    if request.state == "sent" and isinstance(wanted, timedelta):
        wanted = now + wanted
    demand_later(wanted, request.action.send_at, now)
    named = "due = excluded.due, begun = excluded.begun, lasting = excluded.lasting"
    changes = f"{named}, state = 'open', looked = 0, question = NULL"
    _insert(tx, request.id, wanted, now, f"(request_id) DO UPDATE SET {changes}")
    (awaited,) = _find_where(tx, "request_id = ?", request.id)
    return awaited.due


def _insert(
    tx: Transaction,
    request_id: str,
    wanted: datetime | timedelta,
    now: datetime,
    otherwise: str,
) -> None:
    values = (
        request_id,
        clock.to_ms(_reckon(wanted, now)),
        clock.to_ms(now),
        int(isinstance(wanted, timedelta)),
    )
    names = "request_id, due, begun, lasting, state, looked"
    tx.execute(
        f"INSERT INTO follow_ups ({names}) VALUES (?, ?, ?, ?, 'open', 0) ON CONFLICT {otherwise}",
        *values,
    )


def _reckon(wanted: datetime | timedelta, start: datetime) -> datetime:
    if isinstance(wanted, timedelta):
        return start + wanted
    return wanted


def demand_later(
    wanted: datetime | timedelta, send_at: datetime | None, now: datetime
) -> None:
    """Refuse a time at which nobody can have answered, or that nobody would remember."""
    earliest = max(now, send_at or now)
    due = _reckon(wanted, earliest)
    if earliest < due <= earliest + FURTHEST:
        return
    problem = FieldProblem(
        "follow_up",
        "is not within a year after the mail leaves",
        clock.iso(due),
        "a later time",
    )
    raise InvalidInput(
        "Nobody can have answered by then, or it is more than a year ahead.",
        fields=[problem],
    )


def cancel(tx: Transaction, request_id: str) -> None:
    """The person no longer wants to know."""
    if not _end(tx, request_id, "cancelled"):
        raise NotFound(
            f"no answer to {request_id} is awaited",
            hint="`deskhand follow-up list` has those that are",
        )


def mark_answered(tx: Transaction, awaited: AwaitedAnswer) -> None:
    _end(tx, awaited.request.id, "answered")


def tell(
    tx: Transaction, awaited: AwaitedAnswer, question: Question, now: datetime
) -> Request | None:
    """The question by which the person is told, which waits from now on; None where somebody else was faster."""
    if not _end(tx, awaited.request.id, "told"):
        return None
    asked = open_request(question, ACTOR, None, now)
    ledger.insert(tx, asked)
    tx.execute(
        "UPDATE follow_ups SET question = ? WHERE request_id = ?",
        asked.id,
        awaited.request.id,
    )
    call = GateCall(ACTOR, question.kind, question.target, now)
    audit.append(tx, call.entry("waiting", None, now, **facts_of(asked)))
    return asked


def _end(tx: Transaction, request_id: str, state: FollowState) -> bool:
    sql = "UPDATE follow_ups SET state = ? WHERE request_id = ? AND state = 'open'"
    return tx.execute(sql, state, request_id) == 1


def take_to_look_at(
    tx: Transaction, now: datetime, *, all_of_them: bool
) -> list[AwaitedAnswer]:
    """Those whose threads are to be looked at now, which nobody else does for a while."""
    moment = clock.to_ms(now)
    before = moment + 1 if all_of_them else clock.to_ms(now - LOOK_EVERY)
    chosen = _find_where(tx, "state = 'open' AND (looked < ? OR due <= ?)", before, moment)
    found = [each for each in chosen if each.request.state == "sent"]
    for each in found:
        tx.execute(
            "UPDATE follow_ups SET looked = ? WHERE request_id = ?", moment, each.request.id
        )
    return found


def take_up_answers(tx: Transaction, now: datetime) -> list[Request]:
    """Do what the person answered to being told; the questions that still wait."""
    waiting: list[Request] = []
    for name, question in tx.all(
        "SELECT request_id, question FROM follow_ups WHERE question IS NOT NULL"
    ):
        asked = ledger.find(tx, question)
        if asked is not None and asked.state in OPEN:
            waiting.append(asked)
            continue
        tx.execute("UPDATE follow_ups SET question = NULL WHERE request_id = ?", name)
        if asked is not None and asked.words == AGAIN:
            sql = "UPDATE follow_ups SET state = 'open', due = ?, begun = ?, lasting = 0 WHERE request_id = ?"
            tx.execute(sql, clock.to_ms(now + _LATER), clock.to_ms(now), name)
    return waiting


def list_awaited(tx: Transaction) -> list[AwaitedAnswer]:
    """What is awaited still, the next first; of a mail that will not leave nobody awaits anything."""
    found = _find_where(tx, "state = 'open' ORDER BY due, request_id")
    return [each for each in found if each.request.state in _ALIVE]


def find_awaited(tx: Transaction, request_id: str) -> AwaitedAnswer | None:
    return next(iter(_find_where(tx, "request_id = ?", request_id)), None)


def _find_where(tx: Transaction, condition: str, *values: object) -> list[AwaitedAnswer]:
    sql = "SELECT request_id, due, begun, lasting, state FROM follow_ups"
    found: list[AwaitedAnswer] = []
    for name, due, begun, lasting, state in tx.all(f"{sql} WHERE {condition}", *values):
        request = ledger.find(tx, name)
        if request is None:
            continue
        at = clock.from_ms(due)
        asked = clock.from_ms(begun)
        start = max(asked, request.action.send_at or asked)
        if request.state == "sent":
            start = request.left
        if lasting or at <= start:
            at = start + (at - asked)
        found.append(AwaitedAnswer(request, at, state))
    return found


def ask_about(
    awaited: AwaitedAnswer,
    zone: str,
    why_unseen: str | None = None,
    elsewhere: Sequence[MailSummary] = (),
) -> Question:
    """How the person is told; `elsewhere` are mails that came from those who were asked, about something else."""
    request = awaited.request
    text = (
        f"Nobody has answered “{request.action.subject or '(no subject)'}”.\n\n"
        f"You sent it to {', '.join(request.action.everybody)} on {clock.dated(request.left, zone)}, and wanted to be"
        f" told on {clock.dated(awaited.due, zone)} if there is no answer."
    )
    for mail in elsewhere:
        about = f"“{mail.subject or '(no subject)'}” on {clock.dated(mail.date, zone)}"
        text = f"{text}\n\n{mail.sender} has written to you since: {about}."
    if why_unseen:
        text = f"{text}\n\nWhether there is one could not be seen: {why_unseen}."
    return Question(
        text=text[:4000],
        choices=(AGAIN, LEAVE),
        asker=f"{ACTOR} {request.id} {clock.iso(awaited.due)}",
    )
