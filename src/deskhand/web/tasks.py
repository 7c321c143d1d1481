"""Tasks: the person's own list, through the same client and backend as every assistant's."""

import re
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlencode
from zoneinfo import ZoneInfo

from markupsafe import Markup
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.askers import PERSON
from deskhand.errors import BackendFailed, BadConfig, InvalidInput
from deskhand.tasks import due
from deskhand.tasks.agenda import group_tasks
from deskhand.tasks.models import PRIORITIES, Task, TaskPage
from deskhand.tasks.oneline import describe_rule, read_line, read_rule
from deskhand.web.changed import find_change, forget_change, note_change
from deskhand.web.entry import effect, page
from deskhand.web.render import render
from deskhand.web.request import desk_of, done_in, next_page, number_in, text_in
from deskhand.web.times import local_time, shown_time
from deskhand.web.unavailable import or_unavailable

M = TypeVar("M", bound=BaseModel)

PAGE = 50
STATES: dict[str, dict[str, str]] = {
    "open": {"completed": "false"},
    "done": {"completed": "true"},
    "all": {},
}
FILTERS = ("q", "label", "project", "priority")
DONE = {
    **{
        f"added-{day}": f"The task was added, and its end was not read as a day. Did you mean {day}?"
        for day in due.NEARLY
    },
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
        page("/tasks", or_unavailable("Tasks", _show_list)),
        page("/tasks/{task_id:number}", or_unavailable("Tasks", _show_task)),
        effect("/tasks/add", _add),
        effect("/tasks/undo", _undo),
        effect("/tasks/{task_id:number}/edit", _edit),
        effect("/tasks/{task_id:number}/move", _move),
    ]


def _user(desk: Desk) -> str:
    if desk.settings.user is None:
        raise BadConfig(
            "nobody says whose tasks these are",
            hint="run `deskhand init --user NAME --yes` (any name; or set DESKHAND_USER) and start the desk again",
        )
    return desk.settings.user


async def _call(desk: Desk, method: str, path: str, **sent: Any) -> Any:
    """As the person: what is done on this page is on the record as theirs."""
    return await desk.tasks.call(_user(desk), method, path, actor=PERSON, **sent)


async def _show_list(
    request: Request,
    problem: InvalidInput | None = None,
    typed: dict[str, str] | None = None,
) -> Response:
    desk = desk_of(request)
    given = request.query_params
    asked = {name: given.get(name, "").strip() for name in FILTERS}
    state = given.get("state", "open")
    if state not in STATES:
        state = "open"
    chosen = {name: value for name, value in asked.items() if value}
    query = chosen | STATES[state] | {"limit": str(PAGE), "sort": "due_date"}
    if cursor := given.get("cursor"):
        query["cursor"] = cursor
    found = TaskPage(tasks=[], total=0, next_cursor=None)
    try:
        found = _read_answer(
            TaskPage, await desk.tasks.page(_user(desk), query, actor=PERSON)
        )
    except InvalidInput as failure:
        problem = problem or failure
    return await render(
        request,
        "tasks.html",
        title="Tasks",
        problem=problem,
        groups=_draw_groups(desk, found.tasks),
        total=found.total,
        older=next_page("/tasks", chosen | {"state": state}, "cursor", found.next_cursor),
        filtered=urlencode(chosen | {"state": state}),
        asked=asked,
        state=state,
        priorities=PRIORITIES,
        typed=typed or {},
        done=done_in(request, DONE),
        deleted=number_in(request, "deleted", digits=16),
        undo_at=find_change(request, "/tasks"),
        # Somebody else may have changed one; right after an undo there is nothing more.
        may_undo=found.total > 0 and given.get("done") != "undone",
    )


def _draw_groups(
    desk: Desk, tasks: Sequence[Task]
) -> list[tuple[str, list[tuple[Task, str, str, str]]]]:
    """The tasks of a page below the names of their groups, each with when it is due and how it comes again."""
    return [
        (
            name,
            [
                (task, _due(desk, task), _due_words(desk, task), _rule(task))
                for task in members
            ],
        )
        for name, members in group_tasks(tasks, desk.now(), desk.settings.timezone)
    ]


async def _show_task(
    request: Request,
    problem: InvalidInput | None = None,
    typed: dict[str, str] | None = None,
) -> Response:
    desk = desk_of(request)
    answer = await _call(desk, "GET", f"/tasks/{request.path_params['task_id']}")
    task = _read_answer(Task, answer)
    return await render(
        request,
        "task.html",
        title=task.title,
        problem=problem,
        task=task,
        fields=typed or _fields(desk, task),
        story=_tell_story(desk, task),
        priorities=PRIORITIES,
        done=done_in(request, DONE),
    )


def _tell_story(desk: Desk, task: Task) -> list[tuple[str, str | None, Markup]]:
    """What was done with the task first and last: what it was, by whom, and when."""
    story = [("Added", task.created_by, _when(desk, task.created_at))]
    if task.updated_at != task.created_at:
        story.append(("Last changed", task.changed_by, _when(desk, task.updated_at)))
    return story


