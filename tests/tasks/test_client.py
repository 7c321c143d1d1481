"""The client of the backend: what it tries again, what it makes of failures."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx2
import pytest
from dirty_equals import IsPartialDict

from deskhand.servers.desk import desk_server
from tests.home import Home
from tests.requirements import requirement
from tests.tasks.doubles import Pauses, Recorder, backend_at
from tests.tasks.service import ok, refused

pytestmark = pytest.mark.anyio

EMPTY = {"tasks": [], "total": 0, "next_cursor": None}


class Flaky(Recorder):
    """Fails with `status` so many times, then answers."""

    def __init__(self, failures: int, status: int) -> None:
        super().__init__(status, {"detail": "not now"})
        self.failures = failures

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if len(self.requests) >= self.failures:
            self.status, self.answer = 200, EMPTY
        await super().__call__(scope, receive, send)


@requirement("tasks:retry")
@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_read_is_tried_again_after_one_and_two_seconds(
    home: Home, status: int
) -> None:
    backend, pauses = Flaky(2, status), Pauses()
    async with backend_at(home, backend, user="ann", pause=pauses) as client:
        assert await ok(client, "list_tasks") == EMPTY

    assert pauses.seconds == [1, 2]
    assert len({request["headers"]["x-request-id"] for request in backend.requests}) == 1


@requirement("tasks:retry")
async def test_after_two_retries_the_failure_is_told(home: Home) -> None:
    backend, pauses = Flaky(9, 503), Pauses()
    async with backend_at(home, backend, user="ann", pause=pauses) as client:
        error = await refused(client, "list_tasks")

    assert (error["error_type"], len(backend.requests)) == ("backend_error", 3)
    assert error["details"]["status"] == 503


@requirement("tasks:retry")
async def test_a_create_is_repeated_under_one_key_where_the_backend_has_shown_that_it_honours_it(
    home: Home,
) -> None:
    backend = Flaky(2, 503)
    backend.honours_keys = True
    async with backend_at(home, backend, user="ann") as client:
        await client.call_tool("create_task", {"title": "x"})
        await client.call_tool("create_task", {"title": "x"})

    keys = [request["headers"]["idempotency-key"] for request in backend.requests]
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]


class Forgetful:
    """A backend of somebody else: it keeps to the contract alone, and has tasks made whose answers are lost."""

    def __init__(self, loses: Callable[[], Awaitable[None]]) -> None:
        self.made: list[dict[str, Any]] = []
        self._lose = loses

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        status: int = 200
        answer: Any = self.made
        if scope["method"] == "POST":
            answer = task(len(self.made) + 1) | json.loads(message["body"])
            status = 201
            self.made.append(answer)
            await self._lose()
        content = httpx2.Response(200, json=answer).content
        kind = (b"content-type", b"application/json")
        await send({"type": "http.response.start", "status": status, "headers": [kind]})
        await send({"type": "http.response.body", "body": content})


async def break_off() -> None:
    raise httpx2.ReadError("gone")


def task(number: int, **more: Any) -> dict[str, Any]:
    """A task with the contract's nine fields, times as a backend with naive datetimes writes them."""
    made = {
        "id": number,
        "title": f"task {number}",
        "description": None,
        "completed": number % 2 == 0,
        "priority": ["Low", "Medium", "High", "Urgent"][number % 4],
        "due_date": None,
        "created_at": f"2026-01-01T00:00:{number:02}",
        "updated_at": "2026-01-02T00:00:00.123456",
        "user_id": "ann",
    }
    return made | more


