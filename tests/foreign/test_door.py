"""What the desk itself says at the door of a guarded server: who asks, where it is answered, and a question."""

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp_types import Implementation

from deskhand import tokens
from deskhand.resident.doors import GuardDoors
from deskhand.servers.desk import desk_server
from deskhand.servers.foreign import open_door
from tests.foreign.place import ENVELOPE, Guarded, guarded, refusal, said
from tests.requirements import requirement

pytestmark = pytest.mark.anyio
ERAS = ("legacy", "2026-07-28")
CODE = Implementation(name="claude-code", version="2.1.3")
ORIGIN = "https://desk.example.net"
OWN = {"name": "ask_person", "description": "Their own", "inputSchema": {"type": "object"}}


@requirement("guard:asks")
@pytest.mark.parametrize("era", ERAS)
async def test_a_card_names_who_asks_and_the_refusal_where_it_is_answered(
    tmp_path: Path, era: str
) -> None:
    async with guarded(tmp_path, DESKHAND_ORIGIN=ORIGIN) as place:
        place.rules(more="on_desk = true")
        doors = {
            "append": open_door(place.desk, "stranger"),
            "stranger_append": desk_server(place.desk),
        }
        for number, (tool, door) in enumerate(doors.items()):
            async with Client(door, mode=era, client_info=CODE) as client:
                waits = refusal(await client.call_tool(tool, {"text": str(number)}))
            card = await place.desk.waiting.card(waits["details"]["request"])
            assert card.asker == "Claude Code 2.1.3 on this machine", tool
            assert waits["details"]["card"] == f"{ORIGIN}/requests/{card.id}", tool


@requirement("guard:asks")
@pytest.mark.parametrize("era", ERAS)
async def test_whoever_uses_a_guarded_server_can_ask_the_person(
    tmp_path: Path, era: str
) -> None:
    async with guarded(tmp_path) as place:
        _without_their_own(place)
        question = {"question": "Which branch?", "choices": ["main", "next"]}
        async with place.client(era) as client:
            names = [each.name for each in (await client.list_tools()).tools]
            first = await client.call_tool("ask_person", question)
            (card,) = await place.cards()
            await place.desk.answers.respond(card.id, card.digest, "next", "person")
            again = await client.call_tool("ask_person", question)
        assert names.count("ask_person") == 1
        assert (first.structured_content["state"], card.kind) == ("waiting", "ask_person")
        assert again.structured_content["answer"] == "next"
        assert not place.done

        # A server that brings such a tool later gets no question before the person has seen it.
        place.other(ask_person=OWN)
        async with place.client(era) as client:
            await client.list_tools()
            waits = await client.call_tool("ask_person", {"question": "And now?"})
        assert waits.structured_content["state"] == "waiting"
        assert [each.kind for each in await place.cards()] == ["ask_person"]


@requirement("guard:asks")
async def test_a_tool_of_that_name_that_the_person_has_seen_is_the_servers(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as place:
        place.rules('tool = "*"\ndo = "pass"')
        async with place.client() as client:
            listed = (await client.list_tools()).tools
            echoed = said(await client.call_tool("echo", {"text": "hi"}))
        assert [each.description for each in listed if each.name == "ask_person"] == [
            "Ask back as the second era does"
        ]
        assert echoed == "hi"


@requirement("guard:asks")
async def test_a_token_that_may_only_look_asks_nobody(tmp_path: Path) -> None:
    async with guarded(tmp_path, doors=True) as place:
        _without_their_own(place)
        token = await place.token("reader", "guard:read")
        async with place.http(token) as client:
            names = {each.name for each in (await client.list_tools()).tools}
            refused = await client.call_tool("ask_person", {"question": "May I?"})
        assert "ask_person" not in names
        assert refusal(refused)["error"] == "permission_denied"
        assert await place.cards() == []


def _without_their_own(place: Guarded) -> None:
    """Before the stranger is met for the first time."""
    place.other(ask_person=None)


async def listen(place: Guarded, token: str, era: str, heard: list[str]) -> None:
    """Hear over HTTP what the server says by itself, as each era does it, for as long as it is said."""
    door = f"{place.address}/guard/stranger/mcp"
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
    }
    about = {"name": "judge", "version": "1"}
    first = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
    wanted = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        if era == "legacy":
            hello = await http.post(door, json=_write("initialize", first))
            session = {"Mcp-Session-Id": hello.headers["mcp-session-id"]}
            await http.post(door, json=_write("tools/list", {}), headers=session)
            listening = http.stream("GET", door, headers=session)
        else:
            named = {"MCP-Protocol-Version": era, "Mcp-Method": "subscriptions/listen"}
            body = _write("subscriptions/listen", wanted)
            listening = http.stream("POST", door, headers=named, json=body)
        async with listening as stream:
            async for line in stream.aiter_lines():
                heard += [line] * ("list_changed" in line)


def _write(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@requirement("guard:passes")
@pytest.mark.parametrize("era", ERAS)
async def test_whoever_listens_is_told_no_more_when_their_token_was_revoked(
    tmp_path: Path, era: str
) -> None:
    heard: list[str] = []
    async with guarded(tmp_path, doors=True) as place:
        place.rules('tool = "*"\ndo = "pass"')
        token = await place.token("ann")
        listening = asyncio.create_task(listen(place, token, era, heard))
        async with place.http(await place.token("bob")) as bob:
            while not heard and not listening.done():
                await bob.call_tool("grow", {})
            await place.desk.store.write(tokens.revoke, "ann")
            while not listening.done():
                await bob.call_tool("grow", {})
        await listening
    assert heard


@requirement("guard:hostile")
async def test_nobody_waits_for_a_door_that_did_not_open_and_the_next_one_has_it_opened(
    tmp_path: Path,
) -> None:
    told: list[MutableMapping[str, Any]] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/guard/stranger/mcp",
        "path_params": {"name": "stranger"},
        "headers": [],
        "query_string": b"",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        told.append(message)

    async with guarded(tmp_path) as place:
        doors = GuardDoors(place.desk)
        coming = asyncio.create_task(doors(scope, receive, send))
        await asyncio.sleep(0)  # the door is about to be opened
        (place.home / "guard.toml").unlink()
        async with asyncio.timeout(20):
            await coming
        assert told[0]["status"] == 404

        place.rules()
        told.clear()
        await doors(scope, receive, send)
        assert told[0]["status"] == 401  # it is open, and wants a token

        async with asyncio.timeout(20):
            await doors.close()
