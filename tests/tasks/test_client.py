"""The client of the backend: what it tries again, what it makes of failures."""

from typing import Any

import pytest

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
async def test_a_read_is_tried_again_after_one_and_two_seconds(home: Home, status: int) -> None:
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
async def test_a_create_is_repeated_under_one_key(home: Home) -> None:
    backend = Flaky(2, 503)
    async with backend_at(home, backend, user="ann") as client:
        await client.call_tool("create_task", {"title": "x"})
        await client.call_tool("create_task", {"title": "x"})

    keys = [request["headers"]["idempotency-key"] for request in backend.requests]
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]


@requirement("tasks:retry")
@pytest.mark.parametrize(("status", "sent"), [(500, 1), (404, 1), (422, 1), (503, 1)])
async def test_nothing_else_is_tried_again(home: Home, status: int, sent: int) -> None:
    backend = Recorder(status, {})
    async with backend_at(home, backend, user="ann") as client:
        await refused(client, "update_task", task_id=1, title="x")

    assert len(backend.requests) == sent


@requirement("tasks:errors")
async def test_a_backend_that_is_not_there_is_a_connection_error_with_what_to_do(home: Home) -> None:
    pauses = Pauses()
    async with backend_at(home, "http://127.0.0.1:1", user="ann", pause=pauses) as client:
        error = await refused(client, "list_tasks")
        once = await refused(client, "delete_task", task_id=1)

    assert (error["error_type"], once["error_type"]) == ("connection_error", "connection_error")
    assert "FASTAPI_BASE_URL" in error["suggestions"][0]
    assert pauses.seconds == [1, 2]


@requirement("tasks:errors")
@pytest.mark.parametrize(
    "backend",
    [
        Recorder(200, b"<html>", "text/html"),
        Recorder(200, {"tasks": "many"}),
        Recorder(200, [1, 2]),
        Recorder(200, b""),
        Recorder(500, b"Traceback: the password is hunter2", "text/plain"),
    ],
)
async def test_an_answer_that_was_not_agreed_on_is_a_backend_error(home: Home, backend: Recorder) -> None:
    async with backend_at(home, backend, user="ann") as client:
        error = await refused(client, "list_tasks")

    assert error["error_type"] == "backend_error"
    assert "hunter2" not in str(error)
