"""The person's password, for the page and for single answers: only its scrypt hash is kept, and guessing ends soon."""

import hmac
import secrets
from datetime import datetime, timedelta
from hashlib import scrypt

from deskhand import clock
from deskhand.errors import FieldProblem, InvalidInput, RateLimited
from deskhand.gate.passkeys import Seal
from deskhand.store import Transaction

SHORTEST = 10
LONGEST = 1000
TRIES = 5
NOTED = 20
"""How many wrong links go on the record within the window: nobody outside may fill the disk with them."""
WINDOW = timedelta(minutes=15)
DAY = timedelta(days=1)
FIRST_WAIT = timedelta(minutes=1)
"""After five wrong passwords with answers; each further one doubles it, up to a quarter of an hour."""
KNOWN = timedelta(days=90)
"""How long a place is known from which somebody signed in."""
_COST = 2**15
_BLOCK = 8
_LANES = 1
_PARTS = 6
"""Of a hash, with a colon between; a seal is one more."""


def hash_password(password: str) -> str:
    """What is kept of a password; one that is too short or too long is refused."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise InvalidInput(
            "this is no password for the page",
            fields=[
                FieldProblem(
                    "password",
                    f"{len(password)} characters",
                    None,
                    f"use {SHORTEST} to {LONGEST}",
                )
            ],
        )
    salt = secrets.token_bytes(16)
    digest = _derive(password, salt, _COST, _BLOCK, _LANES)
    return f"scrypt:{_COST}:{_BLOCK}:{_LANES}:{salt.hex()}:{digest.hex()}"


def matches(password: str, kept: str) -> bool:
    """Whether this is the password. Slow on purpose: not for the event loop, nor for a transaction."""
    _, cost, block, lanes, salt, digest, *_ = kept.split(":")
    found = _derive(
        password[:LONGEST], bytes.fromhex(salt), int(cost), int(block), int(lanes)
    )
    return hmac.compare_digest(found, bytes.fromhex(digest))


def seal_hash(kept: str, seal: Seal) -> str:
    """The hash with a seal behind it, which nobody can make who can only write to the database."""
    return f"{kept}:{seal('password', kept)}"


def is_genuine(kept: str, seal: Seal, *, seal_needed: bool) -> bool:
    """Whether this desk wrote the hash; until a seal is needed, one of an earlier version counts without."""
    bare, _, mark = kept.rpartition(":")
    return not seal_needed or hmac.compare_digest(
        mark.encode(), seal("password", bare).encode()
    )


def adopt(tx: Transaction, seal: Seal) -> None:
    """Seal the password that an earlier version kept, or another key had sealed."""
    row = tx.one("SELECT hash FROM page_password")
    if row is not None:
        bare = ":".join(row[0].split(":")[:_PARTS])
        tx.execute("UPDATE page_password SET hash = ?", seal_hash(bare, seal))


def keep(tx: Transaction, kept: str) -> bool:
    """Set the password; whether there was another one."""
    had_one = remove(tx)
    tx.execute("INSERT INTO page_password (id, hash) VALUES (1, ?)", kept)
    tx.execute("DELETE FROM entry_failures WHERE way <> 'link'")
    return had_one


def remove(tx: Transaction) -> bool:
    return bool(tx.execute("DELETE FROM page_password"))


def is_set(tx: Transaction) -> bool:
    return tx.one("SELECT 1 FROM page_password") is not None


def attempt(tx: Transaction, now: datetime, place: str = "") -> str | None:
    """Count a try before it is made, so that many at once are not more than five; the hash to compare with.

    A place from which somebody signed in before has a count of its own: strangers elsewhere lock nobody out of it.
    """
    # The row is the lock: tries that come at once, through whatever process, are counted one after the other.
    tx.execute("UPDATE page_password SET hash = hash")
    way = _way_from(tx, place)
    if _failures(tx, way, now) >= TRIES:
        seconds = round(WINDOW.total_seconds())
        raise RateLimited(
            "too many wrong passwords",
            hint=f"wait {seconds // 60} minutes, or ask the terminal for a link: deskhand link",
            retry_after_seconds=seconds,
        )
    return _count_try(tx, way, now)


def _count_try(tx: Transaction, way: str, now: datetime) -> str | None:
    row = tx.one("SELECT hash FROM page_password")
    if row is None:
        return None
    _count(tx, way, now)
    return str(row[0])


def forget_wrong_passwords(tx: Transaction, place: str = "") -> None:
    tx.execute("DELETE FROM entry_failures WHERE way = ?", _way_from(tx, place))


def know_place(tx: Transaction, place: str, now: datetime) -> None:
    """Somebody proved to be the person there."""
    tx.execute(
        "DELETE FROM known_places WHERE place = ? OR at <= ?",
        place,
        clock.to_ms(now - KNOWN),
    )
    tx.execute(
        "INSERT INTO known_places (place, at) VALUES (?, ?)", place, clock.to_ms(now)
    )


def _way_from(tx: Transaction, place: str) -> str:
    if tx.one("SELECT 1 FROM known_places WHERE place = ?", place):
        return f"password {place}"
    return "password"


def attempt_answer(tx: Transaction, source: str, now: datetime) -> str | None:
    """Count a password that is typed with an answer before it is compared; after each wrong one its source waits.

    Who guesses there keeps nobody out elsewhere: another sign-in and the terminal are sources of their own.
    """
    tx.execute("UPDATE page_password SET hash = hash")
    way = f"answer {source}"
    before = tx.all(
        "SELECT at FROM entry_failures WHERE way = ? AND at > ? ORDER BY at",
        way,
        clock.to_ms(now - DAY),
    )
    if len(before) >= TRIES:
        wait = min(WINDOW, FIRST_WAIT * 2 ** min(len(before) - TRIES, 10))
        left = clock.from_ms(before[-1][0]) + wait - now
        if left > timedelta():
            seconds = max(1, round(left.total_seconds()))
            raise RateLimited(
                "too many wrong passwords were typed here; nothing was answered",
                hint=f"wait {seconds} seconds, or use a passkey",
                retry_after_seconds=seconds,
            )
    return _count_try(tx, way, now)


def forget_wrong_answers(tx: Transaction, source: str) -> None:
    tx.execute("DELETE FROM entry_failures WHERE way = ?", f"answer {source}")


def count_wrong_link(tx: Transaction, now: datetime) -> bool:
    """Count a wrong link; whether it is to go on the record, as only the first few do."""
    if _failures(tx, "link", now) >= NOTED:
        return False
    _count(tx, "link", now)
    return True


def demand_few_codes(tx: Transaction, place: str, now: datetime) -> None:
    """Refuse any code for pairing from where a few wrong ones came; who guesses elsewhere
    keeps nobody out here."""
    if _failures(tx, f"pairing {place}", now) >= TRIES:
        seconds = round(WINDOW.total_seconds())
        hint = f"wait {seconds // 60} minutes, or sign in another way"
        raise RateLimited(
            "too many wrong codes came from here", hint=hint, retry_after_seconds=seconds
        )


def count_wrong_code(tx: Transaction, place: str, now: datetime) -> None:
    _count(tx, f"pairing {place}", now)


def _failures(tx: Transaction, way: str, now: datetime) -> int:
    tx.execute("DELETE FROM entry_failures WHERE at <= ?", clock.to_ms(now - DAY))
    since = clock.to_ms(now - WINDOW)
    return len(tx.all("SELECT 1 FROM entry_failures WHERE way = ? AND at > ?", way, since))


def _count(tx: Transaction, way: str, now: datetime) -> None:
    tx.execute("INSERT INTO entry_failures (way, at) VALUES (?, ?)", way, clock.to_ms(now))


def _derive(password: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    words = password.encode("utf-8", "surrogateescape")
    return scrypt(
        words, salt=salt, n=cost, r=block, p=lanes, maxmem=256 * cost * block, dklen=32
    )
