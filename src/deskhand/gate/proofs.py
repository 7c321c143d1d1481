"""An answer as it is written down: what was said to which text, by whom, and why it counts as the person's word.

It changes the row and stands on the record in the same transaction. A claim asks here whether a yes names what is sent.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from deskhand import audit, clock
from deskhand.gate import ledger
from deskhand.gate.ledger import Conflict
from deskhand.gate.record import GateCall, facts_of
from deskhand.gate.requests import LIFETIME, Proof, Request, State
from deskhand.store import Transaction

Word = Literal["held", "approved", "rejected", "edited", "responded", "snoozed", "woken", "undone"]


@dataclass(frozen=True, slots=True)
class Answer:
    word: Word
    by: str
    proof: Proof
    words: str | None = None


def give(
    tx: Transaction, /, request: Request, answer: Answer, state: State, now: datetime, **changes: Any
) -> Request | Conflict:
    """Change the row as the answer says and write the answer down; not where somebody else was faster."""
    changed = ledger.change(tx, request, state, **changes)
    if isinstance(changed, Request):
        _write_down(tx, changed, answer, now)
        call = GateCall(answer.by, answer.word, changed.action.target, now)
        more = facts_of(changed) | {"proof": answer.proof}
        if answer.word in ("held", "snoozed"):
            more["until"] = clock.iso(changed.snoozed or changed.due or now)
        audit.append(tx, call.entry("success", None, now, **more))
    return changed


def approve(
    tx: Transaction, /, request: Request, answer: Answer, now: datetime, *, due: datetime, **changes: Any
) -> Request | Conflict:
    """A yes: to rest until `due`, or to act upon now."""
    state: State = "held" if answer.word == "held" else "approved"
    yes: dict[str, Any] = {
        "proof": answer.proof,
        "decided_by": answer.by,
        "decided": now,
        "once_more": request.may_have_left,
        "due": due,
        "attempts": 0,
        "error": None,
        "resting": None,
        "snoozed": None,
        "note": None,
        "settled": False,
    }
    if request.state == "unknown":
        yes["expires"] = now + LIFETIME  # however long ago it was asked, this yes is new
    return give(tx, request, answer, state, now, **yes | changes)


def note_hand_written(tx: Transaction, request: Request, answer: Answer, now: datetime) -> Request:
    """A yes that the person wrote by hand, for a request that was made by it."""
    yes: dict[str, Any] = {"proof": answer.proof, "decided_by": "hand-written approval", "decided": now}
    ledger.change(tx, request, "approved", due=now, **yes)
    approved = replace(request, **yes)
    _write_down(tx, approved, answer, now)
    return approved


def names_this_text(tx: Transaction, request: Request) -> bool:
    """Whether a person's yes was to exactly what would be sent."""
    sql = "SELECT 1 FROM answers WHERE request_id = ? AND digest = ? AND word IN ('held', 'approved') LIMIT 1"
    return tx.one(sql, request.id, request.action.digest) is not None


def carry_over_yes(tx: Transaction, request: Request, words: str, digest: str) -> bool:
    """Let a yes that an earlier version kept by the digest of the words alone count for the whole mail."""
    copied = tx.execute(
        "INSERT INTO answers (request_id, revision, word, digest, proof, said_by, at, words)"
        " SELECT request_id, revision, word, ?, proof, said_by, at, words FROM answers"
        " WHERE request_id = ? AND digest = ? AND word IN ('held', 'approved')",
        *(digest, request.id, words),
    )
    return copied > 0


def _write_down(tx: Transaction, request: Request, answer: Answer, now: datetime) -> None:
    tx.execute(
        "INSERT INTO answers (request_id, revision, word, digest, proof, said_by, at, words)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        *(request.id, request.revision, answer.word, request.digest, answer.proof, answer.by),
        *(clock.to_ms(now), answer.words),
    )
