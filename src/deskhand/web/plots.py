"""Plots as numbers that a template draws: bars of a stack by day, bars of a histogram."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

RESULTS = ("success", "rejected", "rate_limited", "error", "dev_mode")
HEIGHT = 120
WIDTH = 600
WAITS = (
    ("under 1 min", timedelta(minutes=1)),
    ("1 to 5 min", timedelta(minutes=5)),
    ("5 to 60 min", timedelta(hours=1)),
    ("1 to 4 h", timedelta(hours=4)),
    ("4 to 24 h", timedelta(days=1)),
    ("over 1 day", timedelta.max),
)


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
    """The same as a table."""


def by_day(counts: Iterable[tuple[str, str, int]], last: date, days: int) -> Plot:
    """Stacks of results, one for each of the last days, the empty ones too."""
    table = {str(last - timedelta(days=back)): dict.fromkeys(RESULTS, 0) for back in range(days - 1, -1, -1)}
    for day, result, entries in counts:
        if day in table:
            table[day][result] = entries
    top = max((sum(results.values()) for results in table.values()), default=0)
    step, bars = WIDTH / days, []
    for at, (day, results) in enumerate(table.items()):
        below = 0
        for result, entries in results.items():
            if entries:
                height, below = HEIGHT * entries / top, below + entries
                y = HEIGHT - HEIGHT * below / top
                bars.append(_bar(at * step, y, step * 0.8, height, result, f"{day}: {entries} {result}"))
    return Plot(bars, top, list(RESULTS), [(day, list(results.values())) for day, results in table.items()])


def by_wait(waits: Sequence[timedelta]) -> Plot:
    """How many decisions took how long."""
    counts = [0] * len(WAITS)
    for wait in waits:
        counts[next(at for at, (_, limit) in enumerate(WAITS) if wait < limit or limit is timedelta.max)] += 1
    top, step = max(counts), WIDTH / len(WAITS)
    named = list(zip((name for name, _ in WAITS), counts, strict=True))
    bars = [
        _bar(at * step, HEIGHT - HEIGHT * count / top, step * 0.8, HEIGHT * count / top, "wait", f"{name}: {count}")
        for at, (name, count) in enumerate(named)
        if count
    ]
    return Plot(bars, top, ["decisions"], [(name, [count]) for name, count in named])


def _bar(x: float, y: float, width: float, height: float, kind: str, says: str) -> Bar:
    return Bar(round(x, 2), round(y, 2), round(width, 2), round(height, 2), kind, says)
