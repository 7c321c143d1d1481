"""Two users at once, over REST and over MCP, on both databases: the same answers as a model, and no leak."""

import json
from typing import Any

import anyio
import anyio.from_thread
import httpx2
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.home import TOKEN
from tests.requirements import requirement
from tests.tasks.service import Service

USERS = st.sampled_from(["first", "second"])
DOORS = st.sampled_from(["rest", "mcp"])
PLACES = st.integers(0, 5)
TITLES = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20
).filter(str.strip)
PRIORITY = st.sampled_from(["Low", "Medium", "High", "Urgent"])
CHANGES = st.fixed_dictionaries(
    {}, optional={"title": TITLES, "description": st.none() | TITLES, "priority": PRIORITY}
).filter(bool)
CALLS = {
    "create": ("POST", "/tasks", "create_task"),
    "update": ("PUT", "/tasks/{}", "update_task"),
    "complete": ("PATCH", "/tasks/{}", "mark_task_completed"),
    "delete": ("DELETE", "/tasks/{}", "delete_task"),
}


class Doors:
    """Both doors for one user; the answer is the task, None for a deletion, or "not found"."""

    def __init__(self, portal: Any, service: Service, user: str) -> None:
        self.portal, self.user = portal, user
        self.rest = httpx2.Client(
            base_url=service.rest,
            headers={"Authorization": f"Bearer {TOKEN}", "X-User-ID": user},
            timeout=30,
        )
        headers = {"Authorization": f"Bearer {TOKEN}", "X-User-ID": user}
        self.http = portal.wrap_async_context_manager(
            httpx2.AsyncClient(headers=headers, timeout=60)
        )
        client = Client(
            streamable_http_client(service.mcp, http_client=self.http.__enter__()),
            mode="2026-07-28",
        )
        self.mcp = portal.wrap_async_context_manager(client)
        self.client = self.mcp.__enter__()

    def close(self) -> None:
        self.mcp.__exit__(None, None, None)
        self.http.__exit__(None, None, None)
        self.rest.close()

    def call(self, door: str, name: str, task_id: int | None = None, **fields: Any) -> Any:
        method, path, tool = CALLS[name]
        if door == "mcp":
            arguments = fields | ({"task_id": task_id} if task_id else {})
            result = self.portal.call(self.client.call_tool, tool, arguments)
            if result.is_error:
                assert (
                    json.loads(result.content[0].text)["error_type"] == "not_found_error"
                ), result
                return "not found"
            return None if name == "delete" else result.structured_content
        body: dict[str, Any] = (
            {"json": {"completed": True} if name == "complete" else fields}
            if name != "delete"
            else {}
        )
        answer = self.rest.request(method, path.format(task_id), **body)
        if answer.status_code == 404:
            return "not found"
        assert answer.status_code in (200, 201, 204), answer.text
        return answer.json() if answer.content else None

    def page(self, door: str, **query: Any) -> list[Any]:
        if door == "mcp":
            found = self.portal.call(
                self.client.call_tool, "list_tasks", query | {"limit": 200}
            ).structured_content
        else:
            found = self.rest.get("/tasks", params=query | {"limit": 200}).json()
        assert found["total"] == len(found["tasks"])
        return found["tasks"]


SHOWN = ("title", "description", "completed", "priority", "due_date", "user_id")


def shown(task: dict[str, Any]) -> dict[str, Any]:
    return {name: task[name] for name in SHOWN}


class TwoUsers(RuleBasedStateMachine):
    service: Service
    portal: Any

    def __init__(self) -> None:
        super().__init__()
        self.doors = {
            name: Doors(self.portal, self.service, self.service.new_user())
            for name in ("first", "second")
        }
        self.model: dict[str, dict[int, dict[str, Any]]] = {"first": {}, "second": {}}
        self.ids: list[int] = []

    def teardown(self) -> None:
        for doors in self.doors.values():
            doors.close()

    def known(self, place: int) -> int:
        """An id that somebody has or had, so that users meet each other's; else one that nobody has."""
        return self.ids[place % len(self.ids)] if self.ids else 2**40

    @rule(user=USERS, door=DOORS, title=TITLES, priority=PRIORITY)
    def create(self, user: str, door: str, title: str, priority: str) -> None:
        made = self.doors[user].call(door, "create", title=title, priority=priority)
        wanted = {
            "title": title.strip(),
            "description": None,
            "completed": False,
            "priority": priority,
        }
        self.model[user][made["id"]] = wanted | {
            "due_date": None,
            "user_id": self.doors[user].user,
        }
        assert shown(made) == self.model[user][made["id"]]
        assert made["id"] not in self.ids
        self.ids.append(made["id"])

    @rule(user=USERS, door=DOORS, place=PLACES, changes=CHANGES)
    def update(self, user: str, door: str, place: int, changes: dict[str, Any]) -> None:
        task_id = self.known(place)
        answer = self.doors[user].call(door, "update", task_id, **changes)
        if task_id in self.model[user]:
            changes = changes | (
                {"title": changes["title"].strip()} if "title" in changes else {}
            )
            self.model[user][task_id] |= changes
        self.agree(user, task_id, answer)

    @rule(user=USERS, door=DOORS, place=PLACES)
    def complete(self, user: str, door: str, place: int) -> None:
        task_id = self.known(place)
        answer = self.doors[user].call(door, "complete", task_id)
        if task_id in self.model[user]:
            self.model[user][task_id]["completed"] = True
        self.agree(user, task_id, answer)

    @rule(user=USERS, door=DOORS, place=PLACES)
    def delete(self, user: str, door: str, place: int) -> None:
        task_id = self.known(place)
        answer = self.doors[user].call(door, "delete", task_id)
        assert answer == (None if self.model[user].pop(task_id, None) else "not found")

    @rule(user=USERS, door=DOORS, completed=st.booleans())
    def filtered(self, user: str, door: str, completed: bool) -> None:
        found = {task["id"] for task in self.doors[user].page(door, completed=completed)}
        assert found == {
            key for key, task in self.model[user].items() if task["completed"] is completed
        }

    def agree(self, user: str, task_id: int, answer: Any) -> None:
        wanted = self.model[user].get(task_id)
        assert (answer if wanted is None else shown(answer)) == (wanted or "not found")

    @invariant()
    def lists_agree_and_nothing_leaks(self) -> None:
        for user, doors in self.doors.items():
            found = {task["id"]: shown(task) for task in doors.page("rest")}
            assert found == self.model[user]


@requirement("tasks:model")
@requirement("tasks:isolation")
@pytest.mark.timeout(1200)
def test_two_users_get_the_answers_of_a_model_over_both_doors(
    service: Service, scale: int
) -> None:
    with anyio.from_thread.start_blocking_portal() as portal:
        run_state_machine_as_test(
            type("Bound", (TwoUsers,), {"service": service, "portal": portal}),
            settings=settings(
                max_examples=2 * scale,
                stateful_step_count=15,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
            ),
        )
