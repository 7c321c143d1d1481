"""Templates and daily notes as Obsidian has them: what is filled in, and dates in the form of moment.js, in English."""

import re
from calendar import day_abbr, day_name, month_abbr, month_name
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from deskhand.clock import ordinal
from deskhand.errors import InvalidInput, Unreadable, printable
from deskhand.notes import frontmatter

DATE = "YYYY-MM-DD"
TIME = "HH:mm"

# Between its parts no sign has two places: blanks without an end would cost the cube of their number.
_HOLE = re.compile(r"\{\{[ \t]*+([^{}\n]*[^{}\n \t])[ \t]*+\}\}")
_TOKENS = (
    "Mo|M{1,4}|DDDo|Do|D{1,4}|do|d{1,4}|wo|ww?|Wo|WW?|Qo|Q|N{1,5}|YYYY|YY|Y|y{2,4}|yo|y|gggg|gg|GGGG|GG|e|E"
    "|A|a|HH?|hh?|kk?|mm?|ss?|S{1,9}|X|x|zz?|ZZ?|LTS|LT|L{1,4}|l{1,4}"
)
# In brackets, or behind a backslash, it stands for itself.
_TOKEN = re.compile(rf"\[([^\[]*)\]|\\({_TOKENS})?|({_TOKENS})", re.DOTALL)
_LONG = {
    "LT": "h:mm A",
    "LTS": "h:mm:ss A",
    "L": "MM/DD/YYYY",
    "LL": "MMMM D, YYYY",
    "LLL": "MMMM D, YYYY h:mm A",
    "LLLL": "dddd, MMMM D, YYYY h:mm A",
    "l": "M/D/YYYY",
    "ll": "MMM D, YYYY",
    "lll": "MMM D, YYYY h:mm A",
    "llll": "ddd, MMM D, YYYY h:mm A",
}


def format_date(pattern: str, when: datetime) -> str:
    """The date in the words of a moment.js pattern."""
    parts = _parts_of(when)

    def replace(found: re.Match[str]) -> str:
        literal, escaped, token = found.groups()
        if token is None:
            return literal or escaped or ""
        if token in _LONG:
            return format_date(_LONG[token], when)
        if token[0] == "S":
            return f"{when.microsecond:06}000"[: len(token)]
        return parts[token]

    return _TOKEN.sub(replace, pattern)


def _parts_of(when: datetime) -> dict[str, str]:
    """What each token of a pattern stands for."""
    sunday = when.isoweekday() % 7
    day = when.timetuple().tm_yday
    iso_year, iso_week, weekday = when.isocalendar()
    week_year, week = _week_from_sunday(when.date())
    quarter = (when.month + 2) // 3
    return _parts_of_clock(when) | {
        "YYYY": f"{when.year:04}",
        "YY": f"{when.year % 100:02}",
        "Y": f"{when.year:04}",
        **dict.fromkeys(("y", "yy", "yyy", "yyyy"), str(when.year)),
        "yo": ordinal(when.year),
        **dict.fromkeys(("N", "NN", "NNN", "NNNNN"), "AD"),
        "NNNN": "Anno Domini",
        "Q": str(quarter),
        "Qo": ordinal(quarter),
        "M": str(when.month),
        "MM": f"{when.month:02}",
        "Mo": ordinal(when.month),
        "MMM": month_abbr[when.month],
        "MMMM": month_name[when.month],
        "D": str(when.day),
        "DD": f"{when.day:02}",
        "Do": ordinal(when.day),
        "DDD": str(day),
        "DDDD": f"{day:03}",
        "DDDo": ordinal(day),
        "d": str(sunday),
        "do": ordinal(sunday),
        "dd": day_name[weekday - 1][:2],
        "ddd": day_abbr[weekday - 1],
        "dddd": day_name[weekday - 1],
        "e": str(sunday),
        "E": str(weekday),
        "w": str(week),
        "ww": f"{week:02}",
        "wo": ordinal(week),
        "W": str(iso_week),
        "WW": f"{iso_week:02}",
        "Wo": ordinal(iso_week),
        "gggg": f"{week_year:04}",
        "gg": f"{week_year % 100:02}",
        "GGGG": f"{iso_year:04}",
        "GG": f"{iso_year % 100:02}",
    }


