"""Entries that go on the record together, a moment after their answers; the journal keeps them until then.

A write for each would take the machine from the calls themselves: they come faster than a disk writes.
"""

import asyncio
import secrets
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache

from deskhand import clock
from deskhand.audit import Entry, RecordLine, line_of, redact_entry
from deskhand.errors import DeskError

MOMENT = 0.1
"""Seconds in which entries gather."""
UNSEEN = "the desk ended before it was known how this ended"
Facts = tuple[tuple[str, str], ...]
_AT_THE_END = {"timestamp", "result", "duration_ms", "error"}
_NAME = secrets.token_hex(16)
_DIGEST = secrets.token_hex(16)
"""Stand for what is another one in each entry; nobody outside can say them."""


@lru_cache(256)
def _write_known(actor: str, action: str, target: str, facts: Facts) -> tuple[str, ...]:
    """What all entries of such calls say, written once: the same programs call the same tools all day.

    Before the name of the entry, before the digest, and after it.
    """
    entry = Entry(
        timestamp="",
        correlation_id=_NAME,
        actor=actor,
        action_type=action,
        target=target,
        result="success",
        parameters={**dict(facts), "digest": _DIGEST},
    )
    known = redact_entry(entry).model_dump_json(exclude_none=True, exclude=_AT_THE_END)
    before, rest = known.removesuffix("}").split(_NAME)
    return before, *rest.split(_DIGEST)


class Begun:
    """The entry of a call that has not ended."""

    def __init__(
        self,
        now: datetime,
        actor: str,
        action: str,
        target: str,
        facts: Facts,
        digest: str,
    ) -> None:
        """`digest` stands among the facts: what was called, exactly."""
        self.name = str(uuid.uuid4())
        self._began = clock.iso(now)
        self._actor = actor
        self._action = action
        before, between, after = _write_known(actor, action, target, facts)
        self._known = f"{before}{self.name}{between}{digest}{after}"

    def write_begun(self) -> str:
        """The line that counts where no other comes."""
        return (
            f'{self._known},"timestamp":"{self._began}"'
            f',"result":"error","duration_ms":0,"error":"{UNSEEN}"}}'
        )

    def finish(
        self, now: datetime, error: DeskError | None, milliseconds: int
    ) -> RecordLine:
        """The line of what has ended."""
        if error is not None:
            began = Entry.model_validate_json(self.write_begun())
            return line_of(began.finish(now, error, milliseconds))
        at = clock.iso(now)
        text = (
            f'{self._known},"timestamp":"{at}"'
            f',"result":"success","duration_ms":{milliseconds}}}'
        )
        return RecordLine(self.name, text, at, self._actor, self._action, "success")


class Behind:
    def __init__(self) -> None:
        self.number = 0
        """Of all that are on their way."""
        self._gathered: list[RecordLine] = []
        self._hurry = asyncio.Event()
        self._writing: set[asyncio.Task[None]] = set()

    def add(
        self, line: RecordLine, append: Callable[[Sequence[RecordLine]], Awaitable[None]]
    ) -> None:
        self.number += 1
        self._gathered.append(line)
        if len(self._gathered) > 1:
            return
        task = asyncio.create_task(self._append_together(append))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _append_together(
        self, append: Callable[[Sequence[RecordLine]], Awaitable[None]]
    ) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(MOMENT):
                await self._hurry.wait()
        self._hurry.clear()
        lines = [*self._gathered]
        self._gathered.clear()
        try:
            await append(lines)
        finally:
            self.number -= len(lines)

    async def catch_up(self, most: int = 0) -> None:
        """Until no more than so many are on their way."""
        while self.number > most:
            self._hurry.set()
            await asyncio.wait(self._writing, return_when=asyncio.FIRST_COMPLETED)
