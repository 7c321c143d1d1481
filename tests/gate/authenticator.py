"""A passkey in software: it signs what a browser would have a real one sign, and lies where a test asks for it."""

import json
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from deskhand.gate.webauthn import encode

PERSON_VERIFIED = 0x05
ORIGIN = "http://localhost:8642"

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey


@dataclass
class Authenticator:
    origin: str = ORIGIN
    key: PrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    id: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    count: int = 0
    """How often it signed; one that is synced says 0 for ever."""
    counts: bool = True
    flags: int = PERSON_VERIFIED

    @property
    def host(self) -> str:
        return urlsplit(self.origin).hostname or ""

    def make(self, nonce: str, challenge: str, **changes: Any) -> dict[str, str]:
        """What a browser brings of a new key."""
        form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        held = b"\0" * 16 + len(self.id).to_bytes(2) + self.id + b"a key in CBOR"
        return {
            "nonce": nonce,
            "id": encode(self.id),
            "client_data": self._client_data("webauthn.create", challenge),
            "authenticator_data": encode(self._data(self.flags | 0x40) + held),
            "public_key": encode(self.key.public_key().public_bytes(*form)),
        } | changes

    def sign(self, nonce: str, challenge: str, **client: Any) -> dict[str, str]:
        """What a browser brings of a signature; `client` is what the browser says otherwise."""
        self.count += self.counts
        said = self._client_data("webauthn.get", challenge, **client)
        data = self._data(self.flags)
        signed = data + sha256(_bytes(said)).digest()
        return {
            "nonce": nonce,
            "id": encode(self.id),
            "client_data": said,
            "authenticator_data": encode(data),
            "signature": encode(self._signature(signed)),
        }

    def _signature(self, data: bytes) -> bytes:
        match self.key:
            case ec.EllipticCurvePrivateKey() as key:
                return key.sign(data, ec.ECDSA(hashes.SHA256()))
            case ed25519.Ed25519PrivateKey() as key:
                return key.sign(data)
            case rsa.RSAPrivateKey() as key:
                return key.sign(data, padding.PKCS1v15(), hashes.SHA256())

    def _data(self, flags: int) -> bytes:
        return sha256(self.host.encode()).digest() + bytes([flags]) + self.count.to_bytes(4)

    def _client_data(self, kind: str, challenge: str, **changes: Any) -> str:
        said = {
            "type": kind,
            "challenge": challenge,
            "origin": self.origin,
            "crossOrigin": False,
        } | changes
        return encode(json.dumps(said).encode())


def _bytes(text: str) -> bytes:
    from deskhand.gate.webauthn import decode

    return decode(text)
