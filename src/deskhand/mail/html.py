"""The text that a person would see of an HTML mail, where its links lead, and how much was hidden. Never raises.

A tokenizer and a stack of our own: every converter tried shows hidden text to the reader, and parsers that build
the whole tree take minutes on a few hundred thousand open tags. `looks` knows what a style does to text, `sheets` which
rules hold for an element.
"""

import html
import re
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

from deskhand import unseen
from deskhand.mail import looks, preheader, sheets, weblinks
from deskhand.mail.looks import Declaration, Look
from deskhand.mail.sheets import Cascade, Sheets, Verdict
from deskhand.mail.weblinks import Target


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MARKUP = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))|<[!?][^>]*>?|</[^a-zA-Z>][^>]*>?|</>|<(/?)([a-zA-Z][^\s/>]*+)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(
    r"[ \t\r\n\f/]*+(?:(>)|([^ \t\r\n\f/>][^ \t\r\n\f/>=]*+)(?:[ \t\r\n\f]*+=[ \t\r\n\f]*+"
    r"(?:\"([^\"]*+)(?:\"|(\Z))|'([^']*+)(?:'|(\Z))|([^ \t\r\n\f>\"'][^ \t\r\n\f>]*+)?))?)"
)
_SCRIPT = re.compile(r"<script[ \t\r\n\f/>]", re.IGNORECASE)
_HUGE_REFERENCE = re.compile(r"&#(?:[0-9]{9,}|[xX][0-9a-fA-F]{9,});?")
_BLANKS = re.compile(r"[ \t\r\n\f]+")
_EMPTY = re.compile(r"[ \xa0\n]{31,}")
_BLANK = r"[ \t\xa0\u2000-\u200a\u3000]"
_KEPT_BLANKS = re.compile(rf"(?<!{_BLANK}){_BLANK}{{20,}}+(?=\S)")
_FAR = "text far behind empty lines or blanks"
_VOID = _names(
    "area base br col embed hr img input link meta param source track wbr frame keygen bgsound basefont"
)
_UNCOUNTED = _names("script style title head")
_SWALLOWED = _UNCOUNTED | _names(
    "template noscript iframe object svg math select noembed noframes frameset audio video canvas datalist rp meter "
    "progress fencedframe"
)
_RAW = _names("script style title textarea iframe noscript noembed noframes xmp plaintext")
_IN_HEAD = _names(
    "head html meta link style script title base template noscript basefont bgsound"
)
# Of SVG and MathML these tags lead out.
_BREAKING_OUT = _names(
    "b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li menu nobr ol p pre "
    "ruby s small span strong strike sub sup table tt u ul var"
)
_HTML_AGAIN = ("foreignobject", "desc", "annotation-xml", "mtext", "mi", "mo", "mn", "ms")
"""In these parts of them it is HTML."""
_BLOCKS = _names(
    "address article aside blockquote body center dd details dialog div dl dt fieldset figure figcaption footer form "
    "h1 h2 h3 h4 h5 h6 header hr html li main nav ol p pre section summary table tbody tfoot thead tr ul"
)
# An opening tag of the key closes an open one of the values, unless a container lies between them.
_CLOSES = {
    "li": ("li",),
    "td": ("td", "th"),
    "th": ("td", "th"),
    "tr": ("td", "th", "tr"),
    "dt": ("dt", "dd"),
}
_CLOSES["dd"] = _CLOSES["dt"]
_TABLE_PARTS = _names("table caption tbody thead tfoot tr td th")
_WALLS = _names("table caption td th object marquee template button select")
"""No end tag inside closes what was opened outside."""
LOOK_BACK = 20
"""How far down the stack of open elements is looked: more would make hostile depth slow."""
_FORMATTING = _names("a b big code em font i nobr s small strike strong tt u")
_CONTAINERS = frozenset(("ul", "ol", "table", "dl"))
_SHOWN_HOST = re.compile(
    r"(https?:[/\\]*|www\.)?((?:[\w-]+\.)+[^\W\d_]{2,24})(?![\w@])", re.IGNORECASE
)
_SHOWN_ADDRESS = re.compile(r"[^\s@<>()]{1,64}@[^\s@<>()]{1,190}")
_FILES = _names(
    "pdf doc docx xls xlsx ppt pptx txt md csv zip html htm php js py json png jpg jpeg gif mp4 ics eml asp"
)
MOST_DOUBTS = 8
MOST_HIDDEN = 20_000
"""Hidden characters that are looked at; whoever hides more sends no preheader."""
MOST_ADDRESSES = 100_000
"""Characters of addresses of links that are put into the text."""
_LONGEST_ADDRESS = 300
_PARTS_OF_LABEL = 100
_LONGEST_JUMP = 2000
_DEEPEST_PAGE = 3
_ADDRESSES = _names(
    "href src action formaction background xlink:href data poster lowsrc dynsrc longdesc cite"
)
_LISTS_OF_ADDRESSES = _names("srcset imagesrcset ping")
_DROPPED = str.maketrans("", "", "\t\n\r")
_IN_STYLE = re.compile(
    r"(?<![^\x00-\x20\"'(,])(?:(?:https?|ftp|wss?):|[/\\]{2})[^\x00-\x20\"'()]++",
    re.IGNORECASE,
)
_JUMP = re.compile(r"[\s\d.]*[\s;,](?:\s*url\s*=)?\s*[\"']?([^\"']+)", re.IGNORECASE)
"""Seconds, then where a page with `<meta http-equiv=refresh>` goes on to."""


