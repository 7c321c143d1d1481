"""The TypeScript SDK's clients, on which most assistants are built, drive every server."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.home import TOKEN, Home
from tests.judges.node import MODULES, TYPESCRIPT_CLIENT, TYPESCRIPT_SDK, needs, node
from tests.requirements import requirement

SCRIPT = Path(__file__).with_name("clients.mjs")
NOTE = {"path": "Inbox/a.md", "frontmatter": {"status": "new"}, "body": "Grüße, 世界\n"}
MAIL = {"to": "ann@example.org", "subject": "Hello", "body": "Hi.\n"}
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "obsidian": [
        ("read_note", {"path": "Inbox/none.md"}),
        ("write_note", NOTE),
        ("read_note", {"path": NOTE["path"]}),
    ],
    "gmail": [
        ("list_emails", {}),
        ("get_email", {"message_id": "none"}),
        ("send_email", MAIL),
    ],
    "email": [("search_email", {"query": "is:unread"}), ("send_email", MAIL)],
    "tasks": [("create_task", {"title": "milk"}), ("list_tasks", {})],
    "agentmail": [("list-recipients", {}), ("receive", {})],
    "desk": [
        ("pending_actions", {}),
        ("write_note", NOTE | {"path": "desk.md"}),
        ("create_task", {"title": ""}),
    ],
}
ERRORS = {
    "obsidian": [True, False, False],
    "gmail": [False, True, True],
    "email": [False, True],
    "tasks": [False, False],
    "agentmail": [False, False],
    "desk": [False, False, True],
}


def reached(way: str, name: str, address: str) -> dict[str, Any]:
    if way == "http":
        return {
            "url": f"{address}/mcp" if name == "desk" else f"{address}/{name}/mcp",
            "token": TOKEN,
        }
    alone = ["--alone"] if way == "alone" else []
    return {"command": sys.executable, "args": ["-m", "deskhand", "mcp", name, *alone]}


@requirement("judges:clients")
@pytest.mark.parametrize(
    ("version", "ways"),
    [
        pytest.param(
            "v1", {"desk": "http", "obsidian": "alone"}, marks=needs(TYPESCRIPT_SDK)
        ),
        # It starts each server on stdio twice, to find out which era it is of: one by itself is enough to see that.
        pytest.param(
            "v2", {"desk": "http", "obsidian": "alone"}, marks=needs(TYPESCRIPT_CLIENT)
        ),
    ],
)
def test_the_typescript_client_drives_every_server_without_throwing(
    version: str, ways: dict[str, str], judged: Home, address: str
) -> None:
    """Most of them joined to the running desk."""
    drive(version, ways, judged, address)


def drive(version: str, ways: dict[str, str], judged: Home, address: str) -> None:
    """Let the client call all servers, each in the way that is named for it, else joined to the desk."""
    given = {
        name: reached(ways.get(name, "joined"), name, address) | {"calls": CALLS[name]}
        for name in CALLS
    }
    ran = node(SCRIPT, MODULES, version, json.dumps(given), environment=judged.environment)
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)

    results = {name: seen[name]["results"] for name in CALLS}
    assert {
        name: [bool(each.get("isError")) for each in results[name]] for name in CALLS
    } == ERRORS
    assert all(seen[name]["tools"] >= 4 for name in CALLS)
    for result in (each for several in results.values() for each in several):
        assert result["content"] or result["structuredContent"] == {"result": []}
        assert not result.get("isError") or "structuredContent" not in result
    missing, written, read = results["obsidian"]
    assert json.loads(missing["content"][0]["text"])["error"] == "not_found"
    for note in (written["structuredContent"], read["structuredContent"]):
        assert {key: note[key] for key in NOTE} == NOTE
    assert json.loads(read["content"][0]["text"]) == read["structuredContent"]
    assert (
        results["tasks"][0]["structuredContent"]
        in results["tasks"][1]["structuredContent"]["tasks"]
    )
