"""The text that a person would see of an HTML mail, and how much of it was hidden. Never raises.

A tokenizer and a stack of our own: every converter tried shows hidden text to the reader, and parsers that build
the whole tree take minutes on a few hundred thousand open tags.
"""

import html
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TOKEN = re.compile(
    r"<!--.*?(?:--!?>|\Z)|<[!?][^>]*>?|<(/?)([a-zA-Z][^\s/>]*)((?:[^>\"']+|\"[^\"]*\"|'[^']*')*)>?", re.DOTALL
)
_ATTRIBUTE = re.compile(r"([^\s=\"'>/]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")
_HUGE_REFERENCE = re.compile(r"&#(?:[0-9]{9,}|[xX][0-9a-fA-F]{9,});?")
_STYLE_SHEET = re.compile(r"<style[^>]*>(.*?)(?:</style|\Z)", re.IGNORECASE | re.DOTALL)
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|<!--|-->", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-9a-fA-F]{1,6})\s?")
_OTHER_SCREENS = re.compile(r"max-|print|speech|prefers|orientation")
_ANCESTORS = re.compile(r"^(?:(?:html|body|center|div|table|tbody|tr|td|p|span|\*)[\s>]+)+")
_SIMPLE = re.compile(r"[a-z][a-z0-9]*(?:\.[\w-]+)?|[.#][\w-]+")
_SHOWN_HOST = re.compile(r"(?:https?://)?((?:[\w-]+\.)+[a-z]{2,24})(?:[/:?#]\S*)?", re.IGNORECASE)
_VOID = _names("area base br col embed hr img input link meta param source track wbr")
_SWALLOWED = _names("script style title template noscript textarea iframe object svg math select head")
_RAW = _names("script style title textarea iframe noscript")
_BLOCKS = _names(
    "address article aside blockquote body center dd div dl dt fieldset footer form h1 h2 h3 h4 h5 h6 header hr "
    "html li main nav ol p pre section table tbody tfoot thead tr ul"
)
# An opening tag of the key closes an open one of the values, unless a container lies between them.
_CLOSES = {"li": ("li",), "td": ("td", "th"), "th": ("td", "th"), "tr": ("td", "th", "tr"), "dt": ("dt", "dd")}
_CLOSES["dd"] = _CLOSES["dt"]
LONGEST_SHEET = 300_000
LOOK_BACK = 20
"""How far down the stack of open elements is looked: more would make hostile depth slow."""
_FORMATTING = _names("a b big code em font i nobr s small strike strong tt u")
_CONTAINERS = frozenset(("ul", "ol", "table", "dl"))
_COLOURS = {"white": "ffffff", "black": "000000", "red": "ff0000", "blue": "0000ff", "transparent": ""}


@dataclass(frozen=True, slots=True)
class Visible:
    text: str
    hidden_parts: int
    hidden_characters: int
    misleading: tuple[tuple[str, str], ...]
    """Links whose text shows one host and which lead to another: (shown, real)."""


@dataclass(slots=True)
class _Element:
    tag: str
    hidden: bool
    colour: str
    background: str
    pre: bool
    href: str = ""
    starts: int = 0
    hides: bool = False
    """It hides its content itself; it does not merely stand in something hidden."""

    def inner(self, tag: str) -> "_Element":
        """An element in this one, as it looks before its own style."""
        return _Element(tag, self.hidden, self.colour, self.background, self.pre)


