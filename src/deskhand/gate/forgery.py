"""Checks every answer by password or passkey again, with nothing but the database and the desk's key."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from deskhand import clock
from deskhand.errors import DeskError
from deskhand.gate import history, passkeys, permissions
from deskhand.gate.actions import read_action
from deskhand.gate.proofs import Policy
from deskhand.gate.rows import WrittenAnswer, find_answers
from deskhand.store import Transaction


@dataclass(frozen=True, slots=True)
class Genuine:
    signatures: int
    unchecked: int = 0
    """Answers of the time before this desk had its key."""


@dataclass(frozen=True, slots=True)
class Forged:
    """The first thing that is not as this desk wrote it."""

    name: str
    why: str


def check_answers(tx: Transaction, policy: Policy) -> Genuine | Forged:
    """Of the answers since the desk has its key: who guards a desk leaves the key that the account may know."""
    if name := passkeys.find_forged_key(tx, policy.seal):
        return Forged(
            name, f"the passkey {name} was not written by this desk, or was changed since"
        )
    signed = []
    proven = "proof IN ('password', 'passkey') AND at >= ? ORDER BY at, number"
    for kept in find_answers(tx, proven, clock.to_ms(policy.since)):
        written = kept.written
        if flaw := policy.find_flaw(tx, kept):
            why = f"an answer to {written.request_id} says that it was given with the {written.proof}, but {flaw}"
            return Forged(written.request_id, why)
        if written.proof == "passkey":
            signed.append(written)
    wrong = _find_difference(tx, signed, policy) or _find_other_terms(tx, policy)
    return wrong or Genuine(len(signed), _count_earlier(tx, policy))


def _count_earlier(tx: Transaction, policy: Policy) -> int:
    sql = "SELECT COUNT(*) FROM answers WHERE proof IN ('password', 'passkey') AND at < ?"
    row = tx.one(sql, clock.to_ms(policy.since))
    return int(row[0]) if row else 0


def _find_other_terms(tx: Transaction, policy: Policy) -> Forged | None:
    for each in permissions.list_all(tx):
        if (
            each.proof == "passkey"
            and each.made >= policy.since
            and not policy.has_signed_terms(tx, each)
        ):
            return Forged(
                each.id,
                f"the permission {each.id} says something else than what a passkey signed",
            )
    return None


def _is_as_written(kept: str, digest: str) -> bool:
    """Whether a row is as this desk writes it, letter by letter; what an earlier version
    did not know may lack."""
    try:
        action = read_action(kept)
    except (ValidationError, DeskError):
        return False
    said: dict[str, Any] = json.loads(kept)
    known = action.model_dump(mode="json")
    return action.digest == digest and said.items() <= known.items()


def _find_difference(
    tx: Transaction, signed: list[WrittenAnswer], policy: Policy
) -> Forged | None:
    """Where the requests and the record say something else than what was signed."""
    kept = {(written.request_id, written.word, written.digest) for written in signed}
    for name, word, digest in history.signed_answers(tx, policy.since):
        if (name, word, digest) not in kept:
            return Forged(
                name,
                f"the record has an answer to {name} ({word}) that was signed and is no more",
            )
    for name in dict.fromkeys(written.request_id for written in signed):
        row = tx.one("SELECT action, digest FROM requests WHERE id = ?", name)
        if row is None or not _is_as_written(*row):
            return Forged(
                name,
                f"the text of {name}, which was answered with a passkey, was changed since",
            )
    for written in signed:
        row = tx.one("SELECT words FROM requests WHERE id = ?", written.request_id)
        if written.word == "replied" and row != (written.words,):
            return Forged(
                written.request_id,
                f"the answer to {written.request_id} was given in other words",
            )
    return None
