"""Makes documents as people send them, each with a real program, and writes down what stands in them.

    python document_makers.py FOLDER

It runs in an environment of its own, in which these libraries are; `torture/documents.py` makes that and reads the
documents. index.json says of each: what made it, its name and type, what must be read, in this order, what must not
be, and which words a warning must have.
"""
# ruff: noqa: C901, DTZ001, PLR0915, RUF001, SLF001 - one document after another, as each library wants it

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime
from email.message import EmailMessage
from pathlib import Path

LATIN = ["Invoice 4711 of Ann Example", "Größe: 12,50 € – «ja»", "Zażółć gęślą jaźń"]
GREEK = [*LATIN, "Привет, мир", "Ελληνικά κείμενα"]
EVERY = [*GREEK, "日本語の文書", "نص عربي", "हिन्दी पाठ"]
FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"
OPEN_XML = "application/vnd.openxmlformats-officedocument"
WORD = f"{OPEN_XML}.wordprocessingml.document"
SHEET = f"{OPEN_XML}.spreadsheetml.sheet"
SLIDES = f"{OPEN_XML}.presentationml.presentation"
OPEN = "application/vnd.oasis.opendocument"
ROWS = [
    ["Name", "Amount", "Due"],
    ["Ann Müller", "12.5", "2026-11-30"],
    ["Łukasz", "-3", "2027-01-01"],
]
CELLS = [cell for row in ROWS for cell in row]

Document = dict[str, object]
made: list[Document] = []
folder = Path()


def keep(
    by: str, name: str, kind: str, content: bytes | None, holds: list[str], **more: object
) -> Path:
    place = folder / f"{len(made):02}-{name}"
    if content is not None:
        place.write_bytes(content)
    made.append(
        {"by": by, "name": name, "file": place.name, "kind": kind, "holds": holds} | more
    )
    return place


def make_word() -> None:
    import docx
    from docx.enum.text import WD_BREAK

    by = "python-docx"

    def save(name: str, document: object, holds: list[str], **more: object) -> None:
        content = io.BytesIO()
        document.save(content)
        keep(by, name, WORD, content.getvalue(), holds, **more)

    plain = docx.Document()
    for line in EVERY:
        plain.add_paragraph(line)
    save("plain.docx", plain, EVERY)

    rich = docx.Document()
    rich.add_heading("Report", 0)
    rich.add_heading("First part", 1)
    paragraph = rich.add_paragraph("A ")
    paragraph.add_run("bold").bold = True
    paragraph.add_run(" and an ")
    paragraph.add_run("italic").italic = True
    paragraph.add_run(" word")
    for item in ("one", "two"):
        rich.add_paragraph(f"Point {item}", style="List Bullet")
    rich.add_paragraph().add_run().add_break(WD_BREAK.PAGE)
    rich.add_paragraph("On the next page")
    save(
        "rich.docx",
        rich,
        [
            "Report",
            "First part",
            "A bold and an italic word",
            "Point one",
            "Point two",
            "next page",
        ],
    )

    table = docx.Document()
    grid = table.add_table(rows=0, cols=3)
    for row in ROWS:
        for cell, value in zip(grid.add_row().cells, row, strict=True):
            cell.text = value
    inner = grid.cell(2, 2).add_table(rows=1, cols=1)
    inner.cell(0, 0).text = "a table in a table"
    save("table.docx", table, [*CELLS, "a table in a table"])

    edges = docx.Document()
    edges.add_paragraph("The body")
    edges.sections[0].header.paragraphs[0].text = "The head of the page"
    edges.sections[0].footer.paragraphs[0].text = "The foot of the page"
    edges.add_comment(edges.paragraphs[0].runs, text="A remark of Bob", author="Bob")
    around = ["The head of the page", "The foot of the page", "A remark of Bob"]
    save("edges.docx", edges, ["The body"], anywhere=around)

    hidden = docx.Document()
    hidden.add_paragraph("Seen").add_run("NEVERSEEN").font.hidden = True
    style = hidden.styles.add_style("Unseen", 1)
    style.font.hidden = True
    hidden.add_paragraph("NEVERSTYLED", style="Unseen")
    save(
        "hidden.docx",
        hidden,
        ["Seen"],
        lacks=["NEVERSEEN", "NEVERSTYLED"],
        warns=["hidden text was removed"],
    )

    long = docx.Document()
    for number in range(3000):
        long.add_paragraph(f"Paragraph {number} of many")
    save("long.docx", long, ["Paragraph 0 of", "Paragraph 1500 of", "Paragraph 2999 of"])
    save("empty.docx", docx.Document(), [])


