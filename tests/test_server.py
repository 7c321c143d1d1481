"""DeskServer: the one seam between the SDK and the tools."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Annotated, Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from deskhand.errors import Denied, error_response
from deskhand.listen import open_port
from deskhand.servers.calls import Call, ToolResult
from deskhand.servers.server import DeskServer
from deskhand.servers.tool import READS, DeskTool, tool
from tests.home import TOKEN, Home
from tests.requirements import requirement
from tests.transports import http_server
from tests.warm import warm_python
from tests.web.person import served

pytestmark = pytest.mark.anyio


class Sum(BaseModel):
    total: int


def add(a: Annotated[int, Field(ge=0)], b: int = 1, note: str | None = None) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


def refuse() -> Sum:
    """Always refuses."""
    raise Denied("not today", reason="mood", hint="ask tomorrow")


def crash() -> Sum:
    """Always crashes."""
    raise RuntimeError("the password is hunter2")


def fill() -> Sum:
    """Always finds the disk full."""
    raise OSError(28, "No space left on device")


def server(**more: Any) -> DeskServer:
    return DeskServer(
        "test",
        [tool(fn, title="T", annotations=READS) for fn in (add, refuse, crash, fill)],
        **more,
    )


def error_of(result: Any) -> dict[str, Any]:
    assert result.is_error
    assert result.structured_content is None
    error: dict[str, Any] = json.loads(result.content[0].text)
    assert result.meta["deskhand/error"] == error
    return error


async def test_success_is_complete_as_text_and_as_structure() -> None:
    async with Client(server()) as client:
        result = await client.call_tool("add", {"a": 2})

    assert result.structured_content == {"total": 3}
    assert json.loads(result.content[0].text) == {"total": 3}


@requirement("server:strict")
@pytest.mark.parametrize(
    ("arguments", "field", "received"),
    [
        ({"a": 1, "c": 2}, "c", "2"),
        ({}, "a", None),
        ({"a": -1}, "a", "-1"),
        ({"a": "many"}, "a", "many"),
        ({"a": 1, "note": ["x"]}, "note", "['x']"),
        ({"a": None}, "a", None),
    ],
)
async def test_a_bad_argument_is_named_with_what_came_and_what_would_do(
    arguments: dict[str, Any], field: str, received: str | None
) -> None:
    async with Client(server()) as client:
        error = error_of(await client.call_tool("add", arguments))

    assert error["error"] == "parse_error"
    (problem,) = error["details"]["fields"]
    assert (problem["field"], problem["received_value"]) == (field, received)
    assert problem["message"]
    assert problem["suggestion"]


@requirement("server:null")
async def test_null_for_an_argument_that_may_be_left_out_is_the_same_as_leaving_it_out() -> (
    None
):
    async with Client(server()) as client:
        result = await client.call_tool("add", {"a": 2, "b": None})

    assert result.structured_content == {"total": 3}


@requirement("server:strict")
async def test_the_text_null_stays_text() -> None:
    def echo(text: str | None) -> str:
        """Give it back."""
        return repr(text)

    async with Client(
        DeskServer("test", [tool(echo, title="T", annotations=READS)])
    ) as client:
        assert (await client.call_tool("echo", {"text": "null"})).content[
            0
        ].text == "'null'"
        assert (await client.call_tool("echo", {"text": '["x"]'})).content[
            0
        ].text == "'[\"x\"]'"


@requirement("server:strict")
async def test_the_schema_says_that_no_other_argument_is_taken_and_wastes_no_words() -> (
    None
):
    async with Client(server()) as client:
        listed = {each.name: each for each in (await client.list_tools()).tools}

    schema = listed["add"].input_schema
    assert schema["additionalProperties"] is False
    assert "title" not in json.dumps(schema)
    assert listed["add"].annotations.read_only_hint is True


@requirement("server:strict")
async def test_servers_whose_tools_come_from_one_definition_have_nothing_in_common() -> (
    None
):
    def make(answer: int) -> DeskTool:
        def tell() -> Sum:
            """Tell a number."""
            return Sum(total=answer)

        return tool(tell, title=f"T{answer}", annotations=READS)

    one, two = make(1), make(2)
    one.take("account")
    named = DeskServer("one", [one], accounts=["work"])
    async with Client(named) as first, Client(DeskServer("two", [two])) as second:
        assert (await first.call_tool("tell", {})).structured_content == {"total": 1}
        assert (await second.call_tool("tell", {})).structured_content == {"total": 2}
        (shown,) = (await second.list_tools()).tools
        assert shown.title == "T2"
        assert shown.input_schema["properties"] == {}
        assert error_of(await second.call_tool("tell", {"account": "work"}))


@requirement("server:hints")
@pytest.mark.parametrize(
    "annotations",
    [None, ToolAnnotations(), ToolAnnotations(read_only_hint=True, destructive_hint=False)],
)
def test_a_tool_without_all_hints_cannot_be_served(annotations: Any) -> None:
    with pytest.raises(TypeError, match="four annotation hints"):
        DeskServer("test", [tool(add, title="Add", annotations=annotations)])


@requirement("server:hints")
def test_a_tool_that_is_not_strict_cannot_be_served() -> None:
    from mcp.server.mcpserver.tools import Tool

    with pytest.raises(TypeError, match="not strict"):
        DeskServer("test", [Tool.from_function(add, title="Add", annotations=READS)])


@requirement("errors:two-forms")
async def test_an_unknown_tool_is_a_protocol_error() -> None:
    async with Client(server()) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("nothing", {})

    assert caught.value.error.code == -32602


async def test_a_refusal_has_the_form_that_the_server_speaks() -> None:
    async with Client(server()) as client:
        error = error_of(await client.call_tool("refuse", {}))
    async with Client(server(error_form=error_response)) as client:
        other = error_of(await client.call_tool("refuse", {}))

    assert error["error"] == "permission_denied"
    assert error["details"] == {"reason": "mood", "hint": "ask tomorrow"}
    assert other["error_type"] == "authorization_error"
    assert other["suggestions"] == ["ask tomorrow"]


@requirement("server:masked")
async def test_the_text_of_a_crash_stays_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Client(server()) as client:
        error = error_of(await client.call_tool("crash", {}))

    assert error["error"] == "internal_error"
    assert "hunter2" not in json.dumps(error)
    (record,) = [record for record in caplog.records if record.message == "crash"]
    assert record.__dict__["reference"] == error["details"]["reference"]
    assert "hunter2" in str(record.exc_info)


async def test_trouble_of_the_machine_has_a_reason_and_a_reference() -> None:
    async with Client(server()) as client:
        error = error_of(await client.call_tool("fill", {}))

    assert error["error"] == "internal_error"
    assert error["details"]["reason"] == "disk_full"
    assert len(error["details"]["reference"]) == 8


async def test_every_call_reaches_the_record_with_its_outcome() -> None:
    calls: list[Call] = []

    async def record(call: Call) -> None:
        calls.append(call)

    async with Client(server(record=record)) as client:
        await client.call_tool("add", {"a": 1})
        await client.call_tool("refuse", {})
        await client.call_tool("add", {"a": "x"})

    assert [(call.tool, call.error and call.error.code) for call in calls] == [
        ("add", None),
        ("refuse", "permission_denied"),
        ("add", "parse_error"),
    ]


async def test_what_was_recorded_behind_the_tool_is_not_recorded_at_the_door() -> None:
    calls: list[Call] = []

    async def record(call: Call) -> None:
        calls.append(call)

    def through(refuses: bool, recorded: bool) -> ToolResult[Sum]:
        """Say whether somebody behind has recorded it."""
        content = Denied("not today", reason="mood") if refuses else Sum(total=1)
        return ToolResult(content, recorded=recorded)

    made = tool(through, title="T", annotations=READS, recorded_by="gate")
    async with Client(DeskServer("test", [made], record=record)) as client:
        for refuses in (False, True):
            for recorded in (False, True):
                answer = await client.call_tool(
                    "through", {"refuses": refuses, "recorded": recorded}
                )
                assert answer.is_error is refuses
        await client.call_tool("through", {"refuses": 5})

    codes = [
        (call.arguments.get("recorded"), call.error and call.error.code) for call in calls
    ]
    assert codes == [(False, None), (False, "permission_denied"), (None, "parse_error")]


async def test_what_nobody_records_reaches_the_record_only_when_it_was_out_of_scope() -> (
    None
):
    calls: list[Call] = []

    async def record(call: Call) -> None:
        calls.append(call)

    made = [
        tool(fn, title="T", annotations=READS, recorded_by="nobody") for fn in (add, refuse)
    ]
    desk = DeskServer("test", made, record=record, area="notes")
    async with Client(desk) as client:
        await client.call_tool("add", {"a": 1})
        await client.call_tool("refuse", {})
        assert calls == []
        desk.narrow(["mail:read"])
        await client.call_tool("add", {"a": 1})

    assert [(call.tool, call.out_of_scope) for call in calls] == [("add", True)]


def test_a_tool_whose_type_does_not_say_who_records_it_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="recorded by the gate"):
        tool(add, title="Add", annotations=READS, recorded_by="gate")


NOISY = """
import sys, subprocess
from deskhand.servers.server import DeskServer
from deskhand.servers.tool import READS, DeskTool, tool
import anyio

