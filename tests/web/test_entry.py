"""Who comes in, and who does not."""

import asyncio
import json
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deskhand import audit
from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import RateLimited
from deskhand.gate import passwords
from deskhand.store import Transaction
from deskhand.web import sessions
from deskhand.web.entry import FORM_BYTES, SIGN_IN_BYTES
from deskhand.web.render import HEADERS
from deskhand.web.site import site
from tests.home import Home
from tests.requirements import requirement
from tests.warm import warm_python
from tests.web.person import Person, served, signed_in

CHROMIUM = Path("/usr/bin/chromium")
PASSWORD = "correct horse battery"


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 2, 9, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def desk(home: Home, clock: Clock) -> AsyncIterator[Desk]:
    made = Desk(load(home.environment).settings, clock)
    yield made
    made.close()


@pytest.fixture
async def address(desk: Desk) -> AsyncIterator[str]:
    async with served(site(desk, beside=[Route("/crash", crash)])) as found:
        yield found


def crash(request: Request) -> Response:
    raise ZeroDivisionError("a secret of the machine")


async def is_in(http: httpx2.AsyncClient) -> bool:
    """Whoever is in is sent on from the door."""
    return (await http.get("/enter")).status_code == 303


async def form_token(person: Person, desk: Desk) -> str:
    session = await desk.store.read(
        lambda tx: sessions.find(tx, next(iter(person.http.cookies.values())), desk.now())
    )
    assert session is not None
    return session.form_token


