"""Text from strangers as a person can read it: what cannot be seen, or moves other text about, is named instead."""

import unicodedata
from collections.abc import Iterator
from itertools import islice

from markupsafe import Markup, escape

from deskhand import unseen
from deskhand.unseen import Trace

MOST_MARKS = 2000
"""How many are named: nobody could open a page of more. The others become replacement characters."""
_NAMES = {
    "\r": "carriage return",
    "\xad": "soft hyphen",
    "\u200b": "zero-width space",
    "\u200c": "zero-width non-joiner",
    "\u200d": "zero-width joiner",
    "\ufeff": "zero-width no-break space",
}


def coded(text: str) -> Markup:
    """The text with what stands between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    shown = [
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    ]
    return Markup("").join(shown)


def visible(text: str) -> Markup:
    """`text`, escaped, with a labelled mark in the place of everything that a person would not see."""
    text = text.replace("\r\n", "\n")
    pieces: list[Markup] = []
    place = 0
    found = unseen.traces(text)
    for trace in islice(found, MOST_MARKS):
        if trace.start < place:
            continue  # blanks inside of empty lines
        pieces += [escape(text[place : trace.start]), _mark(text, trace)]
        place = trace.end
    return Markup().join([*pieces, _replace_unseen(text, place, found)])


def _replace_unseen(text: str, place: int, found: Iterator[Trace]) -> Markup:
    """The rest of the text, in which nothing is named any more."""
    pieces: list[str] = []
    for trace in found:
        if trace.start >= place:
            pieces += [text[place : trace.start], "\ufffd" * (trace.end - trace.start)]
            place = trace.end
    return escape("".join([*pieces, text[place:]]))


def lines(difference: str) -> list[tuple[str, Markup]]:
    """The lines of a unified diff, each with its sign: `+`, `-`, `@` or a blank."""
    # The first two lines name the files and the third the place; a line of the text may look like them.
    return [_split(line) for line in difference.splitlines()[3:]]


def _split(line: str) -> tuple[str, Markup]:
    match line[:1]:
        case "@":
            return "@", Markup()
        case "+" | "-" as sign:
            return sign, visible(line[1:])
        case _:
            return " ", visible(line[1:])


def _mark(text: str, trace: Trace) -> Markup:
    mark = Markup('<mark class="unseen">{}</mark>').format(_label(text, trace))
    if trace.kind == "empty lines":
        return Markup("\n{}\n").format(mark)
    return mark


def _label(text: str, trace: Trace) -> str:
    size = trace.end - trace.start
    match trace.kind:
        case "empty lines":
            return f"{text.count(chr(10), trace.start, trace.end) - 1} empty lines"
        case "blanks":
            return f"{size} blanks"
        case "accents":
            return f"{size} stacked accents"
        case "invisible" | "turning" if size > 1:
            return f"{size} times {_name(trace.char)}"
        case "invisible" | "turning":
            return _name(trace.char)


def _name(char: str) -> str:
    if char in _NAMES:
        return _NAMES[char]
    number = f"U+{ord(char):04X}"
    match unicodedata.category(char):
        case "Co":
            return f"private character {number}"
        case "Cs":
            return f"half a character {number}"
        case _:
            return (
                unicodedata.name(char, f"control character {number}")
                .lower()
                .replace("u+", "U+")
            )
