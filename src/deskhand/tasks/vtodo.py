"""Tasks as iCalendar text (RFC 5545, VTODO), to and from any program that speaks it.

Project, and where a series began, travel in X-DESKHAND- properties. A control character has no form in iCalendar
and goes out as U+FFFD, a carriage return as a line feed, a time without its fraction of a second. A file is taken
whole or not at all: what is broken is refused with the number of its line.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import ValidationError

from deskhand import __version__
from deskhand.errors import FieldProblem, Unreadable, printable
from deskhand.tasks import recurrence
from deskhand.tasks.due import END_OF_DAY, utc_text
from deskhand.tasks.models import SUGGESTIONS, NewTask, PriorityLevel, problems
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

_OCTETS = 75
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NAME = re.compile(r"([A-Za-z0-9-]+)(?=[;:])")
_PARAMETER = re.compile(r';([A-Za-z0-9-]+)=((?:"[^"]*"|[^";:,]*)(?:,(?:"[^"]*"|[^";:,]*))*)')
_TIME = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?")
_DURATION = re.compile(
    r"\+?P(?:(\d{1,4})W|(?:(\d{1,5})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,7})M)?(?:(\d{1,8})S)?)?)", re.ASCII
)
_RANKS: dict[str, int] = {PriorityLevel.URGENT: 1, PriorityLevel.HIGH: 3, PriorityLevel.MEDIUM: 5, PriorityLevel.LOW: 9}
_MANY = frozenset({"CATEGORIES", "RELATED-TO"})
_FIELDS = {"title": "SUMMARY", "description": "DESCRIPTION", "labels": "CATEGORIES", "project": "X-DESKHAND-PROJECT"}


class CalendarLine(NamedTuple):
    number: int
    name: str
    parameters: dict[str, str]
    value: str


@dataclass(frozen=True, slots=True)
class Todo:
    """A task as a file has it; `parent` is the UID of the task that it is a part of."""

    uid: str
    line: int
    new: NewTask
    completed: bool
    created: str | None
    parent: str | None
    parent_line: int
    series_start: str | None


def text_of(tasks: Iterable[tuple[str, TaskRow]], parents: Mapping[int, str]) -> str:
    """The calendar of these tasks, each with its UID; `parents` are the UIDs by id."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", f"PRODID:-//Deskhand//Deskhand {__version__}//EN"]
    for uid, task in tasks:
        lines += ["BEGIN:VTODO", *_properties(uid, task, parents), "END:VTODO"]
    lines.append("END:VCALENDAR")
    return "".join(f"{_fold(line)}\r\n" for line in lines)


def _properties(uid: str, task: TaskRow, parents: Mapping[int, str]) -> Iterator[str]:
    yield f"UID:{_escape(uid)}"
    yield f"DTSTAMP:{_basic(task.updated_at)}"
    yield f"CREATED:{_basic(task.created_at)}"
    yield f"LAST-MODIFIED:{_basic(task.updated_at)}"
    yield f"SUMMARY:{_escape(task.title)}"
    if task.description is not None:
        yield f"DESCRIPTION:{_escape(task.description)}"
    yield f"PRIORITY:{_RANKS[task.priority]}"
    yield f"STATUS:{'COMPLETED' if task.completed else 'NEEDS-ACTION'}"
    if task.completed:
        # The desk keeps no time of completion; the last change is the latest it can be.
        yield f"COMPLETED:{_basic(task.updated_at)}"
    if task.labels:
        yield f"CATEGORIES:{','.join(map(_escape, task.labels))}"
    if task.project is not None:
        yield f"X-DESKHAND-PROJECT:{_escape(task.project)}"
    if task.parent_id is not None and task.parent_id in parents:
        yield f"RELATED-TO;RELTYPE=PARENT:{_escape(parents[task.parent_id])}"
    if task.due_date is not None:
        yield f"DUE:{_basic(task.due_date)}"
    yield from _repetition(task)


def _repetition(task: TaskRow) -> Iterator[str]:
    due = task.due_date
    started = task.series_start
    # A finished one has its follower, which carries the rule on.
    if task.recurrence is None or task.next_id is not None or due is None or started is None:
        return
    if started != due:
        yield f"X-DESKHAND-SERIES-START:{_basic(started)}"
    if started != due and "COUNT=" in task.recurrence:
        # Another program would count from this task on, and repeat it too often.
        yield f"X-DESKHAND-RECURRENCE:{task.recurrence}"
    else:
        yield f"DTSTART:{_basic(due)}"
        yield f"RRULE:{task.recurrence}"


def _basic(moment: str) -> str:
    return f"{moment[:19].replace('-', '').replace(':', '')}Z"


def _escape(text: str) -> str:
    text = _CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
    for sign in "\\;,":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", "\\n")


def _fold(line: str) -> str:
    """In pieces of at most 75 octets, never within a character."""
    if len(line) <= _OCTETS and line.isascii():
        return line
    pieces, size = [""], 0
    for sign in line:
        octets = len(sign.encode())
        if size + octets > _OCTETS:
            pieces.append(" ")
            size = 1
        pieces[-1] += sign
        size += octets
    return "\r\n".join(pieces)


