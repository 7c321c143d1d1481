"""The page in daily use, in a real browser: mails, tasks, notes and cards one after the other."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from html import unescape
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate.actions import SendEmail
from deskhand.gate.cards import Card
from deskhand.mail.changes import read_change
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.servers.desk import desk_server
from deskhand.web.site import site
from tests.home import Home
from tests.mail.letters import letter
from tests.requirements import requirement
from tests.web.browser import (
    PHONE,
    WIDE,
    chromium,
    judged,
    needs_axe,
    needs_chromium,
    quiet_page,
    sign_in,
)
from tests.web.person import Person, served, signed_in

if TYPE_CHECKING:
    from playwright.async_api import Page


@dataclass(frozen=True, slots=True)
class Day:
    desk: Desk
    address: str
    person: Person

    async def receive(self, *mails: bytes) -> list[str]:
        """The ids under which these mails arrive."""
        box = self.desk.mailbox
        assert isinstance(box, LocalMailbox)
        before = {each.id for each in await box.search("", 200)}
        await box.receive([Incoming(mail, seen=True) for mail in mails])
        found = [each.id for each in await box.search("", 200) if each.id not in before]
        return found[::-1]

    async def ask(self, **changes: Any) -> Card:
        """An assistant proposes a mail; its card."""
        mail = {"to": "ann@example.org", "subject": "Seeds", "body": "Dear Ann\n"}
        before = {card.id for card in (await self.desk.waiting.cards())[0]}
        await self.desk.gate.propose(SendEmail(**mail | changes), "email_mcp")
        cards, _ = await self.desk.waiting.cards()
        return next(card for card in cards if card.id not in before)

    async def labels(self, mail: str) -> tuple[str, ...]:
        return (await self.desk.mailbox.get(mail)).summary.labels

    @asynccontextmanager
    async def opened(self, path: str, **options: Any) -> "AsyncIterator[Page]":
        async with (
            chromium() as browser,
            quiet_page(browser, self.address, **options) as page,
        ):
            await sign_in(page, self.desk)
            await page.goto(path)
            yield page


@pytest.fixture
async def day(home: Home) -> AsyncIterator[Day]:
    variables = {
        "DESKHAND_ADDRESS": "me@example.com",
        "DESKHAND_HOLD_SECONDS": "600",
        "DESKHAND_USER": "ann",
    }
    desk = Desk(load(home.environment | variables).settings)
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        yield Day(desk, address, person)
    await desk.close_mailbox()
    await desk.leave_tasks()
    desk.close()


@requirement("queue:undo")
@requirement("page:keys")
@needs_chromium
async def test_the_key_u_takes_back_what_was_done_last_wherever_that_was(day: Day) -> None:
    from playwright.async_api import expect

    (mail,) = await day.receive(letter(subject="Plan of the garden"))
    card = await day.ask()
    async with day.opened("/tasks") as page:
        await expect(page.get_by_role("button", name="Undo the last change")).to_have_count(
            0
        )
        await page.get_by_role("textbox", name="New task").fill("Rake the leaves")
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.get_by_role("button", name="Done: Rake the leaves").click()
        await expect(page.get_by_text("The task is done.")).to_be_visible()
        await page.keyboard.press("u")
        await expect(page.get_by_text("Rake the leaves")).to_be_visible()
        await expect(page.get_by_role("button", name="Undo the last change")).to_have_count(
            0
        )

        await day.desk.answers.reject(card.id, card.digest, None, "person")
        await page.goto("/mail")
        await page.get_by_label("Choose Plan of the garden").check()
        await page.get_by_role("button", name="Archive").click()
        await expect(page.get_by_text("1 mail archived.")).to_be_visible()
        await expect(page.locator(".toast")).to_be_visible()

        await page.goto("/notes")
        await page.keyboard.press("u")  # its undo stands on another page
        await page.wait_for_url("**/mail")
        assert (await day.desk.waiting.card(card.id)).state == "rejected"
        await page.keyboard.press("u")
        await expect(page.get_by_text("Plan of the garden")).to_be_visible()
        assert "INBOX" in await day.labels(mail)
        assert (await day.desk.waiting.card(card.id)).state == "rejected"

        await page.keyboard.press("u")
        await expect(page.locator(".toast")).to_contain_text("Undone")
        assert (await day.desk.waiting.card(card.id)).state == "waiting"


HIDING = "<!doctype html><p>Dear Ann</p><p hidden>SECRET</p>"


@requirement("page:edit")
async def test_the_form_for_editing_says_the_risk_as_the_card_does(day: Day) -> None:
    risky = await day.ask(body=HIDING, subject="Hidden")
    calm = await day.ask()
    assert (risky.risk.level, calm.risk.level) == ("high", "medium")

    for card, button in ((risky, "<button>"), (calm, '<button class="main">')):
        form = (await day.person.reads(f"/approvals/{card.id}/edit")).text
        assert f"{card.risk.level} risk" in form
        shown = unescape(form)
        assert all(str(reason) in shown for reason in card.risk.reasons)
        assert f"{button}Approve as edited" in form
        assert ("High risk." in form) == (card is risky)


@requirement("page:changes")
@needs_chromium
@pytest.mark.parametrize("javascript", [True, False])
async def test_what_can_be_done_with_ticked_mails_is_in_view_and_fits_the_folder(
    day: Day, javascript: bool
) -> None:
    from playwright.async_api import expect

    await day.receive(*(letter(subject=f"Mail {number}") for number in range(25)))
    async with day.opened("/mail", javascript=javascript) as page:
        bar = page.get_by_role("group", name="What to do with the chosen mails")
        await expect(bar).not_to_be_in_viewport()
        for size in (WIDE, PHONE):
            await page.set_viewport_size({"width": size[0], "height": size[1]})
            await page.get_by_label("Choose Mail 24", exact=True).check()
            await expect(bar.get_by_role("button", name="Archive")).to_be_in_viewport(
                ratio=1
            )
            await expect(bar.get_by_text("Label…")).to_be_in_viewport(ratio=1)
        told = await bar.get_by_role("button").all_inner_texts()
        assert told == ["Archive", "Mark as unread", "Star", "Trash"]
        await bar.get_by_role("button", name="Archive").click()
        await expect(page.get_by_text("1 mail archived.")).to_be_visible()


@requirement("page:changes")
@requirement("queue:undo")
@needs_chromium
async def test_the_last_answer_covers_nothing_that_can_be_done_with_ticked_mails(
    day: Day,
) -> None:
    from playwright.async_api import expect

    await day.receive(*(letter(subject=f"Mail {number}") for number in range(25)))
    card = await day.ask()
    await day.desk.answers.approve(card.id, card.digest, "person")
    async with day.opened("/mail") as page:
        bar = page.get_by_role("group", name="What to do with the chosen mails")
        toast = page.locator(".toast")
        await expect(toast).to_be_visible()
        await page.get_by_label("Choose Mail 24", exact=True).check()
        for width, height in (WIDE, PHONE):
            await page.set_viewport_size({"width": width, "height": height})
            (above, below) = [await each.bounding_box() for each in (bar, toast)]
            assert above
            assert below
            assert above["y"] + above["height"] <= below["y"], (width, height)
        await page.get_by_label("Choose Mail 24", exact=True).uncheck()
        await page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        (last, below) = [
            await each.bounding_box() for each in (page.locator(".bulk"), toast)
        ]
        assert last
        assert below
        assert last["y"] + last["height"] <= below["y"]


@requirement("queue:undo")
@requirement("page:accessible")
@needs_chromium
async def test_what_was_undone_elsewhere_lies_over_no_answer_that_can_be_undone_next(
    day: Day,
) -> None:
    await day.receive(*(letter(subject=f"Mail {number}") for number in range(25)))
    for number in range(3):
        card = await day.ask(subject=f"Seeds {number}")
        if number == 0:
            await day.desk.answers.approve(card.id, card.digest, "person")
        else:
            await day.desk.answers.reject(card.id, card.digest, None, "person")
    async with day.opened("/mail") as page:
        for width, height in (WIDE, PHONE):
            await page.set_viewport_size({"width": width, "height": height})
            await page.goto("/mail")
            await page.get_by_label("Choose Mail 24", exact=True).check()
            await page.keyboard.press("u")
            found = await (await page.wait_for_function(STACKED)).json_value()
            assert found == sorted(found), (width, height)


STACKED = """() => {
  const places = [".changes", "p.toast", "section.toast"].map((each) => document.querySelector(each));
  return places.every(Boolean) && places.flatMap((each) => {
    const { top, bottom } = each.getBoundingClientRect();
    return [top, bottom];
  });
}"""
"""Top and bottom of each, once all are there."""


@requirement("page:health")
@requirement("page:mail")
@requirement("page:accessible")
@needs_chromium
async def test_no_button_lies_over_a_time_and_an_address_on_a_phone_is_not_cut(
    day: Day,
) -> None:
    (mail,) = await day.receive(
        letter(subject="Plan", sender="Nora Lindqvist <nora@lindqvist.example>")
    )
    async with day.opened("/checkup") as page:
        for width, height in (WIDE, PHONE):
            await page.set_viewport_size({"width": width, "height": height})
            row = page.locator("[aria-labelledby=sessions] li").filter(has_text="Another")
            parts = row.locator(".when, .act button, .more")
            boxes = [await part.bounding_box() for part in await parts.all()]
            assert len(boxes) == 3
            assert not any(map(touch, boxes, (*boxes[1:], boxes[0]))), (width, height)
        await page.goto(f"/mail/{mail}")
        sender = page.locator(".facts dd bdi").first
        lines = await sender.evaluate(
            "it => [...it.getClientRects()].map(each => each.width)"
        )
        assert min(lines) > 100


def touch(one: Any, other: Any) -> bool:
    """Whether two boxes of the page share a place."""
    return bool(
        one["x"] < other["x"] + other["width"]
        and other["x"] < one["x"] + one["width"]
        and one["y"] < other["y"] + other["height"]
        and other["y"] < one["y"] + one["height"]
    )


@requirement("page:edit")
@requirement("page:accessible")
@needs_chromium
async def test_the_form_for_editing_is_as_high_as_its_fields_however_long_the_mail_beside_it(
    day: Day,
) -> None:
    (mail,) = await day.receive(letter(subject="Plan", body="A long story.\n\n" * 200))
    card = await day.ask(reply_to_message_id=mail, subject="Re: Plan")
    async with day.opened(f"/approvals/{card.id}/edit") as page:
        await page.get_by_text("A long story.").first.wait_for()
        field = await page.get_by_label("To", exact=True).bounding_box()
        button = await page.get_by_role("button", name="Approve as edited").bounding_box()
        assert field
        assert button
        assert field["height"] < 60
        assert button["y"] + button["height"] < WIDE[1]


@requirement("page:accessible")
@needs_chromium
async def test_on_a_phone_the_navigation_has_two_rows_and_the_tasks_begin_in_view(
    day: Day,
) -> None:
    from playwright.async_api import expect

    async with day.opened("/tasks", size=PHONE) as page:
        await page.get_by_role("textbox", name="New task").fill("Rake the leaves #garden")
        await page.get_by_role("button", name="Add", exact=True).click()
        task = page.get_by_role("link", name="Rake the leaves")
        await task.wait_for()
        await page.goto("/tasks")
        place = await task.bounding_box()
        assert place
        assert place["y"] < 500
        await page.get_by_text("Filter", exact=True).click()
        await page.get_by_label("Label", exact=True).fill("house")
        await page.get_by_role("button", name="Show").click()
        await expect(page.get_by_text("No task here.")).to_be_visible()
        await expect(page.get_by_label("Label", exact=True)).to_have_value("house")

        await page.evaluate(COUNT)
        rows = await page.locator(".top nav").bounding_box()
        assert rows
        assert rows["height"] < 80


COUNT = """() => document.querySelectorAll(".top .count").forEach((each) => {
  each.hidden = false;
  each.firstChild.textContent = 12;
})"""
"""Two figures in each place of the navigation that counts."""


@requirement("page:keys")
@requirement("queue:undo")
@needs_chromium
async def test_where_nothing_is_searched_the_slash_searches_everything_and_a_toast_is_read_whole(
    day: Day,
) -> None:
    from playwright.async_api import expect

    card = await day.ask(subject="Seeds for the beds behind the shed")
    await day.desk.answers.respond(card.id, card.digest, "Not yet.", "person")
    async with day.opened("/decide", size=PHONE) as page:
        said = page.locator(".toast p")
        await expect(said).to_contain_text("Seeds for the beds")
        assert await said.evaluate(
            "it => it.scrollWidth <= it.clientWidth && it.scrollHeight <= it.clientHeight"
        )
        await page.keyboard.press("/")
        await page.keyboard.type("seeds")
        await expect(page.get_by_text("Search mail for “seeds”")).to_be_visible()


@requirement("page:accessible")
@needs_chromium
async def test_on_paper_a_card_is_its_mail_on_white_without_forms(day: Day) -> None:
    from playwright.async_api import expect

    card = await day.ask()
    await day.desk.answers.approve(card.id, card.digest, "person")
    for scheme in ("light", "dark"):
        async with day.opened(f"/approvals/{card.id}", scheme=scheme) as page:
            await expect(page.get_by_text("Tell me if nobody answers")).to_be_visible()
            await page.emulate_media(media="print")
            await expect(page.locator(".letter")).to_be_visible()
            for gone in ("Tell me if nobody answers", "And from now on", "Undo"):
                await expect(page.get_by_text(gone).first).to_be_hidden()
            ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert ground == "rgb(255, 255, 255)"


@requirement("page:mail")
@requirement("page:changes")
@needs_chromium
async def test_what_is_done_with_an_open_mail_leads_back_to_it_or_to_its_list(
    day: Day,
) -> None:
    from playwright.async_api import expect

    (mail, other) = await day.receive(
        letter(subject="Plan of the garden"), letter(subject="Another")
    )
    async with day.opened("/mail?q=subject:garden", javascript=False) as page:
        await page.get_by_role("link", name="Plan of the garden").click()
        here = f"**/mail/{mail}?*"
        await page.get_by_role("button", name="Star").click()
        await page.wait_for_url(here)
        await expect(page.get_by_text("1 mail starred.")).to_be_visible()
        await page.get_by_role("button", name="Undo the last change").click()
        await page.wait_for_url(here)
        await expect(page.get_by_text("1 mail no longer starred.")).to_be_visible()
        await expect(page.get_by_role("button", name="Undo the last change")).to_have_count(
            0
        )
        assert "STARRED" not in await day.labels(mail)

        await page.get_by_role("button", name="Archive").click()
        await page.wait_for_url("**/mail?q=subject%3Agarden&done=archive&count=1")
        await page.get_by_role("button", name="Undo the last change").click()
        assert "INBOX" in await day.labels(mail)
        await page.get_by_role("link", name="Plan of the garden").click()
        await page.get_by_role("link", name="Back to the mails").click()
        await page.wait_for_url("**/mail?q=subject*")

        await page.goto(f"/mail/{other}")
        await page.get_by_role("button", name="Archive").click()
        await page.wait_for_url("**/mail?q=in%3Ainbox&done=archive&count=1")


@requirement("page:thread")
@needs_chromium
async def test_a_thread_is_answered_where_it_is_read(day: Day) -> None:
    from playwright.async_api import expect

    first = letter(subject="Garden", message_id="<one@example.org>")
    second = letter(
        subject="Re: Garden",
        sender="Bob <bob@example.org>",
        message_id="<two@example.org>",
        references="<one@example.org>",
    )
    (_, mail) = await day.receive(first, second)
    thread = (await day.desk.mailbox.get(mail)).summary.thread_id
    async with day.opened(f"/thread/{thread}", javascript=False) as page:
        await page.get_by_text("Reply", exact=True).click()
        await expect(page.get_by_text("It goes to bob@example.org")).to_be_visible()
        await page.get_by_label("Your reply").fill("In spring.")
        await page.get_by_role("button", name="Make the draft").click()
        await expect(page.get_by_role("heading", name="Re: Garden").first).to_be_visible()
    ((card,), _) = await day.desk.waiting.cards()
    assert (card.to[0].address, card.answers) == ("bob@example.org", mail)


LIST = """# Shopping

