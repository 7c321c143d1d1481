"""`deskhand mcp NAME` beside a running desk: a pipe to it, and a server of its own wherever that would differ."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters

from deskhand import __version__, pipe
from deskhand.app import Desk
from deskhand.config import load
from deskhand.resident import joining
from deskhand.servers import SERVERS
from tests.foreign.place import until
from tests.home import Home
from tests.requirements import requirement
from tests.resident.test_up import Running, start
from tests.terminal import Terminal
from tests.warm import warm_python

pytestmark = pytest.mark.anyio

INITIALIZE: dict[str, object] = {
    "method": "initialize",
    "id": "first",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
JOINED = "joined the running desk\n"
LIGHT = (
    "asyncio",
    "socket",
    "enum",
    "json",
    "argparse",
    "pydantic",
    "mcp",
    "anyio",
    "sqlite3",
    "typing",
    "deskhand.cli",
    "deskhand.app",
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp(
        "a-desk-in-a-folder-with-a-name-that-is-longer-than-the-name-of-a-socket-may-be"
    )
    (place / "vault").mkdir()
    inherited = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "COVERAGE_PROCESS_CONFIG")
        if name in os.environ
    }
    paths = {"DESKHAND_HOME": str(place / "home"), "VAULT_PATH": str(place / "vault")}
    return inherited | paths | {"DESKHAND_ADDRESS": "me@example.org", "DESKHAND_USER": "me"}


@pytest.fixture(scope="module")
def desk(environment: dict[str, str]) -> Iterator[Running]:
    found = start(Path(environment["VAULT_PATH"]).parent, environment, "--port", "0")
    yield found
    found.close()


def server(
    environment: dict[str, str], folder: Path, name: str, *more: str
) -> StdioServerParameters:
    arguments = ["-m", "deskhand", "mcp", name, *more]
    return StdioServerParameters(
        command=warm_python(), args=arguments, env=environment, cwd=folder
    )


def run_pipe(
    environment: dict[str, str], folder: Path, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """A server whose client leaves at once; what it says on stderr."""
    command = [warm_python(), "-m", "deskhand", "mcp", *arguments]
    return subprocess.run(
        command,
        env=environment,
        cwd=folder,
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@requirement("joining:serves")
@pytest.mark.parametrize("name", SERVERS)
async def test_every_server_on_stdio_is_the_running_desks_and_answers_as_by_itself(
    desk: Running, environment: dict[str, str], tmp_path: Path, name: str
) -> None:
    variables = environment | {"DESKHAND_AGENT": "ann"}
    assert run_pipe(variables, tmp_path, name).stderr == JOINED
    for era in ("legacy", "2026-07-28"):
        async with Client(server(variables, tmp_path, name, "--alone"), mode=era) as client:
            alone = await client.list_tools()
        async with Client(server(variables, tmp_path, name), mode=era) as client:
            joined = await client.list_tools()
        assert joined.tools == alone.tools


@requirement("joining:serves")
async def test_a_call_through_the_pipe_is_a_call_of_the_running_desk(
    desk: Running, environment: dict[str, str], tmp_path: Path
) -> None:
    long = "ä" * 3_000_000
    async with Client(server(environment, tmp_path, "obsidian")) as client:
        written = await client.call_tool(
            "write_note", {"path": "a.md", "frontmatter": {}, "body": long}
        )
        read = await client.call_tool("read_note", {"path": "a.md"})
    assert not written.is_error
    assert read.structured_content is not None
    assert read.structured_content["body"] == long
    (line,) = [
        each
        for each in desk.command("log", "--json").stdout.splitlines()
        if "write_note" in each
    ]
    assert '"obsidian_mcp"' in line


@requirement("joining:serves")
async def test_who_leaves_takes_nothing_from_those_who_stay(
    desk: Running, environment: dict[str, str], tmp_path: Path
) -> None:
    async with Client(server(environment, tmp_path, "tasks")) as stays:
        for name in ("tasks", "desk"):
            async with Client(server(environment, tmp_path, name)) as leaves:
                assert not (await leaves.call_tool("list_tasks", {})).is_error
            assert not (await stays.call_tool("list_tasks", {})).is_error


@requirement("joining:ends")
@pytest.mark.parametrize("more", [(), ("--alone",)], ids=["joined", "alone"])
def test_what_was_asked_is_answered_although_the_client_sends_no_more(
    desk: Running, environment: dict[str, str], tmp_path: Path, more: tuple[str, ...]
) -> None:
    titles = [f"milk {number} {more}" for number in range(8)]
    calls = [{"name": "create_task", "arguments": {"title": title}} for title in titles]
    asked: list[dict[str, object]] = [INITIALIZE]
    asked += [
        {"method": "tools/call", "id": number, "params": call}
        for number, call in enumerate(calls)
    ]
    done = subprocess.run(
        [warm_python(), "-m", "deskhand", "mcp", "tasks", *more],
        env=environment,
        cwd=tmp_path,
        input="".join(f"{json.dumps({'jsonrpc': '2.0'} | each)}\n" for each in asked),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    made = [
        each["result"]["structuredContent"]["title"]
        for each in answers
        if "structuredContent" in each["result"]
    ]
    assert sorted(made) == titles


@requirement("joining:serves")
async def test_each_caller_has_its_own_scope_and_its_own_place_among_the_agents(
    desk: Running, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    reader = server(environment, tmp_path, "desk", "--scope", "mail:read")
    ann = server(environment | {"DESKHAND_AGENT": "ann"}, tmp_path, "agentmail")
    bob = server(environment | {"DESKHAND_AGENT": "bob"}, tmp_path, "agentmail")
    async with Client(reader) as narrow, Client(ann) as first, Client(bob) as second:
        names = {tool.name for tool in (await narrow.list_tools()).tools}
        await second.call_tool("status", {"status": "ready"})
        sent = await first.call_tool("send", {"recipient": "bob", "message": "Hello Bob"})
        got = await second.call_tool("receive", {})
        nothing = await first.call_tool("receive", {})
    assert "search_email" in names
    assert "send_email" not in names
    assert not sent.is_error, sent.content
    assert "Hello Bob" in got.content[0].text
    assert "Hello Bob" not in nothing.content[0].text


@requirement("agents:identity")
@pytest.mark.parametrize("more", [(), ("--alone",)], ids=["joined", "alone"])
@pytest.mark.parametrize(
    ("name", "tool"), [("agentmail", "list-recipients"), ("desk", "list_agents")]
)
async def test_an_agent_is_its_window_of_its_own_tmux_as_that_is_now(
    desk: Running,
    environment: dict[str, str],
    terminal: Terminal,
    name: str,
    tool: str,
    more: tuple[str, ...],
) -> None:
    terminal.open("Über")
    seat = {key: terminal.variables("a1")[key] for key in ("TMUX", "TMUX_PANE")}
    given = server(environment | seat, terminal.repository, name, *more)
    async with Client(given) as client:

        async def see() -> list[tuple[str, bool]]:
            answer = await client.call_tool(tool, {})
            assert not answer.is_error, answer.content
            listed = json.loads(answer.content[0].text)["recipients"]
            return [(each["name"], each["is_current"]) for each in listed]

        assert await see() == [("a1", True), ("a2", False), ("Über", False)]
        terminal.tmux("rename-window", "-t", terminal.panes["a1"], "boss")
        terminal.tmux("kill-window", "-t", terminal.panes["a2"])
        terminal.open("a3")
        with anyio.fail_after(20):
            while await see() != [("boss", True), ("a3", False), ("Über", False)]:
                pass


@requirement("joining:alone")
def test_a_server_serves_by_itself_where_the_running_desk_would_do_something_else(
    desk: Running, environment: dict[str, str], tmp_path: Path
) -> None:
    elsewhere = environment | {"DESKHAND_HOME": str(tmp_path / "other")}
    reasons = {
        "no desk runs at": run_pipe(elsewhere, tmp_path, "obsidian"),
        "--alone": run_pipe(environment, tmp_path, "obsidian", "--alone"),
        "sets DEV_MODE to something else": run_pipe(
            environment | {"DEV_MODE": "true"}, tmp_path, "email"
        ),
        "sets DESKHAND_USER to something else": run_pipe(
            environment | {"DESKHAND_USER": "eve"}, tmp_path, "tasks"
        ),
    }
    (tmp_path / ".env").write_text("DESKHAND_USER=eve\n")
    reasons["the .env file here"] = run_pipe(environment, tmp_path, "tasks")
    for why, done in reasons.items():
        first = done.stderr.splitlines()[0]
        assert first.startswith("serving by itself: ")
        assert why in first
    same = environment | {"DEV_MODE": "false"}
    assert run_pipe(same, tmp_path, "email").stderr == JOINED
    assert run_pipe(environment, tmp_path, "email", "--scope", "nonsense").returncode != 0
    assert (
        "There is no server nonsense." in run_pipe(environment, tmp_path, "nonsense").stderr
    )


@requirement("joining:alone")
def test_a_desk_of_another_version_is_not_joined(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with listening(tmp_path / "desk.sock", pipe.pack("deskhand", "99.0")):
        done = run_pipe(
            environment | {"DESKHAND_SOCKET": str(tmp_path / "desk.sock")},
            tmp_path,
            "obsidian",
        )
    line = f"serving by itself: the running desk has version 99.0, this is {__version__}"
    assert done.stderr.splitlines()[0] == line


@requirement("joining:ends")
def test_a_client_that_is_still_sending_sees_that_the_desk_has_ended(
    environment: dict[str, str], tmp_path: Path
) -> None:
    given = environment | {"DESKHAND_SOCKET": str(tmp_path / "desk.sock")}
    with listening(
        tmp_path / "desk.sock", pipe.pack("deskhand", __version__) + pipe.pack("joined")
    ):
        command = [warm_python(), "-m", "deskhand", "mcp", "obsidian"]
        with subprocess.Popen(
            command,
            env=given,
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as joined:
            assert joined.stdin is not None
            with suppress(BrokenPipeError):
                joined.stdin.write("x" * 5_000_000)
                joined.stdin.flush()
            assert joined.wait(timeout=60) == pipe.UNAVAILABLE
            assert joined.stderr.read() == f"{JOINED}the desk has ended\n"


@contextmanager
def listening(place: Path, greeting: bytes) -> Iterator[None]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(pipe.reachable(str(place)))
    listener.listen()

    def greet() -> None:
        door, _ = listener.accept()
        door.sendall(greeting)
        door.recv(1)
        door.close()

    greeter = threading.Thread(target=greet)
    greeter.start()
    try:
        yield
    finally:
        greeter.join()
        listener.close()


@requirement("joining:light")
def test_the_pipe_loads_nothing_but_a_little_of_the_standard_library(
    desk: Running, environment: dict[str, str], tmp_path: Path
) -> None:
    program = (
        "import sys; from deskhand.pipe import join; join(['desk']); print(*sys.modules)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command,
        env=environment,
        cwd=tmp_path,
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == JOINED
    assert not set(done.stdout.split()) & set(LIGHT)


@requirement("joining:private")
def test_only_the_owner_reaches_the_socket(desk: Running) -> None:
    place = desk.home / "desk.sock"
    assert place.stat().st_mode & 0o777 == 0o600
    assert desk.home.stat().st_mode & 0o777 == 0o700


@requirement("joining:private")
def test_whoever_says_nonsense_or_nothing_disturbs_nobody(
    desk: Running, environment: dict[str, str], tmp_path: Path
) -> None:
    doors = []
    for greeting in (
        b"",
        b"\0\n",
        b"desk\0\n",
        b"x" * 100_000,
        pipe.pack("desk", "", "/", "broken", "="),
    ):
        door = socket.socket(socket.AF_UNIX)
        door.connect(pipe.reachable(str(desk.home / "desk.sock")))
        door.sendall(greeting)
        doors.append(door)
    assert run_pipe(environment, tmp_path, "obsidian").stderr == JOINED
    for door in doors:
        door.close()
    assert run_pipe(environment, tmp_path, "obsidian").stderr == JOINED


@requirement("joining:ends")
def test_pipes_that_are_killed_leave_nothing_behind(
    desk: Running, environment: dict[str, str], tmp_path: Path
) -> None:
    run_pipe(environment, tmp_path, "obsidian")
    files = Path(f"/proc/{desk.process.pid}/fd")
    before = len(list(files.iterdir()))
    command = [warm_python(), "-m", "deskhand", "mcp", "obsidian"]
    for _ in range(10):
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        assert process.stderr is not None
        assert process.stderr.readline() == JOINED
        process.kill()
        process.communicate()
    for _ in range(100):
        run_pipe(environment, tmp_path, "obsidian")
        if len(list(files.iterdir())) <= before:
            break
    assert len(list(files.iterdir())) <= before


@requirement("joining:private")
@pytest.mark.parametrize("greets", [False, True], ids=["silent", "joined"])
async def test_a_crowd_that_asks_nothing_keeps_nobody_out(
    desk: Running, environment: dict[str, str], tmp_path: Path, greets: bool
) -> None:
    place = pipe.reachable(str(Path(environment["DESKHAND_HOME"]) / pipe.SOCKET))
    async with Client(server(environment, tmp_path, "obsidian")) as early:
        before = await early.list_tools()
        with ExitStack() as crowd:
            for _ in range(joining.MOST + 2):
                one = crowd.enter_context(socket.socket(socket.AF_UNIX))
                one.connect(place)
                one.settimeout(60)
                assert one.recv(9) == b"deskhand\0"
                if greets:
                    one.sendall(pipe.pack("obsidian", "", str(tmp_path)))
            assert run_pipe(environment, tmp_path, "obsidian").stderr == JOINED
            async with Client(server(environment, tmp_path, "obsidian")) as late:
                assert await late.list_tools() == before
            assert await early.list_tools() == before


@requirement("joining:ends")
async def test_whoever_comes_in_the_moment_in_which_the_desk_ends_disturbs_nothing(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    home.path.mkdir(parents=True, exist_ok=True)
    made = Desk(load(home.environment).settings)
    ending = asyncio.Event()
    door = joining.JoiningDoor(made, made.settings)
    listening = asyncio.create_task(door.listen(ending))
    place = joining.place_of(made.settings)
    await until(place.exists)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(pipe.reachable(str(place)))
        ending.set()
        await listening
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == []
    made.close()


@requirement("joining:ends")
def test_a_desk_that_ends_is_seen_to_end_and_the_next_start_of_the_pipe_works(
    environment: dict[str, str], tmp_path: Path
) -> None:
    own = environment | {"DESKHAND_HOME": str(tmp_path / "home")}
    desk = start(tmp_path, own, "--port", "0")
    command = [warm_python(), "-m", "deskhand", "mcp", "obsidian"]
    with subprocess.Popen(
        command,
        env=own,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as joined:
        assert joined.stderr is not None
        assert joined.stderr.readline() == JOINED
        assert desk.ends(signal.SIGTERM)[0] == 0
        assert joined.wait(timeout=60) == pipe.UNAVAILABLE
        assert joined.stderr.read() == "the desk has ended\n"
    assert not (tmp_path / "home" / "desk.sock").exists()
    assert (
        "serving by itself: no desk runs at" in run_pipe(own, tmp_path, "obsidian").stderr
    )

    desk.close()
    again = start(tmp_path, own, "--port", "0")
    assert run_pipe(own, tmp_path, "obsidian").stderr == JOINED
    again.process.kill()  # its file stays, and no desk is behind it
    again.process.wait()
    assert (tmp_path / "home" / "desk.sock").exists()
    assert (
        "serving by itself: no desk runs at" in run_pipe(own, tmp_path, "obsidian").stderr
    )
    again.close()
    third = start(tmp_path, own, "--port", "0")
    assert run_pipe(own, tmp_path, "obsidian").stderr == JOINED
    third.close()
