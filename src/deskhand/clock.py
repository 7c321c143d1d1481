"""How time comes in, and how it is written: UTC, as ISO text in records and as milliseconds in rows."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MORNING = time(8)
"""When the person's day begins: what is put off until tomorrow comes back then, whichever door it was put off by."""


def utc_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the edge where time comes in


def iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def from_ms(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1000, UTC)


def local(at: datetime, zone: str) -> datetime:
    """The time in that zone. A stranger's date at either end of the calendar has none
    there, and stays as it is."""
    try:
        return at.astimezone(ZoneInfo(zone))
    except OverflowError:
        return at


def length(seconds: int) -> str:
    """So long, in the largest unit that leaves nothing over: `1 hour`, `90 minutes`."""
    size, name = next(unit for unit in UNITS if seconds % unit[0] == 0)
    count = seconds // size
    return f"{count} {name}{'' if count == 1 else 's'}"


def span(seconds: float) -> str:
    """The length in its largest unit, rounded down, so that nobody counts on time that is not there.

    What the next smaller unit makes whole is whole: a week that began a moment ago is `7 days`, not 6.
    """
    for (size, name), (smaller, _) in pairwise((*UNITS, UNITS[-1])):
        count = round(seconds / smaller) * smaller // size
        if count:
            return f"{count} {name}{'s' * (count > 1)}"
    return "a moment"


def is_within(at: datetime, hours: str) -> bool:
    """Whether a local time is within hours such as 22:00-07:00, which may go over midnight."""
    begin, end = (time.fromisoformat(each) for each in hours.split("-"))
    if begin < end:
        return begin <= at.time() < end
    return at.time() >= begin or at.time() < end


def natural(at: datetime, now: datetime, zone: str) -> str:
    """The time as people say it in that zone: `today, 14:32`, `tomorrow, 08:00`, `Fri 20 Nov, 08:00`."""
    return natural_on(local(now, zone).date(), local(at, zone))


def natural_on(today: date, here: datetime) -> str:
    """The same of a local time, where the day of now is known."""
    return f"{_name_day(today, here.date())}, {here:%H:%M}"


def natural_end(at: datetime, now: datetime, zone: str) -> str:
    """When something ends, as people say it: at midnight it is `the end of Fri 18 Dec`."""
    here = local(at, zone)
    if here.time() != time():
        return natural(at, now, zone)
    last = here.date() - timedelta(days=1)
    return f"the end of {_name_day(local(now, zone).date(), last)}"


def _name_day(today: date, day: date) -> str:
    match (day - today).days:
        case 0:
            return "today"
        case 1:
            return "tomorrow"
        case -1:
            return "yesterday"
    if day.year == today.year:
        return day.strftime(f"%a {day.day} %b")
    return day.strftime(f"%a {day.day} %b %Y")


def dated(at: datetime, zone: str) -> str:
    """The time in that zone as it can be read at any later time: `Fri 20 Nov 2026, 08:00`."""
    return _dated(local(at, zone))


def _dated(here: datetime) -> str:
    return here.strftime(f"%a {here.day} %b %Y, %H:%M")


def day(at: datetime, zone: str) -> str:
    """The day in that zone as it can be read at any later time: `20 Nov 2026`."""
    here = local(at, zone)
    return f"{here.day} {here:%b %Y}"


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th ..."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
