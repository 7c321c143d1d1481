"""Web push: a message that only one browser can read (RFC 8291), signed so that its push service takes it (RFC 8292).

The message passes through somebody else's servers, and its content type says that it is encrypted; who sends it, and to
which browser, they know all the same.
"""

import asyncio
import json
import os
import ssl
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

from deskhand.abroad import Reach, WrongPlace, is_public
from deskhand.app import Desk
from deskhand.gate.webauthn import encode
from deskhand.web.subscriptions import Subscription

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

Outcome = Literal["sent", "gone", "failed"]
SECONDS = 10
KEPT = timedelta(days=1)
"""For so long a push service keeps a message for a phone that is off."""
_TOKEN_LIFE = timedelta(hours=12)
_RECORD = 4096
_POINT = 65
"""Bytes of a public key: a point on P-256, uncompressed."""
_SECRET = 16
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class PushAnswer(NamedTuple):
    """What a push service made of a message."""

    outcome: Outcome
    pause: float = 0.0
    """Seconds in which it asks to be left alone."""


def reach_of(desk: Desk) -> Reach:
    """How far the desk goes to a push service: into the internet, and into the networks that its options name."""
    own = [ip_network(each) for each in desk.settings.push_networks.split()]

    def may_reach(address: str) -> bool:
        return is_public(address) or any(ip_address(address) in each for each in own)

    return Reach(may_reach, cache(ssl.create_default_context))


def make_key(secret: str) -> "EllipticCurvePrivateKey":
    """The key by which push services know this desk, out of a secret of its home."""
    from cryptography.hazmat.primitives.asymmetric import ec

    number = int.from_bytes(sha256(f"push {secret}".encode()).digest())
    return ec.derive_private_key(1 + number % (_ORDER - 1), ec.SECP256R1())


def public_point(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def are_keys(public_key: str, secret: str) -> bool:
    """Whether something can be encrypted with what a browser gave."""
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        point = decode(public_key)
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        return len(point) == _POINT and len(decode(secret)) == _SECRET
    except ValueError:
        return False


def decode(text: str) -> bytes:
    return urlsafe_b64decode(f"{text}{'=' * (-len(text) % 4)}")


def encrypt(
    text: bytes, to: Subscription, own: "EllipticCurvePrivateKey", salt: bytes
) -> bytes:
    """The message for that browser; `own` and `salt` are made for it alone."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    def derive(size: int, salted: bytes, secret: bytes, about: bytes) -> bytes:
        return HKDF(SHA256(), size, salted, about).derive(secret)

    theirs = decode(to.public_key)
    ours = public_point(own)
    shared = own.exchange(
        ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), theirs)
    )
    secret = derive(32, decode(to.secret), shared, b"WebPush: info\0" + theirs + ours)
    key = derive(16, salt, secret, b"Content-Encoding: aes128gcm\0")
    nonce = derive(12, salt, secret, b"Content-Encoding: nonce\0")
    header = salt + _RECORD.to_bytes(4) + len(ours).to_bytes(1) + ours
    return header + AESGCM(key).encrypt(nonce, text + b"\x02", None)


def authorize(
    endpoint: str, key: "EllipticCurvePrivateKey", contact: str | None, now: datetime
) -> str:
    """What tells the push service at this address that the message is ours; `contact` is whom it may turn to."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    place = urlsplit(endpoint)
    claims = {
        "aud": f"{place.scheme}://{place.netloc}",
        "exp": round((now + _TOKEN_LIFE).timestamp()),
    }
    if contact:
        claims["sub"] = contact
    parts = [
        encode(json.dumps(each).encode())
        for each in ({"typ": "JWT", "alg": "ES256"}, claims)
    ]
    signature = key.sign(".".join(parts).encode(), ec.ECDSA(SHA256()))
    numbers = (each.to_bytes(32) for each in decode_dss_signature(signature))
    token = ".".join((*parts, encode(b"".join(numbers))))
    return f"vapid t={token}, k={encode(public_point(key))}"


@dataclass(frozen=True, slots=True)
class PushSender:
    """Sends to push services in the desk's name."""

    key: "EllipticCurvePrivateKey"
    contact: str | None
    reach: Reach

    async def send(self, text: bytes, to: Subscription, now: datetime) -> PushAnswer:
        import httpx2
        from cryptography.hazmat.primitives.asymmetric import ec

        headers = {
            "Authorization": authorize(to.endpoint, self.key, self.contact, now),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(round(KEPT.total_seconds())),
            "Topic": "waiting",  # of several that were not delivered yet only the last one is
            "Urgency": "high",
        }
        content = encrypt(text, to, ec.generate_private_key(ec.SECP256R1()), os.urandom(16))
        try:
            async with (
                asyncio.timeout(SECONDS),
                self.reach.ask("POST", to.endpoint, headers, content) as answer,
            ):
                pause = _read_pause(answer.headers.get("Retry-After", ""), now)
                return PushAnswer(_read_outcome(answer.status_code), pause)
        except (OSError, WrongPlace, UnicodeError, httpx2.HTTPError):
            return PushAnswer("failed")


def _read_outcome(status: int) -> Outcome:
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return "gone"
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return "sent"
    return "failed"


def _read_pause(after: str, now: datetime) -> float:
    """Seconds, which may also be written as the moment at which they end."""
    try:
        if after.isdecimal():
            return float(after)
        return (parsedate_to_datetime(after) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return 0.0
