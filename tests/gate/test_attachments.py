"""Files that go with a mail: bound to their bytes from the proposal to the recipient, and mails that are passed on."""

import os
import socket
import unicodedata
from contextlib import chdir
from datetime import timedelta
from email.message import EmailMessage
from hashlib import sha256
from typing import Any

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.cli.command import one_line
from deskhand.errors import InvalidInput
from deskhand.gate import enclosures
from deskhand.gate.cards import Card
from deskhand.mail import mime
from deskhand.servers.desk import desk_server
from tests.gate.site import HELLO, Site, only_card, read
from tests.mail.letters import letter
from tests.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("gate:attachments")]

NAMES = (
    "Bericht für März.pdf",
    "plain.txt",
    "a;b=c'd%20.txt",
    "日本語の長い名前" * 8 + ".txt",
    'quo"ted.txt',
    "no extension",
)


async def call(client: Client, tool: str = "send_email", /, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    return str(result.content[0].text)


async def say_yes(desk: Desk) -> Card:
    card = await only_card(desk)
    return await desk.answers.approve_now(card.id, card.digest, "person")


def put(site: Site, path: str, content: bytes) -> str:
    file = site.home.vault / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return path


def received(site: Site) -> list[tuple[str, Any]]:
    """The files of the one mail that left, as the standard library reads them."""
    ((_, copy),) = site.gmail.account.reached
    parts = list(read(copy).iter_attachments())
    return [(str(part.get_filename()), part.get_payload(decode=True)) for part in parts]


async def test_the_bytes_arrive_that_were_approved(
    site: Site, desk: Desk, client: Client
) -> None:
    contents = [
        b"%PDF-1.7 \xff\x00",
        b"",
        b"a\r\nb\nc\r.\n--x\n",
        os.urandom(3000),
        b"From here\n.\n",
        bytes(range(256)) * 50,
    ]
    paths = [
        put(site, f"Files/{name}", content)
        for name, content in zip(NAMES, contents, strict=True)
    ]
    waits = await call(client, **HELLO, attachments=paths)
    card = await only_card(desk)
    text = site.pending().read_text()
    terminal = site.home.command("show", card.id).stderr
    await say_yes(desk)
    done = await call(client, **HELLO, attachments=paths)

    assert "no_approval" in waits
    assert "Email sent successfully." in done
    assert received(site) == list(zip(NAMES, contents, strict=True))
    ((_, copy),) = site.gmail.account.reached
    assert [(each.name, each.content) for each in mime.read_attachments(copy)] == list(
        zip(NAMES, contents, strict=True)
    )
    assert (
        read(copy).get_body(("plain",)).get_content().replace("\r\n", "\n") == HELLO["body"]
    )
    assert [(each.size, each.sha256) for each in card.attachments] == [
        (len(each), sha256(each).hexdigest()) for each in contents
    ]
    assert all(each.sha256 in text for each in card.attachments)
    assert [line for line in terminal.splitlines() if line.startswith("file: ")] == [
        one_line(f"file: {each.describe()}") for each in card.attachments
    ]
    assert "It takes 6 files along: read what is inside." in card.risk.reasons


async def test_twenty_megabytes_arrive_as_they_are(
    site: Site, desk: Desk, client: Client
) -> None:
    content = os.urandom(1_000_000) * 20
    path = put(site, "Files/large.bin", content)
    await call(client, **HELLO, attachments=[path])
    await say_yes(desk)

    assert "Email sent successfully." in await call(client, **HELLO, attachments=[path])
    ((_, copy),) = site.gmail.account.reached
    assert [each.content == content for each in mime.read_attachments(copy)] == [True]
    assert site.gmail.asked.count("upload") == 2


async def test_a_file_that_was_swapped_after_the_card_is_not_sent_and_the_person_is_told(
    site: Site, desk: Desk, client: Client
) -> None:
    path = put(site, "Files/offer.txt", b"100 EUR")
    await call(client, **HELLO, attachments=[path])
    card = await only_card(desk)
    await desk.answers.approve(card.id, card.digest, "person")
    put(site, path, b"100000 EUR")
    site.clock.pass_by(minutes=5)
    await desk.gate.release_due()
    told = await only_card(desk)
    await desk.answers.approve_now(told.id, told.digest, "person")
    still = await desk.gate.release(told.id, "desk")
    put(site, path, b"100 EUR")
    await say_yes(desk)
    await desk.gate.release(told.id, "desk")

    assert (told.state, told.revision) == ("waiting", 2)
    assert told.note.startswith(
        "Nothing was sent: Files/offer.txt has changed since this was asked."
    )
    assert "has changed since the person was asked" in str(still)
    assert received(site) == [("offer.txt", b"100 EUR")]


async def test_a_yes_in_the_vault_to_a_file_that_is_gone_sends_nothing_and_does_not_come_back(
    site: Site, desk: Desk, client: Client
) -> None:
    path = put(site, "Files/offer.txt", b"100 EUR")
    await call(client, **HELLO, attachments=[path])
    site.approve()
    (site.home.vault / path).unlink()
    await desk.door.hear_all()
    await desk.gate.release_due()
    card = await only_card(desk)

    assert card.state == "waiting"
    assert "is no longer there as it was" in (card.note or "")
    assert site.files("Approved") == []
    assert len(site.files("Pending_Approval")) == 1
    assert site.gmail.delivered == []


async def test_other_bytes_are_another_mail(site: Site, desk: Desk, client: Client) -> None:
    path = put(site, "Files/offer.txt", b"100 EUR")
    await call(client, **HELLO, attachments=[path])
    await say_yes(desk)
    put(site, path, b"200 EUR")

    assert "no_approval" in await call(client, **HELLO, attachments=[path])
    assert "no_approval" in await call(client, **HELLO)
    site.write("yes.md")
    assert "no_approval" in await call(client, **HELLO, attachments=[path])
    assert site.gmail.delivered == []


ASTRAY = (
    *(
        "../secret.txt",
        "/etc/passwd",
        "Files/../../secret.txt",
        ".obsidian/app.json",
        "Files/.env",
        "~/x",
        "",
        "Files",
    ),
    *(
        "Approved/x.md",
        "Logs/x.jsonl",
        "approved/x.md",
        "Pending_Approval/x.md",
        "Files/link.txt",
        "linked/x.txt",
    ),
    *(
        "Files/hard.txt",
        "Files/none.txt",
        "Files\\x.txt",
        "Files/pipe",
        "Files/\uff0e\uff0e/x",
    ),
    *(
        "Files/dot.",
        "Files/open.txt.",
        "Files/open.txt ",
        "Files/./open.txt",
        "Files//open.txt",
        "/Files/open.txt",
    ),
    *(
        "Files/open.txt/",
        "Files/open.txt:x",
        "Files\uff0fopen.txt",
        "Files/open\u200b.txt",
        "Files/socket",
        "/dev/null",
    ),
    *(
        "Files/environ",
        "/proc/self/environ",
        "x/.git/config",
        "file:///etc/passwd",
        "Drafts/x.md",
        "C:\\x",
        "\\\\h\\x",
    ),
)


async def test_no_path_leads_astray(site: Site, desk: Desk, client: Client) -> None:
    vault = site.home.vault
    secret = vault.parent / "secret.txt"
    secret.write_text("secret")
    for name in (
        "Approved/x.md",
        "Logs/x.jsonl",
        "Pending_Approval/x.md",
        ".obsidian/app.json",
        "Files/.env",
    ):
        put(site, name, b"secret")
    for name in ("Files/open.txt", "Files/dot.", "x/.git/config", "Drafts/x.md"):
        put(site, name, b"secret")
    (vault / "Files" / "link.txt").symlink_to(secret)
    (vault / "linked").symlink_to(vault.parent)
    (vault / "Files" / "environ").symlink_to("/proc/self/environ")
    os.link(secret, vault / "Files" / "hard.txt")
    os.mkfifo(vault / "Files" / "pipe")
    with socket.socket(socket.AF_UNIX) as listening, chdir(vault / "Files"):
        listening.bind("socket")

    for path in ASTRAY:
        refused = await client.call_tool("send_email", HELLO | {"attachments": [path]})
        assert refused.is_error, path
        assert "no_approval" not in refused.content[0].text, path
        assert "internal_error" not in refused.content[0].text, path
    assert (await desk.waiting.cards())[0] == []
    assert desk.store.write_sync(lambda tx: tx.all("SELECT content FROM enclosures")) == []


async def test_a_name_is_found_however_it_is_written_and_leaves_as_it_lies_there(
    site: Site, desk: Desk, client: Client
) -> None:
    put(site, unicodedata.normalize("NFD", "Files/Über.txt"), b"word")
    for path in (
        "Files/Über.txt",
        unicodedata.normalize("NFD", "Files/Über.txt"),
        "files/über.TXT",
    ):
        await call(client, **HELLO, attachments=[path])
    card = await say_yes(desk)
    await call(client, **HELLO, attachments=["Files/Über.txt"])

    assert [each.path for each in card.attachments] == [
        unicodedata.normalize("NFD", "Files/Über.txt")
    ]
    assert [
        (unicodedata.normalize("NFC", name), content) for name, content in received(site)
    ] == [("Über.txt", b"word")]


async def test_what_is_too_large_or_too_much_is_refused_with_what_to_do(
    site: Site, client: Client
) -> None:
    large = put(site, "Files/large.bin", b"")
    os.truncate(site.home.vault / large, enclosures.LARGEST + 1)
    half = put(site, "Files/half.bin", b"")
    os.truncate(site.home.vault / half, enclosures.LARGEST_TOGETHER // 2 + 1)

    assert "send the link" in await call(client, **HELLO, attachments=[large])
    assert "send the link" in await call(client, **HELLO, attachments=[half, half])
    assert (
        await client.call_tool("send_email", HELLO | {"attachments": [half] * 21})
    ).is_error
    assert site.files("Pending_Approval") == []


@pytest.mark.parametrize(
    "sizes", [[1] * 21, [enclosures.LARGEST + 1], [13_000_000, 13_000_000]], ids=str
)
def test_no_mail_takes_more_than_providers_do(sizes: list[int]) -> None:
    with pytest.raises(InvalidInput, match="at most"):
        enclosures.demand_bounded(sizes)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("text/csv", "text/csv"),
        ("message/rfc822", "message/rfc822"),
        ("message/delivery-status", "application/octet-stream"),
        ("multipart/mixed", "application/octet-stream"),
        ("text/plain\r\nBcc: x", "text/plain"),
        (None, "text/plain"),
    ],
)
def test_the_type_that_a_stranger_wrote_is_taken_where_it_is_sound(
    given: str | None, kind: str
) -> None:
    assert enclosures.enclose("a.txt", b"x", content_type=given).content_type == kind


