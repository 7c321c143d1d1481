"""The MCP endpoints beside the page: each server at its own path, with the desk's bearer token."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount

from deskhand.app import Desk
from deskhand.errors import DeskError

SERVERS = ("email", "gmail", "obsidian", "tasks", "agentmail")


@dataclass(frozen=True, slots=True)
class Doors:
    routes: list[BaseRoute]
    apps: list[Starlette]

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for app in self.apps:
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield


def doors(desk: Desk) -> Doors:
    made = Doors([], [])
    token = desk.token()
    for name in SERVERS:
        try:
            server = getattr(import_module(f"deskhand.servers.{name}"), f"{name}_server")(desk, token)
        except DeskError:
            continue
        app = server.streamable_http_app()
        made.apps.append(app)
        made.routes.append(Mount(f"/{name}", app))
    return made
