"""Fifteen faults that a real implementation of seed 003 had, each as the test that would have caught it."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Sequence
from typing import Any

import httpx2
import psycopg
import pytest
from mcp import Client

from deskhand.config import load
from deskhand.store import Row, Transaction, open_store
from deskhand.tasks import rows
from deskhand.tasks.models import TaskFilter
from tests.home import Home
from tests.requirements import requirement
from tests.tasks.doubles import Pauses, Recorder, backend_at, slow_proxy
from tests.tasks.service import Service, fields, ok, refused

pytestmark = pytest.mark.anyio

HUGE = 2**70


@requirement("tasks:commit")
async def test_1_a_failing_commit_is_never_a_201(
    service: Service, rest: httpx2.AsyncClient, user: str
) -> None:
    marker = f"fails at commit {uuid.uuid4().hex}"
    await fail_commits_of(service.database, marker)

    answer = await rest.post("/tasks", json={"title": marker})
    assert (answer.status_code, answer.headers["content-type"]) == (
        500,
        "application/problem+json",
    )
    assert "constraint" not in answer.text.lower()
    assert (await rest.get("/tasks")).json()["total"] == 0
    assert (await rest.post("/tasks", json={"title": "another"})).status_code == 201


async def fail_commits_of(database: str, marker: str) -> None:
    """Only at COMMIT is it found that a task with this title breaks a constraint."""
    if database.startswith("sqlite"):
        with sqlite3.connect(database.removeprefix("sqlite:///")) as connection:
            connection.executescript(f"""
                CREATE TABLE broken (task INTEGER REFERENCES task (id) DEFERRABLE INITIALLY DEFERRED);
                CREATE TRIGGER broken AFTER INSERT ON task WHEN new.title = '{marker}'
                BEGIN INSERT INTO broken VALUES (-1); END;
            """)
        return
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"""
            CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN IF NEW.title = '{marker}' THEN RAISE 'the constraint'; END IF; RETURN NULL; END $$;
            CREATE CONSTRAINT TRIGGER broken AFTER INSERT ON task DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION broken();
        """)


@requirement("tasks:retry")
@pytest.mark.parametrize("held", [1, 3])
async def test_2_one_create_call_against_a_slow_backend_makes_exactly_one_task(
    service: Service, user: str, home: Home, held: int
) -> None:
    async with (
        slow_proxy(service.rest, hold_back=held) as slow,
        backend_at(home, slow, user=user, patience=1) as client,
        service.http(user) as rest,
    ):
        result = await client.call_tool("create_task", {"title": "once"})
        listed = (await rest.get("/tasks")).json()

    assert result.is_error is (held == 3)
    assert [task["title"] for task in listed["tasks"]] == ["once"]
    if held == 3:
        assert json.loads(result.content[0].text)["error_type"] == "timeout_error"


@requirement("tasks:retry")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("update_task", {"title": "new"}), ("delete_task", {}), ("mark_task_completed", {})],
)
async def test_2_a_write_without_a_key_is_sent_once_and_its_outcome_is_called_unknown(
    service: Service,
    tasks: Client,
    user: str,
    home: Home,
    tool: str,
    arguments: dict[str, Any],
) -> None:
    made = await ok(tasks, "create_task", title="old")
    pauses = Pauses()
    async with (
        slow_proxy(service.rest, hold_back=9) as slow,
        backend_at(home, slow, user=user, patience=0.5, pause=pauses) as client,
    ):
        error = await refused(client, tool, task_id=made["id"], **arguments)

    assert error["error_type"] == "timeout_error"
    assert "may or may not" in error["message"]
    assert pauses.seconds == []


@requirement("tasks:identity")
@pytest.mark.parametrize("header", [None, "", "a" * 256, "\x7f"])
async def test_3_no_user_is_nobody(service: Service, header: str | None) -> None:
    async with service.http(header) as http:
        answers = [await http.get("/tasks"), await http.post("/tasks", json={"title": "x"})]

    assert [answer.status_code for answer in answers] == [401, 401]
    assert answers[0].headers["www-authenticate"] == "Bearer"


@requirement("tasks:identity")
async def test_4_the_mcp_port_is_on_loopback_and_wants_a_token(service: Service) -> None:
    async with httpx2.AsyncClient(timeout=60) as http:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {"Accept": "application/json, text/event-stream", "X-User-ID": "ann"}
        answers = [
            await http.post(service.mcp, json=body, headers=headers),
            await http.post(
                service.mcp, json=body, headers=headers | {"Authorization": "Bearer wrong"}
            ),
        ]

    assert [answer.status_code for answer in answers] == [401, 401]
    assert service.mcp.startswith("http://127.0.0.1:")
    assert service.rest.startswith("http://127.0.0.1:")


@requirement("tasks:errors")
@pytest.mark.parametrize(
    ("status", "error_type"),
    [
        (401, "authentication_error"),
        (403, "authorization_error"),
        (404, "not_found_error"),
        (422, "validation_error"),
        (500, "backend_error"),
        (503, "backend_error"),
        (418, "backend_error"),
    ],
)
async def test_5_the_error_type_is_the_identifier_and_is_error_is_true(
    home: Home, status: int, error_type: str
) -> None:
    problem = {
        "detail": "as the backend says",
        "errors": [{"field": "title", "message": "no"}],
    }
    async with backend_at(
        home, Recorder(status, problem, "application/problem+json"), user="ann"
    ) as client:
        error = await refused(client, "mark_task_completed", task_id=1)

    assert error["error_type"] == error_type
    if status < 500 and status != 418:
        assert "as the backend says" in error["message"]
    assert error["suggestions"] or status == 422


@requirement("tasks:null-clears")
async def test_6_null_clears_over_rest(rest: httpx2.AsyncClient) -> None:
    given = {
        "title": "t",
        "description": "d",
        "due_date": "2026-12-20T10:00:00Z",
        "project": "p",
        "labels": ["a"],
    }
    made = (await rest.post("/tasks", json=given)).json()

    changed = (
        await rest.put(
            f"/tasks/{made['id']}",
            json={"description": None, "due_date": None, "project": None},
        )
    ).json()

    assert (changed["description"], changed["due_date"], changed["project"]) == (
        None,
        None,
        None,
    )
    assert (changed["title"], changed["labels"]) == ("t", ["a"])
    for cleared in ({"title": None}, {"priority": None}, {"labels": None}):
        assert (await rest.put(f"/tasks/{made['id']}", json=cleared)).status_code == 422


@requirement("tasks:null-clears")
async def test_6_over_rest_too_null_for_what_a_task_must_have_is_as_good_as_absent(
    rest: httpx2.AsyncClient,
) -> None:
    given = {"title": "t", "description": "d", "priority": "High", "project": "p"}
    made = (await rest.post("/tasks", json=given)).json()
    filled = dict.fromkeys(("title", "description", "priority", "due_date"))

    changed = await rest.put(f"/tasks/{made['id']}", json=filled | {"title": "new"})
    moved = await rest.put(
        f"/tasks/{made['id']}", json=filled | {"due_date": "2026-12-20T10:00:00Z"}
    )
    nothing = await rest.put(f"/tasks/{made['id']}", json=filled)

    assert changed.status_code == moved.status_code == 200
    after = moved.json()
    assert (after["title"], after["description"]) == ("new", "d")
    assert (after["priority"], after["project"]) == ("High", "p")
    assert after["due_date"] == "2026-12-20T10:00:00.000000Z"
    assert nothing.status_code == 422


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-12-20T10:00:00+05:00", "2026-12-20T05:00:00.000000Z"),
        ("2026-12-20T00:30:00+05:30", "2026-12-19T19:00:00.000000Z"),
        ("2026-12-20t10:00:00.25z", "2026-12-20T10:00:00.250000Z"),
    ],
)
async def test_7_an_offset_is_honoured(tasks: Client, given: str, kept: str) -> None:
    assert (await ok(tasks, "create_task", title="t", due_date=given))["due_date"] == kept
    assert (await ok(tasks, "list_tasks"))["tasks"][0]["due_date"] == kept


@requirement("tasks:isolation")
async def test_8_an_id_is_never_used_again(service: Service, tasks: Client) -> None:
    first = await ok(tasks, "create_task", title="first")
    await ok(tasks, "delete_task", task_id=first["id"])
    async with service.client(service.new_user()) as other:
        second = await ok(other, "create_task", title="second")

    assert second["id"] > first["id"]
    assert (await refused(tasks, "delete_task", task_id=first["id"]))[
        "error_type"
    ] == "not_found_error"


@requirement("tasks:rest")
async def test_9_hostile_values_are_refused_and_never_a_500(
    service: Service, rest: httpx2.AsyncClient
) -> None:
    json_type = {"Content-Type": "application/json"}
    answers = {
        "id 2^31": await rest.get(f"/tasks/{2**31}"),
        "id 2^53-1": await rest.get(f"/tasks/{2**53 - 1}"),
        "id 2^63": await rest.get(f"/tasks/{2**63}"),
        "id 2^70": await rest.delete(f"/tasks/{HUGE}"),
        "ids": await rest.post("/tasks/bulk-delete", json={"task_ids": [HUGE]}),
        "huge page": await rest.get("/tasks", params={"limit": HUGE}),
        "NUL": await rest.post("/tasks", json={"title": "a\x00b"}),
        "NUL in a search": await rest.get("/tasks", params={"q": "a\x00b"}),
        "surrogate": await rest.post(
            "/tasks", content=b'{"title": "\\ud800"}', headers=json_type
        ),
        "bytes": await rest.post("/tasks", content=b'{"title": "\xff"}', headers=json_type),
        "deep": await rest.post("/tasks", content=b"[" * 100_000, headers=json_type),
        "cursor": await rest.get(
            "/tasks", params={"cursor": "WyItY3JlYXRlZF9hdCIsICJcdWQ4MDAiLCAxXQ=="}
        ),
    }
    async with httpx2.AsyncClient(base_url=service.rest, timeout=60) as http:
        odd = {b"Authorization": b"Bearer \xc3\xa4\xff"}
        answers["non-ASCII token"] = await http.get("/tasks", headers=odd)
        answers["non-ASCII token with user"] = await http.get(
            "/tasks", headers=odd | {b"X-User-ID": b"ann"}
        )

    found = {name: answer.status_code for name, answer in answers.items()}
    assert found == {
        "id 2^31": 404,
        "id 2^53-1": 404,
        "id 2^63": 422,
        "id 2^70": 422,
        "ids": 422,
        "huge page": 422,
        "NUL": 422,
        "NUL in a search": 422,
        "surrogate": 422,
        "bytes": 400,
        "deep": 400,
        "cursor": 409,
        "non-ASCII token": 401,
        "non-ASCII token with user": 401,
    }
    assert {answer.headers["content-type"] for answer in answers.values()} == {
        "application/problem+json"
    }


@requirement("tasks:pages")
async def test_10_twenty_thousand_tasks_come_in_short_answers_and_each_of_them_once(
    service: Service, tasks: Client, user: str
) -> None:
    fill(service.database, user, 20_000)

    seen: list[int] = []
    cursor, longest = None, 0
    for _ in range(40):
        result = await tasks.call_tool("list_tasks", {"cursor": cursor} if cursor else {})
        page, longest = result.structured_content, max(longest, len(result.content[0].text))
        seen += [task["id"] for task in page["tasks"]]
        cursor = page["next_cursor"]
        assert page["total"] == 20_000
    # The rest in the pages of REST: the cursor is the same one.
    async with service.http(user) as rest:
        while cursor:
            page = (
                await rest.get("/tasks", params={"cursor": cursor, "limit": 200})
            ).json()
            seen += [task["id"] for task in page["tasks"]]
            cursor = page["next_cursor"]

    assert longest < 8000
    assert len(seen) == len(set(seen)) == 20_000


def fill(database: str, user: str, number: int) -> None:
    moment = "2026-01-01T00:00:00.000000Z"  # one moment for all: only the tie-breaker tells them apart
    row = (
        user,
        f"A title of the usual length, {'x' * 60}",
        False,
        1,
        moment,
        moment,
        "",
        1,
        "",
    )
    store = open_store(database)
    store.write_sync(
        lambda tx: tx.many(
            "INSERT INTO task (user_id, title, completed, priority, created_at, updated_at, labels, version, search) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [row] * number,
        )
    )
    store.close()


async def test_10_long_tasks_make_short_pages(tasks: Client) -> None:
    for number in range(6):
        await ok(tasks, "create_task", title=f"long {number}", description="y" * 3000)

    seen: list[Any] = []
    cursor = None
    while len(seen) < 6:
        result = await tasks.call_tool("list_tasks", {"cursor": cursor} if cursor else {})
        assert len(result.content[0].text) < 8000
        seen += [task["title"] for task in result.structured_content["tasks"]]
        cursor = result.structured_content["next_cursor"]

    assert seen == [f"long {number}" for number in range(5, -1, -1)]
    assert cursor is None


async def test_11_one_pool_serves_all_calls(
    home: Home, service: Service, user: str
) -> None:
    connections, hung_up = 0, asyncio.Event()

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        host, port = service.rest.removeprefix("http://").split(":")
        there = await asyncio.open_connection(host, int(port))
        await asyncio.gather(carry(reader, there[1]), carry(there[0], writer))
        await asyncio.gather(there[1].wait_closed(), writer.wait_closed())
        hung_up.set()

    async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
        target.close()

    server = await asyncio.start_server(counted, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with backend_at(home, address, user=user) as client:
        for number in range(10):
            await ok(client, "create_task", title=f"{number}")
        assert (await ok(client, "list_tasks"))["total"] == 10
    await hung_up.wait()
    server.close()

    assert connections == 1


def test_12_the_query_string_of_a_database_url_is_kept(home: Home) -> None:
    url = "postgresql://desk@db.example.org/desk?sslmode=verify-full&application_name=desk"

    settings = load(home.environment | {"DESKHAND_DATABASE_URL": url}).settings

    assert settings.database == url


def test_12_a_demanded_tls_is_not_given_up(postgresql: str, home: Home) -> None:
    """The server here has no TLS: whoever demands it must not be connected without."""
    separator = "&" if "?" in postgresql else "?"
    tcp = f"{postgresql}{separator}sslmode=require&connect_timeout=3"
    if "host=/" in postgresql:
        pytest.skip("this PostgreSQL listens on a socket file, where TLS does not apply")

    done = home.command("token", "list", DESKHAND_DATABASE_URL=tcp)

    assert done.returncode == 7


@requirement("tasks:pages")
@pytest.mark.parametrize(
    "sort", ["-created_at", "created_at", "due_date", "-due_date", "priority", "-priority"]
)
async def test_13_pages_neither_repeat_nor_skip_while_tasks_come_and_go(
    rest: httpx2.AsyncClient, sort: str
) -> None:
    made = []
    for number in range(30):
        task = {"title": f"{number}", "priority": ["Low", "High"][number % 2]}
        task |= {"due_date": "2026-12-20T10:00:00Z"} if number % 3 else {}
        made.append((await rest.post("/tasks", json=task)).json()["id"])
    seen: list[int] = []
    cursor = None
    for _ in range(10):
        further: dict[str, str] = {"cursor": cursor} if cursor else {}
        page = (
            await rest.get("/tasks", params={"limit": "7", "sort": sort} | further)
        ).json()
        seen += [task["id"] for task in page["tasks"]]
        await rest.delete(f"/tasks/{seen[0]}")
        if (cursor := page["next_cursor"]) is None:
            break

    assert sorted(seen) == made


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (TaskFilter(), "task_page"),
        (TaskFilter(completed=False, sort="created_at"), "task_state"),
    ],
)
async def test_13_a_page_and_its_total_are_read_from_indexes(
    service: Service, user: str, wanted: TaskFilter, index: str
) -> None:
    names = "(user_id, title, completed, priority, created_at, updated_at, labels, version, search)"
    done = [
        (user, "t", True, 1, f"2026-{number:04}", "2026", "", 1, "t")
        for number in range(500)
    ]

    def plans(tx: Transaction) -> str:
        if tx.dialect == "postgresql":
            tx.execute("SET LOCAL enable_seqscan = off")
            tx.execute("SET LOCAL enable_sort = off")
        explained = Explained(tx)
        assert rows.page(explained, user, wanted)["total"] == (
            0 if wanted.completed is False else 500
        )
        return "\n".join(explained.plans)

    opened = open_store(service.database)
    opened.write_sync(
        lambda tx: tx.many(
            f"INSERT INTO task {names} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", done
        )
    )
    opened.write_sync(lambda tx: tx.execute("ANALYZE task"))
    plan = opened.write_sync(plans)
    opened.close()

    assert index in plan
    assert "task_total" in plan
    for costly in ("TEMP B-TREE", "Sort", "Seq Scan", "SCAN", "Filter"):
        assert costly not in plan


class Explained:
    """A transaction that notes how the database would go about each of its questions."""

    def __init__(self, tx: Transaction) -> None:
        self.dialect = tx.dialect
        self.execute, self.many, self.note_beside = tx.execute, tx.many, tx.note_beside
        self.plans: list[str] = []
        self._tx = tx

    def one(self, sql: str, *values: Any) -> Row | None:
        self._explain(sql, values)
        return self._tx.one(sql, *values)

    def all(self, sql: str, *values: Any) -> list[Row]:
        self._explain(sql, values)
        return self._tx.all(sql, *values)

    def _explain(self, sql: str, values: Sequence[Any]) -> None:
        explain = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN"}[self.dialect]
        self.plans += [str(row) for row in self._tx.all(f"{explain} {sql}", *values)]


@requirement("tasks:validation")
async def test_14_the_backends_field_list_reaches_the_model(home: Home) -> None:
    ours = {
        "detail": "no",
        "errors": [
            {"field": "title", "message": "m", "received_value": "r", "suggestion": "s"}
        ],
    }
    fastapis = {
        "detail": [{"loc": ["body", "title"], "msg": "m", "type": "x", "input": "r"}]
    }
    for answer in (ours, fastapis):
        async with backend_at(home, Recorder(422, answer), user="ann") as client:
            error = await refused(client, "update_task", task_id=1, title="x")
        assert (error["error_type"], fields(error)) == ("validation_error", {"title"})
        assert error["details"]["fields"][0]["message"] == "m"


@requirement("tasks:log")
def test_15_the_log_line_carries_its_fields(home: Home) -> None:
    """The formatter is the one of the process; a field that it drops is not in the line."""
    code = (
        "import logging; from deskhand import log; log.configure('INFO');"
        "logging.getLogger('deskhand').info('backend_request', extra={'user_id': 'ann', 'status_code': 201})"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    line = json.loads(done.stderr)
    assert (line["event"], line["user_id"], line["status_code"]) == (
        "backend_request",
        "ann",
        201,
    )
