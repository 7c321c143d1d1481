"""MCPClient: a kept connection, restarted when it died, and a fallback that reads as nothing but a fallback."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from deskhand.errors import Denied, NotFound, Unavailable
from deskhand.orchestrator.mcp_client import MCPClient
from tests.home import TOKEN, Home
from tests.requirements import requirement
from tests.transports import http_server

pytestmark = pytest.mark.anyio


def client(home: Home, *command: str, **more: Any) -> MCPClient:
    started = list(command) or [sys.executable, "-m", "deskhand", "mcp", "obsidian"]
    return MCPClient("obsidian", started, home.vault, environment=home.environment, **more)


def children() -> list[int]:
    """The processes that this one started."""
    found = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [int(each) for file in found for each in file.read_text().split()]


@requirement("orchestrator:client")
async def test_the_connection_is_kept_and_a_killed_server_is_started_anew(home: Home) -> None:
    (home.vault / "a.md").write_text("Hello.\n")
    before = set(children())
    notes = client(home)
    try:
        assert (await notes.call_tool("read_note", {"path": "a.md"}))["body"] == "Hello.\n"
        assert (await notes.call_tool("read_note", {"path": "a.md"}))["body"] == "Hello.\n"
        (server,) = set(children()) - before
        os.kill(server, signal.SIGKILL)
        with pytest.raises(Unavailable):
            await notes.call_tool("read_note", {"path": "a.md"})
        assert (await notes.call_tool("read_note", {"path": "a.md"}))["body"] == "Hello.\n"
        with pytest.raises(NotFound):
            await notes.call_tool("read_note", {"path": "b.md"})
        with pytest.raises(Denied, match="by tools"):
            await notes.call_tool("write_note", {"path": "Approved/x.md", "frontmatter": {}, "body": "yes"})
    finally:
        await notes.close()
    assert set(children()) <= before
    (log,) = (home.vault / "Logs").glob("orchestrator_*.jsonl")
    assert '"event": "mcp_unavailable"' in log.read_text()


@requirement("orchestrator:client")
async def test_a_fallbacks_result_can_never_be_read_as_sent(home: Home) -> None:
    gmail = client(home, "/nowhere/at/all")
    pretended = {"message_id": "m1", "thread_id": "t1", "sent_at": "now"}

    answer = await gmail.call_tool("send_email", {}, lambda: pretended)

    assert answer["error"] == "mcp_unavailable"
    assert "message_id" not in answer
    assert answer["fallback"] == pretended
    with pytest.raises(Unavailable):
        await gmail.call_tool("send_email", {})


@requirement("orchestrator:client")
async def test_a_server_that_runs_is_reached_by_its_url(home: Home) -> None:
    (home.vault / "a.md").write_text("Hello.\n")
    with http_server(home, "obsidian") as address:
        notes = client(home, address, token=TOKEN)
        assert (await notes.call_tool("read_note", {"path": "a.md"}))["body"] == "Hello.\n"
        await notes.close()
    stranger = client(home, address, token="wrong")
    with pytest.raises(Unavailable):
        await stranger.call_tool("read_note", {"path": "a.md"})


@requirement("orchestrator:client")
async def test_a_server_that_does_not_answer_in_time_is_unavailable(home: Home) -> None:
    silent = [sys.executable, "-c", "import sys; [None for _ in sys.stdin]"]
    slow = client(home, *silent, start_seconds=1.0)
    with pytest.raises(Unavailable, match="does not start"):
        await slow.call_tool("read_note", {"path": "a.md"})
    await slow.close()
