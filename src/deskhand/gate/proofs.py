"""Why an answer counts as the person's word.

Whichever door it came in by, `Policy` says whether its proof is enough at this desk; a claim asks it again before
anything leaves.
"""

import hmac
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from deskhand import clock
from deskhand.audit import witness
from deskhand.config import LeastProof
from deskhand.errors import Denied
from deskhand.gate import history, passkeys, passwords, permissions, webauthn
from deskhand.gate.permissions import Permission
from deskhand.gate.question import Question
from deskhand.gate.requests import YES, Proof, Request, Word
from deskhand.gate.rows import KeptAnswer, WrittenAnswer, find_answers
from deskhand.gate.webauthn import KeptAssertion, Said
from deskhand.store import Store, Transaction, marks

_COUNT: dict[LeastProof, tuple[Proof, ...]] = {
    "vault": ("vault", "hand-written", "page", "terminal", "password", "passkey"),
    "page": ("page", "terminal", "password", "passkey"),
    "passkey": ("password", "passkey"),
}
_WANTED: dict[LeastProof, str] = {
    "vault": "answer it in the vault, on the page or in the terminal",
    "page": "answer it on the page or in the terminal",
    "passkey": "use a passkey on the page, or type your password for this one answer, there or in the terminal",
}
TERMS = "permission"
"""Before the digest of a permission's terms, in what is signed."""
WORDS = "words"
"""Before the digest of what the person wrote with a no or in reply, or until when they put it off.

Signatures of earlier versions have none.
"""
_WITH_WORDS = ("rejected", "responded", "snoozed")
_SIGNED_AS: dict[Word, tuple[str, ...]] = {
    "held": ("approved",),
    "edited": ("edited", "approved"),
    "rejected": ("rejected", "responded"),
    "replied": ("responded",),
}
"""What the person signed, where it is not the word that is written down: one signature may mean two answers."""


def say_answer(
    word: str, requests: Iterable[tuple[str, str]], words: str | None = None
) -> Said:
    """What a passkey signs for an answer to these requests, each with the digest of what was shown."""
    about = tuple(requests)
    if word in _WITH_WORDS:
        about = (*about, (WORDS, digest_words(words)))
    return Said(word=word, about=about)


