"""The TypeScript SDK's clients connect by OAuth, as the chat clients do that are built on them."""

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deskhand import tokens
from deskhand.oauth.grants import ACCESS_LIFE
from tests.home import Home
from tests.judges.node import MODULES, NODE, TYPESCRIPT_CLIENT, TYPESCRIPT_SDK, needs
from tests.requirements import requirement
from tests.web.test_oauth import opened

SCRIPT = Path(__file__).with_name("oauth.mjs")


async def hear(client: Process) -> dict[str, Any]:
    assert client.stdout is not None
    line = await asyncio.wait_for(client.stdout.readline(), 60)
    assert line, "the client ended"
    return dict(json.loads(line))


async def say(client: Process, line: str) -> dict[str, Any]:
    assert client.stdin is not None
    client.stdin.write(f"{line}\n".encode())
    await client.stdin.drain()
    return await hear(client)


@requirement("judges:oauth")
@pytest.mark.parametrize(
    "version",
    [
        pytest.param("v1", marks=needs(TYPESCRIPT_SDK)),
        pytest.param("v2", marks=needs(TYPESCRIPT_CLIENT)),
    ],
)
async def test_the_typescript_client_is_connected_scoped_renewed_and_revoked(
    version: str, home: Home
) -> None:
    async with opened(home.environment) as place:
        command = (NODE, SCRIPT, MODULES, version, place.chat.resource)
        client = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        asked = httpx2.URL((await hear(client))["authorize"]).params
        back = await place.allow(
            dict(asked), "mail:write", "notes:write", "tasks:write", "agents:write"
        )
        came = httpx2.URL(asked["redirect_uri"], params=back)

        connected = await say(client, str(came))
        assert "search_email" in connected["tools"]
        assert not {"send_email", "write_note", "create_task"} & set(connected["tools"])
        place.clock.now += ACCESS_LIFE
        renewed = await say(client, "again")
        assert (renewed["tools"], renewed["saved"]) == (
            connected["tools"],
            connected["saved"] + 1,
        )

        (kept,) = await place.desk.store.read(tokens.list_tokens)
        assert (kept.name, kept.resource) == (f"TypeScript {version}", "/mcp")
        await place.desk.store.write(tokens.revoke, kept.name)
        revoked = await say(client, "again")
        assert (revoked["tools"], revoked["asks"]) == ([], True)
        client.kill()
        await client.wait()
