"""How time comes in, and how it is written: UTC, as ISO text in records and as milliseconds in rows."""

from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

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
    """The time in that zone. A stranger's date at either end of the calendar has none there, and stays as it is."""
    try:
        return at.astimezone(ZoneInfo(zone))
    except OverflowError:
        return at


def is_within(at: datetime, hours: str) -> bool:
    """Whether a local time is within hours such as 22:00-07:00, which may go over midnight."""
    begin, end = (time.fromisoformat(each) for each in hours.split("-"))
    if begin < end:
        return begin <= at.time() < end
    return at.time() >= begin or at.time() < end


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th ..."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
