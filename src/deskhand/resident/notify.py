"""Tells the person elsewhere that something waits, or that a part of the desk does not run.

A message says how much and where; it never decides anything. What waits is not told, not even its sender: a message
passes through other people's servers and stays there.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from deskhand.app import Desk
from deskhand.errors import DeskError
from deskhand.setup.messenger import Send, messenger
from deskhand.store import Bell

log = logging.getLogger("deskhand.notify")
PART = "notifications"


@dataclass(frozen=True, slots=True)
class Pace:
    gather: float = 5.0
    """So long others may join the first one."""
    quiet: float = 60.0
    """So long nothing more is said after a message."""
    glance: float = 2.0
    """So long a look at the doorbell takes; also how long an ending desk waits for us."""
    rest: float = 15.0
    """After so long the vault is looked at even when nobody rang."""


class Known(NamedTuple):
    """What the person was told of."""

    waiting: frozenset[str] = frozenset()
    down: frozenset[str] = frozenset()

    def is_told(self, told: "Known") -> bool:
        return self.waiting <= told.waiting and self.down <= told.down

    def within(self, told: "Known") -> "Known":
        return Known(self.waiting & told.waiting, self.down & told.down)


async def run(desk: Desk, address: str, pace: Pace | None = None) -> None:
    """Until it is cancelled: one message for what came in since the last one."""
    pace, page = pace or Pace(), _page(address)
    # Apprise reads a hundred modules at its first use.
    send = await asyncio.to_thread(messenger, desk.settings.notify)
    told = Known()
    with desk.store.bell("deskhand", None) as bell:
        while True:
            told = await _round(desk, send, page, told, pace)
            await _wait_for_bell(desk, bell, pace)


async def _wait_for_bell(desk: Desk, bell: Bell, pace: Pace) -> None:
    """Until something may have come in. A file that was put into the vault by hand rings no bell."""
    left = pace.rest
    try:
        while left > 0 and not await asyncio.to_thread(bell.wait, min(pace.glance, left)):
            left -= pace.glance
    except DeskError as error:
        desk.parts.fail(PART, error)
        await asyncio.sleep(pace.rest)


async def _round(desk: Desk, send: Send, page: str, told: Known, pace: Pace) -> Known:
    """What the person knows of after this round; what woke up again is news again."""
    found = await _look(desk, told)
    if not found.is_told(told):
        await asyncio.sleep(pace.gather)
        found = await _look(desk, told)
    if found.is_told(told):
        return found.within(told)
    sent = await send(*_message(found, page))
    if not sent:
        log.warning("not_notified", extra={"waiting": len(found.waiting), "down": sorted(found.down)})
    await asyncio.sleep(pace.quiet)
    return found if sent else told


async def _look(desk: Desk, told: Known) -> Known:
    # Not raised: what the person was told of would be forgotten, and told again.
    waiting = told.waiting
    try:
        waiting = await desk.waiting.ids()
    except DeskError as error:
        desk.parts.fail(PART, error)
    else:
        desk.parts.works(PART)
    return Known(waiting, frozenset(part.name for part in desk.parts.down))


def _message(found: Known, page: str) -> tuple[str, str]:
    number = len(found.waiting)
    what = "1 thing waits" if number == 1 else f"{number} things wait"
    if not found.down:
        return f"Deskhand: {what}", f"{what} for your answer.\n{page}"
    stopped = f"{', '.join(sorted(found.down))} does not run"
    return f"Deskhand: {stopped}", f"{stopped}; {what} for your answer.\n{page}"


def _page(address: str) -> str:
    """The page's front door alone: an address that signs somebody in must not travel."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/"
