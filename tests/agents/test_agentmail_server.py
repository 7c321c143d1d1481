"""Seed 004's server through an MCP client: over every transport and in both protocol eras, in real tmux."""

import json
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters

from deskhand.agents.files import FilesRoom
from deskhand.agents.mail import AgentMessage
from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import Unavailable
from deskhand.servers.agentmail import agentmail_server, agentmail_tools
from deskhand.servers.server import DeskServer
from tests.home import TOKEN, Home
from tests.requirements import requirement
from tests.terminal import AGENTMAIL, Terminal, until_it_listens
from tests.test_server import INITIALIZE, call, converse
from tests.transports import ERAS, TRANSPORTS, http_client, http_server
from tests.warm import warm_python

pytestmark = pytest.mark.anyio
Connect = Callable[[str], AbstractAsyncContextManager[Client]]


async def ask(client: Client, tool: str, /, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is None
    (block,) = result.content
    return json.loads(block.text)


async def refusal(client: Client, tool: str, /, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert result.structured_content is None
    (block,) = result.content
    return str(block.text)


@pytest.fixture(params=[(way, era) for way in TRANSPORTS for era in ERAS], ids="-".join)
def connect(
    request: pytest.FixtureRequest, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> Connect:
    """A client to the server of the agent in a window."""
    way, era = request.param
    monkeypatch.chdir(terminal.repository)
    monkeypatch.setenv("TMUX_TMPDIR", terminal.environment["TMUX_TMPDIR"])

    @asynccontextmanager
    async def connected(window: str) -> AsyncIterator[Client]:
        variables = terminal.variables(window)
        match way:
            case "memory":
                monkeypatch.setenv("TMUX", variables["TMUX"])
                desk = Desk(load(variables).settings)
                async with Client(agentmail_server(desk), mode=era) as client:
                    yield client
                desk.close()
            case "stdio":
                arguments = ["-m", "deskhand", "mcp", "agentmail"]
                server = StdioServerParameters(
                    command=warm_python(),
                    args=arguments,
                    env=variables,
                    cwd=terminal.repository,
                )
                async with Client(server, mode=era) as client:
                    yield client
            case "http":
                with http_server(
                    Home(terminal.repository, variables), "agentmail"
                ) as address:
                    async with http_client(address, TOKEN, era) as client:
                        yield client

    return connected


@requirement("agents:contract")
async def test_two_agents_write_to_each_other(connect: Connect, terminal: Terminal) -> None:
    async with connect("a1") as one:
        assert await ask(one, "list-recipients") == {
            "recipients": [
                {"name": "a1", "is_current": True},
                {"name": "a2", "is_current": False},
            ]
        }
        assert await ask(one, "receive") == {"status": "No unread messages"}
        sent = await ask(one, "send", recipient="a2", message="Hello <b> & é")
        assert await ask(one, "status", status="work") == {"status": "ok"}
    async with connect("a2") as two:
        got = await ask(two, "receive")
        assert got == {"from": "a1", "id": sent["message_id"], "message": "Hello <b> & é"}
        assert list(got) == ["from", "id", "message"]
        assert await ask(two, "receive") == {"status": "No unread messages"}

    states = {
        entry.name: entry.status for entry in FilesRoom(str(terminal.repository)).states()
    }
    assert states == {"a1": "work", "a2": "ready"}


@requirement("agents:contract")
async def test_the_texts_of_errors_are_the_existing_programs(
    connect: Connect, terminal: Terminal
) -> None:
    terminal.open("hidden")
    (terminal.repository / ".agentmailignore").write_text("hidden\n")
    async with connect("a1") as client:
        assert (
            await refusal(client, "send", recipient="a2", message="")
            == "no message provided"
        )
        assert await refusal(client, "send", recipient="a2") == "no message provided"
        too_long = "message exceeds maximum size of 64KB"
        assert (
            await refusal(client, "send", recipient="a2", message="é" * 32_769) == too_long
        )
        assert (
            await refusal(client, "send", recipient="a2", message="x" * 65_537) == too_long
        )
        assert (
            await refusal(client, "send", recipient="nobody", message="x")
            == "recipient not found"
        )
        assert (
            await refusal(client, "send", recipient="hidden", message="x")
            == "recipient not found"
        )
        assert (
            await refusal(client, "send", recipient="a1", message="x")
            == "cannot send message to self"
        )
        bad = "Invalid status: busy. Valid: ready, work, offline"
        assert await refusal(client, "status", status="busy") == bad
        assert (await refusal(client, "receive", from_="x")).startswith(
            "failed to parse arguments: from_: "
        )
        forged = await refusal(
            client, "send", recipient="a2", message="x", **{"from": "a2"}
        )
        assert forged.startswith("failed to parse arguments: from: ")
        assert (await refusal(client, "send", recipient=2, message="x")).startswith(
            "failed to parse arguments: "
        )
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("delete", {})
        assert unknown.value.error.code == -32602
        assert await ask(client, "send", recipient="a2", message="é" * 32_768)


@requirement("agents:contract")
async def test_an_agent_that_is_ignored_sees_itself_and_nobody_else_sees_it(
    connect: Connect, terminal: Terminal
) -> None:
    (terminal.repository / ".agentmailignore").write_text("a1\n")
    async with connect("a1") as ignored, connect("a2") as other:
        seen = await ask(ignored, "list-recipients")
        by_others = await ask(other, "list-recipients")

    assert {"name": "a1", "is_current": True} in seen["recipients"]
    assert "a1" not in [each["name"] for each in by_others["recipients"]]


@pytest.fixture
async def bob(
    home: Home, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Desk]:
    """The desk of an agent outside tmux."""
    monkeypatch.chdir(terminal.repository)
    desk = Desk(load(home.environment | {"DESKHAND_AGENT": "bob"}).settings)
    yield desk
    desk.close()


@requirement("agents:contract")
async def test_there_are_exactly_the_seeds_four_tools(bob: Desk) -> None:
    async with Client(agentmail_server(bob)) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}

    assert list(listed) == ["send", "receive", "status", "list-recipients"]
    schema = listed["send"].input_schema
    assert schema["properties"] == {
        "recipient": {
            "type": "string",
            "description": "The tmux window name of the recipient agent",
        },
        "message": {
            "type": "string",
            "description": "The message content to send (max 64KB)",
            "maxLength": 65_536,
        },
    }
    assert (schema["required"], schema["additionalProperties"]) == (
        ["recipient", "message"],
        False,
    )
    assert listed["receive"].input_schema["properties"] == {}
    assert listed["status"].input_schema["properties"]["status"]["enum"] == [
        "ready",
        "work",
        "offline",
    ]
    assert all(tool.output_schema is None for tool in listed.values())


@requirement("agents:once")
async def test_forty_pipelined_receives_give_forty_distinct_messages(
    terminal: Terminal,
) -> None:
    room = FilesRoom(str(terminal.repository))
    for number in range(40):
        room.append(AgentMessage(f"id{number:06}", "a1", "a2", f"text {number}"))
    lines = [INITIALIZE, *(call(number, "receive", "{}") for number in range(2, 42))]

    command = [warm_python(), "-m", "deskhand", "mcp", "agentmail"]
    answers, _ = converse(
        command, lines, 41, env=terminal.variables("a2"), cwd=terminal.repository
    )

    got = [
        json.loads(answer["result"]["content"][0]["text"])["id"]
        for answer in answers
        if answer["id"] > 1
    ]
    assert sorted(got) == [f"id{number:06}" for number in range(40)]


@requirement("server:answers")
def test_malformed_json_is_answered_and_the_server_lives_on(terminal: Terminal) -> None:
    lines = [INITIALIZE, "{oops", call(2, "list-recipients", "{}")]

    answers, _ = converse(
        [AGENTMAIL, "mcp"], lines, 3, env=terminal.variables("a1"), cwd=terminal.repository
    )

    by_id = {answer.get("id"): answer for answer in answers}
    assert by_id[None]["error"]["code"] == -32700
    assert '"name":"a2"' in by_id[2]["result"]["content"][0]["text"]


@requirement("agents:identity")
async def test_the_server_follows_a_renamed_and_a_new_window(terminal: Terminal) -> None:
    server = StdioServerParameters(
        command=AGENTMAIL,
        args=["mcp"],
        env=terminal.variables("a1"),
        cwd=terminal.repository,
    )
    async with Client(server) as client:
        before = await ask(client, "list-recipients")
        terminal.tmux("rename-window", "-t", terminal.panes["a1"], "boss")
        terminal.open("a3")
        with anyio.fail_after(20):
            while (after := await ask(client, "list-recipients")) == before or len(
                after["recipients"]
            ) < 3:
                pass

    assert after["recipients"] == [
        {"name": "boss", "is_current": True},
        {"name": "a2", "is_current": False},
        {"name": "a3", "is_current": False},
    ]


@requirement("agents:tmux-ends")
@pytest.mark.parametrize(
    "ending", [("kill-session", "-t", "work"), ("kill-server",)], ids="-".join
)
def test_the_server_exits_with_code_1_when_the_session_ends(
    terminal: Terminal, ending: tuple[str, ...]
) -> None:
    terminal.tmux("new-session", "-d", "-s", "other", "exec cat")
    with subprocess.Popen(
        [AGENTMAIL, "mcp"],
        env=terminal.variables("a1"),
        cwd=terminal.repository,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(f"{INITIALIZE}\n{call(2, 'list-recipients', '{}')}\n")
        server.stdin.flush()
        assert [json.loads(server.stdout.readline())["id"] for _ in range(2)] == [1, 2]
        clients = ["list-clients", "-F", "#{client_control_mode}"]
        while (
            terminal.tmux(*clients) != "1"
        ):  # it listens as soon as it can, not before the first answer
            pass

        terminal.tmux(*ending)

        assert server.wait(timeout=1) == 1
        assert "tmux session terminated" in server.stderr.read()


@requirement("agents:waiting")
async def test_on_the_whole_desk_receive_can_wait(bob: Desk, terminal: Terminal) -> None:
    async with Client(
        DeskServer("desk", agentmail_tools(lambda: bob.post, waiting=True))
    ) as client:
        assert await ask(client, "receive", wait=0) == {"status": "No unread messages"}
        got: list[Any] = []

        async def wait() -> None:
            got.append(await ask(client, "receive", wait=40))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            sent = await anyio.to_thread.run_sync(
                terminal.agentmail, "a1", "send", "bob", "wake up"
            )
            assert sent.returncode == 0

    assert got[0]["message"] == "wake up"


@requirement("agents:waiting")
def test_a_command_that_waits_is_woken(terminal: Terminal) -> None:
    command = [AGENTMAIL, "receive", "--wait", "40"]
    with subprocess.Popen(
        command,
        env=terminal.variables("a2"),
        cwd=terminal.repository,
        stdout=subprocess.PIPE,
        text=True,
    ) as waiting:
        until_it_listens(waiting)
        terminal.agentmail("a1", "send", "a2", "wake up")
        said, _ = waiting.communicate(timeout=20)

    assert said.endswith("wake up")
    nothing = terminal.agentmail("a2", "receive", "--wait", "0.01")
    assert (nothing.returncode, nothing.stdout) == (0, "No unread messages\n")


@requirement("agents:copies")
def test_import_and_export_move_mail_between_the_stores(terminal: Terminal) -> None:
    terminal.agentmail("a1", "send", "a2", "hello")

    first = terminal.agentmail("a1", "import")
    again = terminal.agentmail("a1", "import")
    there = terminal.agentmail("a2", "receive", DESKHAND_AGENTS_STORE="database")
    answer = terminal.agentmail(
        "a2", "send", "a1", "back", DESKHAND_AGENTS_STORE="database"
    )
    back = terminal.agentmail("a1", "export")

    assert first.stdout == "1 messages imported, 0 were there already\n"
    assert again.stdout == "0 messages imported, 1 were there already\n"
    assert there.stdout.endswith("hello")
    assert answer.returncode == 0
    assert back.stdout == "1 messages exported, 1 were there already\n"
    assert terminal.agentmail("a1", "receive").stdout.endswith("back")
    bad = terminal.agentmail("a1", "receive", DESKHAND_AGENTS_STORE="pigeon")
    assert (bad.returncode, bad.stderr) == (1, "error: the configuration has errors\n")


@requirement("agents:tokens")
def test_a_token_is_an_agent_beside_the_windows_and_never_one_of_them(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(terminal.repository)
    variables = terminal.variables("a1")
    for name in ("TMUX", "TMUX_TMPDIR"):
        monkeypatch.setenv(name, variables[name])
    desk = Desk(load(variables).settings)
    codex = desk.token_post("codex")
    codex.send("a2", "over HTTP")
    got = terminal.agentmail("a2", "receive").stdout
    with pytest.raises(Unavailable, match="a tmux window is called a2, too"):
        desk.token_post("a2").receive()
    desk.close()

    assert "codex" in got
    assert "over HTTP" in got
