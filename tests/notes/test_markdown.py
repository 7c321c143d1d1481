"""Strangers' words in the notes that the desk writes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from deskhand.gate.actions import SendEmail
from deskhand.notes.markdown import escape, escape_sentence
from deskhand.orchestrator import status
from tests.orchestrator.office import Office
from tests.requirements import requirement

TRICKS = (
    "%% `=date(now)` ![[secret]] [a](https://evil.example) <% tp.x %> <img src=x> "
    "$x$ #tag ==a== {{x}} www.evil.example"
)


@requirement("notes:escaped")
@given(
    st.text(
        alphabet=st.sampled_from("ab `*_[]()<>|%$~=#!{}^&\\\n\t:/.-+1\u200b"), max_size=40
    )
)
def test_whatever_is_escaped_is_shown_as_text_and_nothing_else(text: str) -> None:
    (line,) = (
        MarkdownIt("commonmark")
        .enable(["strikethrough", "table"])
        .parseInline(f"x{escape(text)}x")
    )
    kinds = {token.type for token in line.children or ()}

    assert kinds <= {"text", "text_special"}
    assert "%%" not in escape(text)


@requirement("notes:escaped")
@pytest.mark.anyio
async def test_a_request_note_and_the_dashboard_hold_no_stranger_s_markdown(
    office: Office,
) -> None:
    address = "`=x`%%{{a}}|b*_c_@example.org"
    desk = office.desk()
    await desk.gate.propose(SendEmail(to=address, subject=TRICKS, body="Hi."), "email_mcp")
    page = status.page(await status.facts(desk), desk.now())
    desk.close()
    heading = re.search(
        r"^# Send to .*$", office.only("Pending_Approval").read_text(), re.MULTILINE
    )

    assert heading is not None
    for text in (heading[0], page):
        assert not re.search(r"(?<!\\)[%<{\[]", text)
        assert escape(address) in text
    assert escape(TRICKS) in page


@requirement("notes:escaped")
@given(
    st.text(
        alphabet=st.sampled_from("ab `*_[]()<>|%$~=#!{}^&\\\n\t:/.-+1\u200b"), max_size=40
    )
)
def test_commands_in_the_desk_s_own_sentences_stay_code_and_nothing_else_does(
    text: str,
) -> None:
    said = f"{text} run `deskhand approve a1` or {text}"
    (line,) = (
        MarkdownIt("commonmark")
        .enable(["strikethrough", "table"])
        .parseInline(f"x{escape_sentence(said)}x")
    )
    codes = [token.content for token in line.children or () if token.type == "code_inline"]

    assert {token.type for token in line.children or ()} <= {
        "text",
        "text_special",
        "code_inline",
    }
    assert "deskhand approve a1" in codes
    assert all(re.fullmatch(r"[\w -]+", code) for code in codes)
