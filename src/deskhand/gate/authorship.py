"""Which notes a tool wrote or moved: none of them is the person's own word, wherever it lies and whatever it is called.

A note is known again by what it says, not by its name, its place or its bytes: those change on its way to Approved/.
A yes covers any words, so a tool that wrote one, in whatever form, wrote one to everybody whom its note names. A mail
is known by its recipient and by most of its words.
"""

import json
import re
import string
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import islice
from typing import Any
from zlib import crc32

from deskhand import unseen
from deskhand.errors import InvalidInput, Unreadable
from deskhand.gate.actions import MAIL_TYPES
from deskhand.mail.addresses import recipient
from deskhand.notes import frontmatter
from deskhand.notes.alike import length_alike, length_alike_at_the_end
from deskhand.store import Transaction

_NAMING = ("to", "thread_id", "subject", "reply_to_message_id")
# Each begins with a literal: that is what makes the search quick. A fence is a whole line.
_FENCE = re.compile(r"---(?<![^\n]---)[ \t]*\r?$\n?", re.MULTILINE)
_FENCES = 8
_BLOCK = frontmatter.MAX_BLOCK_BYTES
_PROPERTY = re.compile(
    rf"\n[ \t\"']*(type|{'|'.join(_NAMING)})[ \t\"']*:(.*)", re.IGNORECASE
)
_MEMBER = re.compile(r"\n(?=[\"']?[a-z_]{2,20}[\"']?[ \t]*:)", re.IGNORECASE)
_YES = re.compile("|".join(kind.replace("_", "[_-]") for kind in MAIL_TYPES.values()))
_LONGEST_YES = max(map(len, MAIL_TYPES.values()))
_LONG = 50_000
_PART = r"[^\s<>()\[\],;:\"\\@]"
# A domain of another script has signs that are no letters; in a sentence signs follow that are none of its.
_ADDRESS = re.compile(rf"(?<!{_PART})({_PART}++)@(?=([\w.-]*+))(?=({_PART}++))")
_SIGNS = re.compile(r"[^\w.]")
_THREAD = re.compile(r"thread[_-]?id\W{0,10}([\w.@+=/~-]{1,300})")
_HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(rf"\\(?:x({_HEX}{{2}})|u({_HEX}{{4}})|U({_HEX}{{8}})|\r?\n[ \t]*)")
_NAMED = 1000
"""How many people a note may name that has the words of a yes; one that names more is not written."""
_THREADS = 10_000
_LONGEST = 300
_SIGNS_BEFORE = 8
_RECIPIENTS = 20
_WORD = re.compile(r"\w+")
_WORDS = 100_000
_PHRASE = 3
_PHRASES = 200
_EVERYDAY = f"{string.printable.strip()} \t\r\n".encode()


def marks_of(text: str) -> list[str]:
    """The marks of a note that could pass for a yes or for a mail; none where it names nobody to write to."""
    notes = [*_readings(text)]
    marks: dict[str | None, None] = {}
    for given, rest in notes:
        if any(key.casefold() in ("to", "thread_id") for key in given):
            marks |= dict.fromkeys([mark_of(given), *_marks_of_mail(given, text[rest:])])
    texts = [text, *(_all_words(given) for given, _ in notes)]
    if _ESCAPE.search(text):
        texts.append(_without_escapes(text))
    if _may_say_yes(texts) and _YES.search(_plain(texts)):
        marks |= dict.fromkeys(_mark("yes", each) for each in _named_in(texts))
    return [mark for mark in marks if mark]


_without_yes = [""]
"""The last long text in which no yes stood: of the next one, which is mostly the same note, the change is looked at."""


def _may_say_yes(texts: list[str]) -> bool:
    """Whether the words of a yes may stand in one of the texts, of which the first may be long."""
    if not all(map(str.isascii, texts)):
        return True
    text, *others = texts
    last = _without_yes[-1]
    before = length_alike(last, text)
    after = length_alike_at_the_end(last, text, before)
    changed = text[max(0, before - _LONGEST_YES) : len(text) - after + _LONGEST_YES]
    if any(_YES.search(each.casefold()) for each in (changed, *others)):
        return True
    if len(text) > _LONG:
        _without_yes[-1] = text
    return False


