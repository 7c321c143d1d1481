"""Each arrow of seed 000's state machine, on real files, through `deskhand orchestrate --once`."""

import re
import unicodedata
from datetime import timedelta

import pytest

from deskhand import clock
from deskhand.gate import ledger
from deskhand.notes.vault import Vault
from tests.mail.letters import letter
from tests.orchestrator.office import Office, question
from tests.requirements import requirement


@requirement("orchestrator:states")
@requirement("orchestrator:watcher")
def test_a_question_is_drafted_approved_sent_in_its_thread_and_both_notes_are_done(
    office: Office,
) -> None:
    office.receive(question(attachment="plan.pdf"))
    office.once()

    note, draft = office.only("Needs_Action"), office.only("Drafts")
    found = office.properties(note)
    assert (found["status"], found["decision"], found["decided_by"]) == (
        "drafted",
        "draft_reply",
        "rule:questions",
    )
    assert found["draft_path"] == f"Drafts/{draft.name}"
    assert found["attachments"] == ["plan.pdf"]
    assert "```text\nHow are you?\n" in note.read_text()
    asked = office.properties(draft)
    assert (asked["type"], asked["status"], asked["to"]) == (
        "email_draft",
        "pending_approval",
        "ann@example.org",
    )
    assert (asked["subject"], asked["drafted_by"]) == ("Re: A question 0", "rule:questions")
    (mail,) = office.mails("label:AI_PROCESSED")
    assert asked["reply_to_message_id"] == mail.id == found["message_id"]

    office.once()
    assert office.mails("in:sent") == []

    office.move(draft, "Approved")
    office.once()
    (sent,) = office.mails("in:sent")
    assert (sent.to, sent.subject, sent.thread_id) == (
        "ann@example.org",
        "Re: A question 0",
        mail.thread_id,
    )
    done = {file.name: office.properties(file) for file in office.files("Done")}
    assert (done[draft.name]["status"], done[draft.name]["message_id"]) == ("done", sent.id)
    assert (done[note.name]["status"], done[note.name]["reply_message_id"]) == (
        "done",
        sent.id,
    )
    assert (done[note.name]["message_id"], done[note.name]["attachments"]) == (
        mail.id,
        ["plan.pdf"],
    )
    assert [office.files(folder) for folder in ("Needs_Action", "Drafts", "Approved")] == [
        [],
        [],
        [],
    ]

    office.once()
    assert len(office.mails("in:sent")) == 1


@requirement("orchestrator:watcher")
def test_a_note_is_named_with_the_words_of_its_mail_in_every_alphabet(
    office: Office,
) -> None:
    names = {
        "Триаж: почта": "триаж-почта",
        "Fwd: 会議のお知らせ (3)": "fwd-会議のお知らせ-3",
        "बैठक ใหม่": "बैठक-ใหม่",
        "Cafe\u0301 Straße": "café-straße",
        "می\u200cخواهم": "میخواهم",
        "../../\u202eApproved\u2044x:y\\z": "approved-x-y-z",
        "\u3164\u2800 \U0001f600 ½": "",
        "語" * 90: "語" * 40,
    }
    office.receive(*(letter(subject=subject) for subject in names))
    office.passes()
    found = {
        office.properties(file)["subject"]: file.name
        for file in office.files("Needs_Action")
    }
    assert len(found) == len(names)
    shown = {re.sub(r"-?[0-9a-f]{16}\.md$", "", name) for name in found.values()}
    assert shown == {f"email-{words}".rstrip("-") for words in names.values()}

    desk = office.desk()
    for subject, name in found.items():
        apart = unicodedata.normalize("NFD", f"Needs_Action/{name}")
        assert desk.vaults.at(apart, Vault.read).frontmatter["subject"] == subject
    desk.close()


@requirement("orchestrator:states")
def test_the_folders_of_the_way_are_there_before_the_first_mail(office: Office) -> None:
    office.passes()
    for folder in ("Needs_Action", "Drafts", "Approved", "Done", "Logs"):
        assert (office.vault / folder).is_dir(), folder


