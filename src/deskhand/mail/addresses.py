"""Addresses: the people of an address field, read whatever it holds, and one recipient, taken strictly."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import idna

from deskhand import unseen
from deskhand.errors import FieldProblem, InvalidInput, printable
from deskhand.mail.headers import decode_words, one_line, source_of

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\U0010ffff-]+"
_LOCAL = re.compile(rf"{_ATOM}(\.{_ATOM})*")
_TOKEN = re.compile(
    r'"(?P<quoted>(?:[^"\\]|\\.)*+)(?P<close>"?)|<(?P<angle>[^<>]*)>|(?P<edge>[,;:])|[^",;:<>()]+|.',
    re.DOTALL,
)
_LONGEST = 1000
"""Characters of an address with all that stands around it."""
_MOST = 1000
"""Mailboxes of a field that are looked at for addresses: many more than anybody is written to at once."""
_BEFORE = re.compile(r"mailto:|@[^:]{0,300}:", re.IGNORECASE)
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
        name = self.name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{name}" <{self.address}>'


def people(value: bytes | str) -> list[Person]:
    """The mailboxes of an address field. Names are decoded after the field was split, so
    none can add an address."""
    return list(_each_person(value))


def first_person(value: bytes | str) -> Person | None:
    """The first mailbox of an address field, whatever follows it."""
    return next(_each_person(value), None)


def _each_person(value: bytes | str) -> Iterator[Person]:
    source = _without_comments(source_of(value))
    return filter(None, map(_person, filter(None, _mailboxes(source))))


def _tokens(source: str) -> Iterator[re.Match[str]]:
    """Where a quote is never closed, neither it nor any after it is one: to look again at
    each would take hours."""
    at = 0
    while token := _TOKEN.match(source, at):
        if token["close"] == "":
            source = source[:at] + source[at:].replace('"', " ")
            continue
        yield token
        at = token.end()


def _mailboxes(source: str) -> Iterator[list[re.Match[str]]]:
    tokens: list[re.Match[str]] = []
    for token in _tokens(source):
        match token["edge"]:
            case "," | ";":
                yield tokens
                tokens = []
            case ":":  # the name of a group ends here
                tokens = []
            case _:
                tokens.append(token)
    yield tokens


def _person(tokens: Sequence[re.Match[str]]) -> Person | None:
    angles = [token for token in tokens if token["angle"] is not None]
    if angles:
        address = one_line(angles[-1]["angle"]).replace(" ", "")
        name = " ".join(
            _name_part(token) for token in tokens if token is not angles[-1]
        ).strip()
    else:
        address = one_line("".join(token[0] for token in tokens))
        name = ""
    if not address and not name:
        return None
    return Person(one_line(decode_words(name)), address)


def _name_part(token: re.Match[str]) -> str:
    if token["quoted"] is None:
        return token[0].strip()
    return re.sub(r"\\(.)", r"\1", token["quoted"])


def _without_comments(source: str) -> str:
    if "(" not in source:
        return source
    kept: list[str] = []
    depth = 0
    quoted = escaped = False
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


def mended(address: str) -> str:
    """An address as its sender meant it: without a route before it, quotes that do
    nothing, spaces around the @."""
    bare = _BEFORE.sub("", address.rpartition("<")[2].strip())
    local, at, domain = bare.rpartition("@")
    local = local.strip()
    inner = local[1:-1]
    if local == f'"{inner}"' and _LOCAL.fullmatch(inner):
        local = inner
    return f"{local}{at}{domain.strip()}"


def addresses_in(line: str) -> list[str]:
    """The bare addresses of a field that was received, as one writes to them; what is none is left out."""
    found = (
        _read_recipient(mended(person.address))
        for person in islice(_each_person(line), _MOST)
        if len(person.address) <= _LONGEST
    )
    return list(filter(None, found))


def recipients(line: str, field: str = "to") -> list[str]:
    """The bare addresses of a line, between which there are commas."""
    return [recipient(each, field) for each in line.split(",")]


def once_each(*lines: str) -> list[str]:
    """The same lines of bare addresses, in which nobody is named a second time.

    Here and elsewhere two addresses are one in small letters; folded they would be one with ß and with ss, too.
    """
    seen: set[str] = set()
    kept: list[list[str]] = []
    for line in lines:
        kept.append([])
        for each in filter(None, line.split(", ")):
            if each.lower() not in seen:
                kept[-1].append(each)
            seen.add(each.lower())
    return [", ".join(several) for several in kept]


def recipient(given: str, field: str = "to") -> str:
    """One bare address, its domain in ASCII and lower case; anything else is refused."""
    found = _read_recipient(given)
    if found is None:
        raise _bad_address(given, field)
    return found


def _read_recipient(given: str) -> str | None:
    local, at, domain = given[:400].strip(" ").rpartition("@")
    local = unicodedata.normalize("NFC", local)
    if (
        not at
        or len(given) > 300
        or len(local.encode("utf-8", "replace")) > 64
        or not _is_local(local)
    ):
        return None
    ascii_domain = _in_ascii(domain)
    if ascii_domain is None:
        return None
    labels = ascii_domain.split(".")
    if len(labels) < 2 or labels[-1].isdigit() or len(local) + len(ascii_domain) > 253:
        return None
    return f"{local}@{ascii_domain}"


@lru_cache(4096)
def _in_ascii(domain: str) -> str | None:
    """None where it is no domain: that too is looked up once."""
    try:
        return idna.encode(domain, uts46=True).decode().removesuffix(".")
    except idna.IDNAError:
        return None


def _is_local(text: str) -> bool:
    """Whether it is the part before the @: beyond ASCII (RFC 6531) only letters, digits and their marks."""
    beyond = [char for char in text if not char.isascii()]
    letters = all(
        unicodedata.category(char)[0] in "LMN" and not unseen.is_unseen(char)
        for char in beyond
    )
    return letters and _LOCAL.fullmatch(text) is not None


def _bad_address(given: str, field: str) -> InvalidInput:
    shown = printable(
        "".join(char if char.isprintable() else ascii(char)[1:-1] for char in given)
    )
    return InvalidInput(
        f"Invalid email address format: {shown}",
        fields=[
            FieldProblem(
                field, "is not one bare address", shown, "write it as name@example.org"
            )
        ],
    )
