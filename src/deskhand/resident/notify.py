"""Tells the person elsewhere that something waits, or that a part of the desk does not run.

A message says how much and where; it never decides anything. What waits is not told, not even its sender: a message
passes through other people's servers and stays there.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

from deskhand import clock
from deskhand.app import Desk
from deskhand.errors import DeskError
from deskhand.setup.messenger import messenger
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
    longest: float = 3600.0
    """After so long somebody is tried again, however often it failed and whatever was asked for."""


class Known(NamedTuple):
    """What the person was told of."""

    waiting: frozenset[str] = frozenset()
    down: frozenset[str] = frozenset()

    def is_told(self, told: "Known") -> bool:
        return self.waiting <= told.waiting and self.down <= told.down

    def within(self, told: "Known") -> "Known":
        return Known(self.waiting & told.waiting, self.down & told.down)


class Reception(NamedTuple):
    """How a receiver took what it was told."""

    is_taken: bool
    pause: float = 0.0
    """Seconds in which it asks to be left alone."""


Deliver = Callable[[Known], Awaitable[Reception]]
"""Tells one receiver."""
Receivers = Callable[[], Awaitable[Mapping[str, Deliver]]]


@dataclass(slots=True)
class ReceiverState:
    """What one receiver knows, and how long it is left alone after failures."""

    told: Known = field(default_factory=Known)
    failures: int = 0
    resumes: float = 0.0

    def note(self, found: Known, pace: Pace, reception: Reception) -> None:
        if reception.is_taken:
            self.told = found
            self.failures = 0
            return
        pause = min(max(pace.quiet * 2**self.failures, reception.pause), pace.longest)
        self.failures = min(self.failures + 1, 30)
        self.resumes = asyncio.get_running_loop().time() + pause


async def run(desk: Desk, address: str, pace: Pace | None = None) -> None:
    """Until it is cancelled: one message for what came in since the last one, to what `inbox.notify` names."""
    page = _page(address)
    # Apprise reads a hundred modules at its first use.
    send = await asyncio.to_thread(messenger, desk.settings.notify)

    async def deliver(found: Known) -> Reception:
        return Reception(await send(*_message(found, page)))

    async def list_receivers() -> Mapping[str, Deliver]:
        return {"inbox.notify": deliver}

    await tell_all(desk, PART, list_receivers, pace or Pace())


async def tell_all(desk: Desk, part: str, list_receivers: Receivers, pace: Pace) -> None:
    """Tell each receiver once of what is new to it, until cancelled; while there is none nobody looks."""
    known: dict[str, ReceiverState] = {}
    found = Known()
    while True:
        with desk.store.bell("deskhand", None) as bell:
            while receivers := await list_receivers():
                known = {name: known.get(name) or ReceiverState() for name in receivers}
                found = await _look(desk, part, found)
                if _find_late(found, known) and not _is_quiet(desk):
                    await asyncio.sleep(pace.gather)
                    found = await _look(desk, part, found)
                    await _tell_late(found, receivers, known, pace)
                await _wait_for_bell(desk, part, bell, pace)
        known = {}
        desk.parts.works(part)
        await asyncio.sleep(pace.rest)


async def _wait_for_bell(desk: Desk, part: str, bell: Bell, pace: Pace) -> None:
    """Until something may have come in. A file that was put into the vault by hand rings no bell."""
    left = pace.rest
    try:
        while left > 0 and not await asyncio.to_thread(bell.wait, min(pace.glance, left)):
            left -= pace.glance
    except DeskError as error:
        desk.parts.fail(part, error)
        await asyncio.sleep(pace.rest)


async def _tell_late(
    found: Known,
    receivers: Mapping[str, Deliver],
    known: Mapping[str, ReceiverState],
    pace: Pace,
) -> None:
    late = _find_late(found, known)
    if not late:
        return
    receptions = await asyncio.gather(*(receivers[name](found) for name in late))
    for name, reception in zip(late, receptions, strict=True):
        known[name].note(found, pace, reception)
    if not all(each.is_taken for each in receptions):
        log.warning(
            "not_notified",
            extra={"waiting": len(found.waiting), "down": sorted(found.down)},
        )
    await asyncio.sleep(pace.quiet)


def _find_late(found: Known, known: Mapping[str, ReceiverState]) -> list[str]:
    """Who has to be told now. The others forget what is over: when it wakes up again it is news again."""
    now = asyncio.get_running_loop().time()
    late = [name for name, each in known.items() if not found.is_told(each.told)]
    for name in known.keys() - set(late):
        known[name].told = found.within(known[name].told)
    return [name for name in late if known[name].resumes <= now]


def _is_quiet(desk: Desk) -> bool:
    hours = desk.settings.quiet
    return hours is not None and clock.is_within(
        clock.local(desk.now(), desk.settings.timezone), hours
    )


async def _look(desk: Desk, part: str, before: Known) -> Known:
    # Not raised: what each was told of would be forgotten, and told again.
    waiting = before.waiting
    try:
        waiting = await desk.waiting.ids()
    except DeskError as error:
        desk.parts.fail(part, error)
    else:
        desk.parts.works(part)
    return Known(waiting, frozenset(each.name for each in desk.parts.down))


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
