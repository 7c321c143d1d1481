"""A server that lies, dies, floods or never answers: each ends in a clear state, and the others go on."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import MCPError

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate.toolcall import ToolCall, Workplace
from deskhand.servers import handles
from deskhand.servers.handles import Handle
from deskhand.store import Transaction
from tests.foreign.place import Guarded, guarded, refusal, said, until
from tests.foreign.stranger_names import ESCAPES
from tests.foreign.test_passing import CALLS
from tests.requirements import requirement

pytestmark = pytest.mark.anyio
PASS = 'tool = "*"\ndo = "pass"'


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path) as made:
        made.rules(PASS)
        yield made


@requirement("guard:hostile")
async def test_fifty_megabytes_end_the_server_and_it_is_there_again(place: Guarded) -> None:
    async with place.client() as client:
        lost = refusal(await client.call_tool("big", {"size": 50_000_000}))
        assert said(await client.call_tool("echo", {"text": "back"})) == "back"

    assert "16 MB" in lost["message"]


@requirement("guard:hostile")
async def test_an_answer_that_is_too_long_to_keep_is_done_and_says_so(
    place: Guarded,
) -> None:
    place.rules()
    async with place.client() as client:
        refusal(await client.call_tool("big", {"size": 2_000_000}))
        await place.approve()
        with pytest.raises(MCPError, match="it was done, but the answer has 2,0"):
            await client.call_tool("big", {"size": 2_000_000})


@requirement("guard:hostile")
async def test_a_caller_who_gives_up_cancels_the_call_at_the_server(place: Guarded) -> None:
    async with place.client("legacy") as client:
        with pytest.raises((MCPError, TimeoutError)):
            async with asyncio.timeout(1):
                await client.call_tool("hang", {})
        await until((place.folder / "cancelled").exists)
        assert said(await client.call_tool("echo", {"text": "on"})) == "on"


@requirement("guard:hostile")
async def test_two_answers_to_one_call_are_one(place: Guarded) -> None:
    async with place.client() as client:
        assert said(await client.call_tool("twice", {})) == "first"
        assert said(await client.call_tool("echo", {"text": "on"})) == "on"


@requirement("guard:hostile")
async def test_a_server_that_asks_for_a_model_or_for_folders_is_refused(
    place: Guarded,
) -> None:
    async with place.client() as client:
        answers = said(await client.call_tool("ask_back", {}))

    assert answers in ("[-32601, -32601]", "[-32600, -32600]")


@requirement("guard:hostile")
async def test_escapes_in_names_and_endless_schemas_are_shown_as_what_they_are(
    place: Guarded,
) -> None:
    place.rules()
    async with place.client() as client:
        refusal(await client.call_tool(ESCAPES, {}))
        refusal(await client.call_tool("loop", {"a": {"a": {}}}))
        cards = {card.subject: card for card in await place.cards()}

    (odd,) = [card for subject, card in cards.items() if "\u202e" in subject]
    assert odd.risk.level == "high"
    texts = [
        file.read_text()
        for file in (place.desk.settings.vault / "Pending_Approval").iterdir()
    ]
    assert len(texts) == 2
    headings = [
        line for text in texts for line in text.splitlines() if line.startswith("# ")
    ]
    assert not any("\x1b" in line or "\u202e" in line for line in headings)


@requirement("guard:hostile")
async def test_hidden_characters_and_links_in_arguments_are_marked_by_the_same_risk(
    place: Guarded,
) -> None:
    place.rules()
    async with place.client() as client:
        refusal(
            await client.call_tool(
                "append", {"text": "pay\u202e 10 at https://user@evil.example/ now"}
            )
        )
    (card,) = await place.cards()
    reasons = " ".join(card.risk.reasons)

    assert card.risk.level == "high"
    assert "evil.example" in reasons
    assert "The text holds" in reasons


@requirement("guard:hostile")
@pytest.mark.parametrize("command", [["/nowhere/at/all"], ["false"], ["sleep", "100"]])
async def test_a_server_that_does_not_come_up_is_named_and_the_others_go_on(
    place: Guarded, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place.home / "guard.toml"
    file.write_text(
        f"{file.read_text()}\n[servers.other]\ncommand = {command}\n".replace("'", '"')
    )
    async with place.client() as client:
        assert said(await client.call_tool("echo", {"text": "there"})) == "there"
        # Only now: on a busy machine the good one takes longer to come up.
        monkeypatch.setattr("deskhand.foreign.servers.PATIENCE", 1.0)
        async with place.client(name="other") as other:
            with pytest.raises(MCPError, match="the server other is not there now"):
                await other.list_tools()
            assert said(await client.call_tool("echo", {"text": "on"})) == "on"


@requirement("guard:secrets")
async def test_a_server_gets_the_secrets_that_its_entry_names_and_nothing_of_the_desks(
    place: Guarded,
) -> None:
    from deskhand.mail import credentials

    credentials.keep(place.home, "guard-stranger-API_KEY", "k3y")
    place.rules(PASS, more='env = ["API_KEY"]')
    async with place.client() as client:
        assert (
            said(await client.call_tool("secret", {}))
            == '{"API_KEY": "k3y", "SERVICE_AUTH_TOKEN": null}'
        )
    assert "k3y" not in (place.home / "guard.toml").read_text()


@requirement("guard:secrets")
async def test_the_last_words_of_a_server_name_no_secret(
    place: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deskhand.mail import credentials

    credentials.keep(place.home, "guard-other-API_KEY", "k3y-of-mine")
    ends = 'import os, sys; sys.exit("no: " + os.environ["API_KEY"])'
    command = json.dumps([sys.executable, "-c", ends])
    file = place.home / "guard.toml"
    file.write_text(f'[servers.other]\ncommand = {command}\nenv = ["API_KEY"]\n')
    monkeypatch.setattr("deskhand.foreign.servers.PATIENCE", 1.0)
    why = ""
    async with place.client(name="other") as client:
        while "last words" not in why:  # once it has started
            with pytest.raises(MCPError) as refused:
                await client.list_tools()
            why = str(refused.value.data) + refused.value.message
    assert "k3y" not in why
    assert "[a secret]" in why


@requirement("guard:once")
async def test_the_desk_that_died_in_a_call_never_makes_it_again_by_itself(
    place: Guarded, tmp_path: Path
) -> None:
    place.rules()
    async with place.client() as client:
        refusal(await client.call_tool("hang", {}))
        card = await place.approve()
    request = await place.desk.gate.find(card.id)

    def leave_it(tx: Transaction) -> None:
        """As a process leaves it that died after the point of no return."""
        tx.execute(
            "UPDATE requests SET state = 'sending', token = digest, lease = 1, due = 1 WHERE id = ?",
            request.id,
        )

    await place.desk.store.write(leave_it)
    second = Desk(
        load(
            {"DESKHAND_HOME": str(place.home), "VAULT_PATH": str(tmp_path / "vault")}
        ).settings
    )
    await second.gate.release_due()
    state = (await second.gate.find(card.id)).state
    await second.close_foreign()
    second.close()

    assert state == "unknown"


FORGING = {
    name: {"name": name, "inputSchema": {"type": "object"}}
    for name in ("forge", "forge_error")
}


@requirement("guard:hostile")
@pytest.mark.parametrize("modern", [False, True])
async def test_no_server_speaks_in_the_desks_own_words(
    place: Guarded, modern: bool
) -> None:
    place.other(**FORGING)
    if modern:
        place.be_modern()
    async with place.line("legacy") as client, place.client() as longer:
        answer = (await client.ask("tools/call", name="forge", arguments={"text": "x"}))[
            "result"
        ]
        error = (await client.ask("tools/call", name="forge_error", arguments={}))["error"]
        other = await longer.call_tool("forge", {"text": "x"})

    assert answer["_meta"] == answer["content"][0]["_meta"] == {"vendor/x": 1}
    assert error["data"]["_meta"] == {"vendor/x": 1}
    assert "deskhand/" not in other.model_dump_json()


@requirement("guard:hostile")
@pytest.mark.parametrize("modern", [False, True])
async def test_nothing_that_a_server_lists_tells_or_reports_is_in_the_desks_own_words(
    place: Guarded, modern: bool
) -> None:
    (place.folder / "forging").touch()
    if modern:
        place.be_modern()
    async with place.line("legacy") as client:
        heard = [await client.ask(method, **params) for method, params in CALLS]
        heard.append(await client.ask("tools/list"))
        token = {"progressToken": "mine"}
        await client.ask("tools/call", name="steps", arguments={}, _meta=token)
        await client.ask("resources/subscribe", uri="memo://one")
        told = None
        while told is None:  # the desk listens again for one more resource
            await client.ask("tools/call", name="touch", arguments={})
            await client.ask("prompts/list")
            told = next((each for each in client.heard if "uri" in str(each)), None)
        if not modern:
            await client.ask("tools/call", name="log", arguments={})
            await client.hear("notifications/message")
    everything = json.dumps([heard, client.heard]).casefold()
    assert "deskhand/" not in everything
    assert all("vendor/x" in json.dumps(each) for each in heard)


@requirement("guard:asker")
async def test_no_forged_handle_leads_to_what_another_client_asked_for(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, doors=True, DESKHAND_HOLD_SECONDS="0") as place:
        place.rules('tool = "forge"\ndo = "pass"', more="on_desk = true")
        place.other(**FORGING)
        ann = await place.token("ann")
        bob = await place.token("bob")
        theirs = await ask_desk(
            place,
            ann,
            "tools/call",
            name="stranger_echo",
            arguments={"text": "s3cret"},
            task={},
        )
        card = await place.approve()
        await place.desk.gate.release_due()
        forged = await ask_desk(
            place,
            bob,
            "tools/call",
            name="stranger_forge",
            arguments={"text": card.id},
            task={},
        )
        got = await ask_desk(
            place, bob, "tasks/result", taskId=forged["result"]["task"]["taskId"]
        )
        # One that was forged before the desk was mended.
        far = place.desk.now() + timedelta(days=1)
        old = Handle(card.id, "client bob", card.id, far, far, far, "working", "waits")
        await place.desk.store.write(handles._give, old)
        refused = await ask_desk(place, bob, "tasks/result", taskId=card.id)
        own = await ask_desk(
            place, ann, "tasks/result", taskId=theirs["result"]["task"]["taskId"]
        )

    assert "s3cret" not in json.dumps([forged, got, refused])
    assert "error" in refused
    assert own["result"]["structuredContent"] == {"text": "s3cret"}


async def ask_desk(place: Guarded, token: str, method: str, **params: Any) -> Any:
    """As a client of the first era with tasks."""
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-11-25",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with httpx2.AsyncClient(timeout=60) as http:
        heard = await http.post(f"{place.address}/mcp", json=body, headers=headers)
    return json.loads(heard.text.partition("data: ")[2] or heard.text)


@requirement("guard:seen")
async def test_what_a_server_or_a_program_would_do_is_not_seen_with_the_scopes_of_mail(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, doors=True) as place:
        scopes = {
            "ann": ["mail:read", "guard:write"],
            "bob": ["mail:read", "guard:read"],
            "mia": ["mail:write"],
        }
        tokens = {name: await place.token(name, *given) for name, given in scopes.items()}
        async with place.http(tokens["ann"]) as client:
            call = refusal(await client.call_tool("echo", {"text": "s3cret"}))["details"][
                "request"
            ]
        own = ToolCall(
            server="claude-code",
            tool="Bash",
            arguments='{"command":"ls"}',
            definition="",
            asker="client ann",
            at=Workplace(folder="/", session=""),
        )
        await place.desk.gate.propose(own, "claude_mcp", client="ann")
        (command,) = [each.id for each in await place.cards() if each.id != call]
        seen = {}
        for name, token in tokens.items():
            async with place.http(token, "/mcp") as client:
                listed = (await client.call_tool("pending_actions", {})).structured_content[
                    "actions"
                ]
                found = [
                    each
                    for each in (call, command)
                    if not (await client.call_tool("get_action", {"id": each})).is_error
                ]
                assert found == [each["id"] for each in listed]
                seen[name] = found

    assert seen == {"ann": [call, command], "bob": [call], "mia": []}
