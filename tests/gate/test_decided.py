"""The list of what was decided, as the gate finds it: in order, filtered, page by page, and in which words."""

from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from deskhand.app import Desk
from deskhand.gate import decided, ledger
from deskhand.gate.actions import Mail
from deskhand.gate.decided import Page, Place, Wanted
from deskhand.gate.question import Question
from deskhand.gate.requests import Request
from tests.gate.site import Clock, Site
from tests.gate.waiting import drafted, proposed
from tests.requirements import requirement
from tests.tasks.service import new_database

pytestmark = [pytest.mark.anyio, requirement("queue:decided")]

AT = Clock().time


@pytest.fixture(params=["sqlite", "postgresql"])
async def desk(request: pytest.FixtureRequest, site: Site) -> AsyncIterator[Desk]:
    more = {}
    if request.param == "postgresql":
        more["DESKHAND_DATABASE_URL"] = new_database(request.getfixturevalue("postgresql"))
    made = site.desk(**more)
    yield made
    await made.close_mailbox()
    made.close()


def answered(name: str, minutes_ago: float, **more: Any) -> Request:
    facts = {"state": "rejected", "decided": AT - timedelta(minutes=minutes_ago)} | more
    return proposed(name, f"{name}@example.org", AT - timedelta(days=1), **facts)


async def keep(desk: Desk, *requests: Request) -> None:
    def insert(tx: Any) -> None:
        for each in requests:
            assert ledger.insert(tx, each)

    await desk.store.write(insert)


async def find(
    desk: Desk, wanted: Wanted | None = None, behind: Place | None = None, limit: int = 50
) -> Page:
    wanted = wanted or Wanted()
    return await desk.store.read(
        partial(decided.find, wanted=wanted, behind=behind, limit=limit)
    )


async def names(desk: Desk, **wanted: Any) -> list[str]:
    return [each.id for each in (await find(desk, Wanted(**wanted))).requests]


async def test_the_newest_comes_first_and_what_waits_or_was_put_back_is_not_there(
    desk: Desk,
) -> None:
    await keep(
        desk,
        answered("no", 3),
        answered("yes", 1, state="sent"),
        answered(
            "late", 5, state="expired", decided=None, expires=AT - timedelta(minutes=2)
        ),
        answered("gone", 0, state="withdrawn", decided=None),
        proposed("waits", "x@example.org", AT),
        answered("asked-again", 0, state="waiting"),
        answered("never-decided", 0, state="failed", decided=None),
    )
    # Of what was withdrawn nobody answered: it stands where it was asked for.
    assert await names(desk) == ["yes", "late", "no", "gone"]


async def test_it_is_filtered_by_what_came_of_it_by_kind_by_asker_and_by_words(
    desk: Desk,
) -> None:
    await keep(
        desk,
        answered("no", 1, note="we said Thursday"),
        answered("back", 2, words="shorter", asker="Codex 1.0"),
        answered("yes", 3, state="sent"),
        answered("resting", 4, state="held"),
        answered("nobody-knows", 5, state="unknown"),
        answered("refused", 6, state="failed"),
        drafted("draft", "x@example.org", AT, state="sent", decided=AT),
    )
    assert await names(desk, outcome="rejected") == ["no"]
    assert await names(desk, outcome="back") == ["back"]
    assert await names(desk, outcome="sent") == ["draft", "yes"]
    assert await names(desk, outcome="under way") == ["resting"]
    assert await names(desk, outcome="unclear") == ["nobody-knows"]
    assert await names(desk, outcome="unsent") == ["refused"]
    assert await names(desk, kind="draft") == ["draft"]
    assert await names(desk, asker="Codex 1.0") == ["back"]
    assert await names(desk, asker="your rule “x”", outcome="sent") == ["draft"]
    assert await names(desk, text="THURSDAY said") == ["no"]
    assert await names(desk, text="thursday shorter") == []
    assert await names(desk, text="yes@example.org") == ["yes"]
    assert await desk.store.read(decided.list_askers) == [
        "Codex 1.0",
        "an assistant",
        "your rule “x”",
    ]


@pytest.mark.parametrize("limit", [7, 200, 201])
async def test_pages_of_any_size_show_each_one_once(desk: Desk, limit: int) -> None:
    """Also those that were answered at the same time, and where a page ends with the last of them."""
    total = 450 if limit > 50 else 60
    await keep(desk, *(answered(f"{number:04}", number // 3) for number in range(total)))
    seen: list[str] = []
    pages = 0
    behind = None
    while pages == 0 or behind:
        page = await find(desk, behind=behind, limit=limit)
        seen += [each.id for each in page.requests]
        assert not page.partly
        behind = page.older
        pages += 1
    assert len(seen) == len(set(seen)) == total
    # Only where the rows end with a whole page can there be one more, which is empty.
    assert pages <= total // limit + 1


async def test_a_search_that_finds_nothing_among_very_many_stops_and_says_where(
    desk: Desk,
) -> None:
    many = 2_010
    await keep(desk, *(answered(f"{number:04}", number) for number in range(many)))
    rare = Wanted(text=f"{many - 1:04}@")
    page = await find(desk, rare)
    assert (list(page.requests), page.partly) == ([], True)
    page = await find(desk, rare, page.older)
    assert [each.id for each in page.requests] == [f"{many - 1:04}"]
    assert (page.older, page.partly) == (None, False)


EDITED = Mail(
    kind="send_email", account="me@example.com", to="x@y.example", subject="z", body="z"
)
QUESTION = Question(text="Which day?", asker="Codex")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"state": "expired"}, "You did not answer in time."),
        ({"state": "withdrawn"}, "Withdrawn."),
        ({"words": "shorter, please!"}, "You sent it back: “shorter, please!”"),
        ({"note": "we said Thursday"}, "You rejected it: “we said Thursday”."),
        ({}, "You rejected it."),
        ({"state": "sent"}, "You approved it."),
        (
            {"state": "sent", "proof": "permission"},
            "Your permission let it through.",
        ),
        (
            {"state": "sent", "proof": "hand-written"},
            "You approved it by hand, in the vault.",
        ),
        ({"state": "sent", "action": EDITED}, "You approved it as you had edited it."),
        (
            {"state": "sent", "action": QUESTION, "words": "Friday"},
            "You answered: “Friday”.",
        ),
        ({"state": "sent", "action": QUESTION}, "You answered: “yes”."),
    ],
)
def test_what_the_person_said_is_a_sentence(more: dict[str, Any], sentence: str) -> None:
    assert decided.describe_answer(answered("one", 1, **more)) == sentence


def test_when_it_ended_is_when_it_was_answered_or_its_time_was_over() -> None:
    over = AT - timedelta(hours=1)
    assert decided.ended(answered("late", 1, state="expired", expires=over)) == over
    assert decided.ended(answered("no", 60)) == over
    created = AT - timedelta(days=1)
    assert decided.ended(answered("gone", 1, state="withdrawn", decided=None)) == created
    without = answered("odd", 1, state="expired", expires=None, decided=None)
    assert decided.ended(without) == created
