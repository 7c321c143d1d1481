"""A mailing list that signs for one click is left by one POST, once the person said yes."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import Client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import InvalidInput, OutcomeUnknown, SendFailed
from deskhand.gate import hands
from deskhand.gate.cards import Card
from deskhand.mail.lists import find_way_out
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.mail.one_click import OneClick
from deskhand.servers.desk import desk_server
from deskhand.web.site import site as web_site
from tests.gate.site import Clock
from tests.home import Home
from tests.mail.letters import letter
from tests.requirements import requirement
from tests.web.person import served, signed_in
from tests.web.proxy import write_certificates

pytestmark = [pytest.mark.anyio, requirement("mail:one-click")]

SIGNED = "v=1; a=rsa-sha256; d=News.example; h=From:List-Unsubscribe:\r\n List-Unsubscribe-Post; b=x"
POST = "List-Unsubscribe=One-Click"


def newsletter(
    address: str, *, signature: str = SIGNED, post: str = POST, more: str = ""
) -> bytes:
    head = f"List-Unsubscribe: <mailto:out@news.example>, <{address}>\r\nList-Unsubscribe-Post: {post}\r\n{more}"
    return f"DKIM-Signature: {signature}\r\n{head}".encode() + letter(
        sender="News <news@news.example>"
    )


class ListServer:
    """The server of a list: it says yes, no, somewhere else, or nothing at all."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, bytes, str | None]] = []
        self.address = ""

    async def answer(self, request: Request) -> Response:
        body = await request.body()
        self.heard.append(
            (request.method, request.url.path, body, request.headers.get("cookie"))
        )
        match request.path_params["kind"]:
            case "yes":
                return PlainTextResponse("", 202)
            case "elsewhere":
                return RedirectResponse(f"{self.address}/yes", 307)
            case "no":
                return PlainTextResponse("", 404)
            case _:
                raise OSError("the line breaks")


@pytest.fixture
async def news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ListServer]:
    write_certificates(tmp_path)
    made = ListServer()
    trust = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    monkeypatch.setattr(hands, "one_click", OneClick(lambda _: True, lambda: trust))
    app = Starlette(routes=[Route("/{kind}", made.answer, methods=["GET", "POST"])])
    async with served(app, tls=tmp_path / "server.pem") as address:
        made.address = address.replace("http://127.0.0.1", "https://localhost")
        yield made


@pytest.fixture
async def desk(home: Home) -> AsyncIterator[Desk]:
    made = Desk(
        load(home.environment | {"DESKHAND_ADDRESS": "me@example.com"}).settings, Clock()
    )
    yield made
    await made.close_mailbox()
    made.close()


async def ask(desk: Desk, raw: bytes) -> tuple[Card, str]:
    assert isinstance(desk.mailbox, LocalMailbox)
    await desk.mailbox.receive([Incoming(raw, seen=True)])
    mail = (await desk.mailbox.search("from:news", 1))[0]
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        answer = await client.call_tool("unsubscribe", {"message_id": mail.id})
    ((card, *_), _) = await desk.waiting.cards()
    return card, str(answer.content[0].text)


async def test_a_list_is_left_once_after_the_yes(
    desk: Desk, news: ListServer, home: Home
) -> None:
    card, told = await ask(desk, newsletter(f"{news.address}/yes"))
    assert "no_approval" in told or "Rejected" in told
    assert (card.kind, news.heard) == ("unsubscribe", [])
    async with served(web_site(desk)) as address, signed_in(desk, address) as person:
        page = (await person.reads(f"/approvals/{card.id}")).text
    assert f"{news.address}/yes" in page
    assert "news.example" in page
    assert "Edit and approve" not in page
    assert "leave_list" in next((home.vault / "Pending_Approval").glob("*.md")).read_text()
    with pytest.raises(InvalidInput):
        (await desk.waiting.find(card.id)).action.edit({"subject": "x"})
    action = (await desk.waiting.find(card.id)).action
    assert action.edit({"subject": action.subject}) == action
    await desk.answers.approve_now(card.id, card.digest, "person")
    await desk.gate.release_due()
    await desk.gate.release_due()

    assert (await desk.gate.find(card.id)).state == "sent"
    assert news.heard == [("POST", "/yes", POST.encode(), None)]


@pytest.mark.parametrize("kind", ["elsewhere", "no", "breaks"])
async def test_what_is_no_yes_is_left_to_the_person_and_not_tried_again(
    desk: Desk, news: ListServer, kind: str
) -> None:
    card, _ = await ask(desk, newsletter(f"{news.address}/{kind}"))
    await desk.answers.approve_now(card.id, card.digest, "person")
    for _ in range(3):
        await desk.gate.release_due()

    assert (await desk.gate.find(card.id)).state == "unknown"
    assert [path for _, path, _, _ in news.heard] == [f"/{kind}"]


async def test_the_desk_goes_to_no_private_address_and_nowhere_without_tls(
    desk: Desk, news: ListServer
) -> None:
    port = news.address.rpartition(":")[2]
    own = OneClick()
    for host in (
        "localhost",
        "127.0.0.1",
        "2130706433",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "10.0.0.1",
        "169.254.169.254",
    ):
        with pytest.raises(SendFailed):
            await own.leave(f"https://{host}:{port}/yes")
    for wrong in (
        f"http://localhost:{port}/yes",
        f"https://me@localhost:{port}/yes",
        "https://",
        "https://x:99999/",
    ):
        with pytest.raises(SendFailed):
            await hands.one_click.leave(wrong)
    with pytest.raises(SendFailed):  # a certificate that nobody vouches for
        await OneClick(lambda _: True).leave(f"{news.address}/yes")
    with pytest.raises(SendFailed):
        await hands.one_click.leave("https://localhost:1/")
    with pytest.raises(OutcomeUnknown):
        await hands.one_click.leave(f"{news.address}/breaks")
    assert [path for _, path, _, _ in news.heard] == ["/breaks"]


def test_one_click_is_what_a_signature_covers_and_nothing_else() -> None:
    address = "https://news.example/out?x=1"
    assert find_way_out(newsletter(address)).one_click == address
    assert find_way_out(newsletter(address)).signed_by == "news.example"
    others = (
        newsletter(address, signature="d=news.example; h=From:List-Unsubscribe"),
        newsletter(address, signature="d=; h=List-Unsubscribe:List-Unsubscribe-Post"),
        newsletter(address, post="yes"),
        newsletter(address, more=f"List-Unsubscribe-Post: {POST}\r\n"),
        newsletter(address, more="List-Unsubscribe: <https://other.example/>\r\n"),
        newsletter("http://news.example/out"),
        newsletter("https://me@news.example/out"),
        newsletter(f"https://news.example/{'x' * 3000}"),
    )
    for raw in others:
        way = find_way_out(raw)
        assert (way.one_click, way.address) == (None, "out@news.example")