def make_sheets() -> None:
    import openpyxl
    import xlsxwriter
    from openpyxl.comments import Comment
    from openpyxl.utils.datetime import CALENDAR_MAC_1904

    def save(name: str, book: object, holds: list[str], **more: object) -> None:
        content = io.BytesIO()
        book.save(content)
        keep("openpyxl", name, SHEET, content.getvalue(), holds, **more)

    book = openpyxl.Workbook()
    for line in EVERY:
        book.active.append([line, "beside"])
    save("texts.xlsx", book, EVERY)

    book = openpyxl.Workbook()
    book.active.append(
        [1, 2.5, True, date(2026, 11, 30), datetime(2026, 11, 30, 13, 45), 1e-7]
    )
    book.active["A2"] = 0.25
    book.active["A2"].number_format = "0%"
    book.active["B2"] = date(2026, 2, 3)
    book.active["B2"].number_format = 'dd"th of" mmmm yyyy'
    save(
        "numbers.xlsx",
        book,
        ["1", "2.5", "TRUE", "2026-11-30", "2026-11-30 13:45:00", "2026-02-03"],
    )

    book = openpyxl.Workbook()
    book.epoch = CALENDAR_MAC_1904
    book.active["A1"] = date(2026, 11, 30)
    save("mac.xlsx", book, ["2026-11-30"])

    book = openpyxl.Workbook()
    book.active.append([1, 2, "=SUM(A1:B1)"])
    book.active["A2"].comment = Comment("Ask Ann about it", "Bob")
    save("formula.xlsx", book, ["1", "2", "=SUM(A1:B1)"])

    book = openpyxl.Workbook()
    book.active.title = "First"
    book.active["A1"] = "on the first"
    book.create_sheet("Zweite Größe")["A1"] = "on the second"
    book.create_sheet("Third")["C3"] = "on the third"
    book["Third"].sheet_state = "hidden"
    book.move_sheet("Zweite Größe", -1)
    wanted = [
        "## Zweite Größe",
        "on the second",
        "## First",
        "on the first",
        "## Third",
        "on the third",
    ]
    save("several.xlsx", book, wanted, warns=["'Third' is hidden"])

    book = openpyxl.Workbook()
    book.active.merge_cells("A1:C1")
    book.active["A1"] = "over three"
    book.active["D1"] = "beside"
    book.active["A2"] = "two\nlines"
    save("merged.xlsx", book, ["over three", "beside", "two", "lines"])

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Many")
    for number in range(20_000):
        sheet.append([number, f"Row {number}", number * 1.5])
    save("many.xlsx", book, ["Row 0", "Row 10000", "Row 19999"])

    def write(
        name: str,
        fill: Callable[[object, object], None],
        holds: list[str],
        **options: object,
    ) -> None:
        content = io.BytesIO()
        book = xlsxwriter.Workbook(content, options)
        fill(book, book.add_worksheet("Data"))
        book.close()
        keep("XlsxWriter", name, SHEET, content.getvalue(), holds)

    def fill_rich(book: object, sheet: object) -> None:
        sheet.write_rich_string(
            0, 0, "a ", book.add_format({"bold": True}), "bold", " word"
        )
        sheet.write_url(1, 0, "https://example.org/", string="a link")
        sheet.write_datetime(
            2,
            0,
            datetime(2026, 11, 30, 8, 15),
            book.add_format({"num_format": "hh:mm dd.mm.yyyy"}),
        )
        sheet.write_formula(3, 0, "=1+1", None, 2)
        sheet.write_boolean(4, 0, False)
        sheet.write_formula(5, 0, '="a"&"b"', None, "ab")
        sheet.write_number(6, 0, 3.5, book.add_format({"num_format": '[Red]0.00 "days"'}))

    write(
        "rich.xlsx",
        fill_rich,
        ["a bold word", "a link", "2026-11-30 08:15:00", "2", "FALSE", "ab", "3.5"],
    )

    def fill_rows(_: object, sheet: object) -> None:
        for at, row in enumerate(ROWS):
            for column, value in enumerate(row):
                sheet.write_string(at, column, value)

    write("constant.xlsx", fill_rows, CELLS, constant_memory=True)
    write("strings.xlsx", fill_rows, CELLS)
    write("zip64.xlsx", fill_rows, CELLS, use_zip64=True)

    def fill_drawn(book: object, sheet: object) -> None:
        fill_rows(book, sheet)
        sheet.insert_textbox(5, 1, "A word in a box")
        chart = book.add_chart({"type": "column"})
        chart.add_series({"values": "=Data!$B$2:$B$3"})
        sheet.insert_chart("F2", chart)
        picture = book.add_chart({"type": "line"})
        picture.add_series({"values": "=Data!$B$2:$B$3"})
        book.add_chartsheet("Picture").set_chart(picture)

    write("drawn.xlsx", fill_drawn, [*CELLS, "## Picture"])


