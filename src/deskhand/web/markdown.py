"""A note's Markdown as HTML that can do nothing: no HTML of the note's own, no picture from elsewhere, links to notes
or out. Pictures and notes of the vault that it shows are shown.

Two pieces that know nothing of each other have to fail before anything of a note runs: markdown-it writes out no
HTML that it was given, and nh3 lets only these tags through.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import groupby
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.token import Token

from deskhand.errors import DeskError
from deskhand.notes.editing import find_part
from deskhand.notes.links import ending
from deskhand.notes.vaults import Vaults
from deskhand.web import obsidian_markdown

LONGEST = 100_000
"""Characters; what is longer is shown as plain text. Some texts cost the parser the square of their length."""
PICTURES = {
    "avif": "image/avif",
    "bmp": "image/bmp",
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "svg": "image/svg+xml",
    "webp": "image/webp",
}
_MOST_SHOWN = 30
"""So many notes are shown within one; any further ones are links."""
_MOST_LOCATED = 300
_BLOCKS = {
    "blockquote",
    "details",
    "div",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "li",
    "ol",
    "p",
    "pre",
    "summary",
    "ul",
}
_TABLES = {"table", "tbody", "td", "th", "thead", "tr"}
_WORDS = {"a", "br", "code", "del", "em", "img", "mark", "s", "strong", "sup"}
_FIELDS = {"button", "input"}
_TAGS = _BLOCKS | _TABLES | _WORDS | _FIELDS
_ATTRIBUTES = {
    "a": {"aria-label", "href", "title"},
    "button": {"aria-checked", "aria-label", "id", "value"},
    "details": {"open"},
    "img": {"alt", "height", "loading", "src", "width"},
    "input": {"aria-label", "checked", "disabled"},
    "li": {"id"},
    "ol": {"start"},
}
_CLASSES = {
    "a": {"missing", "tag"},
    "button": {"box"},
    "details": set(obsidian_markdown.LOOKS),
    "div": {"embed", *obsidian_markdown.LOOKS},
    "ol": {"footnotes"},
    "td": {"right", "center"},
    "th": {"right", "center"},
}
_GAPS = {"text", "softbreak", "hardbreak"}
"""Kinds of tokens that may say nothing."""
_OUTSIDE = frozenset({"http", "https", "mailto"})
_SIZE = re.compile(r"(?:^|\|)\s*(\d{1,4})(?:x(\d{1,4}))?\s*\Z")


TICK = "tick"
"""The form of the page to which the boxes of a note belong."""


def html(text: str, path: str, vaults: Vaults | None = None, *, ticks: bool = False) -> str:
    """The note at `path` as safe HTML; its headings begin at the second level, below the page's own.

    With `ticks` its own checkboxes are buttons of the page's form.
    """
    made = _NotePage(vaults, ticks=ticks).render(text, path)
    return nh3.clean(
        made,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        tag_attribute_values={
            "input": {"type": {"checkbox"}},
            "button": {"form": {TICK}, "name": {"line"}, "role": {"checkbox"}},
        },
        url_schemes=set(_OUTSIDE),
    )


def find_box(text: str, line: int) -> str | None:
    """The mark of the checkbox that is on this line of a note's body; None where there is none to tick."""
    if len(text) > LONGEST:
        return None
    tokens = _parser().parse(text, {})
    found = [
        token.content
        for token in tokens
        if token.type == "checkbox" and token.meta["line"] == line
    ]
    if found and found[0] in obsidian_markdown.TICKS:
        return found[0]
    return None


class _NotePage:
    """One note, and the notes that are shown within it."""

    def __init__(self, vaults: Vaults | None, *, ticks: bool = False) -> None:
        self._vaults = vaults
        self._ticks = ticks
        self._left = LONGEST
        self._parts = 0

    def render(self, text: str, path: str, *, within: bool = False) -> str:
        env: dict[str, Any] = {"part": self._parts}
        self._parts += 1
        self._left -= len(text)
        tokens = _parser().parse(text, env)
        notes = [*obsidian_markdown.footnotes(_parser(), env)]
        every = [each for block in (tokens, *notes) for each in _all(block)]
        for token in every:
            _direct(token, path)
            if token.type == "checkbox" and self._ticks and not within:
                token.meta["form"] = TICK
        self._mark_missing(every, path)
        self._fill([token for token in every if token.type == "embed"], path, within=within)
        shown, *listed = [
            str(_parser().renderer.render(each, _parser().options, env))
            for each in (_part(tokens), *notes)
        ]
        return shown + _listed(listed, env)

    def _mark_missing(self, tokens: Sequence[Token], path: str) -> None:
        """A link to a note that is not there looks it."""
        links = [token for token in tokens if "target" in token.meta][:_MOST_LOCATED]
        if not links or self._vaults is None:
            return
        with suppress(DeskError):  # the note is shown all the same
            found = self._vaults.locate([each.meta["target"] for each in links], path)
            for link in links:
                if link.meta["target"] not in found:
                    link.attrSet("class", "missing")
                    link.attrSet("title", "not in the vault")

    def _fill(self, embeds: Sequence[Token], path: str, *, within: bool) -> None:
        """Give each embed what is shown in its place."""
        found: Mapping[str, str] = {}
        if self._vaults and embeds:
            found = self._vaults.locate(
                [token.content for token in embeds[:_MOST_LOCATED]], path
            )
        for token in embeds:
            there = found.get(token.content)
            token.meta["html"] = _link(token, there, path)
            if (
                there
                and ending(there) == "md"
                and token.meta.get("may_show")
                and not within
            ):
                self._show(token, there)

    def _show(self, token: Token, path: str) -> None:
        """Show a note where the link to it stands in a paragraph; what it shows itself are links."""
        try:
            text = self._vaults and find_part(self._vaults.text(path), token.meta["place"])
        except DeskError:
            return  # the place is not there, or it cannot be read: following the link says so
        if not text or len(text) > self._left or self._parts > _MOST_SHOWN:
            return
        token.meta["shown"] = True
        inside = self.render(text, path, within=True)
        token.meta["html"] = (
            f'<div class="embed"><p>{token.meta["html"]}</p>\n{inside}</div>\n'
        )


