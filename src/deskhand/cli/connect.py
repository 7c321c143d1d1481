"""`deskhand connect`: makes the desk known to an assistant's program, and takes that back."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from deskhand import environment as places
from deskhand.cli.parts import agreed, command
from deskhand.errors import DeskError, NotFound
from deskhand.servers import SERVERS
from deskhand.setup.clients import CLIENTS, Address, Client, Program, file_of, this_program

if TYPE_CHECKING:
    from deskhand.app import Desk
    from deskhand.setup.connect import Plan


def add_to(commands: Any) -> None:
    made = command(commands, "connect", _connect, "make the desk known to an assistant's program", json=True)
    made.add_argument("client", choices=CLIENTS, help="which program")
    made.add_argument("--server", choices=SERVERS, default="desk", help="which server of the desk (default desk)")
    made.add_argument("--http", action="store_true", help="to the running desk, with a token of its own")
    made.add_argument("--print", action="store_true", help="show what to put where; change nothing")
    made.add_argument("--undo", action="store_true", help="put back what was there before")
    made.add_argument("--yes", action="store_true", help="do not ask")


def _connect(options: argparse.Namespace) -> int:
    from deskhand.app import Desk
    from deskhand.config import load
    from deskhand.setup.connect import entry_name

    client, name = CLIENTS[options.client], entry_name(options.server)
    loaded = load()
    desk = Desk(loaded.settings)
    try:
        if options.print:
            return _print(desk, client, name, options)
        if options.undo:
            return _undo(desk, client, name, options)
        for note in _left_behind(loaded.sources):
            print(note, file=sys.stderr)
        return _write(desk, client, name, options)
    finally:
        desk.close()


def _print(desk: "Desk", client: Client, name: str, options: argparse.Namespace) -> int:
    from deskhand.setup.connect import own_command, snippet

    server = _server(desk, options, "TOKEN")
    file, text = file_of(client, places.variables()), snippet(client, name, server)
    own = own_command(client, name, server)
    if options.json:
        print(json.dumps({"client": client.name, "file": str(file), "entry": text, "command": own}))
        return 0
    print(f"{client.title} keeps its servers in {file}:\n\n{text}")
    if options.http:
        print(f"\nTOKEN is what `deskhand token create --name {client.name}-{name}` prints.")
    if own:
        print(f"\nor with its own command:\n\n{own}")
    return 0


def _write(desk: "Desk", client: Client, name: str, options: argparse.Namespace) -> int:
    from deskhand.setup.connect import connect, planned

    file = file_of(client, places.variables())
    plan = planned(client, file, name, _server(desk, options, "TOKEN"))
    if not plan.changes:
        return _say(plan, options, "connected already; nothing was changed", changed=False)
    _show(plan, options)
    if not agreed(f"Write this to {file}?", yes=options.yes):
        return _say(plan, options, "nothing was changed", changed=False)
    token_name = f"{client.name}-{name}" if options.http else None
    if token_name:
        plan = planned(client, file, name, _server(desk, options, _fresh_token(desk, token_name)))
    try:
        made = connect(desk.settings.home, plan, token_name, desk.now())
    except DeskError:
        if token_name:
            _revoke(desk, token_name)
        raise
    kept = f"; what was there is in {made.backup}" if made.backup else ""
    return _say(plan, options, f"{client.title} knows the desk as {name}; restart it{kept}", changed=True)


def _undo(desk: "Desk", client: Client, name: str, options: argparse.Namespace) -> int:
    from deskhand.setup.connect import disconnect, planned_undo

    plan = planned_undo(desk.settings.home, client, file_of(client, places.variables()), name)
    _show(plan, options)
    if not agreed(f"Take this out of {plan.file}?", yes=options.yes):
        return _say(plan, options, "nothing was changed", changed=False)
    known = disconnect(desk.settings.home, plan, desk.now())
    if known is not None and known.token is not None:
        _revoke(desk, known.token)
    return _say(plan, options, f"{client.title} no longer knows {name}", changed=True)


def _server(desk: "Desk", options: argparse.Namespace, token: str) -> Program | Address:
    if not options.http:
        return this_program(desk.settings.home, options.server)
    path = "mcp" if options.server == "desk" else f"{options.server}/mcp"
    return Address(f"http://127.0.0.1:{desk.settings.inbox_port}/{path}", token)


def _fresh_token(desk: "Desk", name: str) -> str:
    """A new token of that name; the one of an earlier connection is worthless from now on."""
    from deskhand import tokens

    _revoke(desk, name)
    return desk.store.write_sync(lambda tx: tokens.create(tx, name, desk.now(), user=desk.settings.user))


def _revoke(desk: "Desk", name: str) -> None:
    from contextlib import suppress

    from deskhand import tokens

    with suppress(NotFound):
        desk.store.write_sync(lambda tx: tokens.revoke(tx, name))


def _left_behind(sources: Any) -> list[str]:
    """A client starts the desk without this shell's variables."""
    from deskhand.config import OPTIONS

    here = {"home", "tmux", "tmux_pane", "log_level"}
    names = [OPTIONS[name].variable for name, source in sources.items() if source == "environment" and name not in here]
    if not names:
        return []
    return [f"note: {', '.join(names)} is set in this shell only; the client reads config.toml (`deskhand init`)"]


def _show(plan: "Plan", options: argparse.Namespace) -> None:
    if not options.json:
        print(f"{plan.file}\n{plan.difference}")


def _say(plan: "Plan", options: argparse.Namespace, text: str, *, changed: bool) -> int:
    facts = {"client": plan.client.name, "name": plan.name, "file": str(plan.file), "changed": changed, "says": text}
    print(json.dumps(facts | {"difference": plan.difference}) if options.json else text)
    return 0
