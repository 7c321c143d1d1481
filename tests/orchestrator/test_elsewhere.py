"""Mails that wait and are archived or trashed elsewhere: on the page's Mail, by a tool, in another program."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mcp import Client

from deskhand import audit
from deskhand.app import Desk
from deskhand.config import load
from deskhand.mail.changes import Deed, Doing
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.notes import frontmatter
from deskhand.orchestrator import steps, watcher
from deskhand.orchestrator.elsewhere import EVERY, Elsewhere, heed
from deskhand.orchestrator.loop import Orchestrator
from deskhand.servers.desk import desk_server
from deskhand.web.site import site
from tests.mail.contract import World, gmail, imap, local
from tests.mail.letters import letter
from tests.requirements import requirement
from tests.web.person import Person, served, signed_in

pytestmark = pytest.mark.anyio
WORLDS = {"local": local, "gmail": gmail, "imap": imap}
FIRST = "<1@example.org>"


def make_mails() -> dict[str, bytes]:
    made = {
        name: letter(subject=name, message_id=f"<{name.casefold()}@example.org>")
        for name in ("Kept", "Filed", "Binned", "Late")
    }
    made["Unnamed"] = letter(subject="Unnamed")
    odd = b'<o"d(d)}{\\ OR \xfc@example.org>'
    made["Odd"] = letter(subject="Odd", message_id="<odd>").replace(b"<odd>", odd)
    long = f"<{'long' * 100}@example.org>"
    made["Long"] = letter(subject="Long", message_id=long)
    made["Offer"] = letter(subject="Offer", message_id=FIRST)
    answer = letter(subject="Re: Offer", message_id="<2@example.org>", references=FIRST)
    return made | {"Re: Offer": answer}


@dataclass
class Place:
    desk: Desk
    world: World
    person: Person

    async def deliver(self, raw: bytes) -> None:
        if isinstance(self.desk.mailbox, LocalMailbox):
            await self.desk.mailbox.receive([Incoming(raw, seen=False)])
        else:
            self.world.deliver(raw)

    async def work(self) -> None:
        orchestrator = Orchestrator(self.desk)
        await orchestrator.once()
        await orchestrator.close()

    async def list_waiting(self) -> set[str]:
        """The notes of the mails under To decide, by their subjects."""
        left = await self.desk.store.read(steps.list_left, self.desk.now(), 100)
        mails = [await self.desk.mailbox.get(step.data.message_id) for step in left]
        return {mail.summary.subject for mail in mails}

    async def find(self, subject: str) -> str:
        found = await self.desk.mailbox.search("in:anywhere", 20)
        (mail,) = [mail for mail in found if mail.subject == subject]
        return mail.id

    async def sends(self, do: Doing, subject: str) -> None:
        """As the person, on the page's Mail."""
        chosen = {"mail": await self.find(subject), "do": do, "sure": "1"}
        assert (await self.person.sends("/mail/change", chosen)).status_code == 303

    async def change(self, subject: str, do: Doing) -> None:
        """As another program would."""
        await self.desk.mailbox.change([await self.find(subject)], Deed(do))

    def notes(self, folder: str) -> dict[str, dict[str, object]]:
        """What the notes say of themselves, by the subjects of their mails."""
        found = (self.desk.settings.vault / folder).glob("*.md")
        said = [frontmatter.parse(each.read_text()).frontmatter for each in found]
        return {str(each["subject"]): each for each in said}

    async def list_told(self) -> list[str]:
        """What the record says that the desk did for these mails, the newest first."""
        entries = await self.desk.store.read(audit.entries, limit=30)
        told = [each for _, each in entries if each.action_type == "decide_mail"]
        return [str(each.parameters["done"]) for each in told]


@pytest.fixture
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    (tmp_path / "vault").mkdir()
    (tmp_path / "mail").mkdir()
    environment = {
        "DESKHAND_HOME": str(tmp_path / "home"),
        "VAULT_PATH": str(tmp_path / "vault"),
        "DESKHAND_FIRST_DAYS": "3650",
        "DESKHAND_HOLD_SECONDS": "0",
    }
    async with WORLDS[getattr(request, "param", "local")](tmp_path / "mail") as world:
        account = {key.upper(): value for key, value in world.account.items()}
        mail = {f"DESKHAND_{key}": value for key, value in account.items() if key != "KIND"}
        kind = {"DESKHAND_MAIL": account["KIND"], "DESKHAND_ADDRESS": "me@example.com"}
        desk = Desk(load(environment | mail | kind).settings)
        async with served(site(desk)) as address, signed_in(desk, address) as person:
            yield Place(desk, world, person)
        await desk.close_mailbox()
        desk.close()


@pytest.mark.parametrize("place", WORLDS, indirect=True)
@requirement("decide:elsewhere")
async def test_what_another_program_archived_or_trashed_waits_no_more(place: Place) -> None:
    mails = make_mails()
    for raw in mails.values():
        await place.deliver(raw)
    await place.work()
    everything = {*mails} - {"Offer"}
    assert await place.list_waiting() == everything
    await place.work()
    assert await place.list_waiting() == everything

    await place.change("Filed", "archive")
    await place.change("Binned", "trash")
    await place.change("Re: Offer", "archive")
    await place.work()
    rest = {"Kept", "Late", "Unnamed", "Odd", "Long", "Offer"}
    assert await place.list_waiting() == rest
    done = place.notes("Done")
    assert {name: each.get("left_inbox") for name, each in done.items()} == {
        "Filed": "archived",
        "Binned": "trashed",
        "Re: Offer": "archived",
    }
    assert sorted(await place.list_told()) == ["archived", "archived", "trashed"]
    assert place.notes("Needs_Action")["Offer"]["status"] == "needs_info"
    await place.work()
    assert len(await place.list_told()) == 3


