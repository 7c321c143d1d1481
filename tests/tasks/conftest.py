"""Real backends: a process on each database, and an MCP server process in front of it."""

import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx2
import psycopg
import pytest
from conftest import TOKEN, Home, http_server
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.servers.tasks import tasks_server

DATABASES = ("sqlite", "postgresql")


class api_server(http_server):  # noqa: N801 - used as a function
    """`deskhand tasks-api` on a free port; its address is the base URL."""

    def __init__(self, environment: dict[str, str], **variables: str) -> None:
        command = [sys.executable, "-m", "deskhand", "tasks-api", "--port", "0"]
        self.process = subprocess.Popen(command, env=environment | variables, stderr=subprocess.PIPE, text=True)
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
    async def client(self, user: str | None, *, token: str = TOKEN, era: str = "2026-07-28") -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token}"} | ({"X-User-ID": user} if user is not None else {})
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(self.mcp, http_client=http), mode=era) as client,
        ):
            yield client

    def http(self, user: str | None, *, token: str = TOKEN) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} | ({"X-User-ID": user} if user is not None else {})
        return httpx2.AsyncClient(base_url=self.rest, headers=headers, timeout=30)


@pytest.fixture(scope="session", params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('tasks') / 'desk.db'}"
    return new_database(request.getfixturevalue("postgresql"))


@pytest.fixture(scope="session")
def service(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One backend process and one MCP server process for each database; each test is a user of its own."""
    home = tmp_path_factory.mktemp("home")
    environment = {
        "PATH": "/usr/bin:/bin",
        "DESKHAND_HOME": str(home),
        "DESKHAND_DATABASE_URL": database,
        "SERVICE_AUTH_TOKEN": TOKEN,
        "MCP_LOG_LEVEL": "INFO",
    }
    numbers = count()
    with api_server(environment) as rest:
        server = http_server(Home(home, environment), "tasks", FASTAPI_BASE_URL=rest)
        with server as mcp:
            yield Service(rest, mcp, database, server.said, lambda: f"user-{next(numbers)}-{uuid.uuid4().hex[:6]}")


@pytest.fixture
def user(service: Service) -> str:
    return service.new_user()


@pytest.fixture
async def tasks(service: Service, user: str) -> AsyncIterator[Client]:
    """An MCP client over HTTP for a new user, with a real backend process behind the server."""
    async with service.client(user) as client:
        yield client


@pytest.fixture
async def rest(service: Service, user: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with service.http(user) as http:
        yield http


@pytest.fixture
def embedded_desk(home: Home) -> Iterator[Desk]:
    desk = Desk(load(home.environment | {"DESKHAND_USER": "ann"}).settings)
    yield desk
    desk.close()


@pytest.fixture
async def embedded(embedded_desk: Desk) -> AsyncIterator[Client]:
    """A client to the server with its backend in this process: the shortest way through the front door."""
    async with Client(tasks_server(embedded_desk), mode="2026-07-28") as client:
        yield client


async def ok(client: Client, name: str, /, meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments, meta=meta)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def refused(client: Client, name: str, /, meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments, meta=meta)
    assert result.is_error, result.structured_content
    assert result.structured_content is None
    error: dict[str, Any] = json.loads(result.content[0].text)
    assert set(error) == {"error_type", "message", "details", "suggestions"}
    assert result.meta["deskhand/error"] == error
    return error


def fields(error: dict[str, Any]) -> set[str]:
    return {field["field"] for field in error["details"]["fields"]}
