"""What cannot be seen is said once: the page, the risk, the terminal, mails and names agree about it."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deskhand import unseen
from deskhand.cli.command import plain
from deskhand.gate.actions import Mail
from deskhand.gate.oddities import Facts
from deskhand.gate.risk import assess, assess_text
from deskhand.notes.paths import resembled, skeleton
from deskhand.web.visible import visible
from tests.requirements import requirement

HIDDEN = [
    "\ufe01\ufe02\ufe03" * 400,
    "\U000e0100" * 8,
    "\u3164",
    "\u115f",
    "\u2800" * 3,
    "\u034f",
    "\u17b4",
    "\u200c\u200d" * 20,
    "\u200b",
    "\u202e",
    "\U000e0041",
    "\ue000",
    "\x1b[2J",
    "\n" * 12,
    " " * 60,
    "\u0301" * 9,
    "\u00e9\u200d\u00e9\u200c\u00e9",
    "\u0430\u200c\u0431\u200d\u0432",
    "\U0001f525\u200d\u0431",
    "\U0001d159",
    "\U00016fe4",
    "\U00013441",
    "\u2d7f",
    "\u180e",
    "\u2064",
    "\ufff9",
    "\U000e0001",
    "\u202f" * 50,
    "\u061c",
    "a\ufe0f",
    "\u3164\u3164",
    "1\ufe0e",
]
WRITTEN = (
    *(
        "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0915\u094d\u200d\u0937",
        "\u0dc1\u0dca\u200d\u0dbb\u0dd3",
    ),
    *(
        "\u2764\ufe0f",
        "\U0001f469\u200d\U0001f4bb",
        "\U0001f469\U0001f3fd\u200d\U0001f9b0",
        "1\ufe0f\u20e3",
        "\u00a9\ufe0f",
    ),
)


@requirement("gate:unseen")
@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_text_with_something_hidden_in_it_is_never_of_low_risk(hidden: str) -> None:
    found = assess(
        Facts("ann@example.org", ("bob@example.org",), "Hello", f"Dear Bob,{hidden}Ann")
    )

    assert found.level == "high"
    assert found.reasons[0].startswith("The text holds ")


anything = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("\ufe01\u3164\u115f\u2800\u034f\u200d\u200b\u202e\n\t ae"),
    )
)


@requirement("gate:unseen")
@given(anything)
@example("a\u200db")
@example("\u2764\ufe0f\u200d\U0001f525")
def test_whatever_the_page_marks_the_risk_names(text: str) -> None:
    marked = '<mark class="unseen">' in str(visible(text))

    assert bool(unseen.describe(text)) == marked
    assert (unseen.count(text) > 0) <= marked


@requirement("gate:unseen")
@given(anything)
@example("\u0430\u200c\u0431\u200d\u0432")
@example("\n" * 9 + "x")
def test_whatever_the_page_marks_the_risk_and_the_requests_file_name(text: str) -> None:
    marked = '<mark class="unseen">' in str(visible(text))
    mail = Mail.model_construct(
        kind="send_email",
        account="ann@example.org",
        to="bob@example.org",
        subject="Hello",
        body=text,
    )

    named = assess(Facts("ann@example.org", ("bob@example.org",), "Hello", text))

    assert marked <= (named.level == "high")
    assert marked <= any(
        reason.startswith("The text holds ") for reason in assess_text(mail)
    )


@requirement("gate:unseen")
@pytest.mark.parametrize("text", WRITTEN)
def test_joiners_that_a_script_or_an_emoji_needs_are_no_trick(text: str) -> None:
    assert unseen.describe(f"so {text} so") == []


@requirement("gate:unseen")
@given(anything)
def test_a_terminal_gets_nothing_that_hides_or_steers(text: str) -> None:
    assert unseen.count(plain(text)) == 0


@requirement("gate:unseen")
@given(anything)
def test_what_is_left_of_a_mail_shows(text: str) -> None:
    left, removed = unseen.strip(text)

    assert len(left) == len(text) - removed
    assert all(
        unicodedata.category(trace.char) == "Cc"
        for trace in unseen.traces(left)
        if trace.kind == "invisible"
    )


@requirement("gate:unseen")
@pytest.mark.parametrize(
    "char", [hidden[0] for hidden in HIDDEN if unseen.is_unseen(hidden[0])]
)
def test_a_folder_is_not_made_another_by_what_nobody_sees(char: str) -> None:
    assert skeleton(f"App{char}roved") == skeleton("Approved")


@requirement("gate:unseen")
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("Dra\u017fts", "Drafts"),
        ("DRA\u017fTS", "Drafts"),
        ("Dra\ufb05s", "Drafts"),
        ("Pending\u2017Approval", "Pending_Approval"),
        ("Pending Approval", "Pending_Approval"),
        ("Pending-Approval", "Pending_Approval"),
        ("PENDING\u2013\u2013APPROVAL", "Pending_Approval"),
        ("PendingApproval", "Pending_Approval"),
        ("Needs Action", "Needs_Action"),
        ("Approved\u2215x", "Approved"),
        ("Approved\u2044x.md", "Approved"),
        ("Appr\u043eved\u29f8x", "Approved"),
        ("Pending Approval\u2571x", "Pending_Approval"),
    ],
)
def test_a_folder_that_reads_as_the_persons_is_taken_for_it(name: str, folder: str) -> None:
    assert resembled(name) == folder


@requirement("gate:unseen")
@pytest.mark.parametrize(
    "name",
    [
        "_Approved",
        "Approved 2026",
        "Done-ish",
        "AC\u2215DC.md",
        "1\u20442 Done.md",
        "-",
        "\u30ce",
    ],
)
def test_a_folder_that_only_has_a_word_of_the_persons_is_another(name: str) -> None:
    assert resembled(name) is None
