"""PostgreSQL: work runs on the event loop itself, which goes on with others while the database answers.

Work is a plain function of its transaction; greenlet_bridge lets it wait for the database without blocking the loop.
With a thread for each transaction a list of tasks took a fifth longer.
"""

import asyncio
import select
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from typing import Any, Literal, Self

import psycopg
import psycopg.conninfo
import psycopg.sql
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from deskhand.errors import BadConfig, Unavailable
from deskhand.store import P, Row, T, Transaction, Work, bind, schema
from deskhand.store.greenlet_bridge import drive, finish, wait_for

Connection = psycopg.Connection[Row]
AsyncConnection = psycopg.AsyncConnection[Row]

CONNECTIONS = 8
WAIT_SECONDS = 5
RECONNECT_SECONDS = 5
"""After each failure the pool waits twice as long. It starts over after this time, to be back soon after PostgreSQL."""
MIGRATING = 0x6465736B
"""The advisory lock of who migrates; the number spells "desk"."""
_BEGIN = "BEGIN"
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresTransaction:
    """Over a connection of either kind; `resolve` turns what its methods return into their result."""

    dialect: Literal["sqlite", "postgresql"] = "postgresql"

    def __init__(
        self, connection: Connection | AsyncConnection, resolve: Callable[[Any], Any]
    ) -> None:
        self._connection = connection
        self._resolve = resolve

    def execute(self, sql: str, *values: Any) -> int:
        count: int = self._cursor(sql, values).rowcount
        return count

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._resolve(self._connection.cursor().executemany(_pyformat(sql), rows))

    def one(self, sql: str, *values: Any) -> Row | None:
        row: Row | None = self._resolve(self._cursor(sql, values).fetchone())
        return row

    def all(self, sql: str, *values: Any) -> list[Row]:
        rows: list[Row] = self._resolve(self._cursor(sql, values).fetchall())
        return rows

    def note_beside(self, name: str, text: str) -> None:
        """There is no place beside a server's database that would be ours."""

    def _cursor(self, sql: str, values: Sequence[Any]) -> Any:
        return self._resolve(self._connection.execute(_pyformat(sql), values))


class PostgresBell:
    """Hears NOTIFY by a connection of its own."""

    def __init__(self, url: str, channel: str, payload: str | None) -> None:
        self._payload = payload
        with _translate_errors():
            self._connection = psycopg.connect(url, autocommit=True)
            self._connection.execute(
                psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel))
            )

    def wait(self, seconds: float) -> bool:
        with _translate_errors():
            heard = list(self._connection.notifies(timeout=max(seconds, 0), stop_after=1))
        return any(self._payload in (None, notify.payload) for notify in heard)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