def make_slides() -> None:
    import pptx
    from pptx.util import Inches

    def save(name: str, deck: object, holds: list[str], **more: object) -> None:
        content = io.BytesIO()
        deck.save(content)
        keep("python-pptx", name, SLIDES, content.getvalue(), holds, **more)

    def add(deck: object, title: str, text: str) -> object:
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
        return slide

    deck = pptx.Presentation()
    for number, line in enumerate(EVERY, 1):
        add(deck, f"Title {number}", line)
    save(
        "plain.pptx",
        deck,
        [each for at, line in enumerate(EVERY, 1) for each in (f"Title {at}", line)],
    )

    deck = pptx.Presentation()
    slide = add(deck, "With a table", "and points\nin two lines")
    grid = slide.shapes.add_table(3, 3, Inches(1), Inches(3), Inches(6), Inches(2)).table
    for at, row in enumerate(ROWS):
        for column, value in enumerate(row):
            grid.cell(at, column).text = value
    slide.notes_slide.notes_text_frame.text = "Say it slowly"
    save(
        "table.pptx",
        deck,
        ["With a table", "and points", "in two lines", *CELLS, "Say it slowly"],
    )

    deck = pptx.Presentation()
    slide = add(deck, "Grouped", "x")
    group = slide.shapes.add_group_shape()
    box = group.shapes.add_textbox(Inches(1), Inches(1), Inches(2), Inches(1))
    box.text_frame.text = "inside of a group"
    save("group.pptx", deck, ["Grouped", "inside of a group"])

    deck = pptx.Presentation()
    for name in ("Alpha", "Beta", "Gamma"):
        add(deck, name, "x")
    order = deck.slides._sldIdLst
    order.append(order[0])
    save("order.pptx", deck, ["Beta", "Gamma", "Alpha"])

    deck = pptx.Presentation()
    add(deck, "Shown", "x")
    slide = add(deck, "Not shown", "x")
    slide._element.set("show", "0")
    save("hidden.pptx", deck, ["Shown", "Not shown"], warns=["hidden"])


