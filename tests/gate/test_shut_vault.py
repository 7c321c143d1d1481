"""A vault that the desk cannot read or write just now: what the person answers elsewhere counts all the same."""

import fcntl
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from mcp import Client

from deskhand.errors import Changed, DeskError, InvalidInput
from deskhand.gate.cards import Card
from deskhand.gate.letters import Letter
from deskhand.servers.desk import desk_server
from deskhand.web.site import site as web_site
from tests.gate.safe_desk import PASSWORD, RIGHT, SafeDesk, open_safe
from tests.gate.site import HELLO
from tests.home import Home
from tests.requirements import requirement
from tests.web.person import served, signed_in

pytestmark = pytest.mark.anyio

Shut = Callable[[Path], AbstractContextManager[None]]
DRAFT = "---\ntype: email_draft\ndraft_id: draft-mine\nto: bob@example.org\nsubject: Tea\n---\nAt four?\n"


@contextmanager
def leased(file: Path) -> Iterator[None]:
    """Whoever opens the file waits until the lease is given back."""
    opened = os.open(file, os.O_RDWR)
    try:
        fcntl.fcntl(opened, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(opened, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield
    finally:
        os.close(opened)


@contextmanager
def put_aside(place: Path) -> Iterator[Path]:
    aside = place.with_name(f"{place.name}-aside")
    place.rename(aside)
    try:
        yield aside
    finally:
        place.unlink()
        aside.rename(place)


@contextmanager
def lease_requests(vault: Path) -> Iterator[None]:
    (file,) = [
        each for name in ("Pending_Approval", "Drafts") for each in (vault / name).glob("*")
    ]
    with leased(file):
        yield


@contextmanager
def link_folders(vault: Path) -> Iterator[None]:
    with (
        put_aside(vault / "Pending_Approval") as pending,
        put_aside(vault / "Drafts") as drafts,
    ):
        (vault / "Pending_Approval").symlink_to(pending)
        (vault / "Drafts").symlink_to(drafts)
        yield


@contextmanager
def pipe_in_place_of_folders(vault: Path) -> Iterator[None]:
    with put_aside(vault / "Pending_Approval"), put_aside(vault / "Drafts"):
        os.mkfifo(vault / "Pending_Approval")
        os.mkfifo(vault / "Drafts")
        yield


@contextmanager
def file_in_place_of_vault(vault: Path) -> Iterator[None]:
    with put_aside(vault):
        vault.write_text("no folder\n")
        yield


@contextmanager
def name_files_in_no_text(vault: Path) -> Iterator[None]:
    """Names that are no UTF-8, as a program on the account may choose them."""
    files = [
        vault / folder / os.fsdecode(name)
        for folder in ("Pending_Approval", "Drafts", "Approved", "Rejected")
        for name in (b"\xff\xfe.md", b"\xff.txt")
    ]
    for file in files:
        file.write_text(DRAFT)
    yield
    for file in files:
        file.unlink()


WAYS = (
    lease_requests,
    name_files_in_no_text,
    link_folders,
    pipe_in_place_of_folders,
    file_in_place_of_vault,
)


class Shuttable(SafeDesk):
    async def ask(self) -> Card:
        assert (await self.send()).startswith("Rejected:")
        return await self.only_card()

    async def draft(self) -> Card:
        (self.home.vault / "Drafts" / "mine.md").write_text(DRAFT)
        return await self.only_card()

    async def only_card(self) -> Card:
        ((card,), _) = await self.desk.waiting.cards()
        return card

    async def release(self) -> list[str]:
        """Let the hold end; the texts of what has left."""
        self.clock.pass_by(seconds=20)
        await self.desk.gate.release_due()
        found = await self.desk.mailbox.search("in:sent", 200)
        return [(await self.desk.mailbox.get(mail.id)).body for mail in found]


@pytest.fixture
async def safe(home: Home) -> AsyncIterator[Shuttable]:
    async with open_safe(Shuttable, home) as made:
        for name in ("Pending_Approval", "Drafts", "Approved", "Rejected", "Logs"):
            (home.vault / name).mkdir(exist_ok=True)
        yield made


@requirement("proof:shut-vault")
async def test_the_pages_yes_counts_while_the_request_s_file_is_leased(
    safe: Shuttable,
) -> None:
    card = await safe.ask()
    async with (
        served(web_site(safe.desk)) as address,
        signed_in(safe.desk, address) as person,
    ):
        with lease_requests(safe.home.vault):
            fields = {"digest": card.digest, "password": PASSWORD}
            answer = await person.sends(f"/approvals/{card.id}/approve", fields)
            assert answer.status_code == 303, answer.text
            assert await safe.release() == [HELLO["body"]]


@requirement("proof:shut-vault")
@pytest.mark.parametrize("shut", WAYS)
async def test_every_answer_counts_while_the_vault_is_shut(
    safe: Shuttable, shut: Shut
) -> None:
    card = await safe.ask()
    answers = safe.desk.answers
    with shut(safe.home.vault):
        await answers.approve(card.id, card.digest, "person", RIGHT)
        await answers.undo(card.id, "person", RIGHT)
        later = safe.clock().replace(hour=20)
        assert (await answers.snooze(card.id, later, "person", RIGHT)).state == "snoozed"
        await answers.wake(card.id, "person", RIGHT)
        assert (
            await answers.reject(card.id, card.digest, "no", "person", RIGHT)
        ).state == "rejected"
        last = await answers.last()
        assert last is not None
        await answers.undo_last(round(last.at.timestamp() * 1000), "person", RIGHT)
        words = Letter(HELLO["to"], "Notes", "At eleven.\n")
        edited = await answers.edit(card.id, card.digest, words, "person", RIGHT)
        await answers.approve_now(card.id, edited.digest, "person", RIGHT)
        assert await safe.release() == ["At eleven.\n"]


@requirement("proof:shut-vault")
@pytest.mark.parametrize("shut", WAYS)
async def test_a_draft_is_edited_and_leaves_while_the_vault_is_shut(
    safe: Shuttable, shut: Shut
) -> None:
    card = await safe.draft()
    with shut(safe.home.vault):
        words = Letter("bob@example.org", "Tea", "At five?\n")
        await safe.desk.answers.approve_edited(card.id, card.digest, words, "person", RIGHT)
        with suppress(DeskError):  # that the vault is shut is said when all is done
            await safe.settle()
        assert await safe.release() == ["At five?\n"]


@requirement("proof:shut-vault")
@pytest.mark.parametrize("shut", WAYS[2:])
async def test_what_is_asked_while_the_vault_is_shut_waits_on_the_page(
    safe: Shuttable, shut: Shut
) -> None:
    with shut(safe.home.vault):
        assert "the request waits in the person's inbox as" in await safe.send()
        card = await safe.only_card()
        await safe.desk.answers.approve(card.id, card.digest, "person", RIGHT)
        assert await safe.release() == [HELLO["body"]]


@requirement("proof:shut-vault")
async def test_a_copy_in_done_takes_no_yes_back_where_files_are_no_answers(
    safe: Shuttable,
) -> None:
    card = await safe.ask()
    await safe.desk.answers.approve(card.id, card.digest, "person", RIGHT)
    (file,) = (safe.home.vault / "Pending_Approval").glob("*.md")
    done = safe.home.vault / "Done"
    done.mkdir(exist_ok=True)
    text = file.read_text().replace("status: pending_approval", "status: done")
    (done / file.name).write_text(text)
    assert (await safe.desk.waiting.card(card.id)).state == "held"
    assert await safe.release() == [HELLO["body"]]


@requirement("proof:shut-vault")
async def test_one_file_that_cannot_be_read_hides_no_other(safe: Shuttable) -> None:
    await safe.ask()
    approved = safe.home.vault / "Approved"
    stray = approved / "a stray.md"
    stray.write_text("---\ntype: email_draft\n---\nx\n")
    (file,) = (safe.home.vault / "Pending_Approval").glob("*.md")
    file.rename(approved / "z renamed.md")
    with leased(stray):
        await safe.desk.door.hear_all()
        idle = {each.path: each.why for each in await safe.desk.door.find_idle()}
    assert "cannot be read now" in idle["Approved/a stray.md"]
    assert "a file alone is no yes" in idle["Approved/z renamed.md"]


@requirement("proof:shut-vault")
async def test_a_hand_written_yes_that_cannot_be_read_any_more_is_none(
    safe: Shuttable,
) -> None:
    file = safe.home.vault / "Approved" / "mine.md"
    file.write_text("---\ntype: email_send\n---\n")
    found = safe.desk.door.folders.read("Approved", file.name)
    assert found is not None
    with leased(file), pytest.raises(Changed, match="cannot be read now"):
        safe.desk.door.demand_unchanged(found)


@requirement("proof:shut-vault")
async def test_an_edit_that_leaves_no_mail_is_refused_before_its_file_is_written(
    safe: Shuttable,
) -> None:
    card = await safe.draft()
    empty = Letter("bob@example.org", "Tea", " \n")
    with pytest.raises(InvalidInput, match="body"):
        await safe.desk.answers.edit(card.id, card.digest, empty, "person", RIGHT)
    request = await safe.desk.gate.find(card.id)
    with pytest.raises(InvalidInput, match="body"):
        await safe.desk.door.write_edit(
            request, request.action.model_copy(update={"body": ""})
        )
    assert (safe.home.vault / "Drafts" / "mine.md").read_text() == DRAFT


@requirement("proof:shut-vault")
async def test_a_file_whose_name_is_no_text_stops_no_part_of_the_desk(
    safe: Shuttable,
) -> None:
    card = await safe.ask()
    with name_files_in_no_text(safe.home.vault):
        await safe.desk.door.hear_all()
        assert (await safe.only_card()).id == card.id
        idle = {each.path for each in await safe.desk.door.find_idle()}
    assert idle == {"Approved/??.md", "Approved/?.txt"}


@requirement("proof:shut-vault")
@pytest.mark.parametrize("kind", ["pipe", "lease", "link", "sparse"])
async def test_no_log_file_in_the_vault_holds_a_mail_up(safe: Shuttable, kind: str) -> None:
    """Also a draft's, before which a line goes into the vault."""
    card = await safe.draft()
    logs = safe.home.vault / "Logs"
    (logs / "actions").mkdir(exist_ok=True)
    day = f"{safe.clock():%Y-%m-%d}"
    places = [logs / "actions" / f"{day}.json", logs / f"gmail_mcp_{day}.jsonl"]
    opened: list[int] = []
    for place in places:
        place.unlink(missing_ok=True)
        match kind:
            case "pipe":
                os.mkfifo(place)
                # Filled: whoever writes into it would wait for ever.
                end = os.open(place, os.O_RDWR | os.O_NONBLOCK)
                opened.append(end)
                os.write(end, bytes(65536))
            case "lease":
                place.write_text("{}\n")
                opened.append(os.open(place, os.O_RDWR))
                fcntl.fcntl(opened[-1], fcntl.F_SETSIG, signal.SIGURG)
                fcntl.fcntl(opened[-1], fcntl.F_SETLEASE, fcntl.F_WRLCK)
            case "link":
                place.symlink_to(logs / "elsewhere")
            case "sparse":
                os.truncate(os.open(place, os.O_WRONLY | os.O_CREAT), 1 << 40)
    with anyio.fail_after(10):
        await safe.desk.answers.approve(card.id, card.digest, "person", RIGHT)
        assert await safe.release() == ["At four?\n"]
    for each in opened:
        os.close(each)
    assert not (logs / "elsewhere").exists()


@requirement("proof:shut-vault")
@pytest.mark.parametrize("change", ["swapped", "gone"])
async def test_the_bytes_on_the_card_leave_whatever_becomes_of_the_file_after_the_yes(
    safe: Shuttable, change: str
) -> None:
    file = safe.home.vault / "offer.txt"
    file.write_bytes(b"100 EUR")
    async with Client(desk_server(safe.desk), mode="2026-07-28") as client:
        mail = HELLO | {"attachments": ["offer.txt"]}
        said = await client.call_tool("send_email", mail)
    assert "Waiting for the person" in said.content[0].text
    card = await safe.only_card()
    await safe.desk.answers.approve(card.id, card.digest, "person", RIGHT)
    if change == "swapped":
        file.write_bytes(b"100000 EUR")
    else:
        file.unlink()
    assert await safe.release() == [HELLO["body"]]
    (found,) = await safe.desk.mailbox.search("in:sent", 200)
    (sent,) = (await safe.desk.mailbox.get(found.id)).attachments
    assert (sent.name, sent.size) == ("offer.txt", len(b"100 EUR"))
