"""The queue in a real browser: many cards by keyboard alone, one undo from anywhere, a desk that has stopped."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

import anyio
import pytest

from deskhand.app import Desk
from deskhand.clock import natural
from deskhand.config import load
from deskhand.gate import ledger
from deskhand.gate.actions import Mail
from deskhand.gate.cards import Kind
from deskhand.gate.requests import Request
from deskhand.web.site import site
from tests.gate.waiting import proposed
from tests.orchestrator.office import Office
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
    violations,
)
from tests.web.person import Person, served, signed_in

if TYPE_CHECKING:
    from playwright.async_api import Page

IN_VIEW = """() => {
  const row = document.querySelector(".cards a[aria-current]")?.getBoundingClientRect();
  const list = document.querySelector(".cards").getBoundingClientRect();
  return !!row && row.top >= Math.max(0, list.top - 1) && row.bottom <= Math.min(innerHeight, list.bottom + 1);
}"""

SAME_NUMBER = """() => ["#count", "#waits"].map(
  (each) => document.querySelector(each).firstChild.textContent
)"""

WRITE_DOWN_THE_TITLE = """() => {
  window.seen = [];
  const look = () => seen.push(document.title);
  new MutationObserver(look).observe(document.head, { childList: true, subtree: true });
}"""


@pytest.fixture
async def desk(office: Office) -> AsyncIterator[Desk]:
    made = Desk(load(office.home.environment | {"DESKHAND_HOLD_SECONDS": "600"}).settings)
    yield made
    await made.close_mailbox()
    made.close()


@pytest.fixture
async def person(desk: Desk) -> AsyncIterator[Person]:
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        yield person


def letter_to(desk: Desk, number: int, **more: Any) -> Request:
    to = f"ann{number}@example.org"
    mail = Mail(
        kind="send_email",
        account="me@example.com",
        to=to,
        subject=f"Letter {number}",
        body=f"Dear {number}\n",
        send_at=more.pop("send_at", None),
    )
    known = {
        "asked": mail.digest,
        "proposed": mail,
        "action": mail,
        "digest": mail.digest,
        "asked_by": "email_mcp",
    }
    at = desk.now() - timedelta(hours=2) + timedelta(seconds=number)
    return proposed(f"{number:016x}", to, at, **known | more)


async def fill(desk: Desk, *requests: Request) -> None:
    def insert(tx: Any) -> None:
        for each in requests:
            assert ledger.insert(tx, each)

    await desk.store.write(insert)


async def state_of(desk: Desk, number: int) -> str:
    return (await desk.waiting.card(f"{number:016x}")).state


@asynccontextmanager
async def opened(desk: Desk, **options: Any) -> "AsyncIterator[Page]":
    async with (
        served(site(desk)) as address,
        chromium() as browser,
        quiet_page(browser, address, **options) as page,
    ):
        await sign_in(page, desk)
        await page.locator("#show-keys").wait_for(state="visible")
        yield page


@requirement("queue:keyboard")
@requirement("queue:undo")
@needs_chromium
async def test_thirty_cards_are_answered_by_keyboard_alone_and_the_last_is_undone_from_another_page(
    desk: Desk,
) -> None:
    from playwright.async_api import expect

    await fill(desk, *(letter_to(desk, number) for number in range(31)))
    async with opened(desk) as page:
        await page.evaluate("window.neverReloaded = true")
        for number in range(30):
            await expect(page.locator("#card-name")).to_have_text(f"Letter {number}")
            assert await page.evaluate(IN_VIEW), f"Letter {number} is out of sight"
            assert await page.evaluate(SAME_NUMBER) == [str(31 - number)] * 2
            match number % 3:
                case 0:
                    await page.keyboard.press("a")
                case 1:
                    await page.keyboard.press("r")
                    await page.keyboard.type("no, thanks")
                    await page.keyboard.press("Enter")
                case _:
                    await page.keyboard.press("s")
                    await page.keyboard.type("3d" * (number == 2))
                    await page.keyboard.press("Enter")
        await expect(page.locator("#card-name")).to_have_text("Letter 30")
        await expect(page).to_have_title("(1) Letter 30 · Deskhand")
        assert await page.evaluate("window.neverReloaded") is True
        states = [await state_of(desk, number) for number in range(30)]
        assert states == ["held", "rejected", "snoozed"] * 10
        untils = [(await desk.waiting.card(f"{number:016x}")).until for number in (2, 5)]
        assert [
            until is not None and until > desk.now() + timedelta(days=2) for until in untils
        ] == [True, False]

        await page.goto("/mail")
        await expect(page.locator(".toast")).to_contain_text("Snoozed until")
        await page.keyboard.press("u")
        await expect(page.get_by_text("Undone. It waits again.")).to_be_visible()
        await expect(page.locator("#count")).to_contain_text("2")
        async with page.expect_response("**/live"):
            await page.evaluate(
                "new BroadcastChannel('deskhand-bell').postMessage('changed')"
            )
        await page.wait_for_function("document.querySelector('#counted')")
        await expect(page.get_by_text("Undone. It waits again.")).to_be_visible()
        await page.keyboard.press("u")
        await expect(page.locator("#count")).to_contain_text("3")
        assert [await state_of(desk, number) for number in (27, 28, 29)] == [
            "held",
            "waiting",
            "waiting",
        ]

        await page.keyboard.press("Control+k")
        await page.keyboard.type("permis")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Permissions")).to_be_visible()
        await page.wait_for_load_state()
        await page.keyboard.press("Control+k")
        await page.keyboard.type("timel")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
        await page.wait_for_load_state()  # a key counts when the page's program runs
        await page.keyboard.press("/")
        await expect(page.get_by_label("Text of target or error")).to_be_focused()

        await read_a_long_one_on_a_phone(desk, page)


@requirement("queue:live")
@needs_chromium
async def test_counts_that_were_asked_for_before_an_answer_are_not_shown_after_it(
    desk: Desk,
) -> None:
    from playwright.async_api import Route, expect

    looked, answered = anyio.Event(), anyio.Event()

    async def be_late(route: Route) -> None:
        """The desk has answered; on the way that takes its time."""
        found = await route.fetch()
        if not looked.is_set():
            looked.set()
            await answered.wait()
        await route.fulfill(response=found)

    await fill(desk, *(letter_to(desk, number) for number in range(4)))
    async with opened(desk) as page:
        await page.route("**/live", be_late)
        await page.evaluate("new BroadcastChannel('deskhand-bell').postMessage('changed')")
        await looked.wait()
        await page.keyboard.press("a")
        await expect(page.locator("#card-name")).to_have_text("Letter 1")
        assert await page.evaluate(SAME_NUMBER) == ["3", "3"]
        await page.evaluate(WRITE_DOWN_THE_TITLE)
        async with page.expect_response("**/live"):
            answered.set()
        for _ in range(3):
            await page.evaluate("fetch('/live').then((answer) => answer.text())")
        assert await page.evaluate(SAME_NUMBER) == ["3", "3"]
        assert "(4)" not in await page.evaluate("seen.join()")


async def read_a_long_one_on_a_phone(desk: Desk, page: "Page") -> None:
    """Wherever one is in a long mail, the answers are there; on paper there are none."""
    from playwright.async_api import expect

    short = letter_to(desk, 40)
    mail = short.action.model_copy(update={"body": "Yours\n" * 400})
    long = replace(short, asked=mail.digest, proposed=mail, action=mail, digest=mail.digest)
    await fill(desk, long)
    await page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    await page.goto(f"/approvals/{long.id}")
    await page.locator(".letter").evaluate("it => it.scrollIntoView({ block: 'end' })")
    assert await page.evaluate("scrollY > 5000")
    for name in ("Approve", "Edit and approve", "Ask for changes"):
        await expect(
            page.locator(".answers").get_by_text(name, exact=True)
        ).to_be_in_viewport()
    for name in ("Snooze", "Reject", "Ask for changes"):
        opens = page.locator(".answers details").filter(has_text=name).first
        await opens.locator("summary").click()
        field = opens.locator("input:not([type=hidden]), textarea").first
        await expect(field).to_be_in_viewport(ratio=1)
        assert await page.evaluate("scrollY > 5000")
        await opens.locator("summary").click()
    await page.emulate_media(media="print")
    for gone in (".answers", ".list", ".top nav"):
        await expect(page.locator(gone)).to_be_hidden()
    await expect(page.locator(".letter")).to_be_visible()


@requirement("queue:keyboard")
@requirement("page:many")
@needs_chromium
async def test_the_chosen_row_stays_in_view_and_a_long_list_grows_by_a_page_at_its_end(
    desk: Desk,
) -> None:
    from playwright.async_api import expect

    crowd = [letter_to(desk, number) for number in range(200)]
    await fill(desk, *crowd)
    async with opened(desk) as page:
        asked: list[str] = []
        page.on(
            "request",
            lambda request: asked.append(request.url) if "count=" in request.url else None,
        )
        await page.evaluate("document.querySelector('.cards').scrollTop = 40")
        for number in range(1, 16):
            await page.keyboard.press("j")
            await expect(page.locator("#card-name")).to_have_text(f"Letter {number}")
        await expect(page.locator(".cards li")).to_have_count(25)
        assert asked == []

        for each in crowd[:12]:
            await desk.answers.reject(each.id, each.digest, None, "person")
        await expect(page.locator(f"#row-{crowd[11].id}")).to_have_count(0)
        await expect(page.locator(".cards a[aria-current]")).to_contain_text("Letter 15")
        assert await page.evaluate(IN_VIEW)

        asked.clear()
        await expect(page.get_by_role("link", name="Show 25 more")).to_be_visible()
        end = "document.querySelector('.cards').scrollTop = 1e6"
        await page.evaluate(end)
        await expect(page.locator(".cards li")).to_have_count(50)
        await page.evaluate(end)
        await expect(page.locator(".cards li")).to_have_count(75)
        assert [each.partition("count=")[2] for each in asked] == ["50", "75"]


@requirement("queue:keyboard")
@requirement("page:many")
@needs_chromium
async def test_the_key_j_goes_on_past_the_rows_that_the_list_has(desk: Desk) -> None:
    from playwright.async_api import expect

    await fill(desk, *(letter_to(desk, number) for number in range(60)))
    async with opened(desk) as page:
        for number in range(1, 55):
            await page.keyboard.press("j")
            await expect(page.locator("#card-name")).to_have_text(f"Letter {number}")
            assert await page.evaluate(IN_VIEW)


@requirement("queue:keyboard")
@requirement("page:many")
@needs_chromium
async def test_a_card_far_down_the_list_is_chosen_in_it_and_the_keys_go_on_from_there(
    desk: Desk, person: Person
) -> None:
    from playwright.async_api import expect

    crowd = [letter_to(desk, number) for number in range(200)]
    await fill(desk, *crowd)
    newest = (await person.reads(f"/approvals/{crowd[-1].id}")).text
    assert re.findall(r'id="row-0*(\w+)"', newest) == [f"{n:x}" for n in range(189, 200)]
    assert "Back to the start" in newest

    async with opened(desk) as page:
        chosen = page.locator(".cards a[aria-current]")
        await page.goto(f"/approvals/{crowd[150].id}")
        await expect(chosen).to_contain_text("Letter 150")
        assert await page.evaluate(IN_VIEW)
        for key, number in (("j", 151), ("k", 150), ("k", 149), ("a", 150), ("a", 151)):
            await page.keyboard.press(key)
            await expect(page.locator("#card-name")).to_have_text(f"Letter {number}")
            await expect(chosen).to_contain_text(f"Letter {number}")
            assert await page.evaluate(IN_VIEW)
        first = page.locator(".cards a").first
        await expect(first).to_contain_text("Letter 140")
        await first.click()
        await expect(page.locator("#card-name")).to_have_text("Letter 140")
        for number in (139, 138):
            await page.keyboard.press("k")
            await expect(page.locator("#card-name")).to_have_text(f"Letter {number}")
            assert await page.evaluate(IN_VIEW)
        await page.get_by_role("link", name="Back to the start").click()
        await expect(first).to_contain_text("Letter 0")


@requirement("queue:live")
@requirement("page:accessible")
@needs_chromium
@needs_axe
async def test_every_state_of_the_queue_is_told_and_axe_finds_nothing(desk: Desk) -> None:
    from playwright.async_api import expect

    now = desk.now()
    crowd = [letter_to(desk, number, urgent=number == 999) for number in range(1000)]
    other = [
        letter_to(
            desk,
            2000,
            state="unknown",
            token="x",
            note="This mail may have been sent already.",
        ),
        letter_to(desk, 2001, state="expired"),
        letter_to(desk, 2002, state="sent", tried=now, decided=now, message_id="m-1"),
        letter_to(
            desk,
            2003,
            state="approved",
            resting="rate",
            due=now + timedelta(minutes=17),
            decided=now,
        ),
    ]
    async with AsyncExitStack() as stack:
        browser = await stack.enter_async_context(chromium())
        running = AsyncExitStack()
        address = await running.enter_async_context(served(site(desk)))
        page = await stack.enter_async_context(quiet_page(browser, address, says=("ERR_",)))
        await sign_in(page, desk)
        found = await violations(page)  # empty
        await fill(desk, *crowd, *other)
        await expect(page.locator(".cards a").first).to_contain_text("Letter 999")
        await expect(page).to_have_title("(1001) Approvals · Deskhand")
        await expect(page.locator("#card-name")).to_have_text("Letter 999")
        found += await judged(page)
        for each in other:
            await page.goto(f"/approvals/{each.id}")
            found += await violations(page)
            # Nothing invites to send once more what may have left.
            await expect(page.locator(".answers .main")).to_have_count(0)
        await expect(
            page.get_by_text("It waits for the limit and leaves about")
        ).to_be_visible()
        await expect(page.get_by_role("button", name="Reject")).to_be_visible()
        await page.goto("/mail")
        await expect(page).to_have_title("(1001) Mail · Deskhand")
        await page.keyboard.press("Control+k")
        found += await violations(page)
        await page.keyboard.press("Escape")
        await running.aclose()
        await expect(page.get_by_role("alert")).to_contain_text(
            "The desk has stopped", timeout=30_000
        )
        found += await violations(page)
    assert found == []


@requirement("queue:live")
async def test_what_expires_within_a_day_says_so_in_the_list_and_above_its_text(
    desk: Desk, person: Person
) -> None:
    now = desk.now()
    soon = letter_to(desk, 1, expires=now + timedelta(minutes=37, seconds=30))
    later = letter_to(desk, 2, expires=now + timedelta(days=2))
    await fill(desk, soon, later)

    badge = '<span class="badge warn">expires in 37 minutes</span>'
    page = (await person.reads(f"/approvals/{soon.id}")).text
    head, _, body = page[page.index("<article") :].partition("</header>")
    assert badge in head
    assert badge not in body
    assert (await person.reads("/")).text.count("expires in") == 2  # its row and its card
    other = (await person.reads(f"/approvals/{later.id}")).text
    assert "expires in" not in other[other.index("<article") :]


@requirement("queue:live")
@requirement("page:accessible")
@needs_chromium
async def test_what_waits_for_the_limit_breaks_no_badge_and_its_button_touches_nothing(
    desk: Desk,
) -> None:
    from playwright.async_api import expect

    due = desk.now() + timedelta(minutes=59)
    limited = letter_to(
        desk,
        1,
        state="approved",
        resting="rate",
        due=due,
        decided=desk.now(),
        note="10 of 10 emails sent in the last hour.",
    )
    await fill(desk, limited, *(letter_to(desk, number) for number in range(2, 40)))
    async with opened(desk) as page:
        await expect(page.locator(".counts")).to_contain_text("1 approved")
        await page.get_by_role("link", name="Show 14 more").click()
        row = page.locator(f"#row-{limited.id}")
        await expect(row).to_contain_text("leaves about")
        badges = await row.locator(".badge").evaluate_all(
            "found => found.map(each => each.getClientRects().length)"
        )
        assert badges == [1]
        assert await page.evaluate(EXCESS) <= 0
        for size in (WIDE, PHONE):
            await page.set_viewport_size({"width": size[0], "height": size[1]})
            await page.goto(f"/approvals/{limited.id}")
            found = await page.evaluate(GAP)
            assert found >= 8, size


EXCESS = "document.documentElement.scrollHeight - innerHeight"
GAP = """() => {
  const button = [...document.querySelectorAll("#card button")].find((each) => each.textContent === "Reject");
  const below = document.querySelector("#card [aria-label='What would leave']");
  return below.getBoundingClientRect().top - button.getBoundingClientRect().bottom;
}"""


@requirement("gate:send-later")
async def test_a_card_with_a_time_of_its_own_says_when_it_leaves_and_of_a_sent_one_that_it_did(
    desk: Desk, person: Person
) -> None:
    now = desk.now()
    over = now - timedelta(hours=2)
    answered = now - timedelta(days=4)
    waits = letter_to(desk, 1, send_at=now + timedelta(days=2))
    late = letter_to(desk, 2, send_at=over)
    held = letter_to(
        desk, 3, send_at=now + timedelta(days=2), state="held", due=now + timedelta(days=2)
    )
    sent = letter_to(desk, 4, send_at=over, state="sent", tried=now, decided=answered)
    refused = letter_to(desk, 5, send_at=over, state="rejected", decided=answered)
    await fill(desk, waits, late, held, sent, refused)

    async def times(request: Request) -> dict[str, str]:
        page = (await person.reads(f"/approvals/{request.id}")).text
        found = re.findall(r"<dt>(L\w+|Was to leave|Answered)</dt><dd>(.*?)</dd>", page)
        return {name: re.sub("<.*?>", "", text) for name, text in found}

    assert (await times(waits))["Leaves"].endswith("where that comes later")
    assert (await times(late))["Was to leave"].endswith("ago); now it leaves at your yes")
    assert (await times(held))["Leaves"].endswith("(in 2 days)")
    told = await times(sent)
    assert list(told) == ["Left", "Was to leave", "Answered"]
    assert "(2 hours ago)" in told["Was to leave"]
    assert "2 hours" not in told["Left"]
    assert "(4 days ago)" in told["Answered"]
    assert list(await times(refused)) == ["Was to leave", "Answered"]


@requirement("queue:filter")
async def test_the_queue_is_searched_and_the_search_stays_through_the_answers(
    desk: Desk, person: Person
) -> None:
    mine = letter_to(desk, 7, asker="Claude 2.1")
    await fill(
        desk,
        *(letter_to(desk, number) for number in range(5)),
        mine,
        letter_to(desk, 8, urgent=True),
    )

    async def found(query: str) -> list[str]:
        page = (await person.reads(f"/?{query}")).text
        return [
            name
            for name in (f"{number:016x}" for number in range(9))
            if f'id="row-{name}"' in page
        ]

    assert await found("q=ANN3") == [f"{3:016x}"]
    assert await found("asker=Claude+2.1") == [mine.id]
    assert await found("q=claude") == [mine.id]
    assert await found("risk=high") == []
    assert len(await found("kind=send_email&risk=medium&q=letter+example.org")) == 7
    assert await found("account=me@example.com&kind=draft") == []

    hits = (await person.reads("/?q=ANN3")).text
    assert "<strong>1</strong> found" in hits
    assert '<strong id="waits">7</strong> waiting' in hits
    first = (await person.reads("/")).text
    assert "found</span>" not in first
    assert '<option value="Claude 2.1">' in first
    for kind in get_args(Kind):
        assert f'<option value="{kind}"' in first
    assert first.index(f'id="row-{8:016x}"') < first.index(f'id="row-{0:016x}"')
    sends = {"digest": mine.digest}
    done = await person.sends(
        f"/approvals/{3:016x}/reject?q=letter",
        {"digest": letter_to(desk, 3).digest},
        at="/",
    )
    assert done.headers["location"] == f"/approvals/{4:016x}?q=letter&done=rejected"
    done = await person.sends(
        f"/approvals/{mine.id}/approve?asker=Claude+2.1", sends, at="/"
    )
    assert done.headers["location"].startswith(f"/approvals/{mine.id}?")


@requirement("queue:snooze")
async def test_a_snooze_says_its_time_takes_words_and_ends_before_the_expiry(
    desk: Desk, person: Person
) -> None:
    soon = desk.now() + timedelta(hours=3)
    await fill(desk, letter_to(desk, 1), letter_to(desk, 2, expires=soon))
    card = await desk.waiting.card(f"{1:016x}")
    shown = (await person.reads(f"/approvals/{card.id}")).text
    assert "tomorrow, 08:00" in shown
    assert 'value="week"' not in (await person.reads(f"/approvals/{2:016x}")).text

    async def snooze(number: int, when: str) -> int:
        nonlocal shown
        name = f"{number:016x}"
        fields = {"digest": letter_to(desk, number).digest, "until": "when", "when": when}
        answer = await person.sends(f"/approvals/{name}/snooze", fields, at="/")
        shown = answer.text
        return answer.status_code

    assert await snooze(1, "someday") == 422
    assert "“someday” is no time to put it off until." in shown
    assert "Write 30m, 2h" in shown
    assert "cannot be read" not in shown  # it was said already, in words
    assert 'value="someday"' in shown
    assert '<details data-key="s" open>' in shown
    assert await snooze(1, "+2d") == 303
    until = (await desk.waiting.card(card.id)).until
    assert until is not None
    assert (until.hour, until.minute) == (8, 0)
    assert await snooze(2, "30 days") == 422
    assert await snooze(2, "in 30 days") == 303
    late = (await desk.waiting.card(f"{2:016x}")).until
    assert late is not None
    assert desk.now() < late < soon
    zone = desk.settings.timezone
    told = [natural(at, desk.now(), zone) for at in (late, soon)]
    undo = (await person.reads("/checkup")).text
    assert f"Snoozed until {told[0]}, before it expires {told[1]}." in undo


@requirement("gate:send-later")
async def test_what_is_sent_later_says_its_time_and_counts_no_seconds(
    desk: Desk, person: Person
) -> None:
    at = desk.now() + timedelta(days=20)
    mail = letter_to(desk, 1).action.model_copy(update={"send_at": at})
    same = {"asked": mail.digest, "proposed": mail, "action": mail, "digest": mail.digest}
    await fill(desk, letter_to(desk, 1, **same))
    name = f"/approvals/{1:016x}"
    await person.sends(f"{name}/approve", {"digest": mail.digest}, at="/")
    shown = (await person.reads(name)).text
    when = natural(at, desk.now(), desk.settings.timezone)
    assert f"Approved. It leaves {when}." in shown
    assert re.search(rf"</strong> It leaves <time [^>]*>{when}", shown)
    assert "Sending in a moment" not in shown


@requirement("queue:undo")
async def test_without_javascript_one_form_undoes_the_last_answer_a_batch_as_a_whole(
    desk: Desk, person: Person
) -> None:
    several = [
        letter_to(desk, number, sender=f"ann{number}@example.org") for number in range(3)
    ]
    await fill(desk, *several)
    answers = [(each.id, each.digest) for each in several]
    await desk.answers.approve_all(answers, "person")
    page = (await person.reads("/checkup")).text
    assert "3 approved." in page

    async def undo() -> int:
        at = (
            (await person.reads("/checkup"))
            .text.partition('name="at" value="')[2]
            .partition('"')[0]
        )
        return (await person.sends("/undo", {"at": at})).status_code

    assert await undo() == 303
    assert {await state_of(desk, number) for number in range(3)} == {"waiting"}
    assert await undo() == 422
    assert (await person.sends("/undo", {"at": "1"})).status_code == 403
