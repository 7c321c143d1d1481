"""Times in words and exactly, in the person's own zone."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from deskhand.app import Desk
from deskhand.clock import MORNING, local

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


@dataclass(frozen=True, slots=True)
class Moment:
    words: str
    """How far it is from now: "in 3 days", "2 hours ago"."""
    exact: str
    iso: str
    seconds: float
    """Seconds from now; negative where it is past."""


def local_time(desk: Desk, at: datetime) -> str:
    """The time to the minute, in the person's own time zone."""
    return f"{local(at, desk.settings.timezone):%Y-%m-%d %H:%M}"


def moment(at: datetime, now: datetime, zone: str) -> Moment:
    here = local(at, zone)
    exact = f"{here:%a %d %b %Y, %H:%M} {here.tzname()}"
    seconds = (at - now).total_seconds()
    return Moment(_distance(seconds), exact, here.isoformat(timespec="seconds"), seconds)


def _distance(seconds: float) -> str:
    if abs(seconds) < 1:
        return "now"
    if seconds > 0:
        return f"in {span(seconds)}"
    return f"{span(-seconds)} ago"


def span(seconds: float) -> str:
    """The length in its largest unit, rounded down: nobody is told of more time than there is."""
    for size, name in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' * (count > 1)}"
    return "a moment"


def tomorrow_morning(now: datetime, zone: str) -> datetime:
    here = ZoneInfo(zone)
    return datetime.combine(now.astimezone(here).date() + timedelta(days=1), MORNING, here)


def next_monday(now: datetime, zone: str) -> datetime:
    here = ZoneInfo(zone)
    today = now.astimezone(here).date()
    return datetime.combine(today + timedelta(days=7 - today.weekday()), MORNING, here)
