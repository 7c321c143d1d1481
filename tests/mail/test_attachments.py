"""What is attached to a mail: its text, read in a process that can do nothing else, and itself in the vault."""

import io
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Mapping
from email.message import EmailMessage

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.mail import documents
from deskhand.mail.extraction import extract
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.servers.desk import desk_server
from tests.home import Home
from tests.requirements import requirement
from tests.test_desk_server import ok, refused

WORD = "word/document.xml"
SPREADSHEET = {
    "xl/workbook.xml": "<workbook xmlns:r='r'><sheets><sheet name='Bills' r:id='a'/>"
    "<sheet name='Old' state='hidden' r:id='b'/></sheets></workbook>",
    "xl/_rels/workbook.xml.rels": "<Relationships><Relationship Id='a' Target='worksheets/sheet1.xml'/>"
    "<Relationship Id='b' Target='/xl/worksheets/sheet2.xml'/></Relationships>",
    "xl/sharedStrings.xml": "<sst><si><t>Name</t></si>"
    "<si><r><t>Grö</t></r><r><t>ße</t></r><rPh><t>x</t></rPh></si></sst>",
    "xl/styles.xml": "<styleSheet><numFmts><numFmt numFmtId='170' formatCode='yyyy&quot;y&quot;'/></numFmts>"
    "<cellXfs><xf numFmtId='0'/><xf numFmtId='14'/><xf numFmtId='170'/></cellXfs></styleSheet>",
    "xl/worksheets/sheet1.xml": "<worksheet><row><c r='A1' t='s'><v>0</v></c><c r='C1' t='s'><v>1</v></c></row>"
    "<row/><row><c s='1'><v>46082</v></c><c s='2'><v>46082.5</v></c><c t='b'><v>1</v></c><c><v>1.5</v></c>"
    "<c t='inlineStr'><is><t>in  line</t></is></c><c r='ZZZ1'><v>far</v></c></row></worksheet>",
    "xl/worksheets/sheet2.xml": "<worksheet><row><c s='1'><v>soon</v></c></row></worksheet>",
}
SLIDES = {
    "ppt/presentation.xml": "<p/>",
    "ppt/slides/slide10.xml": "<s><p><t>last</t></p></s>",
    "ppt/slides/slide2.xml": "<s><p><t>first</t></p><tc><t>cell</t></tc></s>",
    "ppt/notesSlides/notesSlide1.xml": "<s><p><t>say it</t></p></s>",
}
PARAGRAPHS = (
    "<w:document xmlns:w='w'><w:p><w:r><w:t>Hello</w:t><w:tab/></w:r>"
    "<w:r><w:rPr><w:vanish/></w:rPr><w:t>secret</w:t></w:r>"
    "<w:r><w:t>world</w:t></w:r><w:delText>gone</w:delText></w:p>"
    "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc>"
    "<w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr></w:tbl></w:document>"
)


