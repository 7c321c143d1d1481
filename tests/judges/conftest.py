"""One running desk for all judges: to start one costs more than most of them take."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.home import TOKEN, Home
from tests.resident.test_up import start


def judged_home(place: Path) -> Home:
    """A desk where every part is set up."""
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
    inherited = {
        name: os.environ[name]
        for name in ("PATH", "COVERAGE_PROCESS_CONFIG")
        if name in os.environ
    }
    return Home(place / "vault", inherited | given)


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return judged_home(tmp_path_factory.mktemp("judged"))


@pytest.fixture(scope="session")
def address(judged: Home) -> Iterator[str]:
    """Of the running desk; a server on stdio joins it unless it is told to serve alone."""
    desk = start(judged.vault.parent, judged.environment, "--port", "0")
    yield desk.address
    desk.close()
