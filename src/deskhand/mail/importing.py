"""Mail from other programs: Maildir, mbox and .eml, read as it lies there and never changed."""

import mmap
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from deskhand.errors import InvalidInput, NotFound
from deskhand.mail import headers
from deskhand.mail.local import Incoming

# A line of a body may begin with From too; only where a header field follows does a mail begin.
_MBOX_EDGE = re.compile(rb"(?:\A|\n\r?\n)(From [^\n]*)\n(?=[!-9;-~]+:|>From )")
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)
_KNOWN_FIELD = re.compile(
    rb"^(?:from|to|subject|date|message-id|received|return-path|mime-version|content-type|delivered-to):",
    re.IGNORECASE | re.MULTILINE,
)
_SEEN = re.compile(
    rb"^(?:x-)?status:[^\n]*r|^x-mozilla-status: *[0-9a-f]{3}[13579bdf]",
    re.IGNORECASE | re.MULTILINE,
)
_DATE = re.compile(rb"^date:([^\n]*(?:\n[ \t][^\n]*)*)", re.IGNORECASE | re.MULTILINE)
_FLAGS = re.compile(r"[:;!-]2,([A-Za-z]*)$")
_HEAD = 64 * 1024


class Source(NamedTuple):
    """A file with mail in it. What a Maildir knows of its one mail is in the file's name."""

    path: Path
    size: int
    maildir: bool


class ImportedMail(NamedTuple):
    """A mail and how many bytes of its file it took."""

    mail: Incoming
    size: int


def sources(path: Path) -> tuple[list[Source], list[tuple[Path, str]]]:
    """What was found, in the order in which it is read, and the files that are left out, with the reason."""
    if not path.exists():
        raise NotFound(
            f"there is nothing at {path}",
            hint="name a Maildir, an mbox, an .eml file, or a folder of them",
        )
    found: list[Source] = []
    left_out: list[tuple[Path, str]] = []
    for file in _files(path, left_out):
        match _source(file):
            case Source() as source:
                found.append(source)
            case why:
                left_out.append((file, why))
    if not found:
        raise InvalidInput(
            f"there is no mail in {path}", hint="a Maildir, an mbox or .eml files are read"
        )
    return found, left_out


def mails(source: Source) -> Iterator[ImportedMail]:
    with (
        source.path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        if content[:5] == b"From ":
            yield from _of_mbox(content)
            return
        raw = content[:]
        seen = _is_marked_seen(raw)
        written: datetime | None = None
        # A Maildir's file was written when its mail came; an .eml file whenever somebody saved it.
        if source.maildir:
            flags = _FLAGS.search(source.path.name)
            seen = seen or (flags is not None and "S" in flags[1])
            written = datetime.fromtimestamp(source.path.stat().st_mtime, UTC)
        yield ImportedMail(Incoming(raw, seen, written), len(raw))


def _files(path: Path, left_out: list[tuple[Path, str]]) -> Iterator[Path]:
    def unreadable(error: OSError) -> None:
        left_out.append((Path(error.filename), error.strerror or "cannot be read"))

    if path.is_file():
        yield path
        return
    for directory, folders, files in os.walk(path, onerror=unreadable):
        folders.sort()
        if "cur" in folders and "tmp" in folders:
            folders.remove("tmp")  # mail that is still being delivered
        yield from (Path(directory) / name for name in sorted(files))


def _source(file: Path) -> Source | str:
    maildir = file.parent.name in ("cur", "new")
    try:
        with file.open("rb") as opened:
            size = file.stat().st_size
            head = opened.read(_HEAD)
    except OSError as error:
        return error.strerror or "cannot be read"
    named = maildir or file.suffix.lower() in (".eml", ".mbox", "")
    if head.startswith(b"From ") or (named and _KNOWN_FIELD.search(head)):
        return Source(file, size, maildir)
    return "is not a mail"


def _of_mbox(content: mmap.mmap | bytes) -> Iterator[ImportedMail]:
    edges = [*_MBOX_EDGE.finditer(content)]
    ends = [*(edge.start() + 1 for edge in edges[1:]), len(content)]
    for edge, end in zip(edges, ends, strict=False):
        raw = _QUOTED_FROM.sub(rb"\1", content[edge.end() : end])
        yield ImportedMail(
            Incoming(raw, _is_marked_seen(raw), _date_of(edge[1], raw)), end - edge.start()
        )


def _date_of(line: bytes, raw: bytes) -> datetime | None:
    """When a mail came, by its From line; some programs write there when they wrote the
    file, and nobody's address."""
    written = headers.date(line)
    found = _DATE.search(_head(raw))
    own = headers.date(found[1]) if found else None
    if written is None or own is None:
        return written
    if b"@" not in line:
        return own
    return min(written, own)


def _is_marked_seen(raw: bytes) -> bool:
    return _SEEN.search(_head(raw)) is not None


def _head(raw: bytes) -> bytes:
    return re.split(rb"\r?\n\r?\n", raw[:_HEAD], maxsplit=1)[0]