def mark_of(properties: Mapping[str, Any], body: str = "") -> str | None:
    """Of all that a note names, and its words."""
    named = {
        key: _in_one_line(str(properties[key])) for key in _NAMING if properties.get(key)
    }
    if not named.keys() & {"to", "thread_id"}:
        return None
    return _mark(named, _in_one_line(body))


def remember(tx: Transaction, marks: list[str]) -> None:
    tx.many(
        "INSERT INTO tool_notes (mark) VALUES (?) ON CONFLICT DO NOTHING",
        [(mark,) for mark in marks],
    )


def follow(tx: Transaction, before: list[str], after: list[str]) -> None:
    """A note with the marks `before` was changed: where a tool wrote most of it, it stays
    one that a tool wrote."""
    if sum(_is_known(tx, mark) for mark in before) * 2 >= max(1, len(before)):
        remember(tx, after)


def is_a_tools_yes(tx: Transaction, properties: Mapping[str, Any]) -> bool:
    """Whether a tool wrote or moved an approval of the same recipient or thread."""
    thread, given = str(properties.get("thread_id")), str(properties.get("to"))
    # As they are read out of a note, where what is odd in them is cut off or made plain.
    named = {thread.casefold(), *_named_in([f"thread_id: {thread}"])}
    if to := _address(given):
        named |= {to, *_named_in([to, given])}
    marks = [_mark("yes", each) for each in named]
    return any(_is_known(tx, mark) for mark in (*marks, mark_of(properties)))


def is_a_tools_mail(tx: Transaction, properties: Mapping[str, Any], body: str) -> bool:
    """Whether a tool wrote or moved a mail to the same recipient in which most of these words stand."""
    whole = mark_of(properties)
    if body.strip():
        whole = mark_of(properties, body)
    if _is_known(tx, whole):
        return True
    phrases = _phrases(body)
    most = max(
        (
            sum(_is_known(tx, _mark("mail", to, each)) for each in phrases)
            for to in _recipients(properties)
        ),
        default=0,
    )
    return most > 0 and most * 2 >= len(phrases)


def _is_known(tx: Transaction, mark: str | None) -> bool:
    if mark is None:
        return False
    return tx.one("SELECT 1 FROM tool_notes WHERE mark = ?", mark) is not None


# What a note says, in whatever form.


def _readings(text: str) -> Iterator[tuple[dict[str, Any], int]]:
    """The properties and where the body begins, of each note that it is or becomes once somebody takes out what stands
    before its properties, or a fault in them. Where no colon follows any more, there are none."""
    fences = islice(_FENCE.finditer(text), _FENCES)
    start = 0
    while text.find(":", start) >= 0:
        fence = next(fences, None)
        if fence is None:
            yield _read(text[start:]), len(text)
            return
        yield _read(text[start : fence.start()]), fence.end()
        start = fence.end()


def _read(block: str) -> dict[str, Any]:
    if found := _parse(block):
        return found
    lines = f"\n{block}"
    properties = [*_PROPERTY.finditer(lines)]
    named = {each[1].casefold(): each[2].strip(" \t\r\"'") for each in properties}
    members = islice(_members(lines, properties), _RECIPIENTS)
    return named | {"each": [_parse(each) for each in members]}


def _members(lines: str, properties: list[re.Match[str]]) -> Iterator[str]:
    """Each of these properties that begins at its line's beginning, or the block, with what belongs to it."""
    for each in properties:
        start = each.start()
        if not start or _MEMBER.match(lines, start):
            following = _MEMBER.search(lines, each.end())
            yield lines[start + 1 : following.start() + 1 if following else None]


def _parse(block: str) -> dict[str, Any]:
    head = block[: _BLOCK + len("\n---")]
    if ":" not in head or (len(block) > _BLOCK and "\n---" not in head):
        return {}  # none there, or more than can be read
    try:
        return frontmatter.parse(f"---\n{block}\n---\n").frontmatter
    except Unreadable:
        return {}


def _all_words(properties: Mapping[str, Any]) -> str:
    return json.dumps(properties, ensure_ascii=False, default=str)


