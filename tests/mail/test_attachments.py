"""What is attached to a mail: its text, read in a process that can do nothing else, and itself in the vault."""

import io
import subprocess
import sys
import zipfile
import zlib
from collections.abc import AsyncIterator, Mapping
from email.message import EmailMessage

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.mail import archive, documents
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
    body = "".join(
        f"{number} 0 obj\n{each}\nendobj\n" for number, each in enumerate(objects, 1)
    )
    return f"%PDF-1.4\n{body}trailer\n<< /Root 1 0 R /Size 6 >>\nstartxref\n0\n%%EOF\n".encode()


def read(
    content: bytes,
    kind: str = "application/octet-stream",
    name: str = "x",
    charset: str = "",
) -> tuple[str, list[str]]:
    """In this process, for speed; the other tests start one."""
    warnings: list[str] = []
    reader = documents.find_reader(content, kind, name, charset)
    assert reader is not None
    return "".join(reader(content, warnings.append)), warnings


@requirement("attachments:read")
def test_office_documents_read_as_a_person_sees_them() -> None:
    assert read(
        packed({WORD: PARAGRAPHS, "word/footer1.xml": "<f><p><r><t>foot</t></r></p></f>"})
    ) == (
        "Hello\tworld\na \tb \t\nfoot\n",
        ["hidden text was removed: 6 characters"],
    )
    assert read(packed(SPREADSHEET)) == (
        "## Bills\nName\t\tGröße\n2026-03-01\t2026-03-01 12:00:00\tTRUE\t1.5\tin line\tfar\n\n## Old\nsoon\n\n",
        ["the sheet 'Old' is hidden in the document"],
    )
    text = "## Slide 1\nfirst\ncell\t\n## Slide 2\nlast\n\n## Notes 1\nsay it\n\n"
    assert read(packed(SLIDES)) == (text, [])


