"""The last answer is taken back, whatever it was; an answered card keeps what it said; what waits for the rate."""

from datetime import timedelta
from typing import Any

import pytest

from deskhand import audit
from deskhand.errors import Changed, Denied
from deskhand.gate import ledger, sends, undo
from deskhand.gate.cards import CardFilter
from deskhand.gate.rate import Limits
from deskhand.notes import frontmatter
from deskhand.orchestrator.loop import Orchestrator
from deskhand.orchestrator.replies import look_around
from deskhand.orchestrator.status import facts
from deskhand.store import Transaction
from tests.gate.site import HELLO, said
from tests.gate.test_cards import (
    CountingStore,
    Study,
    asked,
    moved,
    record,
    sent,
    study,
    work,
)
from tests.gate.waiting import drafted, proposed
from tests.requirements import requirement

pytestmark = pytest.mark.anyio
_ = study


@requirement("queue:undo")
async def test_a_no_other_words_and_a_snooze_are_taken_back_one_after_the_other(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        assert await desk.answers.last() is None
        no, other, later, yes = [
            await asked(desk, client, subject=f"Letter {number}") for number in range(4)
        ]
        await desk.answers.reject(no.id, no.digest, "too early", "person")
        study.clock.pass_by(seconds=1)
        await desk.answers.respond(other.id, other.digest, "in French", "person")
        study.clock.pass_by(seconds=1)
        await desk.answers.snooze(later.id, study.clock() + timedelta(hours=1), "person")
        study.clock.pass_by(seconds=1)
        await desk.answers.approve(yes.id, yes.digest, "person")
        assert len(study.files("Rejected")) == 2
        undone = []
        while last := await desk.answers.last():
            (card,) = await desk.answers.undo_last(
                round(last.at.timestamp() * 1000), "person"
            )
            undone.append((last.word, card.id, card.state, card.note))
        words = ("held", "snoozed", "responded", "rejected")
        assert undone == [
            (word, each.id, "waiting", None)
            for word, each in zip(words, (yes, later, other, no), strict=True)
        ]
        await look_around(desk)
        assert [card.state for card in (await desk.waiting.cards())[0]] == ["waiting"] * 4
        assert (len(study.files("Pending_Approval")), study.files("Rejected")) == (4, [])
        assert (
            await said(client, "send_email", **HELLO | {"subject": "Letter 0"})
        ).startswith("Rejected:")
        assert await sent(desk) == []
        assert [what for who, what in await record(desk) if who == "person"].count(
            "undone"
        ) == 4


@requirement("queue:undo")
async def test_what_is_too_late_or_another_answer_is_not_taken_back(study: Study) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        await desk.answers.approve(card.id, card.digest, "person")
        last = await desk.answers.last()
        assert last is not None
        with pytest.raises(Denied):
            await desk.answers.undo_last(1, "person")
        answer = desk.door.policy.answer("undone", "person", "page")
        await desk.answers.undo(card.id, "person")
        with pytest.raises(Changed):
            await desk.store.write(undo.take_back, last, answer, study.clock())
        assert await desk.answers.last() is None
        await desk.answers.reject(card.id, card.digest, None, "person")
        study.clock.pass_by(seconds=11)
        assert await desk.answers.last() is None
        assert (await desk.waiting.card(card.id)).state == "rejected"


@requirement("queue:undo")
async def test_a_no_that_was_taken_back_is_not_heard_again_from_its_file(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        await desk.answers.reject(card.id, card.digest, None, "person")
        row = await desk.gate.find(card.id)
        # The process dies after the row was changed: the file still lies in Rejected/.
        await desk.store.write(ledger.change, row, "waiting")
        assert len(study.files("Rejected")) == 1
        assert (await desk.gate.find(card.id)).state == "waiting"
        assert study.files("Rejected") == []


@requirement("queue:undo")
async def test_a_draft_whose_no_was_taken_back_waits_again_and_teaches_nothing(
    study: Study,
) -> None:
    async with study.opened() as (desk, _):
        row = drafted("draft-1", "ann@example.org", study.clock(), mail="<m>")
        await desk.store.write(ledger.insert, row)
        await desk.door.follow(row)
        orchestrator = Orchestrator(desk)
        await desk.answers.reject("draft-1", None, "no", "person")
        await orchestrator.once()
        last = await desk.answers.last()
        assert last is not None
        assert last.requests[0].settled
        await desk.answers.undo_last(round(last.at.timestamp() * 1000), "person")
        await orchestrator.once()
        await orchestrator.close()
        after = await desk.gate.find("draft-1")
        assert (after.state, after.settled, after.note) == ("waiting", False, None)
        assert [file.name for file in study.files("Drafts")] == [row.file]
        assert "rejected_reason" not in study.files("Drafts")[0].read_text()


def status_in(study: Study, folder: str) -> tuple[Any, Any]:
    (file,) = study.files(folder)
    marks = frontmatter.parse(file.read_text()).frontmatter
    return marks["status"], marks.get("rejected_reason")


@requirement("queue:undo")
@pytest.mark.parametrize("door", ["page", "vault"])
async def test_a_request_that_was_said_no_to_says_so_in_its_file_until_the_no_is_taken_back(
    study: Study, door: str
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        said = None
        if door == "page":
            said = "too early"
            await desk.answers.reject(card.id, card.digest, said, "person")
        else:
            moved(study, study.files("Pending_Approval")[0], "Rejected")
        await work(desk)
        assert status_in(study, "Rejected") == ("rejected", said)

        if door == "page":
            last = await desk.answers.last()
            assert last is not None
            await desk.answers.undo_last(round(last.at.timestamp() * 1000), "person")
        else:
            moved(study, study.files("Rejected")[0], "Pending_Approval")
        await work(desk)
        assert (await desk.gate.find(card.id)).state == "waiting"
        assert status_in(study, "Pending_Approval") == ("pending_approval", None)

        moved(study, study.files("Pending_Approval")[0], "Rejected")
        await work(desk)
        assert (await desk.gate.find(card.id)).note is None
        moved(study, study.files("Rejected")[0], "Approved")
        await work(desk)
        await work(desk)
        assert ((await desk.gate.find(card.id)).state, len(await sent(desk))) == ("sent", 1)
        assert status_in(study, "Done") == ("done", None)


@requirement("queue:kept")
async def test_an_answered_card_keeps_what_was_known_when_it_was_answered(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        assert (card.to[0].known, card.risk.level, card.answered) == (False, "medium", None)
        await desk.answers.approve(card.id, card.digest, "person")
        study.clock.pass_by(seconds=10)
        await desk.gate.release_due()
        (mail,) = await sent(desk)
        after = await desk.waiting.card_as_answered(card.id)
        assert (after.state, after.to, after.risk) == ("sent", card.to, card.risk)
        assert (after.left, after.message_id) == (study.clock(), mail.summary.id)
        other = await asked(desk, client, subject="Again")
        assert other.to[0].known


@requirement("queue:limit")
async def test_what_waits_for_the_limit_stands_last_says_its_turn_and_leaves_when_it_is_raised(
    study: Study,
) -> None:
    limit = {"DESKHAND_MAX_SENDS": "1", "DESKHAND_HOLD_SECONDS": "0"}
    async with study.opened(**limit) as (desk, client):
        cards = [
            await asked(desk, client, subject=f"Letter {number}") for number in range(3)
        ]
        started = study.clock()
        for card in cards:
            await desk.answers.approve(card.id, card.digest, "person")
            study.clock.pass_by(seconds=1)
        shown = [await desk.waiting.card(card.id) for card in cards]
        assert [card.state for card in shown] == ["sent", "approved", "approved"]
        assert [card.until for card in shown[1:]] == [started + timedelta(hours=1)] * 2
        await look_around(desk)
        assert await desk.gate.release_due() == []
        asked_last = await asked(desk, client, subject="Letter 3")
        queue = [request.id for request in (await desk.waiting.requests())[0]]
        assert queue == [asked_last.id, *sorted(card.id for card in cards[1:])]
        first, cursor = await desk.waiting.cards(limit=2)
        rest, _ = await desk.waiting.cards(limit=2, after=cursor)
        assert [card.id for card in (*first, *rest)] == queue
        assert [each.id for each in (await facts(desk)).waiting] == [asked_last.id]
        turns = [(await desk.waiting.card(card.id)).until for card in cards[1:]]
        assert turns == [started + timedelta(hours=1), started + timedelta(hours=2)]
        counting = CountingStore(desk.store)
        await counting.write(
            sends.wake_limited, study.clock(), Limits(1, timedelta(hours=1))
        )
        assert len([sql for sql in counting.statements if "FROM sends" in sql]) == 1
    async with study.opened(**limit | {"DESKHAND_MAX_SENDS": "2"}) as (desk, _):
        await look_around(desk)
        assert await desk.gate.release_due() == [cards[1].id]
        assert (await desk.waiting.card(cards[2].id)).state == "approved"
        study.clock.pass_by(hours=1)
        assert await desk.gate.release_due() == [cards[2].id]
        assert len(await sent(desk)) == 3
        await desk.store.write(
            sends.wake_limited, study.clock(), Limits(0, timedelta(hours=1))
        )


@requirement("queue:limit")
async def test_a_batch_leaves_in_the_order_in_which_it_was_asked_for_and_nothing_is_taken_up_twice(
    study: Study,
) -> None:
    limit = {"DESKHAND_MAX_SENDS": "2", "DESKHAND_HOLD_SECONDS": "5"}
    async with study.opened(**limit) as (desk, client):
        cards = []
        for number in range(6):
            cards.append(await asked(desk, client, subject=f"Letter {number}"))
            study.clock.pass_by(seconds=1)
        ids = [card.id for card in cards]
        for card in reversed(cards):
            await desk.answers.approve(card.id, card.digest, "person")
        study.clock.pass_by(seconds=6)
        await desk.gate.release_due()
        assert [mail.summary.subject for mail in await sent(desk)] == [
            "Letter 1",
            "Letter 0",
        ]

        study.clock.pass_by(hours=1)
        taken = await desk.gate.take_due()
        await look_around(desk)
        next_one = await desk.gate.take_due()
        assert [each and each.id for each in (taken, next_one)] == ids[2:4]


@requirement("gate:expires")
async def test_what_nobody_answers_in_time_is_on_the_record_once(study: Study) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client, subject="Letter")
        study.clock.pass_by(days=8)
        for _ in range(2):
            await look_around(desk)
        assert (await desk.waiting.find(card.id)).state == "expired"
        entries = [entry for _, entry in await desk.store.read(audit.entries)]
        (found,) = [each for each in entries if each.action_type == "expired"]
        assert (found.actor, found.result, found.parameters["action_id"]) == (
            "desk",
            "success",
            card.id,
        )


@requirement("queue:filter")
async def test_a_page_of_what_is_looked_for_goes_on_where_the_last_one_ended(
    study: Study,
) -> None:
    def crowd(tx: Transaction) -> None:
        for number in range(30):
            to = f"{'ann' if number % 3 else 'bob'}{number}@example.org"
            urgent = number == 29
            ledger.insert(
                tx,
                proposed(
                    f"r{number:02}",
                    to,
                    study.clock() + timedelta(seconds=number),
                    urgent=urgent,
                ),
            )

    async with study.opened() as (desk, _):
        await desk.store.write(crowd)
        for limit in (3, 4, 10, 50):
            seen: list[str] = []
            more = None
            while not seen or more:
                cards, more = await desk.waiting.cards(
                    limit=limit, after=more, wanted=CardFilter(text="BOB example")
                )
                assert len(cards) <= limit
                seen += [card.id for card in cards]
            assert seen == [f"r{number:02}" for number in range(0, 30, 3)]
        for nobody in (
            CardFilter(asker="Claude"),
            CardFilter(risk="high"),
            CardFilter(account="else@example.com"),
        ):
            assert await desk.waiting.cards(wanted=nobody) == ([], None)
        first, _ = await desk.waiting.cards(limit=1)
        assert first[0].id == "r29"
        following = await desk.waiting.find_next(
            first[0], snoozed=False, wanted=CardFilter(text="bob3@")
        )
        assert following is not None
        assert following.id == "r03"
        last, _ = await desk.waiting.cards(limit=1, wanted=CardFilter(text="r28 nobody"))
        assert last == []
        around = await desk.waiting.find_next(
            following, snoozed=False, wanted=CardFilter(text="ann29")
        )
        assert around is not None
        assert (
            await desk.waiting.find_next(
                around, snoozed=False, wanted=CardFilter(text="ann29")
            )
            is None
        )
