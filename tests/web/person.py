"""A desk with its page on a loopback port, and a person who has signed in."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2
import uvicorn
from starlette.applications import Starlette

from deskhand.app import Desk
from deskhand.listen import http_config
from deskhand.web import sessions

_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')


@dataclass(frozen=True, slots=True)
class Person:
    """A browser's cookies and no JavaScript."""

    http: httpx2.AsyncClient

    async def reads(self, path: str) -> httpx2.Response:
        return await self.http.get(path)

    async def sends(
        self,
        path: str,
        fields: dict[str, str] | None = None,
        at: str = "/checkup",
        origin: str | None = None,
    ) -> httpx2.Response:
        """Post a form as the page at `at` would, of this or of no origin."""
        headers = {"Origin": origin} if origin else {}
        found = _TOKEN.search((await self.http.get(at)).text)
        given = ({"form_token": found.group(1)} if found else {}) | (fields or {})
        if path.endswith("/edit"):  # in parts, as its page says
            files = {name: (None, value) for name, value in given.items()}
            return await self.http.post(path, files=files, headers=headers)
        return await self.http.post(path, data=given, headers=headers)


@asynccontextmanager
async def served(
    app: Starlette, proxies: Sequence[str] = (), tls: Path | None = None
) -> AsyncIterator[str]:
    """The address of `app` on a free port, for as long as the block lasts."""
    server = uvicorn.Server(
        http_config(
            app,
            proxies,
            port=0,
            lifespan="on",
            timeout_graceful_shutdown=1,
            ssl_certfile=tls,
        )
    )
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve)
        while not server.started:
            await anyio.lowlevel.checkpoint()
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True


@asynccontextmanager
async def signed_in(desk: Desk, address: str) -> AsyncIterator[Person]:
    link = await desk.store.write(lambda tx: sessions.invite(tx, desk.now()))
    async with httpx2.AsyncClient(base_url=address, timeout=60) as http:
        answer = await http.get(f"/enter/{link}")
        assert answer.status_code == 303, answer.text
        yield Person(http)
