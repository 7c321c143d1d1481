"""Corners that only odd days reach: no vault, a sender without an address, files whose request is over."""

import os
import shutil
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import Changed, InvalidInput, OutcomeUnknown
from deskhand.gate import Failed, NotApproved, Released, ledger, lists, waiting
from deskhand.gate.actions import Mail, SendEmail
from deskhand.gate.completing import own_address
from deskhand.gate.differences import MOST_COMPARED, describe_difference
from deskhand.gate.letters import Letter
from deskhand.gate.requests import Request, file_name
from deskhand.notes import disk, frontmatter
from deskhand.servers.obsidian import obsidian_server
from tests.gate.site import HELLO, Site
from tests.gate.test_gate import lose_the_mail
from tests.gate.waiting import drafted
from tests.mail.letters import letter
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


async def ask(desk: Desk, client: str | None = None, **changes: str) -> Request:
    """An assistant proposes a mail; its request."""
    outcome = await desk.gate.propose(
        SendEmail(**HELLO | changes), "email_mcp", client=client
    )
    assert isinstance(outcome, NotApproved)
    (found, *_), _ = await desk.waiting.requests()
    return found


@requirement("orchestrator:no-vault")
async def test_a_desk_without_a_vault_shows_a_request_and_has_no_files_to_name(
    site: Site,
) -> None:
    desk = elsewhere(site)
    request = await ask(desk)
    assert "see you at ten" in desk.door.show(request)
    assert await desk.door.find_idle() == []
    assert desk.door.name_place("Rejected", "a.md") == "Rejected/a.md"
    assert not await desk.door.has_approved_thread("t1")
    await desk.door.write_edit(request, request.action)
    await desk.close_mailbox()
    desk.close()


@requirement("gate:hand-written")
async def test_a_folder_that_became_a_link_hides_no_request(site: Site, desk: Desk) -> None:
    await ask(desk)
    folder = site.home.vault / "Rejected"
    folder.rename(site.home.vault / "Elsewhere")
    folder.symlink_to(site.home.vault / "Elsewhere")

    (found,), _ = await desk.waiting.requests()

    assert found.state == "waiting"


@requirement("gate:hand-written")
async def test_what_was_rejected_before_a_request_was_made_is_no_answer_to_it(
    site: Site, desk: Desk
) -> None:
    request = await ask(desk)
    old = site.pending().rename(site.home.vault / "Rejected" / "renamed.md")
    made = request.created.timestamp() - 60
    os.utime(old, (made, made))

    assert (await desk.waiting.card(request.id)).state == "waiting"


@requirement("gate:hand-written")
async def test_where_approvals_are_sealed_no_file_speaks_for_a_thread(site: Site) -> None:
    site.write(type="email_reply", thread_id="t1")
    for approvals, heard in (("any", True), ("sealed", False)):
        desk = site.desk(DESKHAND_APPROVALS=approvals)
        assert await desk.door.has_approved_thread("t1") is heard
        await desk.close_mailbox()
        desk.close()


@requirement("accounts:sender")
async def test_an_answer_leaves_from_the_account_that_has_the_mail(
    site: Site, desk: Desk
) -> None:
    original = await desk.mailbox.get(site.gmail.account.deliver(letter()).id)
    theirs = replace(original, summary=original.summary._replace(account="me@work.example"))
    assert await own_address(desk.mailbox, theirs) == "me@work.example"
    assert await own_address(desk.mailbox, None) == await desk.mailbox.address()


@requirement("cards:snooze")
async def test_a_card_that_never_expires_is_put_off_as_long_as_the_person_says(
    site: Site, desk: Desk
) -> None:
    request = await draft(site, desk)
    later = site.clock() + timedelta(days=300)
    assert (await desk.answers.snooze(request.id, later, "person")).until == later


@requirement("gate:recorded")
async def test_a_sender_without_an_address_is_named_as_far_as_there_is_one(
    site: Site, desk: Desk
) -> None:
    original = site.gmail.account.deliver(
        letter(sender="Undisclosed", message_id="<u@example.org>")
    )
    request = await ask(desk, client="codex", reply_to_message_id=original.id)
    assert request.sender == "undisclosed"
    assert site.log()[-1]["parameters"]["client"] == "codex"

    nobody = letter(message_id="<n@example.org>").replace(
        b"From: Ann <ann@example.org>\r\n", b""
    )
    original = site.gmail.account.deliver(nobody)
    await ask(desk, subject="To whom?", reply_to_message_id=original.id)
    assert "" in {each.sender for each in (await desk.waiting.requests())[0]}