def _parts_of_clock(when: datetime) -> dict[str, str]:
    hour = when.hour % 12 or 12
    offset = when.strftime("%z") or "+0000"
    noon = "AM" if when.hour < 12 else "PM"
    return {
        "H": str(when.hour),
        "HH": f"{when.hour:02}",
        "h": str(hour),
        "hh": f"{hour:02}",
        "k": str(when.hour or 24),
        "kk": f"{when.hour or 24:02}",
        "A": noon,
        "a": noon.lower(),
        "m": str(when.minute),
        "mm": f"{when.minute:02}",
        "s": str(when.second),
        "ss": f"{when.second:02}",
        "X": str(int(when.timestamp())),
        "x": str(int(when.timestamp() * 1000)),
        "ZZ": offset,
        "Z": f"{offset[:3]}:{offset[3:5]}",
        **dict.fromkeys(("z", "zz"), ""),  # moment has no name for a local zone
    }


def _week_from_sunday(day: date) -> tuple[int, int]:
    """Year and week where a week begins on Sunday and the first one has January 1 in it."""
    left = 6 - day.isoweekday() % 7
    if (day.month, day.day + left) > (12, 31):  # there is no date after the year 9999
        return day.year + 1, 1
    return day.year, (day.timetuple().tm_yday + left + 6) // 7


class Filler:
    """Fills the holes of a template, each once: what was filled in is not looked at again."""

    def __init__(
        self,
        title: str,
        day: datetime,
        now: datetime,
        values: Mapping[str, Any],
        formats: Mapping[str, Any],
    ) -> None:
        self._title = title
        self._day = day
        self._now = now
        self._values = values
        self._formats = formats
        self.left: dict[str, None] = {}
        """The names of holes that nothing was given for."""

    def fill(self, template: str) -> str:
        start = frontmatter.body_start(template)
        filled = _HOLE.sub(self._in_properties, template[:start]) + _HOLE.sub(
            self._in_text, template[start:]
        )
        self._demand_readable(filled)
        return filled

    def _in_properties(self, found: re.Match[str]) -> str:
        """A given value or a title that is all of a property is quoted where YAML would misread it."""
        value = self._value(found[1])
        rest = found.string[found.end() :].partition("\n")[0]
        is_alone = found.string[: found.start()].endswith(": ") and not rest.strip()
        if is_alone and (
            found[1] in self._values or (value == self._title and _is_misread(value))
        ):
            return frontmatter.inline(value)
        if isinstance(value, str) and len(value.splitlines()) > 1:
            raise InvalidInput(
                f"The value of {printable(found[1])} does not fit in one line of the properties."
            )
        return self._in_text(found)

    def _in_text(self, found: re.Match[str]) -> str:
        value = self._value(found[1])
        if value is None:
            self.left[found[1]] = None
            return found[0]
        return value if isinstance(value, str) else frontmatter.inline(value)

    def _value(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        kind, colon, pattern = name.partition(":")
        match kind.strip().lower():
            case "title" if not colon:
                return self._title
            case "date":
                return format_date(
                    pattern.strip() or self._formats.get("date") or DATE, self._day
                )
            case "time":
                return format_date(
                    pattern.strip() or self._formats.get("time") or TIME, self._now
                )
        return None

    def _demand_readable(self, filled: str) -> None:
        try:
            frontmatter.parse(filled)
        except Unreadable as error:
            missing = ", ".join(map(printable, self.left))
            raise InvalidInput(
                f"With these values the note's properties cannot be read: {error.message}",
                hint=f"Give values for: {missing}."
                if missing
                else "Give plain values on one line.",
            ) from error


def _is_misread(text: str) -> bool:
    """Whether YAML reads something else where this text stands without quotes."""
    try:
        return frontmatter.parse(f"---\nx: {text}\n---\n").frontmatter != {"x": text}
    except Unreadable:
        return True