def _when(desk: Desk, moment: str) -> Markup:
    return shown_time(desk, datetime.fromisoformat(moment))


async def _add(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    typed = _texts(form)
    try:
        line = read_line(typed.get("title", ""), desk.now(), _zone(desk))
        given = {
            name: text for name, text in typed.items() if name != "title" and text.strip()
        }
        body = line.body() | _body(desk, given)
        # One key for one form: a repeated request must not make a second task.
        await _call(desk, "POST", "/tasks", body=body, key=str(uuid.uuid4()))
        note_change(request, "/tasks")
    except InvalidInput as failure:
        return await _show_list(request, failure, typed)
    if line.near_day and "due" not in given:
        return _show_again(typed, f"added-{line.near_day}")
    return _show_again(typed, "added")


async def _edit(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    path = f"/tasks/{request.path_params['task_id']}"
    typed = _texts(form)
    version = typed.get("version", "")
    if not re.fullmatch(r"[0-9]{1,16}", version):
        raise InvalidInput(
            "the form does not say which version it changes",
            hint="reload the page and try again",
        )
    # What was not touched is not sent: a form shows less of a due date than the task has.
    shown = _fields(desk, _read_answer(Task, await _call(desk, "GET", path)))
    del shown["version"]
    touched = {
        name: text
        for name, text in typed.items()
        if name in shown and text.strip() != shown[name].strip()
    }
    if "series" in typed and "due" in touched:
        touched.setdefault("repeats", shown["repeats"])
    try:
        if touched:
            body = _body(desk, touched)
            await _call(desk, "PUT", path, body=body, match=f'"{version}"')
            note_change(request, "/tasks")
    except InvalidInput as failure:
        return await _show_task(request, failure, typed)
    return RedirectResponse(f"{path}?done=changed", 303)


async def _move(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    to = form.get("to")
    task_id = request.path_params["task_id"]
    path = f"/tasks/{task_id}"
    match to:
        case "complete" | "reopen":
            await _call(desk, "PATCH", path, body={"completed": to == "complete"})
        case "delete":
            await _call(desk, "DELETE", path)
            note_change(request, "/tasks")
            return _show_again(_texts(form), "delete", deleted=str(task_id))
        case "restore":
            await _call(desk, "POST", f"{path}/restore")
        case _:
            raise InvalidInput(
                "a task cannot be moved there",
                hint="complete, reopen, delete or restore it",
            )
    note_change(request, "/tasks")
    return _show_again(_texts(form), str(to))


async def _undo(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    await _call(desk, "POST", "/tasks/undo")
    forget_change(request, "/tasks")
    return _show_again(_texts(form), "undone")


def _show_again(typed: dict[str, str], done: str, **more: str) -> Response:
    """The list as it was filtered when the form was sent."""
    before = parse_qs(typed.get("filtered", ""), max_num_fields=10)
    kept = {name: before[name][0] for name in (*FILTERS, "state") if name in before}
    return RedirectResponse(f"/tasks?{urlencode(kept | {'done': done} | more)}", 303)


def _texts(form: FormData) -> dict[str, str]:
    """Each field of the form, with the line ends that a task has."""
    return {
        name: text_in(form, name).replace("\r\n", "\n")
        for name in form
        if name != "form_token"
    }


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
    if "repeats" in typed:
        body["recurrence"] = _read_rule(typed["repeats"].strip())
    if "labels" in typed:
        body["labels"] = [
            label.strip() for label in typed["labels"].split(",") if label.strip()
        ]
    return body


def _instant(desk: Desk, written: str) -> str | None:
    """A day and a time of the person's own clock, in figures or words."""
    if not written:
        return None
    return due.read(written, desk.now(), _zone(desk))


def _read_rule(written: str) -> str | None:
    """Words, or an RRULE, which is the backend's to check."""
    return read_rule(written) or written or None


def _rule(task: Task) -> str:
    if task.recurrence is None:
        return ""
    return describe_rule(task.recurrence)


def _zone(desk: Desk) -> ZoneInfo:
    return ZoneInfo(desk.settings.timezone)


def _fields(desk: Desk, task: Task) -> dict[str, str]:
    return {
        "title": task.title,
        "description": task.description or "",
        "priority": task.priority,
        # A day alone means its end, here as in the line of a new task.
        "due": _due(desk, task).removesuffix(f" {due.END_OF_DAY:%H:%M}"),
        "project": task.project or "",
        "labels": ", ".join(task.labels),
        "repeats": _rule(task),
        "version": str(task.version),
    }


def _due(desk: Desk, task: Task) -> str:
    if task.due_date is None:
        return ""
    return local_time(desk, datetime.fromisoformat(task.due_date))


def _due_words(desk: Desk, task: Task) -> str:
    if task.due_date is None:
        return ""
    return due.describe(task.due_date, desk.now(), desk.settings.timezone)


def _read_answer(model: type[M], content: Any) -> M:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise BackendFailed(
            "The backend's answer is not the one that was agreed on"
        ) from error
