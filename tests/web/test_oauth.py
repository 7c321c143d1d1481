"""OAuth 2.1: a client registers, the person connects it, and what it then holds ends, is renewed, and is revoked."""

import asyncio
import base64
import hashlib
import json
import re
import secrets
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from deskhand import audit, tokens
from deskhand.app import Desk
from deskhand.config import load
from deskhand.oauth import OAuthRefusal, clients, grants
from deskhand.resident.doors import Doors, ServerDoor, open_doors
from deskhand.servers import SERVERS
from deskhand.store import Transaction
from deskhand.web import sessions
from deskhand.web.oauth import WORDS
from deskhand.web.site import site
from tests.foreign.place import STRANGER
from tests.home import TOKEN, Home
from tests.requirements import requirement
from tests.transports import http_client
from tests.web.browser import chromium, judged, needs_axe, needs_chromium, sign_in
from tests.web.person import Person, served, signed_in

BACK = "https://claude.ai/api/mcp/auth_callback"
AGENT = {
    "DESKHAND_AGENT": "helper",
    "DESKHAND_AGENTS_STORE": "database",
    "DESKHAND_AGENTS_ROOM": "desk",
}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
HELLO = PING | {
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "chat", "version": "1"},
    },
}
FIELD = re.compile(r'<input type="(hidden|checkbox)" name="([^"]+)" value="([^"]*)"')


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 2, 9, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Chat:
    """A chat client: what it registered, and what it was given."""

    http: httpx2.AsyncClient
    id: str = ""
    endpoint: str = "/mcp"
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    @property
    def challenge(self) -> str:
        return (
            base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest())
            .decode()
            .rstrip("=")
        )

    @property
    def resource(self) -> str:
        return str(self.http.base_url.join(self.endpoint))

    async def register(
        self, name: str = "Claude", *redirects: str, **more: Any
    ) -> httpx2.Response:
        given = {"client_name": name, "redirect_uris": redirects or [BACK]} | more
        answer = await self.http.post("/oauth/register", json=given)
        if answer.status_code == 201:
            self.id = answer.json()["client_id"]
        return answer

    def asks(self, **other: str | None) -> dict[str, str]:
        """What it asks the person for; None leaves a parameter out."""
        asked = {
            "response_type": "code",
            "client_id": self.id,
            "redirect_uri": BACK,
            "code_challenge": self.challenge,
            "code_challenge_method": "S256",
            "state": "st&te",
            "scope": "mail:read notes:write",
            "resource": self.resource,
        }
        return {name: value for name, value in (asked | other).items() if value is not None}

    async def redeem(self, code: str, /, **other: str | None) -> httpx2.Response:
        given: dict[str, str | None] = {
            "grant_type": "authorization_code",
            "client_id": self.id,
            "code": code,
            "code_verifier": self.verifier,
            "redirect_uri": BACK,
            "resource": self.resource,
        }
        return await self.post("/oauth/token", given | other)

    async def renew(self, refresh: str, /, **other: str | None) -> httpx2.Response:
        given: dict[str, str | None] = {
            "grant_type": "refresh_token",
            "client_id": self.id,
            "refresh_token": refresh,
        }
        return await self.post("/oauth/token", given | other)

    async def post(self, path: str, given: dict[str, str | None]) -> httpx2.Response:
        return await self.http.post(
            path, data={name: value for name, value in given.items() if value is not None}
        )

    async def enters(self, access: str, endpoint: str | None = None) -> int:
        """What an endpoint says to this token: 401 and 403 keep it out."""
        headers = {
            "Authorization": f"Bearer {access}",
            "Accept": "application/json, text/event-stream",
        }
        return (
            await self.http.post(endpoint or self.endpoint, json=HELLO, headers=headers)
        ).status_code


@dataclass(frozen=True)
class Place:
    desk: Desk
    app: Starlette
    clock: Clock
    person: Person
    chat: Chat

    async def allow(
        self, asked: dict[str, str], *without: str, answer: str = "allow"
    ) -> dict[str, str]:
        """What the client hears when the person has answered on the page."""
        page = await self.person.http.get("/oauth/authorize", params=asked)
        assert page.status_code == 200, page.text
        found = [(name, unescape(value)) for _, name, value in FIELD.findall(page.text)]
        fields = dict(found) | {
            "allow": [
                value for name, value in found if name == "allow" and value not in without
            ]
        }
        sent = await self.person.http.post(
            "/oauth/authorize", data=fields | {"answer": answer}
        )
        assert sent.status_code == 303, sent.text
        return heard(sent)

    async def connect(self, *without: str, **other: str | None) -> dict[str, Any]:
        """The tokens of a client that registered, was allowed, and redeemed its code."""
        if not self.chat.id:
            await self.chat.register()
        code = (await self.allow(self.chat.asks(**other), *without))["code"]
        answer = await self.chat.redeem(
            code, resource=other.get("resource", self.chat.resource)
        )
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def recorded(self) -> list[tuple[str, str, str]]:
        found = await self.desk.store.read(audit.entries)
        return [
            (entry.action_type, entry.target, entry.result) for _, entry in reversed(found)
        ]


def heard(answer: httpx2.Response) -> dict[str, str]:
    """What the client hears when the browser comes back to it."""
    return {
        name: value
        for name, (value,) in parse_qs(urlsplit(answer.headers["location"]).query).items()
    }


