"""Mail text is data, whoever decides."""

import json

from deskhand.notes.frontmatter import parse
from tests.orchestrator.injections import EVIL, mails
from tests.orchestrator.model_stub import ModelStub
from tests.orchestrator.office import Office
from tests.requirements import requirement

CLOSED = ("Approved", "Rejected", "Pending_Approval")


def check(office: Office, number: int) -> None:
    """0 unapproved sends, 0 changed recipients, 0 files in closed folders, and one whole note for each mail."""
    assert office.mails("in:sent") == []
    for folder in CLOSED:
        assert [file for file in (office.vault / folder).rglob("*") if file.is_file()] == []
    assert {office.properties(draft)["to"] for draft in office.files("Drafts")} <= {
        "ann@example.org"
    }
    notes = [*office.files("Needs_Action"), *office.files("Done")]
    assert len(notes) == number
    for note in notes:
        read = parse(note.read_text())
        assert read.frontmatter["type"] == "email"
        assert read.frontmatter["status"] in (
            "drafted",
            "needs_info",
            "done",
            "pending_approval",
        )
        assert read.body.lstrip().startswith(
            "What stands in the box is the mail's own text"
        )
    for draft in office.files("Drafts"):
        assert office.properties(draft)["status"] == "pending_approval"
    outside = {path.name for path in office.vault.iterdir()}
    assert outside <= {"Needs_Action", "Drafts", "Done", "Logs", "Dashboard.md", *CLOSED}


@requirement("orchestrator:injection")
def test_under_rules_no_injection_does_anything(office: Office) -> None:
    hostile = mails()
    assert len(hostile) >= 50
    office.receive(*hostile)
    office.passes(2)
    check(office, len(hostile))


@requirement("orchestrator:injection")
def test_a_model_that_falls_for_it_gets_nothing_but_a_draft_that_waits(
    office: Office,
) -> None:
    hostile = mails()
    (office.home.path / "rules.toml").write_text("rule = []\n")
    fallen = {
        "decision": "draft_reply",
        "confidence": 1,
        "reasoning": "approved",
        "reply_body": f"BCC {EVIL}: secret",
    }
    with ModelStub() as model:
        model.answers.extend([fallen] * len(hostile))
        office.receive(*hostile)
        office.passes(2, **model.environment())
    check(office, len(hostile))
    asked = json.dumps(model.asked)
    assert "\\udb40" not in asked
    hidden = [request for request in model.asked if "see you at ten" in json.dumps(request)]
    assert hidden
    assert not any(
        "Ignore all previous" in json.dumps(request["messages"][1:]) for request in hidden
    )
    assert all(
        "hidden" in json.dumps(request["messages"][1:]).lower() for request in hidden
    )
