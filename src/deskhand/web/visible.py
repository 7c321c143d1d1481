"""Text from strangers as a person can read it: what cannot be seen, or moves other text about, is named instead."""

import re
import unicodedata

from markupsafe import Markup, escape

# Controls, fillers, joiners, marks of direction, tags, variation selectors, private use and halves of characters.
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U0010ffff"
)
_ODD = re.compile(rf"([{_UNSEEN}])\1*|\n(?:[ \t]*\n){{7,}}|[ \t\xa0\u2000-\u200a\u3000]{{40,}}|[\u0300-\u036f]{{5,}}")
MOST_MARKS = 2000
"""So many are named; a page of more nobody could open. The others are replacement characters."""
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"
_NAMES = {
    "\r": "carriage return",
    "\xad": "soft hyphen",
    "\u200b": "zero-width space",
    "\u200c": "zero-width non-joiner",
    "\u200d": "zero-width joiner",
    "\ufeff": "zero-width no-break space",
}


def visible(text: str) -> Markup:
    """`text`, escaped, with a labelled mark in the place of everything that a person would not see."""
    text = text.replace("\r\n", "\n")
    made, place = [], 0
    for found in _ODD.finditer(text):
        if _belongs(text, found):
            continue
        made += [escape(text[place : found.start()]), _mark(found)]
        place = found.end()
        if len(made) >= 2 * MOST_MARKS:
            return Markup().join([*made, escape(_ODD.sub("\ufffd", text[place:]))])
    return Markup().join([*made, escape(text[place:])])


def unseen(text: str) -> int:
    """How many characters of it a person would not see."""
    text = text.replace("\r\n", "\n")
    return sum(len(each[0]) for each in _ODD.finditer(text) if each[1] and not _belongs(text, each))


def lines(difference: str) -> list[tuple[str, Markup]]:
    """The lines of a unified diff, each with its sign: `+`, `-`, `@` or a blank."""
    # The first two lines name the files and the third the place; a line of the text may look like them.
    shown = difference.splitlines()[3:]
    return [(line[:1] if line[:1] in "+-@" else " ", visible(line[1:] if line[:1] != "@" else "")) for line in shown]


def _belongs(text: str, found: re.Match[str]) -> bool:
    """A joiner or a variation selector inside an emoji or a word of a script that needs it is no trick."""
    before, after = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 1]
    if len(found[0]) != 1 or found[0] not in _JOINERS or not before or before.isascii():
        return False
    if found[0] in "\ufe0e\ufe0f":
        return unicodedata.category(before) in {"So", "Sm", "Po"}
    return bool(after) and not after.isascii() and unicodedata.category(after)[0] in "LMS"


def _mark(found: re.Match[str]) -> Markup:
    run, char = found[0], found[1]
    if char:
        label = f"{len(run)} times {_name(char)}" if len(run) > 1 else _name(char)
    elif run[0] == "\n":
        label = f"{run.count(chr(10)) - 1} empty lines"
    elif run[0] in "\t " or run.isspace():
        label = f"{len(run)} blanks"
    else:
        label = f"{len(run)} stacked accents"
    mark = Markup('<mark class="unseen">{}</mark>').format(label)
    return Markup("\n{}\n").format(mark) if run[0] == "\n" else mark


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
            return unicodedata.name(char, f"control character {number}").lower().replace("u+", "U+")
