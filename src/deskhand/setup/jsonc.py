"""JSON with comments, changed in place: one member is put in or taken out, every other byte stays.

Comments and a comma after the last member are understood, as VS Code and Gemini write them. They are blanked out first,
so that Python's own decoder reads the rest and every place in it is a place in the text.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from deskhand.errors import Unreadable

_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/|\A\ufeff", re.DOTALL)
_LAST_COMMA = re.compile(rf"({_STRING}|[\w}}\]])(\s*,(?=\s*[}}\]]))?", re.DOTALL)
_SPACE = re.compile(r"\s*")
_REST = re.compile(r"[ \t]*(?:\r?\n)?[ \t]*")
_TAIL = re.compile(r"[ \t]*(?://[^\n]*|/\*[^\n]*?\*/)?[ \t]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object: where its key begins, and where its value begins and ends."""

    key: str
    start: int
    value: int
    end: int


def loads(text: str) -> Any:
    """What the text says, without its comments."""
    plain = _without_last_commas(_without_comments(text))
    try:
        return json.loads(plain)
    except json.JSONDecodeError as error:
        raise Unreadable(
            f"this is no JSON from line {error.lineno} on", line=error.lineno
        ) from error


def with_member(text: str, path: tuple[str, ...], new: Any) -> str:
    """`text` with the member at `path` set to `new`; objects on the way are made where they are missing."""
    if not text.strip("\ufeff \t\r\n"):
        text = "{}\n"
    loads(text)
    start = _past(_SPACE, _without_comments(text), 0)
    end = start
    for depth, key in enumerate(path):
        if text[start] != "{":
            raise Unreadable(
                f"{'.'.join(path[:depth]) or 'the file'} is not an object",
                hint="correct it by hand",
            )
        found = _member(_members(text, start), key)
        if found is None:
            for inner in reversed(path[depth + 1 :]):
                new = {inner: new}
            return _insert(text, start, key, new)
        start = found.value
        end = found.end
    value = _format(new, _indent(text, start), _step(text))
    return text[:start] + value + text[end:]


def without_member(text: str, path: tuple[str, ...]) -> str:
    """`text` without the member at `path`; as it is where there is none."""
    loads(text)
    bare = _without_comments(text)
    start = _past(_SPACE, bare, 0)
    for key in path[:-1]:
        holder = _member(_members(text, start), key)
        if holder is None:
            return text
        start = holder.value
    members = _members(text, start)
    gone = _member(members, path[-1])
    if gone is None:
        return text
    place = members.index(gone)
    before = text[: gone.start]
    after = text[gone.end :]
    comma = _past(_SPACE, bare, gone.end)
    if bare[comma] == ",":
        return before + text[_past(_REST, text, comma + 1) :]
    if place > 0:
        # It is the last one: the comma before it goes with it.
        comma = _past(_SPACE, bare, members[place - 1].end)
        before = text[:comma] + text[comma + 1 : gone.start]
    # A line comment ends with its line: what closes the object must not fall into it.
    if after.startswith(("\n", "\r\n")):
        before = before.rstrip()
    return before + after


def _insert(text: str, start: int, key: str, new: Any) -> str:
    """Put the member in as the last one of the object that starts there."""
    step = _step(text)
    outer = _indent(text, start)
    inner = outer + step
    entry = f"{json.dumps(key, ensure_ascii=False)}: {_format(new, inner, step)}"
    bare = _without_comments(text)
    _, close = _DECODER.raw_decode(_without_last_commas(bare), start)
    members = _members(text, start)
    if not members:
        kept = text[start + 1 : close - 1].rstrip()
        return f"{text[: start + 1]}{kept}\n{inner}{entry}\n{outer}}}{text[close:]}"
    end = members[-1].end
    comma = _past(_SPACE, bare, end)
    if bare[comma] == ",":
        end = comma + 1
        before = text[:end]
    elif "\n" in text[end:close]:
        before = f"{text[:end]},"
    else:
        return f"{text[:end]}, {entry}{text[end:]}"
    # What is said behind the last member on its line stays on its line.
    tail = _past(_TAIL, text, end)
    return f"{before}{text[end:tail].rstrip()}\n{inner}{entry}{text[tail:]}"


def _members(text: str, start: int) -> list[Member]:
    """The members of the object that starts there; none where it is something else."""
    plain = _without_last_commas(_without_comments(text))
    members: list[Member] = []
    at = _past(_SPACE, plain, start + 1)
    while plain[start] == "{" and plain[at] != "}":
        key, colon = _DECODER.raw_decode(plain, at)
        value = _past(_SPACE, plain, _past(_SPACE, plain, colon) + 1)
        _, end = _DECODER.raw_decode(plain, value)
        members.append(Member(key, at, value, end))
        at = _past(_SPACE, plain, end)
        if plain[at] == ",":
            at = _past(_SPACE, plain, at + 1)
    return members


def _member(members: list[Member], key: str) -> Member | None:
    """The member of that name; of several the last one, which every reader takes."""
    return next((each for each in reversed(members) if each.key == key), None)


def _format(new: Any, indent: str, step: str) -> str:
    return json.dumps(new, indent=step, ensure_ascii=False).replace("\n", f"\n{indent}")


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _step(text: str) -> str:
    found = re.search(r"\n([ \t]+)\S", text)
    if found is None or len(found[1]) > 8:
        return "  "
    return found[1]


def _past(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _without_comments(text: str) -> str:
    def blank(found: re.Match[str]) -> str:
        return found[1] or re.sub(r"[^\n]", " ", found[0])

    return _COMMENT.sub(blank, text)


def _without_last_commas(text: str) -> str:
    def blank(found: re.Match[str]) -> str:
        return found[1] + (found[2] or "").replace(",", " ")

    return _LAST_COMMA.sub(blank, text)
