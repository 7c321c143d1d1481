"""YAML changed in place: one member of a table is put in or taken out, every other byte stays.

What we put in is one line of JSON, which is YAML too. PyYAML says where everything stands.
"""

import json
from typing import Any, NamedTuple

import yaml

from deskhand.errors import Unreadable


class _Place(NamedTuple):
    """A key and its value in the text."""

    start: int
    key_end: int
    value: yaml.Node

    @property
    def end(self) -> int:
        end: int = self.value.end_mark.index
        return end


def loads(text: str) -> Any:
    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise Unreadable(f"this is no YAML: {getattr(error, 'problem', error)}") from error


def with_member(text: str, table: str, name: str, new: Any) -> str:
    """`text` with that member of the table set to `new`; the table is made where it is missing."""
    text = without_member(text, table, name)
    said = json.dumps(new, ensure_ascii=False)
    found = _places(_compose(text)).get(table)
    if found is None:
        return f"{text}{_newline(text)}{table}:\n  {name}: {said}\n"
    members = _places(found.value)
    if found.value.tag == "tag:yaml.org,2002:null" or (
        not members and _is_flow(found.value)
    ):
        return f"{text[: found.key_end]}\n  {name}: {said}{text[found.end :]}"
    first = min(place.start for place in members.values())
    if _is_flow(found.value):
        return f"{text[:first]}{json.dumps(name)}: {said}, {text[first:]}"
    indent = " " * (first - _line_start(text, first))
    return f"{text[: first - len(indent)]}{indent}{name}: {said}\n{text[first - len(indent) :]}"


def without_member(text: str, table: str, name: str) -> str:
    """`text` without that member of the table; as it is where there is none."""
    found = _places(_compose(text)).get(table)
    members = _places(found.value) if found else {}
    if found is None or name not in members:
        return text
    gone = members.pop(name)
    after = min(
        (place.start for place in members.values() if place.start > gone.start),
        default=None,
    )
    if _is_flow(found.value):
        if after is not None:
            return text[: gone.start] + text[after:]
        before = text.rfind(",", found.value.start_mark.index, gone.start)
        return text[: before if before > 0 else gone.start] + text[gone.end :]
    made = text[: _line_start(text, gone.start)] + text[_last(text, gone, after) :]
    if members:
        return made
    return f"{text[: found.key_end]} {{}}{made[found.key_end :]}"


def _last(text: str, gone: _Place, after: int | None) -> int:
    """Where the lines of a member end: our own is one line, another's goes on to the next member."""
    if _is_flow(gone.value) or isinstance(gone.value, yaml.ScalarNode):
        line_end = text.find("\n", gone.end)
        return len(text) if line_end < 0 else line_end + 1
    return gone.end if after is None else _line_start(text, after)


def _compose(text: str) -> yaml.Node | None:
    loads(text)
    root: yaml.Node | None = yaml.compose(text)
    return root


def _places(node: yaml.Node | None) -> dict[str, _Place]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {
        str(key.value): _Place(key.start_mark.index, key.end_mark.index + 1, value)
        for key, value in node.value
    }


def _is_flow(node: yaml.Node) -> bool:
    return bool(getattr(node, "flow_style", False))


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _newline(text: str) -> str:
    return "\n" if text and not text.endswith("\n") else ""
