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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from deskhand import clock
from deskhand.errors import (
    FieldProblem,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    ProviderDown,
    SendFailed,
    printable,
)
from deskhand.mail import (
    Arrived,
    FullMessage,
    Keep,
    MailSummary,
    NotSent,
    Outgoing,
    SavedDraft,
    Sent,
    Unclear,
    local_query,
    mime,
    query,
)
from deskhand.mail.addresses import addresses_in, recipient
from deskhand.mail.changes import Deed
from deskhand.mail.mime import Parsed

P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[Concatenate[Connection, P], T]

BUSY_SECONDS = 30
BELL_SECONDS = 0.25
"""How often a process that waits for mail looks whether another one filed some."""
ARRIVALS = 500
"""How many new mails are told at a time."""
LONGEST_LABEL = 225
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
_COLUMNS = (
    "mail.id, mail.thread, mail.sender, mail.recipients, "
    "mail.subject, mail.arrived, mail.date_header, mail.snippet"
)
_ID = re.compile(r"([mt])([0-9a-f]{1,15}|[0-7][0-9a-f]{15})")


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
        self._address = recipient(address)
        self._now = now
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="mailbox")
        self._local = threading.local()
        self._connections: list[Connection] = []
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
        with _translate_errors(), _transaction(self._db):
            for statement in _SCHEMA.split(";\n"):
                self._db.execute(statement)

    async def address(self) -> str:
        return self._address

    async def search(self, query: str, limit: int) -> list[MailSummary]:
        return await self._read(_search, query, limit, self._now(), self._address)

    async def get(self, message_id: str) -> FullMessage:
        return await self._read(_get, message_id)

    async def read_raw(self, message_id: str) -> bytes:
        return await self._read(_read_raw, message_id)

    async def thread(self, thread_id: str) -> list[MailSummary]:
        return await self._read(_thread, thread_id)

    async def move(self, message_id: str, label: str) -> None:
        await self._write(_label, message_id, label, leave_inbox=True)

    async def add_label(self, message_id: str, label: str) -> None:
        await self._write(_label, message_id, label, leave_inbox=False)

    async def list_mails(self, ids: Sequence[str]) -> list[MailSummary]:
        return await self._read(_list_mails, ids)

    async def change(self, ids: Sequence[str], change: Deed) -> int:
        return await self._write(_change, ids, change)

    async def create_draft(self, raw: bytes, thread_id: str | None) -> SavedDraft:
        parsed = await asyncio.to_thread(mime.parse, raw)
        return await self._write(_draft, raw, parsed, self._now(), thread_id)

    async def prepare(self, mail: Outgoing) -> str:
        token = secrets.token_hex(16)
        await self._write(_prepare, token, mail)
        return token

    async def send(self, token: str, mail: Outgoing, keep: Keep) -> Sent:
        """Filing the mail and using up the token are one transaction, so a second call changes nothing."""
        labels = ["SENT"]
        if self._address.lower() in map(str.lower, mail.recipients):
            labels += ["INBOX", "UNREAD"]
        parsed = await asyncio.to_thread(mime.parse, mail.raw)
        await keep(token)
        try:
            return await self._write(_send, token, mail, parsed, self._now(), labels)
        except ProviderDown as error:
            raise OutcomeUnknown(
                f"the mailbox failed while sending: {error.message}", hint=error.hint
            ) from error

    async def check(self, token: str, mail: Outgoing) -> Sent | NotSent | Unclear:
        fate = await self._read(_fate, token, mail)
        return fate or Unclear("this mailbox never prepared that mail")

    async def receive(self, mails: Sequence[Incoming]) -> int:
        """File mails from elsewhere; how many were new. One that is already there is left as it is."""
        return await self._read(_receive, mails, self._now(), self._address)

    async def position(self) -> str:
        return str(await self._read(_last_arrival))

    async def find_arrived(self, cursor: str) -> Arrived | None:
        if not cursor.isdecimal():
            return None
        return await self._read(_arrivals_after, int(cursor))

    async def wait(self, cursor: str, seconds: float) -> None:
        """SQLite rings no bell between processes; looking at one number costs less than
        any that could be built."""
        for _ in range(max(1, round(seconds / BELL_SECONDS))):
            if await self.position() != cursor:
                return
            await asyncio.sleep(BELL_SECONDS)

    async def close(self) -> None:
        self._threads.shutdown()
        for connection in self._connections:
            connection.close()

    async def _read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def run() -> T:
            with _translate_errors():
                return work(self._db, *args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)

    async def _write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def run(db: Connection) -> T:
            with _transaction(db):
                return work(db, *args, **kwargs)

        return await self._read(run)

    @property
    def _db(self) -> Connection:
        """This thread's connection."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                self._file, BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA fullfsync=ON")  # macOS alone has it
            self._local.connection = connection
            self._connections.append(connection)
        return connection


@contextmanager
def _transaction(db: Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.rollback()


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise ProviderDown(
            "the local mailbox cannot be used",
            hint="is the disk full, or the file damaged or held by another program?",
            cause=getattr(error, "sqlite_errorname", None),
        ) from error


# Filing


def _file(
    db: Connection,
    raw: bytes,
    parsed: Parsed,
    arrived: datetime,
    labels: Sequence[str],
    thread_id: str | None = None,
) -> int:
    number = _next_number(db, arrived)
    thread = _given_thread(db, thread_id) or _known_thread(db, parsed) or number
    where = (number, thread, clock.to_ms(arrived), parsed.message_id)
    shown = (parsed.sender, parsed.to, parsed.subject, parsed.date_header, parsed.snippet)
    row = (*where, *shown, len(parsed.attachments), _digest(raw))
    db.execute("INSERT INTO mail VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    db.execute("INSERT INTO raw VALUES (?, ?)", (number, raw))
    everybody = f"{parsed.to} {parsed.cc} {parsed.bcc}"
    files = " ".join(attachment.name for attachment in parsed.attachments)
    words = map(
        local_query.space_out,
        (parsed.sender, everybody, parsed.subject, parsed.body, files),
    )
    columns = "rowid, sender, recipients, subject, body, files"
    db.execute(f"INSERT INTO words ({columns}) VALUES (?, ?, ?, ?, ?, ?)", (number, *words))
    mentioned = {parsed.message_id, parsed.in_reply_to, *parsed.references} - {""}
    db.executemany(
        "INSERT OR IGNORE INTO mentioned VALUES (?, ?)",
        [(each, thread) for each in mentioned],
    )
    for label in labels:
        _put_label(db, number, label)
    if "INBOX" in labels:
        db.execute("INSERT INTO arrivals (mail) VALUES (?)", (number,))
    return number


def _next_number(db: Connection, arrived: datetime) -> int:
    first = local_query.number_at(arrived)
    following = first + (1 << local_query.COUNTER_BITS)
    (last,) = db.execute(
        "SELECT max(id) FROM mail WHERE id >= ? AND id < ?", (first, following)
    ).fetchone()
    return first if last is None else int(last) + 1


def _known_thread(db: Connection, parsed: Parsed) -> int | None:
    """The thread that this mail belongs to: its parent's before its older ancestors'."""
    for message_id in filter(
        None, (parsed.in_reply_to, *reversed(parsed.references), parsed.message_id)
    ):
        row = db.execute(
            "SELECT thread FROM mentioned WHERE message_id = ?", (message_id,)
        ).fetchone()
        if row:
            return int(row[0])
    return None


def _receive(db: Connection, mails: Sequence[Incoming], now: datetime, address: str) -> int:
    """Parsing takes longest, so it is done before the transaction begins."""
    parsed = [mime.parse(mail.raw) for mail in mails]
    new = 0
    with _transaction(db):
        for mail, read in zip(mails, parsed, strict=True):
            if db.execute(
                "SELECT 1 FROM mail WHERE digest = ?", (_digest(mail.raw),)
            ).fetchone():
                continue
            labels = ["INBOX"] if mail.seen else ["INBOX", "UNREAD"]
            if _was_sent_from(address, read):
                to_self = address.lower() in map(str.lower, addresses_in(read.to))
                labels = ["SENT", *labels] if to_self else ["SENT"]
            # A date in the future would stand above everything for years.
            arrived = min(read.received or mail.dated or read.date or now, now)
            _file(db, mail.raw, read, arrived, labels)
            new += 1
    return new


def _was_sent_from(address: str, mail: Parsed) -> bool:
    """Whether it is a copy of a mail that the mailbox's owner sent."""
    authors = [author.lower() for author in addresses_in(mail.sender)]
    return authors == [address.lower()] and not mail.travelled


