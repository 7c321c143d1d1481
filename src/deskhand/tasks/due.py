"""When a task is due: ISO 8601 with an offset, or one of a few words that mean one thing each.

    today   tomorrow   friday   +3d   +2w   eom        that day, at its end (23:59)
    tomorrow 17:00     friday 9:30    +3d 08:00        that day, at that time
    17:00                                              the next time the clock shows it

A closed grammar: what it does not know it refuses, and the resolved instant is always told.
"""

import re
from calendar import monthrange
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pydantic_core import PydanticCustomError

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
END_OF_DAY = time(23, 59)

_CLOCK = r"(?:[01]?[0-9]|2[0-3]):[0-5][0-9]"
_DAY = rf"today|tomorrow|eom|\+[0-9]{{1,3}}[dw]|{'|'.join(f'{day[:3]}(?:{day[3:]})?' for day in DAYS)}"
WORDS = rf"^(?:(?:{_DAY})(?: {_CLOCK})?|{_CLOCK})$"
_WORDS = re.compile(rf"(?:({_DAY})(?: ({_CLOCK}))?|({_CLOCK}))", re.IGNORECASE | re.ASCII)
_ISO = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d([.,]\d+)?)?([Zz]|[+-]\d\d:?\d\d)", re.ASCII)


def utc_text(moment: datetime) -> str:
    """One fixed width, so that text sorts as time does."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def instant(text: Any) -> str:
    """An ISO 8601 date and time with its offset, as UTC."""
    try:
        moment = datetime.fromisoformat(text.upper().replace(",", ".")) if isinstance(text, str) else None
    except ValueError:
        moment = None
    if moment is not None and moment.tzinfo is None:
        raise PydanticCustomError("datetime_offset", "The time has no offset, so nobody knows when it is")
    # fromisoformat also takes weeks and ordinal days, which nobody means.
    if moment is None or not _ISO.fullmatch(text):
        raise PydanticCustomError("datetime", "Invalid datetime format")
    try:
        return utc_text(moment)
    except OverflowError:
        raise PydanticCustomError("datetime", "The time is out of range in UTC") from None


def check_due(text: Any) -> str:
    """An instant as UTC; a word stays as it is until somebody knows what time it is."""
    if isinstance(text, str) and _WORDS.fullmatch(text):
        return text
    return instant(text)


def resolve(text: str, now: datetime, zone: ZoneInfo) -> str:
    """What `check_due` let pass, as UTC."""
    words = _WORDS.fullmatch(text)
    if words is None:
        return text
    day, clock, bare = words.groups()
    here = now.astimezone(zone)
    if bare:
        moment = datetime.combine(here.date(), _time(bare), zone)
        if moment <= here:
            moment = datetime.combine(here.date() + timedelta(1), _time(bare), zone)
        return utc_text(moment)
    at = _time(clock) if clock else END_OF_DAY
    return utc_text(datetime.combine(_date(day.lower(), here.date()), at, zone))


def _date(day: str, today: date) -> date:
    match day:
        case "today":
            return today
        case "tomorrow":
            return today + timedelta(1)
        case "eom":
            return today.replace(day=monthrange(today.year, today.month)[1])
        case _ if day.startswith("+"):
            days = {"d": 1, "w": 7}[day[-1]]
            return today + timedelta(int(day[1:-1]) * days)
        case _:
            weekday = next(number for number, name in enumerate(DAYS) if name.startswith(day))
            # A week from now where it is that day already.
            return today + timedelta((weekday - today.weekday() - 1) % 7 + 1)


def _time(clock: str) -> time:
    hours, minutes = clock.split(":")
    return time(int(hours), int(minutes))
