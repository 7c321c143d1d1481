"""The cells of Excel files whose parts are binary (.xlsb)."""

import struct
from collections.abc import Iterator
from enum import IntEnum

from deskhand.mail.archive import Archive, NoText, Pieces, Warn
from deskhand.mail.office import (
    LATER_FIRST_DAY,
    Workbook,
    is_date_format,
    put_cell,
    show_date,
)


class BinaryRecord(IntEnum):
    """The kinds of records that are read."""

    ROW = 0
    SMALL_NUMBER = 2
    TRUTH = 4
    NUMBER = 5
    TEXT = 6
    SHARED_TEXT = 7
    FORMULA_TEXT = 8
    FORMULA_NUMBER = 9
    FORMULA_TRUTH = 10
    SHARED = 19
    FORMAT = 44
    STYLE = 47
    BOOK = 153
    SHEET = 156
    CELL_STYLES = 617
    CELL_STYLES_END = 618


def read_binary_excel(archive: Archive, main: str, warn: Warn) -> Pieces:
    try:
        yield from _read_book(archive, main, warn)
    except (struct.error, IndexError) as error:
        raise NoText("The document is damaged: a part of it ends too early.") from error


def _read_book(archive: Archive, main: str, warn: Warn) -> Pieces:
    texts = _walk(archive, "xl/sharedStrings.bin")
    strings = [_text(data, 1)[0] for kind, data in texts if kind == BinaryRecord.SHARED]
    book = Workbook(strings, _find_dates(archive))
    links = archive.links(main)
    for kind, data in _walk(archive, main):
        if kind == BinaryRecord.BOOK and data[0] & 1:
            book.first_day = LATER_FIRST_DAY
        if kind != BinaryRecord.SHEET:
            continue
        linked, end = _text(data, 8)
        name, _ = _text(data, end)
        if data[0]:
            warn(f"the sheet {name!r} is hidden in the document")
        yield f"## {name}\n"
        for row in _read_rows(archive, links.get(linked, ("", ""))[1], book):
            yield "\t".join(row) + "\n"
        yield "\n"


def _find_dates(archive: Archive) -> list[bool]:
    own: set[int] = set()
    styles: list[bool] = []
    is_of_cells = False
    for kind, data in _walk(archive, "xl/styles.bin"):
        match kind:
            case BinaryRecord.FORMAT:
                (number,) = struct.unpack_from("<H", data)
                if is_date_format(_text(data, 2)[0]):
                    own.add(number)
            case BinaryRecord.CELL_STYLES | BinaryRecord.CELL_STYLES_END:
                is_of_cells = kind == BinaryRecord.CELL_STYLES
            case BinaryRecord.STYLE if is_of_cells:
                (number,) = struct.unpack_from("<H", data, 2)
                styles.append(number in own or is_date_format(number))
    return styles


def _read_rows(archive: Archive, name: str, book: Workbook) -> Iterator[list[str]]:
    row: list[str] = []
    for kind, data in _walk(archive, name):
        if kind == BinaryRecord.ROW:
            if any(row):
                yield row
            row = []
            continue
        shown = _show_cell(kind, data, book)
        if not shown:
            continue
        (place,) = struct.unpack_from("<I", data)
        if len(row) <= place:
            put_cell(row, place, shown)
    if any(row):
        yield row


def _show_cell(kind: int, data: bytes, book: Workbook) -> str:
    match kind:
        case BinaryRecord.SMALL_NUMBER:
            return _show_number(data, _small_number(data), book)
        case BinaryRecord.NUMBER | BinaryRecord.FORMULA_NUMBER:
            return _show_number(data, struct.unpack_from("<d", data, 8)[0], book)
        case BinaryRecord.TRUTH | BinaryRecord.FORMULA_TRUTH:
            return str(bool(data[8])).upper()
        case BinaryRecord.TEXT | BinaryRecord.FORMULA_TEXT:
            return " ".join(_text(data, 8)[0].split())
        case BinaryRecord.SHARED_TEXT:
            (number,) = struct.unpack_from("<I", data, 8)
            return "".join(book.strings[number : number + 1])
    return ""


def _small_number(data: bytes) -> float:
    """Thirty bits: a whole number, or the first half of one with a point; perhaps hundredths."""
    (packed,) = struct.unpack_from("<i", data, 8)
    if packed & 2:
        number = float(packed >> 2)
    else:
        (number,) = struct.unpack("<d", struct.pack("<iI", 0, packed & 0xFFFFFFFC))
    return number / 100 if packed & 1 else number


def _show_number(data: bytes, number: float, book: Workbook) -> str:
    style = int.from_bytes(data[4:7], "little")
    if any(book.dates[style : style + 1]):
        return show_date(str(number), book.first_day)
    return f"{number:.15g}"


def _text(data: bytes, at: int) -> tuple[str, int]:
    """A text and where it ends."""
    (length,) = struct.unpack_from("<I", data, at)
    end = at + 4 + 2 * length
    return data[at + 4 : end].decode("utf-16-le", "replace"), end


def _walk(archive: Archive, name: str) -> Iterator[tuple[int, bytes]]:
    if name not in archive.names:
        return
    content = archive.read(name)
    at = 0
    while at < len(content):
        kind, at = _variable(content, at, 2)
        length, at = _variable(content, at, 4)
        yield kind, content[at : at + length]
        at += length


def _variable(content: bytes, at: int, longest: int) -> tuple[int, int]:
    """Seven bits a byte; the eighth says that there is another."""
    number = 0
    for place in range(longest):
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return number, at