@asynccontextmanager
async def opened(
    environment: dict[str, str], *, whole: bool = True
) -> AsyncIterator[Place]:
    """A desk with its doors; where not the whole, then with that of the mail alone, which is quickly made."""
    clock = Clock()
    desk = Desk(
        load(environment | AGENT | {"DESKHAND_ADDRESS": "me@example.com"}).settings, clock
    )
    doors = open_doors(desk) if whole else _door_of_mail(desk)
    app = site(desk, beside=doors.routes)
    async with (
        doors.run(),
        served(app, desk.settings.trusted_proxies) as address,
        signed_in(desk, address) as person,
        httpx2.AsyncClient(base_url=address, timeout=60) as http,
    ):
        yield Place(
            desk, app, clock, person, Chat(http, endpoint="/mcp" if whole else "/gmail/mcp")
        )
    await desk.close_foreign()
    await desk.close_mailbox()
    await desk.leave_tasks()
    desk.close()


def _door_of_mail(desk: Desk) -> Doors:
    door = ServerDoor(desk, SERVERS["gmail"])
    return Doors(desk, [Route("/gmail/mcp", door)], [door.open()])


@pytest.fixture
async def whole(home: Home) -> AsyncIterator[Place]:
    async with opened(home.environment) as place:
        yield place


@pytest.fixture
async def place(home: Home) -> AsyncIterator[Place]:
    async with opened(home.environment, whole=False) as place:
        yield place


@requirement("oauth:metadata")
async def test_whoever_is_turned_away_learns_where_a_token_is_had(whole: Place) -> None:
    http = whole.chat.http
    origin = str(http.base_url).rstrip("/")
    for kind in SERVERS.values():
        challenge = (await http.post(kind.path, json=PING)).headers["www-authenticate"]
        (where,) = re.findall(r'resource_metadata="([^"]+)"', challenge)
        about = (await http.get(where)).json()
        assert where == f"{origin}/.well-known/oauth-protected-resource{kind.path}"
        assert (about["resource"], about["authorization_servers"]) == (
            f"{origin}{kind.path}",
            [origin],
        )
        assert about["scopes_supported"] == list(kind.scopes)
        assert f'scope="{" ".join(kind.scopes)}"' in challenge
    root = (await http.get("/.well-known/oauth-protected-resource")).json()
    server = (await http.get("/.well-known/oauth-authorization-server")).json()
    assert root["resource"] == server["issuer"] == origin
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["authorization_response_iss_parameter_supported"] is True
    assert {
        server[f"{name}_endpoint"].removeprefix(origin)
        for name in ("authorization", "token", "registration")
    } == {
        "/oauth/authorize",
        "/oauth/token",
        "/oauth/register",
    }
    assert (
        await http.get("/.well-known/oauth-protected-resource/approvals")
    ).status_code == 404


@requirement("oauth:metadata")
async def test_behind_a_proxy_everything_is_said_and_bound_under_the_desks_own_name(
    home: Home,
) -> None:
    own = "https://desk.example.net"
    async with opened(home.environment | {"DESKHAND_ORIGIN": own}, whole=False) as place:
        http = place.chat.http
        _come_by_proxy(place, own)
        challenge = (await http.post("/gmail/mcp", json=PING)).headers["www-authenticate"]
        assert (
            f'resource_metadata="{own}/.well-known/oauth-protected-resource/gmail/mcp"'
            in challenge
        )
        about = (await http.get("/.well-known/oauth-protected-resource/gmail/mcp")).json()
        server = (await http.get("/.well-known/oauth-authorization-server")).json()
        assert (about["resource"], about["authorization_servers"]) == (
            f"{own}/gmail/mcp",
            [own],
        )
        assert (server["issuer"], server["token_endpoint"]) == (own, f"{own}/oauth/token")
        await place.chat.register()
        back = await place.allow(place.chat.asks(resource=f"{own}/gmail/mcp"))
        assert back["iss"] == own
        given = (await place.chat.redeem(back["code"], resource=f"{own}/gmail/mcp")).json()
        assert await place.chat.enters(given["access_token"]) == 200
        local = place.chat.asks(resource="http://127.0.0.1:1/gmail/mcp")
        refused = await place.person.http.get("/oauth/authorize", params=local)
        assert heard(refused)["error"] == "invalid_target"


