"""Tell me if nobody answers: set by whoever writes the mail or by the person, and told once."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from secrets import token_hex
from typing import Any

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.clock import dated, natural, utc_now
from deskhand.config import load
from deskhand.errors import InvalidInput, NotFound
from deskhand.gate import follow_ups
from deskhand.gate.cards import Card
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.orchestrator import reminding
from deskhand.servers.desk import desk_server
from deskhand.web.site import site as web_site
from tests.gate.site import HELLO, Clock
from tests.home import Home
from tests.mail.letters import letter
from tests.requirements import requirement
from tests.web.person import served, signed_in

pytestmark = [pytest.mark.anyio, requirement("mail:follow-up")]


MACHINES: list[tuple[str, dict[str, str]]] = [
    ("me@example.com", {}),
    ("Ann <ann@example.org>", {"Auto_Submitted": "auto-replied; owner-email=x"}),
    ("Ann <ann@example.org>", {"X_Autoreply": "yes"}),
    ("Ann <ann@example.org>", {"Precedence": "auto_reply"}),
    ("Ann <ann@example.org>", {"Return_Path": "<>"}),
    ("Mail Delivery <MAILER-DAEMON@mx.example.org>", {}),
]


class Awaiting:
    """A desk with a local mailbox, and an assistant at its whole-desk server."""

    def __init__(self, desk: Desk, client: Client, clock: Clock) -> None:
        self.desk = desk
        self.client = client
        self.clock = clock

    async def ask(self, **mail: Any) -> str:
        result = await self.client.call_tool("send_email", HELLO | mail)
        return str(result.content[0].text)

    async def send(self, **mail: Any) -> Card:
        """A mail that the person approved and that has left."""
        await self.ask(**mail)
        (card,) = await self.waiting()
        await self.desk.answers.approve_now(card.id, card.digest, "person")
        await self.desk.gate.release_due()
        return await self.desk.waiting.card(card.id)

    async def waiting(self) -> list[Card]:
        return (await self.desk.waiting.cards())[0]

    async def receive(
        self, sent: Card, sender: str = "Ann <ann@example.org>", **headers: str
    ) -> None:
        """A mail in the thread of one that left."""
        box = self.desk.mailbox
        assert isinstance(box, LocalMailbox)
        account = (await self.desk.waiting.find(sent.id)).send_id
        raw = letter(
            sender=sender,
            references=f"<{account}@example.com>",
            message_id=f"<{token_hex(8)}@x>",
        )
        lines = "".join(
            f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()
        )
        await box.receive([Incoming(lines.encode() + raw, seen=False, dated=self.clock())])

    async def receive_apart(self, sender: str, subject: str) -> None:
        """A mail in a thread of its own."""
        box = self.desk.mailbox
        assert isinstance(box, LocalMailbox)
        raw = letter(sender=sender, subject=subject, message_id=f"<{token_hex(8)}@x>")
        await box.receive([Incoming(raw, seen=False, dated=self.clock())])

    async def look_after(self, **span: float) -> list[Card]:
        """What waits after the desk has looked again."""
        self.clock.pass_by(**span)
        await reminding.look(self.desk)
        return await self.waiting()

    async def awaited(self) -> list[follow_ups.AwaitedAnswer]:
        return await self.desk.store.read(follow_ups.list_awaited)


@asynccontextmanager
async def opened(home: Home, clock: Clock) -> AsyncIterator[Awaiting]:
    desk = Desk(
        load(home.environment | {"DESKHAND_ADDRESS": "me@example.com"}).settings, clock
    )
    try:
        async with Client(desk_server(desk), mode="2026-07-28") as client:
            yield Awaiting(desk, client, clock)
    finally:
        await desk.close_mailbox()
        desk.close()


@pytest.fixture
async def place(home: Home) -> AsyncIterator[Awaiting]:
    async with opened(home, Clock()) as made:
        yield made


async def test_the_person_is_told_once_when_nobody_answered_also_after_a_restart(
    home: Home,
) -> None:
    clock = Clock()
    async with opened(home, clock) as place:
        sent = await place.send(follow_up="fri 14:00")
        (awaited,) = await place.awaited()
        assert awaited.due.isoformat() == "2026-11-20T14:00:00+00:00"
        assert await place.look_after(days=5) == []
    async with opened(home, clock) as place:
        (told,) = await place.look_after(hours=6)
        assert (told.kind, told.asker) == ("ask_person", "the desk")
        assert "ann@example.org" in told.body
        assert HELLO["subject"] in told.subject
        assert [card.id for card in await place.look_after(days=1)] == [told.id]
        assert len(list((home.vault / "Pending_Approval").glob("*.md"))) == 1
        next(
            (home.vault / "Pending_Approval").glob("*.md")
        ).unlink()  # as a process that died before it was written
        await place.look_after(minutes=1)
        assert len(list((home.vault / "Pending_Approval").glob("*.md"))) == 1
        await place.desk.answers.respond(told.id, told.digest, follow_ups.LEAVE, "person")
        assert await place.look_after(days=30) == []
        assert await place.awaited() == []
        with pytest.raises(NotFound):
            await place.desk.store.write(follow_ups.cancel, sent.id)


async def test_of_two_desks_one_tells(home: Home) -> None:
    clock = Clock()
    async with opened(home, clock) as ours, opened(home, clock) as other:
        await ours.send(follow_up="3d")
        clock.pass_by(days=4)
        await ours.desk.store.write(follow_ups.begin, "never asked", clock(), clock())
        (awaited,) = await ours.awaited()
        question = follow_ups.ask_about(awaited, "UTC")
        assert (
            await ours.desk.store.write(follow_ups.tell, awaited, question, clock())
            is not None
        )
        assert (
            await other.desk.store.write(follow_ups.tell, awaited, question, clock())
            is None
        )
        assert len(await other.look_after(minutes=1)) == 1


async def test_who_wants_to_be_told_again_is(place: Awaiting) -> None:
    await place.send(follow_up="3d")
    (told,) = await place.look_after(days=3, minutes=1)
    await place.desk.answers.respond(told.id, told.digest, follow_ups.AGAIN, "person")
    assert await place.look_after(days=1) == []
    (again,) = await place.look_after(days=3)
    assert again.id != told.id


async def test_an_answer_ends_it(place: Awaiting) -> None:
    sent = await place.send(follow_up="3d")
    place.clock.pass_by(hours=1)
    await place.receive(sent)
    assert await place.look_after(days=3) == []
    assert await place.awaited() == []


async def test_an_answer_that_names_no_mail_ends_it_by_its_subject(place: Awaiting) -> None:
    await place.send(follow_up="3d")
    place.clock.pass_by(hours=1)
    await place.receive_apart("Bob <bob@example.org>", f"Re: {HELLO['subject']}")
    await place.look_after(minutes=10)
    assert len(await place.awaited()) == 1  # nobody had written to him
    await place.receive_apart("Ann <ann@example.org>", f"AW:  re: {HELLO['subject']}")
    await place.look_after(minutes=10)
    assert await place.awaited() == []


async def test_a_copy_to_oneself_is_no_answer(place: Awaiting) -> None:
    await place.send(cc=["me@example.com"], follow_up="3d")
    assert await place.look_after(hours=1) == []
    assert len(await place.awaited()) == 1
    (told,) = await place.look_after(days=3)
    assert "Nobody has answered" in told.body
    assert "has written to you since" not in told.body


async def test_a_reminder_that_goes_to_oneself_alone_is_answered_by_nobody(
    place: Awaiting,
) -> None:
    await place.send(to="me@example.com", follow_up="3d")
    assert len(await place.look_after(days=3, hours=1)) == 1


async def test_a_mail_about_something_else_is_named_when_the_person_is_told(
    home: Home,
) -> None:
    home.environment["DESKHAND_TIMEZONE"] = "Europe/Berlin"
    async with opened(home, Clock()) as place:
        await place.send(follow_up="3d")
        place.clock.pass_by(hours=1)
        await place.receive_apart("Ann <ann@example.org>", "The roof")
        (told,) = await place.look_after(days=3)
        left = (await place.desk.waiting.find(told.id)).created - timedelta(days=3)
        assert "Ann <ann@example.org> has written to you since: “The roof” on" in told.body
        for at in (left, left - timedelta(hours=1)):
            assert dated(at, "Europe/Berlin") in told.body
        assert "Z" not in told.body


async def test_what_no_person_wrote_is_no_answer(place: Awaiting) -> None:
    sent = await place.send(follow_up="3d")
    place.clock.pass_by(hours=1)
    for sender, headers in MACHINES:
        await place.receive(sent, sender, **headers)
    assert await place.look_after(hours=1) == []
    thread = (await place.desk.waiting.find(sent.id)).thread_id
    assert thread
    assert len(await place.desk.mailbox.thread(thread)) == 7
    assert len(await place.awaited()) == 1
    assert len(await place.look_after(days=3)) == 1


def test_a_report_and_a_letter_are_told_apart() -> None:
    report = b'From: a@b.example\r\nContent-Type: multipart/report; boundary="x"\r\n\r\n--x--\r\n'
    assert reminding.is_by_machine(report)
    assert not reminding.is_by_machine(
        b"From: a@b.example\r\nAuto-Submitted: no\r\nPrecedence: list\r\n\r\nYes.\r\n"
    )
    assert not reminding.is_by_machine(b"\xff\0 no mail at all")


async def test_the_time_counts_from_when_the_mail_left(place: Awaiting) -> None:
    await place.ask(follow_up="2d")
    (card,) = await place.waiting()
    assert [each.id for each in await place.look_after(days=4)] == [
        card.id
    ]  # it has not left: nobody can answer
    await place.desk.answers.approve_now(card.id, card.digest, "person")
    await place.desk.gate.release_due()
    assert await place.look_after(days=1) == []
    assert len(await place.look_after(days=1, minutes=1)) == 1


async def test_a_mail_that_never_leaves_is_awaited_by_nobody(place: Awaiting) -> None:
    await place.ask(follow_up="2d")
    (card,) = await place.waiting()
    await place.desk.answers.reject(card.id, card.digest, None, "person")
    assert await place.look_after(days=4) == []
    assert await place.awaited() == []
    request = await place.desk.waiting.find(card.id)
    later = place.clock() + timedelta(days=1)
    with pytest.raises(InvalidInput, match="nobody can answer"):
        await place.desk.store.write(follow_ups.await_answer, request, later, place.clock())


async def test_a_time_that_is_none_is_refused_and_nobody_asked(place: Awaiting) -> None:
    for words in (
        "yesterday",
        "2020-01-01T00:00:00Z",
        "next friday",
        "2999-01-01T00:00:00Z",
    ):
        assert "follow_up" in await place.ask(follow_up=words)
    assert await place.waiting() == []


async def test_what_the_person_says_stands_when_the_assistant_calls_again(
    place: Awaiting,
) -> None:
    await place.ask(follow_up="2d")
    (card,) = await place.waiting()
    request = await place.desk.waiting.find(card.id)
    due = place.clock() + timedelta(days=9)
    await place.desk.store.write(follow_ups.await_answer, request, due, place.clock())
    await place.ask(follow_up="1d")
    (awaited,) = await place.awaited()
    assert awaited.due == due


async def test_a_mailbox_that_is_away_is_asked_again_for_a_day(
    place: Awaiting, home: Home
) -> None:
    await place.send(follow_up="2d")
    await place.desk.close_mailbox()
    for each in home.path.glob("mail.db*"):
        each.write_bytes(b"no mailbox" * 1000)
    assert await place.look_after(days=2, hours=1) == []
    (told,) = await place.look_after(days=1)
    assert "could not be seen" in told.body


async def test_the_page_and_the_command_set_list_and_cancel(
    place: Awaiting, home: Home
) -> None:
    sent = await place.send()
    async with (
        served(web_site(place.desk)) as address,
        signed_in(place.desk, address) as person,
    ):
        assert (
            "Tell me if nobody answers"
            in (await person.reads(f"/approvals/{sent.id}")).text
        )
        done = await person.sends(
            f"/approvals/{sent.id}/follow-up", {"when": "3d", "digest": sent.digest}
        )
        assert done.status_code == 303
        shown = (await person.reads("/follow-ups")).text
        assert HELLO["subject"] in shown
        assert re.search(r"you are told <time datetime=\S+ title=\S+>\w", shown)
        assert re.search(r"sent <time [^>]*>(today|yesterday), \d\d:\d\d</time>", shown)
        assert "You are told" in (await person.reads(f"/approvals/{sent.id}")).text
        listed = home.command("follow-up", "list", "--json")
        assert sent.id in listed.stdout, listed.stderr
        berlin = {"DESKHAND_TIMEZONE": "Europe/Berlin"}
        (awaited,) = await place.awaited()
        due = natural(awaited.due, utc_now(), berlin["DESKHAND_TIMEZONE"])
        words = home.command("follow-up", "list", **berlin).stdout
        assert (due in words, "UTC" in words) == (True, False)
        assert (
            await person.sends("/follow-ups/cancel", {"request": sent.id})
        ).status_code == 303
        assert "There is none" in (await person.reads("/follow-ups")).text
        assert (
            await person.sends(f"/approvals/{sent.id}/follow-up", {"when": "whenever"})
        ).status_code == 422
    assert home.command("follow-up", "cancel", "nothing").returncode == 4


async def test_how_long_is_counted_from_the_sending_and_a_named_time_stays(
    place: Awaiting,
) -> None:
    begun = place.clock()
    for subject, words in (
        ("a", "3d"),
        ("b", "in 3 days"),
        ("c", "2026-11-18T12:00:00Z"),
        ("d", "fri 14:00"),
    ):
        await place.ask(follow_up=words, subject=subject)
    await place.ask(follow_up="2d", subject="e", send_at="2026-11-17T09:00:00Z")
    before = {each.request.action.subject: each.due for each in await place.awaited()}
    assert before["e"] == begun + timedelta(days=4)
    place.clock.pass_by(hours=2)
    for card in await place.waiting():
        await place.desk.answers.approve_now(card.id, card.digest, "person")
    await place.desk.gate.release_due()
    after = {
        each.request.action.subject: each.due - before[each.request.action.subject]
        for each in await place.awaited()
    }
    late = timedelta(hours=2)
    assert after == {
        "a": late,
        "b": late,
        "c": timedelta(),
        "d": timedelta(),
        "e": timedelta(),
    }
    sent = next(
        each.request for each in await place.awaited() if each.request.action.subject == "a"
    )
    place.clock.pass_by(days=9)
    due = await place.desk.store.write(
        follow_ups.await_answer, sent, timedelta(days=3), place.clock()
    )
    assert due == place.clock() + timedelta(days=3)  # it has left: from now on
