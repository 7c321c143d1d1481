"""A task in one line: `Call sawmill fri 17:00 #phone !high @Barn every week`.

#label, !priority and @project stand anywhere; when it is due and how it repeats stand at the end, in any order. What
stands in quotes is the title, whatever it says: `"Watch sun" fri`. Nothing is guessed: what looks like a day or a rule
and is none is refused with the words that are known.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from deskhand import clock
from deskhand.errors import InvalidInput, printable
from deskhand.tasks import due, recurrence

RULES = "every day, every 2 weeks, every mon and thu, every weekday, every 15th, every last fri, every 24 dec"
_QUOTES = 'What belongs to the title goes into quotes: "Plan next week"'
_HINT = f"Try: {due.KNOWN}; {RULES}. {_QUOTES}"
_OTHER_DAY = re.compile(
    r"next|this|last|coming|every|before|after|until|till|from|since|to|or|and|\W"
)
PRIORITIES = ("Low", "Medium", "High", "Urgent")
_LONGEST_PHRASE = 7
"""Words: `on 30 nov 2026 at 5 pm`."""

_CLOSING = ".,;!?"
_TAG = re.compile(r"(#|@)([^\W\d]\S*)")
_DAY = due.DAY_NAMES
_LIST = rf"(?:{_DAY})(?:(?:,| and|, and) (?:{_DAY}))*"
_PLACES = {
    "first": 1,
    "1st": 1,
    "2nd": 2,
    "second": 2,
    "3rd": 3,
    "third": 3,
    "4th": 4,
    "fourth": 4,
    "last": -1,
}
_NO_DAY = re.compile(
    rf"(?:.* )?(?:(?:next|this|last|coming) (?:week|month|year|weekend|{_DAY})"
    rf"|(?:today|tomorrow|this|{_DAY}) (?:morning|afternoon|evening|night)"
    rf"|(?:bi-?|semi-?)?(?:daily|weekly|monthly|yearly)|fortnightly|annually|each (?:day|week|month|year|{_DAY})"
    r"|tonight|tonite|tmrw|tmr|eod|eow|eoy|midnight|yesterday"
    r"|(?:this )?weekend|day after tomorrow|end of (?:the )?(?:week|month|year)"
    r"|(?:on )?the \d{1,2}(?:st|nd|rd|th)|in (?:\d+|some|a few|a couple of) (?:day|week|month|year)s?"
    rf"|(?:at|{_DAY}) \d{{1,2}}|(?:{_DAY}) week|\d{{1,2}}\.\d{{1,2}}\.\d{{2}}|\d{{4}}-\d{{2}}-\d{{2}}t\S+"
    r"|\d{1,2}/\d{1,2}(?:/\d{2,4})?|\d{1,2}:\d{2}|every \S+(?: \S+){0,3})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Line:
    title: str
    due_date: str | None = None
    """UTC, as ISO 8601."""
    priority: str | None = None
    project: str | None = None
    labels: tuple[str, ...] = ()
    recurrence: str | None = None
    near_day: str | None = None
    """The day whose name the end of the title nearly is: most likely it was meant, and it is not guessed."""

    @property
    def doubt(self) -> str | None:
        """What to tell whoever may have meant a day."""
        if self.near_day is None:
            return None
        read = "no date was read" if self.due_date is None else "its end was not read"
        return f"{read}: did you mean {self.near_day}?"

    def body(self) -> dict[str, Any]:
        """What the backend is asked to make."""
        asked = {
            name: getattr(self, name)
            for name in ("due_date", "priority", "project", "recurrence")
        }
        given = {name: value for name, value in asked.items() if value is not None}
        return {"title": self.title, "labels": list(self.labels), **given}


_LONGEST_LINE = 1000
"""Where it may end is tried at each word, so that what a line costs is not linear."""


@dataclass(slots=True)
class _Said:
    """What was found beside the title."""

    words: list[str]
    quoted: str | None = None
    labels: list[str] = field(default_factory=list)
    project: str | None = None
    priority: str | None = None
    due: str | None = None
    rule: str | None = None


def read_line(text: str, now: datetime, zone: ZoneInfo) -> Line:
    """The task that a line speaks of, or an InvalidInput that says which words were not understood."""
    said = _take_tags(text)
    _take_rule(said)
    _take_due(said)
    _refuse_the_rest(said)
    title = said.quoted or " ".join(said.words)
    if not title:
        raise InvalidInput(
            "the line has no title",
            hint='say what to do: "Call the sawmill fri 17:00 #phone"',
        )
    return Line(
        title=title,
        due_date=_resolve(said, now, zone),
        priority=said.priority,
        project=said.project,
        labels=tuple(dict.fromkeys(said.labels)),
        recurrence=said.rule,
        near_day=_find_near_day(said),
    )


def read_change(
    text: str, now: datetime, zone: ZoneInfo, due_before: datetime | None
) -> Line:
    """What such a line changes of a task; an empty title leaves the old one. A time alone
    leaves the day as it is."""
    said = _take_tags(text)
    _take_rule(said)
    _take_due(said)
    _refuse_the_rest(said)
    due_date = None
    if said.due and due_before and due.is_time(said.due) and not said.rule:
        here = due_before.astimezone(zone)
        due_date = due.resolve(f"{here:%Y-%m-%d} {said.due}", now, zone)
    elif said.due or due_before is None or _names_days(said):
        due_date = _resolve(said, now, zone)
    return Line(
        title=said.quoted or " ".join(said.words),
        due_date=due_date,
        priority=said.priority,
        project=said.project,
        labels=tuple(dict.fromkeys(said.labels)),
        recurrence=said.rule,
        near_day=_find_near_day(said),
    )


def _names_days(said: _Said) -> bool:
    if said.rule is None:
        return False
    rule = recurrence.parse(said.rule)
    return bool(rule.weekdays or rule.month_days)


def _find_near_day(said: _Said) -> str | None:
    """The end of a title is looked at alone: there a day would stand, or before `morning`."""
    words = [word.strip(_CLOSING).casefold() for word in said.words[1:]]
    found = [due.find_near_day(word) for word in words[-2:]]
    return next(filter(None, reversed(found)), None)


def _take_tags(text: str) -> _Said:
    if len(text) > _LONGEST_LINE:
        raise InvalidInput(
            f"the line is longer than {_LONGEST_LINE:,} characters",
            hint="name what to do in a few words; what else there is to say is the description",
        )
    found = re.search(r'"([^"]+)"', text)
    said = _Said([])
    if found:
        said.quoted = found[1].strip()
        text = f"{text[: found.start()]} {text[found.end() :]}"
    for word in text.split():
        if tag := _TAG.fullmatch(word):
            _take_tag(said, tag[1], tag[2])
        elif word.startswith("!") and word[1:].isalpha():
            said.priority = _once("priority", said.priority, _read_priority(word))
        else:
            said.words.append(word)
    return said


def _take_tag(said: _Said, sign: str, name: str) -> None:
    if sign == "#":
        said.labels.append(name)
        return
    said.project = _once("project", said.project, name)


def _read_priority(word: str) -> str:
    for name in PRIORITIES:
        if name.casefold() == word[1:].casefold():
            return name
    raise InvalidInput(
        f"{printable(word[:40])} is no priority",
        hint="there are !low, !medium, !high and !urgent",
    )


def _once(what: str, before: str | None, found: str) -> str:
    if before is not None:
        raise InvalidInput(
            f"the line names two of them: {what} {printable(before)} and {printable(found)}"
        )
    return found


def _take_rule(said: _Said) -> None:
    """The longest rule that the line ends with, or that only a day or a time follows."""
    begins = [place for place, word in enumerate(said.words) if word.casefold() == "every"]
    for begin in reversed(begins):
        for end in range(len(said.words), begin, -1):
            after = " ".join(said.words[end:])
            rule = read_rule(" ".join(said.words[begin:end]))
            if rule and (not after or due.are_words(after)):
                said.rule = rule
                del said.words[begin:end]
                return


def _take_due(said: _Said) -> None:
    """The longest phrase at the end that says when."""
    for size in range(min(_LONGEST_PHRASE, len(said.words)), 0, -1):
        words = " ".join(said.words[-size:])
        if not due.are_words(words):
            words = words.rstrip(_CLOSING)  # the line may end as a sentence does
        if due.are_words(words):
            said.due = words
            del said.words[-size:]
            _refuse_before(said, words)
            said.words[-1:] = [word.removesuffix(",") for word in said.words[-1:]]
            return


def _refuse_before(said: _Said, words: str) -> None:
    """A word that makes another day of the one behind it, or another day."""
    if not said.words:
        return
    word = said.words[-1].casefold()
    if _OTHER_DAY.fullmatch(word) or due.are_words(word):
        phrase = printable(f"{said.words[-1]} {words}"[:80])
        raise InvalidInput(
            f'Couldn\'t read the due date "{phrase}"', hint=_write_hint(phrase)
        )


def _write_hint(phrase: str) -> str:
    doubt = due.find_doubt(phrase)
    return f"{doubt}. {_QUOTES}" if doubt else _HINT


def _refuse_the_rest(said: _Said) -> None:
    rest = " ".join(said.words)
    found = _NO_DAY.fullmatch(rest.casefold())
    if said.quoted and rest:
        raise InvalidInput(
            f'Couldn\'t read "{printable(rest[:80])}" beside the title', hint=_HINT
        )
    if found:
        raise InvalidInput(
            f'Couldn\'t read the due date at the end of "{printable(rest[-80:])}"',
            hint=_write_hint(rest[-80:]),
        )


def _resolve(said: _Said, now: datetime, zone: ZoneInfo) -> str | None:
    """When it is due first. A rule that names its days needs a time at most."""
    if said.rule is None or (said.due and not due.is_time(said.due)):
        return said.due and due.resolve(said.due, now, zone)
    rule = recurrence.parse(said.rule)
    names_days = (
        rule.weekdays or rule.month_days or (rule.freq == "DAILY" and rule.interval == 1)
    )
    if not names_days:
        hint = f"Say when it is due first: {due.KNOWN}"
        raise InvalidInput("A task that repeats needs its first day", hint=hint)
    yesterday = now.astimezone(zone) - timedelta(1)
    at = datetime.fromisoformat(
        due.resolve(f"{yesterday:%Y-%m-%d} {said.due or '23:59'}", now, zone)
    )
    first = recurrence.following(replace(rule, interval=1), at, now, zone)
    if first is None:
        raise InvalidInput("that never comes", hint=f"Try: {RULES}")
    return due.utc_text(first)


# Rules.


def read_rule(text: str) -> str | None:
    """The RRULE of such words; None where they are none."""
    words = text.casefold()
    for form, rule in _RULES:
        if found := re.fullmatch(form, words, re.ASCII):
            return rule(found)
    return None


def _each(found: re.Match[str]) -> str:
    return _rule(found[2], found[1])


def _each_weekday(found: re.Match[str]) -> str:
    del found
    return "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"


def _each_day_of_week(found: re.Match[str]) -> str:
    return f"{_rule('week', found[1])};BYDAY={_days(found[2])}"


def _each_day_of_month(found: re.Match[str]) -> str | None:
    number = int(found[1])
    return f"FREQ=MONTHLY;BYMONTHDAY={number}" if 1 <= number <= 31 else None


def _last_day(found: re.Match[str]) -> str:
    del found
    return "FREQ=MONTHLY;BYMONTHDAY=-1"


def _each_place(found: re.Match[str]) -> str:
    return f"FREQ=MONTHLY;BYDAY={_PLACES[found[1]]}{_days(found[2])}"


def _each_date(found: re.Match[str]) -> str | None:
    number, month = int(found[1]), due.month_number(found[2])
    return f"FREQ=YEARLY;BYMONTHDAY={number};BYMONTH={month}" if 1 <= number <= 31 else None


_RULES: tuple[tuple[str, Callable[[re.Match[str]], str | None]], ...] = (
    (r"every (?:([1-9]\d?|other) )?(day|week|month|year)s?", _each),
    (r"every weekday", _each_weekday),
    (rf"every (?:(?:([1-9]\d?|other) )?weeks? on )?({_LIST})", _each_day_of_week),
    (r"every (?:month on the )?(\d{1,2})(?:st|nd|rd|th)", _each_day_of_month),
    (r"every last day of the month", _last_day),
    (rf"every ({'|'.join(_PLACES)}) ({_DAY})(?: of the month)?", _each_place),
    (rf"every (\d{{1,2}})(?:st|nd|rd|th)? ({due.MONTH_NAMES})", _each_date),
)


def _rule(unit: str, count: str | None) -> str:
    freq = {"day": "DAILY", "week": "WEEKLY", "month": "MONTHLY", "year": "YEARLY"}[unit]
    match count:
        case None | "1":
            return f"FREQ={freq}"
        case "other":
            return f"FREQ={freq};INTERVAL=2"
        case _:
            return f"FREQ={freq};INTERVAL={count}"


def _days(names: str) -> str:
    found = re.findall(_DAY, names)
    order = sorted({day[:2].upper() for day in found}, key=recurrence.DAYS.index)
    return ",".join(order)


def describe_rule(rule: str) -> str:
    """The rule in the words that `read_rule` reads; a rule that has none is shown as it is."""
    for words in _phrases(recurrence.parse(rule)):
        if read_rule(words) == rule:
            return words
    return rule


def _phrases(rule: recurrence.Recurrence) -> Iterator[str]:
    unit = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month", "YEARLY": "year"}[
        rule.freq
    ]
    often = f"every {unit}"
    if rule.interval > 1:
        often = f"every {rule.interval} {unit}s"
    yield often
    yield "every weekday"
    yield "every last day of the month"
    names = " and ".join(due.DAYS[day][:3] for _, day in sorted(rule.weekdays))
    yield f"every {names}"
    yield f"{often} on {names}"
    for place in _PLACES:
        yield f"every {place} {names}"
    for number in rule.month_days:
        yield f"every {clock.ordinal(number)}"
        for month in rule.months:
            yield f"every {number} {due.MONTHS[month - 1][:3]}"
