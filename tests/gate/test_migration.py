"""A desk of the version before requests, opened by this one: nothing is lost, and nothing leaves twice."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deskhand.app import Desk
from deskhand.clock import to_ms
from deskhand.config import load
from deskhand.errors import NotFound, SendFailed
from deskhand.gate.cards import Card
from deskhand.gate.folders import as_file
from deskhand.mail import Keep, Mailbox, Outgoing, Sent, Unclear
from deskhand.orchestrator import replies, steps
from deskhand.store import open_store, postgresql, sqlite
from tests.gate.old_desk import (
    MAY_HAVE_LEFT,
    ME,
    OldDesk,
    digest_words,
    draft_of,
    mail_of,
    name_of,
)
from tests.gate.site import Clock, Interrupted
from tests.home import Home
from tests.old_database import database_at
from tests.requirements import requirement

SENDING = "Approved/.sending"
HELD = timedelta(seconds=10)
TOOLS = {
    "waiting": "waiting",
    "held": "held",
    "taken": "held",
    "came-to-nothing": "waiting",
    "changed": "waiting",
    "snoozed": "snoozed",
    "approved": "approved",
    "moved": "approved",
    "left": "sending",
    "leaving": "sending",
    "begun": "sending",
    "unknown": "unknown",
    "unknown-held": "held",
    "unknown-snoozed": "snoozed",
    "once-more": "approved",
    "once-more-sending": "sending",
    "rejected": "rejected",
    "expired": "expired",
    "withdrawn": "withdrawn",
    "failed": "failed",
    "sent": "sent",
    "by-hand": "sent",
    "by-hand-left": "sending",
}
DRAFTS = {
    "d-waiting": "waiting",
    "d-edited": "waiting",
    "d-empty": "waiting",
    "d-held": "held",
    "d-held-edited": "held",
    "d-held-changed": "waiting",
    "d-taken": "held",
    "d-snoozed": "snoozed",
    "d-approved": "approved",
    "d-approved-edited": "approved",
    "d-moved": "approved",
    "d-rejected": "rejected",
    "d-rejected-gone": "rejected",
    "d-words": "rejected",
    "d-words-seen": "rejected",
    "d-left": "sending",
    "d-own-left": "sending",
    "d-unknown": "unknown",
    "d-unknown-held": "held",
    "d-unknown-snoozed": "snoozed",
    "d-once-more": "approved",
    "d-said-no": "rejected",
    "d-sent": "sent",
}
WENT_BEFORE = {"left", "by-hand-left", "Re: d-left", "Re: d-own-left"}
"""Mails that had left when the process that sent them died."""
LEAVES = {
    *(
        "held",
        "taken",
        "approved",
        "moved",
        "leaving",
        "begun",
        "unknown-held",
        "once-more",
        "once-more-sending",
    ),
    *(
        "Re: d-held",
        "Re: d-held-edited",
        "Re: d-taken",
        "Re: d-approved",
        "Re: d-approved-edited",
        "Re: d-moved",
    ),
    *("Re: d-unknown-held", "Re: d-once-more"),
}
"""What the person had said yes to."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def old(home: Home, url: str, clock: Clock) -> OldDesk:
    old = OldDesk(home, url, clock())
    await _propose(old)
    await _draft(old)
    await old.mailbox.close()
    old.save()
    return old


