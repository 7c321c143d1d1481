"""Everybody a mail goes to: in the digest, before the person's eyes, and on the wire."""

import json
from typing import Any

import pytest
from mcp import Client

from deskhand import audit
from deskhand.app import Desk
from deskhand.errors import InvalidInput
from deskhand.gate import ledger
from deskhand.gate.actions import Mail, SendEmail, read_action
from deskhand.gate.letters import Letter
from deskhand.orchestrator import replies
from deskhand.orchestrator.mcp_client import MCPClient
from tests.gate.site import HELLO, Site, only_card, read
from tests.gate.waiting import drafted
from tests.mail.letters import letter
from tests.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("gate:everybody")]

SEVERAL = HELLO | {
    "to": ["ann@example.org", "bob@example.org"],
    "cc": ["cy@example.com", "BOB@example.org"],
    "bcc": ["dee@example.net", "ann@example.org"],
}
EVERYBODY = ["ann@example.org", "bob@example.org", "cy@example.com", "dee@example.net"]


async def call(client: Client, **arguments: Any) -> str:
    result = await client.call_tool("send_email", arguments)
    return str(result.content[0].text)


async def test_one_yes_sends_one_mail_to_all_of_them(
    site: Site, desk: Desk, client: Client
) -> None:
    waits = await call(client, **SEVERAL)
    card = await only_card(desk)
    text = site.pending().read_text()
    await desk.answers.approve_now(card.id, card.digest, "person")
    done = await call(client, **SEVERAL)

    assert f"Waiting for the person (id {card.id}, since " in waits
    assert [each.address for each in card.everybody] == EVERYBODY
    assert [len(several) for several in (card.to, card.cc, card.bcc)] == [2, 1, 1]
    assert not any(each.known for each in card.everybody)
    assert "Send to ann@example.org and 3 more?" in text.replace("\\", "")
    for line in ("- To: ann@", "- To: bob@", "- Copy (Cc): cy@", "do not see: dee@"):
        assert line in text
    assert "Email sent successfully." in done
    ((reached, copy),) = site.gmail.account.reached
    assert list(reached) == EVERYBODY
    assert (read(copy)["to"], read(copy)["cc"], read(copy)["bcc"]) == (
        "ann@example.org, bob@example.org",
        "cy@example.com",
        None,
    )
    assert all(each.known for each in (await desk.waiting.card(card.id)).everybody)
    entries = await desk.store.read(lambda tx: audit.entries(tx, limit=20))
    said = json.dumps([entry.model_dump() for _, entry in entries])
    assert "d***@example.net" in said
    assert not any(address in said for address in EVERYBODY)


async def test_a_no_to_several_is_told_with_no_address_in_full(
    desk: Desk, client: Client
) -> None:
    await call(client, **SEVERAL)
    card = await only_card(desk)
    await desk.answers.reject(card.id, card.digest, "too early", "person")
    told = await call(client, **SEVERAL)
    assert not any(address in told for address in EVERYBODY)
    assert "too early" in told


async def test_a_mail_to_one_has_the_digest_and_the_row_that_it_always_had() -> None:
    mail = Mail(
        kind="send_email",
        account="me@example.com",
        to="ann@example.org",
        subject="Hello",
        body="Hi",
    )

    assert mail.digest == "2f4e29faa8fe5a865e4286f51ba603f9635c7818ef5a19b85a6d53839fca3525"
    assert not {"cc", "bcc"} & json.loads(mail.model_dump_json()).keys()
    assert read_action(mail.model_dump_json()) == mail


@pytest.mark.parametrize(
    "change",
    [
        {"to": ["ann@example.org"]},
        {"to": ["bob@example.org", "ann@example.org"]},
        {"cc": []},
        {"cc": ["cy@example.com", "eve@evil.example"]},
        {"bcc": None},
        {"cc": ["dee@example.net"], "bcc": ["cy@example.com"]},
    ],
    ids=str,
)
async def test_a_yes_to_some_is_none_to_others(
    site: Site, desk: Desk, client: Client, change: dict[str, Any]
) -> None:
    await call(client, **SEVERAL)
    card = await only_card(desk)
    await desk.answers.approve_now(card.id, card.digest, "person")

    assert "Waiting for the person" in await call(client, **SEVERAL | change)
    assert site.gmail.delivered == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"to": []}, "to"),
        ({"to": ["ann@example.org, eve@evil.example"]}, "to"),
        ({"to": "ann@example.org, eve@evil.example"}, "to"),
        ({"cc": ["ann@example.org\r\nBcc: eve@evil.example"]}, "cc"),
        ({"bcc": ["Eve <eve@evil.example>"]}, "bcc"),
        ({"bcc": [""]}, "bcc"),
        ({"cc": "eve@evil.example,"}, "cc"),
        ({"cc": ["undisclosed-recipients:;"]}, "cc"),
        ({"to": [f"p{number}@example.org" for number in range(49)]}, "to"),
    ],
    ids=str,
)
async def test_what_is_no_list_of_addresses_or_too_long_is_refused(
    site: Site, client: Client, change: dict[str, Any], field: str
) -> None:
    error = json.loads(await call(client, **SEVERAL | change))

    assert error["error"] == "parse_error"
    assert error["details"]["fields"][0]["field"].startswith(field)
    assert site.files("Pending_Approval") == []


