"""What a person cannot see in a text: said once, for the risk, the page, the terminal, mails and the names of notes.

A trace is a run in a text that shows nothing or hides what follows it: characters without a glyph, marks that turn the
direction of reading, an empty page before more text, a stack of accents.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

Kind = Literal["invisible", "turning", "empty lines", "blanks", "accents"]

TURNING = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""They change the direction of reading."""
_OVERRIDES = "\u202d\u202e"
_JOINERS = "\u200c\u200d"
_SELECTORS = "\ufe0e\ufe0f"
_AT_HOME = frozenset(_JOINERS + _SELECTORS)
"""One of these alone may belong where it stands."""
# Letters, marks and signs by their category, but nothing shows: fillers, empty cells, variation selectors.
_BLANK = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u2d7f\u3164\uffa0"
).union(
    "\U00013441\U00013442\U00016fe4\U0001d159",
    map(chr, range(0xFE00, 0xFE10)),
    map(chr, range(0xE0100, 0xE01F0)),
)
_UNJOINED = frozenset(
    (
        "LATIN",
        "CYRILLIC",
        "GREEK",
        "ARMENIAN",
        "GEORGIAN",
        "HEBREW",
        "HANGUL",
        "CJK",
        "HIRAGANA",
        "KATAKANA",
    )
)
"""Alphabets whose letters need no joiner: one between them can only carry a message."""
_WITHOUT_GLYPH = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_SPACE = re.compile(
    r"(?P<lines>\n(?:[ \t]*\n){7,})|(?P<accents>[\u0300-\u036f]{5,})"
    r"|[ \t\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]{40,}"
)
_QUOTES = str.maketrans('\u201c\u201d\u201e\u201f"', "'''''")
ALIKE = str.maketrans("аеорсхуіѕјԁһԛԝӏαορνικτ01ı", "aeopcxyisjdhqwlaopviktoli")  # noqa: RUF001 - they look alike


class Trace(NamedTuple):
    start: int
    end: int
    kind: Kind
    char: str
    """The first character of the run."""


@lru_cache(maxsize=4096)
def is_unseen(char: str) -> bool:
    """Whether the character shows nothing where it stands."""
    if char in "\n\t":
        return False
    return char in _BLANK or unicodedata.category(char) in _WITHOUT_GLYPH


def traces(text: str) -> Iterator[Trace]:
    """Every run that a person would not see, in its order."""
    found = [*_runs(text), *_spaces(text)]
    return iter(sorted(found, key=lambda trace: trace.start))


def count(text: str) -> int:
    """How many characters of the text show nothing."""
    return sum(trace.end - trace.start for trace in _runs(text.replace("\r\n", "\n")))


def describe(text: str) -> list[str]:
    """What a reader would not see, in words; empty where everything shows."""
    sizes: dict[Kind, int] = {}
    plain = text.replace("\r\n", "\n")
    for trace in (*_runs(plain), *_spaces(plain)):
        sizes[trace.kind] = sizes.get(trace.kind, 0) + trace.end - trace.start
    return [_WORDS[kind](size) for kind, size in sizes.items()]


def strip(text: str) -> tuple[str, int]:
    """The text without what could carry a hidden message, and how many characters that were.

    Control characters stay, and so do the marks that a text in two directions is written with.
    """
    removed = [trace for trace in _runs(text) if _hides(trace)]
    return replace(text, removed, lambda _: ""), sum(
        trace.end - trace.start for trace in removed
    )


def has_override(text: str) -> bool:
    """Whether a character in it turns the direction of reading, whatever direction its own letters have."""
    return not set(text).isdisjoint(_OVERRIDES)


def spell_out(text: str) -> str:
    """For a terminal: the code of each unseen character in its place, so that nothing
    steers and nothing hides."""
    return replace(text, _runs(text), _code)


def spell_out_line(text: str) -> str:
    """The same for a text that has to stay one line: a second one could pass for a line of ours."""
    return spell_out(text).replace("\n", "<U+000A>").replace("\t", "<U+0009>")


def spell_out_name(text: str) -> str:
    """The same for what somebody calls themselves: it stands between our own marks, and may not close them."""
    return spell_out_line(" ".join(text.split())).translate(_QUOTES)