def todos(content: bytes, zone: ZoneInfo) -> tuple[list[Todo], int]:
    """The tasks of a file, and how many things in it are none (events, cancelled ones) and were left out."""
    found: dict[str, Todo] = {}
    left_out = 0
    for lines in _components(list(_lines(content))):
        todo = _todo(lines, zone) if lines[0].value.upper() == "VTODO" else None
        if todo is None:
            left_out += 1
        elif todo.uid in found:
            raise broken(todo.line, f"the UID of line {found[todo.uid].line} again")
        else:
            found[todo.uid] = todo
    for todo in found.values():
        if todo.parent in found and found[todo.parent].parent is not None:
            raise broken(todo.parent_line, "a subtask has no subtasks of its own")
    return list(found.values()), left_out


def broken(line: int, why: str, field: str = "file") -> Unreadable:
    return Unreadable(
        f"line {line}: {why}",
        hint="nothing was imported; correct this line and import the file again",
        fields=[FieldProblem(field, f"line {line}: {why}", suggestion=SUGGESTIONS.get(field))],
        line=line,
    )


def _lines(content: bytes) -> Iterator[CalendarLine]:
    """The content lines, unfolded, each with the number at which it begins."""
    whole: list[tuple[int, list[bytes]]] = []
    for number, ended in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        piece = ended.removesuffix(b"\r")
        if piece[:1] in (b" ", b"\t") and whole:
            whole[-1][1].append(piece[1:])
        elif piece:
            whole.append((number, [piece]))
    for number, pieces in whole:
        try:
            text = b"".join(pieces).decode()
        except UnicodeDecodeError:
            raise broken(number, "not UTF-8") from None
        if _CONTROL.search(text):
            raise broken(number, "a control character")
        yield _line(number, text)


def _line(number: int, text: str) -> CalendarLine:
    name = _NAME.match(text)
    if name is None:
        raise broken(number, "not a property of the form NAME:VALUE")
    parameters, at = {}, name.end()
    while parameter := _PARAMETER.match(text, at):
        parameters[parameter[1].upper()] = parameter[2].strip('"')
        at = parameter.end()
    if text[at : at + 1] != ":":
        raise broken(number, "not a property of the form NAME:VALUE")
    return CalendarLine(number, name[1].upper(), parameters, text[at + 1 :])


def _components(lines: list[CalendarLine]) -> Iterator[list[CalendarLine]]:
    """Each component of the calendar: its BEGIN and its own lines, without those of parts inside it."""
    open_: list[list[CalendarLine]] = []
    for line in lines:
        if line.name == "BEGIN":
            if not open_ and line.value.upper() != "VCALENDAR":
                raise broken(line.number, "a calendar begins with BEGIN:VCALENDAR")
            open_.append([line])
        elif not open_:
            raise broken(line.number, "a calendar begins with BEGIN:VCALENDAR")
        elif line.name != "END":
            open_[-1].append(line)
        elif line.value.upper() != open_[-1][0].value.upper():
            begun = open_[-1][0]
            raise broken(line.number, f"END:{printable(line.value, 40)} where {_place(begun)}")
        else:
            ended = open_.pop()
            if len(open_) == 1 and ended[0].value.upper() != "VTIMEZONE":
                yield ended
    if open_:
        raise broken(open_[-1][0].number, f"{printable(open_[-1][0].value, 40)} has no END")
    if not lines:
        raise broken(1, "an empty file is no calendar")


def _place(begun: CalendarLine) -> str:
    return f"line {begun.number} began {printable(begun.value, 40)}"


def _todo(lines: list[CalendarLine], zone: ZoneInfo) -> Todo | None:
    begun = lines[0].number
    said = _first_of_each(lines[1:])
    if "UID" not in said:
        raise broken(begun, "this task has no UID")
    status = _optional(said, "STATUS", _keyword)
    # One changed date of a repeated task is no task of its own.
    if status == "CANCELLED" or "RECURRENCE-ID" in said:
        return None
    if status not in (None, "NEEDS-ACTION", "IN-PROCESS", "COMPLETED"):
        raise broken(said["STATUS"].number, f"STATUS {printable(status, 40)} is not known", "completed")
    uid = _unescape(said["UID"])
    if not 0 < len(uid) <= LONGEST_UID:
        raise broken(said["UID"].number, f"a UID has 1 to {LONGEST_UID} characters")
    parents = [line for line in lines if line.name == "RELATED-TO" and _is_parent(line)]
    in_utc = partial(_utc, zone=zone)
    return Todo(
        uid=uid,
        line=begun,
        new=_new(said, [line for line in lines if line.name == "CATEGORIES"], zone, begun),
        completed=status == "COMPLETED" or (status is None and "COMPLETED" in said),
        created=_optional(said, "CREATED", in_utc),
        parent=_unescape(parents[0]) if parents else None,
        parent_line=[*parents, lines[0]][0].number,
        series_start=_optional(said, "X-DESKHAND-SERIES-START", in_utc),
    )