async def _propose(old: OldDesk) -> None:
    at = to_ms(old.now)
    yes: dict[str, Any] = {"decided_by": "person", "decided": at}
    asked: dict[str, Any] = {
        "revision": 2,
        "note": MAY_HAVE_LEFT,
        "token": "lost",
        "frozen": at,
        **yes,
    }
    again = asked | {"note": "once more"}
    old.propose("waiting")
    old.hold(name_of("held"), old.propose("held").digest)
    old.hold(name_of("taken"), old.propose("taken").digest, until=at - 9, taken=at - 1)
    old.hold(
        name_of("came-to-nothing"),
        old.propose("came-to-nothing").digest,
        taken=at,
        note="Your yes came to this.",
    )
    old.propose("changed")
    old.hold(name_of("changed"), "of another text")
    old.propose("snoozed")
    old.snooze(name_of("snoozed"))
    old.propose("approved", "approved", "Approved", **yes)
    tries = {"attempts": 2, "error": "unavailable: away", "due": at + 5000, "tried": at}
    old.add_step(
        f"send:{name_of('approved')}",
        "send",
        "approved",
        {"action_id": name_of("approved")},
        **tries,
    )
    old.propose("moved", folder="Approved")

    old.propose(
        "left",
        "sending",
        SENDING,
        **yes,
        **old.begun(await old.send("left", mail_of("left"))),
    )
    prepared = await old.prepare("leaving", mail_of("leaving"))
    old.propose("leaving", "sending", SENDING, **yes, **old.begun(prepared, over=False))
    old.propose("begun", "sending", SENDING, **yes, **old.begun(None))
    old.propose("unknown", "unknown", **asked)
    old.hold(
        name_of("unknown-held"), old.propose("unknown-held", "unknown", **asked).digest
    )
    old.propose("unknown-snoozed", "unknown", **asked)
    old.snooze(name_of("unknown-snoozed"))
    old.propose("once-more", "approved", "Approved", **again)
    old.propose("once-more-sending", "sending", SENDING, **again | {"lease": at - 1})

    no = old.propose("rejected", "rejected", "Rejected", **yes, note="not now")
    old.hold(name_of("rejected"), no.digest)  # said no to in the vault while a yes rested
    old.hold(name_of("gone"), no.digest)
    old.propose("expired", "expired", "Done")
    old.propose("withdrawn", "withdrawn", "Done")
    old.propose("failed", "failed", None, decided_by="hand-written approval")
    old.propose("sent", "sent", "Done", **yes, message_id="m1", thread_id="t1", untold=1)
    by_hand = {"decided_by": "hand-written approval"}
    old.propose("by-hand", "sent", None, **by_hand, message_id="m2", thread_id="t2")
    token = await old.send("by-hand-left", mail_of("by-hand-left"))
    old.propose("by-hand-left", "sending", None, **by_hand, **old.begun(token))
    for word in ("by-hand", "by-hand-left"):
        text = f"---\ntype: email_send\nstatus: approved\nto: {word}@example.org\n---\nFine with me.\n"
        file = old.write(SENDING, f"yes {word}.md", text, claimed_by=name_of(word))
        content = as_file("Approved", file.name, text).content
        old.rows.append(
            ("used_approvals", {"content": content, "action_id": name_of(word), "at": at})
        )


async def _draft(old: OldDesk) -> None:
    at = to_ms(old.now)
    await old.draft("d-waiting")
    await old.draft("d-edited", body="In the person's words.\n")
    empty = await old.draft("d-empty", None)
    old.write_draft("Drafts", "d-empty", empty.model_copy(update={"body": ""}))
    old.hold(draft_of("d-held"), digest_words(await old.draft("d-held")))
    edited = await old.draft("d-held-edited", body="Held in other words.\n")
    old.hold(draft_of("d-held-edited"), digest_words(edited, "Held in other words.\n"))
    old.hold(
        draft_of("d-held-changed"),
        digest_words(await old.draft("d-held-changed", body="Never seen.\n")),
    )
    await old.draft("d-snoozed")
    old.snooze(draft_of("d-snoozed"))

    for word, folder, body in (
        ("d-approved", "Approved", None),
        ("d-approved-edited", "Approved", "Approved in other words.\n"),
        ("d-taken", "Drafts", None),
    ):
        mail = await old.draft(word, folder, body, decided=at)
        drafted = next(
            row
            for table, row in old.rows
            if table == "drafts" and row["id"] == draft_of(word)
        )
        drafted["approved"] = digest_words(mail, body)
        if word == "d-taken":
            old.hold(draft_of(word), digest_words(mail), until=at - 9, taken=at - 1)
    await old.draft("d-moved", "Approved")
    data = {"draft_id": draft_of("d-moved"), "file": f"reply-{name_of('d-moved')}.md"}
    old.add_step(f"send:{draft_of('d-moved')}", "send", "approved", data, due=at)

    rejected = await old.draft("d-rejected", None, decided=at)
    old.write_draft(
        "Rejected", "d-rejected", rejected, status="rejected", rejected_reason="too early"
    )
    await old.draft("d-rejected-gone", None, step="rejected")
    old.correct("d-rejected-gone", "too late")
    await old.draft("d-words", "Rejected", decided=at, words="shorter")
    await old.draft("d-words-seen", "Rejected", decided=at, words="longer", step="arrived")
    old.correct("d-words-seen", "do it this way: longer")

    left = await old.draft("d-left", SENDING)
    old.release("d-left", left, "sending", **old.begun(await old.send("d-left", left)))
    own = await old.receive("d-own-left")
    old.write_draft(SENDING, "d-own-left", own)
    old.release(
        "d-own-left", own, "sending", **old.begun(await old.send("d-own-left", own))
    )
    asked = {"note": MAY_HAVE_LEFT}
    for word in ("d-unknown", "d-unknown-held", "d-unknown-snoozed"):
        mail = await old.draft(word, None)
        old.ask_again(word, mail, "unknown", "Pending_Approval", **asked)
        if word == "d-unknown-held":
            old.hold(name_of(word), mail.digest)
    old.snooze(name_of("d-unknown-snoozed"))
    again = {"decided_by": "vault", "decided": at}
    more = await old.draft("d-once-more", None)
    old.ask_again("d-once-more", more, "approved", "Approved", **again, note="once more")
    no = await old.draft("d-said-no", None, decided=at, approved="of its words")
    old.ask_again("d-said-no", no, "rejected", "Rejected", **again)
    sent = await old.draft("d-sent", None, step="answered")
    old.release(
        "d-sent", sent, "sent", **old.begun("used"), message_id="m3", thread_id="t3"
    )
    old.write_draft("Done", "d-sent", sent, status="done")