BOOK = "<workbook xmlns:r='r'><workbookPr date1904='1'/><sheets><sheet name='S' r:id='a'/></sheets></workbook>"
LINK = "<Relationships><Relationship Id='{}' Type='x/{}' Target='{}'/></Relationships>"
OPEN_HEAD = "<o:d xmlns:o='o' xmlns:text='t' xmlns:table='b' xmlns:style='s'>"
UNUSUAL: dict[str, tuple[dict[str, str], str, list[str]]] = {
    "days are counted from 1904, formulas without a value are shown, seconds are whole": (
        {
            "xl/workbook.xml": BOOK,
            "xl/_rels/workbook.xml.rels": LINK.format("a", "worksheet", "sheets/one.xml"),
            "xl/styles.xml": "<s><cellXfs><xf numFmtId='22'/></cellXfs></s>",
            "xl/sheets/one.xml": "<w><row><c s='0'><v>44894.57291666666</v></c><c s='0'><v>0.5</v></c>"
            "<c><f>SUM(A1:B1)</f><v/></c><c><f>1+1</f><v>2</v></c></row></w>",
        },
        "## S\n2026-11-30 13:45:00\t12:00:00\t=SUM(A1:B1)\t2\n\n",
        [],
    ),
    "numbers that nobody can mean": (
        SPREADSHEET
        | {
            "xl/worksheets/sheet1.xml": f"<w><row><c t='s'><v>{'9' * 5000}</v></c>"
            f"<c s='{'9' * 5000}'><v>1</v></c></row></w>",
            "xl/worksheets/sheet2.xml": "<w/>",
        },
        f"## Bills\n{'9' * 5000}\t1\n\n## Old\n\n",
        ["the sheet 'Old' is hidden in the document"],
    ),
    "cells far to the right, and empty ones further on": (
        {
            "xl/workbook.xml": BOOK,
            "xl/_rels/workbook.xml.rels": LINK.format("a", "worksheet", "sheets/one.xml"),
            "xl/sheets/one.xml": "<w><row><c r='B1'><v>1</v></c><c r='ZZ1'><v>2</v></c><c r='AAA1'/>"
            "<c r='XFD1'><v>3</v></c></row></w>",
        },
        "## S\n\t1\t2\t3\n\n",
        [],
    ),
    "remarks and boxes of a sheet": (
        SPREADSHEET
        | {
            "xl/workbook.xml": "<w/>",
            "xl/comments1.xml": "<c><t>ask Ann</t></c>",
            "xl/drawings/drawing1.xml": "<d><t>in a box</t></d>",
        },
        "ask Annin a box",
        [],
    ),
    "slides in the order in which they are shown": (
        SLIDES
        | {
            "ppt/presentation.xml": "<p xmlns:r='r'><sldId id='1' r:id='b'/><sldId r:id='a' id='2'/></p>",
            "ppt/_rels/presentation.xml.rels": "<x><Relationship Id='a' Target='slides/slide2.xml'/>"
            "<Relationship Id='b' Target='slides/slide10.xml'/></x>",
            "ppt/slides/slide10.xml": "<s show='0'><p><t>last</t></p></s>",
            "ppt/slides/_rels/slide2.xml.rels": LINK.format(
                "n", "notesSlide", "../notesSlides/notesSlide1.xml"
            ),
        },
        "## Slide 1\nlast\n\n## Slide 2\nfirst\ncell\t\n## Notes 2\nsay it\n\n",
        ["slide 1 is hidden in the document"],
    ),
    "a Word file whose text stands elsewhere, once, and without what a style hides": (
        {
            "_rels/.rels": LINK.format("a", "officeDocument", "word/document2.xml"),
            "word/styles.xml": "<w><style styleId='H'><vanish/></style><style styleId='I'><basedOn val='H'/></style>"
            "<style styleId='J'><basedOn val='H'/><vanish val='0'/></style></w>",
            "word/document2.xml": "<w><p><pStyle val='I'/><r><t>gone</t></r></p><p><r><rStyle val='H'/><t>gone</t></r>"
            "<r><t>non</t><noBreakHyphen/><t>breaking</t></r></p><p><pStyle val='J'/><r><t>seen</t></r></p>"
            "<Choice><r><t>box</t></r></Choice><Fallback><a/><r><t>box</t></r></Fallback></w>",
        },
        "\nnon-breaking\nseen\nbox",
        ["hidden text was removed: 8 characters"],
    ),
    "an OpenDocument text": (
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"{OPEN_HEAD}<style:style style:name='H'><style:text-properties text:display='none'/>"
            "</style:style><text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>\n"
            "<text:h>Head</text:h><text:p>two<text:s text:c='2'/>spaces<text:tab/>tab<text:line-break/>next"
            "<text:span text:style-name='H'>hid<text:a>den</text:a></text:span></text:p></o:d>",
            "styles.xml": f"{OPEN_HEAD}<text:p>foot</text:p></o:d>",
        },
        "Head\ntwo  spaces\ttab\nnext\nfoot\n",
        ["hidden text was removed: 6 characters"],
    ),
    "an OpenDocument table": (
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "content.xml": f"{OPEN_HEAD}<table:table table:name='Bills'>"
            "<table:table-row table:number-rows-repeated='2'>"
            "<table:table-cell table:number-columns-repeated='2'><text:p>7</text:p></table:table-cell>"
            "<table:table-cell table:number-columns-repeated='999'/></table:table-row>"
            "<table:table-row table:number-rows-repeated='99999999999'><table:table-cell/></table:table-row>"
            "</table:table></o:d>",
        },
        "## Bills\n7\t7\n7\t7\n",
        [],
    ),
    "OpenDocument slides": (
        {
            "mimetype": "application/vnd.oasis.opendocument.presentation",
            "content.xml": f"{OPEN_HEAD}<page><text:p>one</text:p></page><page><text:p>two</text:p></page></o:d>",
            "styles.xml": f"{OPEN_HEAD}<text:p>of every slide</text:p></o:d>",
        },
        "## Slide 1\none\n## Slide 2\ntwo\n",
        [],
    ),
}


