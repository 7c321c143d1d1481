"""No text from outside is rendered, composed or assessed on the event loop's own thread, by whichever door it comes."""

import difflib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import parseaddr
from types import CodeType, FrameType
from typing import Any

import jinja2
import pytest
from mcp import Client

from deskhand import unseen
from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate import differences, files, links, risk
from deskhand.mail import mime
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.notes import frontmatter
from deskhand.orchestrator import triage
from deskhand.orchestrator.loop import Orchestrator
from deskhand.servers.desk import desk_server
from deskhand.web import markdown, rows, visible
from deskhand.web.site import site
from tests.gate.site import Clock
from tests.mail.letters import letter
from tests.orchestrator.office import Office
from tests.requirements import requirement
from tests.web.person import served, signed_in

READERS: tuple[Callable[..., Any], ...] = (
    *(visible.visible, markdown.html, jinja2.Template.render),
    *(
        mime.compose,
        mime.parse,
        parseaddr,
        risk.assess,
        links.read_html,
        unseen.traces,
        unseen.describe,
        unseen.strip,
    ),
    *(
        differences.describe_difference,
        files.render_request,
        frontmatter.parse,
        frontmatter.render,
    ),
    *(difflib.unified_diff, triage.delicate),
    *(rows.make_mail, rows.make_entry),
)
"""What takes a moment for a long text."""
OUR_OWN = {
    f"jinja2.environment.Template.render by {name}"
    for name in ("render_short", "_draw_keys")
}
"""A page whose rows, and with them all that a stranger wrote, were made before, and the table of the keys."""
LETTER = {
    "to": "ann@example.org",
    "subject": "Hello",
    "body": "Dear Ann,\n\u200bsee you.\n",
}


@contextmanager
def watched_thread() -> Iterator[set[str]]:
    """Which of the readers run on this thread."""
    codes: dict[CodeType, str] = {
        each.__code__: f"{each.__module__}.{each.__qualname__}" for each in READERS
    }
    seen: set[str] = set()

    def notice(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            caller = frame.f_back
            seen.add(f"{codes[frame.f_code]} by {caller and caller.f_code.co_qualname}")

    sys.setprofile(notice)
    try:
        yield seen
    finally:
        sys.setprofile(None)


@requirement("page:unstalled")
@pytest.mark.anyio
async def test_no_text_from_outside_is_read_on_the_loops_own_thread(office: Office) -> None:
    clock = Clock()
    desk = Desk(load(office.home.environment).settings, clock)
    assert isinstance(desk.mailbox, LocalMailbox)
    async with (
        served(site(desk)) as address,
        signed_in(desk, address) as person,
        Client(desk_server(desk)) as assistant,
    ):
        with watched_thread() as seen:
            await desk.mailbox.receive([Incoming(letter(subject="a question"), seen=False)])
            (mail,) = await desk.mailbox.search("", 5)
            answer = {"thread_id": mail.thread_id, "message_id": mail.id, "body": "Yes.\n"}
            await assistant.call_tool("send_email", LETTER)
            await assistant.call_tool("reply_email", answer)
            await assistant.call_tool("draft_email", LETTER)
            await assistant.call_tool("search_email", {"query": "question"})
            await assistant.call_tool("get_email", {"message_id": mail.id})
            await assistant.call_tool("write_note", {"path": "a.md", "content": "# A\n"})
            await assistant.call_tool("read_note", {"path": "a.md"})
            for path in (
                "/mail",
                f"/mail/{mail.id}",
                "/notes",
                "/notes/note?path=a.md",
                "/agents",
                "/timeline",
            ):
                await person.reads(path)
            orchestrator = Orchestrator(desk)
            await orchestrator.once()
            cards, _ = await desk.waiting.cards()
            assert {card.kind for card in cards} == {"send_email", "reply_email", "draft"}
            for card in cards:
                one = f"/approvals/{card.id}"
                for path in (
                    one,
                    f"{one}/edit",
                    f"/waiting?open={card.id}",
                    f"/approvals/batch?card={card.id}",
                ):
                    assert (await person.reads(path)).status_code == 200
                edited = {
                    "digest": card.digest,
                    "to": LETTER["to"],
                    "subject": "Other",
                    "body": f"{card.body}\nmore",
                }
                assert (
                    await person.sends(f"{one}/edit", edited, at=one)
                ).status_code == 303
            await orchestrator.close()
            clock.pass_by(minutes=1)
            assert len(await desk.gate.release_due()) == len(cards)
    await desk.close_mailbox()
    desk.close()
    assert seen <= OUR_OWN


@requirement("page:unstalled")
@pytest.mark.anyio
async def test_a_mail_is_found_whatever_its_sender_calls_itself(office: Office) -> None:
    desk = Desk(load(office.home.environment).settings, Clock())
    assert isinstance(desk.mailbox, LocalMailbox)
    names = ['"' + "(" * 5_000, "<" * 90_000, '"a, b" <eve@example.org>']
    mails = [f"From: {name}\r\nSubject: odd\r\n\r\nHi.\r\n" for name in names]
    await desk.mailbox.receive([Incoming(mail.encode(), seen=False) for mail in mails])
    async with Client(desk_server(desk)) as assistant:
        found = await assistant.call_tool("search_email", {"query": "subject:odd"})

    assert found.structured_content is not None, found.content
    senders = [mail["from_address"] for mail in found.structured_content["emails"]]
    assert sorted(map(len, senders)) == [15, 320, 320]
    assert "eve@example.org" in senders
    await desk.close_mailbox()
    desk.close()


@requirement("page:unstalled")
@pytest.mark.anyio
@pytest.mark.parametrize("piece", ["a,", "a@\u00e9\u4e00.cc,"])
async def test_a_mail_that_names_everybody_everywhere_is_answered_off_the_loop(
    office: Office, piece: str
) -> None:
    desk = Desk(load(office.home.environment).settings, Clock())
    assert isinstance(desk.mailbox, LocalMailbox)
    named = piece * (99_000 // len(piece.encode()))
    fields = ("To", "Cc", "Reply-To")
    head = "".join(f"{field}: {named}\r\n" for field in fields)
    raw = f"From: {named} eve@example.org\r\nSubject: odd\r\n{head}\r\nHi.\r\n"
    await desk.mailbox.receive([Incoming(raw.encode(), seen=False)])
    (mail,) = await desk.mailbox.search("", 5)
    answer = {"thread_id": mail.thread_id, "message_id": mail.id, "body": "Yes.\n"}
    async with (
        served(site(desk)) as address,
        signed_in(desk, address) as person,
        Client(desk_server(desk)) as assistant,
    ):
        await assistant.call_tool("search_email", {"query": "nothing"})
        orchestrator = Orchestrator(desk)
        begun = time.thread_time()
        await assistant.call_tool("reply_email", answer)
        await assistant.call_tool("reply_email", answer | {"all": True})
        await orchestrator.once()
        decide = await person.reads("/decide")
        spent = time.thread_time() - begun
        await orchestrator.close()

    assert decide.status_code == 200
    assert spent < 1
    await desk.close_mailbox()
    desk.close()
