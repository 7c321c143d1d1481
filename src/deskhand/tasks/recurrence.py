"""When a repeated task is due next: the part of RFC 5545's RRULE that people use for tasks.

FREQ (DAILY, WEEKLY, MONTHLY, YEARLY), INTERVAL, COUNT, UNTIL, BYDAY, BYMONTHDAY, BYMONTH, BYSETPOS, WKST. A rule walks
the days of the person's calendar, at the time that the person's clock showed when the series began. It gives up after a
bounded number of days: no rule, however written, keeps the desk busy.
"""

import re
from calendar import isleap, monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, Literal, cast

from pydantic_core import PydanticCustomError

HORIZON_DAYS = 366 * 12
LONGEST_SERIES_DAYS = 366 * 100
LONGEST = 200
DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_FORMS = {
    "FREQ": r"DAILY|WEEKLY|MONTHLY|YEARLY",
    "INTERVAL": r"[1-9][0-9]{0,2}",
    "COUNT": r"[1-9][0-9]{0,3}",
    "UNTIL": r"[0-9]{8}(?:T[0-9]{6}Z?)?",
    "BYDAY": r"(?:[+-]?[1-5])?(?:MO|TU|WE|TH|FR|SA|SU)(?:,(?:[+-]?[1-5])?(?:MO|TU|WE|TH|FR|SA|SU))*",
    "BYMONTHDAY": r"-?(?:[1-9]|[12][0-9]|3[01])(?:,-?(?:[1-9]|[12][0-9]|3[01]))*",
    "BYMONTH": r"(?:[1-9]|1[0-2])(?:,(?:[1-9]|1[0-2]))*",
    "BYSETPOS": r"-?[1-9][0-9]{0,2}(?:,-?[1-9][0-9]{0,2})*",
    "WKST": "|".join(DAYS),
}
USUAL = (
    r"^FREQ=(?:DAILY|WEEKLY|MONTHLY|YEARLY)(?:;INTERVAL=[1-9][0-9]?)?(?:;COUNT=[1-9][0-9]{0,2})?"
    r"(?:;BYDAY=(?:MO|TU|WE|TH|FR|SA|SU)(?:,(?:MO|TU|WE|TH|FR|SA|SU))*)?"
    r"(?:;BYMONTHDAY=(?:-1|[1-9]|1[0-9]|2[0-8]))?(?:;BYMONTH=(?:[1-9]|1[0-2]))?$"
)
"""What a schema can say of it in one pattern; parts in another order are taken too."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    freq: Literal["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]
    interval: int
    count: int | None
    until: datetime | None
    """The last moment; without a zone it is what the person's clock shows."""
    weekdays: frozenset[tuple[int, int]]
    """(which one in the month, 0 for every one; the day of the week, 0 for Monday)"""
    month_days: frozenset[int]
    months: frozenset[int]
    places: frozenset[int]
    """Which of the days of a period, from its beginning or, below 0, from its end; none: all of them."""
    week_start: int


def parse(text: str) -> Recurrence:
    """The rule, or a ValueError that says what is not understood."""
    parts: dict[str, str] = {}
    for part in text.upper().removeprefix("RRULE:").split(";"):
        name, _, value = part.partition("=")
        if (
            name in parts
            or name not in _FORMS
            or not re.fullmatch(_FORMS[name], value, re.ASCII)
        ):
            raise ValueError(f"{part[:40]!r} is not understood in a rule")
        parts[name] = value
    if "FREQ" not in parts or {"COUNT", "UNTIL"} <= parts.keys():
        raise ValueError("a rule has a FREQ and at most one of COUNT and UNTIL")
    found = [
        re.fullmatch(r"([+-]?\d)?(..)", day)
        for day in parts.get("BYDAY", "").split(",")
        if day
    ]
    weekdays = frozenset((int(day[1] or 0), DAYS.index(day[2])) for day in found if day)
    freq = cast("Any", parts["FREQ"])
    if any(which for which, _ in weekdays) and not (
        freq == "MONTHLY" or (freq == "YEARLY" and "BYMONTH" in parts)
    ):
        raise ValueError(
            "a numbered BYDAY goes with FREQ=MONTHLY, or with FREQ=YEARLY and BYMONTH"
        )
    if "BYSETPOS" in parts and not {"BYDAY", "BYMONTHDAY", "BYMONTH"} & parts.keys():
        raise ValueError("BYSETPOS goes with another BY part")
    count = None
    if "COUNT" in parts:
        count = int(parts["COUNT"])
    until = None
    if "UNTIL" in parts:
        until = _parse_until(parts["UNTIL"])
    return Recurrence(
        freq=freq,
        interval=int(parts.get("INTERVAL", 1)),
        count=count,
        until=until,
        weekdays=weekdays,
        month_days=_numbers(parts.get("BYMONTHDAY", "")),
        months=_numbers(parts.get("BYMONTH", "")),
        places=_numbers(parts.get("BYSETPOS", "")),
        week_start=DAYS.index(parts.get("WKST", "MO")),
    )


