"""Seed 002's Email server, line by line, through an MCP client on stdio and HTTP in both protocol eras."""

import json

import pytest
from dirty_equals import IsStr
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.servers.email import email_server
from deskhand.servers.gmail import gmail_server
from tests.gate.site import ERAS, HELLO, Site, said
from tests.home import Home
from tests.mail.gmail_double import Status
from tests.mail.letters import letter
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

WAYS = [
    pytest.param(way, era, id=f"{way}-{era}") for way in ("stdio", "http") for era in ERAS
]
everywhere = pytest.mark.parametrize(("way", "era"), WAYS)


@requirement("email:contract")
@everywhere
async def test_the_server_answers_in_the_seeds_words(
    site: Site, way: str, era: str
) -> None:
    async with site.with_variables(DESKHAND_MAX_SENDS="2").client_over(
        way, era, "email"
    ) as client:
        await searches(site, client)
        await drafts(site, client)
        await sends(site, client)
        await replies(site, client)
    assert [mail["Subject"] for mail in site.sent] == ["Meeting notes", "Re: Invoice #1234"]


async def searches(site: Site, client: Client) -> None:
    mail = site.gmail.account.deliver(
        letter(
            sender="John <john@example.com>",
            subject="Invoice #1234",
            body="Pay me",
            message_id="<one@example.org>",
        )
    )
    found = await said(client, "search_email", query="invoice")
    assert found.splitlines() == [
        'Found 1 emails matching "invoice":',
        "",
        f"1. From: john@example.com | Subject: Invoice #1234 | Date: {mail.date:%Y-%m-%d}",
        "   Snippet: Pay me",
        f"   Message ID: {mail.id} | Thread ID: {mail.thread_id}",
    ]
    assert (
        await said(client, "search_email", query="nothing")
        == "No emails found matching: nothing"
    )
    site.gmail.plan("messages.list", Status(403, "forbidden"))
    assert (await said(client, "search_email", query="invoice")).startswith(
        "Error searching emails: "
    )


async def drafts(site: Site, client: Client) -> None:
    drafted = await said(client, "draft_email", **HELLO)
    (draft_id,) = site.gmail.account.drafts
    review = "Review it in your Gmail drafts folder."
    assert drafted == f"Draft created successfully. Draft ID: {draft_id}. {review}"
    bad = await said(client, "draft_email", **HELLO | {"to": "not-an-email"})
    assert bad.splitlines()[0] == "Error: Invalid email address format: not-an-email"
    site.gmail.plan("drafts.create", Status(403, "forbidden"))
    assert (await said(client, "draft_email", **HELLO)).startswith("Error creating draft: ")
    site.gmail.plan("drafts.create", Status(404, "notFound"))
    gone = await said(client, "draft_email", **HELLO)
    assert gone.splitlines()[0] == "Error creating draft: drafts not found"
    assert site.sent == []


async def sends(site: Site, client: Client) -> None:
    bad = await said(client, "send_email", **HELLO | {"to": "not-an-email"})
    assert bad.splitlines()[0] == "Error: Invalid email address format: not-an-email"
    rejected = await said(client, "send_email", **HELLO)
    assert rejected.splitlines()[0] == (
        "Rejected: No matching approval file found in vault/Approved/ for sending to a***@example.org. "
        "Create an approval file with type: email_send and move it to vault/Approved/."
    )
    assert rejected.splitlines()[1].startswith(
        "That is for the person alone, and they have it already: the request waits in "
    )
    site.approve()
    site.gmail.plan("drafts.send", Status(403, "forbidden"))
    assert (await said(client, "send_email", **HELLO)).startswith("Error sending email: ")
    sent = await said(client, "send_email", **HELLO)
    (mail,) = site.gmail.account.search("in:sent", [])
    assert (
        sent
        == f"Email sent successfully. Message ID: {mail.id} Thread ID: {mail.thread_id}"
    )


