"""One contract for both databases."""

import asyncio
import fcntl
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from sqlite3 import IntegrityError

import psycopg
import pytest

from deskhand import audit, tokens
from deskhand.clock import utc_now
from deskhand.errors import BadConfig, Unavailable
from deskhand.gate import enclosures
from deskhand.gate.enclosures import enclose
from deskhand.orchestrator import steps
from deskhand.store import Store, Transaction, open_store, refuse_newer, revision, schema
from deskhand.store.postgresql import MIGRATING
from deskhand.store.postgresql import migrate as migrate_server
from deskhand.store.sqlite import SqliteStore, SqliteTransaction, connect, migrate
from tests.old_database import database_at
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    store.write_sync(
        lambda tx: tx.execute("CREATE TABLE thing (id INTEGER PRIMARY KEY, name TEXT)")
    )
    yield store
    store.close()


def insert(number: int) -> Callable[[Transaction], int]:
    return lambda tx: tx.execute(
        "INSERT INTO thing VALUES (?, ?)", number, f"thing {number}"
    )


def count(tx: Transaction) -> int:
    row = tx.one("SELECT count(*) FROM thing")
    assert row is not None
    return int(row[0])


@requirement("store:durable")
async def test_what_was_written_is_there_for_the_next_reader(
    store: Store, url: str
) -> None:
    assert await store.write(insert(1)) == 1

    other = open_store(url)
    assert await other.read(lambda tx: tx.all("SELECT id, name FROM thing")) == [
        (1, "thing 1")
    ]
    other.close()


@requirement("store:durable")
async def test_long_work_in_a_thread_is_committed_like_any_other(store: Store) -> None:
    assert await store.write_in_thread(insert(1)) == 1

    assert await store.read(count) == 1


@requirement("store:durable")
async def test_work_that_raises_leaves_nothing_and_does_not_disturb_its_neighbours(
    store: Store,
) -> None:
    def fails(tx: Transaction) -> None:
        insert(99)(tx)
        raise KeyError("on purpose")

    answers = await asyncio.gather(
        *(store.write(insert(number)) for number in range(20)),
        store.write(fails),
        return_exceptions=True,
    )

    assert answers[:20] == [1] * 20
    assert isinstance(answers[20], KeyError)
    assert await store.read(count) == 20
    assert (
        await store.read(lambda tx: tx.one("SELECT id FROM thing WHERE id = ?", 99)) is None
    )


@requirement("store:durable")
async def test_work_that_is_given_up_from_within_leaves_nothing(store: Store) -> None:
    def gives_up(tx: Transaction) -> None:
        insert(1)(tx)
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await store.write(gives_up)

    assert await store.read(count) == 0


@requirement("store:durable")
async def test_a_commit_that_fails_is_told_and_the_next_one_succeeds(store: Store) -> None:
    deferred = "DEFERRABLE INITIALLY DEFERRED"
    await store.write(
        lambda tx: tx.execute(
            f"CREATE TABLE part (thing INTEGER REFERENCES thing (id) {deferred}, name TEXT)"
        )
    )

    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        await store.write(
            lambda tx: tx.execute("INSERT INTO part VALUES (404, 'of nothing')")
        )

    assert await store.write(insert(1)) == 1
    assert await store.read(lambda tx: tx.all("SELECT * FROM part")) == []


async def test_many_rows_go_in_with_one_statement(store: Store) -> None:
    await store.write(
        lambda tx: tx.many("INSERT INTO thing VALUES (?, ?)", [(n, "x") for n in range(5)])
    )

    assert await store.read(count) == 5


async def test_what_a_reader_writes_does_not_stay(store: Store) -> None:
    with suppress(psycopg.errors.ReadOnlySqlTransaction):
        await store.read(insert(1))

    assert await store.read(count) == 0


@requirement("store:many-processes")
def test_eight_processes_start_on_a_new_database_and_none_fails(url: str) -> None:
    work = (
        "import sys; from deskhand.store import open_store; open_store(sys.argv[1]).close()"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", work, url], stderr=subprocess.PIPE)
        for _ in range(8)
    ]

    errors = [process.communicate()[1].decode() for process in started]

    assert [process.returncode for process in started] == [0] * 8, errors


