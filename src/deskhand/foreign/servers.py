"""All servers behind the gate of one desk: each is started when it is needed, kept, and started again when it died."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

from mcp import MCPError

from deskhand.errors import Denied, DeskError, NotFound, SendFailed, ServerDown, printable
from deskhand.foreign.arguments import write_canonical
from deskhand.foreign.definitions import (
    Definitions,
    digest_of,
    find_changed,
    forget_running,
    keep_running,
    pin_first,
    read_pins,
)
from deskhand.foreign.messages import LONGEST_RESULT
from deskhand.foreign.rules import FILE, GuardRule, ServerEntry, read_servers
from deskhand.foreign.session import ForeignServer, Told
from deskhand.parts import Parts, describe_failure

PATIENCE = 20.0
"""Seconds in which a caller waits for a server that is just starting."""
LOOK = 2.0
"""Seconds between two looks whether `guard.toml` says something else."""
FileState = tuple[int, int, int]
"""Which file it is, when it last changed in any way, and its size. When it was written, anybody can set back."""


class Listener(Protocol):
    async def hear(self, name: str, told: Told) -> None: ...


class Foreign:
    def __init__(self, home: Path, parts: Parts) -> None:
        self._home = home
        self._file = str(home / FILE)
        self._parts = parts
        self._listeners: WeakSet[Listener] = WeakSet()
        self._kept: dict[str, tuple[ForeignServer, asyncio.Task[None]]] = {}
        self._pinned: dict[str, tuple[FileState | None, Definitions]] = {}
        """What is pinned, by the state of its file."""
        self._opened: dict[str, tuple[Definitions, Definitions, frozenset[str]]] = {}
        """Which tools are what the person has seen, by what is listed and what is pinned."""
        self._read: tuple[FileState | None, dict[str, ServerEntry]] = (None, {})
        self._asked: dict[tuple[str, str], set[int]] = {}
        """Of each tool the calls of which the person was asked, as far as this process knows."""
        self._users: dict[str, set[str]] = {}
        """Who asked each server for something since it was started."""

    # What the person wrote down.

    @property
    def entries(self) -> dict[str, ServerEntry]:
        """As `guard.toml` stands now."""
        stamp = _stamp(self._file)
        if stamp is None:
            return {}
        if stamp != self._read[0]:
            self._read = (stamp, read_servers(self._home))
        return self._read[1]

    def entry(self, name: str) -> ServerEntry:
        try:
            return self.entries[name]
        except KeyError:
            hint = "`deskhand guard list` names those that are there"
            raise NotFound(
                f"there is no server {printable(name, 60)} behind the gate", hint=hint
            ) from None

    def rule_for(self, name: str, tool: str, arguments: Mapping[str, Any]) -> GuardRule:
        return self.entry(name).rule_for(tool, arguments)

    def pins(self, server: ForeignServer) -> Definitions:
        stamp = _stamp(server.pin_file)
        kept = self._pinned.get(server.name)
        if stamp is not None and kept is not None and kept[0] == stamp:
            return kept[1]
        found = read_pins(self._home, server.name)
        if found is None:
            return pin_first(self._home, server.name, server.definitions())
        self._pinned[server.name] = (stamp, found)
        return found

    def demand_pinned(self, server: ForeignServer, tool: str) -> dict[str, Any]:
        """The definition of a tool, where it is what the person has seen."""
        listed = server.definitions()
        pinned = self.pins(server)
        if tool in self._find_open(server.name, listed, pinned):
            return pinned[tool]
        if tool not in listed and tool not in pinned:
            raise NotFound(f"the server {server.name} has no tool {printable(tool, 60)}")
        keep_running(self._home, server.name, listed)
        raise Denied(
            f"the definition of {printable(tool, 60)} is not what the person has seen",
            reason="changed_definition",
            hint=f"the person looks at it with `deskhand guard review {server.name}`; until then it is closed",
        )

    def _find_open(
        self, name: str, listed: Definitions, pinned: Definitions
    ) -> frozenset[str]:
        known = self._opened.get(name)
        if known is not None and known[0] is listed and known[1] is pinned:
            return known[2]
        found = frozenset(listed).difference(find_changed(pinned, listed))
        self._opened[name] = (listed, pinned, found)
        return found

    def closed_tools(self, server: ForeignServer) -> list[str]:
        listed = server.definitions()
        closed = find_changed(self.pins(server), listed)
        if closed:
            keep_running(self._home, server.name, listed)
        else:
            forget_running(self._home, server.name)
        return closed

    # Which calls wait, or waited: a rule that lets them pass now must not have them made twice.

    def note_asked(self, name: str, tool: str, text: str) -> None:
        self._asked.setdefault((name, tool), set()).add(hash(text))

    def forget_asked(self, name: str, tool: str, text: str) -> None:
        self._asked.get((name, tool), set()).discard(hash(text))

    def was_asked(self, name: str, tool: str, arguments: Mapping[str, Any]) -> bool:
        asked = self._asked.get((name, tool))
        return asked is not None and hash(write_canonical(arguments)) in asked

    # Who hears what a server says by itself.

    def note_user(self, name: str, asker: str) -> None:
        """What the server says from now on by itself can be about what this one asked for."""
        self._users.setdefault(name, set()).add(asker)

    def list_users(self, name: str) -> frozenset[str]:
        return frozenset(self._users.get(name, ()))

    def listen(self, listener: Listener) -> None:
        """Tell the listener all of it, for as long as somebody else holds it."""
        self._listeners.add(listener)

    async def _tell(self, name: str, told: Told) -> None:
        for listener in [*self._listeners]:
            await listener.hear(name, told)

    # Keeping them.

    async def run(self) -> None:
        """Keep every server that `guard.toml` names, for as long as the desk runs."""
        try:
            while True:
                entries = self.entries
                for name in [*self._kept]:
                    if name not in entries:
                        await self._drop(name)
                for name in entries:
                    await self._keep(name)
                self._parts.works("guard")
                await asyncio.sleep(LOOK)
        finally:
            await self.close()

    def find(self, name: str) -> ForeignServer | None:
        """The server, where it is there this moment and is the one that `guard.toml` means."""
        return self._find(name, self.entry(name))

    def _find(self, name: str, entry: ServerEntry) -> ForeignServer | None:
        kept = self._kept.get(name)
        if (
            kept is None
            or kept[1].done()
            or not kept[0].is_there
            or not kept[0].entry.starts_as(entry)
        ):
            return None
        return kept[0]

    def find_passing(
        self, name: str, tool: str, arguments: Mapping[str, Any]
    ) -> ForeignServer | None:
        """The server, where it is there this moment, its tool is open, the rules let this very call pass, and nobody
        was asked about it before."""
        entry = self.entry(name)
        server = self._find(name, entry)
        if server is None or entry.rule_for(tool, arguments).do != "pass":
            return None
        if self._asked and self.was_asked(name, tool, arguments):
            return None
        self.demand_pinned(server, tool)
        return server

    async def open(self, name: str) -> ForeignServer:
        """The server, where it is there or comes soon."""
        server = await self._keep(name)
        try:
            async with asyncio.timeout(PATIENCE):
                await server.wait_there()
        except TimeoutError:
            why = server.why_down or "it does not say that it is there"
            raise ServerDown(
                f"the server {name} is not there now: {why}", hint="try again in a moment"
            ) from None
        return server

    async def _keep(self, name: str) -> ForeignServer:
        entry = self.entry(name)
        if name in self._kept:
            server, task = self._kept[name]
            if not task.done() and _is_same(server, entry):
                server.entry = entry
                return server
            await self._drop(name)
        server = ForeignServer(self._home, name, entry, self._tell)
        self._kept[name] = (
            server,
            asyncio.create_task(self._parts.keep(f"guard {name}", _runner(server, self))),
        )
        return server

    def works(self, server: ForeignServer) -> None:
        self.closed_tools(server)  # one that is met for the first time is taken as it is
        self._parts.works(f"guard {server.name}")

    async def _drop(self, name: str) -> None:
        _, task = self._kept.pop(name)
        self._users.pop(name, None)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        forget_running(self._home, name)
        self._parts.works(f"guard {name}")

    async def close(self) -> None:
        """End all of them, in the event loop that started them."""
        for name in [*self._kept]:
            await self._drop(name)

    # What the gate asks of a hand.

    async def prepare(
        self, server: str, tool: str, arguments: Mapping[str, Any], definition: str
    ) -> None:
        """Refuse a call that could not be made now, or whose tool is no longer what the person has seen."""
        if self.rule_for(server, tool, arguments).do == "deny":
            raise Denied(f"your rules deny {tool} of {server}", reason="denied")
        found = await self.open(server)
        try:
            await found.list_tools()
        except (MCPError, TimeoutError) as error:
            raise ServerDown(
                f"the server {server} does not list its tools: {printable(error)}"
            ) from error
        if digest_of(self.demand_pinned(found, tool)) != definition:
            raise Denied(
                f"{tool} of {server} is not what it was when this was asked",
                reason="changed_definition",
            )

    async def perform(
        self, server: str, tool: str, arguments: Mapping[str, Any], asker: str
    ) -> str:
        """What the server answered, an error too. Raises SendFailed where the call certainly did not reach it."""
        self.note_user(server, asker)
        try:
            found = await self.open(server)
            answer = {"result": await found.call(tool, arguments)}
        except ServerDown as error:
            raise SendFailed(error.message) from error
        except MCPError as error:
            answer = {
                "error": {"code": error.code, "message": error.message, "data": error.data}
            }
        try:
            text = json.dumps(answer, allow_nan=False)
        except ValueError as error:
            return _write_lost(f"the answer is no JSON: {error}")
        if len(text) <= LONGEST_RESULT:
            return text
        return _write_lost(
            f"the answer has {len(text):,} characters, and {LONGEST_RESULT:,} are kept"
        )

    def may_repeat(self, server: str, tool: str, arguments: Mapping[str, Any]) -> bool:
        return self.rule_for(server, tool, arguments).idempotent


def _write_lost(why: str) -> str:
    """What is kept in place of an answer that cannot be."""
    told = {"code": -32603, "message": f"it was done, but {why}", "data": None}
    return json.dumps({"error": told})


def _is_same(server: ForeignServer, entry: ServerEntry) -> bool:
    """Whether it runs as the person wants it now; their secrets are looked at when
    `guard.toml` was written anew."""
    if server.entry is entry:
        return True
    return server.entry.starts_as(entry) and not server.has_other_secrets()


def _runner(server: ForeignServer, foreign: Foreign) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        try:
            await server.run(lambda: foreign.works(server))
        except DeskError as error:
            server.why_down = describe_failure(error)
            raise

    return run


def _stamp(file: str) -> FileState | None:
    """For each call that passes: a Path would take longer than the look itself."""
    try:
        found = os.stat(file)  # noqa: PTH116
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns, found.st_size
