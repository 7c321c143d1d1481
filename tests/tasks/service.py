"""A backend of tasks as a process, an MCP server process in front of it, and how a test calls its tools."""

import json
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import psycopg
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.home import TOKEN
from tests.transports import http_server
from tests.warm import warm_python


class api_server(http_server):  # noqa: N801 - used as a function
    """`deskhand tasks-api` on a free port; its address is the base URL."""

    def __init__(self, environment: dict[str, str], **variables: str) -> None:
        command = [warm_python(), "-m", "deskhand", "tasks-api", "--port", "0"]
        self.process = subprocess.Popen(
            command, env=environment | variables, stderr=subprocess.PIPE, text=True
        )
        self.said = []

    def __enter__(self) -> str:
        return super().__enter__().removesuffix("/tasks")


def new_database(server: str) -> str:
    name = f"desk_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.replace("/postgres?", f"/{name}?")


@dataclass(frozen=True)
class Service:
    """A backend process, and perhaps an MCP server process before it."""

    rest: str
    mcp: str
    database: str
    logged: list[str]
    new_user: Callable[[], str]

    @asynccontextmanager
    async def client(
        self, user: str | None, *, token: str = TOKEN, era: str = "2026-07-28"
    ) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token}"} | (
            {"X-User-ID": user} if user is not None else {}
        )
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(self.mcp, http_client=http), mode=era) as client,
        ):
            yield client

    def http(self, user: str | None, *, token: str = TOKEN) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} | (
            {"X-User-ID": user} if user is not None else {}
        )
        return httpx2.AsyncClient(base_url=self.rest, headers=headers, timeout=60)


async def ok(
    client: Client, name: str, /, meta: Any = None, **arguments: Any
) -> dict[str, Any]:
    result = await client.call_tool(name, arguments, meta=meta)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def refused(
    client: Client, name: str, /, meta: Any = None, **arguments: Any
) -> dict[str, Any]:
    result = await client.call_tool(name, arguments, meta=meta)
    assert result.is_error, result.structured_content
    assert result.structured_content is None
    error: dict[str, Any] = json.loads(result.content[0].text)
    assert set(error) == {"error_type", "message", "details", "suggestions"}
    assert result.meta["deskhand/error"] == error
    return error


def fields(error: dict[str, Any]) -> set[str]:
    return {field["field"] for field in error["details"]["fields"]}