def test_nobody_else_may_read_the_database(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path / 'desk.db'}").close()

    assert (tmp_path / "desk.db").stat().st_mode & 0o777 == 0o600


def test_an_unknown_database_is_refused_by_name() -> None:
    with pytest.raises(BadConfig, match="mysql"):
        open_store("mysql://x")


def test_a_desk_without_the_postgresql_extra_says_what_to_install() -> None:
    work = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from deskhand.errors import BadConfig\nfrom deskhand.store import open_store, revision\n"
        "for use in (open_store, revision):\n"
        "    try: use('postgresql://127.0.0.1:1/nobody')\n    except BadConfig as error: print(error.hint)"
    )

    done = subprocess.run(
        [sys.executable, "-c", work], capture_output=True, text=True, check=True
    )

    assert done.stdout.count("pip install 'deskhand[postgresql]'") == 2


def test_a_database_that_does_not_answer_is_unavailable_and_its_driver_says_nothing() -> (
    None
):
    away = "postgresql://127.0.0.1:1/nobody?connect_timeout=2"
    refuse_newer(away)  # whoever needs it is told
    with pytest.raises(Unavailable) as caught:
        open_store(away)

    assert "refused" not in caught.value.message
    assert caught.value.retryable


@requirement("store:utf-8")
def test_a_database_that_cannot_hold_every_text_is_refused_and_the_hint_makes_one_that_can(
    postgresql: str,
) -> None:
    def made(name: str, encoding: str) -> str:
        with psycopg.connect(postgresql, autocommit=True) as connection:
            connection.execute(
                f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
            )
        return postgresql.replace("/postgres?", f"/{name}?")

    bytes_only = made("bytes_only", "SQL_ASCII")
    for use in (open_store, revision):
        with pytest.raises(BadConfig, match="SQL_ASCII") as caught:
            use(bytes_only)
        assert "--encoding=UTF8" in str(caught.value.hint)

    store = open_store(made("every_text", "UTF8"))
    assert store.write_sync(lambda tx: tx.one("SELECT ?", "жук")) == ("жук",)
    store.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'desk.db'}")
    store.write_sync(
        lambda tx: tx.execute("CREATE TABLE thing (id INTEGER PRIMARY KEY, name TEXT)")
    )
    yield store
    store.close()


@requirement("store:durable")
async def test_a_full_database_is_unavailable_and_keeps_what_it_had(sqlite: Store) -> None:
    def fill(tx: Transaction) -> None:
        tx.execute("PRAGMA max_page_count = 20")
        for number in range(1000):
            tx.execute("INSERT INTO thing VALUES (?, ?)", number, "x" * 1000)

    with pytest.raises(Unavailable) as caught:
        await sqlite.write(fill)

    assert caught.value.details["reason"] == "SQLITE_FULL"
    assert await sqlite.read(count) == 0


@requirement("store:durable")
async def test_a_failing_commit_reaches_everybody_who_shares_it(sqlite: Store) -> None:
    held, go = threading.Event(), threading.Event()
    sqlite.write_sync(
        lambda tx: tx.execute(
            "CREATE TABLE child (id INTEGER REFERENCES thing DEFERRABLE INITIALLY DEFERRED)"
        )
    )

    def hold(tx: Transaction) -> None:
        held.set()
        go.wait()

    holding = asyncio.create_task(sqlite.write(hold))
    await asyncio.to_thread(held.wait)
    # These two are queued while the writer is held, so they share a commit, which the second one spoils.
    good = asyncio.create_task(sqlite.write(insert(1)))
    spoiled = asyncio.create_task(
        sqlite.write(lambda tx: tx.execute("INSERT INTO child VALUES (99)"))
    )
    await asyncio.sleep(0)
    go.set()
    answers = await asyncio.gather(holding, good, spoiled, return_exceptions=True)

    assert [type(answer) for answer in answers] == [
        type(None),
        IntegrityError,
        IntegrityError,
    ]
    assert await sqlite.read(count) == 0
    assert await sqlite.write(insert(2)) == 1


