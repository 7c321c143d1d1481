"""Markdown as the HTML of a mail: words, lists, tables and links; no HTML of its own, and nothing that is fetched."""

from functools import cache
from typing import TYPE_CHECKING

from deskhand.errors import FieldProblem, InvalidInput

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

LONGEST = 50_000
"""Characters. Some texts cost the parser the square of their length."""
_LINKS = ("http://", "https://", "mailto:")


def render_html(text: str) -> str:
    """The whole page; the same one for the same text."""
    if len(text) > LONGEST:
        problem = FieldProblem(
            "html",
            "is for shorter texts",
            None,
            f"at most {LONGEST:,} characters, or plain text",
        )
        raise InvalidInput(
            f"A text of {len(text):,} characters is not sent as HTML.", fields=[problem]
        )
    body = _parser().render(text)
    return f'<!doctype html>\n<html><head><meta charset="utf-8"></head><body>\n{body}</body></html>\n'


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(
        ["table", "strikethrough"]
    )
    made.disable(["image", "html_block", "html_inline"])
    made.validateLink = _is_link  # type: ignore[assignment, method-assign]
    return made


def _is_link(address: str) -> bool:
    return address.strip().lower().startswith(_LINKS)
