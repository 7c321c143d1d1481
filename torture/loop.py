"""A desk with a long text at every door, and what each step of it costs the event loop's own thread.

Part of `run.py torture hostile --only megabyte`.
"""

import os
import tempfile
import time
from asyncio import events
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mcp import Client, MCPError

from deskhand.app import Desk
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.orchestrator.loop import Orchestrator
from deskhand.servers.desk import desk_server
from deskhand.web.events import state
from deskhand.web.site import site
from tests.home import Home
from tests.orchestrator.office import Office
from tests.web.person import Person, served, signed_in

TO = {"to": "ann@example.org", "subject": "question"}


class LoopTimes:
    """The longest that anything kept the loop's thread, by what the desk was doing."""

    def __init__(self) -> None:
        self.step = "start"
        self.longest: dict[str, float] = {}

    @contextmanager
    def measure(self) -> Iterator[None]:
        whole = events.Handle._run  # noqa: SLF001 - where alone one callback can be measured

        def run(handle: events.Handle) -> None:
            start = time.thread_time()
            whole(handle)
            cost = time.thread_time() - start
            self.longest[self.step] = max(cost, self.longest.get(self.step, 0.0))

        events.Handle._run = run  # type: ignore[method-assign]  # noqa: SLF001
        try:
            yield
        finally:
            events.Handle._run = whole  # type: ignore[method-assign]  # noqa: SLF001


async def walk(text: str) -> dict[str, float]:
    """Let an assistant, a stranger and the person bring the text in by every door; the longest seconds of each step."""
    times = LoopTimes()
    with tempfile.TemporaryDirectory() as place:
        office = _office(Path(place))
        desk = office.desk(DESKHAND_HOLD_SECONDS="1", DESKHAND_MAX_SENDS="1000")
        async with (
            served(site(desk)) as address,
            signed_in(desk, address) as person,
            Client(desk_server(desk)) as assistant,
        ):
            with times.measure():
                await _propose(assistant, times, text)
                await _answer(desk, person, times)
                await _receive(desk, person, assistant, times, text)
                await _write(person, assistant, times, text)
                await _edit_files(office, desk, times, text)
        await desk.close_mailbox()
        desk.close()
    return times.longest


def _office(place: Path) -> Office:
    vault = place / "vault"
    vault.mkdir()
    inherited = {name: os.environ[name] for name in ("PATH", "HOME")}
    own = {
        "DESKHAND_HOME": f"{place}/home",
        "VAULT_PATH": str(vault),
        "TZ": "UTC",
        "DESKHAND_USER": "ann",
    }
    mail = {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_FIRST_DAYS": "3650"}
    return Office(Home(vault, inherited | own | mail | {"SERVICE_AUTH_TOKEN": "a-token"}))


async def _call(assistant: Client, times: LoopTimes, name: str, **given: object) -> None:
    times.step = name
    with suppress(MCPError):
        await assistant.call_tool(name, given)


async def _propose(assistant: Client, times: LoopTimes, text: str) -> None:
    await _call(assistant, times, "send_email", **TO, body=text)
    await _call(assistant, times, "send_email", **TO, body=f"<html>{text}")
    await _call(assistant, times, "draft_email", **TO, body=text)


async def _answer(desk: Desk, person: Person, times: LoopTimes) -> None:
    times.step = "the list of what waits"
    cards, _ = await desk.waiting.cards()
    await state(desk)
    for card in cards:
        one = f"/approvals/{card.id}"
        for path in (
            "/",
            f"/waiting?open={card.id}",
            one,
            f"{one}/edit",
            f"/approvals/batch?card={card.id}",
        ):
            times.step = f"GET {path.replace(card.id, 'ID')}"
            await person.reads(path)
        times.step = "POST /approvals/ID/edit"
        edited = {
            "digest": card.digest,
            "to": TO["to"],
            "subject": "Other",
            "body": f"{card.body}\nmore",
        }
        await person.sends(f"{one}/edit", edited, at=one)
    times.step = "a send"
    for card in cards:
        with suppress(Exception):
            await desk.gate.release(card.id, "desk")


async def _receive(
    desk: Desk, person: Person, assistant: Client, times: LoopTimes, text: str
) -> None:
    raw = text.encode("utf-8", "replace")
    head = b"From: a@example.org\nTo: me@example.com\nSubject: a question\n"
    forms = (
        b"\n",
        b"Content-Type: text/html; charset=utf-8\n\n",
        b"References: ",
        b"Reply-To: ",
        b"X: ",
    )
    times.step = "mail that arrives"
    assert isinstance(desk.mailbox, LocalMailbox)
    await desk.mailbox.receive(
        [Incoming(head + form + raw + b"\n\nx", seen=False) for form in forms]
    )
    for mail in await desk.mailbox.search("", 10):
        times.step = "GET /mail/ID"
        await person.reads(f"/mail/{mail.id}")
        await _call(assistant, times, "get_email", message_id=mail.id)
        await _call(
            assistant,
            times,
            "reply_email",
            thread_id=mail.thread_id,
            message_id=mail.id,
            body=text,
        )
    await _call(assistant, times, "search_email", query=text)
    times.step = "the orchestrator"
    orchestrator = Orchestrator(desk)
    await orchestrator.once()
    await orchestrator.close()


async def _write(person: Person, assistant: Client, times: LoopTimes, text: str) -> None:
    await _call(
        assistant, times, "write_note", path="a.md", frontmatter={"a": "b"}, body=text
    )
    await _call(
        assistant, times, "write_note", path="b.md", frontmatter={"a": text}, body="x"
    )
    await _call(assistant, times, "read_note", path="a.md")
    await _call(assistant, times, "search_notes", query=text)
    await _call(assistant, times, "create_task", title=text)
    await _call(assistant, times, "create_task", title="t", description=text)
    await _call(assistant, times, "send_to_agent", recipient="person", message=text)
    for path in (
        "/mail",
        "/notes",
        "/notes/note?path=a.md",
        "/notes?q=a",
        "/tasks",
        "/agents",
        "/timeline",
    ):
        times.step = f"GET {path}"
        await person.reads(path)


async def _edit_files(office: Office, desk: Desk, times: LoopTimes, text: str) -> None:
    times.step = "files that the person edits and moves"
    for folder in ("Drafts", "Pending_Approval"):
        for file in office.files(folder):
            file.write_text(f"{file.read_text()}{text}\n", errors="replace")
            office.move(file, "Approved")
    await desk.door.hear_all()
    await desk.waiting.cards(limit=100)
