"""The pure part: a table of rows is its whole test."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import process_time
from typing import Any

import pytest

from deskhand.gate.actions import Mail
from deskhand.gate.enclosures import Enclosure
from deskhand.gate.links import MOST_LINKS, UNREAD, linked_hosts, read_html
from deskhand.gate.oddities import LONG, Facts
from deskhand.gate.rate import Allow, Limits, Wait, judge
from deskhand.gate.risk import assess, assess_text
from tests.requirements import requirement

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
def test_the_rate_says_when_the_next_mail_may_leave(
    sent: list[datetime], most: int, minutes: int | None
) -> None:
    verdict = judge(sent=sent, now=NOW, limits=Limits(most, timedelta(hours=1)))

    assert verdict == (
        Allow() if minutes is None else Wait(NOW + timedelta(minutes=minutes))
    )


@requirement("gate:asks")
@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"to": "bob@example.com"}, "low", "cannot be called back"),
        ({}, "medium", "outside your own domain"),
        (
            {"to": "bob@example.com", "body": "see https://example.com"},
            "medium",
            "Links lead to: example.com.",
        ),
        ({"body": "a\u200bb\u202ec"}, "high", "1 invisible character."),
    ],
)
def test_the_request_names_the_risk(change: dict[str, str], level: str, words: str) -> None:
    fields = {
        "account": "me@example.com",
        "to": "ann@example.org",
        "subject": "Hello",
        "body": "Hi",
    }
    found = assess_text(Mail(kind="send_email", **fields | change))

    assert found[0].startswith(f"Level: {level}.")
    assert "by the text and the address alone" in found[1]
    assert words in " ".join(found)


@requirement("gate:content-bound")
def test_every_field_is_in_the_digest() -> None:
    action = Mail(
        kind="send_email",
        account="me@example.com",
        to="ann@example.org",
        subject="Hello",
        body="Hi",
    )
    changes = {
        "kind": "reply_email",
        "account": "other@example.com",
        "to": "eve@example.org",
        "cc": "eve@example.org",
        "bcc": "eve@example.org",
        "subject": "Hello ",
        "body": "Hi ",
        "thread_id": "1",
        "reply_to_message_id": "1",
        "in_reply_to": "<1@x>",
        "references": ("<1@x>",),
        "as_text": True,
        "attachments": (Enclosure(name="a", content_type="a/b", size=1, sha256="0"),),
        "send_at": "2026-12-24T09:00:00Z",
        "html": "<p>x</p>",
    }
    digests = {
        Mail.model_validate(action.model_dump() | {name: value}).digest
        for name, value in changes.items()
    }

    assert set(changes) == set(Mail.model_fields)
    assert len(digests | {action.digest}) == len(changes) + 1


FACTS = Facts(
    account="me@example.com", everybody=("bob@example.com",), subject="Hello", body="Hi"
)
ODD = Enclosure(
    name="a.zip", content_type="application/zip", size=1, sha256="0", odd=("is an archive",)
)
PAIR = ("bob@example.com", "ann@example.com")
IN_THREAD = {"everybody": PAIR, "sender": PAIR[0], "participants": PAIR}
MANY = tuple(f"p{number}@example.com" for number in range(12))
FORM = "<form action='https://evil.example/x'><input name=a></form>"
CONDITION = "<style>@supports (x: y) { p { display: none } }</style><p>Hi</p>"


@requirement("cards:risk")
@pytest.mark.parametrize(
    ("change", "level", "reasons"),
    [
        ({}, "low", []),
        ({"everybody": ("ann@example.org",)}, "low", ["outside your own domain"]),
        (
            {"new": frozenset({"bob@example.com"})},
            "medium",
            ["never written to bob@example.com"],
        ),
        ({"sender": "BOB@example.com"}, "low", []),
        (
            {"sender": "eve@example.com"},
            "high",
            ["goes to bob@example.com, not to eve@example.com"],
        ),
        ({"body": "x" * (LONG + 1)}, "medium", ["20,001 characters"]),
        (
            {"warnings": ("a link shows a.org but leads to b.org.",)},
            "medium",
            ["answers: a link shows a.org but"],
        ),
        (
            {"subject": "Your invoice", "body": "password and IBAN"},
            "medium",
            ["secrets: IBAN, invoice, password."],
        ),
        (
            {"body": "<html><p>Hi</p></html>"},
            "medium",
            ["It leaves as HTML: a reader sees 2 characters"],
        ),
        (
            {"body": f"<html>{FORM}</html>"},
            "high",
            ["A form sends what is typed into it to evil.example"],
        ),
        (
            {"body": f"<html>{CONDITION}</html>"},
            "high",
            ["may hide text by what was not understood: the rule p"],
        ),
        (
            {"body": "DE89 3704 0044 0532 0130 00"},
            "medium",
            ["money or secrets: DE89 3704 0044 0532 0130 00"],
        ),
        ({"body": "Please wire it"}, "medium", ["wire"]),
        ({"body": "wireless and passwordless"}, "low", []),
        ({"body": "a\u200bb"}, "high", ["1 invisible character."]),
        ({"body": "a\u202eb\u2066"}, "high", ["2 characters that change the direction"]),
        ({"subject": "a\u200f"}, "high", ["1 character that changes the direction"]),
        ({"body": "\U000e0041\ue000"}, "high", ["2 invisible characters"]),
        ({"body": "\U0001f469\u200d\U0001f4bb ok"}, "low", []),
        ({"body": "pay\u200dpal"}, "high", ["1 invisible character"]),
        ({"everybody": ("ann@xn--mnchen-3ya.de",)}, "medium", ["reads as münchen.de"]),
        ({"everybody": ("ann@xn--80ak6aa92e.com",)}, "high", ["only looks like apple.com"]),
        (
            {"everybody": ("ann@xn--pypal-4ve.com",)},
            "high",
            ["letters of several alphabets"],
        ),
        ({"everybody": ("ann@examp1e.com",)}, "high", ["looks like example.com"]),
        ({"everybody": ("ann@exarnple.com",)}, "high", ["looks like example.com"]),
        ({"everybody": ("ann@exmaple.com",)}, "high", ["looks like example.com"]),
        ({"everybody": ("ann@exampl.com",)}, "high", ["looks like example.com"]),
        ({"everybody": ("ann@examplee.com",)}, "high", ["looks like example.com"]),
        ({"everybody": ("ann@exomple.com",)}, "high", ["looks like example.com"]),
        (
            {"everybody": ("jürgen@example.com",)},
            "medium",
            ["The name jürgen is not written in plain letters"],
        ),
        (
            {"everybody": ("\u0430nn@example.com",)},
            "high",
            ["mixes letters of several alphabets"],
        ),
        ({"everybody": ("ann@mail.example.com",)}, "low", ["outside your own domain"]),
        ({"everybody": ("ann@elsewhere.com",)}, "low", ["outside your own domain"]),
        ({"everybody": ("ann@exxmpla.com",)}, "low", ["outside your own domain"]),
        (
            {
                "everybody": ("ann@friends.org",),
                "domains": frozenset({"friends.org", "friend.org"}),
            },
            "low",
            ["outside"],
        ),
        (
            {"everybody": ("a@fr1ends.org",), "sender": "a@friends.org"},
            "high",
            ["not to a@friends.org", "like friends.org"],
        ),
        (
            {"everybody": ("a@friends.org",), "domains": frozenset({"xn--friends-.org"})},
            "low",
            ["outside"],
        ),
        ({"everybody": ("bob@example.com", "cy@example.com")}, "low", []),
        (
            {"everybody": ("a@x.org", "cy@example.com")},
            "low",
            ["1 of 2 recipients are outside your own domain: a@x.org."],
        ),
        (
            {"everybody": MANY, "new": frozenset(MANY[:2])},
            "medium",
            [f"to {MANY[0]}, {MANY[1]}.", "12 recipients at once"],
        ),
        (
            {"everybody": MANY, "new": frozenset(MANY)},
            "medium",
            ["p9@example.com and 2 more.", "at once"],
        ),
        (
            {"everybody": ("b@example.com", "c@example.com"), "blind": ("c@example.com",)},
            "medium",
            ["see: c@example.com."],
        ),
        (
            {"attachments": (ODD,)},
            "medium",
            ["The attachment a.zip is an archive.", "takes a file along"],
        ),
        (IN_THREAD, "low", []),
        (
            IN_THREAD | {"everybody": (*PAIR, "cy@example.com")},
            "medium",
            ["does not name cy@example.com"],
        ),
        (
            IN_THREAD | {"everybody": (*PAIR, "eve@evil.org")},
            "high",
            ["does not name eve@evil.org", "1 of 3"],
        ),
        (
            IN_THREAD | {"everybody": ("me@example.com", PAIR[1])},
            "high",
            ["to me@example.com and 1 more, not to bob@"],
        ),
        (
            {"everybody": ("a@friends.org", "b@fr1ends.org")},
            "high",
            ["fr1ends.org looks like friends.org", "2 of 2"],
        ),
        (
            {"everybody": ("paul@example.com", "pau1@example.com")},
            "high",
            ["paul@example.com looks like pau1@example.com"],
        ),
        (
            IN_THREAD | {"everybody": (PAIR[0], "b0b@example.com")},
            "high",
            ["b0b@example.com looks like bob@"],
        ),
    ],
)
def test_each_risk_is_named_and_the_gravest_sets_the_level(
    change: dict[str, Any], level: str, reasons: list[str]
) -> None:
    found = assess(replace(FACTS, **change))

    assert found.level == level
    assert all(any(words in reason for reason in found.reasons) for words in reasons), found
    assert bool(found.reasons) == bool(reasons)


@requirement("cards:risk")
@pytest.mark.parametrize(
    ("text", "hosts", "masked"),
    [
        ("nothing", [], []),
        (
            "see https://Example.org/x, and http://b.example:8080.",
            ["example.org", "b.example"],
            [],
        ),
        (
            "[https://bank.com](https://evil.example/login)",
            ["bank.com", "evil.example"],
            [],
        ),
        (
            '<a href="https://evil.example">https://bank.com</a>',
            ["evil.example", "bank.com"],
            [],
        ),
        ("https://paypal.com@evil.example/", ["evil.example"], ["evil.example"]),
        (
            "https://evil.example\\@paypal.com",
            ["evil.example", "paypal.com"],
            ["paypal.com"],
        ),
        ("(see https://example.com).", ["example.com"], []),
        (
            "https://example.com'@evil.example/",
            ["evil.example", "example.com"],
            ["evil.example"],
        ),
        (
            "https://google.com/url?q=https://evil.example",
            ["google.com", "evil.example"],
            [],
        ),
        (
            "www.example.org and ftp://files.example",
            ["www.example.org", "files.example"],
            [],
        ),
        ("https://%65vil.example/", ["evil.example"], []),
        ("log in at evil.example/login now", ["evil.example"], []),
        ("EVIL.example:8080/x?y", ["evil.example"], []),
        ("a.b.c.d.e.f.g.h.evil\u3002example/x", ["a.b.c.d.e.f.g.h.evil.example"], []),
        (
            "evil.com's, 'bank.com',x.org;y and z.net:80",
            ["evil.com", "bank.com", "x.org", "z.net"],
            [],
        ),
        ("logger.info(self.app) and System.out; 3.com-x", [], []),
        (
            "p\u0430ypal.example/x",
            ["xn--pypal-4ve.example (reads as p\u0430ypal.example)"],
            [],
        ),
        (
            "See evil.com. Or (bank.co.uk/pay), or a-b.net!",
            ["evil.com", "bank.co.uk", "a-b.net"],
            [],
        ),
        (
            "ann@example.com, README.md, and/or, e.g. 1.5/2, v2.0/3 and src/main.py/x",
            [],
            [],
        ),
        ("bob.org@example.com wrote; so did ann.com@example.net/x", [], []),
        ("https://p\u0430ypal.com", ["xn--pypal-4ve.com (reads as p\u0430ypal.com)"], []),
        ("https://192.0.2.1/x", ["192.0.2.1"], []),
        ("https://[broken", ["an address that cannot be read"], []),
        ("https://under_score.example", ["under_score.example"], []),
    ],
    ids=str,
)
def test_links_are_named_by_the_hosts_that_they_lead_to(
    text: str, hosts: list[str], masked: list[str]
) -> None:
    assert linked_hosts(text) == (hosts, masked)
    shown = " ".join(assess(replace(FACTS, body=text)).reasons)
    assert (f"Links lead to: {', '.join(hosts)}." in shown) == bool(hosts)
    assert ("shows another name" in shown) == bool(masked)


@requirement("cards:risk")
def test_of_more_links_than_are_looked_at_it_is_said() -> None:
    text = " ".join(f"https://h{number}.example" for number in range(MOST_LINKS + 1))
    page = "".join(f"<a href='{each}'>x</a> " for each in text.split())
    for hosts, _ in (linked_hosts(text), linked_hosts("", read_html("", page))):
        assert len(hosts) == MOST_LINKS + 1
        assert hosts[-1] == UNREAD


@requirement("cards:risk")
def test_of_many_links_ten_are_named_and_the_rest_counted() -> None:
    text = " ".join(f"https://h{number}.example" for number in range(13))
    assert "h9.example and 3 more." in assess(replace(FACTS, body=text)).reasons[0]


@requirement("cards:risk")
def test_control_characters_are_unseen_ones_and_line_ends_are_not() -> None:
    found = assess(replace(FACTS, body="pay 10\x1b[8m or\rpay 1000\x08\x9b"))

    assert (found.level, found.reasons[0]) == (
        "high",
        "The text holds 4 invisible characters.",
    )
    assert assess(replace(FACTS, body="one\r\n\ttwo\n")).level == "low"


@requirement("cards:risk")
@pytest.mark.parametrize(
    "body",
    [
        "www.a.example " * 140_000,
        "http://" * 280_000,
        " ".join(f"www.a{n}.b" for n in range(160_000)),
        "a\u200b" * 990_000,
    ],
    ids=["one link", "links in links", "many links", "unseen"],
)
def test_no_text_however_long_keeps_the_desk_busy_and_what_was_not_looked_at_is_said(
    body: str,
) -> None:
    started = process_time()
    found = assess(replace(FACTS, body=body))

    assert process_time() - started < 1
    assert found.level == "high"
    assert (
        f"The text has {len(body):,} characters; only 200,000 of them were looked at."
        in found.reasons
    )
