"""Entries on their way into the record: lines in a file of this process, which stays where that is killed.

Of what is under way there may be a line already; the last line of an entry counts.
Whoever opens the record next takes such a file over. Nothing waits for the disk here: the end of the process loses no
line, a power cut may lose the last ones.
"""

import fcntl
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from deskhand.audit import END, Entry, append, texts
from deskhand.files import open_private, temporary_beside
from deskhand.store import Store, Transaction

_FILES = "behind-*.jsonl"
_LONG = 1 << 20
"""Bytes after which the record has to catch up."""


class Journal:
    def __init__(self, home: Path) -> None:
        self._path = home / _FILES.replace("*", uuid.uuid4().hex)
        self._file: int | None = None
        self._on_their_way: set[str] = set()
        self._size = 0

    @property
    def is_long(self) -> bool:
        return self._size > _LONG

    def keep(self, name: str, text: str) -> None:
        """Add the line of an entry, by the entry's correlation id."""
        if self._file is None:
            self._file = self._open()
        self._on_their_way.add(name)
        self._size += os.write(self._file, text.encode() + b"\n")

    def _open(self) -> int:
        """It has its name only when it is locked: before, it would be taken for one that was left."""
        with temporary_beside(self._path) as made:
            opened = open_private(
                str(made), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            )
            fcntl.flock(opened, fcntl.LOCK_EX)
            made.replace(self._path)
        return opened

    def drop(self, names: Iterable[str]) -> None:
        """They are on the record; with the last one the file is empty again."""
        self._on_their_way.difference_update(names)
        if self._file is not None and self._size and not self._on_their_way:
            os.ftruncate(self._file, 0)
            self._size = 0

    def close(self) -> None:
        if self._file is None:
            return
        if not self._on_their_way:
            self._path.unlink(missing_ok=True)
        os.close(self._file)
        self._file = None


def take_over(store: Store, home: Path) -> None:
    """Put on the record what processes that are no more had not put there yet."""
    for path in sorted(home.glob(_FILES)):
        with suppress(BlockingIOError, FileNotFoundError), path.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left = {entry.correlation_id: entry for entry in _read(opened.read())}
            store.write_sync(_append_missing, [*left.values()])
            path.unlink()


def _read(lines: bytes) -> Iterator[Entry]:
    for line in lines.splitlines():
        with suppress(ValueError):  # the last one may be half a line
            yield Entry.model_validate_json(line)


def _append_missing(tx: Transaction, left: Sequence[Entry]) -> None:
    """A process may have been killed when an entry was on the record and still in its file."""
    first_day = min((entry.timestamp[:10] for entry in left), default="9999")
    row = tx.one("SELECT min(first_seq) FROM audit_days WHERE day >= ?", first_day)
    known: set[str] = set()
    if row and row[0] is not None:
        lines = texts(tx, row[0], END, END)
        known = {Entry.model_validate_json(text).correlation_id for _, text in lines}
    for entry in left:
        if entry.correlation_id not in known:
            append(tx, entry)
