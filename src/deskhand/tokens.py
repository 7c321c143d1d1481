"""The bearer tokens of assistants and users. Only a digest is kept: whoever reads the database cannot enter with it.

A token's scopes say which parts of the desk it opens and whether it may change something there. No scope decides
anything for the person, and none opens the page.
"""

import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Literal, NamedTuple

from deskhand import clock
from deskhand.errors import Exists, FieldProblem, InvalidInput, NotFound, printable
from deskhand.store import Row, Store, Transaction

Area = Literal["mail", "notes", "tasks", "agents", "guard"]
AREAS: tuple[Area, ...] = ("mail", "notes", "tasks", "agents", "guard")
SCOPES = tuple(f"{area}:{right}" for area in AREAS for right in ("read", "write"))
EVERYTHING = tuple(f"{area}:write" for area in AREAS)
LONGEST_USER_ID = 255
_MINUTE = timedelta(minutes=1)


class Token(NamedTuple):
    """What the desk keeps of a token; the text itself it does not have."""

    name: str
    user_id: str | None
    """Whose tasks it reaches; the desk's own user where it names none."""
    scopes: tuple[str, ...]
    created: datetime
    used: datetime | None


def is_user_id(text: object) -> bool:
    """What an HTTP header carries unchanged: 1 to 255 printable characters, no space around them."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_USER_ID and text.isprintable() and text == text.strip()


def user_in_header(value: str) -> str:
    """Whom a header names: it is UTF-8, which a server reads as Latin-1. Other bytes are no user's id."""
    return value.encode("latin-1").decode("utf-8", "surrogateescape")


def opens(scopes: Iterable[str], area: Area, *, writes: bool) -> bool:
    """Whether the scopes let their holder into this part of the desk; writing includes reading."""
    held = frozenset(scopes)
    return f"{area}:write" in held or (not writes and f"{area}:read" in held)


def with_reading(scopes: Iterable[str]) -> list[str]:
    """The scopes, with the reading that each writing includes."""
    held = frozenset(scopes)
    return [scope for scope in SCOPES if scope in held or scope.replace(":read", ":write") in held]


def check_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """The scopes in the order of SCOPES, each once; an unknown one is refused with the list of those that exist."""
    asked = list(scopes)
    if unknown := [scope for scope in asked if scope not in SCOPES]:
        raise InvalidInput(
            "that is no scope",
            fields=[FieldProblem("scope", "is not one of the scopes", printable(each)) for each in unknown],
            hint=f"the scopes are {', '.join(SCOPES)}; write includes read, mail:write may propose mail,"
            " notes:read reads the mail in Needs_Action too",
        )
    return tuple(scope for scope in SCOPES if scope in asked)


def create(
    tx: Transaction, name: str, now: datetime, *, user: str | None = None, scopes: Iterable[str] = EVERYTHING
) -> str:
    """Make a new token; returns its text, which nobody can read again."""
    for field, text in (("name", name), ("user", user)):
        if text is not None and not is_user_id(text):
            problem = FieldProblem(field, f"not a {field}", printable(text), "Use 1 to 255 printable characters")
            raise InvalidInput(f"that is no {field} of a token", fields=[problem])
    token = f"dh_{secrets.token_urlsafe(32)}"
    sql = "INSERT INTO tokens (digest, name, user_id, scopes, created) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    values = (_digest(token), name, user, " ".join(check_scopes(scopes)), clock.to_ms(now))
    added = tx.execute(sql, *values)
    if not added:
        raise Exists(f"there is a token named {name}", hint="choose another name, or revoke that one")
    return token


def list_tokens(tx: Transaction) -> list[Token]:
    return [_token(row) for row in tx.all(f"SELECT {_COLUMNS} FROM tokens ORDER BY created, name")]


def revoke(tx: Transaction, name: str) -> None:
    if not tx.execute("DELETE FROM tokens WHERE name = ?", name):
        raise NotFound(f"there is no token named {name}", hint="`deskhand token list` shows them")


def find(tx: Transaction, text: str) -> Token | None:
    """The token of this text. Its digest is looked up, so timing tells a guesser nothing about its bytes."""
    row = tx.one(f"SELECT {_COLUMNS} FROM tokens WHERE digest = ?", _digest(text))
    return _token(row) if row else None


async def authenticate(store: Store, text: str, now: datetime) -> Token | None:
    """The token that somebody presents; None where there is none. Notes that it was used, at most once a minute."""
    token = await store.read_one(find, text)
    if token is not None and (token.used is None or now - token.used > _MINUTE):
        await store.write(_note_use, token.name, now)
    return token


def _note_use(tx: Transaction, name: str, now: datetime) -> None:
    tx.execute("UPDATE tokens SET used = ? WHERE name = ?", clock.to_ms(now), name)


_COLUMNS = "name, user_id, scopes, created, used"


def _token(row: Row) -> Token:
    name, user, scopes, created, used = row
    last_used = None
    if used is not None:
        last_used = clock.from_ms(used)
    return Token(name, user, tuple(scopes.split()), clock.from_ms(created), last_used)


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
