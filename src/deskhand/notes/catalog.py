"""The index file: which notes there are, what they hold, where to look for a text. Disposable.

A note has a row as soon as it is seen, and is *stale* until its text is filed: a query scans the stale notes and
asks the tables about the others. A note's id is its version: newer texts have higher ids, and an id in the text
tables that no row has any more is dead, since a contentless table cannot delete.
"""

import json
import os
import sqlite3
import string
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from sqlite3 import Connection
from threading import Lock
from typing import Literal

from deskhand.errors import Unreadable
from deskhand.locks import wait_for_lock
from deskhand.notes import frontmatter, links
from deskhand.notes.matching import fold, pairs, words_of
from deskhand.notes.walk import Key, Root, key_of, read

VERSION = 3
RACY_NS = 2_000_000_000
RACY_FINE_NS = 50_000_000
"""The same where files have the time of the system's clock, which moves on every 10 ms at the latest."""
_MILLISECOND = 1_000_000
BUSY_SECONDS = 30
KEPT_OPEN = 4
TEXT_TABLES = ("posting", "tri", "pair")

_MARKS = string.punctuation.replace("'", "''").replace('"', '""')
_TABLES = f"""
CREATE TABLE state(generation TEXT, versions INTEGER);
INSERT INTO state VALUES (lower(hex(randomblob(4))), 0);
CREATE TABLE note(
    id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
    mtime_ns INTEGER, size INTEGER, inode INTEGER, ctime_ns INTEGER,
    racy INTEGER NOT NULL DEFAULT 0, stale INTEGER NOT NULL DEFAULT 1,
    digest BLOB, props TEXT, links TEXT, tags TEXT);
CREATE INDEX note_by_name ON note(name);
CREATE TABLE link(name TEXT, path TEXT, target TEXT, PRIMARY KEY (name, path, target)) WITHOUT ROWID;
CREATE TABLE tag(name TEXT PRIMARY KEY, shown TEXT NOT NULL, notes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE text(id INTEGER PRIMARY KEY, folded TEXT NOT NULL);
CREATE INDEX racy_by_id ON note(id) WHERE racy;
CREATE INDEX stale_by_id ON note(id) WHERE stale;
CREATE INDEX stale_by_path ON note(path) WHERE stale;
CREATE TABLE prop(key TEXT, value TEXT, path TEXT, PRIMARY KEY (key, value, path)) WITHOUT ROWID;
CREATE TABLE word(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE VIRTUAL TABLE posting USING fts5(
    text, content='', columnsize=0, detail=none, tokenize="ascii tokenchars '{_MARKS}'");
CREATE VIRTUAL TABLE tri USING fts5(
    text, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1');
CREATE VIRTUAL TABLE pair USING fts5(
    text, content='', columnsize=0, detail=none, tokenize="ascii tokenchars '{_MARKS}'");
INSERT INTO posting(posting, rank) VALUES ('hashsize', 33554432);
PRAGMA user_version = {VERSION};
"""
_KEY = "mtime_ns = ?, size = ?, inode = ?, ctime_ns = ?"


@dataclass(frozen=True, slots=True)
class NoteText:
    """What search and lists see of a note."""

    values: list[str]
    properties: set[tuple[str, str]]
    body: str

    def fold(self, path: str) -> str:
        """What a search looks at: the path, the values and the body, folded."""
        return "\n".join([fold(path), *map(fold, self.values), fold(self.body)])


@dataclass(frozen=True, slots=True)
class NoteMarks:
    """By what a note is joined to others: what its links name, and its tags."""

    targets: list[str]
    tags: list[str]


@dataclass(frozen=True, slots=True)
class Filing:
    """A note as it was read, ready to be filed; no key when it is gone."""

    path: str
    key: Key | None
    racy: bool
    digest: bytes
    text: NoteText
    marks: "NoteMarks"
    size: int


def paths_below(folder: str) -> tuple[str, str]:
    """Every path below the folder sorts between these two; the vault's own folder is empty."""
    if not folder:
        return "", "\U0010ffff"
    return f"{folder}/", f"{folder}0"


def text_of(source: str) -> NoteText:
    return _text_in(_parse(source), source)


def marks_of(source: str) -> NoteMarks:
    return _marks_in(_parse(source), source)


