"""`deskhand tasks` and `tasks-api`: tasks to and from a file, and their backend."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deskhand.cli.command import at_desk, command, group, opened_desk, tell
from deskhand.errors import BadConfig, InvalidInput
from deskhand.files import write_atomically

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


def _api(options: argparse.Namespace) -> None:
    import anyio

    from deskhand import log
    from deskhand.listen import serve_http

    with opened_desk(env_file=True) as desk:
        log.configure(desk.settings.log_level)
        anyio.run(serve_http, desk.tasks_api(desk.token()), options.port, "/tasks")


def _export(options: argparse.Namespace) -> None:
    export = partial(_call, method="GET", path="/tasks/export")
    content = str(at_desk(export, env_file=True)).encode()
    if options.file == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        _write(Path(options.file), content)


def _import(options: argparse.Namespace) -> int:
    take = partial(_call, method="POST", path="/tasks/import", body=_read(options.file))
    done = at_desk(take, env_file=True)
    text = f"{done['imported']:,} tasks imported, {done['already_there']:,} were already there"
    if done["left_out"]:
        text += f", {done['left_out']:,} left out (no tasks, or cancelled)"
    for each in done["problems"]:
        what = "not quite as it stands there" if each["imported"] else "not imported"
        print(f"line {each['line']}: {each['title']!r} {what}: {each['message']}", file=sys.stderr)
    tell(options, done, text)
    return int(any(not each["imported"] for each in done["problems"]))


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}", hint="name an .ics file, or -") from error


async def _call(desk: "Desk", method: str, path: str, body: bytes | None = None) -> Any:
    if desk.settings.user is None:
        raise BadConfig("nobody says whose tasks these are", hint="`deskhand init --user NAME --yes`; any name will do")
    return await desk.tasks.call(desk.settings.user, method, path, body=body, actor="tasks_cli")


def _write(file: Path, content: bytes) -> None:
    """An export that fails leaves the last one as it was."""
    try:
        write_atomically(file, content, mode=None)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written: {error.strerror}", hint="name another place") from error
