"""The IMAP library, where a server answers as the standard lets it and the library does not expect."""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO

from imapclient import IMAPClient, imap_utf7
from imapclient.datetime_util import parse_to_datetime
from imapclient.exceptions import (
    IMAPClientAbortError,
    IMAPClientError,
    ProtocolError,
)
from imapclient.imap4 import IMAP4WithTimeout
from imapclient.response_parser import parse_message_list, parse_response
from imapclient.tls import IMAP4_TLS

from deskhand.errors import printable

log = logging.getLogger("deskhand.imap")
_LONGEST_LINE = 64_000_000
_WORDS = re.compile(rb"(?:\* (?:\d+ )?|[A-P]{4}\d+ )[A-Za-z-]+(?: \[[A-Za-z-]+)?")
"""What a line is about, and the code in it; the library knows both in capitals alone."""
_NIL = re.compile(rb'"(?:[^"\\]|\\.)*+"?|(?<=[ (])nil(?=[ )])', re.IGNORECASE)
"""Nothing, or what stands in quotes, closed or not, where it is a word like others."""
_NEWS = frozenset({b"FLAGS", b"MODSEQ"})
"""What a server may tell of a mail that nobody asked for."""


@dataclass(frozen=True, slots=True)
class ListedFolder:
    """A folder as the server lists it."""

    flags: frozenset[bytes]
    """In small letters."""
    delimiter: str
    """What stands between it and the folders in it; a slash where there can be none."""
    name: str


class ImapConnection(IMAPClient):  # type: ignore[misc]
    """What the library cannot read is a ProtocolError, and no error of its own."""

    def _create_IMAP4(self) -> Any:  # noqa: N802 - the library's name
        wait = self._timeout.connect
        try:
            with reading():
                if self.ssl:
                    return _PrivateLines(self.host, self.port, self.ssl_context, wait)
                return _OpenLines(self.host, self.port, wait)
        except IMAPClientError as error:
            if str(error).startswith(
                "b'* BYE"
            ):  # too many connections, or it is going down
                raise IMAPClientAbortError(str(error)) from error
            raise

    @property
    def is_signed_in(self) -> bool:
        return bool(self._imap.state != "NONAUTH")

    def fetch(self, mails: Sequence[int], wanted: Sequence[str]) -> dict[int, Any]:
        """What the server has of these mails, by their UIDs, or by their places where those are used.

        The library takes the place of a mail whose UID is not told for its UID, which may be another mail's.
        """
        if not mails:
            return {}
        numbers = ",".join(map(str, mails)).encode()
        names = f"({' '.join(wanted)})".encode()
        with reading():
            answer = parse_response(self._ask(b"FETCH", [numbers, names]))
            found: dict[int, dict[bytes, Any]] = {}
            for place, items in zip(*[iter(answer)] * 2, strict=True):
                parts = _read_parts(items)
                if not self.use_uid:
                    found.setdefault(place, {}).update(parts)
                elif b"UID" in parts:
                    found.setdefault(int(parts[b"UID"]), {}).update(parts)
                elif not _NEWS.issuperset(parts):
                    raise ProtocolError("a mail without its UID")
        return {each: found[each] for each in mails if each in found}

    def find(self, criteria: Sequence[bytes]) -> list[int]:
        """The UIDs that a search finds; the answer may come in several parts."""
        with reading():
            return [*parse_message_list([b" ".join(self._ask(b"SEARCH", criteria))])]

    def sort(self, criteria: Sequence[bytes]) -> list[int]:
        """The same, as the server sorts them."""
        with reading():
            return [*map(int, b" ".join(self._ask(b"SORT", criteria)).split())]

    def _ask(self, command: bytes, criteria: Sequence[bytes]) -> list[bytes]:
        # The library's own search quotes only what holds a space: a brace or parenthesis would be read as syntax.
        answer: list[bytes] = self._raw_command_untagged(command, criteria)
        return [part for part in answer if part is not None]

    def select_folder(self, *given: Any, **more: Any) -> Any:
        with reading():
            return super().select_folder(*given, **more)

    def list_folders(self, *given: Any, **more: Any) -> Any:
        with reading():
            return super().list_folders(*given, **more)

    def _proc_folder_list(self, answer: Sequence[Any]) -> list[ListedFolder]:
        """Each folder that can be read and asked for by its name; one that cannot is left
        out and hides no other."""
        found: list[ListedFolder] = []
        unreadable: list[Any] = []
        for line in _join_literals(answer):
            try:
                with reading():
                    found.append(_read_folder(parse_response(line)))
            except ProtocolError:
                unreadable.append(line)
        if unreadable:
            log.warning(
                "folders_unreadable",
                extra={"folders": len(unreadable), "first": printable(unreadable[0])},
            )
            if all(folder.name.upper() != "INBOX" for folder in found):
                raise ProtocolError("no inbox among folders that cannot be read")
        return found

    def personal_namespace(self) -> tuple[str, str | None]:
        """What the person's own folders begin with, and what stands between them; extensions may follow."""
        with reading():
            personal, *_ = parse_response(self._command_and_check("namespace"))
            prefix, delimiter, *_ = personal[0] if personal else (b"", None)
            return _read_name(prefix), delimiter and delimiter.decode()

    def idle(self) -> None:
        """Until the server listens; before it says so it may tell of anything else."""
        self._idle_tag = self._imap._command("IDLE")  # noqa: SLF001 - as the library does it
        while self._imap._get_response() is not None:  # noqa: SLF001
            if refused := self._imap.tagged_commands.get(self._idle_tag):
                raise IMAPClientError(f"IDLE: {refused}")