def _parse(source: str) -> frontmatter.Note | None:
    """The note, if its properties can be read."""
    try:
        return frontmatter.parse(source)
    except Unreadable:
        return None


def _marks_in(note: frontmatter.Note | None, source: str) -> NoteMarks:
    if note is None:
        note = frontmatter.Note({}, frontmatter.split(source)[1])
    found = NoteMarks(
        links.targets(note.frontmatter, note.body), links.tags(note.frontmatter, note.body)
    )
    return NoteMarks(
        [*map(_without_surrogates, found.targets)], [*map(_without_surrogates, found.tags)]
    )


def _text_in(note: frontmatter.Note | None, source: str) -> NoteText:
    if note is None:
        block, body = frontmatter.split(source)
        return NoteText([block or ""], set(), body)
    values = [*map(_without_surrogates, frontmatter.value_texts(note.frontmatter))]
    properties = {
        (fold(_without_surrogates(key)), fold(_without_surrogates(value)))
        for key, value in frontmatter.properties(note.frontmatter)
    }
    return NoteText(values, properties, note.body)


def _without_surrogates(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def is_racy(changed_ns: int, now: float, *, finely: bool) -> bool:
    """Whether a file was changed so shortly before that a later change might leave it the same times.

    `finely` says that its file system is one of this machine's. Even there a file may be dated in whole seconds.
    """
    window = RACY_NS
    if finely and changed_ns % _MILLISECOND:
        window = RACY_FINE_NS
    return changed_ns > now * 1e9 - window


def read_filing(root: Root, path: str, now: float, *, finely: bool) -> Filing:
    content = read(root, path)
    if content is None:
        return Filing(path, None, False, b"", NoteText([], set(), ""), NoteMarks([], []), 0)
    data, key = content
    racy = is_racy(key[3], now, finely=finely)
    source = data.decode("utf-8", "replace")
    note = _parse(source)
    digest = blake2b(data, digest_size=16).digest()
    return Filing(
        path, key, racy, digest, _text_in(note, source), _marks_in(note, source), len(data)
    )


class Catalog:
    """The open index file. It is opened again when it was deleted or replaced."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = Lock()
        self._inode: int | None = None
        self._idle: list[Connection] = []

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        with self._lock:
            if self._inode != _inode(self.file):
                self._forget()
            if not self._idle:
                self._idle.append(self._connect())
            db = self._idle.pop()
            inode = self._inode
        try:
            yield db
        except BaseException:
            db.close()
            raise
        with self._lock:
            if inode == self._inode and len(self._idle) < KEPT_OPEN:
                self._idle.append(db)
                return
        db.close()

    def discard(self) -> None:
        """Delete the file, so that the next use makes a new one."""
        with self._lock, _only_one(self.file.parent):
            if self._inode == _inode(self.file):
                _delete(self.file)
            self._forget()

    def close(self) -> None:
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        for db in self._idle:
            db.close()
        self._idle.clear()
        self._inode = None

    def _connect(self) -> Connection:
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _only_one(self.file.parent):
            db = _open(self.file)
            self._inode = _inode(self.file)
        return db


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Creating and deleting the file is for one process at a time."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        wait_for_lock(fd, "the index of the notes")
        yield
    finally:
        os.close(fd)


def _inode(file: Path) -> int | None:
    try:
        return file.stat().st_ino
    except OSError:
        return None


def _delete(file: Path) -> None:
    for name in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
        name.unlink(missing_ok=True)


def _open(file: Path) -> Connection:
    if not file.exists():
        _delete(file)
        # It holds what the notes hold, so it is nobody else's to read.
        file.touch(mode=0o600)
    try:
        return _connect(file)
    except sqlite3.DatabaseError as exc:
        if is_busy(exc):
            raise
        _delete(file)
        return _connect(file)


def _connect(file: Path) -> Connection:
    db = sqlite3.connect(
        file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        for setting in ("journal_mode = WAL", "synchronous = OFF", "cache_size = -8000"):
            db.execute(f"PRAGMA {setting}")
        if not db.execute("SELECT 1 FROM sqlite_schema").fetchone():
            db.executescript(f"BEGIN IMMEDIATE;{_TABLES}COMMIT;")
        if db.execute("PRAGMA user_version").fetchone() != (VERSION,):
            raise sqlite3.DatabaseError("the index has another version")  # noqa: TRY301
    except BaseException:
        db.close()
        raise
    return db


def is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) in (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
    )


@contextmanager
def transaction(
    db: Connection, kind: Literal["DEFERRED", "IMMEDIATE"] = "IMMEDIATE"
) -> Iterator[None]:
    db.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def differences(
    db: Connection, found: dict[str, Key], below: str = ""
) -> dict[str, Key | None]:
    """What differs between `found`, which is used up, and the rows of that folder. Racy rows count as changed."""
    changes: dict[str, Key | None] = {}
    sql = "SELECT path, mtime_ns, size, inode, ctime_ns, racy, stale FROM note"
    values: tuple[str, ...] = ()
    if below:
        sql += " WHERE path = ? OR (path > ? AND path < ?)"
        values = (below, *paths_below(below))
    for path, mtime_ns, size, inode, ctime_ns, racy, stale in db.execute(sql, values):
        key = found.pop(path, None)
        if key is None:
            changes[path] = None
        elif not stale and (racy or key != (mtime_ns, size, inode, ctime_ns)):
            changes[path] = key
    changes.update(in_order(found))
    return changes


def in_order(found: dict[str, Key]) -> dict[str, Key]:
    """The notes, oldest first, so that newer ones get higher ids."""
    return dict(sorted(found.items(), key=lambda item: (item[1][0], item[0])))


def record_changes(db: Connection, root: Root, changes: Mapping[str, Key | None]) -> None:
    """Make rows for new notes, remove those of deleted ones, and mark as stale what changed."""
    for path, seen in changes.items():
        # It may have come back since the scan that missed it.
        if key := seen or key_of(root, path):
            _record_change(db, path, key)
        else:
            _forget(db, path)


def _record_change(db: Connection, path: str, key: Key) -> None:
    db.execute(
        "INSERT INTO note(path, name, mtime_ns, size, inode, ctime_ns) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (path) DO UPDATE SET stale = 1",
        (path, links.link_key(path), *key),
    )


def clear(db: Connection) -> None:
    """Forget everything, the dead versions too."""
    for table in TEXT_TABLES:
        db.execute(f"INSERT INTO {table}({table}) VALUES ('delete-all')")
    for table in ("prop", "link", "tag", "text", "word", "note"):
        db.execute(f"DELETE FROM {table}")
    db.execute("DELETE FROM sqlite_sequence")
    db.execute("UPDATE state SET generation = lower(hex(randomblob(4))), versions = 0")


def merge_segments(db: Connection, table: str, pages: int) -> bool:
    """Merge some segments of a text table, each of which slows every look-up; True when only one is left."""
    before = db.total_changes
    db.execute(f"INSERT INTO {table}({table}, rank) VALUES ('merge', ?)", (pages,))
    return db.total_changes - before < 2


def checkpoint(db: Connection) -> None:
    """Move what was written from the log into the file: a long log slows every look-up.
    Readers may prevent it."""
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def file_texts(db: Connection, filings: Iterable[Filing]) -> None:
    """File what was read. What another process has filed in the meantime is left as it is."""
    words: set[str] = set()
    new = 0
    for filing in filings:
        row = db.execute(
            "SELECT id, digest FROM note WHERE path = ? AND stale", (filing.path,)
        ).fetchone()
        if row is None:
            continue
        number, digest = row
        if filing.key is None:
            _forget(db, filing.path)
        elif digest == filing.digest:
            db.execute(
                f"UPDATE note SET {_KEY}, racy = ?, stale = 0 WHERE id = ?",
                (*filing.key, filing.racy, number),
            )
        else:
            if digest is not None:
                number = _new_version(db, filing.path, filing.key)
            words |= _insert(db, filing, filing.key, number)
            new += 1
    _learn(db, words)
    db.execute("UPDATE state SET versions = versions + ?", (new,))


def _new_version(db: Connection, path: str, key: Key) -> int:
    """Make a row for a new version of a note; its id."""
    _forget(db, path)
    _record_change(db, path, key)
    return int(db.execute("SELECT id FROM note WHERE path = ?", (path,)).fetchone()[0])


def _insert(db: Connection, filing: Filing, key: Key, number: int) -> set[str]:
    """File the text under its row's id; returns its words."""
    text = filing.text
    props = json.dumps(sorted(text.properties)) if text.properties else None
    db.execute(
        f"UPDATE note SET {_KEY}, racy = ?, stale = 0, digest = ?, props = ? WHERE id = ?",
        (*key, filing.racy, filing.digest, props, number),
    )
    _insert_marks(db, filing, number)
    folded = text.fold(filing.path)
    words, gaps = words_of(folded)
    db.execute("INSERT INTO text VALUES (?, ?)", (number, folded))
    db.execute(
        "INSERT INTO posting(rowid, text) VALUES (?, ?)", (number, " ".join(words | gaps))
    )
    db.executemany(
        "INSERT OR IGNORE INTO prop VALUES (?, ?, ?)",
        ((name, value, filing.path) for name, value in text.properties),
    )
    return words


def _insert_marks(db: Connection, filing: Filing, number: int) -> None:
    marks = filing.marks
    if marks.targets:
        db.execute(
            "UPDATE note SET links = ? WHERE id = ?", (json.dumps(marks.targets), number)
        )
        rows = ((links.link_key(target), filing.path, target) for target in marks.targets)
        db.executemany("INSERT OR IGNORE INTO link VALUES (?, ?, ?)", rows)
    if marks.tags:
        db.execute(
            "UPDATE note SET tags = ? WHERE id = ?", (json.dumps(marks.tags), number)
        )
        counted = (
            "INSERT INTO tag VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET notes = notes + 1"
        )
        db.executemany(counted, ((links.name_key(tag), tag) for tag in marks.tags))


def _forget_marks(db: Connection, path: str, targets: str | None, tags: str | None) -> None:
    written = json.loads(targets or "[]")
    rows = ((links.link_key(target), path, target) for target in written)
    db.executemany("DELETE FROM link WHERE name = ? AND path = ? AND target = ?", rows)
    names = [(links.name_key(tag),) for tag in json.loads(tags or "[]")]
    db.executemany("UPDATE tag SET notes = notes - 1 WHERE name = ?", names)
    db.executemany("DELETE FROM tag WHERE name = ? AND notes < 1", names)


def _learn(db: Connection, words: Iterable[str]) -> None:
    """Take the words that are new into the vocabulary."""
    known = db.execute("SELECT max(id) FROM word").fetchone()[0] or 0
    db.executemany(
        "INSERT OR IGNORE INTO word(text) VALUES (?)", ((word,) for word in words)
    )
    new = db.execute("SELECT id, text FROM word WHERE id > ?", (known,)).fetchall()
    db.executemany("INSERT INTO tri(rowid, text) VALUES (?, ?)", new)
    grams = ((number, " ".join(pairs(word))) for number, word in new)
    db.executemany("INSERT INTO pair(rowid, text) VALUES (?, ?)", grams)


def _forget(db: Connection, path: str) -> None:
    row = db.execute(
        "SELECT id, props, links, tags FROM note WHERE path = ?", (path,)
    ).fetchone()
    if row is None:
        return
    _forget_marks(db, path, row[2], row[3])
    db.executemany(
        "DELETE FROM prop WHERE key = ? AND value = ? AND path = ?",
        ((name, value, path) for name, value in json.loads(row[1] or "[]")),
    )
    db.execute("DELETE FROM text WHERE id = ?", (row[0],))
    db.execute("DELETE FROM note WHERE id = ?", (row[0],))


def stale_paths(db: Connection, limit: int) -> list[str]:
    """Notes whose text is not filed yet, the newest first: they are what people ask for."""
    rows = db.execute(
        "SELECT path FROM note WHERE stale ORDER BY id DESC LIMIT ?", (limit,)
    )
    return [path for (path,) in rows]


def count_stale(db: Connection) -> int:
    return int(db.execute("SELECT count(*) FROM note WHERE stale").fetchone()[0])


def has_racy(db: Connection) -> bool:
    """Whether a note was filed so soon after a change that its times may hide another one."""
    return db.execute("SELECT 1 FROM note WHERE racy LIMIT 1").fetchone() is not None


def generation(db: Connection) -> str:
    return str(db.execute("SELECT generation FROM state").fetchone()[0])


def versions(db: Connection) -> int:
    return int(db.execute("SELECT versions FROM state").fetchone()[0])
