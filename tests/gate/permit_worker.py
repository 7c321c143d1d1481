"""A process at the desk whose clock jumps: it proposes the mail of each line, and says what came of it."""

import asyncio
import json
import sys
from datetime import datetime, timedelta
from functools import partial

from deskhand.app import Desk
from deskhand.clock import utc_now
from deskhand.config import load
from deskhand.gate import NotApproved
from deskhand.gate.actions import SendEmail

say = partial(print, flush=True)


class JumpingClock:
    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return utc_now() + self.ahead


async def work(desk: Desk, clock: JumpingClock) -> None:
    say("ready")
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        clock.ahead = timedelta(hours=asked.pop("hours"))
        outcome = await desk.gate.propose(SendEmail(**asked), "worker")
        say(outcome.why if isinstance(outcome, NotApproved) else "left")
    await desk.close_mailbox()


def main() -> None:
    clock = JumpingClock()
    desk = Desk(load().settings, clock)
    asyncio.run(work(desk, clock))
    desk.close()


main()
