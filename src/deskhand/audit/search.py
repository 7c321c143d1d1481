"""Looking into the record. Every search reads a bounded number of lines, and says where to go on."""

import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from deskhand import clock
from deskhand.audit import END, Entry, index_name, masked, texts
from deskhand.store import Transaction, marks

SCAN = 5000
"""The most lines that are read for one page of a search; the next page goes on from there."""
_AT_ONCE = 1000
_DAYS = 400
_COUNTED = timedelta(days=366)
"""How long quarters are counted: far more than is drawn, so that a clock that was ahead for a while costs no plot."""
_PLAIN = re.compile(r"[a-zA-Z0-9_.-]+")
"""What stands in a line of JSON as it is."""


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Which entries are looked for; None is any."""

    actor: str | None = None
    action: str | None = None
    result: str | None = None
    day: str | None = None
    zone: str = "UTC"
    """Where the day is one from midnight to midnight."""
    text: str | None = None
    request: str | None = None
    """The id of a request: what was said and done about it."""

    def takes(self, entry: Entry) -> bool:
        if self.actor not in (None, index_name(entry.actor)):
            return False
        if self.action not in (None, index_name(entry.action_type)):
            return False
        if self.result not in (None, entry.result):
            return False
        if self.day not in (None, _day_of(entry, self.zone)):
            return False
        if self.request not in (None, (entry.parameters or {}).get("action_id")):
            return False
        return self.text is None or _holds(entry, self.text)


def _holds(entry: Entry, words: str) -> bool:
    """Whether the words stand in the entry; an address stands there with its first letter
    and its domain alone."""
    text = f"{entry.target}\n{entry.error or ''}".casefold()
    return words.casefold() in text or ("@" in words and masked(words).casefold() in text)


@dataclass(frozen=True, slots=True)
class EntryPage:
    entries: list[tuple[int, Entry]]
    older: int | None
    """Where the search goes on: what lies before this line was not looked at."""


def find(
    tx: Transaction,
    wanted: EntryFilter,
    *,
    before: int | None = None,
    limit: int = 50,
    budget: int = SCAN,
) -> EntryPage:
    """The newest entries that the filter takes, among at most `budget` lines of the days
    that have some at all."""
    top = END if before is None else before
    spans = _spans(tx, wanted, top)
    surely = _marks(wanted)
    found: list[tuple[int, Entry]] = []
    # Most searches end on the first lines, so the first pieces are small.
    size = limit
    for first, last in spans:
        top = min(top, last + 1)
        while top > first and (lines := texts(tx, first, top, min(budget, size))):
            size = min(2 * size, _AT_ONCE)
            for seq, text in lines:
                top = seq
                if (entry := _parse_wanted(text, wanted, surely)) is not None:
                    found.append((seq, entry))
                if len(found) == limit:
                    return EntryPage(found, _unless_first(seq))
            budget -= len(lines)
            if budget <= 0:
                return EntryPage(found, _unless_first(top))
    return EntryPage(found, top if len(spans) == _DAYS else None)


def _unless_first(seq: int) -> int | None:
    return seq if seq > 1 else None


def names(tx: Transaction, since: str) -> tuple[list[str], list[str]]:
    """Who acted since that day, and what was done."""
    rows = tx.all("SELECT DISTINCT actor, action FROM audit_days WHERE day >= ?", since)
    return sorted({actor for actor, _ in rows}), sorted({action for _, action in rows})


def by_day(
    tx: Transaction, since: date, days: int, zone: str
) -> list[tuple[date, str, int]]:
    """Day, result and how many entries, of so many days from midnight to midnight in that zone."""
    each = [since + timedelta(days=number) for number in range(days + 1)]
    first, past = str(each[0]), str(each[-1])
    rows = tx.all(
        "SELECT day, result, SUM(entries) FROM audit_days WHERE day >= ? AND day < ?"
        " GROUP BY day, result",
        *(first, past),
    )
    found = Counter({(day, result): int(entries) for day, result, entries in rows})
    # These are days of UTC. Between its midnight and the zone's lies what belongs to the day beside.
    for day, beside, result, entries in _between_midnights(tx, each, zone):
        found[day, result] -= entries
        found[beside, result] += entries
    return [
        (date.fromisoformat(day), result, entries)
        for (day, result), entries in sorted(found.items())
        if entries and first <= day < past
    ]


def _between_midnights(
    tx: Transaction, days: list[date], zone: str
) -> list[tuple[str, str, str, int]]:
    """A day of UTC, the day beside that has a part of it in that zone, a result and how
    many entries that part has."""
    one = timedelta(days=1)
    parts = []
    for day in days:
        here, utc = _midnight(day, zone), f"{day}T00:00"
        if here < utc:
            parts.append((str(day - one), str(day), here, utc))
        elif here > utc:
            parts.append((str(day), str(day - one), utc, here))
    if not parts:
        return []
    rows = tx.all(
        f"WITH parts (day, beside, first, past) AS (VALUES {', '.join('(?, ?, ?, ?)' for _ in parts)})"
        " SELECT day, beside, result, SUM(entries) FROM parts"
        " JOIN audit_quarters ON quarter >= first AND quarter < past GROUP BY day, beside, result",
        *(value for part in parts for value in part),
    )
    return [(day, beside, result, int(entries)) for day, beside, result, entries in rows]


def forget_quarters(tx: Transaction, now: datetime) -> int:
    """Drop the counters of quarters that no plot draws any more; how many. What the record says stays."""
    return tx.execute(
        "DELETE FROM audit_quarters WHERE quarter < ?", clock.iso(now - _COUNTED)[:16]
    )


@lru_cache(maxsize=100)
def _midnight(day: date, zone: str) -> str:
    """The first quarter of an hour of a day in that zone, in UTC."""
    return clock.iso(datetime.combine(day, time(), ZoneInfo(zone)).astimezone(UTC))[:16]


def _spans(tx: Transaction, wanted: EntryFilter, top: int) -> list[tuple[int, int]]:
    """From which line to which one a search has to read, newest first."""
    columns = {
        "actor": wanted.actor,
        "action": wanted.action,
        "result": wanted.result,
    }
    asked = {column: [value] for column, value in columns.items() if value is not None}
    if wanted.day is not None:
        asked["day"] = _counted_days(wanted.day, wanted.zone)
    if not asked:
        return [(1, top - 1)]
    where = "".join(f" AND {column} IN ({marks(given)})" for column, given in asked.items())
    rows = tx.all(
        f"SELECT MIN(first_seq), MAX(last_seq) FROM audit_days WHERE first_seq < ?{where}"
        f" GROUP BY day ORDER BY 2 DESC LIMIT {_DAYS}",
        top,
        *(value for given in asked.values() for value in given),
    )
    return [(int(first), int(last)) for first, last in rows]


def _day_of(entry: Entry, zone: str) -> str:
    return str(clock.local(datetime.fromisoformat(entry.timestamp), zone).date())


def _counted_days(day: str, zone: str) -> list[str]:
    """The days of UTC, by which the record is counted, that have a part of this one."""
    try:
        midnight = datetime.combine(date.fromisoformat(day), time(), ZoneInfo(zone))
        following = midnight + timedelta(days=1)
        first, last = midnight.astimezone(UTC), following.astimezone(UTC)
    except (ValueError, OverflowError):
        return [day]  # not in the calendar, or at one of its ends: the record has none
    return sorted({str(first.date()), str((last - timedelta.resolution).date())})


def _marks(wanted: EntryFilter) -> list[str]:
    """What the text of a wanted entry surely holds: most lines are passed over without being parsed."""
    fields = {
        "actor": wanted.actor,
        "action_type": wanted.action,
        "result": wanted.result,
        "action_id": wanted.request,
    }
    plain = {
        key: value for key, value in fields.items() if value and _PLAIN.fullmatch(value)
    }
    return [f'"{key}":"{value}' for key, value in plain.items()]


def _parse_wanted(text: str, wanted: EntryFilter, surely: list[str]) -> Entry | None:
    if not all(mark in text for mark in surely):
        return None
    if wanted.text is not None and _surely_lacks(text, wanted.text):
        return None
    entry = Entry.model_validate_json(text)
    return entry if wanted.takes(entry) else None


def _surely_lacks(line: str, words: str) -> bool:
    """Whether the words can be nowhere in the line; a line with a letter that was written
    as a number may have them."""
    return (
        _PLAIN.fullmatch(words) is not None
        and "\\u" not in line
        and words.casefold() not in line.casefold()
    )
