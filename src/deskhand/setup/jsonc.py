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
_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Member:
    key: str
    start: int
    """Where its key begins."""
    value: "Node"


@dataclass(frozen=True, slots=True)
class Node:
    start: int
    end: int
    members: tuple[Member, ...] | None
    """None where it is no object."""

    def member(self, key: str) -> Member | None:
        """The last of that name: it is the one that every reader takes."""
        return next((each for each in reversed(self.members or ()) if each.key == key), None)


def parse(text: str) -> Node:
    start = _skip(text, 1 if text.startswith("\ufeff") else 0)
    root = _node(text, start, 0)
    if _skip(text, root.end) != len(text):
        raise _broken(text, root.end)
    return root


def value(text: str, node: Node) -> Any:
    """What the node says, without its comments."""
    return json.loads(_plain(text, node))


def with_member(text: str, path: tuple[str, ...], new: Any) -> str:
    """`text` with the member at `path` set to `new`; objects on the way are made where they are missing."""
    text = text if text.strip("\ufeff \t\r\n") else "{}\n"
    node = parse(text)
    for depth, key in enumerate(path):
        if node.members is None:
            raise Unreadable(f"{'.'.join(path[:depth]) or 'the file'} is not an object", hint="correct it by hand")
        found = node.member(key)
        if found is None:
            for inner in reversed(path[depth + 1 :]):
                new = {inner: new}
            return _inserted(text, node, key, new)
        node = found.value
    return text[: node.start] + _written(new, _indent(text, node.start), _step(text)) + text[node.end :]


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
    place = node.members.index(gone)
    after = _skip(text, gone.value.end)
    if text[after] == ",":
        rest = _REST.match(text, after + 1)
        return text[: gone.start] + text[rest.end() if rest else after + 1 :]
    if place == 0:
        return _closed(text[: gone.start], text[gone.value.end :])
    comma = _skip(text, node.members[place - 1].value.end)
    return _closed(text[:comma] + text[comma + 1 : gone.start], text[gone.value.end :])


def _closed(before: str, after: str) -> str:
    # A line comment ends with its line: what closes the object must not fall into it.
    return before.rstrip() + after if after.startswith(("\n", "\r\n")) else before + after


def _inserted(text: str, node: Node, key: str, new: Any) -> str:
    step, outer = _step(text), _indent(text, node.start)
    inner = outer + step
    entry = f"{json.dumps(key, ensure_ascii=False)}: {_written(new, inner, step)}"
    if not node.members:
        kept = text[node.start + 1 : node.end - 1].rstrip()
        return f"{text[: node.start + 1]}{kept}\n{inner}{entry}\n{outer}}}{text[node.end :]}"
    last = node.members[-1].value.end
    following = _skip(text, last)
    comma = text[following] == ","
    end = following + 1 if comma else last
    if not comma and "\n" not in text[last : node.end]:
        return f"{text[:last]}, {entry}{text[last:]}"
    # What is said behind the last member on its line stays on its line.
    tail = _TAIL.match(text, end)
    tail_end = tail.end() if tail else end
    return f"{text[:end]}{'' if comma else ','}{text[end:tail_end].rstrip()}\n{inner}{entry}{text[tail_end:]}"


def _written(new: Any, indent: str, step: str) -> str:
    return json.dumps(new, indent=step, ensure_ascii=False).replace("\n", f"\n{indent}")


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _step(text: str) -> str:
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found and len(found[1]) <= 8 else "  "


def _node(text: str, at: int, depth: int) -> Node:
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
            return Node(at, found.end(), None)


def _object(text: str, start: int, depth: int) -> Node:
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
    return Node(start, at + 1, tuple(members))


def _array(text: str, start: int, depth: int) -> Node:
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        at = _next(text, _node(text, at, depth + 1).end, "]")
    return Node(start, at + 1, None)


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
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _plain(text: str, node: Node) -> str:
    """The node as strict JSON."""
    piece = text[node.start : node.end]
    kept = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda found: found[1] or " ", piece, flags=re.DOTALL)
    return re.sub(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', lambda found: found[1] or "", kept)


def _broken(text: str, at: int) -> Unreadable:
    return Unreadable(
        f"this is no JSON from line {text.count(chr(10), 0, at) + 1} on", line=text.count("\n", 0, at) + 1
    )
