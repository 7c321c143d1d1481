"""Tricks of a hostile server: each call ends in a clear state, and the desk and the other servers go on."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from deskhand.foreign.schemas import find_problem
from deskhand.servers.desk import desk_server
from tests.foreign.place import Guarded, LineClient, guarded, refusal, said, until
from tests.foreign.test_hostile import PASS
from tests.requirements import requirement
from tests.transports import ERAS

pytestmark = pytest.mark.anyio
VILLAIN = Path(__file__).with_name("villain.py")
LOOKALIKES = ["Append", "append\u200b", "\u0430ppend", "../append", "send_email", ""]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Guarded]:
    """A desk with a hostile server and an honest one."""
    async with guarded(tmp_path) as made:
        write_rules(made, PASS)
        yield made


def write_rules(place: Guarded, *rules: str, more: tuple[str, ...] = ()) -> None:
    place.rules(PASS)
    file = place.home / "guard.toml"
    command = json.dumps([sys.executable, str(VILLAIN), str(place.folder), *more])
    text = f"{file.read_text()}\n[servers.villain]\ncommand = {command}\non_desk = true\n"
    file.write_text(
        text + "".join(f"[[servers.villain.rules]]\n{rule}\n" for rule in rules)
    )


def calls(place: Guarded) -> list[Any]:
    return [json.loads(line) for line in place.done]


async def call(client: LineClient, tool: str, **more: Any) -> dict[str, Any]:
    return await client.ask("tools/call", name=tool, arguments={}, **more)


UNREADABLE = ["deep", "cut"]
SHAPED = {
    "as_task": "of a kind for which nobody asked",
    "open_page": "asks back",
    "nan": "no JSON",
    "endless_number": "no JSON",
}


@requirement("guard:tricks")
async def test_no_answer_of_a_hostile_server_keeps_a_caller_waiting(place: Guarded) -> None:
    async with place.line("legacy", "villain") as client, place.client() as honest:
        for tool in UNREADABLE:
            assert "no result" in (await call(client, tool))["error"]["message"]
        for tool, words in SHAPED.items():
            told = (await call(client, tool))["error"]
            assert words in told["message"]
            assert "evil.example" not in json.dumps(told)
        broken = (await call(client, "breaks_schema"))["result"]["structuredContent"]
        both = await call(client, "two")
        odd = (await call(client, "surrogate"))["result"]["content"][0]["text"]
        exact = (await call(client, "exact"))["result"]["structuredContent"]
        assert said(await honest.call_tool("echo", {"text": "on"})) == "on"
    assert broken == {"n": "no number"}
    assert both == {"result": {"content": []}}
    assert odd == "\ud800"
    assert json.dumps(exact) == json.dumps(
        {"n": 123456789012345678901, "x": 1.0, "w": "NaN, -Infinity"}
    )


@requirement("guard:tricks")
async def test_the_desks_own_words_are_taken_out_however_they_are_spelled(
    place: Guarded,
) -> None:
    async with place.line("legacy", "villain") as client:
        for tool in ("spelled", "long_s"):
            told = (await call(client, tool))["result"]
            assert told["_meta"] == {"vendor/x": 1}, tool


@requirement("guard:tricks")
@pytest.mark.parametrize("era", ERAS)
async def test_what_a_result_says_of_itself_is_an_object_or_it_is_no_result(
    place: Guarded, era: str
) -> None:
    async with place.line(era, "villain") as client, place.client(era, "villain") as other:
        for tool in ("meta_text", "meta_zero", "meta_list"):
            assert "no result" in (await call(client, tool))["error"]["message"], tool
            with pytest.raises(MCPError, match="no result"):
                await other.call_tool(tool, {})
        nothing = (await call(client, "meta_none"))["result"]
        assert nothing["content"] == (await other.call_tool("meta_none", {})).content == []


ODD_CALLS = {
    '{"text": "a", "text": "b"}': {"text": "b"},
    '{"text": "NaN and Infinity", "n": -0.0}': {"text": "NaN and Infinity", "n": -0.0},
    '{"n": 123456789012345678901234567890, "x": 1.0, "y": 1e-7}': {
        "n": 123456789012345678901234567890,
        "x": 1.0,
        "y": 1e-7,
    },
    '{"text": "\\ud83d\\ude00\\u0000 \u2028"}': {"text": "\U0001f600\0 \u2028"},
    json.dumps({"rows": [{"a": [1]}] * 200}): {"rows": [{"a": [1]}] * 200},
    json.dumps({"text": "x" * 200_000}): {"text": "x" * 200_000},
}
REFUSED_CALLS = [
    '{"n": 1e999}',
    '{"n": NaN}',
    f'{{"n": {"9" * 5000}}}',
    '{"text": "\\ud800"}',
    '{"a": ' * 101 + "1" + "}" * 101,
    json.dumps({"text": "x" * 1_000_001}),
]


@requirement("guard:tricks")
async def test_a_call_written_in_an_odd_way_means_one_thing_or_is_refused(
    place: Guarded,
) -> None:
    async with place.line("legacy", "villain") as client:
        for number, arguments in enumerate([*ODD_CALLS, *REFUSED_CALLS], 1000):
            asked = f'{{"name": "append", "arguments": {arguments}}}'
            line = f'{{"jsonrpc": "2.0", "id": {number}, "method": "tools/call", "params": {asked}}}'
            client._writing.write(line.encode() + b"\n")
            answer = await client.answer_to(number)
            refused = "error" in answer or answer["result"].get("isError", False)
            assert refused == (arguments in REFUSED_CALLS), arguments[:50]
    assert json.dumps(calls(place)) == json.dumps(
        [["append", given] for given in ODD_CALLS.values()]
    )


@requirement("guard:tricks")
@pytest.mark.parametrize("meta", ["null", "[]", "1", "{}"])
async def test_a_call_that_says_nothing_of_itself_is_answered(
    place: Guarded, meta: str
) -> None:
    async with place.line("2026-07-28", "villain") as client:
        asked = f'{{"name": "append", "arguments": {{}}, "_meta": {meta}}}'
        line = f'{{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {asked}}}\n'
        client._writing.write(line.encode())
        assert "error" in await client.answer_to(7)
        assert (await call(client, "append"))["result"]["content"][0]["text"] == "ok"


@requirement("guard:tricks")
async def test_floods_storms_and_answers_for_others_disturb_nobody(place: Guarded) -> None:
    async with place.line("legacy", "villain") as client, place.client() as honest:
        for trick in ("flood", "storm", "others", "shout", "ask"):
            assert (await call(client, trick))["result"]["content"][0]["text"] == "ok"
            assert said(await honest.call_tool("echo", {"text": trick})) == trick
        token = {"progressToken": "mine"}
        assert (await call(client, "wrong_progress", _meta=token))["result"]
        told = [each for each in client.heard if "progress" in each["method"]]
        file = place.folder / "told"
        await until(lambda: file.exists() and len(file.read_text().splitlines()) == 3)
        refused = [json.loads(line) for line in file.read_text().splitlines()]
        lists = int((place.folder / "lists").read_text())
    assert told == []
    assert all("error" in each for each in refused)
    assert lists < 50  # of 500 that were asked for


@requirement("guard:tricks")
async def test_what_is_approved_of_a_hostile_server_ends_in_a_clear_state(
    place: Guarded,
) -> None:
    write_rules(place)
    async with place.client("legacy", "villain") as client:
        for tool in ("nan", "surrogate", "deep", "as_task", "open_page"):
            refusal(await client.call_tool(tool, {}))
            card = await place.approve()
            await place.desk.gate.release_due()
            assert (await place.desk.gate.find(card.id)).state == "sent", tool
            if tool == "surrogate":
                await client.call_tool(tool, {})
                continue
            with pytest.raises(MCPError):
                await client.call_tool(tool, {})
    assert [name for name, _ in calls(place)] == [
        *("nan", "surrogate", "deep", "as_task", "open_page")
    ]


@requirement("guard:tricks")
async def test_names_that_look_like_another_are_other_tools_and_none_is_the_desks(
    place: Guarded,
) -> None:
    write_rules(place, 'tool = "append"\ndo = "pass"')
    async with place.client("legacy", "villain") as client:
        assert said(await client.call_tool("append", {"text": "one"})) == "ok"
        for name in LOOKALIKES:
            told = refusal(await client.call_tool(name, {"text": "one"}))
            assert told["details"]["reason"] == "no_approval", name
    async with Client(desk_server(place.desk), mode="legacy") as whole:
        listed = [each.name for each in (await whole.list_tools()).tools]
        own = refusal(
            await whole.call_tool(
                "send_email", {"to": "a@example.org", "subject": "s", "body": "b"}
            )
        )
        for tool in ("no_content", "wrong_content"):
            told = refusal(await whole.call_tool(f"villain_{tool}", {}))
            assert told["details"]["reason"] == "no_approval"
    write_rules(place, PASS)
    async with Client(desk_server(place.desk), mode="legacy") as whole:
        for tool in ("no_content", "wrong_content"):
            told = refusal(await whole.call_tool(f"villain_{tool}", {}))
            assert "no result" in told["message"], told
    assert listed.count("send_email") == listed.count("villain_send_email") == 1
    assert "request" not in own["details"]
    assert calls(place)[0][0] == "append"
    hidden = [card for card in await place.cards() if "\u200b" in card.subject]
    assert [card.risk.level for card in hidden] == ["high"]


@requirement("guard:tricks")
async def test_no_schema_hangs_the_desk_reaches_out_or_fills_anything_in(
    place: Guarded,
) -> None:
    write_rules(place)
    given: dict[str, dict[str, Any]] = {
        "doubling": {},
        "elsewhere": {},
        "abroad": {},
        "unknown_type": {"text": "x"},
        "by_nothing": {"n": 10**400},
        "injected": {"text": "hello"},
    }
    async with place.client("legacy", "villain") as client:
        for tool, arguments in given.items():
            told = refusal(await client.call_tool(tool, arguments))
            assert told["details"]["reason"] == "no_approval", tool
        slow = refusal(await client.call_tool("slow_pattern", {"text": "a" * 50_000 + "b"}))
        (card,) = [card for card in await place.cards() if "injected" in card.subject]
        await place.desk.answers.approve_now(card.id, card.digest, "person")
        await place.desk.gate.release_due()
    assert "does not match" in slow["message"]
    assert "thief" not in card.body
    assert calls(place) == [["injected", {"text": "hello"}]]


@requirement("guard:tricks")
async def test_a_list_without_an_end_is_said_and_the_others_go_on(
    place: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deskhand.foreign.servers.PATIENCE", 2.0)
    write_rules(place, PASS, more=("endless",))
    why = "nobody asked yet"
    async with place.client("legacy", "villain") as client, place.client() as honest:
        while "more tools than anybody can review" not in why:  # once it has started
            with pytest.raises(MCPError) as refused:
                await client.list_tools()
            why = refused.value.message
        assert said(await honest.call_tool("echo", {"text": "on"})) == "on"


@requirement("guard:tricks")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"allOf": [{"items": {"type": "integer"}}] * 10_000}, [1] * 100_000),
        ({"items": {"enum": [*range(100_000)]}}, [-1] * 100_000),
        ({"unevaluatedItems": False, "allOf": [{"unevaluatedItems": {}}]}, [1] * 50_000),
        ({"allOf": [{"uniqueItems": True}] * 10_000}, [*range(100_000)]),
        ({"multipleOf": 0}, 1),
        ({"maximum": float("nan")}, 1),
        ({"$dynamicRef": "http://evil.example/"}, 1),
        ({"$id": 5, "$schema": [], "$ref": {}}, 1),
    ],
)
async def test_a_schema_takes_no_more_steps_than_an_honest_one(
    schema: Any, value: Any
) -> None:
    assert find_problem(schema, value) is None
