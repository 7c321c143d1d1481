"""Header fields both ways: words, dates and message ids. Reading never raises, writing is strict."""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from deskhand.errors import FieldProblem, InvalidInput, printable
from deskhand.mail.charsets import decode, without_surrogates

MOST_IDS = 200
LONGEST_ID = 900
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_FOLD = re.compile(r"\r?\n(?=[ \t])")
_ENCODED = re.compile(r"=\?([^?\s]{1,75})\?([bBqQ])\?([^?\r\n]*)\?=")
_ID = re.compile(r"<([!-;=?-~]{1,898})>")
_NAMES = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_CLOCK = r"(?P<hour>\d{1,2})[:.](?P<minute>\d\d)(?:[:.](?P<second>\d\d))?(?:\.\d+)?"
_OFFSET = r"[+-]\d\d:?\d\d\b"
_FORMS = (
    rf"(?P<day>\d{{1,2}})[ -]+{_MONTH}[a-z]*[ -]+(?P<year>\d{{2,4}})[ ,]+{_CLOCK} *(?P<zone>{_OFFSET}|[a-z]{{1,5}}\b)?",
    rf"(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)[T ]{_CLOCK} ?(?P<zone>{_OFFSET}|z)?",
    rf"{_MONTH} +(?P<day>\d{{1,2}}) {_CLOCK}(?: (?P<zone>{_OFFSET}))? (?P<year>\d{{4}})\b",
)
"""As mail writes a date, as ISO 8601 does, and as C's asctime does."""
_DATES = [re.compile(form, re.IGNORECASE | re.ASCII) for form in _FORMS]
_ZONES = {
    "est": -5,
    "edt": -4,
    "cst": -6,
    "cdt": -5,
    "mst": -7,
    "mdt": -6,
    "pst": -8,
    "pdt": -7,
}


def source_of(value: bytes | str) -> str:
    """A field as text, its encoded words not yet decoded."""
    return value if isinstance(value, str) else decode(value, None)


def text(value: bytes | str) -> str:
    """An unstructured field as a person reads it: one line, no control characters."""
    return one_line(decode_words(source_of(value)))


def message_ids(value: bytes | str) -> tuple[str, ...]:
    """The message ids of a field, in order, each once."""
    return tuple(dict.fromkeys(f"<{found}>" for found in _ID.findall(source_of(value))))[
        -MOST_IDS:
    ]


def first_message_id(value: bytes | str) -> str:
    """The first message id of a field; empty where there is none."""
    return next(iter(message_ids(value)), "")


def date(value: bytes | str) -> datetime | None:
    """What a date field means, in UTC; None where it means nothing."""
    source = source_of(value)
    found = next(filter(None, (form.search(source) for form in _DATES)), None)
    if found is None:
        return None
    month = _MONTHS.get(found["month"].lower()) or int(found["month"])
    day = (_year(found["year"]), month, int(found["day"]))
    # A leap second is the second before it.
    time = (int(found["hour"]), int(found["minute"]), min(int(found["second"] or 0), 59))
    try:
        return datetime(*day, *time, tzinfo=_zone(found["zone"])).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _year(digits: str) -> int:
    year = int(digits)
    if len(digits) == 4:
        return year
    return year + (1900 if year >= 70 else 2000)


def _zone(name: str | None) -> timezone:
    if name and name[0] in "+-":
        sign = int(f"{name[0]}1")
        digits = name[1:].replace(":", "")
        return timezone(sign * timedelta(hours=int(digits[:2]), minutes=int(digits[2:])))
    return timezone(timedelta(hours=_ZONES.get((name or "").lower(), 0)))


def one_line(value: str) -> str:
    return without_surrogates(_CONTROL.sub(" ", _FOLD.sub("", value))).strip()


class _Word(NamedTuple):
    """An encoded word, and the plain text before it."""

    before: str
    charset: str
    data: bytearray


def decode_words(source: str) -> str:
    """RFC 2047: encoded words become text; what is between two of them vanishes if it is only space."""
    if "=?" not in source:
        return source
    words: list[_Word] = []
    end = 0
    for found in _ENCODED.finditer(source):
        before = source[end : found.start()]
        charset = found[1].partition("*")[0].lower()
        data = _word_bytes(found[2], found[3])
        end = found.end()
        if words and not before.strip():
            before = ""
            if words[-1].charset == charset:
                # Some senders cut a character in two; only the joined bytes make sense.
                words[-1].data.extend(data)
                continue
        words.append(_Word(before, charset, bytearray(data)))
    return (
        "".join(word.before + decode(bytes(word.data), word.charset) for word in words)
        + source[end:]
    )


def _word_bytes(encoding: str, payload: str) -> bytes:
    data = payload.encode("utf-8", "replace")
    return decode_base64(data) if encoding in "bB" else binascii.a2b_qp(data, header=True)


def decode_base64(data: bytes) -> bytes:
    """As much as can be read: foreign characters are skipped, padding is mended."""
    kept = re.sub(rb"[^A-Za-z0-9+/]", b"", data)
    if len(kept) % 4 == 1:
        kept = kept[:-1]
    return base64.b64decode(kept + b"=" * (-len(kept) % 4))


# Writing: refuse rather than repair.


def demand_line(name: str, value: str) -> str:
    """The value of a header field, which must be text of one line."""
    problem = ""
    if _CONTROL.search(value):
        problem = "has a control character or line break"
    if _SURROGATE.search(value):
        problem = "is not valid Unicode"
    if problem:
        shown = printable(value.encode("unicode_escape").decode())
        raise InvalidInput(
            f"The {name} {problem}.", fields=[FieldProblem(name, problem, shown)]
        )
    return value


def demand_id(name: str, value: str) -> str:
    """The value of a header field, which must be one message id."""
    if not _ID.fullmatch(value) or len(value) > LONGEST_ID:
        problem = FieldProblem(
            name, "is not a message id in angle brackets", printable(value)
        )
        raise InvalidInput(f"The {name} is not a message id.", fields=[problem])
    return value


def encode(name: str, value: str) -> str:
    """An unstructured field. What is long, not ASCII, or looks encoded, is encoded, so
    that it reads as written."""
    plain = f"{name}: {value}"
    if (
        value.isascii()
        and len(plain) <= 78
        and "=?" not in value
        and value == value.strip(" ")
    ):
        return plain
    words = (
        f"=?utf-8?b?{base64.b64encode(chunk).decode()}?=" for chunk in _chunks(value, 39)
    )
    return f"{name}: " + "\r\n ".join(words)


def _chunks(value: str, most: int) -> Iterator[bytes]:
    """UTF-8 in pieces of at most `most` bytes, never through a character."""
    piece = b""
    for char in value:
        data = char.encode()
        if len(piece) + len(data) > most:
            yield piece
            piece = b""
        piece += data
    yield piece


def fold(name: str, items: Iterable[str], separator: str = "") -> str:
    """One item on each line: the standard library would encode a long list of message ids,
    which breaks threads."""
    return f"{name}: " + f"{separator}\r\n ".join(items)
