"""PostgreSQL: a pool of connections, one thread for each transaction under way."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal, Self, TypeVar

import psycopg
import psycopg.sql
from psycopg_pool import ConnectionPool, PoolTimeout

from deskhand.errors import Unavailable
from deskhand.store import Row, Transaction, schema

T = TypeVar("T")
Connection = psycopg.Connection[Row]

CONNECTIONS = 8
WAIT_SECONDS = 10


class PostgresTransaction:
    dialect: Literal["sqlite", "postgresql"] = "postgresql"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, *values: Any) -> int:
        return self._connection.execute(_pyformat(sql), values).rowcount

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.cursor().executemany(_pyformat(sql), rows)

    def one(self, sql: str, *values: Any) -> Row | None:
        return self._connection.execute(_pyformat(sql), values).fetchone()

    def all(self, sql: str, *values: Any) -> list[Row]:
        return self._connection.execute(_pyformat(sql), values).fetchall()


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
        self._url = url
        with _translated():
            schema.upgrade_postgresql(url)
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url, min_size=1, max_size=CONNECTIONS, timeout=WAIT_SECONDS, open=True
        )
        self._reading: ConnectionPool[Connection] = ConnectionPool(
            url, min_size=1, max_size=CONNECTIONS, timeout=WAIT_SECONDS, configure=_for_reading, open=True
        )
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="store")

    def run(self, work: Callable[[Transaction], T]) -> T:
        with _translated(), self._pool.connection() as connection:
            return work(PostgresTransaction(connection))

    async def write(self, work: Callable[[Transaction], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.run, work)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, work)

    def bell(self, channel: str, payload: str | None) -> PostgresBell:
        return PostgresBell(self._url, channel, payload)

    def close(self) -> None:
        self._threads.shutdown()
        self._pool.close()
        self._reading.close()

    def _read(self, work: Callable[[Transaction], T]) -> T:
        with _translated(), self._reading.connection() as connection:
            return work(PostgresTransaction(connection))


def revision(url: str) -> str | None:
    with _translated():
        return schema.postgresql_revision(url)


def _for_reading(connection: Connection) -> None:
    # Said once for each connection it travels in the BEGIN; said in each transaction it is a round trip more.
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True


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
