"""Times in words and exactly, in the person's own zone."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from deskhand.clock import MORNING

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


@dataclass(frozen=True, slots=True)
class Moment:
    words: str
    """How far it is from now: "in 3 days", "2 hours ago"."""
    exact: str
    iso: str
    seconds: float
    """From now on; negative where it is past."""


def local(at: datetime, zone: str) -> datetime:
    """In that zone; in its own at either end of the calendar, where a stranger's date has no other."""
    try:
        return at.astimezone(ZoneInfo(zone))
    except OverflowError:
        return at


def moment(at: datetime, now: datetime, zone: str) -> Moment:
    here, seconds = local(at, zone), (at - now).total_seconds()
    length = span(abs(seconds))
    words = "now" if abs(seconds) < 1 else f"in {length}" if seconds > 0 else f"{length} ago"
    return Moment(words, f"{here:%a %d %b %Y, %H:%M} {here.tzname()}", here.isoformat(timespec="seconds"), seconds)


def span(seconds: float) -> str:
    """The length in its largest unit, rounded down: nobody is told of more time than there is."""
    for size, name in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return "a moment"


def tomorrow_morning(now: datetime, zone: str) -> datetime:
    here = ZoneInfo(zone)
    return datetime.combine(now.astimezone(here).date() + timedelta(days=1), MORNING, here)


def next_monday(now: datetime, zone: str) -> datetime:
    here = ZoneInfo(zone)
    today = now.astimezone(here).date()
    return datetime.combine(today + timedelta(days=7 - today.weekday()), MORNING, here)
