"""Where things stand in the text of a note: its headings, its blocks and its lines.

Headings are CommonMark's at the top level of the note: none in code, in comments, in HTML, in lists or quotes.
Only the lines that may matter are looked at one by one, so that a note of a megabyte costs a few milliseconds.
"""

import re
from bisect import bisect_right
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from operator import attrgetter, itemgetter
from typing import NamedTuple

from deskhand.notes import frontmatter
from deskhand.notes.alike import length_alike, length_alike_at_the_end

_ITEM = r"(?:[-*+]|[0-9]{1,9}[.)])"
_BLOCK_TAGS = (
    "address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|"
    "fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|"
    "menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead|title|tr|"
    "track|ul"
)
# A literal line end first: that is what makes the search quick.
_MARK = re.compile(
    rf"""
    \n (?= [ \t#=<%$`~*+0-9-] )
    (?P<indent> [ \t]*+ )
    (?:
        (?P<atx> \#{{1,6}} ) (?: [ \t] (?P<title> [^\n]* ) )? (?= \n | \Z )
      | (?P<under> =+ | -+ ) [ \t]* (?= \n | \Z )
      | (?P<hidden> %% | \$\$ )
      | (?P<html> < (?= [!?/a-zA-Z] ) )
      | (?P<items> (?: {_ITEM} [ \t]+ )* ) (?P<fence> `{{3,}} | ~{{3,}} )
    )
    """,
    re.VERBOSE,
)
# How an HTML block begins, and what the line has that ends it; None: it ends before a blank line.
_HTML: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...] = (
    (
        re.compile(r"<(?:script|pre|style|textarea)(?=[\s>]|\Z)", re.IGNORECASE),
        re.compile(r"</(?:script|pre|style|textarea)>", re.IGNORECASE),
    ),
    (re.compile(r"<!--"), re.compile(r"-->")),
    (re.compile(r"<\?"), re.compile(r"\?>")),
    (re.compile(r"<!\[CDATA\["), re.compile(r"\]\]>")),
    (re.compile(r"<![A-Za-z]"), re.compile(r">")),
    (
        re.compile(rf"</?(?:{_BLOCK_TAGS})(?=[\s>]|/>|\Z)", re.IGNORECASE),
        re.compile(r"\n(?=[ \t]*(?:\n|\Z))"),
    ),
)
_ATTRIBUTE = (
    r"[ \t]++[a-zA-Z_:][\w:.-]*+(?:[ \t]*=[ \t]*(?:[^\s\"'=<>`]++|'[^'\n]*'|\"[^\"\n]*\"))?"
)
_TAG_ALONE = re.compile(
    rf"<(?:[a-zA-Z][a-zA-Z0-9-]*+(?:{_ATTRIBUTE})*"
    r"[ \t]*/?|/[a-zA-Z][a-zA-Z0-9-]*[ \t]*)>[ \t]*(?=\n|\Z)"
)
_BLANK_LINE = re.compile(r"\n(?=[ \t]*(?:\n|\Z))")
_CLOSING_MARKS = re.compile(r"(?:^|[ \t]+)#+[ \t]*\Z")
_LIST_ITEM = re.compile(rf"([ \t]*)({_ITEM})(?:([ \t]+)|\Z)")
_INTERRUPTS = re.compile(r" {0,3}(?:>|[-*+][ \t]+\S|1[.)][ \t]+\S)")
_BEGINS = re.compile(rf" {{0,3}}(?:>|{_ITEM}(?:[ \t]|\Z))")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|(?:-[ \t]*){3,})\Z")
_TABLE_RULE = re.compile(
    r"[ \t]*+(?:\|[ \t]*+)?+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+(?:\|[ \t]*+)?+\Z"
)
_LONE_RETURN = re.compile(r"\r(?!\n)")
_ENDS_LIST = ("---", "#", "```", "~~~", "<", "%%", ">")
_PAIRS = ("%%", "$$")
"""What begins here may end anywhere below."""
_TAB = 4
_CODE = 4
"""From this indentation on, a line outside lists is code."""


class Heading(NamedTuple):
    level: int
    text: str
    start: int
    end: int
    """Behind its line end."""


Marks = tuple[list[Heading], list[tuple[int, int]]]
"""Headings, and what is hidden."""