@asynccontextmanager
async def _opened(old: OldDesk, clock: Clock, **variables: str) -> AsyncIterator[Desk]:
    """The desk by this version."""
    given = {
        "DESKHAND_DATABASE_URL": old.url,
        "DESKHAND_ADDRESS": ME,
        "DESKHAND_MAX_SENDS": "1000",
    }
    desk = Desk(load(old.home.environment | given | variables).settings, clock)
    try:
        yield desk
    finally:
        await desk.close_mailbox()
        desk.close()


async def _cards(desk: Desk) -> dict[str, Card]:
    tools = {word: await desk.waiting.card(name_of(word)) for word in TOOLS}
    return tools | {word: await desk.waiting.card(draft_of(word)) for word in DRAFTS}


def _states(cards: dict[str, Card]) -> dict[str, str]:
    return {word: card.state for word, card in cards.items()}


async def _sent(desk: Desk) -> Counter[str]:
    return Counter(mail.subject for mail in await desk.mailbox.search("in:sent", 500))


def _once(subjects: set[str]) -> Counter[str]:
    return Counter(dict.fromkeys(subjects, 1))


async def _all_waiting(desk: Desk, *, snoozed: bool) -> set[str]:
    cards, more = await desk.waiting.cards(limit=100, snoozed=snoozed)
    assert more is None
    return {card.id for card in cards}


@requirement("store:upgraded")
async def test_everything_is_in_the_state_that_means_the_same(
    old: OldDesk, clock: Clock
) -> None:
    async with _opened(old, clock) as desk:
        cards = await _cards(desk)
        open_ids = await _all_waiting(desk, snoozed=False)
        asleep = await _all_waiting(desk, snoozed=True)
        count = await desk.store.read(lambda tx: tx.one("SELECT COUNT(*) FROM requests"))
        sent = await _sent(desk)

    assert _states(cards) == TOOLS | DRAFTS
    assert count == (len(TOOLS) + len(DRAFTS),)
    assert sent == _once(WENT_BEFORE)
    ids = {word: name_of(word) for word in TOOLS} | {
        word: draft_of(word) for word in DRAFTS
    }
    ended = ("rejected", "expired", "withdrawn", "failed", "sent")
    states = (TOOLS | DRAFTS).items()
    assert asleep == {ids[word] for word, state in states if state == "snoozed"}
    assert open_ids == {
        ids[word] for word, state in states if state not in ("snoozed", *ended)
    }


async def test_a_card_says_what_it_said(old: OldDesk, clock: Clock) -> None:
    async with _opened(old, clock) as desk:
        cards = await _cards(desk)

    notes = {word: card.note for word, card in cards.items()}
    assert notes["came-to-nothing"] == "Your yes came to this."
    assert "changed after your yes" in (notes["changed"] or "")
    assert "changed after your yes" in (notes["d-held-changed"] or "")
    assert (notes["unknown"], notes["d-unknown"]) == (MAY_HAVE_LEFT, MAY_HAVE_LEFT)
    assert (notes["rejected"], notes["d-rejected"], notes["d-rejected-gone"]) == (
        "not now",
        "too early",
        "too late",
    )
    assert notes["d-words"] == "do it this way: shorter"
    assert notes["once-more"] is None
    assert cards["held"].until == cards["d-held"].until == clock() + HELD
    assert cards["snoozed"].until == cards["d-snoozed"].until == clock() + timedelta(days=1)
    edited = cards["d-edited"]
    assert (edited.body, cards["d-waiting"].difference) == (
        "In the person's words.\n",
        None,
    )
    assert "-About d-edited." in (edited.difference or "")
    assert (edited.asked_by, edited.reason, edited.account) == ("rule:x", "why", ME)
    assert any("body is empty" in reason for reason in cards["d-empty"].risk.reasons)


