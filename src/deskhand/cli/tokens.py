"""`deskhand token`: what lets an assistant in over HTTP, and how far."""

import argparse
import sys
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from deskhand.cli.command import command, group, one_line, opened_desk, say_time, tell
from deskhand.errors import InvalidInput

if TYPE_CHECKING:
    from deskhand.tokens import Token

SCOPES = "mail, notes, tasks, agents or guard, with :read or :write (write includes read; mail:write may propose mail)"


def add_to(commands: Any) -> None:
    token = group(commands, "token", "bearer tokens that let assistants in over HTTP")
    create = command(token, "create", _create, "make a token; it is shown once", json=True)
    create.add_argument(
        "owner",
        metavar="USER",
        nargs="?",
        help="a user of the tasks backend: a token for tasks alone",
    )
    create.add_argument(
        "--name", help="by which it is listed, revoked and named on the record"
    )
    create.add_argument("--user", help="whose tasks it reaches (default: DESKHAND_USER)")
    create.add_argument(
        "--scope", action="append", help=f"what it opens (default: everything): {SCOPES}"
    )
    command(token, "list", _list, "the tokens there are, without their secrets", json=True)
    revoke = command(token, "revoke", _revoke, "make a token worthless")
    revoke.add_argument("name")


def _create(options: argparse.Namespace) -> None:
    from deskhand import tokens

    name = options.name or options.owner
    user = options.user or options.owner
    if name is None:
        raise InvalidInput(
            "the token needs a name", hint="deskhand token create --name codex"
        )
    if options.owner and options.user:
        raise InvalidInput("the user is given twice", hint="give USER or --user, not both")
    default = ("tasks:write",) if options.owner else tokens.EVERYTHING
    scopes = options.scope or default
    with opened_desk() as desk:
        create = partial(tokens.create, name=name, now=desk.now(), user=user, scopes=scopes)
        token = desk.store.write_sync(create)
    tell(
        options,
        {
            "name": name,
            "user_id": user,
            "scopes": tokens.check_scopes(scopes),
            "token": token,
        },
        token,
    )
    if not options.json:
        print(
            "It is shown this once; keep it where its assistant finds it.", file=sys.stderr
        )


def _list(options: argparse.Namespace) -> None:
    from deskhand import tokens

    with opened_desk() as desk:
        found = desk.store.write_sync(tokens.list_tokens)
    for each in found:
        tell(options, _fields(each), _line(each))
    if not found and not options.json:
        print("There are no tokens.")


def _fields(token: "Token") -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in token._asdict().items()
    }


def _line(token: "Token") -> str:
    used = "never used"
    if token.used:
        used = f"last used {say_time(token.used)}"
    if token.ends:
        used += f"  by OAuth for {token.resource}, until {say_time(token.ends)}"
    scopes = ",".join(token.scopes)
    return f"{token.name}  {token.user_id or '-'}  {scopes}  made {say_time(token.created)}  {used}"


def _revoke(options: argparse.Namespace) -> None:
    from deskhand import tokens

    with opened_desk() as desk:
        desk.store.write_sync(partial(tokens.revoke, name=options.name))
    print(f"The token {one_line(options.name)} is revoked: it opens nothing any more.")
