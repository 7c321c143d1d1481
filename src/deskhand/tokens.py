"""The bearer tokens of assistants and users. Only a digest is kept: whoever reads the database cannot enter with it.

A token's scopes say which parts of the desk it opens and whether it may change something there; with the name of a
mail account or a vault behind it (`mail:read:work`) a scope opens that one alone. No scope decides anything for the
person, and none opens the page. One that a client got by OAuth is for one MCP endpoint and ends soon; its client renews
it (deskhand.oauth), and all that it ever had are one family.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import chain, count
from typing import Literal, NamedTuple

from deskhand import clock
from deskhand.askers import PERSON
from deskhand.errors import Exists, FieldProblem, InvalidInput, NotFound, printable
from deskhand.store import Row, Store, Transaction, marks
from deskhand.unseen import reads_as

Area = Literal["mail", "notes", "tasks", "agents", "guard"]
AREAS: tuple[Area, ...] = ("mail", "notes", "tasks", "agents", "guard")
SCOPES = tuple(f"{area}:{right}" for area in AREAS for right in ("read", "write"))
EVERYTHING = tuple(f"{area}:write" for area in AREAS)
LONGEST_USER_ID = 255
EVERY_ENDPOINT = "/"
"""The resource of a token that a client got for all MCP endpoints."""
_MINUTE = timedelta(minutes=1)
_NARROWED = re.compile(r"(mail|notes):(read|write):[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
"""A scope for one mail account or one vault, by its name."""


class Token(NamedTuple):
    """What the desk keeps of a token; the text itself it does not have."""

    name: str
    user_id: str | None
    """Whose tasks it reaches; the desk's own user where it names none."""
    scopes: tuple[str, ...]
    created: datetime
    used: datetime | None
    client_id: str | None = None
    """Who got it by OAuth; None where a person made it by hand."""
    resource: str | None = None
    expires: datetime | None = None
    ends: datetime | None = None
    """Until when its client may renew it."""
    asker: str = ""
    """Who asks with it: its name, with a number behind it where another token had that before."""

    def is_for(self, endpoint: str | None, now: datetime) -> bool:
        """Whether it counts there. What came by OAuth counts at its own endpoint alone, and until it expires."""
        if self.expires is None:
            return True
        return (
            endpoint is not None
            and self.resource in (endpoint, EVERY_ENDPOINT)
            and now < self.expires
        )


class Grant(NamedTuple):
    """What the person allowed a client."""

    family: str
    client_id: str
    name: str
    resource: str


def is_user_id(text: object) -> bool:
    """What an HTTP header carries unchanged: 1 to 255 printable characters, no space around them."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= LONGEST_USER_ID
        and text.isprintable()
        and text == text.strip()
    )


def user_in_header(value: str) -> str:
    """Whom a header names: it is UTF-8, which a server reads as Latin-1. Other bytes are no user's id."""
    return value.encode("latin-1").decode("utf-8", "surrogateescape")


def right_of(scope: str) -> str:
    """The scope without the account or the vault to which it is narrowed."""
    return ":".join(scope.split(":")[:2])


def opened_names(
    scopes: Iterable[str], area: Area, *, writes: bool
) -> frozenset[str] | None:
    """The mail accounts or the vaults that the scopes open; None where they open all of them."""
    rights = {f"{area}:write"} if writes else {f"{area}:read", f"{area}:write"}
    held = [scope.split(":") for scope in scopes if right_of(scope) in rights]
    if any(len(parts) == 2 for parts in held):
        return None
    return frozenset(parts[2] for parts in held)


def opens(scopes: Iterable[str], area: Area, *, writes: bool) -> bool:
    """Whether the scopes let their holder into this part of the desk; writing includes reading."""
    held = frozenset(map(right_of, scopes))
    return f"{area}:write" in held or (not writes and f"{area}:read" in held)


def with_reading(scopes: Iterable[str]) -> list[str]:
    """The scopes, with the reading that each writing includes."""
    held = set(scopes)
    for area, _, *name in [scope.split(":") for scope in held]:
        held.add(":".join([area, "read", *name]))
    return sorted(held, key=_place_of)


