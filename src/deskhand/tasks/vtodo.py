"""Tasks as iCalendar text (RFC 5545, VTODO), to and from any program that speaks it.

Project, and where a series began, travel in X-DESKHAND- properties. A control character has no form in iCalendar
and goes out as U+FFFD, a carriage return as a line feed, a time without its fraction of a second. What is no calendar
is refused with the number of its line. Of a calendar every task is taken that can be; what was not taken, or not as it
stands there, is told with its line.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from deskhand import __version__
from deskhand.errors import Unreadable, printable
from deskhand.tasks import recurrence
from deskhand.tasks.calendar_zones import CalendarZone, known_zone, read_zones, write_zone
from deskhand.tasks.due import END_OF_DAY, utc_text
from deskhand.tasks.icalendar import (
    CalendarLine,
    Component,
    broken,
    escape,
    read_calendar,
    split_list,
    unescape,
    write_lines,
)
from deskhand.tasks.models import (
    DESCRIPTION_LENGTH,
    MOST_LABELS,
    NAME_LENGTH,
    TITLE_LENGTH,
    ImportProblem,
    NewTask,
    PriorityLevel,
    problems,
)
from deskhand.tasks.rows import TaskRow

LARGEST = 10_000_000
"""Bytes of a file that is taken in."""
LONGEST_UID = 500
USUAL = (
    r"^BEGIN:VCALENDAR\r\nVERSION:2\.0\r\n"
    r"(?:BEGIN:VTODO\r\nUID:[a-z0-9]{8}\r\nSUMMARY:[A-Za-z]{1,40}\r\n(?:STATUS:COMPLETED\r\n)?END:VTODO\r\n)?"
    r"END:VCALENDAR\r\n$"
)
"""What a schema can say of a file in one pattern; much more is taken."""

T = TypeVar("T")
_TIME = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?")
_DURATION = re.compile(
    r"\+?P(?:(\d{1,4})W|(?:(\d{1,5})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,7})M)?(?:(\d{1,8})S)?)?)",
    re.ASCII,
)
_FIRST_YEAR = "1000"
_LAST_YEAR = "9900"
_RANKS: dict[str, int] = {
    PriorityLevel.URGENT: 1,
    PriorityLevel.HIGH: 3,
    PriorityLevel.MEDIUM: 5,
    PriorityLevel.LOW: 9,
}


@dataclass(frozen=True, slots=True)
class Todo:
    """A task as a file has it; `parent` is the UID of the task that it is a part of."""

    uid: str
    line: int
    new: NewTask
    completed: bool
    completed_at: str | None
    created: str | None
    parent: str | None
    parent_line: int
    series_start: str | None


class TodoFile(NamedTuple):
    """What a calendar holds: tasks, how many things that are none, and what is not taken as it stands there."""

    todos: list[Todo]
    left_out: int
    problems: list[ImportProblem]


# Out.


def write_text(
    tasks: Iterable[tuple[str, TaskRow]], parents: Mapping[int, str], zone: ZoneInfo
) -> str:
    """The calendar of these tasks, each with its UID; `parents` are the UIDs by id, `zone` is the person's."""
    components: list[str] = []
    series: list[datetime] = []
    for uid, task in tasks:
        components += [
            "BEGIN:VTODO",
            *_properties(uid, task, parents),
            *_times(task, zone, series),
            "END:VTODO",
        ]
    zones = write_zone(zone, min(series)) if series and zone.key != "UTC" else []
    begin = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        f"PRODID:-//Deskhand//Deskhand {__version__}//EN",
    ]
    return write_lines([*begin, *zones, *components, "END:VCALENDAR"])


def _properties(uid: str, task: TaskRow, parents: Mapping[int, str]) -> Iterator[str]:
    yield f"UID:{escape(uid)}"
    yield f"DTSTAMP:{_basic(task.updated_at)}"
    yield f"CREATED:{_basic(task.created_at)}"
    yield f"LAST-MODIFIED:{_basic(task.updated_at)}"
    yield f"SUMMARY:{escape(task.title)}"
    if task.description is not None:
        yield f"DESCRIPTION:{escape(task.description)}"
    yield f"PRIORITY:{_RANKS[task.priority]}"
    yield f"STATUS:{'COMPLETED' if task.completed else 'NEEDS-ACTION'}"
    if task.completed:
        yield f"COMPLETED:{_basic(task.completed_at or task.updated_at)}"
    if task.labels:
        yield f"CATEGORIES:{','.join(map(escape, task.labels))}"
    if task.project is not None:
        yield f"X-DESKHAND-PROJECT:{escape(task.project)}"
    if task.parent_id is not None and task.parent_id in parents:
        yield f"RELATED-TO;RELTYPE=PARENT:{escape(parents[task.parent_id])}"


