"""How the desk stands: counts, what waits and since when, health, last errors; at the command line and in the vault."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from deskhand.app import Desk
from deskhand.clock import iso
from deskhand.errors import DeskError
from deskhand.gate import ledger
from deskhand.gate.requests import Request
from deskhand.notes import frontmatter
from deskhand.notes.folders import WORKFLOW
from deskhand.notes.markdown import escape
from deskhand.orchestrator import files, steps
from deskhand.orchestrator.watcher import mailbox_name
from deskhand.store import Transaction

STATE_FILE = "orchestrator_state.json"
SHOWN = 20
_DASHBOARD = "dashboard"
_REFRESH = timedelta(seconds=5)


class WaitingLine(BaseModel):
    id: str
    what: str
    since: str
    age_seconds: int


class Trouble(BaseModel):
    what: str
    state: str
    error: str
    attempts: int


class Status(BaseModel):
    folders: dict[str, int]
    mails: dict[str, int]
    sends: dict[str, int]
    waiting: list[WaitingLine]
    waiting_total: int
    idle: dict[str, str]
    """Files in Approved/ that release nothing, and why."""
    errors: list[Trouble]
    health: dict[str, Any]
    down: dict[str, str] = {}
    """The parts of the running desk that do not run, and why."""


async def facts(desk: Desk) -> Status:
    """From the rows and the folders' names alone: a thousand that wait cost one small query."""
    root = desk.settings.vault
    now = desk.now()
    folders = {folder: len(files.names(root, folder)) for folder in WORKFLOW}
    waiting, _ = await desk.waiting.requests(limit=SHOWN)
    waiting_total = len(await desk.waiting.ids())
    idle = {each.path: each.why for each in await desk.door.find_idle()}

    def ask(tx: Transaction) -> Status:
        return Status(
            folders=folders,
            mails=steps.count_states(tx),
            sends=ledger.count_states(tx),
            waiting=[_waiting(request, now) for request in waiting if request.state in ("waiting", "unknown")],
            waiting_total=waiting_total,
            idle=idle,
            errors=_troubles(tx),
            health=read_state(root),
        )

    return await desk.store.read(ask)


def read_state(root: Path) -> dict[str, Any]:
    """What the orchestrator wrote about itself last."""
    try:
        found = json.loads((root / "Logs" / STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


async def publish(desk: Desk, health: Mapping[str, Any], *, always: bool = False) -> None:
    """The contract's state file and Dashboard.md; of several orchestrators that run, one writes them at a time."""
    now = desk.now()
    root = desk.settings.vault
    if not await desk.store.write(_my_turn, now) and not always:
        return
    try:
        mailbox = await mailbox_name(desk)
        place = await desk.store.read(steps.cursor, mailbox)
    except DeskError:  # the state says that the mailbox does not answer; that is what it is for
        mailbox, place = desk.settings.mail, None
    state = {"last_check": iso(now), "mail": mailbox.partition(":")[0], "cursor": place} | dict(health)
    files.write(root, ("Logs",), STATE_FILE, json.dumps(state, indent=2) + "\n")
    files.write(root, (), "Dashboard.md", page(await facts(desk), now))


def page(status: Status, now: datetime, put: Callable[[str], str] = escape) -> str:
    """The whole as Markdown; `put` makes one harmless line of what others wrote."""

    def table(counts: Mapping[str, int]) -> str:
        return "\n".join(f"| {name} | {count} |" for name, count in counts.items()) or "| none | 0 |"

    lines = [f"- {put(each.what)} ({age(each.age_seconds)}, `{each.id}`)" for each in status.waiting]
    if status.waiting_total > len(status.waiting):
        lines.append(f"- and {status.waiting_total - len(status.waiting)} more")
    troubles = [
        f"- {put(each.what)}: {put(each.error)} ({each.state}, tried {each.attempts} times)" for each in status.errors
    ]
    health = [f"- {name}: {put(str(value))}" for name, value in status.health.items() if name != "cursor"]
    parts = [
        "# The desk",
        f"## Folders\n\n| folder | notes |\n|---|---|\n{table(status.folders)}",
        f"## Mails\n\n| state | mails |\n|---|---|\n{table(status.mails)}",
        "## Waiting for you\n\n" + ("\n".join(lines) or "Nothing waits."),
        *_idle_lines(status.idle, put),
        "## Health\n\n" + ("\n".join(health) or "Nothing is known yet."),
        "## Last errors\n\n" + ("\n".join(troubles) or "None."),
    ]
    properties = {"type": "dashboard", "updated": iso(now), "waiting": status.waiting_total}
    return frontmatter.render(properties, "\n" + "\n\n".join(parts) + "\n")


def _idle_lines(idle: Mapping[str, str], put: Callable[[str], str]) -> list[str]:
    if not idle:
        return []
    lines = [f"- {put(path)}: {put(why)}" for path, why in idle.items()]
    return ["## In Approved/, but not sent\n\n" + "\n".join(lines)]


def age(seconds: int) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} seconds"


def _waiting(request: Request, now: datetime) -> WaitingLine:
    action = request.action
    what = f"{action.kind} to {action.to}: {action.subject}"
    if request.origin == "draft":
        what = f"draft to {action.to}"
    age = max(0, round((now - request.created).total_seconds()))
    return WaitingLine(id=request.id, what=what, since=iso(request.created), age_seconds=age)


def _troubles(tx: Transaction) -> list[Trouble]:
    mails = [(step.key, step.state, step.error, step.attempts) for step in steps.troubles(tx, SHOWN)]
    sends = [(f"send:{each.id}", each.state, each.error, each.attempts) for each in ledger.troubles(tx, SHOWN)]
    return [
        Trouble(what=what, state=state, error=error or "", attempts=attempts)
        for what, state, error, attempts in [*sends, *mails][:SHOWN]
    ]


def _my_turn(tx: Transaction, now: datetime) -> bool:
    old = steps.cursor(tx, _DASHBOARD)
    return (old is None or old <= iso(now)) and steps.advance(tx, _DASHBOARD, old, iso(now + _REFRESH))