async def replies(site: Site, client: Client) -> None:
    (original,) = site.gmail.account.search("in:inbox", [])
    reply = {
        "thread_id": original.thread_id,
        "message_id": original.id,
        "body": "I am fine.",
    }
    for wrong in ({"thread_id": "18d5a", "message_id": "18d5a"}, {"thread_id": "18d5a"}):
        unapproved = await said(client, "reply_email", **reply | wrong)
        assert unapproved.splitlines()[0] == (
            "Rejected: No matching approval file found in vault/Approved/ for replying to thread 18d5a. "
            "Create an approval file with type: email_reply and move it to vault/Approved/."
        )
        approval = site.home.vault / "Approved" / "thread.md"
        approval.parent.mkdir(exist_ok=True)
        for more in ("", "to: ann@example.org\nsubject: Hello\n"):
            approval.write_text(
                f'---\ntype: email_reply\nstatus: approved\nthread_id: "18d5a"\n{more}---\n'
            )
            unknown = await said(client, "reply_email", **reply | wrong)
            assert unknown == "Error: Thread ID 18d5a not found or no longer accessible."
        approval.unlink()
    rejected = await said(client, "reply_email", **reply)
    what = f"replying to thread {original.thread_id}"
    assert rejected.splitlines()[0] == (
        f"Rejected: No matching approval file found in vault/Approved/ for {what}. "
        "Create an approval file with type: email_reply and move it to vault/Approved/."
    )
    site.approve()
    site.gmail.plan("drafts.send", Status(403, "forbidden"))
    assert (await said(client, "reply_email", **reply)).startswith(
        "Error replying to thread: "
    )
    sent = await said(client, "reply_email", **reply)
    mail = site.gmail.account.search("in:sent", [])[0]
    assert (
        sent
        == f"Reply sent successfully. Message ID: {mail.id} Thread ID: {original.thread_id}"
    )
    left = site.sent[-1]
    assert left["To"] == "john@example.com"
    assert left["In-Reply-To"] == left["References"] == "<one@example.org>"

    site.write(type="email_reply", to="john@example.com")
    limited = (
        "Rejected: Rate limit exceeded (2 emails/hour). Next send available in 60 minutes."
    )
    assert await said(client, "reply_email", **reply | {"body": "And you?"}) == limited
    site.write(name="another.md")
    assert await said(client, "send_email", **HELLO | {"body": "Another."}) == limited


@requirement("email:contract")
@everywhere
async def test_in_dev_mode_everything_is_logged_and_nothing_reaches_the_provider(
    site: Site, way: str, era: str
) -> None:
    long = "x" * 245
    async with site.with_variables(DEV_MODE="true").client_over(
        way, era, "email"
    ) as client:
        assert await said(client, "draft_email", **HELLO) == (
            "[DEV_MODE] Draft logged but not created. To: a***@example.org, Subject: Meeting notes"
        )
        assert await said(client, "send_email", **HELLO) == (
            "[DEV_MODE] Send logged but not executed. To: a***@example.org, Subject: Meeting notes"
        )
        assert await said(
            client, "reply_email", thread_id="18d5a", message_id="18d5b", body=long
        ) == (
            "[DEV_MODE] Reply logged but not executed. Thread: 18d5a, Body length: 245 chars"
        )
        bad = await said(client, "send_email", **HELLO | {"to": "not-an-email"})
        assert bad.splitlines()[0] == "Error: Invalid email address format: not-an-email"
        assert site.gmail.asked == []
        # Reading is allowed all the same.
        assert (
            await said(client, "search_email", query="x") == "No emails found matching: x"
        )
    assert [line["result"] for line in site.log()] == [
        "dev_mode",
        "dev_mode",
        "dev_mode",
        "rejected",
        "success",
    ]
    assert not (site.home.vault / "Pending_Approval").exists()


@requirement("email:contract")
@pytest.mark.parametrize("dev_mode", ["true", "false"])
@pytest.mark.parametrize("name", ["thread_id", "message_id"])
@pytest.mark.parametrize("empty", ["", " ", "\n"])
async def test_a_reply_to_nothing_is_refused_before_anything_else(
    site: Site, dev_mode: str, name: str, empty: str
) -> None:
    async with site.client("email", DEV_MODE=dev_mode) as client:
        answer = await said(
            client,
            "reply_email",
            **{"thread_id": "18d5a", "message_id": "18d5b", "body": "Yes."} | {name: empty},
        )
    assert answer.startswith(f"Error: The {name} is empty")
    assert site.gmail.asked == []


