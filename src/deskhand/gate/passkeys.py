"""Passkeys: the person's authenticators and what they sign, by WebAuthn with user verification.

What is signed names the answer, each request, the digest of what was shown, and a nonce that counts once. So the
signature can be checked again at any time, with nothing but the row of the key.
"""

import hmac
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from deskhand import clock
from deskhand.errors import Denied, FieldProblem, InvalidInput, NotFound
from deskhand.gate import permissions
from deskhand.store import Row, Transaction

NONCE_LIFE = timedelta(minutes=5)
CODES = 10
LONGEST_NAME = 60
ALGORITHMS = (-7, -8, -257)
"""ES256, EdDSA and RS256: what `is_signed_by` can check."""
_PRESENT = 0x01
_VERIFIED = 0x04
_HAS_KEY = 0x40
_HEAD = 37
"""Bytes of authenticator data before the key: the host's hash, the flags, the counter."""
_COLUMNS = "id, name, host, public_key, sign_count, created, used, revoked, seal"

Seal = Callable[..., str]
"""An HMAC over its arguments, by a key that is not in the database."""


class Assertion(BaseModel):
    """What a browser brings of an authenticator's signature; bytes are base64url."""

    model_config = ConfigDict(frozen=True)

    nonce: str
    id: str
    client_data: str
    authenticator_data: str
    signature: str


class NewKey(BaseModel):
    """What a browser brings of a key that an authenticator has just made."""

    model_config = ConfigDict(frozen=True)

    nonce: str
    id: str
    client_data: str
    authenticator_data: str
    public_key: str


class Said(BaseModel):
    """What is signed: one word about these requests, each with the digest of what was shown."""

    model_config = ConfigDict(frozen=True)

    word: str
    about: tuple[tuple[str, str], ...] = ()

    def challenge(self, nonce: str) -> str:
        lines = [
            "deskhand",
            self.word,
            nonce,
            *(f"{name} {digest}" for name, digest in sorted(self.about)),
        ]
        return encode(sha256("\n".join(lines).encode()).digest())


SIGN_IN = Said(word="sign in")
ENROL = Said(word="enrol")


class KeptAssertion(BaseModel):
    """A signature as it is stored with an answer."""

    model_config = ConfigDict(frozen=True)

    said: Said
    assertion: Assertion


@dataclass(frozen=True, slots=True)
class Passkey:
    id: str
    name: str
    host: str
    """The name for which the authenticator made it (the RP id); for any other it does not sign."""
    public_key: str
    sign_count: int
    created: datetime
    used: datetime | None = None
    revoked: datetime | None = None

    def counts_at(self, moment: datetime) -> bool:
        """Whether it was not revoked by then."""
        return self.revoked is None or moment <= self.revoked


# What is signed.


def refuse(why: str) -> Denied:
    return Denied(
        f"this passkey's answer does not count: {why}",
        reason="proof",
        hint="nothing was done; try again",
    )


def check(key: Passkey, said: Said, assertion: Assertion, origin: str | None = None) -> int:
    """Refuse what this key did not sign, for these words, with the person there; its counter.

    Without an `origin` any of the key's host will do: whoever took the answer has checked it, and sealed that.
    """
    client = assertion.client_data
    _demand_client_data(
        client, "webauthn.get", said.challenge(assertion.nonce), origin, key.host
    )
    data = decode(assertion.authenticator_data)
    _demand_person(data, key.host)
    signed = data + sha256(decode(client)).digest()
    if not is_signed_by(decode(key.public_key), decode(assertion.signature), signed):
        raise refuse("it is not this key's signature")
    return int.from_bytes(data[33:_HEAD])


def read_new_key(given: NewKey, origin: str, name: str, now: datetime) -> Passkey:
    """The key that an authenticator made for this origin; no other kind than we can check."""
    host = urlsplit(origin).hostname or ""
    _demand_client_data(
        given.client_data, "webauthn.create", ENROL.challenge(given.nonce), origin, host
    )
    data = decode(given.authenticator_data)
    _demand_person(data, host)
    length = int.from_bytes(data[_HEAD + 16 : _HEAD + 18])
    if (
        not data[32] & _HAS_KEY
        or data[_HEAD + 18 : _HEAD + 18 + length] != decode(given.id)
        or not length
    ):
        raise refuse("the authenticator made another key")
    is_signed_by(
        decode(given.public_key), b"", b""
    )  # a key that cannot be read is refused here
    return Passkey(
        given.id, name, host, given.public_key, int.from_bytes(data[33:_HEAD]), now
    )


def _demand_client_data(
    text: str, kind: str, challenge: str, origin: str | None, host: str
) -> None:
    try:
        found: dict[str, Any] = dict(json.loads(decode(text)))
        came_from = str(found["origin"])
        own = came_from == origin or (
            origin is None and urlsplit(came_from).hostname == host
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise refuse("the browser's part cannot be read") from None
    if found.get("type") != kind or found.get("challenge") != challenge:
        raise refuse("it was given to something else")
    if not own or found.get("crossOrigin") or found.get("topOrigin"):
        raise refuse("it was given on another page")


def _demand_person(data: bytes, host: str) -> None:
    if len(data) < _HEAD or data[:32] != sha256(host.encode()).digest():
        raise refuse("it was given to another site")
    if data[32] & (_PRESENT | _VERIFIED) != _PRESENT | _VERIFIED:
        raise refuse("the authenticator did not ask who you are")


def is_signed_by(public_key: bytes, signature: bytes, data: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

    try:
        match serialization.load_der_public_key(public_key):
            case ec.EllipticCurvePublicKey() as key:
                key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
            case ed25519.Ed25519PublicKey() as key:
                key.verify(signature, data)
            case rsa.RSAPublicKey() as key:
                key.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
            case _:
                raise refuse("this kind of key is not known here")
    except InvalidSignature:
        return False
    except ValueError:
        raise refuse("the key cannot be read") from None
    return True


def encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    try:
        return urlsafe_b64decode(f"{text}{'=' * (-len(text) % 4)}")
    except (NotBase64, ValueError):
        raise refuse("a part of it cannot be read") from None


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
    if count <= key.sign_count and (
        count or key.sign_count
    ):  # keys that are synced between devices never count
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
        *(
            key.sign_count,
            key.used and clock.to_ms(key.used),
            key.revoked and clock.to_ms(key.revoked),
        ),
        *(_seal_of(key, seal), key.id),
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