async def test_who_may_not_read_notes_attaches_none(site: Site, desk: Desk) -> None:
    path = put(site, "Files/a.txt", b"x")
    server = desk_server(desk)
    server.narrow(["mail:write"])
    async with Client(server, mode="2026-07-28") as client:
        refused = await call(client, **HELLO, attachments=[path])
        waits = await call(client, **HELLO)

    assert "notes:read" in refused
    assert "no_approval" in waits


async def test_bytes_are_kept_as_long_as_somebody_may_send_them(
    site: Site, desk: Desk, client: Client
) -> None:
    kept = put(site, "Files/kept.txt", b"kept")
    await call(client, **HELLO, attachments=[kept])
    await desk.gate.keep_attachments([b"of nobody"])
    site.clock.pass_by(days=2)
    await desk.gate.keep_attachments([])
    rows = desk.store.write_sync(lambda tx: tx.all("SELECT content FROM enclosures"))
    desk.store.write_sync(lambda tx: tx.execute("DELETE FROM enclosures"))
    await say_yes(desk)
    lost = await desk.gate.release((await only_card(desk)).id, "desk")
    card = await only_card(desk)

    assert [bytes(content) for (content,) in rows] == [b"kept"]
    assert "no longer kept; nothing was sent" in str(lost)
    assert card.state == "approved"
    assert await desk.waiting.load_attachments(card) == [None]
    assert desk.store.write_sync(enclosures.sweep, desk.now() + timedelta(days=9)) == 0


