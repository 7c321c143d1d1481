"""A list of tasks as a person reads it: what is late first, then today, this week, and the rest."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from deskhand.clock import local
from deskhand.tasks.models import Task

GROUPS = ("Overdue", "Today", "This week", "Later", "Done")


def group_tasks(
    tasks: Iterable[Task], now: datetime, zone: str
) -> Iterator[tuple[str, list[Task]]]:
    """Each group that has tasks, with its tasks in their order."""
    found: dict[str, list[Task]] = {name: [] for name in GROUPS}
    for task in tasks:
        found[find_group(task, now, zone)].append(task)
    for name, members in found.items():
        if members:
            yield name, members


def find_group(task: Task, now: datetime, zone: str) -> str:
    """What has no date comes later. A week ends on Sunday."""
    if task.completed:
        return "Done"
    if task.due_date is None:
        return "Later"
    due = datetime.fromisoformat(task.due_date)
    if due < now:
        return "Overdue"
    today = local(now, zone).date()
    day = local(due, zone).date()
    if day == today:
        return "Today"
    if day <= today + timedelta(6 - today.weekday()):
        return "This week"
    return "Later"
