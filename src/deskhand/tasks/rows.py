"""The tasks' tables: each function is a piece of work in one transaction, on either database.

Every statement on `task` names the user, so that another's task is simply not there. What is read goes over the
wire as the object that `_wire` makes of a row, what is changed is a TaskRow until it is written again.
"""

import base64
import json
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo
from typing import Any, NamedTuple

from deskhand.errors import Changed, Contradiction, FieldProblem, NotFound
from deskhand.store import Row, Transaction
from deskhand.tasks import recurrence
from deskhand.tasks.due import utc_text
from deskhand.tasks.models import (
    LARGEST_ID,
    PRIORITIES,
    SUGGESTIONS,
    NewTask,
    TaskChanges,
    TaskFilter,
)

WireTask = dict[str, Any]
"""A task as JSON; making a model of each would double the time of a list."""


class TaskRow(NamedTuple):
    """A task with all that its row keeps, in the order of the columns."""

    id: int
    title: str
    description: str | None
    completed: bool
    priority: str
    due_date: str | None
    created_at: str
    updated_at: str
    user_id: str
    project: str | None
    labels: list[str]
    parent_id: int | None
    recurrence: str | None
    next_id: int | None
    version: int
    created_by: str | None = None
    """Who made it, and below who changed it last, in a person's words; None where that was never written down."""
    changed_by: str | None = None
    deleted_at: str | None = None
    series_start: str | None = None
    completed_at: str | None = None
    previous: str | None = None
    """What the last change changed, as JSON; None where that was taken back already."""

    def wire(self) -> WireTask:
        return dict(zip(_WIRE_NAMES, self, strict=False))


class Now(NamedTuple):
    """When tasks are made or changed, and by whom, in a person's words."""

    at: str
    by: str | None = None


class Key(NamedTuple):
    """The name under which a create may be repeated, and what was asked under it."""

    name: str
    digest: str


class Created(NamedTuple):
    task: WireTask
    fresh: bool
    """Whether it was made now, and not before under the same key."""


_NOT_ON_THE_WIRE = ("deleted_at", "series_start", "completed_at", "previous")
_WIRE_NAMES = tuple(name for name in TaskRow._fields if name not in _NOT_ON_THE_WIRE)
_FIXED = (
    *("id", "created_at", "updated_at", "user_id", "version"),
    *("created_by", "changed_by", "previous"),
)
_MUTABLE = tuple(name for name in TaskRow._fields if name not in _FIXED)
_WIRE = ", ".join(_WIRE_NAMES)
_ALL = ", ".join(TaskRow._fields)
_INSERT = (
    f"INSERT INTO task ({', '.join(_MUTABLE)}, search, previous, user_id, created_at, updated_at, created_by, "
    f"changed_by, version) VALUES ({'?, ' * len(_MUTABLE)}?, '{{}}', ?, ?, ?, ?, ?, 1) RETURNING {_ALL}"
)
_UPDATE = (
    f"UPDATE task SET {', '.join(f'{name} = ?' for name in _MUTABLE)}, search = ?, previous = ?, updated_at = ?, "
    f"changed_by = ?, version = version + 1 WHERE user_id = ? AND id = ? RETURNING {_ALL}"
)
_HERE = "user_id = ? AND deleted_at IS NULL"
_PRIORITY_NAMES = tuple(priority.value for priority in PRIORITIES)
"""Plain texts: written as JSON they cost half of what members of the enumeration do."""


# From the database and back.


def _wire(  # noqa: PLR0917 - a row is positions
    id: int,  # noqa: A002 - the columns' own names
    title: str,
    description: str | None,
    completed: int,
    priority: int,
    due_date: str | None,
    created_at: str,
    updated_at: str,
    user_id: str,
    project: str | None,
    labels: str,
    parent_id: int | None,
    recurrence: str | None,
    next_id: int | None,
    version: int,
    created_by: str | None,
    changed_by: str | None,
    *_: object,
) -> WireTask:
    """The task of the first columns; others may follow. Each name is written out: made of two sequences, the
    objects of a list take three times as long."""
    return {
        "id": id,
        "title": title,
        "description": description,
        "completed": bool(completed),
        "priority": _PRIORITY_NAMES[priority],
        "due_date": due_date,
        "created_at": created_at,
        "updated_at": updated_at,
        "user_id": user_id,
        "project": project,
        "labels": labels.split("\n")[1:-1],
        "parent_id": parent_id,
        "recurrence": recurrence,
        "next_id": next_id,
        "version": version,
        "created_by": created_by,
        "changed_by": changed_by,
    }


