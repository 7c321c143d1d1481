"""`deskhand connect`: makes the desk known to an assistant's program, and takes that back."""

import argparse
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from deskhand import environment
from deskhand.cli.command import (
    Suggested,
    command,
    confirm,
    flag,
    opened_desk,
    shell_variables,
    tell,
)
from deskhand.errors import DeskError, InvalidInput, NotFound, Unavailable, printable
from deskhand.listen import why_taken
from deskhand.running import find
from deskhand.servers import SERVERS, ServerKind, guarded_kind
from deskhand.setup.clients import (
    CLIENTS,
    Address,
    Client,
    Program,
    entry,
    file_of,
    this_program,
)

if TYPE_CHECKING:
    from deskhand.app import Desk
    from deskhand.setup.connect import ClientPlan

CLAUDE_HOOK = "claude-hook"
WITH_AGENTS = ("desk", "agentmail")
"""The servers through which an assistant writes to the person and to other agents."""
_HEADLESS = "Without a terminal, add: claude -p --permission-prompt-tool mcp__deskhand-claude__permission_prompt"


def add_to(commands: Any) -> None:
    made = command(
        commands,
        "connect",
        _connect,
        "make the desk known to an assistant's program",
        json=True,
    )
    made.add_argument("client", choices=CLIENTS, help="which program")
    made.add_argument(
        "--server",
        metavar="NAME",
        choices=Suggested(SERVERS),
        default="desk",
        help=f"{', '.join(SERVERS)}, or one of `deskhand guard list` (default desk)",
    )
    flag(
        made,
        "--permissions",
        "claude-code only: ask on the desk's page before it uses a tool of its own",
    )
    flag(made, "--http", "to the running desk, with a token of its own")
    flag(made, "--print", "show what to put where; change nothing")
    flag(made, "--undo", "put back what was there before")
    flag(made, "--yes", "do not ask")
    hook = command(
        commands,
        CLAUDE_HOOK,
        _answer_hook,
        "answer a hook of Claude Code, see `connect --permissions`",
    )
    hook.add_argument(
        "--wait",
        type=float,
        default=50,
        help="seconds for the person to answer, at most 50 (default)",
    )


def _answer_hook(options: argparse.Namespace) -> int:
    from deskhand.hook import main

    return main(options.wait)


def _connect(options: argparse.Namespace) -> int:
    from deskhand.config import load
    from deskhand.setup.connect import entry_name

    client = CLIENTS[options.client]
    if options.permissions:
        if client.name != "claude-code":
            raise InvalidInput(
                "--permissions is for claude-code alone",
                hint=f"{client.title} asks by itself",
            )
        options.server = "claude"
    name = entry_name(options.server)
    loaded = load()
    with opened_desk(loaded.settings) as desk:
        if not options.undo:
            _find_kind(desk, options.server)
        if options.print:
            return _print(desk, client, name, options)
        if options.undo:
            return _undo(desk, client, name, options)
        if names := shell_variables(loaded.sources):
            note = f"note: {', '.join(names)} is set in this shell only; the client reads config.toml (`deskhand init`)"
            print(note, file=sys.stderr)
        return _write(desk, client, name, options)


def _print(desk: "Desk", client: Client, name: str, options: argparse.Namespace) -> int:
    from deskhand.setup.connect import own_command, snippet

    server = _server(desk, options, "TOKEN")
    file = file_of(client, environment.variables())
    shown = snippet(client, name, entry(client, name, server))
    own = own_command(client, name, server)
    text = f"{client.title} keeps its servers in {file}:\n\n{shown}"
    if options.http:
        text += (
            f"\n\nTOKEN is what `deskhand token create --name {client.name}-{name}` prints."
        )
    if own:
        text += f"\n\nor with its own command:\n\n{own}"
    facts = {"client": client.name, "file": str(file), "entry": shown, "command": own}
    if options.permissions:
        from deskhand.setup import claude_hooks

        facts["hooks"] = claude_hooks.snippet(_hook(desk))
        place = claude_hooks.settings_file(environment.variables())
        text += f"\n\nand its hooks in {place}:\n\n{facts['hooks']}\n\n{_HEADLESS}"
    tell(options, facts, text)
    return 0


