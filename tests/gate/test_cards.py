"""Cards: what the person sees of an action, and what becomes of each answer."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
from mcp import Client

from deskhand import audit
from deskhand.app import Desk
from deskhand.clock import day, iso
from deskhand.config import load
from deskhand.errors import (
    Changed,
    Denied,
    DeskError,
    InvalidInput,
    NotFound,
    SendFailed,
    Unavailable,
)
from deskhand.gate import LEASE, Gate, ledger
from deskhand.gate.actions import SendEmail
from deskhand.gate.cards import Card
from deskhand.gate.decided import describe_answer
from deskhand.gate.letters import Letter
from deskhand.gate.requests import Request, file_name
from deskhand.gate.waiting import Waiting, count_waiting
from deskhand.mail import FullMessage, Mailbox
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.orchestrator.replies import look_around
from deskhand.orchestrator.status import facts, page
from deskhand.servers.email import email_server
from deskhand.store import Store, Transaction
from deskhand.tasks import due
from deskhand.web import times
from tests.gate.site import HELLO, Clock, Interrupted, said
from tests.gate.waiting import drafted, proposed
from tests.home import Home
from tests.mail.letters import letter
from tests.requirements import requirement
from tests.tasks.service import new_database

pytestmark = pytest.mark.anyio

COLLEAGUE = HELLO | {"to": "bob@example.com", "subject": "Lunch"}


@dataclass
class Study:
    """A desk with a local mailbox, an assistant at its Email server, and a person who answers cards."""

    home: Home
    clock: Clock = field(default_factory=Clock)

    def desk(self, **variables: str) -> Desk:
        return Desk(load(self.home.environment | variables).settings, self.clock)

    @asynccontextmanager
    async def opened(self, **variables: str) -> AsyncIterator[tuple[Desk, Client]]:
        desk = self.desk(**variables)
        try:
            async with Client(email_server(desk), mode="2026-07-28") as client:
                yield desk, client
        finally:
            await desk.close_mailbox()
            desk.close()

    def files(self, folder: str) -> list[Path]:
        return sorted((self.home.vault / folder).glob("*.md"))


@pytest.fixture
def study(home: Home) -> Study:
    return Study(
        Home(home.vault, home.environment | {"DESKHAND_ADDRESS": "me@example.com"})
    )


async def asked(desk: Desk, client: Client, **mail: str) -> Card:
    """The card of what an assistant proposes."""
    before = {card.id for card in (await desk.waiting.cards())[0]}
    assert (await said(client, "send_email", **HELLO | mail)).startswith("Rejected:")
    (card,) = [card for card in (await desk.waiting.cards())[0] if card.id not in before]
    return card


async def sent(desk: Desk) -> list[FullMessage]:
    return [
        await desk.mailbox.get(mail.id)
        for mail in await desk.mailbox.search("in:sent", 200)
    ]


async def record(desk: Desk) -> list[tuple[str, str]]:
    """Who did what, the oldest first."""
    entries = await desk.store.read(lambda tx: audit.entries(tx, limit=200))
    return [(entry.actor, entry.action_type) for _, entry in reversed(entries)]


@requirement("cards:digest")
async def test_an_answer_to_an_older_text_leaves_the_yes_to_the_newer_one_as_it_is(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        await desk.answers.approve_edited(
            card.id, card.digest, Letter(HELLO["to"], "Notes", "At eleven.\n"), "person"
        )

        with pytest.raises(Changed):
            await desk.answers.reject(card.id, card.digest, "no", "person")
        with pytest.raises(Changed):
            await desk.answers.approve_now(card.id, card.digest, "person")

        assert (await desk.waiting.card(card.id)).state == "held"
        study.clock.pass_by(seconds=10)
        await desk.gate.release_due()
        assert [mail.body for mail in await sent(desk)] == ["At eleven.\n"]


@requirement("cards:hold")
@requirement("cards:told")
@requirement("cards:recorded")
async def test_a_yes_rests_then_the_mail_leaves_and_the_assistant_is_told_once(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        assert (card.kind, card.state, card.body, card.account) == (
            "send_email",
            "waiting",
            HELLO["body"],
            "me@example.com",
        )
        assert (card.asked_by, card.reason, card.answers) == ("email_mcp", None, None)
        held = await desk.answers.approve(card.id, card.digest, "person")
        again = await desk.answers.approve(card.id, card.digest, "person")
        assert held == again
        assert (held.state, held.until) == ("held", study.clock() + timedelta(seconds=10))
        assert await desk.gate.next_due() == held.until
        assert await desk.gate.release_due() == []
        counts = await desk.waiting.counts()
        assert (counts.waiting, counts.held, counts.snoozed) == (0, 1, 0)
        assert [file.name for file in study.files("Pending_Approval")] == [
            f"email-send-{card.id}.md"
        ]
        assert (await said(client, "send_email", **HELLO)).startswith("Rejected:")
        assert await sent(desk) == []

        answered = study.clock()
        study.clock.pass_by(seconds=10)
        assert await desk.gate.release_due() == [card.id]
        assert await desk.gate.release_due() == []
        (mail,) = await sent(desk)
        assert (mail.summary.to, mail.summary.subject, mail.body) == (
            HELLO["to"],
            HELLO["subject"],
            HELLO["body"],
        )
        done = await desk.waiting.card(card.id)
        assert (done.state, done.until, done.note) == ("sent", None, None)
        assert (await desk.waiting.cards())[0] == []
        assert await desk.gate.next_due() is None
        row = await desk.gate.find(card.id)
        assert (row.decided_by, row.decided, row.asked_by) == (
            "person",
            answered,
            "email_mcp",
        )

        told = await said(client, "send_email", **HELLO)
        first, *_, second = told.splitlines()
        assert (
            first
            == f"Email sent successfully. Message ID: {mail.summary.id} Thread ID: {mail.summary.thread_id}"
        )
        assert (
            second
            == f"It was sent at {iso(study.clock())}, request {card.id}; this call sent nothing."
        )
        assert study.files("Pending_Approval") == []
        study.clock.pass_by(minutes=11)
        assert (await said(client, "send_email", **HELLO)).startswith("Rejected:")
        assert len(await sent(desk)) == 1
        assert await record(desk) == [
            ("email_mcp", "send_email"),
            ("person", "held"),
            ("email_mcp", "send_email"),
            ("person", "approved"),
            ("email_mcp", "send_email"),
            ("email_mcp", "send_email"),
            ("email_mcp", "send_email"),
        ]


@requirement("cards:told")
async def test_what_was_sent_long_ago_is_no_answer_to_a_new_call(study: Study) -> None:
    async with study.opened(DESKHAND_HOLD_SECONDS="0") as (desk, client):
        card = await asked(desk, client)
        assert (await desk.answers.approve(card.id, card.digest, "person")).state == "sent"
        study.clock.pass_by(days=8)
        assert (await said(client, "send_email", **HELLO)).startswith("Rejected:")


@requirement("cards:hold")
async def test_without_a_hold_a_yes_acts_at_once_in_whichever_microsecond_it_is_said(
    study: Study,
) -> None:
    study.clock.pass_by(microseconds=640_777)
    async with study.opened(DESKHAND_HOLD_SECONDS="0") as (desk, client):
        card = await asked(desk, client)
        assert (await desk.answers.approve(card.id, card.digest, "person")).state == "sent"


@requirement("cards:hold")
async def test_a_yes_can_be_undone_until_somebody_acts_on_it(study: Study) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        with pytest.raises(Denied, match="can no longer be taken back: it is waiting"):
            await desk.answers.undo(card.id, "person")
        await desk.answers.approve(card.id, card.digest, "person")
        undone = await desk.answers.undo(card.id, "person")
        study.clock.pass_by(minutes=1)
        assert (undone.state, await desk.gate.release_due(), await sent(desk)) == (
            "waiting",
            [],
            [],
        )

        await desk.answers.approve(card.id, card.digest, "person")
        study.clock.pass_by(seconds=10)
        await claimed(desk, card.id)
        for answer in (
            desk.answers.undo(card.id, "person"),
            desk.answers.reject(card.id, card.digest, None, "person"),
            desk.answers.approve_now(card.id, None, "person"),
        ):
            with pytest.raises(Denied) as refused:
                await answer
            assert refused.value.details["reason"] == "left"
        assert ("person", "undone") in await record(desk)


async def claimed(desk: Desk, request_id: str) -> Request:
    """A process has ended the hold, claimed the request, and died."""
    approved = await desk.gate.end_hold(await desk.gate.find(request_id))
    found = await desk.store.write(
        lambda tx: ledger.claim(tx, approved, now=desk.now(), lease=LEASE)
    )
    assert isinstance(found, Request)
    return found


@requirement("cards:once")
@pytest.mark.parametrize("how_far", ["taken", "decided"])
async def test_a_hold_whose_process_died_is_taken_over_when_its_lease_ended(
    study: Study, how_far: str
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        await desk.answers.approve(card.id, card.digest, "person")
        study.clock.pass_by(seconds=10)
        taken = await desk.gate.take_due()
        assert taken is not None
        free_again = timedelta(seconds=desk.settings.lease_seconds)
        if how_far == "decided":
            await claimed(desk, card.id)
            free_again = LEASE

        assert await desk.gate.release_due() == []
        assert await desk.gate.next_due() == study.clock() + free_again
        study.clock.time += free_again
        assert await desk.gate.release_due() == [card.id]
        assert (len(await sent(desk)), (await desk.waiting.card(card.id)).state) == (
            1,
            "sent",
        )

        # The one that was believed dead comes back: there is nothing left for it to do.
        await desk.gate.go_on(taken, lambda late: desk.gate.release(late.id, "desk"))
        assert (len(await sent(desk)), (await desk.waiting.card(card.id)).note) == (1, None)


@pytest.fixture(params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, study: Study) -> Study:
    more = {"DESKHAND_MAX_SENDS": "1000"}
    if request.param == "postgresql":
        more["DESKHAND_DATABASE_URL"] = new_database(request.getfixturevalue("postgresql"))
    return replace(study, home=Home(study.home.vault, study.home.environment | more))


def performer(study: Study, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(Path(__file__).with_name("performer.py")), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=study.home.environment, stdin=pipe, stdout=pipe, text=True
    )


@requirement("cards:once")
async def test_of_processes_that_act_on_the_same_holds_each_mail_leaves_once(
    shared: Study,
) -> None:
    shared.clock.time = datetime.now(UTC) - timedelta(minutes=5)
    async with shared.opened() as (desk, client):
        cards = [await asked(desk, client, subject=f"Held {number}") for number in range(6)]
        for card in cards:
            await desk.answers.approve(card.id, card.digest, "person")
        racing = [performer(shared) for _ in range(2)]
        assert [each.stdout.readline() for each in racing] == ["ready\n"] * 2
        for each in racing:
            print("go", file=each.stdin, flush=True)
        done = [json.loads(each.stdout.readline()) for each in racing]
        for each in racing:
            with each:
                each.stdin.close()

        assert sorted(done[0] + done[1]) == sorted(card.id for card in cards)
        assert sorted(mail.summary.subject for mail in await sent(desk)) == [
            f"Held {number}" for number in range(6)
        ]


@requirement("cards:once")
@requirement("cards:hold")
@pytest.mark.parametrize("how_far", ["held", "approved", "sending"])
async def test_who_is_killed_while_acting_on_a_yes_is_followed_by_another(
    shared: Study, how_far: str
) -> None:
    shared.clock.time = datetime.now(UTC) - timedelta(minutes=5)
    async with shared.opened() as (desk, client):
        card = await asked(desk, client, subject=f"Killed when it was {how_far}")
        await desk.answers.approve(card.id, card.digest, "person")
        with performer(shared, "--step") as acting:
            assert acting.stdout.readline() == "ready\n"
            state = None
            while state != how_far:
                print("go", file=acting.stdin, flush=True)
                assert acting.stdout.readline() == "written\n"
                row = await desk.store.read(lambda tx: ledger.find(tx, card.id))
                state = row.state
            acting.kill()

        shared.clock.time = datetime.now(UTC)
        assert await sent(desk) == []
        shared.clock.time += 2 * LEASE
        assert await desk.gate.release_due() == [card.id]
        with pytest.raises(Denied, match="can no longer be taken back"):
            await desk.answers.undo(card.id, "person")
        assert [mail.summary.subject for mail in await sent(desk)] == [card.subject]
        assert (await desk.waiting.card(card.id)).state == "sent"
        assert study_file(shared, card.id) == []


@requirement("cards:once")
@requirement("cards:hold")
async def test_an_undo_that_races_with_acting_either_wins_or_says_that_it_left(
    shared: Study,
) -> None:
    async with AsyncExitStack() as stack:
        desk, client = await stack.enter_async_context(shared.opened())
        other, _ = await stack.enter_async_context(shared.opened())
        undone = set()
        for number in range(12):
            card = await asked(desk, client, subject=f"Race {number}")
            await desk.answers.approve(card.id, card.digest, "person")
            shared.clock.pass_by(seconds=10)
            taken, answer = await asyncio.gather(
                other.gate.release_due(),
                desk.answers.undo(card.id, "person"),
                return_exceptions=True,
            )
            if isinstance(answer, Card):
                undone.add(card.subject)
                assert (taken, answer.state) == ([], "waiting")
                await desk.answers.reject(card.id, card.digest, None, "person")
            else:
                assert isinstance(answer, Denied)
                assert (taken, answer.details["reason"]) == ([card.id], "left")
        left = {mail.summary.subject for mail in await sent(desk)}
        assert left | undone == {f"Race {number}" for number in range(12)}
        assert not left & undone


@requirement("cards:digest")
async def test_an_answer_to_what_has_changed_since_is_refused_and_nothing_is_approved(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        for answer in (
            desk.answers.approve(card.id, "0" * 64, "person"),
            desk.answers.approve_edited(
                card.id, "0" * 64, Letter("eve@example.org", "x", "y"), "person"
            ),
            desk.answers.approve_all([(card.id, "0" * 64)], "person"),
            desk.answers.reject(card.id, "0" * 64, None, "person"),
            desk.answers.respond(card.id, "0" * 64, "call her", "person"),
            desk.answers.approve_now(card.id, "0" * 64, "person"),
            desk.answers.edit(card.id, "0" * 64, Letter(**HELLO), "person"),
        ):
            with pytest.raises(Changed):
                await answer
        with pytest.raises(NotFound):
            await desk.answers.approve("none", card.digest, "person")
        study.clock.pass_by(minutes=1)
        assert (await desk.gate.release_due(), await sent(desk)) == ([], [])
        assert (await desk.waiting.card(card.id)).state == "waiting"


@requirement("cards:digest")
async def test_what_changed_during_the_hold_is_not_released_and_the_card_says_so(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        edited, rejected, expired = [
            await asked(desk, client, subject=name) for name in ("edited", "no", "late")
        ]
        for card in (edited, rejected):
            await desk.answers.approve(card.id, card.digest, "person")
        approved = study.home.vault / "Approved"
        approved.mkdir(exist_ok=True)
        (file,) = study_file(study, edited.id)
        file = file.rename(approved / file.name)
        file.write_text(file.read_text().replace("at ten", "at nine"))
        shown = await desk.waiting.card(edited.id)
        assert (shown.state, "changed after your yes" in (shown.note or "")) == (
            "waiting",
            True,
        )
        (file,) = study_file(study, rejected.id)
        (study.home.vault / "Rejected").mkdir(exist_ok=True)
        file.rename(study.home.vault / "Rejected" / file.name)
        study.clock.pass_by(days=6, hours=23, minutes=59, seconds=55)
        await desk.answers.approve(expired.id, expired.digest, "person")
        study.clock.pass_by(seconds=10)

        assert set(await desk.gate.release_due()) == {rejected.id, expired.id}
        notes = {
            card.id: await desk.waiting.card(card.id)
            for card in (edited, rejected, expired)
        }
        assert {key: card.state for key, card in notes.items()} == {
            edited.id: "expired",
            rejected.id: "rejected",
            expired.id: "expired",
        }
        assert {key: card.note for key, card in notes.items()} == {
            edited.id: "It was changed after your yes, which counts no more. It is waiting again.",
            rejected.id: "Its file was moved to Rejected/ after your yes.",
            expired.id: "You said yes, and it expired before it could leave.",
        }
        ended = await desk.store.read(ledger.find, expired.id)
        assert ended is not None
        assert describe_answer(ended) == ended.note
        assert (await sent(desk), await desk.gate.next_due()) == ([], None)
        with pytest.raises(Denied, match="nothing is left to decide"):
            await desk.answers.approve(expired.id, expired.digest, "person")


@requirement("cards:digest")
async def test_a_yes_that_came_to_nothing_can_be_given_again_to_the_new_text(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        await desk.answers.approve(card.id, card.digest, "person")
        approved = study.home.vault / "Approved"
        approved.mkdir(exist_ok=True)
        (file,) = study_file(study, card.id)
        file = file.rename(approved / file.name)
        file.write_text(file.read_text().replace("at ten", "at nine"))
        new = await desk.waiting.card(card.id)
        await desk.answers.approve(card.id, new.digest, "person")
        study.clock.pass_by(seconds=10)
        await desk.gate.release_due()
        assert ["at nine" in mail.body for mail in await sent(desk)] == [True]


@requirement("cards:edited")
async def test_what_the_person_edits_and_approves_is_sent_exactly_so(study: Study) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        words = Letter(
            "carol@example.org", "Other notes ä", "Liebe Carol,\r\n\r\n  bis neun.\r\n"
        )
        held = await desk.answers.approve_edited(card.id, card.digest, words, "person")
        assert (held.state, held.revision, held.to[0].address) == (
            "held",
            2,
            "carol@example.org",
        )
        assert held.digest != card.digest
        assert "-see you at ten.\n" in (held.difference or "")
        assert "-To: ann@example.org\n" in (held.difference or "")
        (file,) = study.files("Pending_Approval")
        assert (file.name, "bis neun." in file.read_text()) == (
            f"email-send-{card.id}-2.md",
            True,
        )
        for refused in (
            desk.answers.edit(card.id, held.digest, words, "person"),
            desk.answers.snooze(card.id, study.clock() + timedelta(hours=1), "person"),
        ):
            with pytest.raises(Denied, match="approved already"):
                await refused

        study.clock.pass_by(seconds=10)
        await desk.gate.release_due()
        (mail,) = await sent(desk)
        found = (mail.summary.to, mail.summary.subject, mail.body)
        assert found == (
            "carol@example.org",
            "Other notes ä",
            "Liebe Carol,\n\n  bis neun.\n",
        )
        assert (await said(client, "send_email", **HELLO)).endswith(
            "The person changed the text before approving it."
        )
        assert ("person", "edited") in await record(desk)


@requirement("cards:edited")
async def test_an_edit_that_changes_nothing_or_cannot_be_sent_makes_no_revision(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        same = await desk.answers.edit(card.id, card.digest, Letter(**HELLO), "person")
        assert (same.revision, same.digest) == (1, card.digest)
        ann = HELLO["to"]
        for to, subject, body in (
            ("nobody", "x", "y"),
            (ann, "a\nb", "y"),
            (ann, "x" * 999, "y"),
            (ann, "x", " "),
        ):
            with pytest.raises(InvalidInput):
                await desk.answers.approve_edited(
                    card.id, card.digest, Letter(to, subject, body), "person"
                )
        after = await desk.waiting.card(card.id)
        assert (after.state, after.revision) == ("waiting", 1)


@requirement("cards:edited")
async def test_a_request_whose_rewriting_was_cut_off_is_answered_as_it_was_edited(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        (file,) = study.files("Pending_Approval")
        old = file.read_bytes()
        new = await desk.answers.edit(
            card.id, card.digest, Letter(**HELLO | {"body": "At nine.\n"}), "person"
        )
        study.files("Pending_Approval")[0].unlink()
        file.write_bytes(old)  # the process died before it could write the file anew

        await desk.answers.approve_now(card.id, new.digest, "person")
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
        assert [mail.body for mail in await sent(desk)] == ["At nine.\n"]


@requirement("cards:edited")
async def test_a_request_that_is_gone_from_the_vault_can_be_edited_and_answered(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        study.files("Pending_Approval")[0].unlink()
        new = await desk.answers.edit(
            card.id, card.digest, Letter(**HELLO | {"subject": "Second"}), "person"
        )
        name = file_name(card.id, "send_email", 2)
        assert [file.name for file in study.files("Pending_Approval")] == [name]
        with pytest.raises(Changed):
            await desk.answers.approve_now(card.id, card.digest, "person")
        assert study.files("Approved") == []
        for _ in range(2):  # a second yes finds the file where it belongs
            assert (
                await desk.answers.approve_now(card.id, new.digest, "person")
            ).state == "approved"
            assert [file.name for file in study.files("Approved")] == [name]
        with pytest.raises(Denied, match="can no longer be edited"):
            await desk.answers.edit(
                card.id, new.digest, Letter(**HELLO | {"subject": "Third"}), "person"
            )


@requirement("cards:batch")
async def test_together_only_low_risk_is_approved_else_nothing(study: Study) -> None:
    async with study.opened(DESKHAND_HOLD_SECONDS="0") as (desk, client):
        for number in range(2):  # after these Bob is known
            card = await asked(desk, client, **COLLEAGUE | {"subject": f"Before {number}"})
            await desk.answers.approve(card.id, card.digest, "person")
    async with study.opened() as (desk, client):
        low = [
            await asked(desk, client, **COLLEAGUE | {"subject": f"Lunch {number}"})
            for number in range(3)
        ]
        assert {card.risk.level for card in low} == {"low"}
        assert low[0].to[0].since == f"2 mails sent, last on {day(study.clock(), 'UTC')}"
        risky = await asked(desk, client)
        assert (risky.risk.level, risky.to[0].known, risky.to[0].since) == (
            "medium",
            False,
            "first email to this address",
        )

        every = [(card.id, card.digest) for card in (*low, risky)]
        with pytest.raises(Denied) as refused:
            await desk.answers.approve_all(every, "person")
        assert refused.value.details["reason"] == "not_low_risk"
        with pytest.raises(InvalidInput):
            await desk.answers.approve_all([], "person")
        assert (await desk.waiting.counts()).held == 0

        held = await desk.answers.approve_all(every[:3], "person")
        assert [card.state for card in held] == ["held"] * 3
        with pytest.raises(Denied, match="is held; nothing was approved"):
            await desk.answers.approve_all(every[:1], "person")
        study.clock.pass_by(seconds=10)
        await desk.gate.release_due()
        assert len(await sent(desk)) == 5
        assert (await desk.waiting.card(risky.id)).state == "waiting"


@requirement("cards:respond")
@requirement("gate:rejected")
async def test_the_persons_words_reach_the_assistant_that_asks_again(study: Study) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        with pytest.raises(InvalidInput):
            await desk.answers.respond(card.id, card.digest, "  ", "person")
        await desk.answers.approve(card.id, card.digest, "person")
        answered = await desk.answers.respond(
            card.id, card.digest, "Ask her for Tuesday instead", "person"
        )
        assert (answered.state, answered.note) == (
            "rejected",
            "do it this way: Ask her for Tuesday instead",
        )
        told = await said(client, "send_email", **HELLO)
        assert "The person sent it back with a note: “Ask her for Tuesday instead”." in told
        study.clock.pass_by(minutes=1)
        assert (await desk.gate.release_due(), await sent(desk)) == ([], [])
        assert [entry for entry in await record(desk) if entry[0] == "person"] == [
            ("person", "held"),
            ("person", "rejected"),
            ("person", "responded"),
        ]


@requirement("cards:snooze")
async def test_a_card_that_is_put_off_is_out_of_sight_and_expires_all_the_same(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card, other = await asked(desk, client), await asked(desk, client, subject="Other")
        for until in (study.clock(), study.clock() - timedelta(hours=1)):
            with pytest.raises(InvalidInput):
                await desk.answers.snooze(card.id, until, "person")
        later = study.clock() + timedelta(hours=2)
        asleep = await desk.answers.snooze(card.id, later, "person")
        assert (asleep.state, asleep.until) == ("snoozed", later)
        assert [each.id for each in (await desk.waiting.cards())[0]] == [other.id]
        assert [each.id for each in (await desk.waiting.cards(snoozed=True))[0]] == [
            card.id
        ]
        counts = await desk.waiting.counts()
        assert (counts.waiting, counts.held, counts.snoozed) == (1, 0, 1)

        assert (await desk.answers.wake(card.id, "person")).state == "waiting"
        assert (await desk.answers.wake(card.id, "person")).state == "waiting"
        await desk.answers.snooze(card.id, study.clock() + timedelta(days=30), "person")
        await desk.answers.snooze(other.id, later, "person")
        study.clock.pass_by(hours=2)
        assert [each.id for each in (await desk.waiting.cards())[0]] == [other.id]
        assert (await desk.answers.approve(card.id, card.digest, "person")).state == "held"
        await desk.answers.undo(card.id, "person")
        study.clock.pass_by(days=7)
        assert (await desk.waiting.card(card.id)).state == "expired"
        assert (await desk.waiting.cards())[0] == []
        assert (await desk.waiting.counts()).waiting == 0
        with pytest.raises(Denied):
            await desk.answers.snooze(card.id, study.clock() + timedelta(days=1), "person")
        done = [what for who, what in await record(desk) if who == "person"]
        assert done == ["snoozed", "woken", "snoozed", "snoozed", "held", "undone"]


@requirement("cards:hold")
@requirement("gate:rate")
@pytest.mark.parametrize(
    ("variables", "state", "words"),
    [
        ({"DEV_MODE": "true"}, "approved", "DEV_MODE is on"),
        ({"DESKHAND_MAX_SENDS": "0"}, "approved", "0 of 0 emails sent in the last hour."),
    ],
    ids=["dev-mode", "rate"],
)
async def test_a_yes_that_cannot_act_yet_says_why(
    study: Study, variables: dict[str, str], state: str, words: str
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
    async with study.opened(DESKHAND_HOLD_SECONDS="0", **variables) as (desk, _):
        done = await desk.answers.approve(card.id, card.digest, "person")
        assert (done.state, words in (done.note or ""), await sent(desk)) == (
            state,
            True,
            [],
        )
    async with study.opened() as (desk, client):
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
        assert (await desk.waiting.card(card.id)).note is None


@requirement("gate:rate")
async def test_what_waits_for_the_limit_says_so_once_and_is_named_in_the_status(
    study: Study,
) -> None:
    one = {"DESKHAND_HOLD_SECONDS": "0", "DESKHAND_MAX_SENDS": "1"}
    async with study.opened(**one) as (desk, client):
        for subject in ("First", "Second"):
            card = await asked(desk, client, subject=subject)
            done = await desk.answers.approve(card.id, card.digest, "person")
        found = await facts(desk)

    assert (done.state, done.note) == ("approved", "1 of 1 emails sent in the last hour.")
    assert (found.limited, found.held) == (1, 0)
    assert "Not in this list: 1 approved and waiting for the limit." in page(
        found, study.clock()
    )


class Faulty:
    """A real mailbox that refuses to send, or does not answer when it is asked for a mail."""

    def __init__(self, inner: Mailbox, error: DeskError) -> None:
        self._inner = inner
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def prepare(self, *_: object) -> str:
        raise self._error

    async def get(self, _: str) -> FullMessage:
        raise self._error


@requirement("cards:hold")
@requirement("gate:put-back")
async def test_a_refusal_of_the_provider_is_on_the_card_and_the_yes_stays(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        faulty = Desk(desk.settings, study.clock)
        faulty.mailbox = cast(
            "Mailbox", Faulty(desk.mailbox, SendFailed("the provider says no"))
        )
        await faulty.answers.approve(card.id, card.digest, "person")
        study.clock.pass_by(seconds=10)
        await faulty.gate.release_due()
        faulty.close()
        stuck = await desk.waiting.card(card.id)
        assert stuck.state == "approved"
        assert "the provider says no" in (stuck.note or "")
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )


@requirement("cards:once")
async def test_a_yes_does_not_need_the_vault_and_the_file_follows_when_it_can(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        await desk.answers.approve(card.id, card.digest, "person")
        study.clock.pass_by(seconds=10)
        blocked = study.home.vault / "Approved"
        if blocked.exists():
            blocked.rename(study.home.vault / "Elsewhere")
        blocked.write_text("no folder")
        assert await desk.gate.release_due() == [card.id]
        assert ((await desk.waiting.card(card.id)).state, len(await sent(desk))) == (
            "sent",
            1,
        )
        blocked.unlink()
        await desk.door.follow_all()
        assert [file.name for file in study.files("Done")] == [
            file_name(card.id, "send_email", 1)
        ]


@requirement("cards:digest")
@requirement("cards:edited")
async def test_of_two_who_edit_the_same_text_one_wins_and_the_other_is_told(
    shared: Study,
) -> None:
    async with AsyncExitStack() as stack:
        desk, client = await stack.enter_async_context(shared.opened())
        other, _ = await stack.enter_async_context(shared.opened())
        card = await asked(desk, client, subject="Two hands")
        results = await asyncio.gather(
            desk.answers.edit(
                card.id, card.digest, Letter(HELLO["to"], "Two hands", "One.\n"), "person"
            ),
            other.answers.edit(
                card.id, card.digest, Letter(HELLO["to"], "Two hands", "Two.\n"), "person"
            ),
            return_exceptions=True,
        )
        (lost,) = [each for each in results if isinstance(each, BaseException)]
        (won,) = [each for each in results if not isinstance(each, BaseException)]
        assert isinstance(lost, Changed)
        assert (won.revision, (await desk.waiting.card(card.id)).body) == (2, won.body)

        # A file that was edited in the vault meanwhile is not blessed by a yes to what was shown before.
        (file,) = study_file(shared, won.id)
        file = file.rename(shared.home.vault / "Approved" / file.name)
        file.write_text(file.read_text().replace(won.body, "Three.\n"))
        with pytest.raises(Changed, match="revision 3"):
            await desk.answers.approve_now(won.id, won.digest, "person")
        revised = await desk.waiting.card(card.id)
        assert (revised.state, revised.body) == ("waiting", "Three.\n")
        await desk.answers.approve_now(card.id, revised.digest, "person")
        assert (
            await said(client, "send_email", **HELLO | {"subject": "Two hands"})
        ).startswith("Email sent")
        with pytest.raises(Denied, match="nothing is left to decide"):
            await desk.answers.reject(won.id, None, None, "person")


def study_file(study: Study, action_id: str) -> list[Path]:
    return [each for each in study.files("Pending_Approval") if action_id in each.name]


@requirement("cards:digest")
async def test_a_yes_on_the_page_is_none_to_what_was_edited_and_approved_in_the_vault(
    study: Study,
) -> None:
    approved = study.home.vault / "Approved"
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        await desk.answers.approve(card.id, card.digest, "person")
        (file,) = study.files("Pending_Approval")
        edited = file.rename(approved / file.name)
        edited.write_text(edited.read_text().replace("at ten", "at nine"))
        assert (await desk.waiting.card(card.id)).revision == 2
        (file,) = study.files("Pending_Approval")
        file.rename(approved / file.name)
        study.clock.pass_by(seconds=10)
        assert (await desk.gate.release_due(), await sent(desk)) == ([], [])
        await desk.door.hear_all()
        assert await desk.gate.release_due() == [card.id]
        assert (await said(client, "send_email", **HELLO)).endswith(
            "The person changed the text before approving it."
        )
        assert ["at nine" in mail.body for mail in await sent(desk)] == [True]


@requirement("cards:once")
@pytest.mark.parametrize("when", ["afterwards", "while it is sent"])
async def test_a_yes_on_the_page_and_in_the_vault_sends_once(
    study: Study, when: str
) -> None:
    acted: list[str] = []
    async with study.opened() as (desk, client), study.opened() as (other, _):

        async def act() -> None:
            acted.extend(await other.gate.release_due())

        card = await asked(desk, client)
        await desk.answers.approve(card.id, card.digest, "person")
        (file,) = study.files("Pending_Approval")
        file.rename(study.home.vault / "Approved" / file.name)
        shown = await desk.waiting.card(card.id)
        assert (shown.state, shown.until) == ("approved", None)
        study.clock.pass_by(seconds=10)
        if when == "while it is sent":
            desk.mailbox = Interrupted(desk.mailbox, act)
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
        if when == "afterwards":
            await act()
        done = await desk.waiting.card(card.id)
        assert (acted, done.state, done.note, len(await sent(desk))) == (
            [],
            "sent",
            None,
            1,
        )
        assert await desk.gate.next_due() is None


class BrokenStore:
    """A database that does not answer."""

    async def read(self, *_: object) -> Any:
        raise Unavailable("the database does not answer")


@requirement("cards:once")
async def test_a_hold_whose_database_fails_in_the_middle_is_finished_later(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        await desk.answers.approve(card.id, card.digest, "person")
        study.clock.pass_by(seconds=10)
        taken = await desk.gate.take_due()
        assert taken is not None
        store = cast("Store", BrokenStore())
        broken = Gate(desk.settings, store, lambda: desk.mailbox, desk.door, study.clock)
        with pytest.raises(Unavailable):
            await broken.go_on(taken, lambda due: broken.release(due.id, "desk"))
        assert (await sent(desk), await desk.gate.release_due()) == ([], [])
        assert (await desk.waiting.card(card.id)).state == "held"
        study.clock.time += LEASE
        assert await desk.gate.release_due() == [card.id]
        assert len(await sent(desk)) == 1


# The mail that is answered, and who is known.


async def received(desk: Desk, **more: str) -> str:
    mailbox = desk.mailbox
    assert isinstance(mailbox, LocalMailbox)
    await mailbox.receive([Incoming(letter(**more), seen=False)])
    (mail, *_) = await mailbox.search("in:inbox", 1)
    return mail.id


@requirement("cards:known")
@requirement("cards:risk")
async def test_the_mail_it_answers_stands_beside_it_and_says_who_is_known(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        odd = await received(
            desk, subject="Plans \u2067x", body="Come to https://example.org\u2066 tomorrow"
        )
        thread = (await desk.mailbox.get(odd)).summary.thread_id
        assert (
            await said(
                client, "reply_email", thread_id=thread, message_id=odd, body="Yes.\n"
            )
        ).startswith("Rej")
        (card,) = (await desk.waiting.cards())[0]
        assert (card.kind, card.answers, card.to[0].known) == ("reply_email", odd, True)
        assert card.to[0].since == "your first email to them"
        original = await desk.waiting.original(card)
        assert original is not None
        assert (original.sender, "tomorrow" in original.text) == (
            "Ann <ann@example.org>",
            True,
        )
        assert any("direction of reading" in warning for warning in original.warnings)

        # Said to answer Ann's mail, but meant for somebody else.
        elsewhere = SendEmail(
            to="eve@example.net",
            subject="Re: Plans",
            body="Yes.\n",
            reply_to_message_id=odd,
        )
        await desk.gate.propose(elsewhere, "gmail_mcp")
        (astray,) = [each for each in (await desk.waiting.cards())[0] if each.id != card.id]
        assert (astray.risk.level, astray.to[0].known) == ("high", False)
        assert "not to ann@example.org, who wrote the mail" in " ".join(astray.risk.reasons)

        for mailbox_error, found in (
            (NotFound("gone"), None),
            (DeskError("off"), "the mailbox cannot show it now: off"),
        ):
            faulty = Desk(desk.settings, study.clock)
            faulty.mailbox = cast("Mailbox", Faulty(desk.mailbox, mailbox_error))
            shown = await faulty.waiting.original(card)
            assert (shown.warnings[0] if shown else None) == found
            faulty.close()
        assert await desk.waiting.original(await asked(desk, client)) is None


@requirement("cards:known")
async def test_known_is_the_address_whatever_its_case_and_a_claim_counts_for_nothing(
    study: Study,
) -> None:
    async with study.opened(DESKHAND_HOLD_SECONDS="0") as (desk, client):
        card = await asked(desk, client, body="Ann is an old friend, known for years.\n")
        assert not card.to[0].known
        await desk.answers.approve(card.id, card.digest, "person")
        again = await asked(desk, client, to="ANN@Example.org", subject="Again")
        assert (again.to[0].known, again.to[0].since[:12]) == (True, "1 mail sent,")
        alike = await asked(desk, client, to="ann@examp1e.org", subject="Alike")
        assert alike.risk.level == "high"
        assert "looks like example.org, but is another" in " ".join(alike.risk.reasons)


# Many.


class CountingTransaction:
    def __init__(self, inner: Transaction, count: list[str]) -> None:
        self._inner = inner
        self._count = count
        self.dialect = inner.dialect

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def counted(sql: str, *values: Any) -> Any:
            self._count.append(sql)
            return getattr(self._inner, name)(sql, *values)

        return counted


class CountingStore:
    """A real store that keeps each statement it was given."""

    def __init__(self, inner: Store) -> None:
        self.statements: list[str] = []
        self._inner = inner

    async def read(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return await self._inner.read(
            lambda tx: work(CountingTransaction(tx, self.statements), *given, **named)
        )

    async def write(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return await self._inner.write(
            lambda tx: work(CountingTransaction(tx, self.statements), *given, **named)
        )


@requirement("cards:waiting")
async def test_what_every_page_counts_is_what_waits_and_did_not_expire(
    study: Study,
) -> None:
    async with study.opened() as (desk, _):
        now = study.clock()
        times = (None, now - timedelta(hours=1), now, now + timedelta(hours=1))
        states = ("waiting", "held", "unknown", "approved", "sent", "rejected")
        kinds = list(product(states, times, times))
        waits = [
            drafted(
                f"draft-{number:x}",
                f"d{number}@example.org",
                now,
                state=state,
                expires=expires,
                snoozed=snoozed,
            )
            for number, (state, expires, snoozed) in enumerate(kinds)
        ]

        def fill(tx: Transaction) -> None:
            for each in waits:
                ledger.insert(tx, each)

        await desk.store.write(fill)
        counts = await desk.store.read(count_waiting, now)
        open_ones = [
            (state, snoozed is not None and snoozed > now)
            for state, expires, snoozed in kinds
            if state in ("held", "unknown")
            or (state == "waiting" and (expires is None or expires > now))
        ]
        assert counts.held == sum(state == "held" for state, _ in open_ones) == 16
        awake = [is_put_off for state, is_put_off in open_ones if state != "held"]
        assert (counts.snoozed, counts.waiting) == (sum(awake), awake.count(False))
        assert (counts.snoozed, counts.waiting) == (6, 18)


@requirement("cards:waiting")
async def test_a_page_of_a_thousand_cards_takes_as_many_queries_as_a_page_of_one(
    study: Study,
) -> None:
    async with study.opened() as (desk, _):
        start = study.clock()
        tick = timedelta(milliseconds=10)
        rows = [
            proposed(f"{each:016x}", f"p{each}@example.org", start + each * tick)
            for each in range(700)
        ]
        rows += [
            drafted(f"draft-{each:x}", f"d{each}@example.org", start + each * 2.05 * tick)
            for each in range(300)
        ]

        def fill(tx: Transaction) -> None:
            for each in rows:
                ledger.insert(tx, each)

        await desk.store.write(fill)
        for each in rows:
            await desk.door.ensure_waiting(each)

        store = CountingStore(desk.store)
        gate = desk.gate
        notice = desk.door.notice_drafts
        waiting = Waiting(
            cast("Store", store),
            gate.find,
            gate.refresh_all,
            notice,
            lambda: desk.mailbox,
            study.clock,
            "UTC",
        )
        counts = await waiting.counts()
        assert (counts.waiting, counts.held, counts.snoozed) == (1000, 0, 0)
        store.statements.clear()
        (first,), _ = await waiting.cards(limit=1)
        for_one = len(store.statements)
        store.statements.clear()
        page, more = await waiting.cards(limit=50)
        assert (len(page), page[0].id, len(store.statements)) == (50, first.id, for_one)
        assert for_one <= 10

        seen = list(page)
        while more is not None:
            page, more = await waiting.cards(limit=200, after=more)
            seen += page
        assert len({card.id for card in seen}) == len(seen) == 1000
        assert seen == sorted(seen, key=lambda card: (card.created, card.id))
        for bad in ("x", "12", "-1", "１-x", "9" * 30 + "-x"):
            with pytest.raises(InvalidInput):
                await waiting.cards(after=bad)


# Where a file lies is an answer once, and only where the person put it there.


async def drafted_at(desk: Desk, study: Study) -> Request:
    """A draft that waits with its file in Drafts/."""
    request = drafted("draft-0123456789abcdef", "ann@example.org", study.clock())
    await desk.store.write(ledger.insert, request)
    await desk.door.follow(request)
    return request


def moved(study: Study, file: Path, folder: str, name: str | None = None) -> Path:
    (study.home.vault / folder).mkdir(exist_ok=True)
    return file.rename(study.home.vault / folder / (name or file.name))


async def work(desk: Desk) -> None:
    """What the orchestrator does with what is due, without its step over MCP."""
    await look_around(desk)
    await desk.gate.release_due()


@requirement("cards:digest")
@requirement("gate:withdrawn")
@pytest.mark.parametrize("kind", ["tool", "draft"])
async def test_a_no_holds_though_the_file_still_lies_in_approved(
    study: Study, kind: str
) -> None:
    async with study.opened(DESKHAND_MAX_SENDS="0", DESKHAND_HOLD_SECONDS="0") as (
        desk,
        client,
    ):
        request_id = (
            (await asked(desk, client)).id
            if kind == "tool"
            else (await drafted_at(desk, study)).id
        )
        card = await desk.waiting.card(request_id)
        await desk.answers.approve(request_id, card.digest, "person")
        await work(desk)
        (file,) = study.files("Approved")
        elsewhere = Desk(
            load(
                {k: v for k, v in study.home.environment.items() if k != "VAULT_PATH"}
            ).settings,
            study.clock,
        )
        await elsewhere.answers.reject(request_id, card.digest, "no", "person")
        elsewhere.close()
        assert file.exists()
    async with study.opened() as (desk, _):
        await work(desk)
        await work(desk)
        assert ((await desk.waiting.card(request_id)).state, await sent(desk)) == (
            "rejected",
            [],
        )
        assert [each.name for each in study.files("Rejected")] == [file.name]


@requirement("gate:withdrawn")
async def test_a_late_follower_does_not_turn_a_no_into_a_yes(study: Study) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        await desk.answers.approve(card.id, card.digest, "person")
        approved = await desk.gate.end_hold(await desk.gate.find(card.id))
        await desk.answers.reject(card.id, card.digest, None, "person")
        await desk.door.follow(approved)
        await work(desk)
        assert ((await desk.waiting.card(card.id)).state, await sent(desk)) == (
            "rejected",
            [],
        )
        assert (len(study.files("Rejected")), study.files("Approved")) == (1, [])


@requirement("gate:withdrawn")
@pytest.mark.parametrize("kind", ["tool", "draft"])
async def test_a_no_under_another_name_is_heard_while_a_yes_rests(
    study: Study, kind: str
) -> None:
    async with study.opened() as (desk, client):
        request_id = (
            (await asked(desk, client)).id
            if kind == "tool"
            else (await drafted_at(desk, study)).id
        )
        card = await desk.waiting.card(request_id)
        await desk.answers.approve(request_id, card.digest, "person")
        (file,) = study.files("Pending_Approval") + study.files("Drafts")
        os.utime(file, (study.clock().timestamp(), study.clock().timestamp()))
        moved(study, file, "Rejected", "no 1.md")
        study.clock.pass_by(seconds=10)
        await work(desk)
        assert ((await desk.waiting.card(request_id)).state, await sent(desk)) == (
            "rejected",
            [],
        )


@requirement("gate:once")
async def test_a_request_that_is_opened_again_takes_the_place_of_the_one_that_waits(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        first = await asked(desk, client)
        file = moved(study, study.files("Pending_Approval")[0], "Rejected")
        await work(desk)
        hand = study.home.vault / "Approved" / "yes.md"
        hand.parent.mkdir(exist_ok=True)
        hand.write_text(
            "---\ntype: email_send\nstatus: approved\nto: ann@example.org\n---\nFine.\n"
        )
        study.clock.pass_by(minutes=1)
        other = Letter(**HELLO | {"subject": "Other"})
        await desk.gate.propose(
            SendEmail(to=other.to, subject=other.subject, body=other.body), "email_mcp"
        )
        second = proposed("0123456789abcdef", HELLO["to"], study.clock())
        known = await desk.gate.find(first.id)
        second = replace(
            second,
            asked=known.asked,
            action=known.action,
            proposed=known.proposed,
            digest=known.digest,
        )
        await desk.store.write(ledger.insert, second)
        moved(study, file, "Approved")
        await work(desk)
        states = [(await desk.waiting.card(each)).state for each in (first.id, second.id)]
        assert states == ["sent", "withdrawn"]


@requirement("cards:hold")
async def test_a_yes_that_was_taken_back_and_given_again_rests_anew(study: Study) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        await desk.answers.approve(card.id, card.digest, "person")
        study.clock.pass_by(seconds=10)
        taken = await desk.gate.take_due()
        assert taken is not None
        await desk.answers.undo(card.id, "person")
        await desk.answers.approve(card.id, card.digest, "person")
        assert not await desk.gate.go_on(
            taken, lambda due: desk.gate.release(due.id, "desk")
        )
        assert ((await desk.waiting.card(card.id)).state, await sent(desk)) == ("held", [])


@requirement("cards:edited")
async def test_the_words_of_an_unsendable_draft_wait_for_their_own_yes(
    study: Study,
) -> None:
    async with study.opened() as (desk, _):
        request = await drafted_at(desk, study)
        file = moved(study, study.files("Drafts")[0], "Approved")
        file.write_text(file.read_text().replace("y\n", "\n"))
        await work(desk)
        broken = await desk.waiting.card(request.id)
        assert (broken.state, broken.risk.level) == ("waiting", "high")
        await desk.answers.edit(
            request.id, broken.digest, Letter("ann@example.org", "x", "Now."), "person"
        )
        await work(desk)
        assert ((await desk.waiting.card(request.id)).state, await sent(desk)) == (
            "waiting",
            [],
        )


@requirement("cards:waiting")
async def test_a_draft_of_the_persons_own_may_have_the_name_of_one_that_has_left(
    study: Study,
) -> None:
    async with study.opened() as (desk, _):
        file = study.home.vault / "Approved" / "mail.md"
        file.parent.mkdir(exist_ok=True)
        for body in ("first", "second"):
            file.write_text(
                f"---\ntype: email_draft\nto: ann@example.org\nsubject: hi\n---\n{body}\n"
            )
            await work(desk)
            await work(desk)
        assert sorted(mail.body for mail in await sent(desk)) == ["first\n", "second\n"]


@requirement("backup:proved")
async def test_after_a_restore_what_was_approved_or_being_sent_waits_for_the_person(
    study: Study,
) -> None:
    async with study.opened(DESKHAND_MAX_SENDS="0", DESKHAND_HOLD_SECONDS="0") as (
        desk,
        client,
    ):
        card = await asked(desk, client)
        await desk.answers.approve(card.id, card.digest, "person")
        sending = await asked(desk, client, subject="Other")
        await desk.store.write(ledger.take_back_all, "restored")
        row = await desk.store.read(ledger.find, sending.id)
        assert row is not None
        claimed_row = replace(
            row,
            state="sending",
            id="fedcba9876543210",
            asked="x",
            lease=study.clock(),
            due=study.clock(),
        )
        await desk.store.write(ledger.insert, claimed_row)
        await desk.store.write(ledger.take_back_all, "restored")
    async with study.opened() as (desk, _):
        await work(desk)
        await work(desk)
        states = [
            (await desk.waiting.card(each)).state for each in (card.id, "fedcba9876543210")
        ]
        assert (states, await sent(desk)) == (["waiting", "unknown"], [])


@requirement("cards:edited")
async def test_a_desk_without_a_vault_edits_no_draft(study: Study) -> None:
    async with study.opened() as (desk, _):
        request = await drafted_at(desk, study)
    environment = {
        key: value for key, value in study.home.environment.items() if key != "VAULT_PATH"
    }
    desk = Desk(load(environment).settings, study.clock)
    with pytest.raises(Denied, match="edited where the vault is"):
        await desk.answers.edit(
            request.id, request.digest, Letter("ann@example.org", "x", "Other."), "person"
        )
    desk.close()


@requirement("cards:waiting")
async def test_a_yes_that_came_to_nothing_is_among_what_waits_again(study: Study) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        assert await desk.waiting.ids() == {card.id}
        await desk.answers.approve(card.id, card.digest, "person")
        assert (
            await desk.waiting.ids() == frozenset()
        )  # what the notifications were told of is forgotten with it
        file = moved(study, study.files("Pending_Approval")[0], "Approved")
        file.write_text(file.read_text().replace("at ten", "at nine"))
        await look_around(desk)
        assert await desk.waiting.ids() == {card.id}


@requirement("cards:snooze")
def test_tomorrow_morning_is_one_time_on_the_page_and_at_the_terminal() -> None:
    now = datetime(2026, 11, 16, 7, 30, tzinfo=UTC)
    for zone in ("Europe/Berlin", "America/New_York", "UTC"):
        assert due.read_later("tomorrow", now, zone) == times.tomorrow_morning(now, zone)


@requirement("page:card")
@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "now"),
        (9.4, "in 9 seconds"),
        (59.6, "in 1 minute"),
        (2 * 3600 - 20, "in 2 hours"),
        (2 * 3600 - 40, "in 1 hour"),
        (7 * 86400 - 70, "in 7 days"),
        (7 * 86400 - 3600, "in 6 days"),
        (-86399, "1 day ago"),
    ],
)
def test_a_time_that_has_hardly_begun_is_told_whole(seconds: float, words: str) -> None:
    now = datetime(2026, 11, 18, 12, tzinfo=UTC)
    at = now + timedelta(seconds=seconds)

    assert times.moment(at, now, "Europe/Berlin").words == words


@requirement("gate:content-bound")
async def test_a_yes_that_names_another_text_releases_nothing_and_the_card_says_so(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        row = await desk.gate.find(card.id)
        await desk.store.write(
            ledger.change, row, "approved", due=study.clock(), folder="Pending_Approval"
        )
        await desk.gate.release_due()
        shown = await desk.waiting.card(card.id)
        assert (shown.state, "it was to another text" in (shown.note or "")) == (
            "waiting",
            True,
        )
        assert (await sent(desk), await desk.gate.next_due()) == ([], None)


@requirement("gate:unknown")
async def test_a_mail_of_which_nobody_knows_can_be_sent_once_more_however_old_it_is(
    study: Study,
) -> None:
    async with study.opened(DESKHAND_HOLD_SECONDS="0") as (desk, client):
        card = await asked(desk, client)
        row = await desk.gate.find(card.id)
        changes = {
            "token": "lost",
            "frozen": study.clock(),
            "revision": 2,
            "file": file_name(card.id, "send_email", 2),
        }
        await desk.store.write(ledger.change, row, "unknown", **changes)
        study.clock.pass_by(days=30)
        (listed,), _ = await desk.waiting.cards()
        done = await desk.answers.approve(card.id, listed.seen, "person")
        assert (listed.state, done.state, len(await sent(desk))) == ("unknown", "sent", 1)


@requirement("gate:unknown")
@pytest.mark.parametrize("hold", ["0", "10"])
async def test_a_yes_to_a_card_that_was_shown_before_the_mail_may_have_left_sends_it_no_second_time(
    study: Study, hold: str
) -> None:
    """A page that is open elsewhere shows it as it was, and the words are the same."""
    async with study.opened(DESKHAND_HOLD_SECONDS=hold) as (desk, client):
        card = await asked(desk, client)
        row = await desk.gate.find(card.id)
        for revision in (2, 3):
            shown = await desk.waiting.card(card.id)
            changes = {
                "token": "lost",
                "revision": revision,
                "file": file_name(card.id, "send_email", revision),
            }
            await desk.store.write(ledger.change, row, "unknown", **changes)
            for answer in (desk.answers.approve, desk.answers.approve_now):
                for named in (shown.seen, card.digest):
                    with pytest.raises(Changed, match="no longer what was shown"):
                        await answer(card.id, named, "person")
            row = await desk.gate.find(card.id)
            assert (row.state, row.revision) == ("unknown", revision)
        assert await sent(desk) == []
        # A no may come from anywhere.
        no = await desk.answers.reject(card.id, card.digest, None, "person")
        assert no.state == "rejected"


@requirement("gate:withdrawn")
async def test_a_no_counts_before_a_yes_under_whatever_name_its_copy_lies(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        (file,) = study.files("Pending_Approval")
        copy = moved(study, file, "Approved")
        (study.home.vault / "Rejected").mkdir(exist_ok=True)
        (study.home.vault / "Rejected" / "no.md").write_bytes(copy.read_bytes())
        await work(desk)
        assert ((await desk.waiting.card(card.id)).state, await sent(desk)) == (
            "rejected",
            [],
        )


@requirement("cards:waiting")
async def test_one_draft_that_cannot_be_read_now_keeps_nobody_from_being_heard(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        heading = "type: email_draft\nto: ann@example.org\nsubject: hi\nreply_to_message_id: m1\ndraft_id: draft-own"
        (study.home.vault / "Drafts").mkdir(exist_ok=True)
        (study.home.vault / "Drafts" / "own.md").write_text(f"---\n{heading}\n---\nhello\n")
        moved(study, study.files("Pending_Approval")[0], "Approved")
        assert isinstance(desk.mailbox, LocalMailbox)
        faulty = Desk(desk.settings, study.clock)
        faulty.mailbox = cast(
            "Mailbox", Faulty(desk.mailbox, Unavailable("the mailbox is away"))
        )
        await faulty.door.hear_all()
        assert (await faulty.waiting.card(card.id)).state == "approved"
        assert [each.id for each in (await faulty.waiting.cards())[0]] == [card.id]
        faulty.close()


@requirement("cards:asker")
async def test_a_draft_that_answers_nothing_is_a_mail_of_its_own(study: Study) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
    draft = replace(card, kind="draft", answers=None)
    assert draft.what == card.what == "new mail"
    assert replace(draft, answers="<m@x.example>").what == "drafted reply"


@requirement("cards:asker")
@pytest.mark.parametrize(
    ("asked_by", "reason", "claim", "rule_says"),
    [
        ("email_mcp", "She asked for it.", "She asked for it.", None),
        ("rule:the boss", "My boss is served first.", None, "My boss is served first."),
        ("rule:the boss", "the rule 'the boss'", None, None),
    ],
)
async def test_of_the_persons_own_rule_nothing_has_to_be_taken_on_trust(
    study: Study, asked_by: str, reason: str, claim: str | None, rule_says: str | None
) -> None:
    async with study.opened() as (desk, client):
        card = replace(await asked(desk, client), asked_by=asked_by, reason=reason)
    assert (card.claim, card.rule_says) == (claim, rule_says)