@requirement("gmail:nothing-happened")
@pytest.mark.parametrize("code", [429, 503])
async def test_a_gmail_that_fails_for_a_moment_is_asked_again(
    site: Site, code: int
) -> None:
    original = site.gmail.account.deliver(letter(message_id="<one@example.org>"))
    site.write(type="email_reply")
    for name in ("drafts.create", "drafts.send"):
        site.gmail.plan(name, Status(code, "backendError"))
    async with site.client("email") as client:
        answer = await said(
            client,
            "reply_email",
            thread_id=original.thread_id,
            message_id=original.id,
            body="Fine.",
        )

    assert answer.startswith("Reply sent successfully.")
    assert len(site.sent) == 1
    assert site.gmail.account.drafts == {}


@requirement("email:data")
async def test_each_sentence_comes_with_its_data(site: Site) -> None:
    mail = site.gmail.account.deliver(
        letter(
            sender="John <john@example.com>",
            to="me@example.com, Ann <ann@example.org>",
            body="Pay me " * 50,
        )
    )
    label = site.gmail.account.add_label("Clients")
    site.gmail.account.modify(mail, [label], [])
    async with site.client("email") as client:
        found = await client.call_tool("search_email", {"query": "in:inbox"})
        nothing = await client.call_tool("search_email", {"query": "nothing"})
        drafted = await client.call_tool("draft_email", HELLO)
        await client.call_tool("send_email", HELLO)
        site.approve()
        sent = await client.call_tool("send_email", HELLO)

    assert found.structured_content == {
        "emails": [
            {
                "message_id": mail.id,
                "thread_id": mail.thread_id,
                "from_address": "john@example.com",
                "to_address": "me@example.com, ann@example.org",
                "subject": "Hello",
                "snippet": IsStr(regex="Pay me Pay .*", max_length=200),
                "date": "Tue, 10 Feb 2026 09:30:00 +0000",
                "labels": ["INBOX", "UNREAD", label],
            }
        ]
    }
    assert nothing.structured_content == {"emails": []}
    (draft,) = site.gmail.account.drafts.values()
    (left,) = site.gmail.account.search("in:sent", [])
    for answer, filed in ((drafted, site.gmail.account.mails[draft]), (sent, left)):
        assert answer.structured_content == {
            "result": answer.content[0].text,
            "message_id": filed.id,
            "thread_id": filed.thread_id,
            "from_address": "me@example.com",
            "to_address": HELLO["to"],
            "subject": HELLO["subject"],
            "snippet": "Dear Ann, see you at ten.",
            "date": "Sun, 15 Nov 2026 09:00:00 +0000",
        }


@requirement("email:data")
async def test_no_header_of_a_stranger_fills_the_answer(site: Site) -> None:
    many = ", ".join(f"a{number}@example.org" for number in range(5000))
    wide = f"{'a' * 30_000}@example.org"
    head = f"From: {wide}\r\nTo: {many}\r\nSubject: {'x ' * 30_000}\r\nDate: {'1' * 30_000}\r\n\r\nHello\r\n"
    site.gmail.account.deliver(head.encode())
    async with site.client("email") as client:
        found = await client.call_tool("search_email", {"query": "in:inbox"})

    (mail,) = found.structured_content["emails"]
    assert mail["to_address"].startswith("a0@example.org, a1@example.org, ")
    assert len(json.dumps(mail)) < 5_000
    assert len(found.content[0].text) < 5_000


@requirement("email:data")
async def test_a_mail_to_a_group_without_names_names_nobody(site: Site) -> None:
    site.gmail.account.deliver(letter(to="undisclosed-recipients:;"))
    async with site.client("email") as client:
        found = await client.call_tool("search_email", {"query": "in:inbox"})

    (mail,) = found.structured_content["emails"]
    assert mail["to_address"] == ""


@requirement("mail:reply-all")
async def test_a_reply_goes_where_the_mail_asks_for_it_and_of_my_own_where_that_went(
    site: Site,
) -> None:
    deliver = site.gmail.account.deliver
    asking = deliver(letter(reply_to="a@example.org, b@example.org"))
    mine = deliver(letter(sender="me@example.com", to="ann@example.org"))
    nobody = deliver(letter(sender="me@example.com", to="me@example.com"))
    async with site.client("email") as client:
        for mail in (asking, mine):
            ids = {"thread_id": mail.thread_id, "message_id": mail.id}
            await said(client, "reply_email", **ids, body="Yes.")
        ids = {"thread_id": nobody.thread_id, "message_id": nobody.id}
        refused = await said(client, "reply_email", **ids, body="Yes.")

    recipients = [
        line.removeprefix("to: ")
        for file in site.files("Pending_Approval")
        for line in file.read_text().splitlines()
        if line.startswith("to: ")
    ]
    assert sorted(recipients) == ["a@example.org", "ann@example.org"]
    assert refused.startswith("Error replying to thread: This mail names nobody")