def _times(task: TaskRow, zone: ZoneInfo, series: list[datetime]) -> Iterator[str]:
    """When it is due and how it is repeated; what needs the zone is added to `series`."""
    if task.due_date is None:
        return
    # A finished one has its follower, which carries the rule on.
    if task.recurrence is None or task.next_id is not None or task.series_start is None:
        yield f"DUE:{_basic(task.due_date)}"
        return
    if task.series_start != task.due_date:
        yield f"X-DESKHAND-SERIES-START:{_basic(task.series_start)}"
    due = _begin_of_series(task, task.recurrence, zone)
    if due is None:
        yield f"DUE:{_basic(task.due_date)}"
        yield f"X-DESKHAND-RECURRENCE:{task.recurrence}"
        return
    series.append(due)
    # A series is walked in wall time from its start, which lies before the task is due and on the same day.
    begun = due.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    yield f"DTSTART{_in_zone(begun, zone)}"
    yield f"DUE{_in_zone(due, zone)}"
    yield f"RRULE:{_with_utc_end(task.recurrence, zone)}"


def _begin_of_series(task: TaskRow, rule: str, zone: ZoneInfo) -> datetime | None:
    """When the task is due in wall time; None where no other program could go on with its series from there.

    It would count from this task on, has no moment of that day to begin on, or leaves the years that a clock has.
    """
    counts_on = task.series_start != task.due_date and "COUNT=" in rule
    if counts_on or task.due_date is None or not _FIRST_YEAR < task.due_date < _LAST_YEAR:
        return None
    due = datetime.fromisoformat(task.due_date).astimezone(zone)
    return None if f"{due:%H%M%S}" == "000000" else due


def _in_zone(at: datetime, zone: ZoneInfo) -> str:
    if zone.key == "UTC":
        return f":{at:%Y%m%dT%H%M%S}Z"
    return f";TZID={zone.key}:{at:%Y%m%dT%H%M%S}"


def _basic(moment: str) -> str:
    return f"{moment[:19].replace('-', '').replace(':', '')}Z"


def _with_utc_end(rule: str, zone: ZoneInfo) -> str:
    """The rule with the end of its last day, or what the person's clock shows then, in UTC."""

    def in_utc(found: re.Match[str]) -> str:
        clock = time.fromisoformat(found[2]) if found[2] else time(23, 59, 59)
        until = datetime.combine(date.fromisoformat(found[1]), clock, zone).astimezone(UTC)
        return f"UNTIL={until:%Y%m%dT%H%M%SZ}"

    return re.sub(r"UNTIL=([0-9]{8})(?:T([0-9]{6}))?(?=;|$)", in_utc, rule)


# In.


def parse_todos(content: bytes, zone: ZoneInfo) -> TodoFile:
    """The tasks of a file; a time without a zone is the person's own."""
    components = read_calendar(content)
    zones = read_zones(components)
    found: dict[str, Todo] = {}
    told: list[ImportProblem] = []
    left_out = 0
    for each in components:
        if each.kind == "VTIMEZONE":
            continue
        reading = _Reading(each, zone, zones)
        try:
            todo = reading.todo() if each.kind == "VTODO" else None
            if todo is None:
                left_out += 1
                continue
            if todo.uid in found:
                raise broken(todo.line, f"the UID of line {found[todo.uid].line} again")
        except Unreadable as error:
            told.append(reading.problem(error, imported=False))
            continue
        found[todo.uid] = todo
        told += reading.problems
    todos = [_flatten(todo, found, told) for todo in found.values()]
    return TodoFile(todos, left_out, told)


def _flatten(todo: Todo, found: Mapping[str, Todo], told: list[ImportProblem]) -> Todo:
    """A part of a part is a part of the whole; a circle has no whole."""
    passed = [todo.uid]
    parent = todo.parent
    while (
        parent is not None
        and parent in found
        and parent not in passed
        and found[parent].parent is not None
    ):
        passed.append(parent)
        parent = found[parent].parent
    if parent == todo.parent and parent not in passed:
        return todo
    why = "a subtask has no subtasks of its own: it is a part of the whole now"
    if parent in passed:
        parent = None
        why = "it is a part of itself: it stands alone now"
    told.append(
        ImportProblem(
            line=todo.parent_line, title=todo.new.title, message=why, imported=True
        )
    )
    return replace(todo, parent=parent)


