"""What passes through the desk is what the server itself says, line by line, whatever era either side is of."""

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from deskhand import audit
from tests.foreign.place import Guarded, LineClient, guarded, until, without_era
from tests.requirements import requirement
from tests.transports import ERAS, http_client

pytestmark = pytest.mark.anyio
PASS = 'tool = "*"\ndo = "pass"'
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "echo", "arguments": {"text": "h\u00e9 \U0001f600"}}),
    ("tools/call", {"name": "refuse", "arguments": {}}),
    ("tools/call", {"name": "refuse"}),
    ("tools/call", {"name": "fail", "arguments": {}}),
    ("tools/call", {"name": "media", "arguments": {}}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "memo://one"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "hello", "arguments": {"who": "ann"}}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "hello"},
            "argument": {"name": "who", "value": "a"},
        },
    ),
]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path) as made:
        made.rules(PASS)
        yield made


@pytest.fixture(params=ERAS)
def both(request: pytest.FixtureRequest, place: Guarded) -> Guarded:
    """A desk before a server of each era."""
    if request.param != "legacy":
        place.be_modern()
    return place


@requirement("guard:passes")
@pytest.mark.parametrize("era", ERAS)
async def test_every_answer_is_the_servers_own(both: Guarded, era: str) -> None:
    own_era = "2026-07-28" if (both.folder / "modern").exists() else "legacy"
    async with both.direct(own_era) as direct, both.line(era) as client:
        listed = (await client.ask("tools/list"))["result"]["tools"]
        assert listed == (await direct.ask("tools/list"))["result"]["tools"]
        for method, params in CALLS:
            through = await client.ask(method, **params)
            itself = await direct.ask(method, **params)
            if era == own_era:
                assert through == itself, method
            assert without_era(through) == without_era(itself), method
            assert ("resultType" in through.get("result", {})) == (
                era != "legacy" and "result" in itself
            ), method


@requirement("guard:passes")
@pytest.mark.parametrize("era", ERAS)
async def test_progress_cancellation_and_what_is_no_answer(both: Guarded, era: str) -> None:
    async with both.line(era) as client:
        done = await client.ask(
            "tools/call", name="steps", arguments={}, _meta={"progressToken": "mine"}
        )
        told = [each["params"] for each in client.heard]
        silent = client.begin("tools/call", name="hang", arguments={})
        await client.ask("tools/call", name="echo", arguments={"text": "on"})
        client.send({"method": "notifications/cancelled", "params": {"requestId": silent}})
        await until((both.folder / "cancelled").exists)
        nonsense = await client.ask("tools/call", name="nonsense", arguments={})
        infinite = await client.ask("tools/call", name="infinite", arguments={})
        asked_back = await client.ask("tools/call", name="ask_person", arguments={})
        many = [
            client.begin("tools/call", name="echo", arguments={"text": str(each)})
            for each in range(50)
        ]
        answers = [await client.answer_to(number) for number in many]

    assert done["result"]["content"] == [{"type": "text", "text": "done"}]
    assert [
        (each["progressToken"], each["progress"], each["message"]) for each in told
    ] == [
        ("mine", 1, "step 1"),
        ("mine", 2, "step 2"),
    ]
    assert "no result" in nonsense["error"]["message"]
    assert infinite["error"]["code"] == -32603
    assert "asks back" in asked_back["error"]["message"]
    assert [each["result"]["structuredContent"]["text"] for each in answers] == [
        str(each) for each in range(50)
    ]
    assert silent not in client.unclaimed


@requirement("guard:passes")
async def test_what_the_server_says_by_itself_reaches_whoever_wants_it(
    both: Guarded,
) -> None:
    async with (
        both.line("legacy") as client,
        both.line("legacy") as other,
        both.line("2026-07-28") as modern,
    ):
        await other.ask("prompts/list")
        listened = {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourceSubscriptions": ["memo://one"],
        }
        assert ("logging" in client.abilities) == (not (both.folder / "modern").exists())
        modern.begin("subscriptions/listen", notifications=listened)
        await modern.hear("notifications/subscriptions/acknowledged")
        assert await client.ask("resources/subscribe", uri="memo://one") == {"result": {}}
        await _grow(client)
        for kind in ("tools", "resources", "prompts"):
            await other.hear(f"notifications/{kind}/list_changed")
        await modern.hear("notifications/tools/list_changed")
        await modern.hear("notifications/prompts/list_changed")
        assert (await client.hear("notifications/resources/updated"))["uri"] == "memo://one"
        assert (await modern.hear("notifications/resources/updated"))["uri"] == "memo://one"
        await other.ask("prompts/list")

    assert not [each for each in other.heard if "updated" in each["method"]]


async def _grow(client: LineClient) -> None:
    """Let the server say all that it says by itself, until the last of it has come."""
    await client.ask("tools/call", name="grow", arguments={})
    touched = False
    while not touched:
        # The desk listens again when somebody wants to hear of one more resource.
        await client.ask("tools/call", name="touch", arguments={})
        await client.ask("prompts/list")
        touched = any("updated" in each["method"] for each in client.heard)