def _write(desk: "Desk", client: Client, name: str, options: argparse.Namespace) -> int:
    from deskhand.setup.connect import connect, plan_entry

    file = file_of(client, environment.variables())
    plan = plan_entry(client, file, name, _server(desk, options, "TOKEN"))
    hooks = _plan_hooks(desk, options)
    if not plan.changes and not (hooks and hooks.changes):
        return _say(plan, options, "connected already; nothing was changed", changed=False)
    for each in filter(None, (plan, hooks)):
        _show(each, options)
    if not confirm("Write this?", yes=options.yes):
        return _say(plan, options, "nothing was changed", changed=False)
    if hooks is not None:
        connect(desk.settings.home, hooks, None, desk.now())
    token_name = None
    if options.http:
        token_name = f"{client.name}-{name}"
        plan = plan_entry(
            client, file, name, _server(desk, options, _fresh_token(desk, token_name))
        )
    try:
        made = connect(desk.settings.home, plan, token_name, desk.now())
    except DeskError:
        if token_name:
            _revoke(desk, token_name)
        raise
    text = f"{client.title} knows the desk as {name}; restart it"
    if made.backup:
        text += f"; what was there is in {made.backup}"
    return _say(
        plan, options, "\n".join([text, *_list_notes(client, options)]), changed=True
    )


def _list_notes(client: Client, options: argparse.Namespace) -> list[str]:
    """What the person has to know of it afterwards."""
    notes: list[str] = []
    if client.note:
        notes.append(f"{client.title}: {client.note}")
    if options.permissions:
        notes.append(
            f"It asks on the desk's page before it uses a tool of its own. {_HEADLESS}"
        )
    return notes


def _plan_hooks(desk: "Desk", options: argparse.Namespace) -> "ClientPlan | None":
    from deskhand.setup import claude_hooks

    if not options.permissions:
        return None
    return claude_hooks.plan_hooks(
        claude_hooks.settings_file(environment.variables()), _hook(desk)
    )


def _hook(desk: "Desk") -> Program:
    return this_program(desk.settings.home, CLAUDE_HOOK)


def _undo(desk: "Desk", client: Client, name: str, options: argparse.Namespace) -> int:
    from deskhand.setup.connect import disconnect, plan_undo

    home = desk.settings.home
    plan = plan_undo(home, client, file_of(client, environment.variables()), name)
    hooks = None
    if options.permissions:
        from deskhand.setup import claude_hooks

        hooks = claude_hooks.plan_undo(
            home, claude_hooks.settings_file(environment.variables())
        )
    for each in filter(None, (plan, hooks)):
        _show(each, options)
    if not confirm("Take this out?", yes=options.yes):
        return _say(plan, options, "nothing was changed", changed=False)
    if hooks is not None:
        disconnect(home, hooks, desk.now())
    known = disconnect(home, plan, desk.now())
    if known is not None and known.token is not None:
        _revoke(desk, known.token)
    return _say(plan, options, f"{client.title} no longer knows {name}", changed=True)


def _server(desk: "Desk", options: argparse.Namespace, token: str) -> Program | Address:
    if not options.http:
        agent = options.client if options.server in WITH_AGENTS else None
        return this_program(desk.settings.home, "mcp", options.server, agent=agent)
    path = _find_kind(desk, options.server).path
    return Address(f"http://127.0.0.1:{_find_port(desk)}{path}", token)


def _find_port(desk: "Desk") -> int:
    """Where this desk listens, or will; whoever else listens there would get the token."""
    if running := find(desk.settings.home):
        return running.port
    port = desk.settings.inbox_port
    if why_taken(port) is None:
        return port
    raise Unavailable(
        f"This desk does not run, and another program answers at 127.0.0.1:{port}; it would get the token.",
        hint="Set `inbox.port` (DESKHAND_PORT) to another port, start the desk with `deskhand up`, and connect again.",
    )


def _find_kind(desk: "Desk", name: str) -> ServerKind:
    """The server of this name: one of the desk's own, or one behind the gate."""
    if name in SERVERS:
        return SERVERS[name]
    if name not in desk.foreign.entries:
        known = ", ".join([*SERVERS, *desk.foreign.entries])
        raise NotFound(
            f"There is no server {printable(name, 60)}.",
            hint=f"The servers are {known}; `deskhand guard add` puts another one behind the gate.",
        )
    return guarded_kind(name)


def _fresh_token(desk: "Desk", name: str) -> str:
    """A new token of that name; the one of an earlier connection is worthless from now on."""
    from deskhand import tokens

    _revoke(desk, name)
    return desk.store.write_sync(
        partial(tokens.create, name=name, now=desk.now(), user=desk.settings.user)
    )


def _revoke(desk: "Desk", name: str) -> None:
    from deskhand import tokens

    with suppress(NotFound):
        desk.store.write_sync(partial(tokens.revoke, name=name))


def _show(plan: "ClientPlan", options: argparse.Namespace) -> None:
    if not options.json:
        print(f"{plan.file}\n{plan.difference}")


def _say(
    plan: "ClientPlan", options: argparse.Namespace, text: str, *, changed: bool
) -> int:
    facts = {
        "client": plan.client.name,
        "name": plan.name,
        "file": str(plan.file),
        "changed": changed,
        "says": text,
        "difference": plan.difference,
    }
    tell(options, facts, text)
    return 0
