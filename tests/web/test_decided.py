"""The list of what was decided: what the person said, when, and what came of it."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate import decided
from deskhand.web.site import site
from tests.orchestrator.office import Office
from tests.requirements import requirement
from tests.web.browser import (
    chromium,
    judged,
    needs_axe,
    needs_chromium,
    quiet_page,
    sign_in,
)
from tests.web.person import Person, served, signed_in
from tests.web.test_queue import fill, letter_to


@pytest.fixture
async def desk(office: Office) -> AsyncIterator[Desk]:
    made = Desk(load(office.home.environment | {"DESKHAND_HOLD_SECONDS": "0"}).settings)
    yield made
    await made.close_mailbox()
    made.close()


@pytest.fixture
async def person(desk: Desk) -> AsyncIterator[Person]:
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        yield person


async def decide_some(desk: Desk) -> None:
    """An approved, a rejected, one sent back, one that expires, and one that still waits."""
    long_ago = desk.now() - timedelta(days=9)
    late = {"expires": long_ago + timedelta(days=7), "state": "expired"}
    await fill(
        desk,
        *(letter_to(desk, number) for number in range(3)),
        letter_to(desk, 3, asker="Codex 1.0", **late),
        letter_to(desk, 4),
    )
    names = [f"{number:016x}" for number in range(3)]
    sent, rejected, back = [
        (name, (await desk.waiting.card(name)).digest) for name in names
    ]
    await desk.answers.approve(*sent, "person", "page")
    await desk.answers.reject(*rejected, "we said Thursday", "person", "page")
    await desk.answers.respond(*back, "shorter", "person", "page")


def subjects(text: str) -> list[str]:
    return re.findall(r'class="lead"[^>]*><bdi>([^<]*)', text)


@requirement("queue:decided")
async def test_what_was_answered_is_listed_with_the_words_and_with_what_came_of_it(
    desk: Desk, person: Person
) -> None:
    empty = (await person.reads("/decided")).text
    assert "Nothing has been decided yet" in empty
    await decide_some(desk)
    assert 'href="/decided"' in (await person.reads("/")).text
    text = (await person.reads("/decided")).text
    assert subjects(text) == ["Letter 2", "Letter 1", "Letter 0", "Letter 3"]
    assert "You sent it back: “shorter”." in text
    badges = re.findall(r'class="badge \w+">(.*?)</span>', text)
    assert {"rejected", "sent back"} <= set(badges)
    assert badges.count("rejected") == 1
    assert "You rejected it: “we said Thursday”." in text
    assert "You approved it." in text
    assert "You did not answer in time." in text
    assert "asked by <bdi>Codex 1.0</bdi>" in text
    assert "to <bdi>ann0@example.org</bdi>" in text


@requirement("queue:decided")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("outcome=sent", ["Letter 0"]),
        ("outcome=rejected", ["Letter 1"]),
        ("outcome=back", ["Letter 2"]),
        ("outcome=expired", ["Letter 3"]),
        ("outcome=unclear", []),
        ("asker=Codex 1.0", ["Letter 3"]),
        ("kind=send_email&q=ann1@", ["Letter 1"]),
        ("kind=call_tool", []),
        ("q=thursday", ["Letter 1"]),
        ("q=letter+ann0@", ["Letter 0"]),
        (
            "outcome=nonsense&before=nonsense",
            ["Letter 2", "Letter 1", "Letter 0", "Letter 3"],
        ),
    ],
)
async def test_the_list_is_filtered_and_searched(
    desk: Desk, person: Person, query: str, found: list[str]
) -> None:
    await decide_some(desk)
    assert subjects((await person.reads(f"/decided?{query}")).text) == found


@requirement("queue:decided")
async def test_a_long_list_goes_on_from_page_to_page_without_a_gap(
    desk: Desk, person: Person
) -> None:
    at = desk.now()
    await fill(
        desk,
        *(
            letter_to(
                desk, number, state="rejected", decided=at - timedelta(minutes=number // 2)
            )
            for number in range(120)
        ),
    )
    seen: list[str] = []
    address: str | None = "/decided?outcome=rejected"
    while address:
        text = (await person.reads(address)).text
        seen += subjects(text)
        older = re.search(r'href="(/decided\?[^"]*before=[^"]*)">Older', text)
        address = older and older.group(1).replace("&amp;", "&")
    assert len(seen) == len(set(seen)) == 120
    text = (await person.reads("/decided?q=letter+119")).text
    assert subjects(text) == ["Letter 119"]


@requirement("queue:decided")
async def test_a_search_that_looks_at_very_many_says_how_it_goes_on(
    desk: Desk, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decided, "_AT_ONCE", 10)
    monkeypatch.setattr(decided, "_LOOKED_AT", 20)
    at = desk.now()
    state: dict[str, Any] = {"state": "rejected"}
    await fill(
        desk,
        *(
            letter_to(desk, number, decided=at - timedelta(minutes=number), **state)
            for number in range(30)
        ),
    )
    text = (await person.reads("/decided?q=29@no")).text
    assert "Nothing suits among the cards looked at so far" in text
    text = (await person.reads("/decided?q=ann29@")).text
    assert subjects(text) == []
    older = re.search(r'href="(/decided\?[^"]*)">Older', text)
    assert older
    text = (await person.reads(older.group(1).replace("&amp;", "&"))).text
    assert subjects(text) == ["Letter 29"]


@requirement("queue:decided")
@needs_axe
@needs_chromium
async def test_decided_cards_are_gone_through_and_opened_by_keyboard(desk: Desk) -> None:
    from playwright.async_api import expect

    await decide_some(desk)
    async with (
        served(site(desk)) as address,
        chromium() as browser,
        quiet_page(browser, address) as page,
    ):
        await sign_in(page, desk)
        await page.locator(".counts a", has_text="Decided").click()
        await expect(page.locator("h1")).to_have_text("Decided")
        assert await judged(page) == []
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        await expect(page.locator("#decided a:focus")).to_have_text("Letter 1")
        await page.keyboard.press("k")
        await expect(page.locator("#decided a:focus")).to_have_text("Letter 2")
        await page.keyboard.press("Enter")
        await expect(page.locator("h1#card-name")).to_have_text("Letter 2")
