"""PostgreSQL: work runs on the event loop itself, which goes on with others while the database answers.

Work is a plain function of its transaction. It runs in a greenlet: where it asks the database it hands the loop
something to await, and goes on with the answer. With a thread for each transaction a list of tasks took a fifth longer.
"""

import asyncio
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from typing import Any, Literal, Self, TypeVar

import psycopg
import psycopg.conninfo
import psycopg.sql
from greenlet import getcurrent, greenlet
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from deskhand.errors import BadConfig, Unavailable
from deskhand.store import Row, Transaction, schema

T = TypeVar("T")
Connection = psycopg.Connection[Row]
AsyncConnection = psycopg.AsyncConnection[Row]

CONNECTIONS = 8
WAIT_SECONDS = 5
RECONNECT_SECONDS = 5
"""The pool waits twice as long after each failure; begun anew so often, it is back soon after PostgreSQL is."""
_MIGRATING = 0x6465736B
"""The advisory lock of who migrates; the number spells "desk"."""
_BEGIN = "BEGIN"
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresTransaction:
    """Over a connection of either kind: `settled` turns what its methods return into what they mean."""

    dialect: Literal["sqlite", "postgresql"] = "postgresql"

    def __init__(self, connection: Connection | AsyncConnection, settled: Callable[[Any], Any]) -> None:
        self._connection = connection
        self._settled = settled

    def execute(self, sql: str, *values: Any) -> int:
        count: int = self._cursor(sql, values).rowcount
        return count

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._settled(self._connection.cursor().executemany(_pyformat(sql), rows))

    def one(self, sql: str, *values: Any) -> Row | None:
        row: Row | None = self._settled(self._cursor(sql, values).fetchone())
        return row

    def all(self, sql: str, *values: Any) -> list[Row]:
        rows: list[Row] = self._settled(self._cursor(sql, values).fetchall())
        return rows

    def _cursor(self, sql: str, values: Sequence[Any]) -> Any:
        return self._settled(self._connection.execute(_pyformat(sql), values))


class PostgresBell:
    """LISTEN on a connection of its own."""

    def __init__(self, url: str, channel: str, payload: str | None) -> None:
        self._payload = payload
        with _translated():
            self._connection = psycopg.connect(url, autocommit=True)
            self._connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))

    def wait(self, seconds: float) -> bool:
        with _translated():
            heard = list(self._connection.notifies(timeout=max(seconds, 0), stop_after=1))
        return any(self._payload in (None, notify.payload) for notify in heard)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


