"""The tasks' tables: each function is a piece of work in one transaction, on either database.

Every statement on `task` names the user, so that another's task is simply not there. A task is the object that
goes over the wire, made once from its row.
"""

import base64
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from deskhand.errors import Changed, Contradiction, FieldProblem, NotFound
from deskhand.store import Row, Transaction
from deskhand.tasks import recurrence, vtodo
from deskhand.tasks.due import utc_text
from deskhand.tasks.models import LARGEST_ID, PRIORITIES, SUGGESTIONS, NewTask, PriorityLevel, TaskChanges, TaskFilter

Task = dict[str, Any]

_WIRE = (
    "id, title, description, completed, priority, due_date, created_at, updated_at, user_id, "
    "project, labels, parent_id, recurrence, next_id, version"
)
_ALL = f"{_WIRE}, deleted_at, series_start, previous"
_NAMES = tuple(_ALL.split(", "))
_FIXED = ("id", "created_at", "updated_at", "user_id", "version", "previous")
_MUTABLE = tuple(name for name in _NAMES if name not in _FIXED)
_INSERT = (
    f"INSERT INTO task ({', '.join(_MUTABLE)}, search, previous, user_id, created_at, updated_at, version) "
    f"VALUES ({'?, ' * len(_MUTABLE)}?, '{{}}', ?, ?, ?, 1) RETURNING {_ALL}"
)
_UPDATE = (
    f"UPDATE task SET {', '.join(f'{name} = ?' for name in _MUTABLE)}, search = ?, previous = ?, updated_at = ?, "
    f"version = version + 1 WHERE user_id = ? AND id = ? RETURNING {_ALL}"
)
_PRIORITY_NAMES = tuple(priority.value for priority in PRIORITIES)
"""Plain texts: written as JSON they cost half of what members of the enumeration do."""
_HERE = "user_id = ? AND deleted_at IS NULL"


class Key(NamedTuple):
    """The name under which a create may be repeated, and what was asked under it."""

    name: str
    digest: str


class Made(NamedTuple):
    task: Task
    fresh: bool


def create(tx: Transaction, user: str, new: NewTask, now: str, key: Key | None = None) -> Made:
    """A new task. Under a key that was used before nothing is made, and the first answer is given again."""
    if key is None:
        return Made(_create(tx, user, new, now), fresh=True)
    fresh = tx.execute(
        "INSERT INTO task_key (user_id, name, digest, answer, created_at) VALUES (?, ?, ?, '', ?) "
        "ON CONFLICT DO NOTHING",
        *(user, key.name, key.digest, now),
    )
    if not fresh:
        return Made(_repeated(tx, user, key), fresh=False)
    made = _create(tx, user, new, now)
    tx.execute("UPDATE task_key SET answer = ? WHERE user_id = ? AND name = ?", json.dumps(made), user, key.name)
    return Made(made, fresh=True)


def _create(tx: Transaction, user: str, new: NewTask, now: str) -> Task:
    fields = dict.fromkeys(_MUTABLE) | new.model_dump() | {"completed": False}
    if new.parent_id is not None:
        _hold(tx, user, [new.parent_id])
    if new.parent_id is not None or new.recurrence is not None:
        _check(tx, user, fields)
    return _wire(_insert(tx, user, fields, now))


def _insert(tx: Transaction, user: str, fields: Task, now: str, created: str | None = None) -> Task:
    row = tx.one(_INSERT, *_values(fields), user, created or now, now)
    assert row is not None  # noqa: S101 - INSERT … RETURNING returns
    return _state(row)


def _repeated(tx: Transaction, user: str, key: Key) -> Task:
    row = tx.one("SELECT digest, answer FROM task_key WHERE user_id = ? AND name = ?", user, key.name)
    if row is None or row[0] != key.digest:
        raise Contradiction(
            "this idempotency key was used for another task",
            fields=[FieldProblem("idempotency-key", "used before with another body", key.name, "Make a new key")],
        )
    answer: Task = json.loads(row[1])
    return answer


def forget_keys(tx: Transaction, before: str) -> int:
    return tx.execute("DELETE FROM task_key WHERE created_at < ?", before)