def _without_escapes(text: str) -> str:
    """As YAML reads it between double quotes, wherever it stands."""
    return _ESCAPE.sub(_spell_escape, text)


def _spell_escape(escape: re.Match[str]) -> str:
    code = int(next(filter(None, escape.groups()), "0"), 16)
    return chr(code) if 0 < code <= sys.maxunicode else ""


def _named_in(texts: list[str]) -> list[str]:
    """Everybody whom the texts name, and every thread: without case and form, and as they are written, since some
    domains with letters such as ß or a joiner are others without."""
    found = _named(_plain(texts))
    if not all(map(str.isascii, texts)):
        found += _named("\n".join(texts).lower())
    return found


def _named(said: str) -> list[str]:
    """Everybody whom a text names, and every thread."""
    people = {*islice(_people(said), 2 * _NAMED + 1)}
    threads = {match[1] for match in islice(_THREAD.finditer(said), _THREADS)}
    if len({local for local, _ in people}) > _NAMED or len(people) > 2 * _NAMED:
        raise InvalidInput(
            f"the note has the words of an approval and names more than {_NAMED:,} people",
            hint="keep the list of people in a note of its own",
        )
    return [*(each for person in people for each in _forms(person)), *threads]


def _people(said: str) -> Iterator[tuple[str, str]]:
    """What stands before and behind each @, once."""
    seen: set[tuple[str, str]] = set()
    for match in _ADDRESS.finditer(said):
        for domain in (match[2], match[3]):
            person = (match[1][-_LONGEST:], domain[:_LONGEST].strip("._-"))
            if person not in seen:
                seen.add(person)
                yield person


def _forms(person: tuple[str, str]) -> Iterator[str]:
    """The address, also without the signs that stand before it in a sentence."""
    local, domain = person
    rests = [local[sign.end() :] for sign in _SIGNS.finditer(local)]
    for each in (local, local.lstrip("_"), *rests[-_SIGNS_BEFORE:]):
        if found := _address(f"{each}@{domain}"):
            yield found


def _address(text: str) -> str | None:
    try:
        return recipient(text.strip()).lower()
    except InvalidInput:
        return None


# The words of a mail.


def _marks_of_mail(properties: Mapping[str, Any], body: str) -> list[str | None]:
    marks = [mark_of(properties, body)]
    if recipients := _recipients(properties):
        phrases = _phrases(body)
        marks += [_mark("mail", to, each) for to in recipients for each in phrases]
    return marks


def _recipients(properties: Mapping[str, Any]) -> list[str]:
    to = [value for key, value in properties.items() if key.casefold() == "to"]
    people = islice(_people(_plain([_all_words({"to": to})])), _RECIPIENTS)
    return [*dict.fromkeys(each for person in people for each in _forms(person))]


def _phrases(body: str) -> list[str]:
    """A text's phrases of some words, and of a long text always the same ones of them."""
    words = [match[0] for match in islice(_WORD.finditer(_plain([body])), _WORDS)]
    count = max(1, len(words) - _PHRASE + 1)
    found = {" ".join(words[at : at + _PHRASE]) for at in range(count)}
    return sorted(found - {""}, key=_number)[:_PHRASES]


def _number(phrase: str) -> tuple[int, str]:
    """By which the phrases are chosen: wherever they stand, and whatever stands around them."""
    return crc32(phrase.encode("utf-8", "replace")), phrase


def _plain(texts: list[str]) -> str:
    """Texts without case, form and what shows nothing."""
    text = "\n".join(texts)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        if gone := [char for char in _odd(text) if unseen.is_unseen(char)]:
            text = text.translate(dict.fromkeys(map(ord, gone)))
    return text.casefold()


def _odd(text: str) -> set[str]:
    """The characters of a text apart from those that any text has."""
    rest = text.encode("utf-8", "surrogatepass").translate(None, _EVERYDAY)
    return {*rest.decode("utf-8", "surrogatepass")}


def _in_one_line(text: str) -> str:
    return " ".join(text.split()).casefold()


def _mark(*said: Any) -> str:
    return sha256(json.dumps([*said], sort_keys=True).encode()).hexdigest()
