"""The check-up of a desk: for each part a finding that says what to do; and the few repairs that are safe."""

import asyncio
import inspect
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import httpx2

from deskhand.app import Desk
from deskhand.errors import DeskError
from deskhand.setup.checks import deep, machine
from deskhand.setup.checks import desk as parts
from deskhand.setup.checks.findings import Finding, bad, good
from deskhand.setup.service import DOES_NOT_HOLD, HOLDS
from deskhand.setup.sweep import sweep

Check = Callable[[Desk], Finding] | Callable[[Desk], Awaitable[Finding]]


def _configuration(desk: Desk) -> Finding:
    return good(
        f"every option of {desk.settings.home / 'config.toml'} and the environment is valid"
    )


def _mode(desk: Desk) -> Finding:
    if desk.settings.is_guarded:
        return good("guarded")
    says = "on your own account. " + " ".join(HOLDS)
    return good(
        f"{says} It does not hold: {' '.join(DOES_NOT_HOLD)} `deskhand service install --guarded` helps there."
    )


CHECKS: dict[str, Check] = {
    "python": machine.python,
    "mode": _mode,
    "configuration": _configuration,
    "home": machine.home,
    "secrets": machine.secrets,
    "disk": machine.disk,
    "database": parts.database,
    "record": parts.record,
    "keys": parts.keys,
    "clock": machine.clock,
    "ledger": parts.ledger,
    "vault": parts.vault,
    "folders": parts.folders,
    "index": parts.index,
    "mailbox": parts.mailbox,
    "attachments": parts.attachments,
    "approvals": parts.approvals,
    "tasks": parts.tasks,
    "agents": parts.agents,
    "model": parts.model,
    "clients": parts.clients,
    "notify": parts.notify,
    "rules": parts.rules,
    "port": machine.port,
    "parts": machine.parts,
}
REPAIRS = (
    machine.close_home,
    parts.upgrade_database,
    parts.add_folders,
    parts.rebuild_index,
    parts.renew_seal,
    sweep,
)


DEEP: dict[str, Check] = {
    "integrity": deep.integrity,
    "doors": deep.doors,
    "command lines": deep.command_lines,
    "private files": deep.private_files,
    "waiting": deep.waiting,
    "readers": deep.readers,
}


async def checkup(desk: Desk, *, deeply: bool = False) -> list[Finding]:
    """Every part in turn; one that fails is a finding, never the end of the check-up."""
    checks = CHECKS | DEEP if deeply else CHECKS
    found: list[Finding] = []
    for name, check in checks.items():
        for part, work in _each(desk, name, check).items():
            found.append(replace(await _check(work, desk), name=part))
    return found


def _each(desk: Desk, name: str, check: Check) -> dict[str, Check]:
    """The check for each mail account or each vault, where the desk has several."""
    settings = desk.settings
    match name:
        case "mailbox" if settings.accounts:
            return {
                f"mail {each.name}": partial(parts.mailbox, account=each)
                for each in settings.mail_accounts
            }
        case "vault" if len(settings.note_vaults) > 1:
            return {
                f"vault {each.name}": partial(parts.vault, vault=each)
                for each in settings.note_vaults
            }
        case "index" if len(settings.note_vaults) > 1:
            return {
                f"index {each.name}": partial(parts.index, vault=each)
                for each in settings.note_vaults
            }
        case _:
            return {name: check}


def repair(desk: Desk) -> list[str]:
    """What was done: permissions, the schema, missing folders, a damaged index. Nothing of
    the person's is touched."""
    return [line for each in REPAIRS for line in each(desk)]


async def _check(check: Check, desk: Desk) -> Finding:
    try:
        if inspect.iscoroutinefunction(check):
            found: Finding = await check(desk)
            return found
        return await asyncio.to_thread(check, desk)  # type: ignore[arg-type]
    except DeskError as error:
        return bad(error.message, error.hint)
    except TimeoutError:
        return bad("does not answer in time", "look whether it runs and can be reached")
    except (OSError, sqlite3.Error, httpx2.HTTPError) as error:
        return bad(f"cannot be checked: {error}", "look at what it names")
