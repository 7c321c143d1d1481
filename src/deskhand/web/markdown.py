"""A note's Markdown as HTML that can do nothing: no HTML of the note's own, no picture loaded, links to notes or out.

Two pieces that know nothing of each other have to fail before anything of a note runs: markdown-it writes out no
HTML that it was given, and nh3 lets only these tags through.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

LONGEST = 100_000
"""Characters; what is longer is shown as plain text. Some texts cost the parser the square of their length."""
_BLOCKS = {"blockquote", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "ul"}
_TABLES = {"table", "tbody", "td", "th", "thead", "tr"}
_WORDS = {"a", "br", "code", "del", "em", "s", "strong"}
_TAGS = _BLOCKS | _TABLES | _WORDS
_WIKILINK = re.compile(r"!?\[\[(?P<target>[^\[\]|#^\n]*)(?P<place>[#^][^\[\]|\n]*)?(?:\|(?P<alias>[^\[\]\n]*))?\]\]")
_OUTSIDE = frozenset({"http", "https", "mailto"})


def html(text: str, path: str) -> str:
    """The note at `path` as safe HTML; its headings begin at the second level, below the page's own."""
    tokens = _parser().parse(text, {})
    for token in _all(tokens):
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1]) + 1, 6)}"
        if token.type == "link_open":
            token.attrSet("href", _href(str(token.attrGet("href") or ""), path))
    made = _parser().renderer.render(tokens, _parser().options, {})
    return nh3.clean(made, tags=_TAGS, attributes={"a": {"href"}, "ol": {"start"}}, url_schemes=set(_OUTSIDE))


@cache
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    made.inline.ruler.before("link", "wikilink", _wikilink)
    made.add_render_rule("image", _image)
    return made


def _all(tokens: Sequence[Token]) -> list[Token]:
    return [each for token in tokens for each in (token, *(token.children or ()))]


def _wikilink(state: StateInline, silent: bool) -> bool:
    found = _WIKILINK.match(state.src, state.pos, state.posMax)
    if found is None or not (found["target"].strip() or found["place"]):
        return False
    if not silent:
        link = state.push("link_open", "a", 1)
        link.attrs = {"href": f"wiki:{quote(found['target'].strip())}"}
        state.push("text", "", 0).content = found["alias"] or f"{found['target']}{found['place'] or ''}"
        state.push("link_close", "a", -1)
    state.pos = found.end()
    return True


def _href(written: str, path: str) -> str:
    if written.startswith("wiki:"):
        return f"/notes/link?to={written.removeprefix('wiki:')}&from={quote(path)}"
    if written.startswith("#") or urlsplit(written).scheme in _OUTSIDE:
        return written
    target = unquote(written.partition("#")[0])
    return f"/notes/link?to={quote(target)}&from={quote(path)}"


def _image(renderer: RendererHTML, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    """A picture is named, never loaded: whoever wrote the note would see that it was opened."""
    del renderer, options, env
    name = escapeHtml(tokens[at].content or "without a name")
    source = str(tokens[at].attrGet("src") or "")
    address = urlsplit(source)
    if address.scheme in ("http", "https"):
        return f'<a href="{escapeHtml(source)}">picture: {name} ({escapeHtml(address.netloc)})</a>'
    return f"<em>picture: {name} ({escapeHtml(source)})</em>"
