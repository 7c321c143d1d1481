"""Every field of every tool, with everything that is wrong: named, and never sent to the backend."""

from typing import Any

import pytest

from tests.home import Home
from tests.requirements import requirement
from tests.tasks.doubles import Recorder, backend_at
from tests.tasks.service import fields, refused

pytestmark = pytest.mark.anyio

IDS = [
    0,
    -1,
    2**53,
    2**63,
    2**70,
    -(2**70),
    "0",
    "-1",
    "1.5",
    "1" * 17,
    "١",
    "x",
    1.5,
    True,
    None,
    [],
    {},
]
TEXTS = [5, 1.5, True, [], {}, "a\x00b", "\ud800"]
TITLES = [*TEXTS, "", "   ", "\u2003", "x" * 201]
DATES = [
    "tomorrow",
    "",
    "2026-12-20",
    "2026-12-20T10:00:00",
    "2026-02-30T10:00:00Z",
    "2026-12-20T25:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "2026-W01-1T10:00:00Z",
    "10000-01-01T00:00:00Z",
    "٢٠٢٦-12-20T10:00:00Z",
    1766224800,
    2**70,
    True,
    [],
    {},
    "2026-12-20T10:00:00Z\x00",
]
PRIORITIES = ["low", "HIGH", "", "None", 1, True, [], {}, "\ud800"]

TITLE: dict[str, Any] = {"title": "fine"}
TASK: dict[str, Any] = {"task_id": 1}
CASES: dict[tuple[str, str], tuple[dict[str, Any], list[Any]]] = {
    ("create_task", "title"): ({}, [*TITLES, None]),
    ("create_task", "description"): (TITLE, [*TEXTS, "x" * 10_001]),
    ("create_task", "priority"): (TITLE, PRIORITIES),
    ("create_task", "due_date"): (TITLE, DATES),
    ("create_task", "completed"): (TITLE, [True]),
    ("create_task", "user_id"): (TITLE, ["bob"]),
    ("update_task", "task_id"): (TITLE, IDS),
    ("update_task", "title"): (TASK, TITLES),
    ("update_task", "description"): (TASK, [*TEXTS, "x" * 10_001]),
    ("update_task", "priority"): (TASK, PRIORITIES),
    ("update_task", "due_date"): (TASK, DATES),
    ("update_task", "completed"): (TASK, [True]),
    ("delete_task", "task_id"): ({}, IDS),
    ("delete_task", "confirm"): (TASK, [True]),
    ("mark_task_completed", "task_id"): ({}, IDS),
    ("mark_task_completed", "completed"): (TASK, [False]),
    ("list_tasks", "completed"): ({}, ["yes", 1, "true", [], {}]),
    ("list_tasks", "priority"): ({}, PRIORITIES),
    ("list_tasks", "due_before"): ({}, DATES),
    ("list_tasks", "due_after"): ({}, DATES),
    ("list_tasks", "q"): ({}, ["", "  ", "a\x00b", "\ud800", "x" * 201, 5, [], {}]),
    ("list_tasks", "sort"): ({}, ["title", "", "created_at; DROP TABLE task", 1]),
    ("list_tasks", "limit"): ({}, [0, -1, 201, 2**70, "201", 1.5, True]),
    ("list_tasks", "cursor"): ({}, ["x" * 401, 5, True, [], {}]),
    ("list_tasks", "user_id"): ({}, ["bob"]),
}


@requirement("tasks:validation")
@pytest.mark.parametrize(("tool", "field"), CASES)
async def test_a_bad_value_is_named_and_never_reaches_the_backend(
    home: Home, tool: str, field: str
) -> None:
    backend = Recorder(500, {})
    rest, values = CASES[tool, field]
    async with backend_at(home, backend, user="ann") as client:
        for value in values:
            error = await refused(client, tool, **rest | {field: value})
            assert error["error_type"] == "validation_error", (value, error)
            assert fields(error) == {field}, (value, error)
            assert all(
                each["message"] and each["suggestion"]
                for each in error["details"]["fields"]
            ), (value, error)

    assert backend.requests == []


@requirement("tasks:validation")
@pytest.mark.parametrize(
    "tool", ["create_task", "update_task", "delete_task", "mark_task_completed"]
)
async def test_what_is_missing_is_named(home: Home, tool: str) -> None:
    backend = Recorder(500, {})
    async with backend_at(home, backend, user="ann") as client:
        error = await refused(client, tool)

    assert fields(error) == {"title" if tool == "create_task" else "task_id"}
    assert backend.requests == []


@requirement("tasks:validation")
async def test_a_title_of_blanks_is_shown_as_it_came(home: Home) -> None:
    async with backend_at(home, Recorder(500, {}), user="ann") as client:
        error = await refused(client, "create_task", title="  ")

    (problem,) = error["details"]["fields"]
    assert (problem["message"], problem["received_value"]) == (
        "Title cannot be empty",
        "  ",
    )


@requirement("tasks:validation")
async def test_an_id_may_be_written_as_text(home: Home) -> None:
    backend = Recorder(204, None)
    async with backend_at(home, backend, user="ann") as client:
        await client.call_tool("delete_task", {"task_id": "12"})

    assert [request["path"] for request in backend.requests] == ["/tasks/12"]


@requirement("tasks:validation")
async def test_a_null_that_is_refused_is_not_called_a_text(home: Home) -> None:
    async with backend_at(home, Recorder(500, {}), user="ann") as client:
        error = await refused(client, "create_task", title=None)

    (problem,) = error["details"]["fields"]
    assert (problem["field"], problem["received_value"]) == ("title", None)
