"""Hostile texts of any size, and everything that reads text from outside: each has to cost linear time.

A shape is a piece that is repeated: what made some reader look again and again at the same characters.
"""

import gc
import io
import string
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from zoneinfo import ZoneInfo

from imapclient.exceptions import ProtocolError
from imapclient.response_parser import parse_response

from deskhand import audit, unseen
from deskhand.agents import lines
from deskhand.cli.command import plain
from deskhand.errors import DeskError
from deskhand.gate import authorship, files, oddities, risk
from deskhand.gate.actions import Mail
from deskhand.gate.differences import describe_difference
from deskhand.mail import (
    addresses,
    google_http,
    imap_connection,
    imap_session,
    importing,
    mime,
    query,
)
from deskhand.notes import editing, frontmatter, links
from deskhand.notes.editing import Edit
from deskhand.notes.outline import read_outline
from deskhand.notes.templates import Filler
from deskhand.orchestrator import triage
from deskhand.tasks import vtodo
from deskhand.web import markdown, visible

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = 2.5
"""How many times longer twice the text may take."""
UNNOTICED = 0.06
"""Seconds below which the growth of a text's cost is noise."""

_TAGS = "a b p li td tr div table dl dd style script title svg select details button ul font body html head"
_FIELDS = "From To Cc Reply-To Subject References In-Reply-To Message-ID Received Date List-Id Content-Type"
PIECES = (
    *(
        "==a ",
        "[^a]: b\n",
        "[^1]\n\n[^1]: [^1]\n",
        "^[a",
        "#a ",
        "![[a]]\n\n",
        "> [!a]\n",
        "- [x] a\n",
    ),
    *string.punctuation,
    *" \t\n0aA\u00e9\u200b\u200d\u202e\u0301\u3000\ufe0f\u115f\ue000",
    *(f"<{tag}>" for tag in _TAGS.split()),
    *(f"<{tag}>x</{tag}>" for tag in ("a", "p", "li", "b", "td", "select")),
    *(
        "a ",
        "x.",
        ".x",
        "a@",
        "@a",
        "a@b.",
        "a,",
        '"\\',
        '\\"',
        '" ',
        '"a" <a@b.c>,',
        "<a@b.c>",
        "()",
        ")(",
        "(\\",
        "a:;",
    ),
    *(
        "=?utf-8?q?",
        "=?utf-8?q?a?=",
        "=?utf-8?b?YQ==?= ",
        "=?a?b?",
        "?=",
        "<a@b>",
        "1 Jan 26 1:00 ",
        "Jan 1 ",
        "\n ",
    ),
    *(
        ";a=",
        ';a="',
        ";a*0=b",
        ';a="\\',
        "; boundary=b\n",
        "--b\n",
        "--b\n\n",
        "\nFrom a\nA:",
        "\n\nFrom a\nA: b\n",
    ),
    *(
        "<!--",
        "<!-->",
        "-->",
        "<![",
        "<?",
        "</",
        "<a ",
        '<a "',
        "<a '",
        "<a b=",
        "<a href=//b.c>",
        "<a href=x><p>",
        "<b><p>",
    ),
    *(
        "<p style=color:red>",
        "<p class=a>",
        "<font size=1>",
        "<div hidden>",
        "<li><ul>",
        "<table><td>",
        "<a><b></a></b>",
    ),
    *(
        "&",
        "&#",
        "&#x",
        "&amp",
        "&#9999999999",
        "&lt;",
        "/*",
        "*/",
        "a{",
        "}",
        "a{b:c}",
        "@media a{",
        "a,",
        "a b ",
        ":is(",
        "a>",
    ),
    *(
        "*{color:red}",
        ".a{display:none}",
        "p p{color:red}",
        "url(",
        "calc(",
        "rgb(",
        "\\a ",
        "!important;",
        "b:c;",
        "a:b ",
    ),
    *(
        "https://",
        "https://a.b ",
        "https:/\\",
        "www.",
        "http://a@",
        "https://a.b)",
        "xn--",
        "a.b/",
        "//",
        "https://\u00e9.",
    ),
    *(
        "[",
        "[[",
        "[[a|",
        "[a](",
        "![",
        "](",
        "](<",
        "**",
        "*a",
        "_a_",
        "`",
        "``",
        "`a",
        "```\n",
        "~~~\n",
        "````a\n```\n",
    ),
    *(
        "> ",
        "- ",
        "* a\n",
        "1. ",
        "# ",
        "|",
        "|a\n",
        "|-\n",
        "***a",
        "~~",
        "\\`",
        "<a@b.c>",
        "[a]: b\n",
        "[^",
        "\n---\n",
        "  - ",
    ),
    *(
        "- - ",
        "a: ",
        "a: b\n",
        "? ",
        "&a ",
        "*a ",
        "{a: ",
        "[a, ",
        "- a\n",
        "'",
        "!!",
        "a: |\n",
        "\u2028",
        "\r",
        "\r\n",
        " \n",
    ),
    *(
        "{",
        '{"a":',
        "[1,",
        '"read_flag":',
        '"id":"',
        "from:",
        '"a" ',
        "-a ",
        "OR ",
        "(a ",
        "{a ",
        "thread_id: ",
        "---\n",
        "a@b.c ",
        "BEGIN:VTODO\n",
        "A;B=",
    ),
    *(
        'A;B="c",',
        "A:\\,",
        "A:b\n",
        "RRULE:FREQ=DAILY;",
        "invoice ",
        "DE00 1234 ",
        "AB12",
        "bank a",
        "1 $",
        "$ ",
        "\x1b[",
        "\n\t",
        "> \n",
        "a \n",
    ),
)


