"""Reads the text of a document that a stranger sent, in a process of its own: `python -m deskhand.mail.documents`.

The document comes on stdin, its text leaves on stdout as it is read, and what is to be said about it on stderr at the
end. See `extraction` for who starts it, and `confinement` for what holds it.
"""

import io
import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO
from xml.parsers import expat

from deskhand.mail import confinement

MOST_TEXT = 2_000_000
MOST_UNPACKED = 100_000_000
"""Bytes that a packed document may grow to while it is read."""
MOST_PAGES = 2000
MOST_COLUMNS = 200
_CHUNK = 65536
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_DATES = frozenset((*range(14, 23), *range(45, 48)))
"""The number formats of a spreadsheet that every program takes for dates."""

_QUOTED = re.compile(r'"[^"]*"|\[[^\]]*\]')
_TEXTS = frozenset({"txt", "md", "csv", "tsv", "ics", "vcf", "json", "xml", "log", "yaml", "yml"})

Pieces = Iterator[str]
Warn = Callable[[str], None]
Attributes = dict[str, str]


class NoText(Exception):
    """Why there is no text; a sentence."""


def find_reader(content: bytes, kind: str, name: str) -> Callable[[bytes, Warn], Pieces] | None:
    """By what the document is, then by what it is called; None where it holds no text that could be read."""
    beginnings = {b"%PDF-": read_pdf, _OLD_OFFICE: refuse_old_office, b"PK": read_office}
    for beginning, reader in beginnings.items():
        if content.startswith(beginning):
            return reader
    ending = name.lower().rpartition(".")[2]
    if kind == "application/pdf" or ending == "pdf":
        return read_pdf
    if kind == "message/rfc822" or ending == "eml":
        return read_mail
    if kind == "text/html" or ending in ("html", "htm"):
        return read_page
    is_text = kind.startswith("text/") or kind in ("application/json", "application/xml") or ending in _TEXTS
    return read_text if is_text else None


def read_text(content: bytes, warn: Warn) -> Pieces:
    from deskhand.mail.charsets import decode

    del warn
    yield decode(content, None).replace("\r\n", "\n").replace("\r", "\n")


def read_page(content: bytes, warn: Warn) -> Pieces:
    from deskhand.mail import html

    (source,) = read_text(content, warn)
    seen = html.visible(source)
    if seen.hidden_characters:
        warn(f"hidden text was removed: {seen.hidden_characters:,} characters")
    yield seen.text


def read_mail(content: bytes, warn: Warn) -> Pieces:
    from deskhand.mail import mime

    mail = mime.parse(content)
    for warning in mail.warnings:
        warn(warning)
    heads = {"From": mail.sender, "To": mail.to, "Cc": mail.cc, "Subject": mail.subject, "Date": mail.date_header}
    yield "".join(f"{name}: {value}\n" for name, value in heads.items() if value)
    yield "".join(f"Attachment: {each.name}\n" for each in mail.attachments)
    yield f"\n{mail.body}"


