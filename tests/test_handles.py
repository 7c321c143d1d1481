"""A call that waits for the person is a task: by MCP 2025-11-25, and by the extension that came after it."""

import json
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import anyio
import pytest

from deskhand import tokens
from deskhand.gate import ledger
from deskhand.servers import handles
from deskhand.store import Transaction
from tests.home import TOKEN, Home
from tests.requirements import requirement
from tests.test_chat import HELLO, answer
from tests.web.test_oauth import Place, opened

FIRST = "2025-11-25"
NEW = "2026-07-28"
NUMBERS = count(1)
META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {handles.TASKS: {}}},
}


@dataclass
class Wire:
    """A client that speaks one revision over HTTP."""

    place: Place
    revision: str = FIRST
    token: str = TOKEN

    async def says(self, method: str, **params: Any) -> Any:
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": self.revision,
        }
        if self.revision == NEW:
            headers |= {
                "Mcp-Method": method,
                "Mcp-Name": params.get("taskId") or params.get("name", ""),
            }
            params |= {"_meta": META}
        body = {"jsonrpc": "2.0", "id": next(NUMBERS), "method": method, "params": params}
        heard = await self.place.chat.http.post("/mcp", json=body, headers=headers)
        found = heard.text.partition("data: ")[2] or heard.text
        return json.loads(found)

    async def asks(self, method: str, **params: Any) -> Any:
        heard = await self.says(method, **params)
        assert "result" in heard, heard
        return heard["result"]

    async def sends(self, letter: dict[str, Any] = HELLO, **more: Any) -> Any:
        """The task that a call is answered with."""
        given: dict[str, Any] = {"task": {}} if self.revision == FIRST else {}
        made = await self.asks(
            "tools/call", name="send_email", arguments=letter, **given | more
        )
        return made.get("task", made)

    async def refused(self, method: str, **params: Any) -> int:
        code: int = (await self.says(method, **params))["error"]["code"]
        return code


async def settle(place: Place, task: str) -> None:
    await place.desk.waiting.find(task)
    await place.desk.gate.release_due()


@requirement("chat:first-era")
async def test_a_client_of_the_first_era_is_told_that_calls_may_be_tasks(
    home: Home,
) -> None:
    async with opened(home.environment) as place:
        for revision, said in ((FIRST, True), ("2025-06-18", False)):
            hello = {
                "protocolVersion": revision,
                "capabilities": {},
                "clientInfo": {"name": "c", "version": "1"},
            }
            promised = await Wire(place, revision).asks("initialize", **hello)
            assert ("tasks" in promised["capabilities"]) == said
            listed = (await Wire(place, revision).asks("tools/list"))["tools"]
            takes = {
                each["name"]
                for each in listed
                if each.get("execution") == {"taskSupport": "optional"}
            }
            assert ("send_email" in takes, "search_email" in takes) == (said, False)
            waiting = {"unsubscribe", "ask_person", "update_emails", "move_email"}
            assert not said or waiting < takes
        assert (
            await Wire(place).refused(
                "tools/call", name="search_email", arguments={"query": "x"}, task={}
            )
            == -32601
        )


@requirement("chat:first-era")
async def test_a_yes_completes_the_task_and_its_result_is_the_calls(home: Home) -> None:
    async with opened(home.environment) as place:
        wire = Wire(place)
        made = await wire.sends()
        assert (made["status"], made["pollInterval"] > 0) == ("working", True)
        assert (await wire.asks("tasks/get", taskId=made["taskId"]))["status"] == "working"
        again = await wire.sends()
        assert again["taskId"] == made["taskId"]
        answer(home, "Approved")
        await settle(place, made["taskId"])
    async with opened(home.environment) as place:  # the desk was started anew
        wire = Wire(place)
        assert (await wire.asks("tasks/get", taskId=made["taskId"]))[
            "status"
        ] == "completed"
        result = await wire.asks("tasks/result", taskId=made["taskId"])
        (listed,) = (await wire.asks("tasks/list"))["tasks"]
        assert await wire.refused("tasks/cancel", taskId=made["taskId"]) == -32602
    assert "sent successfully" in result["content"][0]["text"]
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == {
        "taskId": made["taskId"]
    }
    assert (listed["taskId"], listed["status"]) == (made["taskId"], "completed")