@requirement("orchestrator:states")
def test_archive_urgent_delegate_and_needs_info_go_where_the_seed_draws_them(
    office: Office,
) -> None:
    newsletter = letter(subject="News", message_id="<n@x>").replace(
        b"\r\nTo:", b"\r\nList-Id: <news.example>\r\nTo:", 1
    )
    office.receive(
        newsletter,
        letter(subject="Alarm!", message_id="<a@x>"),
        letter(subject="This is for Bob", message_id="<b@x>"),
        letter(subject="Hm", message_id="<h@x>"),
    )
    office.once()

    archived = office.properties(office.only("Done"))
    assert (archived["subject"], archived["status"]) == ("News", "done")
    urgent = office.properties(office.only("Drafts"))
    assert (urgent["status"], urgent["priority"]) == ("pending_approval", "urgent")
    notes = {
        office.properties(file)["subject"]: file for file in office.files("Needs_Action")
    }
    states = {subject: office.properties(file)["status"] for subject, file in notes.items()}
    assert states == {
        "Alarm!": "drafted",
        "This is for Bob": "pending_approval",
        "Hm": "needs_info",
    }
    assert office.properties(notes["This is for Bob"])["delegation_target"] == "Bob"
    assert "## Delegation" in office.body(notes["This is for Bob"])
    assert "How are you?" in office.body(notes["This is for Bob"])
    assert office.properties(notes["Hm"])["info_needed"]
    assert len(office.mails("label:AI_PROCESSED")) == 4


@requirement("cli:approvals")
def test_the_terminal_shows_an_urgent_card_in_words_with_the_mail_it_answers(
    office: Office,
) -> None:
    office.receive(letter(subject="Alarm!", body="The shed burns.\n", message_id="<a@x>"))
    office.once()
    name = office.properties(office.only("Drafts"))["draft_id"]
    shown = office.home.command("show", name)

    _, _, original = shown.stdout.partition("## The mail that it answers")
    assert "draft_id" not in shown.stdout
    assert "The shed burns." in original
    assert "Subject: Alarm!" in original
    assert not re.search(r"\d{4}-\d\d-\d\dT", shown.stdout + shown.stderr)


@requirement("orchestrator:edited")
def test_an_edited_draft_is_sent_as_edited_and_the_edit_is_shown_and_remembered(
    office: Office,
) -> None:
    office.receive(question())
    office.once()
    draft = office.only("Drafts")
    name = office.properties(draft)["draft_id"]
    draft.write_text(draft.read_text().replace("I will look into it.", "the answer is 42."))

    shown = office.home.command("show", name)
    assert "+Thank you, the answer is 42." in shown.stdout
    approved = office.home.command("approve", name)
    assert approved.returncode == 0, approved.stderr
    office.once()

    (sent,) = office.mails("in:sent")
    assert sent.snippet == "Thank you, the answer is 42."
    log = office.home.command("log", "--json").stdout
    assert '"edited_by_person": "+1 -1 lines"' in log
    assert "the answer is" not in log


@requirement("orchestrator:rejected")
def test_a_rejected_draft_is_not_sent_and_the_next_decision_heeds_it(
    office: Office,
) -> None:
    office.receive(question(1))
    office.once()
    name = office.properties(office.only("Drafts"))["draft_id"]
    assert office.home.command("reject", name, "--reason", "I call her").returncode == 0
    office.once()
    assert office.properties(office.only("Needs_Action"))["status"] == "rejected"
    assert office.mails("in:sent") == []

    office.receive(question(2))
    office.once()
    assert office.files("Drafts") == []
    (second,) = [file for file in office.files("Needs_Action") if "question-2" in file.name]
    assert office.properties(second)["status"] == "needs_info"
    assert "I call her" in office.properties(second)["decision_reason"]


