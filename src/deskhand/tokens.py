"""The bearer tokens of assistants and users. Only a digest is kept: whoever reads the database cannot enter with it."""

import re
import secrets
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

from deskhand.errors import Exists, FieldProblem, InvalidInput, NotFound
from deskhand.store import Transaction

_USER_ID = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?")


class Kept(NamedTuple):
    name: str
    user_id: str
    scopes: str
    created: datetime


def is_user_id(text: object) -> bool:
    """What an HTTP header carries unchanged: 1 to 255 ASCII characters, no space around them."""
    return isinstance(text, str) and _USER_ID.fullmatch(text) is not None


def create(tx: Transaction, user: str, name: str, now: datetime) -> str:
    """A new token for the user; it is told now and never again."""
    if not is_user_id(user):
        raise InvalidInput(
            "that is no user id",
            fields=[FieldProblem("user", "not a user id", user, "Use 1 to 255 ASCII characters")],
        )
    token = f"dh_{secrets.token_urlsafe(32)}"
    added = tx.execute(
        "INSERT INTO tokens (digest, name, user_id, scopes, created) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        *(_digest(token), name, user, "tasks:write", round(now.timestamp() * 1000)),
    )
    if not added:
        raise Exists(f"there is a token named {name}", hint="choose another name, or revoke that one")
    return token


def kept(tx: Transaction) -> list[Kept]:
    rows = tx.all("SELECT name, user_id, scopes, created FROM tokens ORDER BY created, name")
    return [Kept(name, user, scopes, datetime.fromtimestamp(at / 1000, UTC)) for name, user, scopes, at in rows]


def revoke(tx: Transaction, name: str) -> None:
    if not tx.execute("DELETE FROM tokens WHERE name = ?", name):
        raise NotFound(f"there is no token named {name}", hint="`deskhand token list` shows them")


def owner(tx: Transaction, token: str) -> str | None:
    """Whose token this is. The digest is looked up, so its bytes tell a guesser nothing by timing."""
    row = tx.one("SELECT user_id FROM tokens WHERE digest = ?", _digest(token))
    return row[0] if row else None


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
