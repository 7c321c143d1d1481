"""Entries that go on the record together, a moment after their answers; the journal keeps them until then.

A write for each would take the machine from the calls themselves: they come faster than a disk writes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime

from deskhand import clock
from deskhand.audit import Entry, redact_entry
from deskhand.errors import DeskError

MOMENT = 0.1
"""Seconds in which entries gather."""
_AT_THE_END = {"timestamp", "result", "duration_ms", "error"}


class Begun:
    """An entry of something that has not ended: written down as far as it is known, since somebody will wait then."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self.name = entry.correlation_id
        known = redact_entry(entry).model_dump_json(exclude_none=True, exclude=_AT_THE_END)
        self._known = known.removesuffix("}")

    def write(self, now: datetime, error: DeskError | None, milliseconds: int) -> str:
        """The line of what has ended."""
        if error is not None:
            ended = redact_entry(self.finish(now, error, milliseconds))
            return ended.model_dump_json(exclude_none=True)
        return (
            f'{self._known},"timestamp":"{clock.iso(now)}"'
            f',"result":"success","duration_ms":{milliseconds}}}'
        )

    def finish(self, now: datetime, error: DeskError | None, milliseconds: int) -> Entry:
        return self._entry.finish(now, error, milliseconds)


class Behind:
    def __init__(self) -> None:
        self.number = 0
        """Of all that are on their way."""
        self._gathered: list[Callable[[], Entry]] = []
        self._hurry = asyncio.Event()
        self._writing: set[asyncio.Task[None]] = set()

    def add(
        self,
        finish: Callable[[], Entry],
        write: Callable[[Sequence[Entry]], Awaitable[None]],
    ) -> None:
        """`finish` makes the entry, when it is written."""
        self.number += 1
        self._gathered.append(finish)
        if len(self._gathered) > 1:
            return
        task = asyncio.create_task(self._write_together(write))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write_together(
        self, write: Callable[[Sequence[Entry]], Awaitable[None]]
    ) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(MOMENT):
                await self._hurry.wait()
        self._hurry.clear()
        entries = [finish() for finish in self._gathered]
        self._gathered.clear()
        try:
            await write(entries)
        finally:
            self.number -= len(entries)

    async def catch_up(self, most: int = 0) -> None:
        """Until no more than so many are on their way."""
        while self.number > most:
            self._hurry.set()
            await asyncio.wait(self._writing, return_when=asyncio.FIRST_COMPLETED)
