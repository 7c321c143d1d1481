"""Agents and the person on a desk that was just set up: no repository, no room, nothing configured for agents."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from deskhand.agents.mail import AgentMessage
from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import NotFound
from deskhand.orchestrator import status
from deskhand.resident.joining import JoiningDoor
from deskhand.resident.up import _parts
from deskhand.servers.desk import desk_server
from deskhand.web.events import state
from deskhand.web.site import site
from tests.home import Home
from tests.requirements import requirement
from tests.terminal import Terminal
from tests.web.person import served, signed_in

pytestmark = pytest.mark.anyio


async def call(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    answer: dict[str, Any] = json.loads(result.content[0].text)
    return answer


@requirement("agents:person")
async def test_an_agent_writes_to_the_person_and_the_answer_reaches_it(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    desk = Desk(load(home.environment | {"DESKHAND_AGENT": "scout"}).settings)
    async with (
        Client(desk_server(desk)) as agent,
        served(site(desk)) as address,
        signed_in(desk, address) as person,
    ):
        empty = await person.reads("/agents")
        before = await state(desk)
        listed = await call(agent, "list_agents")
        await call(agent, "send_to_agent", recipient="person", message="Which colour?")
        after = await state(desk)
        shown = await person.reads("/agents")
        live = await person.reads("/live")
        said = status.page(await status.facts(desk), desk.now())
        await person.sends("/agents/send", {"to": "scout", "text": "Green."}, "/agents")
        answer = await call(agent, "receive_from_agents")
        nobody = await agent.call_tool(
            "send_to_agent", {"recipient": "nobody", "message": "x"}
        )
    desk.close()

    assert empty.status_code == 200
    assert listed["recipients"] == [{"name": "scout", "is_current": True}]
    assert "1 unread message for you" in shown.text
    assert '<span class="count" id="count-agents">1<' in shown.text
    assert '<span class="count" id="count-agents" hidden>0<' in empty.text
    assert 'data-messages="1"' in live.text
    assert before != after
    assert "- 1 message of agents to you" in said
    assert (answer["from"], answer["message"]) == ("person", "Green.")
    assert nobody.is_error


@requirement("agents:person")
async def test_whoever_is_told_of_the_desks_own_room_reaches_the_person_from_anywhere(
    home: Home, tmp_path: Path, terminal: Terminal
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    told = {
        "DESKHAND_AGENT": "scout",
        "DESKHAND_AGENTS_STORE": "database",
        "DESKHAND_AGENTS_ROOM": "desk",
        "DESKHAND_HOME": str(home.path),
    }
    done = terminal.agentmail(None, "send", "person", "Hello.", folder=elsewhere, **told)
    assert done.returncode == 0, done.stderr
    desk = Desk(load(home.environment).settings)
    desk.folder = str(elsewhere)
    assert await desk.count_messages() == 1
    desk.close()


@requirement("agents:person")
async def test_the_window_of_the_desk_itself_is_no_agent_unless_somebody_else_is_in_it(
    home: Home, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = terminal.variables("a2")
    for name in ("TMUX", "TMUX_PANE", "TMUX_TMPDIR"):
        monkeypatch.setenv(name, place[name])
    desk = Desk(load(home.environment | place).settings)
    desk.folder = str(terminal.repository)
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        alone = (await person.reads("/agents")).text
        terminal.tmux("split-window", "-d", "-t", terminal.panes["a2"], "exec cat")
        shared = (await person.reads("/agents")).text
    desk.close()
    assert ("<bdi>a1</bdi>" in alone, "<bdi>a2</bdi>" in alone) == (True, False)
    assert "<bdi>a2</bdi>" in shared


@requirement("agents:person")
def test_in_a_repository_messages_are_where_they_were_and_agentmail_itself_is_as_ever(
    home: Home, tmp_path: Path
) -> None:
    desk = Desk(load(home.environment).settings)
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    message = AgentMessage("m1", "a", "b", "kept", "2026-11-15T09:00:00Z")
    desk.room(str(root)).append(message)

    assert [each.text for each in desk.repository_room(str(root)).messages("b")] == ["kept"]
    assert desk.room(None).messages("b") == []
    with pytest.raises(NotFound, match="not in a git repository"):
        desk.repository_room(None)
    desk.close()


@requirement("agents:person")
async def test_up_runs_the_mailman_where_it_is_told_to(home: Home, tmp_path: Path) -> None:
    desk = Desk(load(home.environment | {"DESKHAND_AGENTS_MAILMAN": "true"}).settings)
    desk.folder = str(tmp_path)
    names = [
        part.name
        for part in _parts(
            desk, JoiningDoor(desk, desk.settings), None, "http://127.0.0.1:1", print
        )
    ]
    plain = Desk(load(home.environment).settings)
    others = [
        part.name
        for part in _parts(
            plain, JoiningDoor(plain, plain.settings), None, "http://127.0.0.1:1", print
        )
    ]
    desk.close()
    plain.close()

    assert {*names} - {*others} == {"mailman"}
