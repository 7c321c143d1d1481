"""How the desk stands: counts, what waits and since when, health, last errors; at the command line and in the vault."""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from deskhand import audit, clock, wording
from deskhand.app import Desk
from deskhand.audit import witness
from deskhand.clock import iso, span
from deskhand.config import Settings
from deskhand.errors import DeskError
from deskhand.gate import lists
from deskhand.gate.cards import WORDS, Kind
from deskhand.gate.idle import IdleFile
from deskhand.gate.requests import Request
from deskhand.notes import frontmatter
from deskhand.notes.folders import DASHBOARD, WORKFLOW
from deskhand.notes.markdown import escape, escape_sentence
from deskhand.orchestrator import files, steps
from deskhand.orchestrator.watcher import mailbox_name
from deskhand.store import Transaction

log = logging.getLogger("deskhand.status")

STATE_FILE = "orchestrator_state.json"
SHOWN = 20
_NAMED = 3
_OWN = "written_by_deskhand"
"""Names the desk's own keys in the state file."""
_FORMER = {
    "last_check",
    "mail",
    "cursor",
    "model",
    "mailbox",
    "last_mail",
    "vault",
    "database",
    "publish",
}
_ASIDE = "orchestrator_state.put-aside-"
_DASHBOARD = "dashboard"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_REFRESH = timedelta(seconds=5)


class WaitingLine(BaseModel):
    id: str
    what: str
    about: str
    """The same as a person knows it."""
    since: str
    age_seconds: int


class Trouble(BaseModel):
    what: str
    about: str = ""
    """The same as a person knows it."""
    state: str
    error: str
    attempts: int


class Status(BaseModel):
    folders: dict[str, int]
    mails: dict[str, int]
    sends: dict[str, int]
    waiting: list[WaitingLine]
    waiting_total: int
    to_decide: int = 0
    """Mails that nothing decided about, and that wait for the person."""
    unread_messages: int = 0
    """Of agents to the person."""
    held: int = 0
    """Requests that are approved and rest until their time."""
    limited: int = 0
    """Requests that are approved and leave when the limit lets them."""
    snoozed: int = 0
    """Requests that the person put off."""
    mails_put_off: int = 0
    """Mails to decide that come back by themselves."""
    idle: dict[str, str]
    """Files in Approved/ that release nothing, and why."""
    not_triaged: dict[str, str]
    """Notes in Needs_Action that wait and that nobody decides about, and why."""
    errors: list[Trouble]
    health: dict[str, Any]
    down: dict[str, str] = {}
    """The parts of the running desk that do not run, and why."""


async def facts(desk: Desk) -> Status:
    """From the rows and the folders' names alone: a thousand that wait cost one small query."""
    root = desk.own_root
    now = desk.now()
    folders = {folder: len(files.names(root, folder)) for folder in WORKFLOW}
    waiting, _ = await desk.waiting.requests(limit=SHOWN, snoozed=False)
    counts = await desk.waiting.counts()
    idle = {each.path: each.why for each in await list_idle(desk)}

    messages = await desk.count_messages()

    health = read_state(root)
    health.pop("not_triaged", None)

    def ask(tx: Transaction) -> Status:
        return Status(
            folders=folders,
            mails=steps.count_states(tx),
            sends=lists.count_states(tx),
            waiting=[
                _waiting(request, now)
                for request in waiting
                if request.state in ("waiting", "unknown")
            ],
            waiting_total=counts.waiting,
            to_decide=steps.count_left(tx, now),
            unread_messages=messages,
            held=counts.held,
            limited=lists.count_limited(tx),
            snoozed=counts.snoozed,
            mails_put_off=steps.count_put_off(tx, now),
            idle=idle,
            errors=_troubles(tx),
            health=health,
            not_triaged=read_not_triaged(desk.settings),
        )

    return await desk.store.read(ask)


def read_state(root: Path) -> dict[str, Any]:
    """What the orchestrator wrote about itself last."""
    found = _parse_state(files.read_own(root, "Logs", STATE_FILE) or b"") or {}
    own = _own_names(found)
    return {
        name: value
        for name, value in found.items()
        if name in own and _can_be_shown(name, value)
    }


def _can_be_shown(*values: Any) -> bool:
    """Somebody else may have written half a character there, which no page can hold."""
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def read_not_triaged(settings: Settings) -> dict[str, str]:
    """Notes in Needs_Action that wait and that nobody decides about, and why."""
    if settings.own_place is None:
        return {}
    named = read_state(settings.own_place).get("not_triaged")
    if not isinstance(named, dict):  # somebody else wrote into the file
        return {}
    return {settings.own_path(path): str(why) for path, why in named.items()}


