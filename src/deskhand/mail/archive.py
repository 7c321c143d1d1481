"""Documents that are XML in a ZIP archive: their parts, unpacked and read only as far as a stranger may make us."""

import io
import lzma
import posixpath
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO
from xml.parsers import expat

MOST_UNPACKED = 100_000_000
"""Bytes that a packed document may grow to while it is read."""
_CHUNK = 65536
_DAMAGES = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, NotImplementedError),
    *(LookupError, OSError, EOFError, ValueError),
)

Pieces = Iterator[str]
Warn = Callable[[str], None]
Attributes = dict[str, str]
Event = tuple[str, str, Attributes]
"""("start" or "end", the element's name, its attributes), or ("text", the text, nothing)."""


class NoText(Exception):
    """Why there is no text; a sentence."""


class Archive:
    """The parts of a packed document, which together grow to so many bytes and no more."""

    def __init__(self, content: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
        except _DAMAGES as error:
            raise NoText("The document is damaged: it cannot be unpacked.") from error
        self.names = dict.fromkeys(self._zip.namelist())
        self._left = MOST_UNPACKED

    def matching(self, pattern: str) -> list[str]:
        """The parts with this name, by the number in it."""
        found = [name for name in self.names if re.fullmatch(pattern, name)]
        return sorted(
            found, key=lambda name: (int("0" + re.sub(r"\D", "", name)[:9]), name)
        )

    def links(self, name: str) -> dict[str, tuple[str, str]]:
        """What a part refers to: of each link its kind and the part that it leads to, by its id."""
        folder, _, file = name.rpartition("/")
        found: dict[str, tuple[str, str]] = {}
        for event, what, given in self.walk_if(
            posixpath.join(folder, "_rels", f"{file}.rels")
        ):
            if (event, what) == ("start", "Relationship"):
                target = posixpath.normpath(
                    posixpath.join("/", folder, given.get("Target", ""))
                ).lstrip("/")
                found[given.get("Id", "")] = (
                    given.get("Type", "").rpartition("/")[2],
                    target,
                )
        return found

    def walk(self, name: str) -> Iterator[Event]:
        """What stands in a part, in its order."""
        gathered = XmlEvents()
        try:
            for chunk in self._chunks(name):
                gathered.parser.Parse(chunk, False)
                yield from gathered.events
                gathered.events.clear()
            gathered.parser.Parse(b"", True)
        except (
            expat.ExpatError,
            LookupError,
            ValueError,
        ) as error:  # the last two: an encoding that is none
            raise NoText(f"The document is damaged: {name} is no XML.") from error
        yield from gathered.events

    def walk_if(self, name: str) -> Iterator[Event]:
        if name in self.names:
            yield from self.walk(name)

    def read(self, name: str) -> bytes:
        return b"".join(self._chunks(name))

    def _chunks(self, name: str) -> Iterator[bytes]:
        try:
            with self._zip.open(name) as part:
                yield from self._bounded(part)
        except _DAMAGES as error:
            raise NoText(f"The document is damaged: {name} cannot be unpacked.") from error
        except RuntimeError as error:  # what the library says of a password
            raise NoText("The document is encrypted with a password.") from error

    def _bounded(self, part: IO[bytes]) -> Iterator[bytes]:
        while chunk := part.read(_CHUNK):
            self._left -= len(chunk)
            if self._left < 0:
                raise NoText(
                    f"The document unpacks to more than {MOST_UNPACKED:,} bytes; it was not read further."
                )
            yield chunk


class XmlEvents:
    """Calls of the XML parser, gathered until somebody takes them; a tree would need
    memory that a stranger chooses."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._refuse
        self._passed_over = 0

    def _start(self, name: str, attributes: Attributes) -> None:
        what = name.rpartition(" ")[2]
        # The same once more, for programs that are older.
        if self._passed_over or what == "Fallback":
            self._passed_over += 1
            return
        # Of `id` and `r:id` the second one is meant.
        ordered = sorted(attributes.items(), key=_is_qualified)
        self.events.append(
            ("start", what, {key.rpartition(" ")[2]: value for key, value in ordered})
        )

    def _end(self, name: str) -> None:
        if self._passed_over:
            self._passed_over -= 1
            return
        self.events.append(("end", name.rpartition(" ")[2], {}))

    def _text(self, text: str) -> None:
        if not self._passed_over:
            self.events.append(("text", text, {}))

    def _refuse(self, *_: object) -> None:
        raise NoText(
            "The document declares entities of its own, which no Office program does; it was not read."
        )


def _is_qualified(attribute: tuple[str, str]) -> bool:
    return " " in attribute[0]
