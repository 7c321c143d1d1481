"""Standing permissions: what the person lets leave without being asked each time. Narrow, counted, dated.

A permission is made from a card and names every field of its action but the words of the mail: an action that differs
in one of them is not covered. Neither is one of high risk, one to somebody new, nor one about which anything is odd
that did not stand on that card. What a permission lets through rests as every yes does, and is one more line on the
record. No permission makes another one.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from deskhand import clock
from deskhand.errors import Denied, FieldProblem, InvalidInput, NotFound
from deskhand.gate.actions import Action, Mail
from deskhand.gate.requests import Proof, Request
from deskhand.gate.risk import Risk, assess_action
from deskhand.store import Row, Transaction, marks

if TYPE_CHECKING:
    from deskhand.gate.cards import Card

DAY = timedelta(days=1)
LONGEST = timedelta(days=366)
MOST_A_DAY = 50
EQUAL_ANSWERS = 5
"""After how many equal answers the desk proposes a permission."""
LOOKED_BACK = timedelta(days=30)
_ACTOR = "permission "
_COLUMNS = (
    "id, request_id, names, seen, per_day, made, ends, proof, evidence, closed, closed_by"
)


@dataclass(frozen=True, slots=True)
class Terms:
    """What the person chooses: how often a day, and until when."""

    per_day: int
    ends: datetime

    def demand_bounded(self, now: datetime) -> None:
        if not 1 <= self.per_day <= MOST_A_DAY:
            problem = FieldProblem(
                "per_day", f"is not between 1 and {MOST_A_DAY}", str(self.per_day)
            )
            raise InvalidInput("a permission counts what it lets through", fields=[problem])
        if not now < self.ends <= now + LONGEST:
            problem = FieldProblem(
                "ends", f"is not within the next {LONGEST.days} days", clock.iso(self.ends)
            )
            raise InvalidInput("a permission has an end", fields=[problem])


@dataclass(frozen=True)
class Permission:
    id: str
    request_id: str
    """The card that it was made from."""
    names: Mapping[str, Any]
    """The fields of an action that have to be the same."""
    seen: tuple[str, ...]
    """What was odd about that card, in its words."""
    per_day: int
    made: datetime
    ends: datetime
    proof: Proof
    evidence: str
    closed: datetime | None = None
    closed_by: str | None = None

    @property
    def actor(self) -> str:
        """The name under which its yes is on the record."""
        return f"{_ACTOR}{self.id}"

    @cached_property
    def terms(self) -> str:
        """All that the person agreed to, as one text."""
        said = {
            "id": self.id,
            "request": self.request_id,
            "names": self.names,
            "seen": self.seen,
            "per_day": self.per_day,
            "made": clock.to_ms(self.made),
            "ends": clock.to_ms(self.ends),
            "proof": self.proof,
        }
        return _canonical(said)

    @cached_property
    def agreed(self) -> str:
        """The digest of what a passkey signs of it, beside the card that it was made from."""
        return digest_terms(self.names, self.seen, Terms(self.per_day, self.ends))

    def covers(self, action: Action, card: "Card") -> bool:
        """Whether it is what the person saw, but for the words, and nothing more is odd about it."""
        risk = risk_of(action, card)
        if action.named() != self.names or risk.level == "high":
            return False
        # What was not named was not seen.
        seen = {each for each in self.seen if not each.endswith(" more.")}
        return _is_to_known(action, card) and set(risk.reasons) <= seen


def risk_of(action: Action, card: "Card") -> Risk:
    """What is odd about an action. Where the very same is permitted once more, that it was done before is not odd."""
    return card.risk if action.free else assess_action(action)


def may_permit(action: Action, card: "Card") -> bool:
    """Whether this card can be the model of a permission."""
    return (
        action.may_be_permitted
        and _is_to_known(action, card)
        and risk_of(action, card).level != "high"
    )


def _is_to_known(action: Action, card: "Card") -> bool:
    """Whether it goes to nobody whom the person has not written to; a call of a tool goes to nobody."""
    return not isinstance(action, Mail) or all(each.known for each in card.everybody)


def digest_agreed(card: "Card", action: Action, terms: Terms) -> str:
    """The digest of a permission like this one, before there is one."""
    return digest_terms(action.named(), risk_of(action, card).reasons, terms)


def digest_terms(names: Mapping[str, Any], seen: Sequence[str], terms: Terms) -> str:
    said = {
        "names": names,
        "seen": list(seen),
        "per_day": terms.per_day,
        "ends": clock.to_ms(terms.ends),
    }
    return sha256(_canonical(said).encode()).hexdigest()


def make(
    card: "Card", action: Action, terms: Terms, proof: Proof, now: datetime
) -> Permission:
    """The permission that this card can be the model of; without its evidence."""
    terms.demand_bounded(now)
    if not action.may_be_permitted:
        raise Denied("each of these is asked one by one", reason="not_permitted")
    risk = risk_of(action, card)
    if risk.level == "high":
        raise Denied("what is of high risk is asked each time", reason="high_risk")
    if not _is_to_known(action, card):
        raise Denied(
            "you have not written to everybody there before",
            reason="new_recipient",
            hint="say yes to this one first",
        )
    return Permission(
        id=secrets.token_hex(4),
        request_id=card.id,
        names=action.named(),
        seen=risk.reasons,
        per_day=terms.per_day,
        made=now,
        ends=terms.ends,
        proof=proof,
        evidence="",
    )


# Rows.


def insert(tx: Transaction, made: Permission) -> None:
    values = (
        made.id,
        made.request_id,
        _canonical(made.names),
        json.dumps(made.seen),
        made.per_day,
        clock.to_ms(made.made),
        clock.to_ms(made.ends),
        made.proof,
        made.evidence,
        None,
        None,
        key_of(made.names),
    )
    sql = f"INSERT INTO permissions ({_COLUMNS}, covered) VALUES ({marks(values)})"
    tx.execute(sql, *values)


def list_all(tx: Transaction) -> list[Permission]:
    """The newest first."""
    return [
        _read(row)
        for row in tx.all(f"SELECT {_COLUMNS} FROM permissions ORDER BY made DESC, id")
    ]


def find(tx: Transaction, permission_id: str) -> Permission:
    row = tx.one(f"SELECT {_COLUMNS} FROM permissions WHERE id = ?", permission_id)
    if row is None:
        raise NotFound(
            f"there is no permission {permission_id}",
            hint="`deskhand permit list` lists them",
        )
    return _read(row)


def find_open(tx: Transaction, action: Action, *, to_use: bool = False) -> list[Permission]:
    """Those that name the same fields and are not closed; two processes use one after the other."""
    locked = " FOR UPDATE" if to_use and tx.dialect == "postgresql" else ""
    sql = f"SELECT {_COLUMNS} FROM permissions WHERE covered = ? AND closed IS NULL ORDER BY made{locked}"
    return [_read(row) for row in tx.all(sql, key_of(action.named()))]


def close(tx: Transaction, permission_id: str, by: str, now: datetime) -> bool:
    """It covers nothing any more, however the clock is set later; whether it was open."""
    sql = "UPDATE permissions SET closed = ?, closed_by = ?, evidence = '' WHERE id = ? AND closed IS NULL"
    return tx.execute(sql, clock.to_ms(now), by, permission_id) == 1


def close_signed(tx: Transaction, now: datetime) -> None:
    """A passkey was revoked: what was permitted by a signature has to be permitted anew."""
    rows = tx.all("SELECT id FROM permissions WHERE proof = 'passkey' AND closed IS NULL")
    for (name,) in rows:
        close(tx, name, "a revoked passkey", now)


def is_off(tx: Transaction) -> bool:
    return tx.one("SELECT 1 FROM permissions_off LIMIT 1") is not None


def turn(tx: Transaction, now: datetime, *, on: bool) -> None:
    """All of them count again, or none does."""
    tx.execute("DELETE FROM permissions_off")
    if not on:
        tx.execute("INSERT INTO permissions_off (at) VALUES (?)", clock.to_ms(now))


def uses_of(tx: Transaction, permission_id: str) -> list[tuple[str, datetime]]:
    """The requests that it let through and when, the newest first."""
    sql = "SELECT request_id, at FROM permission_uses WHERE permission_id = ? ORDER BY at DESC, request_id"
    return [(name, clock.from_ms(at)) for name, at in tx.all(sql, permission_id)]


def use(tx: Transaction, permission: Permission, request: Request, now: datetime) -> bool:
    """Count one use; not where its end has come, or it has let enough through within a day.

    The latest moment that was seen counts: a clock that is set back brings neither a day nor an end again.
    """
    times = [at for _, at in uses_of(tx, permission.id)]
    latest = max((now, permission.made, *times))
    if latest >= permission.ends:
        close(tx, permission.id, "its end", now)
        return False
    if sum(at > now - DAY for at in times) >= permission.per_day:
        return False
    sql = "INSERT INTO permission_uses (request_id, permission_id, at) VALUES (?, ?, ?)"
    tx.execute(sql, request.id, permission.id, clock.to_ms(now))
    return True


def name_used(request: Request) -> str | None:
    """The id of the permission under which a request was let through, whether it still counts or not."""
    if request.proof != "permission" or request.decided_by is None:
        return None
    return request.decided_by.removeprefix(_ACTOR)


def find_used(tx: Transaction, request_id: str) -> Permission | None:
    """The permission under which a request was let through, while it counts."""
    if is_off(tx):
        return None
    columns = ", ".join(f"p.{name}" for name in _COLUMNS.split(", "))
    row = tx.one(
        f"SELECT {columns} FROM permissions p JOIN permission_uses u ON u.permission_id = p.id"
        " WHERE u.request_id = ? AND p.closed IS NULL",
        request_id,
    )
    if row is None:
        return None
    return _read(row)


_LONGEST_ALIKE = 20_000
"""Characters of an action with its text."""


def answered_lately(tx: Transaction, now: datetime) -> list[Row]:
    """The id, action and state of what waited for the person lately and does no more, the newest first.

    What is very long is left out: each card would read it, and hardly anybody permits that for every day.
    """
    rows = tx.all(
        "SELECT id, action, state FROM requests WHERE COALESCE(decided, created) > ? AND origin = 'tool'"
        " AND state IN ('held', 'approved', 'sending', 'sent', 'rejected', 'expired')"
        " AND COALESCE(proof, '') <> 'permission' AND length(action) <= ?"
        " ORDER BY COALESCE(decided, created) DESC, id LIMIT 2000",
        clock.to_ms(now - LOOKED_BACK),
        _LONGEST_ALIKE,
    )
    return list(rows)


def key_of(names: Mapping[str, Any]) -> str:
    return sha256(_canonical(names).encode()).hexdigest()


def _canonical(said: object) -> str:
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def _read(row: Row) -> Permission:
    found = dict(zip(_COLUMNS.split(", "), row, strict=True))
    found["names"] = json.loads(found["names"])
    found["seen"] = tuple(json.loads(found["seen"]))
    moments = [name for name in ("made", "ends", "closed") if found[name] is not None]
    found |= {name: clock.from_ms(found[name]) for name in moments}
    return Permission(**found)