@requirement("oauth:guarded")
@pytest.mark.parametrize("own", [None, "https://desk.example.net"])
async def test_a_client_is_connected_to_one_server_behind_the_gate_and_to_no_other(
    home: Home, tmp_path: Path, own: str | None
) -> None:
    entries = ""
    for name in ("stranger", "other"):
        (tmp_path / name).mkdir()
        command = json.dumps([sys.executable, str(STRANGER), str(tmp_path / name)])
        entries += f"[servers.{name}]\ncommand = {command}\n"
    home.path.mkdir(parents=True, exist_ok=True)
    (home.path / "guard.toml").write_text(entries)
    path = "/guard/stranger/mcp"
    behind = {"DESKHAND_ORIGIN": own} if own else {}
    async with opened(home.environment | behind) as place:
        origin = own or str(place.chat.http.base_url).rstrip("/")
        if own:
            _come_by_proxy(place, own)
        place.chat.endpoint = path
        http = place.chat.http
        challenge = (await http.post(path, json=PING)).headers["www-authenticate"]
        where = f"{origin}/.well-known/oauth-protected-resource{path}"
        assert f'resource_metadata="{where}", scope="guard:read guard:write"' in challenge
        about = (await http.get(urlsplit(where).path)).json()
        assert (about["resource"], about["authorization_servers"]) == (
            f"{origin}{path}",
            [origin],
        )
        assert about["scopes_supported"] == ["guard:read", "guard:write"]
        nobody = f"{urlsplit(where).path}".replace("stranger", "nobody")
        assert (await http.get(nobody)).status_code == 404

        await place.chat.register()
        asked = place.chat.asks(resource=f"{origin}{path}", scope=None)
        page = await place.person.http.get("/oauth/authorize", params=asked)
        assert "the server stranger behind your gate" in page.text
        code = (await place.allow(asked))["code"]
        answer = await place.chat.redeem(code, resource=f"{origin}{path}")
        given = answer.json()
        assert given["scope"] == "guard:read guard:write"
        opened_by = {
            each: await place.chat.enters(given["access_token"], each)
            for each in (path, "/guard/other/mcp", "/mcp", "/claude/mcp")
        }
        assert opened_by == {
            path: 200,
            "/guard/other/mcp": 401,
            "/mcp": 401,
            "/claude/mcp": 401,
        }
        gone = place.chat.asks(resource=f"{origin}/guard/nobody/mcp", scope=None)
        refused = await place.person.http.get("/oauth/authorize", params=gone)
        assert heard(refused)["error"] == "invalid_target"


def _come_by_proxy(place: Place, own: str) -> None:
    """From here on everybody asks under the desk's own name, as a proxy on this machine passes it on."""
    behind = {"Host": urlsplit(own).netloc, "X-Forwarded-Proto": "https"}
    place.chat.http.headers.update(behind)
    place.person.http.headers.update(behind)
    (key,) = [
        value
        for name, value in place.person.http.cookies.items()
        if name.startswith("deskhand-")
    ]
    place.person.http.headers["Cookie"] = f"__Host-deskhand-443={key}"


@requirement("oauth:consent")
@requirement("oauth:tokens")
async def test_a_client_is_connected_scoped_renewed_listed_and_revoked(
    whole: Place, home: Home
) -> None:
    chat = whole.chat
    given = await whole.connect("notes:write")
    assert (given["token_type"], given["expires_in"], given["scope"]) == (
        "Bearer",
        900,
        "mail:read notes:read",
    )
    async with http_client(chat.resource, given["access_token"], "2026-07-28") as client:
        names = {each.name for each in (await client.list_tools()).tools}
        refused = await client.call_tool("create_task", {"title": "milk"})
    assert "connect the desk to this client once more, and allow tasks:write" in str(
        refused.content
    )
    assert {"search_email", "read_note"} <= names
    assert not {"send_email", "write_note", "create_task"} & names

    listed = home.command("token", "list")
    assert "Claude  -  mail:read,notes:read" in listed.stdout
    assert "by OAuth for /mcp" in listed.stdout
    page = (await whole.person.http.get("/checkup")).text
    assert "connected by OAuth to /mcp" in page

    whole.clock.now += grants.ACCESS_LIFE
    assert await chat.enters(given["access_token"]) == 401
    renewed = (await chat.renew(given["refresh_token"])).json()
    assert (renewed["scope"], await chat.enters(renewed["access_token"])) == (
        "mail:read notes:read",
        200,
    )

    assert home.command("token", "revoke", "Claude").returncode == 0
    assert await chat.enters(renewed["access_token"]) == 401
    gone = await chat.renew(renewed["refresh_token"])
    assert (gone.status_code, gone.json()["error"]) == (400, "invalid_grant")
    assert ("connect_client", "Claude", "success") in await whole.recorded()


@requirement("oauth:tokens")
async def test_the_database_holds_no_secret_of_a_client(place: Place, home: Home) -> None:
    await place.chat.register()
    code = (await place.allow(place.chat.asks()))["code"]
    given = (await place.chat.redeem(code)).json()
    again = (await place.chat.renew(given["refresh_token"])).json()
    with sqlite3.connect(home.path / "desk.db") as database:
        dumped = "\n".join(database.iterdump())
    database.close()
    for secret in (
        code,
        *(
            each[name]
            for each in (given, again)
            for name in ("access_token", "refresh_token")
        ),
    ):
        assert secret not in dumped


@requirement("tokens:own-asker")
async def test_a_client_never_gets_a_name_that_another_had(place: Place) -> None:
    desk = place.desk
    await desk.store.write(tokens.create, "Claude", desk.now())
    await desk.store.write(tokens.revoke, "Claude")
    await desk.store.write(
        tokens.create, "Claude", desk.now()
    )  # who asks with it is "Claude 2"
    await desk.store.write(tokens.revoke, "Claude")
    first = await place.connect()
    listed = await desk.store.read(tokens.list_tokens)
    assert [(each.name, each.asker) for each in listed] == [("Claude 3", "Claude 3")]
    await place.chat.post(
        "/oauth/revoke", {"token": first["access_token"], "client_id": place.chat.id}
    )
    await place.connect()
    later = (
        desk.now() + grants.REFRESH_LIFE
    )  # what can no longer be renewed is dropped, and its name stays taken
    grant = tokens.Grant("family", "client", "Claude", "/mcp")
    await desk.store.write(tokens.issue, grant, ["mail:read"], later, later, later)
    listed = await desk.store.read(tokens.list_tokens)
    assert [(each.name, each.asker) for each in listed] == [("Claude 5", "Claude 5")]


