"""The users' own bearer tokens. Only a digest is kept: whoever reads the database cannot enter with it."""

import re
import secrets
from hashlib import sha256
from typing import NamedTuple

from deskhand.errors import Exists, FieldProblem, InvalidInput, NotFound
from deskhand.store import Transaction

_USER_ID = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?")


class Kept(NamedTuple):
    name: str
    user_id: str
    created_at: str


def is_user_id(text: object) -> bool:
    """What an HTTP header carries unchanged: 1 to 255 ASCII characters, no space around them."""
    return isinstance(text, str) and _USER_ID.fullmatch(text) is not None


def create(tx: Transaction, user: str, name: str, now: str) -> str:
    """A new token for the user; it is told now and never again."""
    if not is_user_id(user):
        raise InvalidInput(
            "that is no user id",
            fields=[FieldProblem("user", "not a user id", user, "Use 1 to 255 ASCII characters")],
        )
    token = f"dh_{secrets.token_urlsafe(32)}"
    added = tx.execute(
        "INSERT INTO user_token (digest, name, user_id, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        *(_digest(token), name, user, now),
    )
    if not added:
        raise Exists(f"there is a token named {name}", hint="choose another name, or revoke that one")
    return token


def kept(tx: Transaction) -> list[Kept]:
    return [Kept(*row) for row in tx.all("SELECT name, user_id, created_at FROM user_token ORDER BY created_at, name")]


def revoke(tx: Transaction, name: str) -> None:
    if not tx.execute("DELETE FROM user_token WHERE name = ?", name):
        raise NotFound(f"there is no token named {name}", hint="`deskhand token list` shows them")


def owner(tx: Transaction, token: str) -> str | None:
    """Whose token this is. The digest is looked up, so its bytes tell a guesser nothing by timing."""
    row = tx.one("SELECT user_id FROM user_token WHERE digest = ?", _digest(token))
    return row[0] if row else None


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