async def test_what_was_handed_in_before_closing_is_done_and_nothing_after(
    tmp_path: Path,
) -> None:
    store = SqliteStore(str(tmp_path / "desk.db"))
    held, go = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        held.set()
        go.wait()
        tx.execute("CREATE TABLE thing (id INTEGER PRIMARY KEY, name TEXT)")

    holding = asyncio.create_task(store.write(hold))
    await asyncio.to_thread(held.wait)
    given_up = asyncio.create_task(store.write(insert(0)))
    last = asyncio.create_task(store.write(insert(1)))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.sleep(0)
    closing = asyncio.create_task(asyncio.to_thread(store.close))
    await asyncio.sleep(0)
    while store._jobs.qsize() < 3:  # the last one says that nothing comes after it
        pass
    go.set()
    await closing

    await holding
    assert await last == 1
    with pytest.raises(Unavailable):
        store.write_sync(insert(2))
    other = open_store(f"sqlite:///{tmp_path / 'desk.db'}")
    assert other.write_sync(lambda tx: tx.all("SELECT id FROM thing")) == [(1,)]
    other.close()


TOKEN = "dh_of-the-old-days"
BEFORE_THE_PAGE = (
    (
        "INSERT INTO user_token (digest, name, user_id, created_at) VALUES"
        f" ('{sha256(TOKEN.encode()).hexdigest()}', 'laptop', 'ada', '2026-10-01T08:00:00.000000Z')"
    ),
    (
        "INSERT INTO actions (id, asked, action, state, revision, file, created, expires) VALUES ('a1', 'd1',"
        ' \'{"kind": "send_email", "account": "me@example.org", "to": "Ann@Example.org", "subject": "s",'
        ' "body": "b"}\','
        " 'sent', 1, 'email-send-a1.md', 1760000000000, 1760600000000)"
    ),
    (
        "INSERT INTO drafts (id, mail, sender, proposed, created) VALUES ('draft-1', 'm1', 'ann@example.org',"
        ' \'{"to": "ann@example.org", "subject": "Re: s", "body": "b", "reply_to_message_id": "m1"}\', 1)'
    ),
    *(
        f"INSERT INTO audit (seq, entry, hash) VALUES ({seq}, '"
        '{"timestamp": "2026-10-01T08:00:00.000Z", "correlation_id": "c", "actor": "email_mcp",'
        f' "action_type": "send_email", "target": "-", "result": "success"}}\', \'{seq}\')'
        for seq in (1, 2)
    ),
)


@requirement("store:upgraded")
async def test_a_database_of_the_days_before_the_page_keeps_what_it_holds(url: str) -> None:
    with database_at(url, "0005") as connection:
        for line in BEFORE_THE_PAGE:
            connection.execute(line)
    store = open_store(url)
    try:
        kept = await tokens.authenticate(store, TOKEN, datetime(2026, 11, 1, tzinfo=UTC))
        written = store.write_sync(
            lambda tx: tx.all(
                "SELECT address, state FROM written_to JOIN requests ON id = request_id"
            )
        )
        days = store.write_sync(
            lambda tx: tx.all("SELECT day, actor, action, result, entries FROM audit_days")
        )
        drafts = store.write_sync(
            lambda tx: tx.all("SELECT id, asked_by FROM requests WHERE origin = 'draft'")
        )
    finally:
        store.close()

    assert kept is not None
    assert (kept.name, kept.user_id, kept.created) == (
        "laptop",
        "ada",
        datetime(2026, 10, 1, 8, tzinfo=UTC),
    )
    assert tokens.opens(kept.scopes, "tasks", writes=True)
    assert not tokens.opens(kept.scopes, "mail", writes=False)
    assert written == [("ann@example.org", "sent")]
    assert days == [("2026-10-01", "email_mcp", "send_email", "success", 2)]
    assert drafts == [("draft-1", None)]


