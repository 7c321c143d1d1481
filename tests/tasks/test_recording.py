"""What was done to tasks, and what was refused, is on the record: once, whatever the door."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from mcp import Client

from deskhand import audit
from deskhand.app import Desk
from tests.home import Home
from tests.requirements import requirement
from tests.tasks.doubles import Recorder, backend_at
from tests.tasks.service import Service, ok, refused

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
SECRET = "the text of a description that nobody may keep"
TITLE = f"call ann@example.com {'x' * 60}"
Entries = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def entries(service: Service, user: str, home: Home) -> Entries:
    """This user's entries, oldest first, as `deskhand log` shows them."""

    def read() -> list[dict[str, Any]]:
        shown = home.command(
            "log", "--json", "--limit", "500", DESKHAND_DATABASE_URL=service.database
        ).stdout
        assert SECRET not in shown
        assert TITLE not in shown
        assert "ann@example.com" not in shown
        found = [json.loads(line) for line in shown.splitlines()]
        return [
            entry
            for entry in found
            if (entry.get("parameters") or {}).get("user_id") == user
        ]

    return read


def brief(found: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [
        (entry["actor"], entry["action_type"], entry["target"], entry["result"])
        for entry in found
    ]


@requirement("tasks:record")
async def test_each_change_over_rest_is_one_entry_and_so_is_each_refusal(
    rest: httpx2.AsyncClient, entries: Entries, home: Home, service: Service
) -> None:
    key = {"Idempotency-Key": "the-same-create", "X-Deskhand-Actor": "somebody"}
    body = {"title": TITLE, "description": SECRET}
    made = [(await rest.post("/tasks", json=body, headers=key)) for _ in range(2)]
    task = f"/tasks/{made[0].json()['id']}"
    name = f"task {made[0].json()['id']}"
    answers = [
        *made,
        await rest.put(task, json={"description": SECRET + "!", "priority": "High"}),
        await rest.put(task, json={"title": "new"}, headers={"If-Match": '"1"'}),
        await rest.put(task, json={"description": [SECRET]}),
        await rest.patch(task, json={"completed": True}),
        await rest.patch(task, json={"completed": False}),
        await rest.delete(task),
        await rest.delete(task),
        await rest.post(f"{task}/restore"),
        await rest.post(
            "/tasks/bulk", json={"task_ids": [made[0].json()["id"]], "action": "complete"}
        ),
        await rest.post("/tasks/undo"),
        await rest.post("/tasks/import", content=SECRET.encode()),
        await rest.get(task),
        await rest.get("/tasks"),
        await rest.get("/tasks/9007199254740991"),
    ]

    statuses = [answer.status_code for answer in answers]
    assert statuses == [
        201,
        201,
        200,
        412,
        422,
        200,
        200,
        204,
        404,
        200,
        200,
        200,
        422,
        200,
        200,
        404,
    ]
    assert [answer.headers.get("x-deskhand-recorded") for answer in answers] == [
        "1"
    ] * 13 + [None] * 3
    found = entries()
    assert brief(found) == [
        ("tasks_api", "create_task", name, "success"),
        ("tasks_api", "update_task", name, "success"),
        ("tasks_api", "update_task", name, "rejected"),
        ("tasks_api", "update_task", name, "rejected"),
        ("tasks_api", "mark_task_completed", name, "success"),
        ("tasks_api", "reopen_task", name, "success"),
        ("tasks_api", "delete_task", name, "success"),
        ("tasks_api", "delete_task", name, "rejected"),
        ("tasks_api", "restore_task", name, "success"),
        ("tasks_api", "complete_tasks", "tasks", "success"),
        ("tasks_api", "undo_task_change", "tasks", "success"),
        ("tasks_api", "import_tasks", "tasks", "rejected"),
    ]
    assert found[0]["parameters"]["subject"] == f"call a***@example.com {'x' * 28}"
    assert found[1]["parameters"]["fields"] == "['description', 'priority']"
    assert found[3]["error"] == "parse_error: the request is not valid: description"
    verified = home.command("log", "--verify", DESKHAND_DATABASE_URL=service.database)
    assert verified.returncode == 0


@requirement("tasks:record")
async def test_each_change_over_mcp_is_one_entry_though_a_backend_process_stands_behind_it(
    tasks: Client, entries: Entries
) -> None:
    made = await ok(tasks, "create_task", title=TITLE, description=SECRET)
    await ok(tasks, "mark_task_completed", task_id=made["id"])
    await ok(tasks, "delete_task", task_id=made["id"])
    await refused(tasks, "delete_task", task_id=made["id"])
    await ok(tasks, "list_tasks")

    name = f"task {made['id']}"
    assert brief(entries()) == [
        ("tasks_mcp", "create_task", name, "success"),
        ("tasks_mcp", "mark_task_completed", name, "success"),
        ("tasks_mcp", "delete_task", name, "success"),
        ("tasks_mcp", "delete_task", name, "rejected"),
    ]


@requirement("tasks:record")
async def test_a_body_that_nobody_can_read_is_a_refusal_on_the_record(
    rest: httpx2.AsyncClient, entries: Entries
) -> None:
    answer = await rest.post("/tasks", content=b"[" * 20_000, headers=JSON)
    other = await rest.put("/tasks/7", content=b"{", headers=JSON)

    assert (answer.status_code, other.status_code) == (400, 422)
    recorded = [each.headers.get("x-deskhand-recorded") for each in (answer, other)]
    assert recorded == ["1", "1"]
    assert brief(entries()) == [
        ("tasks_api", "create_task", "tasks", "rejected"),
        ("tasks_api", "update_task", "task 7", "rejected"),
    ]


@requirement("tasks:record")
async def test_in_one_process_a_call_is_recorded_once_also_when_it_never_reached_the_backend(
    embedded: Client, embedded_desk: Desk
) -> None:
    made = await ok(embedded, "create_task", title="one")
    await refused(embedded, "update_task", task_id=made["id"], title="", description=SECRET)
    await refused(embedded, "update_task", task_id=made["id"] + 1, title="two")

    assert brief(recorded(embedded_desk)) == [
        ("tasks_mcp", "create_task", f"task {made['id']}", "success"),
        ("tasks_mcp", "update_task", f"task {made['id']}", "rejected"),
        ("tasks_mcp", "update_task", f"task {made['id'] + 1}", "rejected"),
    ]


@requirement("tasks:record")
async def test_what_a_backend_does_that_keeps_no_record_is_on_the_desks_own(
    home: Home,
) -> None:
    moment = "2026-01-01T00:00:00Z"
    task = {
        "id": 5,
        "title": "t",
        "description": None,
        "completed": True,
        "priority": "Low",
        "due_date": None,
    }
    foreign = Recorder(
        200, task | {"created_at": moment, "updated_at": moment, "user_id": "ann"}
    )
    async with backend_at(home, foreign, user="ann") as client:
        await ok(client, "mark_task_completed", task_id=5)
        foreign.status, foreign.answer = 404, {"detail": "no"}
        await refused(client, "mark_task_completed", task_id=5)

    shown = [json.loads(line) for line in home.command("log", "--json").stdout.splitlines()]
    assert sorted(brief(shown)) == [
        ("tasks_mcp", "mark_task_completed", "task 5", "rejected"),
        ("tasks_mcp", "mark_task_completed", "task 5", "success"),
    ]


def recorded(desk: Desk) -> list[dict[str, Any]]:
    found = [entry.model_dump() for _, entry in desk.store.write_sync(audit.entries)]
    assert SECRET not in repr(found)
    return found[::-1]
