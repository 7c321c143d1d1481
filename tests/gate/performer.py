"""A process at the desk that acts on holds: once for each line it reads, and says which.

With `--aloud` it also says so each time it has written something to the database.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from deskhand.app import Desk
from deskhand.config import load
from deskhand.store import Store, Transaction

say = partial(print, flush=True)


class Aloud:
    """A real store that says when it has written."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, work: Callable[[Transaction], Any]) -> Any:
        done = await self._inner.write(work)
        say("written")
        return done

    async def write_in_thread(self, work: Callable[[Transaction], Any]) -> Any:
        return await self.write(work)


async def work(desk: Desk) -> None:
    say("ready")
    while await asyncio.to_thread(sys.stdin.readline):
        say(json.dumps(await desk.cards.perform_due()))
    await desk.close_mailbox()


if __name__ == "__main__":
    desk = Desk(load().settings)
    if "--aloud" in sys.argv:
        desk.store = Aloud(desk.store)
    asyncio.run(work(desk))
    desk.close()