@requirement("gate:hand-written")
async def test_a_folder_in_another_case_is_the_desks_folder(site: Site) -> None:
    site.write(folder="approved")
    async with site.client("email") as client:
        answer = await said(client, "send_email", **HELLO)

    assert answer.startswith("Email sent successfully.")
    assert [file.name for file in site.files("Done")] == ["yes.md"]


@requirement("mail:one-recipient")
async def test_a_recipient_is_named_as_the_network_writes_it(site: Site) -> None:
    given = HELLO | {"to": " Ann@BÜCHER.Example "}
    async with site.client("email", DEV_MODE="true") as client:
        drafted = await said(client, "draft_email", **given)
    async with site.client("email") as client:
        asked = await said(client, "send_email", **given)

    assert drafted.endswith("To: A***@xn--bcher-kva.example, Subject: Meeting notes")
    assert "for sending to A***@xn--bcher-kva.example. Create" in asked


@requirement("gate:recorded")
async def test_the_log_names_the_thread_where_nobody_knows_the_recipient_yet(
    site: Site,
) -> None:
    reply = {"thread_id": "18d5a", "message_id": "18d5b", "body": "Yes."}
    async with site.client("email", DEV_MODE="true") as client:
        await said(client, "reply_email", **reply)
        await said(client, "reply_email", **reply | {"body": ""})
        await said(client, "search_email", query="in:inbox")

    targets = [line["target"] for line in site.log()]
    assert targets == ["thread 18d5a", "thread 18d5a", "in:inbox"]


@requirement("email:data")
async def test_where_nothing_was_sent_the_data_is_the_sentence(site: Site) -> None:
    async with site.client("email", DEV_MODE="true") as client:
        answer = await client.call_tool("send_email", HELLO)
    assert answer.structured_content == {"result": answer.content[0].text}


@requirement("mail:local-stays")
async def test_a_mail_in_a_local_mailbox_says_that_it_stays_on_this_machine(
    site: Site,
) -> None:
    local = {"DESKHAND_MAIL": "local", "DESKHAND_ADDRESS": "me@example.com"}
    stays = "It stays on this machine: this desk works on a local mailbox, which reaches nobody."
    site.write()
    site.write("another.md", subject="Another")
    async with site.client("email", **local) as client:
        drafted = await said(client, "draft_email", **HELLO)
        sent = await said(client, "send_email", **HELLO)
    async with site.client("gmail", **local) as client:
        told = await client.call_tool("send_email", HELLO | {"subject": "Another"})

    assert drafted.splitlines()[0].endswith(" Review it in your drafts folder.")
    assert (drafted.splitlines()[1], sent.splitlines()[1]) == (stays, stays)
    assert told.structured_content["note"] == stays


@requirement("mail:local-stays")
@pytest.mark.parametrize("name", ["email", "gmail"])
async def test_without_any_account_somebody_must_sign_in(home: Home, name: str) -> None:
    desk = Desk(load(home.environment).settings)
    make = {"email": email_server, "gmail": gmail_server}[name]
    async with Client(make(desk), mode="2026-07-28") as client:
        answer = await client.call_tool("send_email", HELLO)
        read = await client.call_tool(
            {"email": "search_email", "gmail": "list_emails"}[name], {"query": "x"}
        )
    desk.close()

    for refused in (answer, read):
        assert refused.is_error
        assert "no mail account is set up" in refused.content[0].text
        if name == "gmail":
            assert json.loads(refused.content[0].text)["error"] == "auth_required"


