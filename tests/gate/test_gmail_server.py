"""Seed 000's Gmail server: its models and its error codes, through an MCP client on stdio and HTTP in both eras."""

import json
import re
from typing import Any

import pytest
from dirty_equals import IsStr
from mcp import Client

from tests.gate.site import ERAS, HELLO, Site
from tests.mail.gmail_double import Status
from tests.mail.letters import letter
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

WAYS = [
    pytest.param(way, era, id=f"{way}-{era}") for way in ("stdio", "http") for era in ERAS
]
ISO = IsStr(regex=r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


async def ok(client: Client, name: str, /, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def refused(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert result.is_error
    assert result.structured_content is None
    error: dict[str, Any] = json.loads(result.content[0].text)
    assert set(error) == {"error", "message", "details"}
    return error


@requirement("gmail-server:contract")
@pytest.mark.parametrize(("way", "era"), WAYS)
async def test_models_and_errors_are_the_seeds(site: Site, way: str, era: str) -> None:
    async with site.with_variables(DESKHAND_MAX_SENDS="1").client_over(
        way, era, "gmail"
    ) as client:
        await reads(site, client)
        await files(site, client)
        await sends(site, client)
        await fails(site, client)


async def reads(site: Site, client: Client) -> None:
    mail = site.gmail.account.deliver(
        letter(message_id="<one@example.org>", attachment="plan.pdf")
    )
    listed = await ok(client, "list_emails")
    summary = {
        "id": mail.id,
        "subject": "Hello",
        "sender": "Ann <ann@example.org>",
        "date": ISO,
        "snippet": IsStr(),
    }
    assert listed == {"result": [summary]}
    assert await ok(client, "list_emails", query="is:starred", max_results=100) == {
        "result": []
    }
    assert await ok(client, "get_email", message_id=mail.id) == {
        "id": mail.id,
        "subject": "Hello",
        "sender": "Ann <ann@example.org>",
        "to": "me@example.com",
        "date": ISO,
        "body": IsStr(regex=r"How are you\?\s*"),
        "has_attachments": True,
        "attachment_names": ["plan.pdf"],
    }


async def files(site: Site, client: Client) -> None:
    (mail,) = site.gmail.account.mails.values()
    assert await ok(client, "add_label", message_id=mail.id, label_name="AI_PROCESSED") == {
        "labelled": True
    }
    assert await ok(client, "move_email", message_id=mail.id, destination_label="DONE") == {
        "moved": True
    }
    await ok(client, "add_label", message_id=mail.id, label_name=" ai_processed ")
    names = {site.gmail.account.labels[label] for label in mail.labels}
    assert names == {"UNREAD", "AI_PROCESSED", "DONE"}
    for label in ("", "  ", "SENT"):
        bad = await refused(
            client, "move_email", message_id=mail.id, destination_label=label
        )
        assert bad["error"] == "parse_error"


async def sends(site: Site, client: Client) -> None:
    denied = await refused(client, "send_email", **HELLO)
    assert denied["error"] == "permission_denied"
    assert denied["details"]["reason"] == "no_approval"
    assert denied["details"]["request"] == f"Pending_Approval/{site.pending().name}"
    assert not list(site.home.vault.glob("Logs/*.jsonl"))
    site.approve()
    site.gmail.plan("drafts.send", Status(400, "invalidArgument"))
    assert (await refused(client, "send_email", **HELLO))["error"] == "send_failed"

    sent = await ok(client, "send_email", **HELLO)
    mail = site.gmail.account.search("in:sent", [])[0]
    assert sent == {"message_id": mail.id, "thread_id": mail.thread_id, "sent_at": ISO}
    (log,) = site.home.vault.glob("Logs/gmail_mcp_*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines == 2 * [
        {
            "event": "pre_send_audit",
            "timestamp": ISO,
            "to": HELLO["to"],
            "subject": HELLO["subject"],
            "body_preview": HELLO["body"][:200],
            "reply_to_message_id": None,
            "severity": "INFO",
        }
    ]
    assert log.stat().st_mode & 0o777 == 0o600

    again = await ok(client, "send_email", **HELLO)  # as if the answer had been lost
    assert again == sent | {"sent_at": again["sent_at"]}
    site.write()
    assert (await refused(client, "send_email", **HELLO | {"body": "Another."}))[
        "error"
    ] == "rate_limited"


async def fails(site: Site, client: Client) -> None:
    assert (await refused(client, "get_email", message_id="18d5a"))["error"] == "not_found"
    assert (
        await refused(client, "move_email", message_id="18d5a", destination_label="DONE")
    )["error"] == "not_found"
    invalid = await refused(
        client, "send_email", **HELLO | {"to": "not-an-email", "cc": "x"}
    )
    assert (invalid["error"], invalid["details"]["fields"][0]["field"]) == (
        "parse_error",
        "cc",
    )
    address = await refused(client, "send_email", **HELLO | {"to": "not-an-email"})
    assert (address["error"], address["details"]["fields"][0]["field"]) == (
        "parse_error",
        "to",
    )
    for body in ("", " \n", "a\0b", "x" * 2_000_001):
        text = await refused(client, "send_email", **HELLO | {"body": body})
        assert (text["error"], text["details"]["fields"][0]["field"]) == (
            "parse_error",
            "body",
        )
    assert (await refused(client, "list_emails", max_results=101))["error"] == "parse_error"
    site.gmail.plan("messages.list", Status(403, "forbidden"))
    assert (await refused(client, "list_emails"))["error"] == "permission_denied"
    site.gmail.plan("messages.list", *4 * [Status(429, "rateLimitExceeded", retry_after=0)])
    assert (await refused(client, "list_emails"))["error"] == "rate_limited"
    site.gmail.refresh_token = None
    site.gmail.expire()
    revoked = await refused(client, "list_emails")
    assert revoked["error"] == "auth_required"
    assert "deskhand mail login gmail" in revoked["details"]["hint"]


@requirement("gmail-server:contract")
async def test_a_reply_goes_into_its_thread_and_the_line_before_it_names_the_original(
    site: Site,
) -> None:
    original = site.gmail.account.deliver(
        letter(subject="Plan", message_id="<one@example.org>")
    )
    reply = HELLO | {"subject": "Re: Plan", "reply_to_message_id": original.id}
    async with site.client("gmail") as client:
        await refused(client, "send_email", **reply)
        site.approve()
        sent = await ok(client, "send_email", **reply)
        unknown = await refused(
            client, "send_email", **reply | {"reply_to_message_id": "18d5a"}
        )

    assert sent["thread_id"] == original.thread_id
    assert site.sent[0]["In-Reply-To"] == "<one@example.org>"
    assert unknown["error"] == "not_found"
    (log,) = site.home.vault.glob("Logs/gmail_mcp_*.jsonl")
    assert json.loads(log.read_text())["reply_to_message_id"] == original.id


@requirement("gate:content-bound")
async def test_an_approval_for_one_thread_never_releases_another(site: Site) -> None:
    one = site.gmail.account.deliver(letter(message_id="<one@example.org>"))
    other = site.gmail.account.deliver(letter(message_id="<two@example.org>"))
    reply = HELLO | {"subject": "Re: Hello"}
    async with site.client("gmail") as client:
        await refused(client, "send_email", **reply, reply_to_message_id=one.id)
        site.approve()
        for elsewhere in ({"reply_to_message_id": other.id}, {}):
            assert (await refused(client, "send_email", **reply, **elsewhere))[
                "error"
            ] == "permission_denied"
    assert site.sent == []


@requirement("gmail-server:contract")
async def test_in_dev_mode_a_send_is_refused_so_that_nobody_takes_it_for_sent(
    site: Site,
) -> None:
    async with site.client("gmail", DEV_MODE="true") as client:
        error = await refused(client, "send_email", **HELLO)

    assert (error["error"], error["details"]["reason"]) == ("permission_denied", "dev_mode")
    assert [line["result"] for line in site.log()] == ["dev_mode"]
    assert site.gmail.asked == []


@requirement("gate:recorded")
async def test_the_gmail_server_records_each_call_once_as_itself(site: Site) -> None:
    mail = site.gmail.account.deliver(letter())
    async with site.client("gmail") as client:
        await ok(client, "list_emails", max_results=50)
        await refused(client, "list_emails", max_results=10**300)
        await ok(client, "get_email", message_id=mail.id)
        await refused(client, "get_email", message_id="18d5a")
        await refused(client, "send_email", **HELLO)
        site.approve()
        await ok(client, "send_email", **HELLO)
        await refused(client, "send_email", to="x")

    lines = site.log()
    assert [(line["action_type"], line["result"]) for line in lines] == [
        ("list_emails", "success"),
        ("list_emails", "rejected"),
        ("get_email", "success"),
        ("get_email", "rejected"),
        ("send_email", "rejected"),
        ("send_email", "success"),
        ("send_email", "rejected"),
    ]
    assert {line["actor"] for line in lines} == {"gmail_mcp"}
    number, long = (line["parameters"]["max_results"] for line in lines[:2])
    assert (number, long) == (50, IsStr(regex=r"10+… \(301 characters\)"))


@requirement("gmail-server:contract")
async def test_the_line_before_a_send_is_written_or_nothing_is_sent(site: Site) -> None:
    site.write()
    (site.home.vault / "Logs").mkdir()
    (site.home.vault / "Logs" / f"gmail_mcp_{site.clock():%Y-%m-%d}.jsonl").mkdir()
    async with site.client("gmail") as client:
        error = await refused(client, "send_email", **HELLO)
        assert error["error"] == "send_failed"
        assert site.gmail.asked.count("drafts.create") == 0

        site.clock.pass_by(days=1)
        assert not (await client.call_tool("send_email", HELLO)).is_error
    assert len(site.sent) == 1


@requirement("gmail-server:contract")
@pytest.mark.parametrize("odd", ["file", "link"])
async def test_logs_that_is_no_folder_is_a_failed_send_and_nothing_missing(
    site: Site, odd: str
) -> None:
    site.write()
    if odd == "file":
        (site.home.vault / "Logs").write_text("")
    else:
        (site.home.vault / "Logs").symlink_to("/tmp")
    async with site.client("gmail") as client:
        error = await refused(client, "send_email", **HELLO)

    assert error["error"] == "send_failed"
    assert "cannot be written" in error["message"]
    assert site.sent == []


@requirement("gmail-server:contract")
async def test_an_answer_to_a_mail_that_is_not_there_is_not_found(site: Site) -> None:
    async with site.client("gmail") as client:
        error = await refused(client, "send_email", **HELLO, reply_to_message_id="18d5a")
        empty = await refused(client, "send_email", **HELLO, reply_to_message_id="")
    assert error["error"] == "not_found"
    (field,) = empty["details"]["fields"]
    assert (empty["error"], field["field"]) == ("parse_error", "reply_to_message_id")


@requirement("gmail-server:contract")
@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("subject", "s" * 999),
        ("subject", "one\nBcc: cy@c.example"),
        ("body", ""),
        ("body", " \n"),
    ],
)
async def test_a_mail_that_could_not_leave_as_it_stands_is_refused_before_anybody_is_asked(
    site: Site, field: str, wrong: str
) -> None:
    async with site.client("gmail") as client:
        error = await refused(client, "send_email", **(HELLO | {field: wrong}))

    (problem,) = error["details"]["fields"]
    assert (error["error"], problem["field"]) == ("parse_error", field)
    assert not [*site.home.vault.rglob("Pending_Approval/*.md")]


@requirement("gmail-server:contract")
@pytest.mark.parametrize(
    ("header", "to"),
    [
        ("undisclosed-recipients:;", ""),
        ("Team: Bob <bob@b.example>, cy@c.example;", "Bob <bob@b.example>, cy@c.example"),
    ],
)
async def test_to_names_the_people_of_a_group_and_not_the_group(
    site: Site, header: str, to: str
) -> None:
    mail = site.gmail.account.deliver(
        re.sub(rb"(?m)^To: .*$", f"To: {header}\r".encode(), letter())
    )
    async with site.client("gmail") as client:
        assert (await ok(client, "get_email", message_id=mail.id))["to"] == to


@requirement("gmail-server:contract")
async def test_an_empty_list_is_told_in_text_too(site: Site) -> None:
    async with site.client("gmail") as client:
        result = await client.call_tool("list_emails", {"query": "is:starred"})
    assert [block.text for block in result.content] == ["[]"]
    assert result.structured_content == {"result": []}


@requirement("gmail-server:contract")
@pytest.mark.parametrize("name", ["drafts.create", "drafts.send"])
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Status(400, "invalidArgument"), "send_failed"),
        (Status(403, "forbidden"), "send_failed"),
        (Status(404, "notFound"), "send_failed"),
        (Status(429, "rateLimitExceeded", retry_after=60), "rate_limited"),
    ],
)
async def test_what_gmail_says_to_a_send_has_the_contracts_code(
    site: Site, name: str, fault: Status, code: str
) -> None:
    site.write()
    site.gmail.plan(name, fault)
    async with site.client("gmail") as client:
        error = await refused(client, "send_email", **HELLO)
    assert error["error"] == code
    if code == "send_failed":
        assert error["details"]["status"] == fault.code
    assert site.sent == []


@requirement("gmail-server:contract")
async def test_a_mailbox_that_is_down_is_told_so_and_may_be_asked_again(site: Site) -> None:
    async with site.client(
        "gmail", DESKHAND_GMAIL_API_ENDPOINT="http://127.0.0.1:9"
    ) as client:
        error = await refused(client, "list_emails")
    assert error["error"] == "internal_error"
    assert error["details"]["reason"] == "provider_unavailable"
    assert error["details"]["retryable"] is True