@dataclass(frozen=True, slots=True)
class Visible:
    text: str
    """With the address of each link behind its words."""
    size: int
    """Characters of the text without these addresses."""
    hidden_parts: int
    hidden_characters: int
    misleading: tuple[tuple[str, str], ...]
    """Links whose text shows one host and which lead to another: (shown, real)."""
    hosts: tuple[str, ...]
    """Where its links and forms lead, and from where its pictures would come."""
    forms: tuple[str, ...]
    """The hosts that would get what is typed into a form."""
    onward: tuple[str, ...]
    """The hosts that a browser would go on to by itself."""
    doubts: tuple[str, ...]
    """What a style does that was not understood, where it is about text."""
    elsewhere: tuple[tuple[str, int], ...]
    """On which other screens more is hidden: (how one says it, characters)."""
    has_ordinary_preheader: bool
    """Whether all that is hidden is what newsletters hide."""


class Markup(NamedTuple):
    tag: str
    """Empty for text."""
    closes: bool
    attributes: Mapping[str, str]
    text: str


@dataclass(slots=True)
class Element:
    tag: str
    attributes: Mapping[str, str]
    look: Look
    around: "Element | None"
    place: int
    starts: int = 0
    hidden: bool = False
    swallows: bool = False
    children: int = 0
    folded: bool = False
    """A `details` that is closed: of what is in it only the summary shows."""
    walls: dict[str, int] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)
    """How many of each tag are open up to the next wall, and up to the next table."""


