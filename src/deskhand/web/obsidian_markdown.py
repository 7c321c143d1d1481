"""What Obsidian adds to Markdown: wikilinks, embeds, highlights, tags, footnotes, checkboxes and callouts.

Each rule looks at its own characters once, so that a note costs time in proportion to its length.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from deskhand.notes.links import TAG

CALLOUTS = {
    "tip": "good",
    "hint": "good",
    "important": "good",
    "success": "good",
    "check": "good",
    "done": "good",
    "question": "warn",
    "help": "warn",
    "faq": "warn",
    "warning": "warn",
    "caution": "warn",
    "attention": "warn",
    "failure": "bad",
    "fail": "bad",
    "missing": "bad",
    "danger": "bad",
    "error": "bad",
    "bug": "bad",
}
"""Kinds of callouts by how they look; the others look like a note."""
LOOKS = frozenset({"callout", "note", *CALLOUTS.values()})

_WIKILINK = re.compile(
    r"!?\[\[(?P<target>[^\[\]|#^\n]*)(?P<place>[#^][^\[\]|\n]*)?(?:\|(?P<alias>[^\[\]\n]*))?\]\]"
)
_SCHEME = re.compile(r"(?<!\w)https?\Z", re.IGNORECASE)
_ADDRESS = re.compile(r"://[^\s<>\[\]\"`|\\]{1,2000}")
_CLOSING = ".,;:!?*'_~=)}"
"""Signs that belong to the sentence around an address, not to it."""
_HIGHLIGHT = re.compile(r"==(?=[^\s=])([^=\n]*[^\s=])==(?!=)")
_REFERENCE = re.compile(r"\[\^(?P<name>[^\[\]\s]+)\]")
_ASIDE = re.compile(r"\^\[(?P<text>[^\[\]\n]+)\]")
_FOOTNOTE = re.compile(r"\[\^(?P<name>[^\[\]\s]+)\]:[ \t]*")
_CALLOUT = re.compile(
    r"\[!(?P<kind>[^\[\]\n]{1,40})\](?P<fold>[+-]?)[ \t]*(?P<title>[^\n]*)(?:\n|\Z)"
)
_CHECKBOX = re.compile(r"\[(?P<mark>[^\[\]\n])\][ \t]+(?=\S)")


TICKS = {" ": "x", "x": " ", "X": " "}
"""What a tick makes of each mark; other marks have meanings that only their writer knows."""
_LONGEST_NAME = 100
_HIDING = "%%"
"""Stands before and behind a comment of the writer's."""
_BLOCK_ID = re.compile(r"(?:^|[ \t\n])\^[A-Za-z0-9-]{1,100}[ \t]*\Z")


def add_to(parser: MarkdownIt) -> None:
    parser.block.ruler.before("reference", "footnote", _footnote, {"alt": ["paragraph"]})
    parser.block.ruler.before(
        "fence", "comment", _comment_block, {"alt": ["paragraph", "list", "blockquote"]}
    )
    parser.inline.ruler.before("link", "comment", _comment)
    parser.core.ruler.after("block", "callouts", _shape_blocks)
    parser.core.ruler.after("callouts", "ids", _hide_ids)
    for name, rule in (
        ("wikilink", _wikilink),
        ("reference", _reference),
        ("aside", _aside),
    ):
        parser.inline.ruler.before("link", name, rule)
    parser.inline.ruler.before("emphasis", "highlight", _highlight)
    parser.inline.ruler.before("emphasis", "tag", _tag)
    parser.inline.ruler.push("address", _address)
    for name, render in (("note_number", _render_number), ("checkbox", _render_checkbox)):
        parser.add_render_rule(name, render)


def footnotes(parser: MarkdownIt, env: dict[str, Any]) -> Iterator[list[Token]]:
    """The footnotes in the order in which the text refers to them; then those that it does not refer to."""
    texts = env.get("footnotes", {})
    for name in texts:
        _number(env, name)
    # A list that grows while it is gone through.
    for what in env.get("referred", ()):
        yield parser.parseInline(texts.get(what, what), env)


