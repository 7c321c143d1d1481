"""Checks of the machine and of the desk's home on it."""

import asyncio
import os
import shutil
import stat
import subprocess
import sys
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from deskhand import __version__, audit, running
from deskhand.app import Desk
from deskhand.clock import dated
from deskhand.foreign import rules as guard_rules
from deskhand.listen import why_taken
from deskhand.orchestrator import rules as mail_rules
from deskhand.setup.checks.findings import Finding, bad, good, warning

_LOW = 1_000_000_000
_EMPTY = 100_000_000
_EARLIEST = 2026
"""No clock that is right says an earlier year."""
_SKEW = timedelta(minutes=5)
_LINES = 100
_WRITTEN_BY_HAND = (mail_rules.FILE, guard_rules.FILE)
"""They hold no secret, and an editor gives them the rights that it gives to all files."""
_SECRET_NAMES = (".env", "token", "seal.key", "credentials.json", "client_secret.json")


def python(desk: Desk) -> Finding:
    del desk
    return good(f"deskhand {__version__} on Python {sys.version.split()[0]}")


def home(desk: Desk) -> Finding:
    """Whether nobody else may read the desk's keys, tokens and mail."""
    folder = desk.settings.home
    if not folder.is_dir():
        return good(f"{folder} is made at the first use")
    if folder.stat().st_uid != os.getuid():
        return bad(
            f"{folder} belongs to another user",
            "run deskhand as its owner, or set DESKHAND_HOME",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        return bad(f"{folder} cannot be written", f"chmod 700 {folder}")
    open_to_others = too_open(folder)
    if open_to_others:
        names = ", ".join(
            str(path.relative_to(folder.parent)) for path in open_to_others[:5]
        )
        return bad(
            f"others may read {names}", "`deskhand doctor --fix` takes that right away"
        )
    return good(f"{folder}, readable by you alone")


def too_open(folder: Path, inside: str = "*") -> list[Path]:
    """The home and what lies in it that others may read or write; in a closed one an
    editor's files are safe enough."""
    others = stat.S_IRWXG | stat.S_IRWXO
    is_closed = not folder.stat().st_mode & others
    found = [
        path
        for path in sorted(folder.glob(inside))
        if not path.is_symlink() and path.suffix != ".migrating"
        if not (is_closed and path.name in _WRITTEN_BY_HAND)
    ]
    return [path for path in (folder, *found) if path.stat().st_mode & others]


def close_home(desk: Desk) -> list[str]:
    done = []
    if desk.settings.home.is_dir():
        for path in too_open(desk.settings.home):
            path.chmod(stat.S_IMODE(path.stat().st_mode) & 0o700)
            done.append(f"took others' rights on {path} away")
    return done


def disk(desk: Desk) -> Finding:
    folder = next(
        each for each in (desk.settings.home, *desk.settings.home.parents) if each.exists()
    )
    free = shutil.disk_usage(folder).free
    says = f"{free / 1e9:.1f} GB free where the desk's home is"
    if free < _EMPTY:
        return bad(says, "make room: below this nothing can be written safely")
    if free < _LOW:
        return warning(says, "make room soon")
    return good(says)


async def clock(desk: Desk) -> Finding:
    """Whether the clock can be right: approvals expire and the rate window moves by it."""
    now = desk.now()
    zone = desk.settings.timezone
    if now.year < _EARLIEST:
        return bad(f"the clock says {now:%Y-%m-%d}", "set the machine's clock")
    last = await _newest_time(desk)
    if last is not None and last - now > _SKEW:
        says = f"the record has a line from {dated(last, zone)}, ahead of now"
        return bad(says, "set the machine's clock; if it is right now, it was ahead then")
    return good(f"{dated(now, zone)}; time zone: {zone}")


async def _newest_time(desk: Desk) -> datetime | None:
    """The latest time that one of the record's last lines names."""
    from deskhand.store import revision, schema

    if await asyncio.to_thread(revision, desk.settings.database) != schema.HEAD:
        return None
    lines = await desk.store.read(partial(audit.entries, limit=_LINES))
    return max(
        (datetime.fromisoformat(entry.timestamp) for _, entry in lines), default=None
    )


def port(desk: Desk) -> Finding:
    own = running.find(desk.settings.home)
    if own is not None:
        return good(f"this desk answers at {own.address}")
    number = desk.settings.inbox_port
    why = why_taken(number)
    if why is None:
        return good(f"{number} is free for `deskhand up`")
    # This desk holds its home's lock while it runs, so whoever answers is not this one.
    if _health(f"http://127.0.0.1:{number}") is not None:
        return bad(
            f"another desk answers at http://127.0.0.1:{number}, and this one does not run",
            "set `inbox.port` (DESKHAND_PORT) to another port and start it with `deskhand up`",
        )
    return warning(
        f"port {number} cannot be used: {why}", "set DESKHAND_PORT to another one"
    )


def parts(desk: Desk) -> Finding:
    """Whether each part of the desk that runs in this home does run."""
    found = running.find(desk.settings.home)
    if found is None:
        return good("no desk runs here now; `deskhand up` starts one")
    if found.down:
        says = "; ".join(f"{name} does not run: {why}" for name, why in found.down.items())
        return bad(says, "it is started again by itself once that is mended")
    if _health(found.address) is None:
        return bad(
            f"the desk runs as process {found.pid}, but its page does not answer",
            "end it and start it again",
        )
    return good(f"each part of the desk at {found.address} runs")


def _health(address: str) -> str | None:
    """What the desk at this address says of itself; None where no desk answers."""
    import httpx2

    try:
        answer = httpx2.get(f"{address}/health", timeout=3)
        found = answer.json().get("status")
    except (httpx2.HTTPError, ValueError, AttributeError):
        return None
    return found if found in ("ok", "degraded") else None


def secrets(desk: Desk) -> Finding:
    """Whether the desk's keys could travel with a repository or a synchronised vault."""
    folder = desk.settings.home
    vaults = [vault.path for vault in desk.settings.note_vaults]
    if any(folder.resolve().is_relative_to(vault.resolve()) for vault in vaults):
        return bad(
            "the desk's home with its keys lies inside the vault",
            "move it and set DESKHAND_HOME",
        )
    # A guarded desk starts no program on files that somebody else wrote.
    if desk.settings.is_guarded or not shutil.which("git"):
        return good("the home is outside the vault")
    if _git(folder, "rev-parse", "--show-toplevel") and not _git(
        folder, "check-ignore", str(folder)
    ):
        return warning(
            f"{folder} lies in a git repository", "move it, or add it to .gitignore"
        )
    kept = [name for vault in vaults for name in _git(vault, "ls-files").splitlines()]
    named = [
        name
        for name in kept
        if Path(name).name in _SECRET_NAMES or name.endswith(".secret")
    ]
    if named:
        says = f"the vault's repository keeps {', '.join(named[:3])}"
        return warning(says, "git rm --cached, and renew them")
    return good("the home is outside the vault and outside any repository")


def _git(folder: Path, *arguments: str) -> str:
    if not folder.is_dir():
        return ""
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    if done.returncode != 0:
        return ""
    return done.stdout.strip()