@requirement("decide:elsewhere")
async def test_a_mailbox_is_asked_only_now_and_then_and_what_was_deleted_waits_no_more(
    place: Place,
) -> None:
    desk, real = place.desk, place.desk.now
    await place.deliver(make_mails()["Kept"])
    await place.deliver(make_mails()["Filed"])
    await place.work()
    mailbox = "local:me@example.com"
    looker = Elsewhere(desk)
    await looker.look(desk.settings.bare_account, mailbox)
    await place.change("Filed", "archive")
    await looker.look(desk.settings.bare_account, mailbox)
    assert "Filed" in await place.list_waiting()
    desk.now = lambda: real() + EVERY
    await looker.look(desk.settings.bare_account, mailbox)
    assert await place.list_waiting() == {"Kept"}

    assert isinstance(desk.mailbox, LocalMailbox)
    number = int((await place.find("Kept"))[1:], 16)
    for table, column in (("labelled", "mail"), ("raw", "id"), ("mail", "id")):
        desk.mailbox._db.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))
    desk.now = lambda: real() + 2 * EVERY
    await looker.look(desk.settings.bare_account, mailbox)
    assert await desk.store.read(steps.count_left, desk.now()) == 0
    assert place.notes("Done")["Kept"]["left_inbox"] == "deleted"


@requirement("decide:elsewhere")
async def test_a_mail_that_a_filter_had_sorted_away_before_it_waited_still_waits(
    place: Place,
) -> None:
    await place.deliver(make_mails()["Filed"])
    await watcher.look(place.desk, place.desk.settings.bare_account)
    await place.change("Filed", "archive")
    await place.work()
    await place.work()
    assert await place.list_waiting() == {"Filed"}
    await place.sends("trash", "Filed")
    assert await place.list_waiting() == set()


@requirement("decide:elsewhere")
@pytest.mark.parametrize(("do", "back"), [("archive", "unarchive"), ("trash", "untrash")])
async def test_what_is_done_with_a_mail_on_the_page_counts_at_once_and_so_does_its_undo(
    place: Place, do: Doing, back: Doing
) -> None:
    for raw in make_mails().values():
        await place.deliver(raw)
    await place.work()
    waiting = await place.list_waiting()
    notes = place.notes("Needs_Action")
    await place.sends("star", "Kept")
    assert await place.list_waiting() == waiting

    await place.sends(do, "Re: Offer")
    assert await place.list_waiting() == waiting - {"Re: Offer"} | {"Offer"}
    assert (await place.person.sends("/mail/undo")).status_code == 303
    assert await place.list_waiting() == waiting
    assert place.notes("Needs_Action") == notes | {
        "Re: Offer": notes["Re: Offer"] | {"status": "needs_info"}
    }
    assert (await place.list_told())[0] == "back"

    await place.sends(do, "Filed")
    await place.sends(back, "Filed")
    assert await place.list_waiting() == waiting
    await place.work()
    assert await place.list_waiting() == waiting


@requirement("decide:elsewhere")
async def test_what_a_tool_did_with_a_mail_counts_at_once_by_itself_or_once_it_is_approved(
    place: Place,
) -> None:
    desk = place.desk
    for raw in make_mails().values():
        await place.deliver(raw)
    await place.work()
    waiting = await place.list_waiting()
    async with Client(desk_server(desk)) as client:
        filed = {"do": "archive", "ids": [await place.find("Filed")]}
        assert not (await client.call_tool("update_emails", filed)).is_error
        assert await place.list_waiting() == waiting - {"Filed"}
        binned = {"do": "trash", "ids": [await place.find("Binned")]}
        await client.call_tool("update_emails", binned)
    assert "Binned" in await place.list_waiting()
    (card,), _ = await desk.waiting.cards()
    await desk.answers.approve_now(card.id, card.digest, "person")
    orchestrator = Orchestrator(desk)
    request = await desk.gate.take_due(desk.now())
    assert request is not None
    await orchestrator._take(request)
    await orchestrator.close()
    assert await place.list_waiting() == waiting - {"Filed", "Binned"}


@requirement("decide:undo")
@requirement("decide:elsewhere")
async def test_an_undo_brings_a_mail_back_also_where_its_absence_was_noticed_meanwhile(
    place: Place,
) -> None:
    await place.deliver(make_mails()["Filed"])
    await place.work()
    message_id = await place.find("Filed")
    await place.desk.mailbox.change([message_id], Deed("archive"))
    await place.work()
    assert await place.list_waiting() == set()
    await place.change("Filed", "unarchive")
    await heed(place.desk, [message_id, "nobody:has this"], Deed("unarchive"))
    assert await place.list_waiting() == {"Filed"}
    await heed(place.desk, [message_id], Deed("unarchive"))
    assert await place.list_waiting() == {"Filed"}
