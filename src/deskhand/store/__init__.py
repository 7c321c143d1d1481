"""The desk's database: SQLite by default, PostgreSQL by URL. Plain SQL over the drivers.

A piece of work is a function of one transaction; it runs whole or not at all, and what it returns is durable:

    await store.write(requests.insert, request)

SQL is written once for both databases with `?` for each value.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeAlias, TypeVar

from deskhand.errors import BadConfig, DeskError

T = TypeVar("T")
P = ParamSpec("P")
Work: TypeAlias = Callable[Concatenate["Transaction", P], T]
"""A function of one transaction, and of what it is given beside it."""
Row = tuple[Any, ...]


class Transaction(Protocol):
    dialect: Literal["sqlite", "postgresql"]

    def execute(self, sql: str, *values: Any) -> int:
        """Run a statement; returns how many rows it changed."""

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""

    def one(self, sql: str, *values: Any) -> Row | None:
        """The first row of a query; None where it has none."""

    def all(self, sql: str, *values: Any) -> list[Row]:
        """All rows of a query."""

    def note_beside(self, name: str, text: str) -> None:
        """Write a short note into a file beside the database once this is committed; a server keeps its own."""


class Bell(Protocol):
    """Wakes who waits for others' commits. A hint only: whoever is woken looks."""

    def wait(self, seconds: float) -> bool:
        """Whether something changed within this time; it may say so for nothing, but misses nothing."""


class Store(Protocol):
    def write_sync(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Do `work` in a transaction that may write, and commit it."""

    async def write(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Like `write_sync`, without blocking the event loop, for work that waits for
        nothing but the database."""

    async def write_in_thread(
        self, work: Work[P, T], *given: P.args, **named: P.kwargs
    ) -> T:
        """Like `write`, for work that waits for a disk as well."""

    async def read(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Do `work` in a transaction that sees one state and changes nothing."""

    async def read_one(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Do `work` that reads by one statement and needs no transaction around it; of
        two, each sees its own state."""

    async def glance(self, work: Work[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Like `read_one`, at once and on the event loop, for a few rows that are found by their keys.

        Where somebody holds the database it is `read_one`, so the work may begin twice. There is no transaction.
        """

    def bell(self, channel: str, payload: str | None) -> AbstractContextManager[Bell]:
        """Rings for what anybody commits from now on: PostgreSQL for this NOTIFY alone,
        SQLite for every commit."""

    def read_beside(self, name: str) -> str | None:
        """The last note of this name beside the database."""

    def close(self) -> None:
        """Finish the work that was handed in, then close the database."""


def bind(work: Work[P, T], *given: P.args, **named: P.kwargs) -> Callable[[Transaction], T]:
    """The work with everything but its transaction."""

    def call(tx: Transaction) -> T:
        return work(tx, *given, **named)

    return call


def marks(values: Collection[object]) -> str:
    """A question mark for each value, as a statement names them."""
    return ", ".join("?" for _ in values)


def open_store(url: str) -> Store:
    """Open the database, bringing its schema up to date first."""
    scheme, _, place = url.partition("://")
    match scheme:
        case "sqlite":
            from deskhand.store.sqlite import SqliteStore

            return SqliteStore(place.removeprefix("/"))
        case "postgresql" | "postgres":
            with _demand_driver():
                from deskhand.store.postgresql import PostgresStore
            return PostgresStore(url)
        case _:
            raise BadConfig(
                f"no database for {scheme}://",
                hint="use sqlite:///FILE or postgresql://USER@HOST/DATABASE",
            )


def revision(url: str) -> str | None:
    """The revision of a database's schema; None where there is none yet. Nothing is made
    or brought up to date."""
    scheme, _, place = url.partition("://")
    if scheme == "sqlite":
        from deskhand.store import sqlite

        return sqlite.revision(place.removeprefix("/"))
    with _demand_driver():
        from deskhand.store import postgresql
    return postgresql.revision(url)


def refuse_newer(url: str) -> None:
    """Raise where a newer desk made the database. What else may be wrong with it is said when it is needed."""
    from deskhand.store import schema

    try:
        found = revision(url)
    except DeskError:
        return
    schema.is_behind(found)


@contextmanager
def _demand_driver() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise BadConfig(
            "the desk's database is PostgreSQL, for which nothing is installed here",
            hint="pip install 'deskhand[postgresql]'; in a clone any `python3 run.py` command installs it",
        ) from error