@requirement("orchestrator:rejected")
def test_a_draft_that_the_person_moves_says_where_it_stands(office: Office) -> None:
    office.receive(question())
    office.passes()
    rejected = office.move(office.only("Drafts"), "Rejected")
    rejected.write_text(
        rejected.read_text().replace("status:", "mine: kept\nlast_error: old\nstatus:")
    )
    office.passes()
    found = office.properties(rejected)
    assert (found["status"], found["mine"], "last_error" in found) == (
        "rejected",
        "kept",
        False,
    )
    (note,) = office.files("Needs_Action")
    assert office.properties(note)["draft_path"] == f"Rejected/{rejected.name}"

    office.move(rejected, "Drafts")
    office.passes()
    assert office.properties(office.only("Drafts"))["status"] == "pending_approval"
    assert office.properties(note)["draft_path"] == f"Drafts/{rejected.name}"

    office.move(office.only("Drafts"), "Approved")
    office.once()
    assert len(office.mails("in:sent")) == 1


@requirement("orchestrator:states")
@pytest.mark.parametrize("way", ["vault", "terminal", "the person's own line"])
def test_what_was_sent_says_when_it_was_approved_whichever_door_approved_it(
    office: Office, way: str
) -> None:
    office.receive(question())
    office.passes()
    draft = office.only("Drafts")
    name = office.properties(draft)["draft_id"]
    if way == "terminal":
        assert office.home.command("approve", name).returncode == 0
    else:
        moved = office.move(draft, "Approved")
    if way == "the person's own line":
        moved.write_text(
            moved.read_text().replace(
                "status:", "approved_at: 2026-02-14T09:00:00Z\nstatus:"
            )
        )
    office.once()
    desk = office.desk()
    row = desk.store.write_sync(ledger.find, name)
    desk.close()
    assert row is not None
    assert row.decided is not None
    said = office.properties(office.vault / "Done" / draft.name)["approved_at"]
    assert said == (
        clock.iso(row.decided) if way != "the person's own line" else "2026-02-14T09:00:00Z"
    )


@requirement("orchestrator:dev-mode")
def test_under_dev_mode_a_draft_stays_in_approved_and_the_log_says_so_once(
    office: Office,
) -> None:
    office.receive(question())
    office.once()
    office.move(office.only("Drafts"), "Approved")

    office.once(DEV_MODE="true")
    office.once(DEV_MODE="true")
    lines = [
        line
        for line in office.home.command("log", "--json").stdout.splitlines()
        if '"dev_mode"' in line
    ]
    assert len(lines) == 1
    assert len(office.files("Approved")) == 1
    assert office.mails("in:sent") == []

    office.once()
    assert len(office.mails("in:sent")) == 1


@requirement("orchestrator:failure")
def test_a_server_that_cannot_be_started_leaves_the_draft_in_approved_with_the_reason(
    office: Office,
) -> None:
    office.receive(question())
    office.once()
    draft = office.move(office.only("Drafts"), "Approved")

    office.once(DESKHAND_GMAIL_SERVER="/nowhere/at/all --serve")
    marked = office.properties(draft)
    assert marked["last_error"].startswith("mcp_unavailable:")
    assert (marked["status"], marked["attempts"]) == ("pending_approval", 1)
    assert office.mails("in:sent") == []
    assert office.properties(office.only("Needs_Action"))["status"] == "drafted"
    (trouble,) = office.status()["errors"]
    assert trouble["error"].startswith("mcp_unavailable:")
    (log,) = (office.vault / "Logs").glob("orchestrator_*.jsonl")
    assert '"event": "mcp_unavailable"' in log.read_text()

    # The second try comes as far as the gate, and is one try all the same.
    days = (clock.utc_now() + timedelta(days=days) for days in (0, 1))
    blocked = [office.vault / "Logs" / f"gmail_mcp_{day:%Y-%m-%d}.jsonl" for day in days]
    for file in blocked:
        file.mkdir()
    office.once()
    marked = office.properties(draft)
    assert (marked["last_error"].partition(":")[0], marked["attempts"]) == (
        "send_failed",
        2,
    )
    assert office.status()["errors"][0]["attempts"] == 2
    for file in blocked:
        file.rmdir()

    office.once()
    assert len(office.mails("in:sent")) == 1
    for file in office.files("Done"):
        assert not {"last_error", "attempts", "next_try"} & office.properties(file).keys()


