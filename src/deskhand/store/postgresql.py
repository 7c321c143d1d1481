"""PostgreSQL: a pool of connections, one thread for each transaction under way."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal, TypeVar

import psycopg
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


class PostgresStore:
    def __init__(self, url: str) -> None:
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

    def close(self) -> None:
        self._threads.shutdown()
        self._pool.close()
        self._reading.close()

    def _read(self, work: Callable[[Transaction], T]) -> T:
        with _translated(), self._reading.connection() as connection:
            return work(PostgresTransaction(connection))


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
