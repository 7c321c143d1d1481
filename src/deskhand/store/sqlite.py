"""SQLite: one thread writes and commits in groups, a few read beside it.

Facts behind it: with plain BEGIN six writing processes fail with "locked", with BEGIN IMMEDIATE never;
synchronous=NORMAL loses acknowledged rows in a power cut, FULL does not; one fsync may serve many callers.
"""

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from deskhand.errors import Unavailable
from deskhand.folder_bell import FolderBell
from deskhand.locks import find_holder, wait_for_lock
from deskhand.store import P, Row, T, Transaction, Work, bind, schema
from deskhand.store.threads import Job, Threads, tell

_Write: TypeAlias = Job[[Transaction], T]

BUSY_SECONDS = 30
_WRITING = 120
"""The byte of the `-shm` file on which whoever writes holds a lock."""
_NOTE = 100
GROUP = 64
"""How many callers share one commit at most."""


class SqliteTransaction:
    dialect: Literal["sqlite", "postgresql"] = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.notes: dict[str, str] = {}

    def note_beside(self, name: str, text: str) -> None:
        self.notes[name] = text

    def execute(self, sql: str, *values: Any) -> int:
        return self._connection.execute(sql, values).rowcount

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.executemany(sql, rows)

    def one(self, sql: str, *values: Any) -> Row | None:
        row: Row | None = self._connection.execute(sql, values).fetchone()
        return row

    def all(self, sql: str, *values: Any) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()


