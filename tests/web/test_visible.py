"""Text from strangers, as a person can read it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from deskhand import unseen
from deskhand.errors import as_sentence
from deskhand.web.linked import linked
from deskhand.web.render import HERE
from deskhand.web.visible import MOST_MARKS, coded, lines, visible
from tests.requirements import requirement


@requirement("page:hostile")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        (
            "report\u202efdp.exe",
            'report<mark class="unseen">right-to-left override</mark>fdp.exe',
        ),
        (
            "pay\u200b\u200b\u200bme",
            'pay<mark class="unseen">3 times zero-width space</mark>me',
        ),
        ("a\r\nb\rc", 'a\nb<mark class="unseen">carriage return</mark>c'),
        ("\U000e0041", '<mark class="unseen">tag latin capital letter a</mark>'),
        (
            "\ue000\ud800\x00",
            "private character U+E000|half a character U+D800|control character U+0000",
        ),
        ("top" + "\n" * 12 + "end", 'top\n<mark class="unseen">11 empty lines</mark>\nend'),
        ("top" + " " * 90 + "end", 'top<mark class="unseen">90 blanks</mark>end'),
        ("e" + "\u0301" * 30, 'e<mark class="unseen">30 stacked accents</mark>'),
        ("a\u200db", 'a<mark class="unseen">zero-width joiner</mark>b'),
        (
            "\u2764" + "\ufe0f" * 2,
            '\u2764<mark class="unseen">2 times variation selector-16</mark>',
        ),
    ],
)
def test_what_cannot_be_seen_is_named(text: str, shown: str) -> None:
    made = str(visible(text))

    assert all(part in made for part in shown.split("|"))
    assert made.encode()  # half a character would break the whole page


@requirement("page:hostile")
def test_of_very_many_that_cannot_be_seen_the_first_are_named_and_each_shows() -> None:
    made = str(visible("a\u200b" * 500_000))

    assert made.count("<mark") == MOST_MARKS
    assert made.count("\ufffd") == 500_000 - MOST_MARKS
    assert "\u200b" not in made


@requirement("page:hostile")
@pytest.mark.parametrize(
    "text", ["Grüße, Ōsaka!", "می‌خواهم", "\U0001f469‍\U0001f4bb ❤️", "one\n\ntwo\n", "क्‍ष"]
)
def test_honest_text_stays_as_it_is(text: str) -> None:
    assert str(visible(text)) == text
    assert unseen.count(text) == 0


@given(st.text(st.characters()))
def test_no_character_that_moves_text_about_is_ever_left(text: str) -> None:
    made = str(visible(text))

    assert not set(made) & set(
        "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\x00<"
    ) - {"<"}
    assert made.count("<") == made.count("<mark ") + made.count("</mark>")
    made.encode()


def test_a_line_of_the_text_that_looks_like_a_diff_is_still_a_line() -> None:
    difference = (
        "--- old\n+++ new\n@@ -1,3 +1,3 @@\n same\n--- sign\n+++ plus\n@@ -9 +9 @@\n end"
    )

    assert [(sign, str(text)) for sign, text in lines(difference)] == [
        (" ", "same"),
        ("-", "-- sign"),
        ("+", "++ plus"),
        ("@", ""),
        (" ", "end"),
    ]


@requirement("page:hostile")
@pytest.mark.parametrize(
    ("text", "address", "host"),
    [
        (
            "See (https://example.org/a?b=1&c).",
            "https://example.org/a?b=1&amp;c",
            "example.org",
        ),
        (
            "http://bank.example@evil.example/",
            "http://bank.example@evil.example/",
            "evil.example",
        ),
        (
            "https://xn--pple-43d.com",
            "https://xn--pple-43d.com",
            "xn--pple-43d.com, which reads as аpple.com</bdi>)",
        ),
        (
            "x https://a.example/https://b.example",
            "https://a.example/https://b.example",
            "a.example",
        ),
    ],
)
def test_an_address_of_the_web_is_a_link_beside_which_its_host_stands(
    text: str, address: str, host: str
) -> None:
    made = linked(text)

    link = f'<a href="{address}" target="_blank" rel="noreferrer noopener">{address}</a>'
    assert f'{link} <span class="soft small">(<bdi>{host}' in made
    assert made.count("<a ") == 1


@requirement("page:hostile")
@pytest.mark.parametrize(
    "text",
    [
        "javascript:alert(1)",
        "www.example.org example.org/a mailto:a@example.org ftp://example.org/a",
        "https://exam\u200bple.org",
        "https://a.example" + "/x" * 1000,
        "https://a.example\\@b.example/",
        'https://"onmouseover=alert(1)',
    ],
)
def test_what_is_no_plain_address_of_the_web_stays_text(text: str) -> None:
    assert linked(text) == escape(text)


@given(st.text(alphabet=st.sampled_from("htps:/.@<>\"'&a \u200b"), max_size=60))
def test_links_add_nothing_to_the_text_but_themselves(text: str) -> None:
    bare = re.sub(r' <span class="soft small">.*?</span>|<a [^>]*>|</a>', "", linked(text))

    assert bare == escape(text)


@requirement("page:health")
def test_what_stands_between_backticks_is_code_and_nothing_else_is() -> None:
    assert coded("run `a <b>`, then `c`") == (
        "run <code>a &lt;b&gt;</code>, then <code>c</code>"
    )
    assert coded("one ` <i>") == "one ` &lt;i&gt;"


@requirement("page:absent")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("there is no such note", "There is no such note."),
        ("Is it there?", "Is it there?"),
        ("rules.toml has errors", "rules.toml has errors."),
        ("", ""),
    ],
)
def test_what_went_wrong_is_told_in_sentences(text: str, shown: str) -> None:
    assert as_sentence(text) == shown


@requirement("page:hostile")
def test_no_marks_of_the_page_stand_in_an_attribute() -> None:
    """A mark is an element: in an attribute its quotes would end that."""
    marked = re.compile(r'="[^"<>]*\{\{[^}]*\|\s*(?:visible|linked)')
    templates = [*(HERE / "templates").glob("*.html")]

    assert templates
    assert [path.name for path in templates if marked.search(path.read_text())] == []
