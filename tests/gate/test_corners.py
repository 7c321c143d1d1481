"""Corners that only odd days reach: no vault, a sender without an address, files whose request is over."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import Changed
from deskhand.gate import NotApproved, ledger
from deskhand.gate.actions import SendEmail
from deskhand.gate.requests import Request
from deskhand.servers.obsidian import obsidian_server
from tests.gate.site import HELLO, Site
from tests.mail.letters import letter
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture
async def desk(site: Site) -> AsyncIterator[Desk]:
    made = site.desk()
    yield made
    await made.close_mailbox()
    made.close()


async def ask(desk: Desk, client: str | None = None, **changes: str) -> Request:
    """An assistant proposes a mail; its request."""
    outcome = await desk.gate.propose(SendEmail(**HELLO | changes), "email_mcp", client=client)
    assert isinstance(outcome, NotApproved)
    (found, *_), _ = await desk.waiting.requests()
    return found


@requirement("orchestrator:no-vault")
async def test_a_desk_without_a_vault_shows_a_request_and_has_no_files_to_name(site: Site) -> None:
    environment = {name: value for name, value in site.home.environment.items() if name != "VAULT_PATH"}
    desk = Desk(load(environment).settings, site.clock)
    request = await ask(desk)
    assert "see you at ten" in desk.door.show(request)
    assert await desk.door.find_idle() == []
    await desk.door.write_edit(request, request.action)
    await desk.close_mailbox()
    desk.close()


@requirement("gate:recorded")
async def test_a_sender_without_an_address_is_named_as_far_as_there_is_one(site: Site, desk: Desk) -> None:
    original = site.gmail.account.deliver(letter(sender="Undisclosed", message_id="<u@example.org>"))
    request = await ask(desk, client="codex", reply_to_message_id=original.id)
    assert request.sender == "undisclosed"
    assert site.log()[-1]["parameters"]["client"] == "codex"


@requirement("gate:unknown")
async def test_what_the_page_and_doctor_ask_of_the_ledger(site: Site, desk: Desk) -> None:
    original = site.gmail.account.deliver(letter(message_id="<one@example.org>"))
    request = await ask(desk, reply_to_message_id=original.id)
    began = site.clock()
    site.clock.pass_by(minutes=5)
    assert await desk.store.read(ledger.answering, original.id) == [request.id]
    assert await desk.store.read(ledger.count_unfinished, site.clock()) == (0, 0)
    await desk.answers.reject(request.id, request.digest, None, "person")
    assert await desk.store.read(ledger.waits_of, began, 10) == [timedelta(minutes=5)]


@requirement("gate:named")
async def test_a_copy_in_approved_and_the_file_of_what_expired_are_named(site: Site, desk: Desk) -> None:
    request = await ask(desk)
    text = site.pending().read_text()
    approved = site.approve()
    await desk.door.hear_all()
    (site.home.vault / "Approved" / "copy.md").write_text(text)
    (idle,) = await desk.door.find_idle()
    assert (idle.path, idle.why) == ("Approved/copy.md", f"what counts for {request.id} is Approved/{approved.name}")

    site.clock.pass_by(days=8)
    assert (await desk.gate.find(request.id)).state == "expired"
    assert [each.why for each in await desk.door.find_idle()] == ["its request is expired"]

    site.write()
    (written,), _ = await desk.door.find_hand_written(request.action)
    (site.home.vault / "Approved" / written.name).unlink()
    with pytest.raises(Changed, match="is gone"):
        desk.door.demand_unchanged(written)

    for file in site.files("Approved"):
        file.unlink()
    (site.home.vault / "Approved").rmdir()
    (site.home.vault / "Approved").write_text("a file")
    (idle,) = await desk.door.find_idle()
    assert idle.why.startswith("it cannot be read now")


@requirement("gate:hand-written")
async def test_a_broken_note_that_a_tool_moves_is_nobodys_word(site: Site, desk: Desk) -> None:
    (site.home.vault / "broken.md").write_text("---\nto: [\n---\n")
    async with Client(obsidian_server(desk)) as client:
        move = {"source": "broken.md", "destination": "Notes/broken.md"}
        assert not (await client.call_tool("move_note", move)).is_error
    assert (site.home.vault / "Notes" / "broken.md").exists()


@requirement("gate:named")
async def test_a_draft_that_answers_no_mail_of_this_mailbox_is_named_with_that_reason(site: Site, desk: Desk) -> None:
    answer = {"to": HELLO["to"], "subject": "Re x", "reply_to_message_id": "18d5nothere"}
    lines = [f"{name}: {value}" for name, value in answer.items()]
    (site.home.vault / "Approved").mkdir()
    (site.home.vault / "Approved" / "mine.md").write_text("\n".join(["---", *lines, "---", "Yes.", ""]))
    await desk.door.hear_all()
    (idle,) = await desk.door.find_idle()

    assert idle.path == "Approved/mine.md"
    assert idle.why == "mail 18d5nothere not found; it is looked at again"


@requirement("gate:asks")
async def test_what_waits_is_shown_though_drafts_is_no_folder(site: Site, desk: Desk) -> None:
    request = await ask(desk)
    (site.home.vault / "Drafts").write_text("no folder")

    (card,), _ = await desk.waiting.cards()
    assert card.id == request.id