class _Lines:
    file: BinaryIO

    def readline(self) -> bytes:
        """imaplib takes a million bytes, which is less than a search of a large folder answers."""
        line = self.file.readline(_LONGEST_LINE + 1)
        if len(line) > _LONGEST_LINE:
            raise IMAPClientAbortError(f"a line of more than {_LONGEST_LINE:,} bytes")
        if words := _WORDS.match(line):
            line = words[0].upper() + line[words.end() :]
        if b"nil" not in line.lower():
            return line
        return _NIL.sub(_write_nil, line)


class _OpenLines(_Lines, IMAP4WithTimeout):  # type: ignore[misc]
    pass


class _PrivateLines(_Lines, IMAP4_TLS):  # type: ignore[misc]
    pass


def _write_nil(found: re.Match[bytes]) -> bytes:
    if found[0].startswith(b'"'):
        return found[0]
    return b"NIL"


def _read_parts(items: Any) -> dict[bytes, Any]:
    """What a server tells of one mail, each by its name in capitals."""
    parts = {name.upper(): value for name, value in zip(*[iter(items)] * 2, strict=True)}
    if isinstance(parts.get(b"INTERNALDATE"), bytes):
        parts[b"INTERNALDATE"] = _read_date(parts[b"INTERNALDATE"])
    return parts


def _read_date(text: bytes) -> datetime | None:
    read: datetime | None = None
    with suppress(ValueError):
        read = parse_to_datetime(text, normalise=False)
    return read


@contextmanager
def reading() -> Iterator[None]:
    """What cannot be read raises a ProtocolError here, and no error of Python's own."""
    try:
        yield
    except OSError:  # a certificate's error is a ValueError, too
        raise
    except MemoryError as error:
        raise IMAPClientAbortError("more than fits into memory") from error
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ProtocolError(f"an answer that cannot be read ({error})") from error


def words_of(given: Any) -> list[bytes]:
    """The words of a list, such as flags: NIL is the library's for nothing, and digits are a number to it.

    What is no word is left out. ValueError where it is no list.
    """
    if given is None:
        return []
    if not isinstance(given, tuple):
        raise ValueError("no list of words")  # noqa: TRY004 - what a server says has no type
    words = [b"NIL" if each is None else each for each in given]
    return [
        each if isinstance(each, bytes) else b"%d" % each
        for each in words
        if isinstance(each, bytes | int)
    ]


def _join_literals(answer: Sequence[Any]) -> Iterator[list[Any]]:
    """The lines of an answer; imaplib cuts a line behind each literal."""
    line: list[Any] = []
    for item in answer:
        if item:
            line.append(item)
        if line and not isinstance(item, tuple):
            yield line
            line = []
    if line:
        yield line


def _read_folder(parts: Sequence[Any]) -> ListedFolder:
    """An extension in parentheses may follow the name; anything else says that the name was not all of it."""
    flags, delimiter, name, *more = parts
    if not name or not all(isinstance(each, tuple) for each in more):
        raise ValueError(parts)
    return ListedFolder(
        frozenset(flag.lower() for flag in words_of(flags)),
        delimiter.decode("ascii") if delimiter else "/",
        _read_name(name),
    )


def _read_name(name: Any) -> str:
    """A folder's name; ValueError where no command could name it."""
    if isinstance(name, int):
        return str(name)
    found = str(imap_utf7.decode(name))
    if imap_utf7.encode(found) != name:
        raise ValueError(name)
    return found
