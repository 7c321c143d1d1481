"""MCPClient: a kept connection, restarted when it died, and a fallback that reads as nothing but a fallback."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from dirty_equals import IsStr

from deskhand.errors import Denied, Internal, NotFound, ServerDown, Unavailable
from deskhand.orchestrator.mcp_client import START_SECONDS, MCPClient
from tests.home import TOKEN, Home
from tests.requirements import requirement
from tests.transports import http_server
from tests.warm import warm_python

pytestmark = pytest.mark.anyio


def client(home: Home, *command: str, **more: Any) -> MCPClient:
    started = list(command) or [warm_python(), "-m", "deskhand", "mcp", "obsidian"]
    return MCPClient("obsidian", started, home.vault, environment=home.environment, **more)


def children() -> list[int]:
    """The processes that this one started."""
    found = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [int(each) for file in found for each in file.read_text().split()]


@requirement("orchestrator:client")
async def test_the_connection_is_kept_and_a_killed_server_is_started_anew(
    home: Home,
) -> None:
    (home.vault / "a.md").write_text("Hello.\n")
    before = set(children())
    notes = client(home, sys.executable, "-m", "deskhand", "mcp", "obsidian")
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
            await notes.call_tool(
                "write_note", {"path": "Approved/x.md", "frontmatter": {}, "body": "yes"}
            )
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
async def test_without_a_command_it_is_said_at_once(home: Home) -> None:
    nothing = MCPClient("gmail", [], home.vault)
    with anyio.fail_after(START_SECONDS / 2), pytest.raises(ServerDown, match="no command"):
        await nothing.call_tool("send_email", {})


@requirement("orchestrator:client")
async def test_a_tool_that_answers_with_an_error_is_logged_and_goes_to_the_fallback(
    home: Home,
) -> None:
    notes = client(home)

    async def fallback() -> str:
        return "the note as it was"

    try:
        answer = await notes.call_tool("read_note", {"path": "b.md"}, fallback)
        with pytest.raises(NotFound):
            await notes.call_tool("read_note", {"path": "c.md"})
    finally:
        await notes.close()

    assert answer == {
        "error": "not_found",
        "message": IsStr(regex=".*b.md.*"),
        "fallback": "the note as it was",
    }
    (log,) = (home.vault / "Logs").glob("orchestrator_*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["event"], line["server"], line["tool"]) for line in lines] == 2 * [
        ("not_found", "obsidian", "read_note")
    ]
    assert [line["fallback"] for line in lines] == [True, False]


@requirement("orchestrator:client")
async def test_a_server_that_does_not_know_the_tool_is_not_called_unavailable(
    home: Home,
) -> None:
    (home.vault / "a.md").write_text("Hello.\n")
    notes = client(home)
    try:
        await notes.call_tool("read_note", {"path": "a.md"})
        connection = notes._client
        answer = await notes.call_tool("fly_away", {}, lambda: "stayed")
        with pytest.raises(Internal, match="fly_away"):
            await notes.call_tool("fly_away", {"path": "a.md"})
        assert (await notes.call_tool("read_note", {"path": "a.md"}))["body"] == "Hello.\n"
        assert notes._client is connection
    finally:
        await notes.close()

    assert answer == {
        "error": "internal_error",
        "message": IsStr(regex=".*fly_away.*"),
        "fallback": "stayed",
    }
    (log,) = (home.vault / "Logs").glob("orchestrator_*.jsonl")
    assert [json.loads(line)["event"] for line in log.read_text().splitlines()] == 2 * [
        "internal_error"
    ]


@requirement("orchestrator:client")
async def test_three_arguments_are_enough_and_the_server_gets_the_vault(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where the server's own files go
    (home.vault / "a.md").write_text("Hello.\n")
    notes = MCPClient(
        "obsidian", [warm_python(), "-m", "deskhand", "mcp", "obsidian"], home.vault
    )
    try:
        assert (await notes.call_tool("read_note", {"path": "a.md"}))["body"] == "Hello.\n"
    finally:
        await notes.close()


@requirement("orchestrator:client")
async def test_a_server_that_does_not_start_says_why(
    home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = MCPClient(
        "gmail",
        [warm_python(), "-m", "deskhand", "mcp", "gmail"],
        home.vault,
        environment=home.environment | {"VAULT_PATH": "/nowhere/at/all"},
    )
    with pytest.raises(ServerDown, match="The vault /nowhere/at/all is not a folder; "):
        await wrong.call_tool("list_emails", {})
    await wrong.close()
    assert "is not a folder" in capfd.readouterr().err

    nowhere = client(home, "http://127.0.0.1:9/mcp")
    with pytest.raises(ServerDown) as failed:
        await nowhere.call_tool("read_note", {"path": "a.md"})
    assert "TaskGroup" not in failed.value.message


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


FOREIGN = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    said = {"jsonrpc": "2.0", "id": asked.get("id")}
    match asked["method"]:
        case "initialize":
            said["result"] = {
                "protocolVersion": asked["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "foreign", "version": "1"},
            }
        case "tools/list":
            form = {"type": "object"}
            tools = [{"name": name, "inputSchema": form} for name in ANSWERS]
            for each in tools:
                if each["name"].startswith("typed"):
                    each["outputSchema"] = form | {"required": ["a"]}
            said["result"] = {"tools": tools}
        case "tools/call":
            said |= ANSWERS[asked["params"]["name"]]
        case _:
            said["error"] = {"code": -32601, "message": "Method not found"}
    if "id" in asked:
        print(json.dumps(said), flush=True)
"""