@requirement("store:upgraded")
@requirement("decide:conversation")
async def test_mails_that_wait_in_a_database_from_before_conversations_are_put_together(
    url: str,
) -> None:
    added = (
        "INSERT INTO steps (key, kind, state, data, lease, tried, attempts, created)"
        " VALUES ('mail:{0}', 'mail', 'needs_info', '{{\"message_id\": \"{0}\", \"sender\": \"ann@example.org\"}}',"
        " 0, {0}, 0, {0})"
    )
    with database_at(url, "0032") as connection:
        for number in (1, 2, 3):
            connection.execute(added.format(number))
    at = [datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2, 3)]

    def work(tx: Transaction) -> None:
        unplaced = [each.key for each in steps.list_unplaced(tx, 9)]
        assert unplaced == ["mail:1", "mail:2", "mail:3"]
        for key, day, thread in zip(unplaced, at, ("t", "t", ""), strict=True):
            steps.place(tx, key, steps.Placing(thread, day))
        assert steps.list_unplaced(tx, 9) == []
        assert steps.gather(tx, "mail:3") == []
        found = [steps.gather(tx, key) for key in ("mail:1", "mail:2")]
        assert [[(old.key, new.key) for old, new in each] for each in found] == [
            [("mail:1", "mail:2")],
            [],
        ]
        assert [each.key for each in steps.list_left(tx, at[2], 9)] == ["mail:2", "mail:3"]
        ((front, (behind,)),) = steps.group_behind(tx, unplaced).items()
        assert (front, behind.key) == ("mail:2", "mail:1")
        assert [each.key for each in steps.list_behind(tx, "mail:2")] == ["mail:1"]
        in_front = steps.find_in_front(tx, "mail:1")
        assert in_front is not None
        assert in_front.key == "mail:2"
        assert steps.last_tried(tx) == 2
        opened = steps.list_open_in(tx, {"t", "other"})
        assert [(thread, day) for thread, day, _ in opened] == [("t", at[1])]

    store = open_store(url)
    try:
        store.write_sync(work)
    finally:
        store.close()


@requirement("decide:elsewhere")
async def test_the_mails_of_a_mailbox_that_wait_are_listed_in_turns_and_end_once(
    url: str,
) -> None:
    now = datetime(2026, 11, 1, tzinfo=UTC)

    def work(tx: Transaction) -> None:
        for name in ("a:1", "a:2", "a:3", "ab:1", "a_:1"):
            facts = steps.MailFacts(message_id=name, sender="x")
            steps.add(tx, f"mail:{name}", facts, now)
        tx.execute("UPDATE steps SET state = 'needs_info', due = NULL")
        for key in ("mail:a:1", "mail:a:2"):
            steps.place(tx, key, steps.Placing("t", now, ("x",), in_inbox=True))
        assert len(steps.gather(tx, "mail:a:1")) == 1
        turn = steps.list_in_mailbox(tx, "a", "", 2)
        assert [step.key for step in turn] == ["mail:a:1", "mail:a:2"]
        assert {step.state for step in turn} == {"needs_info", "continued"}
        rest = steps.list_in_mailbox(tx, "a", "mail:a:2", 2)
        assert [step.key for step in rest] == ["mail:a:3"]

        front, behind = sorted(turn, key=lambda step: step.state == "continued")
        assert not steps.reopen_gone(tx, front.key)
        assert steps.end_gone(tx, front.key, "trashed")
        assert not steps.end_gone(tx, front.key, "archived")
        assert [each.key for each in steps.release(tx, front.key)] == [behind.key]
        assert steps.reopen_gone(tx, front.key)
        assert not steps.reopen_gone(tx, front.key)
        assert steps.count_left(tx, now) == 5

    store = open_store(url)
    try:
        store.write_sync(work)
    finally:
        store.close()


