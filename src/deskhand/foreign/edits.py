"""What a call would change in a text: found in its arguments, whatever server it is for."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

MOST_EDITS = 50
MOST_LINES = 4000
"""Of both texts; to compare more takes longer than a person waits."""
LONGEST = 60_000
"""Characters of all that is shown so."""
_PAIRS = (
    ("old_string", "new_string"),
    ("old_text", "new_text"),
    ("oldText", "newText"),
    ("old_str", "new_str"),
    ("oldString", "newString"),
    ("old_content", "new_content"),
    ("old_source", "new_source"),
    ("old", "new"),
    ("before", "after"),
    ("search", "replace"),
    ("find", "replace"),
)
_WHOLE = ("content", "contents", "text", "file_text", "new_source")
"""What tools call the new text of a whole file."""


@dataclass(frozen=True, slots=True)
class TextEdit:
    place: str
    """The path of the new text among the arguments."""
    difference: str
    """As a unified diff."""


def find_edits(value: Any) -> list[TextEdit]:
    """Each pair of an old and a new text, as a diff; as many as a person reads."""
    found: list[TextEdit] = []
    left = LONGEST
    for each in islice(_compare_pairs(value, ""), MOST_EDITS):
        left -= len(each.difference)
        if left < 0:
            break
        found.append(each)
    return found


def _compare_pairs(value: Any, path: str) -> Iterator[TextEdit]:
    match value:
        case dict():
            for old, new in _PAIRS:
                if isinstance(value.get(old), str) and isinstance(value.get(new), str):
                    yield from _compare(f"{path}{new}", value[old], value[new])
            for key in sorted(value):
                yield from _compare_pairs(value[key], f"{path}{key}.")
        case list():
            for place, each in enumerate(value):
                yield from _compare_pairs(each, f"{path}{place}.")


def find_rewrite(values: Mapping[str, Any], before: str) -> list[TextEdit]:
    """The whole text of a file, against what stands there now."""
    texts = ((name, values[name]) for name in _WHOLE if isinstance(values.get(name), str))
    found = [each for name, text in texts for each in _compare(name, before, text)]
    return [each for each in found if len(each.difference) <= LONGEST]


def _compare(place: str, old: str, new: str) -> Iterator[TextEdit]:
    """Nothing where no line differs, or where there is too much to compare: the arguments show both texts."""
    before = old.splitlines()
    after = new.splitlines()
    if len(before) + len(after) > MOST_LINES or len(old) + len(new) > 4 * LONGEST:
        return
    if difference := "\n".join(
        difflib.unified_diff(before, after, "now", "then", lineterm="")
    ):
        yield TextEdit(place, difference)
