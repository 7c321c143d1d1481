"""One contract for both databases."""

import asyncio
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from requirements import requirement

from deskhand.errors import BadConfig, Unavailable
from deskhand.store import Store, Transaction, open_store, schema

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'desk.db'}"
    server = request.getfixturevalue("postgresql")
    name = f"desk_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    store.run(lambda tx: tx.execute("CREATE TABLE thing (id INTEGER PRIMARY KEY, name TEXT)"))
    yield store
    store.close()


def insert(number: int) -> Callable[[Transaction], int]:
    return lambda tx: tx.execute("INSERT INTO thing VALUES (?, ?)", number, f"thing {number}")


def count(tx: Transaction) -> int:
    row = tx.one("SELECT count(*) FROM thing")
    assert row is not None
    return int(row[0])


@requirement("store:durable")
async def test_what_was_written_is_there_for_the_next_reader(store: Store, url: str) -> None:
    assert await store.write(insert(1)) == 1

    other = open_store(url)
    assert await other.read(lambda tx: tx.all("SELECT id, name FROM thing")) == [(1, "thing 1")]
    other.close()


@requirement("store:durable")
async def test_work_that_raises_leaves_nothing_and_does_not_disturb_its_neighbours(store: Store) -> None:
    def fails(tx: Transaction) -> None:
        insert(99)(tx)
        raise KeyError("on purpose")

    answers = await asyncio.gather(
        *(store.write(insert(number)) for number in range(20)), store.write(fails), return_exceptions=True
    )

    assert answers[:20] == [1] * 20
    assert isinstance(answers[20], KeyError)
    assert await store.read(count) == 20
    assert await store.read(lambda tx: tx.one("SELECT id FROM thing WHERE id = ?", 99)) is None


@requirement("store:durable")
async def test_a_commit_that_fails_is_told_and_the_next_one_succeeds(store: Store) -> None:
    deferred = "DEFERRABLE INITIALLY DEFERRED"
    await store.write(
        lambda tx: tx.execute(f"CREATE TABLE part (thing INTEGER REFERENCES thing (id) {deferred}, name TEXT)")
    )

    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        await store.write(lambda tx: tx.execute("INSERT INTO part VALUES (404, 'of nothing')"))

    assert await store.write(insert(1)) == 1
    assert await store.read(lambda tx: tx.all("SELECT * FROM part")) == []


async def test_many_rows_go_in_with_one_statement(store: Store) -> None:
    await store.write(lambda tx: tx.many("INSERT INTO thing VALUES (?, ?)", [(n, "x") for n in range(5)]))

    assert await store.read(count) == 5


async def test_what_a_reader_writes_does_not_stay(store: Store) -> None:
    with suppress(psycopg.errors.ReadOnlySqlTransaction):
        await store.read(insert(1))

    assert await store.read(count) == 0


@requirement("store:many-processes")
def test_eight_processes_start_on_a_new_database_and_none_fails(url: str) -> None:
    work = "import sys; from deskhand.store import open_store; open_store(sys.argv[1]).close()"
    started = [subprocess.Popen([sys.executable, "-c", work, url], stderr=subprocess.PIPE) for _ in range(8)]

    errors = [process.communicate()[1].decode() for process in started]

    assert [process.returncode for process in started] == [0] * 8, errors


def test_the_newest_migration_is_the_one_the_schema_expects() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).with_name("migrations")))
    assert ScriptDirectory.from_config(config).get_current_head() == schema.HEAD


def test_an_up_to_date_database_is_opened_without_alembic_or_sqlalchemy(url: str) -> None:
    open_store(url).close()
    work = (
        "import sys; from deskhand.store import open_store; open_store(sys.argv[1]).close();"
        "print([m for m in ('alembic', 'sqlalchemy') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", work, url], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_an_unknown_database_is_refused_by_name() -> None:
    with pytest.raises(BadConfig, match="mysql"):
        open_store("mysql://x")


def test_a_database_that_does_not_answer_is_unavailable_and_its_driver_says_nothing() -> None:
    with pytest.raises(Unavailable) as caught:
        open_store("postgresql://127.0.0.1:1/nobody?connect_timeout=2")

    assert "refused" not in caught.value.message
    assert caught.value.retryable