@requirement("gate:unknown")
async def test_what_the_page_and_doctor_ask_of_the_ledger(site: Site, desk: Desk) -> None:
    original = site.gmail.account.deliver(letter(message_id="<one@example.org>"))
    request = await ask(desk, reply_to_message_id=original.id)
    began = site.clock()
    site.clock.pass_by(minutes=5)
    assert await desk.store.read(lists.find_answering, original.id) == [request.id]
    assert await desk.store.read(lists.count_unfinished, site.clock()) == (0, 0)
    await desk.answers.reject(request.id, request.digest, None, "person")
    assert await desk.store.read(lists.waits_of, began, 10) == [timedelta(minutes=5)]


@requirement("gate:named")
async def test_a_copy_in_approved_and_the_file_of_what_expired_are_named(
    site: Site, desk: Desk
) -> None:
    request = await ask(desk)
    text = site.pending().read_text()
    approved = site.approve()
    await desk.door.hear_all()
    (site.home.vault / "Approved" / "copy.md").write_text(text)
    (idle,) = await desk.door.find_idle()
    assert (idle.path, idle.why) == (
        "Approved/copy.md",
        f"what counts for {request.id} is Approved/{approved.name}",
    )

    site.clock.pass_by(days=8)
    assert (await desk.gate.find(request.id)).state == "expired"
    assert [each.why for each in await desk.door.find_idle()] == ["its request is expired"]

    site.write()
    (written,), _ = await desk.door.find_hand_written(request.action)
    (site.home.vault / "Approved" / written.name).unlink()
    with pytest.raises(Changed, match="is gone"):
        desk.door.demand_unchanged(written)

    for file in site.files("Approved"):
        file.unlink()
    (site.home.vault / "Approved").rmdir()
    (site.home.vault / "Approved").write_text("a file")
    (idle,) = await desk.door.find_idle()
    assert idle.why.startswith("it cannot be read now")


@requirement("gate:hand-written")
async def test_a_broken_note_that_a_tool_moves_is_nobodys_word(
    site: Site, desk: Desk
) -> None:
    (site.home.vault / "broken.md").write_text("---\nto: [\n---\n")
    async with Client(obsidian_server(desk)) as client:
        move = {"source": "broken.md", "destination": "Notes/broken.md"}
        assert not (await client.call_tool("move_note", move)).is_error
    assert (site.home.vault / "Notes" / "broken.md").exists()


@requirement("gate:named")
@pytest.mark.parametrize(
    ("answered", "why"),
    [
        ("18d5nothere", "mail 18d5nothere not found; it is looked at again"),
        ('""', "the draft's reply_to_message_id is empty"),
    ],
)
async def test_a_draft_that_answers_no_mail_of_this_mailbox_is_named_with_that_reason(
    site: Site, desk: Desk, answered: str, why: str
) -> None:
    answer = {"to": HELLO["to"], "subject": "Re x", "reply_to_message_id": answered}
    lines = [f"{name}: {value}" for name, value in answer.items()]
    (site.home.vault / "Approved").mkdir()
    (site.home.vault / "Approved" / "mine.md").write_text(
        "\n".join(["---", *lines, "---", "Yes.", ""])
    )
    await desk.door.hear_all()
    (idle,) = await desk.door.find_idle()

    assert idle.path == "Approved/mine.md"
    assert idle.why == why


@requirement("gate:asks")
async def test_what_waits_is_shown_though_drafts_is_no_folder(
    site: Site, desk: Desk
) -> None:
    request = await ask(desk)
    (site.home.vault / "Drafts").write_text("no folder")

    (card,), _ = await desk.waiting.cards()
    assert card.id == request.id