@requirement("tasks:retry")
@pytest.mark.parametrize(
    ("lose", "error_type"),
    [(anyio.sleep_forever, "timeout_error"), (break_off, "connection_error")],
)
async def test_a_create_whose_answer_is_lost_makes_one_task_on_a_backend_that_knows_no_keys(
    home: Home, lose: Any, error_type: str
) -> None:
    backend = Forgetful(lose)
    async with backend_at(home, backend, user="ann", patience=0.2) as client:
        await ok(client, "list_tasks")
        error = await refused(client, "create_task", title="Buy milk")
        found = await ok(client, "list_tasks")

    assert (error["error_type"], len(backend.made)) == (error_type, 1)
    assert "the task may or may not exist" in error["message"]
    assert "List the tasks" in error["suggestions"][0]
    assert [each["title"] for each in found["tasks"]] == ["Buy milk"]


@requirement("tasks:retry")
@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_create_that_an_unknown_backend_did_not_answer_well_is_not_repeated(
    home: Home, status: int
) -> None:
    backend = Recorder(status, b"")
    async with backend_at(home, backend, user="ann") as client:
        error = await refused(client, "create_task", title="Buy milk")

    assert [request["method"] for request in backend.requests].count("POST") == 1
    assert "the task may or may not exist" in error["message"]


@requirement("tasks:any-backend")
@pytest.mark.parametrize(
    ("status", "answer", "error_type", "said"),
    [
        (
            400,
            {"detail": "no room"},
            "validation_error",
            "Input validation failed: no room",
        ),
        (400, {"error": "no room"}, "validation_error", "Input validation failed: no room"),
        (409, {"detail": "taken"}, "validation_error", "Input validation failed: taken"),
        (400, b"", "validation_error", "Input validation failed: HTTP 400"),
        (413, {"message": "x" * 999}, "backend_error", "Backend service error: xxxx"),
        (405, {"detail": []}, "backend_error", "Backend service error: it refused"),
    ],
)
async def test_what_a_backend_refuses_was_not_done_and_its_reason_is_told(
    home: Home, status: int, answer: Any, error_type: str, said: str
) -> None:
    async with backend_at(home, Recorder(status, answer), user="ann") as client:
        error = await refused(client, "update_task", task_id=1, title="Buy milk")

    assert error["error_type"] == error_type
    assert error["message"].startswith(said)
    assert "may or may not" not in error["message"]
    assert len(error["message"]) < 600


@requirement("tasks:any-backend")
async def test_a_bare_list_of_tasks_with_nine_fields_is_listed(home: Home) -> None:
    made = [task(number) for number in range(1, 5)]
    async with backend_at(home, Recorder(200, made), user="ann") as client:
        found = await ok(client, "list_tasks")

    assert found == {"tasks": made[::-1], "total": 4, "next_cursor": None}


@requirement("tasks:any-backend")
async def test_optional_fields_that_a_backend_leaves_out_are_null(home: Home) -> None:
    short = {
        name: value
        for name, value in task(1).items()
        if name not in ("description", "due_date")
    }
    async with backend_at(home, Recorder(200, [short]), user="ann") as client:
        found = await ok(client, "list_tasks")

    assert found["tasks"] == [task(1)]


@requirement("tasks:contract")
async def test_a_create_sends_what_was_given_and_no_empty_field(home: Home) -> None:
    backend = Recorder(201, task(1))
    async with backend_at(home, backend, user="ann") as client:
        await ok(client, "create_task", title="Buy milk", description=None)
        await ok(client, "create_task", title="Buy milk", description="")

    first, second = [json.loads(each["body"]) for each in backend.requests]
    assert first == {"title": "Buy milk", "priority": "Medium"}
    assert second == first | {"description": ""}


@requirement("tasks:any-backend")
@pytest.mark.parametrize("name", ["created_at", "updated_at", "due_date"])
async def test_a_time_that_is_none_is_no_task_of_a_backend(home: Home, name: str) -> None:
    backend = Recorder(200, task(1) | {name: "soon"})
    async with backend_at(home, backend, user="ann") as client:
        error = await refused(client, "mark_task_completed", task_id=1)
        backend.answer = [backend.answer]
        in_list = await refused(client, "list_tasks")

    assert (error["error_type"], in_list["error_type"]) == ("backend_error",) * 2
    assert "its answer is not the one that was agreed on" in error["message"]


