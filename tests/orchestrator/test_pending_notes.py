"""Notes in Needs_Action that the desk did not write: each mail is triaged once, whoever speaks of it."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from deskhand.notes import frontmatter
from tests.gate.site import Site
from tests.home import Home
from tests.mail.gmail_double import Status
from tests.mail.letters import letter
from tests.orchestrator.office import Office, question
from tests.requirements import requirement


def put(
    office: Office, name: str = "email.md", body: str = "How are you?\n", **properties: Any
) -> Path:
    """A note as another watcher would write it."""
    given = {
        "type": "email",
        "status": "pending",
        "message_id": "18d5f0a1b2c3d4e5",
    } | properties
    file = office.vault / "Needs_Action" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(
        frontmatter.render(
            {key: value for key, value in given.items() if value is not None}, body
        )
    )
    return file


ANN = {"from": "Ann <ann@example.org>", "subject": "A question"}


def risk(office: Office) -> tuple[str, str]:
    """How risky the only card is, and what it says about it."""

    async def ask() -> tuple[str, str]:
        desk = office.desk()
        try:
            ((card,), _) = await desk.waiting.cards()
        finally:
            await desk.close_mailbox()
            desk.close()
        return card.risk.level, "\n".join(card.risk.reasons)

    import asyncio

    return asyncio.run(ask())


@requirement("orchestrator:pending-notes")
@pytest.mark.parametrize(
    "given",
    [
        ANN,
        {"sender": "ann@example.org", "subject": "A question", "type": None},
        {
            "from_address": "ann@example.org",
            "subject": "A question",
            "message_id": None,
            "id": "18d5f0a1b2c3d4e5",
        },
        {
            "From": "ann@example.org",
            "Subject": "A question",
            "message_id": None,
            "Message-ID": "<a@example.org>",
        },
        ANN | {"message_id": 123456, "type": "gmail"},
    ],
)
def test_a_note_of_another_watcher_is_triaged_and_its_answer_says_that_the_mailbox_knows_nothing(
    office: Office, given: dict[str, Any]
) -> None:
    note = put(office, **given)
    office.passes(2)
    found = office.properties(note)
    assert (found["status"], found["decision"], found["decided_by"]) == (
        "drafted",
        "draft_reply",
        "rule:questions",
    )
    draft = office.properties(office.only("Drafts"))
    assert (draft["to"], draft["subject"], draft["reply_to_message_id"]) == (
        "ann@example.org",
        "Re: A question",
        None,
    )
    level, reasons = risk(office)
    assert level != "low"
    assert "the mailbox has no such mail" in reasons
    assert "New recipient" in reasons  # that she wrote is only what the note says


@requirement("orchestrator:pending-notes")
def test_the_answer_to_a_mail_that_only_a_note_speaks_of_leaves_when_it_is_approved(
    office: Office,
) -> None:
    note = put(office, **ANN)
    office.passes()
    office.move(office.only("Drafts"), "Approved")
    office.once()
    (sent,) = office.mails("in:sent")
    assert (sent.to, sent.subject) == ("ann@example.org", "Re: A question")
    done = office.properties(office.vault / "Done" / note.name)
    assert (done["status"], done["reply_message_id"]) == ("done", sent.id)


@requirement("orchestrator:pending-notes")
def test_where_the_mailbox_has_the_mail_it_is_answered_in_its_thread_and_the_note_says_nothing_else(
    office: Office,
) -> None:
    office.receive(question(), seen=True)
    (mail,) = office.mails("")
    note = put(
        office,
        message_id=mail.id,
        **{"from": "Eve <eve@evil.example>", "subject": "Send me the keys"},
    )
    office.passes(2)
    assert office.files("Needs_Action") == [note]
    draft = office.properties(office.only("Drafts"))
    assert (draft["to"], draft["subject"]) == ("ann@example.org", "Re: A question 0")
    assert draft["reply_to_message_id"] == mail.id
    level, reasons = risk(office)
    assert level != "low"
    assert "eve@evil.example wrote it, the mailbox says otherwise" in reasons
    assert "another subject: Send me the keys" in reasons


@requirement("orchestrator:pending-notes")
@pytest.mark.parametrize("first", ["note", "mail"])
def test_a_mail_that_both_the_desk_and_another_watcher_noticed_has_one_note_and_one_answer(
    office: Office, first: str
) -> None:
    if first == "mail":
        office.receive(question())
        office.passes()
        (own,) = office.files("Needs_Action")
    else:
        office.receive(question())
    (mail,) = office.mails("")
    note = put(office, message_id=mail.id, **ANN)
    office.passes(2)
    assert len(office.files("Drafts")) == 1
    if first == "mail":
        assert (
            office.properties(note)["status"],
            office.properties(note)["duplicate_of"],
        ) == ("duplicate", own.name)
    else:
        assert [file.name for file in office.files("Needs_Action")] == [note.name]
        assert office.properties(note)["status"] == "drafted"
    assert office.properties(office.only("Drafts"))["reply_to_message_id"] == mail.id


@requirement("orchestrator:pending-notes")
@requirement("orchestrator:crash")
def test_one_mail_has_one_answer_for_ever_however_its_note_is_copied_renamed_or_brought_back(
    office: Office,
) -> None:
    note = put(office, **ANN)
    text = note.read_text()
    put(office, "a second note.md", **ANN)
    office.passes(2)
    states = sorted(
        str(office.properties(file)["status"]) for file in office.files("Needs_Action")
    )
    assert states == ["drafted", "duplicate"]
    office.move(office.only("Drafts"), "Approved")
    office.once()
    assert len(office.mails("in:sent")) == 1

    for name in ("email.md", "renamed.md", "email (conflicted copy).md"):
        (office.vault / "Needs_Action" / name).write_text(text)
    office.once()
    office.once()
    assert office.files("Drafts") == []
    assert len(office.mails("in:sent")) == 1
    assert {office.properties(file)["status"] for file in office.files("Needs_Action")} <= {
        "duplicate"
    }
    assert all(office.properties(file)["status"] == "done" for file in office.files("Done"))


@requirement("orchestrator:pending-notes")
def test_a_note_that_is_renamed_while_it_waits_is_still_the_note_of_its_mail(
    office: Office,
) -> None:
    office.receive(letter(subject="Hm", message_id="<h@x>"))
    office.passes()
    own = office.only("Needs_Action")
    text = own.read_text().replace("status: needs_info", "status: pending")
    own.unlink()
    renamed = own.with_name("my name for it.md")
    renamed.write_text(text)
    office.passes()
    assert office.properties(renamed)["status"] == "needs_info"
    assert office.only("Needs_Action") == renamed


@requirement("orchestrator:pending-notes")
@requirement("orchestrator:rules")
def test_a_note_that_asked_and_is_made_pending_again_is_decided_again_but_never_answered_twice(
    office: Office,
) -> None:
    office.receive(letter(subject="Hm", message_id="<h@x>"))
    office.passes()
    note = office.only("Needs_Action")
    asked = note.read_text()
    with (office.home.path / "rules.toml").open("a") as rules:
        rules.write(
            '[[rule]]\nname = "new"\nsubject = "hm"\ndecision = "draft_reply"\nreply_body = "Yes."\n'
        )
    note.write_text(asked.replace("status: needs_info", "status: pending"))
    office.passes()
    assert (office.properties(note)["status"], office.properties(note)["decided_by"]) == (
        "drafted",
        "rule:new",
    )

    note.write_text(asked.replace("status: needs_info", "status: pending"))
    office.passes(2)
    assert len(office.files("Drafts")) == 1
    assert office.properties(note)["status"] == "drafted"


@requirement("orchestrator:pending-notes")
def test_a_mail_that_comes_after_its_note_is_not_answered_again(office: Office) -> None:
    put(office, message_id="<q0@example.org>", **ANN)
    office.passes(2)
    assert len(office.files("Drafts")) == 1
    office.receive(question())
    office.passes(2)
    assert len(office.files("Drafts")) == 1
    (mail,) = office.mails("")
    put(office, "another.md", message_id="q0@example.org", **ANN)
    put(office, "and another.md", message_id=mail.id, **ANN)
    office.passes(2)
    assert len(office.files("Drafts")) == 1


@requirement("orchestrator:pending-notes")
def test_a_mail_is_the_same_whichever_way_its_id_is_spelled_and_also_when_it_is_gone(
    office: Office,
) -> None:
    office.receive(question(), seen=True)
    (mail,) = office.mails("")
    put(office, message_id=mail.id, **ANN)
    office.passes(2)
    put(office, "zeros.md", message_id=f"m00{mail.id[1:]}", **ANN)
    put(office, "header.md", message_id="<q0@example.org>", **ANN)
    office.passes(2)
    assert len(office.files("Drafts")) == 1
    assert (
        sum(
            office.properties(file)["status"] == "duplicate"
            for file in office.files("Needs_Action")
        )
        == 2
    )

    (office.home.path / "mail.db").unlink()
    put(office, "header again.md", message_id="q0@example.org", **ANN)
    put(office, "id again.md", message_id=mail.id, **ANN)
    office.passes(2)
    assert len(office.files("Drafts")) == 1
    assert (
        sum(
            office.properties(file)["status"] == "duplicate"
            for file in office.files("Needs_Action")
        )
        == 4
    )


@requirement("orchestrator:pending-notes")
def test_a_huge_note_is_cut_like_a_huge_mail(office: Office) -> None:
    put(
        office,
        body="x" * 15_000_000,
        **{"from": "a" * 50_000 + "@example.org", "subject": "A question"},
    )
    put(office, "other.md", message_id="other", **ANN)
    began = time.monotonic()
    office.passes(2)
    assert time.monotonic() - began < 20
    assert len(office.files("Drafts")) == 1


@requirement("orchestrator:pending-notes")
def test_what_cannot_be_triaged_is_named_with_its_reason_and_stops_nothing(
    office: Office,
) -> None:
    put(office, "none.md", message_id=None, **ANN)
    put(office, "task.md", type="task", **ANN)
    put(office, "draft.md", type="email_draft", **ANN)
    put(office, "odd id.md", message_id=["a", "b"], **ANN)
    put(office, "long id.md", message_id="a" * 1000, **ANN)
    folder = office.vault / "Needs_Action"
    (folder / "broken.md").write_text("---\nstatus: [pending\n---\n")
    (folder / "list.md").write_text("---\n- pending\n---\n")
    (folder / "latin.md").write_bytes(b"---\nstatus: pending\nsubject: \xfcber\n---\n")
    (folder / "huge.md").write_text("---\nstatus: pending\nx: " + "y" * 70_000 + "\n---\n")
    (folder / "link.md").symlink_to(office.vault / "elsewhere.md")
    (folder / "folder.md").mkdir()
    os.mkfifo(folder / "pipe.md")
    with (folder / "enormous.md").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    (folder / "plain.md").write_text("Buy milk.\n")
    good = put(office, "good.md", **ANN)
    office.passes(2)

    assert office.properties(good)["status"] == "drafted"
    left = office.status()["not_triaged"]
    expected = [
        "none",
        "task",
        "draft",
        "odd id",
        "long id",
        "broken",
        "list",
        "latin",
        "huge",
        "link",
        "folder",
    ]
    assert left.keys() == {
        f"Needs_Action/{name}.md" for name in [*expected, "pipe", "enormous"]
    }
    assert "no message_id" in left["Needs_Action/none.md"]
    assert "only mail is triaged" in left["Needs_Action/task.md"]
    page = (office.vault / "Dashboard.md").read_text().replace("\\", "")
    assert "- Needs_Action/none.md: it has no message_id" in page

    put(office, "none.md", message_id="another", **ANN)
    office.passes(2)
    assert len(office.files("Drafts")) == 2
    assert "Needs_Action/none.md" not in office.status()["not_triaged"]


@requirement("orchestrator:pending-notes")
def test_a_note_that_says_too_little_asks_the_person(office: Office) -> None:
    note = put(office, subject="A question")
    office.passes(2)
    found = office.properties(note)
    assert (found["status"], found["info_needed"]) == ("needs_info", "whom to answer")
    assert office.files("Drafts") == []


@requirement("orchestrator:pending-notes")
def test_on_gmail_a_note_leads_to_its_mail_by_id_or_header_and_an_outage_is_no_absence(
    site: Site,
) -> None:
    office = Office(
        Home(site.home.vault, site.home.environment | {"DESKHAND_FIRST_DAYS": "0"})
    )
    mail = site.gmail.account.deliver(question(1))
    other = site.gmail.account.deliver(question(2))
    put(office, "by id.md", message_id=mail.id)
    put(office, "by header.md", message_id="<q2@example.org>")
    put(office, "nowhere.md", message_id="18d5f0a1b2c3d4e5", **ANN)
    site.gmail.chance = lambda name: Status(503) if name == "messages.get" else None
    office.passes()
    assert office.files("Drafts") == []
    site.gmail.chance = lambda _: None
    office.passes(2)
    answered = {
        office.properties(file)["reply_to_message_id"] for file in office.files("Drafts")
    }
    assert answered == {mail.id, other.id, None}


@requirement("orchestrator:states")
@pytest.mark.parametrize(
    ("body", "between"),
    [
        ("Two blanks end it  \n\n\n", ""),
        ("It ends its line\n", "\n"),
        ("It has no end", "\n\n"),
    ],
)
def test_what_is_said_of_a_delegation_stands_behind_the_text_as_it_was(
    office: Office, body: str, between: str
) -> None:
    note = put(office, body=body, **ANN | {"subject": "For Bob"})
    office.passes(2)
    assert office.properties(note)["status"] == "pending_approval"
    assert office.body(note).startswith(f"{body}{between}## Delegation\n")
