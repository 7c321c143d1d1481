"""Backends that misbehave on purpose: real HTTP on loopback, answers as the test says."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
from anyio.abc import SocketAttribute
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.servers.server import DeskServer
from deskhand.servers.tasks import tasks_server
from deskhand.tasks.client import TasksClient
from tests.home import Home


@dataclass
class Recorder:
    """Gives the same answer to every request and keeps what it heard."""

    status: int
    answer: Any
    media_type: str = "application/json"
    requests: list[dict[str, Any]] = field(default_factory=list)
    honours_keys: bool = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        headers = {
            name.decode(): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.requests.append(
            {
                "method": scope["method"],
                "path": scope["path"],
                "query": scope["query_string"].decode(),
                "headers": headers,
                "body": message["body"],
            }
        )
        content = (
            self.answer
            if isinstance(self.answer, bytes)
            else httpx2.Response(200, json=self.answer).content
        )
        kind = (b"content-type", self.media_type.encode())
        said = [kind, (b"x-deskhand-idempotent", b"1")][: 1 + self.honours_keys]
        await send({"type": "http.response.start", "status": self.status, "headers": said})
        await send({"type": "http.response.body", "body": content})


@dataclass
class Pauses:
    """Keeps how long it was asked to wait, and does not."""

    seconds: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@asynccontextmanager
async def backend_at(
    home: Home,
    app: Any,
    *,
    user: str,
    patience: float = 5,
    pause: Callable[[float], Any] | None = None,
    server: Callable[[Desk], DeskServer] = tasks_server,
) -> AsyncIterator[Client]:
    """An MCP client whose server speaks to `app` (an ASGI application, or the URL of a real backend)."""
    desk = Desk(load(home.environment | {"DESKHAND_USER": user}).settings)
    if isinstance(app, str):
        http = httpx2.AsyncClient(base_url=app)
    else:
        http = httpx2.AsyncClient(
            base_url="http://backend", transport=httpx2.ASGITransport(app=app), timeout=60
        )
    token = home.environment["SERVICE_AUTH_TOKEN"]
    desk.__dict__["tasks"] = TasksClient(
        http, token, timeout=patience, retries=2, pause=pause or Pauses()
    )
    try:
        async with Client(server(desk), mode="2026-07-28") as client:
            yield client
    finally:
        await http.aclose()
        desk.close()


@asynccontextmanager
async def slow_proxy(target: str, hold_back: int) -> AsyncIterator[str]:
    """Lets every request through to `target`, and keeps the answers on the first `hold_back` connections for itself."""
    host, port = target.removeprefix("http://").split(":")
    left = iter(range(hold_back))

    async def serve(client: Any) -> None:
        silent = next(left, None) is not None
        async with (
            client,
            await anyio.connect_tcp(host, int(port)) as backend,
            anyio.create_task_group() as group,
        ):

            async def answers() -> None:
                async for data in backend:
                    if not silent:
                        await client.send(data)
                group.cancel_scope.cancel()

            group.start_soon(answers)
            async for data in client:
                await backend.send(data)
            group.cancel_scope.cancel()

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        group.cancel_scope.cancel()