@dataclass(slots=True)
class _Reader:
    cascade: Cascade
    base: Target | None
    stack: list[Element] = field(default_factory=list)
    open: Counter[str] = field(default_factory=Counter)
    shown: list[str] = field(default_factory=list)
    addresses: int = 0
    misleading: dict[tuple[str, str], None] = field(default_factory=dict)
    doubts: dict[str, None] = field(default_factory=dict)
    hidden_parts: int = 0
    hidden_characters: int = 0
    hidden_before: list[str] = field(default_factory=list)
    hidden_behind: list[str] = field(default_factory=list)
    """What is hidden before the first word that shows, and behind it."""
    has_shown: bool = False
    link_colour: str = ""
    """What `body` says of it in its old way."""

    def read(self, tokens: list[Markup]) -> None:
        self.stack = [Element("", {}, Look(), None, 0)]
        # These are there whether or not they are written, and never end; what is written may come late.
        for tag in ("html", "body"):
            given = [
                token.attributes
                for token in tokens
                if token.tag == tag and not token.closes
            ]
            said = ChainMap(*map(dict, given[:10]))
            self._start(tag, said)
            self.link_colour = said.get("link", "")
        for token in tokens:
            if not token.tag:
                self._text(token.text)
            elif token.tag in ("html", "body"):
                self._line(token.tag)
            elif token.closes:
                self._end(token.tag)
            else:
                self._start(token.tag, token.attributes)
        while len(self.stack) > 1:
            self._pop()

    def _text(self, source: str) -> None:
        if self.open["head"] and self.stack[-1].tag == "head" and source.strip():
            self._close("head")
        top = self.stack[-1]
        text = (
            html.unescape(_HUGE_REFERENCE.sub("\ufffd", source))
            if top.tag not in _RAW
            else source
        )
        if top.hidden or top.folded:
            size = len("".join(text.split()))
            if size and not (top.swallows and top.tag in _UNCOUNTED):
                self.hidden_parts += 1
                self.hidden_characters += size
                if self.hidden_characters <= MOST_HIDDEN:
                    (self.hidden_behind if self.has_shown else self.hidden_before).append(
                        text
                    )
            return
        if top.look.all_doubts and not text.isspace():
            self.doubts.update(dict.fromkeys(sorted(top.look.all_doubts)))
        if top.look.keeps_space and any(map(_is_far, _KEPT_BLANKS.findall(text))):
            self.doubts[_FAR] = None
        self.has_shown = self.has_shown or not unseen.strip(text)[0].isspace()
        self.shown.append(text if top.look.keeps_space else _BLANKS.sub(" ", text))

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._close_implied(tag)
        self._line(tag)
        around = self.stack[-1]
        place = around.children
        around.children += 1
        element = Element(tag, attributes, around.look, around, place, len(self.shown))
        element.look = self._look(element, around)
        is_painted = element.look.backgrounds != around.look.backgrounds
        if element.look is not around.look and (is_painted or not element.look.is_hidden):
            self.doubts.update(
                dict.fromkeys(
                    sorted(looks.covering(element.look.doubts - around.look.doubts))
                )
            )
        if tag == "area" and attributes.get("href") and not around.hidden:
            self._show_address(element, attributes.get("alt", ""))
        if tag == "template" and "shadowrootmode" in attributes:
            self.doubts["a template that takes the place of what is around it"] = None
        if tag in ("col", "colgroup") and not element.look.visible:
            self.doubts["a column that is not visible"] = None
        if tag in _VOID:
            return
        element.swallows = around.swallows or tag in _SWALLOWED
        is_folded = around.folded and not (tag == "summary" and place == 0)
        element.hidden = around.hidden
        if element.swallows or is_folded:
            element.hidden = True
        elif element.look is not around.look:
            element.hidden = element.look.is_hidden
        element.folded = tag == "details" and "open" not in attributes
        self._push(element)

    def _push(self, element: Element) -> None:
        around = self.stack[-1]
        tag = element.tag
        if around.tag not in _WALLS:
            element.walls = around.walls
        if around.tag != "table":
            element.tables = around.tables
        element.walls[tag] = element.walls.get(tag, 0) + 1
        element.tables[tag] = element.tables.get(tag, 0) + 1
        self.open[tag] += 1
        self.stack.append(element)

    def _look(self, element: Element, around: Element) -> Look:
        style = (
            sheets.read_style(element.attributes["style"])
            if "style" in element.attributes
            else ()
        )
        matches = self.cascade.matches(element)
        own = _own_style(element.tag, element.attributes, self.link_colour)
        if not (style or matches or own):
            return around.look
        sure = [
            match.rule.declarations for match in matches if match.verdict == Verdict.YES
        ]
        look = looks.apply(around.look, _in_order([*sure, style], own))
        if len(sure) == len(matches):
            return look
        perhaps = looks.apply(
            around.look,
            _in_order([*(match.rule.declarations for match in matches), style], own),
        )
        doubts = perhaps.doubts
        if perhaps.is_hidden and not look.is_hidden:
            doubts |= {
                f"the rule {match.rule.text}"
                for match in matches
                if match.verdict == Verdict.PERHAPS
            }
        return looks.doubt(look, doubts)

    def _end(self, tag: str) -> None:
        if tag in _FORMATTING and self.open[tag]:
            self._close_formatting(tag)
        elif self._is_closable(tag):
            self._close(tag)
        self._line(tag)

    def _is_closable(self, tag: str) -> bool:
        if not self.open[tag] or tag == "frameset":
            return False
        top = self.stack[-1]
        if tag in _TABLE_PARTS and tag != "table":
            return top.tag == tag or (top.tag != "table" and top.tables.get(tag, 0) > 0)
        if tag in _WALLS:
            return True
        return top.tag == tag or (top.tag not in _WALLS and top.walls.get(tag, 0) > 0)

    def _close(self, tag: str) -> None:
        """The element and those in it; formatting that was left open goes on behind it, as in a browser."""
        left_open: list[Element] = []
        while (element := self._pop()).tag != tag:
            if element.tag in _FORMATTING and len(left_open) < LOOK_BACK:
                left_open.append(element)
        for element in reversed(left_open):
            self._start_again(element)

    def _start_again(self, element: Element) -> None:
        around = self.stack[-1]
        again = Element(
            element.tag,
            element.attributes,
            around.look,
            around,
            around.children,
            len(self.shown),
        )
        again.look = self._look(again, around)
        again.swallows = around.swallows
        again.hidden = around.hidden or around.swallows or again.look.is_hidden
        self._push(again)

    def _close_formatting(self, tag: str) -> None:
        """Of formatting only the element itself ends: a block that was opened in it stays open."""
        for back in range(1, min(LOOK_BACK, len(self.stack)) + 1):
            if self.stack[-back].tag == tag:
                self._pop(-back)
                return

    def _pop(self, at: int = -1) -> Element:
        element = self.stack.pop(at)
        self.open[element.tag] -= 1
        element.walls[element.tag] -= 1
        element.tables[element.tag] -= 1
        if element.tag == "a" and element.attributes.get("href") and not element.hidden:
            words = self.shown[element.starts : element.starts + _PARTS_OF_LABEL]
            self._show_address(element, "".join(words))
        return element

    def _close_implied(self, tag: str) -> None:
        if self.open["head"] and tag not in _IN_HEAD:
            self._close("head")
        for foreign in ("svg", "math"):
            if (
                self.open[foreign]
                and tag in _BREAKING_OUT
                and not any(self.open[each] for each in _HTML_AGAIN)
            ):
                self._close(foreign)
        if tag == "a" and self.open["a"]:
            self._close_formatting("a")
        if tag in _BLOCKS and self._is_closable("p"):
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

    # Links.

    def _show_address(self, element: Element, words: str) -> None:
        href = element.attributes["href"].strip()
        label = " ".join(words.split())
        if href.startswith("#"):
            return
        target = weblinks.lead(href, self.base)
        if target is None:
            self._show_behind(label, href)
            return
        if target.host:
            self._compare(label, target)
        if target.scheme == "mailto":
            self._compare_address(label, href)
        if target.scheme not in ("http", "https", "ftp"):
            href = (
                f"{target.scheme}:"
                if target.scheme in ("javascript", "data", "vbscript")
                else href
            )
        elif (
            self.base is not None
            and "://" not in href[:9]
            and weblinks.UNREAD not in target.host
        ):
            href = f"{target.scheme}://{target.host}/ ({href})"
        self._show_behind(label, href)

    def _show_behind(self, label: str, href: str) -> None:
        """The address behind its words, unless these are the address."""
        plain = _BLANKS.sub("", href)
        shown = plain if len(plain) <= _LONGEST_ADDRESS else f"{plain[:_LONGEST_ADDRESS]}…"
        if _bare(label) == _bare(plain) or self.addresses > MOST_ADDRESSES:
            return
        self.addresses += len(shown) + 3
        self.shown.append(f" <{shown}>")

    def _compare_address(self, label: str, href: str) -> None:
        """A link to write to somebody: to whom it leads, and whom its words name instead."""
        actual = ", ".join(_recipients(href))[:_LONGEST_ADDRESS]
        for found in _SHOWN_ADDRESS.finditer(label[:500]):
            if actual and found[0].casefold() != actual:
                self.misleading.setdefault((found[0], actual))

    def _compare(self, label: str, target: Target) -> None:
        actual = _without_www(target.host)
        if target.user:
            self.misleading.setdefault((target.user[:100], actual))
        for found in _SHOWN_HOST.finditer(label[:500]):
            if not found[1] and found[2].rpartition(".")[2].lower() in _FILES:
                continue
            read = weblinks.resolve(f"http://{found[2]}")
            claimed = _without_www(read.host if read else found[2].lower())
            if claimed != actual and not actual.endswith(f".{claimed}"):
                self.misleading.setdefault((claimed, actual))


