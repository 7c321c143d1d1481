"""The arguments of a call: the one way in which they are written down, and what stands at a path in them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from deskhand.errors import FieldProblem, InvalidInput

MOST = 1_000_000
"""Characters of the arguments; nobody can say yes to more."""
MOST_DEEP = 100
_SHORT = 100_000
"""Bytes of a line; what it says, written in the one way, is not ten times as long."""
MOST_ROWS = 200
MOST_CHARACTERS = 60_000
"""What a card shows of the arguments; the whole of them can be downloaded."""
NOTHING = object()
"""Stands for what is not there, which is no value that JSON can say."""

_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def canonical(arguments: Mapping[str, Any]) -> str:
    """JSON with sorted keys, numbers as they came; what no JSON can say is refused."""
    try:
        text = write_canonical(arguments)
        text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise refuse(
            "arguments", f"the arguments cannot be written as JSON: {error}"
        ) from error
    if len(text) > MOST:
        raise refuse(
            "arguments", f"{len(text):,} characters are more than anybody can approve"
        )
    if _is_deeper(arguments, MOST_DEEP):
        raise refuse(
            "arguments", f"more than {MOST_DEEP} levels are more than anybody can read"
        )
    return text


def write_canonical(arguments: Mapping[str, Any]) -> str:
    """The same, where it is known that they can be written."""
    return _CANONICAL.encode(arguments)


def is_writable(arguments: Mapping[str, Any], line: bytes) -> bool:
    """Whether arguments that came with this line can be written down; of a short and flat one that is certain."""
    if len(line) < _SHORT and line.count(b"{") + line.count(b"[") <= MOST_DEEP:
        return True
    try:
        canonical(arguments)
    except InvalidInput:
        return False
    return True


def _is_deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most + 1):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def find_values(values: Any, path: str) -> list[Any]:
    """What stands at a path such as `issue.labels.0`, or with `labels.*` in each place: at least one thing.

    A name may have dots or a star in it, so there can be several ways to read a path. What any of them finds is there,
    with NOTHING for each that leads nowhere.
    """
    if not path:
        return [values]
    ways = [find_values(each, rest) for each, rest in _step_into(values, path.split("."))]
    starred = path.partition(".")[0] == "*"
    # No list, as the path says.
    if not ways or (starred and isinstance(values, dict) and "*" not in values):
        ways.append([NOTHING])
    return [each for several in ways for each in several]


def _step_into(values: Any, parts: Sequence[str]) -> Iterator[tuple[Any, str]]:
    """Each thing to which the first parts of a path can lead, and the rest of the path."""
    first = parts[0]
    rest = ".".join(parts[1:])
    match values:
        case dict() | list() if first == "*":
            yield from ((each, rest) for each in _inside(values))
        case list() if (
            first.isascii()
            and first.isdecimal()
            and len(first) < 8
            and int(first) < len(values)
        ):
            yield values[int(first)], rest
    if not isinstance(values, dict):
        return
    for end in range(1, len(parts) + 1):
        if (name := ".".join(parts[:end])) in values:
            yield values[name], ".".join(parts[end:])


def list_rows(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each argument by its path; a text as a text."""
    match value:
        case dict() if value:
            for key in sorted(value):
                yield from list_rows(value[key], f"{path}.{key}" if path else key)
        case list() if any(isinstance(each, dict | list) for each in value):
            for place, each in enumerate(value):
                yield from list_rows(each, f"{path}.{place}")
        case _ if path:
            yield path, write_value(value)


def shorten_rows(
    rows: Sequence[tuple[str, str]],
) -> tuple[tuple[tuple[str, str], ...], int]:
    """As many as a page can show, and how many are not there, or not whole."""
    shown: list[tuple[str, str]] = []
    left = MOST_CHARACTERS
    for name, text in rows[:MOST_ROWS]:
        left -= len(name) + len(text)
        if left < 0:
            beginning = (name[:MOST_CHARACTERS], f"{text[: max(0, len(text) + left)]} […]")
            return (*shown, beginning), len(rows) - len(shown)
        shown.append((name, text))
    return tuple(shown), len(rows) - len(shown)


def write_value(value: Any) -> str:
    if value is NOTHING:
        return "(nothing)"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def refuse(field: str, message: str, received: str | None = None) -> InvalidInput:
    return InvalidInput(message, fields=[FieldProblem(field, message, received)])