def spell_out_posing(name: str) -> str:
    """The name with the codes of letters of another alphabet, where these make it read as
    one in plain letters."""
    plain = unicodedata.normalize("NFKC", name).casefold().translate(ALIKE)
    alphabets = {_alphabet(char) for char in name if char.isalpha()}
    if len(alphabets) < 2 or not plain.isascii():
        return name
    return "".join(char if char.isascii() else f"<U+{ord(char):04X}>" for char in name)


def reads_as(name: str) -> str:
    """What a reader takes a name for: without what shows nothing, without case and accents, letters that look alike
    as one."""
    shown = "".join(char for char in name if not is_unseen(char))
    plain = unicodedata.normalize("NFKD", shown).casefold().translate(ALIKE)
    return "".join(char for char in plain if not unicodedata.combining(char)).strip()


def replace(text: str, found: list[Trace], put: Callable[[Trace], str]) -> str:
    made: list[str] = []
    place = 0
    for trace in found:
        made += [text[place : trace.start], put(trace)]
        place = trace.end
    return "".join([*made, text[place:]])


def _runs(text: str) -> list[Trace]:
    if text.isascii() and text.isprintable():
        return []
    odd = "".join(sorted(char for char in set(text) if is_unseen(char)))
    if not odd:
        return []
    runs = re.finditer(rf"([{re.escape(odd)}])\1*", text)
    return [
        _trace(run)
        for run in runs
        if run[0] not in _AT_HOME or not _belongs(text, run.start())
    ]


def _hides(trace: Trace) -> bool:
    if trace.kind == "turning":
        return trace.char in _OVERRIDES
    return unicodedata.category(trace.char) != "Cc"


def _trace(run: re.Match[str]) -> Trace:
    kind: Kind = "invisible"
    if run[1] in TURNING:
        kind = "turning"
    return Trace(run.start(), run.end(), kind, run[1])


def _spaces(text: str) -> Iterator[Trace]:
    for run in _SPACE.finditer(text):
        kind: Kind = "blanks"
        if run["lines"]:
            kind = "empty lines"
        elif run["accents"]:
            kind = "accents"
        yield Trace(run.start(), run.end(), kind, run[0][0])


def _belongs(text: str, place: int) -> bool:
    """A joiner or a variation selector inside an emoji or a word of a script that needs it is no trick."""
    char = text[place]
    before = text[max(0, place - 1) : place]
    after = text[place + 1 : place + 2]
    if char in _SELECTORS:
        # A key of a telephone is a digit and two marks; every other sign that has two looks is none of ASCII's.
        is_key = after == "\u20e3" and before in "0123456789#*"
        return is_key or (
            not before.isascii() and unicodedata.category(before) in {"So", "Sm", "Po"}
        )
    if char not in _JOINERS or before.isascii() or after.isascii() or is_unseen(after):
        return False
    if before in _SELECTORS:
        return _belongs(text, place - 1)
    if unicodedata.category(before)[0] == "S":
        return unicodedata.category(after)[0] == "S"
    # Between letters that show nothing themselves a joiner carries a message.
    return (
        unicodedata.category(after)[0] in "LM"
        and not is_unseen(before)
        and _alphabet(before) not in _UNJOINED
    )


def _alphabet(char: str) -> str:
    return unicodedata.name(char, "").partition(" ")[0]


def _code(trace: Trace) -> str:
    size = trace.end - trace.start
    code = f"U+{ord(trace.char):04X}"
    if size > 1:
        return f"<{size:,} times {code}>"
    return f"<{code}>"


def _plural(one: str, many: str) -> Callable[[int], str]:
    def words(size: int) -> str:
        if size == 1:
            return f"1 {one}"
        return f"{size} {many}"

    return words


_WORDS: dict[Kind, Callable[[int], str]] = {
    "turning": _plural(
        "character that changes the direction of reading",
        "characters that change the direction of reading",
    ),
    "invisible": _plural("invisible character", "invisible characters"),
    "empty lines": _plural(
        "empty line", "characters of empty lines, with more text behind them"
    ),
    "blanks": _plural("blank", "blanks in a row, with more text behind them"),
    "accents": _plural("stacked accent", "stacked accents"),
}
