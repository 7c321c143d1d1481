"""A user's tasks out of the tables into a calendar, and those of a calendar into the tables, each once for its UID."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zoneinfo import ZoneInfo

from deskhand.errors import Contradiction
from deskhand.store import Row, Transaction
from deskhand.tasks import rows, vtodo
from deskhand.tasks.models import ImportProblem
from deskhand.tasks.rows import Now, TaskRow
from deskhand.tasks.vtodo import Todo


def read_all(tx: Transaction, user: str) -> list[tuple[str, Row]]:
    """All of the user's tasks as the database has them, each under the UID by which the world knows it."""
    origin = _origin(tx)
    given: dict[int, str] = dict(
        tx.all("SELECT task_id, uid FROM task_uid WHERE user_id = ?", user)
    )
    found = rows.read_all(tx, user)
    return [
        (given.get(columns[0]) or f"task-{columns[0]}@{origin}", columns)
        for columns in found
    ]


def write_calendar(found: Iterable[tuple[str, Row]], zone: ZoneInfo) -> str:
    """The text of what `read_all` found; for many tasks that takes a moment, and no database."""
    tasks = [(uid, rows.read_row(columns)) for uid, columns in found]
    return vtodo.write_text(tasks, {task.id: uid for uid, task in tasks}, zone)


class ImportCount(NamedTuple):
    imported: int
    problems: list[ImportProblem]


def import_todos(
    tx: Transaction, user: str, todos: Sequence[Todo], now: Now
) -> ImportCount:
    """Make the tasks that are not here, bring back the deleted ones as the file has them; how many these were.

    What is here under the same UID stays as it is. A task whose parent is not to be had stands alone.
    """
    told: list[ImportProblem] = []
    known = _claim_all(tx, user, todos)
    ids = {uid: row.id for uid, row in known.items() if row is not None}
    imported = 0
    for todo in sorted(todos, key=_is_part):
        before = known[todo.uid]
        if before is not None and before.deleted_at is None:
            continue
        parent_id = None if todo.parent is None else _find_parent(tx, user, todo, ids)
        row = (before or rows.new_row(user, todo.new, now))._replace(
            **todo.new.model_dump() | {"parent_id": parent_id},
            completed=todo.completed,
            completed_at=todo.completed_at if todo.completed else None,
            series_start=todo.series_start,
            next_id=None,
            deleted_at=None,
        )
        if (todo.parent is not None and parent_id is None) or not _fits(tx, row):
            why = "the task that it is a part of is not in the file and cannot be found here: it stands alone now"
            told.append(
                ImportProblem(
                    line=todo.parent_line, title=todo.new.title, message=why, imported=True
                )
            )
            row = row._replace(parent_id=None)
        row = rows.check(tx, row)
        if before is not None:
            rows.save(tx, before, row, now)
        else:
            made = rows.insert(
                tx, row._replace(created_at=min(todo.created or now.at, now.at)), now
            )
            ids[todo.uid] = made.id
            tx.execute(
                "UPDATE task_uid SET task_id = ? WHERE user_id = ? AND uid = ?",
                made.id,
                user,
                todo.uid,
            )
        imported += 1
    return ImportCount(imported, told)


def _is_part(todo: Todo) -> bool:
    return todo.parent is not None


def _claim_all(
    tx: Transaction, user: str, todos: Iterable[Todo]
) -> dict[str, TaskRow | None]:
    """The task of each UID; None for one that is now claimed for a new task.

    UIDs in one order for everybody: of two imports of one file the second waits, and finds what the first one made.
    Then all tasks, in theirs.
    """
    own = _own_uid(tx)
    ids = {uid: _claim(tx, user, uid, own) for uid in sorted(todo.uid for todo in todos)}
    outside = {todo.parent for todo in todos if todo.parent is not None} - ids.keys()
    held = [*ids.values(), *(_find_id(tx, user, uid, own) for uid in outside)]
    rows.lock_in_order(tx, user, [task_id for task_id in held if task_id is not None])
    return {
        uid: None if task_id is None else rows.lock_any(tx, user, task_id)
        for uid, task_id in ids.items()
    }


def _claim(tx: Transaction, user: str, uid: str, own: re.Pattern[str]) -> int | None:
    ours = own.fullmatch(uid)
    if ours and tx.one(
        "SELECT 1 FROM task WHERE id = ? AND user_id = ?", int(ours[1]), user
    ):
        return int(ours[1])
    if tx.execute(
        "INSERT INTO task_uid (user_id, uid) VALUES (?, ?) ON CONFLICT DO NOTHING",
        user,
        uid,
    ):
        return None
    return _find_id(tx, user, uid, own)


def _find_id(tx: Transaction, user: str, uid: str, own: re.Pattern[str]) -> int | None:
    """The id that this UID stands for, whether or not there is such a task."""
    found = tx.one("SELECT task_id FROM task_uid WHERE user_id = ? AND uid = ?", user, uid)
    if found is not None:
        task_id: int | None = found[0]
        return task_id
    ours = own.fullmatch(uid)
    return int(ours[1]) if ours else None


def _find_parent(tx: Transaction, user: str, todo: Todo, ids: dict[str, int]) -> int | None:
    if todo.parent in ids:
        return ids[todo.parent]
    return _find_id(tx, user, todo.parent or "", _own_uid(tx))


def _fits(tx: Transaction, row: TaskRow) -> bool:
    try:
        rows.check(tx, row)
    except Contradiction:
        return False
    return True


def _own_uid(tx: Transaction) -> re.Pattern[str]:
    return re.compile(rf"task-([0-9]{{1,15}})@{_origin(tx)}")


def _origin(tx: Transaction) -> str:
    found = tx.one("SELECT name FROM task_origin")
    assert found is not None  # noqa: S101 - the schema inserts it
    return str(found[0])