@dataclass
class Outline:
    """A note's text with the places of its headings; `flat` is the text with every line
    end written as one \\n."""

    text: str
    flat: str
    body: int
    """Where the body begins."""

    _last: "Outline | None" = field(default=None, init=False, repr=False, compare=False)

    @cached_property
    def _marks(self) -> Marks:
        last, self._last = self._last, None
        return (last and _marks_beside(self, last)) or _find_headings(self.flat, self.body)

    @property
    def is_read(self) -> bool:
        """Whether its headings are known already."""
        return "_marks" in self.__dict__

    def follow(self, last: "Outline") -> None:
        """Find the headings, when they are asked for, with those of a text that differs in one place: around it alone
        they are found anew."""
        if last.is_read and not self.is_read:
            self._last = last

    def read_headings(self) -> None:
        """Find them now, for whoever asks for them later."""
        _ = self._marks

    @property
    def headings(self) -> list[Heading]:
        return self._marks[0]

    @property
    def hidden(self) -> list[tuple[int, int]]:
        """Code, comments and HTML, in order: what looks like a heading or a block id in there is none."""
        return self._marks[1]

    def is_hidden(self, place: int) -> bool:
        at = bisect_right(self.hidden, place, key=lambda span: span[0])
        return at > 0 and place < self.hidden[at - 1][1]

    def line_of(self, place: int) -> int:
        """The number of the line at this place; the first one is 1."""
        return self.flat.count("\n", 0, place) + 1

    def section_end(self, number: int) -> int:
        """Where the section of this heading ends, with all the headings below it."""
        level = self.headings[number].level
        later = (each.start for each in self.headings[number + 1 :] if each.level <= level)
        return next(later, len(self.text))

    def text_end(self, number: int) -> int:
        """Where the heading's own text ends: before the next heading, whatever its level."""
        if number + 1 < len(self.headings):
            return self.headings[number + 1].start
        return len(self.text)

    def parents(self, number: int) -> list[str]:
        """The headings above this one, the nearest first."""
        level = self.headings[number].level
        found = []
        for each in reversed(self.headings[:number]):
            if each.level < level:
                level = each.level
                found.append(each.text)
        return found


_kept = [Outline("", "", 0)]


class Lines:
    """Numbers of lines for places that are asked for in order."""

    def __init__(self, flat: str) -> None:
        self._flat = flat
        self._place = 0
        self._number = 1

    def at(self, place: int) -> int:
        self._number += self._flat.count("\n", self._place, place)
        self._place = place
        return self._number


def read_outline(text: str) -> Outline:
    """The outline of a note; that of the last one is kept, as who changes a note often changes it again."""
    last = _kept[-1]
    if last.text == text:
        return last
    found = Outline(text, flatten(text), frontmatter.body_start(text))
    _kept[-1] = found
    return found


def keep_outline(text: str) -> Outline:
    """The outline of what a note says now, for whoever changes it next. To find its headings takes a while, which the
    one who has just changed it need not wait for."""
    last = _kept[-1]
    found = read_outline(text)
    if found is not last:
        found.follow(last)
    return found


def leaves_open(text: str) -> bool:
    """Whether a heading right below this text would be none: in code, in a comment or in HTML that goes on."""
    flat = flatten(text)
    if not flat.endswith("\n"):
        flat += "\n"
    # What has no end of its own takes the next mark for it.
    headings, _ = _find_headings(f"{flat}# Below\n%%\n$$\n", 0)
    return not headings or headings[-1].start != len(flat)


def flatten(text: str) -> str:
    """The text with every line end written as one \\n and every character in its place."""
    if "\r" not in text:
        return text
    return _LONE_RETURN.sub("\n", text.replace("\r\n", " \n"))


def line_start(flat: str, place: int) -> int:
    return flat.rfind("\n", 0, place) + 1


def line_end(flat: str, place: int) -> int:
    """Behind the end of the line at this place."""
    return flat.find("\n", place) + 1 or len(flat)


def lines_above(flat: str, place: int, top: int = 0) -> Iterator[tuple[int, str]]:
    """The lines above the one that begins at `place`, the nearest first, each with where it begins."""
    while place > top:
        start = max(top, line_start(flat, place - 1))
        yield start, flat[start : place - 1]
        place = start


def item_content(line: str) -> int | None:
    """How far the text of a list item is indented; None if the line begins none."""
    item = _LIST_ITEM.match(line)
    if item is None or _RULE.match(line):
        return None
    marker = _width(item[1] + item[2])
    gap = _width(item[0]) - marker
    if not 1 <= gap <= _TAB:
        gap = 1
    return marker + gap