async def test_fifty_get_it_and_whoever_is_named_twice_counts_once(
    desk: Desk, client: Client
) -> None:
    many = [f"p{number}@example.org" for number in range(50)]
    await call(client, **SEVERAL | {"to": many, "cc": many, "bcc": many})

    assert [each.address for each in (await only_card(desk)).everybody] == many


async def test_a_file_by_hand_releases_no_mail_to_several(
    site: Site, client: Client
) -> None:
    for number, line in enumerate(("ann@example.org", "ann@example.org, bob@example.org")):
        site.write(f"{number}.md", to=line, cc="cy@example.com", bcc="dee@example.net")

    assert "Waiting for the person" in await call(client, **SEVERAL)
    assert site.gmail.delivered == []


async def test_the_person_edits_who_gets_it(site: Site, desk: Desk, client: Client) -> None:
    await call(client, **SEVERAL)
    card = await only_card(desk)
    edited = await desk.answers.edit(
        card.id,
        card.digest,
        Letter(
            "ann@example.org,eve@example.org",
            card.subject,
            card.body,
            "",
            "ann@example.org",
        ),
        "p",
    )
    kept = await desk.answers.edit(
        card.id, edited.digest, Letter("ann@example.org", "Other", card.body), "p"
    )
    with pytest.raises(InvalidInput):
        await desk.answers.edit(
            card.id, kept.digest, Letter("ann@example.org", "x", "y", "nobody", ""), "p"
        )

    assert [each.address for each in edited.everybody] == [
        "ann@example.org",
        "eve@example.org",
    ]
    assert "-Cc: cy@example.com" in (edited.difference or "")
    assert "-Bcc: dee@example.net" in (edited.difference or "")
    assert [each.address for each in kept.everybody] == ["ann@example.org"]


async def test_a_file_that_is_moved_says_yes_to_all_of_them(
    site: Site, client: Client
) -> None:
    many = SEVERAL | {
        "to": [f"somebody.with.a.long.name.{number}@example.org" for number in range(40)]
    }
    await call(client, **many)
    site.approve()

    assert "Email sent successfully." in await call(client, **many)
    ((reached, _),) = site.gmail.account.reached
    assert len(reached) == 44


async def test_the_person_adds_somebody_in_the_file_and_it_waits_anew(
    site: Site, desk: Desk, client: Client
) -> None:
    await call(client, **SEVERAL)
    file = site.approve()
    file.write_text(
        file.read_text().replace("cy@example.com", "cy@example.com, eve@example.org")
    )
    card = await only_card(desk)

    assert (card.state, card.revision) == ("waiting", 2)
    assert [each.address for each in card.cc] == ["cy@example.com", "eve@example.org"]
    assert site.gmail.delivered == []


def no_server() -> MCPClient:
    raise AssertionError("the Gmail server's contract knows one recipient")


async def test_a_draft_of_the_person_goes_to_all_whom_it_names(
    site: Site, desk: Desk
) -> None:
    request = drafted("draft-1", "ann@example.org", desk.now())
    await desk.store.write(ledger.insert, request)
    await desk.door.follow(request)
    (file,) = site.files("Drafts")
    file.write_text(
        file.read_text().replace(
            "to: ann@example.org", "to: ann@example.org, bob@example.org\nbcc: cy@x.org"
        )
    )
    card = await desk.waiting.card("draft-1")
    fewer = await desk.answers.edit(
        card.id,
        card.digest,
        Letter(
            "ann@example.org, bob@example.org", "x", "New words.", "dee@example.net", ""
        ),
        "p",
    )
    text = file.read_text()
    await desk.answers.approve_now("draft-1", fewer.digest, "person")
    await replies.send(desk, no_server, await desk.gate.find("draft-1"))

    assert [each.address for each in card.everybody] == [
        "ann@example.org",
        "bob@example.org",
        "cy@x.org",
    ]
    assert "cc: dee@example.net" in text
    assert "bcc" not in text
    assert [reached for reached, _ in site.gmail.account.reached] == [
        ("ann@example.org", "bob@example.org", "dee@example.net")
    ]


