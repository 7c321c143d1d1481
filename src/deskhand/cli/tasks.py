"""`deskhand tasks`, `tasks-api` and `token`: tasks to and from a file, their backend, and its users' own tokens."""

import argparse
import json
import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deskhand.cli.parts import command, group, opened_desk
from deskhand.errors import BadConfig, InvalidInput

if TYPE_CHECKING:
    from deskhand.app import Desk

PORT = 8000


def add_to(commands: Any) -> None:
    api = command(commands, "tasks-api", _api, "serve the tasks backend (REST) on 127.0.0.1")
    api.add_argument("--port", type=int, default=PORT, help=f"port (default {PORT}); 0 takes a free one")

    tasks = group(commands, "tasks", "the user's tasks as an iCalendar file (VTODO)")
    export = command(tasks, "export", _export, "write all of the user's tasks as an iCalendar file")
    export.add_argument("file", nargs="?", default="-", help="where to (default: -, the standard output)")
    taken = command(tasks, "import", _import, "take the tasks of an iCalendar file that are not here yet", json=True)
    taken.add_argument("file", help="an .ics file, or - for the standard input")

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


def _export(options: argparse.Namespace) -> None:
    import anyio

    with opened_desk(env_file=True) as desk:
        content = str(anyio.run(_asked, desk, "GET", "/tasks/export", None)).encode()
    if options.file == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        _write(Path(options.file), content)


def _import(options: argparse.Namespace) -> None:
    import anyio

    try:
        content = sys.stdin.buffer.read() if options.file == "-" else Path(options.file).read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"{options.file} cannot be read: {error.strerror}", hint="name an .ics file, or -"
        ) from error
    with opened_desk(env_file=True) as desk:
        done = anyio.run(_asked, desk, "POST", "/tasks/import", content)
    if options.json:
        print(json.dumps(done))
    else:
        left_out = f", {done['left_out']:,} left out (no tasks, or cancelled)" if done["left_out"] else ""
        print(f"{done['imported']:,} tasks imported, {done['already_there']:,} were already there{left_out}")


async def _asked(desk: "Desk", method: str, path: str, body: bytes | None) -> Any:
    if desk.settings.user is None:
        raise BadConfig("nobody says whose tasks these are", hint="set DESKHAND_USER to the user's id")
    try:
        return await desk.tasks.call(desk.settings.user, method, path, body=body, actor="tasks_cli")
    finally:
        await desk.leave_tasks()


def _write(file: Path, content: bytes) -> None:
    """Beside its place, then swapped in: an export that fails leaves the last one as it was."""
    beside = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        with beside.open("xb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        beside.replace(file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InvalidInput(f"{file} cannot be written: {error.strerror}", hint="name another place") from error


def _create(options: argparse.Namespace) -> None:
    from deskhand.tasks import tokens
    from deskhand.tasks.due import utc_text

    name = options.name or options.user
    with opened_desk() as desk:
        made = desk.store.run(lambda tx: tokens.create(tx, options.user, name, utc_text(desk.now())))
    print(json.dumps({"name": name, "user_id": options.user, "token": made}) if options.json else made)


def _list(options: argparse.Namespace) -> None:
    from deskhand.tasks import tokens

    with opened_desk() as desk:
        found = desk.store.run(tokens.kept)
    for each in found:
        print(json.dumps(each._asdict()) if options.json else f"{each.name}  {each.user_id}  {each.created_at}")


def _revoke(options: argparse.Namespace) -> None:
    from deskhand.tasks import tokens

    with opened_desk() as desk:
        desk.store.run(lambda tx: tokens.revoke(tx, options.name))
    print(f"the token {options.name} is worthless now")
