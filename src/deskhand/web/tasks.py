"""Tasks: the person's own list, through the same client and backend as every assistant's."""

import re
import uuid
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.errors import BackendFailed, BadConfig, InvalidInput
from deskhand.tasks import due
from deskhand.tasks.models import PRIORITIES, Task, TaskPage
from deskhand.web.entry import effect, page
from deskhand.web.presence import moment, present
from deskhand.web.render import render

M = TypeVar("M", bound=BaseModel)

PAGE = 50
STATES: dict[str, dict[str, str]] = {"open": {"completed": "false"}, "done": {"completed": "true"}, "all": {}}
DONE = {
    "added": "The task was added.",
    "changed": "The task was changed.",
    "complete": "The task is done.",
    "reopen": "The task is open again.",
    "delete": "The task was deleted.",
    "restore": "The task is back.",
    "undone": "The last change was taken back.",
}


def routes() -> list[Route]:
    return [
        page("/tasks", present("Tasks", _list)),
        page("/tasks/{task_id:int}", present("Tasks", _task)),
        effect("/tasks/add", _add),
        effect("/tasks/undo", _undo),
        effect("/tasks/{task_id:int}/edit", _edit),
        effect("/tasks/{task_id:int}/move", _move),
    ]


def _user(desk: Desk) -> str:
    if desk.settings.user is None:
        raise BadConfig(
            "nobody says whose tasks these are",
            hint="run `deskhand init --user NAME --yes` (any name; or set DESKHAND_USER) and start the desk again",
        )
    return desk.settings.user


async def _list(request: Request) -> Response:
    return await _shown(request)


async def _shown(
    request: Request, problem: InvalidInput | None = None, typed: dict[str, str] | None = None
) -> Response:
    desk: Desk = request.app.state.desk
    asked = {name: request.query_params.get(name, "").strip() for name in ("q", "label", "project", "priority")}
    state = request.query_params.get("state", "open")
    state = state if state in STATES else "open"
    query = {name: value for name, value in asked.items() if value} | STATES[state]
    cursor = request.query_params.get("cursor")
    query |= {"limit": str(PAGE), "sort": "due_date"} | ({"cursor": cursor} if cursor else {})
    found = TaskPage(tasks=[], total=0, next_cursor=None)
    try:
        found = _checked(TaskPage, await desk.tasks.call(_user(desk), "GET", "/tasks", query=query))
    except InvalidInput as failure:
        problem = problem or failure
    kept = {name: value for name, value in asked.items() if value} | {"state": state}
    return render(
        request,
        "tasks.html",
        title="Tasks",
        status=422 if problem else 200,
        tasks=[(task, _due(desk, task), _is_late(desk, task)) for task in found.tasks],
        total=found.total,
        older=f"/tasks?{urlencode(kept | {'cursor': found.next_cursor})}" if found.next_cursor else None,
        asked=asked,
        state=state,
        priorities=PRIORITIES,
        problem=problem,
        typed=typed or {},
        done=DONE.get(request.query_params.get("done", "")),
        deleted=_number(request, "deleted"),
    )


async def _task(request: Request) -> Response:
    return await _one(request)


async def _one(request: Request, problem: InvalidInput | None = None, typed: dict[str, str] | None = None) -> Response:
    desk: Desk = request.app.state.desk
    answer = await desk.tasks.call(_user(desk), "GET", f"/tasks/{request.path_params['task_id']}")
    task = _checked(Task, answer)
    return render(
        request,
        "task.html",
        title=task.title,
        status=422 if problem else 200,
        task=task,
        fields=typed or _fields(desk, task),
        priorities=PRIORITIES,
        problem=problem,
        done=DONE.get(request.query_params.get("done", "")),
    )


async def _add(request: Request, form: FormData) -> Response:
    desk: Desk = request.app.state.desk
    typed = _typed(form)
    try:
        body = {"title": ""} | _body(desk, typed)
        # One key for one form: a repeated request must not make a second task.
        await desk.tasks.call(_user(desk), "POST", "/tasks", body=body, key=str(uuid.uuid4()))
    except InvalidInput as failure:
        return await _shown(request, failure, typed)
    return RedirectResponse("/tasks?done=added", 303)


