"""What a chat client can do with a request that waits, where it says that it can."""

from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest
from mcp import Client, MCPError, UrlElicitationRequiredError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, ElicitResult, Request, Result
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from deskhand.app import Desk
from deskhand.config import load
from deskhand.servers.chat import CARD
from deskhand.servers.desk import desk_server
from deskhand.servers.email import email_server
from deskhand.servers.handles import TASKS, TaskParams
from deskhand.web.site import site
from tests.home import Home
from tests.requirements import requirement
from tests.web.browser import chromium, needs_chromium, quiet_page
from tests.web.person import served, signed_in

HELLO = {"to": "ann@example.org", "subject": "Hello", "body": "Hi.\n"}
ORIGIN = "https://desk.example.net"


@pytest.fixture
async def desk(home: Home) -> AsyncIterator[Desk]:
    more = {
        "DESKHAND_ADDRESS": "me@example.com",
        "DESKHAND_AGENT": "helper",
        "DESKHAND_ORIGIN": ORIGIN,
    }
    made = Desk(load(home.environment | more).settings)
    yield made
    await made.close_mailbox()
    made.close()


def answer(home: Home, folder: str) -> None:
    """Move the request's file as the person would."""
    (file,) = (home.vault / "Pending_Approval").glob("*.md")
    file.rename(home.vault / folder / file.name)


async def state(desk: Desk) -> str:
    ((request, *_), _) = await desk.waiting.requests(limit=5)
    return str(request.state)


@requirement("chat:card")
@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_refusal_carries_the_address_of_the_card(desk: Desk, era: str) -> None:
    async with Client(desk_server(desk), mode=era) as client:
        refused = await client.call_tool("send_email", HELLO)
        again = await client.call_tool("send_email", HELLO)
    ((request, *_), _) = await desk.waiting.requests(limit=5)
    assert refused.is_error
    assert refused.meta is not None
    assert (
        refused.meta["deskhand/error"]["details"]["card"]
        == f"{ORIGIN}/requests/{request.id}"
    )
    assert f"The person answers at {ORIGIN}/requests/{request.id}" in str(refused.content)
    assert str(again.content) == str(refused.content)
    async with Client(email_server(desk), mode=era) as client:
        contract = await client.call_tool("send_email", HELLO)
    assert ORIGIN not in contract.model_dump_json()


@requirement("chat:card")
async def test_the_address_in_a_refusal_leads_the_signed_in_person_to_the_card(
    desk: Desk,
) -> None:
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        await client.call_tool("send_email", HELLO)
    ((request, *_), _) = await desk.waiting.requests(limit=5)
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        card = await person.reads(f"/requests/{request.id}")
        person.http.cookies.clear()
        nobody = await person.reads(f"/requests/{request.id}")
    assert (card.status_code, "ann@example.org" in card.text) == (200, True)
    assert (nobody.status_code, nobody.headers["location"]) == (303, "/enter")


@requirement("chat:elicitation")
async def test_a_client_that_opens_addresses_is_given_the_card_and_no_answer_of_it_counts(
    desk: Desk,
) -> None:
    opened: list[Any] = []

    async def open_card(context: object, params: Any) -> ElicitResult:
        opened.append(params)
        return ElicitResult(action="accept")

    async with Client(
        desk_server(desk), mode="2026-07-28", elicitation_callback=open_card
    ) as client:
        refused = await client.call_tool("send_email", HELLO)
        again = await client.call_tool("send_email", HELLO)
    ((request, *_), _) = await desk.waiting.requests(limit=5)
    assert [(each.mode, each.url) for each in opened] == [
        ("url", f"{ORIGIN}/requests/{request.id}")
    ]
    assert (refused.is_error, again.is_error, request.state) == (True, True, "waiting")


@requirement("chat:elicitation")
async def test_an_older_client_that_opens_addresses_is_told_by_the_protocols_own_error(
    desk: Desk,
) -> None:
    async def never(context: object, params: Any) -> ElicitResult:
        raise AssertionError("a server that keeps no session asks nothing back")

    async with Client(
        desk_server(desk), mode="legacy", elicitation_callback=never
    ) as client:
        with pytest.raises(MCPError) as told:
            await client.call_tool("send_email", HELLO)
        (asked,) = UrlElicitationRequiredError.from_error(told.value.error).elicitations
        again = await client.call_tool("send_email", HELLO)
    assert asked.url == f"{ORIGIN}/requests/{asked.elicitation_id}"
    assert (again.is_error, await state(desk)) == (True, "waiting")


class TaskResult(Result):
    result_type: Literal["task"]
    task_id: str
    status: str
    status_message: str


