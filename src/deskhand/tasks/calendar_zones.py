"""Time zones that a calendar brings along (VTIMEZONE), and our own as a calendar wants it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from deskhand.tasks import recurrence
from deskhand.tasks.icalendar import Component

YEARS = 10
"""For so long the zone is written out; a program that knows its name knows more."""


@dataclass(frozen=True, slots=True)
class Observance:
    """An offset of a zone, and since when it counts: once, at further dates, or by a rule."""

    offset: timedelta
    before: timedelta
    start: datetime
    dates: tuple[datetime, ...]
    rule: recurrence.Recurrence | None

    def last_onset(self, wall: datetime) -> datetime | None:
        """When it began to count for the last time up to this wall time."""
        return max((onset for onset in self._onsets(wall) if onset <= wall), default=None)

    def _onsets(self, wall: datetime) -> Iterator[datetime]:
        yield from (self.start, *self.dates)
        if self.rule is None:
            return
        latest = wall
        if self.rule.until is not None:
            latest = min(wall, self.rule.until.replace(tzinfo=None) + timedelta(1))
        for day in (latest.date(), latest.date() - timedelta(1)):
            if found := recurrence.last_day(self.rule, self.start.date(), day):
                yield datetime.combine(found, self.start.time())


class CalendarZone(tzinfo):
    """A zone as a calendar describes it."""

    def __init__(self, observances: list[Observance]) -> None:
        self._observances = observances

    def utcoffset(self, at: datetime | None) -> timedelta | None:
        if at is None:
            return None
        wall = at.replace(tzinfo=None)
        onsets = [(each.last_onset(wall), each.offset) for each in self._observances]
        begun = [(onset, offset) for onset, offset in onsets if onset is not None]
        if begun:
            return max(begun)[1]
        return min(self._observances, key=_start).before

    def dst(self, at: datetime | None) -> None:
        """Nobody asks."""

    def tzname(self, at: datetime | None) -> None:
        """Nobody asks."""


def _start(observance: Observance) -> datetime:
    return observance.start


def read_zones(components: Iterable[Component]) -> dict[str, CalendarZone]:
    """The zones that the calendar describes, by their names; one that cannot be read is none."""
    found = {}
    for each in components:
        if each.kind != "VTIMEZONE":
            continue
        try:
            observances = [
                _observance(part)
                for part in each.parts
                if part.kind in ("STANDARD", "DAYLIGHT")
            ]
        except (ValueError, OverflowError):
            continue
        if observances:
            found[each.value("TZID")] = CalendarZone(observances)
    return found


def _observance(part: Component) -> Observance:
    rule = part.value("RRULE")
    dates = [
        date
        for line in part.lines
        if line.name == "RDATE"
        for date in line.value.split(",")
    ]
    return Observance(
        offset=_offset(part.value("TZOFFSETTO")),
        before=_offset(part.value("TZOFFSETFROM")),
        start=_wall(part.value("DTSTART")),
        dates=tuple(map(_wall, dates)),
        rule=recurrence.parse(rule) if rule else None,
    )


def _offset(text: str) -> timedelta:
    found = re.fullmatch(r"([+-])([0-9]{2})([0-9]{2})([0-9]{2})?", text)
    if found is None:
        raise ValueError("not an offset such as +0100")
    size = timedelta(hours=int(found[2]), minutes=int(found[3]), seconds=int(found[4] or 0))
    return -size if found[1] == "-" else size


def _wall(text: str) -> datetime:
    return datetime.strptime(text, "%Y%m%dT%H%M%S")  # noqa: DTZ007 - a zone is told in its own wall time


def known_zone(name: str) -> ZoneInfo | None:
    """The zone of that name in the world's list."""
    try:
        return ZoneInfo(name.removeprefix("/"))
    except (ZoneInfoNotFoundError, OSError, ValueError):
        return None


def write_zone(zone: ZoneInfo, first: datetime) -> list[str]:
    """The lines that tell a calendar about the zone, from the year before this moment on."""
    at = first.astimezone(UTC).replace(
        month=1, day=1, hour=0, minute=0, second=0, microsecond=0
    )
    end = at + timedelta(days=366 * YEARS)
    at -= timedelta(366)
    lines = ["BEGIN:VTIMEZONE", f"TZID:{zone.key}", *_observance_lines(zone, at, at)]
    while at < end:
        after = at + timedelta(1)
        if _offset_at(zone, at) != _offset_at(zone, after):
            lines += _observance_lines(zone, _change(zone, at, after), at)
        at = after
    return [*lines, "END:VTIMEZONE"]


def _observance_lines(zone: ZoneInfo, onset: datetime, before: datetime) -> list[str]:
    kind = "DAYLIGHT" if onset.astimezone(zone).dst() else "STANDARD"
    was = _offset_at(zone, before)
    return [
        f"BEGIN:{kind}",
        f"DTSTART:{onset + was:%Y%m%dT%H%M%S}",
        f"TZOFFSETFROM:{_offset_text(was)}",
        f"TZOFFSETTO:{_offset_text(_offset_at(zone, onset))}",
        f"END:{kind}",
    ]


def _change(zone: ZoneInfo, at: datetime, after: datetime) -> datetime:
    """The minute at which the offset between the two is a new one."""
    while after - at > timedelta(minutes=1):
        middle = at + timedelta(minutes=(after - at) // timedelta(minutes=2))
        if _offset_at(zone, middle) == _offset_at(zone, at):
            at = middle
        else:
            after = middle
    return after


def _offset_at(zone: ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _offset_text(offset: timedelta) -> str:
    minutes = offset // timedelta(minutes=1)
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02}{abs(minutes) % 60:02}"
