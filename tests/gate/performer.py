"""A process at the desk that acts on holds: once for each line it reads, and says which."""

import asyncio
import json
import sys
from functools import partial

from deskhand.app import Desk
from deskhand.config import load

say = partial(print, flush=True)


async def work(desk: Desk) -> None:
    say("ready")
    while await asyncio.to_thread(sys.stdin.readline):
        say(json.dumps(await desk.cards.perform_due()))
    await desk.close_mailbox()


if __name__ == "__main__":
    desk = Desk(load().settings)
    asyncio.run(work(desk))
    desk.close()