def read_pdf(content: bytes, warn: Warn) -> Pieces:
    try:
        import pypdf
    except ImportError:
        raise NoText("Reading PDF needs pypdf: pip install 'deskhand[documents]'") from None
    try:
        document = pypdf.PdfReader(io.BytesIO(content), strict=False)
        if document.is_encrypted and not document.decrypt(""):
            raise NoText("The PDF is encrypted with a password.")
        count = len(document.pages)
        for number in range(min(count, MOST_PAGES)):
            yield f"{document.pages[number].extract_text()}\n\n"
    except (pypdf.errors.PyPdfError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise NoText(f"The PDF is damaged or uses what cannot be read ({type(error).__name__}).") from error
    if count > MOST_PAGES:
        warn(f"only the first {MOST_PAGES} of {count} pages were read")


def refuse_unconfined(content: bytes, warn: Warn) -> Pieces:
    del content, warn
    raise NoText("this machine cannot confine a reader of documents, so nothing was read")


def refuse_old_office(content: bytes, warn: Warn) -> Pieces:
    del warn
    if _ENCRYPTED in content:
        raise NoText("The document is encrypted with a password.")
    raise NoText("It is an Office document of the kind before 2007, which cannot be read here.")


# Office documents: XML in a ZIP archive.


class Archive:
    """The parts of a packed document, which together grow to so many bytes and no more."""

    def __init__(self, content: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
        except (zipfile.BadZipFile, ValueError) as error:
            raise NoText("The document is damaged: it cannot be unpacked.") from error
        self.names = self._zip.namelist()
        self._left = MOST_UNPACKED

    def matching(self, pattern: str) -> list[str]:
        """The parts with this name, by the number in it."""
        found = [name for name in self.names if re.fullmatch(pattern, name)]
        return sorted(found, key=lambda name: (int("0" + re.sub(r"\D", "", name)[:9]), name))

    def chunks(self, name: str) -> Iterator[bytes]:
        try:
            with self._zip.open(name) as part:
                yield from self._bounded(part)
        except RuntimeError as error:  # what the library says of a password
            raise NoText("The document is encrypted with a password.") from error
        except (zipfile.BadZipFile, NotImplementedError, OSError, EOFError, ValueError) as error:
            raise NoText(f"The document is damaged: {name} cannot be unpacked.") from error

    def _bounded(self, part: IO[bytes]) -> Iterator[bytes]:
        while chunk := part.read(_CHUNK):
            self._left -= len(chunk)
            if self._left < 0:
                raise NoText(f"The document unpacks to more than {MOST_UNPACKED:,} bytes; it was not read further.")
            yield chunk


class XmlEvents:
    """Calls of the XML parser, gathered until somebody takes them; a tree would need memory that a stranger chooses."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, Attributes]] = []
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._refuse

    def _start(self, name: str, attributes: Attributes) -> None:
        given = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        self.events.append(("start", name.rpartition(" ")[2], given))

    def _end(self, name: str) -> None:
        self.events.append(("end", name.rpartition(" ")[2], {}))

    def _text(self, text: str) -> None:
        self.events.append(("text", text, {}))

    def _refuse(self, *_: object) -> None:
        raise NoText("The document declares entities of its own, which no Office program does; it was not read.")


def walk(archive: Archive, name: str) -> Iterator[tuple[str, str, Attributes]]:
    """What stands in a part: ("start" or "end", the element's name, its attributes) and ("text", the text, nothing)."""
    gathered = XmlEvents()
    try:
        for chunk in archive.chunks(name):
            gathered.parser.Parse(chunk, False)
            yield from gathered.events
            gathered.events.clear()
        gathered.parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise NoText(f"The document is damaged: {name} is no XML.") from error
    yield from gathered.events


def read_office(content: bytes, warn: Warn) -> Pieces:
    archive = Archive(content)
    if "word/document.xml" in archive.names:
        return read_word(archive, warn)
    if "xl/workbook.xml" in archive.names:
        return read_excel(archive, warn)
    if "ppt/presentation.xml" in archive.names:
        return read_slides(archive)
    raise NoText(f"It is an archive of {len(archive.names)} files, not a document; it was not unpacked.")


def read_word(archive: Archive, warn: Warn) -> Pieces:
    notes = archive.matching(r"word/(?:header|footer|footnotes|endnotes|comments)\d*\.xml")
    hidden = 0
    for name in ["word/document.xml", *notes]:
        reading = vanished = False
        cells = 0
        for event, what, attributes in walk(archive, name):
            match event, what:
                case ("start", "r"):
                    vanished = False
                case ("start", "vanish"):
                    vanished = attributes.get("val") not in ("0", "false")
                case ("start" | "end", "t"):
                    reading = event == "start"
                case ("start" | "end", "tc"):
                    cells += 1 if event == "start" else -1
                case ("text", _) if reading and vanished:
                    hidden += len(what)
                case ("text", _) if reading:
                    yield what
            yield _find_break(event, what, in_cell=cells > 0)
    if hidden:
        warn(f"hidden text was removed: {hidden:,} characters")


def _find_break(event: str, what: str, *, in_cell: bool) -> str:
    match event, what:
        case ("start", "tab") | ("end", "tc"):
            return "\t"
        case ("end", "p") if in_cell:
            return " "
        case ("end", "p" | "tr") | ("start", "br" | "cr"):
            return "\n"
        case _:
            return ""


def read_slides(archive: Archive) -> Pieces:
    for number, name in enumerate(archive.matching(r"ppt/slides/slide\d+\.xml"), 1):
        yield f"## Slide {number}\n"
        yield from _read_runs(archive, name)
    for name in archive.matching(r"ppt/notesSlides/notesSlide\d+\.xml"):
        yield f"## Notes {re.sub(r'[^0-9]', '', name)}\n"
        yield from _read_runs(archive, name)


def _read_runs(archive: Archive, name: str) -> Pieces:
    reading = False
    for event, what, _ in walk(archive, name):
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


def read_excel(archive: Archive, warn: Warn) -> Pieces:
    strings = list(_read_strings(archive))
    dates = _find_dates(archive)
    links = {
        given.get("Id", ""): given.get("Target", "")
        for event, what, given in _walk_if(archive, "xl/_rels/workbook.xml.rels")
        if (event, what) == ("start", "Relationship")
    }
    for event, what, given in walk(archive, "xl/workbook.xml"):
        if (event, what) != ("start", "sheet"):
            continue
        if given.get("state", "visible") != "visible":
            warn(f"the sheet {given.get('name', '')!r} is hidden in the document")
        target = links.get(given.get("id", ""), "").removeprefix("/xl/")
        yield f"## {given.get('name', '')}\n"
        for row in _read_rows(archive, f"xl/{target}", strings, dates):
            yield "\t".join(row) + "\n"
        yield "\n"


def _walk_if(archive: Archive, name: str) -> Iterator[tuple[str, str, Attributes]]:
    if name in archive.names:
        yield from walk(archive, name)


def _read_strings(archive: Archive) -> Iterator[str]:
    """The texts that cells refer to by number, without how they are pronounced."""
    text = ""
    reading = phonetic = False
    for event, what, _ in _walk_if(archive, "xl/sharedStrings.xml"):
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
    """Of each style of cells whether it shows a number as a date."""
    own: set[str] = set()
    styles: list[bool] = []
    inside = False
    for event, what, given in _walk_if(archive, "xl/styles.xml"):
        match event, what:
            case "start", "numFmt" if re.search(r"[ymdhs]", _QUOTED.sub("", given.get("formatCode", ""))):
                own.add(given.get("numFmtId", ""))
            case (("start" | "end"), "cellXfs"):
                inside = event == "start"
            case "start", "xf" if inside:
                number = given.get("numFmtId", "0")
                styles.append(number in own or (number.isdecimal() and int(number) in _DATES))
    return styles


def _read_rows(archive: Archive, name: str, strings: list[str], dates: list[bool]) -> Iterator[list[str]]:
    row: list[str] = []
    cell: Attributes = {}
    value = ""
    reading = False
    for event, what, given in _walk_if(archive, name):
        match event, what:
            case "start", "row":
                row = []
            case "start", "c":
                cell = given
                value = ""
            case (("start" | "end"), ("v" | "t")):
                reading = event == "start"
            case "text", _ if reading:
                value += what
            case "end", "c":
                place = _column(cell.get("r", ""), len(row))
                if place < MOST_COLUMNS:
                    row += [""] * (place - len(row))
                    row.append(_show_cell(cell, value, strings, dates))
            case "end", "row" if any(row):
                yield row


def _column(name: str, following: int) -> int:
    """The place of a cell in its row: A1 is 0. Without a name it is the next one."""
    letters = re.match(r"[A-Z]{1,3}", name)
    if letters is None:
        return following
    place = 0
    for letter in letters[0]:
        place = place * 26 + ord(letter) - 64
    return max(place - 1, following)


def _show_cell(cell: Attributes, value: str, strings: list[str], dates: list[bool]) -> str:
    match cell.get("t", "n"):
        case "s" if value.isdecimal() and int(value) < len(strings):
            return strings[int(value)]
        case "b":
            return {"0": "FALSE", "1": "TRUE"}.get(value, value)
        case "n" if cell.get("s", "").isdecimal() and any(dates[int(cell["s"]) : int(cell["s"]) + 1]):
            return _show_date(value)
        case _:
            return " ".join(value.split())


def _show_date(value: str) -> str:
    """A spreadsheet counts days since the end of 1899."""
    from datetime import datetime, timedelta

    try:
        moment = datetime(1899, 12, 30) + timedelta(days=float(value))  # noqa: DTZ001 - a cell knows no zone
    except (ValueError, OverflowError):
        return value
    shown = moment.replace(microsecond=0).isoformat(" ")
    return shown.removesuffix(" 00:00:00")


# The process.


def main(kind: str, name: str) -> int:
    confinement.limit()
    warnings: list[str] = []
    content = sys.stdin.buffer.read()
    reader = find_reader(content, kind, name)
    problem = None
    if reader is read_pdf:
        _prepare_pdf()
    if not confinement.shut_in() and sys.platform == "linux":
        reader = refuse_unconfined
    written = 0
    try:
        for piece in reader(content, warnings.append) if reader else ():
            written += len(piece)
            sys.stdout.write(piece[: max(0, len(piece) - (written - MOST_TEXT))].encode("utf-8", "replace").decode())
            if written > MOST_TEXT:
                warnings.append(f"the text was cut after {MOST_TEXT:,} characters")
                break
    except NoText as error:
        problem = str(error)
    except MemoryError:
        problem = "The document needs more memory than it is given."
    except RecursionError:
        problem = "The document is nested too deeply."
    sys.stdout.flush()
    json.dump({"problem": problem, "warnings": warnings[:50], "has_text": reader is not None}, sys.stderr)
    return 0


def _prepare_pdf() -> None:
    """What is imported later would be imported from behind the wall."""
    import logging

    logging.disable()
    with suppress(ImportError):
        import pypdf  # noqa: F401


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