def _digest(raw: bytes) -> bytes:
    return sha256(raw).digest()


# Drafting and sending


def _draft(
    db: Connection, raw: bytes, parsed: Parsed, now: datetime, thread_id: str | None
) -> SavedDraft:
    number = _file(db, raw, parsed, now, ["DRAFT"], thread_id)
    filed = _as_sent(db, number)
    return SavedDraft(f"r{number:x}", filed.message_id, filed.thread_id)


def _prepare(db: Connection, token: str, mail: Outgoing) -> None:
    _given_thread(db, mail.thread_id)
    db.execute(
        "INSERT INTO sending (token, digest) VALUES (?, ?)", (token, _digest(mail.raw))
    )


def _send(
    db: Connection,
    token: str,
    mail: Outgoing,
    parsed: Parsed,
    now: datetime,
    labels: Sequence[str],
) -> Sent:
    match _fate(db, token, mail):
        case None:
            raise SendFailed(
                "the mailbox does not know this mail", hint="Nothing was sent; ask again."
            )
        case Sent() as sent:
            return sent
        case NotSent():
            number = _file(db, mail.raw, parsed, now, labels, mail.thread_id)
            db.execute("UPDATE sending SET mail = ? WHERE token = ?", (number, token))
            return _as_sent(db, number)


