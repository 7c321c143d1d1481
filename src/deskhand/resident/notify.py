"""Tells the person elsewhere that something waits. A message says how much and where; it never decides anything.

What waits is not told, not even its sender: a message passes through other people's servers and stays there.
"""

import asyncio
import logging
from dataclasses import dataclass
from urllib.parse import urlsplit

from deskhand.app import Desk
from deskhand.errors import DeskError
from deskhand.setup.messenger import Send, messenger
from deskhand.store import Bell

log = logging.getLogger("deskhand.notify")


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


async def run(desk: Desk, address: str, pace: Pace | None = None) -> None:
    """Until it is cancelled: one message for what came in since the last one."""
    pace, page = pace or Pace(), _page(address)
    # Apprise reads a hundred modules at its first use.
    send = await asyncio.to_thread(messenger, desk.settings.notify)
    told: frozenset[str] = frozenset()
    with desk.store.bell("deskhand", None) as bell:
        while True:
            told = await _round(desk, send, page, told, pace)
            await _wait_for_bell(bell, pace)


async def _wait_for_bell(bell: Bell, pace: Pace) -> None:
    """Until something may have come in. A file that was put into the vault by hand rings no bell."""
    left = pace.rest
    try:
        while left > 0 and not await asyncio.to_thread(bell.wait, min(pace.glance, left)):
            left -= pace.glance
    except DeskError as error:
        log.warning("not_looked", extra={"failure": error.message})
        await asyncio.sleep(pace.rest)


async def _round(desk: Desk, send: Send, page: str, told: frozenset[str], pace: Pace) -> frozenset[str]:
    """What the person knows of after this round; what woke up again is news again."""
    try:
        waiting = await desk.waiting.ids()
        if waiting <= told:
            return told & waiting
        await asyncio.sleep(pace.gather)
        waiting = await desk.waiting.ids()
    except DeskError as error:
        log.warning("not_looked", extra={"failure": error.message})
        return told
    if waiting <= told:
        return told & waiting
    sent = await send(*_message(len(waiting), page))
    if not sent:
        log.warning("not_notified", extra={"waiting": len(waiting)})
    await asyncio.sleep(pace.quiet)
    return waiting if sent else told


def _message(number: int, page: str) -> tuple[str, str]:
    what = "1 thing waits" if number == 1 else f"{number} things wait"
    return f"Deskhand: {what}", f"{what} for your answer.\n{page}"


def _page(address: str) -> str:
    """The page's front door alone: an address that signs somebody in must not travel."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/"
