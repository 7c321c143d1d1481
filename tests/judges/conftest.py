"""One running desk for all judges: to start one costs more than most of them take."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.home import TOKEN, Home
from tests.transports import http_server

APP = Path(__file__).with_name("desk_app.py")


class desk_process(http_server):  # noqa: N801 - used as a function
    """`desk_app.py` on a free port."""

    def __init__(self, home: Home) -> None:
        command = [sys.executable, str(APP)]
        self.process = subprocess.Popen(command, env=home.environment, stderr=subprocess.PIPE, text=True)
        self.said = []


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A desk where every part is set up."""
    place = tmp_path_factory.mktemp("judged")
    (place / "vault").mkdir()
    given = {
        "HOME": str(place),
        "DESKHAND_HOME": str(place / "home"),
        "VAULT_PATH": str(place / "vault"),
        "SERVICE_AUTH_TOKEN": TOKEN,
        "MCP_LOG_LEVEL": "WARNING",
        "DESKHAND_ADDRESS": "me@example.com",
        "DESKHAND_USER": "me",
        "DESKHAND_AGENT": "helper",
        "DESKHAND_AGENTS_STORE": "database",
        "DESKHAND_AGENTS_ROOM": "desk",
    }
    inherited = {name: os.environ[name] for name in ("PATH", "COVERAGE_PROCESS_CONFIG") if name in os.environ}
    return Home(place / "vault", inherited | given)


@pytest.fixture(scope="session")
def address(judged: Home) -> Iterator[str]:
    with desk_process(judged) as address:
        yield address