@cache
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    obsidian_markdown.add_to(made)
    made.add_render_rule("image", _render_picture_elsewhere)
    made.add_render_rule("embed", _render_embed)
    return made


def _all(tokens: Sequence[Token]) -> Iterator[Token]:
    for at, token in enumerate(tokens):
        yield token
        for child in token.children or ():
            yield child
            if child.type == "embed" and child.level == 0:
                child.meta["may_show"] = tokens[at - 1].type == "paragraph_open"


def _part(tokens: Sequence[Token]) -> list[Token]:
    """The same; a paragraph in which a note is shown ends before it and goes on after it."""
    made = [*tokens]
    # From the end, so that the places of those before stay what they are.
    for at in range(len(tokens) - 1, 0, -1):
        if any(map(_is_shown, tokens[at].children or ())):
            made[at - 1 : at + 2] = _part_paragraph(*tokens[at - 1 : at + 2])
    return made


def _part_paragraph(begin: Token, text: Token, end: Token) -> Iterator[Token]:
    for is_note, children in groupby(text.children or (), _is_shown):
        words = [*children]
        if is_note:
            yield from words
        elif any(word.content.strip() or word.type not in _GAPS for word in words):
            yield from (begin, text.copy(children=words), end)


def _is_shown(token: Token) -> bool:
    """A note that is shown in its place."""
    return "shown" in token.meta


def _direct(token: Token, path: str) -> None:
    """Say of a link where it leads and of a picture whether it is the vault's; headings go down by one."""
    match token.type:
        case "heading_open" | "heading_close":
            token.tag = f"h{min(int(token.tag[1]) + 1, 6)}"
        case "link_open":
            token.attrSet("href", _href(str(token.attrGet("href") or ""), path))
            if target := _named_by(str(token.attrGet("href"))):
                token.meta = {"target": target}
        case "th_open" | "td_open":
            side = str(token.attrs.pop("style", "")).removeprefix("text-align:")
            if side:
                token.attrSet("class", side)
        case "image":
            address = urlsplit(str(token.attrGet("src") or ""))
            if not address.scheme and not address.netloc:
                token.type = "embed"
                token.meta = {"place": "", "alias": token.content}
                token.content = unquote(address.path)


def _href(written: str, path: str) -> str:
    if written.startswith("wiki:"):
        return f"/notes/link?to={written.removeprefix('wiki:') or quote(path)}&from={quote(path)}"
    if written.startswith("tag:"):
        return f"/notes?q={written.removeprefix('tag:')}"
    if written.startswith("#") or urlsplit(written).scheme in _OUTSIDE:
        return written
    target = unquote(written.partition("#")[0])
    return f"/notes/link?to={quote(target)}&from={quote(path)}"


def _named_by(address: str) -> str:
    """The name by which a link looks for its note; empty where it leads elsewhere, or to its own note."""
    if not address.startswith("/notes/link?to="):
        return ""
    given = dict(parse_qsl(urlsplit(address).query))
    return "" if given.get("to") == given.get("from") else given.get("to", "")


def note_address(path: str) -> str:
    return f"/notes/open?{urlencode({'path': path})}"


def file_address(path: str) -> str:
    return f"/notes/file?{urlencode({'path': path})}"


def _link(token: Token, found: str | None, holder: str) -> str:
    """The picture, or the link to what is no picture."""
    named = _SIZE.sub("", token.meta["alias"]) or f"{token.content}{token.meta['place']}"
    name = escapeHtml(named)
    if found is None:
        address = escapeHtml(_href(f"wiki:{quote(token.content)}", holder))
        return f'<a href="{address}">{name} (not in the vault)</a>'
    if ending(found) == "md":
        return f'<a href="{escapeHtml(note_address(found))}">{name}</a>'
    address = escapeHtml(file_address(found))
    if ending(found) not in PICTURES:
        return f'<a href="{address}">{name}</a>'
    size = _SIZE.search(token.meta["alias"])
    given = zip(("width", "height"), size.groups() if size else (), strict=False)
    measures = "".join(f' {side}="{number}"' for side, number in given if number)
    return f'<img src="{address}" alt="{name}" loading="lazy"{measures}>'


def _render_embed(
    _self: object, tokens: Sequence[Token], at: int, _options: object, _env: object
) -> str:
    return str(tokens[at].meta["html"])


def _render_picture_elsewhere(
    _self: object, tokens: Sequence[Token], at: int, _options: object, _env: object
) -> str:
    """A picture from elsewhere is named, never loaded: whoever wrote the note would see that it was opened."""
    name = escapeHtml(tokens[at].content or "without a name")
    source = str(tokens[at].attrGet("src") or "")
    address = urlsplit(source)
    if address.scheme in ("http", "https"):
        return f'<a href="{escapeHtml(source)}">picture: {name} ({escapeHtml(address.netloc)})</a>'
    return f"<em>picture: {name} ({escapeHtml(source)})</em>"


def _listed(footnotes: Sequence[str], env: Mapping[str, Any]) -> str:
    if not footnotes:
        return ""
    items = [
        f'<li id="{obsidian_markdown.footnote_id(env, number)}">{text}</li>\n'
        for number, text in enumerate(footnotes, 1)
    ]
    return f'<ol class="footnotes">\n{"".join(items)}</ol>\n'
