"""The person's passkeys: the rows of their keys, the nonces that they sign, and the codes for who has lost them."""

import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from deskhand import clock
from deskhand.errors import FieldProblem, InvalidInput, NotFound
from deskhand.gate import permissions
from deskhand.gate.webauthn import Assertion, Passkey, Said, check, refuse
from deskhand.store import Row, Transaction

NONCE_LIFE = timedelta(minutes=5)
CODES = 10
LONGEST_NAME = 60
_COLUMNS = "id, name, host, public_key, sign_count, created, used, revoked, seal"

Seal = Callable[..., str]
"""An HMAC over its arguments, by a key that is not in the database."""


# Nonces: made without a row, so that nobody fills the database by asking; used once.


def make_nonce(seal: Seal, place: str, now: datetime) -> str:
    """A nonce for somebody at this place, for the next minutes."""
    drawn = f"{clock.to_ms(now + NONCE_LIFE)}.{secrets.token_urlsafe(18)}"
    return f"{drawn}.{seal('nonce', place, drawn)}"


def use_nonce(tx: Transaction, seal: Seal, nonce: str, place: str, now: datetime) -> None:
    drawn, _, mark = nonce.rpartition(".")
    if not hmac.compare_digest(mark.encode(), seal("nonce", place, drawn).encode()):
        raise refuse("it was asked for elsewhere")
    expires = int(drawn.partition(".")[0])
    if expires <= clock.to_ms(now):
        raise refuse("it took too long")
    tx.execute("DELETE FROM used_nonces WHERE expires <= ?", clock.to_ms(now))
    sql = "INSERT INTO used_nonces (nonce, expires) VALUES (?, ?) ON CONFLICT DO NOTHING"
    if not tx.execute(sql, drawn, expires):
        raise refuse("it was used before")


def accept(
    tx: Transaction,
    seal: Seal,
    said: Said,
    assertion: Assertion,
    *,
    origin: str,
    place: str,
    now: datetime,
) -> Passkey:
    """The key whose signature this is, given now and for the first time; its counter goes on."""
    key = find(tx, seal, assertion.id)
    if key is None or key.revoked is not None:
        raise refuse("this desk does not know the passkey, or it was revoked")
    count = check(key, said, assertion, origin)
    use_nonce(tx, seal, assertion.nonce, place, now)
    # Keys that are synced between devices never count.
    if count <= key.sign_count and (count or key.sign_count):
        raise refuse("its counter went back, as that of a copied key does")
    used = replace(key, sign_count=count, used=now)
    _write(tx, seal, used)
    return used


# Rows.


def add(
    tx: Transaction, seal: Seal, key: Passkey, place: str, nonce: str, now: datetime
) -> None:
    if not 0 < len(key.name) <= LONGEST_NAME or not key.name.isprintable():
        problem = FieldProblem(
            "name", "is no name for a passkey", None, f"use 1 to {LONGEST_NAME} characters"
        )
        raise InvalidInput("the passkey needs a name", fields=[problem])
    use_nonce(tx, seal, nonce, place, now)
    if tx.one("SELECT 1 FROM passkeys WHERE id = ? OR name = ?", key.id, key.name):
        raise InvalidInput(
            f"there is, or was, a passkey {key.name}", hint="choose another name"
        )
    values = (
        key.id,
        key.name,
        key.host,
        key.public_key,
        key.sign_count,
        clock.to_ms(key.created),
    )
    sql = "INSERT INTO passkeys (id, name, host, public_key, sign_count, created, seal) VALUES (?, ?, ?, ?, ?, ?, '')"
    tx.execute(sql, *values)
    _write(tx, seal, key)


def find(tx: Transaction, seal: Seal, key_id: str) -> Passkey | None:
    """The key, as this desk wrote it down."""
    row = tx.one(f"SELECT {_COLUMNS} FROM passkeys WHERE id = ?", key_id)
    if row is None:
        return None
    return _genuine(row, seal)


def list_keys(tx: Transaction, seal: Seal) -> list[Passkey]:
    """Those that were not revoked, the oldest first."""
    rows = tx.all(
        f"SELECT {_COLUMNS} FROM passkeys WHERE revoked IS NULL ORDER BY created, name"
    )
    return [key for key in (_genuine(row, seal) for row in rows) if key is not None]


def find_forged_key(tx: Transaction, seal: Seal) -> str | None:
    """The name of the first key that was not written by this desk, or was changed since."""
    rows = tx.all(f"SELECT {_COLUMNS} FROM passkeys ORDER BY created, name")
    return next((str(row[1]) for row in rows if _genuine(row, seal) is None), None)


def revoke(tx: Transaction, seal: Seal, name: str, now: datetime) -> Passkey:
    """From now on nothing that it signs counts, nor what it signed and has not left yet."""
    key = next((key for key in list_keys(tx, seal) if key.name == name), None)
    if key is None:
        raise NotFound(
            f"there is no passkey {name}", hint="`deskhand passkey list` names them"
        )
    revoked = replace(key, revoked=now)
    _write(tx, seal, revoked)
    permissions.close_signed(tx, now)
    return revoked


def adopt(tx: Transaction, seal: Seal) -> None:
    """Take over the keys that the desk had under another seal."""
    for row in tx.all(f"SELECT {_COLUMNS} FROM passkeys"):
        _write(tx, seal, _read(row))


def forget_all(tx: Transaction) -> None:
    tx.execute("DELETE FROM passkeys")
    tx.execute("DELETE FROM recovery_codes")


def _write(tx: Transaction, seal: Seal, key: Passkey) -> None:
    tx.execute(
        "UPDATE passkeys SET sign_count = ?, used = ?, revoked = ?, seal = ? WHERE id = ?",
        key.sign_count,
        key.used and clock.to_ms(key.used),
        key.revoked and clock.to_ms(key.revoked),
        _seal_of(key, seal),
        key.id,
    )


def _genuine(row: Row, seal: Seal) -> Passkey | None:
    key = _read(row)
    if not hmac.compare_digest(str(row[-1]).encode(), _seal_of(key, seal).encode()):
        return None
    return key


def _read(row: Row) -> Passkey:
    *facts, created, used, revoked, _seal = row
    moments = [
        None if each is None else clock.from_ms(each) for each in (created, used, revoked)
    ]
    return Passkey(*facts, *moments)


def _seal_of(key: Passkey, seal: Seal) -> str:
    revoked = key.revoked and clock.to_ms(key.revoked)
    facts = (
        key.id,
        key.name,
        key.host,
        key.public_key,
        key.sign_count,
        clock.to_ms(key.created),
        revoked,
    )
    return seal("passkey", *facts)


# Recovery codes: one lets its holder in, once, to make a new passkey.


def replace_codes(tx: Transaction, seal: Seal, now: datetime) -> Sequence[str]:
    """New codes in place of all old ones; they are shown now and never again."""
    codes = ["-".join(secrets.token_hex(3)[:5] for _ in range(4)) for _ in range(CODES)]
    tx.execute("DELETE FROM recovery_codes")
    for code in codes:
        sql = "INSERT INTO recovery_codes (digest, created) VALUES (?, ?)"
        tx.execute(sql, seal("code", code), clock.to_ms(now))
    return codes


def use_code(tx: Transaction, seal: Seal, code: str) -> bool:
    """Use a code up; whether it was one."""
    return (
        tx.execute(
            "DELETE FROM recovery_codes WHERE digest = ?",
            seal("code", code.strip().lower()),
        )
        == 1
    )


def count_codes(tx: Transaction) -> int:
    return len(tx.all("SELECT 1 FROM recovery_codes"))
