"""Times in words and exactly, in the person's own zone."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape

from deskhand.app import Desk
from deskhand.clock import MORNING, local, natural, natural_on, span


@dataclass(frozen=True, slots=True)
class Moment:
    words: str
    """How far it is from now: "in 3 days", "2 hours ago"."""
    natural: str
    """When it is, as people say it: "today, 14:32", "tomorrow, 08:00", "Fri 20 Nov, 08:00"."""
    short: str
    """How far it is, for a narrow place: "15 min", "3 d"."""
    iso: str
    seconds: float
    """Seconds from now; negative where it is past."""


def local_time(desk: Desk, at: datetime) -> str:
    """The time to the minute, in the person's own time zone, as a field takes it."""
    return f"{local(at, desk.settings.timezone):%Y-%m-%d %H:%M}"


def shown_time(desk: Desk, at: datetime) -> Markup:
    """The time as people say it, in the person's own time zone, with the exact one in its title."""
    zone = desk.settings.timezone
    return shown_on(today_of(desk), at, zone)


def today_of(desk: Desk) -> date:
    return local(desk.now(), desk.settings.timezone).date()


@lru_cache(maxsize=1000)
def shown_on(today: date, at: datetime, zone: str) -> Markup:
    """The same, where the day of now is known."""
    here = local(at, zone)
    exact = escape(here.isoformat(timespec="seconds"))
    words = escape(natural_on(today, here))
    # `Markup.format` takes ten times as long.
    return Markup(f'<time datetime="{exact}" title="{exact}">{words}</time>')  # noqa: S704 - both are escaped


def moment(at: datetime, now: datetime, zone: str) -> Moment:
    seconds = (at - now).total_seconds()
    return Moment(
        _distance(seconds),
        natural(at, now, zone),
        _short(abs(seconds)),
        _exactly(at, zone),
        seconds,
    )


def _exactly(at: datetime, zone: str) -> str:
    return local(at, zone).isoformat(timespec="seconds")


def _short(seconds: float) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return "now"


def _distance(seconds: float) -> str:
    if abs(seconds) < 1:
        return "now"
    if seconds > 0:
        return f"in {span(seconds)}"
    return f"{span(-seconds)} ago"


def tomorrow_morning(now: datetime, zone: str) -> datetime:
    here = ZoneInfo(zone)
    return datetime.combine(now.astimezone(here).date() + timedelta(days=1), MORNING, here)


def next_monday(now: datetime, zone: str) -> datetime:
    here = ZoneInfo(zone)
    today = now.astimezone(here).date()
    return datetime.combine(today + timedelta(days=7 - today.weekday()), MORNING, here)
