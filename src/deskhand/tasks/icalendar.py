"""The text of a calendar (RFC 5545): its lines, and the components that they make."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from deskhand.errors import FieldProblem, Unreadable, printable
from deskhand.tasks.models import SUGGESTIONS

_OCTETS = 75
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NAME = re.compile(r"([A-Za-z0-9-]+)(?=[;:])")
_PARAMETER = re.compile(
    r';([A-Za-z0-9-]+)=((?:"[^"]*"|[^";:,]*)(?:,(?:"[^"]*"|[^";:,]*))*)'
)


class CalendarLine(NamedTuple):
    number: int
    name: str
    """Empty where the line cannot be read; `value` then says why."""
    parameters: dict[str, str]
    value: str


@dataclass(slots=True)
class Component:
    """What stands between a BEGIN and its END: its own lines, and the components inside it."""

    begun: CalendarLine
    lines: list[CalendarLine] = field(default_factory=list)
    parts: list["Component"] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.begun.value.upper()

    def value(self, name: str) -> str:
        """The value of the first line of that name; "" where there is none."""
        return next((line.value for line in self.lines if line.name == name), "")


def broken(line: int, why: str, field_name: str = "file") -> Unreadable:
    return Unreadable(
        f"line {line}: {why}",
        hint="nothing was imported; correct this line and import the file again",
        fields=[
            FieldProblem(
                field_name, f"line {line}: {why}", suggestion=SUGGESTIONS.get(field_name)
            )
        ],
        line=line,
    )


def read_calendar(content: bytes) -> list[Component]:
    """The components of the calendars in a file."""
    open_: list[Component] = []
    calendars: list[Component] = []
    for line in _lines(content):
        if not line.name and len(open_) < 2:
            raise broken(line.number, line.value)
        if line.name == "BEGIN" and (open_ or line.value.upper() == "VCALENDAR"):
            open_.append(Component(line))
        elif not open_:
            raise broken(line.number, "a calendar begins with BEGIN:VCALENDAR")
        elif line.name != "END":
            open_[-1].lines.append(line)
        elif line.value.upper() != open_[-1].kind:
            begun = open_[-1].begun
            place = f"line {begun.number} began {printable(begun.value, 40)}"
            raise broken(line.number, f"END:{printable(line.value, 40)} where {place}")
        else:
            ended = open_.pop()
            (open_[-1].parts if open_ else calendars).append(ended)
    if open_:
        begun = open_[-1].begun
        raise broken(begun.number, f"{printable(begun.value, 40)} has no END")
    if not calendars:
        raise broken(1, "an empty file is no calendar")
    return [part for calendar in calendars for part in calendar.parts]


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
        yield _line(number, b"".join(pieces))


def _line(number: int, content: bytes) -> CalendarLine:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return CalendarLine(number, "", {}, "not UTF-8")
    if _CONTROL.search(text):
        return CalendarLine(number, "", {}, "a control character")
    name = _NAME.match(text)
    parameters = {}
    at = name.end() if name else 0
    while parameter := _PARAMETER.match(text, at):
        parameters[parameter[1].upper()] = parameter[2].strip('"')
        at = parameter.end()
    if name is None or text[at : at + 1] != ":":
        return CalendarLine(number, "", {}, "not a property of the form NAME:VALUE")
    return CalendarLine(number, name[1].upper(), parameters, text[at + 1 :])


def unescape(line: CalendarLine) -> str:
    return re.sub(r"\\(.)", _sign, line.value)


def _sign(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] in "nN" else escaped[1]


def split_list(line: CalendarLine) -> list[str]:
    parts = re.findall(r"((?:\\(?:.|$)|[^\\,])*)(?:,|$)", line.value)
    return [unescape(line._replace(value=part)) for part in parts]


def escape(text: str) -> str:
    text = _CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
    for sign in "\\;,":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", "\\n")


def write_lines(lines: Iterable[str]) -> str:
    return "".join(f"{_fold(line)}\r\n" for line in lines)


def _fold(line: str) -> str:
    """In pieces of at most 75 octets, never within a character."""
    if len(line) <= _OCTETS and line.isascii():
        return line
    pieces = [""]
    size = 0
    for sign in line:
        octets = len(sign.encode())
        if size + octets > _OCTETS:
            pieces.append(" ")
            size = 1
        pieces[-1] += sign
        size += octets
    return "\r\n".join(pieces)