def _field(name: str) -> Callable[[str], object]:
    def read(text: str) -> object:
        return mime.parse(_bytes(f"{name}: {text}\n\nx"))

    return read


def _html(form: str) -> Callable[[str], object]:
    def read(text: str) -> object:
        return mime.parse(
            _bytes(
                "Content-Type: text/html; charset=utf-8\n\n" + form.replace("TEXT", text)
            )
        )

    return read


def _mail(text: str) -> object:
    return mime.parse(_bytes(text))


def _flowed(text: str) -> object:
    return mime.parse(
        _bytes(f"Content-Type: text/plain; format=flowed; delsp=yes\n\n{text}")
    )


def _mbox(text: str) -> object:
    return [*importing._of_mbox(_bytes(f"From a\nA: b\n\n{text}"))]


def _risk(text: str) -> object:
    return risk.assess(
        oddities.Facts("ann@example.org", ("bob@example.net",), text[:900], text)
    )


def _risk_of_html(text: str) -> object:
    return _risk(f"<html>{text}")


def _delicate(text: str) -> object:
    read = mime.parse(_bytes(f"From: a@b.c\n\n{text}"))
    return triage.delicate(read.full(read.summary("m1", "t1", NOW, read.snippet, ())))


def _difference(text: str) -> object:
    mail = Mail(
        kind="send_email",
        account="me@example.com",
        to="ann@example.org",
        subject="",
        body=f"x\n{text}",
    )
    return describe_difference(mail, mail.edit({"body": f"{text}\ny"}))


def _request_file(text: str) -> object:
    return files._MESSAGE.search(f"## Message\n\n{text}")


def _calendar(text: str) -> object:
    return vtodo.parse_todos(
        _bytes(f"BEGIN:VCALENDAR\nBEGIN:VTODO\n{text}"), ZoneInfo("UTC")
    )


def _line(text: str) -> object:
    line = lines.MailboxLine(0, _bytes(text))
    return line.id, line.is_surely_read, line.is_regular, lines.decode(line.raw)


def _block(text: str) -> object:
    return frontmatter.parse(f"---\n{text}\n---\nx")


def _search(text: str) -> object:
    return query.parse(text, NOW)


def _markdown(text: str) -> object:
    return markdown.html(text, "a.md")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class _Said(imap_connection._Lines):
    """What an IMAP server said, as it comes from the socket."""

    def __init__(self, data: bytes) -> None:
        self.file = io.BytesIO(data)


def _imap(form: str) -> Callable[[str], object]:
    """A line of an IMAP server that means nothing (nil) somewhere, and the answer that it is."""

    def read(text: str) -> object:
        line = form.replace("TEXT", text.replace("\n", " "))
        said = _Said(_bytes(f"* LIST {line} nil\r\n")).readline()
        with imap_connection.reading():
            return parse_response([said.removeprefix(b"* LIST ").rstrip()])

    return read


def _imap_date(text: str) -> object:
    return imap_connection._read_date(_bytes(text))


def _keyword(text: str) -> object:
    return imap_session._label_of(text)


def _batch(text: str) -> object:
    answer = f"--b\r\nContent-ID: {text}\r\n\r\nHTTP/1.1 200 OK\r\nRetry-After: {text}\r\n\r\n{text}"
    return [*google_http._batch_answers("multipart/mixed; boundary=b", _bytes(answer))]