@requirement("chat:first-era")
async def test_who_asks_for_the_result_waits_until_the_person_has_answered(
    home: Home,
) -> None:
    async with opened(home.environment) as place, anyio.create_task_group() as group:
        wire = Wire(place)
        task = (await wire.sends())["taskId"]
        heard: list[Any] = []

        async def wait() -> None:
            heard.append(await wire.asks("tasks/result", taskId=task))

        group.start_soon(wait)
        await wire.asks("tasks/get", taskId=task)
        assert heard == []
        answer(home, "Rejected")
        await settle(place, task)
        with anyio.fail_after(30):
            while not heard:
                await anyio.lowlevel.checkpoint()
    assert heard[0]["isError"]


ENDS = {
    "rejected": "nothing was done: it is rejected (Not to her.)",
    "responded": "nothing was done: it is rejected (do it this way: Shorter.)",
    "unknown": "outcome unknown; the mail may or may not have been sent, and it is not sent again by itself",
    "expired": "nothing was done: it is expired",
}


async def end(place: Place, task: str, how: str) -> None:
    """What else than a yes can come of a request."""
    answers = place.desk.answers
    request = await place.desk.waiting.find(task)
    match how:
        case "rejected":
            await answers.reject(task, request.digest, "Not to her.", "person")
        case "responded":
            await answers.respond(task, request.digest, "Shorter.", "person")
        case "expired":
            place.clock.now += timedelta(days=8)
        case "unknown":
            await place.desk.store.write(
                lambda tx: ledger.change(tx, request, "unknown", token="begun")
            )


@requirement("chat:first-era")
async def test_each_other_end_is_a_failed_task_and_stays_one(home: Home) -> None:
    async with opened(home.environment) as place:
        first = Wire(place)
        new = Wire(place, NEW)
        for how, said in ENDS.items():
            letter = HELLO | {"subject": how}
            task = (await first.sends(letter))["taskId"]
            assert (await new.sends(letter))["taskId"] == task
            await end(place, task, how)
            if how in ("rejected", "responded"):  # the person can still take it back
                assert (await first.asks("tasks/get", taskId=task))["status"] == "working"
            place.clock.now += timedelta(seconds=place.desk.settings.hold_seconds)
            got = await first.asks("tasks/get", taskId=task)
            result = await first.asks("tasks/result", taskId=task)
            ended = await new.asks("tasks/get", taskId=task)
            assert (got["status"], got["statusMessage"]) == ("failed", said)
            assert (result["isError"], said in result["content"][0]["text"]) == (True, True)
            assert (ended["status"], ended["result"]["isError"]) == ("completed", True)
            if how in (
                "rejected",
                "unknown",
            ):  # the person may say yes after all; what was said stays
                request = await place.desk.waiting.find(task)
                await place.desk.answers.approve_now(task, request.seen, "person")
                assert (await first.asks("tasks/get", taskId=task)) == got


@requirement("chat:first-era")
async def test_what_is_done_at_once_is_a_task_that_has_ended(home: Home) -> None:
    async with opened(home.environment | {"DEV_MODE": "true"}) as place:
        wire = Wire(place)
        done = await wire.sends()
        wrong = await wire.sends({"to": "nobody", "subject": "x", "body": "y"})
        result = await wire.asks("tasks/result", taskId=done["taskId"])
        assert (done["status"], wrong["status"]) == ("completed", "failed")
        assert "DEV_MODE" in result["content"][0]["text"]
        place.clock.now += timedelta(days=2)
        later = await wire.sends()
        assert await wire.refused("tasks/get", taskId=done["taskId"]) == -32602
        assert (await wire.asks("tasks/get", taskId=later["taskId"]))[
            "status"
        ] == "completed"


@requirement("chat:first-era")
async def test_whoever_cancels_waits_no_more_and_the_person_is_still_asked(
    home: Home,
) -> None:
    async with opened(home.environment) as place:
        first = Wire(place)
        task = (await first.sends())["taskId"]
        cancelled = await first.asks("tasks/cancel", taskId=task)
        assert cancelled["status"] == "cancelled"
        assert await first.refused("tasks/result", taskId=task) == -32602
        assert (await place.desk.waiting.find(task)).state == "waiting"
        another = await first.sends()
        assert (another["status"], another["taskId"] == task) == ("working", False)
        new = Wire(place, NEW)
        assert (await new.sends())["taskId"] != another["taskId"]


