"""The text of a rich text (RTF), as Word, LibreOffice and WordPad write it."""

import re
from dataclasses import dataclass, replace
from typing import Any

from deskhand.mail.archive import Pieces, Warn
from deskhand.mail.charsets import decode

_TOKEN = re.compile(
    r"\\([a-zA-Z]{1,32})(-?[0-9]{1,9})? ?|\\'([0-9a-fA-F]{2})|\\(.)|([{}])|([^\\{}\r\n]+)",
    re.DOTALL,
)
_BREAKS = ("par", "sect", "page", "column", "line", "row", "nestrow")
_TABS = ("tab", "cell", "nestcell")
_SIGNS = {
    **dict.fromkeys(_BREAKS, "\n"),
    **dict.fromkeys(_TABS, "\t"),
    "emdash": "\N{EM DASH}",
    "endash": "\N{EN DASH}",
    "bullet": "\N{BULLET}",
    "emspace": " ",
    "enspace": " ",
    "lquote": "\N{LEFT SINGLE QUOTATION MARK}",
    "rquote": "\N{RIGHT SINGLE QUOTATION MARK}",
    "ldblquote": "\N{LEFT DOUBLE QUOTATION MARK}",
    "rdblquote": "\N{RIGHT DOUBLE QUOTATION MARK}",
}
_SYMBOLS = {"~": " ", "_": "-", "\n": "\n", "\r": "\n", **{each: each for each in "\\{}"}}
_SILENT = """
    fonttbl colortbl stylesheet info pict object objdata filetbl revtbl listtable nonshppict listoverridetable
    xmlnstbl themedata datastore template fldinst sp tc xe bkmkstart
"""
_UNREAD = frozenset(_SILENT.split())
"""Groups that hold no text of the document's. So does each that begins with `\\*`, which older programs pass over."""
_READ = frozenset({"shptxt", "dptxbxtext", "annotation", "footnote"})
"""Texts in such a group: boxes, remarks and notes."""
_CHARSETS = {128: 932, 129: 949, 134: 936, 136: 950, 161: 1253, 162: 1254, 163: 1258}
_CHARSETS |= {177: 1255, 178: 1256, 186: 1257, 204: 1251, 222: 874, 238: 1250}
"""The code page of a font that is for another script."""
_MACHINES = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}


@dataclass(frozen=True)
class _Group:
    is_read: bool = True
    is_hidden: bool = False
    font: int = 0
    after_unicode: int = 1
    """How many signs behind a letter repeat it for programs that do not know it."""


def _changes(word: str, number: int | None) -> dict[str, Any]:
    """Of the group in which the word stands."""
    if word in _UNREAD or word in _READ:
        return {"is_read": word in _READ}
    match word:
        case "v" | "deleted":
            return {"is_hidden": number != 0}
        case "plain":
            return {"is_hidden": False}
        case "uc":
            return {"after_unicode": min(max(number or 0, 0), 99)}
        case "f":
            return {"font": number or 0}
    return {}


class _RichText:
    def __init__(self) -> None:
        self.hidden = 0
        self.text = ""
        self.passed_over = 0
        self.here = _Group()
        self.around: list[_Group] = []
        self.fonts: dict[int, str] = {}
        self.charset = "cp1252"
        self._bytes = bytearray()
        self._half = ""

    def write(self, text: str) -> None:
        self.end_bytes()
        if self.here.is_hidden and self.here.is_read:
            self.hidden += len(text)
        elif self.here.is_read:
            self.text += text

    def write_byte(self, byte: int) -> None:
        if self._is_passed_over():
            return
        self._bytes.append(byte)

    def end_bytes(self) -> None:
        """A letter of some scripts is several bytes, which are read together."""
        written = bytes(self._bytes)
        self._bytes.clear()
        if written:
            self.write(decode(written, self.fonts.get(self.here.font, self.charset)))

    def write_plain(self, text: str) -> None:
        repeated = min(self.passed_over, len(text))
        self.passed_over -= repeated
        self.write(text[repeated:])

    def write_unicode(self, number: int) -> None:
        """Letters beyond 65,535 come as two halves."""
        half = self._half + chr(number & 0xFFFF)
        self._half = ""
        if len(half) == 1 and "\ud800" <= half <= "\udbff":
            self._half = half
        else:
            self.write(half.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        self.passed_over = self.here.after_unicode

    def open(self) -> None:
        self.end_bytes()
        self.around.append(self.here)
        self.passed_over = 0

    def close(self) -> None:
        self.end_bytes()
        self.passed_over = 0
        if self.around:
            self.here = self.around.pop()

    def follow(self, word: str, number: int | None) -> None:
        """What a control word does."""
        self.end_bytes()
        if word == "u" and number is not None:
            self.write_unicode(number)
            return
        if self._is_passed_over():
            return
        if word in _SIGNS:
            self.write(_SIGNS[word])
        self._set(word, number)

    def _set(self, word: str, number: int | None) -> None:
        """What holds from here on: of the whole text, or of this group."""
        match word:
            case "fcharset" if number in _CHARSETS:
                self.fonts[self.here.font] = f"cp{_CHARSETS[number]}"
            case "ansicpg":
                self.charset = f"cp{number}"
            case "mac" | "pc" | "pca":
                self.charset = _MACHINES[word]
            case _:
                self.here = replace(self.here, **_changes(word, number))

    def _is_passed_over(self) -> bool:
        if self.passed_over:
            self.passed_over -= 1
            return True
        return False


def read_rich_text(content: bytes, warn: Warn) -> Pieces:
    source = content.decode("latin-1")
    reading = _RichText()
    at = 0
    while token := _TOKEN.search(source, at):
        at = token.end()
        word, number, byte, symbol, brace, text = token.groups()
        match word or symbol or brace:
            case "bin":
                at += max(int(number or 0), 0)
            case "*":
                reading.here = replace(reading.here, is_read=False)
            case "{" if brace:
                reading.open()
            case "}" if brace:
                reading.close()
            case _ if word:
                reading.follow(word, None if number is None else int(number))
            case _ if byte:
                reading.write_byte(int(byte, 16))
            case _:
                reading.write_plain(text or _SYMBOLS.get(symbol, ""))
        if len(reading.text) > 1000:
            yield reading.text
            reading.text = ""
    reading.end_bytes()
    yield reading.text
    if reading.hidden:
        warn(f"hidden text was removed: {reading.hidden:,} characters")
