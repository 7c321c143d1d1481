"""An answer is written down: it changes the row and stands on the record, in one transaction."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from deskhand import audit, clock
from deskhand.gate import ledger
from deskhand.gate.ledger import Conflict
from deskhand.gate.proofs import Answer
from deskhand.gate.record import GateCall, facts_of
from deskhand.gate.requests import LIFETIME, YES, Request, State
from deskhand.gate.rows import ANSWER_COLUMNS, WrittenAnswer
from deskhand.store import Transaction, marks


def give(
    tx: Transaction,
    /,
    request: Request,
    answer: Answer,
    state: State,
    now: datetime,
    **changes: Any,
) -> Request | Conflict:
    """Change the row as the answer says and write the answer down; not where somebody else was faster."""
    changed = ledger.change(tx, request, state, **changes)
    if isinstance(changed, Request):
        _write_down(tx, changed, answer, now)
        call = GateCall(answer.by, answer.word, changed.action.target, now)
        more = facts_of(changed) | {"proof": answer.describe_proof(changed)}
        if answer.word in ("held", "snoozed"):
            more["until"] = clock.iso(changed.snoozed or changed.due or now)
        audit.append(tx, call.entry("success", None, now, **more))
    return changed


def decision_of(answer: Answer, now: datetime) -> dict[str, Any]:
    """What any answer that decides changes in the row."""
    return {
        "proof": answer.proof,
        "decided_by": answer.by,
        "decided": now,
        "due": None,
        "snoozed": None,
    }


def approve(
    tx: Transaction,
    /,
    request: Request,
    answer: Answer,
    now: datetime,
    *,
    due: datetime,
    **changes: Any,
) -> Request | Conflict:
    """A yes: to rest until `due`, or to act upon now; what has a time of its own does not leave before it."""
    state: State = "held" if answer.word == "held" else "approved"
    yes = decision_of(answer, now) | {
        "once_more": request.may_have_left,
        "due": max(due, request.action.send_at or due),
        "attempts": 0,
        "error": None,
        "resting": None,
        "note": None,
        "settled": False,
    }
    if request.state == "unknown":
        yes["expires"] = now + LIFETIME  # however long ago it was asked, this yes is new
    return give(tx, request, answer, state, now, **yes | changes)


def note_hand_written(
    tx: Transaction, request: Request, answer: Answer, now: datetime
) -> Request:
    """A yes that the person wrote by hand, for a request that was made by it."""
    yes: dict[str, Any] = {
        "proof": answer.proof,
        "decided_by": "hand-written approval",
        "decided": now,
    }
    ledger.change(tx, request, "approved", due=now, **yes)
    approved = replace(request, **yes)
    _write_down(tx, approved, answer, now)
    return approved


def carry_over_yes(tx: Transaction, request: Request, words: str, digest: str) -> bool:
    """Let a yes that an earlier version kept by the digest of the words alone count for the whole mail."""
    copied = tx.execute(
        "INSERT INTO answers (request_id, revision, word, digest, proof, said_by, at, words)"
        " SELECT request_id, revision, word, ?, proof, said_by, at, words FROM answers"
        f" WHERE request_id = ? AND digest = ? AND word IN ({marks(YES)})",
        *(digest, request.id, words, *YES),
    )
    return copied > 0


def _write_down(tx: Transaction, request: Request, answer: Answer, now: datetime) -> None:
    before = tx.one("SELECT MAX(number) FROM answers WHERE request_id = ?", request.id)
    number = 1 + ((before and before[0]) or 0)
    assertion = None
    if answer.signature is not None:
        assertion = answer.signature.model_dump_json()
    written = WrittenAnswer(
        request_id=request.id,
        revision=request.revision,
        word=answer.word,
        digest=request.digest,
        proof=answer.proof,
        said_by=answer.by,
        at=clock.to_ms(now),
        words=answer.words,
        number=number,
        assertion=assertion,
    )
    evidence = None
    if answer.proof in ("password", "passkey"):
        evidence = answer.policy.evidence(written)
    if answer.proof == "permission":
        evidence = answer.policy.sign(request.id, answer.by, request.digest, number)
    tx.execute(
        f"INSERT INTO answers ({ANSWER_COLUMNS}, evidence) VALUES ({marks(written)}, ?)",
        *written,
        evidence,
    )