def read_row(columns: Row) -> TaskRow:
    wire = _wire(*columns)
    return TaskRow(*wire.values(), *columns[len(wire) :])


def _columns(row: TaskRow) -> list[Any]:
    """What the database keeps, in the order of the statements, with the text that searches look into."""
    labels = "".join(f"\n{label}" for label in row.labels)
    kept = row._asdict() | {
        "priority": _rank(row.priority),
        "labels": labels and f"{labels}\n",
    }
    return [
        *(kept[name] for name in _MUTABLE),
        fold(f"{row.title}\n{row.description or ''}"),
    ]


def _rank(priority: str) -> int:
    return _PRIORITY_NAMES.index(priority)


def fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def new_row(user: str, new: NewTask, now: Now) -> TaskRow:
    """A task that is not in the database yet and has no id."""
    given = new.model_dump()
    return TaskRow(
        id=0,
        completed=False,
        created_at=now.at,
        updated_at=now.at,
        created_by=now.by,
        user_id=user,
        next_id=None,
        version=1,
        **given,
    )


def insert(tx: Transaction, row: TaskRow, now: Now) -> TaskRow:
    made = (row.user_id, row.created_at, now.at, row.created_by, now.by)
    columns = tx.one(_INSERT, *_columns(row), *made)
    assert columns is not None  # noqa: S101 - INSERT … RETURNING returns
    return read_row(columns)


def save(
    tx: Transaction, before: TaskRow, after: TaskRow, now: Now, *, undoing: bool = False
) -> TaskRow:
    """Write what differs, and keep what it was before for `undo`."""
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in _MUTABLE]
    changed = {name: old for name, old, new in pairs if old != new}
    if not changed:
        return before
    previous = None if undoing else json.dumps(changed)
    written = (previous, now.at, now.by, before.user_id, before.id)
    columns = tx.one(_UPDATE, *_columns(after), *written)
    assert columns is not None  # noqa: S101 - the row is locked
    return read_row(columns)


# Making tasks.


def create(
    tx: Transaction, user: str, new: NewTask, now: Now, key: Key | None = None
) -> Created:
    """A new task. Under a key that was used before nothing is made, and the first answer is given again."""
    if key is None:
        return Created(_create(tx, user, new, now), fresh=True)
    fresh = tx.execute(
        "INSERT INTO task_key (user_id, name, digest, answer, created_at) VALUES (?, ?, ?, '', ?) "
        "ON CONFLICT DO NOTHING",
        *(user, key.name, key.digest, now.at),
    )
    if not fresh:
        return Created(_first_answer(tx, user, key), fresh=False)
    made = _create(tx, user, new, now)
    tx.execute(
        "UPDATE task_key SET answer = ? WHERE user_id = ? AND name = ?",
        json.dumps(made),
        user,
        key.name,
    )
    return Created(made, fresh=True)


def _create(tx: Transaction, user: str, new: NewTask, now: Now) -> WireTask:
    row = new_row(user, new, now)
    if new.parent_id is not None:
        lock_in_order(tx, user, [new.parent_id])
    if new.parent_id is not None or new.recurrence is not None:
        row = check(tx, row)
    return insert(tx, row, now).wire()


def _first_answer(tx: Transaction, user: str, key: Key) -> WireTask:
    found = tx.one(
        "SELECT digest, answer FROM task_key WHERE user_id = ? AND name = ?", user, key.name
    )
    if found is None or found[0] != key.digest:
        raise Contradiction(
            "this idempotency key was used for another task",
            fields=[
                FieldProblem(
                    "idempotency-key",
                    "used before with another body",
                    key.name,
                    "Make a new key",
                )
            ],
        )
    answer: WireTask = json.loads(found[1])
    return answer


def forget_keys(tx: Transaction, before: str) -> int:
    return tx.execute("DELETE FROM task_key WHERE created_at < ?", before)


# Reading tasks.


def get(tx: Transaction, user: str, task_id: int) -> WireTask:
    columns = tx.one(f"SELECT {_WIRE} FROM task WHERE id = ? AND {_HERE}", task_id, user)
    if columns is None:
        raise _missing(task_id)
    return _wire(*columns)