class SqliteStore:
    def __init__(self, file: str) -> None:
        self._file = file
        Path(file).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        Path(file).touch(mode=0o600)
        with _translate_errors(file):
            migrate(file)
            writing = connect(file)
        self._jobs: queue.SimpleQueue[_Write[Any] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(
            target=self._write_until_closed,
            args=[writing],
            name="store-writer",
            daemon=True,
        )
        self._writer.start()
        self._local = threading.local()
        self._glancing: list[sqlite3.Connection] = []
        self._readers = Threads(2, "store-reader")

    def write_sync(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        ended: Future[None] = Future()
        job = self._submit(bind(work, *given, **named), ended)
        ended.result()
        return job.take_result()

    async def write(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job = self._submit(bind(work, *given, **named), ended)
        await ended
        return job.take_result()

    write_in_thread = write

    async def read(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        return await self._readers.do(partial(self._read, bind(work, *given, **named)))

    async def read_one(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        return await self._readers.do(partial(self._read_one, bind(work, *given, **named)))

    async def glance(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        # A turn through a thread costs ten times as much as finding a row.
        with suppress(sqlite3.DatabaseError):
            return work(SqliteTransaction(self._impatient()), *given, **named)
        return await self.read_one(work, *given, **named)

    def bell(self, channel: str, payload: str | None) -> FolderBell:
        del channel, payload  # the file does not say what was written to it
        name = Path(self._file).name
        return FolderBell(str(Path(self._file).parent), names=[name, f"{name}-wal"])

    def read_beside(self, name: str) -> str | None:
        with suppress(OSError, ValueError):
            return Path(f"{self._file}.{name}").read_text(encoding="ascii").strip()
        return None

    def close(self) -> None:
        self._jobs.put(None)
        self._writer.join()
        self._readers.close()
        while self._glancing:
            self._glancing.pop().close()

    def _submit(
        self,
        work: Callable[[Transaction], T],
        ended: Future[None] | asyncio.Future[None],
    ) -> _Write[T]:
        if not self._writer.is_alive():
            raise Unavailable("the database is closed")
        job = Job(partial(self._write, work), ended)
        self._jobs.put(job)
        return job

    def _write(self, work: Callable[[Transaction], T], tx: Transaction) -> T:
        with _translate_errors(self._file):
            return work(tx)

    def _read(self, work: Callable[[Transaction], T]) -> T:
        with _translate_errors(self._file):
            connection = self._reader()
            connection.execute("BEGIN")
            try:
                return work(SqliteTransaction(connection))
            finally:
                connection.rollback()

    def _read_one(self, work: Callable[[Transaction], T]) -> T:
        with _translate_errors(self._file):
            return work(SqliteTransaction(self._reader()))

    def _reader(self) -> sqlite3.Connection:
        if not hasattr(self._local, "connection"):
            self._local.connection = connect(self._file)
        connection: sqlite3.Connection = self._local.connection
        return connection

    def _impatient(self) -> sqlite3.Connection:
        """A connection of this thread's that waits for nobody."""
        if not hasattr(self._local, "impatient"):
            self._local.impatient = connect(self._file, patience=0)
            self._glancing.append(self._local.impatient)
        connection: sqlite3.Connection = self._local.impatient
        return connection

    def _write_until_closed(self, connection: sqlite3.Connection) -> None:
        beside = _Beside(self._file)
        while (job := self._jobs.get()) is not None:
            group = [job]
            closing = False
            while len(group) < GROUP and not self._jobs.empty():
                following = self._jobs.get()
                if following is None:
                    closing = True
                    break
                group.append(following)
            _commit(connection, group, self._file, beside)
            if closing:
                break
        connection.close()
        beside.close()


def migrate(file: str, target: str = schema.HEAD) -> None:
    """Bring a file to the newest schema, whole or not at all."""
    if not schema.is_behind(revision(file)):
        return
    # Of several processes that start at once one migrates; the others wait, and find it done.
    with Path(f"{file}.migrating").open("w") as lock:
        wait_for_lock(lock.fileno(), "the desk's database", BUSY_SECONDS)
        with closing(connect(file)) as connection:
            tx = SqliteTransaction(connection)
            connection.execute("BEGIN IMMEDIATE")
            if schema.is_behind(schema.current(tx)):
                schema.upgrade(tx, target)
            connection.execute("COMMIT")


def revision(file: str) -> str | None:
    """The revision of a file's schema; where there is no file, none is made."""
    if not Path(file).exists():
        return None
    with (
        _translate_errors(file),
        closing(sqlite3.connect(file, timeout=BUSY_SECONDS)) as connection,
    ):
        return schema.current(SqliteTransaction(connection))


def connect(file: str, patience: float = BUSY_SECONDS) -> sqlite3.Connection:
    connection = sqlite3.connect(
        file, timeout=patience, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA fullfsync=ON")  # macOS alone has it
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


class _Beside:
    """The notes in files beside the database. To open one for each commit takes longer than to write it."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._opened: dict[str, int] = {}

    def write(self, name: str, text: str) -> None:
        """Not synced: after a power cut it may be an older note, which is as true."""
        with suppress(OSError):
            os.pwrite(self._open(name), text.ljust(_NOTE).encode(), 0)

    def close(self) -> None:
        while self._opened:
            os.close(self._opened.popitem()[1])

    def _open(self, name: str) -> int:
        opened = self._opened.pop(name, None)
        if opened is not None and not os.fstat(opened).st_nlink:
            os.close(opened)  # somebody deleted it
            opened = None
        if opened is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            opened = os.open(f"{self._file}.{name}", flags, 0o600)
        self._opened[name] = opened
        return opened


def _commit(
    connection: sqlite3.Connection, group: list[_Write[Any]], file: str, beside: _Beside
) -> None:
    """Do each job in a savepoint of its own and all in one commit; nobody is answered before the commit."""
    notes: dict[str, str] = {}
    try:
        with _translate_errors(file):
            connection.execute("BEGIN IMMEDIATE")
            for job in group:
                if not job.ended.cancelled():
                    notes |= _attempt(connection, job)
            connection.execute("COMMIT")
    except (Unavailable, sqlite3.Error) as error:
        # Whatever the commit said, the writer lives on and everybody in the group is told.
        if connection.in_transaction:
            connection.rollback()
        for job in group:
            job.error = job.error or error
    else:
        for name, text in notes.items():
            beside.write(name, text)
    tell(group)


def _attempt(connection: sqlite3.Connection, job: _Write[Any]) -> dict[str, str]:
    """Do one job; returns what it noted."""
    connection.execute("SAVEPOINT job")
    tx = SqliteTransaction(connection)
    job.do(tx)
    if job.error is not None:
        # Fails if the trouble ended the whole transaction (a full disk does); then the group has failed together.
        connection.execute("ROLLBACK TO job")
        tx.notes.clear()
    connection.execute("RELEASE job")
    return tx.notes


@contextmanager
def _translate_errors(file: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        # What else is of this kind would be a mistake in our SQL.
        if (
            not isinstance(error, sqlite3.OperationalError)
            and type(error) is not sqlite3.DatabaseError
        ):
            raise
        raise _translated(error, file) from error


def _translated(error: sqlite3.DatabaseError, file: str) -> Unavailable:
    match getattr(error, "sqlite_errorname", None):
        case "SQLITE_BUSY" as name:
            says = f"the desk's database is held by {find_holder(f'{file}-shm', 'POSIX', _WRITING)}"
            return Unavailable(says, hint="let that process go on, or end it", reason=name)
        case (
            "SQLITE_NOTADB"
            | "SQLITE_CORRUPT"
            | "SQLITE_CORRUPT_INDEX"
            | "SQLITE_CORRUPT_VTAB" as name
        ):
            hint = (
                "`deskhand doctor` says more; `deskhand restore FILE` brings a backup back"
            )
            return Unavailable("the desk's database is damaged", hint=hint, reason=name)
        case name:
            hint = "is the disk full, or the file held by another program? `deskhand doctor` says more"
            return Unavailable("the desk's database cannot be used", hint=hint, reason=name)
