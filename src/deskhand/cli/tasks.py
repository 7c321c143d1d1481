"""`deskhand tasks-api`: the tasks backend."""

import argparse
from typing import Any

from deskhand.cli.parts import command, opened_desk

PORT = 8000


def add_to(commands: Any) -> None:
    api = command(commands, "tasks-api", _api, "serve the tasks backend (REST) on 127.0.0.1")
    api.add_argument("--port", type=int, default=PORT, help=f"port (default {PORT}); 0 takes a free one")


def _api(options: argparse.Namespace) -> None:
    import anyio

    from deskhand import log
    from deskhand.listen import serve_http

    with opened_desk(env_file=True) as desk:
        log.configure(desk.settings.log_level)
        anyio.run(serve_http, desk.tasks_api(desk.token()), options.port, "/tasks")
