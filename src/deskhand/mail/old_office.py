"""The texts of Word, Excel and PowerPoint files of before 2007."""

import re
import struct
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from enum import IntEnum
from io import StringIO
from typing import TYPE_CHECKING

from deskhand.mail.archive import NoText, Pieces, Warn
from deskhand.mail.office import FIRST_DAY, LATER_FIRST_DAY, put_cell, show_date

if TYPE_CHECKING:
    import xlrd

_UNREAD = "It is an Office document of the kind before 2007 that cannot be read here."
_CLOSED = "The document is encrypted with a password."

_PIECES = 0x01A2
"""Where the head of a Word file says in which order its pieces stand."""
_LOOKS = 0x00FA
"""Where it says how its letters look."""
_DELETED = 0x0800
_VANISHES = 0x083C
_SIZES = {0: 1, 1: 1, 2: 2, 3: 4, 4: 2, 5: 2, 7: 3}
"""How many bytes follow a change of looks, by its kind; where none is named the next byte says it."""
_NARROW = 1 << 30
"""Of a piece: its letters are one byte each."""
_SIGNS = str.maketrans("\r\x0b\x0c\x07\x1e", "\n\n\n\t-")
_FIELD = re.compile(r"\x13[^\x13\x14\x15]*+\x14?")
"""What a field reckons; behind it stands what it shows."""
_DAMAGES = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, OSError),
    *(RuntimeError, AssertionError, struct.error),
)
"""What a library raises where a file is not as it should be."""


class Record(IntEnum):
    """What stands in a PowerPoint file."""

    SLIDE = 1006
    NOTES = 1008
    LISTED_SLIDE = 1011
    MASTER = 1016
    WIDE_TEXT = 4000
    NARROW_TEXT = 4008
    HANDOUT = 4041
    LIST = 4080


def read_old_office(content: bytes, warn: Warn) -> Pieces:
    try:
        import xlrd
    except ImportError:
        raise NoText(
            "Reading Office files of before 2007 needs xlrd: pip install 'deskhand[documents]'"
        ) from None
    from xlrd import compdoc

    if "EncryptedPackage".encode("utf-16-le") in content:
        raise NoText(_CLOSED)
    damages = (xlrd.XLRDError, compdoc.CompDocError, *_DAMAGES)
    try:
        yield from _read_parts(compdoc.CompDoc(content, logfile=StringIO()), content, warn)
    except damages as error:
        if "encrypted" in str(error):
            raise NoText(_CLOSED) from error
        raise NoText(
            f"The document is damaged or uses what cannot be read ({type(error).__name__})."
        ) from error


def _read_parts(parts: "xlrd.compdoc.CompDoc", content: bytes, warn: Warn) -> Pieces:
    if word := parts.get_named_stream("WordDocument"):
        which = struct.unpack_from("<H", word, 10)[0]
        if which & 0x0100:
            raise NoText(_CLOSED)
        table = parts.get_named_stream("1Table" if which & 0x0200 else "0Table")
        return _read_word(word, table or b"", warn)
    if slides := parts.get_named_stream("PowerPoint Document"):
        return _read_slides(slides)
    if parts.locate_named_stream("Workbook")[0] or parts.locate_named_stream("Book")[0]:
        return _read_sheets(content, warn)
    raise NoText(_UNREAD)


def _read_word(word: bytes, table: bytes, warn: Warn) -> Pieces:
    seen = bytearray(word)
    for start, end in _find_hidden(word, table):
        seen[start:end] = bytes(len(seen[start:end]))
    start, length = struct.unpack_from("<II", word, _PIECES)
    described = table[start : start + length]
    at = 0
    while described[at : at + 1] == b"\x01":  # how pieces look, not where they are
        at += 3 + struct.unpack_from("<H", described, at + 1)[0]
    if described[at : at + 1] != b"\x02":
        raise NoText(_UNREAD)
    described = described[at + 5 :]
    count = (len(described) - 4) // 12
    places = struct.unpack_from(f"<{count + 1}I", described)
    text = ""
    for number in range(count):
        (place,) = struct.unpack_from("<I", described, 4 * (count + 1) + 8 * number + 2)
        size = places[number + 1] - places[number]
        if place & _NARROW:
            place = (place & ~_NARROW) // 2
            text += seen[place : place + size].decode("cp1252", "replace")
        else:
            text += seen[place : place + 2 * size].decode("utf-16-le", "replace")
    if hidden := text.count("\0"):
        warn(f"hidden text was removed: {hidden:,} characters")
    shown = _FIELD.sub("", text).replace("\x07\x07", "\t\n")
    yield shown.translate(_SIGNS)


