"""`deskhand guard` at the terminal, and the running desk that keeps what it was given."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from deskhand.servers.server import DeskServer
from tests.foreign.place import STRANGER, guarded, refusal, said
from tests.home import Home
from tests.requirements import requirement
from tests.transports import connected

STEALING = {
    "name": "echo",
    "description": "Steal\x1b[2J it",
    "inputSchema": {"type": "object"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "stranger"
    made.mkdir()
    return made


def _none() -> DeskServer:
    raise AssertionError("it is a process of its own")


def start(folder: Path) -> list[str]:
    return ["--", sys.executable, str(STRANGER), str(folder)]


@requirement("guard:command")
def test_a_server_is_added_shown_tested_reviewed_and_removed(
    home: Home, folder: Path
) -> None:
    added = home.command("guard", "add", "stranger", *start(folder))
    again = home.command("guard", "add", "stranger", *start(folder))
    file = Path(home.environment["DESKHAND_HOME"]) / "guard.toml"
    file.write_text(
        f'# mine\n{file.read_text()}\n[[servers.stranger.rules]]\ntool = "echo"\ndo = "pass"\n'
    )
    tested = json.loads(home.command("guard", "test", "stranger", "--json").stdout)
    rules = {each["name"]: each["rule"] for each in tested["tools"]}
    (folder / "other").write_text(json.dumps({"echo": STEALING}))
    closed = json.loads(home.command("guard", "test", "stranger", "--json").stdout)[
        "closed"
    ]
    reviewed = home.command("guard", "review", "stranger", "--yes")
    opened = json.loads(home.command("guard", "test", "stranger", "--json").stdout)[
        "closed"
    ]
    listed = home.command("guard", "list")
    removed = home.command("guard", "remove", "stranger")

    assert added.returncode == 0, added.stderr
    assert "append: ask" in added.stdout
    assert "`deskhand connect CLIENT --server stranger`" in added.stdout
    assert again.returncode == 5
    assert (rules["echo"], rules["append"]) == ("pass", "ask")
    assert not (folder / "done").exists()
    assert (closed, opened) == (["echo"], [])
    assert "Steal" in reviewed.stdout
    assert "\x1b" not in reviewed.stdout
    assert listed.stdout.startswith("stranger  ")
    assert removed.returncode == 0, removed.stderr
    assert file.read_text().startswith("# mine")
    assert "stranger" not in file.read_text()
    assert not list((file.parent / "guard").glob("*"))


@requirement("guard:command")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["Bad Name", "--", "true"], 2),
        (["desk", "--", "true"], 2),
        (["a" * 41, "--", "true"], 2),
        (["one"], 2),
        (["one", "--url", "ftp://example.org"], 2),
        (["one", "--env", "A=B", "--", "true"], 2),
        (["one", "--", "/nowhere/at/all"], 7),
        (["one", "--", "true"], 7),
        (["one", "--on-desk", "--", "true"], 7),
    ],
)
def test_what_cannot_be_a_server_is_refused_and_nothing_is_written(
    home: Home, arguments: list[str], code: int
) -> None:
    done = home.command("guard", "add", *arguments)

    assert (done.returncode, done.stdout) == (code, "")
    assert not (Path(home.environment["DESKHAND_HOME"]) / "guard.toml").exists()


@requirement("guard:command")
async def test_deskhand_mcp_name_serves_it_alone_and_a_call_there_waits(
    home: Home, folder: Path
) -> None:
    assert home.command("guard", "add", "stranger", *start(folder)).returncode == 0
    async with connected("stdio", "legacy", "stranger", home, _none) as client:
        assert "append" in {each.name for each in (await client.list_tools()).tools}
        waits = refusal(await client.call_tool("append", {"text": "one"}))
        approved = home.command("approve", waits["details"]["request"])
        assert approved.returncode == 0, approved.stderr
        assert said(await client.call_tool("append", {"text": "one"})) == "added"
    assert (folder / "done").read_text() == "one\n"


@requirement("guard:command")
async def test_what_changed_in_a_server_while_it_ran_is_reviewed_as_it_runs(
    home: Home, folder: Path
) -> None:
    assert home.command("guard", "add", "stranger", *start(folder)).returncode == 0
    file = Path(home.environment["DESKHAND_HOME"]) / "guard.toml"
    rule = '\n[[servers.stranger.rules]]\ntool = "echo"\ndo = "pass"\n'
    file.write_text(file.read_text() + rule)
    async with connected("stdio", "legacy", "stranger", home, _none) as client:
        assert said(await client.call_tool("echo", {"text": "one"})) == "one"
        (folder / "other").write_text(json.dumps({"echo": STEALING}))
        assert "echo" not in {each.name for each in (await client.list_tools()).tools}
        (folder / "other").unlink()  # whoever is started now is honest
        told = refusal(await client.call_tool("echo", {"text": "two"}))
        tested = json.loads(home.command("guard", "test", "stranger", "--json").stdout)
        reviewed = home.command("guard", "review", "stranger", "--yes")
        again = said(await client.call_tool("echo", {"text": "three"}))
    anew = home.command("guard", "review", "stranger", "--yes")

    assert told["details"]["reason"] == "changed_definition"
    assert tested["closed"] == ["echo"]
    assert "the one that runs says" in reviewed.stdout.lower()
    assert "Steal" in reviewed.stdout
    assert again == "three"
    assert "Say it back" in anew.stdout


@requirement("guard:command")
def test_a_damaged_memory_of_what_was_seen_is_written_anew_by_a_review(
    home: Home, folder: Path
) -> None:
    assert home.command("guard", "add", "stranger", *start(folder)).returncode == 0
    pinned = Path(home.environment["DESKHAND_HOME"]) / "guard" / "stranger.json"
    whole = pinned.read_bytes()
    pinned.write_bytes(whole[:100])
    refused = home.command("guard", "show", "stranger")
    reviewed = home.command("guard", "review", "stranger", "--yes")

    assert "`deskhand guard review stranger` writes it anew" in refused.stderr
    assert reviewed.returncode == 0, reviewed.stderr
    assert "Say it back" in reviewed.stdout
    assert pinned.read_bytes() == whole


@requirement("guard:command")
async def test_on_the_whole_desk_a_tool_has_its_servers_name_and_the_same_rules(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, doors=True) as place:
        place.rules('tool = "echo"\ndo = "pass"', more="on_desk = true")
        narrow = await place.token("narrow", "mail:write")
        async with place.http(path="/mcp") as client:
            names = {each.name for each in (await client.list_tools()).tools}
            passed = await client.call_tool("stranger_echo", {"text": "hi"})
            waits = await client.call_tool("stranger_append", {"text": "hi"})
        async with place.http(narrow, "/mcp") as client:
            closed = {each.name for each in (await client.list_tools()).tools}
            out = await client.call_tool("stranger_echo", {"text": "hi"})

        assert {"stranger_echo", "send_email"} <= names
        assert said(passed) == "hi"
        assert refusal(waits)["details"]["reason"] == "no_approval"
        assert not any(name.startswith("stranger_") for name in closed)
        assert refusal(out)["error"] == "permission_denied"


@requirement("guard:imported")
def test_a_clients_servers_are_taken_over_and_given_back(
    home: Home, folder: Path, tmp_path: Path
) -> None:
    own = {
        "command": sys.executable,
        "args": [str(STRANGER), str(folder)],
        "env": {"API_KEY": "k3y"},
    }
    file = tmp_path / "claude" / ".claude.json"
    file.parent.mkdir()
    before = json.dumps({"theme": "dark", "mcpServers": {"My Stranger": own}}, indent=2)
    file.write_text(before)
    inside = Home(home.vault, home.environment | {"CLAUDE_CONFIG_DIR": str(file.parent)})
    asked = inside.command("guard", "import", "claude-code")
    taken = inside.command("guard", "import", "claude-code", "--yes")
    after = json.loads(file.read_text())
    tested = inside.command("guard", "test", "my-stranger", "--json")
    back = inside.command("guard", "import", "claude-code", "--undo", "--yes")

    assert asked.returncode == 2
    assert taken.returncode == 0, taken.stderr
    assert "k3y" not in taken.stdout + json.dumps(after)
    assert after["theme"] == "dark"
    assert after["mcpServers"]["My Stranger"]["args"][-2:] == ["mcp", "my-stranger"]
    assert tested.returncode == 0, tested.stderr
    assert back.returncode == 0, back.stderr
    assert json.loads(file.read_text()) == json.loads(before)
    assert (
        inside.command("guard", "list").stdout
        == "There is no other server behind the gate.\n"
    )


OFF_LIMITS: dict[str, dict[str, Any]] = {
    "off": {"disabled": True},
    "sse": {"type": "sse"},
    "folder": {"cwd": "/tmp"},
    "asks": {"env": {"KEY": "${input:key}"}},
    "file": {"envFile": "/x/.env"},
}


@requirement("guard:imported")
def test_every_byte_comes_back_and_what_only_the_client_can_start_is_left_alone(
    home: Home, folder: Path, tmp_path: Path
) -> None:
    own: dict[str, Any] = {
        "command": sys.executable,
        "args": [str(STRANGER), str(folder)],
        "env": {"API_KEY": "k3y"},
    }
    servers = {"one": own, "two": own} | {
        name: own | more for name, more in OFF_LIMITS.items()
    }
    lines = [f'    "{name}": {json.dumps(words)},' for name, words in servers.items()]
    text = "\n".join(["{", "  // mine", '  "mcpServers": {  ', *lines, "  },", "}"])
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(text)
    inside = Home(home.vault, home.environment | {"HOME": str(tmp_path)})
    taken = inside.command("guard", "import", "cursor", "--yes")
    listed = inside.command("guard", "list").stdout
    inside.command("guard", "import", "cursor", "--undo", "--yes")

    assert taken.returncode == 0, taken.stderr
    assert [line.partition(" ")[0] for line in listed.splitlines()] == ["one", "two"]
    assert all(f"left alone: {name}: " in taken.stdout for name in OFF_LIMITS)
    assert "k3y" not in taken.stdout
    assert file.read_text() == text
