"""An address of one's own: the desk under its name behind a TLS proxy, and nowhere else."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import BadConfig
from deskhand.gate import passwords
from deskhand.resident.doors import open_doors
from deskhand.web import sessions
from deskhand.web.site import site
from tests.home import TOKEN, Home
from tests.requirements import requirement
from tests.web.browser import (
    PHONE,
    WIDE,
    add_virtual_key,
    chromium,
    judged,
    needs_axe,
    needs_chromium,
    quiet_page,
)
from tests.web.person import Person, served
from tests.web.proxy import NAME, STRANGER, Proxy, made_proxy, needs_nginx

if TYPE_CHECKING:
    from playwright.async_api import Page

PASSWORD = "correct horse battery"


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    place = tmp_path / "nginx"
    place.mkdir()
    with made_proxy(place) as made:
        yield made


@asynccontextmanager
async def running(
    home: Home, origin: str | None, **variables: str
) -> AsyncIterator[tuple[Desk, str]]:
    """The page and the doors of a desk that was given this name, and where they are."""
    named = {"DESKHAND_ORIGIN": origin} if origin else {}
    desk = Desk(load(home.environment | named | variables).settings)
    doors = open_doors(desk)
    try:
        async with (
            served(
                site(desk, beside=doors.routes), desk.settings.trusted_proxies
            ) as address,
            doors.run(),
        ):
            yield desk, address
    finally:
        await desk.close_mailbox()
        await desk.leave_tasks()
        desk.close()


async def link(desk: Desk) -> str:
    return f"/enter/{await desk.store.write(lambda tx: sessions.invite(tx, desk.now()))}"


@needs_nginx
@requirement("origin:answers")
async def test_the_page_and_the_doors_answer_under_the_desks_own_name_behind_tls(
    home: Home, proxy: Proxy
) -> None:
    async with (
        running(home, proxy.origin) as (desk, address),
        proxy.client(proxy.tls) as http,
    ):
        with proxy.before(address):
            entered = await http.get(await link(desk))
            cookie = entered.headers["set-cookie"]
            name, _, limits = cookie.partition("=")
            assert name == f"__Host-deskhand-{proxy.origin.rpartition(':')[2]}"
            assert {"httponly", "secure", "samesite=strict", "path=/"} <= set(
                limits.lower().split("; ")[1:]
            )
            assert "domain" not in limits.lower()
            page = await http.get("/checkup")
            assert (page.status_code, f"{proxy.origin}/mcp" in page.text) == (200, True)
            assert page.headers["strict-transport-security"].startswith("max-age=")
            assert "default-src 'none'" in page.headers["content-security-policy"]

            # Under another name, or over the other scheme, the same key opens nothing.
            key = limits.partition(";")[0]
            port = proxy.origin.rpartition(":")[2]
            local = address.rpartition(":")[2]
            plain = {"Cookie": f"deskhand-{port}={key}; deskhand-{local}={key}"}
            strict = {
                "Cookie": f"__Host-deskhand-{port}={key}; __Host-deskhand-{local}={key}"
            }
            async with proxy.client(proxy.tls, **plain) as weak:
                assert (await weak.get("/checkup")).status_code == 303
            async with httpx2.AsyncClient(base_url=address, headers=strict) as near:
                assert (await near.get("/checkup")).status_code == 303

            for foreign in (
                "http://127.0.0.1",
                "https://evil.example",
                f"https://{NAME}",
                f"http://{NAME}",
                "null",
            ):
                refused = await Person(http).sends("/leave", origin=foreign)
                assert refused.status_code == 403, foreign
            left = await Person(http).sends("/leave", origin=proxy.origin)
            assert (left.status_code, "secure" in left.headers["set-cookie"].lower()) == (
                303,
                True,
            )

            bearer = {"Authorization": f"Bearer {TOKEN}"}
            async with proxy.client(proxy.tls, **bearer) as carrier:
                where = f"https://127.0.0.1:{proxy.tls.getsockname()[1]}/mcp"
                async with Client(
                    streamable_http_client(where, http_client=carrier)
                ) as client:
                    assert len((await client.list_tools()).tools) > 10
                foreign_page = await carrier.post(
                    "/mcp", headers={"Origin": "https://evil.example"}, json={}
                )
                assert foreign_page.status_code == 403
                assert (await http.post("/mcp", json={})).status_code == 401


@needs_nginx
@requirement("origin:closed")
async def test_no_other_name_no_plain_http_and_no_unnamed_proxy_gets_an_answer(
    home: Home, proxy: Proxy
) -> None:
    async with running(home, proxy.origin) as (_, address):
        with proxy.before(address):
            hosts = [
                "evil.example",
                NAME,
                f"{NAME}:1",
                f"{NAME}.",
                f"a.{NAME}",
                "127.0.0.1",
                "localhost:8642",
                "",
            ]
            for host in hosts:
                async with proxy.client(proxy.tls, Host=host) as http:
                    assert (await http.get("/health")).status_code in (400, 421), host
            for listener in (proxy.plain, proxy.stranger):
                async with proxy.client(listener) as http:
                    answers = [
                        await http.get(path)
                        for path in ("/enter", "/health", "/mcp", "/static/desk.css")
                    ]
                    assert [each.status_code for each in answers] == [421] * 4
                    assert "strict-transport-security" not in answers[0].headers
        # Somebody on this machine who says the name, without a proxy and without TLS.
        named = {"Host": proxy.origin.removeprefix("https://")}
        async with httpx2.AsyncClient(base_url=address, timeout=60) as http:
            assert (await http.get("/enter", headers=named)).status_code == 421
            for said in ("http", "https, http", "wss", "HTTPS"):
                assert (
                    await http.get("/enter", headers=named | {"X-Forwarded-Proto": said})
                ).status_code == 421
            assert (await http.get("/enter")).status_code == 200


@requirement("origin:forwarded")
async def test_forwarded_headers_count_from_a_named_proxy_alone(home: Home) -> None:
    said = {
        "X-Forwarded-For": "203.0.113.7",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": NAME,
    }
    said |= {"Forwarded": f"for=203.0.113.7;proto=https;host={NAME}"}
    origin = f"https://{NAME}"

    async def ask(address: str, come_from: str, **headers: str) -> httpx2.Response:
        way = httpx2.AsyncHTTPTransport(local_address=come_from)
        async with httpx2.AsyncClient(base_url=address, transport=way, timeout=60) as http:
            return await http.get("/enter", headers=said | headers)

    async with running(home, origin, DESKHAND_PROXIES=f"10.0.0.0/8, {STRANGER}") as (
        _,
        address,
    ):
        assert (await ask(address, STRANGER, Host=NAME)).status_code == 200
        assert (await ask(address, STRANGER, Host=f"{NAME}:443")).status_code == 200
        assert (await ask(address, STRANGER)).status_code == 421
        assert (await ask(address, "127.0.0.1", Host=NAME)).status_code == 421
        unbelieved = await ask(address, "127.0.0.1")
        assert (
            unbelieved.status_code,
            "strict-transport-security" in unbelieved.headers,
        ) == (200, False)
    async with running(home, None, DESKHAND_PROXIES=f"127.0.0.1 {STRANGER}") as (
        _,
        address,
    ):
        for peer in ("127.0.0.1", STRANGER):
            assert (await ask(address, peer, Host=NAME)).status_code == 421
            plain = await ask(address, peer)
            assert (plain.status_code, "strict-transport-security" in plain.headers) == (
                200,
                False,
            )


@requirement("origin:closed")
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *(
            ("DESKHAND_ORIGIN", each)
            for each in ("http://desk.example.net", "desk.example.net", "https://", "*")
        ),
        *(
            ("DESKHAND_ORIGIN", f"https://{each}")
            for each in ("a.net/path", "me@a.net", "1.2.3.4", "[::1]", "a.net:0")
        ),
        *(
            ("DESKHAND_ORIGIN", f"https://{each}")
            for each in ("a.net:99999", "localhost", "a b", "*.a.net", "a.net?x")
        ),
        *(
            ("DESKHAND_PROXIES", each)
            for each in ("*", "proxy.example.net", "10.0.0.1/8", "1.2.3")
        ),
    ],
)
def test_an_origin_or_a_proxy_that_is_none_is_refused(
    home: Home, variable: str, value: str
) -> None:
    with pytest.raises(BadConfig) as refused:
        load(home.environment | {variable: value})
    assert refused.value.details["fields"][0]["field"] == variable


@requirement("origin:answers")
def test_origin_and_proxies_are_read_from_the_file(home: Home) -> None:
    home.path.mkdir()
    (home.path / "config.toml").write_text(
        '[inbox]\norigin = "https://Desk.Example.net:443/"\nproxies = ["::1"]\n'
    )
    found = load(home.environment).settings
    assert (found.inbox_origin, found.trusted_proxies) == (
        "https://desk.example.net",
        ["::1"],
    )


async def make_passkey(page: "Page") -> None:
    """Make one under this name, and sign in with it."""
    await add_virtual_key(page)
    await page.goto("/passkeys")
    await page.get_by_label("Its name").fill("my phone")
    await page.locator("[data-makes-key]").get_by_label("Your password").fill(PASSWORD)
    await page.get_by_role("button", name="Add a passkey").click()
    await page.get_by_text("Your recovery codes").wait_for()
    await page.goto("about:blank")  # a page that is open goes to the sign-in by itself
    await page.context.clear_cookies()
    await page.goto("/enter")
    await page.get_by_role("button", name="Sign in with a passkey").click()
    await page.get_by_role("button", name="Sign out").wait_for()


@needs_nginx
@needs_chromium
@needs_axe
@requirement("origin:answers")
@requirement("passkey:browser")
async def test_a_browser_signs_in_and_reads_under_the_desks_own_name(
    home: Home, proxy: Proxy
) -> None:
    async with (
        running(home, proxy.origin) as (desk, address),
        chromium(*proxy.browser_flags) as browser,
    ):
        await desk.store.write(
            lambda tx: sessions.keep_password(tx, passwords.hash_password(PASSWORD))
        )
        with proxy.before(address):
            for size in (PHONE, WIDE):
                async with quiet_page(browser, proxy.origin, size=size) as page:
                    await page.goto("/enter")
                    await page.get_by_label("Password").fill(PASSWORD)
                    await page.get_by_role("button", name="Sign in", exact=True).click()
                    await page.get_by_role("button", name="Sign out").wait_for()
                    (cookie,) = await page.context.cookies()
                    assert (cookie["secure"], cookie["name"].startswith("__Host-")) == (
                        True,
                        True,
                    )
                    if size == PHONE:
                        await make_passkey(page)
                    assert await judged(page) == []
