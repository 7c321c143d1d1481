"""Who asks for a token by OAuth: what a client calls itself, and to which addresses its codes may go.

Anybody may register a client, and that opens nothing. One that the person never connected is dropped within the hour.
A sender has a few of them at most, and where there are too many in all, the network that sent most of them loses the
oldest: a flood keeps no other client out.
"""

import ipaddress
import json
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from deskhand import clock
from deskhand.oauth import OAuthRefusal
from deskhand.store import Transaction
from deskhand.tokens import is_user_id
from deskhand.unseen import spell_out_name

UNUSED_LIFE = timedelta(hours=1)
LIFE = timedelta(days=90)
"""How long a client is kept after its last token."""
MOST_UNUSED = 100
"""Of one sender."""
MOST_IN_ALL = 1000
MOST_REDIRECTS = 10
LONGEST_NAME = 60
_LONGEST_ADDRESS = 2000
_PREFIXES = {4: (16, 24), 6: (32, 48)}
"""Of the networks that one party may have as a whole."""
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_EDITORS = ("cursor", "vscode", "vscode-insiders", "windsurf")
"""Programs with a scheme of their own that is not the name of a domain."""
_ADDRESS = re.compile(r"[!-~]+")
_AUTHORITY = re.compile(r"([a-z0-9.-]+|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)


class OAuthClient(NamedTuple):
    id: str
    name: str
    """What it calls itself; nobody has checked that."""
    redirects: tuple[str, ...]

    def demand_redirect(self, address: str | None) -> str:
        """Where its code goes: an address that it registered, letter by letter. On loopback any port will do."""
        if address is None and len(self.redirects) == 1:
            return self.redirects[0]
        if address is not None and any(_is_same(address, each) for each in self.redirects):
            return address
        raise OAuthRefusal(
            "invalid_redirect_uri",
            "the client did not register this address to be sent back to",
        )


def make_client(client_id: str, name: object, redirects: object) -> OAuthClient:
    """A client by what it says of itself; refuses addresses to which no code may go."""
    if not isinstance(redirects, list) or not 0 < len(redirects) <= MOST_REDIRECTS:
        raise OAuthRefusal(
            "invalid_redirect_uri", f"redirect_uris names 1 to {MOST_REDIRECTS} addresses"
        )
    for each in redirects:
        _demand_safe(each)
    return OAuthClient(client_id, _name(name, redirects[0]), tuple(redirects))


def register(
    tx: Transaction, name: object, redirects: object, host: str, now: datetime
) -> OAuthClient:
    """Take a client that registers itself from this address of the network."""
    client = make_client(f"dhc_{secrets.token_urlsafe(18)}", name, redirects)
    oldest = (clock.to_ms(now - UNUSED_LIFE), clock.to_ms(now - LIFE))
    tx.execute(
        "DELETE FROM oauth_clients WHERE (used IS NULL AND created <= ?) OR used <= ?",
        *oldest,
    )
    sender = _sender(host)
    _make_room(tx, sender)
    tx.execute(
        "INSERT INTO oauth_clients (id, name, redirects, created, sender) VALUES (?, ?, ?, ?, ?)",
        *(client.id, client.name, json.dumps(client.redirects), clock.to_ms(now), sender),
    )
    return client


def _make_room(tx: Transaction, sender: str) -> None:
    sql = "SELECT sender, count(*) FROM oauth_clients WHERE used IS NULL GROUP BY sender"
    unused: dict[str, int] = dict(tx.all(f"{sql} ORDER BY min(created)"))
    if unused.get(sender, 0) >= MOST_UNUSED:
        raise OAuthRefusal(
            "temporarily_unavailable",
            "too many clients have registered and were not connected",
        )
    if sum(unused.values()) >= MOST_IN_ALL:
        greediest = _find_greediest(unused)
        oldest = "SELECT id FROM oauth_clients WHERE used IS NULL AND sender = ? ORDER BY created, id LIMIT 1"
        tx.execute(f"DELETE FROM oauth_clients WHERE id = ({oldest})", greediest)


def _find_greediest(unused: dict[str, int]) -> str:
    """Who sent most in the network from which most was sent: many addresses of one network are one flood."""
    sent: Counter[str] = Counter()
    for sender, number in unused.items():
        sent.update(dict.fromkeys(_networks(sender), number))

    def weigh(sender: str) -> list[int]:
        return [sent[each] for each in _networks(sender)]

    return max(unused, key=weigh)


@lru_cache(4 * MOST_IN_ALL)
def _networks(sender: str) -> tuple[str, ...]:
    """The networks that this sender is in, the widest first, and the sender."""
    try:
        found = ipaddress.ip_network(sender)
    except ValueError:
        return ("unknown", sender)
    if found.is_loopback:
        return ("loopback", sender)
    wider = [found.supernet(new_prefix=each) for each in _PREFIXES[found.version]]
    return (*map(str, wider), sender)


def _sender(host: str) -> str:
    """Who registers, as far as an address tells: of the newer ones everybody has a whole network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:100]
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))


def find(tx: Transaction, client_id: str) -> OAuthClient | None:
    row = tx.one("SELECT name, redirects FROM oauth_clients WHERE id = ?", client_id)
    if row is None:
        return None
    return OAuthClient(client_id, row[0], tuple(json.loads(row[1])))


def note_use(tx: Transaction, client_id: str, now: datetime) -> None:
    tx.execute(
        "UPDATE oauth_clients SET used = ? WHERE id = ?", clock.to_ms(now), client_id
    )


def _name(given: object, redirect: str) -> str:
    """What the client calls itself as one line in which everything shows; else the host
    that it is sent back to."""
    name = ""
    if isinstance(given, str):
        name = spell_out_name(given)[:LONGEST_NAME].strip()
    if is_user_id(name):
        return name
    return urlsplit(redirect).hostname or "unnamed"


def _demand_safe(address: object) -> None:
    """A code goes over TLS, or stays on the person's machine: to a loopback port, or to a
    program by its own scheme."""
    if (
        not isinstance(address, str)
        or len(address) > _LONGEST_ADDRESS
        or not _ADDRESS.fullmatch(address)
    ):
        raise OAuthRefusal("invalid_redirect_uri", "a redirect address is a plain URL")
    parts = _split(address)
    if parts is None or "#" in address or "\\" in address or not _is_safe(parts):
        raise OAuthRefusal(
            "invalid_redirect_uri",
            "a redirect address is https, http on loopback, or a program's own scheme; no fragment, no user name",
        )


def _is_safe(parts: SplitResult) -> bool:
    match parts.scheme:
        case "https":
            return _AUTHORITY.fullmatch(parts.netloc) is not None
        case "http":
            return (
                _AUTHORITY.fullmatch(parts.netloc) is not None and _host(parts) in _LOOPBACK
            )
        case scheme:
            return "." in scheme or scheme in _EDITORS


def _is_same(address: str, registered: str) -> bool:
    if address == registered:
        return True
    given, known = _split(address), _split(registered)
    if (
        given is None
        or known is None
        or known.scheme != "http"
        or not _AUTHORITY.fullmatch(given.netloc)
    ):
        return False
    # A space or a line's end, which `urlsplit` passes over.
    if not _ADDRESS.fullmatch(address):
        return False
    # Programs on this machine take whichever port is free. The rest is compared as it is written.
    return (
        _without_port(given) == _without_port(known)
        and _host(known) in _LOOPBACK
        and "#" not in address
    )


def _without_port(parts: SplitResult) -> Sequence[str]:
    return parts._replace(netloc=_host(parts))


def _host(parts: SplitResult) -> str:
    return re.sub(r":[0-9]*$", "", parts.netloc)


def _split(address: str) -> SplitResult | None:
    try:
        return urlsplit(address)
    except ValueError:
        return None
