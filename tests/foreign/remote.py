"""Somebody else's MCP server at an address, which demands a secret and can be made to misbehave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server import MCPServer
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from tests.web.person import served

OAUTH = (
    'Bearer resource_metadata="https://remote.example/.well-known/oauth-protected-resource"'
)


class Remote:
    def __init__(self) -> None:
        self.secret: str | None = "Bearer first"
        self.elsewhere: str | None = None
        """Where a call is sent on to."""
        self.big = 0
        """So many bytes are its next answers."""
        self.challenge = ""
        self.forgets = False
        """Whether it says of a session in the words of an example that it has forgotten it."""
        self.is_modern = True
        """Else it has sessions, as the first era demands."""
        self.heard: list[str | None] = []
        """The header of each request that came."""
        self.done: list[str] = []
        self.address = ""
        self._runs: list[asyncio.Task[None]] = []
        self._closing = asyncio.Event()
        self._app: Any = None

    async def start_anew(self) -> None:
        """As after a restart: no session is known any more."""
        server = MCPServer("remote", log_level="CRITICAL")

        @server.tool()
        def add(text: str) -> str:
            """Add a line."""
            self.done.append(text)
            return f"added {text}"

        app = server.streamable_http_app()
        there = asyncio.Event()

        async def run() -> None:
            async with app.router.lifespan_context(app):
                there.set()
                await self._closing.wait()

        self._runs.append(asyncio.create_task(run()))
        await there.wait()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        headers = dict(scope["headers"])
        given = headers.get(b"authorization", b"").decode() or None
        self.heard.append(given)
        answer = self._app
        if not self.is_modern and b"mcp-method" in headers:
            answer = Response("unknown", 404)
        if self.secret is not None and given != self.secret:
            answer = Response("no", 401, {"WWW-Authenticate": self.challenge or "Bearer"})
        elif b"mcp-session-id" in headers and (scope["method"] != "POST" or self.forgets):
            self.forgets = False
            words = "Bad Request: No valid session ID provided"
            answer = Response(words, 400 if scope["method"] == "POST" else 404)
        elif self.elsewhere:
            answer = RedirectResponse(self.elsewhere, 307)
        elif self.big:
            answer = Response(b" " * self.big, 200, media_type="application/json")
        await answer(scope, receive, send)

    async def close(self) -> None:
        self._closing.set()
        await asyncio.gather(*self._runs)


@asynccontextmanager
async def remote() -> AsyncIterator[Remote]:
    made = Remote()
    app: Any = made
    await made.start_anew()
    async with served(app) as address:
        made.address = address
        yield made
    await made.close()
