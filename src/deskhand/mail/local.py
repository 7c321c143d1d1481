"""The local mailbox: SQLite with each mail's bytes verbatim, parsed once, and a word index.

A mail's number is its arrival in seconds followed by a counter, so that number order is date order: listing, label
and word searches all stream newest first and stop at the limit, however large the mailbox is.
"""

import asyncio
import json
import os
import re
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from deskhand.errors import FieldProblem, InvalidInput, NotFound, OutcomeUnknown, SendFailed, Unavailable, printable
from deskhand.mail import Arrived, FullMessage, MailSummary, NotSent, Outgoing, Sent, Unclear, mime, query
from deskhand.mail.mime import Parsed
from deskhand.mail.query import (
    AllOf,
    AnyOf,
    Anywhere,
    HasAttachment,
    HasLabel,
    HasMessageId,
    Not,
    Query,
    Since,
    Text,
    Until,
)

T = TypeVar("T")

BUSY_SECONDS = 30
BELL_SECONDS = 0.25
"""How often a process that waits for mail looks whether another one filed some."""
ARRIVALS = 500
COUNTER_BITS = 24
LONGEST_LABEL = 225
_LATEST = datetime(9999, 12, 31, tzinfo=UTC)
_CJK = re.compile("([\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff])")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS mail (
    id INTEGER PRIMARY KEY, thread INTEGER NOT NULL, arrived INTEGER NOT NULL, message_id TEXT NOT NULL,
    sender TEXT NOT NULL, recipients TEXT NOT NULL, subject TEXT NOT NULL, date_header TEXT NOT NULL,
    snippet TEXT NOT NULL, attachments INTEGER NOT NULL, digest BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS mail_thread ON mail (thread);
CREATE INDEX IF NOT EXISTS mail_message_id ON mail (message_id);
CREATE INDEX IF NOT EXISTS mail_digest ON mail (digest);
CREATE TABLE IF NOT EXISTS raw (id INTEGER PRIMARY KEY REFERENCES mail, bytes BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS label (folded TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS labelled (
    label TEXT NOT NULL, mail INTEGER NOT NULL REFERENCES mail, PRIMARY KEY (label, mail)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS labelled_mail ON labelled (mail);
CREATE TABLE IF NOT EXISTS mentioned (message_id TEXT PRIMARY KEY, thread INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sending (token TEXT PRIMARY KEY, digest BLOB NOT NULL, mail INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS arrivals (seq INTEGER PRIMARY KEY AUTOINCREMENT, mail INTEGER NOT NULL);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(
    sender, recipients, subject, body, files, content='', tokenize='unicode61 remove_diacritics 2');
"""
_COLUMNS = ", ".join(
    f"mail.{name}" for name in ("id", "thread", "sender", "recipients", "subject", "arrived", "date_header", "snippet")
)


@dataclass(frozen=True, slots=True)
class Incoming:
    """A mail from outside; `dated` is what is known of its arrival apart from its own headers."""

    raw: bytes
    seen: bool
    dated: datetime | None = None


class LocalMailbox:
    """Any number of processes may share the file."""

    def __init__(self, file: Path, address: str, now: Callable[[], datetime]) -> None:
        self._file = file
        self._address = mime.recipient(address)
        self._now = now
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="mailbox")
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
        with _translated(), self._transaction() as db:
            for statement in _SCHEMA.split(";\n"):
                db.execute(statement)

    async def address(self) -> str:
        return self._address

    async def search(self, query: str, limit: int) -> list[MailSummary]:
        return await self._in_thread(lambda: self._search(query, limit))

    async def get(self, message_id: str) -> FullMessage:
        return await self._in_thread(lambda: _get(self._db, message_id))

    async def thread(self, thread_id: str) -> list[MailSummary]:
        return await self._in_thread(lambda: _thread(self._db, thread_id))

    async def move(self, message_id: str, label: str) -> None:
        await self._write(lambda db: _label(db, message_id, label, leave_inbox=True))

    async def add_label(self, message_id: str, label: str) -> None:
        await self._write(lambda db: _label(db, message_id, label, leave_inbox=False))

    async def create_draft(self, raw: bytes, thread_id: str | None) -> str:
        parsed, now = mime.parse(raw), self._now()
        number = await self._write(lambda db: _file(db, raw, parsed, now, ["DRAFT"], _thread_number(db, thread_id)))
        return f"r{number:x}"

    async def prepare(self, mail: Outgoing) -> str:
        token = secrets.token_hex(16)

        def note(db: sqlite3.Connection) -> None:
            _thread_number(db, mail.thread_id)
            db.execute("INSERT INTO sending (token, digest) VALUES (?, ?)", (token, _digest(mail.raw)))

        await self._write(note)
        return token

    async def send(self, token: str, mail: Outgoing) -> Sent:
        """Filing the mail and using up the token are one transaction, so a second call changes nothing."""
        parsed, now = mime.parse(mail.raw), self._now()
        arrives = ["INBOX", "UNREAD"] if self._address.lower() in map(str.lower, mail.recipients) else []

        def work(db: sqlite3.Connection) -> Sent:
            if (known := _sending(db, token, mail)) is None:
                raise SendFailed("the mailbox does not know this mail", hint="Nothing was sent; ask again.")
            if isinstance(known, Sent):
                return known
            thread = _thread_number(db, mail.thread_id)
            number = _file(db, mail.raw, parsed, now, ["SENT", *arrives], thread)
            db.execute("UPDATE sending SET mail = ? WHERE token = ?", (number, token))
            return _sent(db, number)

        try:
            return await self._write(work)
        except Unavailable as error:
            raise OutcomeUnknown(f"the mailbox failed while sending: {error.message}", hint=error.hint) from error

    async def check(self, token: str, mail: Outgoing) -> Sent | NotSent | Unclear:
        found = await self._in_thread(lambda: _sending(self._db, token, mail))
        return found or Unclear("this mailbox never prepared that mail")

    async def receive(self, mails: Sequence[Incoming]) -> int:
        """File mails that came from outside; how many were new. One that is already there is left as it is."""
        now = self._now()

        def work() -> int:
            parsed = [(mail, mime.parse(mail.raw)) for mail in mails]
            with self._transaction() as db:
                return sum(_receive(db, mail, read, now) for mail, read in parsed)

        return await self._in_thread(work)

    async def position(self) -> str:
        return str(await self._in_thread(lambda: _last_arrival(self._db)))

    async def arrived(self, cursor: str) -> Arrived | None:
        if not cursor.isdecimal():
            return None
        sql = "SELECT seq, mail FROM arrivals WHERE seq > ? ORDER BY seq LIMIT ?"
        rows = await self._in_thread(lambda: self._db.execute(sql, (int(cursor), ARRIVALS)).fetchall())
        return Arrived(tuple(f"m{mail:x}" for _, mail in rows), str(rows[-1][0]) if rows else cursor)

    async def wait(self, cursor: str, seconds: float) -> None:
        """SQLite rings no bell between processes; looking at one number costs less than any that could be built."""
        for _ in range(max(1, round(seconds / BELL_SECONDS))):
            if await self.position() != cursor:
                return
            await asyncio.sleep(BELL_SECONDS)

    async def close(self) -> None:
        self._threads.shutdown()
        for connection in self._connections:
            connection.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def translated() -> T:
            with _translated():
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._threads, translated)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def whole() -> T:
            with self._transaction() as db:
                return work(db)

        return await self._in_thread(whole)

    def _search(self, text: str, limit: int) -> list[MailSummary]:
        if limit < 1:
            raise InvalidInput("A search has at least one result.", fields=[FieldProblem("limit", "is below 1")])
        sql, values = _statement(query.parse(text, self._now()))
        return _messages(self._db, f"{sql} LIMIT ?", *values, limit)

    @property
    def _db(self) -> sqlite3.Connection:
        """This thread's connection."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self._file, BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            self._local.connection = connection
            self._connections.append(connection)
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.rollback()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise Unavailable(
            "the local mailbox cannot be used",
            hint="is the disk full, or the file damaged or held by another program?",
            reason=getattr(error, "sqlite_errorname", None),
        ) from error


# Filing


def _file(
    db: sqlite3.Connection,
    raw: bytes,
    parsed: Parsed,
    arrived: datetime,
    labels: Sequence[str],
    thread: int | None,
) -> int:
    number = _next_number(db, arrived)
    thread = thread or _known_thread(db, parsed) or number
    stored = (
        parsed.message_id,
        parsed.sender,
        parsed.to,
        parsed.subject,
        parsed.date_header,
        parsed.snippet,
        len(parsed.attachments),
        _digest(raw),
    )
    milliseconds = int(arrived.timestamp() * 1000)
    db.execute("INSERT INTO mail VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (number, thread, milliseconds, *stored))
    db.execute("INSERT INTO raw VALUES (?, ?)", (number, raw))
    everybody = f"{parsed.to} {parsed.cc} {parsed.bcc}"
    files = " ".join(attachment.name for attachment in parsed.attachments)
    indexed = [_spaced(text) for text in (parsed.sender, everybody, parsed.subject, parsed.body, files)]
    db.execute(
        "INSERT INTO words (rowid, sender, recipients, subject, body, files) VALUES (?, ?, ?, ?, ?, ?)",
        (number, *indexed),
    )
    mentioned = {parsed.message_id, parsed.in_reply_to, *parsed.references} - {""}
    db.executemany("INSERT OR IGNORE INTO mentioned VALUES (?, ?)", [(each, thread) for each in mentioned])
    for label in labels:
        _put_label(db, number, label)
    if "INBOX" in labels:
        db.execute("INSERT INTO arrivals (mail) VALUES (?)", (number,))
    return number


def _next_number(db: sqlite3.Connection, arrived: datetime) -> int:
    first = _number_at(arrived)
    following = first + (1 << COUNTER_BITS)
    (last,) = db.execute("SELECT max(id) FROM mail WHERE id >= ? AND id < ?", (first, following)).fetchone()
    return first if last is None else int(last) + 1


def _number_at(moment: datetime) -> int:
    return max(int(min(moment, _LATEST).timestamp()), 0) << COUNTER_BITS


def _known_thread(db: sqlite3.Connection, parsed: Parsed) -> int | None:
    """The thread that this mail belongs to: its parent's before its older ancestors'."""
    for message_id in (parsed.in_reply_to, *reversed(parsed.references), parsed.message_id):
        row = db.execute("SELECT thread FROM mentioned WHERE message_id = ?", (message_id,)).fetchone()
        if message_id and row:
            return int(row[0])
    return None


def _receive(db: sqlite3.Connection, mail: Incoming, parsed: Parsed, now: datetime) -> int:
    if db.execute("SELECT 1 FROM mail WHERE digest = ?", (_digest(mail.raw),)).fetchone():
        return 0
    # A date in the future would stand above everything for years.
    arrived = min(parsed.received or mail.dated or parsed.date or now, now)
    _file(db, mail.raw, parsed, arrived, ["INBOX"] if mail.seen else ["INBOX", "UNREAD"], None)
    return 1


def _digest(raw: bytes) -> bytes:
    return sha256(raw).digest()


def _spaced(text: str) -> str:
    """Scripts without spaces are indexed character by character, so that any part of a sentence is found."""
    return text if text.isascii() else _CJK.sub(r" \1 ", text)


# Labels


def _label(db: sqlite3.Connection, message_id: str, label: str, *, leave_inbox: bool) -> None:
    number = _number(db, message_id)
    name = query.label_name(label.strip())
    problem = None
    if not name or len(name) > LONGEST_LABEL or not name.isprintable():
        problem = f"is not a label of 1 to {LONGEST_LABEL} printable characters"
    elif name in ("SENT", "DRAFT"):
        problem = "is given by sending and drafting only"
    if problem is not None:
        raise InvalidInput(f"The label {problem}.", fields=[FieldProblem("label", problem, printable(label))])
    if leave_inbox:
        db.execute("DELETE FROM labelled WHERE label = 'inbox' AND mail = ?", (number,))
    _put_label(db, number, name)


def _put_label(db: sqlite3.Connection, number: int, name: str) -> None:
    db.execute("INSERT OR IGNORE INTO label VALUES (?, ?)", (name.casefold(), name))
    db.execute("INSERT OR IGNORE INTO labelled VALUES (?, ?)", (name.casefold(), number))


# Reading


def _number(db: sqlite3.Connection, message_id: str) -> int:
    found = re.fullmatch(r"m([0-9a-f]{1,16})", message_id)
    number = int(found[1], 16) if found else 0
    if number >> 63 or not db.execute("SELECT 1 FROM mail WHERE id = ?", (number,)).fetchone():
        raise NotFound(f"there is no mail {printable(message_id)}")
    return number


def _thread_number(db: sqlite3.Connection, thread_id: str | None) -> int | None:
    if thread_id is None:
        return None
    found = re.fullmatch(r"t([0-9a-f]{1,16})", thread_id)
    number = int(found[1], 16) if found else 0
    if number >> 63 or not db.execute("SELECT 1 FROM mail WHERE thread = ?", (number,)).fetchone():
        raise NotFound(f"there is no thread {printable(thread_id)}")
    return number


def _get(db: sqlite3.Connection, message_id: str) -> FullMessage:
    number = _number(db, message_id)
    (summary,) = _messages(db, f"SELECT {_COLUMNS} FROM mail WHERE id = ?", number)
    (raw,) = db.execute("SELECT bytes FROM raw WHERE id = ?", (number,)).fetchone()
    return mime.parse(raw).full(summary)


def _thread(db: sqlite3.Connection, thread_id: str) -> list[MailSummary]:
    number = _thread_number(db, thread_id)
    return _messages(db, f"SELECT {_COLUMNS} FROM mail WHERE thread = ? ORDER BY id", number)


def _sending(db: sqlite3.Connection, token: str, mail: Outgoing) -> Sent | NotSent | None:
    row = db.execute("SELECT digest, mail FROM sending WHERE token = ?", (token,)).fetchone()
    if row is None or row[0] != _digest(mail.raw):
        return None
    return NotSent(token) if row[1] is None else _sent(db, row[1])


def _last_arrival(db: sqlite3.Connection) -> int:
    (last,) = db.execute("SELECT max(seq) FROM arrivals").fetchone()
    return last or 0


def _sent(db: sqlite3.Connection, number: int) -> Sent:
    (thread,) = db.execute("SELECT thread FROM mail WHERE id = ?", (number,)).fetchone()
    return Sent(f"m{number:x}", f"t{thread:x}")


def _messages(db: sqlite3.Connection, sql: str, *values: Any) -> list[MailSummary]:
    rows = db.execute(sql, values).fetchall()
    named = (
        "SELECT mail, name FROM labelled JOIN label ON folded = label "
        "WHERE mail IN (SELECT value FROM json_each(?)) ORDER BY name"
    )
    labels: dict[int, list[str]] = {}
    for mail, name in db.execute(named, (json.dumps([row[0] for row in rows]),)):
        labels.setdefault(mail, []).append(name)
    return [_message(row, tuple(labels.get(row[0], ()))) for row in rows]


def _message(row: tuple[Any, ...], labels: tuple[str, ...]) -> MailSummary:
    number, thread, sender, to, subject, arrived, date_header, snippet = row
    date = datetime.fromtimestamp(arrived / 1000, UTC)
    return MailSummary(f"m{number:x}", f"t{thread:x}", sender, to, subject, date, date_header, snippet, labels)


# Searching


def _statement(asked: Query) -> tuple[str, list[Any]]:
    """One SELECT that streams newest first, led by the words if there are any, else by a label."""
    parts = list(asked.parts) if isinstance(asked, AllOf) else [asked]
    texts = [part for part in parts if _expression(part) is not None]
    label = next((part for part in parts if isinstance(part, HasLabel)), None)
    values: list[Any]
    if texts:
        parts = [part for part in parts if part not in texts]
        source, number = "words CROSS JOIN mail ON mail.id = words.rowid", "words.rowid"
        conditions, values = ["words MATCH ?"], [_expression(AllOf(tuple(texts)))]
    elif label is not None:
        parts.remove(label)
        source, number = "labelled CROSS JOIN mail ON mail.id = labelled.mail", "labelled.mail"
        conditions, values = ["labelled.label = ?"], [label.label.casefold()]
    else:
        source, number, conditions, values = "mail", "mail.id", ["1"], []
    if query.leaves_trash_out(asked):
        parts += [Not(HasLabel("TRASH")), Not(HasLabel("SPAM"))]
    for part in parts:
        condition, more = _condition(part)
        conditions.append(condition)
        values += more
    where = " AND ".join(conditions)
    return f"SELECT {_COLUMNS} FROM {source} WHERE {where} ORDER BY {number} DESC", values


def _condition(part: Query) -> tuple[str, list[Any]]:  # noqa: C901, PLR0911 - one case a kind
    match part:
        case Text():
            expression = _expression(part)
            if expression is None:
                return "0", []
            return "mail.id IN (SELECT rowid FROM words WHERE words MATCH ?)", [expression]
        case HasLabel(label):
            exists = "EXISTS (SELECT 1 FROM labelled AS l WHERE l.label = ? AND l.mail = mail.id)"
            return exists, [label.casefold()]
        case HasAttachment():
            return "mail.attachments > 0", []
        case Since(moment):
            return "mail.id >= ?", [_number_at(moment)]
        case Until(moment):
            return "mail.id < ?", [_number_at(moment)]
        case HasMessageId(message_id):
            return "mail.message_id = ?", [f"<{message_id}>"]
        case Anywhere():
            return "1", []
        case Not(inner):
            condition, values = _condition(inner)
            return f"NOT ({condition})", values
        case AllOf(parts):
            return _joined(" AND ", "1", parts)
        case AnyOf(parts):
            return _joined(" OR ", "0", parts)


def _joined(operator: str, empty: str, parts: Sequence[Query]) -> tuple[str, list[Any]]:
    made = [_condition(part) for part in parts]
    sql = operator.join(f"({condition})" for condition, _ in made)
    return sql or empty, [value for _, values in made for value in values]


def _expression(part: Query) -> str | None:
    """What the word index is asked, where a part is about words alone."""
    match part:
        case Text(text, where) if re.search(r"[^\W_]", text):
            phrase = '"' + _spaced(text).replace("\0", " ").replace('"', '""') + '"'
            return phrase if where == "anywhere" else f"{where} : {phrase}"
        case AllOf(parts) | AnyOf(parts) if parts:
            made = [_expression(each) for each in parts]
            joined = (" AND " if isinstance(part, AllOf) else " OR ").join(each for each in made if each)
            return f"({joined})" if all(made) else None
        case _:
            return None
