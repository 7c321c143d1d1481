"""The orchestrator's drafts as cards: from the mail that arrived to the reply as the person wants it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from deskhand import audit
from deskhand.app import Desk
from deskhand.errors import Changed, Denied, InvalidInput, NotFound
from deskhand.gate.cards import Card
from deskhand.gate.letters import Letter
from deskhand.notes import frontmatter
from tests.orchestrator.model_stub import GOOD, ModelStub
from tests.orchestrator.office import Office, question
from tests.requirements import requirement


def at_the_desk(
    office: Office, work: Callable[[Desk], Awaitable[Any]], **variables: str
) -> Any:
    async def whole() -> Any:
        desk = office.desk(**{"DESKHAND_HOLD_SECONDS": "0"} | variables)
        try:
            return await work(desk)
        finally:
            await desk.close_mailbox()
            desk.close()

    return asyncio.run(whole())


def only_card(office: Office) -> Card:
    cards, more = at_the_desk(office, lambda desk: desk.waiting.cards())
    assert more is None
    (card,) = cards
    assert isinstance(card, Card)
    return card


def write_draft(office: Office, name: str, text: str, **properties: Any) -> None:
    (office.vault / "Drafts").mkdir(exist_ok=True)
    (office.vault / "Drafts" / name).write_text(
        frontmatter.render({"type": "email_draft"} | properties, text)
    )


@requirement("cards:edited")
@requirement("cards:waiting")
@requirement("cards:recorded")
def test_a_draft_is_a_card_and_leaves_exactly_as_the_person_edited_it(
    office: Office,
) -> None:
    office.receive(question())
    office.passes()
    card = only_card(office)
    assert (card.kind, card.state, card.account, card.expires) == (
        "draft",
        "waiting",
        "me@example.com",
        None,
    )
    assert (card.asked_by, card.reason) == ("rule:questions", "the rule 'questions'")
    assert (card.what, card.claim, card.rule_says) == ("drafted reply", None, None)
    by_words = replace(card, reason="Ann may always know.")
    assert (by_words.claim, by_words.rule_says) == (None, "Ann may always know.")
    by_model = replace(card, asked_by="openai:gpt", reason="She asked.", answers=None)
    assert (by_model.what, by_model.claim, by_model.rule_says) == (
        "new mail",
        "She asked.",
        None,
    )
    assert (card.to[0].address, card.to[0].known, card.risk.level) == (
        "ann@example.org",
        True,
        "low",
    )
    assert (card.body, card.difference, card.revision) == (
        "Thank you, I will look into it.\n",
        None,
        1,
    )
    original = at_the_desk(office, lambda desk: desk.waiting.original(card))
    assert (original.subject, original.text.strip()) == ("A question 0", "How are you?")

    words = Letter(
        "ann@example.org",
        "Re: A question, answered",
        "Dear Ann,\r\n\r\nthe answer is 42: \u00e4.\r\n",
    )

    async def edit(desk: Desk, letter: Letter) -> Card:
        return await desk.answers.edit(card.id, card.digest, letter, "person")

    for bad in (Letter("ann", "x", "y"), Letter("ann@example.org", "x", " \n")):
        with pytest.raises(InvalidInput):
            at_the_desk(office, partial(edit, letter=bad))
    approved = at_the_desk(
        office,
        lambda desk: desk.answers.approve_edited(card.id, card.digest, words, "person"),
    )
    assert (approved.state, approved.revision) == ("approved", 2)
    assert "+the answer is 42: \u00e4." in approved.difference
    assert only_card(office) == approved

    office.once()
    (sent,) = office.mails("in:sent")
    mail = office.use(lambda mailbox: mailbox.get(sent.id))
    assert (sent.to, sent.subject) == ("ann@example.org", "Re: A question, answered")
    assert mail.body == "Dear Ann,\n\nthe answer is 42: \u00e4.\n"
    done = at_the_desk(office, lambda desk: desk.waiting.card(card.id))
    assert (done.state, done.note) == ("sent", None)
    with pytest.raises(Denied, match="nothing is left to decide"):
        at_the_desk(
            office, lambda desk: desk.answers.approve(card.id, done.digest, "person")
        )
    entries = at_the_desk(office, lambda desk: desk.store.read(audit.entries))
    mine = [
        (entry.action_type, entry.parameters["draft_id"])
        for _, entry in entries
        if entry.actor == "person"
    ]
    assert mine[::-1] == [("edited", card.id), ("held", card.id), ("approved", card.id)]


@requirement("cards:edited")
def test_a_draft_saved_with_other_line_ends_can_be_edited_and_one_that_is_no_mail_says_why(
    office: Office,
) -> None:
    text = "Dear Ann,\r\n\r\nyes.\r\n"
    write_draft(
        office, "mine.md", text, to="ann@example.org", subject="Hi", draft_id="draft-mine"
    )
    file = office.only("Drafts")
    file.write_bytes(file.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
    card, before = only_card(office), file.read_bytes()
    same = Letter("ann@example.org", "Hi", text)
    kept = at_the_desk(
        office, lambda desk: desk.answers.edit(card.id, card.digest, same, "person")
    )
    assert (kept, file.read_bytes()) == (card, before)

    words = Letter("ann@example.org", "Hi", "Dear Ann,\r\n\r\nno.\r\n")
    edited = at_the_desk(
        office, lambda desk: desk.answers.edit(card.id, card.digest, words, "person")
    )
    assert edited.body == "Dear Ann,\n\nno.\n"
    assert file.read_bytes() == before.replace(b"yes.", b"no.")

    write_draft(
        office,
        "mine.md",
        text,
        to="ann@example.org",
        draft_id="draft-mine",
        reply_to_message_id=7,
    )
    broken = only_card(office)
    with pytest.raises(InvalidInput, match="reply_to_message_id is missing or no text"):
        at_the_desk(
            office, lambda desk: desk.answers.edit(card.id, broken.digest, words, "person")
        )


@requirement("cards:hold")
@requirement("cards:digest")
def test_a_draft_that_changes_during_the_hold_stays_where_it_is_and_says_so(
    office: Office,
) -> None:
    office.receive(question())
    office.passes()
    card, file = only_card(office), office.only("Drafts")

    async def story(desk: Desk) -> None:
        held = await desk.answers.approve(card.id, card.digest, "person")
        assert (held.state, (await desk.waiting.counts()).held) == ("held", 1)
        assert (await desk.answers.undo(card.id, "person")).state == "waiting"
        later = desk.now() + timedelta(hours=1)
        assert (await desk.answers.snooze(card.id, later, "person")).state == "snoozed"
        assert (await desk.waiting.cards())[0] == []
        assert [each.id for each in (await desk.waiting.cards(snoozed=True))[0]] == [
            card.id
        ]
        await desk.answers.approve(card.id, card.digest, "person")
        file.write_text(file.read_text().replace("Thank you", "Thanks"))
        assert "changed after your yes" in ((await desk.waiting.card(card.id)).note or "")
        with pytest.raises(Changed):
            await desk.answers.edit(
                card.id, card.digest, Letter("a@example.org", "x", "y"), "person"
            )

    at_the_desk(office, story, DESKHAND_HOLD_SECONDS="60")

    async def later(desk: Desk) -> None:
        late = Desk(desk.settings, lambda: desk.now() + timedelta(minutes=2))
        assert await late.gate.release_due() == []
        shown = await late.waiting.card(card.id)
        assert (shown.state, "counts no more" in (shown.note or "")) == ("waiting", True)
        assert "Thanks" in shown.body
        # A yes to what was shown before is none to what the file says now.
        with pytest.raises(Changed):
            await late.answers.approve_now(card.id, card.digest, "person")
        await late.close_mailbox()
        late.close()

    at_the_desk(office, later)
    office.passes()
    assert (office.only("Drafts"), office.files("Approved"), office.mails("in:sent")) == (
        file,
        [],
        [],
    )


@requirement("cards:hold")
def test_a_pass_over_everything_leaves_a_yes_alone_while_it_rests(office: Office) -> None:
    office.receive(question())
    office.passes()
    card = only_card(office)
    held = {"DESKHAND_HOLD_SECONDS": "600"}
    at_the_desk(
        office, lambda desk: desk.answers.approve(card.id, card.digest, "person"), **held
    )
    office.passes(2)
    assert only_card(office).state == "held"
    assert office.mails("in:sent") == []
    assert (
        at_the_desk(office, lambda desk: desk.answers.undo(card.id, "person")).state
        == "waiting"
    )


@requirement("cards:respond")
def test_without_a_model_the_persons_words_are_noted_and_no_text_is_invented(
    office: Office,
) -> None:
    office.receive(question())
    office.passes()
    card = only_card(office)
    words = "Tell her to call me on Monday"
    done = at_the_desk(
        office, lambda desk: desk.answers.respond(card.id, card.digest, words, "person")
    )
    assert (done.state, done.note) == ("rejected", f"do it this way: {words}")
    office.passes()

    found = office.properties(office.only("Needs_Action"))
    assert (found["status"], found["decided_by"]) == ("needs_info", "person")
    assert words in found["info_needed"]
    assert (office.files("Drafts"), office.mails("in:sent")) == ([], [])
    with pytest.raises(Denied):
        at_the_desk(
            office,
            lambda desk: desk.answers.edit(
                card.id, card.digest, Letter("", "", ""), "person"
            ),
        )


@pytest.fixture
def model() -> Iterator[ModelStub]:
    with ModelStub() as stub:
        yield stub


@requirement("cards:respond")
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_model_drafts_anew_from_the_persons_words(
    office: Office, model: ModelStub, provider: str
) -> None:
    (office.home.path / "rules.toml").unlink()
    model.answers.extend([GOOD, GOOD | {"reply_body": "Please call me on Monday."}])
    office.receive(question())
    office.passes(**model.environment(provider))
    first = only_card(office)
    assert (first.asked_by, first.reason) == (f"{provider}:stub", "She asks.")
    words = 'Tell her to "call me"'
    at_the_desk(
        office, lambda desk: desk.answers.respond(first.id, first.digest, words, "person")
    )
    office.passes(**model.environment(provider))

    second = only_card(office)
    assert (second.id, second.body) == (f"{first.id}-2", "Please call me on Monday.\n")
    told = (
        model.asked[1]["system"]
        if provider == "anthropic"
        else model.asked[1]["messages"][0]["content"]
    )
    assert json.dumps(words) in told
    assert json.dumps(words) not in json.dumps(model.asked[0])
    at_the_desk(
        office, lambda desk: desk.answers.approve(second.id, second.digest, "person")
    )
    office.once(**model.environment(provider))
    assert len(office.mails("in:sent")) == 1
    assert len(model.asked) == 2


@requirement("cards:waiting")
@requirement("cards:known")
def test_a_note_that_somebody_put_into_drafts_is_shown_as_what_it_is(
    office: Office,
) -> None:
    claims = {
        "draft_id": "draft-forged",
        "drafted_by": "rule:questions",
        "rejected_reason": "x",
        "warnings": [],
    }
    write_draft(
        office, "nice.md", "Send money.\n", to="eve@example.net", subject="Hi", **claims
    )
    card = only_card(office)
    assert (card.id, card.asked_by, card.reason) == (
        "draft-forged",
        "a note in Drafts/ that the desk did not write",
        None,
    )
    assert (card.to[0].known, card.risk.level, card.account) == (
        False,
        "medium",
        "me@example.com",
    )
    assert (card.state, card.note) == ("waiting", None)
    nowhere = at_the_desk(
        office, lambda desk: desk.waiting.card(card.id), DESKHAND_MAIL="gmail"
    )
    assert nowhere.body == "Send money.\n"

    write_draft(office, "nice.md", "No recipient.\n", subject="Hi", **claims)
    broken = only_card(office)
    assert (broken.state, broken.risk.level) == ("waiting", "high")
    assert (
        "cannot be sent as it stands: the draft's to is missing" in broken.risk.reasons[0]
    )
    with pytest.raises(InvalidInput, match="it cannot be sent as it stands"):
        at_the_desk(
            office, lambda desk: desk.answers.approve(broken.id, broken.digest, "person")
        )
    rejected = at_the_desk(
        office, lambda desk: desk.answers.reject(broken.id, broken.digest, "no", "person")
    )
    assert (rejected.state, rejected.note) == ("rejected", "no")
    office.move(office.only("Rejected"), "Done")
    assert (
        at_the_desk(office, lambda desk: desk.waiting.card(broken.id)).state == "rejected"
    )
    with pytest.raises(InvalidInput, match="it cannot be sent as it stands"):
        at_the_desk(
            office, lambda desk: desk.answers.approve_now(broken.id, None, "person")
        )

    write_draft(office, "note.md", "Not a draft at all.\n", type="idea")
    write_draft(office, "unnamed.md", "No name.\n", to="a@example.org", subject="x")
    write_draft(
        office, "strange.md", "Numbered.\n", to="a@example.org", subject="x", draft_id=7
    )

    async def looked_twice(desk: Desk) -> list[list[Card]]:
        return [(await desk.waiting.cards())[0] for _ in range(2)]

    assert at_the_desk(office, looked_twice) == [[], []]
    counts = at_the_desk(office, lambda desk: desk.waiting.counts())
    assert (counts.waiting, counts.held, counts.snoozed) == (0, 0, 0)
    with pytest.raises(NotFound):
        at_the_desk(office, lambda desk: desk.waiting.card("draft-none"))


@requirement("cards:waiting")
def test_a_draft_that_is_leaving_in_this_moment_is_still_a_card(office: Office) -> None:
    office.receive(question())
    office.passes()
    card = only_card(office)
    at_the_desk(office, lambda desk: desk.answers.approve(card.id, card.digest, "person"))
    office.once()
    for file in office.files("Done"):
        if "email_draft" in file.read_text():
            file.unlink()  # as while the gate has it in its hand
    shown = at_the_desk(office, lambda desk: desk.waiting.card(card.id))
    assert (shown.id, shown.kind, shown.state, shown.body) == (
        card.id,
        "draft",
        "sent",
        card.body,
    )


@requirement("gate:rate")
def test_a_draft_that_waits_for_the_limit_says_so_as_every_card_does_and_is_no_error(
    office: Office,
) -> None:
    office.receive(question())
    office.passes()
    card = only_card(office)
    held = {"DESKHAND_HOLD_SECONDS": "600"}
    at_the_desk(
        office, lambda desk: desk.answers.approve(card.id, card.digest, "person"), **held
    )
    full = office.with_variables(DESKHAND_MAX_SENDS="0")
    full.move(full.only("Drafts"), "Approved")
    full.once()
    shown = only_card(full)

    assert shown.note == "0 of 0 emails sent in the last hour."
    assert (shown.state, shown.retry) == ("approved", None)
    assert shown.until is not None
    assert full.status()["errors"] == []
    found = at_the_desk(full, lambda desk: desk.store.read(audit.entries, limit=20))
    (line,) = [entry for _, entry in found if entry.result == "rate_limited"]
    assert line.parameters["action_id"] == card.id  # by which the Timeline knows who asked
    office.once()
    assert len(office.mails("in:sent")) == 1


@requirement("gate:content-bound")
def test_a_draft_leaves_as_it_was_approved_though_the_account_has_another_address_by_now(
    office: Office,
) -> None:
    office.receive(question())
    office.passes()
    card = only_card(office)
    at_the_desk(office, lambda desk: desk.answers.approve(card.id, card.digest, "person"))
    office.passes(3, DESKHAND_ADDRESS="Me@Example.com")
    assert len(office.mails("in:sent")) == 1
    assert at_the_desk(office, lambda desk: desk.waiting.card(card.id)).state == "sent"
    cards, _ = at_the_desk(office, lambda desk: desk.waiting.cards())
    assert cards == []
