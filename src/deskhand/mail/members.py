"""The files inside of an archive, unpacked in memory and only as far as a budget reaches."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import NamedTuple

DAMAGES = (
    *(
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        tarfile.TarError,
        struct.error,
        RuntimeError,
        MemoryError,
    ),
    *(ValueError, OSError, EOFError, LookupError, ArithmeticError),
)
OPENED = ("a ZIP archive", "a tar archive", "a gzip archive", "a bzip2 archive")


class TooMuch(Exception):
    """There is more in it than is looked at."""


class Budget:
    """What may be unpacked of one file, however deep its archives are nested."""

    def __init__(self, size: int, members: int, text: int) -> None:
        self.size = size
        self.members = members
        self.text = text
        """Characters in which secrets are looked for."""

    def take(self, content: bytes) -> bytes:
        self.size -= len(content)
        self.members -= 1
        if self.size < 0 or self.members < 0:
            raise TooMuch
        return content


class PackedFile(NamedTuple):
    name: str
    content: bytes
    is_locked: bool = False


def read_members(kind: str, content: bytes, budget: Budget) -> Iterator[PackedFile]:
    """Raises one of DAMAGES where it cannot be read, and TooMuch where the budget ends."""
    source = io.BytesIO(content)
    match kind:
        case "a ZIP archive":
            yield from _read_zip(source, budget)
        case "a tar archive":
            yield from _read_tar(source, budget)
        case "a gzip archive":
            yield PackedFile(
                "", budget.take(gzip.GzipFile(fileobj=source).read(budget.size + 1))
            )
        case "a bzip2 archive":
            yield PackedFile("", budget.take(bz2.BZ2File(source).read(budget.size + 1)))


def _read_zip(source: io.BytesIO, budget: Budget) -> Iterator[PackedFile]:
    with zipfile.ZipFile(source) as archive:
        for about in archive.infolist():
            if about.flag_bits & 1:
                yield PackedFile(about.filename, budget.take(b""), is_locked=True)
            elif not about.is_dir():
                with archive.open(about) as file:
                    yield PackedFile(
                        about.filename, budget.take(file.read(budget.size + 1))
                    )


def _read_tar(source: io.BytesIO, budget: Budget) -> Iterator[PackedFile]:
    with tarfile.open(fileobj=source, mode="r:") as archive:
        for about in archive:
            file = archive.extractfile(about) if about.isreg() else None
            if file is not None:
                yield PackedFile(about.name, budget.take(file.read(budget.size + 1)))