@requirement("gate:named")
async def test_a_file_that_releases_nothing_is_named_in_the_log_once(
    site: Site, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    site.write(status="pending")
    first = await desk.door.find_idle()
    assert await desk.door.find_idle() == first
    assert [
        vars(line)["file"] for line in caplog.records if line.message == "releases_nothing"
    ] == ["Approved/yes.md"]


@requirement("gate:content-bound")
async def test_a_request_whose_message_was_cut_out_waits_again_with_the_message_it_had(
    site: Site, desk: Desk
) -> None:
    request = await ask(desk)
    file = site.approve()
    text = file.read_text()
    file.write_text(text[: text.index("## Message")])
    revised = await desk.gate.find(request.id)
    assert (revised.state, revised.revision, revised.action) == (
        "waiting",
        2,
        request.action,
    )
    assert HELLO["body"] in site.pending().read_text()


@requirement("gate:once")
@requirement("gate:unknown")
async def test_a_no_is_not_made_a_yes_while_nobody_knows_whether_the_same_mail_left(
    site: Site, desk: Desk
) -> None:
    request = await ask(desk)
    no = site.reject()
    await desk.door.hear_all()
    site.write()
    lose_the_mail(site)
    outcome = await desk.gate.propose(SendEmail(**HELLO), "email_mcp")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, OutcomeUnknown)
    site.approve(no)
    assert (await desk.gate.find(request.id)).state == "rejected"
    assert site.sent == []


@requirement("gate:unknown")
async def test_of_a_mail_that_may_have_left_it_is_said_though_the_vault_is_away(
    site: Site, desk: Desk
) -> None:
    request = await ask(desk)
    site.approve()
    await desk.door.hear_all()
    lose_the_mail(site)
    rejected = site.home.vault / "Rejected"
    rejected.rmdir()
    rejected.write_text("a file")
    assert isinstance(await desk.gate.release(request.id, "desk"), Failed)
    rejected.unlink()
    assert (await desk.waiting.card(request.id)).state == "unknown"
    assert "may have been sent already" in site.pending().read_text()


@requirement("gate:withdrawn")
async def test_a_vault_that_is_empty_for_a_moment_takes_no_yes_back(
    site: Site, desk: Desk
) -> None:
    """As the folder is on which a disk was mounted."""
    request = await ask(desk)
    site.approve()
    await desk.door.hear_all()
    vault = site.home.vault
    away = vault.rename(vault.with_name("away"))
    vault.mkdir()

    assert (await desk.gate.find(request.id)).state == "approved"
    await desk.door.hear_all()
    await desk.door.follow_all()
    assert await desk.door.find_idle() == []
    assert isinstance(await desk.gate.release(request.id, "desk"), Failed)
    other = await desk.gate.propose(
        SendEmail(**HELLO | {"subject": "Another"}), "email_mcp"
    )
    await desk.door.hear_all()
    assert not isinstance(other, Released)
    assert ((await desk.gate.find(request.id)).state, site.sent) == ("approved", [])

    shutil.rmtree(vault)
    away.rename(vault)
    assert isinstance(await desk.gate.release(request.id, "desk"), Released)
    assert len(site.sent) == 1


@requirement("gate:withdrawn")
async def test_a_yes_whose_file_is_gone_from_its_folder_is_taken_back_though_the_vault_was_empty(
    site: Site, desk: Desk
) -> None:
    request = await ask(desk)
    file = site.approve()
    await desk.door.hear_all()
    vault = site.home.vault
    away = vault.rename(vault.with_name("away"))
    vault.mkdir()
    assert (await desk.gate.find(request.id)).state == "approved"
    vault.rmdir()
    away.rename(vault)
    (vault / "Approved" / file.name).unlink()
    assert (await desk.gate.find(request.id)).state == "waiting"
    assert site.sent == []


def elsewhere(site: Site, **variables: str) -> Desk:
    """The same desk on a machine that does not have the vault."""
    environment = {
        name: value for name, value in site.home.environment.items() if name != "VAULT_PATH"
    }
    return Desk(load(environment | variables).settings, site.clock)


@requirement("orchestrator:no-vault")
async def test_what_was_asked_and_approved_where_no_vault_is_leaves_from_where_one_is(
    site: Site, desk: Desk
) -> None:
    away = elsewhere(site)
    request = await ask(away)
    await away.answers.approve_now(request.id, request.digest, "person")
    await away.close_mailbox()
    away.close()
    await desk.door.follow(request)
    assert isinstance(await desk.gate.release(request.id, "desk"), Released)
    assert len(site.sent) == 1


@requirement("gate:withdrawn")
async def test_a_yes_that_was_heard_is_taken_back_by_moving_its_file_back(
    site: Site, desk: Desk
) -> None:
    request = await ask(desk)
    file = site.approve()
    assert (await desk.gate.find(request.id)).state == "approved"
    file.rename(site.home.vault / "Pending_Approval" / file.name)
    assert (await desk.gate.find(request.id)).state == "waiting"
    assert await desk.gate.release_due() == []
    said = await desk.store.read(
        lambda tx: tx.all("SELECT word, proof FROM answers ORDER BY number")
    )
    assert said == [("approved", "vault"), ("undone", "vault")]


