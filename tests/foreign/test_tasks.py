"""A call of another server's tool that waits is a task, at its own door and on the whole desk, in both eras."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deskhand.gate import ledger
from deskhand.servers import handles
from tests.foreign.place import Guarded, guarded
from tests.home import TOKEN
from tests.judges.node import MODULES, NODE, PROTOCOL, needs
from tests.requirements import requirement
from tests.test_handles import FIRST, META, NEW

pytestmark = pytest.mark.anyio
OWN = "/guard/stranger/mcp"
DOORS = {OWN: "append", "/mcp": "stranger_append"}
"""Where the tool is called, and by which name."""
WAITING = Path(__file__).parents[1] / "judges" / "waiting.mjs"


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path, doors=True, DESKHAND_HOLD_SECONDS="0") as made:
        made.rules('tool = "echo"\ndo = "pass"', more="on_desk = true")
        yield made


class TaskClient:
    """A client that takes tasks, as each era writes them."""

    def __init__(
        self, place: Guarded, era: str, door: str = OWN, token: str = TOKEN
    ) -> None:
        self._place = place
        self._era = era
        self._door = door
        self._token = token
        self.last: dict[str, Any] = {}
        """The task as it was seen last."""

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": self._era,
        }
        if self._era == NEW:
            named = params.get("taskId") or params.get("name", "")
            headers |= {"Mcp-Method": method, "Mcp-Name": named}
            params |= {"_meta": META}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with httpx2.AsyncClient(timeout=60) as http:
            if self._era == FIRST and self._door == OWN:
                headers |= await self._greet(http, headers)
            heard = await http.post(
                f"{self._place.address}{self._door}", json=body, headers=headers
            )
        found: dict[str, Any] = json.loads(heard.text[heard.text.index("{") :])
        return found

    async def _greet(
        self, http: httpx2.AsyncClient, headers: dict[str, str]
    ) -> dict[str, str]:
        """The session in which a client of the first era speaks at this door."""
        given = {
            "protocolVersion": FIRST,
            "capabilities": {},
            "clientInfo": {"name": "judge", "version": "1"},
        }
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": given}
        heard = await http.post(
            f"{self._place.address}{self._door}", json=body, headers=headers
        )
        assert '"tasks"' in heard.text
        return {"Mcp-Session-Id": heard.headers["mcp-session-id"]}

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The task."""
        wanted: dict[str, Any] = {"task": {}} if self._era == FIRST else {}
        answer = await self.ask("tools/call", name=tool, arguments=arguments, **wanted)
        found: dict[str, Any] = answer["result"].get("task") or answer["result"]
        return found

    async def look(self, task: str) -> dict[str, Any]:
        self.last = (await self.ask("tasks/get", taskId=task))["result"]
        return self.last

    async def result(self, task: str) -> dict[str, Any]:
        """What the call answered in the end."""
        found: dict[str, Any]
        if self._era == FIRST:
            found = (await self.ask("tasks/result", taskId=task))["result"]
        else:
            found = (await self.look(task))["result"]
        return found


async def answer(place: Guarded, task: str, how: str) -> None:
    request = await place.desk.waiting.find(task)
    answers = place.desk.answers
    match how:
        case "approved" | "died":
            await answers.approve_now(task, request.digest, "person")
            await place.desk.gate.release_due()
        case "rejected":
            await answers.reject(task, request.digest, "Not today.", "person")
        case "expired":
            past = place.desk.now() - timedelta(days=1)
            await place.desk.store.write(
                lambda tx: ledger.change(tx, request, "expired", decided=past)
            )


ENDS = {"approved": "", "rejected": "denied", "expired": "expired", "died": "unknown"}


@requirement("guard:task")
async def test_each_end_of_a_call_is_the_end_of_its_task(place: Guarded) -> None:
    for door, tool in DOORS.items():
        for era in (FIRST, NEW):
            client = TaskClient(place, era, door)
            for how, reason in ENDS.items():
                await see_end(place, client, tool, f"{door} {era} {how}", how)
                status = "failed" if reason and era == FIRST else "completed"
                assert client.last["status"] == status, how
    done = [each for each in place.done if each.endswith("approved")]
    assert (len(done), len(place.done)) == (4, 8)


