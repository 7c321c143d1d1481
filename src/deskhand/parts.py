"""The parts of a running desk: one that fails is started again, later each time, and until then it is seen to be down.

A part is down from its failure until it says by `works` that it did what it is for.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from deskhand.errors import AuthRequired, DeskError

log = logging.getLogger("deskhand.parts")

LONGEST_PAUSE = 30
"""Seconds between two starts of a part, at most: it is back soon after the cause of its failure is gone."""
LONGEST_PAUSE_UNSIGNED = 300
"""The same where somebody has to sign in: servers lock out who shows a wrong password again and again."""


class DownPart(NamedTuple):
    name: str
    why: str
    since: datetime
    failures: int
    """How often it failed since it worked."""


Tell = Callable[[DownPart | None, str], None]
"""Told with the part that is down now, or with None and the name of one that works again."""


class Parts:
    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._down: dict[str, DownPart] = {}
        self._resting: dict[str, asyncio.Event] = {}
        """Parts that failed by themselves and have not worked since; set, the event ends their rest."""
        self.tell: Tell = _tell_nobody

    @property
    def down(self) -> list[DownPart]:
        return list(self._down.values())

    async def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run the part until it ends by itself."""
        while True:
            try:
                await work()
            except Exception as error:  # the seam of each part: no failure stops the desk
                if _is_ending():
                    raise asyncio.CancelledError from error
                await self._rest(name, self.fail(name, error))
            else:
                return

    async def _rest(self, name: str, seconds: float) -> None:
        woken = self._resting.setdefault(name, asyncio.Event())
        if woken.is_set():
            # It was woken once since it worked: whoever calls often does not make it try as often.
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await woken.wait()

    def note_answer(self, name: str) -> None:
        """Note that somebody else was answered: one that failed by itself tries again, and
        is down until it works."""
        woken = self._resting.get(name)
        if woken is None:
            self.works(name)
        else:
            woken.set()

    def works(self, name: str) -> None:
        """Note that the part did what it is for."""
        self._resting.pop(name, None)
        if self._down.pop(name, None) is not None:
            log.info("part_works_again", extra={"part": name})
            self.tell(None, name)

    def fail(self, name: str, error: Exception) -> float:
        """Note that the part failed; returns how many seconds it should rest."""
        before = self._down.get(name)
        found = DownPart(name, _why(name, error), self._now(), 1)
        if before is not None:
            found = found._replace(since=before.since, failures=before.failures + 1)
        self._down[name] = found
        if before is None or before.why != found.why:
            log.error("part_stopped", extra={"part": name, "why": found.why})
            self.tell(found, name)
        return _pause(error, found.failures)


def _is_ending() -> bool:
    """Whether somebody wants this task to end; a failure at the same moment takes the place of that word."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _tell_nobody(part: DownPart | None, name: str) -> None:
    del part, name


def describe_failure(error: DeskError) -> str:
    """What is wrong and what to do, in one line."""
    if error.hint:
        return f"{error.message} ({error.hint})"
    return error.message


def _why(name: str, error: Exception) -> str:
    if isinstance(error, DeskError):
        return describe_failure(error)
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return f"the machine refused: {place}{error.strerror}"
    reference = secrets.token_hex(4)
    log.error("crash", extra={"part": name, "reference": reference}, exc_info=error)
    return f"an unexpected error ({type(error).__name__}); the log has it under {reference}"


def _pause(error: Exception, failures: int) -> float:
    longest = LONGEST_PAUSE
    asked = None
    if isinstance(error, AuthRequired):
        longest = LONGEST_PAUSE_UNSIGNED
    if isinstance(error, DeskError):
        asked = error.details.get("retry_after_seconds")
    pause = min(2.0 ** min(failures - 1, 12), longest)
    if isinstance(asked, int):
        return max(pause, asked)
    return pause
