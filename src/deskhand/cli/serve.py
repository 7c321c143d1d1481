"""`deskhand mcp` and `deskhand up`: what runs until it is stopped."""

import argparse
import asyncio
import sys
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from deskhand import environment
from deskhand.cli.browser import open_privately
from deskhand.cli.command import Suggested, command, flag, one_line, opened_desk, run, tell
from deskhand.errors import DeskError, InvalidInput, printable
from deskhand.servers import SERVERS

if TYPE_CHECKING:
    from pathlib import Path
    from socket import socket

    from deskhand.app import Desk
    from deskhand.config import Settings
    from deskhand.orchestrator.first_look import FirstLook
    from deskhand.running import DeskLock
    from deskhand.servers.server import DeskServer

_MAILBOX_SECONDS = 15
"""How long a mailbox may take to say how much unread mail it has."""


def add_to(commands: Any) -> None:
    mcp = command(commands, "mcp", _mcp, "serve MCP on stdio, or with --http on 127.0.0.1")
    own = ", ".join(sorted(SERVERS))
    text = f"which server: {own}, or one of `deskhand guard list`"
    mcp.add_argument("server", metavar="NAME", choices=Suggested(SERVERS), help=text)
    flag(mcp, "--http", "speak Streamable HTTP at /mcp; wants a bearer token")
    mcp.add_argument(
        "--port",
        type=int,
        help="port for --http (default MCP_SERVER_PORT, 3000); 0 takes a free one",
    )
    flag(mcp, "--alone", "serve in this process, also where a desk runs that it could join")
    mcp.add_argument(
        "--scope",
        action="append",
        help="open no more than this, e.g. mail:read (default: everything)",
    )

    up = command(
        commands,
        "up",
        _up,
        "start the whole desk: page, MCP endpoints, orchestrator",
        json=True,
    )
    port = "port (default inbox.port, 8642; with --demo a free one); 0 takes a free one"
    up.add_argument("--port", type=int, help=port)
    flag(up, "--no-browser", "print the address and open no browser")
    flag(up, "--demo", "on a throwaway desk with mail, notes, tasks and two agents")


def _mcp(options: argparse.Namespace) -> None:
    from deskhand.memory import keep_large_blocks, loading

    keep_large_blocks()
    with ExitStack() as stack:
        with loading():
            desk, server = _load(stack, options)

        async def serve(desk: "Desk") -> None:
            if options.http:
                await server.run_http_async(_port(options, desk.settings.port))
            else:
                await server.run_stdio_async()

        run(desk, serve)


def _load(stack: ExitStack, options: argparse.Namespace) -> "tuple[Desk, DeskServer]":
    from deskhand import log
    from deskhand.store import refuse_newer

    desk = stack.enter_context(opened_desk(env_file=options.server == "tasks"))
    refuse_newer(desk.settings.database)
    log.configure(desk.settings.log_level)
    token = desk.token() if options.http else None
    server = _make(desk, options.server, token)
    if options.scope:
        server.narrow(options.scope)
    return desk, server


def _make(desk: "Desk", name: str, token: str | None) -> "DeskServer":
    if name in SERVERS:
        return SERVERS[name].make(desk, token)
    if name not in desk.foreign.entries:
        known = ", ".join([*sorted(SERVERS), *desk.foreign.entries])
        raise InvalidInput(
            f"there is no server {printable(name, 60)}",
            hint=f"the servers are {known}",
        )
    from deskhand.servers.foreign import open_door

    return open_door(desk, name, token)


def _port(options: argparse.Namespace, default: int) -> int:
    if options.port is None:
        return default
    return int(options.port)