@requirement("tasks:any-backend")
async def test_a_day_of_a_backend_is_told_as_a_time_and_a_time_as_it_stands(
    home: Home,
) -> None:
    given = task(1) | {"due_date": "2026-03-01", "created_at": "2026-02-01T10:00:00"}
    async with backend_at(home, Recorder(200, given), user="ann") as client:
        found = await ok(client, "mark_task_completed", task_id=1)

    assert found == given | {"due_date": "2026-03-01T00:00:00"}


@requirement("tasks:errors")
async def test_a_backend_that_failed_is_told_without_its_own_text(home: Home) -> None:
    backend = Recorder(500, {"detail": "password of the database"})
    async with backend_at(home, backend, user="ann") as client:
        error = await refused(client, "list_tasks")

    assert "password" not in json.dumps(error)


@requirement("tasks:errors")
@pytest.mark.parametrize(
    ("answer", "fields"),
    [
        ({"detail": [{"loc": [["title"]], "msg": ["too long"], "input": {"a": 1}}]}, None),
        ({"detail": [{"loc": "title", "msg": "too long"}]}, None),
        ({"errors": [{"field": ["title"], "message": 5, "suggestion": ["x"]}]}, None),
        (
            {"errors": [{"field": "title", "message": "no", "received_value": [1]}, 5]},
            [
                {
                    "field": "title",
                    "message": "no",
                    "received_value": "[1]",
                    "suggestion": None,
                }
            ],
        ),
        (
            {"detail": [{"loc": ["body", {"a": 1}], "msg": "m" * 600}]},
            [
                {
                    "field": "body",
                    "message": f"{'m' * 500}… (600 characters)",
                    "received_value": None,
                    "suggestion": "See the schema",
                }
            ],
        ),
    ],
)
async def test_whatever_stands_in_a_backends_refusal_it_is_a_validation_error(
    home: Home, answer: Any, fields: list[dict[str, Any]] | None
) -> None:
    async with backend_at(home, Recorder(422, answer), user="ann") as client:
        error = await refused(client, "update_task", task_id=1, title="x")

    assert error["error_type"] == "validation_error"
    assert (error["details"] or {}).get("fields") == fields


@requirement("tasks:validation")
async def test_a_long_value_is_named_by_its_beginning_and_length(home: Home) -> None:
    async with backend_at(home, Recorder(201, task(1)), user="ann") as client:
        error = await refused(client, "create_task", title="x" * 300)

    (field,) = error["details"]["fields"]
    assert field["received_value"] == f"{'x' * 200}… (300 characters)"


@requirement("tasks:any-backend")
async def test_a_request_has_the_contracts_headers_and_few_of_ours(home: Home) -> None:
    backend = Recorder(201, task(1))
    async with backend_at(home, backend, user="ann") as client:
        await ok(
            client, "create_task", title="Buy milk", due_date="2026-03-01T10:00:00+05:00"
        )
        backend.answer = [task(1)]
        await ok(client, "list_tasks")

    contracts = {"authorization", "x-user-id", "content-type"}
    ours = {"x-request-id", "x-deskhand-actor", "x-deskhand-asker"}
    https = {"host", "accept", "accept-encoding", "connection", "user-agent"}
    made, listed = backend.requests
    assert set(listed["headers"]) - https == contracts | ours
    assert set(made["headers"]) - https == contracts | ours | {
        "idempotency-key",
        "content-length",
    }
    assert json.loads(made["body"])["due_date"] == "2026-03-01T05:00:00.000000Z"
    assert listed["query"] == "sort=-created_at&limit=20"


@requirement("tasks:null-clears")
async def test_the_schema_of_an_update_gives_no_client_a_null_to_fill_in(
    home: Home,
) -> None:
    async with backend_at(home, Recorder(200, []), user="ann") as client:
        listed = await client.list_tools()

    (update,) = [each for each in listed.tools if each.name == "update_task"]
    fields = update.input_schema["properties"].values()
    assert all("default" not in field for field in fields)