def indentation(line: str) -> int:
    return _width(line[: len(line) - len(line.lstrip(" \t"))])


def _width(blank: str) -> int:
    return len(blank.expandtabs(_TAB))


def _marks_beside(made: Outline, last: Outline) -> Marks | None:
    """What is found in a text beside the place where it differs from the last one; None where that does not tell.

    A heading that begins with its line's first character is read in one way, whatever stands before it: so reading can
    begin behind one and end at one. Only what begins a comment or a formula may end anywhere below.
    """
    before = length_alike(last.flat, made.flat)
    after = length_alike_at_the_end(last.flat, made.flat, before)
    old_end = len(last.flat) - after
    shift = len(made.flat) - len(last.flat)
    top = max(0, before - 1)
    changed = last.flat[top : old_end + 1] + "\n" + made.flat[top : old_end + shift + 1]
    # A search for one character is thirty times as quick as one for two.
    if any(mark[0] in changed and mark in changed for mark in _PAIRS):
        return None
    headings, hidden = last.headings, last.hidden
    first = 0
    if made.body == last.body:
        first = _last_plain(last, before)
    later = {
        each.start + shift: number
        for number, each in enumerate(headings[first:], first)
        if each.start >= old_end and _is_plain(last.flat, each)
    }
    start = headings[first - 1].end if first else made.body
    new_headings, new_hidden, end = _find_marks(made.flat, made.body, start, later)
    rest = later.get(end, len(headings))
    moved = [
        Heading(each.level, each.text, each.start + shift, each.end + shift)
        for each in headings[rest:]
    ]
    kept = 0
    if first:
        kept = bisect_right(hidden, start, key=itemgetter(1))
    gone = bisect_right(hidden, end - shift, key=itemgetter(0))
    shifted = [(begin + shift, close + shift) for begin, close in hidden[gone:]]
    return headings[:first] + new_headings + moved, hidden[:kept] + new_hidden + shifted


def _last_plain(outline: Outline, before: int) -> int:
    """How many headings there are as far as the last plain one that ends before this place."""
    first = bisect_right(outline.headings, before, key=attrgetter("end"))
    while first and not _is_plain(outline.flat, outline.headings[first - 1]):
        first -= 1
    return first


def _is_plain(flat: str, heading: Heading) -> bool:
    return flat[heading.start] == "#" and flat[heading.end - 1] == "\n"


def _find_headings(flat: str, body: int) -> Marks:
    """The headings, and what is hidden, of a text whose body begins there."""
    headings, hidden, _ = _find_marks(flat, body, body, ())
    return headings, hidden


def _find_marks(
    flat: str, body: int, start: int, known: Container[int]
) -> tuple[list[Heading], list[tuple[int, int]], int]:
    """The same from `start` on, up to the first heading at one of the `known` places; and where that is."""
    headings: list[Heading] = []
    hidden: list[tuple[int, int]] = []
    # With a line end before the first line each line has one, and a match begins where its line does in the note.
    # A byte order mark, which is a body's only beginning that is one character long, has one in its place.
    order_mark = int(body == 1)
    marked = "\n" * (1 + order_mark) + flat[order_mark:]
    place = top = start
    barren = -1
    around: dict[int, int] = {}
    length = len(flat)
    while found := _MARK.search(marked, place):
        start = found.start()
        blank, atx, title = found.group("indent", "atx", "title")
        indent = _width(blank)
        inside = _item_around(flat, start, indent, body, around)
        if indent - inside >= _CODE:
            place = line_end(flat, start)
            continue
        if atx:
            if start in known:
                return headings, hidden, start
            place = top = min(found.end(), length)
            if not inside:
                text = _heading_text(title or "")
                headings.append(Heading(len(atx), text, start, place))
            continue
        place = end = line_end(flat, start)
        line = flat[start:end].rstrip("\n")
        place = _hidden_end(flat, found, line, inside, top)
        if place > end:
            hidden.append((start, place))
            top = place
        elif found["under"] and not inside:
            heading = _underlined(flat, start, top, found["under"], barren, around)
            if heading:
                headings.append(heading)
            barren = start
            if heading or _RULE.match(line):
                top = end
    return headings, hidden, length


def _heading_text(title: str) -> str:
    text = title.strip(" \t")
    if text.endswith("#"):
        text = _CLOSING_MARKS.sub("", text)
    return text


