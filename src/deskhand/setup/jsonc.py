"""JSON with comments, changed in place: one member is put in or taken out, every other byte stays.

Comments and a comma after the last member are understood, as VS Code and Gemini write them.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from deskhand.errors import Unreadable

_SPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_REST = re.compile(r"[ \t]*(?:\r?\n)?[ \t]*")
_TAIL = re.compile(r"[ \t]*(?://[^\n]*|/\*[^\n]*?\*/)?[ \t]*")
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])')
_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Member:
    key: str
    start: int
    """Where its key begins."""
    value: "Value"


@dataclass(frozen=True, slots=True)
class Value:
    start: int
    end: int
    members: tuple[Member, ...] | None
    """None where it is no object."""

    def member(self, key: str) -> Member | None:
        """The last of that name: it is the one that every reader takes."""
        return next((each for each in reversed(self.members or ()) if each.key == key), None)


def parse(text: str) -> Value:
    start = _skip(text, text.startswith("\ufeff"))
    root = _node(text, start, 0)
    if _skip(text, root.end) != len(text):
        raise _broken(text, root.end)
    return root


def loads(text: str) -> Any:
    """What the text says, without its comments."""
    return json.loads(_plain(text, parse(text)))


def with_member(text: str, path: tuple[str, ...], new: Any) -> str:
    """`text` with the member at `path` set to `new`; objects on the way are made where they are missing."""
    if not text.strip("\ufeff \t\r\n"):
        text = "{}\n"
    node = parse(text)
    for depth, key in enumerate(path):
        if node.members is None:
            raise Unreadable(f"{'.'.join(path[:depth]) or 'the file'} is not an object", hint="correct it by hand")
        found = node.member(key)
        if found is None:
            for inner in reversed(path[depth + 1 :]):
                new = {inner: new}
            return _insert(text, node, key, new)
        node = found.value
    value = _format(new, _indent(text, node.start), _step(text))
    return text[: node.start] + value + text[node.end :]


def without_member(text: str, path: tuple[str, ...]) -> str:
    """`text` without the member at `path`; as it is where there is none."""
    node = parse(text)
    for key in path[:-1]:
        found = node.member(key)
        if found is None:
            return text
        node = found.value
    gone = node.member(path[-1])
    if gone is None or node.members is None:
        return text
    before = text[: gone.start]
    after = text[gone.value.end :]
    comma = _skip(text, gone.value.end)
    if text[comma] == ",":
        return before + text[_past(_REST, text, comma + 1) :]
    place = node.members.index(gone)
    if place > 0:
        # It is the last one: the comma before it goes with it.
        comma = _skip(text, node.members[place - 1].value.end)
        before = text[:comma] + text[comma + 1 : gone.start]
    # A line comment ends with its line: what closes the object must not fall into it.
    if after.startswith(("\n", "\r\n")):
        before = before.rstrip()
    return before + after


def _insert(text: str, node: Value, key: str, new: Any) -> str:
    step = _step(text)
    outer = _indent(text, node.start)
    inner = outer + step
    entry = f"{json.dumps(key, ensure_ascii=False)}: {_format(new, inner, step)}"
    if not node.members:
        kept = text[node.start + 1 : node.end - 1].rstrip()
        return f"{text[: node.start + 1]}{kept}\n{inner}{entry}\n{outer}}}{text[node.end :]}"
    end = node.members[-1].value.end
    comma = _skip(text, end)
    if text[comma] == ",":
        end = comma + 1
        before = text[:end]
    elif "\n" in text[end : node.end]:
        before = f"{text[:end]},"
    else:
        return f"{text[:end]}, {entry}{text[end:]}"
    # What is said behind the last member on its line stays on its line.
    tail = _past(_TAIL, text, end)
    return f"{before}{text[end:tail].rstrip()}\n{inner}{entry}{text[tail:]}"


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


def _node(text: str, at: int, depth: int) -> Value:
    if depth > _DEPTH:
        raise _broken(text, at)
    match text[at : at + 1]:
        case "{":
            return _object(text, at, depth)
        case "[":
            return _array(text, at, depth)
        case _:
            found = _STRING.match(text, at) or _SCALAR.match(text, at)
            if found is None:
                raise _broken(text, at)
            return Value(at, found.end(), None)


def _object(text: str, start: int, depth: int) -> Value:
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        key = _STRING.match(text, at)
        if key is None:
            raise _broken(text, at)
        colon = _skip(text, key.end())
        if text[colon : colon + 1] != ":":
            raise _broken(text, colon)
        inner = _node(text, _skip(text, colon + 1), depth + 1)
        members.append(Member(json.loads(key[0]), at, inner))
        at = _next(text, inner.end, "}")
    return Value(start, at + 1, tuple(members))


def _array(text: str, start: int, depth: int) -> Value:
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        at = _next(text, _node(text, at, depth + 1).end, "]")
    return Value(start, at + 1, None)


def _next(text: str, end: int, closing: str) -> int:
    at = _skip(text, end)
    match text[at : at + 1]:
        case ",":
            return _skip(text, at + 1)
        case found if found == closing:
            return at
        case _:
            raise _broken(text, at)


def _skip(text: str, at: int) -> int:
    """Where the blanks and comments end that begin here."""
    return _past(_SPACE, text, at)


def _past(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _plain(text: str, node: Value) -> str:
    """The node as strict JSON."""
    piece = text[node.start : node.end]
    without_comments = _COMMENT.sub(_keep_string, piece)
    return _LAST_COMMA.sub(_keep_string, without_comments)


def _keep_string(found: re.Match[str]) -> str:
    return found[1] or " "


def _broken(text: str, at: int) -> Unreadable:
    line = text.count("\n", 0, at) + 1
    return Unreadable(f"this is no JSON from line {line} on", line=line)