def digest_words(words: str | None) -> str:
    """The digest of what the person wrote; how a browser ends the lines does not count."""
    return sha256((words or "").strip().replace("\r\n", "\n").encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Proven:
    """A proof that was looked at; with the signature, where it is one."""

    proof: Proof
    signature: KeptAssertion | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Made by a policy alone, so that there is none without a proof that counts."""

    word: Word
    by: str
    proof: Proof
    words: str | None
    policy: "Policy"
    signature: KeptAssertion | None = None

    def describe_proof(self, request: Request) -> dict[str, Any]:
        """What the record says of its proof: the kind, and what was signed by which key."""
        if self.signature is None:
            return {"kind": self.proof}
        return {
            "kind": self.proof,
            "credential": self.signature.assertion.id,
            "digest": request.digest,
        }


@dataclass(frozen=True, slots=True)
class Policy:
    """The least that counts at this desk as the person's word."""

    least: LeastProof
    key: Callable[[], str]
    """By which this desk knows again what it has written; never in the database."""
    seals_password: Callable[[], bool] = bool
    """Whether a password without a seal counts for nothing: so it is since this desk sealed the one that it had."""
    since: datetime = clock.EPOCH
    """When this desk got its key; it can check no answer of an earlier time."""

    def counts(self, proof: Proof) -> bool:
        return proof in _COUNT[self.least]

    def demand(self, proof: Proof) -> None:
        if not self.counts(proof):
            raise Denied(
                "this proves too little to count as your answer",
                reason="proof",
                hint=_WANTED[self.least],
            )

    def answer(
        self, word: Word, by: str, proof: Proof | Proven, words: str | None = None
    ) -> Answer:
        proven = proof if isinstance(proof, Proven) else Proven(proof)
        self.demand(proven.proof)
        return Answer(word, by, proven.proof, words, self, proven.signature)

    def answer_under(self, permission: Permission) -> Answer:
        """The yes that a permission gives; it rests like any other."""
        return Answer("held", permission.actor, "permission", None, self)

    def releases(self, tx: Transaction, request: Request) -> bool:
        """Whether a person's yes was to exactly what would be sent, and its proof counts."""
        if request.proof == "permission":
            return self._is_permitted(tx, request)
        if self.least == "passkey":
            return self._is_last_word(tx, request)
        counting = _COUNT[self.least]
        yeses = find_answers(
            tx,
            f"request_id = ? AND digest = ? AND word IN ({marks(YES)}) AND proof IN ({marks(counting)})",
            *(request.id, request.action.digest, *YES, *counting),
        )
        return any(yes.written.proof != "passkey" or self._stands(tx, yes) for yes in yeses)

    def vouches_for_end(self, tx: Transaction, request: Request) -> bool:
        """Whether the person said what is told of an end that is nothing but their word,
        and to a program once."""
        if self.least != "passkey":
            return True
        if isinstance(request.action, Question):
            return self._is_last_reply(tx, request)
        return self._is_yes_to_tell(tx, request)

    def _is_last_reply(self, tx: Transaction, request: Request) -> bool:
        last = _find_last_word(tx, request)
        if last is None or last.written.word not in (*YES, "replied"):
            return False
        said = (last.written.digest, last.written.words)
        return said == (request.action.digest, request.words) and self._stands(tx, last)

    def _is_yes_to_tell(self, tx: Transaction, request: Request) -> bool:
        yes = _find_last_yes(tx, request)
        if yes is None:
            return False
        if not self._is_under_permission(tx, request, yes) and not self._stands(tx, yes):
            return False
        return history.is_untold(tx, request.id, yes.written.digest, yes.written.said_at)

    async def finds_whole_record(self, store: Store) -> bool:
        """Whether the record, where a yes is believed because of it, ends as was noted beside the database."""
        return self.least != "passkey" or await witness.find_lost_end(store, None) is None

    def _is_last_word(self, tx: Transaction, request: Request) -> bool:
        """Whether the yes is the person's last word, by a proof that still stands, and the record agrees."""
        yes = _find_last_yes(tx, request)
        return (
            yes is not None
            and self._stands(tx, yes)
            and self._agrees_with_record(tx, yes.written)
        )

    def _agrees_with_record(self, tx: Transaction, yes: WrittenAnswer) -> bool:
        return self.least != "passkey" or history.ends_with_yes(
            tx, yes.request_id, yes.digest, yes.said_at
        )

    def _is_permitted(self, tx: Transaction, request: Request) -> bool:
        """Whether the permission under which it was let through still counts, and nothing left under it yet."""
        yes = _find_last_yes(tx, request)
        return (
            yes is not None
            and self._is_under_permission(tx, request, yes)
            and self._agrees_with_record(tx, yes.written)
        )

    def _is_under_permission(
        self, tx: Transaction, request: Request, yes: KeptAnswer
    ) -> bool:
        """Whether this yes is that of a permission which still counts, and is the person's."""
        given = yes.written
        if (given.word, given.proof) != ("held", "permission"):
            return False
        used = permissions.find_used(tx, request.id)
        if used is None or used.names != request.action.named():
            return False
        evidence = self.sign(request.id, used.actor, given.digest, given.number)
        return hmac.compare_digest(yes.evidence, evidence) and self.vouches(tx, used)

    def vouches(self, tx: Transaction, permission: Permission) -> bool:
        """Whether this desk wrote the permission down as it is, and its proof counts; a signature must still stand."""
        genuine = hmac.compare_digest(permission.evidence, self.sign_terms(permission))
        if not genuine or not self.counts(permission.proof):
            return False
        return permission.proof != "passkey" or any(
            self._stands(tx, each) for each in _signed_terms(tx, permission)
        )

    def has_signed_terms(self, tx: Transaction, permission: Permission) -> bool:
        """Whether a passkey signed just these terms at that time, whatever became of it since."""
        found = _signed_terms(tx, permission)
        return any(self.find_flaw(tx, each) is None for each in found)

    def sign_terms(self, permission: Permission) -> str:
        return hmac.digest(
            self.key().encode(), f"permission\n{permission.terms}".encode(), "sha256"
        ).hex()

    def _stands(self, tx: Transaction, kept: KeptAnswer) -> bool:
        """Whether this desk wrote it, and a key that signed it was not revoked since."""
        if self.find_flaw(tx, kept):
            return False
        if not kept.written.assertion:
            return True
        key = passkeys.find(tx, self.seal, _read_signature(kept.written).assertion.id)
        return not key or key.revoked is None

    def find_flaw(self, tx: Transaction, kept: KeptAnswer) -> str | None:
        """Why an answer by password or passkey is not as this desk wrote it; None where it is."""
        written = kept.written
        own = [self.evidence(written)]
        if written.proof == "password":  # as versions before passkeys wrote it
            own.append(
                self.sign(written.request_id, written.word, written.digest, written.number)
            )
        evidence = kept.evidence.encode()
        if not any(hmac.compare_digest(evidence, each.encode()) for each in own):
            return "this desk did not write it"
        if written.proof != "passkey":
            return None
        return self._find_wrong_signature(tx, written)

    def _find_wrong_signature(self, tx: Transaction, written: WrittenAnswer) -> str | None:
        signature = _read_signature(written)
        said = signature.said
        key = passkeys.find(tx, self.seal, signature.assertion.id)
        if key is None or not key.counts_at(written.said_at):
            return "its passkey is not one of this desk, or was revoked before"
        if (written.request_id, written.digest) not in said.about:
            return "another text was signed"
        if dict(said.about).get(WORDS, digest_words(written.words)) != digest_words(
            written.words
        ):
            return "other words were signed"
        if said.word not in _SIGNED_AS.get(written.word, (written.word,)):
            return "another answer was signed"
        try:
            webauthn.check(key, said, signature.assertion)
        except Denied as error:
            return error.message
        return None

    def demand_own_password(self, kept: str) -> None:
        """Refuse a password that somebody else put into the database, where it would be worth it."""
        seal_needed = self.least == "passkey" and self.seals_password()
        if not passwords.is_genuine(kept, self.seal, seal_needed=seal_needed):
            hint = "set it again: `deskhand password set`; of a guarded desk with sudo"
            raise Denied(
                "the password in the database was not set by this desk",
                reason="proof",
                hint=hint,
            )

    def sign(self, request_id: str, word: str, digest: str, number: int) -> str:
        said = "\n".join(("answer", request_id, word, digest, str(number)))
        return hmac.digest(self.key().encode(), said.encode(), "sha256").hex()

    def evidence(self, written: WrittenAnswer) -> str:
        return self.seal("answer", *written)

    def seal(self, *facts: str | int | None) -> str:
        """What nobody can make who does not know the key."""
        return hmac.digest(self.key().encode(), json.dumps(facts).encode(), "sha256").hex()


def _find_last_word(tx: Transaction, request: Request) -> KeptAnswer | None:
    """The answer that decided it last."""
    deciding = "word IN ('held', 'approved', 'rejected', 'undone', 'replied')"
    found = find_answers(
        tx,
        f"request_id = ? AND {deciding} ORDER BY number DESC, word DESC LIMIT 1",
        request.id,
    )
    return next(iter(found), None)


def _find_last_yes(tx: Transaction, request: Request) -> KeptAnswer | None:
    """The answer that decided it last, where that is a yes to what would be sent."""
    last = _find_last_word(tx, request)
    if last is None or last.written.word not in YES:
        return None
    return last if last.written.digest == request.action.digest else None


def _read_signature(written: WrittenAnswer) -> KeptAssertion:
    return KeptAssertion.model_validate_json(written.assertion or "")


def _signed_terms(tx: Transaction, permission: Permission) -> list[KeptAnswer]:
    """The answers that permitted it, as far as their signature is over its terms.

    Before terms were signed it was over the card alone; the seal of the desk has the terms of these.
    """
    permitting = find_answers(
        tx,
        "request_id = ? AND word = 'permitted' AND proof = 'passkey'",
        permission.request_id,
    )
    terms = (TERMS, permission.agreed)
    return [
        each
        for each in permitting
        if terms in (about := _read_signature(each.written).said.about) or len(about) == 1
    ]
