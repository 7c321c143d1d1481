"""Clients whose id is the address of a document about themselves."""

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from deskhand.abroad import Reach, WrongPlace, is_public
from deskhand.oauth import OAuthRefusal
from deskhand.oauth.documents import BYTES, Documents
from tests.home import Home
from tests.requirements import requirement
from tests.web.person import served
from tests.web.proxy import write_certificates
from tests.web.test_oauth import BACK, FIELD, opened

ASKED: list[str] = []


JSON = "application/json"


def answers(about: dict[str, Any]) -> dict[str, Response]:
    """What lies at which path, where the document would be this."""
    packed = gzip.compress(json.dumps(about).encode())
    return {
        "good": JSONResponse(about),
        "another": JSONResponse(about | {"client_id": "https://claude.ai/client"}),
        "secret": JSONResponse(about | {"client_secret": "x"}),
        "unsafe": JSONResponse(about | {"redirect_uris": ["http://evil.example/"]}),
        "moved": RedirectResponse("/good", 302),
        "page": Response(json.dumps(about), media_type="text/html"),
        "list": JSONResponse([about]),
        "broken": Response("{", media_type=JSON),
        "packed": Response(packed, media_type=JSON, headers={"Content-Encoding": "gzip"}),
        "long": StreamingResponse(_long(), media_type=JSON),
    }


async def answer(request: Request) -> Response:
    kind = request.path_params["kind"]
    turns = ASKED.count(request.url.path)
    ASKED.append(request.url.path)
    if kind == "silent":
        await asyncio.Event().wait()
    about = {
        "client_id": str(request.url),
        "client_name": "Claude",
        "redirect_uris": [BACK],
    }
    if (
        kind == "turns"
    ):  # says one thing when the person looks, and another when they have answered
        return JSONResponse(
            about | {"redirect_uris": [BACK if turns % 2 == 0 else "https://evil.example/"]}
        )
    return answers(about).get(kind) or JSONResponse(about, 404)