def get(tx: Transaction, user: str, task_id: int) -> Task:
    row = tx.one(f"SELECT {_WIRE} FROM task WHERE id = ? AND {_HERE}", task_id, user)
    if row is None:
        raise _missing(task_id)
    return _from_wire(row)


def page(tx: Transaction, user: str, wanted: TaskFilter) -> dict[str, Any]:
    """One page in a total order, how many there are in all, and where the next page begins."""
    conditions, values = _conditions(wanted)
    key = _SORT_KEYS[wanted.sort]
    direction, beyond = ("DESC", "<") if wanted.sort.startswith("-") else ("ASC", ">")
    where, bound = conditions, values
    if wanted.cursor is not None:
        where, bound = f"{conditions} AND ({key}, id) {beyond} (?, ?)", [*values, *_position(wanted)]
    counting, counted = _count(user, wanted, conditions, values)
    # The total rides along, so that page and total are of one state. A first page without tasks needs none.
    rows = tx.all(
        f"SELECT {_WIRE}, {key}, ({counting}) FROM task WHERE {_HERE}{where} "
        f"ORDER BY {key} {direction}, id {direction} LIMIT ?",
        *(*counted, user, *bound, wanted.limit + 1),
    )
    more = len(rows) > wanted.limit
    if more:
        rows.pop()
    total = rows[0][-1:] if rows else wanted.cursor and tx.one(counting, *counted)
    return {
        "tasks": [_from_wire(row) for row in rows],
        "total": int(total[0]) if total else 0,
        "next_cursor": _cursor(wanted.sort, rows[-1]) if more else None,
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
        ("search LIKE ? ESCAPE '!'", wanted.q and _like(_folded(wanted.q))),
    ]
    asked = [(condition, value) for condition, value in given if value is not None]
    return "".join(f" AND {condition}" for condition, _ in asked), [value for _, value in asked]


_KEPT = {
    None: "SELECT unfinished + finished FROM task_total WHERE user_id = ?",
    False: "SELECT unfinished FROM task_total WHERE user_id = ?",
    True: "SELECT finished FROM task_total WHERE user_id = ?",
}