@requirement("guard:passes")
async def test_a_line_of_the_log_is_told_where_it_can_be_nobody_elses(
    place: Guarded,
) -> None:
    async with place.line("legacy") as client:
        assert "logging" in client.abilities
        assert await client.ask("logging/setLevel", level="info") == {"result": {}}
        await client.ask("tools/call", name="log", arguments={})
        assert (await client.hear("notifications/message"))["data"] == {"line": 1}


@requirement("guard:passes")
async def test_no_client_hears_of_the_log_what_another_client_s_call_wrote(
    tmp_path: Path,
) -> None:
    heard: list[str] = []

    async def note(said: Any) -> None:
        heard.append(said.method)

    line, changed = "notifications/message", "notifications/tools/list_changed"
    async with guarded(tmp_path, doors=True) as place:
        place.rules(PASS)
        address = f"{place.address}/guard/stranger/mcp"
        token = await place.token("ann")
        async with http_client(address, token, "legacy", message_handler=note) as ann:
            await ann.call_tool("log", {})
            await until(lambda: heard == [line])
            for era in ERAS:
                async with place.line(era) as other:
                    await other.ask("tools/call", name="log", arguments={})
            async with place.http(await place.token("bob")) as bob:
                await bob.call_tool("log", {})
            await ann.call_tool("grow", {})
            await until(lambda: changed in heard)
    assert heard.count(line) == 1


@requirement("guard:rules")
async def test_only_what_passes_goes_the_short_way_and_all_of_it_is_on_the_record(
    place: Guarded,
) -> None:
    place.rules('tool = "refuse"\ndo = "deny"', 'tool = "append"\ndo = "ask"', PASS)
    async with place.line("legacy") as client:
        passed = await client.ask("tools/call", name="echo", arguments={"text": "a"})
        denied = await client.ask("tools/call", name="refuse", arguments={})
        waits = await client.ask("tools/call", name="append", arguments={"text": "a"})
        unknown = await client.ask("tools/call", name="nobody", arguments={})
        died = await client.ask("tools/call", name="die", arguments={"text": "a"})
        place.rules()
        asked = await client.ask("tools/call", name="echo", arguments={"text": "a"})

    reasons = [
        each["result"]["_meta"]["deskhand/error"]["details"]["reason"]
        for each in (denied, waits, asked)
    ]
    assert passed["result"]["structuredContent"] == {"text": "a"}
    assert reasons == ["denied", "no_approval", "no_approval"]
    assert unknown["result"]["isError"]
    assert died["result"]["_meta"]["deskhand/error"]["details"]["reason"] == "unknown"
    assert place.done == ["a"]
    await place.desk.settle_record()
    sql = "SELECT action, result, sum(entries) FROM audit_days WHERE actor = 'guard_mcp' GROUP BY action, result"
    recorded = await place.desk.store.read(lambda tx: tx.all(sql))
    (entry,) = [
        each
        for _, each in await place.desk.store.read(audit.entries)
        if each.action_type == "echo"
    ]
    digest = sha256(b'{"text":"a"}').hexdigest()
    assert entry.parameters == {"arguments": "text", "digest": digest}
    assert {("echo", "success", 1), ("refuse", "rejected", 1), ("die", "error", 1)} <= {
        *map(tuple, recorded)
    }


@requirement("guard:passes")
async def test_a_client_that_reads_late_keeps_no_other_waiting_and_gets_every_answer(
    place: Guarded,
) -> None:
    async with place.line("legacy") as late, place.line("legacy") as other:
        many = [
            late.begin("tools/call", name="big", arguments={"size": 1_000_000})
            for _ in range(12)
        ]
        on = await other.ask("tools/call", name="echo", arguments={"text": "on"})
        assert on["result"]["structuredContent"] == {"text": "on"}
        answers = [await late.answer_to(number) for number in many]
    sizes = {len(each["result"]["content"][0]["text"]) for each in answers}
    assert sizes == {1_000_000}


@requirement("guard:passes")
async def test_sending_that_is_switched_off_stops_the_next_call_of_an_open_connection(
    place: Guarded,
) -> None:
    async with place.line("legacy") as client:
        await client.ask("tools/call", name="append", arguments={"text": "before"})
        desk = place.desk
        desk.settings = desk.settings.of_copy()
        refused = await client.ask("tools/call", name="append", arguments={"text": "after"})

    error = refused["result"]["_meta"]["deskhand/error"]
    assert (error["error"], error["details"]["reason"]) == ("permission_denied", "copy")
    assert place.done == ["before"]


@requirement("guard:passes")
async def test_a_client_that_ends_is_answered_first(place: Guarded) -> None:
    async with place.line("legacy") as client:
        number = client.begin("tools/call", name="echo", arguments={"text": "last"})
        client._writing.write_eof()
        answer = await client.answer_to(number)
    assert answer["result"]["structuredContent"] == {"text": "last"}


@requirement("guard:passes")
async def test_a_server_that_cannot_do_it_is_not_said_to(place: Guarded) -> None:
    (place.folder / "plain").touch()
    async with place.line("legacy") as client, place.direct("legacy") as direct:
        assert client.abilities.keys() == {"tools"}
        for method in ("resources/list", "prompts/list", "completion/complete"):
            params = CALLS[-1][1] if method == "completion/complete" else {}
            assert await client.ask(method, **params) == await direct.ask(method, **params)
