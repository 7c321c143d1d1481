"""What an authenticator signs, by WebAuthn with user verification. Pure: whatever is needed to check it comes in.

What is signed names the answer, each request, the digest of what was shown, and a nonce that counts once. So the
signature can be checked again at any time, with nothing but the row of the key.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from deskhand.errors import Denied

ALGORITHMS = (-7, -8, -257)
"""ES256, EdDSA and RS256: what `is_signed_by` can check."""
_PRESENT = 0x01
_VERIFIED = 0x04
_HAS_KEY = 0x40
_HEAD = 37
"""Bytes of authenticator data before the key: the host's hash, the flags, the counter."""


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
    is_signed_by(decode(given.public_key), b"", b"")  # refuses a key that cannot be read
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