@requirement("gate:attachments")
async def test_the_bytes_of_attachments_are_kept_until_nobody_needs_them(url: str) -> None:
    now = datetime(2026, 11, 1, tzinfo=UTC)
    content = bytes(range(256)) * 100
    file = enclose("a.bin", content)
    store = open_store(url)
    try:
        await store.write(enclosures.keep, [content, content], now)
        kept = await store.read(enclosures.load, [file])
        swept = await store.write(enclosures.sweep, now + timedelta(seconds=1))
        gone = await store.read(enclosures.find, file)
    finally:
        store.close()

    assert (kept, swept, gone) == ([content], 1, None)


KILLED_IN_THE_MIDDLE = """
import os, signal, sys, types
from deskhand.store import open_store
last_step = types.ModuleType("last_step")
last_step.upgrade = lambda tx: os.kill(os.getpid(), signal.SIGKILL)
sys.modules["deskhand.store.migrations.0006_3_record"] = last_step
open_store(sys.argv[1])
"""


@requirement("store:upgraded")
def test_a_desk_killed_while_it_migrates_leaves_the_old_schema_and_the_next_one_goes_on(
    url: str,
) -> None:
    with database_at(url, "0005") as connection:
        for line in BEFORE_THE_PAGE:
            connection.execute(line)

    killed = subprocess.run([sys.executable, "-c", KILLED_IN_THE_MIDDLE, url], check=False)

    assert (killed.returncode, revision(url)) == (-signal.SIGKILL, "0005")
    with database_at(url, "0005") as connection:
        assert connection.execute("SELECT name FROM user_token").fetchall() == [("laptop",)]
        columns = connection.execute("SELECT * FROM actions").description
        assert "recipient" not in [column[0] for column in columns]
    store = open_store(url)
    assert store.write_sync(lambda tx: tx.all("SELECT name FROM tokens")) == [("laptop",)]
    store.close()


@requirement("store:upgraded")
def test_a_desk_that_waited_while_another_one_migrated_finds_it_done(
    tmp_path: Path,
) -> None:
    file = str(tmp_path / "desk.db")
    with Path(f"{file}.migrating").open("w") as lock, ThreadPoolExecutor() as others:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = others.submit(migrate, file)
        while _count_opened(lock.name) < 2:
            assert not second.done()
        with closing(connect(file)) as connection:
            schema.upgrade(SqliteTransaction(connection), schema.HEAD)
        fcntl.flock(lock, fcntl.LOCK_UN)
        second.result(timeout=60)

    assert revision(f"sqlite:///{file}") == schema.HEAD


@requirement("store:upgraded")
def test_of_two_desks_that_find_an_old_database_server_one_migrates(
    postgresql: str,
) -> None:
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute("CREATE DATABASE two_start TEMPLATE template0 ENCODING 'UTF8'")
    url = postgresql.replace("/postgres?", "/two_start?")
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with psycopg.connect(url) as before_them, ThreadPoolExecutor() as threads:
        before_them.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATING])
        both = [threads.submit(migrate_server, url) for _ in range(2)]
        while before_them.execute(waiting).fetchone() != (2,):
            assert not any(each.done() for each in both)
        before_them.rollback()
        for each in both:
            each.result(timeout=60)

    assert revision(url) == schema.HEAD


