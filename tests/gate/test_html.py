"""A mail whose text leaves as HTML too: made by the desk, shown as it leaves, and part of what is approved."""

from operator import attrgetter
from typing import Any

import pytest
from mcp import Client

from deskhand.errors import InvalidInput
from deskhand.gate.letters import Letter
from deskhand.gate.oddities import Facts
from deskhand.gate.risk import assess
from deskhand.mail.rendering import LONGEST, render_html
from deskhand.servers.desk import desk_server
from deskhand.web.site import site as web_site
from tests.gate.site import HELLO, Site
from tests.requirements import requirement
from tests.web.person import served, signed_in

pytestmark = [pytest.mark.anyio, requirement("mail:html")]

TEXT = "Dear **Ann**,\n\nread [https://bank.example](https://evil.example/x) now.\n\n<script>alert(1)</script>\n"


async def test_both_parts_are_approved_shown_and_sent_and_an_edit_changes_both(
    site: Site,
) -> None:
    desk = site.desk()

    async def ask(client: Client, **more: Any) -> None:
        await client.call_tool("send_email", HELLO | {"body": TEXT} | more)

    async with Client(desk_server(desk), mode="2026-07-28") as client:
        await ask(client)
        await ask(client, html=True)
        await ask(client, html=True)
        plain, both = sorted((await desk.waiting.cards())[0], key=attrgetter("html"))
        async with served(web_site(desk)) as address, signed_in(desk, address) as person:
            page = (await person.reads(f"/approvals/{both.id}")).text
            sheet = await person.reads(f"/approvals/{both.id}/as-sent")
            nothing = await person.reads(f"/approvals/{plain.id}/as-sent")
        text = (
            site.files("Pending_Approval")[1].read_text()
            + site.files("Pending_Approval")[0].read_text()
        )
        new = Letter(HELLO["to"], HELLO["subject"], "Just *this*.\n")
        edited = await desk.answers.edit(both.id, both.digest, new, "person")
        await desk.answers.approve_now(both.id, edited.digest, "person")
        await desk.gate.release_due()
    await desk.close_mailbox()
    desk.close()

    assert (plain.html, plain.digest != both.digest) == ("", True)
    assert both.html == render_html(TEXT)
    assert "A link shows bank.example but leads to evil.example." in both.risk.reasons
    assert any(
        "evil.example" in each
        for each in both.risk.reasons
        if each.startswith("Links lead to")
    )
    assert f'src="/approvals/{both.id}/as-sent' in page
    inside = both.html.partition("<body>")[2].partition("</body>")[0]
    assert inside.strip() in sheet.text.replace(' rel="noopener noreferrer"', "")
    assert "sandbox" in sheet.headers["content-security-policy"]
    assert "<script" not in sheet.text
    assert "<strong>" not in nothing.text
    assert "<strong>Ann</strong>" in text
    (sent,) = site.sent
    assert [part.get_content_type() for part in sent.iter_parts()] == [
        "text/plain",
        "text/html",
    ]
    parts = [part.get_content() for part in sent.iter_parts()]
    assert [part.replace("\r\n", "\n") for part in parts] == [
        "Just *this*.\n",
        render_html("Just *this*.\n"),
    ]


async def test_a_hand_written_yes_is_for_plain_text_alone(site: Site) -> None:
    desk = site.desk()
    site.write()
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        await client.call_tool("send_email", HELLO | {"html": True})
        too_long = await client.call_tool(
            "send_email", HELLO | {"body": "x" * (LONGEST + 1), "html": True}
        )
        ((card,), _) = await desk.waiting.cards()
    await desk.close_mailbox()
    desk.close()
    assert card.html
    assert site.sent == []
    assert "not sent as HTML" in str(too_long.content)


def test_nothing_is_loaded_run_or_hidden_by_what_a_text_says() -> None:
    tricks = (
        "![pixel](https://spy.example/p.gif)",
        "<img src=https://spy.example/p.gif>",
        '<div style="display:none">x</div>',
        "[a](javascript:alert(1))",
        "[a](data:text/html;base64,PHNjcmlwdD4=)",
        "[a]( JaVaScRiPt:alert(1))",
        "<https://ok.example/>\n\n[r]\n\n[r]: javascript:alert(1)",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "| a | <b> |\n|---|---|\n| ~~x~~ | `<i>` |",
    )
    for trick in tricks:
        page = render_html(trick)
        for bad in (
            "<img",
            "<script",
            "<div",
            'href="javascript',
            'href="data',
            "<b>",
            "<i>",
        ):
            assert bad not in page.lower(), (trick, page)
    assert render_html("one\ntwo") == render_html("one\ntwo")
    assert "<br />" in render_html("one\ntwo")
    with pytest.raises(InvalidInput):
        render_html("x" * (LONGEST + 1))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("Change your passw&#111;rd", "It speaks of money or secrets: password."),
        ("pass**word**", "It speaks of money or secrets: password."),
        ("go to ht&#116;ps://evil.example/x", "Links lead to: evil.example."),
        ("a&#8203;b", "The text holds 1 invisible character."),
        (
            "a &#x202E;0001",
            "The text holds 1 character that changes the direction of reading.",
        ),
        (
            "[bob@corp.example](mailto:eve@evil.example)",
            "A link shows bob@corp.example but leads to eve@evil.example.",
        ),
        ("[write](mailto:eve%40evil.example)", "Links lead to: mail to eve@evil.example."),
    ],
)
def test_the_risk_reads_what_the_page_shows(body: str, reason: str) -> None:
    facts = Facts(
        "me@example.com", ("ann@example.com",), "Status", body, html=render_html(body)
    )
    assert reason in assess(facts).reasons