class Waits(ClientExtension):
    """A client that takes a handle, and asks once what came of it."""

    identifier = TASKS

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskResult, resolve=self._resolve)]

    async def _resolve(self, result: TaskResult, context: ClaimContext) -> CallToolResult:
        raise AssertionError("the test asks for the handle itself")


class TaskState(Result):
    """What tasks/get answers in the new era."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    task_id: str
    status: str
    status_message: str
    ttl_ms: int
    result: dict[str, Any] | None = None


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"


async def ask(client: Client, task: str) -> TaskState:
    return await client.session.send_request(
        GetTask(params=TaskParams(task_id=task)), TaskState
    )


@requirement("chat:handle")
@pytest.mark.parametrize(("folder", "failed"), [("Approved", False), ("Rejected", True)])
async def test_a_call_that_waits_is_a_handle_whose_result_comes_with_the_answer(
    desk: Desk, home: Home, folder: str, *, failed: bool
) -> None:
    async with Client(desk_server(desk), mode="2026-07-28", extensions=[Waits()]) as client:
        made: Any = await client.session.call_tool("send_email", HELLO, allow_claimed=True)
        assert (made.result_type, made.status) == ("task", "working")
        assert f"{ORIGIN}/requests/{made.task_id}" in made.status_message
        assert (await ask(client, made.task_id)).status == "working"
        answer(home, folder)
        await desk.waiting.find(made.task_id)
        await desk.gate.release_due()
        ended = await ask(client, made.task_id)
        assert ended.status == "completed"
        assert ended.result is not None
        assert bool(ended.result.get("isError")) == failed
        with pytest.raises(MCPError):
            await ask(client, "nothing")
    server = desk_server(desk)
    server.narrow(["notes:read"])
    async with Client(server, mode="2026-07-28", extensions=[Waits()]) as client:
        with pytest.raises(MCPError, match="mail:read"):
            await ask(client, made.task_id)


@requirement("chat:handle")
async def test_who_declares_nothing_is_refused_as_ever(desk: Desk) -> None:
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        assert (await client.call_tool("send_email", HELLO)).is_error


@requirement("chat:app")
async def test_the_card_in_the_chat_is_a_resource_of_the_tools_that_may_wait(
    desk: Desk,
) -> None:
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        tools = {each.name: each.meta for each in (await client.list_tools()).tools}
        (card,) = (await client.read_resource(CARD)).contents
    mails = {"send_email", "reply_email", "forward_email", "update_emails"}
    others = {"move_email", "add_label", "unsubscribe", "ask_person", "get_action"}
    assert {name for name, meta in tools.items() if meta} == mails | others
    assert tools["send_email"] == {"ui": {"resourceUri": CARD}}
    assert card.mime_type == "text/html;profile=mcp-app"


HOST = """<!doctype html><title>A host</title><iframe title="card" sandbox="allow-scripts"></iframe><script>
const frame = document.querySelector("iframe");
window.heard = [];
window.tell = (message) => frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
window.addEventListener("message", ({ data }) => {
  window.heard.push(data);
  if (data.method === "ui/initialize") window.tell({ id: data.id, result: { protocolVersion: "2026-01-26" } });
});
window.show = (html) => (frame.srcdoc = html);
</script>"""


@needs_chromium
@requirement("chat:app")
async def test_the_card_shows_what_was_asked_and_asks_the_host_to_open_the_page_alone(
    desk: Desk,
) -> None:
    hostile = HELLO | {"subject": "<img src=x onerror=alert(1)>"}
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        (card,) = (await client.read_resource(CARD)).contents
        refused = (await client.call_tool("send_email", hostile)).model_dump(
            mode="json", by_alias=True
        )
    address = refused["_meta"]["deskhand/error"]["details"]["card"]
    async with chromium() as browser, quiet_page(browser, "http://127.0.0.1") as page:
        await page.set_content(HOST)
        await page.evaluate("html => window.show(html)", card.text)
        await page.wait_for_function(
            "window.heard.some(({ method }) => method === 'ui/notifications/initialized')"
        )
        await page.evaluate(
            "given => window.tell(given)", _said("tool-input", arguments=hostile)
        )
        await page.evaluate("given => window.tell(given)", _said("tool-result", **refused))
        frame = page.frame_locator("iframe")
        await frame.get_by_text(hostile["subject"]).wait_for()
        await frame.get_by_role("button", name="Open it on your desk").click()
        await page.wait_for_function(
            "window.heard.some(({ method }) => method === 'ui/open-link')"
        )
        heard = await page.evaluate("window.heard")
    methods = [each["method"] for each in heard]
    assert methods == ["ui/initialize", "ui/notifications/initialized", "ui/open-link"]
    assert heard[-1]["params"] == {"url": address}


def _said(what: str, **params: Any) -> dict[str, Any]:
    return {"method": f"ui/notifications/{what}", "params": params}