@requirement("gate:hand-written")
@pytest.mark.parametrize(
    ("properties", "released"),
    [
        ({"thread_id": "THREAD"}, True),
        ({"to": "ann@example.org"}, True),
        ({"thread_id": "THREAD", "to": "ann@example.org", "subject": "Hello"}, True),
        ({"thread_id": "18d5a"}, False),
        ({"thread_id": "18d5a", "to": "ann@example.org"}, False),
        ({"thread_id": "THREAD", "to": "eve@example.org"}, False),
        ({"to": "eve@example.org"}, False),
        ({"thread_id": "THREAD", "subject": "Another"}, False),
        ({}, False),
    ],
)
async def test_a_reply_is_released_by_its_thread_else_by_its_recipient(
    site: Site, properties: dict[str, str], released: bool
) -> None:
    original = site.gmail.account.deliver(letter(message_id="<one@example.org>"))
    given = {
        key: value.replace("THREAD", original.thread_id)
        for key, value in properties.items()
    }
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in given.items())
    (site.home.vault / "Approved").mkdir()
    (site.home.vault / "Approved" / "yes.md").write_text(
        f"---\ntype: email_reply\nstatus: approved\n{lines}---\n"
    )
    async with site.client("email") as client:
        answer = await said(
            client,
            "reply_email",
            thread_id=original.thread_id,
            message_id=original.id,
            body="I am fine.",
        )

    assert answer.startswith(
        "Reply sent successfully." if released else "Rejected: No matching approval file"
    )
    assert len(site.sent) == released


@requirement("gate:hand-written")
@pytest.mark.parametrize(
    ("more", "released"),
    [("", False), ("to: ann@example.org\n", False), ("to: desk@example.net\n", True)],
)
async def test_a_yes_to_a_thread_alone_covers_no_address_that_its_mail_asks_for(
    site: Site, more: str, released: bool
) -> None:
    original = site.gmail.account.deliver(letter(reply_to="desk@example.net"))
    (site.home.vault / "Approved").mkdir()
    (site.home.vault / "Approved" / "yes.md").write_text(
        f'---\ntype: email_reply\nstatus: approved\nthread_id: "{original.thread_id}"\n{more}---\n'
    )
    async with site.client("email") as client:
        answer = await said(
            client,
            "reply_email",
            thread_id=original.thread_id,
            message_id=original.id,
            body="I am fine.",
        )

    assert answer.startswith("Reply sent successfully.") == released
    assert len(site.sent) == released


@requirement("mail:bad-input")
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"to": "not-an-email"}, "Error: Invalid email address format: not-an-email"),
        ({"to": ""}, "Error: Invalid email address format: "),
        (
            {"to": "ann@example.org\r\nBcc: eve@example.org"},
            "Error: Invalid email address format: ",
        ),
        ({"to": "ann@example.org\u2028"}, "Error: Invalid email address format: "),
        ({"to": "friends: ann@example.org;"}, "Error: Invalid email address format: "),
        ({"subject": "Hello\nBcc: eve@example.org"}, "Error: The subject must be one line"),
        ({"subject": "Hello\0"}, "Error: The subject must be one line"),
        ({"subject": "x" * 999}, "Error: send_email: invalid arguments\n  subject: "),
        ({"body": ""}, "Error: The body is empty"),
        ({"body": "x" * 40_000_000}, "Error: The body has 40,000,000 characters"),
        ({"body": "a\0b"}, "Error: The body holds a NUL character"),
        ({"body": 7}, "Error: send_email: invalid arguments\n  body: "),
        ({"cc": "eve@example.org"}, "Error: send_email: invalid arguments\n  cc: "),
        ({"body": "\ud800"}, "Error: the arguments are not valid Unicode"),
    ],
)
async def test_bad_input_gets_a_clear_error_and_nothing_is_sent_or_asked(
    site: Site, change: dict[str, object], problem: str
) -> None:
    site.write()
    async with site.client("email") as client:
        answer = await said(client, "send_email", **HELLO | change)

    assert answer.startswith(problem)
    assert ("(got '')" in answer) == ("" in change.values())
    assert site.sent == []
    assert site.files("Pending_Approval") == []
    assert [file.name for file in site.files("Approved")] == ["yes.md"]
    assert len(site.log()) == 1


@requirement("mail:small-schemas")
async def test_the_tools_of_both_servers_are_titled_and_small(site: Site) -> None:
    size, names = 0, []
    for name in ("email", "gmail"):
        async with site.client(name) as client:
            tools = (await client.list_tools()).tools
        size += sum(
            len(tool.model_dump_json(exclude_none=True, by_alias=True)) for tool in tools
        )
        names.append([tool.name for tool in tools])
        assert all(
            tool.description and len(tool.description.splitlines()) <= 3 for tool in tools
        )

    assert names == [
        ["search_email", "draft_email", "send_email", "reply_email"],
        ["send_email", "list_emails", "get_email", "move_email", "add_label"],
    ]
    assert size < 16_000