async def see_end(
    place: Guarded, client: TaskClient, tool: str, text: str, how: str
) -> None:
    if how == "died":
        tool = tool.replace("append", "die")
    made = await client.call(tool, text=text)
    task = made["taskId"]
    assert made["status"] == (await client.look(task))["status"] == "working"
    assert (await client.call(tool, text=text))["taskId"] == task
    await answer(place, task, how)
    result = await client.result(task)
    await client.look(task)
    if how == "approved":
        assert result["content"] == [{"type": "text", "text": "added"}]
        return
    told = result["_meta"]["deskhand/error"]["details"]
    assert (result["isError"], told["reason"]) == (True, ENDS[how])


@requirement("guard:task")
@pytest.mark.parametrize("era", [FIRST, NEW])
async def test_who_cancels_a_task_waits_no_more_and_nobody_else_reads_or_ends_it(
    place: Guarded, era: str
) -> None:
    ann = TaskClient(place, era, token=await place.token("ann", "guard:write"))
    bob = TaskClient(place, era, token=await place.token("bob", "guard:write"))
    mia = TaskClient(place, era, token=await place.token("mia", "guard:read"))
    task = (await ann.call("append", text="one"))["taskId"]
    for method in ("tasks/get", "tasks/cancel"):
        for other in (bob, mia):
            assert "error" in await other.ask(method, taskId=task)
    assert "error" not in await ann.ask("tasks/cancel", taskId=task)
    assert (await ann.look(task))["status"] == "cancelled"
    (card,) = await place.cards()
    await answer(place, card.id, "approved")
    assert (await ann.look(task))["status"] == "cancelled"
    assert place.done == ["one"]
    # On the whole desk it is the same task, for who may not read the mail too.
    again = await TaskClient(place, era, "/mcp", ann._token).call(
        "stranger_append", text="two"
    )
    assert (await ann.look(again["taskId"]))["status"] == "working"


@requirement("guard:task")
async def test_what_passes_is_done_at_once_and_every_tool_says_that_it_takes_a_task(
    place: Guarded,
) -> None:
    place.be_modern()
    first = TaskClient(place, FIRST)
    tools = (await first.ask("tools/list"))["result"]["tools"]
    passed = await first.call("echo", text="hi")
    result = await first.result(passed["taskId"])
    modern = await TaskClient(place, NEW).call("echo", text="hi")
    waits = (await first.call("append", text="one"))["taskId"]
    await answer(place, waits, "approved")
    done = await first.result(waits)
    assert all(each["execution"] == {"taskSupport": "optional"} for each in tools)
    assert passed["status"] == "completed"
    assert result["structuredContent"] == modern["structuredContent"] == {"text": "hi"}
    assert done["content"] == [{"type": "text", "text": "added"}]
    assert "resultType" not in result | done


@requirement("guard:task")
async def test_of_what_passed_at_once_no_more_is_kept_than_fits(
    place: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handles, "MOST_KEPT", 2)
    place.rules('tool = "*"\ndo = "pass"')
    client = TaskClient(place, FIRST)
    long = (await client.call("big", size=2_000_000))["taskId"]
    told = await client.result(long)
    assert told["isError"]
    assert "characters" in told["content"][0]["text"]
    kept = [(await client.call("echo", text=each))["taskId"] for each in ("a", "b")]
    listed = (await client.ask("tasks/list"))["result"]["tasks"]
    assert {each["taskId"] for each in listed} == {*kept}


@requirement("guard:task")
@needs(PROTOCOL / "ext-tasks" / "package.json")
async def test_both_typescript_clients_wait_for_the_end_of_a_guarded_call(
    place: Guarded,
) -> None:
    first, new = await asyncio.gather(
        _wait_with(place, "first", "approved"), _wait_with(place, "new", "approved")
    )
    assert first["content"] == new["content"] == [{"type": "text", "text": "added"}]


async def _wait_with(place: Guarded, era: str, how: str) -> dict[str, Any]:
    """What a client of this era hears in the end."""
    given = json.dumps({"text": f"{era} {how}"})
    judge = await asyncio.create_subprocess_exec(
        NODE,
        *(WAITING, MODULES, era, f"{place.address}{OWN}", TOKEN, given, "append"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert judge.stdout
    task = (await judge.stdout.readline()).decode().removeprefix("task ").strip()
    await answer(place, task, how)
    found: dict[str, Any] = json.loads((await judge.communicate())[0])
    return found