- [ ] buy seeds
- a plain item

See https://example.org/a_b?x=1&y=2, [[Plan]] and [[Nowhere]], [here](Plan.md) and [gone](Gone.md).

`https://code.example` and [https://shown.example](https://other.example/x)

> [!warning] Mind the gap
> Text.
"""


@requirement("page:obsidian")
@needs_chromium
async def test_a_note_shows_one_box_an_item_its_addresses_and_which_links_lead_nowhere(
    day: Day,
) -> None:
    vault = day.desk.settings.vault
    assert vault is not None
    (vault / "List.md").write_text(f"{LIST}\nSee ![[Plan]]\n")
    (vault / "Plan.md").write_text("# Plan\n\nDig.\n")
    async with day.opened("/notes/open?path=List.md") as page:
        note = page.locator("article.note")
        styles = await note.locator("li").evaluate_all(
            "all => all.map(it => getComputedStyle(it).listStyleType)"
        )
        assert styles == ["none", "disc"]
        outside = note.locator("a[href^=https]")
        assert await outside.all_inner_texts() == [
            "https://example.org/a_b?x=1&y=2",
            "https://shown.example",
        ]
        assert (
            await outside.first.get_attribute("href") == "https://example.org/a_b?x=1&y=2"
        )
        missing = note.locator("a.missing")
        assert await missing.all_inner_texts() == ["Nowhere", "gone"]
        style = await missing.first.evaluate(
            "it => getComputedStyle(it).textDecorationStyle"
        )
        assert style == "dashed"
        callout = await note.locator(".callout").bounding_box()
        title = await note.locator(".callout strong").bounding_box()
        assert callout
        assert title
        assert title["y"] - callout["y"] < 14
        frame = await note.locator(".embed").bounding_box()
        lines = [
            await note.locator(f".embed p >> nth={at}").bounding_box() for at in (0, -1)
        ]
        assert frame
        assert lines[0]
        assert lines[1]
        assert lines[0]["y"] - frame["y"] < 14
        below = frame["y"] + frame["height"] - lines[1]["y"] - lines[1]["height"]
        assert below < 14


@requirement("ask:answered")
@requirement("page:keys")
@needs_chromium
async def test_an_open_question_is_answered_in_words_and_only_a_yes_or_no_by_a_yes(
    day: Day,
) -> None:
    from playwright.async_api import expect

    asked = ("What shall I write in the offer?", "The offer is ready. Shall I send it?")
    async with Client(desk_server(day.desk), mode="2026-07-28") as client:
        for question in asked:
            await client.call_tool("ask_person", {"question": question})
    async with day.opened("/") as page:
        await expect(page.get_by_role("heading", name=asked[0])).to_be_visible()
        answers = page.locator(".answers")
        await expect(answers.get_by_role("button", name="Yes")).to_have_count(0)
        await expect(page.locator("#card").get_by_text(asked[0])).to_have_count(1)
        box = await answers.get_by_label("Your answer").bounding_box()
        assert box
        assert box["width"] > 600
        others = [answers.get_by_text(each, exact=True) for each in ("No answer", "Snooze")]
        rows = {box["y"] for each in others if (box := await each.bounding_box())}
        assert len(rows) == 1
        await page.keyboard.press("a")
        await expect(answers.get_by_label("Your answer")).to_be_focused()
        await page.keyboard.type("Forty days.")
        await answers.get_by_role("button", name="Answer").click()

        await expect(page.get_by_role("heading", name=asked[1])).to_be_visible()
        await expect(page.get_by_text("Answered. Whoever asked is told.")).to_be_visible()
        main = answers.locator("button.main")
        assert await main.all_inner_texts() == ["Answer"]
        await page.keyboard.press("a")
        await expect(page.locator(".held")).to_contain_text("Answered with yes.")
    assert "Answered with yes." in (live := (await day.person.reads("/live")).text)
    assert "Approved" not in live


def phishing() -> bytes:
    raw = letter(
        subject="Your account", body="Sign in at https://bank.example@evil.example/"
    )
    return raw.replace(b"From: Ann", b'From: "service@bank.example"', 1)


@requirement("page:mail")
async def test_an_alarming_mail_invites_to_no_reply_and_an_empty_one_says_so(
    day: Day,
) -> None:
    calm, empty = await day.receive(
        letter(subject="Calm"), letter(subject="Empty", body="")
    )
    (alarming,) = await day.receive(phishing())
    assert (await day.desk.mailbox.get(alarming)).alarms

    async def reply(mail: str) -> str:
        page = (await day.person.reads(f"/mail/{mail}")).text
        return page.partition("<details><summary")[2].partition(">")[0]

    assert await reply(calm) == ' class="button main"'
    assert await reply(alarming) == ' class="button"'
    assert (
        "This mail has no text to show." in (await day.person.reads(f"/mail/{empty}")).text
    )


@requirement("page:mail")
async def test_at_an_address_without_a_page_the_navigation_stays_to_whoever_is_signed_in(
    day: Day,
) -> None:
    lost = await day.person.reads("/nowhere")
    assert lost.status_code == 404
    assert 'aria-label="Pages"' in lost.text
    async with httpx2.AsyncClient(base_url=day.address) as stranger:
        assert 'aria-label="Pages"' not in (await stranger.get("/nowhere")).text


@requirement("page:keys")
@requirement("queue:undo")
@needs_chromium
async def test_ctrl_enter_sends_what_one_types_and_a_card_that_rests_has_one_undo(
    day: Day,
) -> None:
    from playwright.async_api import expect

    await day.ask(subject="First")
    await day.ask(subject="Second")
    (mail,) = await day.receive(letter(subject="Plan"))
    async with day.opened("/") as page:
        await page.keyboard.press("w")
        await page.keyboard.type("Shorter, please.")
        await page.keyboard.press("Control+Enter")
        await expect(page.locator("#card-name")).to_have_text("Second")
        await page.keyboard.press("a")
        await expect(page.locator(".held")).to_be_visible()
        undo = page.locator(".held, .toast").get_by_role("button", name="Undo")
        for _ in range(2):
            await expect(undo.and_(page.locator(":visible"))).to_have_count(1)
            await page.reload()
        await page.goto("/notes")
        await expect(undo).to_be_visible()
        await page.goto("/")
        await page.keyboard.press("u")
        await expect(page.locator(".answers")).to_be_visible()

        await page.goto(f"/mail/{mail}")
        await page.get_by_text("Reply", exact=True).click()
        await page.get_by_label("Your reply").fill("Yes.")
        await page.keyboard.press("Control+Enter")
        await page.wait_for_url("**/approvals/draft-*")
    told = {card.subject: card.state for card in (await day.desk.waiting.cards())[0]}
    assert told == {"Second": "waiting", "Re: Plan": "waiting"}


@requirement("page:accessible")
@needs_chromium
async def test_rows_rules_and_gaps_are_where_they_belong_and_paper_shows_no_buttons(
    day: Day,
) -> None:
    from playwright.async_api import expect

    card = await day.ask()
    later = day.desk.now() + timedelta(hours=2)
    await day.desk.answers.snooze(card.id, later, "person")
    sender = (
        "Wilhelmina Featherstonehaugh <wilhelmina.featherstonehaugh@garden.example.org>"
    )
    (mail,) = await day.receive(letter(subject="Plan", sender=sender))
    async with day.opened("/snoozed", size=(1920, 1000)) as page:
        badges = page.locator(".cards .badge")
        (one, two) = [await badges.nth(number).bounding_box() for number in (0, 1)]
        assert one
        assert two
        assert two["y"] > one["y"] + one["height"] or two["x"] > one["x"] + one["width"]
        assert await align(page) < 2
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.goto(f"/approvals/{card.id}")
        await page.get_by_text("Snooze", exact=True).click()
        shown = await page.locator("#until-when").evaluate(
            "it => { it.value = it.placeholder; return it.scrollWidth <= it.clientWidth }"
        )
        assert shown

        await page.set_viewport_size({"width": 1920, "height": 1000})
        await page.goto("/mail")
        assert await align(page) < 2
        lines = await page.locator(".mails .who bdi").evaluate(
            "it => [...it.getClientRects()].map(each => each.width).filter(each => each)"
        )
        assert min(lines) > 150
        await page.emulate_media(media="print")
        for path in ("/mail", f"/mail/{mail}"):
            await page.goto(path)
            for each in await page.locator("main").locator("button, .button, input").all():
                await expect(each).to_be_hidden()
            await expect(page.locator("main")).to_contain_text("Plan")


async def align(page: "Page") -> float:
    """By how many pixels the name in the head stands beside what is below it."""
    name = await page.locator(".top .name").bounding_box()
    title = await page.locator("main h1").first.bounding_box()
    assert name
    assert title
    return abs(name["x"] - title["x"])


@requirement("words:one")
@requirement("page:agents")
@requirement("page:mail")
async def test_agents_labels_and_warnings_are_in_the_words_of_the_other_pages(
    day: Day,
) -> None:
    room = day.desk.room(None)
    for name in ("scout", "builder"):
        room.register(name, "2026-11-15T09:00:00Z")
    (alarming,) = await day.receive(phishing())
    await day.desk.mailbox.change([alarming], read_change("star", None))
    plain = (
        "Messages from agents are shown as plain text. They can't approve anything for you."
    )

    for path in ("/agents", "/agents/thread?one=scout&other=builder"):
        assert plain in unescape((await day.person.reads(path)).text), path
    page = (await day.person.reads(f"/mail/{alarming}")).text
    labels = re.findall(r'<span class="badge soft">(.*?)</span>', page)
    assert sorted(labels) == ["inbox", "starred"]
    assert "STARRED" not in (await day.person.reads("/mail")).text
    warnings = re.findall(r"<li>(.*?)</li>", page[page.index("Take care") :])
    assert warnings[0][0].isupper()
    assert warnings[0].endswith(".")


@requirement("page:accessible")
@needs_chromium
async def test_the_way_back_the_fields_of_a_task_and_frames_look_alike_on_every_page(
    day: Day,
) -> None:
    card = await day.ask(html=True, body="# Seeds\n")
    (mail,) = await day.receive(letter(subject="Plan"))
    thread = (await day.desk.mailbox.get(mail)).summary.thread_id
    sent = {
        "title": "Water",
        "due_date": "2030-01-02T10:00:00Z",
        "recurrence": "FREQ=DAILY",
    }
    task = await day.desk.tasks.call("ann", "POST", "/tasks", actor="person", body=sent)
    async with day.opened("/decided") as page:
        tops = set()
        for path in (
            "/decided",
            "/follow-ups",
            "/mail/write",
            f"/mail/{mail}",
            f"/thread/{thread}",
            f"/tasks/{task['id']}",
            f"/approvals/{card.id}/edit",
        ):
            await page.goto(path)
            box = await page.locator("main h1").bounding_box()
            assert box
            tops.add(round(box["y"]))
        assert len(tops) == 1, tops

        await page.goto(f"/tasks/{task['id']}")
        fields = [await page.locator(each).bounding_box() for each in ("#due", "#repeats")]
        assert len({round(each["y"]) for each in fields if each}) == 1
        await page.goto(f"/approvals/{card.id}")
        line, text = await page.locator("iframe.sheet").evaluate(
            "it => [getComputedStyle(it).borderTopColor, getComputedStyle(it).color]"
        )
        assert line != text
        await page.goto("/phone")
        form = page.locator("#subscribe")
        gaps = await form.evaluate(
            """it => {
              const box = it.getBoundingClientRect();
              const shown = [...it.querySelectorAll("p")].filter((each) => each.offsetHeight);
              const [first, last] = [shown[0], shown.at(-1)].map((each) => each.getBoundingClientRect());
              return [first.top - box.top, box.bottom - last.bottom];
            }"""
        )
        assert max(gaps) < 20


@requirement("page:accessible")
@needs_chromium
@needs_axe
async def test_axe_finds_nothing_in_what_a_day_leaves_on_the_pages(day: Day) -> None:
    card = await day.ask(body=HIDING)
    held = await day.ask(subject="Held")
    await day.desk.answers.approve(held.id, held.digest, "person")
    async with Client(desk_server(day.desk), mode="2026-07-28") as client:
        asked = await client.call_tool("ask_person", {"question": "Shall I?"})
    (alarming,) = await day.receive(phishing())
    (mail,) = await day.receive(letter(subject="Plan"))
    vault = day.desk.settings.vault
    assert vault is not None
    (vault / "List.md").write_text(LIST)
    thread = (await day.desk.mailbox.get(mail)).summary.thread_id
    assert asked.structured_content
    async with day.opened("/tasks", says=("404",)) as page:
        found = await judged(page)
        await page.goto("/mail")
        await page.get_by_label("Choose Plan").check()
        await page.get_by_text("Label…").click()
        found += await judged(page)
        await page.goto(f"/mail/{mail}")
        await page.get_by_role("button", name="Star").click()
        await page.get_by_text("1 mail starred.").wait_for()
        found += await judged(page)
        for path in (
            f"/mail/{alarming}",
            f"/thread/{thread}",
            f"/approvals/{card.id}/edit",
            f"/approvals/{held.id}",
            f"/approvals/{asked.structured_content['request']}",
            "/notes/open?path=List.md",
            "/nowhere",
        ):
            await page.goto(path)
            found += await judged(page)
    assert found == []
