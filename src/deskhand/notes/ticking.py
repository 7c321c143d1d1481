"""A checkbox of a note is ticked: one character of one line."""

import re

from deskhand.errors import Changed
from deskhand.notes.editing import EditedText
from deskhand.notes.frontmatter import body_start

_LINE_END = re.compile(r"\r\n|\r|\n")
_BOX = re.compile(r"(?:[ \t>]|(?:[-*+]|\d{1,9}[.)])(?=[ \t]))*\[([ xX])\](?=[ \t])")
"""What stands before the text of an item that can be ticked; it may stand in lists and quotes within each other."""


def tick(text: str, line: int, mark: str) -> EditedText:
    """The text with this mark in the box on that line of its body, counted from 0."""
    start = body_start(text)
    for _ in range(line):
        end = _LINE_END.search(text, start)
        if end is None:
            raise _gone()
        start = end.end()
    box = _BOX.match(text, start)
    if box is None:
        raise _gone()
    place = box.start(1)
    changed = f"{text[:place]}{mark}{text[place + 1 :]}"
    after = len(text) - place
    return EditedText(changed, [(after, after - 1)])


def _gone() -> Changed:
    return Changed("no checkbox is on that line", hint="open the note again")