@requirement("cards:edited")
async def test_an_edit_that_could_not_be_written_into_its_file_is_what_a_yes_releases(
    site: Site, desk: Desk
) -> None:
    request = await ask(desk)
    # The file is moved to its new name, and cannot be rewritten there.
    temporary = disk._temporary(file_name(request.id, "send_email", 2))
    (site.home.vault / "Pending_Approval" / temporary).mkdir()
    edited = await desk.answers.edit(
        request.id, request.digest, Letter(**HELLO | {"body": "At nine.\n"}), "person"
    )
    assert HELLO["body"] in site.pending().read_text()
    await desk.answers.approve_now(request.id, edited.digest, "person")
    assert isinstance(await desk.gate.release(request.id, "desk"), Released)
    assert [mail.get_content().strip() for mail in site.sent] == ["At nine."]


@requirement("cards:hold")
async def test_where_approvals_are_sealed_a_yes_that_rests_stays_one_though_its_file_is_moved(
    site: Site,
) -> None:
    desk = site.desk(DESKHAND_APPROVALS="sealed")
    request = await draft(site, desk)
    await desk.answers.approve(request.id, request.digest, "person")
    site.approve(site.files("Drafts")[0])
    await desk.door.hear_all()
    assert (await desk.waiting.card(request.id)).state == "held"
    site.clock.pass_by(seconds=10)
    await desk.gate.release_due()
    assert len(site.sent) == 1
    await desk.close_mailbox()
    desk.close()


@requirement("cards:edited")
async def test_a_draft_whose_file_is_gone_leaves_in_the_words_of_the_page(
    site: Site, desk: Desk
) -> None:
    request = await draft(site, desk)
    site.files("Drafts")[0].unlink()
    words = Letter(HELLO["to"], "Lunch", "At noon.\n")
    edited = await desk.answers.edit(request.id, request.digest, words, "person")
    await desk.answers.approve_now(request.id, edited.digest, "person")
    await desk.door.explain(await desk.gate.find(request.id), {"last_error": "away"})
    assert site.files("Drafts") == site.files("Approved") == []
    assert isinstance(await desk.gate.release(request.id, "desk"), Released)
    assert [(mail["Subject"], mail.get_content().strip()) for mail in site.sent] == [
        ("Lunch", "At noon.")
    ]


@requirement("cards:digest")
async def test_a_draft_that_is_no_mail_any_more_cannot_be_approved_and_says_why(
    site: Site, desk: Desk
) -> None:
    odd: dict[str, Any] = {
        "urgent": True,
        "warnings": ("its sender is odd",),
        "about": "Question.md",
    }
    request = await draft(site, desk, **odd)
    (file,) = site.files("Drafts")
    given = frontmatter.parse(file.read_text()).frontmatter
    assert (given["priority"], given["warnings"], given["answers"]) == (
        "urgent",
        [*odd["warnings"]],
        odd["about"],
    )

    file.write_text(file.read_text().replace("subject: x\n", ""))
    card = await desk.waiting.card(request.id)
    assert card.risk.reasons[0].endswith("the draft's subject is missing or no text.")
    with pytest.raises(InvalidInput, match="cannot be sent as it stands"):
        await desk.answers.approve(request.id, card.digest, "person")


async def draft(site: Site, desk: Desk, **more: Any) -> Request:
    """A draft of the orchestrator that waits with its file in Drafts/."""
    made = drafted("draft-0123456789abcdef", HELLO["to"], site.clock(), **more)
    await desk.store.write(ledger.insert, made)
    await desk.door.follow(made)
    return made


@requirement("cards:waiting")
async def test_an_empty_draft_that_was_moved_to_approved_says_that_it_was_not_sent_and_why(
    site: Site, desk: Desk
) -> None:
    request = await draft(site, desk)
    (file,) = site.files("Drafts")
    emptied = file.read_text().replace("\ny\n", "\n")
    file.unlink()
    moved = site.home.vault / "Approved" / file.name
    moved.parent.mkdir(exist_ok=True)
    moved.write_text(emptied)
    card = await desk.waiting.card(request.id)
    assert (card.state, card.note) == (
        "waiting",
        "Not sent: the body is empty. It is waiting again.",
    )
    (idle,) = await desk.door.find_idle()
    assert idle.why == "The body is empty"

    moved.write_text(f"{emptied}Now with words.\n")
    card = await desk.waiting.card(request.id)
    assert (card.state, card.note, card.body) == ("approved", None, "Now with words.\n")