def _up(options: argparse.Namespace) -> None:
    began = time.perf_counter()
    with ExitStack() as stack:
        _say("starting the desk")
        from deskhand import log
        from deskhand.listen import open_port
        from deskhand.memory import keep_large_blocks, use_one_arena
        from deskhand.running import RunningDesk, acquire
        from deskhand.store import refuse_newer

        settings = _settings(stack, options)
        refuse_newer(settings.database)
        log.configure(settings.log_level, _log_file(settings.home))
        use_one_arena()
        keep_large_blocks()
        match acquire(settings.home):
            case RunningDesk() as first:
                _say(
                    f"this desk runs already, as process {first.pid}; no second one is started"
                )
                options.no_browser = True
                with opened_desk(settings) as desk:
                    asyncio.run(_tell(desk, first.address, options))
            case lock:
                stack.enter_context(lock)
                default = 0 if options.demo else settings.inbox_port
                listener = stack.enter_context(open_port(_port(options, default)))
                asyncio.run(_run(settings, listener, lock, options, began))


def _settings(stack: "ExitStack", options: argparse.Namespace) -> "Settings":
    """The settings of the person, or those of the demo and nothing else."""
    from deskhand.config import load

    if not options.demo:
        return load().settings
    from deskhand.resident.demo import folder

    home = stack.enter_context(folder())
    given = {"DESKHAND_HOME": str(home)}
    if zone := environment.variables().get("TZ"):
        given["TZ"] = zone  # the machine's clock is nobody's own
    return load(given).settings


def _log_file(home: "Path") -> "Path":
    """Where the parts log to: a file beside the database, since the terminal is the person's."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = home / "desk.log"
    _say(f"the log is {file}")
    return file


async def _run(
    settings: "Settings",
    listener: "socket",
    lock: "DeskLock",
    options: argparse.Namespace,
    began: float,
) -> None:
    from deskhand.resident.demo import fill
    from deskhand.resident.joining import JoiningDoor
    from deskhand.resident.up import up

    port = listener.getsockname()[1]
    # What was approved leaves through the desk's own door: no second process, and nothing of the environment.
    own = {"gmail_server": settings.gmail_server or f"http://127.0.0.1:{port}/gmail/mcp"}

    def announce() -> None:
        lock.announce(port, {part.name: part.why for part in desk.parts.down})

    async def ready(address: str) -> None:
        announce()
        if options.demo:
            _say(f"another terminal uses the same desk with DESKHAND_HOME={settings.home}")
        _say(f"ready after {time.perf_counter() - began:.1f} s; Ctrl-C ends it")
        await _tell(desk, address, options)
        if not options.demo:
            await _ask_first(desk)

    with opened_desk(settings.model_copy(update=own)) as desk:
        if options.demo:
            await fill(desk, _say)
        joining = JoiningDoor(desk, settings)
        await up(
            desk,
            listener,
            joining,
            say=_say,
            ready=ready,
            announce=announce,
            demo=options.demo,
        )


async def _ask_first(desk: "Desk") -> None:
    """Before the first mail is brought in, whether it should be; the desk runs meanwhile, and brings in none."""
    from deskhand.orchestrator import first_look

    looks: list[FirstLook] = []
    if desk.settings.vault_path is not None:
        with suppress(DeskError, TimeoutError):  # what is wrong is said when the desk runs
            async with asyncio.timeout(_MAILBOX_SECONDS):
                looks, _ = await first_look.ask_everywhere(desk)
    for look in looks:
        _say(
            f"{look.question} Answer on the page, or by `deskhand mail bring-in all | new | none`"
        )


async def _tell(desk: "Desk", address: str, options: argparse.Namespace) -> None:
    """Print the link that signs the person in, and open it in a browser; of a guarded desk
    only root is told one."""
    from deskhand.web.sessions import link

    if desk.settings.is_guarded:
        tell(
            options,
            {"address": address, "home": str(desk.settings.home)},
            f"the page is at {address}",
        )
        return
    found = await link(desk, address)
    tell(
        options,
        {"link": found, "address": address, "home": str(desk.settings.home)},
        f"open {found}",
    )
    if not options.no_browser and _has_display():
        threading.Thread(
            target=open_privately, args=[desk.settings.home, found], daemon=True
        ).start()


def _has_display() -> bool:
    """Whether a browser can open a window; without one a text browser would take over this terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    known = environment.variables()
    return "DISPLAY" in known or "WAYLAND_DISPLAY" in known


def _say(text: str) -> None:
    print(one_line(f"· {text}"), file=sys.stderr, flush=True)