@dataclass(slots=True)
class _Reach:
    """Where a page leads, and what it fetches."""

    base: Target | None
    hosts: dict[str, None] = field(default_factory=dict)
    forms: dict[str, None] = field(default_factory=dict)
    onward: dict[str, None] = field(default_factory=dict)

    def read(self, tokens: list[Markup], depth: int = 0) -> None:
        for number, token in enumerate(tokens):
            given = token.attributes
            if token.closes or token.tag in ("", "base"):
                continue
            for name, value in given.items():
                for address in _addresses_of(name, value):
                    self._note(address, is_form=name in ("action", "formaction"))
            if token.tag == "style":
                for address in _addresses_in_style(tokens[number + 1].text):
                    self._note(address)
            elif token.tag == "iframe" and "srcdoc" in given:
                self._read_inner(given["srcdoc"], depth + 1)
            elif (
                token.tag == "meta"
                and given.get("http-equiv", "").strip().lower() == "refresh"
            ):
                self._note_jump(given.get("content", ""))

    def _read_inner(self, source: str, depth: int) -> None:
        if depth > _DEEPEST_PAGE:
            self.hosts.setdefault("a page within a page that was not read")
        else:
            self.read([*_tokens(source)], depth)

    def _note(self, address: str, *, is_form: bool = False) -> None:
        target = weblinks.lead(address, self.base)
        if target and target.host:
            self.hosts.setdefault(target.host)
            if is_form:
                self.forms.setdefault(target.host)
        elif target and target.scheme == "mailto":
            for each in _recipients(address):
                self.hosts.setdefault(f"mail to {each[:_LONGEST_ADDRESS]}")

    def _note_jump(self, content: str) -> None:
        """A page that a browser leaves by itself."""
        found = _JUMP.match(content[:_LONGEST_JUMP])
        target = weblinks.lead(found[1], self.base) if found else None
        if target and target.host:
            self.hosts.setdefault(target.host)
            self.onward.setdefault(target.host)


