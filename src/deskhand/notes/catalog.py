"""The index file: which notes there are, what they hold, where to look for a text. Disposable.

A note has a row as soon as it is seen, and is *stale* until its text is filed: a query scans the stale notes and
asks the tables about the others. A note's id is its version: newer texts have higher ids, and an id in the text
tables that no row has any more is dead, since a contentless table cannot delete.
"""

import fcntl
import heapq
import json
import os
import sqlite3
import string
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from deskhand.errors import Unreadable
from deskhand.notes import frontmatter, matching
from deskhand.notes.matching import Query, fold, marks_of, without_nul
from deskhand.notes.walk import Key, look, read

VERSION = 1
RACY_NS = 2_000_000_000
COUNTED = 5_000
READ_TO_COUNT = 500
BUSY_SECONDS = 30
KEPT_OPEN = 4
END = "\U0010ffff"

_MARKS = string.punctuation.replace("'", "''").replace('"', '""')
_TABLES = f"""
CREATE TABLE state(generation TEXT, versions INTEGER);
INSERT INTO state VALUES (lower(hex(randomblob(4))), 0);
CREATE TABLE note(
    id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE,
    mtime_ns INTEGER, size INTEGER, inode INTEGER, ctime_ns INTEGER,
    racy INTEGER NOT NULL DEFAULT 0, stale INTEGER NOT NULL DEFAULT 1,
    digest BLOB, props TEXT);
CREATE TABLE text(id INTEGER PRIMARY KEY, folded TEXT NOT NULL);
CREATE INDEX stale_by_id ON note(id) WHERE stale;
CREATE INDEX stale_by_path ON note(path) WHERE stale;
CREATE TABLE prop(key TEXT, value TEXT, path TEXT, PRIMARY KEY (key, value, path)) WITHOUT ROWID;
CREATE VIRTUAL TABLE tri USING fts5(
    text, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1');
CREATE VIRTUAL TABLE mark USING fts5(
    text, content='', columnsize=0, detail=none, tokenize="ascii tokenchars '{_MARKS}'");
INSERT INTO tri(tri, rank) VALUES ('hashsize', 8388608);
INSERT INTO mark(mark, rank) VALUES ('hashsize', 4194304);
PRAGMA user_version = {VERSION};
"""
_ROW = "note.id, note.path, mtime_ns, size, inode, ctime_ns, stale"


class Row(NamedTuple):
    id: int
    path: str
    mtime_ns: int
    size: int
    inode: int
    ctime_ns: int
    stale: int

    def is_filed_as(self, key: Key) -> bool:
        return not self.stale and key == (self.mtime_ns, self.size, self.inode, self.ctime_ns)


@dataclass(frozen=True, slots=True)
class Text:
    """What search and lists see of a note."""

    values: list[str]
    properties: set[tuple[str, str]]
    body: str

    def folded(self, path: str) -> str:
        return "\n".join([fold(path), *map(fold, self.values), fold(self.body)])


@dataclass(frozen=True, slots=True)
class Filing:
    """A note as it was read, ready to be filed; no key when it is gone."""

    path: str
    key: Key | None
    racy: bool
    digest: bytes
    text: Text
    size: int


def text_of(source: str) -> Text:
    try:
        note = frontmatter.parse(source)
    except Unreadable:
        block, body = frontmatter.split(source)
        return Text([block or ""], set(), body)
    values = [_encodable(value) for value in frontmatter.value_texts(note.frontmatter)]
    pairs = {(fold(_encodable(k)), fold(_encodable(v))) for k, v in frontmatter.properties(note.frontmatter)}
    return Text(values, pairs, note.body)


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def prepare(root: int, path: str, now: float) -> Filing:
    content = read(root, path)
    if content is None:
        return Filing(path, None, racy=False, digest=b"", text=Text([], set(), ""), size=0)
    data, key = content
    racy = key[3] > now * 1e9 - RACY_NS
    return Filing(path, key, racy, blake2b(data, digest_size=16).digest(), text_of(decoded(data)), len(data))