def shout() -> str:
    "Print to stdout in every way."
    print("from print")
    sys.stdout.write("from write")
    subprocess.run(["echo", "from a child"])
    return "done"

anyio.run(DeskServer("noisy", [tool(shout, title="Shout", annotations=READS)]).run_stdio_async)
"""


def converse(
    command: list[str], lines: list[str], answers: int, **more: Any
) -> tuple[list[Any], str]:
    """Say `lines`, take so many answers, hang up; whatever else came to stdout is a failure to parse."""
    with subprocess.Popen(
        command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, **more
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(f"{line}\n" for line in lines))
        process.stdin.flush()
        said = [process.stdout.readline() for _ in range(answers)]
        rest, logged = process.communicate(timeout=60)
    return [json.loads(line) for line in [*said, *rest.splitlines()]], logged


INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
)


def call(number: int, name: str, arguments: str) -> str:
    return (
        f'{{"jsonrpc": "2.0", "id": {number}, "method": "tools/call", '
        f'"params": {{"name": "{name}", "arguments": {arguments}}}}}'
    )


@requirement("server:stdout")
def test_nothing_but_the_protocol_reaches_stdout() -> None:
    answers, logged = converse(
        [sys.executable, "-c", NOISY], [INITIALIZE, call(2, "shout", "{}")], 2
    )

    assert [answer["id"] for answer in answers] == [1, 2]
    assert "from print" in logged
    assert "from a child" in logged


COUNTING = """
import threading
from deskhand.servers.server import DeskServer
from deskhand.servers.tool import READS, tool
import anyio