def _fate(db: Connection, token: str, mail: Outgoing) -> Sent | NotSent | None:
    """What became of a mail; None where this token was never given out for it."""
    row = db.execute(
        "SELECT digest, mail FROM sending WHERE token = ?", (token,)
    ).fetchone()
    if row is None or row[0] != _digest(mail.raw):
        return None
    if row[1] is None:
        return NotSent(token)
    return _as_sent(db, row[1])


def _as_sent(db: Connection, number: int) -> Sent:
    (thread,) = db.execute("SELECT thread FROM mail WHERE id = ?", (number,)).fetchone()
    return Sent(f"m{number:x}", f"t{thread:x}")


# Labels


def _label(db: Connection, message_id: str, label: str, *, leave_inbox: bool) -> None:
    number = _number(db, "mail", message_id)
    name = _read_label(label)
    if leave_inbox:
        db.execute("DELETE FROM labelled WHERE label = 'inbox' AND mail = ?", (number,))
    _put_label(db, number, name)


def _read_label(label: str) -> str:
    name = query.label_name(label.strip())
    if not name or len(name) > LONGEST_LABEL or not name.isprintable():
        raise _bad_label(
            label, f"is not a label of 1 to {LONGEST_LABEL} printable characters"
        )
    if name in ("SENT", "DRAFT"):
        raise _bad_label(label, "is given by sending and drafting only")
    return name


def _change(db: Connection, ids: Sequence[str], change: Deed) -> int:
    if change.label:
        _read_label(change.label)
    done = 0
    for each in dict.fromkeys(ids):
        with suppress(NotFound):
            (mail,) = _list_mails(db, [each])
            gets, loses = change.labels_for(mail.labels)
            number = _number(db, "mail", each)
            for name in loses:
                db.execute(
                    "DELETE FROM labelled WHERE label = ? AND mail = ?",
                    (name.casefold(), number),
                )
            for name in gets:
                _put_label(db, number, name)
            done += bool(gets or loses)
    return done


