"""The checks of `doctor --deep`: what strangers tried elsewhere, tried on this desk. Nothing is changed by it."""

import asyncio
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2

from deskhand import running
from deskhand.app import Desk
from deskhand.mail import mime
from deskhand.notes.folders import FOLDERS
from deskhand.servers import SERVERS
from deskhand.setup.checks import machine
from deskhand.setup.checks.desk import RESTORE, find_damage
from deskhand.setup.checks.findings import Finding, bad, good, warning

_PAGES = ("/", "/mail", "/notes", "/tasks", "/agents", "/timeline", "/checkup")
_REST = ("/api/tasks", "/api/metrics", "/api/openapi.json")
_REFUSALS = frozenset({303, 401, 403, 404, 405, 421, 503})
_FOREIGN: tuple[dict[str, str], ...] = (
    {},
    {"Authorization": "Bearer a-guess"},
    {"Origin": "http://evil.example"},
    {"Host": "evil.example"},
)
_LONG = 1.0
"""Seconds that nothing may take which somebody else can make the desk read."""
_SIZE = 200_000
_SHAPES = (
    '"\\',
    "<a@b.c>",
    "a@",
    "(",
    "=?utf-8?q?a?=",
    "<a>",
    "<div style='",
    "&#x41;",
    "[[",
    "\u200b",
    ",",
    "<!--",
)


def integrity(desk: Desk) -> Finding:
    """Every page and index of the databases, which the quick check leaves out."""
    kind, _, place = desk.settings.database.partition(":///")
    files = (
        [Path(place), desk.settings.home / "mail.db"]
        if kind == "sqlite"
        else [desk.settings.home / "mail.db"]
    )
    for file in filter(Path.exists, files):
        if damage := find_damage(file, "integrity_check(1)"):
            return bad(f"{file} is damaged: {damage}", RESTORE)
    return good("each page of the databases is as it should be")


async def doors(desk: Desk) -> Finding:
    """Whether anybody gets through a door of the running desk without its key, or from another site."""
    found = running.find(desk.settings.home)
    if found is None:
        return good("no desk runs here now")
    opened = []
    async with httpx2.AsyncClient(base_url=found.address, timeout=10) as http:
        for path in (*_PAGES, *_REST, *(kind.path for kind in SERVERS.values())):
            for headers in _FOREIGN:
                for method in ("GET", "POST"):
                    answer = await http.request(
                        method, path, headers=headers, json={} if method == "POST" else None
                    )
                    if answer.status_code not in _REFUSALS:
                        opened.append(f"{method} {path} ({answer.status_code})")
    if opened:
        return bad(
            f"a stranger gets an answer at {', '.join(opened[:5])}",
            "end the desk, and report this",
        )
    return good("no door opens without its key or from another site")


def command_lines(desk: Desk) -> Finding:
    """Whether a secret of the desk stands on a command line, where every user reads it."""
    secrets = [(desk.settings.home / name) for name in ("token", "seal.key")]
    known = [
        file.read_bytes().strip()
        for file in secrets
        if file.exists() and file.stat().st_size
    ]
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes()
            if any(secret in words for secret in known):
                return bad(
                    f"a secret of the desk stands on the command line of process {process.name}",
                    "renew it",
                )
    return good("no secret of the desk is on a command line")


def private_files(desk: Desk) -> Finding:
    """Whether others may read what the desk keeps, and whether a name in its folders leads somewhere else."""
    if readable := machine.too_open(desk.settings.home, "**/*"):
        return bad(
            f"others may read {', '.join(map(str, readable[:3]))}",
            "chmod -R go-rwx the desk's home",
        )
    if odd := list(_odd_names(desk.settings.vault_path)):
        return warning(
            f"{', '.join(odd[:3])} is a link, or has a second name",
            "make plain files of them",
        )
    return good(
        "nobody else may read the desk's home, and no name in its folders leads elsewhere"
    )


def _odd_names(vault: Path | None) -> Iterator[str]:
    if vault is None:
        return
    for folder in FOLDERS:
        for place, _, files in os.walk(vault / folder):
            for name in files:
                info = Path(place, name).lstat()
                if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
                    yield f"{folder}/{name}"


async def waiting(desk: Desk) -> Finding:
    """Whether what waits is quickly shown, whatever somebody put into it."""
    began = time.perf_counter()
    found, _ = await desk.waiting.cards(limit=50)
    seconds = time.perf_counter() - began
    says = f"{len(found)} cards took {seconds:.2f} s"
    if seconds > _LONG:
        return warning(says, "answer or reject what is large: `deskhand approvals`")
    return good(says)


async def readers(desk: Desk) -> Finding:
    """Whether one mail could hold the desk up: hostile headers and pages, in this
    installation, on this machine."""
    del desk
    for shape in _SHAPES:
        text = shape * (_SIZE // len(shape))
        field = "".join(char for char in text if char.isprintable())
        page = f"Content-Type: text/html; charset=utf-8\r\n\r\n{text}"
        for mail in (f"From: {field}\r\nTo: {field}\r\n\r\nHi", page):
            if await asyncio.to_thread(_cost, mail.encode()) > _LONG:
                return bad(
                    f"a mail of {shape!r} again and again takes more than a second",
                    "report this, please",
                )
    return good(
        f"{2 * len(_SHAPES)} hostile mails of {_SIZE:,} characters took less than a second each"
    )


def _cost(mail: bytes) -> float:
    """Seconds of work, whatever else the machine does meanwhile."""
    began = time.thread_time()
    mime.parse(mail)
    return time.thread_time() - began
