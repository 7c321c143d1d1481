"""The IMAP library, where a server answers as the standard lets it and the library does not expect."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from imapclient import IMAPClient, imap_utf7
from imapclient.exceptions import (
    IMAPClientAbortError,
    IMAPClientError,
    ProtocolError,
)
from imapclient.response_parser import parse_message_list, parse_response

log = logging.getLogger("deskhand.imap")
_LONGEST_LINE = 64_000_000


class ImapConnection(IMAPClient):  # type: ignore[misc]
    """What the library cannot read is a ProtocolError, and no error of its own."""

    def _create_IMAP4(self) -> Any:  # noqa: N802 - the library's name
        try:
            made = super()._create_IMAP4()
        except IMAPClientError as error:
            if str(error).startswith(
                "b'* BYE"
            ):  # too many connections, or it is going down
                raise IMAPClientAbortError(str(error)) from error
            raise
        made.readline = partial(_read_line, made)
        return made

    def fetch(self, *given: Any, **more: Any) -> Any:
        with _reading():
            return super().fetch(*given, **more)

    def find(self, criteria: Sequence[bytes]) -> list[int]:
        """The UIDs that a search finds; the answer may come in several parts."""
        with _reading():
            return [*parse_message_list([b" ".join(self._ask(b"SEARCH", criteria))])]

    def sort(self, criteria: Sequence[bytes]) -> list[int]:
        """The same, as the server sorts them."""
        with _reading():
            return [*map(int, b" ".join(self._ask(b"SORT", criteria)).split())]

    def _ask(self, command: bytes, criteria: Sequence[bytes]) -> list[bytes]:
        # The library's own search quotes only what holds a space: a brace or parenthesis would be read as syntax.
        answer: list[bytes] = self._raw_command_untagged(command, criteria)
        return [part for part in answer if part is not None]

    def select_folder(self, *given: Any, **more: Any) -> Any:
        with _reading():
            return super().select_folder(*given, **more)

    def list_folders(self, *given: Any, **more: Any) -> Any:
        with _reading():
            return super().list_folders(*given, **more)

    def _proc_folder_list(self, answer: Sequence[Any]) -> list[Any]:
        """Each folder that can be asked for by its name; one that cannot is left out and hides no other."""
        parsed = parse_response([item for item in answer if item not in (b"", None)])
        found = []
        for flags, delimiter, name in zip(*[iter(parsed)] * 3, strict=True):
            try:
                found.append((flags, delimiter, _read_name(name)))
            except ValueError:
                log.warning("folder_without_name", extra={"folder": ascii(name)})
        return found

    def personal_namespace(self) -> tuple[str, str | None]:
        """What the person's own folders begin with, and what stands between them; extensions may follow."""
        with _reading():
            personal, *_ = parse_response(self._command_and_check("namespace"))
            prefix, delimiter, *_ = personal[0] if personal else (b"", None)
            return _read_name(prefix), delimiter and delimiter.decode()

    def idle(self) -> None:
        """Until the server listens; before it says so it may tell of anything else."""
        self._idle_tag = self._imap._command("IDLE")  # noqa: SLF001 - as the library does it
        while self._imap._get_response() is not None:  # noqa: SLF001
            if refused := self._imap.tagged_commands.get(self._idle_tag):
                raise IMAPClientError(f"IDLE: {refused}")


def _read_line(connection: Any) -> bytes:
    """imaplib takes a million bytes, which is less than a search of a large folder answers."""
    line: bytes = connection.file.readline(_LONGEST_LINE + 1)
    if len(line) > _LONGEST_LINE:
        raise IMAPClientAbortError(f"a line of more than {_LONGEST_LINE:,} bytes")
    return line


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
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


def _read_name(name: Any) -> str:
    """A folder's name; ValueError where no command could name it."""
    if isinstance(name, int):
        return str(name)
    found = str(imap_utf7.decode(name))
    if imap_utf7.encode(found) != name:
        raise ValueError(name)
    return found