def make_pdfs() -> None:
    import cairocffi
    import fpdf
    import pikepdf
    from reportlab.lib.pagesizes import A4
    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont
    from reportlab.pdfgen import canvas
    from reportlab.platypus import Paragraph, SimpleDocTemplate, Table

    pdf = "application/pdf"
    pdfmetrics.registerFont(TTFont("Own", FONT))

    def draw(lines: list[str], font: str, **options: object) -> bytes:
        content = io.BytesIO()
        page = canvas.Canvas(content, pagesize=A4, **options)
        for at, line in enumerate(lines):
            page.setFont(font, 12)
            page.drawString(72, 750 - 20 * (at % 30), line)
            if at % 30 == 29:
                page.showPage()
        page.save()
        return content.getvalue()

    by = "reportlab"
    keep(by, "plain.pdf", pdf, draw(LATIN[:2], "Helvetica"), LATIN[:2])
    keep(
        by,
        "unpacked.pdf",
        pdf,
        draw(LATIN[:2], "Times-Roman", pageCompression=0),
        LATIN[:2],
    )
    keep(by, "unicode.pdf", pdf, draw(GREEK, "Own"), GREEK)
    many = [f"Line {number} of many" for number in range(900)]
    keep(
        by, "pages.pdf", pdf, draw(many, "Own"), ["Line 0 of", "Line 450 of", "Line 899 of"]
    )
    for strength in (40, 128):
        opened = StandardEncryption("", ownerPassword="owner", strength=strength)
        keep(
            by,
            f"open{strength}.pdf",
            pdf,
            draw(LATIN[:1], "Helvetica", encrypt=opened),
            LATIN[:1],
        )
        closed = StandardEncryption("secret", strength=strength)
        content = draw(LATIN[:1], "Helvetica", encrypt=closed)
        keep(
            by,
            f"closed{strength}.pdf",
            pdf,
            content,
            [],
            lacks=["Invoice"],
            warns=["encrypted with a password"],
        )
    content = io.BytesIO()
    styles = getSampleStyleSheet()
    story = [
        Paragraph("A title", styles["Title"]),
        Paragraph("Words " * 300, styles["BodyText"]),
        Table(ROWS[:2]),
    ]
    SimpleDocTemplate(content).build(story)
    keep(
        by,
        "platypus.pdf",
        pdf,
        content.getvalue(),
        ["A title", "Words Words", "Name", "Amount", "Ann Müller"],
    )
    content = io.BytesIO()
    form = canvas.Canvas(content)
    form.drawString(72, 750, "Fill it in")
    form.acroForm.textfield(name="city", value="Filled with Berlin", x=72, y=700)
    form.save()
    keep(
        by,
        "form.pdf",
        pdf,
        content.getvalue(),
        ["Fill it in"],
        anywhere=["Filled with Berlin"],
    )

    paper = fpdf.FPDF()
    paper.add_font("Own", fname=FONT)
    paper.set_font("Own", size=12)
    paper.add_page()
    for line in GREEK:
        paper.multi_cell(0, 10, line, new_x="LMARGIN", new_y="NEXT")
    keep("fpdf2", "cells.pdf", pdf, bytes(paper.output()), GREEK)
    paper = fpdf.FPDF()
    paper.set_font("Helvetica", size=12)
    paper.add_page()
    with paper.table() as grid:
        for row in ROWS[:2]:
            grid.row(row)
    keep("fpdf2", "table.pdf", pdf, bytes(paper.output()), CELLS[:6])

    place = keep("cairo", "drawn.pdf", pdf, None, GREEK)
    surface = cairocffi.PDFSurface(str(place), 595, 842)
    context = cairocffi.Context(surface)
    context.select_font_face("DejaVu Sans")
    context.set_font_size(14)
    for at, line in enumerate(GREEK):
        context.move_to(72, 100 + 40 * at)
        context.show_text(line)
    surface.finish()
    place = keep("cairo", "pages.pdf", pdf, None, ["Page 1 here", "Page 2 here"])
    surface = cairocffi.PDFSurface(str(place), 595, 842)
    context = cairocffi.Context(surface)
    for number in (1, 2):
        context.move_to(72, 100)
        context.show_text(f"Page {number} here")
        context.show_page()
    surface.finish()

    source = folder / f"{len(made):02}-source.pdf"
    source.write_bytes(draw(GREEK, "Own"))
    for name, options in {
        "packed.pdf": ["--object-streams=generate", "--compress-streams=y"],
        "linear.pdf": ["--linearize"],
        "turned.pdf": ["--rotate=90"],
        "aes.pdf": ["--encrypt", "", "owner", "256", "--"],
    }.items():
        place = keep("qpdf", name, pdf, None, GREEK)
        subprocess.run(["qpdf", *options, source, place], check=True)
    place = keep(
        "qpdf",
        "closed.pdf",
        pdf,
        None,
        [],
        lacks=["Invoice"],
        warns=["encrypted with a password"],
    )
    subprocess.run(
        ["qpdf", "--encrypt", "secret", "owner", "256", "--", source, place], check=True
    )
    for device, level in (("pdfwrite", "1.4"), ("pdfwrite", "1.7")):
        # What of a letter beyond ASCII stands there no program can tell: ghostscript leaves it out.
        place = keep("ghostscript", f"gs{level}.pdf", pdf, None, LATIN[:1])
        command = [
            "gs",
            "-q",
            "-dNOPAUSE",
            "-dBATCH",
            f"-sDEVICE={device}",
            f"-dCompatibilityLevel={level}",
        ]
        subprocess.run([*command, f"-sOutputFile={place}", source], check=True)
    script = folder / "source.ps"
    script.write_text(
        "%!PS\n/Times-Roman findfont 14 scalefont setfont 72 700 moveto (From PostScript 42) show showpage\n"
    )
    place = keep("ghostscript", "postscript.pdf", pdf, None, ["From PostScript 42"])
    subprocess.run(["ps2pdf", script, place], check=True)
    with pikepdf.open(source) as document:
        document.attachments["note.txt"] = b"An attached note"
        content = io.BytesIO()
        document.save(content)
    keep("pikepdf", "attached.pdf", pdf, content.getvalue(), GREEK)
    source.unlink()
    script.unlink()