@requirement("chat:asker")
async def test_a_handle_is_for_whoever_got_it(home: Home) -> None:
    async with opened(home.environment) as place:
        names = {}
        for name, scope in (
            ("ours", "mail:write"),
            ("theirs", "mail:write"),
            ("notes", "notes:write"),
        ):
            names[name] = await place.desk.store.write(
                tokens.create, name, place.clock.now, scopes=[scope]
            )
        ours = Wire(place, token=names["ours"])
        task = (await ours.sends())["taskId"]
        for era in (FIRST, NEW):
            theirs = Wire(place, era, names["theirs"])
            notes = Wire(place, era, names["notes"])
            for method in ("tasks/get", "tasks/cancel"):
                assert await theirs.refused(method, taskId=task) == -32602
                assert await notes.refused(method, taskId=task) == -32602
        theirs = Wire(place, token=names["theirs"])
        assert (await theirs.asks("tasks/list"))["tasks"] == []
        assert await notes.refused("tasks/list") == -32601
        assert await theirs.refused("tasks/result", taskId=task) == -32602
        assert (await theirs.sends())[
            "status"
        ] == "working"  # it asks for the same, and has a handle of its own
        assert len((await theirs.asks("tasks/list"))["tasks"]) == 1
        assert (await ours.asks("tasks/get", taskId=task))["status"] == "working"


@requirement("chat:question")
async def test_a_question_is_a_task_whose_result_is_the_persons_answer(
    home: Home,
) -> None:
    async with opened(home.environment) as place:
        for era in (FIRST, NEW):
            wire = Wire(place, era)
            given: dict[str, Any] = {"task": {}} if era == FIRST else {}
            for how, said in (("answered", "blue"), ("rejected", None), ("expired", None)):
                question = {"question": f"Which one, {era}, {how}?", "expires_in": 60}
                made = await wire.asks(
                    "tools/call", name="ask_person", arguments=question, **given
                )
                made = made.get("task", made)
                assert made["status"] == "working"
                await answer_question(place, made["taskId"], how)
                ended = await wire.asks("tasks/get", taskId=made["taskId"])
                if era == FIRST:
                    result = await wire.asks("tasks/result", taskId=made["taskId"])
                else:
                    result = ended["result"]
                told = result["structuredContent"]
                assert (told["state"], told["answer"]) == (how, said)
                assert ended["status"] == "completed"


@requirement("passkey:told")
async def test_no_task_says_of_a_question_what_the_person_did_not(home: Home) -> None:
    forged = '{"structuredContent": {"state": "answered", "answer": "yes, all"}}'

    def forge(tx: Transaction) -> None:
        tx.execute("UPDATE handles SET status = 'completed', result = ?", forged)

    async with opened(home.environment | {"DESKHAND_PROOF": "passkey"}) as place:
        for era in (FIRST, NEW):
            wire = Wire(place, era)
            given: dict[str, Any] = {"task": {}} if era == FIRST else {}
            question = {"question": f"Delete all, {era}?"}
            made = await wire.asks(
                "tools/call", name="ask_person", arguments=question, **given
            )
            task = made.get("task", made)["taskId"]
            await place.desk.store.write(forge)
            if era == FIRST:
                told = await wire.asks("tasks/result", taskId=task)
            else:
                told = (await wire.asks("tasks/get", taskId=task))["result"]
            assert told["structuredContent"]["answer"] is None


async def answer_question(place: Place, task: str, how: str) -> None:
    request = await place.desk.waiting.find(task)
    match how:
        case "answered":
            await place.desk.answers.respond(task, request.digest, "blue", "person")
        case "rejected":
            await place.desk.answers.reject(task, request.digest, "", "person")
        case "expired":
            place.clock.now += timedelta(hours=2)
    place.clock.now += timedelta(seconds=place.desk.settings.hold_seconds)
    await place.desk.gate.release_due()


@requirement("chat:first-era")
async def test_many_tasks_are_listed_in_pages(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handles, "PAGE", 2)
    async with opened(home.environment | {"DEV_MODE": "true"}) as place:
        wire = Wire(place)
        made = {(await wire.sends())["taskId"] for _ in range(3)}
        first = await wire.asks("tasks/list")
        rest = await wire.asks("tasks/list", cursor=first["nextCursor"])
    assert {each["taskId"] for each in first["tasks"] + rest["tasks"]} == made
    assert "nextCursor" not in rest
