"""Entries that go on the record together, a moment after their answers; the journal keeps them until then.

A write for each would take the machine from the calls themselves: they come faster than a disk writes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from deskhand.audit import Entry

MOMENT = 0.1
"""Seconds in which entries gather."""


class Behind:
    def __init__(self) -> None:
        self.number = 0
        """Of all that are on their way."""
        self._gathered: list[Entry] = []
        self._hurry = asyncio.Event()
        self._writing: set[asyncio.Task[None]] = set()

    def add(
        self, entry: Entry, write: Callable[[Sequence[Entry]], Awaitable[None]]
    ) -> None:
        self.number += 1
        self._gathered.append(entry)
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
        entries = self._gathered
        self._gathered = []
        try:
            await write(entries)
        finally:
            self.number -= len(entries)

    async def catch_up(self, most: int = 0) -> None:
        """Until no more than so many are on their way."""
        while self.number > most:
            self._hurry.set()
            await asyncio.wait(self._writing, return_when=asyncio.FIRST_COMPLETED)
