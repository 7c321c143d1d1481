"""Attachments of older kinds: rich text, Office files of before 2007, and Excel's binary ones."""

import struct
from collections.abc import Mapping

import pytest

from deskhand.mail import archive
from deskhand.mail.extraction import extract
from tests.mail.test_attachments import packed, read
from tests.requirements import requirement

pytestmark = requirement("attachments:read")

SECTOR = 512
FREE, END, TABLE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD


def compound(streams: Mapping[str, bytes]) -> bytes:
    """A compound file as the old Office programs kept their parts in; each is larger than a small one."""
    table = [TABLE, END]
    entries = [_entry("Root Entry", 5, 1, END, 0)]
    body = b""
    for number, (name, given) in enumerate(streams.items(), 1):
        content = given.ljust(4096, b"\0")
        start = len(table)
        count = -(-len(content) // SECTOR)
        table += [*range(start + 1, start + count), END]
        body += content.ljust(count * SECTOR, b"\0")
        follower = number + 1 if number < len(streams) else FREE
        entries.append(_entry(name, 2, FREE, start, len(content), follower))
    table += [FREE] * (SECTOR // 4 - len(table))
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
    head += struct.pack("<HHHHH6x", 0x3E, 3, 0xFFFE, 9, 6)
    head += struct.pack("<9I", 0, 1, 1, 0, 4096, END, 0, END, 0)
    head += struct.pack("<109I", 0, *[FREE] * 108)
    return (
        head + struct.pack("<128I", *table) + b"".join(entries).ljust(SECTOR, b"\0") + body
    )


def _entry(
    name: str, kind: int, child: int, start: int, size: int, follower: int = FREE
) -> bytes:
    named = name.encode("utf-16-le") + b"\0\0"
    links = struct.pack("<HBBIII", len(named), kind, 1, FREE, follower, child)
    return named.ljust(64, b"\0") + links + bytes(36) + struct.pack("<III", start, size, 0)


def word(
    pieces: list[tuple[bytes, bool]], looks: bytes = b"", flags: int = 0x0200
) -> dict[str, bytes]:
    """Pieces of text, each of narrow or wide letters, with what is said of the first one's looks."""
    stream = bytearray(1024)
    places = [0]
    described = b""
    for content, is_wide in pieces:
        at = len(stream)
        stream += content.ljust(-(-len(content) // SECTOR) * SECTOR, b"\0")
        places.append(places[-1] + len(content) // (2 if is_wide else 1))
        described += struct.pack("<HIH", 0, at if is_wide else at * 2 | 1 << 30, 0)
    order = struct.pack(f"<{len(places)}I", *places) + described
    table = b"\x01\x02\0xx\x02" + struct.pack("<I", len(order)) + order
    page = struct.pack("<II", 1024, 1024 + 6) + bytes([100]) + bytes(191)
    page += bytes([len(looks)]) + looks
    listed = struct.pack("<III", 1024, 1030, len(stream) // SECTOR)
    stream += page.ljust(511, b"\0") + b"\x01"
    struct.pack_into("<H", stream, 10, flags)
    struct.pack_into("<II", stream, 0xFA, len(table), len(listed))
    struct.pack_into("<II", stream, 0x1A2, 0, len(table))
    return {"WordDocument": bytes(stream), "1Table": table + listed}


def record(kind: int, data: bytes, head: int = 0) -> bytes:
    return struct.pack("<HHI", head, kind, len(data)) + data


def biff(kind: int, data: bytes) -> bytes:
    return struct.pack("<HH", kind, len(data)) + data


def book() -> bytes:
    begin = struct.pack("<HH12x", 0x600, 5)
    sheet = biff(0x809, struct.pack("<HH12x", 0x600, 16))
    sheet += biff(0x203, struct.pack("<HHHd", 0, 0, 0, 12.5))
    sheet += biff(
        0x204, struct.pack("<HHHHB", 0, 2, 0, 4, 1) + "Größe"[:4].encode("utf-16-le")
    )
    sheet += biff(0x205, struct.pack("<HHHBB", 1, 0, 0, 1, 0)) + biff(0x0A, b"")
    head = biff(0x809, begin)
    named = struct.pack("<IBBBB", len(head) + 17 + 4, 1, 0, 5, 0) + b"Bills"
    return head + biff(0x85, named) + biff(0x0A, b"") + sheet


def part(kind: int, data: bytes) -> bytes:
    number = bytes([kind]) if kind < 128 else bytes([kind & 0x7F | 0x80, kind >> 7])
    return number + bytes([len(data)]) + data


def wide(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode("utf-16-le")


def cell(kind: int, column: int, data: bytes, style: int = 0) -> bytes:
    return part(kind, struct.pack("<II", column, style) + data)


BINARY_SHEET: dict[str, str | bytes] = {
    "xl/workbook.bin": part(153, struct.pack("<I", 1))
    + part(156, struct.pack("<II", 0, 1) + wide("a") + wide("Bills"))
    + part(156, struct.pack("<II", 1, 2) + wide("none") + wide("Old")),
    "xl/_rels/workbook.bin.rels": "<R><Relationship Id='a' Target='worksheets/sheet1.bin'/></R>",
    "xl/sharedStrings.bin": part(19, b"\0" + wide("Größe")),
    "xl/styles.bin": part(44, struct.pack("<H", 170) + wide("yyyy"))
    + part(617, b"")
    + part(47, struct.pack("<HH", 0, 0))
    + part(47, struct.pack("<HH", 0, 170))
    + part(618, b""),
    "xl/worksheets/sheet1.bin": part(0, b"")
    + cell(7, 0, struct.pack("<I", 0))
    + cell(2, 2, struct.pack("<i", 1234 << 2 | 3))
    + cell(2, 3, struct.pack("<I", 0x3FF80000))
    + part(0, b"")
    + cell(5, 0, struct.pack("<d", 44894.5), style=1)
    + cell(4, 1, b"\x01")
    + cell(8, 2, wide("of  it"))
    + cell(9, 900, struct.pack("<d", 1)),
}


@pytest.mark.parametrize(
    ("source", "text", "warnings"),
    [
        (r"{\rtf1\ansi words}", "words", []),
        (r"{\rtf1 a\par b\tab c\line d\cell e\row}", "a\nb\tc\nd\te\n", []),
        (r"{\rtf1 {\fonttbl{\f0 Arial;}}{\*\generator X;}{\info{\title T}}seen}", "seen", []),
        (r"{\rtf1\ansicpg1251 \'cf\'f0}", "Пр", []),
        (r"{\rtf1{\fonttbl{\f3\fcharset128 M;}}\f3 \'93\'fa}", "日", []),
        (r"{\rtf1\mac \'8a}", "ä", []),
        (r"{\rtf1\uc1 \u8364 ?5 {\uc2\u1055\'cf\'cf}\u-10179 ?\u-8704 ?.}", "€5 П😀.", []),
        (r"{\rtf1 a\~b\_c\{\}\\}", "a b-c{}\\", []),
        (r"{\rtf1 \ldblquote x\rdblquote\emdash y}", "“x”—y", []),
        (
            r"{\rtf1 a{\v hidden}b\v c\v0 d{\deleted gone}}",
            "abd",
            ["hidden text was removed: 11 characters"],
        ),
        (r"{\rtf1 {\shp{\*\shpinst{\sp{\sn n}{\sv v}}{\shptxt box}}} {\*\footnote foot}}", "box foot", []),
        (r"{\rtf1{\field{\*\fldinst HYPERLINK x}{\fldrslt here}}{\pict\bin4 }}}}}\par}", "here\n", []),
        (r"{\rtf1 a}}}{{{ b", "a b", []),
        ("{\\rtf1 a\nb\\\nc" + r"\'e", "ab\nce", []),
    ],
)  # fmt: skip
def test_a_rich_text_reads(source: str, text: str, warnings: list[str]) -> None:
    assert read(source.encode()) == (text, warnings)


@requirement("attachments:bounded")
def test_an_old_document_reads_without_what_it_hides() -> None:
    pytest.importorskip("xlrd")
    hidden = struct.pack("<HBHIHB", 0x2A42, 1, 0x6A03, 5, 0x083C, 1)
    pieces = [
        (b"never Gr\xf6\xdfe\x07\x07", False),
        ("\x13 LINK\x14мир\x15\r".encode("utf-16-le"), True),
    ]
    letter = compound(word(pieces, hidden))
    shown = read(letter)
    plain = read(compound(word(pieces)))
    slides = record(4080, record(1011, b"") + record(4008, b"Title\rTwo"), 0xF)
    slides += record(1006, record(4000, "Бox".encode("utf-16-le")), 0xF)
    slides += record(1016, record(4008, b"Click to edit"), 0xF)
    slides += record(1008, record(4008, b"*") + record(4008, b"Say it"), 0xF)

    assert shown[1] == ["hidden text was removed: 6 characters"]
    assert shown[0].replace("\0", "") == "Größe\t\nмир\x15\n"
    assert plain == ("never Größe\t\nмир\x15\n", [])
    assert read(compound({"PowerPoint Document": slides}))[0] == (
        "## Slide 1\nTitle\nTwo\n## Slide 1\nБox\n## Notes\nSay it\n"
    )
    assert read(compound({"Workbook": book()})) == (
        "## Bills\n12.5\t\tGröß\nTRUE\n\n",
        ["the sheet 'Bills' is hidden in the document"],
    )
    assert extract(letter, "", "a.doc").text == "Größe\t\nмир\n"


@requirement("attachments:bounded")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (compound(word([(b"x", False)], flags=0x0300)), "encrypted with a password"),
        (compound({"WordDocument": bytes(4096)}), "before 2007"),
        (compound({"WordDocument": bytes(4096), "0Table": b"\x02"}), "damaged|before 2007"),
        (compound({"Other": b""}), "before 2007"),
        (compound({"Workbook": b"junk" * 2000}), "damaged"),
        (compound({"Workbook": book()})[:2000], "damaged"),
        (packed(BINARY_SHEET | {"xl/workbook.bin": b"\x9c"}), "ends too early"),
        (packed(BINARY_SHEET | {"xl/sharedStrings.bin": part(19, b"")}), "ends too early"),
    ],
)
def test_a_damaged_or_closed_one_gets_a_clear_answer(content: bytes, said: str) -> None:
    pytest.importorskip("xlrd")
    with pytest.raises(archive.NoText, match=said):
        read(content)


def test_a_binary_sheet_reads() -> None:
    assert read(packed(BINARY_SHEET)) == (
        "## Bills\nGröße\t\t12.34\t1.5\n2026-11-30 12:00:00\tTRUE\tof it\t1\n\n## Old\n\n",
        ["the sheet 'Old' is hidden in the document"],
    )
