"""Reads the text of a document that a stranger sent, in a process of its own: `python -m deskhand.mail.documents`.

The document comes on stdin, its text leaves on stdout as it is read, and what is to be said about it on stderr at the
end. See `extraction` for who starts it, and `confinement` for what holds it.
"""

import codecs
import importlib
import io
import json
import re
import struct
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec

from deskhand.mail import confinement
from deskhand.mail.archive import Archive, NoText, Pieces, Warn
from deskhand.mail.charsets import decode, without_surrogates
from deskhand.mail.old_office import read_old_office
from deskhand.mail.rich_text import read_rich_text

MOST_TEXT = 2_000_000
MOST_PAGES = 2000
LONGEST_HTML = 1_000_000
LOOKED_AT = 100_000
"""Characters by which a text is told from other bytes."""
_OPTIONAL = {"pypdf": "PDF", "xlrd": "Office files of before 2007"}
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_TEXTS = frozenset(
    {"txt", "md", "csv", "tsv", "ics", "vcf", "json", "xml", "log", "yaml", "yml"}
)
_TEXT_KINDS = frozenset(
    {
        "application/json",
        "application/xml",
        "application/pgp-signature",
        "message/delivery-status",
        "message/disposition-notification",
    }
)
_PACKED = frozenset(
    {"docx", "docm", "xlsx", "xlsm", "xlsb", "pptx", "pptm", "odt", "ods", "odp"}
)
_FOLDED = frozenset({"text/calendar", "text/vcard", "ics", "vcf"})
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BINARY = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_DAMAGES = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, OSError),
    *(RuntimeError, AssertionError, zlib.error, struct.error),
)
"""What a library for PDF raises where a file is not as it should be."""
# The longer mark first: it begins as the other does.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_DECLARED = re.compile(
    rb"""<meta[^>]{0,200}charset\s*=\s*["']?([\w-]{1,40})""", re.IGNORECASE
)


def find_reader(
    content: bytes, kind: str, name: str, charset: str = ""
) -> Callable[[bytes, Warn], Pieces] | None:
    """By what the document is, then by what it is called; None where it holds no text that could be read."""
    beginnings = {
        b"%PDF-": read_pdf,
        _OLD_OFFICE: read_old_office,
        b"PK\3\4": read_packed,
        b"PK\5\6": read_packed,
        b"{\\rtf": read_rich_text,
    }
    for beginning, reader in beginnings.items():
        if content.startswith(beginning):
            return reader
    ending = name.lower().rpartition(".")[2]
    kinds = {"application/pdf": read_pdf, "message/rfc822": read_mail}
    endings = {"pdf": read_pdf, "eml": read_mail, **dict.fromkeys(_PACKED, read_packed)}
    if found := kinds.get(kind) or endings.get(ending):
        return found
    if kind == "text/html" or ending in ("html", "htm"):
        return partial(read_page, charset=charset)
    if _FOLDED & {kind, ending}:
        return partial(read_folded, charset=charset)
    is_text = kind.startswith("text/") or kind in _TEXT_KINDS or ending in _TEXTS
    return partial(read_text, charset=charset) if is_text else None


def read_text(content: bytes, warn: Warn, charset: str = "") -> Pieces:
    del warn
    marked = next(
        (label for mark, label in _MARKS.items() if content.startswith(mark)), None
    )
    text = content.decode(marked, "replace") if marked else decode(content, charset)
    beginning = text[:LOOKED_AT]
    if len(_BINARY.findall(beginning)) * 20 > len(beginning):
        raise NoText("Its bytes are no text, whatever it is called.")
    yield text.replace("\r\n", "\n").replace("\r", "\n")


def read_folded(content: bytes, warn: Warn, charset: str = "") -> Pieces:
    """Calendars and address cards, whose long lines go on behind a space."""
    for text in read_text(content, warn, charset):
        yield re.sub(r"\n[ \t]", "", text)


def read_page(content: bytes, warn: Warn, charset: str = "") -> Pieces:
    from deskhand.mail import html

    declared = _DECLARED.search(content[:4096])
    label = charset or (declared[1].decode() if declared else "")
    (source,) = read_text(content, warn, label)
    if len(source) > LONGEST_HTML:
        warn(f"the HTML was cut: {LONGEST_HTML:,} of {len(source):,} characters were read")
    seen = html.visible(source[:LONGEST_HTML])
    if seen.hidden_characters:
        warn(f"hidden text was removed: {seen.hidden_characters:,} characters")
    yield seen.text


