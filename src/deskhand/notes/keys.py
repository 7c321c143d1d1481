"""The edits of a call that name keys of the properties: all at once, so that many read the note as often as one."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deskhand.errors import Denied, DeskError, Exists, NotFound, printable
from deskhand.notes import frontmatter
from deskhand.notes.links import same

if TYPE_CHECKING:
    from deskhand.notes.editing import Edit


def edit_keys(text: str, edits: "Mapping[int, Edit]") -> str:
    """The text with these edits, each under its number in the call; an error says which of them it was."""
    changed = _edit_together(text, edits)
    if changed is not None:
        return changed
    numbers = list(edits)

    def is_refused(count: int) -> bool:
        first = {number: edits[number] for number in numbers[:count]}
        return _edit_together(text, first) is None

    refused = bisect_left(range(1, len(numbers)), True, key=is_refused)
    raise Denied(
        "These properties are written in a form in which one cannot be changed alone.",
        reason="form",
        hint="write_note writes them all anew.",
        edit=numbers[refused],
    )


def _edit_together(text: str, edits: "Mapping[int, Edit]") -> str | None:
    """None where the form of the properties does not allow it."""
    changing = _Changing(frontmatter.parse(text).frontmatter)
    for number, each in edits.items():
        try:
            changing.edit(each)
        except DeskError as error:
            error.details["edit"] = number
            raise
    return frontmatter.alter(text, changing.properties, changing.longer)


class _Changing:
    """The properties while they change."""

    def __init__(self, written: dict[str, Any]) -> None:
        self._written = written
        self.properties = dict(written)
        self.longer: dict[str, list[Any]] = {}
        """What comes behind lists that are as they were written."""

    def edit(self, each: "Edit") -> None:
        key = self._find(each.key or "")
        value = each.value
        if value is None and each.text is not None:
            value = each.text
        if key not in self.properties and each.do != "insert":
            raise NotFound(
                f"There is no key {printable(key)!r}.",
                hint='Use "insert" for a new one.',
                key=printable(key),
            )
        if each.do == "delete":
            self._take_out(key, value)
            return
        frontmatter.demand_writable({key: value})
        if self.properties.get(key) is None or each.do == "replace":
            self.longer.pop(key, None)
            self.properties[key] = value
        elif isinstance(self.properties[key], list):
            self._put_behind(key, value if isinstance(value, list) else [value])
        else:
            raise Exists(
                f"The key {printable(key)!r} is there already.",
                hint='Use "replace" for another value.',
            )

    def _find(self, wanted: str) -> str:
        """The key as it is written, where it is the only one that differs in case alone: to Obsidian they are one."""
        if wanted in self.properties:
            return wanted
        alike = [key for key in self.properties if same(key, wanted)]
        return alike[0] if len(alike) == 1 else wanted

    def _put_behind(self, key: str, items: list[Any]) -> None:
        there = self.properties[key]
        if there is self._written.get(key):
            self.longer.setdefault(key, []).extend(items)
        else:
            self.properties[key] = [*there, *items]

    def _take_out(self, key: str, value: Any) -> None:
        """The key; with a value given, that value of its list."""
        there = self.properties[key]
        if key in self.longer:
            there = [*there, *self.longer.pop(key)]
        if value is None or there == value:
            del self.properties[key]
            return
        gone = value if isinstance(value, list) else [value]
        if not isinstance(there, list) or any(each not in there for each in gone):
            raise NotFound(
                f"The key {printable(key)!r} does not have this value.",
                hint="Without a value the key is deleted.",
                key=printable(key),
            )
        self.properties[key] = [each for each in there if each not in gone]