@dataclass(slots=True)
class _Reader:
    rules: Mapping[str, str]
    stack: list[_Element] = field(default_factory=lambda: [_Element("", False, "000000", "ffffff", False)])
    open: Counter[str] = field(default_factory=Counter)
    shown: list[str] = field(default_factory=list)
    misleading: list[tuple[str, str]] = field(default_factory=list)
    hidden_parts: int = 0
    hidden_characters: int = 0

    def text(self, source: str) -> None:
        if not source:
            return
        top = self.stack[-1]
        text = html.unescape(_HUGE_REFERENCE.sub("\ufffd", source))
        if top.hidden:
            if size := len("".join(text.split())):
                self.hidden_parts += 1
                self.hidden_characters += size
            return
        self.shown.append(text if top.pre else re.sub(r"[ \t\r\n\f]+", " ", text))

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._close_implied(tag)
        self._line(tag)
        if tag in _VOID:
            return
        element = self.stack[-1].inner(tag)
        element.href = attributes.get("href", "")
        element.starts = len(self.shown)
        element.hides = tag in _SWALLOWED or "hidden" in attributes
        element.pre = element.pre or tag == "pre"
        if self.rules or attributes:
            self._apply(element, self._style(tag, attributes), attributes)
        element.hidden = element.hidden or element.hides
        self.stack.append(element)
        self.open[tag] += 1

    def _apply(self, element: _Element, style: Mapping[str, str], attributes: Mapping[str, str]) -> None:
        element.colour = _colour(style.get("color", attributes.get("color", ""))) or element.colour
        element.background = _background(style, attributes) or element.background
        element.hides = element.hides or element.colour == element.background or _hides(style)
        element.pre = element.pre or style.get("white-space", "").startswith("pre")

    def end(self, tag: str) -> None:
        if self.open[tag] and tag in _FORMATTING:
            self._close_formatting(tag)
        elif self.open[tag]:
            self._close(tag)
        self._line(tag)

    def _close(self, tag: str) -> None:
        """The element and those in it; formatting that was left open goes on behind it, as in a browser."""
        left_open: list[_Element] = []
        while (element := self._pop()).tag != tag:
            if element.tag in _FORMATTING and len(left_open) < LOOK_BACK:
                left_open.append(element)
        for element in reversed(left_open):
            element.hidden = element.hides or self.stack[-1].hidden
            self.stack.append(element)
            self.open[element.tag] += 1

    def _close_formatting(self, tag: str) -> None:
        """Of formatting only the element itself ends: a block that was opened in it stays open."""
        for back in range(1, min(LOOK_BACK, len(self.stack)) + 1):
            if self.stack[-back].tag == tag:
                self._pop(-back)
                return

    def _pop(self, at: int = -1) -> _Element:
        element = self.stack.pop(at)
        self.open[element.tag] -= 1
        if element.tag == "a" and element.href and not element.hidden:
            self._check_link(element)
        return element

    def _close_implied(self, tag: str) -> None:
        if tag == "body" and self.open["head"]:
            self._close("head")
        if tag in _BLOCKS and self.open["p"]:
            self._close("p")
        wanted = _CLOSES.get(tag)
        if wanted is None or not any(self.open[each] for each in wanted):
            return
        for element in reversed(self.stack[-LOOK_BACK:]):
            if element.tag in _CONTAINERS:
                return
            if element.tag in wanted:
                self._close(element.tag)
                return

    def _line(self, tag: str) -> None:
        if self.stack[-1].hidden:
            return
        if tag in _BLOCKS or tag == "br":
            self.shown.append("\n")
        elif tag in ("td", "th"):
            self.shown.append(" ")

    def _style(self, tag: str, attributes: Mapping[str, str]) -> dict[str, str]:
        keys = [tag, f"#{attributes.get('id', '').lower()}"]
        names = [f".{name}" for name in attributes.get("class", "").lower().split()[:50]]
        keys += [*names, *(f"{tag}{name}" for name in names)]
        styles = [self.rules[key] for key in keys if key in self.rules]
        if "style" in attributes:
            styles.append(attributes["style"])
        return _declarations(";".join(styles))

    def _check_link(self, element: _Element) -> None:
        label = "".join(self.shown[element.starts :]).strip()
        real = _host(element.href)
        shown = _SHOWN_HOST.fullmatch(label[:500])
        if shown is None or not real:
            return
        claimed = shown[1].lower().removeprefix("www.")
        actual = real.removeprefix("www.")
        if claimed != actual and not actual.endswith(f".{claimed}"):
            self.misleading.append((claimed, actual))


def visible(source: str) -> Visible:
    reader = _Reader(_sheet_rules(source))
    lower = source.lower()
    if len(lower) != len(source):  # some capitals have two small letters, which would shift every place
        lower = source
    at = 0
    while found := _TOKEN.search(source, at):
        reader.text(source[at : found.start()])
        at = found.end()
        tag = (found[2] or "").lower()
        if found[1]:
            reader.end(tag)
        elif tag in _RAW:  # the content of scripts and styles is left out
            end = lower.find(f"</{tag}", at)
            at = len(source) if end < 0 else end
        elif tag:
            reader.start(tag, _attributes(found[3]))
    reader.text(source[at:])
    lines = (line.strip(" ") for line in re.sub(" {2,}", " ", "".join(reader.shown)).split("\n"))
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return Visible(text, reader.hidden_parts, reader.hidden_characters, tuple(dict.fromkeys(reader.misleading)))


