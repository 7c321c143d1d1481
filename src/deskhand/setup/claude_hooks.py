"""The hooks in Claude Code's settings by which it asks on the desk's page before it uses a tool of its own.

The lists there may hold hooks of others: only the desk's own come and go.
"""

import json
import shlex
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any

from deskhand.errors import NotFound, Unreadable
from deskhand.hook import ALWAYS, PROMPTED, TIMEOUT
from deskhand.setup import files, jsonc
from deskhand.setup.clients import CLIENTS, Program
from deskhand.setup.connect import ClientPlan, find_connection, restore

NAME = "permissions"
COMMAND = "claude-hook"
_CLIENT = CLIENTS["claude-code"]
_EVENTS = {"PreToolUse": ALWAYS, "PermissionRequest": PROMPTED}


def settings_file(environment: Mapping[str, str]) -> Path:
    folder = environment.get("CLAUDE_CONFIG_DIR")
    if folder:
        return Path(folder) / "settings.json"
    return Path(environment.get("HOME") or "~").expanduser() / ".claude" / "settings.json"


def own_hooks(program: Program) -> dict[str, Any]:
    """The desk's hook at each of its events."""
    words = [f"DESKHAND_HOME={program.home}", program.command, *program.arguments]
    hook = {"type": "command", "command": f"env {shlex.join(words)}", "timeout": TIMEOUT}
    return {
        event: {"matcher": matcher, "hooks": [hook]} for event, matcher in _EVENTS.items()
    }


def plan_hooks(file: Path, program: Program) -> ClientPlan:
    """The settings with the desk's hooks in them."""
    before = files.content(file)
    text, found = _read(file, before)
    after = text
    own = own_hooks(program)
    for event, ours in own.items():
        there = found.get(event, [])
        if [each for each in there if _is_ours(each)] != [ours]:
            after = jsonc.with_member(after, ("hooks", event), [*_keep_others(there), ours])
    written = before if after == text and before is not None else after.encode()
    return ClientPlan(
        _CLIENT, file, NAME, before, written, _difference(_own_in(found), _listed(own))
    )


def plan_undo(home: Path, file: Path) -> ClientPlan:
    """The settings as they were before, or without the desk's hooks where they were changed since."""
    known = find_connection(home, _CLIENT, NAME)
    if known is not None:
        file = Path(known.file)
    before = files.content(file)
    text, found = _read(file, before)
    own = _own_in(found)
    if before is None or not own:
        raise NotFound(
            f"{file} has no hook of the desk",
            hint="Claude Code does not ask on the desk's page",
        )
    for event in own:
        others = _keep_others(found[event])
        path = ("hooks", event)
        text = (
            jsonc.with_member(text, path, others)
            if others
            else jsonc.without_member(text, path)
        )
    return ClientPlan(
        _CLIENT,
        file,
        NAME,
        before,
        restore(known, before, text.encode()),
        _difference(own, {}),
    )


def snippet(program: Program) -> str:
    return _write(_listed(own_hooks(program)))


def _read(file: Path, data: bytes | None) -> tuple[str, dict[str, list[Any]]]:
    """The text, and the hooks in it by their events."""
    try:
        text = (data or b"").decode()
        whole = jsonc.loads(text) if text.strip("\ufeff \t\r\n") else {}
    except (ValueError, RecursionError, Unreadable) as error:
        raise Unreadable(
            f"{file} cannot be read as JSON: {error}",
            hint="correct the file; it was not touched",
        ) from error
    found = whole.get("hooks", {}) if isinstance(whole, dict) else None
    if not isinstance(found, dict) or not all(
        isinstance(each, list) for each in found.values()
    ):
        raise Unreadable(
            f"{file} does not hold settings of Claude Code",
            hint="correct the file; it was not touched",
        )
    return text, found


def _is_ours(group: Any) -> bool:
    match group:
        case {"hooks": [{"command": str(command)}]}:
            return command.endswith(f" {COMMAND}")
        case _:
            return False


def _keep_others(groups: list[Any]) -> list[Any]:
    return [each for each in groups if not _is_ours(each)]


def _own_in(found: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    own = {
        event: [each for each in groups if _is_ours(each)]
        for event, groups in found.items()
    }
    return {event: groups for event, groups in own.items() if groups}


def _listed(own: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {event: [group] for event, group in own.items()}


def _difference(old: Mapping[str, list[Any]], new: Mapping[str, list[Any]]) -> str:
    """Of the desk's own hooks; those of others are not shown."""
    before = _write(old).splitlines()
    after = _write(new).splitlines()
    return "\n".join(unified_diff(before, after, "before", "after", n=100, lineterm=""))


def _write(hooks: Mapping[str, list[Any]]) -> str:
    if not hooks:
        return ""
    return json.dumps({"hooks": hooks}, indent=2, ensure_ascii=False)