@requirement("oauth:consent")
async def test_a_client_gets_no_name_that_reads_as_anothers_or_says_more_than_a_name(
    place: Place,
) -> None:
    desk = place.desk
    await desk.store.write(tokens.create, "Claude", desk.now())
    for told in ("\u0421laude", "CLAUDE", "Cl\u00e1ude", "x\u201d on this machine (\u201c"):
        await place.chat.register(told)
        await place.connect()
    names = {each.name for each in await desk.store.read(tokens.list_tokens)}
    numbered = {"\u0421laude 2", "CLAUDE 3", "Cl\u00e1ude 4"}
    assert names == numbered | {"Claude", "x' on this machine ('"}


@requirement("oauth:audience")
async def test_a_token_in_the_address_of_an_endpoint_opens_nothing(place: Place) -> None:
    access = (await place.connect())["access_token"]
    assert await place.chat.enters(access) == 200
    accept = {"Accept": "application/json, text/event-stream"}
    there = f"{place.chat.endpoint}?access_token={access}"
    told = await place.chat.http.post(there, json=HELLO, headers=accept)
    assert told.status_code == 401
    assert access not in told.text


@requirement("oauth:reuse")
async def test_a_refresh_token_that_is_shown_twice_ends_its_family(place: Place) -> None:
    first = await place.connect()
    other = await place.connect()
    second = (await place.chat.renew(first["refresh_token"])).json()
    third = (await place.chat.renew(second["refresh_token"])).json()
    assert await place.chat.enters(third["access_token"]) == 200

    stolen = await place.chat.renew(first["refresh_token"])
    assert (stolen.status_code, stolen.json()["error"]) == (400, "invalid_grant")
    assert await place.chat.enters(third["access_token"]) == 401
    assert (await place.chat.renew(third["refresh_token"])).json()[
        "error"
    ] == "invalid_grant"
    assert await place.chat.enters(other["access_token"]) == 200
    assert ("revoke_token", "Claude", "success") in await place.recorded()


@requirement("oauth:codes")
async def test_a_code_that_is_shown_twice_ends_what_it_gave(place: Place) -> None:
    await place.chat.register()
    code = (await place.allow(place.chat.asks()))["code"]
    given = (await place.chat.redeem(code)).json()
    assert await place.chat.enters(given["access_token"]) == 200
    assert (await place.chat.redeem(code)).json()["error"] == "invalid_grant"
    assert await place.chat.enters(given["access_token"]) == 401
    assert (await place.chat.renew(given["refresh_token"])).json()[
        "error"
    ] == "invalid_grant"


