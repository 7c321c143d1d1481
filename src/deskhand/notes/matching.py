"""What matches a query and what is shown of it: text in, text out."""

import operator
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from deskhand.errors import FieldProblem, InvalidInput

AROUND = 60
# Enough for a sentence; of thousands the index makes an expression that it refuses, after a minute.
MOST_WORDS = 200
LONGEST_QUERY = 10_000
LONG_VALUE = 200
# More grams than this no longer thin out the candidates, they only cost time.
GRAMS = 4
# This many characters on either side of a gap are enough to tell most phrases apart.
GAP = 3
# A longer word is kept in pieces, each of which begins this long before the end of the one before it.
PIECE = 64
PROBE = 32
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f]")
# The words that a number may turn into on its way from the source to its value text.
_NUMERIC = frozenset("0123456789.e+-")


@dataclass(frozen=True, slots=True)
class Query:
    whole: str
    words: tuple[str, ...]

    def tier(self, text: str) -> int | None:
        """1: the whole query is in the folded text; 2: each of its words is."""
        if self.whole in text:
            return 1
        return 2 if all(word in text for word in self.words) else None


def fold(text: str) -> str:
    """What is the same for two texts that differ only in case or Unicode form."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text).casefold()


def query(text: str) -> Query:
    whole = fold(text).strip()
    if not whole:
        raise InvalidInput(
            "There is nothing to search for.", fields=[FieldProblem("query", "is empty")]
        )
    try:
        whole.encode()
    except UnicodeEncodeError as exc:
        problem = FieldProblem("query", "is not valid Unicode")
        raise InvalidInput("The query is not text.", fields=[problem]) from exc
    words = tuple(whole.split())
    if len(words) > MOST_WORDS or len(whole) > LONGEST_QUERY:
        limits = f"{MOST_WORDS} words and {LONGEST_QUERY:,} characters"
        problem = FieldProblem("query", f"has more than {limits}")
        raise InvalidInput(
            "The query is too long.", fields=[problem], hint="Search for the rarest words."
        )
    return Query(whole, words)


def words_of(text: str) -> tuple[set[str], set[str]]:
    """The words of a folded text, long ones in overlapping pieces, and the gaps between neighbours."""
    listed = replace_controls(text).split()
    words = set(listed)
    for word in [word for word in words if len(word) > PIECE]:
        words.remove(word)
        words.update(word[at : at + PIECE] for at in range(0, len(word) - PROBE, PROBE))
    return words, set(_gaps(listed))


def probe(word: str) -> str:
    """What at least one piece of a word contains if the word contains `word`."""
    return replace_controls(word)[:PROBE]


def gaps(whole: str) -> list[str]:
    """The gaps that every text with this folded phrase has."""
    words = replace_controls(whole).split()
    # The outer words may be parts of longer ones; what is next to the gap is known if they are long enough.
    return [*_gaps(words[len(words[0]) < GAP : len(words) - (len(words[-1]) < GAP)])]


def _gaps(words: Sequence[str]) -> Iterator[str]:
    return map(
        "·".join,
        zip(
            [word[-GAP:] for word in words],
            [word[:GAP] for word in words[1:]],
            strict=False,
        ),
    )


def trigrams(text: str) -> list[str]:
    """Some of the text's trigrams, spread over its length: neighbours say nearly the same."""
    last = len(text) - 3
    places = (
        range(last + 1)
        if last < GRAMS
        else [round(at * last / (GRAMS - 1)) for at in range(GRAMS)]
    )
    return [text[at : at + 3] for at in places]


def pairs(word: str) -> set[str]:
    """What finds a word by one or two characters."""
    return {
        *map(operator.add, word, word[1:]),
        *(char for char in word if not char.isascii()),
    }


def replace_controls(text: str) -> str:
    """The text without what a tokenizer would end a word at, apart from blanks."""
    return _CONTROL.sub("\ufffd", text)


def all_of(grams: Iterable[str]) -> str:
    """An FTS5 expression: a text with all of these."""
    return " AND ".join(map(_quote, grams))


def any_of(words: Iterable[str]) -> str:
    return f"({' OR '.join(map(_quote, words))})"


def _quote(gram: str) -> str:
    return '"' + gram.replace('"', '""') + '"'


def may_hold(block: str, word: str) -> bool:
    """Whether a value of this YAML block could contain the folded word; cheap, may err towards yes."""
    return (
        any(sign in block for sign in "\"'\\!")
        or _NUMERIC.issuperset(word)
        or word in fold(block)
    )


def snippet(
    needles: Sequence[str],
    path: str,
    values: Callable[[str], Sequence[str]],
    body: str,
) -> str:
    """What surrounds the first match in the body, else the value, else the name that matched.

    `values` gives those in which this needle may be."""
    for needle in needles:
        if place := _locate(body, needle):
            return _excerpt(body, *place)
        for value in values(needle):
            if place := _locate(value, needle):
                return (
                    " ".join(value.split())
                    if len(value) <= LONG_VALUE
                    else _excerpt(value, *place)
                )
        if needle in fold(path):
            return path
    return path


def _excerpt(text: str, start: int, end: int) -> str:
    left = max(0, start - AROUND)
    right = min(end, start + LONG_VALUE) + AROUND
    shown = " ".join(text[left:right].split())
    if left > 0:
        shown = f"…{shown}"
    if right < len(text):
        shown = f"{shown}…"
    return shown


def _locate(text: str, needle: str) -> tuple[int, int] | None:
    """Where the folded needle is in the unfolded text."""
    at = fold(text).find(needle)
    if at < 0:
        return None
    end = at + len(needle)
    if fold(text[at:end]) == needle:
        return at, end
    return _unfold(text, at), _unfold(text, end - 1) + 1


def _unfold(text: str, place: int) -> int:
    """The index of the character that became the folded text's character at `place`."""
    start = 0
    for line in text.splitlines(keepends=True):
        length = len(fold(line))
        if place < length:
            within = bisect_right(
                range(len(line) + 1), place, key=lambda end: len(fold(line[:end]))
            )
            return start + within - 1
        place -= length
        start += len(line)
    return len(text)