def _find_hidden(word: bytes, table: bytes) -> Iterator[tuple[int, int]]:
    """Where the letters stand that are not shown, or were deleted."""
    start, length = struct.unpack_from("<II", word, _LOOKS)
    listed = table[start : start + length]
    count = max(len(listed) - 4, 0) // 8
    for page in struct.unpack_from(f"<{count}I", listed.ljust(4), 4 * (count + 1)):
        looks = word[512 * (page & 0x3FFFFF) :][:512]
        runs = looks[511]
        places = struct.unpack_from(f"<{runs + 1}I", looks)
        for number in range(runs):
            at = 2 * looks[4 * (runs + 1) + number]
            if at and _hides(looks[at + 1 : at + 1 + looks[at]]):
                yield places[number], places[number + 1]


def _hides(changes: bytes) -> bool:
    is_hidden = False
    at = 0
    while at + 3 <= len(changes):
        (code,) = struct.unpack_from("<H", changes, at)
        size = _SIZES.get(code >> 13) or changes[at + 2] + 1
        if code in (_VANISHES, _DELETED):
            is_hidden = is_hidden or changes[at + 2] in (1, 0x81)
        at += 2 + size
    return is_hidden


def _read_slides(stream: bytes) -> Pieces:
    """The titles of slides stand in a list of their own, their boxes in the slides."""
    numbers = Counter[int]()
    heading = ""
    for kind, data in _walk_records(stream):
        match kind:
            case Record.LIST:
                numbers[Record.LISTED_SLIDE] = 0
            case Record.SLIDE | Record.LISTED_SLIDE:
                numbers[kind] += 1
                heading = f"## Slide {numbers[kind]}\n"
            case Record.NOTES:
                heading = "## Notes\n"
            case Record.WIDE_TEXT | Record.NARROW_TEXT:
                charset = "latin-1" if kind == Record.NARROW_TEXT else "utf-16-le"
                text = data.decode(charset, "replace").replace("\r", "\n")
                if text.strip() not in ("", "*"):  # the sign is where a number will stand
                    yield f"{heading}{text}\n"
                    heading = ""


def _walk_records(stream: bytes) -> Iterator[tuple[int, bytes]]:
    """Each record in its order, those inside of others too, but for what a template says."""
    at = 0
    while at + 8 <= len(stream):
        head, kind, length = struct.unpack_from("<HHI", stream, at)
        at += 8
        if head & 0xF == 0xF and kind not in (Record.MASTER, Record.HANDOUT):
            yield kind, b""  # what is inside comes next
            continue
        yield kind, stream[at : at + length]
        at += length


def _read_sheets(content: bytes, warn: Warn) -> Pieces:
    import xlrd

    book = xlrd.open_workbook(file_contents=content, logfile=StringIO(), on_demand=True)
    first_day = LATER_FIRST_DAY if book.datemode else FIRST_DAY
    for number, name in enumerate(book.sheet_names()):
        sheet = book.sheet_by_index(number)
        if sheet.visibility:
            warn(f"the sheet {name!r} is hidden in the document")
        yield f"## {name}\n"
        for row in range(sheet.nrows):
            cells: list[str] = []
            for place, cell in enumerate(sheet.row(row)):
                put_cell(cells, place, _show_cell(cell, first_day))
            if any(cells):
                yield "\t".join(cells).rstrip() + "\n"
        yield "\n"
        book.unload_sheet(number)


def _show_cell(cell: "xlrd.sheet.Cell", first_day: datetime) -> str:
    import xlrd

    match cell.ctype:
        case xlrd.XL_CELL_DATE:
            return show_date(str(cell.value), first_day)
        case xlrd.XL_CELL_BOOLEAN:
            return str(bool(cell.value)).upper()
        case xlrd.XL_CELL_NUMBER:
            return f"{cell.value:.15g}"
        case xlrd.XL_CELL_ERROR:
            return str(xlrd.error_text_from_code.get(cell.value, "#ERROR"))
    return " ".join(str(cell.value).split())
