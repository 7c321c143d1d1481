"""A model decides, and whatever it or its network does ends in a visible, correct state."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mail.letters import letter
from tests.orchestrator.model_stub import GOOD, ModelStub
from tests.orchestrator.office import Office
from tests.requirements import requirement

MAIL = letter(
    subject="Lunch?", body="Are you free for lunch at noon?", message_id="<lunch@x>"
)


@pytest.fixture
def model() -> Iterator[ModelStub]:
    with ModelStub() as stub:
        yield stub


def said(request: dict[str, Any]) -> str:
    return "\n".join(message["content"] for message in request["messages"])


@requirement("orchestrator:model")
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_good_decision_becomes_a_draft_to_the_sender(
    office: Office, model: ModelStub, provider: str
) -> None:
    model.answers.append(GOOD)
    office.receive(MAIL)
    office.passes(**model.environment(provider))

    draft = office.only("Drafts")
    assert (office.properties(draft)["to"], office.body(draft)) == (
        "ann@example.org",
        "Yes, at ten.\n",
    )
    assert (
        office.properties(office.only("Needs_Action"))["decided_by"] == f"{provider}:stub"
    )
    (asked,) = model.asked
    assert "Are you free for lunch at noon?" in said(asked)
    assert "tools" not in asked
    headers = {name.lower(): value for name, value in model.headers[0].items()}
    assert "sk-test" in (
        headers.get("x-api-key"),
        headers.get("authorization", "").removeprefix("Bearer "),
    )


@requirement("orchestrator:model")
@pytest.mark.parametrize(
    "bad",
    [
        "Sure, I would reply to that.",
        '{"decision": "draft_reply", ',
        {"decision": "reply_all", "confidence": 1, "reasoning": "x"},
        {"decision": "draft_reply", "confidence": 1, "reasoning": "no body"},
        {"decision": "archive", "confidence": 7, "reasoning": "x"},
        {"decision": "archive", "confidence": 1, "reasoning": " "},
        GOOD | {"to": "mallory@evil.example"},
        {
            "tool_calls": [
                {"type": "function", "function": {"name": "send_email", "arguments": "{}"}}
            ]
        },
        "",
        b"<html>not even JSON</html>",
    ],
    ids=[
        "prose",
        "cut",
        "choice",
        "no-body",
        "number",
        "blank",
        "recipient",
        "tool",
        "nothing",
        "html",
    ],
)
def test_bad_output_goes_back_with_the_mail_in_context_and_then_to_the_person(
    office: Office, model: ModelStub, bad: Any
) -> None:
    model.answers.extend([bad, bad, bad])
    office.receive(MAIL)
    office.passes(**model.environment())

    note = office.properties(office.only("Needs_Action"))
    assert (note["status"], note["decision"]) == ("needs_info", "needs_info")
    assert note["decision_reason"].startswith("The model gave no usable decision: ")
    assert [office.files(folder) for folder in ("Drafts", "Done")] == [[], []]
    assert len(model.asked) == 3
    assert all(
        "Are you free for lunch at noon?" in said(request) for request in model.asked
    )
    assert "That was no valid decision" in said(model.asked[1])


@requirement("orchestrator:model")
def test_one_bad_answer_costs_nothing(office: Office, model: ModelStub) -> None:
    model.answers.extend(["Hello!", f"```json\n{json.dumps(GOOD)}\n```"])
    office.receive(MAIL)
    office.passes(**model.environment())

    assert office.properties(office.only("Drafts"))["to"] == "ann@example.org"


@requirement("orchestrator:model")
@pytest.mark.parametrize(
    ("status", "code"),
    [(429, "rate_limited"), (503, "internal_error"), (401, "auth_required")],
)
def test_while_the_network_fails_the_mail_stays_pending_and_says_why(
    office: Office, model: ModelStub, status: int, code: str
) -> None:
    model.answers.append(status)
    office.receive(MAIL)
    office.passes(**model.environment())

    assert office.properties(office.only("Needs_Action"))["status"] == "pending"
    (trouble,) = office.status()["errors"]
    assert (trouble["error"].partition(":")[0], trouble["attempts"]) == (code, 1)
    assert office.mails("label:AI_PROCESSED") == []

    model.answers.append(GOOD)
    office.passes(**model.environment())
    assert office.properties(office.only("Needs_Action"))["status"] == "drafted"
    assert "Are you free for lunch at noon?" in said(model.asked[1])


@requirement("orchestrator:failure")
def test_an_urgent_mail_without_a_reply_waits_for_the_persons_words(
    office: Office, model: ModelStub
) -> None:
    model.answers.append(
        {"decision": "urgent", "confidence": 1, "reasoning": "The house burns."}
    )
    office.receive(MAIL)
    office.passes(**model.environment())
    draft = office.move(office.only("Drafts"), "Approved")

    office.passes()
    assert "The body is empty" in office.properties(draft)["last_error"]
    assert office.mails("in:sent") == []
    draft.write_text(draft.read_text() + "I am coming.\n")
    office.once()
    assert [mail.snippet for mail in office.mails("in:sent")] == ["I am coming."]


@requirement("orchestrator:delicate")
@pytest.mark.parametrize(
    "body",
    [
        "Your invoice of 300 EUR is overdue.",
        "Our lawyer will write to you.",
        "Somebody tried your password.",
    ],
)
def test_no_model_archives_money_law_or_security(
    office: Office, model: ModelStub, body: str
) -> None:
    model.answers.append({"decision": "archive", "confidence": 1, "reasoning": "spam"})
    office.receive(letter(body=body, message_id="<m@x>"))
    office.passes(**model.environment())

    assert office.files("Done") == []
    assert office.properties(office.only("Needs_Action"))["status"] == "needs_info"


@requirement("orchestrator:edited")
@requirement("orchestrator:rejected")
def test_what_the_person_corrected_is_shown_to_the_next_decision(
    office: Office, model: ModelStub
) -> None:
    model.answers.extend([GOOD, GOOD])
    office.receive(MAIL)
    office.passes(**model.environment())
    draft = office.move(office.only("Drafts"), "Rejected")
    draft.write_text(
        draft.read_text().replace("status: pending_approval", "rejected_reason: too short")
    )
    office.passes(**model.environment())

    office.receive(letter(subject="Dinner?", message_id="<dinner@x>"))
    office.passes(**model.environment())
    assert "too short" in said(model.asked[-1])
    assert "too short" not in said(model.asked[0])