TEXT_SOURCE = """<?xml version="1.0" encoding="UTF-8"?>
<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"
 office:version="1.3" office:mimetype="application/vnd.oasis.opendocument.text"><office:body><office:text>
<text:h text:outline-level="1">A heading</text:h>{paragraphs}
<text:list><text:list-item><text:p>First point</text:p></text:list-item></text:list>
<table:table table:name="T"><table:table-column table:number-columns-repeated="3"/>{rows}</table:table>
<text:p>With a note<text:note text:note-class="footnote"><text:note-citation>1</text:note-citation>
<text:note-body><text:p>at the foot</text:p></text:note-body></text:note> and<text:s text:c="2"/>spaces<text:tab/>tab
</text:p></office:text></office:body></office:document>"""
SLIDE_SOURCE = """<?xml version="1.0" encoding="UTF-8"?>
<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"
 xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"
 xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"
 office:version="1.3" office:mimetype="application/vnd.oasis.opendocument.presentation">
<office:body><office:presentation>{slides}</office:presentation></office:body></office:document>"""


def make_office() -> None:
    """What LibreOffice writes of a text, a table and slides."""
    cells = [
        [f"<table:table-cell><text:p>{each}</text:p></table:table-cell>" for each in row]
        for row in ROWS
    ]
    rows = "".join(f"<table:table-row>{''.join(row)}</table:table-row>" for row in cells)
    paragraphs = "".join(f"<text:p>{line}</text:p>" for line in EVERY)
    text = folder / "letter.fodt"
    text.write_text(TEXT_SOURCE.format(paragraphs=paragraphs, rows=rows))
    frame = '<draw:frame svg:x="2cm" svg:y="2cm" svg:width="20cm" svg:height="3cm"><draw:text-box><text:p>{}</text:p>'
    frame += "</draw:text-box></draw:frame>"
    slides = folder / "talk.fodp"
    pages = "".join(
        f'<draw:page draw:name="p{at}">{frame.format(line)}</draw:page>'
        for at, line in enumerate(EVERY)
    )
    slides.write_text(SLIDE_SOURCE.format(slides=pages))
    table = folder / "bills.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows(ROWS)
    written = ["A heading", *EVERY, "First point", *CELLS, "With a note", "and spaces tab"]
    in_pdf = ["A heading", *GREEK, "First point", *CELLS]
    wanted: dict[Path, dict[str, tuple[str, list[str], dict[str, object]]]] = {
        text: {
            "docx": (WORD, written, {"anywhere": ["at the foot"]}),
            "odt": (f"{OPEN}.text", written, {"anywhere": ["at the foot"]}),
            "rtf": ("application/rtf", written, {"anywhere": ["at the foot"]}),
            "pdf": ("application/pdf", in_pdf, {}),
            "html": ("text/html", ["A heading", *EVERY, "First point", *CELLS], {}),
            "txt": ("text/plain", ["A heading", *EVERY, "First point", *CELLS], {}),
            "doc": ("application/msword", written, {"anywhere": ["at the foot"]}),
            "epub": ("application/epub+zip", [], {"warns": ["archive of"]}),
        },
        table: {
            "xlsx": (SHEET, CELLS, {}),
            "ods": (f"{OPEN}.spreadsheet", CELLS, {}),
            "pdf": ("application/pdf", CELLS, {}),
            "html": ("text/html", CELLS, {}),
            "xls": ("application/vnd.ms-excel", CELLS, {}),
        },
        slides: {
            "pptx": (SLIDES, EVERY, {}),
            "odp": (f"{OPEN}.presentation", EVERY, {}),
            "pdf": ("application/pdf", GREEK, {}),
            "ppt": ("application/vnd.ms-powerpoint", EVERY, {}),
        },
    }
    office = [
        "soffice",
        "--headless",
        "--norestore",
        f"-env:UserInstallation=file://{folder}/profile",
    ]
    out = folder / "out"
    for source, kinds in wanted.items():
        taken = ["--infilter=CSV:44,34,76"] if source == table else []
        for ending, (kind, holds, more) in kinds.items():
            goal = "txt:Text (encoded):UTF8" if ending == "txt" else ending
            command = [*office, *taken, "--convert-to", goal, "--outdir", out, source]
            subprocess.run(command, check=True, capture_output=True)
            result = out / f"{source.stem}.{ending}"
            keep("LibreOffice", result.name, kind, result.read_bytes(), holds, **more)
            result.unlink()
        source.unlink()


