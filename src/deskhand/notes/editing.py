"""Changes of some places of a note that leave every other byte as it was: text in, text out.

All edits of a call name places of the note as it was before the call, must not overlap, and count together or not
at all. A section is what Obsidian shows of a heading: down to the next one of its level or above.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from deskhand.errors import (
    Changed,
    Denied,
    DeskError,
    FieldProblem,
    InvalidInput,
    NotFound,
    printable,
)
from deskhand.notes import frontmatter
from deskhand.notes.keys import edit_keys
from deskhand.notes.links import same
from deskhand.notes.outline import (
    Outline,
    flatten,
    indentation,
    item_content,
    leaves_open,
    line_end,
    line_start,
    lines_above,
    read_outline,
)

BELOW = " > "
"""Between the headings of a path, as in `Projects > Garden`."""
_SHOWN = 20
_BLOCK_ID = r"[A-Za-z0-9-]+"
_HEADING_MARK = re.compile(r"(#{1,6})[ \t]+")
_LINE_END = re.compile(r"\r\n|\n|\r")
_VISIBLE = re.compile(r"\S")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*(?:[\r\n]|\Z)")
_ANY_ID = re.compile(rf"[ \t\n]\^(?P<id>{_BLOCK_ID})(?=[ \t]*(?:\n|\Z))")
_WITH_ID = re.compile(rf"(?:^|[ \t])\^{_BLOCK_ID}[ \t]*\Z")
_MARKER = re.compile(r"(?:[-*+]|[0-9]{1,9}[.)])[ \t]+(?:\[[^\]\n]\][ \t]+)?")
_QUOTE = re.compile(r" {0,3}>(?:[ \t]*>)*[ \t]?")
_CALLOUT_OR_HEADING = re.compile(r"[ \t]*(?:\[!|#{1,6}[ \t])")
_NOT_IN_LINKS = re.compile(r"""[!"#$%&()*+,.:;<=>?@^`{|}~/\[\]\\]""")
_BLANK_ENDS = re.compile(r"[ \t]++$", re.MULTILINE)
T = TypeVar("T")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def _range(value: Any) -> Any:
    """A line or a range in any form that a caller may think of."""
    if isinstance(value, str) and (found := _RANGE.fullmatch(value.strip())):
        value = [int(number) for number in found.groups() if number]
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, list) and len(value) == 1:
        value = value * 2
    return value


def _shorten(schema: dict[str, Any]) -> None:
    """Say each field once: null and leaving it out are the same."""
    for each in schema["properties"].values():
        each.pop("default", None)
        if "anyOf" in each:
            each.update(each.pop("anyOf")[0])


