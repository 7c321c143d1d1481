"""An answer as it is written down: what was said to which text, by whom, and why it counts as the person's word.

It changes the row and stands on the record in the same transaction. Whichever door it came in by, `Policy` says whether
its proof is enough at this desk; a claim asks it again before anything leaves.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from deskhand import audit, clock
from deskhand.config import LeastProof
from deskhand.errors import Denied
from deskhand.gate import ledger, permissions
from deskhand.gate.ledger import Conflict
from deskhand.gate.permissions import Permission
from deskhand.gate.record import GateCall, facts_of
from deskhand.gate.requests import LIFETIME, Proof, Request, State
from deskhand.store import Transaction

Word = Literal["held", "approved", "rejected", "edited", "responded", "snoozed", "woken", "undone", "permitted"]
_COUNT: dict[LeastProof, tuple[Proof, ...]] = {
    "vault": ("vault", "hand-written", "page", "terminal", "password"),
    "page": ("page", "terminal", "password"),
    "passkey": ("password",),
}
_WANTED: dict[LeastProof, str] = {
    "vault": "answer it in the vault, on the page or in the terminal",
    "page": "answer it on the page or in the terminal",
    "passkey": "type your password for this one answer, on the page or in the terminal",
}


@dataclass(frozen=True, slots=True)
class Typed:
    """The password as somebody typed it for one answer."""

    password: str
    source: str
    """Where it was typed: a session, or the terminal. Who guesses in one place keeps nobody out of another."""


Claim = Proof | Typed
"""What somebody brings with an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Made by a policy alone, so that there is none without a proof that counts."""

    word: Word
    by: str
    proof: Proof
    words: str | None
    policy: "Policy"


@dataclass(frozen=True, slots=True)
class Policy:
    """The least that counts at this desk as the person's word."""

    least: LeastProof
    key: Callable[[], str]
    """By which a password's answer is known again; never in the database."""

    def counts(self, proof: Proof) -> bool:
        return proof in _COUNT[self.least]

    def demand(self, proof: Proof) -> None:
        if not self.counts(proof):
            raise Denied("this proves too little to count as your answer", reason="proof", hint=_WANTED[self.least])

    def answer(self, word: Word, by: str, proof: Proof, words: str | None = None) -> Answer:
        self.demand(proof)
        return Answer(word, by, proof, words, self)

    def answer_under(self, permission: Permission) -> Answer:
        """The yes that a permission gives; it rests like any other."""
        return Answer("held", f"permission {permission.id}", "permission", None, self)

    def releases(self, tx: Transaction, request: Request) -> bool:
        """Whether a person's yes was to exactly what would be sent, and its proof counts."""
        if request.proof == "permission":
            return self._is_permitted(tx, request)
        if self.least == "passkey":
            return self._is_last_word(tx, request)
        marks = ", ".join("?" for _ in _COUNT[self.least])
        sql = "SELECT 1 FROM answers WHERE request_id = ? AND digest = ? AND word IN ('held', 'approved') AND proof IN"
        row = tx.one(f"{sql} ({marks}) LIMIT 1", request.id, request.action.digest, *_COUNT[self.least])
        return row is not None

    def _is_last_word(self, tx: Transaction, request: Request) -> bool:
        """Whether the yes is the person's last word and was written by a desk that knew the key."""
        sql = (
            "SELECT word, digest, number, evidence FROM answers WHERE request_id = ?"
            " AND word IN ('held', 'approved', 'rejected', 'undone') ORDER BY number DESC, word DESC LIMIT 1"
        )
        row = tx.one(sql, request.id)
        if row is None or row[0] not in ("held", "approved") or row[1] != request.action.digest:
            return False
        return hmac.compare_digest(str(row[3]), self.sign(request.id, *row[:3]))

    def _is_permitted(self, tx: Transaction, request: Request) -> bool:
        """Whether the permission under which it was let through still counts, and is the person's."""
        sql = (
            "SELECT word, digest, number, proof, evidence FROM answers WHERE request_id = ?"
            " AND word IN ('held', 'approved', 'rejected', 'undone') ORDER BY number DESC, word DESC LIMIT 1"
        )
        row = tx.one(sql, request.id)
        used = permissions.find_used(tx, request.id)
        if row is None or used is None or row[0] != "held" or row[3] != "permission":
            return False
        if row[1] != request.action.digest or used.names != request.action.named():
            return False
        evidence = self.sign(request.id, f"permission {used.id}", row[1], row[2])
        return hmac.compare_digest(str(row[4]), evidence) and self.vouches(used)

    def vouches(self, permission: Permission) -> bool:
        """Whether a desk with this key has written it down as it is, and its proof counts here."""
        genuine = hmac.compare_digest(permission.evidence, self.sign_terms(permission))
        return genuine and self.counts(permission.proof)

    def sign_terms(self, permission: Permission) -> str:
        return hmac.digest(self.key().encode(), f"permission\n{permission.terms}".encode(), "sha256").hex()

    def find_forged(self, tx: Transaction) -> str | None:
        """The first request with an answer by password that no desk with this key has written down."""
        sql = "SELECT request_id, word, digest, number, evidence FROM answers WHERE proof = 'password' ORDER BY at"
        rows = tx.all(sql)
        return next((row[0] for row in rows if not hmac.compare_digest(str(row[4]), self.sign(*row[:4]))), None)

    def sign(self, request_id: str, word: str, digest: str, number: int) -> str:
        said = "\n".join(("answer", request_id, word, digest, str(number)))
        return hmac.digest(self.key().encode(), said.encode(), "sha256").hex()


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
    before = tx.one("SELECT MAX(number) FROM answers WHERE request_id = ?", request.id)
    number = 1 + ((before and before[0]) or 0)
    evidence = None
    if answer.proof == "password":
        evidence = answer.policy.sign(request.id, answer.word, request.digest, number)
    if answer.proof == "permission":
        evidence = answer.policy.sign(request.id, answer.by, request.digest, number)
    tx.execute(
        "INSERT INTO answers (request_id, revision, word, digest, proof, said_by, at, words, number, evidence)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *(request.id, request.revision, answer.word, request.digest, answer.proof, answer.by),
        *(clock.to_ms(now), answer.words, number, evidence),
    )