def _comment_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Lines from one that begins with `%%` to the one that ends so; a blank line may stand between them."""
    start = state.bMarks[first] + state.tShift[first]
    if not state.src.startswith(_HIDING, start) or state.is_code_block(first):
        return False
    end = state.src.find(_HIDING, start + 2)
    if end < 0 or end >= state.eMarks[last - 1]:
        return False
    line = first
    while state.eMarks[line] < end:
        line += 1
    if state.src[end + 2 : state.eMarks[line]].strip():
        return False  # there is more in its last line
    if not silent:
        state.line = line + 1
    return True


def _comment(state: StateInline, silent: bool) -> bool:
    del silent
    if not state.src.startswith(_HIDING, state.pos):
        return False
    end = state.src.find(_HIDING, state.pos + 2, state.posMax)
    if end < 0:
        return False
    state.pos = end + 2
    return True


def _wikilink(state: StateInline, silent: bool) -> bool:
    found = _WIKILINK.match(state.src, state.pos, state.posMax)
    if found is None or not (found["target"].strip() or found["place"]):
        return False
    if not silent and found[0].startswith("!"):
        embed = state.push("embed", "", 0)
        embed.content = found["target"].strip()
        embed.meta = {"place": found["place"] or "", "alias": found["alias"] or ""}
    elif not silent:
        link = state.push("link_open", "a", 1)
        link.attrs = {"href": f"wiki:{quote(found['target'].strip())}"}
        state.push("text", "", 0).content = (
            found["alias"] or f"{found['target']}{found['place'] or ''}"
        )
        state.push("link_close", "a", -1)
    state.pos = found.end()
    return True


def _highlight(state: StateInline, silent: bool) -> bool:
    found = _HIGHLIGHT.match(state.src, state.pos, state.posMax)
    if found is None or state.src.endswith("=", 0, state.pos):
        return False
    if not silent:
        end = state.posMax
        state.push("mark_open", "mark", 1)
        state.pos = found.start(1)
        state.posMax = found.end(1)
        state.md.inline.tokenize(state)
        state.posMax = end
        state.push("mark_close", "mark", -1)
    state.pos = found.end()
    return True


def _tag(state: StateInline, silent: bool) -> bool:
    found = TAG.match(state.src, state.pos, state.posMax)
    if found is None or found[1].strip("/").isdigit() or state.linkLevel:
        return False
    if not silent:
        link = state.push("link_open", "a", 1)
        link.attrs = {"href": f"tag:{quote(found[0])}", "class": "tag"}
        state.push("text", "", 0).content = found[0]
        state.push("link_close", "a", -1)
    state.pos = found.end()
    return True


def _address(state: StateInline, silent: bool) -> bool:
    """An address of the web that stands in the text as it is."""
    if silent or state.linkLevel or state.src[state.pos] != ":":
        return False
    scheme = _SCHEME.search(state.pending[-6:])
    found = scheme and _ADDRESS.match(state.src, state.pos, state.posMax)
    rest = _trim(found[0]) if found else "://"
    if scheme is None or rest == "://":
        return False
    state.pending = state.pending[: -len(scheme[0])]
    link = state.push("link_open", "a", 1)
    link.attrs = {"href": state.md.normalizeLink(f"{scheme[0]}{rest}")}
    state.push("text", "", 0).content = f"{scheme[0]}{rest}"
    state.push("link_close", "a", -1)
    state.pos += len(rest)
    return True


def _trim(address: str) -> str:
    """Without what closes the sentence; a bracket that the address itself opened stays."""
    while address[-1] in _CLOSING and not (
        address[-1] == ")" and address.count("(") >= address.count(")")
    ):
        address = address[:-1]
    return address


def _footnote(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """`[^name]: text`, with the lines below it up to a blank one or the next footnote."""
    start = state.bMarks[first] + state.tShift[first]
    found = _FOOTNOTE.match(state.src, start, state.eMarks[first])
    named = state.env.setdefault("footnotes", {})
    if found is None or state.is_code_block(first) or _key(found["name"]) in named:
        return False
    if silent:
        return True
    line = first + 1
    while line < last and not state.isEmpty(line) and state.sCount[line] >= state.blkIndent:
        if _FOOTNOTE.match(state.src, state.bMarks[line] + state.tShift[line]):
            break
        line += 1
    text = state.getLines(first, line, state.blkIndent, False)
    named[_key(found["name"])] = text.strip()[len(found[0].rstrip()) :].strip()
    state.line = line
    return True


def _reference(state: StateInline, silent: bool) -> bool:
    found = _REFERENCE.match(state.src, state.pos, state.posMax)
    if found is None or _key(found["name"]) not in state.env.get("footnotes", {}):
        return False
    return _refer(state, found, _key(found["name"]), silent=silent)


def _aside(state: StateInline, silent: bool) -> bool:
    """`^[a footnote where it is meant]`."""
    found = _ASIDE.match(state.src, state.pos, state.posMax)
    return found is not None and _refer(state, found, found["text"], silent=silent)


def _refer(state: StateInline, found: re.Match[str], what: str, *, silent: bool) -> bool:
    if not silent:
        state.push("note_number", "", 0).content = str(_number(state.env, what))
    state.pos = found.end()
    return True


def _number(env: Any, what: str) -> int:
    """The number of a footnote, which it has from now on."""
    numbers: dict[str, int] = env.setdefault("numbers", {})
    if what not in numbers:
        numbers[what] = len(numbers) + 1
        env.setdefault("referred", []).append(what)
    return numbers[what]


def _key(name: str) -> str:
    """By which a footnote is known; no text within `^[…]` has a line end."""
    return f"{name.casefold()}\n"


def _render_number(
    _self: object, tokens: Sequence[Token], at: int, _options: object, env: Any
) -> str:
    number = tokens[at].content
    return f'<sup><a href="#{footnote_id(env, number)}" aria-label="Footnote {number}">{number}</a></sup>'


def footnote_id(env: Mapping[str, Any], number: object) -> str:
    """Where a footnote stands on the page, on which notes may stand within others."""
    return f"footnote-{env.get('part', 0)}-{number}"


def _shape_blocks(state: Any) -> None:
    """Find the callouts and the checkboxes, before the texts in them are parsed."""
    quotes: list[Token] = []
    tokens: list[Token] = []
    for at, token in enumerate(state.tokens):
        before = state.tokens[at - 2].type if at > 1 else ""
        found = None
        if token.type == "blockquote_open":
            quotes.append(token)
        elif token.type == "blockquote_close":
            token.tag = quotes.pop().tag
        elif token.type == "inline" and before == "blockquote_open":
            found = _CALLOUT.match(token.content)
        elif token.type == "inline" and before == "list_item_open":
            found = _CHECKBOX.match(token.content)
        if found and before == "blockquote_open":
            # Before the paragraph that has begun already.
            tokens[-1:-1] = _callout(quotes[-1], found)
        elif found:
            tokens.append(_checkbox(token, found))
        if found:
            token.content = token.content[found.end() :]
            if not token.content:
                tokens[-1].hidden = state.tokens[at + 1].hidden = True
        tokens.append(token)
    state.tokens = tokens


def _checkbox(text: Token, found: re.Match[str]) -> Token:
    """The box before the text of an item, with the line of the source on which it stands."""
    line = text.map[0] if text.map else None
    return Token("checkbox", "", 0, content=found["mark"], meta={"line": line})


def _hide_ids(state: Any) -> None:
    """The id of a block is for links to it."""
    for at, token in enumerate(state.tokens):
        last = max(token.content.rfind("\n"), 0)
        found = _BLOCK_ID.search(token.content, last) if token.type == "inline" else None
        if found:
            token.content = token.content[: found.start()]
        if found and not token.content:
            state.tokens[at - 1].hidden = state.tokens[at + 1].hidden = True


def _callout(quote: Token, found: re.Match[str]) -> list[Token]:
    """Make a callout of a quote; the tokens of its title."""
    kind = found["kind"].strip().casefold()
    quote.tag = "details" if found["fold"] else "div"
    quote.attrSet("class", f"callout {CALLOUTS.get(kind, 'note')}")
    if found["fold"] == "+":
        quote.attrSet("open", "")
    tag = "summary" if found["fold"] else "p"
    return [
        Token("title_open", tag, 1),
        Token("strong_open", "strong", 1),
        Token(
            "inline",
            "",
            0,
            content=found["title"].strip() or kind.capitalize(),
            children=[],
        ),
        Token("strong_close", "strong", -1),
        Token("title_close", tag, -1),
    ]


def _render_tick(token: Token, name: str) -> str:
    """A box that the person can tick: a button of the form that the page has."""
    line = token.meta["line"]
    ticked = "false" if token.content == " " else "true"
    return (
        f'<button form="{token.meta["form"]}" name="line" value="{line}" id="box-{line}" class="box"'
        f' role="checkbox" aria-checked="{ticked}" aria-label="{escapeHtml(name)}"></button> '
    )


def _name_item(text: Token) -> str:
    """What an item says, as far as it is needed to know it again."""
    words = ""
    for child in text.children or ():
        if child.type == "softbreak" or len(words) > _LONGEST_NAME:
            break
        if child.type in ("text", "code_inline"):
            words += child.content
    return words.strip()[:_LONGEST_NAME] or "to do"


def _render_checkbox(
    _self: object, tokens: Sequence[Token], at: int, _options: object, _env: object
) -> str:
    mark = tokens[at].content
    if tokens[at].meta.get("form") and mark in TICKS:
        return _render_tick(tokens[at], _name_item(tokens[at + 1]))
    checked = "" if mark == " " else " checked"
    name = {" ": "to do", "x": "done", "X": "done"}.get(mark, f"marked {mark}")
    return f'<input type="checkbox" disabled aria-label="{escapeHtml(name)}"{checked}> '
