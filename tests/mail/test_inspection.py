"""What is known of a file before it is sent along."""

import bz2
import gzip
import io
import tarfile
import zipfile
from email.message import EmailMessage

import pytest

from deskhand.mail.inspection import inspect, is_text, picture_type
from tests.requirements import requirement

pytestmark = requirement("mail:attached-risk")


def packed(*names: str, locked: bool = False) -> bytes:
    return zipped(dict.fromkeys(names, b"x"), locked=locked)


def zipped(files: dict[str, bytes], *, locked: bool = False) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, file in files.items():
            archive.writestr(name, file)
    content = made.getvalue()
    if locked:
        content = content.replace(
            b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00"
        )
    return content


def tarred(name: str, file: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        about = tarfile.TarInfo(name)
        about.size = len(file)
        archive.addfile(about, io.BytesIO(file))
    return made.getvalue()


def enclosing(name: str, file: bytes) -> bytes:
    mail = EmailMessage()
    mail.set_content("See below.")
    mail.add_attachment(file, maintype="application", subtype="octet-stream", filename=name)
    return mail.as_bytes()


def damaged_lzma() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.txt", "word " * 100)
    return made.getvalue().replace(b"a.txt\t\x04\x05\x00]", b"a.txt\t\x04\x05\x00\xff")


KEY = b"-----BEGIN PRIVATE KEY-----"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
TAR = b"a" * 257 + b"ustar\0" + b"a" * 300
ALARMING: dict[str, tuple[str, bytes, str]] = {
    "a program": ("setup.exe", b"MZ\x90", "is a Windows program"),
    "a program by another name": (
        "invoice.pdf",
        b"MZ\x90",
        "is named .pdf, but its bytes are a Windows program",
    ),
    "two extensions": ("invoice.pdf.scr", b"x", "is of a kind that runs (.scr)"),
    "a Linux program": ("tool", b"\x7fELF\x02", "is a Linux program"),
    "a shortcut": ("letter", b"L\x00\x00\x00\x01\x14\x02\x00", "is a Windows shortcut"),
    "a script": ("notes.txt", b"#!/bin/sh\nrm -r ~\n", "is a script"),
    "a script by its name": ("run.PS1", b"echo", "is of a kind that runs (.ps1)"),
    "a picture that is a page": (
        "photo.png",
        b"<html>",
        "is named .png, but its bytes are of another kind",
    ),
    "a text that is an archive": (
        "notes.txt",
        packed("a"),
        "is named .txt, but its bytes are a ZIP archive",
    ),
    "a text that is none": ("notes.md", b"a\0b", "is named .md, but its bytes are no text"),
    "a Word file that is a PDF": (
        "a.docx",
        b"%PDF-1.7",
        "is named .docx, but its bytes are a PDF",
    ),
    "macros": (
        "a.docx",
        packed("[Content_Types].xml", "word/vbaProject.bin"),
        "holds macros",
    ),
    "macros of LibreOffice": (
        "a.odt",
        packed("mimetype", "Basic/Standard/x.xml"),
        "holds macros",
    ),
    "macros by its kind": (
        "a.xlsm",
        packed("[Content_Types].xml"),
        "is of a kind that holds macros (.xlsm)",
    ),
    "old macros": ("a.xls", OLE + "_VBA_PROJECT".encode("utf-16-le"), "holds macros"),
    "a program in an archive": (
        "a.zip",
        packed("x/Setup.EXE"),
        "is an archive that holds what runs: x/setup.exe",
    ),
    "a locked archive": (
        "a.zip",
        packed("a.txt", locked=True),
        "is an archive with a password",
    ),
    "a broken archive": (
        "a.zip",
        b"PK\x03\x04 and nothing",
        "is an archive that cannot be read",
    ),
    "an archive of damaged files": (
        "a.zip",
        damaged_lzma(),
        "is an archive that cannot be read",
    ),
    "what nobody sees in the name": (
        "a\u202efdp.txt",
        b"x",
        "has 1 character that changes the direction",
    ),
    "a private key": (
        "x.txt",
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3",
        "holds what looks like a private key",
    ),
    "a key of a cloud": (
        "x.csv",
        b"id,AKIAIOSFODNN7EXAMPLE",
        "holds what looks like a key of a cloud",
    ),
    "a token": ("x.md", b"use ghp_" + b"a" * 36, "holds what looks like an access token"),
    "a password": (
        "x.yaml",
        b"password: hunter2hunter2",
        "holds what looks like a password",
    ),
    "an address with a password": (
        "x.txt",
        b"postgres://ada:swordfish@db/x",
        "holds what looks like a password",
    ),
    "a name for secrets": ("id_rsa", b"x", "is named as one that holds secrets"),
    "a vault of passwords": ("all.kdbx", b"\x03\xd9", "is named as one that holds secrets"),
    "a program in two archives": (
        "a.zip",
        zipped({"b.zip": packed("c.js")}),
        "is an archive that holds what runs: c.js",
    ),
    "a program in it by another name": (
        "a.zip",
        zipped({"b.pdf": b"MZ"}),
        "is an archive that holds what runs: b.pdf",
    ),
    "a name in it that Windows cuts": (
        "a.zip",
        packed("b.exe. "),
        "is an archive that holds what runs: b.exe.",
    ),
    "a program in a tar": (
        "a.tar",
        tarred("x.sh", b"x"),
        "is an archive that holds what runs: x.sh",
    ),
    "a program in a packed tar": (
        "a.tgz",
        gzip.compress(tarred("x.sh", b"x")),
        "is an archive that holds what runs",
    ),
    "a script in bzip2": (
        "a.bz2",
        bz2.compress(b"#!/bin/sh"),
        "is an archive that holds what runs",
    ),
    "a secret in an archive": (
        "a.zip",
        zipped({"b": KEY}),
        "is an archive that holds what looks like a private key: b",
    ),
    "a file for secrets in an archive": (
        "a.zip",
        packed("b/.env"),
        "is an archive that holds what is named as secrets",
    ),
    "a secret in a Word file": (
        "a.docx",
        zipped(
            {
                "[Content_Types].xml": b"",
                "word/document.xml": b"<t>-----BEGIN </t><t>PRIVATE KEY-----</t>",
            }
        ),
        "holds what looks like a private key: word/document.xml",
    ),
    "macros in a part of another name": (
        "a.docx",
        zipped(
            {
                "[Content_Types].xml": b"<x ContentType='application/vnd.ms-office.vbaProject'/>",
                "word/x": b"",
            }
        ),
        "holds macros",
    ),
    "old macros in a new file": (
        "a.xlsx",
        packed("[Content_Types].xml", "xl/macrosheets/s.xml"),
        "holds macros",
    ),
    "macros in an archive": (
        "a.zip",
        zipped({"b.docm": packed("[Content_Types].xml", "word/vbaProject.bin")}),
        "is an archive that holds macros",
    ),
    "a program in a mail": (
        "a.eml",
        enclosing("x.exe", b"x"),
        "is a mail that holds what runs: x.exe",
    ),
    "a program in a mail in a mail": (
        "a.eml",
        enclosing("b.eml", enclosing("x.exe", b"x")),
        "is a mail that holds what runs: x.exe",
    ),
    "wide letters": ("a.\uff45\uff58\uff45", b"x", "is of a kind that runs (.exe)"),
    "a stream of Windows": ("a.exe::$DATA", b"x", "is of a kind that runs (.exe)"),
    "a PDF that is an archive": (
        "a.pdf",
        b"%PDF-1.7" + packed("x"),
        "is a ZIP archive as well",
    ),
    "a password of a program": (
        "x.txt",
        b"DB_PASSWORD=hunter2hunter2",
        "holds what looks like a password",
    ),
    "a secret key": (
        "x.txt",
        b"aws_secret_access_key = wJalrXUtnFEMI/K7",
        "holds what looks like a password",
    ),
    "a password in wide characters": (
        "x.txt",
        "password: hunter2".encode("utf-16"),
        "holds what looks like a password",
    ),
    "a header with a token": (
        "x.txt",
        b"Authorization: Bearer " + b"a1" * 20,
        "holds what looks like an access token",
    ),
    "a token of a desk": (
        "x.txt",
        b"dh_" + b"a1_" * 14,
        "holds what looks like an access token",
    ),
    "a remote desktop": ("a.rdp", b"full address:s:evil", "is of a kind that runs (.rdp)"),
    "a key far behind": (
        "x.txt",
        b"x\n" * 600_000 + KEY,
        "holds what looks like a private key",
    ),
    "unseen text": ("x.txt", "a\u200bb".encode(), "holds 1 invisible character"),
}
ODD: dict[str, tuple[str, bytes, str]] = {
    "a text too long to look through": (
        "x.txt",
        b"x\n" * 1_500_000,
        "was looked at up to byte 2,000,000 alone",
    ),
    "an archive": ("a.zip", packed("a", "b"), "is an archive of 2 files"),
    "a tar": ("a.tar", TAR, "is a tar archive"),
    "a disk": ("a.dat", b"\0" * 0x8001 + b"CD001", "is a disk archive"),
    "gzip": (
        "a.tar.gz",
        b"\x1f\x8b\x08",
        "is a gzip archive, and what is in it was not looked at",
    ),
    "an archive that is a bomb": (
        "a.zip",
        packed(*map(str, range(5001))),
        "is a ZIP archive of which not all was looked",
    ),
    "gzip that is a bomb": (
        "a.gz",
        gzip.compress(bytes(41_000_000)),
        "is a gzip archive of which not all was looked",
    ),
    "a Word file with a template elsewhere": (
        "a.docx",
        zipped(
            {
                "[Content_Types].xml": b"",
                "word/_rels/settings.xml.rels": b"<Relationship TargetMode='External' Type='x/attachedTemplate'/>",
            }
        ),
        "loads something from elsewhere when it is opened",
    ),
    "a Word file with a file inside": (
        "a.docx",
        packed("[Content_Types].xml", "word/embeddings/oleObject1.bin"),
        "holds files or controls of other programs",
    ),
    "a PDF with a password": (
        "a.pdf",
        b"%PDF-1.7 /Encrypt 5 0 R",
        "is encrypted, and what is in it was not looked at",
    ),
    "a PDF that hides its script": (
        "a.pdf",
        b"%PDF-1.7 /J#61vaScript",
        "holds scripts, files or actions inside",
    ),
    "a page": (
        "a.html",
        b"<p>",
        "is of a kind that may run scripts when it is opened (.html)",
    ),
    "a PDF with a script": (
        "a.pdf",
        b"%PDF-1.4 /JavaScript (x)",
        "holds scripts, files or actions inside of the PDF",
    ),
}
ORDINARY: dict[str, tuple[str, bytes, str]] = {
    "a text": ("a.txt", b"Hello", "text/plain"),
    "an empty file": ("a.pdf", b"", "application/pdf"),
    "a table": ("a.csv", b"a,b\n1,2\n", "text/csv"),
    "a picture": ("a.jpg", b"\xff\xd8\xff\xe0", "image/jpeg"),
    "a PDF": ("a.pdf", b"%PDF-1.7", "application/pdf"),
    "a Word file": (
        "a.docx",
        packed("[Content_Types].xml", "word/document.xml"),
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    "a text in wide characters": ("a.txt", "Grüße".encode("utf-16"), "text/plain"),
    "a text about secrets": (
        "a.txt",
        b"Our passwords: attached. The secrets of tokens: nothing.",
        "text/plain",
    ),
    "a text about passwords": (
        "a.md",
        b"Change your password: see below.",
        "text/markdown",
    ),
    "no extension": ("README", b"Hello", "application/octet-stream"),
    "a mail in a file": ("a.eml", b"From: x\n\nHello", "application/octet-stream"),
}


@pytest.mark.parametrize("case", ALARMING)
def test_what_is_dangerous_is_said(case: str) -> None:
    name, content, words = ALARMING[case]

    assert any(each.startswith(words) for each in inspect(name, content).alarming), inspect(
        name, content
    )


@pytest.mark.parametrize("case", ODD)
def test_what_is_odd_is_said(case: str) -> None:
    name, content, words = ODD[case]
    found = inspect(name, content)

    assert any(each.startswith(words) for each in found.odd), found
    assert found.alarming == ()


@pytest.mark.parametrize("case", ORDINARY)
def test_what_is_ordinary_is_left_alone(case: str) -> None:
    name, content, kind = ORDINARY[case]

    assert inspect(name, content) == (kind, (), ())


def test_only_pictures_and_texts_are_shown() -> None:
    assert [picture_type(each) for each in (b"\x89PNG\r\n", b"<svg>", b"MZ")] == [
        "image/png",
        None,
        None,
    ]
    assert [is_text(each) for each in (b"Hello", b"a\0b", b"%PDF-", b"#!/bin/sh")] == [
        True,
        False,
        False,
        True,
    ]