def make_open() -> None:
    from odf import opendocument, table, teletype, text

    document = opendocument.OpenDocumentText()
    document.text.addElement(text.H(outlinelevel=1, text="A heading"))
    for line in EVERY:
        paragraph = text.P()
        teletype.addTextToElement(paragraph, line)
        document.text.addElement(paragraph)
    content = io.BytesIO()
    document.write(content)
    keep("odfpy", "letter.odt", f"{OPEN}.text", content.getvalue(), ["A heading", *EVERY])
    book = opendocument.OpenDocumentSpreadsheet()
    sheet = table.Table(name="Bills")
    for row in ROWS:
        line = table.TableRow()
        for value in row:
            cell = table.TableCell()
            cell.addElement(text.P(text=value))
            line.addElement(cell)
        sheet.addElement(line)
    book.spreadsheet.addElement(sheet)
    content = io.BytesIO()
    book.write(content)
    keep("odfpy", "bills.ods", f"{OPEN}.spreadsheet", content.getvalue(), ["Bills", *CELLS])


def make_mails() -> None:
    def letter(**fields: str) -> EmailMessage:
        mail = EmailMessage()
        mail["From"] = "Ann Müller <ann@example.org>"
        mail["To"] = "me@example.com"
        mail["Subject"] = fields.get("subject", "Über den Plan")
        return mail

    by = "email"
    heads = [
        "From: Ann Müller <ann@example.org>",
        "To: me@example.com",
        "Subject: Über den Plan",
    ]
    mail = letter()
    mail.set_content("\n".join(EVERY))
    keep(by, "plain.eml", "message/rfc822", mail.as_bytes(), [*heads, *EVERY])
    mail = letter()
    mail.set_content("Привет, мир", charset="koi8-r")
    keep(by, "koi8.eml", "message/rfc822", mail.as_bytes(), [*heads, "Привет, мир"])
    mail = letter()
    mail.set_content("日本語の文書", charset="iso-2022-jp")
    keep(by, "japanese.eml", "message/rfc822", mail.as_bytes(), [*heads, "日本語の文書"])
    mail = letter()
    mail.set_content("short")
    mail.add_alternative("<p>The <b>long</b> text of it</p>" * 5, subtype="html")
    mail.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="Größe.png")
    chosen = {"warns": ["the HTML is shown"]}
    wanted = [*heads, "Attachment: Größe.png", "The long text of it"]
    keep(by, "rich.eml", "message/rfc822", mail.as_bytes(), wanted, **chosen)
    outer = letter(subject="Fwd")
    outer.set_content("See inside.")
    outer.add_attachment(mail)
    keep(
        by,
        "nested.eml",
        "application/octet-stream",
        outer.as_bytes(),
        ["Attachment: Über den Plan.eml", "See inside."],
    )
    keep(
        by,
        "typed.bin",
        "message/rfc822",
        mail.as_bytes(),
        ["The long text of it"],
        **chosen,
    )