@requirement("tasks:any-backend")
async def test_filters_order_and_pages_hold_on_a_backend_that_knows_none(
    home: Home,
) -> None:
    due = {
        3: "2026-03-01T10:00:00",
        4: "2026-02-01T10:00:00+02:00",
        5: "2026-02-01T09:00:00Z",
    }
    made = [task(number, due_date=due.get(number)) for number in range(1, 31)]
    async with backend_at(home, Recorder(200, made), user="ann") as client:

        async def ids(**asked: Any) -> list[int]:
            return [
                each["id"] for each in (await ok(client, "list_tasks", **asked))["tasks"]
            ]

        first = await ok(client, "list_tasks", limit=20)
        second = await ok(client, "list_tasks", limit=20, cursor=first["next_cursor"])
        seen = [each["id"] for page in (first, second) for each in page["tasks"]]
        assert (seen, first["total"], second["next_cursor"]) == (
            list(range(30, 0, -1)),
            30,
            None,
        )
        assert await ids(completed=False, limit=3) == [29, 27, 25]
        assert await ids(priority="Urgent", sort="created_at", limit=2) == [3, 7]
        assert await ids(q="TASK 12") == [12]
        assert await ids(sort="due_date", limit=4) == [4, 5, 3, 1]
        assert await ids(due_after="2026-02-01T08:30:00Z", sort="created_at") == [3, 5]
        assert await ids(due_before="2026-02-01T08:30:00Z") == [4]
        assert (await refused(client, "list_tasks", cursor="nonsense"))[
            "error_type"
        ] == "validation_error"


@requirement("tasks:any-backend")
async def test_a_backend_that_cuts_its_list_at_our_limit_is_asked_for_all_of_it(
    home: Home,
) -> None:
    made = [task(number) for number in range(1, 31)]

    class Cutting(Recorder):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            self.answer = made[:20] if b"limit=20" in scope["query_string"] else made
            await super().__call__(scope, receive, send)

    async with backend_at(home, Cutting(200, made), user="ann") as client:
        found = await ok(client, "list_tasks")

    assert (found["total"], found["tasks"][0]["id"], found["next_cursor"] is None) == (
        30,
        30,
        False,
    )


@requirement("tasks:any-backend")
async def test_one_task_of_nine_fields_is_read_whole_by_the_whole_desk(home: Home) -> None:
    async with backend_at(
        home, Recorder(200, task(1)), user="ann", server=desk_server
    ) as client:
        found = await client.call_tool("get_task", {"task_id": 1})
        changed = await client.call_tool("arrange_task", {"task_id": 1, "labels": ["x"]})

    assert found.structured_content == IsPartialDict(
        task(1) | {"project": None, "labels": [], "version": 0}
    )
    assert not changed.is_error


@requirement("tasks:words")
@pytest.mark.parametrize(
    ("status", "error_type", "text"),
    [
        (401, "authentication_error", "Service authentication failed"),
        (403, "authorization_error", "User not authorized to access this resource"),
        (404, "not_found_error", "Requested resource not found"),
        (422, "validation_error", "Input validation failed"),
        (500, "backend_error", "Backend service error"),
    ],
)
async def test_each_refusal_of_a_backend_begins_with_the_contracts_text(
    home: Home, status: int, error_type: str, text: str
) -> None:
    async with backend_at(home, Recorder(status, {"detail": "why"}), user="ann") as client:
        error = await refused(client, "delete_task", task_id=1)

    assert (error["error_type"], error["message"].startswith(text)) == (error_type, True)


