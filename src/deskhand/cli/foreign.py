"""`deskhand guard`: other MCP servers behind the gate."""

import argparse
import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deskhand.cli.command import (
    ask_secret,
    command,
    confirm,
    flag,
    group,
    one_line,
    opened_desk,
    tell,
)
from deskhand.errors import BadConfig, DeskError, InvalidInput
from deskhand.setup.clients import CLIENTS

if TYPE_CHECKING:
    from deskhand.foreign.definitions import Definitions
    from deskhand.foreign.rules import ServerEntry
    from deskhand.foreign.session import ForeignServer


def add_to(commands: Any) -> None:
    guard = group(
        commands,
        "guard",
        "other MCP servers behind the gate: their tools are called as your rules say",
    )
    _add_add(guard)
    command(guard, "list", _list, "the servers behind the gate", json=True)
    show = command(
        guard,
        "show",
        _show,
        "a server, its rules, and what you have seen of its tools",
        json=True,
    )
    test = command(
        guard,
        "test",
        _test,
        "start a server and list its tools with their rules; calls nothing",
        json=True,
    )
    remove = command(
        guard, "remove", _remove, "take a server out, with its rules and secrets"
    )
    review = command(
        guard,
        "review",
        _review,
        "look at what changed in a server's tools, and open them again",
    )
    flag(review, "--yes", "do not ask")
    secret = command(guard, "secret", _secret, "keep a secret that a server needs")
    for each in (show, test, remove, review, secret):
        each.add_argument("name", metavar="NAME", help="the server's name")
    secret.add_argument(
        "key", metavar="KEY", help="its variable, or AUTHORIZATION for the header to a URL"
    )
    taken = command(
        guard, "import", _import, "take over the servers that a client's own file names"
    )
    taken.add_argument("client", choices=CLIENTS, help="which program")
    flag(taken, "--undo", "put back what was there before")
    flag(taken, "--yes", "do not ask")


def _add_add(guard: Any) -> None:
    add = command(
        guard,
        "add",
        _add,
        "put a server behind the gate: NAME -- COMMAND…, or NAME --url URL",
        json=True,
    )
    add.add_argument("name", metavar="NAME", help="the server's name")
    behind = add.add_argument(
        "command", metavar="COMMAND", nargs="+", help="how it is started, behind --"
    )
    # With "*" Python 3.11 takes it for empty where an option stands between the name and the command.
    behind.required = False
    behind.default = []
    add.add_argument("--url", help="where it answers, instead of a command")
    add.add_argument(
        "--env",
        action="append",
        metavar="KEY",
        help="a secret that it needs; you are asked for it",
    )
    flag(add, "--on-desk", "its tools are on the whole-desk server too, as NAME_tool")