class PostgresStore:
    def __init__(self, url: str) -> None:
        self._url = _patient(url)
        with _translated():
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
        self._places: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
        self._closed = False

    def write_sync(self, work: Callable[[Transaction], T]) -> T:
        with _translated(), self._pool.connection() as connection:
            return work(PostgresTransaction(connection, _as_it_is))

    async def write(self, work: Callable[[Transaction], T]) -> T:
        # What was handed in is finished, also where nobody waits for it any longer: a commit is never cut off.
        return await asyncio.shield(_Finishing(self._transacted(_BEGIN, work)))

    async def write_in_thread(self, work: Callable[[Transaction], T]) -> T:
        return await asyncio.to_thread(self.write_sync, work)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._transacted(_BEGIN_READING, work)

    async def read_one(self, work: Callable[[Transaction], T]) -> T:
        async with self._lent() as connection:
            return await _driven(work, connection)

    def bell(self, channel: str, payload: str | None) -> PostgresBell:
        return PostgresBell(self._url, channel, payload)

    def close(self) -> None:
        self._closed = True
        for connection in self._idle:
            connection.pgconn.finish()
        self._idle.clear()
        self._pool.close()

    async def _transacted(self, begin: str, work: Callable[[Transaction], T]) -> T:
        async with self._lent() as connection:
            await connection.execute(begin)
            try:
                done = await _driven(work, connection)
            except Exception:
                await connection.rollback()
                raise
            await connection.commit()
            return done

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[AsyncConnection]:
        """A connection outside any transaction, for each loop one of so many."""
        if self._closed:
            raise Unavailable("the database is closed")
        with _translated():
            async with self._places_here():
                connection = await self._connection()
                try:
                    yield connection
                finally:
                    # One left in the middle of something is of no use; without it the server forgets what was begun.
                    idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
                    if idle and not self._closed and len(self._idle) < CONNECTIONS:
                        self._idle.append(connection)
                    else:
                        connection.pgconn.finish()

    def _places_here(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if (places := self._places.get(loop)) is None:
            for ended in [each for each in self._places if each.is_closed()]:
                self._places.pop(ended, None)
            places = self._places[loop] = asyncio.Semaphore(CONNECTIONS)
        return places

    async def _connection(self) -> AsyncConnection:
        with suppress(IndexError):  # however many are left when another thread's loop takes some too
            while _spoke(connection := self._idle.pop()):
                connection.pgconn.finish()
            return connection
        return await psycopg.AsyncConnection.connect(self._url, autocommit=True)


class _Finishing(asyncio.Task[T]):
    """Not cancelled by the end of its loop either: `asyncio.run` cancels every task that is left, and waits for it."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        super().__init__(work)
        # What it raises is nobody's where its caller has gone; unseen, asyncio would call it an error.
        self.add_done_callback(lambda task: task.cancelled() or task.exception())

    def cancel(self, msg: Any = None) -> bool:
        del msg
        return False


async def _driven(work: Callable[[Transaction], T], connection: AsyncConnection) -> T:
    """Run `work` here, awaiting for it what it asks of the connection."""
    worker = greenlet(work)
    asked = worker.switch(PostgresTransaction(connection, _awaited))
    while not worker.dead:
        try:
            answer = await asked
        except BaseException as error:  # noqa: BLE001 - it belongs to the work, which lets it through
            asked = worker.throw(error)
        else:
            asked = worker.switch(answer)
    done: T = asked
    return done


def _awaited(question: Awaitable[Any]) -> Any:
    driver = getcurrent().parent
    assert driver is not None  # noqa: S101 - `_driven` started this greenlet
    return driver.switch(question)


def _as_it_is(answer: Any) -> Any:
    return answer


def migrate(url: str, target: str = schema.HEAD) -> None:
    """Bring a database to the newest schema, whole or not at all."""
    if not schema.is_behind(revision(url)):
        return
    with psycopg.connect(url) as connection:
        tx = PostgresTransaction(connection, _as_it_is)
        # Of several processes that start at once one migrates; the others wait, and find it done.
        tx.one("SELECT pg_advisory_xact_lock(?)", _MIGRATING)
        if schema.is_behind(schema.current(tx)):
            schema.upgrade(tx, target)


def revision(url: str) -> str | None:
    """The revision of a database's schema; nothing is made or changed."""
    with _translated(), psycopg.connect(url, autocommit=True) as connection:
        _demand_utf8(connection.info.parameter_status("server_encoding"))
        return schema.current(PostgresTransaction(connection, _as_it_is))


def _demand_utf8(encoding: str | None) -> None:
    """No other encoding holds every text; SQL_ASCII, which a server without a locale takes, even answers in bytes."""
    if encoding != "UTF8":
        raise BadConfig(
            f"the desk's database has the encoding {encoding}, which cannot hold every text",
            hint="`createdb --template=template0 --encoding=UTF8 NAME` makes one for DESKHAND_DATABASE_URL",
        )


def _patient(url: str) -> str:
    """The URL with a limit to how long a server that does not answer is waited for, if it names none."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    return psycopg.conninfo.make_conninfo(url, connect_timeout=given.get("connect_timeout", WAIT_SECONDS))


def _check(connection: Connection) -> None:
    if _spoke(connection):
        ConnectionPool.check_connection(connection)


def _spoke(connection: Connection | AsyncConnection) -> bool:
    """Whether an idle connection has something to say: that the server went. To ask each time is a round trip more."""
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return bool(waiting.poll(0))


@lru_cache(512)
def _pyformat(sql: str) -> str:
    # Our SQL holds neither a question mark nor a per cent sign of its own.
    return sql.replace("?", "%s")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (psycopg.OperationalError, PoolTimeout) as error:
        raise Unavailable(
            "the desk's database does not answer",
            hint="is PostgreSQL running, and is DESKHAND_DATABASE_URL right?",
            reason=type(error).__name__,
        ) from error