def _parse_until(text: str) -> datetime:
    day, _, clock = text.partition("T")
    until = datetime.strptime(f"{day}{clock.removesuffix('Z') or '235959'}", "%Y%m%d%H%M%S")  # noqa: DTZ007 - see below
    if clock.endswith("Z"):
        return until.replace(tzinfo=UTC)
    return until


def check_rule(text: Any) -> Any:
    """A rule as it is kept: upper case, without its name."""
    if not isinstance(text, str):
        return text
    try:
        parse(text)
    except ValueError as error:
        raise PydanticCustomError("rrule", "{why}", {"why": str(error)}) from None
    return text.upper().removeprefix("RRULE:")


def following(
    rule: Recurrence, start: datetime, after: datetime, zone: tzinfo
) -> datetime | None:
    """The first time after `after` of the series that began at `start`; None when the series is over.

    Days and clock are those of `zone`. A time that the clock skips is as long after the one before it as ever.
    """
    try:
        for number, moment in enumerate(
            _moments(rule, start.astimezone(zone), after.astimezone(zone))
        ):
            if (rule.count is not None and number >= rule.count) or _is_over(rule, moment):
                return None
            if moment.astimezone(UTC) > after:
                return moment.astimezone(UTC)
    except OverflowError:  # the years are over
        return None
    return None


def _is_over(rule: Recurrence, moment: datetime) -> bool:
    if rule.until is None:
        return False
    if rule.until.tzinfo is None:
        return moment.replace(tzinfo=None) > rule.until
    return moment.astimezone(UTC) > rule.until


def _moments(rule: Recurrence, start: datetime, after: datetime) -> Iterator[datetime]:
    """`start`, then each match; days before `after` need a look only where they are counted."""
    yield start
    first = start.date() + timedelta(1)
    if rule.count is None:
        first = max(first, after.date())
    past = min(max((after.date() - first).days, 0), LONGEST_SERIES_DAYS)
    clock = start.timetz().replace(fold=0)
    for ahead in range(past + HORIZON_DAYS):
        day = first + timedelta(ahead)
        if _matches(rule, start.date(), day):
            yield datetime.combine(day, clock)


def last_day(rule: Recurrence, start: date, day: date) -> date | None:
    """The last match up to this day within a little more than a year; None where there is none."""
    days = (day - timedelta(back) for back in range(400))
    return next(
        (
            each
            for each in days
            if each == start or (each > start and _matches(rule, start, each))
        ),
        None,
    )


def _matches(rule: Recurrence, start: date, day: date) -> bool:
    if not _fits(rule, start, day):
        return False
    if not rule.places:
        return True
    return day in _chosen(rule, start, *_period(rule, day))


@lru_cache(maxsize=64)
def _chosen(rule: Recurrence, start: date, first: date, length: int) -> frozenset[date]:
    """The days of a period that BYSETPOS names."""
    days = [
        day
        for day in (first + timedelta(ahead) for ahead in range(length))
        if _fits(rule, start, day)
    ]
    return frozenset(
        day for at, day in enumerate(days) if {at + 1, at - len(days)} & rule.places
    )


def _period(rule: Recurrence, day: date) -> tuple[date, int]:
    """The first day of the period in which the day lies, and how many days it has."""
    match rule.freq:
        case "DAILY":
            return day, 1
        case "WEEKLY":
            return day - timedelta((day.weekday() - rule.week_start) % 7), 7
        case "MONTHLY":
            return day.replace(day=1), monthrange(day.year, day.month)[1]
        case "YEARLY":
            return day.replace(month=1, day=1), 365 + isleap(day.year)


def _fits(rule: Recurrence, start: date, day: date) -> bool:
    if rule.months and day.month not in rule.months:
        return False
    length = monthrange(day.year, day.month)[1]
    if rule.month_days and not {day.day, day.day - length - 1} & rule.month_days:
        return False
    places = {0, (day.day - 1) // 7 + 1, -((length - day.day) // 7 + 1)}
    if rule.weekdays and not any(
        (place, day.weekday()) in rule.weekdays for place in places
    ):
        return False
    return _in_period(rule, start, day) and _as_the_start(rule, start, day)


def _in_period(rule: Recurrence, start: date, day: date) -> bool:
    match rule.freq:
        case "DAILY":
            periods = (day - start).days
        case "WEEKLY":
            periods = (_period(rule, day)[0] - _period(rule, start)[0]).days // 7
        case "MONTHLY":
            periods = (day.year - start.year) * 12 + day.month - start.month
        case "YEARLY":
            periods = day.year - start.year
    return periods % rule.interval == 0


def _as_the_start(rule: Recurrence, start: date, day: date) -> bool:
    """What the rule leaves open is taken from the first day of the series."""
    match rule.freq:
        case "WEEKLY" if not rule.weekdays and not rule.month_days:
            return day.weekday() == start.weekday()
        case "MONTHLY" if not rule.weekdays and not rule.month_days:
            return day.day == start.day
        case "YEARLY" if not rule.weekdays and not rule.month_days:
            return day.day == start.day and (bool(rule.months) or day.month == start.month)
        case _:
            return True


def _numbers(text: str) -> frozenset[int]:
    return frozenset(int(number) for number in text.split(",") if number)