def _list_mails(db: Connection, ids: Sequence[str]) -> list[MailSummary]:
    numbers = [_number(db, "mail", each) for each in ids]
    sql = f"SELECT {_COLUMNS} FROM mail WHERE id IN (SELECT value FROM json_each(?))"
    found = {mail.id: mail for mail in _summaries(db, sql, json.dumps(numbers))}
    return [found[f"m{number:x}"] for number in numbers]


def _bad_label(label: str, problem: str) -> InvalidInput:
    return InvalidInput(
        f"The label {problem}.", fields=[FieldProblem("label", problem, printable(label))]
    )


def _put_label(db: Connection, number: int, name: str) -> None:
    db.execute("INSERT OR IGNORE INTO label VALUES (?, ?)", (name.casefold(), name))
    db.execute("INSERT OR IGNORE INTO labelled VALUES (?, ?)", (name.casefold(), number))


# Reading


def _number(db: Connection, kind: Literal["mail", "thread"], name: str) -> int:
    """The number that an id stands for; NotFound where nothing has it."""
    column = {"mail": "id", "thread": "thread"}[kind]
    found = _ID.fullmatch(name)
    if found and found[1] == kind[0]:
        number = int(found[2], 16)
        if db.execute(f"SELECT 1 FROM mail WHERE {column} = ?", (number,)).fetchone():
            return number
    raise NotFound(f"there is no {kind} {printable(name)}")


def _given_thread(db: Connection, thread_id: str | None) -> int | None:
    if thread_id is None:
        return None
    return _number(db, "thread", thread_id)


def _search(
    db: Connection, text: str, limit: int, now: datetime, address: str
) -> list[MailSummary]:
    if limit < 1:
        raise InvalidInput(
            "A search has at least one result.",
            fields=[FieldProblem("limit", "is below 1")],
        )
    sql, values = local_query.select(_COLUMNS, query.parse(text, now, lambda: [address]))
    return _summaries(db, f"{sql} LIMIT ?", *values, limit)


def _get(db: Connection, message_id: str) -> FullMessage:
    number = _number(db, "mail", message_id)
    (summary,) = _summaries(db, f"SELECT {_COLUMNS} FROM mail WHERE id = ?", number)
    return mime.parse(_read_raw(db, message_id)).full(summary)


def _read_raw(db: Connection, message_id: str) -> bytes:
    number = _number(db, "mail", message_id)
    (raw,) = db.execute("SELECT bytes FROM raw WHERE id = ?", (number,)).fetchone()
    return bytes(raw)


def _thread(db: Connection, thread_id: str) -> list[MailSummary]:
    number = _number(db, "thread", thread_id)
    return _summaries(
        db, f"SELECT {_COLUMNS} FROM mail WHERE thread = ? ORDER BY id", number
    )


def _last_arrival(db: Connection) -> int:
    (last,) = db.execute("SELECT max(seq) FROM arrivals").fetchone()
    return last or 0


def _arrivals_after(db: Connection, last: int) -> Arrived:
    sql = "SELECT seq, mail FROM arrivals WHERE seq > ? ORDER BY seq LIMIT ?"
    rows = [(last, None), *db.execute(sql, (last, ARRIVALS))]
    return Arrived(tuple(f"m{mail:x}" for _, mail in rows[1:]), str(rows[-1][0]))


def _summaries(db: Connection, sql: str, *values: Any) -> list[MailSummary]:
    rows = db.execute(sql, values).fetchall()
    named = (
        "SELECT mail, name FROM labelled JOIN label ON folded = label "
        "WHERE mail IN (SELECT value FROM json_each(?)) ORDER BY name"
    )
    labels: dict[int, list[str]] = {}
    for mail, name in db.execute(named, (json.dumps([row[0] for row in rows]),)):
        labels.setdefault(mail, []).append(name)
    summaries: list[MailSummary] = []
    for number, thread, sender, to, subject, arrived, date_header, snippet in rows:
        summaries.append(
            MailSummary(
                f"m{number:x}",
                f"t{thread:x}",
                sender,
                to,
                subject,
                clock.from_ms(arrived),
                date_header,
                snippet,
                tuple(labels.get(number, ())),
            )
        )
    return summaries