def make_texts() -> None:
    import icalendar
    import vobject

    event = icalendar.Event()
    event.add("summary", "Größe besprechen; with Ann, Bob")
    event.add("dtstart", datetime(2026, 11, 30, 9, 0))
    event.add("rrule", {"freq": "daily", "count": 3})
    event.add("description", "A long text " * 20 + "at its end")
    calendar = icalendar.Calendar()
    calendar.add_component(event)
    keep(
        "icalendar",
        "meet.ics",
        "text/calendar",
        calendar.to_ical(),
        ["SUMMARY:Größe besprechen", "FREQ=DAILY"],
    )
    card = vobject.vCard()
    card.add("fn").value = "Ann Müller"
    card.add("email").value = "ann@example.org"
    content = card.serialize().encode()
    keep(
        "vobject",
        "ann.vcf",
        "text/vcard",
        content,
        ["Ann Müller", "ann@example.org"],
        in_order=False,
    )

    rows = io.StringIO()
    csv.writer(rows).writerows([*ROWS, *[[line] for line in EVERY]])
    lines = [*CELLS, *EVERY]
    for name, charset, kind in (
        ("utf8.csv", "utf-8", "text/csv"),
        ("mark.csv", "utf-8-sig", "text/csv"),
        ("excel.txt", "utf-16", "text/plain"),
        ("big.txt", "utf-16-be", "text/plain; charset=utf-16be"),
        ("other.tsv", "utf-16", "application/octet-stream"),
        ("wide.txt", "utf-32", "text/plain"),
        ("chinese.txt", "gb18030", "text/plain; charset=gb2312"),
    ):
        keep(
            "csv",
            name,
            kind,
            rows.getvalue().encode(charset),
            lines,
            lacks=["\ufeff", "\0"],
        )
    keep("csv", "old.csv", "text/csv", ";".join(LATIN[:2]).encode("cp1252"), LATIN[:2])
    keep(
        "csv",
        "russian.txt",
        "text/plain; charset=koi8-r",
        "Привет, мир".encode("koi8-r"),
        ["Привет, мир"],
    )
    keep(
        "json",
        "a.json",
        "application/json",
        json.dumps({"a": EVERY}, ensure_ascii=False).encode(),
        EVERY,
    )
    keep(
        "by hand",
        "a.md",
        "text/markdown",
        "# Größe\n\n- one\n".encode(),
        ["# Größe", "- one"],
    )
    page = (
        '<html><head><meta charset="koi8-r"></head><body><p>Привет, мир</p></body></html>'
    )
    keep("by hand", "russian.html", "text/html", page.encode("koi8-r"), ["Привет, мир"])
    page = (
        "<html><body><p>Größe <span style='display:none'>NEVERSEEN</span></p></body></html>"
    )
    keep(
        "by hand",
        "wide.html",
        "text/html",
        page.encode("utf-16"),
        ["Größe"],
        lacks=["NEVERSEEN"],
        warns=["hidden text"],
    )
    keep(
        "by hand",
        "picture.png",
        "image/png",
        b"\x89PNG\r\n\x1a\n" + bytes(50),
        [],
        has_text=False,
    )


def make_all(place: Path) -> None:
    global folder  # noqa: PLW0603 - a program of one call
    folder = place
    for make in (
        make_word,
        make_sheets,
        make_slides,
        make_pdfs,
        make_open,
        make_mails,
        make_texts,
        make_office,
    ):
        make()
    (folder / "index.json").write_text(json.dumps(made, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    make_all(Path(sys.argv[1]))