class Catalog:
    """The open index file. It is opened again when it was deleted or replaced; `opened` counts that."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.opened = 0
        self._lock = Lock()
        self._inode: int | None = None
        self._idle: list[sqlite3.Connection] = []

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._inode != _inode(self.file):
                self._forget()
            db = self._idle.pop() if self._idle else self._connect()
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

    def _connect(self) -> sqlite3.Connection:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(self.file.parent):
            db = _open(self.file)
            inode = _inode(self.file)
        if inode != self._inode:
            self._inode = inode
            self.opened += 1
        return db


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Creating and deleting the file is for one process at a time."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
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


def _open(file: Path) -> sqlite3.Connection:
    if not file.exists():
        _delete(file)
    try:
        return _ready(file)
    except sqlite3.DatabaseError as exc:
        if is_busy(exc):
            raise
        _delete(file)
        return _ready(file)


def _ready(file: Path) -> sqlite3.Connection:
    db = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        for setting in ("journal_mode = WAL", "synchronous = OFF", "cache_size = -8000"):
            db.execute(f"PRAGMA {setting}")
        if not db.execute("SELECT 1 FROM sqlite_schema").fetchone():
            db.executescript(f"BEGIN IMMEDIATE;{_TABLES}COMMIT;")
        _demand_version(db)
    except BaseException:
        db.close()
        raise
    return db


def _demand_version(db: sqlite3.Connection) -> None:
    if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
        raise sqlite3.DatabaseError("the index has another version")


def is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


# What is there


def differences(db: sqlite3.Connection, found: dict[str, Key], below: str = "") -> dict[str, Key | None]:
    """What differs between `found`, which is used up, and the rows of that folder. Racy rows count as changed."""
    changes: dict[str, Key | None] = {}
    rows = db.execute(
        "SELECT path, mtime_ns, size, inode, ctime_ns, racy, stale FROM note "
        + ("WHERE path = ? OR (path > ? AND path < ?)" if below else ""),
        (below, f"{below}/", f"{below}0") if below else (),
    )
    for path, mtime_ns, size, inode, ctime_ns, racy, stale in rows:
        key = found.pop(path, None)
        if key is None:
            changes[path] = None
        elif not stale and (racy or key != (mtime_ns, size, inode, ctime_ns)):
            changes[path] = key
    changes.update(in_order(found))
    return changes


def in_order(found: dict[str, Key]) -> dict[str, Key]:
    """Oldest first, so that newer notes get higher ids."""
    return dict(sorted(found.items(), key=lambda item: (item[1][0], item[0])))


def note_changes(db: sqlite3.Connection, root: int, changes: Mapping[str, Key | None]) -> None:
    """Rows for what came, none for what went, and all that changed is stale."""
    for path, seen in changes.items():
        # It may have come back since the scan that missed it.
        if key := seen or look(root, path):
            db.execute(
                "INSERT INTO note(path, mtime_ns, size, inode, ctime_ns) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (path) DO UPDATE SET stale = 1",
                (path, *key),
            )
        else:
            _forget(db, path)


def clear(db: sqlite3.Connection) -> None:
    """Forget everything, the dead versions too."""
    for table in ("tri", "mark"):
        db.execute(f"INSERT INTO {table}({table}) VALUES ('delete-all')")
    for table in ("prop", "text", "note"):
        db.execute(f"DELETE FROM {table}")
    db.execute("DELETE FROM sqlite_sequence")
    db.execute("UPDATE state SET generation = lower(hex(randomblob(4))), versions = 0")


def put(db: sqlite3.Connection, filings: Iterable[Filing]) -> None:
    """Put the texts in. What another process has filed in the meantime is left as it is."""
    for filing in filings:
        row = db.execute("SELECT id, digest FROM note WHERE path = ? AND stale", (filing.path,)).fetchone()
        if row is None:
            continue
        if filing.key is None:
            _forget(db, filing.path)
        elif row[1] == filing.digest:
            db.execute(
                "UPDATE note SET mtime_ns = ?, size = ?, inode = ?, ctime_ns = ?, racy = ?, stale = 0 WHERE id = ?",
                (*filing.key, filing.racy, row[0]),
            )
        else:
            new_id = row[0] if row[1] is None else None
            _forget(db, filing.path)
            _insert(db, filing, filing.key, new_id)


def _insert(db: sqlite3.Connection, filing: Filing, key: Key, new_id: int | None) -> None:
    text = filing.text
    number = db.execute(
        "INSERT INTO note(id, path, mtime_ns, size, inode, ctime_ns, racy, stale, digest, props) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?)",
        (
            *(new_id, filing.path, *key, filing.racy, filing.digest),
            json.dumps(sorted(text.properties)) if text.properties else None,
        ),
    ).lastrowid
    folded = text.folded(filing.path)
    db.execute("INSERT INTO text VALUES (?, ?)", (number, folded))
    db.execute("INSERT INTO tri(rowid, text) VALUES (?, ?)", (number, without_nul(folded)))
    db.execute("INSERT INTO mark(rowid, text) VALUES (?, ?)", (number, marks_of(without_nul(folded))))
    db.executemany(
        "INSERT OR IGNORE INTO prop VALUES (?, ?, ?)",
        ((name, value, filing.path) for name, value in text.properties),
    )
    db.execute("UPDATE state SET versions = versions + 1")


def _forget(db: sqlite3.Connection, path: str) -> None:
    row = db.execute("SELECT id, props FROM note WHERE path = ?", (path,)).fetchone()
    if row is None:
        return
    db.executemany(
        "DELETE FROM prop WHERE key = ? AND value = ? AND path = ?",
        ((name, value, path) for name, value in json.loads(row[1] or "[]")),
    )
    db.execute("DELETE FROM text WHERE id = ?", (row[0],))
    db.execute("DELETE FROM note WHERE id = ?", (row[0],))


def stale_paths(db: sqlite3.Connection, limit: int) -> list[str]:
    """The newest first: until all is filed, that is what people ask for."""
    rows = db.execute("SELECT path FROM note WHERE stale ORDER BY id DESC LIMIT ?", (limit,))
    return [path for (path,) in rows]


def count_stale(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM note WHERE stale").fetchone()[0])


def generation(db: sqlite3.Connection) -> str:
    return str(db.execute("SELECT generation FROM state").fetchone()[0])


def versions(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT versions FROM state").fetchone()[0])


# What is asked


def candidates(db: sqlite3.Connection, asked: Query, tier: int, before: int) -> Iterator[Row]:
    """Every note that matches by the tables or is stale, below the id `before`, newest first."""
    source, parameters = _source(db, asked, tier)
    condition, needles = _condition(asked, tier)
    filed = db.execute(
        f"SELECT {_ROW} FROM ({source} AND rowid < ? ORDER BY rowid DESC) AS found "
        "CROSS JOIN note ON note.id = found.rowid CROSS JOIN text ON text.id = found.rowid "
        f"WHERE NOT stale AND {condition}",
        (*parameters, before, *needles),
    )
    stale = db.execute(f"SELECT {_ROW} FROM note WHERE stale AND id < ? ORDER BY id DESC", (before,))
    return heapq.merge(map(Row._make, filed), map(Row._make, stale), key=lambda row: -row.id)


def _source(db: sqlite3.Connection, asked: Query, tier: int) -> tuple[str, tuple[str, ...]]:
    """SQL, and its parameters, for the ids of notes that may match, from the table that knows best."""
    texts = asked.words if tier == 2 else (asked.whole,)
    sources = [
        (f"SELECT rowid FROM {table} WHERE {table} MATCH ?", (expression,))
        for table, expression in (("mark", matching.marks(texts)), ("tri", matching.trigrams(texts)))
        if expression
    ]
    if not sources:
        return "SELECT id AS rowid FROM note WHERE TRUE", ()
    return min(sources, key=lambda source: _depth(db, *source)) if len(sources) > 1 else sources[0]


def _depth(db: sqlite3.Connection, source: str, parameters: tuple[str, ...]) -> int:
    """The id that so many candidates reach down to. The lower, the fewer candidates there are in all."""
    row = db.execute(f"{source} ORDER BY rowid DESC LIMIT 1 OFFSET {READ_TO_COUNT}", parameters).fetchone()
    return row[0] if row else 0


def _condition(asked: Query, tier: int) -> tuple[str, tuple[str, ...]]:
    if tier == 1:
        return "instr(folded, ?)", (asked.whole,)
    return " AND ".join(["NOT instr(folded, ?)", *["instr(folded, ?)"] * len(asked.words)]), (
        asked.whole,
        *asked.words,
    )


def count_matches(db: sqlite3.Connection, asked: Query) -> int:
    """Exact for few candidates, else the most there can be: counting very many would cost more than it tells."""
    source, parameters = _source(db, asked, 2)
    newest = f"{source} ORDER BY rowid DESC LIMIT ?"
    candidates, oldest = db.execute(f"SELECT count(*), min(rowid) FROM ({newest})", (*parameters, COUNTED)).fetchone()
    if candidates > READ_TO_COUNT:
        rest = oldest - 1 if candidates == COUNTED else 0
        total = int(db.execute("SELECT count(*) FROM note").fetchone()[0])
        return int(min(total, candidates + rest + count_stale(db)))
    condition = " AND ".join(["instr(folded, ?)"] * len(asked.words))
    matches = db.execute(
        f"SELECT count(*) FROM ({source}) AS found CROSS JOIN text ON text.id = found.rowid WHERE {condition}",
        (*parameters, *asked.words),
    )
    return int(matches.fetchone()[0]) + count_stale(db)


def paths_with(
    db: sqlite3.Connection, field: tuple[str, str] | None, low: str, high: str
) -> Iterator[tuple[str, bool]]:
    """In order of path: who has the field by the tables, and with True the stale notes, which may have it."""
    if field is None:
        every = db.execute("SELECT path FROM note WHERE path > ? AND path < ? ORDER BY path", (low, high))
        return ((path, False) for (path,) in every)
    filed = db.execute(
        "SELECT path, 0 FROM prop WHERE key = ? AND value = ? AND path > ? AND path < ? "
        "AND NOT EXISTS (SELECT 1 FROM note WHERE note.path = prop.path AND stale) ORDER BY path",
        (*field, low, high),
    )
    stale = db.execute("SELECT path, 1 FROM note WHERE stale AND path > ? AND path < ? ORDER BY path", (low, high))
    return ((path, bool(unsure)) for path, unsure in heapq.merge(filed, stale))


def count_paths(db: sqlite3.Connection, field: tuple[str, str] | None, low: str, high: str) -> int:
    if field is None:
        every = db.execute("SELECT count(*) FROM note WHERE path > ? AND path < ?", (low, high))
        return int(every.fetchone()[0])
    having = db.execute(
        "SELECT count(*) FROM prop WHERE key = ? AND value = ? AND path > ? AND path < ?", (*field, low, high)
    )
    return int(having.fetchone()[0]) + count_stale(db)