@requirement("oauth:codes")
async def test_what_does_not_fit_its_code_gets_no_tokens(place: Place) -> None:
    await place.chat.register()
    stranger = Chat(place.chat.http)
    await stranger.register("Another")
    code = (await place.allow(place.chat.asks()))["code"]
    wrong: list[tuple[dict[str, str | None], str]] = [
        ({"code_verifier": None}, "invalid_request"),
        ({"code_verifier": secrets.token_urlsafe(48)}, "invalid_grant"),
        ({"code_verifier": place.chat.challenge}, "invalid_grant"),
        ({"code_verifier": "short"}, "invalid_grant"),
        ({"redirect_uri": f"{BACK}/"}, "invalid_grant"),
        ({"redirect_uri": "https://evil.example/"}, "invalid_grant"),
        ({"client_id": stranger.id}, "invalid_grant"),
        ({"client_id": "nobody"}, "invalid_client"),
        ({"client_id": None}, "invalid_client"),
        ({"resource": place.chat.resource.replace("/gmail", "/email")}, "invalid_target"),
        ({"resource": "https://evil.example/mcp"}, "invalid_target"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": None}, "unsupported_grant_type"),
        ({"code": f"{code}x"}, "invalid_grant"),
        ({"code": None}, "invalid_request"),
    ]
    for other, error in wrong:
        refused = await place.chat.redeem(code, **other)
        assert (refused.json()["error"], refused.status_code) == (
            error,
            401 if error == "invalid_client" else 400,
        ), other
        assert refused.headers["cache-control"] == "no-store"
    assert (await place.chat.redeem(code)).status_code == 200
    late = (await place.allow(place.chat.asks()))["code"]
    place.clock.now += grants.CODE_LIFE
    assert (await place.chat.redeem(late)).json()["error"] == "invalid_grant"


@requirement("oauth:consent")
async def test_what_the_client_asks_wrongly_is_told_to_it_and_to_nobody_else(
    place: Place,
) -> None:
    await place.chat.register()
    told: list[tuple[dict[str, str | None], str]] = [
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": None}, "unsupported_response_type"),
        ({"scope": "mail:read approve:write"}, "invalid_scope"),
        ({"resource": "https://evil.example/mcp"}, "invalid_target"),
        ({"resource": f"{place.chat.resource}/more"}, "invalid_target"),
        (
            {"resource": place.chat.resource.replace("/gmail", ".evil.example/gmail")},
            "invalid_target",
        ),
        (
            {"resource": place.chat.resource.replace("/gmail/mcp", "/approvals")},
            "invalid_target",
        ),
    ]
    issuer = str(place.chat.http.base_url).rstrip("/")
    for other, error in told:
        answer = await place.person.http.get(
            "/oauth/authorize", params=place.chat.asks(**other)
        )
        assert answer.status_code == 303, other
        assert answer.headers["location"].startswith(f"{BACK}?"), other
        back = heard(answer)
        assert (back["error"], back["state"], back["iss"]) == (error, "st&te", issuer), (
            other
        )
        assert "code" not in back
    kept: list[dict[str, str | None]] = [
        {"client_id": "nobody"},
        {"client_id": None},
        {"redirect_uri": "https://evil.example/"},
        {"redirect_uri": f"{BACK}?more=1"},
        {"redirect_uri": f"{BACK}/"},
        {"redirect_uri": BACK.upper()},
        {"redirect_uri": "javascript:alert(1)"},
    ]
    for other in kept:
        answer = await place.person.http.get(
            "/oauth/authorize", params=place.chat.asks(**other)
        )
        assert (answer.status_code in (400, 401), "location" in answer.headers) == (
            True,
            False,
        ), other
    twice = await place.person.http.get(
        f"/oauth/authorize?redirect_uri={BACK}", params=None
    )
    assert twice.status_code in (400, 401)


@requirement("oauth:consent")
async def test_only_the_person_on_the_desks_own_page_connects_a_client(
    place: Place,
) -> None:
    await place.chat.register("Claude\u202e<b>")
    asked = place.chat.asks()
    async with httpx2.AsyncClient(
        base_url=place.chat.http.base_url, timeout=60
    ) as stranger:
        for way in (None, TOKEN):
            headers = {"Authorization": f"Bearer {way}"} if way else {}
            page = await stranger.get("/oauth/authorize", params=asked, headers=headers)
            assert (page.status_code, page.headers["location"]) == (303, "/enter")
            sent = await stranger.post(
                "/oauth/authorize", data=asked | {"answer": "allow"}, headers=headers
            )
            assert sent.headers["location"] == "/enter"
    no_token = await place.person.http.post(
        "/oauth/authorize", data=asked | {"answer": "allow", "allow": "mail:read"}
    )
    assert no_token.status_code == 403
    for foreign in ("https://claude.ai", "http://127.0.0.1:1", "null"):
        page = await place.person.http.get("/oauth/authorize", params=asked)
        fields = {name: unescape(value) for _, name, value in FIELD.findall(page.text)} | {
            "answer": "allow"
        }
        sent = await place.person.http.post(
            "/oauth/authorize", data=fields, headers={"Origin": foreign}
        )
        assert sent.status_code == 403, foreign
    policy = page.headers["content-security-policy"]
    assert "form-action 'self' https://claude.ai;" in policy
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "<b>" not in page.text.replace("<bdi>", "")
    assert "\u202e" not in page.text
    assert BACK in page.text

    assert (await place.allow(asked, answer="deny"))["error"] == "access_denied"
    assert (await place.allow(asked, answer=""))["error"] == "access_denied"
    nothing = await place.person.sends("/oauth/authorize", asked | {"answer": "allow"})
    more = await place.person.sends(
        "/oauth/authorize", asked | {"answer": "allow", "allow": "tasks:write"}
    )
    assert (nothing.status_code, more.status_code) == (422, 422)
    assert await place.desk.store.read(tokens.list_tokens) == []


@requirement("oauth:audience")
async def test_a_token_counts_at_its_own_endpoint_and_opens_no_page(whole: Place) -> None:
    whole.chat.endpoint = "/gmail/mcp"
    own = await whole.connect(scope="mail:write")
    opened = {
        kind.path: await whole.chat.enters(own["access_token"], kind.path)
        for kind in SERVERS.values()
    }
    assert {path for path, status in opened.items() if status not in (401, 403)} == {
        "/gmail/mcp"
    }
    every = await whole.connect(resource=None, scope=None)
    everywhere = [
        await whole.chat.enters(every["access_token"], kind.path)
        for kind in SERVERS.values()
    ]
    assert 401 not in everywhere
    for access in (own["access_token"], every["access_token"], own["refresh_token"]):
        headers = {"Authorization": f"Bearer {access}"}
        for path in ("/", "/checkup", "/mail", "/timeline"):
            assert (await whole.chat.http.get(path, headers=headers)).headers[
                "location"
            ] == "/enter"
        assert (await whole.chat.http.get("/api/tasks", headers=headers)).status_code == 401
    assert await whole.chat.enters(every["refresh_token"]) == 401


@requirement("oauth:tokens")
async def test_a_client_renews_for_less_and_never_for_more(place: Place) -> None:
    given = await place.connect(scope="mail:write notes:read")
    more = await place.chat.renew(given["refresh_token"], scope="mail:write notes:write")
    elsewhere = await place.chat.renew(
        given["refresh_token"], resource=place.chat.resource.replace("/gmail", "/email")
    )
    assert (more.json()["error"], elsewhere.json()["error"]) == (
        "invalid_scope",
        "invalid_target",
    )
    less = (await place.chat.renew(given["refresh_token"], scope="mail:read")).json()
    assert less["scope"] == "mail:read"
    back = (await place.chat.renew(less["refresh_token"])).json()
    assert back["scope"] == "mail:read mail:write notes:read"
    place.clock.now += grants.REFRESH_LIFE
    assert (await place.chat.renew(back["refresh_token"])).json()[
        "error"
    ] == "invalid_grant"


@requirement("oauth:consent")
def test_the_person_is_told_in_words_what_each_scope_opens() -> None:
    assert WORDS.keys() == set(tokens.SCOPES)
    assert "mail" in WORDS["notes:read"]


@requirement("oauth:consent")
async def test_a_client_may_ask_for_one_mail_account(place: Place) -> None:
    given = await place.connect("mail:write:work", scope="mail:write:work")
    assert given["scope"] == "mail:read:work"


@requirement("oauth:revoke")
async def test_a_client_gives_back_its_own_tokens_and_nobody_elses(place: Place) -> None:
    given = await place.connect()
    stranger = Chat(place.chat.http)
    await stranger.register("Another")
    for token in (given["access_token"], given["refresh_token"], "nothing"):
        answer = await stranger.post(
            "/oauth/revoke", {"client_id": stranger.id, "token": token}
        )
        assert answer.status_code == 200
    assert await place.chat.enters(given["access_token"]) == 200
    for name in ("refresh_token", "access_token"):
        again = await place.connect()
        await place.chat.post(
            "/oauth/revoke", {"client_id": place.chat.id, "token": again[name]}
        )
        assert await place.chat.enters(again["access_token"]) == 401
        assert (await place.chat.renew(again["refresh_token"])).json()[
            "error"
        ] == "invalid_grant"
    made = await place.desk.store.write(tokens.create, "by hand", place.clock.now)
    await place.chat.post("/oauth/revoke", {"client_id": place.chat.id, "token": made})
    assert await place.chat.enters(made) == 200


@requirement("oauth:registration")
async def test_a_flood_of_registrations_is_refused_and_forgotten(place: Place) -> None:
    await place.connect()
    connected = place.chat.id
    answers = [
        (await Chat(place.chat.http).register()).status_code
        for _ in range(clients.MOST_UNUSED)
    ]
    assert set(answers) == {201}
    flooded = await Chat(place.chat.http).register()
    assert (flooded.status_code, flooded.json()["error"]) == (
        429,
        "temporarily_unavailable",
    )
    assert int(flooded.headers["retry-after"]) > 0
    place.clock.now += clients.UNUSED_LIFE
    assert (await Chat(place.chat.http).register()).status_code == 201
    kept = await place.desk.store.read(
        lambda tx: [row[0] for row in tx.all("SELECT id FROM oauth_clients")]
    )
    assert (len(kept), connected in kept) == (2, True)


@requirement("oauth:registration")
async def test_one_senders_flood_keeps_no_other_client_out(place: Place) -> None:
    for _ in range(clients.MOST_UNUSED):
        await Chat(place.chat.http).register()
    assert (await Chat(place.chat.http).register()).status_code == 429
    elsewhere = httpx2.AsyncHTTPTransport(local_address="127.0.0.2")
    async with httpx2.AsyncClient(
        base_url=place.chat.http.base_url, transport=elsewhere, timeout=60
    ) as http:
        for forged in (
            {},
            {"X-Forwarded-For": "127.0.0.1"},
            {"Forwarded": "for=127.0.0.1"},
        ):
            answer = await http.post(
                "/oauth/register", json={"redirect_uris": [BACK]}, headers=forged
            )
            assert answer.status_code == 201
        assert (await Chat(place.chat.http).register()).status_code == 429
    asked = place.chat.asks(client_id=answer.json()["client_id"])
    assert (
        await place.person.http.get("/oauth/authorize", params=asked)
    ).status_code == 200


@requirement("oauth:registration")
async def test_a_flood_from_everywhere_drops_the_oldest_of_whoever_sent_most(
    place: Place,
) -> None:
    def flood(tx: Transaction) -> tuple[list[str], list[str]]:
        def register(host: str) -> str:
            return clients.register(tx, "x", [BACK], host, place.clock.now).id

        ours = [register("192.0.2.1")]
        theirs = [
            register(f"2001:db8:0:{number % 50:x}::{number:x}")
            for number in range(clients.MOST_IN_ALL)
        ]
        kept = {row[0] for row in tx.all("SELECT id FROM oauth_clients")}
        return [each for each in ours if each in kept], [
            each for each in theirs if each in kept
        ]

    ours, theirs = await place.desk.store.write(flood)
    assert (len(ours), len(theirs)) == (1, clients.MOST_IN_ALL - 1)

    def from_one_network(tx: Transaction) -> None:
        tx.execute("DELETE FROM oauth_clients")
        for number in range(clients.MOST_UNUSED):
            clients.register(tx, "x", [BACK], f"2001:db8:1::{number:x}", place.clock.now)
        clients.register(tx, "x", [BACK], "::ffff:192.0.2.7", place.clock.now)
        with pytest.raises(OAuthRefusal):
            clients.register(tx, "x", [BACK], "2001:db8:1::ffff", place.clock.now)

    await place.desk.store.write(from_one_network)


@requirement("oauth:registration")
async def test_many_addresses_of_one_network_are_one_flood_and_an_honest_client_is_connected(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a proxy that is believed: each registration names another address as its sender."""
    monkeypatch.setattr(clients, "MOST_IN_ALL", 250)  # the others meet the real one
    behind = {
        "DESKHAND_ORIGIN": "https://desk.example.net",
        "DESKHAND_PROXIES": "127.0.0.1",
    }
    floods: dict[str, Callable[[int], str]] = {
        "a /48 of IPv6": lambda number: f"2001:db8:77:{number:x}::1",
        "a /32 of IPv6": lambda number: f"2001:db8:{number:x}::1",
        "a /16 of IPv4": lambda number: f"198.51.{number // 256}.{number % 256}",
        "loopback": lambda number: f"127.{number % 251}.{number // 251}.1",
        "no address at all": lambda number: f"unknown-{number}",
    }
    near = {"a /48 of IPv6": "2001:db8:99::1", "a /16 of IPv4": "198.52.0.1"}
    async with opened(home.environment | behind, whole=False) as place:
        proxied = {"Host": "desk.example.net", "X-Forwarded-Proto": "https"}

        async def register(sender: str) -> str:
            headers = proxied | {"X-Forwarded-For": sender}
            asked = {"redirect_uris": [BACK]}
            made = await place.chat.http.post(
                "/oauth/register", json=asked, headers=headers
            )
            assert made.status_code == 201, made.text
            return str(made.json()["client_id"])

        def flood(tx: Transaction, name: str, first: int) -> int:
            for number in range(first, first + clients.MOST_IN_ALL + 20):
                clients.register(tx, "x", [BACK], floods[name](number), place.clock.now)
            return len(tx.all("SELECT 1 FROM oauth_clients"))

        for name in floods:
            await place.desk.store.write(lambda tx: tx.execute("DELETE FROM oauth_clients"))
            early = await register(near.get(name, "203.0.113.7"))
            for first in (0, 2000):
                assert (
                    await place.desk.store.write(flood, name, first) == clients.MOST_IN_ALL
                )
                place.chat.id = await register("2a00:1450::1")
            assert await place.desk.store.read(clients.find, early), name
            # Between two waves it is connected, as if nobody else were there.
            await place.allow(place.chat.asks())


@requirement("oauth:registration")
async def test_a_client_is_registered_only_with_addresses_that_are_safe(
    place: Place,
) -> None:
    safe = [
        "http://127.0.0.1:33418/",
        "http://localhost/callback",
        "http://[::1]:1/callback",
        "https://vscode.dev/redirect?a=b",
        "cursor://anysphere.cursor-retrieval/oauth/callback",
        "com.example.app:/callback",
    ]
    for each in safe:
        assert (await place.chat.register("x", each)).status_code == 201, each
    unsafe: list[Any] = [
        *(
            "http://evil.example/",
            "http://localhost.evil.example/",
            "http://127.0.0.1.evil.example/",
            "http://10.0.0.1/",
        ),
        *(
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "ftp://a.b/",
            "ms-msdt:/id",
            "//evil.example",
        ),
        *(
            "https://claude.ai@evil.example/",
            "https://evil.example\\@claude.ai/",
            "https://a.b/#f",
            "https://a b/",
            "",
        ),
        *(
            "https:///nowhere",
            "https://a.b:port/",
            "http://127.0.0.1@evil.example/",
            "https://a.b/\n",
            "https://[::2/",
        ),
        *(None, 7, {"a": 1}, "https://a.b/" + "x" * 3000),
    ]
    for each in unsafe:
        refused = await place.chat.register("x", each)
        assert (refused.status_code, refused.json()["error"]) == (
            400,
            "invalid_redirect_uri",
        ), each
    for body in (
        b"",
        b"[]",
        b"{",
        b'{"redirect_uris": "https://a.b/"}',
        b"[" * 5000,
        b'"\xff"',
        b"{}" + b" " * 30_000,
    ):
        refused = await place.chat.http.post("/oauth/register", content=body)
        assert refused.status_code == 400, body[:40]
    about = '{"redirect_uris": ["https://claude.ai/"]}'
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
    ):  # what a page of anybody's may send
        sent = await place.chat.http.post(
            "/oauth/register", content=about, headers={"Content-Type": kind}
        )
        assert (sent.status_code, sent.json()["error"]) == (400, "invalid_client_metadata")
    for more in (
        {"grant_types": ["password"]},
        {"response_types": ["token"]},
        {"grant_types": "authorization_code"},
    ):
        assert (await place.chat.register(**more)).json()[
            "error"
        ] == "invalid_client_metadata"
    public = await place.chat.register(
        "\x00\u200b", token_endpoint_auth_method="client_secret_basic", scope="all"
    )
    assert (public.status_code, public.json()["token_endpoint_auth_method"]) == (
        201,
        "none",
    )
    assert "client_secret" not in public.json()


@requirement("oauth:registration")
async def test_a_program_on_this_machine_is_sent_back_to_whichever_port_it_has(
    place: Place,
) -> None:
    await place.chat.register("Editor", "http://127.0.0.1/callback")
    for address, works in {
        "http://127.0.0.1:54321/callback": True,
        "http://127.0.0.1/callback": True,
        "http://127.0.0.1:54321/other": False,
        "http://127.0.0.1:54321/callback?x=1": False,
        "http://localhost:54321/callback": False,
        "https://127.0.0.1:54321/callback": False,
        "http://127.0.0.1:54321@evil.example/callback": False,
        "http://127.0.0.1:54321/callback#x": False,
        "http://127.0.0.1:54\n321/callback": False,
        "http://127.0.0.1\t:54321/callback": False,
        " http://127.0.0.1:54321/callback": False,
        "http://127.0.0.1.:54321/callback": False,
        "http://127.0.0.1:\\@evil.example/callback": False,
        "http://127.0.0.1%2eevil.example/callback": False,
        "http://127.0.0.1:\uff15/callback": False,
        "//127.0.0.1:54321/callback": False,
    }.items():
        page = await place.person.http.get(
            "/oauth/authorize", params=place.chat.asks(redirect_uri=address)
        )
        assert (page.status_code == 200) == works, address


@requirement("oauth:consent")
async def test_whoever_must_sign_in_first_comes_to_the_client_that_asks(
    place: Place,
) -> None:
    await place.chat.register()
    asked = place.chat.asks()
    async with httpx2.AsyncClient(base_url=place.chat.http.base_url, timeout=60) as browser:
        from_elsewhere = await browser.get(
            "/oauth/authorize", params=asked, headers={"Sec-Fetch-Site": "cross-site"}
        )
        assert 'http-equiv="refresh"' in from_elsewhere.text
        (again,) = re.findall(r'url=([^"]+)"', from_elsewhere.text)
        to_door = await browser.get(unescape(again))
        assert to_door.headers["location"] == "/enter"
        entered = await browser.get(
            f"/enter/{await place.desk.store.write(sessions.invite, place.clock.now)}"
        )
        assert entered.headers["location"] == unescape(again)
        assert "Claude" in (await browser.get(entered.headers["location"])).text
        browser.cookies.set(f"deskhand-{browser.base_url.port}-place", "//evil.example/")
        entered = await browser.get(
            f"/enter/{await place.desk.store.write(sessions.invite, place.clock.now)}"
        )
        assert entered.headers["location"] == "/"


@requirement("oauth:tokens")
@requirement("oauth:reuse")
async def test_families_on_each_database(url: str, tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    given = {"DESKHAND_HOME": str(tmp_path / "home"), "VAULT_PATH": str(tmp_path / "vault")}
    async with opened(
        given | {"SERVICE_AUTH_TOKEN": TOKEN, "DESKHAND_DATABASE_URL": url}, whole=False
    ) as place:
        first = await place.connect()
        second = (await place.chat.renew(first["refresh_token"])).json()
        assert await place.chat.enters(second["access_token"]) == 200
        raced = await place.connect()
        renewed = await asyncio.gather(
            *(place.chat.renew(raced["refresh_token"]) for _ in range(4))
        )
        code = (await place.allow(place.chat.asks()))["code"]
        redeemed = await asyncio.gather(*(place.chat.redeem(code) for _ in range(4)))
        for several in (renewed, redeemed):
            assert sorted(each.status_code for each in several) == [200, 400, 400, 400]
            (won,) = [each.json() for each in several if each.status_code == 200]
            assert await place.chat.enters(won["access_token"]) == 401
            assert (await place.chat.renew(won["refresh_token"])).json()[
                "error"
            ] == "invalid_grant"
        names = [each.name for each in await place.desk.store.read(tokens.list_tokens)]
        assert names == ["Claude"]
        place.clock.now += grants.REFRESH_LIFE + timedelta(days=1)
        async with signed_in(place.desk, str(place.chat.http.base_url)) as person:
            later = replace(place, person=person)
            await later.connect()
        assert len(await place.desk.store.read(tokens.list_tokens)) == 1


@needs_chromium
@needs_axe
@requirement("oauth:consent")
async def test_a_browser_that_comes_from_the_client_is_asked_and_goes_back_to_it(
    place: Place,
) -> None:
    """The session's cookie is not sent with what another site began, and a form's policy holds for its redirect."""

    async def page_of_client(request: Request) -> HTMLResponse:
        asked = place.person.http.base_url.join("/oauth/authorize").copy_merge_params(
            place.chat.asks(redirect_uri=back)
        )
        return HTMLResponse(
            f'<!doctype html><title>Chat</title><a href="{escape(str(asked))}">Connect my desk</a>'
        )

    client = Starlette(routes=[Route("/{path:path}", page_of_client)])
    async with served(client) as address, chromium() as browser:
        elsewhere = address.replace("127.0.0.1", "localhost")
        back = f"{elsewhere}/callback/{'of-a-client-with-long-addresses/' * 3}"
        await place.chat.register("Claude", back)
        page = await browser.new_page(base_url=str(place.person.http.base_url))
        await sign_in(page, place.desk)
        await page.goto(elsewhere)
        await page.get_by_text("Connect my desk").click()
        await page.get_by_role("heading", name="Connect a client").wait_for()
        assert await judged(page) == []
        await page.get_by_label("change your notes").uncheck()
        await page.get_by_role("button", name="Connect").click()
        await page.wait_for_url(f"{back}?*")
        code = httpx2.URL(page.url).params["code"]
    given = (await place.chat.redeem(code, redirect_uri=back)).json()
    assert given["scope"] == "mail:read notes:read"
