"""A process at the desk that acts on holds: once for each line it reads, and says which.

With `--step` it also says so each time it has written something to the database, and waits for a line to go on.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from deskhand.app import Desk
from deskhand.config import load
from deskhand.store import Store

say = partial(print, flush=True)


class StepByStep:
    """A real store that says when it has written, and waits."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        done = await self._inner.write(work, *given, **named)
        say("written")
        await asyncio.to_thread(sys.stdin.readline)
        return done

    write_in_thread = write


async def work(desk: Desk) -> None:
    say("ready")
    while await asyncio.to_thread(sys.stdin.readline):
        say(json.dumps(await desk.gate.release_due()))
    await desk.close_mailbox()


if __name__ == "__main__":
    desk = Desk(load().settings)
    if "--step" in sys.argv:
        desk.store = StepByStep(desk.store)
    asyncio.run(work(desk))
    desk.close()