def packed(parts: Mapping[str, str | bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return content.getvalue()


def pdf(text: str) -> bytes:
    """A PDF of one page, without its table: readers find the objects by themselves."""
    stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    body = "".join(f"{number} 0 obj\n{each}\nendobj\n" for number, each in enumerate(objects, 1))
    return f"%PDF-1.4\n{body}trailer\n<< /Root 1 0 R /Size 6 >>\nstartxref\n0\n%%EOF\n".encode()


def read(content: bytes, kind: str = "application/octet-stream", name: str = "x") -> tuple[str, list[str]]:
    """In this process, for speed; the other tests start one."""
    warnings: list[str] = []
    reader = documents.find_reader(content, kind, name)
    assert reader is not None
    return "".join(reader(content, warnings.append)), warnings


@requirement("attachments:read")
def test_office_documents_read_as_a_person_sees_them() -> None:
    assert read(packed({WORD: PARAGRAPHS, "word/footer1.xml": "<f><p><r><t>foot</t></r></p></f>"})) == (
        "Hello\tworld\na \tb \t\nfoot\n",
        ["hidden text was removed: 6 characters"],
    )
    assert read(packed(SPREADSHEET)) == (
        "## Bills\nName\t\tGröße\n2026-03-01\t2026-03-01 12:00:00\tTRUE\t1.5\tin line\n\n## Old\nsoon\n\n",
        ["the sheet 'Old' is hidden in the document"],
    )
    text = "## Slide 1\nfirst\ncell\t\n## Slide 2\nlast\n\n## Notes 1\nsay it\n\n"
    assert read(packed(SLIDES)) == (text, [])


@requirement("attachments:read")
def test_plain_kinds_and_nested_mails_read_too() -> None:
    assert read("ä;1\r\n".encode("latin-1"), "text/csv") == ("ä;1\n", [])
    assert read(b"BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n", name="a.ics")[0].startswith("BEGIN:VCALENDAR\nEND")
    page = b"<p>Hi <span style='display:none'>secret</span>there</p>"
    assert read(page, "text/html") == ("Hi there", ["hidden text was removed: 6 characters"])
    inner = EmailMessage()
    inner["From"], inner["Subject"] = "ann@example.org", "Inside"
    inner.set_content("The words.\n")
    inner.add_attachment(b"x", maintype="image", subtype="png", filename="a.png")
    text, _ = read(inner.as_bytes(), "message/rfc822")
    assert text == "From: ann@example.org\nSubject: Inside\nAttachment: a.png\n\nThe words.\n"
    assert documents.find_reader(b"\x89PNG", "image/png", "a.png") is None


@requirement("attachments:read")
def test_a_pdf_reads() -> None:
    pytest.importorskip("pypdf")

    assert read(pdf("Invoice 42"))[0].strip() == "Invoice 42"


@requirement("attachments:bounded")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (packed({WORD: b"<a>" + b" " * 2_000_000}), "unpacks to more than 1,000,000 bytes"),
        (packed({WORD: "<!DOCTYPE l [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><l>&b;</l>"}), "declares entities"),
        (packed({WORD: "<a><b></a>"}), "is no XML"),
        (packed({"a.txt": "x"}), "an archive of 1 files"),
        (b"PK\3\4junk", "cannot be unpacked"),
        (documents._OLD_OFFICE + b"\0" * 600, "before 2007"),
        (documents._OLD_OFFICE + documents._ENCRYPTED, "encrypted with a password"),
        (packed({WORD: PARAGRAPHS}).replace(b"\x14\x00\x00\x00\x08", b"\x14\x00\x01\x00\x08"), "encrypted"),
    ],
)
def test_a_hostile_document_gets_a_clear_answer(content: bytes, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_UNPACKED", 1_000_000)

    with pytest.raises(documents.NoText, match=said):
        read(content)


@requirement("attachments:bounded")
def test_a_process_of_its_own_reads_and_a_long_text_is_cut() -> None:
    long = packed({WORD: "<a><t>" + "x" * 3_000_000 + "</t></a>"})

    found = extract(long, "application/octet-stream", "a.docx")

    assert (len(found.text), found.warnings) == (2_000_000, ("the text was cut after 2,000,000 characters",))
    assert extract(b"word", "text/csv\0", "\ud800\0.csv").text == "word"
    broken = extract(b"%PDF-1.7 junk", "application/pdf", "a.pdf")
    assert (broken.text, len(broken.warnings)) == ("", 1)


ESCAPES = """
import os, resource, socket, sys
from deskhand.mail import confinement
confinement.limit()
if not confinement.shut_in():
    sys.exit("unheld")
ways = {
    "socket": lambda: socket.socket(),
    "fork": lambda: os.fork(),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "write": lambda: open(sys.argv[1], "a"),
    "unlink": lambda: os.unlink(sys.argv[1]),
    "rename": lambda: os.rename(sys.argv[1], sys.argv[1] + "x"),
    "chmod": lambda: os.chmod(sys.argv[1], 0),
    "kill": lambda: os.kill(os.getppid(), 0),
    "memory": lambda: bytearray(1 << 30),
}
for name, way in ways.items():
    try:
        way()
        print(name)
    except (PermissionError, MemoryError):
        pass
print(len(open(sys.argv[1]).read()), resource.getrlimit(resource.RLIMIT_CPU))
"""


@requirement("attachments:bounded")
def test_whoever_takes_over_the_reader_gets_nowhere(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("wall") / "note"
    file.write_text("word")

    done = subprocess.run([sys.executable, "-c", ESCAPES, str(file)], capture_output=True, text=True, check=False)

    if done.stderr.strip() == "unheld":
        pytest.skip("this kernel or machine does not hold a process (seccomp)")
    assert (done.stdout, done.stderr) == ("4 (10, 10)\n", "")


@pytest.fixture
async def desk(home: Home) -> AsyncIterator[Desk]:
    made = Desk(load(home.environment | {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_USER": "me"}).settings)
    yield made
    await made.close_mailbox()
    made.close()


async def deliver(desk: Desk, *files: tuple[str, bytes]) -> str:
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "ann@example.org", "Files"
    mail.set_content("See below.\n")
    for name, content in files:
        mail.add_attachment(content, maintype="application", subtype="octet-stream", filename=name)
    mailbox = desk.mailbox
    assert isinstance(mailbox, LocalMailbox)
    await mailbox.receive([Incoming(mail.as_bytes(), seen=True)])
    return (await mailbox.search("", 1))[0].id


@pytest.mark.anyio
@requirement("attachments:read")
async def test_an_attachment_is_read_in_pages_and_saved_through_the_vaults_walls(home: Home, desk: Desk) -> None:
    lines = "".join(f"Line {number}\n" for number in range(4000))
    mail = await deliver(desk, ("ü.txt", lines.encode()), ("ü.txt", b"second"), ("../../x.png", b"\x89PNG\0"))

    async with Client(desk_server(desk), mode="2026-07-28") as client:
        first = await ok(client, "get_attachment", message_id=mail, name="ü.txt")
        rest = await ok(client, "get_attachment", message_id=mail, name="ü.txt", cursor=first["next_cursor"])
        second = await ok(client, "get_attachment", message_id=mail, name="ü.txt#2")
        picture = await ok(client, "get_attachment", message_id=mail, name="x.png")
        unknown = await refused(client, "get_attachment", message_id=mail, name="z.txt")
        bad = await refused(client, "get_attachment", message_id=mail, name="ü.txt", cursor="-1")
        saved = await ok(client, "save_attachment", message_id=mail, name="x.png", path="Files/x.png")
        taken = await refused(client, "save_attachment", message_id=mail, name="ü.txt", path="Files/x.png")
        walls = [
            await refused(client, "save_attachment", message_id=mail, name="ü.txt", path=path)
            for path in ("Approved/a.md", "../a.txt", "/etc/a", ".obsidian/a.js", "approved /a.md", "Logs/a.json", "")
        ]

    assert first["text"] + rest["text"] == lines
    assert "next_cursor" not in rest
    assert (second["text"], picture["text"], picture["size"]) == ("second", "", 5)
    assert "holds no text" in picture["warnings"][0]
    assert (unknown["error"], bad["error"]) == ("not_found", "parse_error")
    assert (home.vault / saved["path"]).read_bytes() == b"\x89PNG\0"
    assert taken["error"] == "permission_denied"
    assert {each["error"] for each in walls} <= {"permission_denied", "parse_error"}
    assert not list((home.vault / "Approved").glob("*"))