async def test_whom_the_thread_does_not_name_is_said(site: Site, desk: Desk) -> None:
    raw = letter(
        sender="Ann <ann@example.org>",
        to="me@example.com, Bob <bob@example.org>",
        message_id="<1@x.example>",
    )
    mail = site.gmail.account.deliver(raw)
    answer = SendEmail(
        to=["ann@example.org", "bob@example.org"],
        cc=["eve@evil.example"],
        subject="Re: Hello",
        body="Fine.",
        reply_to_message_id=mail.id,
    )
    await desk.gate.propose(answer, "desk_mcp")
    card = await only_card(desk)

    assert [(each.known, each.badge, each.since) for each in card.everybody] == [
        (True, "replying", "your first email to them"),
        (False, "new", "in this thread; your first email to them"),
        (False, "new", "first email to this address"),
    ]
    assert card.risk.level == "high"
    assert "The mail that it answers does not name eve@evil.example." in card.risk.reasons


async def test_an_answer_to_all_waits_with_everybody_on_its_card(
    site: Site, desk: Desk, client: Client
) -> None:
    raw = letter(to="me@example.com, Bob <bob@example.org>", message_id="<1@x.example>")
    mail = site.gmail.account.deliver(raw)
    answer = {
        "thread_id": mail.thread_id,
        "message_id": mail.id,
        "body": "Fine.",
        "all": True,
        "cc": ["cy@example.com"],
    }
    waits = await client.call_tool("reply_email", answer)
    card = await only_card(desk)
    await desk.answers.approve_now(card.id, card.digest, "person")
    one = await client.call_tool("reply_email", answer | {"all": False, "cc": None})
    done = await client.call_tool("reply_email", answer)

    assert waits.is_error
    assert one.is_error
    assert "Reply sent successfully." in done.content[0].text
    ((reached, copy),) = site.gmail.account.reached
    assert reached == ("ann@example.org", "bob@example.org", "cy@example.com")
    assert (read(copy)["to"], read(copy)["cc"]) == (
        "ann@example.org",
        "bob@example.org, cy@example.com",
    )
    assert read(copy)["in-reply-to"] == "<1@x.example>"
    assert [reason for reason in card.risk.reasons if "does not name" in reason] == [
        "The mail that it answers does not name cy@example.com."
    ]


@pytest.mark.parametrize("everybody", [True, False])
async def test_a_mail_with_odd_addresses_is_answered_and_not_called_a_stranger(
    everybody: bool, site: Site, desk: Desk, client: Client
) -> None:
    fields = [
        "From: Jürgen <j@müller.example>",
        "Reply-To: the office",
        'To: "bob"@b.example, me+shop@example.com, Cy <cy@c.example.',
        "Subject: Plan",
    ]
    mail = site.gmail.account.deliver("\r\n".join([*fields, "", "Hello"]).encode())
    answer = {
        "thread_id": mail.thread_id,
        "message_id": mail.id,
        "body": "Fine.",
        "all": everybody,
    }
    await client.call_tool("reply_email", answer)
    card = await only_card(desk)

    copies = ["bob@b.example", "cy@c.example"] if everybody else []
    assert [each.address for each in card.everybody] == ["j@xn--mller-kva.example", *copies]
    assert [
        reason
        for reason in card.risk.reasons
        if "does not name" in reason or "who wrote" in reason
    ] == []
    assert card.everybody[0].since == "your first email to them"


async def test_the_servers_of_the_contract_know_one_recipient(site: Site) -> None:
    for name in ("email", "gmail"):
        async with site.client(name) as client:
            tools = {each.name: each for each in (await client.list_tools()).tools}
            assert not {"cc", "bcc"} & tools["send_email"].input_schema["properties"].keys()
            assert tools["send_email"].input_schema["properties"]["to"]["type"] == "string"
            refused = await client.call_tool(
                "send_email", HELLO | {"to": "ann@example.org, bob@example.org"}
            )
            assert refused.is_error
    assert site.files("Pending_Approval") == []
