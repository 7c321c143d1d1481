"""The doors for assistants beside the page: every MCP server and the tasks REST, by bearer token alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from deskhand.app import Desk
from deskhand.errors import DeskError, ServerDown, mcp_error
from deskhand.servers import SERVERS, ServerKind, guarded_kind
from deskhand.servers.callers import PointToMetadata
from deskhand.servers.foreign import open_door
from deskhand.servers.server import DeskServer

# The desk has a terminal of its own: a tmux session that ends must not take it along.
_OPTIONS = {"agentmail": {"ends_with_tmux": False}}


class ServerDoor:
    """Where one server answers, or says why it does not."""

    def __init__(self, desk: Desk, kind: ServerKind) -> None:
        self._desk = desk
        self._kind = kind
        self._app: ASGIApp | None = None
        self.name = f"{kind.name} server"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._app is not None  # noqa: S101 - made with an app
        await self._app(scope, receive, send)

    def open(self) -> DeskServer:
        try:
            server = self._kind.make(
                self._desk, self._desk.token(), **_OPTIONS.get(self._kind.name, {})
            )
        except DeskError as error:
            self._app = JSONResponse(mcp_error(error), 503)
            raise
        app = server.http_app_at(self._kind.path, self._desk.settings.inbox_origin)
        self._app = PointToMetadata(app, self._kind.path, self._kind.scopes)
        return server

    async def stand_open(self) -> None:
        """Until it is cancelled: a door that was closed when the desk started."""
        async with self.open().session_manager.run():
            self._desk.parts.works(self.name)
            await asyncio.Event().wait()


class GuardDoors:
    """Where the servers behind the gate answer, each under its name; one opens when somebody comes."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._open: dict[str, tuple[asyncio.Task[None], asyncio.Future[ASGIApp]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            app = await self._find(scope["path_params"]["name"])
        except DeskError as error:
            app = JSONResponse(mcp_error(error), error.http_status)
        await app(scope, receive, send)

    async def _find(self, name: str) -> ASGIApp:
        self._desk.foreign.entry(name)
        if name not in self._open:
            there: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()
            standing = asyncio.create_task(self._stand_open(name, there))
            self._open[name] = (standing, there)
            standing.add_done_callback(partial(self._shut, name, there))
        return await asyncio.shield(self._open[name][1])

    async def _stand_open(self, name: str, there: asyncio.Future[ASGIApp]) -> None:
        kind = guarded_kind(name)
        server = open_door(self._desk, name, self._desk.token())
        app = server.http_app_at(kind.path, self._desk.settings.inbox_origin)
        pointed = PointToMetadata(app, kind.path, kind.scopes)
        async with server.session_manager.run():
            there.set_result(pointed)
            await asyncio.Event().wait()

    def _shut(
        self, name: str, there: asyncio.Future[ASGIApp], standing: asyncio.Task[None]
    ) -> None:
        """Nobody waits for a door that did not open, and who comes next has it tried again."""
        del self._open[name]
        failure: BaseException | None = ServerDown(f"the door to {name} is closed")
        if not standing.cancelled():
            failure = standing.exception()
        if failure is not None and not there.done():
            there.set_exception(failure)

    async def close(self) -> None:
        tasks = [task for task, _ in self._open.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Doors:
    desk: Desk
    routes: list[BaseRoute] = field(default_factory=list)
    servers: list[DeskServer] = field(default_factory=list)
    closed: list[ServerDoor] = field(default_factory=list)
    """The doors that will open by themselves: their vault is named, but not there yet."""
    guard: GuardDoors | None = None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep the MCP sessions alive for as long as the block runs."""
        keep = self.desk.parts.keep
        late = [
            asyncio.create_task(keep(door.name, door.stand_open)) for door in self.closed
        ]
        try:
            async with AsyncExitStack() as stack:
                for server in self.servers:
                    await stack.enter_async_context(server.session_manager.run())
                yield
        finally:
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            if self.guard is not None:
                await self.guard.close()


def open_doors(desk: Desk) -> Doors:
    """A route for each door; one whose part is not set up answers with what to set."""
    guard = GuardDoors(desk)
    made = Doors(desk, guard=guard)
    made.routes.append(Route(guarded_kind("{name}").path, guard))
    vault = desk.settings.vault_path
    for kind in SERVERS.values():
        door = ServerDoor(desk, kind)
        try:
            made.servers.append(door.open())
        except DeskError:
            if kind.name in _NEED_VAULT and vault is not None and not vault.is_dir():
                made.closed.append(door)
        # Not a Mount: that would answer under the path with a slash behind it only.
        made.routes.append(Route(kind.path, door))
    if desk.settings.fastapi_base_url is None:
        # Where the backend is another process, its tasks are there and not in this desk's database.
        made.routes.append(Mount("/api", desk.tasks_api(desk.token())))
    return made


_NEED_VAULT = frozenset({"email", "gmail", "obsidian"})
