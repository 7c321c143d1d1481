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
from deskhand.resident.joining import JoiningDoor
from deskhand.resident.up import _parts
from deskhand.servers.desk import desk_server
from deskhand.web.site import site
from tests.home import Home
from tests.requirements import requirement
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
        listed = await call(agent, "list_agents")
        await call(agent, "send_to_agent", recipient="person", message="Which colour?")
        shown = await person.reads("/agents")
        await person.sends("/agents/send", {"to": "scout", "text": "Green."}, "/agents")
        answer = await call(agent, "receive_from_agents")
        nobody = await agent.call_tool(
            "send_to_agent", {"recipient": "nobody", "message": "x"}
        )
    desk.close()

    assert empty.status_code == 200
    assert listed["recipients"] == [{"name": "scout", "is_current": True}]
    assert "1 unread message for you" in shown.text
    assert (answer["from"], answer["message"]) == ("person", "Green.")
    assert nobody.is_error


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
