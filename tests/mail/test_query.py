"""Gmail's search syntax becomes a closed union, or a reason why not."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskhand.errors import InvalidInput
from deskhand.mail import query
from deskhand.mail.query import (
    AllOf,
    AnyOf,
    Anywhere,
    HasAttachment,
    HasLabel,
    HasMessageId,
    Not,
    Since,
    Text,
    Until,
)
from tests.requirements import requirement

NOW = datetime(2026, 2, 24, 12, tzinfo=UTC)
DAY = datetime(2026, 1, 31, tzinfo=UTC)
A, B, C = Text("a"), Text("b"), Text("c")


@requirement("mail:query")
@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", AllOf(())),
        ("invoice", Text("invoice")),
        ('"two words"', Text("two words")),
        ("a b", AllOf((A, B))),
        ("a AND b", AllOf((A, B))),
        ("a OR b", AnyOf((A, B))),
        ("a b OR c", AllOf((A, AnyOf((B, C))))),
        ("{a b}", AnyOf((A, B))),
        ("(a b) OR c", AnyOf((AllOf((A, B)), C))),
        ("-a", Not(A)),
        ("-(a OR b)", Not(AnyOf((A, B)))),
        ("OR a", A),
        ("well-known", Text("well-known")),
        ("from:ann@example.org", Text("ann@example.org", "sender")),
        ("FROM:Ann", Text("Ann", "sender")),
        ('to:"Ann B"', Text("Ann B", "recipients")),
        ("subject:(a OR b)", AnyOf((Text("a", "subject"), Text("b", "subject")))),
        ("-subject:a", Not(Text("a", "subject"))),
        ("label:Work/Done", HasLabel("Work/Done")),
        ("label:inbox", HasLabel("INBOX")),
        ("is:unread", HasLabel("UNREAD")),
        ("is:read", Not(HasLabel("UNREAD"))),
        ("has:attachment", HasAttachment()),
        ("in:sent", HasLabel("SENT")),
        ("in:drafts", HasLabel("DRAFT")),
        ("in:anywhere", Anywhere()),
        ("after:2026/01/31", Since(DAY)),
        ("before:2026-1-31", Until(DAY)),
        ("after:1769817600", Since(DAY)),
        ("newer_than:2d", Since(NOW - timedelta(days=2))),
        ("older_than:1y", Until(NOW - timedelta(days=365))),
        ("rfc822msgid:<a@b>", HasMessageId("a@b")),
        ("meeting at 10:30", AllOf((Text("meeting"), Text("at"), Text("10:30")))),
        ("https://example.org/x", Text("https://example.org/x")),
    ],
)
def test_a_query_means_what_it_means_in_gmail(text: str, meaning: query.Query) -> None:
    assert query.parse(text, NOW) == meaning


@requirement("mail:query")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("form:ann", "did you mean from:?"),
        ("filename:pdf", "which only Gmail can search by"),
        ("is:lovely", "is:unread"),
        ("has:userlabels", "has:attachment"),
        ("after:yesterday", "after:2026/01/31"),
        ("before:2026/02/30", "which is not a date"),
        ("newer_than:2w", "newer_than:7d"),
        ("from:", "nothing after from:"),
        ("(a", "does not close"),
        ("a)", "not opened"),
        ("(a}", "not opened"),
        ('"a', "quote"),
        ("(" * 50 + "a" + ")" * 50, "too many brackets"),
        ("a" * 5000, "longer than"),
        ("a " * 150, "more than 100 terms"),
        ("a\ud800", "not valid Unicode"),
    ],
    ids=lambda text: ascii(text)[:30],
)
def test_what_cannot_be_understood_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        query.parse(text, NOW)

    (problem,) = refused.value.details["fields"]
    assert problem["field"] == "query"
    assert reason in f"{problem['message']} {problem['suggestion']}"


PIECES = [*'ab:-(){}" \t@é', "OR ", "from:", "in:", "is:unread", "after:", "2026/01/31"]


@requirement("mail:query")
@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        assert isinstance(query.parse(text, NOW), query.Query)
        return
    assert set(text) & set('(){}":'), "plain words are never refused"


def test_trash_and_spam_are_shown_only_to_those_who_ask() -> None:
    def hidden(text: str) -> bool:
        return query.leaves_trash_out(query.parse(text, NOW))

    assert all(map(hidden, ["", "a -b", "in:inbox OR label:x"]))
    assert not any(
        map(hidden, ["in:trash", "in:anywhere a", "-in:spam", "(a OR label:spam)"])
    )