def _hidden_end(flat: str, found: re.Match[str], line: str, inside: int, top: int) -> int:
    """Where the code, the comment or the HTML ends that begins with this line; if none
    does, where the line ends."""
    start = found.start()
    match found.lastgroup:
        case "fence":
            column = inside
            if found["items"]:
                column = _width(line[: found.start("fence") - 1 - start])
            return _fence_end(flat, start, found["fence"], column)
        case "hidden":
            place = found.start("hidden") - 1
            return line_end(flat, max(place, flat.find(found["hidden"], place + 2)))
        case "html":
            above = next(lines_above(flat, start, top), (0, ""))[1]
            may_be_any = not above.strip() or bool(_RULE.match(above))
            return _html_end(flat, found.start("html") - 1, inside, may_be_any=may_be_any)
        case _:
            return line_end(flat, start)


def _item_around(
    flat: str, start: int, indent: int, top: int, around: dict[int, int]
) -> int:
    """How far the text of the list item is indented that this line belongs to; 0 outside of lists.

    `around` says it of lines that were asked for, by where they begin, so that none is passed again and again.
    """
    if not indent:
        return 0
    limit = indent
    passed = [start]
    found = 0
    is_lazy = False
    for place, line in lines_above(flat, start, top):
        if not line.strip():
            if is_lazy:
                break
            continue
        width = indentation(line)
        content = item_content(line)
        if width > limit:
            continue
        if place in around:
            found = around[place]
            break
        if content is not None and content <= limit:
            found = content
            break
        if not width:
            if content is not None or line.startswith(_ENDS_LIST):
                break
            is_lazy = True
            continue
        limit = width
        passed.append(place)
    around.update(dict.fromkeys(passed, found))
    return found


def _item_end(flat: str, start: int, column: int) -> int:
    """Where the list item ends whose text is indented as far as `column`: before a line that is less so."""
    if not column:
        return len(flat)
    place = line_end(flat, start)
    while place < len(flat):
        end = line_end(flat, place)
        line = flat[place:end]
        if line.strip() and indentation(line) < column:
            return place
        place = end
    return place


def _fence_end(flat: str, start: int, fence: str, column: int) -> int:
    first = line_end(flat, start)
    if fence[0] == "`" and "`" in flat[start:first].partition(fence)[2].lstrip("`"):
        return first  # code within a line
    last = _item_end(flat, start, column)
    closing = _closing(fence[0], len(fence), deep=bool(column)).search(
        flat, first - 1, last
    )
    if closing is None:
        return last
    return line_end(flat, closing.end())


@cache
def _closing(mark: str, length: int, *, deep: bool) -> re.Pattern[str]:
    indent = "[ \t]*" if deep else " {0,3}"
    return re.compile(rf"\n{indent}{re.escape(mark)}{{{length},}}[ \t]*(?=\n|\Z)")


def _html_end(flat: str, start: int, column: int, *, may_be_any: bool) -> int:
    last = _item_end(flat, start, column)
    for opening, closing in _HTML:
        if opening.match(flat, start):
            found = closing.search(flat, start, last)
            return line_end(flat, found.start()) if found else last
    if may_be_any and _TAG_ALONE.match(flat, start):
        found = _BLANK_LINE.search(flat, start, last)
        return line_end(flat, found.start()) if found else last
    return line_end(flat, start)


def _is_below_text(flat: str, place: int, top: int) -> bool:
    return bool(next(lines_above(flat, place, top), (0, ""))[1].strip())


def _underlined(
    flat: str, start: int, top: int, mark: str, barren: int, around: dict[int, int]
) -> Heading | None:
    """The heading that consists of the paragraph above this line, if there is one; the
    line at `barren` made none."""
    paragraph: list[tuple[int, str]] = []
    for place, line in lines_above(flat, start, top):
        if place == barren and _is_below_text(flat, place, top):
            return None  # these lines do not begin as a paragraph does
        if not line.strip() or _RULE.match(line):
            break
        paragraph.append((place, line))
    while paragraph and indentation(paragraph[-1][1]) >= _CODE:
        paragraph.pop()
    paragraph.reverse()
    if not paragraph:
        return None
    first, opening = paragraph[0]
    indent = indentation(opening)
    lines = [line for _, line in paragraph]
    if _BEGINS.match(opening) or _item_around(flat, first, indent, 0, around):
        return None
    if any(
        _INTERRUPTS.match(line) or ("|" in line and _TABLE_RULE.match(line))
        for line in lines
    ):
        return None
    text = " ".join(line.strip() for line in lines)
    return Heading(1 if mark[0] == "=" else 2, text, first, line_end(flat, start))
