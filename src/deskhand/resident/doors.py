"""The doors for assistants beside the page: every MCP server and the tasks REST, by bearer token alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from deskhand.app import Desk
from deskhand.errors import DeskError, mcp_error
from deskhand.servers import SERVERS, ServerKind
from deskhand.servers.callers import PointToMetadata
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
            server = self._kind.make(self._desk, self._desk.token(), **_OPTIONS.get(self._kind.name, {}))
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


@dataclass(frozen=True, slots=True)
class Doors:
    desk: Desk
    routes: list[BaseRoute] = field(default_factory=list)
    servers: list[DeskServer] = field(default_factory=list)
    closed: list[ServerDoor] = field(default_factory=list)
    """The doors that will open by themselves: their vault is named, but not there yet."""

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep the MCP sessions alive for as long as the block runs."""
        keep = self.desk.parts.keep
        late = [asyncio.create_task(keep(door.name, door.stand_open)) for door in self.closed]
        try:
            async with AsyncExitStack() as stack:
                for server in self.servers:
                    await stack.enter_async_context(server.session_manager.run())
                yield
        finally:
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def open_doors(desk: Desk) -> Doors:
    """A route for each door; one whose part is not set up answers with what to set."""
    made = Doors(desk)
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