def _addresses_of(name: str, value: str) -> Iterable[str]:
    """The addresses in an attribute."""
    if name in _ADDRESSES:
        return (value,)
    if name in _LISTS_OF_ADDRESSES:
        return re.split(r"[ \t\r\n\f,]+", value)
    # Not only a style: drawings have attributes that are styles too.
    return _addresses_in_style(value) if name == "style" or "(" in value else ()


def _addresses_in_style(css: str) -> Iterable[str]:
    plain = sheets.unescape(css).translate(_DROPPED)
    return (found[0] for found in _IN_STYLE.finditer(plain))


def _recipients(address: str) -> list[str]:
    """To whom a `mailto:` address writes, also as copies."""
    first, _, rest = address.partition(":")[2].partition("?")
    fields = [first]
    for each in rest.split("&"):
        name, _, value = each.partition("=")
        if unquote(name).strip().lower() in ("to", "cc", "bcc"):
            fields.append(value)
    names = re.split("[,;]", ",".join(map(unquote, fields)))
    return [name.strip().casefold() for name in names if name.strip()]


def _without_www(host: str) -> str:
    return host.removeprefix("www.").rstrip(".")


def _bare(address: str) -> str:
    """By what a link's text is the same as its address."""
    return re.sub(r"^(?:https?://|mailto:)", "", address.lower()).rstrip("/")


