"""Gmail's search syntax as SQL over the local mailbox: one SELECT that streams the newest mail first.

A search goes through the word index where the query has words, else through a label where it has one, so that it
stops at the limit without reading the rest of the mailbox.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from deskhand.mail import query
from deskhand.mail.query import AllOf, AnyOf, HasLabel, Not, Query

COUNTER_BITS = 24
"""A mail's number is the second of its arrival, followed by a counter of this width."""
_LATEST = datetime(9999, 12, 31, tzinfo=UTC)
_CJK = re.compile("([\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff])")

Condition = tuple[str, list[Any]]
"""SQL, and the values of its placeholders."""


class _Lead(NamedTuple):
    """The table that a search goes through, its column with the mail's number, and the
    terms that this settles."""

    table: str
    number: str
    condition: Condition
    settled: Sequence[Query]


def select(columns: str, asked: Query) -> Condition:
    """The statement that finds what is asked for; the caller adds the limit."""
    terms = [*query.terms(asked)]
    if query.leaves_trash_out(asked):
        terms += [Not(HasLabel("TRASH")), Not(HasLabel("SPAM"))]
    lead = _lead(terms)
    rest = [_condition(term) for term in terms if term not in lead.settled]
    where, values = _join(" AND ", [lead.condition, *rest])
    return (
        f"SELECT {columns} FROM {lead.table} WHERE {where} ORDER BY {lead.number} DESC",
        values,
    )


def number_at(moment: datetime) -> int:
    """The lowest number that a mail of this second can have."""
    return max(int(min(moment, _LATEST).timestamp()), 0) << COUNTER_BITS


def space_out(text: str) -> str:
    """Scripts without spaces are indexed character by character, so that any part of a sentence is found."""
    if text.isascii():
        return text
    return _CJK.sub(r" \1 ", text)


def _lead(terms: Sequence[Query]) -> _Lead:
    texts: list[Query] = []
    expressions: list[str] = []
    for term in terms:
        expression = _expression(term)
        if expression is not None:
            texts.append(term)
            expressions.append(expression)
    if texts:
        matches = ("words MATCH ?", [" AND ".join(expressions)])
        return _Lead(
            "words CROSS JOIN mail ON mail.id = words.rowid", "words.rowid", matches, texts
        )
    for term in terms:
        if isinstance(term, HasLabel):
            has_label = ("labelled.label = ?", [term.label.casefold()])
            table = "labelled CROSS JOIN mail ON mail.id = labelled.mail"
            return _Lead(table, "labelled.mail", has_label, [term])
    return _Lead("mail", "mail.id", ("1", []), [])


def _condition(term: Query) -> Condition:  # noqa: C901, PLR0911 - one case a kind
    match term:
        case query.Text():
            expression = _expression(term)
            if expression is None:
                return "0", []
            return "mail.id IN (SELECT rowid FROM words WHERE words MATCH ?)", [expression]
        case HasLabel(label):
            exists = "EXISTS (SELECT 1 FROM labelled AS l WHERE l.label = ? AND l.mail = mail.id)"
            return exists, [label.casefold()]
        case query.HasAttachment():
            return "mail.attachments > 0", []
        case query.Since(moment):
            return "mail.id >= ?", [number_at(moment)]
        case query.Until(moment):
            return "mail.id < ?", [number_at(moment)]
        case query.HasMessageId(message_id):
            return "mail.message_id = ?", [f"<{message_id}>"]
        case query.Anywhere():
            return "1", []
        case Not(inner):
            condition, values = _condition(inner)
            return f"NOT ({condition})", values
        case AllOf(parts):
            return _join(" AND ", map(_condition, parts), empty="1")
        case AnyOf(parts):
            return _join(" OR ", map(_condition, parts), empty="0")


def _join(operator: str, conditions: Iterable[Condition], empty: str = "1") -> Condition:
    texts: list[str] = []
    values: list[Any] = []
    for text, more in conditions:
        texts.append(f"({text})")
        values += more
    return operator.join(texts) or empty, values


def _expression(term: Query) -> str | None:
    """What the word index is asked, where a term is about words alone."""
    match term:
        case query.Text(text, where) if re.search(r"[^\W_]", text):
            phrase = '"' + space_out(text).replace("\0", " ").replace('"', '""') + '"'
            if where == "anywhere":
                return phrase
            return f"{where} : {phrase}"
        case AllOf(parts) if parts:
            return _combine(" AND ", parts)
        case AnyOf(parts) if parts:
            return _combine(" OR ", parts)
        case _:
            return None


def _combine(operator: str, terms: Iterable[Query]) -> str | None:
    expressions = [*map(_expression, terms)]
    if None in expressions:
        return None
    return f"({operator.join(filter(None, expressions))})"
