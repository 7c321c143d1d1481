"""How a request is written in its row, and an answer in its own."""

import json
from dataclasses import fields
from datetime import datetime
from typing import Any, NamedTuple

from deskhand import clock
from deskhand.gate.actions import read_action
from deskhand.gate.requests import Proof, Request, Word
from deskhand.store import Row, Transaction

NAMES = tuple(field.name for field in fields(Request))
COLUMNS = ", ".join(NAMES)
_TIMES = frozenset(
    {"created", "expires", "decided", "due", "tried", "snoozed", "frozen", "lease"}
)
_FLAGS = frozenset({"urgent", "once_more", "untold", "settled"})
_ACTIONS = frozenset({"proposed", "action"})
_LISTS = frozenset({"warnings", "participants"})


def to_column(name: str, value: Any) -> Any:
    if name in _ACTIONS:
        return value.model_dump_json()
    if name in _LISTS:
        return json.dumps(value)
    if name in _FLAGS:
        return int(value)
    if name in _TIMES and value is not None:
        return clock.to_ms(value)
    return value


def as_kept(name: str, value: Any) -> Any:
    """The value as its row has it: a time to the millisecond."""
    if name in _TIMES and value is not None:
        return clock.from_ms(clock.to_ms(value))
    return value


def read_row(row: Row) -> Request:
    found = dict(zip(NAMES, row, strict=True))
    action, proposed = found["action"], found["proposed"]
    found["action"] = read_action(action)
    found["proposed"] = found["action"] if proposed == action else read_action(proposed)
    found |= {name: tuple(json.loads(found[name])) for name in _LISTS}
    found |= {name: bool(found[name]) for name in _FLAGS}
    found |= {
        name: clock.from_ms(found[name]) for name in _TIMES if found[name] is not None
    }
    return Request(**found)


def find_where(tx: Transaction, condition: str, *values: object) -> list[Request]:
    sql = f"SELECT {COLUMNS} FROM requests WHERE {condition}"
    return [read_row(row) for row in tx.all(sql, *values)]


def find_one(tx: Transaction, condition: str, *values: object) -> Request | None:
    return next(iter(find_where(tx, condition, *values)), None)


class WrittenAnswer(NamedTuple):
    """An answer's row, but for its evidence."""

    request_id: str
    revision: int
    word: Word
    digest: str
    proof: Proof
    said_by: str
    at: int
    words: str | None
    number: int
    assertion: str | None

    @property
    def said_at(self) -> datetime:
        return clock.from_ms(self.at)


ANSWER_COLUMNS = ", ".join(WrittenAnswer._fields)


class KeptAnswer(NamedTuple):
    """An answer's row as a whole."""

    written: WrittenAnswer
    evidence: str
    """By which the desk knows again what it has written itself."""


def find_answers(tx: Transaction, condition: str, *values: object) -> list[KeptAnswer]:
    sql = f"SELECT {ANSWER_COLUMNS}, evidence FROM answers WHERE {condition}"
    return [
        KeptAnswer(WrittenAnswer(*written), str(evidence))
        for *written, evidence in tx.all(sql, *values)
    ]