@requirement("attachments:read")
@pytest.mark.parametrize("case", UNUSUAL)
def test_documents_as_other_programs_write_them_read_too(case: str) -> None:
    parts, text, warnings = UNUSUAL[case]

    assert read(packed(parts)) == (text, warnings)


@requirement("attachments:read")
@pytest.mark.parametrize(
    ("content", "kind", "charset"),
    [
        ("Größe, мир".encode("utf-8-sig"), "text/csv", ""),
        ("Größe, мир".encode("utf-16"), "text/plain", ""),
        ("Größe, мир".encode("utf-32"), "text/plain", "us-ascii"),
        (b"\xfe\xff" + "Größe, мир".encode("utf-16-be"), "text/plain", ""),
        ("Größe, мир".encode("utf-16-le"), "text/plain", "UTF-16LE"),
        ("Größe, мир".encode("gb18030"), "text/plain", "gb2312"),
        ("<meta charset='gb18030'><p>Größe, мир".encode("gb18030"), "text/html", ""),
        ("<meta charset='koi8-r'><p>Größe, мир".encode("gb18030"), "text/html", "gb18030"),
        ("Größe,\r\n  мир".encode(), "text/calendar", ""),
    ],
)
def test_a_text_reads_in_the_letters_that_it_was_written_in(
    content: bytes, kind: str, charset: str
) -> None:
    assert read(content, kind, charset=charset) == ("Größe, мир", [])