def _add(options: argparse.Namespace) -> None:
    from pydantic import ValidationError

    from deskhand.foreign import definitions, writing
    from deskhand.foreign.rules import ServerEntry
    from deskhand.foreign.session import secret_name
    from deskhand.mail import credentials

    given = {
        "command": _resolve(options.command) or None,
        "url": options.url,
        "env": options.env or [],
    }
    try:
        entry = ServerEntry.model_validate(given | {"on_desk": options.on_desk})
    except ValidationError as error:
        raise InvalidInput(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
    home = _home()
    writing.demand_free(home, options.name)
    for variable in entry.env:
        credentials.keep(
            home, secret_name(options.name, variable), ask_secret(f"{variable}: ")
        )
    try:
        seen = asyncio.run(_look(home, options.name, entry))
    except DeskError:
        for variable in entry.env:
            credentials.forget(home, secret_name(options.name, variable))
        raise
    definitions.pin(home, options.name, seen)
    writing.add(home, options.name, entry)
    lines = [
        f"{options.name} is behind the gate; {len(seen)} tools, each call of one is asked until a rule says else"
    ]
    tell(
        options,
        {"name": options.name, "tools": sorted(seen)},
        "\n".join([*lines, *_describe(entry, seen), _tell_next(options.name)]),
    )


def _tell_next(name: str) -> str:
    return (
        f"next: `deskhand connect CLIENT --server {name}` gives it to an assistant; or it has its tools beside the"
        " desk's own where guard.toml says `on_desk = true` for it"
    )


def _resolve(words: list[str]) -> list[str]:
    """The command as it can be started from any folder."""
    if words and "/" in words[0]:
        return [str(Path(words[0]).absolute()), *words[1:]]
    return words


def _list(options: argparse.Namespace) -> None:
    from deskhand.foreign.rules import read_servers

    found = read_servers(_home())
    for name, entry in found.items():
        how = entry.url or shlex.join(entry.command or [])
        tell(
            options,
            {"name": name, "rules": len(entry.rules), "starts": how},
            one_line(f"{name}  {how}"),
        )
    if not found and not options.json:
        print("There is no other server behind the gate.")


def _show(options: argparse.Namespace) -> None:
    from deskhand.foreign import definitions, writing

    entry = writing.demand_known(_home(), options.name)
    seen = definitions.read_pins(_home(), options.name) or {}
    facts = {
        "name": options.name,
        "entry": entry.model_dump(exclude_none=True),
        "tools": _facts(entry, seen),
    }
    how = one_line(f"{options.name}: {entry.url or shlex.join(entry.command or [])}")
    tell(options, facts, "\n".join([how, *_describe(entry, seen)]))


def _test(options: argparse.Namespace) -> None:
    from deskhand.foreign import writing

    home = _home()
    entry = writing.demand_known(home, options.name)
    seen = asyncio.run(_look(home, options.name, entry))
    closed = _find_closed(home, options.name, seen)
    facts = {"name": options.name, "tools": _facts(entry, seen), "closed": closed}
    lines = _describe(entry, seen)
    if closed:
        lines.append(
            one_line(
                f"closed until `deskhand guard review {options.name}`: {', '.join(closed)}"
            )
        )
    tell(options, facts, "\n".join(lines))


def _remove(options: argparse.Namespace) -> None:
    from deskhand.foreign import writing

    writing.remove(_home(), options.name)
    print(f"{options.name} is no longer behind the gate.")


def _find_closed(home: Path, name: str, seen: "Definitions") -> list[str]:
    """What is closed in the server as it starts now, and in the one that runs."""
    from deskhand.foreign import definitions

    pinned = definitions.read_pins(home, name)
    if pinned is None:
        return []
    running = definitions.read_running(home, name) or pinned
    find = definitions.find_changed
    return sorted({*find(pinned, seen), *find(pinned, running)})


def _review(options: argparse.Namespace) -> None:
    from deskhand.foreign import definitions, writing

    home = _home()
    entry = writing.demand_known(home, options.name)
    seen = asyncio.run(_look(home, options.name, entry))
    try:
        pinned = definitions.read_pins(home, options.name) or {}
    except BadConfig:  # what was seen cannot be read any more: all of it is looked at anew
        pinned = {}
    changed = definitions.find_changed(pinned, seen)
    if not changed:
        running = definitions.read_running(home, options.name) or seen
        changed = definitions.find_changed(seen, running)
        seen = running
        if changed:
            print("Started anew it is what you have seen. The one that runs says:")
    if not changed:
        definitions.pin(home, options.name, seen)
        print(f"The {len(seen)} tools of {options.name} are what you have seen.")
        return
    for line in definitions.describe_changes(pinned, seen):
        print(one_line(line))
    if confirm(f"Open these {len(changed)} tools as they are now?", yes=options.yes):
        definitions.pin(home, options.name, seen)
        print("They are open.")


def _secret(options: argparse.Namespace) -> None:
    from deskhand.foreign import writing
    from deskhand.foreign.rules import check_variable

    try:
        check_variable(options.key)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    writing.demand_known(_home(), options.name)
    place = writing.add_secret(
        _home(), options.name, options.key, ask_secret(f"{options.key}: ")
    )
    print(f"It is kept in {place}.")


def _import(options: argparse.Namespace) -> None:
    from deskhand.setup import takeover

    home = _home()
    client = CLIENTS[options.client]
    plan = takeover.plan_undo(home, client) if options.undo else takeover.plan(home, client)
    for line in plan.difference.splitlines():
        print(one_line(line))
    for line in plan.left:
        print(one_line(f"left alone: {line}"))
    if confirm(f"Change {plan.file}?", yes=options.yes):
        takeover.carry_out(home, plan)
        names = one_line(", ".join(plan.names))
        print(f"{names}: done; `deskhand guard list` shows what is behind the gate.")


# Together.


def _home() -> Path:
    with opened_desk() as desk:
        return desk.settings.home


async def _look(home: Path, name: str, entry: "ServerEntry") -> "Definitions":
    """What the server says of its tools now."""
    async with _start_server(home, name, entry) as server:
        return server.definitions()


@asynccontextmanager
async def _start_server(
    home: Path, name: str, entry: "ServerEntry"
) -> "AsyncIterator[ForeignServer]":
    from deskhand.foreign.session import ForeignServer

    there = asyncio.Event()
    server = ForeignServer(home, name, entry, _hear_nothing)
    running = asyncio.create_task(server.run(there.set))
    waiting = asyncio.create_task(there.wait())
    try:
        await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield server
    finally:
        waiting.cancel()
        running.cancel()
        with suppress(asyncio.CancelledError, DeskError):
            await running


async def _hear_nothing(name: str, told: object) -> None:
    del name, told


def _facts(entry: "ServerEntry", seen: "Definitions") -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "rule": entry.describe_rule(name),
            "hints": definition.get("annotations", {}),
        }
        for name, definition in seen.items()
    ]


def _describe(entry: "ServerEntry", seen: "Definitions") -> list[str]:
    """A line for each tool; what the server says of itself is a suggestion and no rule."""
    lines = []
    for name, definition in seen.items():
        hint = ""
        if (definition.get("annotations") or {}).get("readOnlyHint"):
            hint = "  (it says that it only reads)"
        lines.append(one_line(f"  {name}: {entry.describe_rule(name)}{hint}"))
    return lines