@requirement("tasks:words")
async def test_a_timeout_and_a_backend_that_is_not_there_begin_with_the_contracts_text(
    home: Home,
) -> None:
    async with backend_at(
        home, Forgetful(anyio.sleep_forever), user="ann", patience=0.1
    ) as client:
        late = await refused(client, "create_task", title="x")
    async with backend_at(home, "http://127.0.0.1:1", user="ann") as client:
        gone = await refused(client, "create_task", title="x")
    async with backend_at(home, Recorder(200, []), user="a\u200bb") as client:
        nobody = await refused(client, "create_task", title="x")
    async with backend_at(home, Recorder(200, []), user="a" * 256) as client:
        too_long = await refused(client, "create_task", title="x")

    assert late["message"].startswith("Request timed out")
    # Nobody was there, so there is no doubt about it.
    assert gone["message"] == "Unable to connect to backend service"
    assert nobody["message"].startswith("Service authentication failed")
    assert "Missing user context in MCP request" in nobody["message"]
    assert too_long["message"].endswith(
        "the id that it names must have 1 to 255 printable characters, no blank at either end"
    )


@requirement("tasks:retry")
@pytest.mark.parametrize(("status", "sent"), [(500, 1), (404, 1), (422, 1), (503, 1)])
async def test_nothing_else_is_tried_again(home: Home, status: int, sent: int) -> None:
    backend = Recorder(status, {})
    async with backend_at(home, backend, user="ann") as client:
        await refused(client, "update_task", task_id=1, title="x")

    assert len(backend.requests) == sent


@requirement("tasks:errors")
async def test_a_backend_that_is_not_there_is_a_connection_error_with_what_to_do(
    home: Home,
) -> None:
    pauses = Pauses()
    async with backend_at(home, "http://127.0.0.1:1", user="ann", pause=pauses) as client:
        error = await refused(client, "list_tasks")
        once = await refused(client, "delete_task", task_id=1)

    assert (error["error_type"], once["error_type"]) == (
        "connection_error",
        "connection_error",
    )
    assert "FASTAPI_BASE_URL" in error["suggestions"][0]
    assert pauses.seconds == [1, 2]


@requirement("tasks:errors")
@pytest.mark.parametrize(
    "backend",
    [
        Recorder(200, b"<html>", "text/html"),
        Recorder(200, {"tasks": "many"}),
        Recorder(200, [1, 2]),
        Recorder(200, [{"id": 1, "title": "without the rest"}]),
        Recorder(200, b""),
        Recorder(500, b"Traceback: the password is hunter2", "text/plain"),
        Recorder(429, {"detail": "slow down"}),
    ],
)
async def test_an_answer_that_was_not_agreed_on_is_a_backend_error(
    home: Home, backend: Recorder
) -> None:
    async with backend_at(home, backend, user="ann") as client:
        error = await refused(client, "list_tasks")

    assert error["error_type"] == "backend_error"
    assert error["message"].startswith("Backend service error: ")
    assert "hunter2" not in str(error)


@requirement("tasks:errors")
async def test_a_write_whose_answer_cannot_be_read_may_have_happened(home: Home) -> None:
    async with backend_at(home, Recorder(201, {"ok": True}), user="ann") as client:
        made = await refused(client, "create_task", title="Buy milk")
        changed = await refused(client, "update_task", task_id=1, title="Buy oats")

    assert made["message"].endswith("the task may or may not exist")
    assert changed["message"].endswith("the change may or may not have been made")
    assert {made["error_type"], changed["error_type"]} == {"backend_error"}
    assert "List the tasks" in made["suggestions"][0]


@requirement("tasks:errors")
async def test_where_a_backend_has_no_tasks_nobody_is_sent_to_the_list(home: Home) -> None:
    async with backend_at(
        home, Recorder(404, {"detail": "Not Found"}), user="ann"
    ) as client:
        listed = await refused(client, "list_tasks")
        made = await refused(client, "create_task", title="Buy milk")
        changed = await refused(client, "update_task", task_id=1, title="Buy oats")

    assert {each["error_type"] for each in (listed, made, changed)} == {"not_found_error"}
    assert "FASTAPI_BASE_URL" in listed["suggestions"][0]
    assert made["suggestions"] == listed["suggestions"]
    assert changed["suggestions"] == ["Use list_tasks to see the tasks there are"]
