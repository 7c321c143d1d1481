"""The pure part: a table of rows is its whole test."""

from datetime import UTC, datetime, timedelta

import pytest
from requirements import requirement

from deskhand.gate.actions import Action
from deskhand.gate.policy import Allow, Limits, Wait, judge, risks

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def ago(*minutes: int) -> list[datetime]:
    return [NOW - timedelta(minutes=each) for each in minutes]


@requirement("gate:rate")
@pytest.mark.parametrize(
    ("sent", "most", "minutes"),
    [
        ([], 1, None),
        (ago(61), 1, None),
        (ago(60), 1, None),
        (ago(59), 1, 1),
        (ago(10, 50), 2, 10),
        (ago(50, 10, 30), 2, 30),
        (ago(10, 50), 3, None),
        (ago(-5), 1, 65),
        ([], 0, 60),
    ],
    ids=str,
)
def test_the_rate_says_when_the_next_mail_may_leave(sent: list[datetime], most: int, minutes: int | None) -> None:
    verdict = judge(sent=sent, now=NOW, limits=Limits(most, timedelta(hours=1)))

    assert verdict == (Allow() if minutes is None else Wait(NOW + timedelta(minutes=minutes)))


@requirement("gate:asks")
@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"to": "bob@example.com"}, "low", "in your own domain"),
        ({}, "medium", "outside your own domain"),
        ({"to": "bob@example.com", "body": "see https://example.com"}, "medium", "1 link."),
        ({"body": "a\u200bb\u202ec"}, "high", "2 invisible characters."),
    ],
)
def test_the_request_names_the_risk(change: dict[str, str], level: str, words: str) -> None:
    fields = {"account": "me@example.com", "to": "ann@example.org", "subject": "Hello", "body": "Hi"}
    found = risks(Action(kind="send_email", **fields | change))

    assert found[0].startswith(f"Level: {level}.")
    assert words in " ".join(found)


@requirement("gate:content-bound")
def test_every_field_is_in_the_digest() -> None:
    action = Action(kind="send_email", account="me@example.com", to="ann@example.org", subject="Hello", body="Hi")
    changes = {
        "kind": "reply_email",
        "account": "other@example.com",
        "to": "eve@example.org",
        "subject": "Hello ",
        "body": "Hi ",
        "thread_id": "1",
        "reply_to_message_id": "1",
        "in_reply_to": "<1@x>",
        "references": ("<1@x>",),
    }
    digests = {Action.model_validate(action.model_dump() | {name: value}).digest for name, value in changes.items()}

    assert set(changes) == set(Action.model_fields)
    assert len(digests | {action.digest}) == len(changes) + 1