class _Reading:
    """Reads one task, and keeps what of it cannot be taken as it stands."""

    def __init__(
        self, component: Component, zone: ZoneInfo, zones: Mapping[str, CalendarZone]
    ) -> None:
        self.problems: list[ImportProblem] = []
        self._component = component
        self._zone = zone
        self._zones = zones
        self._said: dict[str, CalendarLine] = {}

    def problem(self, error: Unreadable, *, imported: bool) -> ImportProblem:
        line = int(error.details["line"])
        return ImportProblem(
            line=line,
            title=self._title(),
            message=error.message.removeprefix(f"line {line}: "),
            imported=imported,
        )

    def todo(self) -> Todo | None:
        """The task; None for one that was cancelled, or is one changed date of a repeated one."""
        lines = self._component.lines
        begun = self._component.begun.number
        for line in lines:
            if not line.name:
                raise broken(line.number, line.value)
            if line.name in self._said and line.name in _ONCE:
                self._tell(
                    line,
                    f"{line.name} was said in line {self._said[line.name].number} already",
                )
            self._said.setdefault(line.name, line)
        status = self._read("STATUS", _status)
        if status == "CANCELLED" or "RECURRENCE-ID" in self._said:
            return None
        if "UID" not in self._said:
            raise broken(begun, "this task has no UID")
        uid = unescape(self._said["UID"])
        if not 0 < len(uid) <= LONGEST_UID:
            raise broken(
                self._said["UID"].number, f"a UID has 1 to {LONGEST_UID} characters"
            )
        parents = [line for line in lines if line.name == "RELATED-TO" and _is_parent(line)]
        return Todo(
            uid=uid,
            line=begun,
            new=self._new(begun),
            completed=status == "COMPLETED" or (not status and "COMPLETED" in self._said),
            completed_at=self._read("COMPLETED", self._utc),
            created=self._read("CREATED", self._utc),
            parent=unescape(parents[0]) if parents else None,
            parent_line=[*parents, self._component.begun][0].number,
            series_start=self._read("X-DESKHAND-SERIES-START", self._utc),
        )

    def _new(self, begun: int) -> NewTask:
        given: dict[str, Any] = {
            "due_date": self._due(),
            "project": self._read("X-DESKHAND-PROJECT", _one_name),
            "labels": self._labels(),
            "priority": self._read("PRIORITY", _priority) or PriorityLevel.MEDIUM,
        }
        given["recurrence"] = self._rule(given["due_date"])
        title = (self._read("SUMMARY", unescape) or "").strip()
        if not title:
            raise broken(begun, "this task has no SUMMARY", "title")
        description = self._read("DESCRIPTION", unescape)
        if len(title) > TITLE_LENGTH:
            self._tell(
                self._said["SUMMARY"],
                f"longer than {TITLE_LENGTH} characters: all of it is in the description",
            )
            description = f"{title}\n\n{description or ''}".rstrip()
            title = f"{title[: TITLE_LENGTH - 1].rstrip()}…"
        if description is not None and len(description) > DESCRIPTION_LENGTH:
            at = self._said.get("DESCRIPTION", self._said["SUMMARY"])
            self._tell(
                at, f"longer than {DESCRIPTION_LENGTH:,} characters: the rest is missing"
            )
            description = description[:DESCRIPTION_LENGTH]
        try:
            return NewTask.model_validate(
                given | {"title": title, "description": description}
            )
        except ValidationError as error:
            found = problems(error.errors(include_url=False))[0]
            raise broken(begun, f"{found.field}: {found.message}", found.field) from None

    def _labels(self) -> list[str]:
        lines = [line for line in self._component.lines if line.name == "CATEGORIES"]
        named = [
            (line, label.strip())
            for line in lines
            for label in split_list(line)
            if label.strip()
        ]
        kept = [label for _, label in named if _is_name(label)]
        for line, label in named:
            if not _is_name(label):
                self._tell(
                    line,
                    f"no label has more than {NAME_LENGTH} characters or lines: {printable(label, 40)}",
                )
        if len(kept) > MOST_LABELS:
            self._tell(lines[0], f"more than {MOST_LABELS} labels: the others are missing")
        return kept[:MOST_LABELS]

    def _rule(self, due_date: str | None) -> str | None:
        name = "RRULE" if "RRULE" in self._said else "X-DESKHAND-RECURRENCE"
        rule = self._read(name, self._known_rule)
        if rule and due_date is None:
            self._tell(
                self._said[name], "a repeated task needs a due date: it is not repeated now"
            )
            return None
        return rule

    def _known_rule(self, line: CalendarLine) -> str:
        """Without what changes nothing (weeks begin on Monday), and with the end of a last day in UTC."""
        parts = [part for part in line.value.upper().split(";") if part != "WKST=MO"]
        try:
            rule = _with_utc_end(";".join(parts), self._zone)
            recurrence.parse(rule)
        except (ValueError, OverflowError) as error:
            raise broken(
                line.number, f"it is not repeated now, {error}", "recurrence"
            ) from None
        return rule

    def _due(self) -> str | None:
        if "DUE" in self._said:
            return self._read("DUE", self._utc)
        return self._read("DURATION", self._end)

    def _end(self, length: CalendarLine) -> str:
        parts = _DURATION.fullmatch(length.value)
        if parts is None or not any(parts.groups()) or "DTSTART" not in self._said:
            raise broken(
                length.number,
                "a DURATION such as PT1H, with a DTSTART, is needed here",
                "due_date",
            )
        weeks, days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
        took = timedelta(
            weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds
        )
        try:
            return utc_text(self._moment(self._said["DTSTART"]) + took)
        except OverflowError:
            raise broken(length.number, "the time is out of range", "due_date") from None

    def _utc(self, line: CalendarLine) -> str:
        return utc_text(self._moment(line))

    def _moment(self, line: CalendarLine) -> datetime:
        """In UTC; a time without a zone is the person's own, a date that day's end."""
        form = _TIME.fullmatch(line.value)
        try:
            day = date.fromisoformat(form[1] if form else "")
            if not form or form[2] is None:
                return datetime.combine(day, END_OF_DAY, self._zone).astimezone(UTC)
            # RFC 5545 has a second 60 for leap seconds; no clock here shows it.
            clock = time.fromisoformat(re.sub(r"60$", "59", form[2]))
            return datetime.combine(
                day, clock, UTC if form[3] else self._zone_of(line)
            ).astimezone(UTC)
        except (ValueError, OverflowError):
            raise broken(
                line.number,
                f"{line.name} is not a time such as 20261224T180000Z",
                "due_date",
            ) from None

    def _zone_of(self, line: CalendarLine) -> tzinfo:
        """The world's zone of that name, else the calendar's own, else the person's."""
        name = line.parameters.get("TZID")
        if name is None:
            return self._zone
        found = known_zone(name) or self._zones.get(name)
        if found is None:
            self._tell(
                line,
                f"the time zone {printable(name, 60)} is not known: taken as the person's",
            )
        return found or self._zone

    def _read(self, name: str, read: Callable[[CalendarLine], T]) -> T | None:
        """What the line says; None where there is none, and, which is told, where it cannot be read."""
        if name not in self._said:
            return None
        try:
            return read(self._said[name])
        except Unreadable as error:
            self.problems.append(self.problem(error, imported=True))
            return None

    def _tell(self, line: CalendarLine, why: str) -> None:
        self.problems.append(self.problem(broken(line.number, why), imported=True))

    def _title(self) -> str:
        return (
            printable(unescape(self._said["SUMMARY"]), 60)
            if "SUMMARY" in self._said
            else ""
        )


