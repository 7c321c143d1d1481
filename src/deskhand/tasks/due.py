"""When a task is due: ISO 8601 with an offset, or words that mean one thing each.

    today   tomorrow   fri   friday   +3d   in 2 weeks   in two weeks   eom   that day, at its end (23:59)
    30 nov   nov 30   30.11.                                   the next such day
    2026-11-30   30 nov 2026                                   that very day
    tomorrow 17:00   fri at 5pm   9:30 tomorrow                that day, at that time
    17:00   5pm   noon                                         the next time the clock shows it
    +2h   in 30 minutes                                        so long from now

A closed grammar: what it does not know, or what two people may read as two days (next friday, 11/12), it refuses. The
instant that it found is always told.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pydantic_core import PydanticCustomError

from deskhand.clock import MORNING, local
from deskhand.errors import FieldProblem, InvalidInput, printable

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
END_OF_DAY = time(23, 59)
KNOWN = "today, tomorrow, fri, +3d, in 2 weeks, 30 Nov, 2026-11-30, eom, each with a time or without: fri 17:00, 5pm"


def _short(names: tuple[str, ...]) -> str:
    """A pattern for each of them, whole or by its first three letters."""
    return "|".join(f"{name[:3]}(?:{name[3:]})?" for name in names)


_CLOCK = r"(?:[01]?[0-9]|2[0-3]):[0-5][0-9]"
_HOUR = r"(?:[1-9]|1[0-2])(?::[0-5][0-9])? ?(?:am|pm)"
_TIME = rf"{_CLOCK}|{_HOUR}|noon"
DAY_NAMES = _short(DAYS)
MONTH_NAMES = rf"{_short(MONTHS)}|sept"
_COUNTS = {
    word: number
    for number, word in enumerate(
        ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 2
    )
} | {"a": 1, "an": 1}
_MANY = rf"[0-9]{{1,3}}|{'|'.join(_COUNTS)}"
NEARLY = (*DAYS, "today", "tomorrow")
"""Names of days that people misspell."""
_NUMBER = r"[0-9]{1,2}(?:st|nd|rd|th)?"
_YEAR = r"(?:,? ([0-9]{4}))?"
_DAY = rf"today|tomorrow|eom|\+[0-9]{{1,3}}[dw]|{DAY_NAMES}"
WORDS = rf"^(?:(?:{_DAY})(?: {_CLOCK})?|{_CLOCK})$"
"""What a schema can say of it in one pattern; the other words are taken too."""

_ISO = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d([.,]\d+)?)?([Zz]|[+-]\d\d:?\d\d)", re.ASCII
)
_FIGURES = re.compile(r"\s*\d{4}-")
_TIME_FIRST = re.compile(rf"(?:(?:at|by) )?({_TIME})(?:,? (?:on )?(.+))?", re.ASCII)
_DAY_FIRST = re.compile(rf"(?:(?:on|by) )?(.+?)(?:,? (?:at )?({_TIME}))?", re.ASCII)
_PUT_OFF = re.compile(r"([0-9]{1,4})([mhdw])", re.ASCII)
_SPAN = re.compile(r"[0-9]{1,4}[mhdw]\Z|\+|in ", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DOUBTFUL = re.compile(
    rf"\b(next|this|coming) (?:({DAY_NAMES})|week|weekend|month)\b", re.ASCII
)
_FROM_NOW = re.compile(rf"\+([0-9]{{1,3}})(h)|in ({_MANY}) (hour|minute|min)s?", re.ASCII)


def utc_text(moment: datetime) -> str:
    """One fixed width, so that text sorts as time does."""
    text = moment.astimezone(UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")


def parse_instant(text: Any) -> str:
    """An ISO 8601 date and time with its offset, as UTC."""
    try:
        moment = (
            datetime.fromisoformat(text.upper().replace(",", "."))
            if isinstance(text, str)
            else None
        )
    except ValueError:
        moment = None
    if moment is not None and moment.tzinfo is None:
        raise PydanticCustomError(
            "datetime_offset", "The time has no offset, so nobody knows when it is"
        )
    # fromisoformat also takes weeks and ordinal days, which nobody means.
    if moment is None or not _ISO.fullmatch(text):
        raise PydanticCustomError("datetime", "Invalid datetime format")
    try:
        return utc_text(moment)
    except OverflowError:
        raise PydanticCustomError("datetime", "The time is out of range in UTC") from None


def check_due(text: Any) -> str:
    """An instant as UTC; words stay as they are until somebody knows what time it is.

    A day in figures is no word: a program that sends one has forgotten the time and its offset.
    """
    if isinstance(text, str) and not _FIGURES.match(text) and are_words(text):
        return text
    return parse_instant(text)


def are_words(text: str) -> bool:
    """Whether these words say when something is due; a day that no month has is found when they are resolved."""
    words = _plain(text)
    if len(words) > 60:
        return False
    if _FROM_NOW.fullmatch(words):
        return True
    day, _ = _split(words)
    return day is None or any(form.fullmatch(day) for form, _ in _FORMS)


def is_time(text: str) -> bool:
    """Whether these words say a time of the day, and no day."""
    day, clock = _split(_plain(text))
    return day is None and clock is not None


def resolve(text: str, now: datetime, zone: ZoneInfo) -> str:
    """What `check_due` let pass, as UTC."""
    if not are_words(text):
        return text
    words = _plain(text)
    if found := _FROM_NOW.fullmatch(words):
        count = _count(found[1] or found[3])
        unit = "hours" if (found[2] or found[4]).startswith("h") else "minutes"
        return utc_text(now.replace(second=0, microsecond=0) + timedelta(**{unit: count}))
    day, clock = _split(words)
    here = now.astimezone(zone)
    try:
        if day is None:
            return utc_text(_next_time(_time(clock or ""), here))
        return utc_text(_at(_find_day(day, here.date()), clock, zone))
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f'Couldn\'t read the due date "{printable(text)}": {error}',
            hint=f"Try: {KNOWN}",
            reason=str(error),
        ) from None


def read(text: str, now: datetime, zone: ZoneInfo) -> str:
    """What a person typed, as UTC: words, a day in figures, or an instant."""
    if are_words(text):
        return resolve(text, now, zone)
    try:
        return parse_instant(text)
    except PydanticCustomError:
        raise InvalidInput(
            f'Couldn\'t read the due date "{printable(text[:80])}"',
            hint=find_doubt(text) or f"Try: {KNOWN}",
        ) from None


def find_doubt(text: str) -> str | None:
    """What to write instead of words that two people read as two days, such as `next monday`."""
    found = _DOUBTFUL.search(_plain(text))
    if found is None:
        return None
    if found[2]:
        instead = (
            f"write {found[2]} for the first one after today, or a date such as 30 Nov"
        )
        return f'"{found[0]}" may mean two days: {instead}'
    return f'"{found[0]}" names no day: write one, such as mon, +1w or 30 Nov'


def find_near_day(word: str) -> str | None:
    """The day whose name this nearly is: a letter or two amiss, or cut short; None for the name itself."""
    if are_words(word) or not word.isalpha():
        return None
    for name in NEARLY:
        slips = 2 if len(name) > 6 else 1
        cut = len(word) > 3 and name.startswith(word)
        if cut or _count_slips(word, name) <= slips:
            return name
    return None


def _count_slips(one: str, other: str) -> int:
    """How many letters are missing, too many, wrong or swapped; for words of a few letters."""
    if abs(len(one) - len(other)) > 2:
        return 3
    rows = [list(range(len(other) + 1))]
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, wanted in enumerate(other, 1):
            wrong = rows[-1][j - 1] + int(letter != wanted)
            cost = min(rows[-1][j] + 1, row[-1] + 1, wrong)
            if i > 1 and j > 1 and (letter, wanted) == (other[j - 2], one[i - 2]):
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]


def read_later(
    text: str,
    now: datetime,
    zone: str,
    field: str = "until",
    refusal: str = "to put it off until",
) -> datetime:
    """Until when something is put off: `2h`, a day (its morning, unless a time is said), or an ISO time."""
    words = _plain(text)
    here = ZoneInfo(zone)
    if span := _PUT_OFF.fullmatch(words):
        return now + timedelta(**{_UNITS[span[2]]: int(span[1])})
    if are_words(words) and not _FROM_NOW.fullmatch(words):
        day, clock = _split(words)
        words = f"{day or ''} {clock or f'{MORNING:%H:%M}'}".strip()
    why = "cannot be read"
    try:
        if are_words(words):
            return datetime.fromisoformat(resolve(words, now, here))
        given = datetime.fromisoformat(text.strip())
        if given.tzinfo is None:
            given = given.replace(tzinfo=here)
        return given.astimezone(UTC)
    except (ValueError, OverflowError, InvalidInput) as error:
        if isinstance(error, InvalidInput):  # there is no such day, say
            why = f"is no time: {error.details['reason']}"
        hint = find_doubt(text) or "write 30m, 2h, 3d, fri 14:00 or 2026-12-24T09:00"
        said = f"“{printable(text, 60)}” is no time {refusal}"
        refused = InvalidInput(said, fields=[FieldProblem(field, why, text[:60], hint)])
        refused.to_person = (said, hint)
        raise refused from None


def read_wait(text: str, now: datetime, zone: str, field: str) -> datetime | timedelta:
    """The same, but where it says how long (`3d`, `in 2 weeks`), that: it counts from what is yet to happen."""
    at = read_later(text, now, zone, field, "until which an answer is awaited")
    if _SPAN.match(_plain(text)):
        return at - now
    return at


def _plain(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text.strip()).casefold()


def _split(words: str) -> tuple[str | None, str | None]:
    """The words for the day and those for the time, whichever comes first."""
    if found := _TIME_FIRST.fullmatch(words):
        return found[2], found[1]
    found = _DAY_FIRST.fullmatch(words)
    if found is None:
        return words, None
    return found[1], found[2]


# Days.


def _word(found: re.Match[str], today: date) -> date:
    match found[1]:
        case "today":
            return today
        case "tomorrow":
            return today + timedelta(1)
        case _:
            return today.replace(day=monthrange(today.year, today.month)[1])


def _weekday(found: re.Match[str], today: date) -> date:
    weekday = next(number for number, name in enumerate(DAYS) if name.startswith(found[1]))
    # A week from now where it is that day already.
    return today + timedelta((weekday - today.weekday() - 1) % 7 + 1)


def _span(found: re.Match[str], today: date) -> date:
    count = _count(found[1])
    match found[2][0]:
        case "d":
            return today + timedelta(count)
        case "w":
            return today + timedelta(7 * count)
        case _:
            months = today.year * 12 + today.month - 1 + count
            return _date(months // 12, months % 12 + 1, today.day)


def _day_month(found: re.Match[str], today: date) -> date:
    return _named(found[1], found[2], found[3], today)


def _month_day(found: re.Match[str], today: date) -> date:
    return _named(found[2], found[1], found[3], today)


def _dotted(found: re.Match[str], today: date) -> date:
    return _next_or_that(int(found[1]), int(found[2]), found[3], today)


def _iso_day(found: re.Match[str], today: date) -> date:
    del today
    return _date(int(found[1]), int(found[2]), int(found[3]))


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], date], date]], ...] = (
    (re.compile(r"(today|tomorrow|eom)"), _word),
    (re.compile(rf"({DAY_NAMES})"), _weekday),
    (re.compile(r"\+([0-9]{1,3})([dw])", re.ASCII), _span),
    (re.compile(rf"in ({_MANY}) (day|week|month)s?", re.ASCII), _span),
    (re.compile(rf"({_NUMBER}) ({MONTH_NAMES}){_YEAR}", re.ASCII), _day_month),
    (re.compile(rf"({MONTH_NAMES}) ({_NUMBER}){_YEAR}", re.ASCII), _month_day),
    (re.compile(r"([0-9]{1,2})\. ?([0-9]{1,2})\.(?: ?([0-9]{4}))?", re.ASCII), _dotted),
    (re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII), _iso_day),
)


def _find_day(words: str, today: date) -> date:
    for form, find in _FORMS:
        if found := form.fullmatch(words):
            return find(found, today)
    raise ValueError("it names no day")


def month_number(name: str) -> int:
    return next(
        place for place, month in enumerate(MONTHS, 1) if month.startswith(name[:3])
    )


def _named(number: str, month: str, year: str | None, today: date) -> date:
    return _next_or_that(int(number.rstrip("sthnrd")), month_number(month), year, today)


def _next_or_that(day: int, month: int, year: str | None, today: date) -> date:
    if year:
        return _date(int(year), month, day)
    if month <= 12:
        # A leap day is at most eight years away.
        for year_ahead in range(today.year, today.year + 9):
            if (
                day <= monthrange(year_ahead, month)[1]
                and date(year_ahead, month, day) >= today
            ):
                return date(year_ahead, month, day)
    raise ValueError("there is no such day")


def _date(year: int, month: int, day: int) -> date:
    try:
        return date(year, month, day)
    except ValueError:
        raise ValueError("there is no such day") from None


def _count(text: str) -> int:
    return _COUNTS.get(text) or int(text)


# Times.


def _time(words: str) -> time:
    if words == "noon":
        return time(12)
    found = re.fullmatch(r"(\d+)(?::(\d\d))? ?([ap]m)?", words)
    if found is None:
        raise ValueError("it names no time")
    hours = int(found[1])
    if found[3] and hours == 12:
        raise ValueError(f"{words} may be noon or midnight; write 12:00 or 00:00")
    if found[3] == "pm":
        hours += 12
    return time(hours, int(found[2] or 0))


def _at(day: date, clock: str | None, zone: ZoneInfo) -> datetime:
    """That time of that day; where the clock shows it twice, the first."""
    if clock is None:
        return datetime.combine(day, END_OF_DAY, zone)
    moment = datetime.combine(day, _time(clock), zone)
    if not _is_shown(moment):
        raise ValueError(f"the clock skips {clock} on that day")
    return moment


def _next_time(clock: time, here: datetime) -> datetime:
    for moment in _times(clock, here):
        if moment.astimezone(UTC) > here.astimezone(UTC) and _is_shown(moment):
            return moment
    raise ValueError("the years are over")


def _times(clock: time, here: datetime) -> Iterator[datetime]:
    """Each time that the clock may show it: twice on the day on which it is put back."""
    for days in range(3):
        moment = datetime.combine(here.date() + timedelta(days), clock, here.tzinfo)
        yield moment
        yield moment.replace(fold=1)


def _is_shown(moment: datetime) -> bool:
    """Whether the clock shows this time: an hour in spring it does not."""
    return moment.astimezone(UTC).astimezone(moment.tzinfo).replace(
        fold=0
    ) == moment.replace(fold=0)


def describe(due_date: str, now: datetime, zone: str) -> str:
    """When a task is due as a person says it; the end of the day goes without saying."""
    at = local(datetime.fromisoformat(due_date), zone)
    words = f"{at:%a} {at.day} {at:%b}"
    if at.year != local(now, zone).year:
        words += f" {at.year}"
    if at.time().replace(second=0, microsecond=0) != END_OF_DAY:
        words += f", {at:%H:%M}"
    return words
