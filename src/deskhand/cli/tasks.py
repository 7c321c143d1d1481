"""`deskhand tasks` and `tasks-api`: the person's list, tasks to and from a file, and their backend."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deskhand.cli.command import (
    at_desk,
    command,
    confirm,
    flag,
    group,
    one_line,
    opened_desk,
    tell,
)
from deskhand.errors import BadConfig, InvalidInput
from deskhand.files import write_atomically

if TYPE_CHECKING:
    from deskhand.app import Desk
    from deskhand.tasks.models import Task
    from deskhand.tasks.oneline import Line

PORT = 8000
ACTOR = "tasks_cli"
KNOWN = "a day (fri, +3d, 30 nov), a time (17:00)"
RULES = "a rule (every week)"
CLEARED = {
    "due": "due_date",
    "project": "project",
    "labels": "labels",
    "repeat": "recurrence",
    "description": "description",
}
"""What can be taken out of a task, and what the backend calls it."""


def add_to(commands: Any) -> None:
    api = command(
        commands, "tasks-api", _api, "serve the tasks backend (REST) on 127.0.0.1"
    )
    api.add_argument(
        "--port", type=int, default=PORT, help=f"port (default {PORT}); 0 takes a free one"
    )

    tasks = group(
        commands,
        "tasks",
        "the user's tasks: list, add, edit, done, delete, and as an iCalendar file (VTODO)",
    )
    _add_list(tasks)
    _add_changes(tasks)
    command(tasks, "undo", _undo, "take the last change back", json=True)
    _add_calendars(tasks)


def _add_list(tasks: Any) -> None:
    listed = command(tasks, "list", _list, "show what is to be done, by when", json=True)
    flag(listed, "--done", "what is done already")
    flag(listed, "--all", "both")
    listed.add_argument("--label", help="only with this label")
    listed.add_argument("--project", help="only of this project")
    listed.add_argument("--search", metavar="TEXT", help="only with this text")


def _add_changes(tasks: Any) -> None:
    added = command(
        tasks,
        "add",
        _add,
        "add a task in one line: Call sawmill fri 17:00 #phone !high",
        json=True,
    )
    added.add_argument(
        "text",
        nargs="+",
        metavar="TEXT",
        help=f"title, #label, !priority, @project, {KNOWN}, {RULES}",
    )
    completed = command(tasks, "done", _complete, "say that a task is done", json=True)
    completed.add_argument("id", type=int, metavar="ID", help="its number in the list")
    edited = command(
        tasks,
        "edit",
        _edit,
        "change a task by words: fri 17:00 !high, or a new title",
        json=True,
    )
    edited.add_argument("id", type=int, metavar="ID", help="its number in the list")
    edited.add_argument(
        "text",
        nargs="*",
        metavar="TEXT",
        help=f"what changes: title, #label, !priority, @project, {KNOWN}, {RULES}",
    )
    edited.add_argument(
        "--clear",
        action="append",
        choices=[*CLEARED],
        default=[],
        help="take this out first; may be given several times",
    )
    deleted = command(
        tasks, "delete", _delete, "delete a task, after a question", json=True
    )
    deleted.add_argument("id", type=int, metavar="ID", help="its number in the list")
    flag(deleted, "--yes", "do not ask")


def _add_calendars(tasks: Any) -> None:
    export = command(
        tasks, "export", _export, "write all of the user's tasks as an iCalendar file"
    )
    export.add_argument(
        "file", nargs="?", default="-", help="where to (default: -, the standard output)"
    )
    taken = command(
        tasks,
        "import",
        _import,
        "take the tasks of an iCalendar file that are not here yet",
        json=True,
    )
    taken.add_argument("file", help="an .ics file, or - for the standard input")


def _api(options: argparse.Namespace) -> None:
    import anyio

    from deskhand import log
    from deskhand.listen import serve_http

    with opened_desk(env_file=True) as desk:
        log.configure(desk.settings.log_level)
        anyio.run(serve_http, desk.tasks_api(desk.token()), options.port, "/tasks")


def _list(options: argparse.Namespace) -> None:
    query = {"limit": "200", "sort": "due_date"}
    if not options.all:
        query["completed"] = str(options.done).lower()
    asked = {"label": options.label, "project": options.project, "q": options.search}
    query |= {name: value for name, value in asked.items() if value}

    async def look(desk: "Desk") -> tuple[Any, str]:
        from deskhand.tasks.models import TaskPage

        found = await desk.tasks.page(_user(desk), query, actor=ACTOR)
        page = TaskPage.model_validate(found)
        return found, "\n".join(
            _lines(page.tasks, page.total, desk.now(), desk.settings.timezone)
        )

    found, text = at_desk(look, env_file=True)
    tell(options, found, text)


def _lines(tasks: "Sequence[Task]", total: int, now: datetime, zone: str) -> Iterator[str]:
    from deskhand.tasks.agenda import group_tasks

    if not tasks:
        yield "No task here."
    for name, members in group_tasks(tasks, now, zone):
        yield name
        yield from (f"  {_line(task, now, zone)}" for task in members)
    if total > len(tasks):
        yield f"… and {total - len(tasks):,} more: --label, --project or --search show fewer"


def _line(task: "Task", now: datetime, zone: str) -> str:
    """One task: its number, its title, and what else it says."""
    from deskhand.tasks import due
    from deskhand.tasks.oneline import describe_rule

    parts = [f"{task.id:>4}  {task.title}"]
    if task.due_date:
        parts.append(due.describe(task.due_date, now, zone))
    if task.recurrence:
        parts.append(describe_rule(task.recurrence))
    if task.priority != "Medium":
        parts.append(f"!{task.priority.lower()}")
    if task.project:
        parts.append(f"@{task.project}")
    parts += [f"#{label}" for label in task.labels]
    return one_line("  ".join(parts))


def _add(options: argparse.Namespace) -> None:
    import uuid
    from zoneinfo import ZoneInfo

    async def add(desk: "Desk") -> tuple[Any, str, str | None]:
        from deskhand.tasks.models import Task
        from deskhand.tasks.oneline import read_line

        line = read_line(
            " ".join(options.text), desk.now(), ZoneInfo(desk.settings.timezone)
        )
        # One key for one call: a repeated request must not make a second task.
        key = str(uuid.uuid4())
        made = await desk.tasks.call(
            _user(desk), "POST", "/tasks", body=line.body(), key=key, actor=ACTOR
        )
        line_of = _line(Task.model_validate(made), desk.now(), desk.settings.timezone)
        return made, f"Added: {line_of.strip()}", line.doubt

    _tell_written(options, *at_desk(add, env_file=True))


def _edit(options: argparse.Namespace) -> None:
    from zoneinfo import ZoneInfo

    async def change(desk: "Desk") -> tuple[Any, str, str | None]:
        from deskhand.tasks.models import Task
        from deskhand.tasks.oneline import read_change

        path = f"/tasks/{options.id}"
        task = Task.model_validate(await _call(desk, "GET", path))
        before = task.due_date and datetime.fromisoformat(task.due_date)
        line = read_change(
            " ".join(options.text),
            desk.now(),
            ZoneInfo(desk.settings.timezone),
            None if "due" in options.clear else before or None,
        )
        asked = _changes(task, line, options.clear)
        if not asked:
            raise InvalidInput(
                "nothing is said that would change the task",
                hint="name what changes: fri 17:00, !high, #label, @project, every week, a new title, or --clear due",
            )
        # What somebody else changed meanwhile is not written over.
        made = await desk.tasks.call(
            _user(desk), "PUT", path, body=asked, match=f'"{task.version}"', actor=ACTOR
        )
        said = _line(Task.model_validate(made), desk.now(), desk.settings.timezone)
        told = f"Changed: {said.strip()}"
        if task.recurrence and "due_date" in asked and "recurrence" not in asked:
            told += f"\n  {_describe_one_time(task.recurrence)}"
        return made, told, line.doubt

    _tell_written(options, *at_desk(change, env_file=True))


def _tell_written(
    options: argparse.Namespace, made: Any, text: str, doubt: str | None
) -> None:
    tell(options, made, text)
    if doubt:
        print(f"{doubt} `deskhand tasks undo` takes it back.", file=sys.stderr)


def _describe_one_time(recurrence: str) -> str:
    from deskhand.tasks.oneline import describe_rule

    rule = describe_rule(recurrence)
    return f"this time only; name the rule as well to move what follows: … {rule}"


def _changes(task: "Task", line: "Line", cleared: Sequence[str]) -> dict[str, Any]:
    """What the backend is asked to change: what is cleared, and then what the line names."""
    asked: dict[str, Any] = {CLEARED[name]: None for name in cleared}
    asked |= {name: value for name, value in line.body().items() if value}
    known = [] if "labels" in cleared else task.labels
    if "labels" in asked:
        asked["labels"] = [*dict.fromkeys([*known, *line.labels])]
    return asked


def _delete(options: argparse.Namespace) -> None:
    async def look(desk: "Desk") -> Any:
        return await _call(desk, "GET", f"/tasks/{options.id}")

    title = one_line(str(at_desk(look, env_file=True)["title"]))
    if not confirm(f"Delete the task “{title}”?", yes=options.yes):
        raise InvalidInput("nothing was deleted", hint="the task is as it was")
    at_desk(partial(_call, method="DELETE", path=f"/tasks/{options.id}"), env_file=True)
    facts = {"deleted": options.id, "title": title}
    tell(options, facts, f"Deleted: {title}; `deskhand tasks undo` brings it back.")


def _complete(options: argparse.Namespace) -> None:
    async def complete(desk: "Desk") -> tuple[Any, str]:
        done = await _call(desk, "PATCH", f"/tasks/{options.id}", {"completed": True})
        again = await _tell_following(desk, done.get("next_id"))
        title = one_line(str(done["title"]))
        return done, f"Done: {title}; {again}`deskhand tasks undo` takes it back."

    tell(options, *at_desk(complete, env_file=True))


async def _tell_following(desk: "Desk", number: int | None) -> str:
    """When a task that repeats comes again, and under which number."""
    from deskhand.tasks import due
    from deskhand.tasks.models import Task

    if number is None:
        return ""
    task = Task.model_validate(await _call(desk, "GET", f"/tasks/{number}"))
    if task.due_date is None:
        return ""
    when = due.describe(task.due_date, desk.now(), desk.settings.timezone)
    return f"it comes again as {task.id}, {when}; "


def _undo(options: argparse.Namespace) -> None:
    undone = at_desk(partial(_call, method="POST", path="/tasks/undo"), env_file=True)
    tell(options, undone, "The last change was taken back.")


def _export(options: argparse.Namespace) -> None:
    export = partial(_call, method="GET", path="/tasks/export")
    content = str(at_desk(export, env_file=True)).encode()
    if options.file == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        _write(Path(options.file), content)


def _import(options: argparse.Namespace) -> int:
    take = partial(_call, method="POST", path="/tasks/import", body=_read(options.file))
    done = at_desk(take, env_file=True)
    text = (
        f"{done['imported']:,} tasks imported, {done['already_there']:,} were already there"
    )
    if done["left_out"]:
        text += f", {done['left_out']:,} left out (no tasks, or cancelled)"
    text += "."
    for each in done["problems"]:
        what = "not quite as it stands there" if each["imported"] else "not imported"
        print(
            f"line {each['line']}: {each['title']!r} {what}: {each['message']}",
            file=sys.stderr,
        )
    tell(options, done, text)
    return int(any(not each["imported"] for each in done["problems"]))


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be read: {error.strerror}", hint="name an .ics file, or -"
        ) from error


async def _call(
    desk: "Desk", method: str, path: str, body: bytes | dict[str, Any] | None = None
) -> Any:
    return await desk.tasks.call(_user(desk), method, path, body=body, actor=ACTOR)


def _user(desk: "Desk") -> str:
    if desk.settings.user is None:
        raise BadConfig(
            "nobody says whose tasks these are",
            hint="`deskhand init --user NAME --yes`; any name will do",
        )
    return desk.settings.user


def _write(file: Path, content: bytes) -> None:
    """An export that fails leaves the last one as it was."""
    try:
        write_atomically(file, content, mode=None)
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be written: {error.strerror}", hint="name another place"
        ) from error