async def list_idle(desk: Desk) -> list[IdleFile]:
    """Files in Approved/ that release nothing, and why; named by where they lie in the vault."""
    return [
        replace(each, path=desk.settings.own_path(each.path))
        for each in await desk.door.find_idle()
    ]


def _parse_state(data: bytes) -> dict[str, Any] | None:
    """None where it is no JSON object."""
    with suppress(ValueError, RecursionError):
        found = json.loads(data)
        if isinstance(found, dict):
            return found
    return None


def _own_names(state: Mapping[str, Any]) -> set[str]:
    """The keys that the desk wrote. The file may be another watcher's too, and an earlier
    version listed nothing."""
    if state.keys() >= {"last_check", "mail", "cursor", "model"} and _OWN not in state:
        return _FORMER
    listed = state.get(_OWN)
    return set(map(str, listed)) if isinstance(listed, list) else set()


def _write_state(root: Path, state: Mapping[str, Any]) -> None:
    """Keys of others stay as they are; a file that is no JSON object is put aside."""

    def merged(old: bytes | None) -> bytes:
        theirs = _parse_state(old or b"{}")
        if theirs is None and old is not None:
            aside = f"{_ASIDE}{sha256(old).hexdigest()[:8]}.json"
            files.write(root, ("Logs",), aside, old)
            log.warning("state_put_aside", extra={"file": f"Logs/{aside}"})
        theirs = theirs or {}
        others = {
            name: value
            for name, value in theirs.items()
            if name not in _own_names(theirs) | {_OWN}
        }
        aside_now = sorted(file.name for file in (root / "Logs").glob(f"{_ASIDE}*.json"))
        own = {
            name: theirs[name]
            for name in _own_names(theirs) & theirs.keys() & {"last_mail"}
        } | dict(state)
        if aside_now:
            own["put_aside"] = f"was no JSON object: {', '.join(aside_now)}"
        own = {name: value for name, value in own.items() if name not in others}
        return (json.dumps(others | own | {_OWN: sorted(own)}, indent=2) + "\n").encode()

    files.change(root, ("Logs",), STATE_FILE, merged)


async def publish(desk: Desk, health: Mapping[str, Any], *, always: bool = False) -> None:
    """The contract's state file and Dashboard.md; of several orchestrators that run, one
    writes them at a time."""
    now = desk.now()
    root = desk.own_root
    if not await desk.store.write(_my_turn, now) and not always:
        return
    main, *others = desk.settings.mail_accounts
    state = {
        "last_check": iso(now),
        "mail": main.kind,
        "cursor": await _find_cursor(desk, main.name),
    } | dict(health)
    if others:
        state["accounts"] = {each.name: each.kind for each in desk.settings.mail_accounts}
    _write_state(root, state)
    files.write(
        root,
        ("Logs",),
        witness.FILE,
        witness.describe(await desk.store.read(audit.head), now),
    )
    zone = desk.settings.timezone

    def say(text: str) -> str:
        return escape_sentence(name_times(text, lambda at: clock.dated(at, zone)))

    text = await asyncio.to_thread(page, await facts(desk), now, say=say)
    await asyncio.to_thread(files.write, root, (), DASHBOARD, text.encode())


def name_times(text: str, words: Callable[[datetime], str]) -> str:
    """The text with each exact time in it as a person says it."""
    return _MOMENT.sub(lambda at: words(datetime.fromisoformat(at[0])), text)


async def _find_cursor(desk: Desk, account: str) -> str | None:
    try:
        return await desk.store.read(steps.cursor, await mailbox_name(desk, account))
    except DeskError:
        return (
            None  # the state says that the mailbox does not answer; that is what it is for
        )


def page(
    status: Status,
    now: datetime,
    put: Callable[[str], str] = escape,
    say: Callable[[str], str] = escape_sentence,
) -> str:
    """The whole as Markdown; `put` makes one harmless line of what others wrote, `say` of
    the desk's own words."""

    def table(counts: Mapping[str, int]) -> str:
        return (
            "\n".join(f"| {name} | {count} |" for name, count in counts.items())
            or "| none | 0 |"
        )

    lines = [
        f"- {put(each.about)} ({span(each.age_seconds)}, `{each.id}`)"
        for each in status.waiting
    ]
    if status.waiting_total > len(status.waiting):
        lines.append(f"- and {status.waiting_total - len(status.waiting)} more")
    if status.to_decide:
        lines.append(
            f"- {status.to_decide} {'mail' if status.to_decide == 1 else 'mails'} to decide"
        )
    if status.unread_messages:
        many = status.unread_messages
        lines.append(
            f"- {many} {'message' if many == 1 else 'messages'} of agents to you, on the page under Agents"
        )
    troubles = [f"- {_describe_trouble(each, put, say)}" for each in status.errors]
    health = [
        f"- {wording.spaced(name)}: {say(_describe_health(value))}"
        for name, value in status.health.items()
        if name != "cursor"
    ]
    parts = [
        "# The desk",
        f"## Folders\n\n| folder | notes |\n|---|---|\n{table(status.folders)}",
        f"## Mails\n\n| state | mails |\n|---|---|\n{table(_name_mails(status))}",
        "## Waiting for you\n\n" + ("\n".join(lines) or "Nothing waits."),
        *_list_resting(status),
        *_list_files("In Approved/, but not sent", status.idle, put, say),
        *_list_files("In Needs_Action/, but not triaged", status.not_triaged, put, say),
        "## Health\n\n" + ("\n".join(health) or "Nothing is known yet."),
        "## Last errors\n\n" + ("\n".join(troubles) or "None."),
    ]
    properties = {"type": "dashboard", "updated": iso(now), "waiting": status.waiting_total}
    return frontmatter.render(properties, "\n" + "\n\n".join(parts) + "\n")


