"""A new mail that the person writes on the page: it becomes a draft and leaves after their yes, as it was written."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deskhand import audit
from deskhand.app import Desk
from deskhand.config import load
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.orchestrator.loop import Orchestrator
from deskhand.web.site import site
from tests.mail.letters import letter
from tests.requirements import requirement
from tests.web.browser import (
    PHONE,
    chromium,
    judged,
    measure_excess,
    needs_axe,
    needs_chromium,
    quiet_page,
    sign_in,
)
from tests.web.person import Person, served, signed_in

pytestmark = pytest.mark.anyio
PLACE = "/mail/write"


@dataclass
class Room:
    desk: Desk
    address: str
    person: Person

    async def write(self, **fields: str) -> str:
        """Where it leads, or the page that says why it leads nowhere."""
        answer = await self.person.sends(PLACE, fields)
        if answer.status_code == 303:
            return str(answer.headers["location"])
        assert answer.status_code == 422, answer.text
        return answer.text

    async def read(self, path: str) -> str:
        answer = await self.person.reads(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def work(self) -> None:
        orchestrator = Orchestrator(self.desk)
        await orchestrator.once()
        await orchestrator.close()


async def open_room(home: Path, **more: str) -> AsyncIterator[Room]:
    (home / "vault").mkdir(parents=True)
    environment = {
        "DESKHAND_HOME": str(home),
        "VAULT_PATH": str(home / "vault"),
        "DESKHAND_HOLD_SECONDS": "0",
    }
    desk = Desk(load(environment | more).settings)
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        yield Room(desk, address, person)
    await desk.close_mailbox()
    desk.close()


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async for each in open_room(tmp_path / "home", DESKHAND_ADDRESS="me@example.com"):
        yield each


@pytest.fixture
async def several(tmp_path: Path) -> AsyncIterator[Room]:
    home = tmp_path / "home"
    home.mkdir()
    tables = [
        f'[[mail.accounts]]\nname = "{name}"\nkind = "local"\naddress = "{name}@example.com"'
        for name in ("home", "work")
    ]
    tables[1] += '\nsignature = "Kim, Works Ltd"'
    (home / "config.toml").write_text("\n".join(tables))
    async for each in open_room(home):
        yield each


@requirement("page:write")
async def test_a_new_mail_becomes_a_draft_and_leaves_once_after_the_yes_as_it_was_written(
    room: Room,
) -> None:
    desk = room.desk
    assert 'href="/mail/write"' in await room.read("/mail")
    draft = await room.write(
        to="Ann Oak <ann@example.org>, bob@example.net",
        cc="Cy <cy@example.org>",
        bcc="dee@example.org; ann@example.org",
        subject="Oak boards",
        body="Dear Ann,\r\n\r\nforty, please.\r\nKim",
    )
    assert re.fullmatch(r"/approvals/draft-[0-9a-f]{16}", draft)
    card = await room.read(draft)
    for shown in ("ann@example.org", "bob@example.net", "cy@example.org", "Oak boards"):
        assert shown in card
    assert "Dear Ann,\n\nforty, please.\nKim" in card
    assert "<dt>Asked by</dt><dd><bdi>you</bdi></dd>" in card
    assert "unverified" not in card

    await room.work()
    assert await desk.mailbox.search("in:sent", 5) == []
    request = await desk.waiting.find(draft.removeprefix("/approvals/"))
    mail = request.action
    assert (request.state, request.origin, mail.account) == (
        "waiting",
        "draft",
        "me@example.com",
    )
    assert (mail.to, mail.cc, mail.bcc) == (
        "ann@example.org, bob@example.net",
        "cy@example.org",
        "dee@example.org",
    )
    assert (desk.own_root / "Drafts" / request.file).is_file()
    (_, entry) = (await desk.store.read(lambda tx: audit.entries(tx, limit=1)))[0]
    assert (entry.action_type, entry.actor) == ("write_mail", "person")

    answer = await room.person.sends(
        f"{draft}/approve", {"digest": request.digest}, at=draft
    )
    assert answer.status_code == 303
    await room.work()
    (sent,) = await desk.mailbox.search("in:sent", 5)
    assert (await desk.waiting.find(request.id)).state == "sent"
    assert sent.subject == "Oak boards"
    found = await desk.mailbox.get(sent.id)
    assert found.body.strip() == "Dear Ann,\n\nforty, please.\nKim"
    assert "ann@example.org" in await room.read(PLACE)  # offered the next time


@requirement("page:write")
async def test_what_cannot_be_sent_is_refused_with_its_field_and_every_word_stays(
    room: Room,
) -> None:
    typed = {"cc": "cy@example.org", "subject": "Boards", "body": "Forty, please."}
    for wrong, said in (
        ({"to": "ann at example.org"}, "is not one bare address"),
        ({"to": " "}, "Nobody is named who gets it."),
        ({"to": "ann@example.org", "bcc": "dee"}, "“dee” is not one bare address"),
        (
            {"to": "Ann <ann@example.org> Bob <bob@example.net>"},
            "“ann@example.org” would not get it",
        ),
        (
            {"to": "ann@example.org, (bob@example.net, cy@example.org"},
            "“bob@example.net” would not get it",
        ),
        ({"to": "ann@example.org", "body": " "}, "The body is empty"),
        ({"to": "ann@example.org", "subject": "a\nb"}, "must be one line"),
        ({"to": "ann@example.org", "account": "nobody"}, "no mail account nobody"),
    ):
        shown = await room.write(**(typed | wrong))
        assert said in shown
        assert 'value="cy@example.org"' in shown
        assert (typed | wrong)["body"].strip() in shown
    assert (await room.desk.waiting.counts()).waiting == 0


@requirement("page:write")
async def test_a_form_that_is_sent_twice_makes_one_draft_and_other_words_another(
    room: Room,
) -> None:
    (form,) = re.findall(r'name="form" value="(\w+)"', await room.read(PLACE))
    fields = {"form": form, "to": "ann@example.org", "subject": "Boards", "body": "Forty."}
    first = await room.write(**fields)
    assert await room.write(**fields) == first
    assert await room.write(**(fields | {"body": "Fifty."})) != first
    assert (await room.desk.waiting.counts()).waiting == 2


@requirement("page:write")
async def test_of_several_accounts_the_person_chooses_and_the_draft_has_its_signature(
    several: Room,
) -> None:
    offered = await several.read(f"{PLACE}?account=work")
    assert '<option value="home">home (home@example.com)</option>' in offered
    assert '<option value="work" selected>work (work@example.com)</option>' in offered
    fields = {"to": "ann@example.org", "subject": "Boards", "body": "Forty."}
    for account, body in (
        ("work", "Forty.\n\n-- \nKim, Works Ltd\n"),
        ("home", "Forty.\n"),
    ):
        draft = await several.write(account=account, **fields)
        mail = (await several.desk.waiting.find(draft[11:])).action
        assert (mail.account, mail.body) == (f"{account}@example.com", body)


@needs_chromium
@requirement("page:accessible")
@pytest.mark.parametrize("width", [390, 360, 320])
async def test_with_several_accounts_mail_is_no_wider_than_a_phone(
    several: Room, width: int
) -> None:
    async with (
        chromium() as browser,
        quiet_page(browser, several.address, size=(width, 844)) as page,
    ):
        await sign_in(page, several.desk)
        await page.goto("/mail")
        assert await measure_excess(page) == 0
        button = await page.get_by_role("button", name="Search").bounding_box()
        field = await page.get_by_role("searchbox").bounding_box()
        assert button
        assert field
        assert button["x"] + button["width"] <= width - 12
        assert field["width"] > width / 2


@needs_chromium
@needs_axe
@requirement("page:write")
@requirement("page:accessible")
@requirement("page:keys")
async def test_by_keyboard_a_mail_is_written_from_any_page_and_axe_finds_nothing(
    room: Room,
) -> None:
    mailbox = room.desk.mailbox
    assert isinstance(mailbox, LocalMailbox)
    await mailbox.receive([Incoming(letter(), seen=False)])
    async with chromium() as browser, quiet_page(browser, room.address) as page:
        await sign_in(page, room.desk)
        await page.goto("/mail")
        assert await judged(page) == []
        await page.keyboard.press("Control+k")
        await page.keyboard.type("write a")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Write a mail").wait_for()
        await page.goto("/timeline")
        await page.wait_for_load_state()
        await page.keyboard.press("c")
        await page.get_by_role("heading", name="Write a mail").wait_for()
        assert await judged(page) == []
        await page.get_by_label("To; several").focus()
        await page.keyboard.type("ccc@example.org")
        await page.get_by_text("Copies (Cc, Bcc)").click()
        assert await judged(page) == []
        await page.get_by_label("Subject").fill("Boards")
        await page.get_by_label("Text").fill("Forty.")
        await page.get_by_role("button", name="Make the draft").click()
        await page.get_by_role("heading", name="Boards").wait_for()
        assert await judged(page) == []


@needs_chromium
@requirement("page:write")
async def test_without_javascript_and_on_a_phone_a_mail_is_written(room: Room) -> None:
    async with (
        chromium() as browser,
        quiet_page(browser, room.address, javascript=False, size=PHONE) as page,
    ):
        await sign_in(page, room.desk)
        await page.goto("/mail")
        await page.get_by_role("link", name="Write a mail").click()
        await page.get_by_label("To; several").fill("ann@example.org")
        await page.get_by_label("Subject").fill("Boards")
        await page.get_by_label("Text").fill("Forty.")
        assert await measure_excess(page) == 0
        await page.get_by_role("button", name="Make the draft").click()
        await page.get_by_role("button", name="Approve").wait_for()
