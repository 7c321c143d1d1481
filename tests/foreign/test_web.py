"""A server at an address that demands a secret: it goes to that server alone, and each refusal is said in words."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import Client, MCPError

from deskhand.foreign import writing
from deskhand.foreign.rules import ServerEntry
from tests.foreign.place import Guarded, guarded, refusal, said
from tests.foreign.remote import OAUTH, Remote, remote
from tests.requirements import requirement

pytestmark = pytest.mark.anyio
RULE = '[[servers.remote.rules]]\ntool = "*"\ndo = "pass"\n'


@pytest.fixture
async def other() -> AsyncIterator[Remote]:
    async with remote() as made:
        yield made


@pytest.fixture
async def place(
    tmp_path: Path, other: Remote, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Guarded]:
    """A desk that knows the server, and its secret."""
    monkeypatch.setattr("deskhand.foreign.servers.PATIENCE", 3.0)
    async with guarded(tmp_path) as made:
        (made.home / "guard.toml").unlink()
        writing.add(made.home, "remote", ServerEntry(url=f"{other.address}/mcp"))
        writing.add_secret(made.home, "remote", "AUTHORIZATION", "first")
        with (made.home / "guard.toml").open("a") as file:
            file.write(RULE)
        yield made


def open_client(place: Guarded) -> Client:
    return place.client("legacy", "remote")


async def add(client: Client, text: str) -> str:
    """Add a line, again where the desk said that it was not taken."""
    while (result := await client.call_tool("add", {"text": text})).is_error:
        told = refusal(result)
        assert told["error"] == "mcp_unavailable", told
    return said(result)


@requirement("guard:web")
async def test_the_secret_goes_with_each_request_and_a_new_one_counts_at_once(
    place: Guarded, other: Remote
) -> None:
    async with open_client(place) as client:
        assert await add(client, "one") == "added one"
        other.secret = "Basic second"
        writing.add_secret(place.home, "remote", "AUTHORIZATION", "Basic second")
        assert await add(client, "two") == "added two"
        assert await add(client, "three") == "added three"
    assert other.done == ["one", "two", "three"]
    assert {*other.heard} <= {"Bearer first", "Basic second"}
    assert "second" not in (place.home / "guard.toml").read_text()


@requirement("guard:web")
async def test_a_session_that_is_lost_is_opened_anew_and_nothing_is_done_twice(
    place: Guarded, other: Remote
) -> None:
    other.is_modern = False
    async with open_client(place) as client:
        assert await add(client, "one") == "added one"
        await other.start_anew()
        assert await add(client, "two") == "added two"
        other.forgets = True
        assert await add(client, "and") == "added and"
        place_rules = place.home / "guard.toml"
        place_rules.write_text(place_rules.read_text().replace('"pass"', '"ask"'))
        waits = refusal(await client.call_tool("add", {"text": "three"}))
        await place.approve()
        await other.start_anew()
        result = await client.call_tool("add", {"text": "three"})
        while result.is_error:
            await place.desk.gate.release_due()
            result = await client.call_tool("add", {"text": "three"})
    assert waits["details"]["reason"] == "no_approval"
    assert other.done == ["one", "two", "and", "three"]


@requirement("guard:web")
@pytest.mark.parametrize(
    ("challenge", "known", "words"),
    [
        (OAUTH, True, "it does not accept the secret AUTHORIZATION"),
        (OAUTH, False, "it wants a sign-in in a browser"),
    ],
)
async def test_a_server_that_wants_another_secret_says_so_and_the_hint_what_to_do(
    place: Guarded, other: Remote, challenge: str, known: bool, words: str
) -> None:
    other.secret = "Bearer another"
    other.challenge = challenge
    if not known:
        writing.remove(place.home, "remote")
        writing.add(place.home, "remote", ServerEntry(url=f"{other.address}/mcp"))
    async with open_client(place) as client:
        with pytest.raises(MCPError) as raised:
            await client.list_tools()
    assert words in raised.value.message
    assert "deskhand guard secret remote AUTHORIZATION" in raised.value.message


@requirement("guard:web")
async def test_nothing_follows_to_another_host_and_no_answer_fills_the_memory(
    place: Guarded, other: Remote
) -> None:
    async with remote() as thief, open_client(place) as client:
        thief.secret = None
        await add(client, "one")
        other.elsewhere = f"{thief.address}/mcp"
        with pytest.raises(MCPError, match=r"redirect|Redirect"):
            await client.call_tool("add", {"text": "s3cret"})
        other.elsewhere = None
        other.big = 17 << 20
        with pytest.raises(MCPError, match="more than 16 MB"):
            await client.call_tool("add", {"text": "two"})
        other.big = 0
        assert await add(client, "three") == "added three"
    assert (thief.heard, thief.done) == ([], [])
    assert other.done == ["one", "three"]