def _name_mails(status: Status) -> dict[str, int]:
    """How many mails have each name; what was put off is not among those to decide, as on the page."""
    found = wording.name_mails(status.mails)
    to_decide = wording.MAILS["needs_info"]
    if status.mails_put_off and to_decide in found:
        found[to_decide] -= status.mails_put_off
        found["put off"] = status.mails_put_off
    return found


def _describe_trouble(
    trouble: Trouble, put: Callable[[str], str], say: Callable[[str], str]
) -> str:
    error = wording.plain_error(trouble.error)
    times = "once" if trouble.attempts == 1 else f"{trouble.attempts} times"
    return f"{put(trouble.about or trouble.what)}: {say(error)} (tried {times})"


def _describe_health(value: Any) -> str:
    """A value of the state file; what has parts is read part by part."""
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name}: {each}" for name, each in value.items())


def _list_resting(status: Status) -> list[str]:
    """What the counts above have and the list of what waits has not."""
    counts = {
        wording.name_state("held"): status.held,
        wording.name_state("snoozed"): status.snoozed,
        "approved and waiting for the limit": status.limited,
    }
    said = [f"{count} {name}" for name, count in counts.items() if count]
    if status.mails_put_off:
        mails = "1 mail" if status.mails_put_off == 1 else f"{status.mails_put_off} mails"
        said.append(f"{mails} to decide, put off")
    return [f"Not in this list: {', '.join(said)}."] if said else []


def _list_files(
    title: str, why: Mapping[str, str], put: Callable[[str], str], say: Callable[[str], str]
) -> list[str]:
    """A part of the page, where there is anything to name."""
    if not why:
        return []
    lines = [f"- {put(path)}: {say(reason)}" for path, reason in list(why.items())[:SHOWN]]
    if len(why) > SHOWN:
        lines.append(f"- and {len(why) - SHOWN} more")
    return [f"## {title}\n\n" + "\n".join(lines)]


def _waiting(request: Request, now: datetime) -> WaitingLine:
    action = request.action
    people = _name_people(action.everybody or (action.to,))
    whom = f" to {people}" if people else ""
    kind: Kind = action.kind
    if request.origin == "draft" and action.reply_to_message_id is not None:
        kind = "draft"
    about = f"{WORDS[kind]}{whom}: {action.subject}"
    what = f"{action.kind}{whom}: {action.subject}"
    if request.origin == "draft":
        what = f"draft to {people}"
    age = max(0, round((now - request.created).total_seconds()))
    return WaitingLine(
        id=request.id,
        what=what,
        about=about,
        since=iso(request.created),
        age_seconds=age,
    )


def _name_people(addresses: Sequence[str]) -> str:
    """Whom it goes to, whichever line names them."""
    if len(addresses) > _NAMED:
        return f"{addresses[0]} and {len(addresses) - 1} more"
    return ", ".join(addresses)


def _troubles(tx: Transaction) -> list[Trouble]:
    mails = [
        (step.key, f"mail {step.data.note or ''}", step.state, step.error, step.attempts)
        for step in steps.troubles(tx, SHOWN)
    ]
    sends = [
        (
            f"send:{each.id}",
            f"request {each.id}: {each.action.subject}",
            each.state,
            each.error,
            each.attempts,
        )
        for each in lists.troubles(tx, SHOWN)
    ]
    return [
        Trouble(
            what=what, about=about.strip(), state=state, error=error or "", attempts=tries
        )
        for what, about, state, error, tries in [*sends, *mails][:SHOWN]
    ]


def _my_turn(tx: Transaction, now: datetime) -> bool:
    old = steps.cursor(tx, _DASHBOARD)
    return (old is None or old <= iso(now)) and steps.advance(
        tx, _DASHBOARD, old, iso(now + _REFRESH)
    )
