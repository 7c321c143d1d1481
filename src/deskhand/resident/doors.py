"""The doors for assistants beside the page: every MCP server and the tasks REST, by bearer token alone."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from deskhand.app import Desk
from deskhand.errors import DeskError, mcp_error
from deskhand.servers import DeskServer
from deskhand.servers.agentmail import agentmail_server
from deskhand.servers.desk import desk_server
from deskhand.servers.email import email_server
from deskhand.servers.gmail import gmail_server
from deskhand.servers.obsidian import obsidian_server
from deskhand.servers.tasks import tasks_server

_SERVERS: dict[str, Callable[[Desk, str], DeskServer]] = {
    "/mcp": desk_server,
    "/gmail/mcp": gmail_server,
    "/email/mcp": email_server,
    "/obsidian/mcp": obsidian_server,
    "/tasks/mcp": tasks_server,
    # The desk has a terminal of its own: a tmux session that ends must not take it along.
    "/agentmail/mcp": partial(agentmail_server, ends_with_tmux=False),
}


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
    for path, make in _SERVERS.items():
        try:
            server = make(desk, token)
        except DeskError as error:
            answer = partial(_refuse, JSONResponse(mcp_error(error), 503))
            made.routes.append(Route(path, answer, methods=["GET", "POST", "DELETE"]))
        else:
            made.servers.append(server)
            # Not a Mount: that would answer under the path with a slash behind it only.
            made.routes.append(Route(path, server.streamable_http_app(streamable_http_path=path)))
    if desk.settings.fastapi_base_url is None:
        # Where the backend is another process, its tasks are there and not in this desk's database.
        made.routes.append(Mount("/api", desk.tasks_api(token)))
    return made


def _refuse(answer: Response, request: Request) -> Response:
    del request
    return answer
