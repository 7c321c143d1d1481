"""MIME both ways. Reading never raises, whatever the bytes; writing is strict and reads its own output back.

The reader is our own: the standard library's raises on hostile headers and deep nesting, and takes each line of
each attachment through Python. It is the second opinion on what we write.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from email import message_from_string, policy
from email.utils import format_datetime
from hashlib import sha256
from itertools import islice
from typing import NamedTuple
from urllib.parse import quote, unquote, unquote_to_bytes

from deskhand import unseen
from deskhand.errors import FieldProblem, InvalidInput, printable
from deskhand.mail import (
    Attachment,
    BodyFrom,
    FullMessage,
    MailContent,
    MailSummary,
    flowed,
    headers,
    html,
    lookalikes,
    preheader,
    tell_apart,
    weblinks,
)
from deskhand.mail.addresses import Person, people, recipient
from deskhand.mail.charsets import decode, without_surrogates

ACTION_HEADER = "X-Deskhand-Action"
LARGEST = 25 * 1024 * 1024
LONGEST_BODY = 500_000
LONGEST_HTML = 500_000
LONGEST_FIELD = 100_000
LONGEST_SUBJECT = 998
SNIPPET = 200
DEEPEST = 20
MOST_PARTS = 500
MOST_LINKS = 300
MOST_SENDERS = 10
_TRACES = frozenset({b"received", b"return-path", b"delivered-to"})
"""How many senders' names are looked at."""
STUB = 4
"""A plain part this many times shorter than the HTML beside it is a stub."""

MAIL_TYPE = "message/rfc822"
LONGEST_LINE = 998
LONGEST_PIECE = 60
"""Characters of a name on one line."""

