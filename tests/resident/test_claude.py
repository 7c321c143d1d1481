"""Claude Code asks the running desk before it uses a tool of its own: by its hook, or by its permission-prompt tool."""

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate.cards import Card
from deskhand.gate.letters import Letter
from tests.requirements import requirement
from tests.resident.test_up import Running, start
from tests.transports import ERAS
from tests.warm import warm_python

pytestmark = pytest.mark.anyio

PRE = "PreToolUse"
PROMPT = "PermissionRequest"
_NUMBERS = itertools.count(1)


class Asked:
    """A running desk, and what Claude Code does at it."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.environment = running.environment
        self.desk = Desk(load(running.environment).settings)

    def call(self, **changes: Any) -> dict[str, Any]:
        """A call as Claude Code tells its hook of it; another command each time."""
        number = next(_NUMBERS)
        return {
            "session_id": "a-session",
            "transcript_path": "/nowhere.jsonl",
            "cwd": "/srv/garden",
            "permission_mode": "default",
            "hook_event_name": PRE,
            "tool_name": "Bash",
            "tool_input": {"command": f"touch made-{number}", "description": "make it"},
            "tool_use_id": f"toolu_{number}",
        } | changes

    def start_hook(
        self, given: object, *options: str, **variables: str
    ) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [warm_python(), "-m", "deskhand", "claude-hook", *options],
            env=self.environment | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(given if isinstance(given, str) else json.dumps(given))
        process.stdin.close()
        process.stdin = None
        return process

    def hook(self, given: object, **variables: str) -> Any:
        """What the hook says when nobody answers meanwhile."""
        return read(self.start_hook(given, "--wait", "0", **variables))

    async def card(self, command: str) -> Card:
        """The card of that command, as soon as it waits."""
        with anyio.fail_after(60):
            while True:
                found, _ = await self.desk.waiting.cards(limit=200)
                for each in found:
                    if ("command", command) in each.rows:
                        return each
                await anyio.sleep(0.02)

    async def approve(self, card: Card) -> None:
        await self.desk.answers.approve_now(card.id, card.digest, "person")
        with anyio.fail_after(60):
            while (found := await self.desk.gate.find(card.id)).state != "sent":
                assert found.state in ("approved", "sending"), (found.note, found.error)
                await anyio.sleep(0.02)


def read(process: "subprocess.Popen[str]") -> Any:
    said, errors = process.communicate(timeout=100)
    assert (process.returncode, errors) == (0, "")
    if not said:
        return None
    (answer,) = json.loads(said).values()
    return answer


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    place = tmp_path_factory.mktemp("person")
    (place / "vault").mkdir()
    inherited = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "COVERAGE_PROCESS_CONFIG")
        if name in os.environ
    }
    paths = {"DESKHAND_HOME": str(place / "home"), "VAULT_PATH": str(place / "vault")}
    found = start(
        place, inherited | paths | {"DESKHAND_ADDRESS": "me@example.org"}, "--port", "0"
    )
    yield found
    found.close()


@pytest.fixture
def claude(running: Running) -> Iterator[Asked]:
    made = Asked(running)
    yield made
    made.desk.close()


@requirement("claude:once")
async def test_a_command_waits_runs_after_the_yes_and_is_asked_anew(claude: Asked) -> None:
    given = claude.call()
    command = given["tool_input"]["command"]
    waiting = claude.start_hook(given)
    card = await claude.card(command)
    assert (card.subject, card.asker) == (
        f"Run {command}",
        "Claude Code by its hook on this machine",
    )
    assert card.rows[0] == ("in the folder", "/srv/garden")
    await claude.approve(card)

    allowed = await anyio.to_thread.run_sync(read, waiting)
    assert (allowed["permissionDecision"], allowed["updatedInput"]) == (
        "allow",
        given["tool_input"],
    )

    again = await anyio.to_thread.run_sync(claude.hook, given)
    assert again["permissionDecision"] == "deny"
    anew = await claude.card(command)
    assert anew.id != card.id
    assert (
        f"{claude.running.address}/requests/{anew.id}" in again["permissionDecisionReason"]
    )
    assert anew.risk.level == "low"


@requirement("claude:once")
async def test_a_yes_is_for_this_very_call_in_this_folder_and_session(
    claude: Asked,
) -> None:
    given = claude.call(hook_event_name=PROMPT)
    told = await anyio.to_thread.run_sync(claude.hook, given)
    assert told["decision"]["behavior"] == "deny"
    assert "waiting at" in told["decision"]["message"]
    await claude.approve(await claude.card(given["tool_input"]["command"]))

    others = (
        {"session_id": "another"},
        {"cwd": "/srv"},
        {"tool_name": "Read"},
        {"tool_input": given["tool_input"] | {"timeout": 1}},
        {"tool_input": {"command": given["tool_input"]["command"] + " "}},
    )
    for other in others:
        refused = await anyio.to_thread.run_sync(claude.hook, given | other)
        assert refused["decision"]["behavior"] == "deny", other
    passed = await anyio.to_thread.run_sync(
        claude.hook, given | {"tool_use_id": "toolu_other"}
    )
    assert passed["decision"] == {"behavior": "allow", "updatedInput": given["tool_input"]}
    assert (await anyio.to_thread.run_sync(claude.hook, given))["decision"][
        "behavior"
    ] == "deny"


@requirement("claude:once")
async def test_a_no_and_the_persons_words_reach_the_model_and_an_edit_what_is_run(
    claude: Asked,
) -> None:
    given = claude.call()
    waiting = claude.start_hook(given)
    card = await claude.card(given["tool_input"]["command"])
    await claude.desk.answers.reject(card.id, card.digest, "use the other folder", "person")
    refused = await anyio.to_thread.run_sync(read, waiting)
    assert refused["permissionDecision"] == "deny"
    assert "use the other folder" in refused["permissionDecisionReason"]
    assert (await anyio.to_thread.run_sync(claude.hook, given))[
        "permissionDecision"
    ] == "deny"

    given = claude.call()
    waiting = claude.start_hook(given)
    card = await claude.card(given["tool_input"]["command"])
    letter = Letter(card.to[0].address, card.subject, json.dumps({"command": "true"}))
    edited = await claude.desk.answers.edit(card.id, card.digest, letter, "person")
    await claude.approve(edited)
    allowed = await anyio.to_thread.run_sync(read, waiting)
    assert allowed["updatedInput"] == {"command": "true"}


@requirement("claude:closed")
async def test_where_nobody_can_be_asked_the_answer_is_no(
    claude: Asked, tmp_path: Path
) -> None:
    elsewhere = {"DESKHAND_HOME": str(tmp_path)}
    for event in (PRE, PROMPT):
        told = json.dumps(claude.hook(claude.call(hook_event_name=event), **elsewhere))
        assert '"deny"' in told
        assert "Start it with `deskhand up`" in told
    for wrong in (
        "",
        "[]",
        "{}",
        "null",
        "{",
        '{"hook_event_name": "PreToolUse"}',
        '{"hook_event_name": 1, "tool_name": 2}',
        f'{{"tool_input": {"[" * 9000}{"]" * 9000}}}',
    ):
        process = claude.start_hook(wrong)
        _, errors = process.communicate(timeout=100)
        assert process.returncode == 2, wrong
        assert errors.startswith("Nothing was done")
    odd: list[dict[str, Any]] = [
        {"tool_input": "ls"},
        {"tool_input": None},
        {"cwd": 7},
        {"session_id": []},
    ]
    for broken in [*odd, {"tool_name": ""}]:
        assert claude.hook(claude.call(**broken))["permissionDecision"] == "deny", broken
    lacking = claude.call()
    del lacking["session_id"]
    assert claude.hook(lacking)["permissionDecision"] == "deny"
    server = StdioServerParameters(
        command=warm_python(),
        args=["-m", "deskhand", "mcp", "claude"],
        env=claude.environment | elsewhere,
    )
    async with Client(server) as client:
        found = await client.call_tool(
            "permission_prompt", {"tool_name": "Bash", "input": {"command": "ls"}}
        )
    assert json.loads(found.content[0].text)["message"].startswith(
        "The desk is not running"
    )


@requirement("claude:closed")
def test_at_a_terminal_only_what_claude_code_would_ask_is_asked(claude: Asked) -> None:
    assert claude.hook(claude.call(), CLAUDE_CODE_ENTRYPOINT="cli") is None
    own = claude.call(hook_event_name=PROMPT, tool_name="mcp__deskhand__send_email")
    assert claude.hook(own, CLAUDE_CODE_ENTRYPOINT="cli") is None
    asked = claude.hook(claude.call(hook_event_name=PROMPT), CLAUDE_CODE_ENTRYPOINT="cli")
    assert asked["decision"]["behavior"] == "deny"


@requirement("claude:tool")
@pytest.mark.parametrize("era", ERAS)
async def test_the_permission_prompt_tool_asks_in_the_folder_and_session_of_its_client(
    claude: Asked, tmp_path: Path, era: str
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("one\ntwo\nthree\n")
    server = StdioServerParameters(
        command=warm_python(),
        args=["-m", "deskhand", "mcp", "claude"],
        env=claude.environment | {"CLAUDE_CODE_SESSION_ID": f"session {era}"},
        cwd=tmp_path,
    )
    asked = {
        "tool_name": "Write",
        "input": {"file_path": str(file), "content": "one\n2\nthree\n"},
        "tool_use_id": "1",
    }
    async with Client(server, mode=era) as client:
        first = await client.call_tool("permission_prompt", asked | {"wait": 0})
        found, _ = await claude.desk.waiting.cards(limit=200)
        (card,) = [
            each for each in found if each.rows[0] == ("in the folder", str(tmp_path))
        ]
        assert card.subject.startswith("Write /")
        (edit,) = card.edits
        assert edit.difference.splitlines()[2:] == [
            "@@ -1,3 +1,3 @@",
            " one",
            "-two",
            "+2",
            " three",
        ]
        await claude.approve(card)
        second = await client.call_tool("permission_prompt", asked | {"tool_use_id": "2"})
    assert json.loads(first.content[0].text)["behavior"] == "deny"
    assert json.loads(second.content[0].text) == {
        "behavior": "allow",
        "updatedInput": asked["input"],
    }
    assert (len(second.content), second.structured_content) == (1, None)
