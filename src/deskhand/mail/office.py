"""The texts of Word, Excel and PowerPoint files as a person sees them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from deskhand.mail.archive import Archive, Attributes, NoText, Pieces, Warn

MOST_COLUMNS = 200
FIRST_DAY = datetime(1899, 12, 30)  # noqa: DTZ001 - a cell knows no zone
LATER_FIRST_DAY = datetime(1904, 1, 1)  # noqa: DTZ001 - as above
"""From which the days of a spreadsheet are counted."""
_DATES = frozenset((*range(14, 23), *range(45, 48)))
"""The number formats of a spreadsheet that every program takes for dates."""
_QUOTED = re.compile(r'"[^"]*"|\[[^\[\]]*\]')
_FORMATS = re.compile(r"[ymdhs]")


def read_office(archive: Archive, warn: Warn) -> Pieces:
    main = find_main_part(archive)
    match main.partition("/")[0]:
        case "word":
            return read_word(archive, main, warn)
        case "xl" if main.endswith(".bin"):
            from deskhand.mail.binary_sheets import read_binary_excel

            return read_binary_excel(archive, main, warn)
        case "xl":
            return read_excel(archive, main, warn)
        case "ppt":
            return read_slides(archive, main, warn)
    raise NoText(
        f"It is an archive of {len(archive.names)} files, not a document; it was not unpacked."
    )


def find_main_part(archive: Archive) -> str:
    """Where the document itself stands; not every program gives that part its usual name."""
    usual = (
        "word/document.xml",
        "xl/workbook.xml",
        "xl/workbook.bin",
        "ppt/presentation.xml",
    )
    linked = [
        target for kind, target in archive.links("").values() if kind == "officeDocument"
    ]
    return next((name for name in (*linked, *usual) if name in archive.names), "")


# Word


def read_word(archive: Archive, main: str, warn: Warn) -> Pieces:
    notes = archive.matching(r"word/(?:header|footer|footnotes|endnotes|comments)\d*\.xml")
    unseen_styles = _find_unseen_styles(archive)
    hidden = 0
    for name in [main, *notes]:
        reading = False
        cells = 0
        for event, what, is_hidden in _walk_runs(archive, name, unseen_styles):
            match event, what:
                case ("start" | "end", "t"):
                    reading = event == "start"
                case ("start" | "end", "tc"):
                    cells += 1 if event == "start" else -1
                case ("text", _) if reading and is_hidden:
                    hidden += len(what)
                case ("text", _) if reading:
                    yield what
            yield _find_break(event, what, in_cell=cells > 0)
    if hidden:
        warn(f"hidden text was removed: {hidden:,} characters")


def _walk_runs(
    archive: Archive, name: str, unseen_styles: set[str]
) -> Iterator[tuple[str, str, bool]]:
    """What stands in a part, and whether it is hidden there."""
    in_hidden = is_hidden = False
    for event, what, attributes in archive.walk(name):
        match event, what:
            case ("start", "p"):
                in_hidden = False
            case ("start", "pStyle"):
                in_hidden = attributes.get("val", "") in unseen_styles
            case ("start", "r"):
                is_hidden = in_hidden
            case ("start", "rStyle") if attributes.get("val", "") in unseen_styles:
                is_hidden = True
            case ("start", "vanish"):
                is_hidden = _is_on(attributes)
        yield event, what, is_hidden


def _find_unseen_styles(archive: Archive) -> set[str]:
    """The styles that hide what is written in them, and those that are made from one of them."""
    found: set[str] = set()
    style = ""
    for event, what, attributes in archive.walk_if("word/styles.xml"):
        match event, what:
            case "start", "style":
                style = attributes.get("styleId", "")
            case "start", "basedOn" if attributes.get("val", "") in found:
                found.add(style)
            case "start", "vanish" if _is_on(attributes):
                found.add(style)
            case "start", "vanish":
                found.discard(style)
    return found


def _is_on(attributes: Attributes) -> bool:
    return attributes.get("val") not in ("0", "false", "off")


def _find_break(event: str, what: str, *, in_cell: bool) -> str:
    match event, what:
        case ("start", "tab" | "ptab") | ("end", "tc"):
            return "\t"
        case ("start", "noBreakHyphen"):
            return "-"
        case ("end", "p") if in_cell:
            return " "
        case ("end", "p" | "tr") | ("start", "br" | "cr"):
            return "\n"
        case _:
            return ""


# PowerPoint


def read_slides(archive: Archive, main: str, warn: Warn) -> Pieces:
    """In the order in which they are shown; then what the speaker noted on each."""
    slides = _find_slides(archive, main)
    number_of: dict[str, int] = {}
    for number, name in enumerate(slides, 1):
        yield f"## Slide {number}\n"
        yield from _read_runs(archive, name)
        if _is_unshown(archive, name):
            warn(f"slide {number} is hidden in the document")
        number_of |= {
            target: number
            for kind, target in archive.links(name).values()
            if kind == "notesSlide"
        }
    notes = archive.matching(r"ppt/notesSlides/notesSlide\d+\.xml")
    for place, name in sorted(
        enumerate(notes, 1), key=lambda each: number_of.get(each[1], each[0])
    ):
        yield f"## Notes {number_of.get(name, place)}\n"
        yield from _read_runs(archive, name)


def _find_slides(archive: Archive, main: str) -> list[str]:
    links = archive.links(main)
    shown = [
        given.get("id", "")
        for event, what, given in archive.walk(main)
        if (event, what) == ("start", "sldId")
    ]
    found = [links[each][1] for each in shown if each in links]
    return [name for name in found if name in archive.names] or archive.matching(
        r"ppt/slides/slide\d+\.xml"
    )


def _is_unshown(archive: Archive, name: str) -> bool:
    _, _, given = next(archive.walk(name))
    return given.get("show") in ("0", "false")


def _read_runs(archive: Archive, name: str) -> Pieces:
    reading = False
    for event, what, _ in archive.walk(name):
        match event, what:
            case (("start" | "end"), "t"):
                reading = event == "start"
            case "text", _ if reading:
                yield what
            case ("end", "p") | ("start", "br"):
                yield "\n"
            case "end", "tc":
                yield "\t"
    yield "\n"


# Excel


@dataclass
class Workbook:
    strings: list[str] = field(default_factory=list)
    """The texts that cells refer to by number."""
    dates: list[bool] = field(default_factory=list)
    """Of each style of cells whether it shows a number as a date."""
    first_day: datetime = FIRST_DAY


def read_excel(archive: Archive, main: str, warn: Warn) -> Pieces:
    book = Workbook(list(_read_strings(archive)), _find_dates(archive))
    links = archive.links(main)
    for event, what, given in archive.walk(main):
        if (event, what) == ("start", "workbookPr") and given.get("date1904") in (
            "1",
            "true",
        ):
            book.first_day = LATER_FIRST_DAY
        if (event, what) != ("start", "sheet"):
            continue
        if given.get("state", "visible") != "visible":
            warn(f"the sheet {given.get('name', '')!r} is hidden in the document")
        _, target = links.get(given.get("id", ""), ("", ""))
        yield f"## {given.get('name', '')}\n"
        for row in _read_rows(archive, target, book):
            yield "\t".join(row) + "\n"
        yield "\n"
    for name in archive.matching(r"xl/(?:comments/?(?:comment)?|drawings/drawing)\d+\.xml"):
        yield from filter(str.strip, _read_runs(archive, name))


def _read_strings(archive: Archive) -> Iterator[str]:
    """Without how they are pronounced."""
    text = ""
    reading = phonetic = False
    for event, what, _ in archive.walk_if("xl/sharedStrings.xml"):
        match event, what:
            case (("start" | "end"), "rPh"):
                phonetic = event == "start"
            case (("start" | "end"), "t"):
                reading = event == "start" and not phonetic
            case "text", _ if reading:
                text += what
            case "end", "si":
                yield text
                text = ""


def _find_dates(archive: Archive) -> list[bool]:
    own: set[str] = set()
    styles: list[bool] = []
    inside = False
    for event, what, given in archive.walk_if("xl/styles.xml"):
        match event, what:
            case "start", "numFmt" if is_date_format(given.get("formatCode", "")):
                own.add(given.get("numFmtId", ""))
            case (("start" | "end"), "cellXfs"):
                inside = event == "start"
            case "start", "xf" if inside:
                number = given.get("numFmtId", "0")
                styles.append(number in own or is_date_format(_whole_number(number)))
    return styles


def is_date_format(given: int | str) -> bool:
    """By its number, or by how it is written."""
    if isinstance(given, int):
        return given in _DATES
    return _FORMATS.search(_QUOTED.sub("", given[:500])) is not None


def _read_rows(archive: Archive, name: str, book: Workbook) -> Iterator[list[str]]:
    row: list[str] = []
    cell: Attributes = {}
    value = formula = reading = ""
    for event, what, given in archive.walk_if(name):
        match event, what:
            case "start", "row":
                row = []
            case "start", "c":
                cell = given
                value = formula = ""
            case (("start" | "end"), ("v" | "t" | "f")):
                reading = what if event == "start" else ""
            case "text", _ if reading == "f":
                formula += what
            case "text", _ if reading:
                value += what
            case "end", "c":
                shown = _show_cell(cell, value, book) or (formula and f"={formula}")
                put_cell(row, _column(cell.get("r", ""), len(row)), shown)
            case "end", "row" if any(row):
                yield row


def put_cell(row: list[str], place: int, shown: str) -> None:
    """Put a cell at its place in a row; those beyond MOST_COLUMNS just follow, without empty ones between."""
    if place < MOST_COLUMNS:
        row += [""] * (place - len(row))
        row.append(shown)
    elif shown:
        row.append(shown)


def _column(name: str, following: int) -> int:
    """The place of a cell in its row: A1 is 0. Without a name it is the next one."""
    letters = re.match(r"[A-Z]{1,3}", name)
    if letters is None:
        return following
    place = 0
    for letter in letters[0]:
        place = place * 26 + ord(letter) - 64
    return max(place - 1, following)


def _show_cell(cell: Attributes, value: str, book: Workbook) -> str:
    style = _whole_number(cell.get("s", ""))
    match cell.get("t", "n"):
        case "s":
            number = _whole_number(value)
            return "".join(book.strings[number : number + 1]) if number >= 0 else value
        case "b":
            return {"0": "FALSE", "1": "TRUE"}.get(value, value)
        case "n" if style >= 0 and any(book.dates[style : style + 1]):
            return show_date(value, book.first_day)
        case _:
            return " ".join(value.split())


def _whole_number(text: str) -> int:
    """Of its digits; -1 where it is none, or one that no document can mean."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else -1


def show_date(value: str, first_day: datetime) -> str:
    """Less than a day is a time."""
    try:
        moment = first_day + timedelta(seconds=round(float(value) * 86_400))
    except (ValueError, OverflowError):
        return value
    if 0 < float(value) < 1:
        return moment.time().isoformat()
    return moment.isoformat(" ").removesuffix(" 00:00:00")
