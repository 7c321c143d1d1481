"""From the person's yes to tokens: a code that counts once and soon, then tokens that a refresh token renews.

A refresh token counts once, too. Whoever shows a code or a refresh token that was used before may be a thief, or the
one who was robbed: the whole family ends, and the person connects the client again.
"""

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

from deskhand import clock, tokens
from deskhand.oauth import OAuthRefusal, clients
from deskhand.store import Transaction
from deskhand.tokens import EVERY_ENDPOINT, Grant, Token

CODE_LIFE = timedelta(seconds=60)
ACCESS_LIFE = timedelta(minutes=15)
REFRESH_LIFE = timedelta(days=30)
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
"""A SHA-256 in base64url: PKCE by S256 knows no other."""
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_NO_CODE = "this code was used before, is too old, or is of another client"
_NO_REFRESH = "this refresh token was used before, is too old, or was revoked"


class Allowed(NamedTuple):
    """What the person said yes to."""

    client_id: str
    name: str
    redirect: str
    challenge: str
    scopes: tuple[str, ...]
    resource: str


class Issued(NamedTuple):
    access: str
    refresh: str
    scopes: tuple[str, ...]


class Ended(NamedTuple):
    """A family that ended because one of its secrets was shown twice. Returned, not
    raised: the end is committed."""

    name: str | None
    refusal: OAuthRefusal


def allow(tx: Transaction, allowed: Allowed, now: datetime) -> str:
    """A code for the client, which only its own verifier turns into tokens."""
    code = secrets.token_urlsafe(32)
    tx.execute(
        "DELETE FROM oauth_codes WHERE expires <= ?", clock.to_ms(now - REFRESH_LIFE)
    )
    tx.execute(
        "INSERT INTO oauth_codes (digest, family, client_id, name, redirect, challenge, scopes, resource, expires)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *(
            tokens.digest(code),
            secrets.token_hex(16),
            allowed.client_id,
            allowed.name,
            allowed.redirect,
        ),
        *(
            allowed.challenge,
            " ".join(allowed.scopes),
            allowed.resource,
            clock.to_ms(now + CODE_LIFE),
        ),
    )
    clients.note_use(tx, allowed.client_id, now)
    return code


def redeem(
    tx: Transaction,
    client_id: str,
    code: str,
    redirect: str | None,
    verifier: str,
    resource: str | None,
    now: datetime,
) -> Issued | Ended:
    """The first tokens for a code."""
    row = tx.one(
        "SELECT family, name, redirect, challenge, scopes, resource, expires, spent FROM oauth_codes"
        " WHERE digest = ? AND client_id = ?",
        *(tokens.digest(code), client_id),
    )
    if row is None:
        raise OAuthRefusal("invalid_grant", _NO_CODE)
    family, name, sent_to, challenge, scopes, granted, expires, spent = row
    if spent:
        return _end(tx, family, _NO_CODE)
    if (
        expires <= clock.to_ms(now)
        or redirect not in (None, sent_to)
        or not _proves(verifier, challenge)
    ):
        raise OAuthRefusal(
            "invalid_grant",
            f"{_NO_CODE}; or the verifier or the redirect address is another",
        )
    grant = Grant(family, client_id, name, _narrow(granted, resource))
    if not _spend(tx, "oauth_codes", code):
        return _end(tx, family, _NO_CODE)
    access = tokens.issue(
        tx, grant, scopes.split(), now, now + ACCESS_LIFE, now + REFRESH_LIFE
    )
    return _with_refresh(tx, family, access, scopes.split(), scopes, now)


def renew(
    tx: Transaction,
    client_id: str,
    refresh: str,
    scopes: Iterable[str] | None,
    resource: str | None,
    now: datetime,
) -> Issued | Ended:
    """New tokens for a refresh token, which then counts no more; with fewer scopes where
    the client asks for fewer."""
    row = tx.one(
        "SELECT family, scopes, expires, spent FROM oauth_refresh_tokens WHERE digest = ?",
        tokens.digest(refresh),
    )
    if row is None:
        raise OAuthRefusal("invalid_grant", _NO_REFRESH)
    family, granted, expires, spent = row
    token = tokens.find_family(tx, family)
    if token is None or token.client_id != client_id or expires <= clock.to_ms(now):
        raise OAuthRefusal("invalid_grant", _NO_REFRESH)
    if spent:
        return _end(tx, family, _NO_REFRESH)
    wanted = tuple(scopes or granted.split())
    if not set(wanted) <= set(tokens.with_reading(granted.split())):
        raise OAuthRefusal("invalid_scope", "the person allowed less than that")
    if resource is not None and resource != token.resource:
        raise OAuthRefusal("invalid_target", "the person allowed another endpoint")
    if not _spend(tx, "oauth_refresh_tokens", refresh):
        return _end(tx, family, _NO_REFRESH)
    access = tokens.renew(tx, family, wanted, now + ACCESS_LIFE, now + REFRESH_LIFE)
    if access is None:
        raise OAuthRefusal("invalid_grant", _NO_REFRESH)
    clients.note_use(tx, client_id, now)
    return _with_refresh(tx, family, access, wanted, granted, now)


def revoke(tx: Transaction, client_id: str, text: str) -> Token | None:
    """End the family of an access or refresh token of this client; None where there is none."""
    token = tokens.find(tx, text)
    if token is None:
        row = tx.one(
            "SELECT family FROM oauth_refresh_tokens WHERE digest = ?", tokens.digest(text)
        )
        token = tokens.find_family(tx, row[0]) if row else None
    if token is None or token.client_id != client_id:
        return None
    tokens.drop(tx, token.name)
    return token


def _with_refresh(
    tx: Transaction,
    family: str,
    access: str,
    scopes: Iterable[str],
    granted: str,
    now: datetime,
) -> Issued:
    refresh = f"dhr_{secrets.token_urlsafe(32)}"
    tx.execute("DELETE FROM oauth_refresh_tokens WHERE expires <= ?", clock.to_ms(now))
    tx.execute(
        "INSERT INTO oauth_refresh_tokens (digest, family, scopes, expires) VALUES (?, ?, ?, ?)",
        *(tokens.digest(refresh), family, granted, clock.to_ms(now + REFRESH_LIFE)),
    )
    return Issued(access, refresh, tokens.check_scopes(scopes))


def _spend(tx: Transaction, table: str, secret: str) -> bool:
    """Whether nobody was faster."""
    return (
        tx.execute(
            f"UPDATE {table} SET spent = 1 WHERE digest = ? AND spent = 0",
            tokens.digest(secret),
        )
        == 1
    )


def _end(tx: Transaction, family: str, why: str) -> Ended:
    token = tokens.find_family(tx, family)
    if token is not None:
        tokens.drop(tx, token.name)
    return Ended(token and token.name, OAuthRefusal("invalid_grant", why))


def _narrow(granted: str, asked: str | None) -> str:
    if asked is None or asked == granted:
        return granted
    if granted == EVERY_ENDPOINT:
        return asked
    raise OAuthRefusal("invalid_target", "the person allowed another endpoint")


def _proves(verifier: str, challenge: str) -> bool:
    if not _VERIFIER.fullmatch(verifier):
        return False
    made = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=")
    return hmac.compare_digest(made, challenge.encode())
