"""Who waits for whom on PostgreSQL: moments between two transactions, each held until the other is there."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from deskhand.store import Store, Transaction, open_store
from deskhand.tasks import calendars, rows, vtodo
from deskhand.tasks.models import NewTask, TaskChanges, TaskFilter
from tests.requirements import requirement

NOW = rows.Now("2026-11-15T10:00:00.000000Z", "Ann")
UTC = ZoneInfo("UTC")


@pytest.fixture
def opened(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


def made(opened: Store, title: str) -> int:
    task_id: int = opened.write_sync(
        lambda tx: rows.create(tx, "ann", NewTask(title=title), NOW)
    ).task["id"]
    return task_id


def until_it_waits(opened: Store, call: "Future[Any]") -> None:
    while (
        not call.done()
        and opened.write_sync(lambda tx: tx.one("SELECT 1 FROM pg_locks WHERE NOT granted"))
        is None
    ):
        pass


@requirement("tasks:beyond")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("way", ["created", "moved"])
def test_a_part_that_comes_while_its_whole_is_deleted_goes_with_it(
    opened: Store, way: str
) -> None:
    whole, part = made(opened, "whole"), made(opened, "part")
    there, go = threading.Event(), threading.Event()

    def become_a_part(tx: Transaction) -> None:
        if way == "created":
            rows.create(tx, "ann", NewTask(title="another part", parent_id=whole), NOW)
        else:
            rows.update(tx, "ann", part, TaskChanges(parent_id=whole), NOW, None)
        there.set()
        go.wait()

    with ThreadPoolExecutor(2) as threads:
        becoming = threads.submit(opened.write_sync, become_a_part)
        there.wait()
        deleting = threads.submit(
            opened.write_sync, lambda tx: rows.delete(tx, "ann", whole, NOW, None)
        )
        until_it_waits(opened, deleting)
        go.set()
        becoming.result()
        deleting.result()

    left = opened.write_sync(lambda tx: rows.page(tx, "ann", TaskFilter()))
    assert [task["title"] for task in left["tasks"]] == (
        ["part"] if way == "created" else []
    )
    assert left["total"] == len(left["tasks"])


@requirement("tasks:vtodo")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_an_import_locks_tasks_in_the_order_of_everybody_else(
    opened: Store, url: str
) -> None:
    ids = [made(opened, str(number)) for number in range(10)]
    ninth, tenth = ids[8:]
    assert (ninth, tenth) == (9, 10)  # as texts they are the other way round
    calendar = calendars.write_calendar(
        opened.write_sync(lambda tx: calendars.read_all(tx, "ann")), UTC
    )
    todos = vtodo.parse_todos(calendar.encode(), UTC).todos

    with psycopg.connect(url) as other, ThreadPoolExecutor(1) as thread:
        lock = "SELECT id FROM task WHERE id = %s FOR UPDATE NOWAIT"
        other.execute(lock, (ninth,))
        importing = thread.submit(
            opened.write_sync, lambda tx: calendars.import_todos(tx, "ann", todos, NOW)
        )
        until_it_waits(opened, importing)
        # Had it taken the tenth first, each would have what the other waits for.
        assert other.execute(lock, (tenth,)).fetchone() == (tenth,)
        other.commit()
        assert importing.result().imported == 0


@requirement("tasks:vtodo")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_an_import_that_waited_for_another_locks_in_that_order_too(
    opened: Store, url: str
) -> None:
    first, second = made(opened, "first"), made(opened, "second")
    file = "BEGIN:VTODO\nUID:a\nSUMMARY:second\nEND:VTODO\nBEGIN:VTODO\nUID:b\nSUMMARY:first\nEND:VTODO\n"
    todos = vtodo.parse_todos(f"BEGIN:VCALENDAR\n{file}END:VCALENDAR\n".encode(), UTC).todos

    with (
        psycopg.connect(url) as other,
        psycopg.connect(url) as same,
        ThreadPoolExecutor(1) as thread,
    ):
        lock = "SELECT id FROM task WHERE id = %s FOR UPDATE NOWAIT"
        other.execute(lock, (first,))
        for uid, task_id in (("a", second), ("b", first)):
            same.execute(
                "INSERT INTO task_uid (user_id, uid, task_id) VALUES ('ann', %s, %s)",
                (uid, task_id),
            )
        importing = thread.submit(
            opened.write_sync, lambda tx: calendars.import_todos(tx, "ann", todos, NOW)
        )
        until_it_waits(opened, importing)
        same.commit()
        until_it_waits_for(other, opened, importing)
        assert other.execute(lock, (second,)).fetchone() == (second,)
        other.commit()
        assert importing.result().imported == 0


def until_it_waits_for(
    other: "psycopg.Connection[Any]", opened: Store, call: "Future[Any]"
) -> None:
    blocked = "SELECT 1 FROM pg_stat_activity WHERE ? = ANY(pg_blocking_pids(pid))"
    while (
        not call.done()
        and opened.write_sync(lambda tx: tx.one(blocked, other.info.backend_pid)) is None
    ):
        pass