_ONCE = frozenset(
    [
        *(
            "UID",
            "SUMMARY",
            "DESCRIPTION",
            "STATUS",
            "PRIORITY",
            "DTSTART",
            "DUE",
            "DURATION",
            "RRULE",
            "COMPLETED",
        ),
        *(
            "CREATED",
            "X-DESKHAND-PROJECT",
            "X-DESKHAND-RECURRENCE",
            "X-DESKHAND-SERIES-START",
        ),
    ]
)


def _is_parent(line: CalendarLine) -> bool:
    return line.parameters.get("RELTYPE", "PARENT").upper() == "PARENT"


def _status(line: CalendarLine) -> str:
    status = line.value.upper()
    if status not in ("NEEDS-ACTION", "IN-PROCESS", "COMPLETED", "CANCELLED"):
        raise broken(
            line.number, f"STATUS {printable(status, 40)} is not known", "completed"
        )
    return status


def _one_name(line: CalendarLine) -> str:
    name = unescape(line)
    if not _is_name(name):
        raise broken(
            line.number,
            f"no project has more than {NAME_LENGTH} characters or lines",
            "project",
        )
    return name


def _is_name(text: str) -> bool:
    return (
        0 < len(text) <= NAME_LENGTH
        and text == text.strip()
        and "\n" not in text
        and "\t" not in text
    )


def _priority(line: CalendarLine) -> PriorityLevel | None:
    if not re.fullmatch(r"[0-9]", line.value):
        raise broken(line.number, "PRIORITY is a number from 0 to 9", "priority")
    return next(level for last, level in _UP_TO.items() if line.value <= last)


_UP_TO: dict[str, PriorityLevel | None] = {
    "0": None,
    "1": PriorityLevel.URGENT,
    "4": PriorityLevel.HIGH,
    "5": PriorityLevel.MEDIUM,
    "9": PriorityLevel.LOW,
}
"""The last rank of each level; 0 is no priority."""