async def _long() -> AsyncIterator[bytes]:
    for _ in range(50):
        yield b" " * (BYTES // 10)


@pytest.fixture
async def site_of_clients(tmp_path: Path) -> AsyncIterator[str]:
    """A web site with TLS and documents of clients, good ones and others."""
    write_certificates(tmp_path)
    app = Starlette(routes=[Route("/{kind}", answer)])
    async with served(app, tls=tmp_path / "server.pem") as address:
        yield address.replace("http://127.0.0.1", "https://localhost")


def reader(folder: Path, **more: Any) -> Documents:
    """One who goes to this machine, too, and knows the authority of its certificates."""
    trust = ssl.create_default_context(cafile=folder / "ca.pem")
    return Documents(lambda _: True, lambda: trust, **more)


@requirement("oauth:documents")
async def test_a_client_is_what_its_document_says(
    site_of_clients: str, home: Home, tmp_path: Path
) -> None:
    async with opened(home.environment, whole=False) as place:
        place.app.state.documents = reader(tmp_path)
        place.chat.id = f"{site_of_clients}/good"
        given = await place.connect()
        assert await place.chat.enters(given["access_token"]) == 200
        again = (await place.chat.renew(given["refresh_token"])).json()
        assert await place.chat.enters(again["access_token"]) == 200
        refused = await place.person.http.get(
            "/oauth/authorize", params=place.chat.asks(redirect_uri=f"{BACK}/x")
        )
        assert (refused.status_code, "location" in refused.headers) == (400, False)


@requirement("oauth:documents")
async def test_a_document_that_changes_meanwhile_sends_nobody_elsewhere(
    site_of_clients: str, home: Home, tmp_path: Path
) -> None:
    async with opened(home.environment, whole=False) as place:
        place.app.state.documents = reader(tmp_path)
        place.chat.id = f"{site_of_clients}/turns"
        asked = place.chat.asks(redirect_uri=None)
        page = await place.person.http.get("/oauth/authorize", params=asked)
        assert (page.status_code, BACK in page.text) == (200, True)
        found = [(name, unescape(value)) for _, name, value in FIELD.findall(page.text)]
        fields = dict(found) | {"allow": ["mail:read"], "answer": "allow"}
        sent = await place.person.http.post("/oauth/authorize", data=fields)
        assert (sent.status_code, "location" in sent.headers) == (400, False)


@requirement("oauth:documents")
async def test_a_document_that_is_anything_else_is_refused(
    site_of_clients: str, tmp_path: Path
) -> None:
    found = reader(tmp_path, seconds=1)
    assert (await found.find(f"{site_of_clients}/good")).redirects == (BACK,)
    kinds = (
        "another",
        "secret",
        "unsafe",
        "moved",
        "page",
        "list",
        "broken",
        "packed",
        "long",
        "silent",
        "none",
    )
    before = ASKED.count("/good")
    for kind in kinds:
        with pytest.raises(OAuthRefusal):
            await found.find(f"{site_of_clients}/{kind}")
    assert ASKED.count("/good") == before
    for wrong in ("/", "", "/../good", "/./good", "/good#x", "/a b", "/\u00e9"):
        with pytest.raises(OAuthRefusal):
            await found.find(f"{site_of_clients}{wrong}")
    with pytest.raises(OAuthRefusal):
        await found.find(f"{site_of_clients.replace('://', '://me@')}/good")
    with pytest.raises(OAuthRefusal):  # a certificate that nobody vouches for
        await Documents(lambda _: True).find(f"{site_of_clients}/good")
    with pytest.raises(OAuthRefusal):  # or one for another name
        await found.find(
            f"{site_of_clients.replace('localhost', 'localhost.localdomain')}/good"
        )


@requirement("oauth:documents")
async def test_the_desk_goes_to_no_private_address(
    site_of_clients: str, home: Home
) -> None:
    port = site_of_clients.rpartition(":")[2]
    ASKED.clear()
    async with opened(home.environment, whole=False) as place:
        for host in (
            "localhost",
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[0:0:0:0:0:ffff:7f00:0001]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "0177.0.0.1",
            "017700000001",
            "0x7f.1",
            "127.0.0.1.",
            "localhost.",
            "LOCALHOST",
        ):
            place.chat.id = f"https://{host}:{port}/good"
            answered = await place.person.http.get(
                "/oauth/authorize", params=place.chat.asks()
            )
            assert (answered.status_code, "location" in answered.headers) == (400, False), (
                host
            )
            assert (
                "not at a public address" in answered.text
                or "cannot be read" in answered.text
            ), host
        assert (await place.chat.redeem("nothing")).json()["error"] == "invalid_grant"
    assert ASKED == []


@requirement("oauth:documents")
@requirement("push:places")
async def test_a_name_is_looked_up_once_and_leads_to_no_other_address(
    site_of_clients: str, tmp_path: Path
) -> None:
    """As a name would that is public when it is checked, and this machine's when it is gone to."""
    trust = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    looks: list[list[str]] = []

    async def look_up(host: str, port: int) -> list[str]:
        del host, port
        looks.append(
            [["127.0.0.1"], ["10.0.0.1"], ["127.0.0.1", "10.0.0.1"], []][len(looks)]
        )
        return looks[-1]

    def may_reach(address: str) -> bool:
        return address == "127.0.0.1"

    reach = Reach(may_reach, lambda: trust, look_up)
    place = f"{site_of_clients}/good"
    async with reach.ask("GET", place, {}) as answer:
        assert (answer.status_code, looks) == (200, [["127.0.0.1"]])
        peer = answer.extensions["network_stream"].get_extra_info("server_addr")
        assert peer[0] == "127.0.0.1"
    for _ in range(3):  # another one; one among several; none
        with pytest.raises(WrongPlace):
            async with reach.ask("GET", place, {}):
                pass
    assert len(looks) == 4


@requirement("oauth:documents")
def test_which_addresses_are_public() -> None:
    public = ("1.1.1.1", "8.8.8.8", "104.18.0.1", "2606:4700::1111", "2a00:1450::1")
    private = (
        *(
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
        ),
        *(
            "224.0.0.1",
            "240.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
        ),
        *(
            "::ffff:10.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fec0::1",
            "::7f00:1",
        ),
    )
    assert [each for each in public if not is_public(each)] == []
    assert [each for each in private if is_public(each)] == []