def read_all(tx: Transaction, user: str) -> list[Row]:
    """All of the user's tasks as `read_row` takes them."""
    return tx.all(f"SELECT {_ALL} FROM task WHERE {_HERE} ORDER BY id", user)


def page(tx: Transaction, user: str, wanted: TaskFilter) -> dict[str, Any]:
    """One page in a total order, how many tasks there are in all, and where the next page begins."""
    conditions, values = _conditions(wanted)
    counting, counted = _count(user, wanted, conditions, values)
    key = _SORT_KEYS[wanted.sort]
    direction, beyond = ("ASC", ">")
    if wanted.sort.startswith("-"):
        direction, beyond = ("DESC", "<")
    if wanted.cursor is not None:
        conditions += f" AND ({key}, id) {beyond} (?, ?)"
        values += read_cursor(wanted)
    # The total rides along, so that page and total are of one state. A first page without tasks needs none.
    rows = tx.all(
        f"SELECT {_WIRE}, {key}, ({counting}) FROM task WHERE {_HERE}{conditions} "
        f"ORDER BY {key} {direction}, id {direction} LIMIT ?",
        *(*counted, user, *values, wanted.limit + 1),
    )
    total = 0
    next_cursor = None
    if len(rows) > wanted.limit:
        rows.pop()
        task_id, *_, last_key, _ = rows[-1]
        next_cursor = write_cursor(wanted.sort, last_key, task_id)
    if rows:
        *_, total = rows[0]
    elif wanted.cursor:
        (total,) = tx.one(counting, *counted) or (0,)
    return {
        "tasks": [_wire(*columns) for columns in rows],
        "total": int(total),
        "next_cursor": next_cursor,
    }


# A task without a due date comes last either way.
_SORT_KEYS = {
    "created_at": "created_at",
    "-created_at": "created_at",
    "due_date": "COALESCE(due_date, '~')",
    "-due_date": "COALESCE(due_date, '')",
    "priority": "priority",
    "-priority": "priority",
}


def _conditions(wanted: TaskFilter) -> tuple[str, list[Any]]:
    given: list[tuple[str, Any]] = [
        ("completed = ?", wanted.completed),
        ("priority = ?", wanted.priority and _rank(wanted.priority)),
        ("due_date < ?", wanted.due_before),
        ("due_date > ?", wanted.due_after),
        ("project = ?", wanted.project),
        ("parent_id = ?", wanted.parent_id),
        ("replace(labels, ?, '') <> labels", wanted.label and f"\n{wanted.label}\n"),
        ("search LIKE ? ESCAPE '!'", wanted.q and _like(fold(wanted.q))),
    ]
    asked = [(condition, value) for condition, value in given if value is not None]
    return "".join(f" AND {condition}" for condition, _ in asked), [
        value for _, value in asked
    ]


_KEPT_COUNTS = {
    None: "SELECT unfinished + finished FROM task_total WHERE user_id = ?",
    False: "SELECT unfinished FROM task_total WHERE user_id = ?",
    True: "SELECT finished FROM task_total WHERE user_id = ?",
}


def _count(
    user: str, wanted: TaskFilter, conditions: str, values: Sequence[Any]
) -> tuple[str, list[Any]]:
    """The statement that counts what the filter takes; without other conditions the count is kept in a table."""
    if len(values) > (wanted.completed is not None):
        return f"SELECT count(*) FROM task WHERE {_HERE}{conditions}", [user, *values]
    return _KEPT_COUNTS[wanted.completed], [user]


def _like(text: str) -> str:
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return f"%{text}%"


def write_cursor(sort: str, key: Any, task_id: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([sort, key, task_id]).encode()).decode()


def read_cursor(wanted: TaskFilter) -> tuple[Any, int]:
    """The sort key and the id behind which the next page begins."""
    try:
        found = json.loads(
            base64.b64decode(wanted.cursor or "", altchars=b"-_", validate=True)
        )
    except (ValueError, RecursionError):
        found = None
    match found:
        case [wanted.sort, key, int(task_id)] if 0 < task_id <= LARGEST_ID and _is_sort_key(
            wanted.sort, key
        ):
            return key, task_id
    raise Contradiction(
        "this cursor is not one of ours",
        fields=[
            FieldProblem(
                "cursor", "not a cursor for this sort", wanted.cursor, SUGGESTIONS["cursor"]
            )
        ],
    )


