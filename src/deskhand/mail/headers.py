"""Header fields both ways: words, addresses, dates and message ids. Reading never raises, writing is strict."""

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import idna

from deskhand.errors import FieldProblem, InvalidInput, printable
from deskhand.mail.charsets import decoded, scalar

MOST_IDS = 200
LONGEST_ID = 900
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_FOLD = re.compile(r"\r?\n(?=[ \t])")
_ENCODED = re.compile(r"=\?([^?\s]{1,75})\?([bBqQ])\?([^?\r\n]*)\?=")
_ID = re.compile(r"<([!-;=?-~]{1,898})>")
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_DATE = re.compile(
    r"(\d{1,2})[ -]+(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[ -]+(\d{2,4})"
    r"[ ,]+(\d{1,2})[:.](\d{2})(?:[:.](\d{2}))?(?:\.\d+)? *([+-]\d{4}\b|[a-z]{1,5}\b)?",
    re.IGNORECASE | re.ASCII,
)
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d))?(?:\.\d+)? ?([+-]\d\d:?\d\d|z)?", re.IGNORECASE | re.ASCII
)
_ASCTIME = re.compile(
    r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?: ([+-]\d{4}))? (\d{4})\b",
    re.IGNORECASE | re.ASCII,
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ZONES = {"est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8, "pdt": -7}
_ADDRESS_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|<([^<>]*)>|([,;:])|([^",;:<>()]+)|(.)', re.DOTALL)
_PLAIN_NAME = re.compile(r"[\w !#$%&'*+/=?^`{|}~.-]*")


@dataclass(frozen=True, slots=True)
class Person:
    """One mailbox of an address field."""

    name: str
    address: str

    def __str__(self) -> str:
        """A name that would read as an address or a list is quoted, so that it stays a name."""
        if not self.name:
            return self.address
        if _PLAIN_NAME.fullmatch(self.name):
            return f"{self.name} <{self.address}>"
        return '"' + self.name.replace("\\", "\\\\").replace('"', '\\"') + f'" <{self.address}>'


def text(value: bytes | str) -> str:
    """An unstructured field as a person reads it: one line, no control characters."""
    return _one_line(_words(value if isinstance(value, str) else decoded(value, None)))


def people(value: bytes | str) -> list[Person]:
    """The mailboxes of an address field. Names are decoded after the field was split, so none can add an address."""
    source = _without_comments(value if isinstance(value, str) else decoded(value, None))
    return [person for tokens in _mailboxes(source) if (person := _person(tokens)) is not None]


def _mailboxes(source: str) -> Iterator[list[re.Match[str]]]:
    tokens: list[re.Match[str]] = []
    for token in _ADDRESS_TOKEN.finditer(source):
        match token[3]:
            case "," | ";":
                yield tokens
                tokens = []
            case ":":  # the name of a group ends here
                tokens = []
            case _:
                tokens.append(token)
    yield tokens


def _person(tokens: Sequence[re.Match[str]]) -> Person | None:
    angles = [token for token in tokens if token[2] is not None]
    if not angles:
        whole = _one_line("".join(token[0] for token in tokens))
        return Person("", whole) if whole else None
    address = _one_line(angles[-1][2]).replace(" ", "")
    before = [token for token in tokens if token is not angles[-1]]
    name = " ".join(re.sub(r"\\(.)", r"\1", token[1]) if token[1] is not None else token[0].strip() for token in before)
    return Person(_one_line(_words(name)), address) if address or name.strip() else None


def _without_comments(source: str) -> str:
    if "(" not in source:
        return source
    kept, depth, quoted, escaped = [], 0, False, False
    for char in source:
        if not escaped and char == '"' and not depth:
            quoted = not quoted
        elif not escaped and not quoted and char == "(":
            depth += 1
        if not depth:
            kept.append(char)
        if not escaped and not quoted and char == ")" and depth:
            depth -= 1
        escaped = char == "\\" and not escaped
    return "".join(kept)


def message_ids(value: bytes | str) -> tuple[str, ...]:
    """The message ids of a field, in order, each once."""
    source = value if isinstance(value, str) else decoded(value, None)
    return tuple(dict.fromkeys(f"<{found}>" for found in _ID.findall(source)))[-MOST_IDS:]


def date(value: bytes | str) -> datetime | None:
    """What a date field means, in UTC; None where it means nothing."""
    source = value if isinstance(value, str) else decoded(value, None)
    if found := _DATE.search(source):
        day, month, year, hour, minute, second, zone = found.groups()
    elif found := _ISO.search(source):
        year, month, day, hour, minute, second, zone = found.groups()
    elif found := _ASCTIME.search(source):
        month, day, hour, minute, second, zone, year = found.groups()
    else:
        return None
    try:
        # A leap second is the second before it.
        clock = (int(hour), int(minute), min(int(second or 0), 59))
        return datetime(_year(year), _month(month), int(day), *clock, tzinfo=_zone(zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _year(digits: str) -> int:
    year = int(digits)
    return year if len(digits) == 4 else year + (1900 if year >= 70 else 2000)


def _month(name: str) -> int:
    return int(name) if name.isdigit() else _MONTHS.index(name.lower()) + 1


def _zone(name: str | None) -> timezone:
    if name and name[0] in "+-":
        digits = name.replace(":", "")
        offset = timedelta(hours=int(digits[1:3]), minutes=int(digits[3:5]))
        return timezone(-offset if digits[0] == "-" else offset)
    return timezone(timedelta(hours=_ZONES.get((name or "").lower(), 0)))


def _one_line(value: str) -> str:
    return scalar(_CONTROL.sub(" ", _FOLD.sub("", value))).strip()


def _words(source: str) -> str:
    """RFC 2047: encoded words become text; what is between two of them vanishes if it is only space."""
    if "=?" not in source:
        return source
    made: list[str] = []
    waiting: tuple[str, bytes] | None = None
    end = 0
    for found in _ENCODED.finditer(source):
        between = source[end : found.start()]
        charset = found[1].partition("*")[0].lower()
        data = _unwrapped(found[2], found[3])
        if waiting is not None and not between.strip() and waiting[0] == charset:
            # Some senders cut a character in two; only the joined bytes make sense.
            waiting = (charset, waiting[1] + data)
        else:
            made += _flushed(waiting)
            if waiting is None or between.strip():
                made.append(between)
            waiting = (charset, data)
        end = found.end()
    return "".join([*made, *_flushed(waiting), source[end:]])


def _flushed(waiting: tuple[str, bytes] | None) -> list[str]:
    return [decoded(waiting[1], waiting[0])] if waiting else []


def _unwrapped(encoding: str, payload: str) -> bytes:
    data = payload.encode("utf-8", "replace")
    if encoding in "bB":
        return unbase64(data)
    return binascii.a2b_qp(data, header=True)


def unbase64(data: bytes) -> bytes:
    """As much as can be read: foreign characters are skipped, padding is mended."""
    kept = re.sub(rb"[^A-Za-z0-9+/]", b"", data)
    if len(kept) % 4 == 1:
        kept = kept[:-1]
    return base64.b64decode(kept + b"=" * (-len(kept) % 4))


# Writing: refuse rather than repair.


def recipient(given: str) -> str:
    """One bare address, its domain in ASCII and lower case; anything else is refused."""
    local, at, domain = given[:400].strip(" ").rpartition("@")
    if not at or len(given) > 300 or len(local) > 64 or not _LOCAL.fullmatch(local):
        raise _bad_address(given)
    try:
        ascii_domain = idna.encode(domain, uts46=True).decode()
    except idna.IDNAError as exc:
        raise _bad_address(given) from exc
    labels = ascii_domain.split(".")
    if len(labels) < 2 or labels[-1].isdigit() or len(local) + len(ascii_domain) > 253:
        raise _bad_address(given)
    return f"{local}@{ascii_domain}"


def _bad_address(given: str) -> InvalidInput:
    shown = printable("".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in given))
    return InvalidInput(
        f"Invalid email address format: {shown}",
        fields=[FieldProblem("to", "is not one bare address", shown, "write it as name@example.org")],
    )


def checked_line(name: str, value: str) -> str:
    """A header value as it may be written: text of one line."""
    problem = "has a control character or line break" if _CONTROL.search(value) else None
    if any(unicodedata.category(char) == "Cs" for char in value):
        problem = "is not valid Unicode"
    if problem is not None:
        shown = printable(value.encode("unicode_escape").decode())
        raise InvalidInput(f"The {name} {problem}.", fields=[FieldProblem(name, problem, shown)])
    return value


def encoded(name: str, value: str) -> str:
    """An unstructured field. What is long, not ASCII, or looks encoded, is encoded, so that it reads as written."""
    plain = f"{name}: {value}"
    if value.isascii() and len(plain) <= 78 and "=?" not in value and value == value.strip(" "):
        return plain
    words = (f"=?utf-8?b?{base64.b64encode(chunk).decode()}?=" for chunk in _chunks(value, 39))
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


def folded(name: str, items: Iterable[str], separator: str = "") -> str:
    """One item a line: the standard library would encode a long list of message ids, which breaks threads."""
    return f"{name}: " + f"{separator}\r\n ".join(items)


def checked_id(name: str, value: str) -> str:
    if not _ID.fullmatch(value) or len(value) > LONGEST_ID:
        problem = FieldProblem(name, "is not a message id in angle brackets", printable(value))
        raise InvalidInput(f"The {name} is not a message id.", fields=[problem])
    return value