def original(**more: str) -> bytes:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Cc"] = (
        "Ann <ann@example.org>",
        "me@example.com",
        "bob@example.org",
    )
    mail["Bcc"], mail["Subject"], mail["Message-ID"] = (
        "hidden@blind.example",
        "WG: Plan",
        "<1@x.example>",
    )
    mail["Date"] = "Tue, 10 Feb 2026 09:30:00 +0100"
    mail.set_content("The plan.\n")
    mail.add_attachment(
        b"%PDF-1.7 \xff", maintype="application", subtype="pdf", filename="Größe.pdf"
    )
    mail.add_attachment("a,b\n", subtype="csv", filename="t.csv")
    return mail.as_bytes()


async def test_a_mail_is_passed_on_as_text_with_its_files(
    site: Site, desk: Desk, client: Client
) -> None:
    mail = site.gmail.account.deliver(original())
    arguments = {
        "message_id": mail.id,
        "to": ["cy@example.org"],
        "cc": ["dee@example.org"],
        "body": "Please look.",
    }
    waits = await call(client, "forward_email", **arguments)
    card = await say_yes(desk)
    done = await call(client, "forward_email", **arguments)

    assert "no_approval" in waits
    assert "Email sent successfully." in done
    assert (card.kind, card.subject) == ("forward_email", "Fwd: Plan")
    assert card.body.startswith(
        "Please look.\n\n---------- Forwarded message ----------\nFrom: Ann <ann@example.org>\n"
        "Date: Tue, 10 Feb 2026 09:30:00 +0100\n"
    )
    assert "Cc: bob@example.org\n\nThe plan." in card.body
    assert "hidden@blind" not in card.body
    assert received(site) == [("Größe.pdf", b"%PDF-1.7 \xff"), ("t.csv", b"a,b\n")]
    ((reached, copy),) = site.gmail.account.reached
    assert reached == ("cy@example.org", "dee@example.org")
    assert read(copy)["in-reply-to"] is None


