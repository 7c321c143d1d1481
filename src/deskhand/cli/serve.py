"""`deskhand mcp` and `deskhand up`: what runs until it is stopped."""

import argparse
import json
import sys
import threading
import webbrowser
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any

from deskhand import environment
from deskhand.cli.parts import command, opened_desk
from deskhand.files import open_private

if TYPE_CHECKING:
    from pathlib import Path
    from socket import socket
    from typing import TextIO

    from deskhand.app import Desk
    from deskhand.config import Settings
    from deskhand.resident.lock import DeskLock

SERVERS = {
    "agentmail": "agentmail_server",
    "desk": "desk_server",
    "email": "email_server",
    "gmail": "gmail_server",
    "obsidian": "obsidian_server",
    "tasks": "tasks_server",
}
"""Each MCP server: its module under deskhand.servers and the function there that makes it from a desk."""
LARGEST_LOG = 10_000_000


def add_to(commands: Any) -> None:
    mcp = command(commands, "mcp", _mcp, "serve MCP on stdio, or with --http on 127.0.0.1")
    mcp.add_argument("server", choices=SERVERS, help="which server")
    mcp.add_argument("--http", action="store_true", help="speak Streamable HTTP at /mcp; wants a bearer token")
    mcp.add_argument("--port", type=int, help="port for --http (default MCP_SERVER_PORT, 3000); 0 takes a free one")
    mcp.add_argument("--scope", action="append", help="open no more than this, e.g. mail:read (default: everything)")

    up = command(commands, "up", _up, "start the whole desk: page, MCP endpoints, orchestrator", json=True)
    up.add_argument(
        "--port", type=int, help="port (default inbox.port, 8642; with --demo a free one); 0 takes a free one"
    )
    up.add_argument("--no-browser", action="store_true", help="print the address and open no browser")
    up.add_argument("--demo", action="store_true", help="on a throwaway desk with mail, notes, tasks and two agents")


def _mcp(options: argparse.Namespace) -> None:
    import anyio

    from deskhand import log

    with opened_desk(env_file=options.server == "tasks") as desk:
        log.configure(desk.settings.log_level)
        make = getattr(import_module(f"deskhand.servers.{options.server}"), SERVERS[options.server])
        port = desk.settings.port if options.port is None else options.port
        server = make(desk, desk.token()) if options.http else make(desk)
        if options.scope:
            server.narrow(options.scope)

        async def serve() -> None:
            try:
                await (server.run_http_async(port) if options.http else server.run_stdio_async())
            finally:
                await desk.close_mailbox()

        anyio.run(serve)


def _up(options: argparse.Namespace) -> None:
    import asyncio
    import time

    began = time.perf_counter()
    with ExitStack() as stack:
        _say("starting the desk")
        from deskhand import log
        from deskhand.resident.lock import RunningDesk, acquire

        settings = _settings(stack, demo=options.demo)
        log.configure(settings.log_level, stack.enter_context(_log_file(settings.home)))
        match acquire(settings.home):
            case RunningDesk() as first:
                _say(f"this desk runs already, as process {first.pid}; no second one is started")
                return asyncio.run(_linked(settings, first.address, options))
            case lock:
                stack.enter_context(lock)
        with _listening(options, settings) as listener:
            asyncio.run(_run(settings, listener, lock, options, began))
    return None


def _settings(stack: "ExitStack", *, demo: bool) -> "Settings":
    """The demo's own alone, or the person's."""
    from deskhand.config import load

    if not demo:
        return load().settings
    from deskhand.resident.demo import folder

    home = stack.enter_context(folder())
    return load({"DESKHAND_HOME": str(home)}).settings


def _log_file(home: "Path") -> "TextIO":
    """The terminal is the person's; what the parts have to say lies beside the database."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = home / "desk.log"
    if file.exists() and file.stat().st_size > LARGEST_LOG:
        file.replace(home / "desk.log.1")
    _say(f"the log is {file}")
    return open(file, "a", encoding="utf-8", opener=open_private)  # Path.open has no opener


def _listening(options: argparse.Namespace, settings: "Settings") -> "socket":
    from deskhand.listen import open_port

    default = 0 if options.demo else settings.inbox_port
    return open_port(default if options.port is None else options.port)


async def _run(
    settings: "Settings", listener: "socket", lock: "DeskLock", options: argparse.Namespace, began: float
) -> None:
    import time

    from deskhand.app import Desk
    from deskhand.resident.demo import furnish
    from deskhand.resident.up import up

    port = listener.getsockname()[1]
    # What was approved leaves through the desk's own door: no second process, and nothing of the environment.
    own = {"gmail_server": settings.gmail_server or f"http://127.0.0.1:{port}/gmail/mcp"}
    desk = Desk(settings.model_copy(update=own))

    async def ready(address: str) -> None:
        lock.tell(port)
        if options.demo:
            _say(f"another terminal uses the same desk with DESKHAND_HOME={settings.home}")
        _say(f"ready after {time.perf_counter() - began:.1f} s; Ctrl-C ends it")
        await _tell(desk, address, options)

    try:
        if options.demo:
            await furnish(desk, _say)
        await up(desk, listener, say=_say, ready=ready, demo=options.demo)
    finally:
        desk.close()


async def _linked(settings: "Settings", address: str, options: argparse.Namespace) -> None:
    from deskhand.app import Desk

    options.no_browser = True
    desk = Desk(settings)
    try:
        await _tell(desk, address, options)
    finally:
        desk.close()


async def _tell(desk: "Desk", address: str, options: argparse.Namespace) -> None:
    """The one line for the person: the address that signs them in."""
    from deskhand.web.sessions import link

    found = await link(desk, address)
    told = {"link": found, "address": address, "home": str(desk.settings.home)}
    print(json.dumps(told) if options.json else f"open {found}", flush=True)
    if not options.no_browser and _has_display():
        threading.Thread(target=webbrowser.open, args=[found], daemon=True).start()


def _has_display() -> bool:
    """Without one a text browser would take over this very terminal."""
    known = environment.variables()
    return sys.platform in ("darwin", "win32") or "DISPLAY" in known or "WAYLAND_DISPLAY" in known


def _say(text: str) -> None:
    print(f"· {text}", file=sys.stderr, flush=True)