async def test_what_was_approved_leaves_once_and_nothing_else_does(
    old: OldDesk, clock: Clock
) -> None:
    async with _opened(old, clock) as desk:
        await desk.gate.release_due()
        early = await _sent(desk)
        await replies.look_around(desk)
        clock.pass_by(minutes=5)
        await desk.gate.release_due()
        await replies.look_around(desk)
        clock.pass_by(minutes=5)
        again = await desk.gate.release_due()
        sent = await _sent(desk)
        cards = await _cards(desk)
        edited = [
            await desk.mailbox.search(f"in:sent subject:{word}", 5)
            for word in ("d-held-edited", "d-held")
        ]

    assert again == []
    assert not early.keys() & {"held", "Re: d-held", "Re: d-held-edited"}
    assert sent == _once(WENT_BEFORE | LEAVES)
    done = {word.removeprefix("Re: ") for word in WENT_BEFORE | LEAVES}
    assert {word for word, card in cards.items() if card.state == "sent"} == done | {
        "sent",
        "by-hand",
        "d-sent",
    }
    assert {mail.snippet for found in edited for mail in found} >= {"Held in other words."}
    assert not list((old.home.vault / SENDING).iterdir())
    assert not list((old.home.vault / "Approved").glob("*.md"))


async def test_a_draft_leaves_in_its_thread_and_in_the_persons_words(
    old: OldDesk, clock: Clock
) -> None:
    async with _opened(old, clock) as desk:
        for word in ("d-waiting", "d-edited", "d-snoozed"):
            card = await desk.waiting.card(draft_of(word))
            await desk.answers.approve(card.id, card.digest, "person")
        clock.pass_by(seconds=11)
        await desk.gate.release_due()
        sent = {mail.subject: mail for mail in await desk.mailbox.search("in:sent", 500)}
        (asked,) = await desk.mailbox.search("from:d-edited@example.org", 2)
        edited = await desk.mailbox.get(sent["Re: d-edited"].id)

    assert {"Re: d-waiting", "Re: d-edited", "Re: d-snoozed"} <= sent.keys()
    assert (edited.summary.thread_id, edited.body.strip()) == (
        asked.thread_id,
        "In the person's words.",
    )
    assert "<d-edited@example.org>" in edited.references


async def test_what_may_have_left_still_asks_and_is_sent_once_more_by_its_old_file(
    old: OldDesk, clock: Clock
) -> None:
    vault = old.home.vault
    asked = [f"email-send-{name_of(word)}-2.md" for word in ("unknown", "d-unknown")]
    async with _opened(old, clock) as desk:
        await replies.look_around(desk)
        await desk.gate.release_due()
        before = await _sent(desk)
        for name in asked:
            (vault / "Pending_Approval" / name).rename(vault / "Approved" / name)
        await replies.look_around(desk)
        states = [
            (await desk.waiting.card(name)).state
            for name in (name_of("unknown"), draft_of("d-unknown"))
        ]
        await desk.gate.release_due()
        after = await _sent(desk)

    assert states == ["approved", "approved"]
    assert after - before == Counter({"unknown": 1, "Re: d-unknown": 1})


async def test_a_draft_that_is_sent_once_more_and_refused_at_first_leaves_in_its_own_words(
    old: OldDesk, clock: Clock
) -> None:
    async def refuse() -> None:
        raise SendFailed("not now")

    async with _opened(old, clock) as desk:
        mailbox = desk.mailbox
        desk.mailbox = Interrupted(mailbox, refuse)
        await desk.gate.release(draft_of("d-once-more"), "desk")
        refused = await desk.waiting.card(draft_of("d-once-more"))
        desk.mailbox = mailbox
        await desk.gate.release(draft_of("d-once-more"), "desk")
        (sent,) = await mailbox.search("in:sent subject:d-once-more", 5)

    assert (refused.state, refused.body, sent.snippet) == (
        "approved",
        "About d-once-more.\n",
        "About d-once-more.",
    )


class _Death(BaseException):
    """Of the process, as far as the desk can tell."""


class _Deadly:
    """A real mailbox that sends, and the process dies of it; afterwards it does not know."""

    def __init__(self, inner: Mailbox) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def send(self, token: str, mail: Outgoing, keep: Keep) -> Sent:
        await self._inner.send(token, mail, keep)
        raise _Death

    async def check(self, token: str, mail: Outgoing) -> Unclear:
        del token, mail
        return Unclear("the mailbox did not say")