class PostgresStore:
    def __init__(self, url: str) -> None:
        self._url = _with_timeout(url)
        with _translate_errors():
            migrate(self._url)
        self._pool = ConnectionPool(
            self._url,
            min_size=0,
            max_size=CONNECTIONS,
            timeout=WAIT_SECONDS,
            reconnect_timeout=RECONNECT_SECONDS,
            check=_check,
            open=True,
        )
        self._idle: list[AsyncConnection] = []
        self._limits: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
        self._closed = False

    def write_sync(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        with _translate_errors(), self._pool.connection() as connection:
            return work(PostgresTransaction(connection, _same), *given, **named)

    async def write(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        return await finish(self._run(_BEGIN, bind(work, *given, **named)))

    async def write_in_thread(
        self, work: Work[P, T], *given: P.args, **named: P.kwargs
    ) -> T:
        return await asyncio.to_thread(self.write_sync, bind(work, *given, **named))

    async def read(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        return await self._run(_BEGIN_READING, bind(work, *given, **named))

    async def read_one(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        async with self._borrow() as connection:
            return await drive(
                bind(work, *given, **named), PostgresTransaction(connection, wait_for)
            )

    glance = read_one

    def bell(self, channel: str, payload: str | None) -> PostgresBell:
        return PostgresBell(self._url, channel, payload)

    def read_beside(self, name: str) -> str | None:
        del name
        return None

    def close(self) -> None:
        self._closed = True
        for connection in self._idle:
            connection.pgconn.finish()
        self._idle.clear()
        self._pool.close()

    async def _run(self, begin: str, work: Callable[[Transaction], T]) -> T:
        async with self._borrow() as connection:
            await connection.execute(begin)
            try:
                done = await drive(work, PostgresTransaction(connection, wait_for))
            except Exception:
                await connection.rollback()
                raise
            await connection.commit()
            return done

    @asynccontextmanager
    async def _borrow(self) -> AsyncIterator[AsyncConnection]:
        """A connection outside any transaction; each loop has a limited number of them at once."""
        if self._closed:
            raise Unavailable("the database is closed")
        with _translate_errors():
            async with self._limit_here():
                connection = await self._connect()
                try:
                    yield connection
                finally:
                    # One that is left inside a transaction is closed, and the server rolls that back.
                    idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
                    if idle and not self._closed and len(self._idle) < CONNECTIONS:
                        self._idle.append(connection)
                    else:
                        connection.pgconn.finish()

    def _limit_here(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if loop not in self._limits:
            for ended in [each for each in self._limits if each.is_closed()]:
                self._limits.pop(ended, None)
            self._limits[loop] = asyncio.Semaphore(CONNECTIONS)
        return self._limits[loop]

    async def _connect(self) -> AsyncConnection:
        with suppress(
            IndexError
        ):  # the list is empty; another thread's loop may take from it too
            while _is_ended(connection := self._idle.pop()):
                connection.pgconn.finish()
            return connection
        return await psycopg.AsyncConnection.connect(self._url, autocommit=True)


def _same(answer: Any) -> Any:
    return answer


def migrate(url: str, target: str = schema.HEAD) -> None:
    """Bring a database to the newest schema, whole or not at all."""
    if not schema.is_behind(revision(url)):
        return
    with psycopg.connect(url) as connection:
        tx = PostgresTransaction(connection, _same)
        # Of several processes that start at once one migrates; the others wait, and find it done.
        tx.one("SELECT pg_advisory_xact_lock(?)", MIGRATING)
        if schema.is_behind(schema.current(tx)):
            schema.upgrade(tx, target)


def revision(url: str) -> str | None:
    """The revision of a database's schema; nothing is made or changed."""
    with _translate_errors(), psycopg.connect(url, autocommit=True) as connection:
        _demand_utf8(connection.info.parameter_status("server_encoding"))
        return schema.current(PostgresTransaction(connection, _same))


def _demand_utf8(encoding: str | None) -> None:
    """Refuse any other encoding: none holds every text, and SQL_ASCII, common without a
    locale, answers in bytes."""
    if encoding != "UTF8":
        raise BadConfig(
            f"the desk's database has the encoding {encoding}, which cannot hold every text",
            hint="`createdb --template=template0 --encoding=UTF8 NAME` makes one for DESKHAND_DATABASE_URL",
        )


def _with_timeout(url: str) -> str:
    """The URL with a limit of the time to connect, unless it names one."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    return psycopg.conninfo.make_conninfo(
        url, connect_timeout=given.get("connect_timeout", WAIT_SECONDS)
    )


def _check(connection: Connection) -> None:
    if _is_ended(connection):
        ConnectionPool.check_connection(connection)


def _is_ended(connection: Connection | AsyncConnection) -> bool:
    """Whether the server has closed an idle connection: only then is there something to
    read. Asking it costs more."""
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return bool(waiting.poll(0))


@lru_cache(512)
def _pyformat(sql: str) -> str:
    # Our SQL holds neither a question mark nor a per cent sign of its own.
    return sql.replace("?", "%s")


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except (psycopg.OperationalError, PoolTimeout) as error:
        raise Unavailable(
            "the desk's database does not answer",
            hint="is PostgreSQL running, and is DESKHAND_DATABASE_URL right?",
            reason=type(error).__name__,
        ) from error
