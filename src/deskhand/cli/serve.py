"""`deskhand mcp` and `deskhand up`: what runs until it is stopped."""

import argparse
from importlib import import_module
from typing import Any

from deskhand.cli.parts import command, opened_desk

SERVERS = {
    "agentmail": "agentmail_server",
    "desk": "desk_server",
    "email": "email_server",
    "gmail": "gmail_server",
    "obsidian": "obsidian_server",
    "tasks": "tasks_server",
}
"""Each MCP server: its module under deskhand.servers and the function there that makes it from a desk."""


def add_to(commands: Any) -> None:
    mcp = command(commands, "mcp", _mcp, "serve MCP on stdio, or with --http on 127.0.0.1")
    mcp.add_argument("server", choices=SERVERS, help="which server")
    mcp.add_argument("--http", action="store_true", help="speak Streamable HTTP at /mcp; wants a bearer token")
    mcp.add_argument("--port", type=int, help="port for --http (default MCP_SERVER_PORT, 3000); 0 takes a free one")
    mcp.add_argument("--scope", action="append", help="open no more than this, e.g. mail:read (default: everything)")

    up = command(commands, "up", _up, "start the whole desk (for now: says what there is)")
    up.add_argument("--demo", action="store_true", help="on a throwaway desk")


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
    del options
    print("The page is not there yet. What the desk can do today:")
    print(f"  python3 run.py mcp NAME         an MCP server for any client: {', '.join(SERVERS)}")
    print("  python3 run.py orchestrate      mail in, drafts out, what you approved is sent")
    print("  python3 run.py --help           everything else; the README says what to set")
