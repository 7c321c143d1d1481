"""The doors of assistants beside the page: what a token opens, and what it does not."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anyio import to_thread
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation

from deskhand import tokens
from deskhand.app import Desk
from deskhand.audit import Entry, entries
from deskhand.config import load
from deskhand.resident.doors import open_doors
from deskhand.store import Transaction
from deskhand.web.render import PLACES
from deskhand.web.site import site
from tests.home import TOKEN, Home
from tests.requirements import requirement
from tests.transports import ERAS, http_client
from tests.web.person import served, signed_in

MCP = ("/mcp", "/gmail/mcp", "/email/mcp", "/obsidian/mcp", "/tasks/mcp", "/agentmail/mcp")
HELLO = {"to": "ann@example.org", "subject": "Hello", "body": "Hi.\n"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@dataclass(frozen=True)
class Place:
    """A desk whose page and doors are served."""

    desk: Desk
    address: str

    async def token(self, name: str, *scopes: str, user: str | None = None) -> str:
        now, given = self.desk.now(), scopes or tokens.EVERYTHING
        return await self.desk.store.write(
            lambda tx: tokens.create(tx, name, now, user=user, scopes=given)
        )

    def client(self, token: str, path: str = "/mcp", era: str = "2026-07-28") -> Any:
        return http_client(f"{self.address}{path}", token, era)

    def http(self, token: str | None = None, **headers: str) -> httpx2.AsyncClient:
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx2.AsyncClient(
            base_url=self.address, headers=shown | headers, timeout=60
        )

    async def record(self) -> list[Entry]:
        return [entry for _, entry in await self.desk.store.read(entries)]


@asynccontextmanager
async def opened(tmp_path: Path, **variables: str) -> AsyncIterator[Place]:
    (tmp_path / "vault").mkdir()
    given = {"DESKHAND_HOME": str(tmp_path / "home"), "VAULT_PATH": str(tmp_path / "vault")}
    desk = Desk(
        load(
            given
            | {"SERVICE_AUTH_TOKEN": TOKEN, "DESKHAND_ADDRESS": "me@example.com"}
            | variables
        ).settings
    )
    made = open_doors(desk)
    async with made.run(), served(site(desk, beside=made.routes)) as address:
        yield Place(desk, address)
    await desk.close_mailbox()
    desk.close()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    agent = {
        "DESKHAND_AGENT": "helper",
        "DESKHAND_AGENTS_STORE": "database",
        "DESKHAND_AGENTS_ROOM": "desk",
    }
    async with opened(tmp_path, DESKHAND_USER="me", **agent) as place:
        yield place


async def names(client: Client) -> set[str]:
    return {each.name for each in (await client.list_tools()).tools}


async def ok(client: Client, name: str, /, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def refused(client: Client, name: str, /, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    assert result.is_error, result.content
    return result.meta["deskhand/error"]


@requirement("doors:one-app")
@pytest.mark.parametrize("era", ERAS)
async def test_every_server_answers_beside_the_page_to_the_desks_own_token(
    era: str, place: Place
) -> None:
    main = {
        "/mcp": ("list_notes", {"directory": ""}),
        "/gmail/mcp": ("list_emails", {}),
        "/email/mcp": ("search_email", {"query": "is:unread"}),
        "/obsidian/mcp": ("list_notes", {"directory": ""}),
        "/tasks/mcp": ("list_tasks", {}),
        "/agentmail/mcp": ("list-recipients", {}),
    }
    for path in MCP:
        async with place.client(TOKEN, path, era) as client:
            name, arguments = main[path]
            assert name in await names(client)
            await ok(client, name, **arguments)
    async with place.http() as http:
        assert [(await http.post(path, json=PING)).status_code for path in MCP] == [401] * 6
        assert (await http.get("/health")).status_code == 200


@requirement("tokens:scopes")
@pytest.mark.parametrize("era", ERAS)
async def test_a_token_lists_and_calls_what_its_scopes_open_and_the_rest_is_on_the_record(
    era: str, place: Place
) -> None:
    token = await place.token("codex", "mail:read", "notes:write")
    async with place.client(token, era=era) as client:
        listed = await names(client)
        await ok(client, "write_note", path="a.md", frontmatter={}, body="text")
        errors = [
            await refused(client, "send_email", **HELLO),
            await refused(client, "list_tasks"),
            await refused(client, "send_to_agent", recipient="helper", message="psst"),
        ]
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("approve", {})
    async with place.client(TOKEN, era=era) as client:
        await refused(client, "send_email", **HELLO)
    record = await place.record()

    assert listed == {
        *("search_email", "get_email", "get_thread", "get_attachment", "save_attachment"),
        *("list_pending", "pending_actions", "get_action"),
        *(
            "read_note",
            "write_note",
            "list_notes",
            "move_note",
            "search_notes",
            "append_note",
            "edit_note",
        ),
        *("get_links", "list_tags", "get_outline", "daily_note", "create_from_template"),
    }
    assert [error["details"]["scope"] for error in errors] == [
        "mail:write",
        "tasks:read",
        "agents:write",
    ]
    assert {error["error"] for error in errors} == {"permission_denied"}
    assert [
        (
            entry.actor,
            entry.action_type,
            entry.result,
            (entry.parameters or {}).get("client"),
        )
        for entry in record
    ] == [
        ("email_mcp", "send_email", "waiting", None),
        ("desk_mcp", "send_to_agent", "rejected", "codex"),
        ("desk_mcp", "list_tasks", "rejected", "codex"),
        ("desk_mcp", "send_email", "rejected", "codex"),
        ("desk_mcp", "write_note", "success", "codex"),
    ]
    assert len(list((place.desk.settings.vault / "Pending_Approval").glob("*.md"))) == 1


@requirement("tokens:scopes")
async def test_what_an_assistant_proposes_is_on_the_record_under_its_tokens_name(
    place: Place,
) -> None:
    token = await place.token("codex", "mail:write")
    async with place.client(token, "/email/mcp") as client:
        await refused(client, "send_email", **HELLO)
    async with place.client(token, "/gmail/mcp") as client:
        await refused(client, "send_email", **HELLO | {"subject": "Again"})
    (used,) = [kept.used for kept in await place.desk.store.read(tokens.list_tokens)]

    found = [
        (entry.actor, (entry.parameters or {}).get("client"))
        for entry in await place.record()
    ]
    assert found == [("gmail_mcp", "codex"), ("email_mcp", "codex")]
    assert used is not None


@requirement("cards:asker")
@pytest.mark.parametrize("era", ERAS)
async def test_the_record_names_who_wrote_a_note_or_a_task_as_a_card_does(
    era: str, place: Place
) -> None:
    token = await place.token("laptop")
    program = Implementation(name="codex-mcp-client", version="1.2")
    whole = http_client(f"{place.address}/mcp", token, era, client_info=program)
    part = http_client(f"{place.address}/tasks/mcp", token, era, client_info=program)
    async with whole as client:
        await ok(client, "write_note", path="a.md", frontmatter={}, body="text")
        await ok(client, "create_task", title="Call")
        await client.call_tool("send_to_agent", {"recipient": "nobody", "message": "x"})
    async with part as client:
        await ok(client, "create_task", title="Write")
    async with signed_in(place.desk, place.address) as person:
        page = (await person.reads("/timeline")).text

    # Of the first era a server without sessions hears no more than the token.
    named = {"legacy": "an assistant"}.get(era, "Codex 1.2")
    who = f'<span class="who"><bdi>{named}, with the token “laptop”</bdi></span>'
    assert page.count(who) == 4


@requirement("cards:asker")
@pytest.mark.parametrize("era", ERAS)
async def test_a_task_names_who_made_it_and_who_changed_it_last_as_a_card_does(
    era: str, place: Place, tmp_path: Path
) -> None:
    token = await place.token("laptop")
    program = Implementation(name="claude-code", version="2.1")
    door = http_client(f"{place.address}/mcp", token, era, client_info=program)
    async with door as client:
        made = await ok(client, "create_task", title="Call")
    named = {"legacy": "an assistant"}.get(era, "Claude Code 2.1")
    who = f"{named}, with the token “laptop”"
    home = Home(
        tmp_path / "vault",
        {"DESKHAND_HOME": str(tmp_path / "home"), "DESKHAND_USER": "me"},
    )

    async with signed_in(place.desk, place.address) as person:
        fresh = (await person.reads(f"/tasks/{made['id']}")).text
        await to_thread.run_sync(home.command, "tasks", "edit", str(made["id"]), "!high")
        changed = (await person.reads(f"/tasks/{made['id']}")).text

    assert f"Added by <bdi>{who}</bdi>, <time" in fresh
    assert "Last changed" not in fresh
    assert f"Added by <bdi>{who}</bdi>, <time" in changed
    assert "Last changed by <bdi>you</bdi>, <time" in changed
    told = await to_thread.run_sync(home.command, "tasks", "list", "--json")
    (task,) = json.loads(told.stdout)["tasks"]
    assert (task["created_by"], task["changed_by"]) == (who, "you")
    told = await to_thread.run_sync(home.command, "log", "--json")
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    named_lines = [line["who"] for line in lines if line["target"].startswith("task ")]
    assert named_lines == [who, "you"]


@requirement("tokens:scopes")
@pytest.mark.parametrize("era", ERAS)
async def test_a_token_without_a_scope_for_a_server_does_not_enter_it(
    era: str, place: Place
) -> None:
    token = await place.token("reader", "notes:read")
    async with place.http(token, Accept="application/json, text/event-stream") as http:
        answers = {path: await http.post(path, json=PING) for path in MCP}
    async with place.client(token, "/obsidian/mcp", era) as client:
        listed, error = (
            await names(client),
            await refused(client, "write_note", path="a.md", frontmatter={}, body=""),
        )

    assert {
        path: answer.status_code
        for path, answer in answers.items()
        if answer.status_code == 403
    } == dict.fromkeys(("/gmail/mcp", "/email/mcp", "/tasks/mcp", "/agentmail/mcp"), 403)
    assert "mail:read" in answers["/gmail/mcp"].text
    assert listed == {
        "read_note",
        "list_notes",
        "search_notes",
        "get_links",
        "list_tags",
        "get_outline",
    }
    assert error["details"]["scope"] == "notes:write"


@requirement("tokens:scopes")
async def test_resources_are_as_limited_as_tools(place: Place) -> None:
    (place.desk.settings.vault / "a.md").write_text("secret\n")
    token = await place.token("mailer", "mail:read")
    async with place.client(token) as client:
        listed = await client.list_resources()
        with pytest.raises(MCPError) as caught:
            await client.read_resource("note://a.md")
    (entry,) = await place.record()

    assert listed.resources == []
    assert caught.value.error.data["details"]["scope"] == "notes:read"
    assert (entry.action_type, entry.target, entry.result) == (
        "resources/read",
        "note://a.md",
        "rejected",
    )


@requirement("doors:apart")
@requirement("tokens:kept")
async def test_a_revoked_token_is_out_at_once_and_no_token_takes_over_anothers_session(
    place: Place,
) -> None:
    token, other = await place.token("codex"), await place.token("other")
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    start = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    accepts = {"Accept": "application/json, text/event-stream"}
    async with place.http(token, **accepts) as http, place.http(other, **accepts) as thief:
        session = {
            "mcp-session-id": (await http.post("/obsidian/mcp", json=start)).headers[
                "mcp-session-id"
            ]
        }
        before = await http.post("/obsidian/mcp", json=PING, headers=session)
        stolen = await thief.post("/obsidian/mcp", json=PING, headers=session)
        await place.desk.store.write(lambda tx: tokens.revoke(tx, "codex"))
        after = await http.post("/obsidian/mcp", json=PING, headers=session)

    assert [before.status_code, stolen.status_code, after.status_code] == [200, 404, 401]


@requirement("doors:apart")
async def test_a_session_opens_no_door_and_no_token_opens_a_page(place: Place) -> None:
    async with signed_in(place.desk, place.address) as person:
        by_session = [(await person.http.post(path, json=PING)).status_code for path in MCP]
        by_session.append((await person.http.get("/api/tasks")).status_code)
    everything = await place.token("codex")
    answers = []
    for token in (TOKEN, everything):
        async with place.http(
            token, Cookie=f"deskhand-{httpx2.URL(place.address).port}={token}"
        ) as http:
            answers += [await http.get(path) for path, _ in PLACES]
            answers += [
                await http.post("/leave", data={"form_token": token}),
                await http.get(f"/enter/{token}"),
            ]

    assert by_session == [401] * 7
    assert {answer.status_code for answer in answers} <= {303, 401, 404}
    assert {answer.headers.get("location", "/enter") for answer in answers} == {"/enter"}
    given = {answer.headers.get("set-cookie", "").partition("=")[0] for answer in answers}
    assert given <= {"", f"deskhand-{httpx2.URL(place.address).port}-place"}, (
        "at most where the person wanted to go"
    )


@requirement("doors:apart")
async def test_a_foreign_host_or_origin_reaches_no_door(place: Place) -> None:
    async with place.http(TOKEN) as http:
        for path in MCP:
            foreign = await http.post(
                path, json=PING, headers={"Origin": "http://evil.example"}
            )
            elsewhere = await http.post(path, json=PING, headers={"Host": "evil.example"})
            assert (foreign.status_code, elsewhere.status_code) == (403, 421)


@requirement("doors:identity")
async def test_an_assistant_reaches_its_users_tasks_and_names_nobody_else(
    place: Place,
) -> None:
    anns, mine = await place.token("ann's", user="ann"), await place.token("codex")
    owners = []
    bob: Any = {"user_id": "bob"}
    for path in ("/mcp", "/tasks/mcp"):
        for token in (anns, mine, TOKEN):
            async with (
                place.http(token, **{"X-User-ID": "bob"}) as http,
                Client(
                    streamable_http_client(f"{place.address}{path}", http_client=http)
                ) as client,
            ):
                named = await client.call_tool("create_task", {"title": "x"}, meta=bob)
                owners.append(named.structured_content["user_id"])

    assert owners == ["ann", "me", "bob"] * 2


@requirement("doors:identity")
@requirement("doors:one-app")
async def test_the_tasks_rest_takes_the_service_and_tokens_with_a_scope_for_tasks(
    place: Place,
) -> None:
    anns, reader = (
        await place.token("ann's", "tasks:write", user="ann"),
        await place.token("reader", "tasks:read"),
    )
    stranger = await place.token("stranger", "notes:write")
    new = {"title": "Buy milk"}
    async with place.http(anns) as ann, place.http(TOKEN, **{"X-User-ID": "me"}) as service:
        made = await ann.post("/api/tasks", json=new)
        seen = await ann.get(made.headers["location"])
        mine = await service.post("/api/tasks", json=new)
    async with place.http(reader) as http:
        read, written = (
            await http.get("/api/tasks"),
            await http.post("/api/tasks", json=new),
        )
    async with place.http(stranger) as http:
        closed = await http.get("/api/tasks")
    async with place.http() as http:
        nobody = await http.get("/api/tasks")

    assert (made.status_code, seen.json()) == (201, made.json())
    assert made.headers["location"] == f"/api/tasks/{made.json()['id']}"
    assert (made.json()["user_id"], mine.json()["user_id"]) == ("ann", "me")
    # A token that names no user is the desk's own user.
    assert [task["user_id"] for task in read.json()["tasks"]] == ["me"]
    assert [each.status_code for each in (written, closed, nobody)] == [403, 403, 401]
    assert "tasks:write" in written.json()["detail"]


@requirement("tokens:scopes")
async def test_whom_a_scope_keeps_out_is_on_the_record_at_every_door(place: Place) -> None:
    token = await place.token("stranger", "agents:read")
    async with place.http(token) as http:
        closed = [
            await http.post(path, json=PING)
            for path in ("/obsidian/mcp", "/gmail/mcp", "/tasks/mcp")
        ]
        closed += [
            await http.get("/api/tasks"),
            await http.post("/api/tasks", json={"title": "x"}),
        ]
        closed += [await http.get("/api/metrics"), await http.get("/api/openapi.json")]
        foreign = await http.post(
            "/agentmail/mcp", json=PING, headers={"Origin": "http://evil.example"}
        )
    async with place.http() as http:
        unknown = [await http.get(path) for path in ("/api/metrics", "/api/openapi.json")]
    async with place.http(await place.token("reader", "tasks:read")) as http:
        document = await http.get("/api/openapi.json")
    entries = [
        entry for entry in reversed(await place.record()) if entry.result == "rejected"
    ]

    assert [answer.status_code for answer in (*closed, foreign)] == [403] * 8
    assert [answer.status_code for answer in (*unknown, document)] == [401, 401, 200]
    assert [(entry.actor, entry.action_type) for entry in entries] == [
        ("obsidian_mcp", "connect"),
        ("gmail_mcp", "connect"),
        ("tasks_mcp", "connect"),
        ("tasks_api", "read_tasks"),
        ("tasks_api", "create_task"),
        ("tasks_api", "read_tasks"),
        ("tasks_api", "read_tasks"),
    ]
    assert {(entry.parameters or {}).get("client") for entry in entries} == {"stranger"}


@requirement("desk:parts")
async def test_a_door_that_is_not_set_up_says_what_to_set_and_the_others_open(
    tmp_path: Path,
) -> None:
    away = tmp_path / "away"
    async with (
        opened(
            tmp_path, FASTAPI_BASE_URL="http://127.0.0.1:9", VAULT_PATH=str(away)
        ) as place,
        place.http(TOKEN) as http,
    ):
        closed = await http.post("/obsidian/mcp", json=PING)
        elsewhere = await http.get("/api/tasks")
        async with place.client(TOKEN) as client:
            assert (await ok(client, "search_email", query="x"))["emails"] == []

    assert closed.status_code == 503
    assert str(away) in json.dumps(closed.json())
    assert elsewhere.status_code == 404


@requirement("agents:tokens")
@pytest.mark.parametrize("era", ERAS)
async def test_over_http_an_assistant_has_the_name_of_its_token_among_the_agents(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(tmp_path) as place:
        ann, bob = await place.token("ann"), await place.token("bob", "agents:write")
        async with (
            place.client(ann, "/mcp", era) as whole,
            place.client(bob, "/agentmail/mcp", era) as part,
        ):
            alone = said(await whole.call_tool("list_agents", {}))
            both = said(await part.call_tool("list-recipients", {}))
            await part.call_tool("send", {"recipient": "ann", "message": "Ready?"})
            got = said(await whole.call_tool("receive_from_agents", {}))
            none = said(await part.call_tool("receive", {}))
            await part.call_tool("send", {"recipient": "person", "message": "Hello."})

    assert alone == {"recipients": [{"name": "ann", "is_current": True}]}
    assert {"name": "bob", "is_current": True} in both["recipients"]
    assert (got["from"], got["message"]) == ("bob", "Ready?")
    assert none == {"status": "No unread messages"}
    assert place.desk.room(None).messages("person")[0].sender == "bob"


@requirement("agents:tokens")
async def test_no_token_makes_an_agent_of_a_name_that_reads_as_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(tmp_path) as place:
        for name in ("person", "Pers0n", "b\u043eb"):
            token = await place.token("of an earlier version")
            await place.desk.store.write(partial(rename_token, name))
            async with place.client(token) as client:
                told = await refused(client, "list_agents")
            assert "token create" in told["details"]["hint"], name
        async with place.client(TOKEN) as client:
            nobody = await refused(client, "list_agents")

    assert "DESKHAND_AGENT" in nobody["details"]["hint"]


def rename_token(name: str, tx: Transaction) -> None:
    """Names that a token could have before they were refused."""
    sql = "UPDATE tokens SET name = ?, asker = ? WHERE name = 'of an earlier version'"
    tx.execute(sql, name, name)


def said(result: Any) -> Any:
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)
