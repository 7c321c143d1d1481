"""The page's password, which a person may add to the links: only its scrypt hash is kept, and guessing ends soon."""

import hmac
import secrets
from datetime import datetime, timedelta
from hashlib import scrypt

from deskhand import clock
from deskhand.errors import FieldProblem, InvalidInput, RateLimited
from deskhand.store import Transaction
from deskhand.web import sessions

SHORTEST = 10
LONGEST = 1000
TRIES = 5
NOTED = 20
"""Of wrong links so many go on the record within the window: nobody outside may fill the disk with it."""
WINDOW = timedelta(minutes=15)
_COST, _BLOCK, _LANES = 2**15, 8, 1


def hashed(password: str) -> str:
    if not SHORTEST <= len(password) <= LONGEST:
        raise InvalidInput(
            "this is no password for the page",
            fields=[FieldProblem("password", f"{len(password)} characters", None, f"use {SHORTEST} to {LONGEST}")],
        )
    salt = secrets.token_bytes(16)
    return f"scrypt:{_COST}:{_BLOCK}:{_LANES}:{salt.hex()}:{_derived(password, salt, _COST, _BLOCK, _LANES).hex()}"


def matches(password: str, kept: str) -> bool:
    """Slow on purpose: not for the event loop, nor for a transaction."""
    _, cost, block, lanes, salt, digest = kept.split(":")
    found = _derived(password[:LONGEST], bytes.fromhex(salt), int(cost), int(block), int(lanes))
    return hmac.compare_digest(found, bytes.fromhex(digest))


def keep(tx: Transaction, kept: str) -> int:
    """The new password; whoever is in with the old one has to come again. How many sessions that ended."""
    known = remove(tx)
    tx.execute("INSERT INTO page_password (id, hash) VALUES (1, ?)", kept)
    tx.execute("DELETE FROM entry_failures WHERE way = 'password'")
    return sessions.end_all(tx) if known else 0


def remove(tx: Transaction) -> bool:
    return bool(tx.execute("DELETE FROM page_password"))


def is_set(tx: Transaction) -> bool:
    return tx.one("SELECT 1 FROM page_password") is not None


def attempt(tx: Transaction, now: datetime) -> str | None:
    """Count a try before it is made, so that many at once are not more than five; the hash to hold it against."""
    # The row is the lock: tries that come at once, through whatever process, are counted one after the other.
    tx.execute("UPDATE page_password SET hash = hash")
    if _failures(tx, "password", now) >= TRIES:
        minutes = round(WINDOW.total_seconds() / 60)
        raise RateLimited(
            "too many wrong passwords",
            hint=f"wait {minutes} minutes, or ask the terminal for a link: deskhand link",
            retry_after_seconds=round(WINDOW.total_seconds()),
        )
    row = tx.one("SELECT hash FROM page_password")
    if row is not None:
        _count(tx, "password", now)
    return str(row[0]) if row else None


def forgive(tx: Transaction) -> None:
    tx.execute("DELETE FROM entry_failures WHERE way = 'password'")


def is_news(tx: Transaction, now: datetime) -> bool:
    """Whether a wrong link is still to go on the record."""
    if _failures(tx, "link", now) >= NOTED:
        return False
    _count(tx, "link", now)
    return True


def _failures(tx: Transaction, way: str, now: datetime) -> int:
    tx.execute("DELETE FROM entry_failures WHERE at <= ?", clock.to_ms(now - WINDOW))
    row = tx.one("SELECT count(*) FROM entry_failures WHERE way = ?", way)
    return int(row[0]) if row else 0


def _count(tx: Transaction, way: str, now: datetime) -> None:
    tx.execute("INSERT INTO entry_failures (way, at) VALUES (?, ?)", way, clock.to_ms(now))


def _derived(password: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    words = password.encode("utf-8", "surrogateescape")
    return scrypt(words, salt=salt, n=cost, r=block, p=lanes, maxmem=256 * cost * block, dklen=32)