def in_terminal(
    home: Home, *arguments: str, stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    command = [warm_python(), "-m", "deskhand", *arguments]
    return subprocess.run(
        command,
        env=home.environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def recorded(desk: Desk) -> list[tuple[str, str, str]]:
    found = await desk.store.read(audit.entries)
    return [
        (entry.action_type, entry.result, (entry.parameters or {}).get("way", ""))
        for _, entry in reversed(found)
    ]


@requirement("entry:link")
@requirement("entry:recorded")
async def test_a_link_from_the_terminal_lets_one_browser_in_once(
    desk: Desk, address: str, clock: Clock
) -> None:
    link = await sessions.link(desk, address)
    old = await sessions.link(desk, address)
    async with httpx2.AsyncClient(timeout=60) as http:
        looked = await http.head(link)
        ahead = await http.get(link, headers={"Sec-Purpose": "prefetch;prerender"})
        first = await http.get(link)
        second = await http.get(link)
        clock.now += sessions.LINK_LIFE
        too_late = await http.get(old)
        never = await http.get(f"{address}/enter/%ff%fe'--")
    cookie = first.headers["set-cookie"].lower()
    assert [
        each.status_code for each in (looked, ahead, first, second, too_late, never)
    ] == [
        401,
        401,
        303,
        401,
        401,
        401,
    ]
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert f"deskhand-{httpx2.URL(address).port}=" in cookie
    assert "was used before" in second.text
    failed = ("sign_in", "rejected", "link")
    assert await recorded(desk) == [("sign_in", "success", "link"), failed, failed, failed]
    entries = await desk.store.read(lambda tx: str(tx.all("SELECT entry FROM audit")))
    assert link.rpartition("/")[2] not in entries


@requirement("entry:recorded")
async def test_wrong_links_do_not_fill_the_record(desk: Desk, address: str) -> None:
    async with httpx2.AsyncClient(base_url=address, timeout=60) as http:
        for number in range(passwords.NOTED + 5):
            assert (await http.get(f"/enter/{number}")).status_code == 401
    assert len(await recorded(desk)) == passwords.NOTED


@requirement("entry:forms")
async def test_a_form_of_no_session_or_a_foreign_page_has_no_effect(
    desk: Desk, address: str
) -> None:
    async with signed_in(desk, address) as person, signed_in(desk, address) as other:
        token, foreign = await form_token(person, desk), await form_token(other, desk)
        port = httpx2.URL(address).port or 80

        async def leave(given: str = token, **headers: str) -> int:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return (
                await person.http.post("/leave", data={"form_token": given}, headers=named)
            ).status_code

        refused = [
            await leave(""),
            await leave(foreign),
            await leave("é\ud7ff"),
            await leave(Origin="http://evil.example"),
            await leave(Origin="null"),
            await leave(Origin=f"https://127.0.0.1:{port}"),
            await leave(Origin=f"http://127.0.0.1:{port + 1 if port < 65535 else 1}"),
            await leave(Origin=f"http://localhost:{port}"),
            await leave(Sec_Fetch_Site="cross-site"),
            await leave(Sec_Fetch_Site="same-site"),
            await leave(Sec_Fetch_Site="none"),
            await leave(Origin=address, Sec_Fetch_Site="cross-site"),
            (
                await person.http.post(
                    "/leave",
                    data={"form_token": token},
                    headers=[("Origin", address), ("Origin", "http://evil.example")],
                )
            ).status_code,
        ]
        assert refused == [403] * len(refused)
        methods = ("GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "BREW")
        answers = [
            await person.http.request(each, "/leave", headers={"X-Form-Token": token})
            for each in methods
        ]
        assert [each.status_code for each in answers] == [405] * len(methods)
        assert await is_in(person.http)
        assert await leave(Origin=address, Sec_Fetch_Site="same-origin") == 303
        assert not await is_in(person.http)
        assert await is_in(other.http)
        assert ("sign_out", "success", "") in await recorded(desk)


@requirement("entry:forms")
async def test_a_form_that_is_too_large_is_refused(desk: Desk, address: str) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(FORM_BYTES // 1_000_000 + 1):
            yield b"a" * 1_000_000 + b"&"

    async with signed_in(desk, address) as person:
        token = await form_token(person, desk)
        fields = "&".join(f"f{number}=1" for number in range(600))
        parts: dict[str, Any] = {"form_token": (None, token), "file": ("a.txt", b"a file")}
        huge = await person.http.post(
            "/leave", content=f"form_token={token}&a={'x' * FORM_BYTES}", headers=form
        )
        many = await person.http.post(
            "/leave", content=f"form_token={token}&{fields}", headers=form
        )
        file = await person.http.post("/leave", files=parts)
        streamed = await person.http.post("/leave", content=endless(), headers=form)
        torn = await person.http.post(
            "/leave", content=b"--x\r\n", headers={"Content-Type": "multipart/form-data"}
        )
        assert [each.status_code for each in (huge, many, file, streamed, torn)] == [
            413,
            400,
            400,
            413,
            400,
        ]
        assert await is_in(person.http)
    async with httpx2.AsyncClient(base_url=address, timeout=60) as stranger:
        assert (
            await stranger.post("/enter", data={"password": "x" * SIGN_IN_BYTES})
        ).status_code == 413


@requirement("entry:sessions")
async def test_a_session_ends_by_itself_by_signing_out_and_from_the_terminal(
    desk: Desk, address: str, clock: Clock, home: Home
) -> None:
    async with signed_in(desk, address) as idle:
        clock.now += sessions.IDLE - timedelta(seconds=1)
        assert await is_in(idle.http)
        clock.now += sessions.IDLE
        assert not await is_in(idle.http)
    async with signed_in(desk, address) as busy:
        begun = clock.now
        while clock.now + sessions.IDLE / 2 < begun + sessions.LIFE:
            clock.now += sessions.IDLE / 2
            assert await is_in(busy.http)
        clock.now = begun + sessions.LIFE
        assert not await is_in(busy.http)
        quietly = await busy.http.get("/leave", headers={"HX-Request": "true"})
        pressed = await busy.http.post("/leave", headers={"HX-Request": "true"})
        assert (quietly.status_code, pressed.status_code) == (405, 401)
        assert pressed.headers["HX-Redirect"] == "/enter"
    async with (
        signed_in(desk, address) as person,
        httpx2.AsyncClient(base_url=address, timeout=60) as thief,
    ):
        thief.cookies.update(person.http.cookies)
        assert await is_in(thief)
        answer = await person.http.post(
            "/leave", data={"form_token": await form_token(person, desk)}
        )
        assert "max-age=0" in answer.headers["set-cookie"].lower()
        assert not await is_in(thief)
    link = await sessions.link(desk, address)
    async with signed_in(desk, address) as one, signed_in(desk, address) as two:
        ended = await asyncio.to_thread(in_terminal, home, "link", "--end-all", "--json")
        assert json.loads(ended.stdout) == {"ended": 2}
        assert [await is_in(one.http), await is_in(two.http)] == [False, False]
        assert (await one.http.get(link)).status_code == 401


@requirement("entry:sessions")
async def test_nobody_else_can_choose_the_key_of_a_session(
    desk: Desk, address: str
) -> None:
    name = f"deskhand-{httpx2.URL(address).port}"
    async with httpx2.AsyncClient(base_url=address, timeout=60) as http:
        http.cookies.set(name, "chosen-by-another", domain="127.0.0.1")
        assert not await is_in(http)
        await http.get(await sessions.link(desk, address))
        first = http.cookies[name]
        await http.get(await sessions.link(desk, address))
        second = http.cookies[name]
    assert len({"chosen-by-another", first, second}) == 3
    async with httpx2.AsyncClient(
        base_url=address, cookies={name: first}, timeout=60
    ) as http:
        assert not await is_in(http)
    kept = await desk.store.read(lambda tx: str(tx.all("SELECT * FROM sessions")))
    assert second not in kept


@requirement("entry:password")
@requirement("entry:recorded")
async def test_a_password_can_be_added_and_guessing_it_ends_soon(
    desk: Desk, address: str, clock: Clock, home: Home
) -> None:
    async with httpx2.AsyncClient(base_url=address, timeout=60) as http:

        async def tries(password: str, **headers: str) -> int:
            return (
                await http.post("/enter", data={"password": password}, headers=headers)
            ).status_code

        assert "password" not in (await http.get("/enter")).text
        assert await tries(PASSWORD) == 401
        short = in_terminal(home, "password", "set", stdin="too short\n")
        assert (
            short.returncode,
            "use 10 to 1000" in short.stderr,
            "too short" in short.stderr,
        ) == (2, True, False)
        assert in_terminal(home, "password", "set", stdin=f"{PASSWORD}\n").returncode == 0
        assert 'type="password"' in (await http.get("/enter")).text
        ((kept,),) = await desk.store.read(
            lambda tx: tx.all("SELECT hash FROM page_password")
        )
        assert kept.startswith("scrypt:32768:8:1:")

        assert await tries(PASSWORD, Origin="http://evil.example") == 403
        assert await tries(PASSWORD) == 303
        assert await is_in(http)
        http.cookies.clear()
        at_once = await asyncio.gather(
            *(tries(f"guess number {number}") for number in range(8))
        )
        assert sorted(at_once) == [401] * passwords.TRIES + [429] * 3
        assert await tries(PASSWORD) == 429
        assert not await is_in(http)
        clock.now += passwords.WINDOW
        assert await tries(PASSWORD) == 303

        assert "1 session ended" not in in_terminal(home, "password", "remove").stdout
        assert await tries(PASSWORD) == 401
        assert in_terminal(home, "password", "remove").returncode == 4
    found = await recorded(desk)
    assert found.count(("sign_in", "success", "password")) == 2
    assert found.count(("sign_in", "rejected", "password")) == passwords.TRIES
    everything = await desk.store.read(lambda tx: str(tx.all("SELECT entry FROM audit")))
    assert PASSWORD not in everything
    assert "guess" not in everything


@requirement("entry:password")
def test_a_guess_waits_for_the_one_before_it_on_postgresql(
    home: Home, postgresql: str, clock: Clock
) -> None:
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute("CREATE DATABASE guesses")
    url = postgresql.replace("/postgres?", "/guesses?")
    desk = Desk(load(home.environment | {"DESKHAND_DATABASE_URL": url}).settings, clock)

    def guess() -> bool:
        try:
            return (
                desk.store.write_sync(lambda tx: passwords.attempt(tx, clock())) is not None
            )
        except RateLimited:
            return False

    with ThreadPoolExecutor(1) as threads, psycopg.connect(url, autocommit=True) as watch:

        def last_but_not_yet_committed(tx: Transaction) -> "Future[bool]":
            passwords.attempt(tx, clock())
            next_one = threads.submit(guess)
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
            while not next_one.done() and watch.execute(waiting).fetchone() is None:
                pass
            return next_one

        desk.store.write_sync(
            lambda tx: sessions.keep_password(tx, passwords.hash_password(PASSWORD))
        )
        assert [guess() for _ in range(passwords.TRIES - 1)] == [True] * (
            passwords.TRIES - 1
        )
        assert desk.store.write_sync(last_but_not_yet_committed).result() is False
    desk.close()


@requirement("entry:password")
async def test_a_new_password_ends_what_the_old_one_opened(
    desk: Desk, address: str
) -> None:
    await desk.store.write(
        lambda tx: sessions.keep_password(tx, passwords.hash_password(PASSWORD))
    )
    kept = await desk.store.read(lambda tx: tx.one("SELECT hash FROM page_password"))
    assert kept is not None
    assert PASSWORD not in kept[0]
    async with httpx2.AsyncClient(base_url=address, timeout=60) as http:
        await http.post("/enter", data={"password": PASSWORD})
        assert await is_in(http)
        await desk.store.write(
            lambda tx: sessions.keep_password(
                tx, passwords.hash_password("another password")
            )
        )
        assert not await is_in(http)
        assert (await http.post("/enter", data={"password": PASSWORD})).status_code == 401


@requirement("entry:headers")
async def test_every_answer_carries_the_headers_of_the_page(
    desk: Desk, address: str
) -> None:
    async with (
        signed_in(desk, address) as person,
        httpx2.AsyncClient(base_url=address, timeout=60) as http,
    ):
        asked = [
            await http.get("/enter"),
            await http.post("/leave"),
            await http.get("/health"),
            await http.get("/static/desk.css"),
            await http.get("/nowhere"),
            await http.get("/static/nothing.js"),
            await http.put("/enter"),
            await http.get("/crash"),
            await http.get("/", headers={"Host": "evil.example"}),
            await person.http.post("/leave", data={"form_token": "wrong"}),
            await person.http.post(
                "/leave",
                content=b"a" * 2_000_000,
                headers={"Content-Type": "multipart/form-data"},
            ),
        ]
        again = await http.get(
            "/static/desk.css", headers={"If-None-Match": asked[3].headers["etag"]}
        )
    assert [each.status_code for each in asked] == [
        200,
        303,
        200,
        200,
        404,
        404,
        405,
        500,
        421,
        403,
        400,
    ]
    assert "secret" not in asked[7].text
    for answer in [*asked, again]:
        for name, value in HEADERS.items():
            cached = name == "Cache-Control" and "etag" in answer.headers
            assert answer.headers[name] == ("no-cache" if cached else value)
    assert (again.status_code, again.content) == (304, b"")


async def status_for(address: str, *hosts: str) -> int:
    """As a client asks that no library would let pass."""
    url = httpx2.URL(address)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    lines = [
        "GET /health HTTP/1.1",
        *(f"Host: {host}" for host in hosts),
        "Connection: close",
        "",
        "",
    ]
    writer.write("\r\n".join(lines).encode())
    status = int((await reader.read()).split()[1])
    writer.close()
    await writer.wait_closed()
    return status


@requirement("entry:headers")
async def test_the_page_answers_to_its_own_names_alone(address: str) -> None:
    own = ["127.0.0.1", "localhost:1", "[::1]:65535"]
    foreign = [
        "evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1:80@evil.example",
        "127.0.0.1:99999",
        "127.0.0.1:",
        "127.0.0.1:8x",
        "localhost.",
        "0.0.0.0",
        "127.1",
        "2130706433",
        "",
    ]
    assert [await status_for(address, host) for host in own] == [200] * len(own)
    assert [await status_for(address, host) for host in foreign] == [421] * len(foreign)
    assert await status_for(address, "127.0.0.1", "evil.example") in (400, 421)
    assert await status_for(address) in (400, 421)


@requirement("entry:forms")
@pytest.mark.skipif(not CHROMIUM.exists(), reason="chromium is not installed")
async def test_a_browser_without_javascript_can_send_our_own_form(
    desk: Desk, address: str
) -> None:
    from playwright.async_api import async_playwright

    await desk.store.write(
        lambda tx: sessions.keep_password(tx, passwords.hash_password(PASSWORD))
    )
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        context = await browser.new_context(java_script_enabled=False)
        page = await context.new_page()
        await page.goto(f"{address}/enter")
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_role("button", name="Sign in").click()
        cookies = await context.cookies()
        assert httpx2.URL(page.url).path == "/"
        assert [(each["httpOnly"], each["sameSite"]) for each in cookies] == [
            (True, "Strict")
        ]
        await browser.close()


@contextmanager
def opened_in_browser(home: Home, seen: Path) -> Iterator[tuple[str, str]]:
    """The link that a starting desk prints, and the address that its browser is given."""
    note = f"import sys; open({str(seen)!r}, 'w').write(sys.argv[1])"
    display = {"DISPLAY": ":0", "BROWSER": shlex.join([sys.executable, "-c", note, "%s"])}
    command = [warm_python(), "-m", "deskhand", "up", "--port", "0", "--json"]
    with subprocess.Popen(
        command,
        env=home.environment | display,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as up:
        try:
            assert up.stdout is not None
            link = json.loads(up.stdout.readline())["link"]
            while not (address := seen.exists() and seen.read_text()):
                assert up.poll() is None
            file = Path(httpx2.URL(address).path)
            assert (file.stat().st_mode & 0o777, link in file.read_text()) == (0o600, True)
            yield link, address
        finally:
            up.terminate()


@requirement("entry:private-link")
@pytest.mark.skipif(not CHROMIUM.exists(), reason="chromium is not installed")
async def test_the_link_reaches_the_browser_by_a_file_of_the_person_and_never_by_a_command_line(
    home: Home, tmp_path: Path
) -> None:
    from tests.web.browser import chromium

    with opened_in_browser(home, tmp_path / "seen") as (link, address):
        assert address.startswith("file://")
        async with chromium() as browser:
            page = await browser.new_page()
            await page.goto(address)
            await page.wait_for_url(str(httpx2.URL(link).join("/")))
            await page.get_by_role("button", name="Sign out").wait_for()
