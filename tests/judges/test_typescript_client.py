"""The TypeScript SDK's client, on which most assistants are built, against the notes server on stdio."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Home
from requirements import requirement

from judges.node import MODULES, TYPESCRIPT_SDK, needs, node

pytestmark = needs(TYPESCRIPT_SDK)


@pytest.fixture
def seen(home: Home) -> dict[str, Any]:
    """What the client saw; it throws, and prints nothing, when a result is not what the tool's schema says."""
    script = Path(__file__).with_name("client.mjs")
    server = (sys.executable, "-m", "deskhand", "mcp", "obsidian")
    ran = node(script, MODULES, *server, environment=home.environment)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


@requirement("judges:clients")
def test_the_typescript_client_reads_an_error_and_a_round_trip_without_throwing(seen: dict[str, Any]) -> None:
    missing = seen["missing"]
    assert missing["isError"] is True
    assert json.loads(missing["content"][0]["text"])["error"] == "not_found"
    assert "structuredContent" not in missing

    for result in (seen["written"], seen["read"]):
        note = result["structuredContent"]
        assert not result.get("isError")
        assert {key: note[key] for key in seen["note"]} == seen["note"]
        assert json.loads(result["content"][0]["text"]) == note