@requirement("attachments:read")
def test_plain_kinds_and_nested_mails_read_too() -> None:
    assert read("ä;1\r\n".encode("latin-1"), "text/csv") == ("ä;1\n", [])
    assert read(b"BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n", name="a.ics")[0].startswith(
        "BEGIN:VCALENDAR\nEND"
    )
    page = b"<p>Hi <span style='display:none'>secret</span>there</p>"
    assert read(page, "text/html") == (
        "Hi there",
        ["hidden text was removed: 6 characters"],
    )
    inner = EmailMessage()
    inner["From"], inner["Subject"] = "ann@example.org", "Inside"
    inner.set_content("The words.\n")
    inner.add_attachment(b"x", maintype="image", subtype="png", filename="a.png")
    text, _ = read(inner.as_bytes(), "message/rfc822")
    assert (
        text == "From: ann@example.org\nSubject: Inside\nAttachment: a.png\n\nThe words.\n"
    )
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
        (
            packed(
                {WORD: "<!DOCTYPE l [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><l>&b;</l>"}
            ),
            "declares entities",
        ),
        (packed({WORD: "<a><b></a>"}), "is no XML"),
        (packed({"a.txt": "x"}), "an archive of 1 files"),
        (b"PK\3\4junk", "cannot be unpacked"),
        (documents._OLD_OFFICE + b"\0" * 600, "is damaged"),
        (
            documents._OLD_OFFICE + "EncryptedPackage".encode("utf-16-le"),
            "encrypted with a password",
        ),
        (
            packed({WORD: PARAGRAPHS}).replace(
                b"\x14\x00\x00\x00\x08", b"\x14\x00\x01\x00\x08"
            ),
            "encrypted",
        ),
        (
            packed({WORD: PARAGRAPHS}).replace(
                b"\x14\x00\x00\x00\x08", b"\x14\x00\x00\x00\x63"
            ),
            "is damaged",
        ),
        (
            packed({WORD: PARAGRAPHS}).replace(
                zlib.compress(PARAGRAPHS.encode(), 6)[2:6], b"\xff" * 4
            ),
            "unpacked",
        ),
        (
            packed(
                {WORD: f"<!DOCTYPE a [<!ENTITY x SYSTEM 'file://{__file__}'>]><t>&x;</t>"}
            ),
            "declares entities",
        ),
        (
            packed(
                {"mimetype": "x", "content.xml": "<!DOCTYPE a [<!ENTITY b 'b'>]><p>&b;</p>"}
            ),
            "declares entities",
        ),
        (
            packed(
                {
                    "mimetype": "x",
                    "content.xml": b"\xff",
                    "META-INF/manifest.xml": "<m><encryption-data/></m>",
                }
            ),
            "encrypted",
        ),
        (
            packed({"xl/workbook.xml": "<w/>", "xl/sharedStrings.xml": "<a>" * 500_000}),
            "unpacks to more than",
        ),
        (packed({WORD: b"<?xml version='1.0' encoding='x-none'?><a/>"}), "is no XML"),
        (packed({WORD: b"<?xml version='1.0' encoding='idna'?><a/>"}), "is no XML"),
    ],
)
def test_a_hostile_document_gets_a_clear_answer(
    content: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xlrd")
    monkeypatch.setattr(archive, "MOST_UNPACKED", 1_000_000)

    with pytest.raises(archive.NoText, match=said):
        read(content)


@requirement("attachments:bounded")
def test_a_process_of_its_own_reads_and_a_long_text_is_cut() -> None:
    long = packed({WORD: "<a><t>" + "x" * 3_000_000 + "</t></a>"})

    found = extract(long, "application/octet-stream", "a.docx")

    assert (len(found.text), found.warnings) == (
        2_000_000,
        ("the text was cut after 2,000,000 characters",),
    )
    assert extract(b"word", "text/csv\0", "\ud800\0.csv").text == "word"
    broken = extract(b"%PDF-1.7 junk", "application/pdf", "a.pdf")
    assert (broken.text, len(broken.warnings)) == ("", 1)
    assert (
        extract("мир\x1b[2J".encode("koi8-r"), "text/plain", "a.txt", "koi8-r").text
        == "мир[2J"
    )
    assert (
        extract(packed({WORD: "<a/>"}), "", "a.docx")
        .warnings[0]
        .startswith("no text was found in it")
    )
    assert extract(b"", "", "a.docx").warnings == ("It is empty.",)
    assert extract(b"MZ", "", "a.docx").warnings == (
        "The document is damaged: it cannot be unpacked.",
    )
    assert (
        extract(b"a,b\0c and what follows it\n", "text/csv", "a.csv").text
        == "a,bc and what follows it\n"
    )
    assert extract(b"\x89PNG\r\n\0", "text/plain", "a.txt").warnings == (
        "Its bytes are no text, whatever it is called.",
    )


ESCAPES = """
import ctypes, os, platform, resource, signal, socket, sys
from deskhand.mail import confinement
landlock = ctypes.CDLL(None).syscall(444, None, 0, 1)
libc = ctypes.CDLL(None, use_errno=True)
def call(*given):
    if libc.syscall(*given) < 0:
        raise OSError(ctypes.get_errno(), "refused")
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
    "queue": lambda: call(*{"x86_64": (129,), "aarch64": (138,)}[platform.machine()], os.getppid(), 0, None),
    "pidfd": lambda: os.pidfd_open(os.getppid()),
    "signal": lambda: signal.pidfd_send_signal(0, 0),
    "mknod": lambda: os.mknod(sys.argv[1] + "y"),
    "mkfifo": lambda: os.mkfifo(sys.argv[1] + "z"),
    "fchmod": lambda: os.fchmod(0, 0o600),
    "fchmodat2": lambda: call(452, -100, sys.argv[1].encode(), 0o600, 0),
    "chown": lambda: os.chown(sys.argv[1], os.getuid(), os.getgid()),
    "lchown": lambda: os.lchown(sys.argv[1], os.getuid(), os.getgid()),
    "fchown": lambda: os.fchown(0, os.getuid(), os.getgid()),
    "utime": lambda: os.utime(sys.argv[1]),
    "setxattr": lambda: os.setxattr(sys.argv[1], "user.x", b"y"),
    "removexattr": lambda: os.removexattr(sys.argv[1], "user.x"),
    "memory": lambda: bytearray(1 << 30),
}
if landlock > 0:
    ways |= {"read": lambda: open(sys.argv[1]), "list": lambda: os.listdir("/"), "who": lambda: open("/etc/passwd")}
for name, way in ways.items():
    try:
        way()
        print(name)
    except (PermissionError, MemoryError):
        pass
print(resource.getrlimit(resource.RLIMIT_CPU))
import encodings.koi8_r, wave  # not yet imported, and never needed before
"""


@requirement("attachments:bounded")
def test_whoever_takes_over_the_reader_gets_nowhere(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = tmp_path_factory.mktemp("wall") / "note"
    file.write_text("word")

    done = subprocess.run(
        [sys.executable, "-c", ESCAPES, str(file)],
        capture_output=True,
        text=True,
        check=False,
    )

    if done.stderr.strip() == "unheld":
        pytest.skip("this kernel or machine does not hold a process (seccomp)")
    assert (done.stdout, done.stderr) == ("(10, 10)\n", "")


@pytest.fixture
async def desk(home: Home) -> AsyncIterator[Desk]:
    made = Desk(
        load(
            home.environment | {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_USER": "me"}
        ).settings
    )
    yield made
    await made.close_mailbox()
    made.close()


async def deliver(desk: Desk, *files: tuple[str, bytes]) -> str:
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "ann@example.org", "Files"
    mail.set_content("See below.\n")
    for name, content in files:
        mail.add_attachment(
            content, maintype="application", subtype="octet-stream", filename=name
        )
    mailbox = desk.mailbox
    assert isinstance(mailbox, LocalMailbox)
    await mailbox.receive([Incoming(mail.as_bytes(), seen=True)])
    return (await mailbox.search("", 1))[0].id


@pytest.mark.anyio
@requirement("attachments:read")
async def test_an_attachment_is_read_in_pages_and_saved_through_the_vaults_walls(
    home: Home, desk: Desk
) -> None:
    lines = "".join(f"Line {number}\n" for number in range(4000))
    mail = await deliver(
        desk,
        ("ü.txt", lines.encode()),
        ("ü.txt", b"second"),
        ("ü.txt#2", b"third"),
        ("../../x.png", b"\x89PNG\0"),
    )

    async with Client(desk_server(desk), mode="2026-07-28") as client:
        named = (await ok(client, "get_email", message_id=mail))["attachment_names"]
        first = await ok(client, "get_attachment", message_id=mail, name="ü.txt")
        rest = await ok(
            client,
            "get_attachment",
            message_id=mail,
            name="ü.txt",
            cursor=first["next_cursor"],
        )
        second, third = [
            await ok(client, "get_attachment", message_id=mail, name=name)
            for name in named[1:3]
        ]
        picture = await ok(client, "get_attachment", message_id=mail, name="x.png")
        unknown = await refused(client, "get_attachment", message_id=mail, name="z.txt")
        bad = await refused(
            client, "get_attachment", message_id=mail, name="ü.txt", cursor="-1"
        )
        saved = await ok(
            client, "save_attachment", message_id=mail, name="x.png", path="Files/x.png"
        )
        taken = await refused(
            client, "save_attachment", message_id=mail, name="ü.txt", path="Files/x.png"
        )
        walls = [
            await refused(
                client, "save_attachment", message_id=mail, name="ü.txt", path=path
            )
            for path in (
                "Approved/a.md",
                "../a.txt",
                "/etc/a",
                ".obsidian/a.js",
                "approved /a.md",
                "Logs/a.json",
                "",
            )
        ]

    assert first["text"] + rest["text"] == lines
    assert "next_cursor" not in rest
    assert named == ["ü.txt", "ü.txt#2", "ü.txt#2#2", "x.png"]
    assert [second["text"], third["size"]] == ["second", len("third")]
    assert (picture["text"], picture["size"]) == ("", 5)
    assert "holds no text" in picture["warnings"][0]
    assert (unknown["error"], bad["error"]) == ("not_found", "parse_error")
    assert (home.vault / saved["path"]).read_bytes() == b"\x89PNG\0"
    assert taken["error"] == "permission_denied"
    assert {each["error"] for each in walls} <= {"permission_denied", "parse_error"}
    assert not list((home.vault / "Approved").glob("*"))