async def test_a_mail_is_passed_on_whole(site: Site, desk: Desk, client: Client) -> None:
    mail = site.gmail.account.deliver(original())
    arguments = {
        "message_id": mail.id,
        "to": "cy@example.org",
        "body": "Please look.",
        "as_attachment": True,
    }
    await call(client, "forward_email", **arguments)
    card = await say_yes(desk)
    done = await call(client, "forward_email", **arguments)

    assert "Email sent successfully." in done
    assert [(each.name, each.content_type) for each in card.attachments] == [
        ("WG: Plan.eml", "message/rfc822")
    ]
    ((_, copy),) = site.gmail.account.reached
    (part,) = read(copy).iter_attachments()
    inner = part.get_content()
    assert inner["message-id"] == "<1@x.example>"
    assert inner["bcc"] is None
    assert [each.get_filename() for each in inner.iter_attachments()] == [
        "Größe.pdf",
        "t.csv",
    ]
    assert b"blind" not in copy


@pytest.mark.parametrize(
    "raw",
    [b"Subject: x\n\n" + b"y" * 2000, b"Subject: x\n\n\xe9\n", b"Subject: x\n\na\0b", b""],
)
async def test_every_mail_can_be_passed_on_whole(
    site: Site, desk: Desk, client: Client, raw: bytes
) -> None:
    mail = site.gmail.account.deliver(
        b"\n\nFrom: ann@example.org\nBCC : x@blind.example\n y@blind.example\n" + raw
    )
    arguments = {
        "message_id": mail.id,
        "to": "cy@example.org",
        "body": "Look.",
        "as_attachment": True,
    }
    await call(client, "forward_email", **arguments)
    await say_yes(desk)

    assert "Email sent successfully." in await call(client, "forward_email", **arguments)
    ((_, copy),) = site.gmail.account.reached
    (file,) = mime.read_attachments(copy)
    assert b"blind" not in file.content
    assert file.content.rstrip().endswith(raw.replace(b"\n", b"\r\n").rstrip())


async def test_what_is_not_there_is_not_passed_on(client: Client, site: Site) -> None:
    refused = await client.call_tool(
        "forward_email", {"message_id": "0" * 16, "to": "cy@example.org", "body": "x"}
    )

    assert refused.is_error
    assert site.files("Pending_Approval") == []


async def test_an_answer_takes_files_along(site: Site, desk: Desk, client: Client) -> None:
    mail = site.gmail.account.deliver(letter(message_id="<1@x.example>"))
    path = put(site, "Files/a.exe", b"MZ")
    answer = {
        "thread_id": mail.thread_id,
        "message_id": mail.id,
        "body": "Here.",
        "attachments": [path],
    }
    await call(client, "reply_email", **answer)
    card = await say_yes(desk)

    assert "Reply sent successfully." in await call(client, "reply_email", **answer)
    assert received(site) == [("a.exe", b"MZ")]
    assert card.risk.level == "high"
    assert "The attachment a.exe is a Windows program." in card.risk.reasons
    assert "It takes a file along: read what is inside." in card.risk.reasons
