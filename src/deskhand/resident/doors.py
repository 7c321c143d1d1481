"""The doors for assistants beside the page: every MCP server and the tasks REST, by bearer token alone."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from deskhand.app import Desk
from deskhand.errors import DeskError, mcp_error
from deskhand.servers import SERVERS
from deskhand.servers.server import DeskServer

# The desk has a terminal of its own: a tmux session that ends must not take it along.
_OPTIONS = {"agentmail": {"ends_with_tmux": False}}


@dataclass(frozen=True, slots=True)
class Doors:
    routes: list[BaseRoute]
    servers: list[DeskServer]

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep the MCP sessions alive for as long as the block runs."""
        async with AsyncExitStack() as stack:
            for server in self.servers:
                await stack.enter_async_context(server.session_manager.run())
            yield


def open_doors(desk: Desk) -> Doors:
    """A route for each door; one whose part is not set up answers with what to set."""
    token = desk.token()
    made = Doors([], [])
    for kind in SERVERS.values():
        try:
            server = kind.make(desk, token, **_OPTIONS.get(kind.name, {}))
        except DeskError as error:
            answer = partial(_refuse, JSONResponse(mcp_error(error), 503))
            made.routes.append(Route(kind.path, answer, methods=["GET", "POST", "DELETE"]))
        else:
            made.servers.append(server)
            # Not a Mount: that would answer under the path with a slash behind it only.
            made.routes.append(Route(kind.path, server.streamable_http_app(streamable_http_path=kind.path)))
    if desk.settings.fastapi_base_url is None:
        # Where the backend is another process, its tasks are there and not in this desk's database.
        made.routes.append(Mount("/api", desk.tasks_api(token)))
    return made


def _refuse(answer: Response, request: Request) -> Response:
    del request
    return answer
