"""Who may enter the page. A one-time link from the terminal becomes a session; only digests are kept of both."""

import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Literal

from deskhand import clock
from deskhand.app import Desk
from deskhand.gate import passwords
from deskhand.store import Transaction
from deskhand.web import subscriptions

LINK_LIFE = timedelta(minutes=15)
IDLE = timedelta(hours=12)
LIFE = timedelta(days=14)
Way = Literal["link", "pairing", "password", "passkey", "code"]
"""How somebody signs in."""
LinkWay = Literal["link", "pairing"]
LINK_LIVES: dict[LinkWay, timedelta] = {"link": LINK_LIFE, "pairing": timedelta(minutes=5)}


# The first that is found in what a browser says of itself: each also names those that it descends from.
_PROGRAMS = {
    "Edg": "Edge",
    "OPR/": "Opera",
    "Firefox/": "Firefox",
    "Chrom": "Chrome",
    "Safari/": "Safari",
}
_SYSTEMS = {
    "iPhone": "an iPhone",
    "iPad": "an iPad",
    "Android": "Android",
    "Windows": "Windows",
    "Mac OS X": "a Mac",
    "Linux": "Linux",
}


@dataclass(frozen=True, slots=True)
class Session:
    key: str
    """What the cookie carries."""
    seen: datetime
    begun: datetime | None = None
    way: str | None = None
    """How it began: see `Way`; of a session of an earlier version nobody knows."""

    @property
    def form_token(self) -> str:
        """What each form of this session carries: made from the key, so that nothing more is kept."""
        return hmac.digest(self.key.encode(), b"form", "sha256").hex()


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session as it is listed."""

    name: str
    """The digest of its key: it names the session and opens nothing."""
    created: datetime
    seen: datetime
    browser: str
    way: str | None
    place: str | None
    """The address that it came from."""
    is_own: bool

    @property
    def device(self) -> str:
        return describe_device(self.browser)


def describe_device(browser: str) -> str:
    """The browser and the system, in the words of a person; what it says of itself, where we know neither."""
    program = next((name for sign, name in _PROGRAMS.items() if sign in browser), None)
    system = next((name for sign, name in _SYSTEMS.items() if sign in browser), None)
    if program and system:
        return f"{program} on {system}"
    return program or browser or "unnamed"


async def link(desk: Desk, address: str) -> str:
    """An address of the desk that signs one browser in, once."""
    key = await desk.store.write(partial(invite, now=desk.now()))
    return f"{address}/enter/{key}"


def invite(tx: Transaction, now: datetime, way: LinkWay = "link") -> str:
    """The secret of a link that lets one browser in, once, within the next minutes."""
    key = secrets.token_urlsafe(24)
    ends = clock.to_ms(now + LINK_LIVES[way])
    tx.execute("DELETE FROM entry_links WHERE expires <= ?", clock.to_ms(now))
    tx.execute(
        "INSERT INTO entry_links (digest, expires) VALUES (?, ?)",
        _digest_link(key, way),
        ends,
    )
    return key


def redeem(
    tx: Transaction,
    link: str,
    browser: str,
    now: datetime,
    place: str = "",
    way: LinkWay = "link",
) -> Session | None:
    """A session for whoever comes first with the link."""
    sql = "DELETE FROM entry_links WHERE digest = ? AND expires > ?"
    if not tx.execute(sql, _digest_link(link, way), clock.to_ms(now)):
        return None
    return begin(tx, browser, now, way, place)


def begin(
    tx: Transaction, browser: str, now: datetime, way: Way, place: str = ""
) -> Session:
    key = secrets.token_urlsafe(32)
    tx.execute(
        "DELETE FROM sessions WHERE expires <= ? OR seen <= ?",
        clock.to_ms(now),
        clock.to_ms(now - IDLE),
    )
    tx.execute(
        "INSERT INTO sessions (digest, created, seen, expires, browser) VALUES (?, ?, ?, ?, ?)",
        *(
            _digest(key),
            clock.to_ms(now),
            clock.to_ms(now),
            clock.to_ms(now + LIFE),
            browser[:200],
        ),
    )
    tx.execute("DELETE FROM sign_ins WHERE session NOT IN (SELECT digest FROM sessions)")
    tx.execute(
        "INSERT INTO sign_ins (session, way, place) VALUES (?, ?, ?)",
        _digest(key),
        way,
        place,
    )
    return Session(key, now, now, way)


def find(tx: Transaction, key: str, now: datetime) -> Session | None:
    row = tx.one(
        "SELECT seen, created, way FROM sessions LEFT JOIN sign_ins ON session = digest"
        " WHERE digest = ? AND expires > ? AND seen > ?",
        *(_digest(key), clock.to_ms(now), clock.to_ms(now - IDLE)),
    )
    if row is None:
        return None
    return Session(key, clock.from_ms(row[0]), clock.from_ms(row[1]), row[2])


def touch(tx: Transaction, session: Session, now: datetime) -> None:
    tx.execute(
        "UPDATE sessions SET seen = ? WHERE digest = ?",
        clock.to_ms(now),
        _digest(session.key),
    )


def end(tx: Transaction, key: str) -> None:
    end_named(tx, _digest(key))


def replace(tx: Transaction, before: str, session: Session) -> None:
    """End the session that a browser came with: it has another one now."""
    subscriptions.hand_over(tx, _digest(before), _digest(session.key))
    end(tx, before)


def signed_in(tx: Transaction, own: Session, now: datetime) -> list[SignedIn]:
    """Who is signed in, the one seen last first."""
    rows = tx.all(
        "SELECT digest, created, seen, browser, way, place FROM sessions LEFT JOIN sign_ins ON session = digest"
        " WHERE expires > ? AND seen > ?"
        " ORDER BY seen DESC",
        *(clock.to_ms(now), clock.to_ms(now - IDLE)),
    )
    mine = name_of(own)
    return [
        SignedIn(
            name,
            clock.from_ms(created),
            clock.from_ms(seen),
            browser,
            way,
            place,
            name == mine,
        )
        for name, created, seen, browser, way, place in rows
    ]


def end_named(tx: Transaction, name: str) -> None:
    """End a session; what is pushed to its browser ends with it."""
    subscriptions.end_with(tx, name)
    tx.execute("DELETE FROM sessions WHERE digest = ?", name)


def end_others(tx: Transaction, own: Session) -> int:
    subscriptions.end_without(tx, _digest(own.key))
    return tx.execute("DELETE FROM sessions WHERE digest <> ?", _digest(own.key))


def end_all(tx: Transaction) -> int:
    """End every session, and let no link that is still open begin another; how many sessions ended."""
    tx.execute("DELETE FROM entry_links")
    subscriptions.end_all(tx)
    return tx.execute("DELETE FROM sessions")


def keep_password(tx: Transaction, kept: str) -> int:
    """Set the password; whoever is in with an old one has to come again. How many sessions that ended."""
    if not passwords.keep(tx, kept):
        return 0
    return end_all(tx)


def name_of(session: Session) -> str:
    """What names a session and opens nothing."""
    return _digest(session.key)


def _digest_link(key: str, way: LinkWay) -> str:
    """By which a link is known again: one for pairing opens no other door."""
    if way == "pairing":
        return _digest(f"pairing {key}")
    return _digest(key)


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
