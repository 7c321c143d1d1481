"""`deskhand tasks-api` and `deskhand token`: the tasks backend, and its users' own tokens."""

import argparse
import json
from typing import Any

from deskhand.cli.parts import command, group, opened_desk

PORT = 8000


def add_to(commands: Any) -> None:
    api = command(commands, "tasks-api", _api, "serve the tasks backend (REST) on 127.0.0.1")
    api.add_argument("--port", type=int, default=PORT, help=f"port (default {PORT}); 0 takes a free one")

    token = group(commands, "token", "users' own bearer tokens for the tasks backend and server")
    create = command(token, "create", _create, "make a token; it is shown once", json=True)
    create.add_argument("user", help="the user id it stands for")
    create.add_argument("--name", help="by which it is listed and revoked (default: the user id)")
    command(token, "list", _list, "the tokens there are, without their secrets", json=True)
    revoke = command(token, "revoke", _revoke, "make a token worthless")
    revoke.add_argument("name")


def _api(options: argparse.Namespace) -> None:
    import anyio

    from deskhand import log
    from deskhand.listen import serve_http

    with opened_desk(env_file=True) as desk:
        log.configure(desk.settings.log_level)
        anyio.run(serve_http, desk.tasks_api(desk.token()), options.port, "/tasks")


def _create(options: argparse.Namespace) -> None:
    from deskhand import tokens

    name = options.name or options.user
    with opened_desk() as desk:
        made = desk.store.run(lambda tx: tokens.create(tx, options.user, name, desk.now()))
    print(json.dumps({"name": name, "user_id": options.user, "token": made}) if options.json else made)


def _list(options: argparse.Namespace) -> None:
    from deskhand import tokens

    with opened_desk() as desk:
        found = desk.store.run(tokens.kept)
    for each in found:
        at = each.created.isoformat()
        line = f"{each.name}  {each.user_id}  {each.scopes}  {at}"
        print(json.dumps(each._asdict() | {"created": at}) if options.json else line)


def _revoke(options: argparse.Namespace) -> None:
    from deskhand import tokens

    with opened_desk() as desk:
        desk.store.run(lambda tx: tokens.revoke(tx, options.name))
    print(f"the token {options.name} is worthless now")