def _count_opened(file: str) -> int:
    """How often this process has the file open."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += str(each.readlink()) == file
    return found


@requirement("store:upgraded")
def test_a_database_of_a_newer_desk_is_refused_and_left_as_it_is(url: str) -> None:
    with database_at(url, schema.HEAD) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(BadConfig, match="9999") as caught:
        open_store(url)

    assert "upgrade deskhand" in str(caught.value.hint)
    assert revision(url) == "9999"


@requirement("store:many-processes")
def test_the_doorbell_rings_for_what_another_process_commits(
    store: Store, url: str
) -> None:
    def ring(tx: Transaction) -> None:
        insert(1)(tx)
        if tx.dialect == "postgresql":
            tx.one("SELECT pg_notify(?, ?)", "things", "new")

    other = open_store(url)
    with store.bell("things", "new") as bell, store.bell("things", None) as any_bell:
        other.write_sync(ring)
        assert (bell.wait(10), any_bell.wait(10)) == (True, True)
        assert store.write_sync(count) == 1
    other.close()


@requirement("store:durable")
def test_what_revision_a_database_has_is_told_without_making_one(url: str) -> None:
    assert revision(url) is None
    assert not Path(url.removeprefix("sqlite:///")).exists()
    open_store(url).close()
    assert revision(url) == schema.HEAD


async def test_a_reader_sees_one_state_whatever_is_committed_meanwhile(
    store: Store, url: str
) -> None:
    other = open_store(url)

    def look_twice(tx: Transaction) -> tuple[int, int]:
        before = count(tx)
        other.write_sync(insert(1))
        return before, count(tx)

    assert await store.read(look_twice) == (0, 0)
    assert await store.read_one(count) == 1
    other.close()


RECOVERS = """
import fcntl, sys
file = open(sys.argv[1], "r+b", buffering=0)
fcntl.lockf(file, fcntl.LOCK_EX, 3, 120)
file.write(bytes(96))
print(flush=True)
sys.stdin.read()
"""
"""Holds the index of the WAL, as SQLite does while it makes it anew after somebody was killed."""


def is_there(file: str) -> bool:
    return Path(file).exists()


def holding(file: str, program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", program, file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


async def test_a_glance_sees_what_was_committed_and_keeps_no_file_open(url: str) -> None:
    store = open_store(url)
    for _ in range(2):
        before = await store.glance(audit.head)
        await store.write(audit.append, audit.Entry.of(utc_now(), "me", "look", "it"))
        assert (await store.glance(audit.head)).seq == before.seq + 1
    store.close()
    assert not is_there(f"{url.removeprefix('sqlite:///')}-wal")


@requirement("store:many-processes")
async def test_a_glance_at_a_database_that_somebody_holds_keeps_nobody_else_waiting(
    tmp_path: Path,
) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'desk.db'}")
    with holding(str(tmp_path / "desk.db-shm"), RECOVERS) as holder:
        await asyncio.to_thread(holder.stdout.readline)
        glance = asyncio.create_task(store.glance(audit.head))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not glance.done()
        holder.stdin.close()
        assert await glance == audit.START
    assert await store.glance(audit.head) == audit.START
    store.close()


async def test_more_callers_than_connections_all_have_their_turn(store: Store) -> None:
    async def call(number: int) -> int:
        await store.write(insert(number))
        found = await store.read_one(
            lambda tx: tx.one("SELECT id FROM thing WHERE id = ?", number)
        )
        assert found is not None
        return int(found[0])

    assert await asyncio.gather(*(call(number) for number in range(100))) == list(
        range(100)
    )
    assert await store.read(count) == 100


def test_one_store_serves_loops_after_each_other_and_side_by_side(store: Store) -> None:
    async def some(first: int) -> None:
        await asyncio.gather(*(store.write(insert(first + number)) for number in range(30)))

    asyncio.run(some(0))
    asyncio.run(some(100))
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(asyncio.run, some(first)) for first in (200, 300)]:
            done.result()

    assert store.write_sync(count) == 120


@pytest.fixture
def server(postgresql: str) -> Iterator[Store]:
    store = open_store(postgresql)
    store.write_sync(
        lambda tx: tx.execute("CREATE TABLE thing (id INTEGER PRIMARY KEY, name TEXT)")
    )
    yield store
    store.write_sync(lambda tx: tx.execute("DROP TABLE thing"))
    store.close()


@requirement("store:durable")
async def test_what_was_handed_in_is_finished_although_nobody_waits_for_it(
    server: Store, postgresql: str
) -> None:
    with psycopg.connect(postgresql) as other:
        other.execute("LOCK TABLE thing")
        given_up = asyncio.create_task(server.write(insert(1)))
        await waiting_for_a_lock(server, 1)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        other.rollback()

    while not await server.read(count):
        pass


@requirement("store:durable")
def test_what_was_handed_in_is_finished_although_its_loop_ends(
    server: Store, postgresql: str
) -> None:
    ended = threading.Event()

    async def end_early() -> None:
        given_up = asyncio.create_task(server.write(insert(1)))
        await waiting_for_a_lock(server, 1)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # as `asyncio.run` does it a moment later
        await asyncio.wait([given_up])
        ended.set()

    with psycopg.connect(postgresql) as other, ThreadPoolExecutor(1) as thread:
        other.execute("LOCK TABLE thing")
        running = thread.submit(asyncio.run, end_early())
        ended.wait()
        other.rollback()
        running.result()

    assert server.write_sync(count) == 1


async def test_readers_that_gave_up_leave_nothing_running_and_no_place_taken(
    server: Store, postgresql: str
) -> None:
    with psycopg.connect(postgresql) as other:
        other.execute("LOCK TABLE thing")
        given_up = [asyncio.create_task(server.read(count)) for _ in range(20)]
        await waiting_for_a_lock(server, 8)
        for each in given_up:
            each.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)

        assert await server.read_one(
            lambda tx: tx.one("SELECT count(*) FROM pg_locks WHERE NOT granted")
        ) == (0,)

    assert await asyncio.gather(*(server.read(count) for _ in range(20))) == [0] * 20


async def test_a_closed_store_says_so(url: str) -> None:
    store = open_store(url)
    store.close()

    for call in (store.read, store.write, store.read_one):
        with pytest.raises(Unavailable):
            await call(count)
    with pytest.raises(Unavailable):
        store.write_sync(count)


async def test_a_closed_server_is_not_glanced_at(postgresql: str) -> None:
    store = open_store(postgresql)
    store.close()

    with pytest.raises(Unavailable):
        await store.glance(count)


async def test_who_gave_up_a_reading_keeps_no_thread_and_one_not_begun_is_left_undone(
    sqlite: Store,
) -> None:
    held = threading.Semaphore(0)
    go = threading.Event()
    begun: list[str] = []

    def hold(_: Transaction) -> None:
        held.release()
        go.wait()

    holding = [asyncio.create_task(sqlite.read_one(hold)) for _ in range(2)]
    for _ in holding:
        await asyncio.to_thread(held.acquire)
    queued = asyncio.create_task(sqlite.read_one(lambda _: begun.append("queued")))
    await asyncio.sleep(0)
    for each in (*holding, queued):
        each.cancel()
    await asyncio.gather(*holding, queued, return_exceptions=True)
    go.set()

    assert await asyncio.gather(*(sqlite.read(count) for _ in range(8))) == [0] * 8
    assert begun == []


@requirement("store:durable")
def test_what_the_writer_was_handed_is_finished_although_its_loop_has_ended(
    sqlite: Store,
) -> None:
    held, go = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> int:
        held.set()
        go.wait()
        return insert(1)(tx)

    async def end_early() -> None:
        given_up = asyncio.create_task(sqlite.write(hold))
        await asyncio.to_thread(held.wait)
        given_up.cancel()

    asyncio.run(end_early())
    go.set()

    assert sqlite.write_sync(count) == 1


async def waiting_for_a_lock(store: Store, number: int) -> None:
    """Until so many, at least, wait for somebody's lock."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    while (
        not (row := await asyncio.to_thread(store.write_sync, lambda tx: tx.one(waiting)))
        or row[0] < number
    ):
        pass


@requirement("store:durable")
async def test_connections_that_the_server_ended_are_replaced_before_anybody_notices(
    postgresql: str,
) -> None:
    store = open_store(postgresql)
    mine = "SELECT pg_backend_pid()"
    before = {
        await store.write(lambda tx: tx.one(mine)),
        store.write_sync(lambda tx: tx.one(mine)),
    }
    with psycopg.connect(postgresql, autocommit=True) as server:
        for pid in before:
            assert server.execute(
                "SELECT pg_terminate_backend(%s, 10000)", pid
            ).fetchone() == (True,)

    after = {
        await store.read_one(lambda tx: tx.one(mine)),
        store.write_sync(lambda tx: tx.one(mine)),
    }
    store.close()
    assert len(before) == 2
    assert not before & after