def _is_sort_key(sort: str, key: Any) -> bool:
    if "priority" in sort:
        return isinstance(key, int) and 0 <= key < len(PRIORITIES)
    return isinstance(key, str) and key.isprintable()


# Changing tasks.


def update(
    tx: Transaction,
    user: str,
    task_id: int,
    changes: TaskChanges,
    now: Now,
    if_match: str | None,
) -> WireTask:
    """What is absent stays; null clears. A due date alone moves one task of a series, with
    the rule all that follow."""
    if isinstance(changes.parent_id, int):
        lock_in_order(tx, user, [task_id, changes.parent_id])
    before = _lock_row(tx, user, task_id, if_match)
    after = before._replace(**changes.model_dump())
    if changes.model_fields_set >= {"due_date", "recurrence"}:
        after = after._replace(series_start=None)
    return save(tx, before, check(tx, after), now).wire()


def complete(
    tx: Transaction,
    user: str,
    task_id: int,
    completed: bool,
    now: Now,
    if_match: str | None,
    zone: tzinfo,
) -> WireTask:
    """Completing a repeated task makes the next one, in the person's zone; doing it again changes nothing."""
    before = _lock_row(tx, user, task_id, if_match)
    after = before
    if completed != before.completed:
        after = before._replace(
            completed=completed, completed_at=now.at if completed else None
        )
    if completed and not before.completed and before.next_id is None:
        after = after._replace(next_id=_create_following(tx, before, now, zone))
    return save(tx, before, after, now).wire()


def _create_following(
    tx: Transaction, before: TaskRow, now: Now, zone: tzinfo
) -> int | None:
    """The next task of a series; None where there is none."""
    if before.recurrence is None or before.series_start is None or before.due_date is None:
        return None
    rule = recurrence.parse(before.recurrence)
    after = max(datetime.fromisoformat(before.due_date), datetime.fromisoformat(now.at))
    following = recurrence.following(
        rule, datetime.fromisoformat(before.series_start), after, zone
    )
    if following is None:
        return None
    row = before._replace(
        completed=False,
        completed_at=None,
        due_date=utc_text(following),
        next_id=None,
        created_at=now.at,
    )
    return insert(tx, row, now).id


def delete(
    tx: Transaction, user: str, task_id: int, now: Now, if_match: str | None
) -> None:
    """Its subtasks go with it; `restore` brings all of them back."""
    lock_in_order(tx, user, [task_id])
    before = _lock_row(tx, user, task_id, if_match)
    parts = tx.all(
        f"SELECT {_ALL} FROM task WHERE {_HERE} AND parent_id = ? ORDER BY id",
        user,
        task_id,
    )
    for row in (before, *map(read_row, parts)):
        save(tx, row, row._replace(deleted_at=now.at), now)


def restore(tx: Transaction, user: str, task_id: int, now: Now) -> WireTask:
    lock_in_order(tx, user, [task_id])
    before = _lock_row(tx, user, task_id, None, deleted=True)
    if before.deleted_at is None:
        return before.wire()
    parts = tx.all(
        f"SELECT {_ALL} FROM task WHERE user_id = ? AND parent_id = ? AND deleted_at = ? ORDER BY id",
        *(user, task_id, before.deleted_at),
    )
    restored, *_ = [
        save(tx, row, row._replace(deleted_at=None), now)
        for row in (before, *map(read_row, parts))
    ]
    return restored.wire()


def bulk(
    tx: Transaction,
    user: str,
    action: str,
    task_ids: Iterable[int],
    now: Now,
    zone: tzinfo,
) -> dict[int, bool]:
    """For each id whether there was such a task; all of it in one transaction."""
    done = {}
    ordered = sorted(set(task_ids))
    lock_in_order(tx, user, ordered)
    for task_id in ordered:
        try:
            match action:
                case "complete" | "reopen":
                    complete(tx, user, task_id, action == "complete", now, None, zone)
                case "delete":
                    delete(tx, user, task_id, now, None)
                case _:
                    restore(tx, user, task_id, now)
            done[task_id] = True
        except NotFound:
            done[task_id] = action == "delete" and _was_deleted_at(
                tx, user, task_id, now.at
            )
    return done


def _was_deleted_at(tx: Transaction, user: str, task_id: int, now: str) -> bool:
    """Whether it went a moment ago, as a subtask of one before it in the list."""
    return (
        tx.one(
            "SELECT 1 FROM task WHERE user_id = ? AND id = ? AND deleted_at = ?",
            user,
            task_id,
            now,
        )
        is not None
    )