def check_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """The scopes in the order of SCOPES, each once; an unknown one is refused with the
    list of those that exist."""
    asked = list(scopes)
    if unknown := [
        scope for scope in asked if scope not in SCOPES and not _NARROWED.fullmatch(scope)
    ]:
        raise InvalidInput(
            "that is no scope",
            fields=[
                FieldProblem("scope", "is not one of the scopes", printable(each))
                for each in unknown
            ],
            hint=f"the scopes are {', '.join(SCOPES)}; write includes read, mail:write may propose mail,"
            " notes:read reads the mail in Needs_Action too; mail:read:NAME and mail:write:NAME open one mail account,"
            " notes:read:NAME and notes:write:NAME one vault",
        )
    return tuple(sorted(dict.fromkeys(asked), key=_place_of))


def _place_of(scope: str) -> tuple[int, str]:
    return SCOPES.index(right_of(scope)), scope


def create(
    tx: Transaction,
    name: str,
    now: datetime,
    *,
    user: str | None = None,
    scopes: Iterable[str] = EVERYTHING,
) -> str:
    """Make a new token; returns its text, which nobody can read again."""
    if reads_as(name) == PERSON:
        problem = FieldProblem("name", "reads as the person's", printable(name))
        raise InvalidInput(
            f"under the name {PERSON} you write yourself",
            fields=[problem],
            hint="choose another name for the token",
        )
    for field, text in (("name", name), ("user", user)):
        if text is not None and not is_user_id(text):
            problem = FieldProblem(
                field,
                f"not a {field}",
                printable(text),
                "Use 1 to 255 printable characters, no blank at either end",
            )
            raise InvalidInput(f"that is no {field} of a token", fields=[problem])
    token = _new_text()
    held = " ".join(check_scopes(scopes))
    asker = _take_asker(tx, name)
    columns = "digest, name, user_id, scopes, created, asker"
    sql = f"INSERT INTO tokens ({columns}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    added = tx.execute(sql, digest(token), name, user, held, clock.to_ms(now), asker)
    if not added:
        raise Exists(
            f"there is a token named {name}", hint="choose another name, or revoke that one"
        )
    return token


def list_tokens(tx: Transaction) -> list[Token]:
    return [
        _token(row)
        for row in tx.all(f"SELECT {_COLUMNS} FROM tokens ORDER BY created, name")
    ]


def asker_of(name: str) -> str:
    """Who asks with this token, by a name that no client can give itself where it is another one's."""
    return f"client {name}"


def drop(tx: Transaction, name: str) -> bool:
    """Make a token worthless, and end what its holder had; whether it was there."""
    row = tx.one("SELECT COALESCE(asker, name) FROM tokens WHERE name = ?", name)
    if row is None:
        return False
    _forget(tx, asker_of(row[0]))
    return tx.execute("DELETE FROM tokens WHERE name = ?", name) > 0


def _forget(tx: Transaction, asker: str) -> None:
    """What was permitted to it, and what came of its calls, is nobody's after it."""
    for name, about in tx.all("SELECT id, names FROM permissions WHERE closed IS NULL"):
        if json.loads(about).get("asker") == asker:
            sql = "UPDATE permissions SET closed = ?, closed_by = 'a revoked token', evidence = '' WHERE id = ?"
            tx.execute(sql, clock.to_ms(clock.utc_now()), name)
    for name, action in tx.all(
        "SELECT id, action FROM requests WHERE id IN (SELECT request_id FROM results)"
    ):
        if json.loads(action).get("asker") == asker:
            tx.execute("DELETE FROM results WHERE request_id = ?", name)
    tx.execute("DELETE FROM handles WHERE asker = ?", asker)


def revoke(tx: Transaction, name: str) -> None:
    if not drop(tx, name):
        raise NotFound(
            f"there is no token named {name}", hint="`deskhand token list` shows them"
        )