def _author(text: str) -> object:
    return authorship.marks_of(f"---\nto: ann@example.org\n---\nemail_send {text}")


def _authors_of_properties(text: str) -> object:
    return authorship.marks_of(f"---\ntype: email_send\nto: {text}\n---\nx")


def _headings(text: str) -> object:
    outline = read_outline(text)
    return outline.headings, [*editing.block_ids(outline)]


def _underlined(text: str) -> object:
    return read_outline(f"{text}a|\n===\n").headings


def _template(text: str) -> object:
    filler = Filler("a", NOW, NOW, {}, {})
    return filler.fill(f"x {{{{{text}")


def _keys(text: str) -> object:
    name = {"key": "a", "do": "insert", "value": text}
    return editing.edit("---\nb: 1\n---\n", [Edit.model_validate(name)])


def _edit(text: str) -> object:
    edits = [{"heading": "a", "do": "insert", "text": "x"}, {"block": "a", "do": "delete"}]
    return [
        editing.edit(text + end, [Edit.model_validate(each)])
        for each in edits
        for end in ("\n# a\n\na ^a\n", "")
    ]


READERS: dict[str, Callable[[str], object]] = {
    "a text that is underlined": _underlined,
    "a template": _template,
    "the value of a key": _keys,
    "addresses of a field": addresses.addresses_in,
    "an address as it was meant": addresses.mended,
    **{f"the header {name}": _field(name) for name in _FIELDS.split()},
    "a mail": _mail,
    "a mail with flowed lines": _flowed,
    "an mbox": _mbox,
    "HTML": _html("TEXT"),
    "HTML in a body": _html("<body><p>TEXT"),
    "a style sheet": _html("<style>TEXT</style><p class=a>x"),
    "a rule": _html("<style>p{TEXT}</style><p>x"),
    "a style": _html("<p style='TEXT'>x"),
    "an attribute": _html('<a href="TEXT">x'),
    "the risk": _risk,
    "the risk of HTML": _risk_of_html,
    "delicate words": _delicate,
    "what is unseen": unseen.describe,
    "what is left of a mail": unseen.strip,
    "the page": visible.visible,
    "the terminal": plain,
    "the record": audit.redact,
    "a request's file": _request_file,
    "what was changed": _difference,
    "frontmatter": _block,
    "a note": frontmatter.parse,
    "links of a note": partial(links.targets, {}),
    "who wrote a note": _author,
    "whom a note names": _authors_of_properties,
    "tags of a note": partial(links.tags, {}),
    "headings of a note": _headings,
    "an edit of a note": _edit,
    "Markdown": _markdown,
    "a calendar": _calendar,
    "a line of agent mail": _line,
    "a search": _search,
    "a line of an IMAP server": _imap("TEXT"),
    "quoted words of an IMAP server": _imap('() "/" "TEXT'),
    "flags of an IMAP server": _imap('(TEXT) "/" a'),
    "a date of an IMAP server": _imap_date,
    "a keyword of an IMAP server": _keyword,
    "a batch of Gmail's": _batch,
}


def cost(read: Callable[[str], object], piece: str, size: int) -> float:
    """Seconds of this thread alone that it takes to read so many characters of the piece.

    The collector stays out of it: how often it walks through everything that lives is a staircase, not the reader's.
    """
    text = (piece * (size // len(piece) + 1))[:size]
    gc.disable()
    start = time.thread_time()
    try:
        with suppress(DeskError, ProtocolError):
            read(text)
        return time.thread_time() - start
    finally:
        gc.enable()


def slow(read: Callable[[str], object], piece: str, size: int) -> str | None:
    """Why the reader's time grows faster than this text, from an eighth of `size` to all of it; None if it does not."""
    whole = cost(read, piece, size)
    if whole < UNNOTICED:
        return None
    for _ in range(5):  # what else runs on the machine is no growth
        small = max(cost(read, piece, size // 8), UNNOTICED / LATER**3)
        if whole <= small * LATER**3:
            return None
        whole = min(whole, cost(read, piece, size))
    return f"{size // 8:,} characters took {small:.4f} s, {size:,} took {whole:.4f} s"


def failures(name: str, size: int) -> Iterator[str]:
    for piece in dict.fromkeys(PIECES):
        if why := slow(READERS[name], piece, size):
            yield f"{name}, {piece!r} again and again: {why}"
