"""Gmail's search syntax as a closed union.

Terms side by side must all hold; `OR` binds tighter than that, as in Gmail; `{a b}` is `(a OR b)`. An operator that
is misspelt or not supported is an error: searching for it as a word would quietly find nothing.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Literal

from deskhand.errors import FieldProblem, InvalidInput, printable

LONGEST = 4_000
DEEPEST = 20
MOST_TERMS = 100

Where = Literal["anywhere", "sender", "recipients", "subject"]


@dataclass(frozen=True, slots=True)
class Text:
    """The mail has these words next to each other."""

    text: str
    where: Where = "anywhere"


@dataclass(frozen=True, slots=True)
class HasLabel:
    """The mail has this label. System labels are INBOX, UNREAD, STARRED, IMPORTANT, SENT,
    DRAFT, TRASH and SPAM."""

    label: str


@dataclass(frozen=True, slots=True)
class HasAttachment:
    pass


@dataclass(frozen=True, slots=True)
class Since:
    moment: datetime


@dataclass(frozen=True, slots=True)
class Until:
    """The mail arrived before the moment, not at it."""

    moment: datetime


@dataclass(frozen=True, slots=True)
class HasMessageId:
    """The mail has this Message-ID, given here without its angle brackets."""

    id: str


@dataclass(frozen=True, slots=True)
class Anywhere:
    """Any mail, in trash and spam too."""


@dataclass(frozen=True, slots=True)
class Not:
    part: "Query"


@dataclass(frozen=True, slots=True)
class AllOf:
    """All parts hold; without parts every mail matches."""

    parts: "tuple[Query, ...]"


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: "tuple[Query, ...]"


Query = (
    Text
    | HasLabel
    | HasAttachment
    | Since
    | Until
    | HasMessageId
    | Anywhere
    | Not
    | AllOf
    | AnyOf
)

SYSTEM_LABELS = (
    "INBOX",
    "UNREAD",
    "STARRED",
    "IMPORTANT",
    "SENT",
    "DRAFT",
    "TRASH",
    "SPAM",
)
_TEXTS: dict[str, Where] = {"from": "sender", "to": "recipients", "subject": "subject"}
_DATES = ("after", "before", "newer", "older", "newer_than", "older_than")
OPERATORS = (*_TEXTS, "label", "is", "has", "in", *_DATES, "rfc822msgid")
_UNSUPPORTED = frozenset(
    {
        "cc",
        "bcc",
        "filename",
        "list",
        "larger",
        "smaller",
        "size",
        "category",
        "deliveredto",
    }
)
_PLACES = {"drafts": "DRAFT", "draft": "DRAFT", "bin": "TRASH", "junk": "SPAM"}
_UNITS = {
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "m": timedelta(days=30),
    "y": timedelta(days=365),
}
_TOKEN = re.compile(
    r'\s*(?:([(){}])|(-)(?=[^\s-])|"([^"]*)"|([a-zA-Z0-9_]+):(?=["(])|([^\s"(){}]+))'
)


Own = Callable[[], Collection[str]]
"""Tells the own addresses."""


def parse(text: str, now: datetime, own: Own = tuple) -> Query:
    """What is asked for; relative ages count from `now`, and `me` is whoever has one of the own addresses."""
    if len(text) > LONGEST:
        raise _refusal(f"is longer than {LONGEST} characters", text)
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise _refusal("is not valid Unicode", text) from exc
    return _Parser(text, now, own).parse()


def terms(query: Query) -> tuple[Query, ...]:
    """The parts of a query that must all hold."""
    return query.parts if isinstance(query, AllOf) else (query,)


def leaves_trash_out(query: Query) -> bool:
    """Gmail shows trash and spam only to those who ask for them."""
    match query:
        case Anywhere() | HasLabel("TRASH" | "SPAM"):
            return False
        case Not(part):
            return leaves_trash_out(part)
        case AllOf(parts) | AnyOf(parts):
            return all(map(leaves_trash_out, parts))
        case Text() | HasLabel() | HasAttachment() | Since() | Until() | HasMessageId():
            return True


class _Parser:
    def __init__(self, text: str, now: datetime, own: Own) -> None:
        self._text = text
        self._now = now
        self._own = own
        self._at = 0
        self._depth = 0
        self._terms_seen = 0

    def parse(self) -> Query:
        query = self._terms("", "")
        if self._at < len(self._text):
            raise _refusal("closes a bracket that was not opened", self._text)
        return query

    def _terms(self, end: str, operator: str) -> Query:
        """Everything up to the closing bracket `end`; in braces any of it is enough."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise _refusal("has too many brackets in each other", self._text)
        groups: list[list[Query]] = []
        joining = False
        while (token := self._next(end)) is not None:
            if token[5] in ("OR", "AND"):
                joining = token[5] == "OR" and bool(groups)
                continue
            term = self._term(token, operator)
            if joining:
                groups[-1].append(term)
            else:
                groups.append([term])
            joining = False
        self._depth -= 1
        parts = tuple(
            group[0] if len(group) == 1 else AnyOf(tuple(group)) for group in groups
        )
        if len(parts) == 1:
            return parts[0]
        return AnyOf(parts) if end == "}" and parts else AllOf(parts)

    def _next(self, end: str) -> re.Match[str] | None:
        """The next token; None at the closing bracket `end`, or at the end of the query where that is empty."""
        if not self._text[self._at :].strip():
            if end:
                raise _refusal("opens a bracket and does not close it", self._text)
            self._at = len(self._text)
            return None
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise _refusal("opens a quote and does not close it", self._text)
        self._at = found.end()
        if not found[1] or found[1] not in ")}":
            return found
        if found[1] != end:
            raise _refusal("closes a bracket that was not opened", self._text)
        return None

    def _term(self, token: re.Match[str], operator: str) -> Query:
        bracket, minus, quoted, named, word = token.groups()
        self._terms_seen += 1
        if self._terms_seen > MOST_TERMS:
            raise _refusal(f"has more than {MOST_TERMS} terms", self._text)
        if bracket:
            return self._terms({"(": ")", "{": "}"}[bracket], operator)
        if minus:
            following = self._next("")
            if following is None:
                raise _refusal("ends in a minus", self._text)
            return Not(self._term(following, operator))
        if named:
            known = _operator(named, self._text)
            following = self._next("") or token
            inner = self._term(following, known or operator)
            return inner if known else AllOf((self._leaf(operator, named), inner))
        if quoted is not None:
            return self._leaf(operator, quoted)
        return self._word(word, operator)

    def _word(self, word: str, operator: str) -> Query:
        name, colon, value = word.partition(":")
        known = _operator(name, self._text) if colon and not operator else None
        if known is None:
            return self._leaf(operator, word)
        if not value:
            raise _refusal(f"has nothing after {known}:", self._text)
        return self._leaf(known, value)

    def _leaf(self, operator: str, value: str) -> Query:  # noqa: PLR0911 - one case an operator
        match operator:
            case "" | "from" | "to" | "subject":
                return self._words(operator, value)
            case "rfc822msgid":
                return HasMessageId(value.strip("<>"))
            case "label":
                return HasLabel(label_name(value))
            case "in" if value.lower() == "anywhere":
                return Anywhere()
            case "in":
                return HasLabel(_PLACES.get(value.lower()) or label_name(value))
            case "is" | "has":
                return self._state(operator, value)
            case "after" | "newer":
                return Since(self._moment(operator, value))
            case "before" | "older":
                return Until(self._moment(operator, value))
            case "newer_than":
                return Since(self._now - self._age(operator, value))
            case _:
                return Until(self._now - self._age(operator, value))

    def _words(self, operator: str, value: str) -> Query:
        where = _TEXTS.get(operator, "anywhere")
        if operator in ("from", "to") and value.lower() == "me" and (own := self._own()):
            return AnyOf(tuple(Text(each, where) for each in sorted(own)))
        return Text(value, where)

    def _state(self, operator: str, value: str) -> Query:
        match f"{operator}:{value.lower()}":
            case "has:attachment":
                return HasAttachment()
            case "is:read":
                return Not(HasLabel("UNREAD"))
            case "is:unread" | "is:starred" | "is:important":
                return HasLabel(value.upper())
            case other:
                allowed = "has:attachment, is:unread, is:read, is:starred, is:important"
                raise _refusal(
                    f"asks for {other}, which is not supported", self._text, allowed
                )

    def _moment(self, operator: str, value: str) -> datetime:
        if found := re.fullmatch(r"(\d{4})[/.-](\d{1,2})[/.-](\d{1,2})", value, re.ASCII):
            year, month, day = map(int, found.groups())
            try:
                return datetime(year, month, day, tzinfo=UTC)
            except ValueError:
                pass
        elif re.fullmatch(r"\d{9,11}", value, re.ASCII):
            return datetime.fromtimestamp(int(value), UTC)
        raise _refusal(
            f"has {operator}:{value}, which is not a date",
            self._text,
            f"{operator}:2026/01/31",
        )

    def _age(self, operator: str, value: str) -> timedelta:
        found = re.fullmatch(r"(\d{1,5})([hdmy])", value.lower(), re.ASCII)
        if found:
            age = int(found[1]) * _UNITS[found[2]]
            if age <= timedelta(days=36_500):
                return age
        raise _refusal(
            f"has {operator}:{value}, which is not an age",
            self._text,
            f"{operator}:7d (h, d, m or y)",
        )


def label_name(given: str) -> str:
    """System labels in their one spelling, others as given."""
    return given.upper() if given.upper() in SYSTEM_LABELS else given


def _operator(name: str, text: str) -> str | None:
    """The operator, or nothing where `name:` is only text, such as a time of day or the start of a URL."""
    lower = name.lower()
    if lower in OPERATORS:
        return lower
    problem = f"has {name}:, which is not an operator"
    for near in get_close_matches(lower, OPERATORS, n=1, cutoff=0.75):
        raise _refusal(problem, text, f"did you mean {near}:?")
    if lower in _UNSUPPORTED:
        raise _refusal(f"has {name}:, which only Gmail can search by", text)
    return None


def _refusal(problem: str, text: str, suggestion: str | None = None) -> InvalidInput:
    hint = f"Operators: {', '.join(f'{name}:' for name in OPERATORS)}; quotes, -, OR and brackets."
    fields = [FieldProblem("query", problem, printable(text), suggestion)]
    return InvalidInput(
        f"The search query cannot be read: it {problem}.", hint=hint, fields=fields
    )
