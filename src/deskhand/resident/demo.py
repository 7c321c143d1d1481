"""A throwaway desk to look at: a mailbox of its own, a small vault, tasks, two agents. Nothing leaves the machine.

What it holds are the files in `demo_desk`. Nothing of the person's own environment or configuration comes into it.
"""

import asyncio
import re
import shutil
import tempfile
import tomllib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from email.utils import format_datetime
from itertools import cycle
from pathlib import Path
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.agents.mail import AgentMessage, timestamp
from deskhand.app import Desk
from deskhand.askers import PERSON
from deskhand.gate.actions import SendEmail
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.web.entry import effect

HERE = Path(__file__).parent / "demo_desk"
FIRST_ARRIVAL = 60
"""Seconds until a mail arrives that nobody asked for."""
_AGE = re.compile(rb"^Date: (\d+) hours ago$", re.MULTILINE)


class Arrivals:
    """The mail that is still to come: one letter after the other, and from the beginning when all have come."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._letters = cycle(sorted((HERE / "later").iterdir()))
        self.count = 0

    def routes(self) -> list[Route]:
        """The button of the demo's page."""
        return [effect("/demo/arrive", self._arrive_now)]

    async def _arrive_now(self, request: Request, form: FormData) -> Response:
        del form
        await self.arrive()
        if "hx-request" in request.headers:
            return Response(status_code=204)
        return RedirectResponse("/", 303)

    async def arrive(self) -> None:
        self.count += 1
        await _receive(self._desk, [next(self._letters)])

    async def arrive_later(self) -> None:
        """The first one by itself, unless the person has asked for one."""
        await asyncio.sleep(FIRST_ARRIVAL)
        if not self.count:
            await self.arrive()


@contextmanager
def folder() -> Iterator[Path]:
    """The home of a new demo desk, with its vault beside it; both are gone at the end."""
    place = Path(tempfile.mkdtemp(prefix="deskhand-demo-"))
    try:
        home = place / "home"
        vault = place / "vault"
        home.mkdir(mode=0o700)
        shutil.copytree(HERE / "vault", vault)
        for name in ("rules.toml", "config.toml"):
            (home / name).touch(mode=0o600)
            (home / name).write_text(
                (HERE / name).read_text().replace("@VAULT@", str(vault))
            )
        yield home
    finally:
        shutil.rmtree(place)


async def fill(desk: Desk, say: Callable[[str], None]) -> None:
    """Put mail, tasks, agents and a request onto the desk; its notes lie in its folder already."""
    letters = sorted((HERE / "mail").iterdir())
    tasks = _read("tasks.toml")["task"]
    agents = _read("agents.toml")
    say(
        f"demo: {len(letters)} mails, {len(tasks)} tasks, {len(agents['agent'])} agents, one request that waits"
    )
    await _receive(desk, letters)
    for task in tasks:
        user = desk.settings.user or ""
        key = str(uuid.uuid4())
        await desk.tasks.call(user, "POST", "/tasks", actor=PERSON, body=task, key=key)
    await asyncio.to_thread(_add_agents, desk, agents)
    await desk.gate.propose(SendEmail(**_read("proposal.toml")), "email_mcp")


async def _receive(desk: Desk, letters: list[Path]) -> None:
    assert isinstance(desk.mailbox, LocalMailbox)  # noqa: S101 - the demo's own config says so
    mails = [_set_date(letter.read_bytes(), desk.now()) for letter in letters]
    await desk.mailbox.receive([Incoming(mail, seen=False) for mail in mails])


def _set_date(letter: bytes, now: datetime) -> bytes:
    """The letter with a date that is recent today and, where it has none, an id of its own."""
    if b"\nMessage-ID:" not in letter:
        letter = (
            f"Message-ID: <{uuid.uuid4().hex}@example.org>\nDate: 0 hours ago\n".encode()
            + letter
        )

    def date(age: re.Match[bytes]) -> bytes:
        at = now - timedelta(hours=int(age[1]))
        return f"Date: {format_datetime(at)}".encode()

    return _AGE.sub(date, letter)


def _add_agents(desk: Desk, agents: dict[str, Any]) -> None:
    room = desk.room(None)
    now = desk.now()
    for agent in agents["agent"]:
        room.register(agent["name"], _stamp(now))
        room.set_status(agent["name"], agent["status"], _stamp(now))
    for each in agents["message"]:
        at = now - timedelta(minutes=each["minutes_ago"])
        room.append(
            AgentMessage(
                uuid.uuid4().hex[:8], each["from"], each["to"], each["text"], _stamp(at)
            )
        )


def _stamp(at: datetime) -> str:
    return timestamp(int(at.timestamp() * 1_000_000) * 1000)


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))