async def _edit(request: Request, form: FormData) -> Response:
    desk: Desk = request.app.state.desk
    typed, user, path = _typed(form), _user(desk), f"/tasks/{request.path_params['task_id']}"
    version = typed.get("version", "")
    if not re.fullmatch(r"[0-9]{1,16}", version):
        raise InvalidInput("the form does not say which version it changes", hint="reload the page and try again")
    # What was not touched is not sent: a form shows less of a due date than the task has.
    shown = _fields(desk, _checked(Task, await desk.tasks.call(user, "GET", path)))
    touched = {name: text for name, text in typed.items() if name in shown and text.strip() != shown[name].strip()}
    touched.pop("version", None)
    try:
        if touched:
            await desk.tasks.call(user, "PUT", path, body=_body(desk, touched), match=f'"{version}"')
    except InvalidInput as failure:
        return await _one(request, failure, typed)
    return RedirectResponse(f"{path}?done=changed", 303)


async def _move(request: Request, form: FormData) -> Response:
    desk: Desk = request.app.state.desk
    to, task_id, user = form.get("to"), request.path_params["task_id"], _user(desk)
    match to:
        case "complete" | "reopen":
            await desk.tasks.call(user, "PATCH", f"/tasks/{task_id}", body={"completed": to == "complete"})
        case "delete":
            await desk.tasks.call(user, "DELETE", f"/tasks/{task_id}")
            return RedirectResponse(f"/tasks?done=delete&deleted={task_id}", 303)
        case "restore":
            await desk.tasks.call(user, "POST", f"/tasks/{task_id}/restore")
        case _:
            raise InvalidInput("a task cannot be moved there", hint="complete, reopen, delete or restore it")
    return RedirectResponse(f"/tasks?done={to}", 303)


async def _undo(request: Request, form: FormData) -> Response:
    del form
    desk: Desk = request.app.state.desk
    await desk.tasks.call(_user(desk), "POST", "/tasks/undo")
    return RedirectResponse("/tasks?done=undone", 303)


def _typed(form: FormData) -> dict[str, str]:
    given = ((name, value) for name, value in form.items() if isinstance(value, str) and name != "form_token")
    return {name: value.replace("\r\n", "\n") for name, value in given}


def _body(desk: Desk, typed: dict[str, str]) -> dict[str, Any]:
    """What the backend is told; an empty field clears."""
    body: dict[str, Any] = {}
    for name in ("title", "priority"):
        if name in typed:
            body[name] = typed[name].strip()
    if "description" in typed:
        body["description"] = typed["description"] or None
    if "project" in typed:
        body["project"] = typed["project"].strip() or None
    if "due" in typed:
        body["due_date"] = _instant(desk, typed["due"].strip())
    if "labels" in typed:
        body["labels"] = [label.strip() for label in typed["labels"].split(",") if label.strip()]
    return body


def _instant(desk: Desk, written: str) -> str | None:
    """A day or a time of the person's own clock; anything else (a word, an ISO time) is the backend's to read."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d))?", written)
    if found is None:
        return written or None
    try:
        local = datetime.fromisoformat(f"{found[1]}T{found[2] or '23:59'}")
        return due.utc_text(local.replace(tzinfo=ZoneInfo(desk.settings.timezone)))
    except (ValueError, OverflowError):
        return written


def _fields(desk: Desk, task: Task) -> dict[str, str]:
    return {
        "title": task.title,
        "description": task.description or "",
        "priority": task.priority,
        "due": _due(desk, task),
        "project": task.project or "",
        "labels": ", ".join(task.labels),
        "version": str(task.version),
    }


def _due(desk: Desk, task: Task) -> str:
    return "" if task.due_date is None else moment(desk, datetime.fromisoformat(task.due_date))


def _is_late(desk: Desk, task: Task) -> bool:
    return task.due_date is not None and not task.completed and datetime.fromisoformat(task.due_date) < desk.now()


def _checked(model: type[M], content: Any) -> M:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise BackendFailed("The backend's answer is not the one that was agreed on") from error


def _number(request: Request, name: str) -> int | None:
    given = request.query_params.get(name, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 17 else None
