"""What a card shows of a mail's recipients and files, in a browser without JavaScript."""

import base64
import struct
import zlib
from collections.abc import AsyncIterator

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.mail.first_page import LONGEST_SIDE, draw_first_page
from deskhand.servers.desk import desk_server
from deskhand.web.site import site
from tests.gate.site import HELLO, Clock
from tests.mail.test_attachments import pdf
from tests.orchestrator.office import Office
from tests.requirements import requirement
from tests.web.person import Person, served, signed_in

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FILES = {
    "notes.txt": b"<script>alert(1)</script> a\xe2\x80\x8bb " + b"x" * 3000,
    "dot.png": PNG,
    "page.html": b"<b>",
    "a.pdf": b"%PDF-",
}


@pytest.fixture
async def desk(office: Office) -> AsyncIterator[Desk]:
    made = Desk(load(office.home.environment).settings, Clock())
    yield made
    await made.close_mailbox()
    made.close()


@pytest.fixture
async def person(desk: Desk) -> AsyncIterator[Person]:
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        yield person


@requirement("page:attachments")
async def test_a_card_shows_each_recipient_and_each_file(
    desk: Desk, person: Person
) -> None:
    vault = desk.settings.vault
    (vault / "Files").mkdir()
    for name, content in FILES.items():
        (vault / "Files" / name).write_bytes(content)
    mail = HELLO | {
        "cc": ["cy@example.org"],
        "bcc": ["dee@example.org"],
        "attachments": [f"Files/{name}" for name in FILES],
    }
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        await client.call_tool("send_email", mail)
    ((card,), _) = await desk.waiting.cards()
    place = f"/approvals/{card.id}"
    shown = (await person.reads(place)).text
    fetched = [await person.reads(f"{place}/attachments/{number}") for number in range(5)]
    pictures = [
        await person.reads(f"{place}/attachments/{number}/picture") for number in range(4)
    ]
    edited = await person.sends(
        f"{place}/edit",
        {
            "digest": card.digest,
            "to": "ann@example.org, eve@example.org",
            "cc": "",
            "bcc": "x",
            "subject": "s",
            "body": "b",
        },
        at=place,
    )
    (vault / "Files" / "a.pdf").write_bytes(b"%PDF-2")
    swapped = (await person.reads(place)).text

    for address in ("ann@example.org", "cy@example.org", "dee@example.org"):
        assert address in shown
    assert "and 2 more" in shown
    assert all(each.sha256 in shown for each in card.attachments)
    assert "&lt;script&gt;alert(1)" in shown
    assert "<script>alert" not in shown
    assert "zero-width space" in shown
    assert "There is more" in shown
    assert f'src="{place}/attachments/1/picture"' in shown
    assert [each.status_code for each in fetched] == [200, 200, 200, 200, 404]
    assert [each.content for each in fetched[:4]] == list(FILES.values())
    assert {each.headers["content-type"] for each in fetched[:4]} == {
        "application/octet-stream"
    }
    assert all(
        each.headers["content-disposition"].startswith("attachment") for each in fetched[:4]
    )
    assert "sandbox" in fetched[0].headers["content-security-policy"]
    assert [each.status_code for each in pictures] == [404, 200, 404, 404]
    assert pictures[1].headers["content-type"] == "image/png"
    assert edited.status_code == 422
    assert 'id="wrong-bcc"' in edited.text
    assert "It will not be sent" not in shown
    assert "Files/a.pdf has changed since this was asked" in swapped


@requirement("page:attachments")
async def test_a_document_is_read_on_a_page_of_its_own(desk: Desk, person: Person) -> None:
    letter = b"Subject: Rent\r\n\r\nIt is <b>due</b> on Friday.\r\n"
    (desk.settings.vault / "told.eml").write_bytes(letter)
    (desk.settings.vault / "bytes.bin").write_bytes(bytes(range(256)))
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        await client.call_tool(
            "send_email", HELLO | {"attachments": ["told.eml", "bytes.bin"]}
        )
    ((card,), _) = await desk.waiting.cards()
    place = f"/approvals/{card.id}"
    shown = (await person.reads(place)).text
    read = [
        (await person.reads(f"{place}/attachments/{number}/text")).text
        for number in range(2)
    ]

    assert "How it begins" in shown or f'href="{place}/attachments/0/text"' in shown
    assert f'href="{place}/attachments/1/text"' not in shown
    assert "It is &lt;b&gt;due&lt;/b&gt; on Friday." in read[0]
    assert "It holds no text" in read[1]


@requirement("page:attachments")
async def test_a_card_shows_the_first_page_of_a_pdf(desk: Desk, person: Person) -> None:
    pytest.importorskip("pypdfium2")
    files = {
        "bill.pdf": pdf("Invoice 42"),
        "broken.pdf": b"%PDF-1.7 no page at all",
        "page.pdf": b"<script>alert(1)</script>",
    }
    for name, content in files.items():
        (desk.settings.vault / name).write_bytes(content)
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        await client.call_tool("send_email", HELLO | {"attachments": list(files)})
    ((card,), _) = await desk.waiting.cards()
    place = f"/approvals/{card.id}"
    shown = (await person.reads(place)).text
    pages = [
        await person.reads(f"{place}/attachments/{number}/page") for number in range(3)
    ]

    assert f'src="{place}/attachments/0/page"' in shown
    assert f'src="{place}/attachments/2/page"' not in shown
    assert [each.status_code for each in pages] == [200, 404, 404]
    drawn = pages[0]
    assert drawn.headers["content-type"] == "image/png"
    assert drawn.headers["content-security-policy"] == "default-src 'none'; sandbox"
    width, height = struct.unpack_from(">II", drawn.content, 16)
    start = drawn.content.index(b"IDAT") + 4
    pixels = zlib.decompress(drawn.content[start:-16])
    assert (height, len(pixels)) == (1199, height * (1 + width * 3))
    assert len(pixels) - height - pixels.count(b"\xff") > 500  # there are letters on it


@requirement("attachments:bounded")
def test_what_comes_back_of_a_page_are_pixels_or_nothing() -> None:
    pytest.importorskip("pypdfium2")
    wide = pdf("x").replace(b"/Contents", b"/MediaBox [0 0 9e9 9] /Contents")
    drawn = draw_first_page(wide)

    assert drawn is not None
    assert struct.unpack_from(">II", drawn, 16)[0] <= LONGEST_SIDE
    assert draw_first_page(pdf("x").replace(b"[3 0 R]", b"[]")) is None
    assert draw_first_page(b"") is None