def _in_order(
    blocks: list[tuple[Declaration, ...]], own: tuple[Declaration, ...]
) -> list[Declaration]:
    """What the tag itself says, then the blocks, then what they call important."""
    every = [each for block in blocks for each in block]
    return [
        *own,
        *(each for each in every if not each.important),
        *(each for each in every if each.important),
    ]


def _own_style(
    tag: str, attributes: Mapping[str, str], link_colour: str
) -> tuple[Declaration, ...]:
    """What a tag and its old attributes say about its look."""
    said: list[str] = []
    if tag == "a" and "href" in attributes:
        said.append("color:#0000ee")
        if link_colour:
            said.append(f"color:{_old_colour(link_colour)}")
    elif tag in _OWN_STYLES:
        said.append(_OWN_STYLES[tag])
    elif tag == "dialog" and "open" not in attributes:
        said.append("display:none")
    for name in attributes:
        if name in ("hidden", "popover"):
            said.append("display:none")
        elif name in _OLD_SIZES and (huge := _OLD_HUGE.match(attributes[name])):
            said.append(f"{_OLD_SIZES[name]}:{huge[1]}")
        elif name in _OLD_ATTRIBUTES:
            said.append(_old_style(tag, name, attributes[name]))
    return sheets.read_style(";".join(said)) if said else ()


_OWN_STYLES = {
    "mark": "background-color:#ffff00;color:#000000",
    "button": "background-color:#efefef;color:#000000",
    "pre": "white-space:pre",
    "textarea": "textarea:may show a part",
    "marquee": "marquee:moves",
    "bdo": "bdo:may read backwards",
}
_OLD_ATTRIBUTES = {
    "color": "color",
    "text": "color",
    "bgcolor": "background-color",
    "background": "background-image",
}
_OLD_SIZES = {
    "width": "width",
    "cols": "width",
    "hspace": "width",
    "leftmargin": "width",
    "height": "height",
    "rows": "height",
    "size": "height",
    "border": "height",
    "cellspacing": "height",
    "cellpadding": "height",
    "vspace": "height",
    "topmargin": "height",
}
"""By which old attributes a box is made large, and in which direction they do it at least."""
_OLD_HUGE = re.compile(r"[ \t\r\n\f]*\+?(\d{4,6})", re.ASCII)


def _old_style(tag: str, name: str, value: str) -> str:
    if (name == "color" and tag != "font") or (name == "text" and tag != "body"):
        return ""
    if name == "background":
        return "background-image:url(x)"
    return f"{_OLD_ATTRIBUTES[name]}:{_old_colour(value)}"


def _old_colour(value: str) -> str:
    colour = value.strip().lower()
    if re.fullmatch(r"[0-9a-f]{6}", colour):
        colour = f"#{colour}"
    return colour if looks.read_colour(colour) else "of an old kind"


def visible(source: str) -> Visible:
    tokens = [*_tokens(source)]
    found, base, notes = _gather(tokens)
    reader = _Reader(found.on(sheets.USUAL), base)
    reader.read(tokens)
    reach = _Reach(base)
    reach.read(tokens)
    elsewhere: dict[str, int] = {}
    for screen in sheets.OTHERS:
        if not reader.cascade.exhausted and found.differs(screen):
            other = _Reader(found.on(screen), base)
            other.read(tokens)
            if (more := other.hidden_characters - reader.hidden_characters) > 0:
                elsewhere[screen.name] = more
    doubts = [*dict.fromkeys([*notes, *found.doubts]), *reader.doubts]
    if reader.cascade.exhausted:
        doubts.append("more rules than were compared")
    joined = "".join(reader.shown)
    if _FAR not in doubts and _has_far_text(joined):
        doubts.append(_FAR)
    lines = (line.strip(" ") for line in re.sub(" {2,}", " ", joined).split("\n"))
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return Visible(
        text=text,
        size=len(text) - reader.addresses,
        hidden_parts=reader.hidden_parts,
        hidden_characters=reader.hidden_characters,
        misleading=tuple(reader.misleading),
        hosts=tuple(reach.hosts),
        forms=tuple(reach.forms),
        onward=tuple(reach.onward),
        doubts=tuple(doubts),
        elsewhere=tuple(elsewhere.items()),
        has_ordinary_preheader=reader.hidden_characters <= MOST_HIDDEN
        and preheader.is_ordinary(reader.hidden_before, reader.hidden_behind, text),
    )