def _attributes(source: str) -> dict[str, str]:
    made: dict[str, str] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(source[:20_000]):
        value = html.unescape(_HUGE_REFERENCE.sub("", double or single or bare))
        made.setdefault(name.lower(), value)
    return made


def _sheet_rules(source: str) -> dict[str, str]:
    """What the style sheets say, by plain tag, class and id."""
    rules: dict[str, str] = {}
    for sheet in _STYLE_SHEET.findall(source[:LONGEST_SHEET]):
        depth = 0
        media = ""
        for block in _plain(sheet).split("}"):
            *outer, selectors, declarations = ["", *block.split("{")]
            if depth == 0 and len(outer) == 2:
                media = outer[1]
            inside = depth + len(outer) - 1
            if inside == 0 or (inside == 1 and not _OTHER_SCREENS.search(media)):
                for selector in selectors.rpartition(";")[2].split(","):
                    if _SIMPLE.fullmatch(key := _ANCESTORS.sub("", selector.strip())):
                        rules[key] = f"{rules.get(key, '')};{declarations}"[:1000]
            depth = max(0, inside)
    return rules


def _plain(style: str) -> str:
    """Style without comments and escapes, in lower case."""
    if "\\" in style:
        style = _ESCAPE.sub(lambda found: chr(int(found[1], 16) % 0xD800), style)
    return _COMMENT.sub("", style).lower()


def _declarations(style: str) -> dict[str, str]:
    pairs = (each.partition(":") for each in _plain(style).replace("!important", "").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def _hides(style: Mapping[str, str]) -> bool:
    def any_at_most(limit: float, *names: str) -> bool:
        return any(_at_most(style.get(name), limit) for name in names)

    shape = f"{style.get('transform')} {style.get('clip')} {style.get('clip-path')}"
    return (
        style.get("display") == "none"
        or style.get("visibility") in ("hidden", "collapse")
        or style.get("mso-hide") == "all"
        or any_at_most(1, "font-size")
        or any_at_most(0.05, "opacity")
        or any_at_most(-200, "text-indent", "margin-left", "margin-top")
        or (style.get("overflow") == "hidden" and any_at_most(1, "height", "max-height", "width", "max-width"))
        or (style.get("position") in ("absolute", "fixed") and any_at_most(-200, "left", "top", "right", "bottom"))
        or re.search(r"scale\(0[,.0)]|rect\(0[^1-9]*\)|inset\((50|100)%", shape) is not None
    )


def _at_most(value: str | None, limit: float) -> bool:
    number = re.match(r"-?(?:\d{1,9}\.?\d{0,9}|\.\d{1,9})(?=(px|pt|em|rem|ex|vw|vh|%|\s|$))", value or "")
    if number is None:
        return False
    size = float(number[0])
    if number[1] in ("em", "rem", "ex", "%", "vw", "vh") and limit >= 0:
        return size < 0.1  # 1em is a letter, not a dot
    return size <= limit


def _colour(value: str) -> str:
    """Six hex digits, or nothing where it is not known."""
    value = value.strip().lower()
    if value in _COLOURS:
        return _COLOURS[value]
    if re.fullmatch(r"#[0-9a-f]{6}", value):
        return value[1:]
    if re.fullmatch(r"#[0-9a-f]{3}", value):
        return "".join(char * 2 for char in value[1:])
    if found := re.fullmatch(r"rgba?\((\d{1,3})[ ,]+(\d{1,3})[ ,]+(\d{1,3})(?:[ ,/]+([\d.]+))?\)", value):
        return "".join(f"{min(int(part), 255):02x}" for part in found.groups()[:3])
    return ""


def _background(style: Mapping[str, str], attributes: Mapping[str, str]) -> str:
    if "background-image" in style or "url(" in style.get("background", ""):
        return "a picture"
    named = style.get("background-color") or style.get("background", "").partition(" ")[0]
    return _colour(named or attributes.get("bgcolor", ""))


def _host(href: str) -> str:
    try:
        parts = urlsplit(href.strip())
        return (parts.hostname or "").lower() if parts.scheme in ("http", "https") else ""
    except ValueError:
        return ""
