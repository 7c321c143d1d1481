"""Clients to a server of the desk over each transport and in each protocol era."""

import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from deskhand.servers.server import DeskServer
from tests.home import TOKEN, Home
from tests.warm import warm_python

ERAS = ("legacy", "2026-07-28")
TRANSPORTS = ("memory", "stdio", "http")

Connect = Callable[[], AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def connected(
    way: str, era: str, name: str, home: Home, make: Callable[[], DeskServer], *options: str
) -> AsyncIterator[Client]:
    """A client to a server: in this process, or to `deskhand mcp NAME` by stdio or HTTP."""
    match way:
        case "memory":
            async with Client(make(), mode=era) as client:
                yield client
        case "stdio":
            arguments = ["-m", "deskhand", "mcp", name, *options]
            server = StdioServerParameters(
                command=warm_python(), args=arguments, env=home.environment
            )
            async with Client(server, mode=era) as client:
                yield client
        case "http":
            with http_server(home, name) as address:
                async with http_client(address, TOKEN, era) as client:
                    yield client


class http_server:  # noqa: N801 - used as a function
    """A server process on a free port, ended at the end."""

    def __init__(self, home: Home, name: str, **variables: str) -> None:
        command = [warm_python(), "-m", "deskhand", "mcp", name, "--http", "--port", "0"]
        self.process = subprocess.Popen(
            command, env=home.environment | variables, stderr=subprocess.PIPE, text=True
        )
        self.said: list[str] = []

    def __enter__(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith("listening on "):
                # A server that logs much must not stop at a full pipe.
                self._drain = threading.Thread(
                    target=self.said.extend, args=[self.process.stderr]
                )
                self._drain.start()
                return line.removeprefix("listening on ").strip()
        raise AssertionError("".join(self.said))

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)
        self._drain.join()
        self.process.stderr.close()


@asynccontextmanager
async def http_client(
    address: str, token: str, era: str, **more: Any
) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {token}"}, timeout=60
        ) as http,
        Client(
            streamable_http_client(address, http_client=http), mode=era, **more
        ) as client,
    ):
        yield client