async def count(text: str) -> str:
    "How many threads there are, and the text."
    return f"{threading.active_count()} {text}"

anyio.run(DeskServer("counting", [tool(count, title="Count", annotations=READS)]).run_stdio_async)
"""
LONG = "grün " * 400_000
"""More than a pipe holds, and more than is read at once."""


def told(answer: Any) -> str:
    return str(answer["result"]["content"][0]["text"])


@requirement("server:stdio")
def test_on_pipes_a_server_hears_and_speaks_without_a_thread() -> None:
    lines = [INITIALIZE, call(2, "count", json.dumps({"text": LONG}))]
    answers, _ = converse([sys.executable, "-c", COUNTING], lines, 2, encoding="utf-8")

    assert told(answers[1]) == f"1 {LONG}"


@requirement("server:stdio")
def test_on_sockets_as_node_gives_them_a_server_answers_too() -> None:
    said = f"{INITIALIZE}\n{call(2, 'count', json.dumps({'text': LONG}))}"  # no line end
    ours, its_stdin = socket.socketpair()
    heard, its_stdout = socket.socketpair()
    with ours, heard, heard.makefile("r", encoding="utf-8") as answers:
        with its_stdin, its_stdout:
            process = subprocess.Popen(
                [sys.executable, "-c", COUNTING],
                stdin=its_stdin.fileno(),
                stdout=its_stdout.fileno(),
            )
        with process:
            ours.sendall(said.encode())
            ours.shutdown(socket.SHUT_WR)
            received = [json.loads(line) for line in answers]

    assert told(received[1]) == f"1 {LONG}"
    assert process.returncode == 0


@requirement("server:stdio")
def test_from_a_file_into_a_file_a_server_answers_too(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    asked.write_text(f"{INITIALIZE}\n{call(2, 'count', json.dumps({'text': LONG}))}\n")
    answered = tmp_path / "answered"
    with asked.open() as stdin, answered.open("w") as stdout:
        command = [sys.executable, "-c", COUNTING]
        subprocess.run(command, stdin=stdin, stdout=stdout, timeout=60, check=True)

    answers = [json.loads(line) for line in answered.read_text("utf-8").splitlines()]
    assert told(answers[1]).partition(" ")[2] == LONG


@requirement("server:stdio")
def test_a_pipe_that_others_share_can_be_written_as_before_when_a_server_has_ended() -> (
    None
):
    shell = '"$0" -c "$1"; echo behind it'
    command = ["sh", "-c", shell, sys.executable, COUNTING]
    done = subprocess.run(
        command, input=f"{INITIALIZE}\n", stdout=PIPE, text=True, timeout=60, check=True
    )

    answer, behind = done.stdout.splitlines()
    assert json.loads(answer)["id"] == 1
    assert behind == "behind it"


@requirement("server:answers")
def test_what_is_no_message_is_answered_and_the_server_lives_on(home: Home) -> None:
    lines = [
        INITIALIZE,
        "{oops",
        "",
        '{"jsonrpc": "2.0", "id": 7, "nothing": true}',
        call(8, "read_note", '{"path": "\\ud800.md"}'),
        call(9, "search_notes", '{"query": "x"}'),
        call(10, "search_notes", f'{{"query": "x", "limit": {"9" * 4301}}}'),
        call(11, "search_notes", f'{{"query": {"[" * 300}{"]" * 300}}}'),
    ]

    command = [warm_python(), "-m", "deskhand", "mcp", "obsidian"]
    answers, _ = converse(command, lines, 7, env=home.environment)

    by_id = {answer.get("id"): answer for answer in answers}
    assert len(answers) == 7
    assert by_id[None]["error"]["code"] == -32700
    assert by_id[7]["error"]["code"] == -32600
    assert {by_id[name]["error"]["code"] for name in (8, 10, 11)} == {-32602}
    assert by_id[9]["result"]["structuredContent"] == {"notes": []}


@requirement("server:answers")
def test_whoever_sends_half_a_request_hears_of_it_by_its_own_id(home: Home) -> None:
    named = [
        '{"jsonrpc": "2.0", "id": 3, "method": "ping", "params": []}',
        '{"jsonrpc": "1.0", "id": 4, "method": "ping"}',
        '{"jsonrpc": "2.0", "id": 5, "method": null}',
        '{"jsonrpc": "2.0", "id": "six", "method": "ping", "params": "x"}',
    ]
    nameless = [
        *('"hello"', "5", "null", "[]"),
        '{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}',
        '{"jsonrpc": "2.0", "id": null, "method": "ping"}',
        '{"jsonrpc": "2.0", "id": true, "method": "tools/list"}',
        '{"jsonrpc": "2.0", "id": {}, "method": "tools/call"}',
        '{"jsonrpc": "2.0", "method": "initialize"}',
    ]
    lines = [INITIALIZE, *named, *nameless, '{"jsonrpc": "2.0", "id": 9, "method": "ping"}']

    command = [warm_python(), "-m", "deskhand", "mcp", "obsidian"]
    answers, log = converse(command, lines, len(lines), env=home.environment)

    by_id = {answer.get("id"): answer for answer in answers}
    codes = [by_id[name]["error"]["code"] for name in (3, 4, 5, "six")]
    assert codes == [-32600] * 4
    without = [answer["error"] for answer in answers if answer.get("id") is None]
    assert [error["code"] for error in without] == [-32600] * len(nameless)
    assert [error["message"] for error in without].count(
        "A request needs an id that is a text or a whole number"
    ) == 5
    assert by_id[9]["result"] == {}
    assert "Traceback" not in log


@requirement("server:answers")
async def test_a_lone_surrogate_over_http_is_an_answer(home: Home) -> None:
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    parameters = {
        "name": "read_note",
        "arguments": {"path": "\ud800.md"},
        "_meta": envelope,
    }
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": parameters}
    )
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "read_note",
    }
    with http_server(home, "obsidian") as address, anyio.fail_after(20):
        async with httpx2.AsyncClient(timeout=60) as http:
            modern = await http.post(address, content=body, headers=headers)
            old = await http.post(
                address,
                content=body,
                headers=headers | {"MCP-Protocol-Version": "2025-06-18"},
            )

    assert "parse_error" in modern.text
    assert old.status_code == 400


HALVES = """
import sys
from typing import Any

