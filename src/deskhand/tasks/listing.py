"""One page of a list that a backend gave whole: filtered, sorted and cut as our own backend does it."""

import operator
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from deskhand.errors import BackendFailed, InvalidInput
from deskhand.tasks import rows
from deskhand.tasks.due import utc_text
from deskhand.tasks.models import PRIORITIES, Task, TaskFilter, problems

Keyed = tuple[Any, int, Task]
"""A task behind what it is sorted by."""


def page_of(found: list[Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The page of these tasks that was asked for."""
    try:
        wanted = TaskFilter.model_validate(asked)
    except ValidationError as error:
        raise InvalidInput(
            "Input validation failed", fields=problems(error.errors())
        ) from error
    try:
        matching = [each for each in _read(found, wanted.sort) if _matches(each[2], wanted)]
    except ValueError as error:
        raise BackendFailed(
            "Backend service error: its list holds what is no task"
        ) from error
    backwards = wanted.sort.startswith("-")
    ordered = sorted(matching, key=_place, reverse=backwards)
    if wanted.cursor is not None:
        last = rows.read_cursor(wanted)
        beyond = operator.lt if backwards else operator.gt
        ordered = [each for each in ordered if beyond(_place(each), last)]
    page = ordered[: wanted.limit]
    next_cursor = None
    if len(ordered) > len(page):
        key, task_id, _ = page[-1]
        next_cursor = rows.write_cursor(wanted.sort, key, task_id)
    tasks = [task.model_dump(mode="json") for _, _, task in page]
    return {"tasks": tasks, "total": len(matching), "next_cursor": next_cursor}


def _read(found: list[Any], sort: str) -> list[Keyed]:
    tasks = [Task.model_validate(each) for each in found]
    return [(_sort_key(task, sort), task.id, task) for task in tasks]


def _place(keyed: Keyed) -> tuple[Any, int]:
    return keyed[:2]


def _sort_key(task: Task, sort: str) -> Any:
    match sort.removeprefix("-"):
        case "priority":
            return PRIORITIES.index(task.priority)
        case "due_date" if task.due_date is None:
            return "" if sort.startswith("-") else "~"
        case name:
            return _utc(getattr(task, name))


def _matches(task: Task, wanted: TaskFilter) -> bool:
    due = "" if task.due_date is None else _utc(task.due_date)
    text = rows.fold(f"{task.title}\n{task.description or ''}")
    return all(
        (
            wanted.completed in (None, task.completed),
            wanted.priority in (None, task.priority),
            wanted.due_before is None or "" < due < wanted.due_before,
            wanted.due_after is None or due > wanted.due_after,
            wanted.q is None or rows.fold(wanted.q) in text,
            wanted.project in (None, task.project),
            wanted.label is None or wanted.label in task.labels,
            wanted.parent_id in (None, task.parent_id),
        )
    )


def _utc(moment: str) -> str:
    """In the one form that sorts as time does; a time without an offset is UTC, as such backends keep it."""
    read = datetime.fromisoformat(moment)
    if read.tzinfo is None:
        read = read.replace(tzinfo=UTC)
    return utc_text(read)