def _is_far(blanks: str) -> bool:
    """Whether so many blanks that stay are wider than a page: a tab is eight, and some are of double width."""
    return len(blanks) + 7 * blanks.count("\t") + blanks.count("\u3000") >= 160


def _has_far_text(text: str) -> bool:
    """Whether words come only after more than thirty empty lines, or two hundred blanks that no browser drops."""
    for run in _EMPTY.finditer(text):
        is_far = run[0].count("\n") > 30 or "\xa0" * 200 in run[0]
        if is_far and text[run.end() : run.end() + 1].strip():
            return True
    return False


def _gather(tokens: list[Markup]) -> tuple[Sheets, Target | None, list[str]]:
    """The style sheets, the base of its links, and what of the kind was not read."""
    found = Sheets()
    base: Target | None = None
    notes: list[str] = []
    inert = 0
    for number, token in enumerate(tokens):
        given = token.attributes
        if token.tag == "template":
            inert = max(0, inert - 1) if token.closes else inert + 1
        if token.closes or not token.tag or inert:
            continue
        if token.tag == "style" and given.get("type", "").lower() in ("", "text/css"):
            css = tokens[number + 1].text
            found.add(css, given.get("media", ""))
            if "<![cdata[" in css.lower():
                notes.append("a style sheet in CDATA")
        elif (
            token.tag == "link"
            and "stylesheet" in given.get("rel", "").lower()
            and given.get("href")
        ):
            notes.append(f"a style sheet from elsewhere: {given['href'].strip()[:80]}")
        elif token.tag == "noscript" and re.search(
            r"<(?:style|link)", tokens[number + 1].text, re.IGNORECASE
        ):
            notes.append("a style sheet for programs without scripts")
        elif token.tag == "base" and base is None and given.get("href"):
            base = weblinks.lead(given["href"])
    return found, base, notes


def _tokens(source: str) -> Iterator[Markup]:
    at = 0
    while found := _MARKUP.search(source, at):
        if found.start() > at:
            yield Markup("", closes=False, attributes={}, text=source[at : found.start()])
        at = found.end()
        if not found[2]:
            continue
        tag = found[2].lower()
        attributes, at = _attributes(source, at)
        yield Markup(tag, bool(found[1]), attributes, "")
        if tag in _RAW and not found[1]:
            end = _raw_end(source, tag, at)
            yield Markup("", closes=False, attributes={}, text=source[at:end])
            at = end
    if at < len(source):
        yield Markup("", closes=False, attributes={}, text=source[at:])


def _raw_end(source: str, tag: str, at: int) -> int:
    if tag == "plaintext":
        return len(source)
    ends = re.compile(rf"</{tag}(?=[ \t\r\n\f/>])", re.IGNORECASE)
    end = ends.search(source, at)
    if end and tag == "script":
        # In a comment of a script another script may begin, whose end is not that of the first.
        _, comment, rest = source[at : end.start()].rpartition("-->")[2].partition("<!--")
        if comment and _SCRIPT.search(rest):
            end = ends.search(source, end.end())
    return end.start() if end else len(source)


def _attributes(source: str, at: int) -> tuple[dict[str, str], int]:
    """The attributes of a tag and where it ends; a quote that nothing closes swallows the
    rest, as in a browser."""
    made: dict[str, str] = {}
    while found := _ATTRIBUTE.match(source, at):
        at = found.end()
        if found[1]:
            return made, at
        if found[4] is not None or found[6] is not None:
            return made, len(source)
        if len(made) < 200:
            value = (found[3] or found[5] or found[7] or "")[:20_000]
            made.setdefault(found[2].lower(), html.unescape(_HUGE_REFERENCE.sub("", value)))
    return made, len(source)
