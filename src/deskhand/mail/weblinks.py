"""Where an address of the web leads, read as browsers read it (the WHATWG rules), and the addresses in a text.

Programs disagree about where an address in a text ends and which part of it is the host. Whatever reading leads
somewhere is named.
"""

import ipaddress
import re
import string
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

import idna

LONGEST = 2000
"""Characters of an address that are read."""
UNREAD = "an address that cannot be read"
_SAID = 200
"""Characters that are said of one."""
_STRIPPED = "".join(map(chr, range(0x21)))
_DROPPED = str.maketrans("", "", "\t\n\r")
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*+):")
_WEB = frozenset({"http", "https", "ftp", "ws", "wss"})
_HOST_END = re.compile(r"[/\\?#]")
_OLD_HOST_END = re.compile(r"[/?#]")
_SLASHES = "/\\"
_PORT = re.compile(r"(?::(\d*))?\Z", re.ASCII)
# The standard forbids a few more, which Chromium takes or escapes.
_FORBIDDEN = re.compile(r"[\x00-\x1f#%/:<>?@\[\\\]^|\x7f]")
_ESCAPED = str.maketrans({" ": "%20", "*": "%2A"})
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
# Mail programs make a link of a bare name too: with something behind it, or where it ends as names on the web do.
_LABEL = r"[^\W_](?:[\w-]{0,61}[^\W_])?"
_DOT = r"[.\u3002\uff0e\uff61]"
_START = re.compile(
    r"(?:https?|ftp|wss?):(?=[^\s])|(?<![\w.@%/-])(?:www\.(?=\w)"
    rf"|(?=(?P<bare>(?:{_LABEL}{_DOT}){{1,30}}(?:[^\W\d_]{{2,63}}(?=(?::\d{{1,5}})?[/?#])"
    r"|(?:com|net|org|edu|gov)(?![\w@-]|\.\w))))\w)",
    re.IGNORECASE,
)
_TEXT_END = re.compile(r"[ \t\r\n\f<>\"]")
_EARLIER_END = re.compile(r"[\s'`{}|^()\[\],;*!]")
_MOST_ENDS = 20
_CLOSING = ".,;:!?*'`)]}"


class Target(NamedTuple):
    """Where an address leads."""

    scheme: str
    host: str
    """As it is looked up: ASCII, lower case; empty where the scheme has none."""
    user: str
    """What stands before the host and looks like one."""


class Link(NamedTuple):
    """An address in a text, with every reading that leads to another host, the browsers'
    first; none leads nowhere."""

    address: str
    targets: tuple[Target, ...]
    start: int
    """Where it stands in the text."""


def resolve(address: str, base: Target | None = None) -> Target | None:
    """Where a browser goes; None where it goes nowhere."""
    return _resolve(address[:LONGEST], base)


def lead(address: str, base: Target | None = None) -> Target | None:
    """Where it leads; where it names a host that is not understood, another program may go
    there: its host says so."""
    target = resolve(address, base)
    plain = _plain(address[:LONGEST])
    named = _SCHEME.match(plain)
    if target or not (named or _begins_host(plain)):
        return target
    said = quote(plain[:_SAID], safe=string.punctuation)
    return Target(named[1].lower() if named else "https", f"{UNREAD} ({said})", "")


def links_in(text: str) -> Iterator[Link]:
    """The addresses in a text, in their order."""
    for start in _START.finditer(text):
        if bare := start["bare"]:
            target = _target("http", bare)
            if target:
                yield Link(bare, (target,), start.start())
            continue
        rest = text[start.start() : start.start() + LONGEST]
        end = _TEXT_END.search(rest)
        address = rest[: end.start()] if end else rest
        found = _read(address)
        if found or address[5:6] in ("/", "\\", ":"):
            yield Link(address, found, start.start())


@lru_cache(maxsize=10_000)
def _read(address: str) -> tuple[Target, ...]:
    whole = address if ":" in address[:6] else f"http://{address}"
    scheme = whole.partition(":")[0].lower()
    after = whole[len(scheme) + 1 :]
    rest = after.lstrip(_SLASHES)
    found: dict[str, Target] = {}
    for authority in _authorities(rest):
        target = _target(scheme, authority)
        if target and (after != rest or {*target.host} & {*".["}):
            found.setdefault(target.host, target)
    if _HOST_END.search(rest):
        return tuple(found.values())
    # In `(see https://example.com).` the last signs are none of the host's.
    return tuple(
        target
        for host, target in found.items()
        if host.rstrip(_CLOSING) not in found.keys() - {host}
    )


