"""Real backends: a process on each database, and an MCP server process in front of it."""

import uuid
from collections.abc import AsyncIterator, Iterator
from itertools import count

import httpx2
import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.servers.tasks import tasks_server
from tests.home import TOKEN, Home
from tests.tasks.service import Service, api_server, new_database
from tests.transports import http_server

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(scope="session", params=DATABASES)
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> str:
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
            yield Service(
                rest,
                mcp,
                database,
                server.said,
                lambda: f"user-{next(numbers)}-{uuid.uuid4().hex[:6]}",
            )


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
