"""What a person would not see of a mail is taken out or warned about, and an ordinary mail is left in peace."""

import pytest

from deskhand.mail import mime
from deskhand.mail.mime import Parsed
from tests.hostile.tricks import HIDING, NEWSLETTER, SHOWING
from tests.requirements import requirement


def read(source: str) -> Parsed:
    return mime.parse(b"Content-Type: text/html; charset=utf-8\n\n" + source.encode())


@requirement("hostile:hidden")
@pytest.mark.parametrize("source", HIDING)
def test_text_that_chromium_hides_is_taken_out_or_warned_about(source: str) -> None:
    mail = read(source)

    assert "SECRET" not in mail.body or mail.warnings


@requirement("hostile:hidden")
@pytest.mark.parametrize("source", SHOWING)
def test_text_that_a_person_sees_is_shown_without_a_warning(source: str) -> None:
    mail = read(source)

    assert "SECRET" in mail.body
    assert mail.warnings == ()


@requirement("hostile:hidden")
def test_an_ordinary_newsletter_has_one_warning_which_is_about_its_preheader() -> None:
    mail = read(NEWSLETTER)

    assert mail.body.splitlines()[0] == "Hello Ann"
    assert "Read it <https://news.example/read?id=1>" in mail.body
    assert mail.warnings == ("hidden text removed: 1 part, 27 characters",)


@requirement("hostile:hidden")
def test_what_is_hidden_on_other_screens_alone_is_told_with_the_screen() -> None:
    mail = read(
        "<style>@media (max-width:600px){.x{display:none}}</style><p class=x>Only on a desktop</p>"
    )

    assert mail.body == "Only on a desktop"
    assert mail.warnings == ("on a narrow screen 14 characters more are hidden",)


@requirement("hostile:hidden")
def test_what_was_not_understood_is_named_once() -> None:
    mail = read(
        "<p style='filter:blur(9px)'>a</p>" * 50 + "<p style='clip-path:url(#a)'>b</p>"
    )

    assert mail.warnings == (
        "a person may not see all of this text, its style was not understood: filter: blur(9px); clip-path: url(#a)",
    )
