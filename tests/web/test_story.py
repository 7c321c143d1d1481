"""The whole story in a real browser: a mail arrives, a reply is drafted, edited, approved, and is in Sent."""

import json
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from deskhand.app import Desk
from deskhand.config import load
from deskhand.web.site import site
from tests.home import Home
from tests.mail.letters import letter
from tests.orchestrator.office import Office, ended
from tests.requirements import requirement
from tests.warm import warm_python
from tests.web.browser import (
    chromium,
    judged,
    needs_axe,
    needs_chromium,
    quiet_page,
    sign_in,
)
from tests.web.person import served
from tests.web.test_approvals_page import HELLO, HOSTILE, asked, drafted, sent, the_card

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = needs_chromium
MINE = "Dear Ann,\n\nFriday at noon, and I bring the cake.\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Office, str]]:
    """`deskhand up`, for all that only needs a desk that runs; what was approved leaves after half a second."""
    place = tmp_path_factory.mktemp("running")
    (place / "vault").mkdir()
    environment = {
        "DESKHAND_HOME": str(place / "home"),
        "VAULT_PATH": str(place / "vault"),
        "MCP_LOG_LEVEL": "WARNING",
    }
    environment |= {
        "DESKHAND_ADDRESS": "me@example.com",
        "DESKHAND_FIRST_DAYS": "3650",
        "DESKHAND_HOLD_SECONDS": "0.5",
    }
    office = Office(Home(place / "vault", environment))
    process = subprocess.Popen(
        [warm_python(), "-m", "deskhand", "up", "--no-browser", "--port", "0", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    yield office, told["address"]
    ended(process, signal.SIGTERM)


@pytest.fixture
async def quiet_desk(office: Office) -> AsyncIterator[Desk]:
    """A desk on which a hold lasts as long as the test, and nothing runs but what the test starts."""
    made = Desk(load(office.home.environment | {"DESKHAND_HOLD_SECONDS": "600"}).settings)
    yield made
    await made.close_mailbox()
    made.close()


@asynccontextmanager
async def opened(desk: Desk, **options: Any) -> "AsyncIterator[Page]":
    """The page of this desk in a browser whose person is signed in."""
    async with (
        served(site(desk)) as address,
        chromium() as browser,
        quiet_page(browser, address, **options) as page,
    ):
        await sign_in(page, desk)
        yield page


async def press(page: "Page", key: str) -> None:
    """Once the page listens to keys: it shows the button that names them then."""
    await page.locator("#show-keys").wait_for(state="visible")
    await page.keyboard.press(key)


async def arrives(office: Office, tmp_path: Path, number: int) -> str:
    """A mail, brought in from another terminal; its subject."""
    file = tmp_path / f"{number}.eml"
    file.write_bytes(
        letter(
            subject=f"A question {number}",
            body="Lunch on Friday?",
            message_id=f"<{number}@example.org>",
        )
    )
    done = await anyio.to_thread.run_sync(
        lambda: office.home.command("mail", "import", str(file))
    )
    assert done.returncode == 0, done.stderr
    return f"Re: A question {number}"


async def in_sent(desk: Desk, subject: str) -> str:
    """The body of the one mail in Sent that has this subject."""
    (found,) = [body for _, name, body in await sent(desk) if name == subject]
    return found


def on_record(office: Office) -> set[str]:
    """What the record says was done, by whom."""
    done = office.home.command("log", "--json")
    assert done.returncode == 0, done.stderr
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    return {f"{entry['actor']} {entry['action_type']}" for entry in entries}


@requirement("page:story")
@requirement("page:live")
async def test_a_mail_becomes_a_card_by_itself_and_the_reply_leaves_exactly_as_edited(
    running: tuple[Office, str], tmp_path: Path
) -> None:
    from playwright.async_api import expect

    office, address = running
    desk = office.desk()
    async with chromium() as browser, quiet_page(browser, address) as page:
        await sign_in(page, desk)
        await expect(
            page.get_by_role("heading", name="Nothing waits for you")
        ).to_be_visible()
        await page.evaluate("window.neverReloaded = true")
        subject = await arrives(office, tmp_path, 1)
        await expect(page.get_by_role("link", name=subject)).to_be_visible(timeout=20_000)
        await expect(page.get_by_role("heading", name=subject)).to_be_visible()
        assert await page.evaluate("window.neverReloaded") is True

        await expect(page.get_by_text("Lunch on Friday?")).to_be_visible()
        await page.keyboard.press("e")
        await page.get_by_label("Text").fill(MINE)
        await page.get_by_role("button", name="Approve as edited").click()
        await expect(page.get_by_text("Sent, exactly as it reads here.")).to_be_visible(
            timeout=20_000
        )
        await expect(page.locator("ins", has_text="I bring the cake")).to_be_visible()
        await page.get_by_role("link", name="Timeline").click()
        await expect(
            page.locator(".record li", has_text="send_email").first
        ).to_be_visible()
        await expect(page.locator(".record li", has_text="edited").first).to_be_visible()

    assert await in_sent(desk, subject) == MINE
    await desk.close_mailbox()
    desk.close()
    assert {"person edited", "person held", "person approved"} <= on_record(office)


@requirement("page:story")
async def test_the_same_story_without_javascript(
    running: tuple[Office, str], tmp_path: Path
) -> None:
    from playwright.async_api import expect

    office, address = running
    desk = office.desk()
    async with (
        chromium() as browser,
        quiet_page(browser, address, javascript=False) as page,
    ):
        await sign_in(page, desk)
        subject = await arrives(office, tmp_path, 2)
        with anyio.fail_after(30):
            while not await page.get_by_role("link", name=subject).count():
                await page.reload()
        await page.get_by_role("link", name=subject).click()
        await page.get_by_role("link", name="Edit and approve").click()
        await page.get_by_label("Text").fill(MINE)
        await page.get_by_role("button", name="Approve as edited").click()
        with anyio.fail_after(30):
            while not await page.get_by_text("Sent, exactly as it reads here.").count():
                await page.reload()
        await expect(page.get_by_role("button", name="Undo")).to_have_count(0)
        await page.get_by_role("link", name="Timeline").click()
        await expect(
            page.locator(".record li", has_text="send_email").first
        ).to_be_visible()

    assert await in_sent(desk, subject) == MINE
    await desk.close_mailbox()
    desk.close()


@requirement("page:hold")
@requirement("page:keys")
async def test_every_answer_can_be_given_by_key_and_none_while_typing(
    quiet_desk: Desk,
) -> None:
    from playwright.async_api import expect

    for number in range(3):
        await asked(quiet_desk, subject=f"Letter {number}")
    async with opened(quiet_desk) as page:
        heading = page.locator("#card-name")
        await press(page, "?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        await press(page, "a")  # not while the help is open
        await page.keyboard.press("Escape")
        await press(page, "j")
        await expect(heading).to_have_text("Letter 1")
        await press(page, "k")
        await expect(heading).to_have_text("Letter 0")

        await press(page, "r")
        await page.keyboard.type("akuse")
        await expect(page.get_by_label("Reason")).to_have_value("akuse")
        await page.keyboard.press("Enter")
        await expect(page.locator(".toast")).to_contain_text(
            "Rejected. Nothing was sent. Letter 0"
        )

        await expect(heading).to_have_text("Letter 1")
        await press(page, "w")
        await expect(page.get_by_label("What to do instead")).to_be_focused()
        await page.evaluate("document.activeElement.blur()")
        await press(page, "s")
        await page.keyboard.press("Enter")
        await expect(page.locator(".toast")).to_contain_text("Snoozed until")

        await expect(heading).to_have_text("Letter 2")
        await press(page, "a")
        await expect(page.get_by_text("unless you undo it")).to_be_visible()
        await expect(page.locator(".card .countdown")).to_have_text(
            re.compile(r"^in \d+ seconds$")
        )
        await expect(page.locator(".toast")).to_contain_text("Letter 2")
        await press(page, "u")
        await expect(page.get_by_text("it waits again")).to_be_visible()

        await page.get_by_role("button", name="Keys").click()
        await page.get_by_label("Keys are on").uncheck()
        await page.get_by_role("button", name="Close").click()
        await press(page, "a")
        await expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()

    assert (await the_card(quiet_desk)).state == "waiting"
    assert await sent(quiet_desk) == []


@requirement("queue:undo")
async def test_a_list_that_was_asked_for_before_an_answer_leaves_its_words_where_they_are(
    quiet_desk: Desk,
) -> None:
    from playwright.async_api import Route, expect

    looked, answered = anyio.Event(), anyio.Event()

    async def be_late(route: Route) -> None:
        looked.set()
        await answered.wait()
        await route.continue_()

    await asked(quiet_desk, subject="Letter")
    async with opened(quiet_desk) as page:
        await press(page, "a")
        await expect(page.get_by_text("unless you undo it")).to_be_visible()
        await page.route("**/waiting?**", be_late)
        await page.evaluate("document.dispatchEvent(new Event('desk:changed'))")
        await looked.wait()
        await press(page, "u")
        await expect(page.get_by_text("it waits again")).to_be_visible()
        async with page.expect_response("**/waiting?**"):
            answered.set()
        for _ in range(3):
            await page.evaluate("fetch(location.href).then((answer) => answer.text())")
        assert await page.get_by_text("it waits again").is_visible()


@requirement("page:hold")
async def test_an_undo_that_is_pressed_while_the_next_card_comes_is_not_lost(
    quiet_desk: Desk,
) -> None:
    from playwright.async_api import Route, expect

    looked, pressed = anyio.Event(), anyio.Event()

    async def be_late(route: Route) -> None:
        looked.set()
        await pressed.wait()
        await route.continue_()

    for subject in ("First", "Second", "Third"):
        await asked(quiet_desk, subject=subject)
    async with opened(quiet_desk) as page:
        await press(page, "a")
        await expect(page.locator(".toast")).to_be_visible()
        await page.route("**/approvals/*", be_late)
        await press(page, "j")
        await looked.wait()
        await press(page, "u")
        await press(page, "u")
        pressed.set()
        await expect(page.get_by_text("it waits again")).to_be_visible()
        await expect(page.locator("#count")).to_have_text("3 waiting")
        await expect(page.get_by_role("alert")).to_have_count(0)


@requirement("page:stale")
async def test_a_card_that_changes_under_the_persons_eyes_is_never_approved_as_it_was(
    quiet_desk: Desk,
) -> None:
    from playwright.async_api import expect

    from deskhand.gate.letters import Letter

    await asked(quiet_desk)
    card = await the_card(quiet_desk)
    async with opened(quiet_desk, says=("status of 409",)) as page:
        await page.goto(f"/approvals/{card.id}")
        await page.locator("summary", has_text="Ask for changes").click()
        await page.get_by_label("What to do instead").fill("half a senten")
        await quiet_desk.answers.edit(
            card.id, card.digest, Letter(HELLO["to"], "Other", "Other words.\n"), "person"
        )
        await expect(page.get_by_text("The open card has changed.")).to_be_visible(
            timeout=10_000
        )
        await expect(page.get_by_label("What to do instead")).to_have_value("half a senten")
        await page.get_by_role("button", name="Approve", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text(
            "has changed since it was shown to you"
        )
        await expect(page.get_by_text("Other words.", exact=True)).to_be_visible()

    assert (await quiet_desk.waiting.card(card.id)).state == "waiting"


@requirement("page:accessible")
@requirement("page:hostile")
@needs_axe
async def test_axe_finds_nothing_wide_or_narrow_light_or_dark_whatever_the_mail_says(
    quiet_desk: Desk,
) -> None:
    mail = letter(subject="A question", message_id="<h@example.org>", body="x")
    head = re.sub(
        rb"Content-Transfer-Encoding: \w+",
        b"Content-Transfer-Encoding: 8bit",
        mail.partition(b"\r\n\r\n")[0],
    )
    hostile = (
        head.replace(b"text/plain", b"text/html") + b"\r\n\r\n" + HOSTILE.encode() + b"\r\n"
    )
    low = letter(subject="A question of taste", message_id="<l@example.org>")
    (bad, good) = await drafted(quiet_desk, hostile, low)
    await asked(
        quiet_desk,
        body="see\u202e https://bank.example@evil.example/\n" + "\n" * 30 + "end\n",
    )
    await asked(quiet_desk, subject="Held")
    held = (await quiet_desk.waiting.cards())[0][-1]
    await quiet_desk.answers.approve(held.id, held.digest, "person")
    paths = [
        "/",
        *(f"/approvals/{each.id}" for each in (bad, held)),
        f"/approvals/{bad.id}/edit",
    ]
    paths += [f"/approvals/batch?card={good.id}", "/snoozed"]
    # A page that says no has a status of its own, of which Chromium tells on the console.
    async with opened(quiet_desk, says=("status of 401", "status of 404")) as page:
        found: list[str] = []
        for path in [*paths, "/approvals/nobody"]:
            await page.goto(path)
            found += await judged(page)
        await page.goto("/")
        await page.keyboard.press("?")
        found += await judged(page)
        await page.goto("about:blank")  # an open page goes to the sign-in by itself
        await page.context.clear_cookies()
        await page.goto("/enter")
        found += await judged(page)
    assert found == []
