"""The contract, line by line: an MCP client over HTTP, a server process, a backend process, each database."""

import json
from datetime import UTC, datetime
from typing import Any

import anyio.lowlevel
import httpx2
import pytest
from dirty_equals import IsInt, IsPartialDict, IsStr
from mcp import Client

from deskhand.tasks.models import TaskResponse
from tests.home import TOKEN, Home
from tests.requirements import requirement
from tests.tasks.service import Service, fields, ok, refused
from tests.transports import http_client, http_server
from tests.warm import warm_python

pytestmark = pytest.mark.anyio

MOMENT = IsStr(regex=r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@requirement("tasks:contract")
@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_task_goes_its_way_from_created_to_deleted(
    service: Service, user: str, era: str
) -> None:
    async with service.client(user, era=era) as client:
        made = await ok(
            client, "create_task", title="  Buy milk ", due_date="2026-12-20T10:00:00+05:00"
        )
        assert made == {
            "id": IsInt(gt=0),
            "title": "Buy milk",
            "description": None,
            "completed": False,
            "priority": "Medium",
            "due_date": "2026-12-20T05:00:00.000000Z",
            "created_at": MOMENT,
            "updated_at": MOMENT,
            "user_id": user,
        }
        assert set(made) == set(TaskResponse.model_fields)
        assert await ok(client, "list_tasks") == {
            "tasks": [made],
            "total": 1,
            "next_cursor": None,
        }

        changed = await ok(
            client,
            "update_task",
            task_id=made["id"],
            title="Buy oat milk",
            priority="Urgent",
        )
        assert changed == made | {
            "title": "Buy oat milk",
            "priority": "Urgent",
            "updated_at": MOMENT,
        }
        done = await ok(client, "mark_task_completed", task_id=made["id"])
        assert done == changed | {"completed": True, "updated_at": MOMENT}
        assert await ok(client, "mark_task_completed", task_id=made["id"]) == done

        gone = await ok(client, "delete_task", task_id=made["id"])
        assert gone == {"success": True, "message": IsStr(), "task_id": made["id"]}
        assert (await refused(client, "delete_task", task_id=made["id"]))[
            "error_type"
        ] == "not_found_error"
        assert await ok(client, "list_tasks") == {
            "tasks": [],
            "total": 0,
            "next_cursor": None,
        }


@requirement("tasks:contract")
async def test_the_five_tools_have_the_seeds_parameters_and_are_small(
    tasks: Client,
) -> None:
    listed = {tool.name: tool for tool in (await tasks.list_tools()).tools}

    assert list(listed) == [
        "list_tasks",
        "create_task",
        "update_task",
        "delete_task",
        "mark_task_completed",
    ]
    assert list(listed["create_task"].input_schema["properties"]) == [
        "title",
        "description",
        "priority",
        "due_date",
    ]
    assert list(listed["update_task"].input_schema["properties"]) == [
        "task_id",
        "title",
        "description",
        "priority",
        "due_date",
    ]
    assert listed["update_task"].input_schema["required"] == ["task_id"]
    assert list(listed["delete_task"].input_schema["properties"]) == ["task_id"]
    assert list(listed["mark_task_completed"].input_schema["properties"]) == ["task_id"]
    assert set(listed["create_task"].output_schema["properties"]) == set(
        TaskResponse.model_fields
    )
    assert (
        sum(len(tool.model_dump_json(exclude_none=True)) for tool in listed.values()) < 9000
    )


@requirement("tasks:isolation")
async def test_another_users_task_is_not_there(service: Service, tasks: Client) -> None:
    made = await ok(tasks, "create_task", title="mine")

    async with service.client(service.new_user()) as other:
        assert (await ok(other, "list_tasks"))["total"] == 0
        calls: dict[str, dict[str, Any]] = {
            "update_task": {"title": "theirs"},
            "mark_task_completed": {},
            "delete_task": {},
        }
        for tool, more in calls.items():
            assert (await refused(other, tool, task_id=made["id"], **more))[
                "error_type"
            ] == "not_found_error"
    assert (await ok(tasks, "list_tasks"))["tasks"] == [made]


@requirement("tasks:identity")
async def test_without_a_user_there_is_an_authentication_error_and_no_backend_call(
    service: Service,
) -> None:
    user = service.new_user()
    async with service.client(user) as somebody:
        await ok(somebody, "list_tasks")
    with anyio.fail_after(30):  # until everything is there that was logged before
        while not any(
            user in line and "backend_request" in line for line in service.logged
        ):
            await anyio.lowlevel.checkpoint()
    before = len(service.logged)
    async with service.client(None) as nobody, service.client("") as empty:
        for client in (nobody, empty):
            error = await refused(client, "create_task", title="whose?")
            assert error["error_type"] == "authentication_error"
            assert "DESKHAND_USER" in error["suggestions"][0]
        for no_name in ("", 5, True, ["ann"], {"name": "ann"}):
            error = await refused(nobody, "list_tasks", meta={"user_id": no_name})
            assert error["error_type"] == "authentication_error"

    assert not any("backend_request" in line for line in service.logged[before:])


@requirement("tasks:identity")
async def test_the_service_names_its_user_in_meta_or_header_and_not_two(
    service: Service, user: str
) -> None:
    async with service.client(None) as client:
        made = await ok(client, "create_task", title="by meta", meta={"user_id": user})
    async with service.client(user) as client:
        assert (await ok(client, "list_tasks"))["tasks"] == [made]
        assert (await ok(client, "list_tasks", meta={"user_id": user}))["total"] == 1
        error = await refused(client, "list_tasks", meta={"user_id": service.new_user()})
    assert error["error_type"] == "authentication_error"


@requirement("tasks:identity")
@pytest.mark.parametrize(
    "name",
    [
        "J\u00fcrgen M\u00fcller",
        "\u7530\u4e2d 7",
        "auth0|5f7c8ec7c33c6c004bbafe82",
        "\u00f6" * 255,
    ],
)
async def test_any_printable_name_is_a_user(service: Service, name: str) -> None:
    user = f"{service.new_user()} {name}"[-255:]
    async with service.client(None) as client:
        made = await ok(client, "create_task", title="mine", meta={"user_id": user})
        assert (await ok(client, "list_tasks", meta={"user_id": user}))["tasks"] == [made]
        for other in {
            user.encode().decode("latin-1"),
            user[:-1],
            f"{user} ",
            f"\u200b{user}",
            f"{user}\n",
        } - {user}:
            meta: Any = {"user_id": other}
            named = await client.call_tool("list_tasks", {}, meta=meta)
            assert named.is_error or named.structured_content["total"] == 0
    async with service.http(None) as http:
        over_rest = await http.get("/tasks", headers={b"X-User-ID": user.encode()})

    assert made["user_id"] == user
    assert [task["user_id"] for task in over_rest.json()["tasks"]] == [user]


@requirement("tasks:words")
async def test_parameters_and_answers_are_described_in_the_contracts_words(
    tasks: Client,
) -> None:
    listed = {tool.name: tool for tool in (await tasks.list_tools()).tools}

    def told(name: str) -> dict[str, Any]:
        found = listed[name].input_schema["properties"]
        return {
            each: (said.get("description"), said.get("examples"))
            for each, said in found.items()
        }

    assert told("create_task") == {
        "title": ("Task title (required)", ["Buy milk", "Finish project report"]),
        "description": (
            "Detailed task description (optional)",
            ["Pick up 2% milk from grocery store"],
        ),
        "priority": ("Task priority level (default: Medium)", None),
        "due_date": (
            "Task due date in ISO 8601 format (optional)",
            ["2025-12-20T10:00:00Z"],
        ),
    }
    assert told("update_task") == {
        "task_id": ("ID of task to update", None),
        "title": ("New task title (optional)", None),
        "description": ("New task description (optional, null to clear)", None),
        "priority": ("New priority level (optional)", None),
        "due_date": ("New due date in ISO 8601 format (optional, null to clear)", None),
    }
    assert told("delete_task") == {"task_id": ("ID of task to delete", None)}
    assert told("mark_task_completed") == {
        "task_id": ("ID of task to mark as completed", None)
    }
    assert {
        name: said["description"]
        for name, said in listed["create_task"].output_schema["properties"].items()
    } == {
        "id": "Unique task identifier",
        "title": "Task title",
        "description": "Detailed task description",
        "completed": "Whether task is completed",
        "priority": "Task priority level",
        "due_date": "Task due date (ISO 8601 format)",
        "created_at": "Timestamp when task was created",
        "updated_at": "Timestamp when task was last updated",
        "user_id": "User who owns this task",
    }
    for optional in ("title", "description", "priority", "due_date"):
        kinds = listed["update_task"].input_schema["properties"][optional]["anyOf"]
        assert {"type": "null"} in kinds


@requirement("tasks:validation")
async def test_a_refused_creation_looks_as_the_seed_draws_it(tasks: Client) -> None:
    error = await refused(tasks, "create_task", title="", due_date="tomorrow")

    assert error == {
        "error_type": "validation_error",
        "message": "Task creation failed due to invalid input",
        "details": {
            "fields": [
                {
                    "field": "title",
                    "message": "Title cannot be empty",
                    "received_value": "",
                    "suggestion": "Provide a task title (1-200 characters)",
                },
                {
                    "field": "due_date",
                    "message": "Invalid datetime format",
                    "received_value": "tomorrow",
                    "suggestion": "Use ISO 8601 format: 2025-12-20T10:00:00Z",
                },
            ]
        },
        "suggestions": [
            "Provide a valid title (1-200 characters)",
            "Format due_date as ISO 8601 datetime",
        ],
    }


@requirement("tasks:contract")
async def test_the_backend_hears_the_service_token_and_the_user_on_each_call(
    home: Home,
) -> None:
    """FR-003, FR-004, FR-011: what a backend sees of us, in a backend that writes it down."""
    from tests.tasks.doubles import Recorder, backend_at

    heard = Recorder(200, {"tasks": [], "total": 0, "next_cursor": None})
    async with backend_at(home, heard, user="ann") as client:
        await ok(client, "list_tasks")
        await refused(client, "mark_task_completed", task_id=1)
        await ok(client, "delete_task", task_id=1)

    asked = [("GET", "/tasks"), ("PATCH", "/tasks/1"), ("DELETE", "/tasks/1")]
    assert [(r["method"], r["path"]) for r in heard.requests] == asked
    assert {r["headers"]["content-type"] for r in heard.requests} == {"application/json"}
    assert {r["headers"]["authorization"] for r in heard.requests} == {f"Bearer {TOKEN}"}
    assert {r["headers"]["x-user-id"] for r in heard.requests} == {"ann"}
    assert json.loads(heard.requests[1]["body"]) == {"completed": True}


@requirement("tasks:log")
async def test_each_backend_call_is_one_line_with_the_seeds_fields_and_no_secret(
    service: Service, tasks: Client, user: str
) -> None:
    session = {"session_id": "session-7"}
    made = await ok(
        tasks,
        "create_task",
        title="private words",
        description="more private words",
        meta=session,
    )
    await refused(tasks, "delete_task", task_id=made["id"] + 10**9)

    with anyio.fail_after(30):  # another thread reads what the server says
        while (
            len(lines := [json.loads(line) for line in service.logged if user in line]) < 2
        ):
            await anyio.lowlevel.checkpoint()
    assert lines == [
        IsPartialDict(
            event="backend_request",
            level="INFO",
            method="POST",
            status_code=201,
            session_id="session-7",
        ),
        IsPartialDict(
            event="backend_request", method="DELETE", status_code=404, error="HTTP 404"
        ),
    ]
    for line in lines:
        assert {"timestamp", "request_id", "user_id", "duration_ms", "error"} <= set(line)
        assert datetime.fromisoformat(line["timestamp"]).tzinfo == UTC
        assert line["user_id"] == user
    assert (lines[0]["endpoint"], "session_id" in lines[1]) == ("/tasks", False)
    assert len({line["request_id"] for line in lines}) == 2
    assert TOKEN not in "".join(service.logged)
    assert "private words" not in "".join(service.logged)


@requirement("tasks:null-clears")
async def test_null_clears_what_a_task_need_not_have_and_what_is_absent_stays(
    tasks: Client,
) -> None:
    given: dict[str, Any] = {
        "title": "t",
        "description": "d",
        "due_date": "2026-12-20T10:00:00Z",
        "priority": "High",
    }
    made = await ok(tasks, "create_task", **given)

    cleared = await ok(tasks, "update_task", task_id=made["id"], description=None)
    assert (cleared["description"], cleared["due_date"], cleared["priority"]) == (
        None,
        made["due_date"],
        "High",
    )
    cleared = await ok(tasks, "update_task", task_id=made["id"], due_date=None)
    assert (cleared["title"], cleared["due_date"]) == ("t", None)

    # Both are optional: null says that they were not given.
    same = await ok(
        tasks, "update_task", task_id=made["id"], title=None, priority=None, description="d"
    )
    assert (same["title"], same["priority"], same["description"]) == ("t", "High", "d")
    # Strict mode and some clients fill in null for all that was left out; nobody meant to clear anything.
    filled = await ok(
        tasks,
        "update_task",
        task_id=made["id"],
        title="u",
        priority=None,
        description=None,
        due_date=None,
    )
    assert (filled["title"], filled["description"]) == ("u", "d")
    error = await refused(
        tasks, "update_task", task_id=made["id"], title=None, priority=None
    )
    assert error["error_type"] == "validation_error"
    assert (await refused(tasks, "update_task", task_id=made["id"]))[
        "error_type"
    ] == "validation_error"
    assert "completed" in fields(
        await refused(tasks, "update_task", task_id=made["id"], completed=True)
    )


@requirement("tasks:pages")
async def test_filters_look_at_all_tasks_and_pages_follow_each_other(tasks: Client) -> None:
    for number in range(25):
        await ok(
            tasks,
            "create_task",
            title=f"task {number}",
            priority="High" if number == 3 else "Low",
        )
    await ok(
        tasks,
        "mark_task_completed",
        task_id=(await ok(tasks, "list_tasks", q="TASK 7"))["tasks"][0]["id"],
    )

    first = await ok(tasks, "list_tasks")
    second = await ok(tasks, "list_tasks", cursor=first["next_cursor"])
    titles = [task["title"] for page in (first, second) for task in page["tasks"]]

    assert titles == [f"task {number}" for number in range(24, -1, -1)]
    assert (len(first["tasks"]), first["total"], second["next_cursor"]) == (20, 25, None)
    assert [
        task["title"] for task in (await ok(tasks, "list_tasks", priority="High"))["tasks"]
    ] == ["task 3"]
    assert [
        task["title"] for task in (await ok(tasks, "list_tasks", completed=True))["tasks"]
    ] == ["task 7"]
    assert (await ok(tasks, "list_tasks", completed=False))["total"] == 24
    assert (await ok(tasks, "list_tasks", limit=2, q="task 1"))["total"] == 11
    assert (await refused(tasks, "list_tasks", cursor="nonsense"))[
        "error_type"
    ] == "validation_error"


async def test_writes_over_rest_are_seen_over_mcp(
    tasks: Client, rest: httpx2.AsyncClient
) -> None:
    made = (await rest.post("/tasks", json={"title": "over REST"})).json()

    (seen,) = (await ok(tasks, "list_tasks"))["tasks"]
    assert seen == {name: made[name] for name in TaskResponse.model_fields}


@requirement("tasks:embedded")
async def test_without_a_backend_url_the_same_tools_work_in_one_process(
    embedded: Client,
) -> None:
    made = await ok(embedded, "create_task", title="here")

    assert made["user_id"] == "ann"
    assert (await ok(embedded, "list_tasks"))["tasks"] == [made]
    assert (await ok(embedded, "list_tasks", meta={"user_id": "bob"}))["total"] == 0


@requirement("tasks:identity")
@requirement("tasks:embedded")
async def test_a_users_own_token_is_that_user_whatever_else_is_named(home: Home) -> None:
    token = home.command("token", "create", "ann").stdout.strip()
    with http_server(home, "tasks") as address:
        async with (
            http_client(address, token, "2026-07-28") as ann,
            http_client(address, TOKEN, "legacy") as service,
        ):
            made = await ok(ann, "create_task", title="mine", meta={"user_id": "bob"})
            named = await ok(service, "list_tasks", meta={"user_id": "ann"})
            others = await ok(service, "list_tasks", meta={"user_id": "bob"})
            nobody = await refused(service, "list_tasks")

    assert made["user_id"] == "ann"
    assert (named["tasks"], others["tasks"]) == ([made], [])
    assert nobody["error_type"] == "authentication_error"


@requirement("tasks:embedded")
async def test_the_server_speaks_stdio_and_knows_nobody_by_itself(home: Home) -> None:

    from mcp import StdioServerParameters

    server = StdioServerParameters(
        command=warm_python(), args=["-m", "deskhand", "mcp", "tasks"], env=home.environment
    )
    async with Client(server, mode="2026-07-28") as client:
        nobody: dict[str, Any] = await refused(client, "list_tasks")
        made = await ok(client, "create_task", title="by stdio", meta={"user_id": "ann"})

    assert nobody["error_type"] == "authentication_error"
    assert made["user_id"] == "ann"