def find(tx: Transaction, text: str) -> Token | None:
    """The token of this text. Its digest is looked up, so timing tells a guesser nothing about its bytes."""
    row = tx.one(f"SELECT {_COLUMNS} FROM tokens WHERE digest = ?", digest(text))
    return _token(row) if row else None


async def authenticate(
    store: Store, text: str, now: datetime, endpoint: str | None = None
) -> Token | None:
    """The token that somebody presents at an MCP endpoint, or at another door; None where it does not count there.

    Notes that it was used, at most once a minute.
    """
    token = await store.glance(find, text)
    if token is None or not token.is_for(endpoint, now):
        return None
    if token.used is None or now - token.used > _MINUTE:
        await store.write(_note_use, token.name, now)
    return token


def _note_use(tx: Transaction, name: str, now: datetime) -> None:
    tx.execute("UPDATE tokens SET used = ? WHERE name = ?", clock.to_ms(now), name)


def issue(
    tx: Transaction,
    grant: Grant,
    scopes: Iterable[str],
    now: datetime,
    expires: datetime,
    ends: datetime,
) -> str:
    """The first token of a family, under a name that reads as none before; what can no
    longer be renewed is dropped."""
    for (ended,) in tx.all("SELECT name FROM tokens WHERE ends <= ?", clock.to_ms(now)):
        drop(tx, ended)
    token = _new_text()
    name = _take_asker(tx, grant.name, reads_as)
    row = {
        "digest": digest(token),
        "name": name,
        "asker": name,
        "scopes": " ".join(check_scopes(scopes)),
        "created": clock.to_ms(now),
        "family": grant.family,
        "client_id": grant.client_id,
        "resource": grant.resource,
        "expires": clock.to_ms(expires),
        "ends": clock.to_ms(ends),
    }
    tx.execute(
        f"INSERT INTO tokens ({', '.join(row)}) VALUES ({marks(row)})", *row.values()
    )
    return token


def renew(
    tx: Transaction, family: str, scopes: Iterable[str], expires: datetime, ends: datetime
) -> str | None:
    """Another text for the token of this family: the old one is worth nothing. None where it was revoked."""
    token = _new_text()
    sql = "UPDATE tokens SET digest = ?, scopes = ?, expires = ?, ends = ? WHERE family = ?"
    values = (
        digest(token),
        " ".join(check_scopes(scopes)),
        clock.to_ms(expires),
        clock.to_ms(ends),
        family,
    )
    if not tx.execute(sql, *values):
        return None
    return token


def find_family(tx: Transaction, family: str) -> Token | None:
    row = tx.one(f"SELECT {_COLUMNS} FROM tokens WHERE family = ?", family)
    return _token(row) if row else None


def _take_asker(tx: Transaction, wanted: str, read: Callable[[str], str] = str) -> str:
    """A name that no token ever had, with a number behind it where one had that: nobody inherits another's yes.

    Two names are one where they `read` the same.
    """
    known = tx.all("SELECT name FROM askers UNION SELECT name FROM tokens")
    taken = {read(name) for (name,) in known} | {PERSON}
    numbered = (f"{wanted} {number}" for number in count(2))
    asker = next(name for name in chain([wanted], numbered) if read(name) not in taken)
    tx.execute("INSERT INTO askers (name) VALUES (?)", asker)
    return asker


_COLUMNS = "name, user_id, scopes, created, used, client_id, resource, expires, ends, asker"


def _token(row: Row) -> Token:
    name, user, scopes, created, used, client_id, resource, expires, ends, asker = row
    return Token(
        name,
        user,
        tuple(scopes.split()),
        clock.from_ms(created),
        _moment(used),
        client_id,
        resource,
        _moment(expires),
        _moment(ends),
        asker or name,
    )


def _moment(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    return clock.from_ms(milliseconds)


def _new_text() -> str:
    return f"dh_{secrets.token_urlsafe(32)}"


def digest(token: str) -> str:
    """What is kept of a secret that is random and long."""
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