def read_mail(content: bytes, warn: Warn) -> Pieces:
    from deskhand.mail import mime

    mail = mime.parse(content)
    for warning in mail.warnings:
        warn(warning)
    heads = {
        "From": mail.sender,
        "To": mail.to,
        "Cc": mail.cc,
        "Subject": mail.subject,
        "Date": mail.date_header,
    }
    yield "".join(f"{name}: {value}\n" for name, value in heads.items() if value)
    yield "".join(f"Attachment: {each.name}\n" for each in mail.attachments)
    yield f"\n{mail.body}"


def read_packed(content: bytes, warn: Warn) -> Pieces:
    from deskhand.mail import office, opendocument

    archive = Archive(content)
    if {"mimetype", opendocument.CONTENT} <= archive.names.keys():
        return opendocument.read_open(archive, warn)
    return office.read_office(archive, warn)


def unread_kinds() -> list[str]:
    """The kinds of documents whose reader, of the extra `documents`, is not installed."""
    return [kind for library, kind in _OPTIONAL.items() if find_spec(library) is None]


def read_pdf(content: bytes, warn: Warn) -> Pieces:
    try:
        import pypdf
    except ImportError:
        raise NoText("Reading PDF needs pypdf: pip install 'deskhand[documents]'") from None
    damages = (pypdf.errors.PyPdfError, *_DAMAGES)
    try:
        document = pypdf.PdfReader(io.BytesIO(content), strict=False)
        if document.is_encrypted and not document.decrypt(""):
            raise NoText("The PDF is encrypted with a password.")
        count = len(document.pages)
        fields = document.get_form_text_fields() or {}
    except damages as error:
        raise NoText(f"The PDF {_describe(error)}.") from error
    for number in range(min(count, MOST_PAGES)):
        try:
            yield f"{document.pages[number].extract_text()}\n\n"
        except damages as error:
            warn(f"page {number + 1} {_describe(error)}")
    for name, value in fields.items():
        yield f"{name}: {value}\n" if value else ""
    if count > MOST_PAGES:
        warn(f"only the first {MOST_PAGES} of {count} pages were read")


def _describe(error: Exception) -> str:
    if type(error).__name__ == "LimitReachedError":
        return "grows to more than is read"
    return f"is damaged or uses what cannot be read ({type(error).__name__})"


def refuse_unconfined(content: bytes, warn: Warn) -> Pieces:
    del content, warn
    raise NoText("this machine cannot confine a reader of documents, so nothing was read")


# The process.

_LIBRARIES = {read_pdf: "pypdf", read_old_office: "xlrd"}


def main(kind: str, name: str, charset: str) -> int:
    confinement.limit()
    warnings: list[str] = []
    content = sys.stdin.buffer.read()
    reader = find_reader(content, kind, name, charset)
    problem = None if content else "It is empty."
    if reader in _LIBRARIES:
        _prepare(_LIBRARIES[reader])
    if not confinement.shut_in() and sys.platform == "linux":
        reader = refuse_unconfined
    room = MOST_TEXT
    is_blank = reader is not None
    try:
        for piece in reader(content, warnings.append) if reader and content else ():
            shown = without_surrogates(_CONTROL.sub("", piece))
            sys.stdout.write(shown[:room])
            is_blank = is_blank and not shown.strip()
            room -= len(shown)
            if room < 0:
                warnings.append(f"the text was cut after {MOST_TEXT:,} characters")
                break
    except NoText as error:
        problem = str(error)
    except MemoryError:
        problem = "The document needs more memory than it is given."
    except RecursionError:
        problem = "The document is nested too deeply."
    if is_blank and problem is None:
        warnings.append("no text was found in it; there may be pictures of text")
    sys.stdout.flush()
    json.dump(
        {"problem": problem, "warnings": warnings[:50], "has_text": reader is not None},
        sys.stderr,
    )
    return 0


def _prepare(library: str) -> None:
    """What is imported later would be imported from behind the wall."""
    import logging

    logging.disable()
    with suppress(ImportError):
        importlib.import_module(library)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