_EOL = re.compile(rb"\r\n|\r|\n")
_BCC = re.compile(rb"(?im)^(?:resent-)?bcc[ \t]*:.*\r\n(?:[ \t].*\r\n)*")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_ ()+=@.-]{1,70}")
_START = re.compile(rb"(?:[ \t]*\r?\n)*(?:>?From [^\n]*\n)?")
_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:[ \t]*([^\n]*(?:\n[ \t][^\n]*)*)(?:\n|\Z)")
_BLANK = re.compile(rb"\r?\n")
_PARAMETER = re.compile(
    r';\s*([^\s=;"*]+)(\*\d{1,3})?(\*)?\s*=\s*("(?:[^"\\]|\\.)*"|[^;]*)', re.DOTALL
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ADDRESS = re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]++\.[\w.-]+")
_RE = re.compile(r"\s*(?:re|aw|sv|antw)\s*(?:\[\d+\])?\s*:\s*", re.IGNORECASE)
_DATA_KINDS = ("text/calendar", "text/vcard", "text/csv", "text/rfc822-headers")
_ENDINGS = {
    "application/pdf": ".pdf",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "message/delivery-status": ".txt",
    "message/disposition-notification": ".txt",
    "text/calendar": ".ics",
    "text/csv": ".csv",
    "text/rfc822-headers": ".txt",
    "text/vcard": ".vcf",
}
"""Of files that come without a name: invitations, pictures inside of a text, what a server says of a delivery."""
_ELSEWHERE = "; it can be read in a mail program only"
_LIST_FIELDS = (b"list-id", b"list-unsubscribe")
_MAILTO = re.compile(r"<mailto:([^<>?\s]{1,300})[?>]", re.IGNORECASE)
_HTML = re.compile(r"\s*<(?:!doctype html|html)[\s>]", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed(MailContent):
    """A mail as it reads. Addresses are `Name <address>`; an id has its angle brackets."""

    sender: str
    to: str
    bcc: str
    subject: str
    date_header: str
    date: datetime | None
    """What the Date header means, UTC; None where it means nothing."""
    received: datetime | None
    """When the last server took it, as it says itself."""
    travelled: bool
    """A server has written on it, as on everything that came from outside, whatever its From line claims."""
    in_reply_to: str
    action_id: str

    @property
    def snippet(self) -> str:
        return " ".join(self.body[: SNIPPET * 4].split())[:SNIPPET]

    def summary(
        self,
        own_id: str,
        thread: str,
        date: datetime,
        snippet: str,
        labels: tuple[str, ...],
    ) -> MailSummary:
        shown = (self.sender, self.to, self.subject, date, self.date_header, snippet)
        return MailSummary(own_id, thread, *shown, labels)

    def full(self, summary: MailSummary) -> FullMessage:
        content = {field.name: getattr(self, field.name) for field in fields(MailContent)}
        return FullMessage(summary=summary, **content)


# Reading


class _Part(NamedTuple):
    fields: dict[bytes, list[bytes]]
    kind: str
    parameters: dict[str, str]
    body: bytes

    def first(self, name: bytes) -> bytes:
        return self.fields.get(name, [b""])[0]

    def join(self, name: bytes, separator: bytes) -> bytes:
        return separator.join(self.fields.get(name, []))[:LONGEST_FIELD]


class _Text(NamedTuple):
    text: str
    source: BodyFrom
    size: int = 0
    """Of HTML: without the addresses of its links."""


class AttachedFile(NamedTuple):
    name: str
    content_type: str
    content: bytes


class _Notes:
    """What is gathered while the parts are read."""

    def __init__(self) -> None:
        self.parts = 0
        self.attachments: list[Attachment] = []
        self.attached: list[_Part] = []
        self.warnings: list[str] = []
        self.calm: list[str] = []
        self.has_html = False

    def attach(self, part: _Part) -> None:
        charset = part.parameters.get("charset", "")[:100]
        self.attachments.append(
            Attachment(_filename(part), part.kind[:100], len(_content(part)), charset)
        )
        self.attached.append(part)

    def warn(self, text: str, *, calm: bool = False) -> None:
        """With `calm`, of something that ordinary mail has too."""
        self.warnings.append(text)
        if calm:
            self.calm.append(text)


def read_attachments(raw: bytes) -> list[AttachedFile]:
    """Every attachment as it was sent."""
    notes = _Notes()
    _text_of(_top(raw), notes, depth=0)
    pairs = zip(notes.attachments, notes.attached, strict=True)
    return [
        AttachedFile(attachment.name, attachment.content_type, _content(part))
        for attachment, part in pairs
    ]


def find_attachment(raw: bytes, name: str) -> tuple[Attachment, bytes] | None:
    """An attachment as it was sent, by the name that `MailContent.file_names` gives it."""
    notes = _Notes()
    _text_of(_top(raw), notes, depth=0)
    names = tell_apart(each.name for each in notes.attachments)
    if name not in names:
        return None
    place = names.index(name)
    return notes.attachments[place], _content(notes.attached[place])


def find_page(raw: bytes) -> tuple[str, dict[str, tuple[str, bytes]]] | None:
    """The mail's first HTML as it was written, and the parts that it may show, by their Content-ID."""
    source = None
    pictures: dict[str, tuple[str, bytes]] = {}
    for part in islice(_walk(_top(raw), 0), MOST_PARTS):
        if part.kind == "text/html" and source is None and not _is_attachment(part):
            source = decode(
                _content(part)[: 4 * LONGEST_HTML], part.parameters.get("charset")
            )[:LONGEST_HTML]
        name = headers.text(part.first(b"content-id")).strip("<> ")
        if name and part.kind.startswith("image/"):
            pictures.setdefault(name, (part.kind, _content(part)))
    if source is None:
        return None
    return source, pictures


def _walk(part: _Part, depth: int) -> Iterator[_Part]:
    yield part
    for child in _children(part) if depth < DEEPEST else ():
        yield from _walk(child, depth + 1)


def _top(raw: bytes) -> _Part:
    if b"\n" not in raw:
        raw = raw.replace(b"\r", b"\n")
    return _part(_START.sub(b"", raw, count=1))


def find_copied(raw: bytes) -> list[Person]:
    """Who got a copy, or a blind one as far as the mail still says so."""
    top = _top(raw)
    return [person for name in (b"cc", b"bcc") for person in people(top.join(name, b", "))]


def parse(raw: bytes) -> Parsed:
    top = _top(raw)
    notes = _Notes()
    body = _text_of(top, notes, depth=0)
    shown, invisible = unseen.strip(without_surrogates(body.text))
    if invisible:
        notes.warn(
            f"invisible characters removed: {invisible:,}",
            calm=preheader.is_filler(body.text),
        )
    if len(shown) > LONGEST_BODY:
        notes.warn(
            f"the text was cut: {LONGEST_BODY:,} of {len(shown):,} characters are shown"
        )
        shown = shown[:LONGEST_BODY]
    notes.warnings += _link_warnings(shown)
    senders = people(top.first(b"from"))
    notes.warnings += _sender_warnings(senders, len(top.fields.get(b"from", [])))
    notes.warnings += _imitation_warnings(senders, people(top.join(b"reply-to", b", ")))
    notes.warnings += _turning_warnings(top)
    precedence = headers.text(top.first(b"precedence")).lower()
    return Parsed(
        sender=_names(senders),
        to=_names(people(top.join(b"to", b", "))),
        cc=_names(people(top.join(b"cc", b", "))),
        bcc=_names(people(top.join(b"bcc", b", "))),
        reply_to=_names(people(top.join(b"reply-to", b", "))),
        subject=_visible(headers.text(top.first(b"subject"))),
        date_header=headers.text(top.first(b"date")),
        date=headers.date(top.first(b"date")),
        received=headers.date(top.first(b"received").rpartition(b";")[2]),
        travelled=not _TRACES.isdisjoint(top.fields),
        message_id=headers.first_message_id(top.first(b"message-id")),
        in_reply_to=headers.first_message_id(top.first(b"in-reply-to")),
        references=headers.message_ids(top.join(b"references", b" ")),
        action_id=headers.text(top.first(ACTION_HEADER.lower().encode())),
        body=shown,
        body_from=body.source if shown else "none",
        warnings=tuple(dict.fromkeys(map(_without_controls, notes.warnings))),
        calm=tuple(map(_without_controls, notes.calm)),
        attachments=tuple(notes.attachments),
        list_mail=not top.fields.keys().isdisjoint(_LIST_FIELDS)
        or precedence in ("bulk", "list", "junk"),
        list_id=_list_id(headers.text(top.first(b"list-id"))),
        list_post=_list_post(headers.text(top.first(b"list-post"))),
        followup_to=_names(people(top.join(b"mail-followup-to", b", "))),
        has_html=notes.has_html,
    )


def _list_id(value: str) -> str:
    found = re.search(r"<([^<>\s]{1,255})>", value)
    return _visible(found[1] if found else value.strip()[:255])


def _list_post(value: str) -> str:
    found = _MAILTO.search(value)
    return unquote(found[1]) if found else ""


def _names(persons: Sequence[Person]) -> str:
    return _visible(", ".join(map(str, persons)))


def _visible(text: str) -> str:
    visible, _ = unseen.strip(text)
    return visible


def _sender_warnings(senders: Sequence[Person], fields: int) -> Iterator[str]:
    if len(senders) > 1:
        yield f"the mail names {len(senders):,} senders"
    if fields > 1:
        yield f"the mail has {fields:,} From fields; the first one is shown"
    for person in senders[:MOST_SENDERS]:
        claimed = _ADDRESS.search(person.name)
        if claimed and claimed[0].lower() != person.address.lower():
            yield f"the sender's name shows {claimed[0]}, the mail is from {person.address}"


def _imitation_warnings(
    senders: Sequence[Person], answered: Sequence[Person]
) -> Iterator[str]:
    """About addresses that read as others, since their letters are those of another alphabet."""
    for what, persons in (("sender's", senders), ("reply", answered)):
        for person in persons[:MOST_SENDERS]:
            domain = lookalikes.domain_of(person.address)
            if imitated := lookalikes.find_imitated(domain):
                looks = f"at {domain}, which only looks like {imitated}"
                yield f"the {what} address is {looks}: its letters are of another alphabet"


def _turning_warnings(top: _Part) -> Iterator[str]:
    for field, what in ((b"from", "sender's name"), (b"subject", "subject")):
        if unseen.has_override(headers.text(top.first(field))):
            yield f"the {what} hid a mark that turns the direction of reading; it was taken out"


def _link_warnings(text: str) -> Iterator[str]:
    """About addresses in the text that show or mean another host than a reader may think."""
    for link in islice(weblinks.links_in(text), MOST_LINKS):
        hosts = [target.host for target in link.targets]
        shown = printable(link.address, 100)
        if len(hosts) > 1:
            yield f"programs read an address differently, it leads to {' or to '.join(hosts[:5])}: {shown}"
        elif hosts and link.targets[0].user:
            yield f"an address shows another name before its host, it leads to {hosts[0]}: {shown}"


def _part(raw: bytes, default: str = "text/plain") -> _Part:
    """`default` is the kind of a part that does not say it."""
    fields: dict[bytes, list[bytes]] = {}
    at = 0
    while line := _FIELD.match(raw, at):
        fields.setdefault(line[1].lower(), []).append(line[2][:LONGEST_FIELD].rstrip(b"\r"))
        at = line.end()
    if blank := _BLANK.match(raw, at):
        at = blank.end()
    kind, parameters = _parameters(fields.get(b"content-type", [b""])[0])
    if "/" not in kind:
        kind = default
    return _Part(fields, kind.lower(), parameters, raw[at:])


def _parameters(value: bytes) -> tuple[str, dict[str, str]]:
    """A field's value and its parameters, RFC 2231's pieces put together."""
    main, _, rest = decode(value, None).partition(";")
    plain: dict[str, str] = {}
    pieces: dict[str, dict[int, tuple[str, bool]]] = {}
    for name, index, star, given in _PARAMETER.findall(f";{rest}"):
        if not index and not star:
            plain.setdefault(name.lower(), _unquote(given))
            continue
        piece = (_unquote(given), bool(star))
        pieces.setdefault(name.lower(), {}).setdefault(int(index[1:] or 0), piece)
    joined = {name: _join_pieces(found) for name, found in pieces.items()}
    # Who writes a name both ways means the plain one for those who cannot read the other.
    return main.strip(), plain | {name: text for name, text in joined.items() if text}


def _unquote(given: str) -> str:
    if given.startswith('"') and len(given) > 1:
        return re.sub(r"\\(.)", r"\1", given[1:-1])
    return given.strip()


def _join_pieces(pieces: dict[int, tuple[str, bool]]) -> str:
    ordered = [pieces[number] for number in sorted(pieces)]
    first, extended = ordered[0]
    if not extended:
        return "".join(text for text, _ in ordered)
    charset, _, rest = first.partition("'")
    ordered[0] = (rest.partition("'")[2], True)
    plain = [
        text if is_encoded else quote(text, errors="replace")
        for text, is_encoded in ordered
    ]
    return decode(unquote_to_bytes("".join(plain)), charset)


def _content(part: _Part) -> bytes:
    match headers.text(part.first(b"content-transfer-encoding")).lower():
        case "base64":
            return headers.decode_base64(part.body)
        case "quoted-printable":
            return binascii.a2b_qp(part.body)
        case _:
            return part.body


def _text_of(part: _Part, notes: _Notes, depth: int) -> _Text:
    """The readable text of a part and those below it; everything else is noted as an attachment."""
    notes.parts += 1
    if notes.parts > MOST_PARTS or depth > DEEPEST:
        notes.warn(
            "the mail has too many parts or is nested too deeply; not all of it was read"
        )
        return _Text("", "none")
    if wrapped := _wrapping(part):
        notes.warn(wrapped, calm=True)
    children = _children(part)
    if children:
        texts = [_text_of(child, notes, depth + 1) for child in children]
        return (
            _choose(texts, notes)
            if part.kind == "multipart/alternative"
            else _join_texts(texts)
        )
    if _is_attachment(part):
        notes.attach(part)
        return _Text("", "none")
    if depth and "filename" in _disposition(part):
        notes.attach(part)  # a text that is shown inside of the mail is a file all the same
    text = _unix_lines(decode(_content(part), part.parameters.get("charset")))
    if part.kind == "text/html":
        notes.has_html = True
        return _read_html(text, notes)
    text = _without_controls(text)
    if part.parameters.get("format", "").lower() == "flowed":
        delete_space = part.parameters.get("delsp", "").lower() == "yes"
        text = flowed.join_lines(text, delete_space=delete_space)
    return _Text(text, "plain")


def _without_controls(text: str) -> str:
    return _CONTROL.sub("", text)


def _wrapping(part: _Part) -> str | None:
    """Why the text of a part cannot be read here."""
    match part.kind:
        case "multipart/encrypted":
            return f"the mail is encrypted (PGP){_ELSEWHERE}"
        case "application/pkcs7-mime" | "application/x-pkcs7-mime":
            if part.parameters.get("smime-type", "").lower() == "signed-data":
                return f"the mail's text is inside of its signature (S/MIME){_ELSEWHERE}"
            return f"the mail is encrypted (S/MIME){_ELSEWHERE}"
    return None


def _unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _children(part: _Part) -> list[_Part]:
    boundary = part.parameters.get("boundary", "").encode("utf-8", "replace").rstrip()
    if not part.kind.startswith("multipart/") or not boundary:
        return []
    line = rb"^--" + re.escape(boundary) + rb"(--)?[ \t]*\r?(?:\n|\Z)"
    children: list[_Part] = []
    start: int | None = None
    default = MAIL_TYPE if part.kind == "multipart/digest" else "text/plain"
    for edge in re.finditer(line, part.body, re.MULTILINE):
        if start is not None:
            # The line end before a boundary belongs to the boundary.
            child = part.body[start : edge.start()].removesuffix(b"\n").removesuffix(b"\r")
            children.append(_part(child, default))
        if edge[1] or len(children) > MOST_PARTS:
            return children
        start = edge.end()
    if start is not None:  # the mail ends without its last boundary
        children.append(_part(part.body[start:], default))
    return children


def _is_attachment(part: _Part) -> bool:
    if part.first(b"content-disposition").strip().lower().startswith(b"attachment"):
        return True
    return not part.kind.startswith(("text/", "multipart/")) or part.kind in _DATA_KINDS


def _filename(part: _Part) -> str:
    given = _disposition(part).get("filename") or part.parameters.get("name") or ""
    if not given and part.kind == "message/rfc822":
        subject = headers.text(_part(part.body).first(b"subject")) or "mail"
        given = f"{subject}.eml".replace("/", "_")
    return attachment_name(headers.text(given or f"unnamed{_ENDINGS.get(part.kind, '')}"))


def _disposition(part: _Part) -> dict[str, str]:
    return _parameters(part.first(b"content-disposition"))[1]


def attachment_name(given: str) -> str:
    """A name that is no path, without what nobody sees."""
    name = re.split(r"[/\\]", _visible(given))[-1].strip(". ")
    return name[-150:] or "unnamed"


def _join_texts(texts: Sequence[_Text]) -> _Text:
    filled = [text for text in texts if text.text.strip()]
    has_html = any(text.source == "html" for text in filled)
    source: BodyFrom = "html" if has_html else "plain"
    return _Text(
        "\n".join(text.text for text in filled), source, sum(text.size for text in filled)
    )


def _choose(texts: Sequence[_Text], notes: _Notes) -> _Text:
    """Of two versions of one text the plain one, unless it is only a stub of the other."""
    plain = _join_texts([text for text in texts if text.source == "plain"])
    rich = _join_texts([text for text in texts if text.source == "html"])
    short = len(plain.text.strip())
    if not rich.text or short * STUB >= rich.size:
        return plain if short else rich
    if short:
        notes.warn(
            f"the HTML is shown; the plain part has only {short:,} of its {rich.size:,} characters",
            calm=True,
        )
    return rich


def _read_html(source: str, notes: _Notes) -> _Text:
    if len(source) > LONGEST_HTML:
        notes.warn(
            f"the HTML was cut: {LONGEST_HTML:,} of {len(source):,} characters were read"
        )
    seen = html.visible(source[:LONGEST_HTML])
    if seen.hidden_parts:
        parts = "part" if seen.hidden_parts == 1 else "parts"
        removed = f"hidden text removed: {seen.hidden_parts:,} {parts}, {seen.hidden_characters:,} characters"
        notes.warn(removed, calm=seen.has_ordinary_preheader)
    for where, characters in seen.elsewhere:
        notes.warn(f"{where} {characters:,} characters more are hidden", calm=True)
    if seen.doubts:
        named = "; ".join(seen.doubts[: html.MOST_DOUBTS])
        notes.warn(
            f"a person may not see all of this text, its style was not understood: {named}"
        )
    notes.warnings += [
        f"a link shows {shown} but leads to {real}" for shown, real in seen.misleading[:10]
    ]
    notes.warnings += [
        f"a form sends what is typed into it to {host}" for host in seen.forms[:10]
    ]
    notes.warnings += [
        f"a browser goes on to {host} by itself" for host in seen.onward[:10]
    ]
    # Not before: to a browser a form feed parts two words, and others spoil the word that they stand in.
    return _Text(_without_controls(seen.text), "html", seen.size)


# Writing


def compose(
    *,
    sender: str,
    to: Sequence[str],
    subject: str,
    body: str,
    message_id: str,
    date: datetime,
    action_id: str | None,
    in_reply_to: str | None = None,
    references: Sequence[str] = (),
    as_text: bool = False,
    cc: Sequence[str] = (),
    html: str = "",
    files: Sequence[AttachedFile] = (),
) -> bytes:
    """The bytes of a mail, exactly as it would leave; what would not read as meant is refused."""
    text = _demand_body(body)
    recipients = [recipient(each) for each in to]
    copied = [recipient(each, "cc") for each in cc]
    if not recipients:
        raise InvalidInput(
            "A mail needs a recipient.", fields=[FieldProblem("to", "is empty")]
        )
    _demand_short_subject(subject)
    content = _text_part(
        text, "html" if is_html(text) and not (as_text or html) else "plain"
    )
    if html:
        content = _join_parts(
            "alternative", [content, _text_part(html, "html")], message_id
        )
    if files:
        content = _join_parts("mixed", [content, *map(_file_part, files)], message_id)
    lines = [
        f"From: {recipient(sender)}",
        headers.fold("To", recipients, separator=","),
        *([headers.fold("Cc", copied, separator=",")] if copied else []),
        headers.encode("Subject", headers.demand_line("subject", subject)),
        f"Date: {format_datetime(date)}",
        f"Message-ID: {headers.demand_id('message_id', message_id)}",
        *_optional_fields(in_reply_to, references, action_id),
        "MIME-Version: 1.0",
        "",
    ]
    # Beyond ASCII is nothing but an address (SMTPUTF8).
    raw = "\r\n".join(lines).encode() + content
    _read_back(raw, recipients, copied, subject, [text, html] if html else [text], files)
    return raw


def _demand_short_subject(subject: str) -> None:
    if len(subject) <= LONGEST_SUBJECT:
        return
    problem = FieldProblem(
        "subject", f"has {len(subject)} characters", None, f"at most {LONGEST_SUBJECT}"
    )
    raise InvalidInput(
        f"The subject is longer than {LONGEST_SUBJECT} characters.", fields=[problem]
    )


def _text_part(text: str, kind: str) -> bytes:
    encoding, content = _transfer_encode(text)
    fields = f'Content-Type: text/{kind}; charset="utf-8"\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n'
    return fields.encode() + content


def _file_part(file: AttachedFile) -> bytes:
    """A mail inside of a mail stays as it is, as its type demands; every other file is base64."""
    fields = [
        f"Content-Type: {file.content_type}",
        ";\r\n ".join(["Content-Disposition: attachment", *_name_parameters(file.name)]),
    ]
    if file.content_type == MAIL_TYPE:
        encoding, content = "7bit" if file.content.isascii() else "8bit", file.content
    else:
        encoding, content = (
            "base64",
            base64.encodebytes(file.content).replace(b"\n", b"\r\n"),
        )
    return (
        "\r\n".join([*fields, f"Content-Transfer-Encoding: {encoding}", "", ""]).encode()
        + content
    )


def _name_parameters(name: str) -> list[str]:
    """As RFC 2231 writes a name beyond plain letters, in pieces that fit on a line."""
    if _PLAIN_NAME.fullmatch(name):
        return [f'filename="{name}"']
    pieces = [""]
    for char in name:
        encoded = quote(char, safe="")
        if len(pieces[-1]) + len(encoded) > LONGEST_PIECE:
            pieces.append("")
        pieces[-1] += encoded
    if len(pieces) == 1:
        return [f"filename*=utf-8''{pieces[0]}"]
    pieces[0] = f"utf-8''{pieces[0]}"
    return [f"filename*{number}*={piece}" for number, piece in enumerate(pieces)]


def _join_parts(kind: str, parts: Sequence[bytes], message_id: str) -> bytes:
    """No part can hold the boundary: it is made of all of them."""
    whole = sha256(message_id.encode())
    for part in parts:
        whole.update(part)
    boundary = f"=_{whole.hexdigest()[:40]}"
    edge = f"\r\n--{boundary}".encode()
    mixed = b"".join(edge + b"\r\n" + part for part in parts)
    return (
        f'Content-Type: multipart/{kind}; boundary="{boundary}"\r\n\r\n'.encode()
        + mixed[2:]
        + edge
        + b"--\r\n"
    )


def can_enclose(mail: bytes) -> bool:
    """Whether a mail can stand inside of another as it is: lines that every server takes, and no NUL."""
    return b"\0" not in mail and all(
        len(line) <= LONGEST_LINE for line in mail.split(b"\r\n")
    )


def without_bcc(raw: bytes) -> bytes:
    """A mail as it may be shown to others, with the line ends of mails: who got a blind
    copy is not their business."""
    lines = _EOL.sub(b"\r\n", _START.sub(b"", raw, count=1))
    head, blank, body = lines.partition(b"\r\n\r\n")
    return _BCC.sub(b"", head + b"\r\n").removesuffix(b"\r\n") + blank + body


def is_html(body: str) -> bool:
    """Whether a body leaves as HTML: one that is written as a whole page. Whoever shows it before says so."""
    return _HTML.match(body) is not None


def _demand_body(body: str) -> str:
    text = _unix_lines(body)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as exc:
        raise InvalidInput(
            "The body is not text.", fields=[FieldProblem("body", "is not valid Unicode")]
        ) from exc
    if size > LARGEST:
        problem = FieldProblem("body", f"has {size:,} bytes", None, f"at most {LARGEST:,}")
        raise InvalidInput("The body is too large for a mail.", fields=[problem])
    return text


def _optional_fields(
    in_reply_to: str | None, references: Sequence[str], action_id: str | None
) -> list[str]:
    parents = dict.fromkeys(references)
    fields: list[str] = []
    if in_reply_to:
        parents[in_reply_to] = None
        fields.append(f"In-Reply-To: {headers.demand_id('in_reply_to', in_reply_to)}")
    if parents:
        fields.append(
            headers.fold(
                "References", [headers.demand_id("references", each) for each in parents]
            )
        )
    if action_id:
        fields.append(f"{ACTION_HEADER}: {headers.demand_line('action_id', action_id)}")
    return fields


def _transfer_encode(text: str) -> tuple[str, bytes]:
    data = text.encode()
    quoted = binascii.b2a_qp(data)
    if quoted == data:
        return "7bit", data.replace(b"\n", b"\r\n")
    canonical = base64.encodebytes(data.replace(b"\n", b"\r\n"))
    if len(quoted) <= len(canonical):
        return "quoted-printable", quoted.replace(b"\n", b"\r\n")
    return "base64", canonical.replace(b"\n", b"\r\n")


def _read_back(
    raw: bytes,
    to: Sequence[str],
    cc: Sequence[str],
    subject: str,
    texts: Sequence[str],
    files: Sequence[AttachedFile],
) -> None:
    """Would two readers, ours and the standard library's, see what was meant?"""
    mine = parse(raw)
    theirs = message_from_string(
        raw.decode("utf-8", "surrogateescape"), policy=policy.default
    )
    first, *others = theirs.iter_parts() if files else [theirs]
    bodies = list(first.iter_parts()) if len(texts) > 1 else [first]
    contents = [each.get_payload(decode=True) for each in bodies]
    reads_as_written = (
        [person.address for person in people(mine.to)] == list(to)
        and [address.addr_spec for address in theirs["to"].addresses] == list(to)
        and [person.address for person in people(mine.cc)] == list(cc)
        and [
            address.addr_spec
            for field in theirs.get_all("cc", [])
            for address in field.addresses
        ]
        == list(cc)
        and not mine.bcc
        and theirs["bcc"] is None
        and mine.subject.split() == _visible(subject).split()
        and str(theirs["subject"]) == subject
        and [
            content.decode().replace("\r\n", "\n")
            for content in contents
            if isinstance(content, bytes)
        ]
        == list(texts)
        and [(each.name, each.content_type) for each in mine.attachments]
        == [file[:2] for file in files]
        and [(each.get_filename(), each.get_content_type()) for each in others]
        == [file[:2] for file in files]
    )
    if not reads_as_written:
        raise InvalidInput(
            "The mail would not read as it was written.",
            hint="Simplify its subject or body.",
        )


# Replying


def reply_subject(subject: str) -> str:
    """`Re:` once, however many and whatever language were there before."""
    rest = headers.text(subject)
    while found := _RE.match(rest):
        rest = rest[found.end() :]
    return f"Re: {rest}".rstrip()[:LONGEST_SUBJECT]