@requirement("gate:unknown")
async def test_a_draft_that_may_have_left_waits_as_a_sealed_request_and_its_old_file_is_done(
    site: Site, desk: Desk
) -> None:
    request = await draft(site, desk)
    await desk.answers.approve_now(request.id, request.digest, "person")
    lose_the_mail(site)
    assert isinstance(await desk.gate.release(request.id, "desk"), Failed)
    (done,) = site.files("Done")
    assert "status: unknown" in done.read_text()
    assert "may have been sent already" in site.pending().read_text()


@requirement("backup:proved")
@pytest.mark.parametrize("there", [True, False], ids=["with its file", "without"])
async def test_after_a_restore_a_draft_that_was_being_sent_waits_as_one_that_may_have_left(
    site: Site, desk: Desk, there: bool
) -> None:
    request = await draft(site, desk)
    if not there:
        site.files("Drafts")[0].unlink()
    await desk.store.write(ledger.change, request, "sending", lease=site.clock())
    await desk.store.write(ledger.take_back_all, "restored")
    assert (await desk.gate.find(request.id)).state == "unknown"
    assert len(site.files("Done")) == there
    assert "expires" not in site.pending().read_text()
    site.approve()
    assert (await desk.gate.find(request.id)).state == "approved"


@requirement("cards:edited")
async def test_an_edit_while_the_vault_is_away_is_in_the_file_when_it_is_back(
    site: Site, desk: Desk
) -> None:
    request = await ask(desk)
    pending = site.home.vault / "Pending_Approval"
    away = pending.rename(site.home.vault / "away")
    pending.write_text("a file")
    edited = await desk.answers.edit(
        request.id, request.digest, Letter(**HELLO | {"body": "At nine.\n"}), "person"
    )
    assert (edited.revision, edited.body) == (2, "At nine.\n")
    pending.unlink()
    away.rename(pending)
    await desk.gate.find(request.id)
    assert "At nine." in site.pending().read_text()


@requirement("gate:rejected")
@pytest.mark.parametrize("reason", [None, "too early"])
async def test_a_draft_that_was_said_no_to_says_so_in_its_file(
    site: Site, desk: Desk, reason: str | None
) -> None:
    mail = Mail(
        kind="reply_email", account="me@example.com", in_reply_to="<q@example.org>", **HELLO
    )
    same = {"asked": mail.digest, "proposed": mail, "action": mail, "digest": mail.digest}
    request = await draft(site, desk, mail="m1", **same)
    assert await desk.store.read(lists.find_answered, "q@example.org") == "m1"
    await desk.answers.reject(request.id, request.digest, reason, "person")
    (file,) = site.files("Rejected")
    marks = frontmatter.parse(file.read_text()).frontmatter
    assert (marks["status"], marks.get("rejected_reason")) == ("rejected", reason)
    assert [each.id for each in await desk.store.read(lists.find_refused, "m1")] == [
        request.id
    ]

    file.rename(site.home.vault / "Drafts" / file.name)
    assert (await desk.gate.find(request.id)).state == "waiting"
    assert "status: pending_approval" in site.files("Drafts")[0].read_text()


@requirement("cards:waiting")
async def test_however_many_cards_are_looked_at_each_says_its_own_risk(
    site: Site, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOST_RISKS", 2)
    for word in ("phone", "wire", "mail"):
        await desk.gate.propose(
            SendEmail(**HELLO | {"body": f"Please {word} it.\n"}), "email_mcp"
        )
    for _ in range(2):
        cards, _ = await desk.waiting.cards()
        assert {
            card.body.split()[1] for card in cards if "money" in " ".join(card.risk.reasons)
        } == {"wire"}


@requirement("gate:content-bound")
def test_what_was_changed_in_a_very_long_text_is_shown_alone() -> None:
    lines = [f"line {number}" for number in range(MOST_COMPARED)]
    old = Mail(
        kind="send_email", account="me@example.com", **HELLO | {"body": "\n".join(lines)}
    )
    changed = [*lines[:500], "another", *lines[501:]]
    difference = describe_difference(old, old.edit({"body": "\n".join(changed)})) or ""
    assert difference.splitlines()[2:] == ["@@ -504,1 +504,1 @@", "-line 500", "+another"]
