"""Plots as numbers that a template draws: bars of a stack by day, bars of a histogram."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from deskhand.wording import RESULTS, name_result

HEIGHT = 120
WIDTH = 600
_LONGEST = "over 1 day"
WAITS = {
    "under 1 min": timedelta(minutes=1),
    "1 to 5 min": timedelta(minutes=5),
    "5 to 60 min": timedelta(hours=1),
    "1 to 4 h": timedelta(hours=4),
    "4 to 24 h": timedelta(days=1),
    _LONGEST: timedelta.max,
}


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    kind: str
    says: str


@dataclass(frozen=True, slots=True)
class Plot:
    bars: list[Bar]
    top: int
    """The largest value, at the upper edge."""
    columns: list[str]
    rows: list[tuple[str, list[int]]]
    """The same numbers as a table."""


def by_day(counts: Iterable[tuple[date, str, int]], first: date, days: int) -> Plot:
    """Stacks of results, one for each of the days, the empty ones too."""
    table = {
        first + timedelta(days=number): dict.fromkeys(RESULTS, 0) for number in range(days)
    }
    for day, result, entries in counts:
        if day in table:
            table[day][result] = entries
    top = max((sum(results.values()) for results in table.values()), default=0)
    bars = []
    rows = []
    for place, (day, results) in enumerate(table.items()):
        said = say_day(day)
        rows.append((said, list(results.values())))
        below = 0
        for result, entries in results.items():
            if entries:
                says = f"{said}: {entries} {name_result(result)}"
                bars.append(_bar(place, days, below, entries, top, result, says))
            below += entries
    return Plot(bars, top, [name_result(each) for each in RESULTS], rows)


def say_day(day: date) -> str:
    """The day as people say it within a year: `Wed 18 Nov`."""
    return f"{day:%a} {day.day} {day:%b}"


def by_wait(waits: Sequence[timedelta]) -> Plot:
    """How many decisions took how long."""
    counts = dict.fromkeys(WAITS, 0)
    for wait in waits:
        counts[next((name for name, limit in WAITS.items() if wait < limit), _LONGEST)] += 1
    top = max(counts.values())
    bars = [
        _bar(place, len(counts), 0, count, top, "wait", f"{name}: {count}")
        for place, (name, count) in enumerate(counts.items())
        if count
    ]
    return Plot(
        bars, top, ["decisions"], [(name, [count]) for name, count in counts.items()]
    )


def _bar(
    place: int, columns: int, below: int, value: int, top: int, kind: str, says: str
) -> Bar:
    """The bar of `value` in its column, above those that add up to `below`."""
    step = WIDTH / columns
    return Bar(
        x=round(place * step, 2),
        y=round(HEIGHT - HEIGHT * (below + value) / top, 2),
        width=round(step * 0.8, 2),
        height=round(HEIGHT * value / top, 2),
        kind=kind,
        says=says,
    )