import anyio
from mcp_types import INVALID_PARAMS, CallToolResult, TextContent
from mcp import MCPError
from pydantic import BaseModel
from deskhand.servers.server import DeskServer
from deskhand.servers.tool import READS, tool

HALF = "Well done \\ud83d"

class Told(BaseModel):
    texts: list[str]

def ready() -> CallToolResult:
    "A result that the tool made by itself."
    return CallToolResult(content=[TextContent(text=HALF)], structured_content={"a": HALF})

def model() -> Told:
    "A model."
    return Told(texts=[HALF])

def texts() -> list[str]:
    "Texts."
    return [HALF]

def members() -> dict[str, Any]:
    "What JSON could not be made of."
    return {HALF: [{"a": HALF}]}

def refuse() -> CallToolResult:
    "An error in the protocol's own words."
    raise MCPError(INVALID_PARAMS, HALF, {"about": HALF})

made = [tool(each, title="T", annotations=READS) for each in (ready, model, texts, members, refuse)]
server = DeskServer("halves", made)
"""


def halves_of(answers: list[Any]) -> list[str]:
    """Which of the answers name half a character, as a strict parser reads them."""
    return [text for text in map(json.dumps, answers) if "\\ud83d" in text]


@requirement("server:answers")
@pytest.mark.parametrize("name", ["ready", "model", "texts", "members", "refuse"])
def test_a_result_of_half_a_character_is_answered_and_the_server_lives_on(
    name: str,
) -> None:
    program = f"{HALVES}\nanyio.run(server.run_stdio_async)"
    lines = [
        INITIALIZE,
        call(2, name, "{}"),
        '{"jsonrpc": "2.0", "id": 3, "method": "ping"}',
    ]

    answers, _ = converse([sys.executable, "-c", program], lines, 3)

    by_id = {answer["id"]: answer for answer in answers}
    assert "Well done ?" in json.dumps(by_id[2])
    assert by_id[3]["result"] == {}
    assert halves_of(answers) == []


@requirement("server:answers")
def test_an_id_of_half_a_character_is_answered_without_it_and_the_server_lives_on() -> None:
    program = f"{HALVES}\nanyio.run(server.run_stdio_async)"
    lines = [
        INITIALIZE,
        '{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}',
        '{"jsonrpc": "2.0", "id": 3, "method": "ping"}',
    ]

    answers, _ = converse([sys.executable, "-c", program], lines, 3)

    by_id = {answer["id"]: answer for answer in answers}
    assert "a lone surrogate" in by_id[None]["error"]["message"]
    assert by_id[3]["result"] == {}


@requirement("server:answers")
@pytest.mark.parametrize("name", ["ready", "model", "texts", "members", "refuse"])
async def test_a_result_of_half_a_character_is_answered_over_http(name: str) -> None:
    made: dict[str, Any] = {}
    exec(HALVES, made)
    headers = {"Accept": "application/json, text/event-stream"}
    headers |= {"Content-Type": "application/json"}
    app = made["server"].streamable_http_app(stateless_http=True)
    async with served(app) as address, httpx2.AsyncClient(timeout=20) as http:
        answer = await http.post(
            f"{address}/mcp", content=call(2, name, "{}"), headers=headers
        )

    assert answer.status_code == 200
    assert "Well done ?" in answer.text


@requirement("server:bearer")
async def test_nobody_enters_over_http_without_the_token_or_from_a_foreign_page(
    home: Home,
) -> None:
    body = json.loads(INITIALIZE)
    headers = {"Accept": "application/json, text/event-stream"}
    good = headers | {"Authorization": f"Bearer {TOKEN}"}
    with http_server(home, "obsidian") as address:
        async with httpx2.AsyncClient(timeout=60) as http:
            answers = [
                await http.post(address, json=body, headers=headers),
                await http.post(
                    address, json=body, headers=headers | {"Authorization": "Bearer wrong"}
                ),
                await http.post(
                    address, json=body, headers=good | {"Origin": "http://evil.example"}
                ),
                await http.post(
                    address, json=body, headers=good | {"Host": "evil.example"}
                ),
                await http.post(address, json=body, headers=good),
            ]

    assert [answer.status_code for answer in answers] == [401, 401, 403, 421, 200]


@requirement("server:bearer")
async def test_a_token_is_made_at_the_first_start_and_its_place_is_told(home: Home) -> None:
    environment = {
        name: value
        for name, value in home.environment.items()
        if name != "SERVICE_AUTH_TOKEN"
    }
    server = http_server(Home(home.vault, environment), "obsidian")
    with server as address:
        file = home.path / "token"
        async with httpx2.AsyncClient(timeout=60) as http:
            headers = {
                "Authorization": f"Bearer {file.read_text()}",
                "Accept": "application/json, text/event-stream",
            }
            answer = await http.post(address, json=json.loads(INITIALIZE), headers=headers)

    assert answer.status_code == 200
    assert f"the bearer token is in {file}\n" in server.said
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(file.read_text()) >= 43


def test_a_taken_port_is_an_error_that_says_so(home: Home) -> None:
    with http_server(home, "obsidian") as address:
        port = address.split(":")[2].split("/")[0]
        done = home.command("mcp", "obsidian", "--http", "--port", port)

    assert done.returncode == 7
    assert f"Port {port} cannot be used" in done.stderr


@requirement("server:prompt")
def test_no_answer_waits_for_the_client_to_confirm_the_head_of_it() -> None:
    with open_port(0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