async def test_once_more_is_once_whatever_dies(old: OldDesk, clock: Clock) -> None:
    async with _opened(old, clock) as desk:
        desk.mailbox = _Deadly(desk.mailbox)
        with pytest.raises(_Death):
            await desk.gate.release(name_of("once-more"), "desk")
        clock.pass_by(minutes=5)
        await desk.gate.release(name_of("once-more"), "desk")
        card = await desk.waiting.card(name_of("once-more"))
        sent = await _sent(desk)

    assert (card.state, sent["once-more"]) == ("unknown", 1)


async def test_the_notes_of_the_mails_are_settled_as_before(
    old: OldDesk, clock: Clock
) -> None:
    async with _opened(old, clock) as desk:
        await replies.look_around(desk)
        clock.pass_by(minutes=5)
        await desk.gate.release_due()
        await replies.look_around(desk)
        found = await desk.store.read(
            lambda tx: tx.all("SELECT key, state, data FROM steps ORDER BY key")
        )
        unsettled = await desk.store.read(lambda tx: steps.in_states(tx, ("drafted",), 100))

    states = {
        data.partition('"note": "email-')[2].partition(".md")[0]: state
        for _, state, data in found
    }
    assert not [key for key, _, _ in found if key.startswith("send:")]
    assert states["d-held"] == states["d-left"] == states["d-sent"] == "answered"
    assert (
        states["d-rejected"]
        == states["d-rejected-gone"]
        == states["d-said-no"]
        == "rejected"
    )
    assert len(unsettled) == len(
        [word for word, state in states.items() if state == "drafted"]
    )


async def test_with_sealed_approvals_a_yes_of_the_page_counts_and_a_moved_file_does_not(
    old: OldDesk, clock: Clock
) -> None:
    async with _opened(old, clock, DESKHAND_APPROVALS="sealed") as desk:
        states = _states(await _cards(desk))
        clock.pass_by(minutes=5)
        await desk.gate.release_due()
        sent = await _sent(desk)

    assert states == TOOLS | DRAFTS | {"d-moved": "waiting"}
    assert sent == _once((WENT_BEFORE | LEAVES) - {"Re: d-moved"})


async def test_who_proposed_what_the_desk_sent_is_told_once_and_no_used_approval_counts_again(
    old: OldDesk, clock: Clock
) -> None:
    async with _opened(old, clock) as desk:
        untold = await desk.store.read(
            lambda tx: tx.all("SELECT id FROM requests WHERE untold = 1")
        )
        await replies.look_around(desk)
        fresh, used = await desk.door.find_hand_written(mail_of("by-hand-left"))
        with pytest.raises(NotFound):
            await desk.waiting.card(name_of("d-left"))

    assert untold == [(name_of("sent"),)]
    assert fresh == []
    assert [found.name for found in used] == ["yes by-hand-left.md"]
    assert (old.home.vault / "Done" / "yes by-hand.md").exists()


DIES = """
import importlib, os, sys
from deskhand.store import open_store
step = importlib.import_module("deskhand.store.migrations.0010_requests")
upgrade = step.upgrade

class Mortal:
    def __init__(self, tx, left):
        self._tx, self._left = tx, left

    def __getattr__(self, name):
        if name == "dialect":
            return self._tx.dialect
        self._left -= 1
        if self._left < 0:
            os._exit(9)
        return getattr(self._tx, name)

def die(tx):
    mortal = Mortal(tx, int(sys.argv[2]))
    upgrade(mortal)
    print(int(sys.argv[2]) - mortal._left)
    os._exit(0 if mortal._left else 9)

step.upgrade = die
open_store(sys.argv[1])
"""


@requirement("store:upgraded")
async def test_killed_in_the_middle_it_is_whole_or_not_at_all(
    old: OldDesk, clock: Clock
) -> None:
    def start(statements: int) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", DIES, old.url, str(statements)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=dict(os.environ),
        )

    rows = _count(old)
    last = int(start(1_000_000).stdout)
    for statements in (1, 14, last // 3, last // 2, last - 3, last):
        assert start(statements).returncode == 9
        assert (_revision(old.url), _count(old)) == ("0009", rows)

    open_store(old.url).close()
    async with _opened(old, clock) as desk:
        states = _states(await _cards(desk))
    assert states == TOOLS | DRAFTS


def _count(old: OldDesk) -> Counter[str]:
    tables = {table for table, _ in old.rows}
    with database_at(old.url, "0009") as connection:
        found = {
            table: connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
            for table in tables
        }
    return Counter(found)


def _revision(url: str) -> str | None:
    if url.startswith("sqlite:///"):
        return sqlite.revision(str(Path(url.removeprefix("sqlite:///"))))
    return postgresql.revision(url)