def _count(user: str, wanted: TaskFilter, conditions: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
    if len(values) > (wanted.completed is not None):
        return f"SELECT count(*) FROM task WHERE {_HERE}{conditions}", [user, *values]
    return _KEPT[wanted.completed], [user]


def update(tx: Transaction, user: str, task_id: int, changes: TaskChanges, now: str, if_match: str | None) -> Task:
    """What is absent stays; null clears."""
    if isinstance(changes.parent_id, int):
        _hold(tx, user, [task_id, changes.parent_id])
    before = _locked(tx, user, task_id, if_match)
    after = before | changes.model_dump()
    _check(tx, user, after)
    return _wire(_save(tx, before, after, now))


def complete(tx: Transaction, user: str, task_id: int, completed: bool, now: str, if_match: str | None) -> Task:
    """Completing a repeated task makes the next one; doing it again changes nothing."""
    before = _locked(tx, user, task_id, if_match)
    after = before | {"completed": completed}
    if completed and not before["completed"] and before["next_id"] is None:
        after["next_id"] = _follow(tx, before, now)
    return _wire(_save(tx, before, after, now))


def delete(tx: Transaction, user: str, task_id: int, now: str, if_match: str | None) -> None:
    """Its subtasks go with it; `restore` brings all of them back."""
    _hold(tx, user, [task_id])
    before = _locked(tx, user, task_id, if_match)
    _save(tx, before, before | {"deleted_at": now}, now)
    for row in tx.all(f"SELECT {_ALL} FROM task WHERE {_HERE} AND parent_id = ? ORDER BY id", user, task_id):
        _save(tx, _state(row), _state(row) | {"deleted_at": now}, now)


def restore(tx: Transaction, user: str, task_id: int, now: str) -> Task:
    _hold(tx, user, [task_id])
    before = _locked(tx, user, task_id, None, deleted=True)
    when = before["deleted_at"]
    if when is None:
        return _wire(before)
    gone = tx.all(
        f"SELECT {_ALL} FROM task WHERE user_id = ? AND parent_id = ? AND deleted_at = ? ORDER BY id",
        *(user, task_id, when),
    )
    back = _save(tx, before, before | {"deleted_at": None}, now)
    for row in gone:
        _save(tx, _state(row), _state(row) | {"deleted_at": None}, now)
    return _wire(back)


def bulk(tx: Transaction, user: str, action: str, task_ids: Iterable[int], now: str) -> dict[int, bool]:
    """For each id whether there was such a task; all of it in one transaction."""
    done = {}
    ordered = sorted(set(task_ids))
    _hold(tx, user, ordered)
    for task_id in ordered:
        try:
            match action:
                case "complete" | "reopen":
                    complete(tx, user, task_id, action == "complete", now, None)
                case "delete":
                    delete(tx, user, task_id, now, None)
                case _:
                    restore(tx, user, task_id, now)
            done[task_id] = True
        except NotFound:
            done[task_id] = action == "delete" and _went(tx, user, task_id, now)
    return done


def _went(tx: Transaction, user: str, task_id: int, now: str) -> bool:
    """Whether it was deleted a moment ago, as a subtask of one before it in the list."""
    return tx.one("SELECT 1 FROM task WHERE user_id = ? AND id = ? AND deleted_at = ?", user, task_id, now) is not None


def undo(tx: Transaction, user: str, now: str) -> dict[str, Any]:
    """Take back the user's last change: every task that it touched is again as it was before."""
    rows = tx.all(
        f"SELECT {_ALL} FROM task WHERE user_id = ? AND updated_at = "
        f"(SELECT max(updated_at) FROM task WHERE user_id = ?) ORDER BY id{_lock(tx)}",
        *(user, user),
    )
    states = [_state(row) for row in rows]
    if not states or any(state["previous"] is None for state in states):
        raise NotFound("there is nothing to undo", hint="only the last change can be undone, once")
    restored, removed = [], []
    for state in states:
        previous = json.loads(state["previous"]) or {"deleted_at": now}
        after = _save(tx, state, state | previous, now, undoing=True)
        if after["deleted_at"] is None:
            restored.append(_wire(after))
        else:
            removed.append(after["id"])
    return {"restored": restored, "removed": removed}


def exported(tx: Transaction, user: str) -> list[tuple[str, Row]]:
    """All of the user's tasks as `unfolded` takes them, each under the UID by which the world knows it."""
    origin = _origin(tx)
    given: dict[int, str] = dict(tx.all("SELECT task_id, uid FROM task_uid WHERE user_id = ?", user))
    rows = tx.all(f"SELECT {_ALL} FROM task WHERE {_HERE} ORDER BY id", user)
    return [(given.get(row[0]) or f"task-{row[0]}@{origin}", row) for row in rows]


def unfolded(rows: Iterable[tuple[str, Row]]) -> list[tuple[str, Task]]:
    """The tasks with where their series began; for many of them that takes a moment, and no database."""
    return [(uid, _state(row)) for uid, row in rows]


def take(tx: Transaction, user: str, todos: Sequence[vtodo.Todo], now: str) -> int:
    """Make the tasks that are not here, bring back the deleted ones as the file has them; how many these were.

    What is here under the same UID stays as it is.
    """
    known = _claimed(tx, user, todos)
    ids = {uid: state["id"] for uid, state in known.items() if state is not None}
    taken = 0
    for todo in sorted(todos, key=lambda todo: todo.parent is not None):
        before = known[todo.uid]
        if before is not None and before["deleted_at"] is None:
            continue
        fields = (before or dict.fromkeys(_MUTABLE)) | todo.new.model_dump() | {"deleted_at": None}
        fields |= {"completed": todo.completed, "series_start": todo.series_start, "next_id": None}
        fields["parent_id"] = _parent(tx, user, todo, ids) if todo.parent is not None else None
        _check_todo(tx, user, todo, fields)
        if before is not None:
            _save(tx, before, fields, now)
        else:
            made = _insert(tx, user, fields, now, min(todo.created or now, now))
            ids[todo.uid] = made["id"]
            tx.execute("UPDATE task_uid SET task_id = ? WHERE user_id = ? AND uid = ?", made["id"], user, todo.uid)
        taken += 1
    return taken


def _claimed(tx: Transaction, user: str, todos: Iterable[vtodo.Todo]) -> dict[str, Task | None]:
    """The task of each UID; None for one that is now claimed for a new task.

    UIDs in one order for everybody: of two imports of one file the second waits, and finds what the first one made.
    Then all tasks, in theirs.
    """
    own = _own_uid(tx)
    ids = {uid: _claim(tx, user, uid, own) for uid in sorted(todo.uid for todo in todos)}
    outside = {todo.parent for todo in todos if todo.parent is not None} - ids.keys()
    held = [*ids.values(), *(_known(tx, user, uid, own) for uid in outside)]
    _hold(tx, user, [task_id for task_id in held if task_id is not None])
    return {uid: _any(tx, user, task_id) if task_id is not None else None for uid, task_id in ids.items()}


def _claim(tx: Transaction, user: str, uid: str, own: re.Pattern[str]) -> int | None:
    ours = own.fullmatch(uid)
    if ours and tx.one("SELECT 1 FROM task WHERE id = ? AND user_id = ?", int(ours[1]), user):
        return int(ours[1])
    claim = "INSERT INTO task_uid (user_id, uid) VALUES (?, ?) ON CONFLICT DO NOTHING"
    return None if tx.execute(claim, user, uid) else _known(tx, user, uid, own)


def _known(tx: Transaction, user: str, uid: str, own: re.Pattern[str]) -> int | None:
    """The id that this UID stands for, whether or not there is such a task."""
    row = tx.one("SELECT task_id FROM task_uid WHERE user_id = ? AND uid = ?", user, uid)
    ours = own.fullmatch(uid)
    if row is None:
        return int(ours[1]) if ours else None
    return None if row[0] is None else int(row[0])


def _any(tx: Transaction, user: str, task_id: int) -> Task | None:
    row = tx.one(f"SELECT {_ALL} FROM task WHERE id = ? AND user_id = ?{_lock(tx)}", task_id, user)
    return _state(row) if row else None


def _parent(tx: Transaction, user: str, todo: vtodo.Todo, ids: dict[str, int]) -> int:
    if todo.parent in ids:
        return ids[todo.parent]
    found = _known(tx, user, todo.parent or "", _own_uid(tx))
    if found is None:
        raise vtodo.broken(todo.parent_line, "the task that this one is a part of is neither in the file nor here")
    return found


def _check_todo(tx: Transaction, user: str, todo: vtodo.Todo, fields: Task) -> None:
    try:
        _check(tx, user, fields)
    except Contradiction as error:
        problem = error.details["fields"][0]
        raise vtodo.broken(todo.parent_line, problem["message"], problem["field"]) from error


def _own_uid(tx: Transaction) -> re.Pattern[str]:
    return re.compile(rf"task-([0-9]{{1,15}})@{_origin(tx)}")


def _origin(tx: Transaction) -> str:
    row = tx.one("SELECT name FROM task_origin")
    assert row is not None  # noqa: S101 - the schema inserts it
    return str(row[0])


def _follow(tx: Transaction, before: Task, now: str) -> int | None:
    if before["recurrence"] is None:
        return None
    rule = recurrence.parse(before["recurrence"])
    start, due = (datetime.fromisoformat(before[name]) for name in ("series_start", "due_date"))
    following = recurrence.following(rule, start, max(due, datetime.fromisoformat(now)))
    if following is None:
        return None
    fields = before | {"completed": False, "due_date": utc_text(following), "next_id": None}
    return int(_insert(tx, before["user_id"], fields, now)["id"])


def _check(tx: Transaction, user: str, after: Task) -> None:
    """What one field says about another."""
    if after["recurrence"] is None:
        after["series_start"] = None
    elif after["due_date"] is None:
        raise _refused("recurrence", "A repeated task needs a due date", after["recurrence"])
    else:
        after["series_start"] = after["series_start"] or after["due_date"]
    if (parent_id := after["parent_id"]) is None:
        return
    row = tx.one(f"SELECT parent_id FROM task WHERE id = ? AND {_HERE}", parent_id, user)
    if row is None:
        raise _refused("parent_id", "There is no such task", parent_id)
    if row[0] is not None or parent_id == after.get("id"):
        raise _refused("parent_id", "A subtask has no subtasks of its own", parent_id)
    if "id" in after and tx.one(f"SELECT 1 FROM task WHERE {_HERE} AND parent_id = ?", user, after["id"]):
        raise _refused("parent_id", "This task has subtasks of its own", parent_id)


def _refused(field: str, message: str, received: object) -> Contradiction:
    return Contradiction(
        "the task was not changed", fields=[FieldProblem(field, message, str(received), SUGGESTIONS[field])]
    )


def _locked(tx: Transaction, user: str, task_id: int, if_match: str | None, *, deleted: bool = False) -> Task:
    """The task as it stands until this transaction ends, if it is still the version the caller saw."""
    row = tx.one(f"SELECT {_ALL} FROM task WHERE id = ? AND user_id = ?{_lock(tx)}", task_id, user)
    state = _state(row) if row else None
    if state is None or (state["deleted_at"] is not None and not deleted):
        raise _missing(task_id)
    if if_match is not None and if_match.strip() != "*":
        tags = {tag.strip() for tag in if_match.split(",")}
        if etag(state) not in tags:
            raise Changed("the task was changed meanwhile", hint="read it again, then decide", version=state["version"])
    return state


def _hold(tx: Transaction, user: str, task_ids: list[int]) -> None:
    """Lock these tasks and their subtasks, in one order for everybody, before the first of them is changed.

    Locked one after the other, a subtask and its parent could each be held by somebody who waits for the other.
    """
    if tx.dialect == "postgresql":
        which = "id = ANY(?) OR parent_id = ANY(?)"
        tx.all(f"SELECT id FROM task WHERE user_id = ? AND ({which}) ORDER BY id FOR UPDATE", user, task_ids, task_ids)


def _lock(tx: Transaction) -> str:
    return " FOR UPDATE" if tx.dialect == "postgresql" else ""


def _save(tx: Transaction, before: Task, after: Task, now: str, *, undoing: bool = False) -> Task:
    changed = {name: before[name] for name in _MUTABLE if before[name] != after[name]}
    if not changed:
        return before
    previous = None if undoing else json.dumps(changed)
    row = tx.one(_UPDATE, *_values(after), previous, now, before["user_id"], before["id"])
    assert row is not None  # noqa: S101 - the row is locked
    return _state(row)


def etag(task: Task) -> str:
    return f'"{task["version"]}"'


def _missing(task_id: int) -> NotFound:
    return NotFound(f"there is no task {task_id}", hint="list_tasks shows the tasks there are", task_id=task_id)


def _values(fields: Task) -> list[Any]:
    """What the row keeps, in the order of the statements, with the text that searches look into."""
    labels = "".join(f"\n{label}" for label in fields["labels"])
    kept = fields | {"priority": _rank(fields["priority"]), "labels": f"{labels}\n" if labels else ""}
    return [*(kept[name] for name in _MUTABLE), _folded(f"{fields['title']}\n{fields['description'] or ''}")]


def _from_wire(row: Row) -> Task:
    task = dict(zip(_NAMES, row[:15], strict=False))
    task["completed"] = bool(task["completed"])
    task["priority"] = _PRIORITY_NAMES[task["priority"]]
    task["labels"] = task["labels"].split("\n")[1:-1]
    return task


def _state(row: Row) -> Task:
    return _from_wire(row) | dict(zip(_NAMES[15:], row[15:], strict=True))


def _wire(state: Task) -> Task:
    return {name: state[name] for name in _NAMES[:15]}


def _rank(priority: PriorityLevel) -> int:
    return PRIORITIES.index(priority)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _like(text: str) -> str:
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return f"%{text}%"


def _cursor(sort: str, row: Row) -> str:
    return base64.urlsafe_b64encode(json.dumps([sort, row[-2], row[0]]).encode()).decode()


def _position(wanted: TaskFilter) -> tuple[Any, int]:
    try:
        found = json.loads(base64.b64decode(wanted.cursor or "", altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        found = None
    place: tuple[Any, int] = (None, 0)
    match found:
        case [wanted.sort, int(key), int(task_id)] if "priority" in wanted.sort and 0 <= key < len(PRIORITIES):
            place = key, task_id
        case [wanted.sort, str(key), int(task_id)] if "priority" not in wanted.sort and key.isprintable():
            place = key, task_id
    if not 0 < place[1] <= LARGEST_ID:
        raise Contradiction(
            "this cursor is not one of ours",
            fields=[FieldProblem("cursor", "not a cursor for this sort", wanted.cursor, SUGGESTIONS["cursor"])],
        )
    return place