def undo(tx: Transaction, user: str, now: Now) -> dict[str, Any]:
    """Take back the user's last change: every task that it touched is again as it was before."""
    found = tx.all(
        f"SELECT {_ALL} FROM task WHERE user_id = ? AND updated_at = "
        f"(SELECT max(updated_at) FROM task WHERE user_id = ?) ORDER BY id{_for_update(tx)}",
        *(user, user),
    )
    rows = [read_row(columns) for columns in found]
    if not rows or any(row.previous is None for row in rows):
        raise NotFound(
            "there is nothing to undo", hint="only the last change can be undone, once"
        )
    restored = []
    removed = []
    for row in rows:
        # What was made by that change was nothing before it.
        previous = json.loads(row.previous or "{}") or {"deleted_at": now.at}
        after = save(tx, row, row._replace(**previous), now, undoing=True)
        if after.deleted_at is None:
            restored.append(after.wire())
        else:
            removed.append(after.id)
    return {"restored": restored, "removed": removed}


def check(tx: Transaction, row: TaskRow) -> TaskRow:
    """The row, if what one field says fits the others; with where its series began."""
    if row.recurrence is None:
        row = row._replace(series_start=None)
    elif row.due_date is None:
        raise _contradiction(
            "recurrence", "A repeated task needs a due date", row.recurrence
        )
    else:
        row = row._replace(series_start=row.series_start or row.due_date)
    if row.parent_id is not None:
        _check_parent(tx, row, row.parent_id)
    return row


def _check_parent(tx: Transaction, row: TaskRow, parent_id: int) -> None:
    parent = tx.one(
        f"SELECT parent_id FROM task WHERE id = ? AND {_HERE}", parent_id, row.user_id
    )
    if parent is None:
        raise _contradiction("parent_id", "There is no such task", parent_id)
    if parent[0] is not None or parent_id == row.id:
        raise _contradiction("parent_id", "A subtask has no subtasks of its own", parent_id)
    if row.id and tx.one(
        f"SELECT 1 FROM task WHERE {_HERE} AND parent_id = ?", row.user_id, row.id
    ):
        raise _contradiction("parent_id", "This task has subtasks of its own", parent_id)


def _contradiction(field: str, message: str, received: object) -> Contradiction:
    problem = FieldProblem(field, message, str(received), SUGGESTIONS[field])
    return Contradiction("the task was not changed", fields=[problem])


# Locking.


def _lock_row(
    tx: Transaction, user: str, task_id: int, if_match: str | None, *, deleted: bool = False
) -> TaskRow:
    """The task as it stands until this transaction ends, if it is still the version the caller saw."""
    row = lock_any(tx, user, task_id)
    if row is None or (row.deleted_at is not None and not deleted):
        raise _missing(task_id)
    if if_match is not None and if_match.strip() != "*":
        tags = {tag.strip() for tag in if_match.split(",")}
        if etag(row.version) not in tags:
            raise Changed(
                "the task was changed meanwhile",
                hint="read it again, then decide",
                version=row.version,
            )
    return row


def lock_any(tx: Transaction, user: str, task_id: int) -> TaskRow | None:
    """The task until this transaction ends, also a deleted one."""
    columns = tx.one(
        f"SELECT {_ALL} FROM task WHERE id = ? AND user_id = ?{_for_update(tx)}",
        task_id,
        user,
    )
    return read_row(columns) if columns else None


def lock_in_order(tx: Transaction, user: str, task_ids: list[int]) -> None:
    """Lock these tasks and their subtasks, in one order for everybody, before the first of them is changed.

    Locked one after the other, a subtask and its parent could each be held by somebody who waits for the other.
    """
    if tx.dialect == "postgresql":
        which = "id = ANY(?) OR parent_id = ANY(?)"
        tx.all(
            f"SELECT id FROM task WHERE user_id = ? AND ({which}) ORDER BY id FOR UPDATE",
            user,
            task_ids,
            task_ids,
        )


def _for_update(tx: Transaction) -> str:
    return " FOR UPDATE" if tx.dialect == "postgresql" else ""


def etag(version: int) -> str:
    return f'"{version}"'


def _missing(task_id: int) -> NotFound:
    return NotFound(
        f"there is no task {task_id}",
        hint="list_tasks shows the tasks there are",
        task_id=task_id,
    )
