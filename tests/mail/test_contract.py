"""What every mailbox of the desk does alike: local, Gmail (the double) and IMAP (a real Dovecot)."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from pathlib import Path

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import NotFound
from deskhand.mail import MailSummary, Sent, mime
from deskhand.mail.changes import Deed, Doing, find_way_back, read_change
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.mail.mime import AttachedFile, find_attachment, find_page, read_attachments
from deskhand.mail.rendering import render_html
from deskhand.servers.desk import desk_server
from tests.home import Home
from tests.mail.contract import ME, WORLDS, World
from tests.mail.letters import letter, outgoing, unwritten
from tests.mail.test_accounts import call, refused
from tests.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("mail:contract")]


@pytest.fixture(params=WORLDS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with WORLDS[request.param](tmp_path) as made:
        yield made


async def only(world: World, query: str) -> MailSummary:
    (mail,) = await world.mailbox.search(query, 10)
    return mail


async def subjects(world: World, query: str, limit: int = 10) -> list[str]:
    return [mail.subject for mail in await world.mailbox.search(query, limit)]


async def test_the_mailbox_knows_its_own_address(world: World) -> None:
    assert await world.mailbox.address() == ME


async def test_an_empty_query_lists_everything_newest_first(world: World) -> None:
    for name in ("One", "Two", "Three"):
        world.deliver(letter(subject=name, message_id=f"<{name}@x.example>"))

    assert await subjects(world, "") == ["Three", "Two", "One"]
    assert await subjects(world, "", limit=2) == ["Three", "Two"]


async def test_searching_finds_what_gmail_would_find(world: World) -> None:
    world.deliver(
        letter(
            sender="Ann <ann@example.org>",
            subject="Invoice",
            body="for January",
            message_id="<1@x.example>",
        )
    )
    world.deliver(
        letter(
            sender="Bob <bob@example.net>",
            subject="Grüße",
            body="the lost invoice",
            attachment="a.pdf",
        )
    )
    world.deliver(
        letter(
            sender="Cy <cy@example.net>",
            subject="Lunch",
            body="at noon",
            to="team@example.com",
        )
    )

    for query, expected in {
        "invoice": ["Grüße", "Invoice"],
        "subject:invoice": ["Invoice"],
        "from:bob@example.net": ["Grüße"],
        "to:team@example.com": ["Lunch"],
        "to:me": ["Grüße", "Invoice"],
        "from:me OR noon": ["Lunch"],
        '"lost invoice"': ["Grüße"],
        "invoice -from:bob": ["Invoice"],
        "from:ann OR from:cy": ["Lunch", "Invoice"],
        "subject:grüße": ["Grüße"],
        "has:attachment": ["Grüße"],
        "is:unread": ["Lunch", "Grüße", "Invoice"],
        "is:read": [],
        "in:inbox noon": ["Lunch"],
        "rfc822msgid:1@x.example": ["Invoice"],
        "after:2020/01/01 lunch": ["Lunch"],
        "before:2020/01/01": [],
        "nowheretobefound": [],
    }.items():
        assert await subjects(world, query) == expected, query


async def test_a_mail_reads_in_full(world: World) -> None:
    world.deliver(
        letter(
            subject="Grüße",
            body="Zeile eins\nZeile zwei ü\n",
            message_id="<1@x.example>",
            attachment="ü.pdf",
        )
    )
    listed = await only(world, "")

    full = await world.mailbox.get(listed.id)

    assert (full.summary.sender, full.summary.to) == ("Ann <ann@example.org>", ME)
    assert (full.summary.subject, full.message_id) == ("Grüße", "<1@x.example>")
    assert full.body.split("\n")[:2] == ["Zeile eins", "Zeile zwei ü"]
    assert (full.body_from, full.warnings, full.references) == ("plain", (), ())
    assert [file.name for file in full.attachments] == ["ü.pdf"]
    assert find_attachment(await world.mailbox.read_raw(listed.id), "ü.pdf") == (
        full.attachments[0],
        b"content",
    )
    assert (full.summary.id, full.summary.thread_id, full.summary.date) == (
        listed.id,
        listed.thread_id,
        listed.date,
    )
    assert set(full.summary.labels) == set(listed.labels) >= {"INBOX", "UNREAD"}
    assert listed.snippet.startswith("Zeile eins Zeile zwei")


async def test_reading_leaves_a_mail_unread(world: World) -> None:
    world.deliver(letter())
    await world.mailbox.get((await only(world, "")).id)

    assert await subjects(world, "is:unread") == ["Hello"]


async def test_what_is_not_there_is_not_found(world: World) -> None:
    for name in ("nothing", "", "../x", "m1", "1"):
        with pytest.raises(NotFound):
            await world.mailbox.get(name)
        with pytest.raises(NotFound):
            await world.mailbox.thread(name)
        with pytest.raises(NotFound):
            await world.mailbox.move(name, "Done")
        with pytest.raises(NotFound):
            await world.mailbox.add_label(name, "Done")


async def test_a_thread_holds_a_mail_and_its_answers_oldest_first(world: World) -> None:
    world.deliver(letter(subject="Plan", message_id="<1@x.example>"))
    world.deliver(
        letter(subject="Re: Plan", message_id="<2@x.example>", references="<1@x.example>")
    )
    world.deliver(letter(subject="Other", message_id="<3@x.example>"))
    first = await only(world, "rfc822msgid:1@x.example")

    thread = await world.mailbox.thread(first.thread_id)

    assert [mail.subject for mail in thread] == ["Plan", "Re: Plan"]
    assert {mail.thread_id for mail in thread} == {first.thread_id}


async def test_a_moved_mail_leaves_the_inbox_and_keeps_its_id(world: World) -> None:
    world.deliver(letter(message_id="<1@x.example>"))
    mail = await only(world, "")

    await world.mailbox.move(mail.id, "Done")

    assert await subjects(world, "in:inbox") == []
    assert (await only(world, "label:Done")).id == mail.id
    moved = (await world.mailbox.get(mail.id)).summary
    assert "Done" in moved.labels
    assert "INBOX" not in moved.labels


async def test_a_label_is_added_beside_the_others(world: World) -> None:
    world.deliver(letter(message_id="<1@x.example>"))
    mail = await only(world, "")

    await world.mailbox.add_label(mail.id, "AI_PROCESSED")
    await world.mailbox.add_label(mail.id, "AI_PROCESSED")

    labelled = await only(world, "label:AI_PROCESSED in:inbox")
    assert labelled.id == mail.id
    assert sorted(labelled.labels).count("AI_PROCESSED") == 1
    assert {"INBOX", "UNREAD"} <= set(labelled.labels)


async def test_a_draft_waits_and_nothing_leaves(world: World) -> None:
    mail = outgoing(subject="Not yet")

    draft_id = await world.mailbox.create_draft(mail.raw, None)

    assert draft_id
    draft = await only(world, "in:drafts")
    assert (draft.subject, "DRAFT" in draft.labels) == ("Not yet", True)
    assert world.left() == []


async def test_a_prepared_mail_has_not_left_and_a_sent_one_left_once(world: World) -> None:
    mail = outgoing(subject="Grüße", body="Wie geht es?\n")

    token = await world.mailbox.prepare(mail)
    assert world.left() == []
    assert not isinstance(await world.mailbox.check(token, mail), Sent)
    sent = await world.mailbox.send(token, mail, unwritten)

    (left,) = world.left()
    assert (left.subject, left.body, left.to) == (
        "Grüße",
        "Wie geht es?\n",
        "ann@example.org",
    )
    assert left.action_id == mail.action_id
    assert await world.mailbox.check(token, mail) == sent
    listed = await only(world, "in:sent")
    assert (listed.id, listed.thread_id) == (sent.message_id, sent.thread_id)
    assert "SENT" in listed.labels


async def test_an_address_beyond_ascii_gets_its_mail(world: World) -> None:
    mail = outgoing(to="jürgen@example.org")

    sent = await world.mailbox.send(await world.mailbox.prepare(mail), mail, unwritten)

    assert [left.to for left in world.left()] == ["jürgen@example.org"]
    assert (
        await only(world, "in:sent")
    ).id == sent.message_id  # in whose copy Cyrus writes XX for two bytes


async def test_an_answer_joins_the_thread_of_its_question(world: World) -> None:
    world.deliver(letter(subject="Plan", message_id="<1@x.example>"))
    question = await only(world, "")
    answer = outgoing(
        subject="Re: Plan", in_reply_to="<1@x.example>", thread_id=question.thread_id
    )

    sent = await world.mailbox.send(await world.mailbox.prepare(answer), answer, unwritten)

    assert sent.thread_id == question.thread_id
    assert [mail.subject for mail in await world.mailbox.thread(question.thread_id)] == [
        "Plan",
        "Re: Plan",
    ]
    assert world.left()[0].in_reply_to == "<1@x.example>"


async def test_mail_to_oneself_arrives(world: World) -> None:
    mail = outgoing(to=ME, subject="Note to self")

    await world.mailbox.send(await world.mailbox.prepare(mail), mail, unwritten)

    arrived = await only(world, "in:inbox")
    assert (arrived.subject, "UNREAD" in arrived.labels) == ("Note to self", True)


@requirement("mail:everybody")
async def test_everybody_gets_the_mail_and_nobody_reads_of_a_blind_copy(
    world: World,
) -> None:
    blind = ["eve@blind.example", f"{'x' * 60}@{'long.' * 20}blind.example"]
    mail = outgoing(cc=["bob@example.org", "cy@xn--mnchen-3ya.example"], bcc=[*blind, ME])

    await world.mailbox.send(await world.mailbox.prepare(mail), mail, unwritten)

    (left,) = world.left()
    assert (left.to, left.cc) == (
        "ann@example.org",
        "bob@example.org, cy@xn--mnchen-3ya.example",
    )
    for reached, copy in world.reached():
        assert sorted(reached) == sorted(mail.recipients)
        assert copy.rstrip() == mail.raw.rstrip()
    assert b"blind" not in mail.raw
    assert b"bcc" not in mail.raw.lower()
    assert (await only(world, "in:inbox")).subject == "Hello"


FILES = [
    AttachedFile(
        "Übersicht 1/2.pdf".replace("/", "-"), "application/pdf", bytes(range(256)) * 300
    ),
    AttachedFile("empty.txt", "text/plain", b""),
    AttachedFile("lines.csv", "text/csv", b"a\r\nb\n.\n..\nFrom x\r"),
    AttachedFile("日本語の長い名前" * 8 + ".html", "text/html", b"<p>\xff"),
    AttachedFile("e\u0301 and 🎉.png", "image/png", b"\x89PNG\r\n\x1a\n"),
    AttachedFile("quo\"ted; a=b'c%20.ics", "text/calendar", b"BEGIN:VCALENDAR\r\n"),
    AttachedFile("no extension", "application/zip", b"PK\3\4\0\r\r\n"),
    AttachedFile("Mail.eml", "message/rfc822", b"Subject: inner\r\n\r\n.dot\r\n"),
]


@requirement("gate:attachments")
async def test_files_arrive_with_the_same_bytes(world: World) -> None:
    mail = outgoing(to=ME, files=FILES)

    sent = await world.mailbox.send(await world.mailbox.prepare(mail), mail, unwritten)

    arrived = await only(world, "in:inbox")
    for copy in (
        await world.mailbox.read_raw(arrived.id),
        await world.mailbox.read_raw(sent.message_id),
    ):
        assert [each.content.rstrip(b"\r\n") for each in read_attachments(copy)] == [
            each.content.rstrip(b"\r\n") for each in FILES
        ]
        assert [each[:2] for each in read_attachments(copy)] == [each[:2] for each in FILES]


@requirement("mail:html")
@pytest.mark.parametrize("files", [[], FILES[:1]])
async def test_a_text_and_its_html_arrive_as_one_mail(
    world: World, files: list[AttachedFile]
) -> None:
    page = render_html("Dear **Ünn**,\n\n.see [the plan](https://example.org/a?b=1&c=2)\n")
    mail = outgoing(to=ME, body="Dear **Ünn**\n.\n", html=page, files=files)

    await world.mailbox.send(await world.mailbox.prepare(mail), mail, unwritten)

    arrived = await only(world, "in:inbox")
    raw = await world.mailbox.read_raw(arrived.id)
    read = message_from_bytes(raw, policy=policy.default)
    alternative = next(
        part for part in read.walk() if part.get_content_type() == "multipart/alternative"
    )
    assert [part.get_content_type() for part in alternative.iter_parts()] == [
        "text/plain",
        "text/html",
    ]
    found = find_page(raw)
    assert found is not None
    assert found[0].replace("\r\n", "\n") == page
    full = await world.mailbox.get(arrived.id)
    assert (full.body.strip(), full.body_from) == ("Dear **Ünn**\n.", "plain")
    assert len(full.attachments) == len(files)


EVERY_DAY = requirement("mail:every-day")


@EVERY_DAY
@pytest.mark.parametrize(
    ("do", "undo", "query"),
    [
        ("read", "unread", "is:read"),
        ("star", "unstar", "is:starred"),
        ("label", "unlabel", "label:Bills"),
    ],
)
async def test_marks_are_set_and_taken_off_again(
    world: World, do: Doing, undo: Doing, query: str
) -> None:
    for name in ("One", "Two", "Three"):
        world.deliver(letter(subject=name, message_id=f"<{name}@x.example>"))
    ids = [(await only(world, f"subject:{name}")).id for name in ("One", "Two")]
    before = await world.mailbox.list_mails(ids)
    label = "Bills" if do == "label" else None

    for _ in range(2):
        assert (
            await world.mailbox.change([*ids, "gone", ids[0]], read_change(do, label)) == 2
        )
        assert sorted(await subjects(world, query)) == ["One", "Two"]
    assert await world.mailbox.change(ids, read_change(undo, label)) == 2

    assert await subjects(world, query) == []
    assert [set(mail.labels) for mail in await world.mailbox.list_mails(ids)] == [
        set(mail.labels) for mail in before
    ]


@EVERY_DAY
async def test_trash_keeps_every_mail_and_gives_it_back(world: World) -> None:
    world.deliver(letter(subject="Plan", message_id="<1@x.example>"))
    world.deliver(letter(subject="Kept", message_id="<2@x.example>"))
    sent = outgoing(subject="Mine")
    mine = (
        await world.mailbox.send(await world.mailbox.prepare(sent), sent, unwritten)
    ).message_id
    plan = await only(world, "subject:plan")
    begun = outgoing(subject="Begun", action_id="act-2")
    draft = (await world.mailbox.create_draft(begun.raw, None)).message_id
    ids = [plan.id, mine, draft]

    assert await world.mailbox.change(ids, Deed("trash")) == 3
    assert await subjects(world, "") == ["Kept"]
    assert sorted(await subjects(world, "in:trash")) == ["Begun", "Mine", "Plan"]
    assert (await world.mailbox.get(plan.id)).body.strip() == "How are you?"
    assert (
        await world.mailbox.change(
            [*ids, (await only(world, "subject:kept")).id], Deed("untrash")
        )
        == 3
    )

    assert await subjects(world, "in:trash") == []
    assert sorted(await subjects(world, "in:inbox")) == ["Kept", "Plan"]
    assert await subjects(world, "in:sent") == ["Mine"]
    assert await subjects(world, "in:draft") == ["Begun"]
    assert (await only(world, "subject:plan")).id == plan.id
    assert "UNREAD" in (await only(world, "subject:plan")).labels


@EVERY_DAY
async def test_an_archived_mail_leaves_the_inbox_and_is_found(world: World) -> None:
    world.deliver(letter(subject="Plan", message_id="<1@x.example>"))
    plan = await only(world, "")

    assert await world.mailbox.change([plan.id], Deed("archive")) == 1

    assert await subjects(world, "in:inbox") == []
    assert (await only(world, "subject:plan")).id == plan.id
    with pytest.raises(NotFound):
        await world.mailbox.list_mails([plan.id, "gone"])
    assert await world.mailbox.change([plan.id], Deed("unarchive")) == 1
    assert (await only(world, "in:inbox")).id == plan.id
    assert await world.mailbox.change([plan.id], Deed("unarchive")) == 0


@EVERY_DAY
async def test_every_change_has_a_way_back_for_what_it_changed(world: World) -> None:
    for name in ("One", "Two"):
        world.deliver(letter(subject=name, message_id=f"<{name}@x.example>"))
    ids = [(await only(world, f"subject:{name}")).id for name in ("One", "Two")]
    for change in (Deed("read"), Deed("star"), Deed("archive")):
        await world.mailbox.change(ids[:1], change)
    await world.mailbox.change(ids[:1], Deed("label", "Bills"))
    before = await world.mailbox.list_mails(ids)
    names: list[Doing] = ["read", "unread", "star", "unstar", "archive", "trash"]
    changes = [Deed(do) for do in names]
    for change in (*changes, Deed("label", "bills"), Deed("unlabel", "Bills")):
        way_back = find_way_back(change, await world.mailbox.list_mails(ids))
        await world.mailbox.change(ids, change)
        for back, those in way_back:
            await world.mailbox.change(those, back)
        after = await world.mailbox.list_mails(ids)
        assert [set(mail.labels) for mail in after] == [
            set(mail.labels) for mail in before
        ], change


@EVERY_DAY
async def test_a_label_is_the_same_one_in_other_capitals(world: World) -> None:
    world.deliver(letter(message_id="<1@x.example>"))
    mail = await only(world, "")
    await world.mailbox.change([mail.id], Deed("label", "Über/Maß"))
    before = (await only(world, "")).labels

    await world.mailbox.change([mail.id], Deed("label", "über/maß"))
    assert sorted((await only(world, "")).labels) == sorted(before)
    await world.mailbox.change([mail.id], Deed("unlabel", "ÜBER/maß"))
    assert sorted((await only(world, "")).labels) == sorted(mail.labels)


@asynccontextmanager
async def desk_on(world: World, home: Home) -> AsyncIterator[tuple[Desk, Client]]:
    """A desk whose one account is of this world, and is known by another address as well."""
    account = world.account | {
        "name": "one",
        "address": ME,
        "aliases": ["sales@example.com"],
    }
    desk = Desk(
        load(home.environment | {"DESKHAND_MAIL_ACCOUNTS": json.dumps([account])}).settings
    )
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        yield desk, client
    await desk.close_mailbox()
    desk.close()


@requirement("accounts:sender")
async def test_the_tools_of_the_desk_do_alike_on_every_mailbox(
    world: World, home: Home
) -> None:
    question = letter(
        to="Sales <sales@example.com>, bob@example.org",
        subject="Plan",
        message_id="<1@x.example>",
    )
    again = letter(
        subject="Re: Plan",
        message_id="<2@x.example>",
        references="<1@x.example>",
        attachment="ü.txt",
    )
    async with desk_on(world, home) as (desk, client):
        box = desk.account_mailbox("one")
        for raw in (question, again):
            if isinstance(box, LocalMailbox):
                await box.receive([Incoming(raw, seen=False)])
            else:
                world.deliver(raw)
        mails = {
            each["subject"]: each
            for each in (await call(client, "search_email", query=""))["emails"]
        }
        first, second = mails["Plan"], mails["Re: Plan"]["message_id"]
        thread = await call(client, "get_thread", thread_id=first["thread_id"])
        text = await call(client, "get_attachment", message_id=second, name="ü.txt")
        counted = await call(
            client, "update_emails", query="subject:plan", do="star", dry_run=True
        )
        for do in ("star", "read", "archive"):
            await call(client, "update_emails", ids=[second], do=do)
        changed = (await call(client, "search_email", query="is:starred -in:inbox"))[
            "emails"
        ]
        calls = {
            "forward_email": {
                "message_id": second,
                "to": ["cy@example.org"],
                "body": "Please look.",
            },
            "reply_email": {
                "thread_id": first["thread_id"],
                "message_id": first["message_id"],
                "body": "Yes.\n",
                "all": True,
            },
        }
        for name, arguments in calls.items():
            await refused(client, name, **arguments)
        for card in (await desk.waiting.cards())[0]:
            await desk.answers.approve_now(card.id, card.digest, "person")
        for name, arguments in calls.items():
            await call(client, name, **arguments)
        mine = [mail.id for mail in await box.search("in:sent", 10)]
        await box.change(mine, Deed("trash"))
        await box.change(mine, Deed("untrash"))
        sent = [await box.read_raw(mail.id) for mail in await box.search("in:sent", 10)]

    assert [each["subject"] for each in thread["mails"]] == ["Plan", "Re: Plan"]
    assert (text["text"], counted["count"]) == ("content", 2)
    assert [each["message_id"] for each in changed] == [second]
    by_subject = {mime.parse(raw).subject: raw for raw in sent}
    passed_on, answer = by_subject["Fwd: Re: Plan"], mime.parse(by_subject["Re: Plan"])
    assert [tuple(each) for each in read_attachments(passed_on)] == [
        ("ü.txt", "application/octet-stream", b"content")
    ]
    assert (answer.sender, answer.to, answer.cc) == (
        "sales@example.com",
        "ann@example.org",
        "bob@example.org",
    )
    for reached, _ in world.reached():
        assert set(reached) in ({"cy@example.org"}, {"ann@example.org", "bob@example.org"})