@requirement("orchestrator:sealed")
def test_with_sealed_approvals_only_the_command_line_releases_a_draft(
    office: Office,
) -> None:
    sealed = office.with_variables(DESKHAND_APPROVALS="sealed")
    sealed.receive(question())
    sealed.once()
    name = sealed.properties(sealed.only("Drafts"))["draft_id"]
    moved = sealed.move(sealed.only("Drafts"), "Approved")

    sealed.once()
    assert sealed.mails("in:sent") == []
    assert f"deskhand approve {name}" in sealed.properties(moved)["last_error"]
    assert sealed.files("Pending_Approval") == []

    assert sealed.home.command("approve", name).returncode == 0
    sealed.once()
    assert len(sealed.mails("in:sent")) == 1


@requirement("orchestrator:watcher")
def test_first_comes_recent_unread_mail_then_whatever_arrives_whatever_its_date_says(
    office: Office,
) -> None:
    office.receive(question(1))
    office.receive(question(2), seen=True)
    office.receive(question(3).replace(b"2026", b"2019"))
    office.once(DESKHAND_FIRST_DAYS="365")
    assert [
        office.properties(file)["subject"] for file in office.files("Needs_Action")
    ] == ["A question 1"]

    office.receive(question(4).replace(b"2026", b"2019"))
    office.receive(question(5), seen=True)
    office.once()
    office.once()
    assert len(office.files("Needs_Action")) == 3


@requirement("orchestrator:sealed-requests")
def test_a_sealed_request_that_the_person_approved_leaves_without_another_call(
    office: Office,
) -> None:
    import asyncio

    from deskhand.gate.actions import SendEmail

    async def ask() -> None:
        desk = office.desk()
        await desk.gate.propose(
            SendEmail(to="ann@example.org", subject="Hello", body="It is me.\n"),
            "email_mcp",
        )
        await desk.close_mailbox()
        desk.close()

    asyncio.run(ask())
    office.once()
    assert office.mails("in:sent") == []
    office.move(office.only("Pending_Approval"), "Approved")
    office.once(DEV_MODE="true")
    assert office.mails("in:sent") == []
    office.once()
    office.once()
    assert len(office.mails("in:sent")) == 1


@requirement("orchestrator:failure")
def test_a_note_that_cannot_be_written_keeps_no_other_answer_from_being_told(
    office: Office,
) -> None:
    for number in range(2):
        office.receive(question(number))
        office.passes()
    (strange,) = [
        file for file in office.files("Needs_Action") if "question-0" in file.name
    ]
    strange.rename(office.vault / "elsewhere.md")
    strange.symlink_to(office.vault / "elsewhere.md")
    for draft in office.files("Drafts"):
        office.move(draft, "Approved")
    office.once()
    assert len(office.mails("in:sent")) == 2
    assert [file.name for file in office.files("Needs_Action")] == [strange.name]


def test_a_desk_that_cannot_work_at_all_ends_with_one(office: Office) -> None:
    (office.home.path / "rules.toml").write_text(
        "[[rule]]\nname = 'everything'\ndecision = 'archive'\n"
    )
    done = office.home.command("orchestrate", "--once")
    assert (done.returncode, "rules.toml" in done.stderr, "Traceback" in done.stderr) == (
        1,
        True,
        False,
    )


@requirement("orchestrator:failure")
@pytest.mark.parametrize("folder", ["Needs_Action", "Drafts", "Logs"])
def test_one_folder_that_is_none_keeps_no_other_work_from_being_done(
    office: Office, folder: str
) -> None:
    (office.vault / folder).write_text("a file")
    office.receive(question())
    done = office.home.command("orchestrate", "--once")
    assert (done.returncode, "Traceback" in done.stderr) == (int(folder == "Drafts"), False)
    if folder != "Logs":
        assert f"{folder} is not a folder" in done.stderr
    if folder != "Needs_Action":
        assert len(office.files("Needs_Action")) == 1