class Edit(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra=_shorten)

    do: Literal["insert", "replace", "delete"]
    heading: str | None = Field(None, description='"A > B": B below A')
    block: str | None = Field(None, description="block id")
    lines: Annotated[
        Annotated[list[int], Field(min_length=2, max_length=2)] | None,
        BeforeValidator(_range),
    ] = Field(None, description="[first, last] in the whole file, from 1")
    expect: str | None = Field(None, description="what the lines say now")
    key: str | None = Field(None, description="frontmatter key")
    text: str | None = None
    value: Any = Field(None, description="for key; added to a list, or taken out")

    @field_validator("heading", "block", "lines", "key", mode="before")
    @classmethod
    def _drop_empty(cls, value: Any) -> Any:
        """Some clients fill in every field."""
        return None if value in ("", []) else value

    @model_validator(mode="after")
    def _demand_one_place(self) -> Self:
        given = [
            name
            for name in ("heading", "block", "lines", "key")
            if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise ValueError("an edit has one of heading, block, lines and key")
        if self.lines and self.expect is None:
            raise ValueError("lines need expect: the text that stands there now")
        if self.lines and not 1 <= self.lines[0] <= self.lines[1]:
            raise ValueError("lines are [first, last], counted from 1")
        if self.key is None and self.do != "delete" and self.text is None:
            raise ValueError("the text is missing")
        return self


@dataclass(frozen=True)
class EditedText:
    text: str
    places: Sequence[tuple[int, int]] = ()
    """Of each edit of the body, counted from the end."""

    @cached_property
    def lines(self) -> list[str]:
        """Where each edit of the body stands now: a line, or a range of lines."""
        return [*_line_ranges(self.text, self.places)]


@dataclass(frozen=True, slots=True)
class _Splice:
    """Whole lines in the place of whole lines; no text where they are deleted."""

    start: int
    end: int
    text: str | None
    blank_before: bool = False
    blank_after: bool = False
    named: int | None = None
    """Where the heading or the block begins that the edit names."""


@dataclass(frozen=True, slots=True)
class _Block:
    """The lines of a block, those of them that are its own text, and how far it reaches
    with what belongs to it."""

    id: str
    start: int
    text_end: int
    end: int
    prefix: str | None = None
    """Of a list item: what stands before its text."""
    id_is_apart: bool = False
    heading_mark: str | None = None
    quote: str = ""
    """The marks of the quote or callout that it stands in."""


def edit(text: str, edits: Sequence[Edit]) -> EditedText:
    outline = read_outline(text)
    splices = [
        _naming(number, _splice, outline, each)
        for number, each in enumerate(edits)
        if each.key is None
    ]
    changed, places = _apply(outline, splices)
    # Where there are properties, the body has nothing to do with them and may be long.
    head = len(changed)
    if _has_properties(outline):
        head = outline.body
    named = {number: each for number, each in enumerate(edits) if each.key is not None}
    if named:
        changed = edit_keys(changed[:head], named) + changed[head:]
    return EditedText(changed, places)


def append(text: str, added: str, heading: str | None, *, create: bool) -> EditedText:
    """The text with `added` at its end, or at the end of what stands directly under a heading."""
    outline = read_outline(text)
    changed, places = _apply(outline, [_appended(outline, added, heading, create=create)])
    return EditedText(changed, places)


def _appended(
    outline: Outline, added: str, heading: str | None, *, create: bool
) -> _Splice:
    end = len(outline.text)
    if heading is None:
        return _insert_at(outline, end, added)
    try:
        return _insert_under(outline, find_heading(outline, heading), added)
    except NotFound:
        if not create or BELOW in heading or not heading.strip():
            raise
    title = " ".join(heading.split())
    if not _HEADING_MARK.match(title):
        title = f"## {title}"
    return _Splice(
        end, end, f"{title}\n\n{added}", blank_before=_is_text(_line_before(outline, end))
    )


def find_part(text: str, place: str) -> str:
    """The part of a note that a link names behind its target: `#Heading`, `#A#B` or
    `#^block`; without one its body."""
    outline = read_outline(text)
    names = place.removeprefix("#")
    if not names:
        return text[outline.body :]
    if names.startswith("^"):
        block = _find_block(outline, names[1:].strip())
        return text[block.start : block.end]
    number = find_heading(outline, BELOW.join(name.strip() for name in names.split("#")))
    return text[outline.headings[number].start : outline.section_end(number)]


_NAMED = 12
"""So many headings are named where none is the one that was meant."""


def find_heading(outline: Outline, wanted: str) -> int:
    """The number of the heading with this text, or of the one that a path such as `A > B` tells apart."""
    *above, name = wanted.split(BELOW)
    found = (
        _headings_named(outline, wanted, [])
        or (above and _headings_named(outline, name, above))
        or []
    )
    if not found:
        missing = NotFound(
            f"There is no heading {printable(wanted)!r}.",
            hint="get_outline lists the headings.",
            heading=printable(wanted),
        )
        missing.to_person = (missing.message, _describe_headings(outline))
        raise missing
    if len(found) > 1:
        raise _ambiguous(
            outline, "heading", wanted, [outline.headings[number].start for number in found]
        )
    return found[0]


def _describe_headings(outline: Outline) -> str:
    """Those there are, for somebody who cannot ask for them."""
    names = [f'"{printable(each.text, 80)}"' for each in outline.headings[:_NAMED]]
    if not names:
        return "the note has no heading"
    more = ", …" if len(outline.headings) > _NAMED else ""
    return f"its headings are {', '.join(names)}{more}"


def _headings_named(outline: Outline, name: str, above: list[str]) -> list[int]:
    """Exactly so if there are any, else without regard to case, to a block id; `## Name` is one of that level."""
    for alike in (str.__eq__, same, _is_same_without_id, _is_same_in_links):
        for level, text in ((None, name.strip()), _level_of(name)):
            found = [
                number
                for number, each in enumerate(outline.headings)
                if alike(each.text, text)
                and level in (None, each.level)
                and _is_below(outline, number, above)
            ]
            if found:
                return found
    return []


def _is_same_without_id(text: str, name: str) -> bool:
    return same(_WITH_ID.sub("", text), name)


def _is_same_in_links(text: str, name: str) -> bool:
    """As Obsidian writes a heading into a link: without the characters that mean something there."""
    return same(_in_links(text), _in_links(name)) and bool(_in_links(name))


def _in_links(text: str) -> str:
    return " ".join(_NOT_IN_LINKS.sub(" ", text).split())


def _level_of(name: str) -> tuple[int | None, str]:
    mark = _HEADING_MARK.match(name)
    if mark is None:
        return None, name.strip()
    return len(mark[1]), name[mark.end() :].strip()


def _is_below(outline: Outline, number: int, above: list[str]) -> bool:
    """Whether these headings stand above it in this order; others may stand between them."""
    parents = iter(outline.parents(number)) if above else iter(())
    return all(
        any(same(_level_of(name)[1], parent) for parent in parents)
        for name in reversed(above)
    )


def _ambiguous(outline: Outline, what: str, name: str, places: list[int]) -> Denied:
    lines = [outline.line_of(place) for place in places[:_SHOWN]]
    return Denied(
        f"{len(places)} times {what} {printable(name)!r}: lines {', '.join(map(str, lines))}.",
        reason="ambiguous",
        hint='Say which: a heading by the ones above it ("A > B"), anything by its lines.',
        lines=lines,
    )


def _naming(number: int, work: Callable[..., T], *given: Any) -> T:
    """The work for one edit; its errors say which edit it was."""
    try:
        return work(*given)
    except DeskError as error:
        error.details["edit"] = number
        raise


def _splice(outline: Outline, each: Edit) -> _Splice:
    if each.heading is not None:
        number = find_heading(outline, each.heading)
        made = _splice_section(outline, number, each)
        return dataclasses.replace(made, named=outline.headings[number].start)
    if each.block is not None:
        block = _find_block(outline, each.block.strip().lstrip("#^"))
        return dataclasses.replace(_splice_block(outline, block, each), named=block.start)
    return _splice_lines(outline, each)


# Under a heading.


def _splice_section(outline: Outline, number: int, each: Edit) -> _Splice:
    heading = outline.headings[number]
    end = outline.section_end(number)
    if each.do == "delete":
        return _deletion(outline, heading.start, end)
    assert each.text is not None  # noqa: S101 - see Edit
    if each.do == "insert":
        return _insert_under(outline, number, each.text)
    start = heading.end + _blank_lines(outline.flat, heading.end, end)
    if start >= end:
        return _insert_at(outline, heading.end, each.text)
    last = _text_end(outline.flat, start, end)
    if not each.text.strip():
        return _deletion(outline, start, last)
    return _Splice(
        start, last, each.text, blank_after=_needs_blank(outline, last, each.text)
    )


def _insert_under(outline: Outline, number: int, text: str) -> _Splice:
    """Behind the last line of the heading's own text, before any heading below it."""
    start = outline.headings[number].end
    return _insert_at(
        outline, _text_end(outline.flat, start, outline.text_end(number)), text
    )


def _insert_at(outline: Outline, place: int, text: str) -> _Splice:
    above = _line_before(outline, place)
    apart = (
        _would_join(above, text)
        and not text.startswith("\n")
        and not outline.is_hidden(place - len(above) - 1)
    )
    return _Splice(
        place,
        place,
        text,
        blank_before=apart,
        blank_after=_needs_blank(outline, place, text),
    )


def _would_join(above: str, text: str) -> bool:
    """Whether the text would make something else of the line above it, or become a part of a table or a quote."""
    if _UNDERLINE.match(text):
        return _is_text(above)
    if _WITH_ID.search(above):  # it is an id only where its paragraph ends
        return not (_is_item(above) and _is_item(text))
    mark = above.lstrip()[:1]
    return mark in ("|", ">") and not text.lstrip().startswith(mark)


def _needs_blank(outline: Outline, place: int, text: str) -> bool:
    """Whether a blank line has to follow a text here, so that what stands behind it stays what it is."""
    _demand_closed(outline, place, text)
    follows = outline.flat[place : line_end(outline.flat, place)]
    return _is_text(follows) and (leaves_open(text) or _is_underlined(outline, place))


def _demand_closed(outline: Outline, place: int, text: str) -> None:
    if _VISIBLE.search(outline.flat, place) and leaves_open(f"{text}\n\n"):
        raise InvalidInput(
            "The text opens code or a comment and does not close it.",
            hint="Close it: else what follows in the note would become a part of it.",
        )


def _deletion(outline: Outline, start: int, end: int) -> _Splice:
    joins = _is_underlined(outline, end) and _is_text(_line_before(outline, start))
    return _Splice(start, end, None, blank_after=joins)


def _is_underlined(outline: Outline, place: int) -> bool:
    """Whether a heading begins here that would take the line above it for its own: one with a line below it."""
    if place == len(outline.flat) or not any(
        each.start == place for each in outline.headings
    ):
        return False
    return not outline.flat[place : line_end(outline.flat, place)].lstrip().startswith("#")


def _line_before(outline: Outline, place: int) -> str:
    """The line above this place, or the unfinished one before it."""
    flat = outline.flat
    end = place
    if flat[place - 1 : place] == "\n":
        end -= 1
    start = max(line_start(flat, end), outline.body)
    return flat[start:end]


def _is_text(line: str) -> bool:
    return bool(line.strip())


def _is_item(text: str) -> bool:
    return _MARKER.match(text.lstrip(" \t")) is not None


def _blank_lines(flat: str, start: int, end: int) -> int:
    """How many characters the blank lines at the start take."""
    text = flat[start:end]
    blank = len(text) - len(text.lstrip(" \t\n"))
    if blank == len(text):
        return blank
    return text.rfind("\n", 0, blank) + 1


def _text_end(flat: str, start: int, end: int) -> int:
    """Behind the last line that is not blank."""
    text = flat[start:end].rstrip(" \t\n")
    if not text:
        return start
    return min(end, line_end(flat, start + len(text)))


# A block with an id.


def _splice_block(outline: Outline, block: _Block, each: Edit) -> _Splice:
    flat = outline.flat
    name = block.id
    if each.do == "delete":
        return _deletion(outline, block.start, block.end)
    text = each.text or ""
    _demand_closed(outline, block.end, text)
    if block.quote:
        return _splice_quoted(outline, block, text, each.do)
    is_item = block.prefix is not None and _is_item(text)
    if each.do == "replace":
        return _Splice(block.start, block.text_end, _as_block(block, name, text))
    if is_item and not text.startswith((" ", "\t")):
        indent = outline.text[block.start : block.start + _blanks(flat, block.start)]
        text = "\n".join(indent + line if line else line for line in text.split("\n"))
    follows = flat[block.end : line_end(flat, block.end)]
    before = not is_item and not text.startswith("\n")
    return _Splice(
        block.end, block.end, text, before, blank_after=not is_item and _is_text(follows)
    )


def _splice_quoted(
    outline: Outline, block: _Block, text: str, do: Literal["insert", "replace"]
) -> _Splice:
    """The text with the marks of the quote before each line, unless it has marks of its own."""
    flat = outline.flat
    is_marked = text.lstrip().startswith(">")
    if do == "replace":
        prefix = None if is_marked else block.prefix
        text = _as_block(dataclasses.replace(block, prefix=prefix), block.id, text)
    text = text.rstrip("\n")
    if not is_marked:
        text = "\n".join(f"{block.quote}{line}".rstrip(" ") for line in text.split("\n"))
    if do == "replace":
        return _Splice(block.start, block.text_end, text)
    if block.prefix is None or not _is_item(text[len(block.quote) :]):
        blank = block.quote.rstrip()
        following = _quoted(flat, block.end)
        text = f"{blank}\n{text}"
        if following and following[1].strip():
            text += f"\n{blank}"
    return _Splice(block.end, block.end, text)


def _as_block(block: _Block, name: str, text: str) -> str:
    """The text in the block's place, with the id so that links to it go on working."""
    if block.heading_mark and not _HEADING_MARK.match(text):
        text = block.heading_mark + text.lstrip(" \t")
    if block.prefix is not None:
        indent = block.prefix[: len(block.prefix) - len(block.prefix.lstrip(" \t"))]
        text = (indent if _is_item(text) else block.prefix) + text.lstrip(" \t")
    if block.id_is_apart or re.search(rf"(?:^|[ \t])\^{name}[ \t]*$", text, re.MULTILINE):
        return text
    ending = text[len(text.rstrip("\n")) :]
    text = text.rstrip("\n")
    if block.prefix is not None:
        first, end, rest = text.partition("\n")
        return f"{first} ^{name}{end}{rest}{ending}"
    if text.rpartition("\n")[2].lstrip().startswith(("|", "`", "~")):
        return f"{text}\n\n^{name}{ending}"
    return f"{text} ^{name}{ending}"


def _find_block(outline: Outline, name: str) -> _Block:
    # Ids differ by more than case, as in Obsidian; which of them is meant by the very letters is tried first.
    places = [*_places_of_id(outline, name)] or [
        at for each, at in block_ids(outline) if same(each, name)
    ]
    if not places:
        raise NotFound(
            f"There is no block ^{printable(name)}.",
            hint="get_outline lists the block ids.",
            block=printable(name),
        )
    if len(places) > 1:
        raise _ambiguous(outline, "block", f"^{name}", places)
    return _block_at(outline, places[0])


def block_ids(outline: Outline) -> Iterator[tuple[str, int]]:
    """The id of every block, and where it stands."""
    for found in _ANY_ID.finditer("\n" + outline.flat, outline.body):
        place = found.start("id") - 2
        if not outline.is_hidden(place):
            yield found["id"], place


def _places_of_id(outline: Outline, name: str) -> Iterator[int]:
    flat = outline.flat
    at = flat.find(f"^{name}", outline.body)
    while at >= 0:
        rest = flat[at + 1 + len(name) : line_end(flat, at)]
        if (
            name
            and not rest.strip()
            and flat[at - 1 : at] in ("", " ", "\t", "\n")
            and not outline.is_hidden(at)
        ):
            yield at
        at = flat.find(f"^{name}", at + 1)


def _block_at(outline: Outline, place: int) -> _Block:
    """The block whose id stands at this place."""
    flat = outline.flat
    start = line_start(flat, place)
    end = line_end(flat, place)
    name = flat[place + 1 : end].strip()
    if quoted := _quoted(flat, start):
        return _quoted_block(outline, place, quoted[0])
    if not flat[start:place].strip():
        last = outline.body + len(flat[outline.body : start].rstrip(" \t\n"))
        if last == outline.body:
            return _Block(name, start, end, end)
        text_end = line_end(flat, last)
        beginning = _paragraph_start(outline, line_start(flat, last), whole=True)
        return _Block(name, beginning, text_end, end, id_is_apart=True)
    first = _paragraph_start(outline, start, whole=False)
    line = flat[first:end]
    content = item_content(line.partition("\n")[0])
    if content is None:
        mark = (
            _HEADING_MARK.match(line)
            if first in {each.start for each in outline.headings}
            else None
        )
        return _Block(name, first, end, end, heading_mark=mark and mark[0])
    marker = _MARKER.match(line, _blanks(flat, first))
    prefix = outline.text[
        first : first + (marker.end() if marker else _blanks(flat, first))
    ]
    return _Block(name, first, end, _item_end(flat, end, content), prefix)


def _quoted(flat: str, start: int) -> tuple[str, str] | None:
    """The marks of a quote at the beginning of this line, and what stands behind them."""
    end = line_end(flat, start)
    marks = _QUOTE.match(flat, start, end)
    return marks and (marks[0], flat[marks.end() : end])


def _quoted_block(outline: Outline, place: int, marks: str) -> _Block:
    """The paragraph or the item with an id in a quote: the quote's other lines are not its own."""
    flat = outline.flat
    name = flat[place + 1 : line_end(flat, place)].strip()
    start = line_start(flat, place)
    end = text_end = line_end(flat, place)
    is_apart = place == start + len(marks)
    first = None if is_apart else start
    for above, _ in lines_above(flat, start, outline.body):
        found = _quoted(flat, above)
        if (
            found is None
            or found[0].count(">") != marks.count(">")
            or _CALLOUT_OR_HEADING.match(found[1])
            or (first is not None and (not found[1].strip() or _is_item_at(flat, first)))
        ):
            break
        if found[1].strip():
            if first is None:
                text_end = line_end(flat, above)
            first = above
    if first is None:
        return _Block(name, start, end, end, quote=marks)
    _, line = _quoted(flat, first) or ("", "")
    content = item_content(line.rstrip("\n"))
    if content is None:
        return _Block(name, first, text_end, end, id_is_apart=is_apart, quote=marks)
    marker = _MARKER.match(line, len(line) - len(line.lstrip(" \t")))
    return _Block(
        name,
        first,
        text_end,
        _quoted_item_end(flat, end, marks, content),
        line[: marker.end()] if marker else "",
        id_is_apart=is_apart,
        quote=marks,
    )


def _is_item_at(flat: str, start: int) -> bool:
    found = _quoted(flat, start)
    return found is not None and _is_item(found[1])


def _quoted_item_end(flat: str, place: int, marks: str, content: int) -> int:
    """As of an item outside of a quote, with all that belongs to it."""
    end = place
    while (found := _quoted(flat, place)) and found[0].count(">") == marks.count(">"):
        place = line_end(flat, place)
        if found[1].strip():
            if indentation(found[1]) < content:
                break
            end = place
    return end


def _paragraph_start(outline: Outline, start: int, *, whole: bool) -> int:
    """Where the block with this line begins: a paragraph, a list item, or with `whole` all
    lines without a blank."""
    flat = outline.flat
    hidden = next((span for span in outline.hidden if span[0] <= start < span[1]), None)
    if hidden:
        return hidden[0]
    headings = {each.start for each in outline.headings}
    line = flat[start : line_end(flat, start)]
    for above, text in lines_above(flat, start, outline.body):
        ends_here = start in headings or (
            not whole and item_content(line.rstrip("\n")) is not None
        )
        if ends_here or not text.strip() or above in headings or outline.is_hidden(above):
            break
        start = above
        line = text
    return start


def _item_end(flat: str, place: int, content: int) -> int:
    """Where the list item ends whose text is indented so far, with all that belongs to it."""
    end = place
    while place < len(flat):
        following = line_end(flat, place)
        line = flat[place:following]
        if line.strip():
            if indentation(line) < content:
                break
            end = following
        place = following
    return end


def _blanks(flat: str, start: int) -> int:
    line = flat[start : line_end(flat, start)]
    return len(line) - len(line.lstrip(" \t"))


# Lines.


def _splice_lines(outline: Outline, each: Edit) -> _Splice:
    assert each.lines  # noqa: S101 - see Edit
    assert each.expect is not None  # noqa: S101
    first, last = each.lines
    flat = outline.flat
    start = _start_of(flat, first)
    if start is not None and start < outline.body and _has_properties(outline):
        raise InvalidInput(
            f"The properties reach as far as line {outline.line_of(outline.body - 1)}.",
            hint="Edit them by their key.",
            fields=[FieldProblem("lines", "is in the frontmatter", f"{first}-{last}")],
        )
    end = start
    if start is not None:
        end = _start_of(flat, last + 1) or (
            len(flat) if _start_of(flat, last) is not None else None
        )
    if (
        start is None
        or end is None
        or _plain(outline.text[start:end]) != _plain(each.expect)
    ):
        raise _unexpected(outline, each.expect, first, last)
    match each.do:
        case "insert":
            return _Splice(end, end, each.text)
        case "replace":
            return _Splice(start, end, each.text)
        case "delete":
            return _Splice(start, end, None)


def _start_of(flat: str, number: int) -> int | None:
    """Where a line begins; None behind the last one."""
    parts = flat.split("\n", number - 1)
    if len(parts) < number or (not parts[-1] and number > 1):
        return None
    return len(flat) - len(parts[-1])


def _unexpected(outline: Outline, expect: str, first: int, last: int) -> Changed:
    """Says where the expected text stands, if it stands in one place."""
    text = f"\n{_plain(outline.text)}\n"
    wanted = f"\n{_plain(expect)}\n"
    at = text.find(wanted)
    hint = "Read the note again, then decide."
    details: dict[str, Any] = {}
    if expect.strip() and at >= 0 and text.find(wanted, at + 1) < 0:
        line = text.count("\n", 0, at) + 1
        details["lines"] = [line, line + wanted.count("\n") - 2]
        hint = f"The expected text stands in lines {line}-{details['lines'][1]}."
    return Changed(
        f"Lines {first}-{last} do not say what was expected.", hint=hint, **details
    )


def _plain(text: str) -> str:
    """For comparing: whoever repeats a text leaves out blanks at the ends of lines, and
    writes accents in one way."""
    text = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n")
    return _BLANK_ENDS.sub("", text).removesuffix("\n")


# Putting it together.


def _apply(
    outline: Outline, splices: Sequence[_Splice]
) -> tuple[str, list[tuple[int, int]]]:
    """The new text, and for each splice where it stands there, counted from the end."""
    text = outline.text
    made: list[str] = []
    length = 0
    ends: dict[int, tuple[int, int]] = {}
    place = 0
    for number in sorted(
        range(len(splices)), key=lambda number: (splices[number].start, splices[number].end)
    ):
        each = splices[number]
        if each.start < place or _is_under_removed(each, splices):
            raise InvalidInput(
                "Two edits are for the same place.", hint="Make one of them.", edit=number
            )
        made.append(text[place : each.start])
        made_so_far = next((part for part in reversed(made) if part), "")
        new = _lines_for(text, each, made_so_far)
        length += each.start - place
        ends[number] = (length, length + len(new))
        made.append(new)
        length += len(new)
        place = each.end
    made.append(text[place:])
    length += len(text) - place
    changed = "".join(made)
    if not _has_properties(outline) and frontmatter.split(changed)[0] is not None:
        raise InvalidInput(
            "With this text, the note's beginning would become properties.",
            hint="Leave out the --- line.",
        )
    return changed, [
        (length - start, length - end)
        for start, end in (ends[number] for number in range(len(splices)))
    ]


def _is_under_removed(each: _Splice, splices: Sequence[_Splice]) -> bool:
    """Whether it adds to something that another edit takes away: the text would stand under something else."""
    named = each.named
    return (
        named is not None
        and each.start == each.end
        and any(other.start <= named < other.end for other in splices)
    )


def _has_properties(outline: Outline) -> bool:
    return outline.body > 1  # alone, a byte order mark is one


def _lines_for(text: str, each: _Splice, before: str) -> str:
    """What goes into the place: whole lines with the line ends of the neighbours."""
    newline = _newline_at(text, each.start)
    if each.text is None:
        return newline if each.blank_after else ""
    new = each.text
    if "\r" not in new:
        new = new.replace("\n", newline)
    at_the_end = each.end == len(text)
    if not new.endswith(("\n", "\r")) and not (
        at_the_end and text and not text.endswith(("\n", "\r"))
    ):
        new += newline
    if each.blank_after:
        new += newline
    if each.blank_before:
        new = newline + new
    if before and not before.endswith(("\n", "\r")):
        new = newline + new
    return new


def _newline_at(text: str, place: int) -> str:
    """The line end of the line above, else of the first one below."""
    last = max(text.rfind("\n", 0, place), text.rfind("\r", 0, place))
    if text[last - 1 : last + 1] == "\r\n":
        last -= 1
    found = _LINE_END.search(text, max(0, last))
    return found[0] if found else "\n"


def _line_ranges(text: str, places: Sequence[tuple[int, int]]) -> Iterator[str]:
    flat = flatten(text)
    for from_end, to_end in places:
        new = flat[len(flat) - from_end : len(flat) - to_end]
        first = flat.count("\n", 0, len(flat) - from_end) + 1
        text = new.strip(" \t\n")
        first += new.partition(text)[0].count("\n") if text else 0
        last = first + text.count("\n")
        yield str(first) if first == last else f"{first}-{last}"