def foreign(home: Home, **answers: Any) -> MCPClient:
    """A server of somebody else, which answers each tool as it is told."""
    return client(home, sys.executable, "-c", f"ANSWERS = {answers!r}\n{FOREIGN}")


def said(*texts: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": text} for text in texts]}}


@requirement("orchestrator:client-text")
async def test_what_a_server_says_in_text_alone_is_not_lost(home: Home) -> None:
    sent = {"message_id": "m1", "thread_id": "t1", "sent_at": "2026-02-24T10:00:00Z"}
    mails = [{"id": "1"}, {"id": "2"}]
    gmail = foreign(
        home,
        send_email=said(json.dumps(sent)),
        list_emails=said(json.dumps(mails)),
        list_apart=said(*map(json.dumps, mails)),
        say=said("Email sent successfully."),
        say_nothing=said(),
    )
    try:
        assert await gmail.call_tool("send_email", {}) == sent
        assert await gmail.call_tool("list_emails", {}) == {"result": mails}
        assert await gmail.call_tool("list_apart", {}) == {"result": mails}
        assert await gmail.call_tool("say", {}) == {"result": "Email sent successfully."}
        assert await gmail.call_tool("say_nothing", {}) == {}
    finally:
        await gmail.close()


@requirement("orchestrator:client")
@pytest.mark.parametrize("code", [-32601, -32603])
async def test_a_server_that_answers_with_a_protocol_error_is_not_called_unavailable(
    home: Home, code: int
) -> None:
    refusal = {"error": {"code": code, "message": "not this one"}}
    gmail = foreign(home, send_email=refusal, say=said("Hello."))
    try:
        with pytest.raises(Internal, match="not this one"):
            await gmail.call_tool("send_email", {})
        connection = gmail._client
        assert await gmail.call_tool("say", {}) == {"result": "Hello."}
        assert gmail._client is connection
    finally:
        await gmail.close()


@requirement("orchestrator:client")
async def test_whatever_fails_is_logged_and_goes_to_the_fallback(home: Home) -> None:
    refusal = {
        "error": "not_found",
        "message": "no",
        "details": {"message": "x", "self": 1},
    }
    answers = {
        "no_list": {"result": {"content": "x"}},
        "nothing": {"result": {}},
        "typed_wrong": {"result": {"content": [], "structuredContent": {"b": 1}}},
        "typed_not": said("Hello."),
        "odd_details": {"result": said(json.dumps(refusal))["result"] | {"isError": True}},
    }
    gmail = foreign(home, **answers, say=said("Hello."))
    try:
        for tool in answers:
            answer = await gmail.call_tool(tool, {}, lambda: "stayed")
            assert answer["fallback"] == "stayed"
            with pytest.raises((Internal, NotFound)):
                await gmail.call_tool(tool, {})
        unsaid = await gmail.call_tool("say", {"what": object()}, lambda: "stayed")
        assert (unsaid["error"], unsaid["fallback"]) == ("internal_error", "stayed")
        assert await gmail.call_tool("say", {}) == {"result": "Hello."}
    finally:
        await gmail.close()
    (log,) = (home.vault / "Logs").glob("orchestrator_*.jsonl")
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events == 8 * ["internal_error"] + 2 * ["not_found"] + ["internal_error"]


@requirement("orchestrator:client")
def test_a_client_outlives_its_event_loop_and_takes_the_vault_as_text(home: Home) -> None:
    (home.vault / "a.md").write_text("Hello.\n")
    command = [warm_python(), "-m", "deskhand", "mcp", "obsidian"]
    notes = MCPClient(
        "obsidian",
        command,
        str(home.vault),  # type: ignore[arg-type]
        environment=home.environment,
    )
    for _ in range(2):
        answer = asyncio.run(notes.call_tool("read_note", {"path": "a.md"}))
        assert answer["body"] == "Hello.\n"
    answer = asyncio.run(notes.call_tool("read_note", {"path": "b.md"}, lambda: "stayed"))
    assert answer["fallback"] == "stayed"
    assert list((home.vault / "Logs").glob("orchestrator_*.jsonl"))