def _first_of_each(lines: Iterable[CalendarLine]) -> dict[str, CalendarLine]:
    said: dict[str, CalendarLine] = {}
    for line in lines:
        if line.name in said and line.name in _KNOWN - _MANY:
            raise broken(line.number, f"{line.name} was said in line {said[line.name].number} already")
        said.setdefault(line.name, line)
    return said


_KNOWN = frozenset(
    [
        *("UID", "SUMMARY", "DESCRIPTION", "STATUS", "PRIORITY", "CATEGORIES", "RELATED-TO"),
        *("DTSTART", "DUE", "DURATION", "RRULE", "COMPLETED", "CREATED"),
        *("X-DESKHAND-PROJECT", "X-DESKHAND-RECURRENCE", "X-DESKHAND-SERIES-START"),
    ]
)


def _is_parent(line: CalendarLine) -> bool:
    return line.parameters.get("RELTYPE", "PARENT").upper() == "PARENT"


def _new(said: Mapping[str, CalendarLine], categories: list[CalendarLine], zone: ZoneInfo, begun: int) -> NewTask:
    rule = said.get("RRULE") or said.get("X-DESKHAND-RECURRENCE")
    given: dict[str, Any] = {
        "title": _optional(said, "SUMMARY", _unescape),
        "description": _optional(said, "DESCRIPTION", _unescape),
        "project": _optional(said, "X-DESKHAND-PROJECT", _unescape),
        "labels": [label.strip() for line in categories for label in _list(line) if label.strip()],
        "due_date": _due(said, zone),
        "priority": _optional(said, "PRIORITY", _priority) or PriorityLevel.MEDIUM,
        "recurrence": _rule(rule) if rule else None,
    }
    if given["title"] is None:
        raise broken(begun, "this task has no SUMMARY", "title")
    if rule and given["due_date"] is None:
        raise broken(rule.number, "a repeated task needs a due date", "recurrence")
    try:
        return NewTask.model_validate(given)
    except ValidationError as error:
        problem = problems(error.errors(include_url=False))[0]
        line = rule.number if rule and problem.field == "recurrence" else said[_FIELDS[problem.field]].number
        raise broken(line, problem.message, problem.field) from None


def _optional(said: Mapping[str, CalendarLine], name: str, read: Callable[[CalendarLine], Any]) -> Any:
    return read(said[name]) if name in said else None


def _keyword(line: CalendarLine) -> str:
    return line.value.upper()


def _unescape(line: CalendarLine) -> str:
    return re.sub(r"\\(.)", _sign, line.value)


def _sign(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] in "nN" else escaped[1]


def _list(line: CalendarLine) -> list[str]:
    parts = re.findall(r"((?:\\(?:.|$)|[^\\,])*)(?:,|$)", line.value)
    return [_unescape(line._replace(value=part)) for part in parts]


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


def _due(said: Mapping[str, CalendarLine], zone: ZoneInfo) -> str | None:
    if "DUE" in said:
        return _utc(said["DUE"], zone)
    if "DURATION" not in said:
        return None
    length = said["DURATION"]
    parts = _DURATION.fullmatch(length.value)
    if parts is None or not any(parts.groups()) or "DTSTART" not in said:
        raise broken(length.number, "a DURATION such as PT1H, with a DTSTART, is needed here", "due_date")
    weeks, days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    took = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    try:
        return utc_text(_moment(said["DTSTART"], zone) + took)
    except OverflowError:
        raise broken(length.number, "the time is out of range", "due_date") from None


def _utc(line: CalendarLine, zone: ZoneInfo) -> str:
    return utc_text(_moment(line, zone))


def _moment(line: CalendarLine, zone: ZoneInfo) -> datetime:
    """In UTC; a time without a zone is the person's own, a date that day's end."""
    form = _TIME.fullmatch(line.value)
    try:
        day = date.fromisoformat(form[1] if form else "")
        if not form or form[2] is None:
            return datetime.combine(day, END_OF_DAY, zone).astimezone(UTC)
        # RFC 5545 has a second 60 for leap seconds; no clock here shows it.
        clock = time.fromisoformat(re.sub(r"60$", "59", form[2]))
        return datetime.combine(day, clock, UTC if form[3] else _zone(line, zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise broken(line.number, f"{line.name} is not a time such as 20261224T180000Z", "due_date") from None


def _zone(line: CalendarLine, zone: ZoneInfo) -> ZoneInfo:
    name = line.parameters.get("TZID")
    if name is None:
        return zone
    try:
        return ZoneInfo(name.removeprefix("/"))
    except (ZoneInfoNotFoundError, OSError, ValueError):
        raise broken(line.number, f"the time zone {printable(name, 60)} is not known", "due_date") from None


def _rule(line: CalendarLine) -> str:
    """Without what changes nothing (weeks begin on Monday), and with the end of a last day."""
    parts = [part for part in line.value.upper().split(";") if part != "WKST=MO"]
    rule = ";".join(f"{part}T235959Z" if re.fullmatch(r"UNTIL=[0-9]{8}", part) else part for part in parts)
    try:
        recurrence.parse(rule)
    except ValueError as error:
        raise broken(line.number, f"RRULE: {error}", "recurrence") from None
    return rule