def _authorities(rest: str) -> Iterator[str]:
    """What may be meant by user and host: to the first slash, and to each sign at which
    some program ends a link."""
    whole = _HOST_END.split(rest, maxsplit=1)[0]
    yield whole
    yield _OLD_HOST_END.split(rest, maxsplit=1)[0]
    for number, end in enumerate(_EARLIER_END.finditer(whole)):
        if number == _MOST_ENDS:
            return
        yield whole[: end.start()].rstrip(_CLOSING)
    yield whole.rstrip(_CLOSING)


@lru_cache(maxsize=10_000)
def _resolve(address: str, base: Target | None) -> Target | None:
    address = _plain(address)
    named = _SCHEME.match(address)
    if named is None:
        if not _begins_host(address):
            return base
        scheme = base.scheme if base else "https"
        rest = address
    else:
        scheme = named[1].lower()
        rest = address[named.end() :]
    if scheme not in _WEB:
        return Target(scheme, "", "")
    if base is not None and scheme == base.scheme and named and not _begins_host(rest):
        return base
    return _target(scheme, _HOST_END.split(rest.lstrip(_SLASHES), maxsplit=1)[0])


def _plain(address: str) -> str:
    return address.strip(_STRIPPED).translate(_DROPPED)


def _begins_host(address: str) -> bool:
    """Whether a host begins here, after two slashes of either kind."""
    return address[:2].replace("\\", "/") == "//"


def _target(scheme: str, authority: str) -> Target | None:
    user, _, place = authority.rpartition("@")
    end = place.rfind("]") + 1
    port = _PORT.match(place, place.find(":", end) if ":" in place[end:] else len(place))
    if port is None or int(port[1] or 0) > 65535:
        return None
    host = _host(place[: port.start()])
    return Target(scheme, host, user) if host else None


def _host(source: str) -> str | None:
    name = unquote_to_bytes(source.encode("utf-8", "replace")).decode("utf-8", "replace")
    host = _ascii(name)
    if host and host.startswith("["):
        return _ipv6(host)
    if not host or _FORBIDDEN.search(host):
        return None
    host = host.translate(_ESCAPED)
    labels = host.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(labels)
    return host


def _ascii(name: str) -> str | None:
    """The name as it is looked up, by Unicode's rules for browsers, which take more than a registry would."""
    if name.isascii():
        return name.lower()
    try:
        mapped = unicodedata.normalize("NFC", idna.uts46_remap(name, std3_rules=False))
        return ".".join(map(_label, mapped.split(".")))
    except ValueError:  # idna's own errors are such, and it lets others through
        return None


def _label(label: str) -> str:
    if label.isascii():
        return label
    # What is younger than this Python's Unicode cannot be checked, and a browser may well know it.
    if not any(unicodedata.category(char) == "Cn" for char in label):
        _check_label(label)
    return f"xn--{label.encode('punycode').decode()}"


def _check_label(label: str) -> None:
    idna.check_bidi(label)
    for place, char in enumerate(label):
        if char in "\u200c\u200d" and not idna.valid_contextj(label, place):
            raise idna.InvalidCodepointContext(f"a joiner that joins nothing in {label!r}")


def _ipv6(source: str) -> str | None:
    try:
        return f"[{ipaddress.IPv6Address(source[1:-1])}]" if source.endswith("]") else None
    except ValueError:
        return None


def _ipv4(labels: list[str]) -> str | None:
    """Numbers of any base and fewer than four are an address too."""
    if len(labels) > 4 or not all(map(_NUMBER.fullmatch, labels)):
        return None
    *first, last = map(_number, labels)
    if any(number > 255 for number in first) or last >= 256 ** (4 - len(first)):
        return None
    return str(
        ipaddress.IPv4Address(
            last + sum(number << 8 * (3 - place) for place, number in enumerate(first))
        )
    )


def _number(digits: str) -> int:
    if digits[:2].lower() == "0x":
        return int(digits[2:] or "0", 16)
    try:
        return int(digits, 8 if digits.startswith("0") and len(digits) > 1 else 10)
    except ValueError:
        return 1 << 40
