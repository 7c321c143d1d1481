"""A process at the desk: submits what it reads, one proposal as JSON a line, and says what came of it.

python worker.py [LEASE_SECONDS [CHANCE]]: with CHANCE so many of 100 answers of the mailbox get lost or refused.
"""

import asyncio
import json
import random
import sys
from datetime import timedelta

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import OutcomeUnknown, SendFailed
from deskhand.gate import LEASE, Failed, Gate
from deskhand.gate.actions import SendEmail
from deskhand.mail import Mailbox, Outgoing, Sent


class Unreliable:
    """A real mailbox behind a bad line: some sends are refused, some answers get lost, before or after the send."""

    def __init__(self, inner: Mailbox, chance: int) -> None:
        self._inner = inner
        self._chance = chance

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def send(self, token: str, mail: Outgoing) -> Sent:
        match random.randrange(300 // self._chance) if self._chance else 99:
            case 0:
                raise SendFailed("refused, as planned")
            case 1:
                raise OutcomeUnknown("lost before, as planned")
            case 2:
                await self._inner.send(token, mail)
                raise OutcomeUnknown("lost after, as planned")
            case _:
                return await self._inner.send(token, mail)


async def work(desk: Desk, lease: timedelta, chance: int) -> None:
    mailbox = Unreliable(desk.mailbox, chance) if chance else desk.mailbox
    gate = Gate(desk.settings, desk.store, lambda: mailbox, desk.gate._approvals, desk.now, lease)
    print("ready", flush=True)  # noqa: T201 - its answers go to stdout
    while line := await asyncio.to_thread(sys.stdin.readline):
        outcome = await gate.submit(SendEmail(**json.loads(line)), "worker")
        said = outcome.error.message if isinstance(outcome, Failed) else ""
        print(json.dumps([type(outcome).__name__, said]), flush=True)  # noqa: T201
    await desk.close_mailbox()


def main() -> None:
    lease = timedelta(seconds=float(sys.argv[1])) if len(sys.argv) > 1 else LEASE
    chance = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    desk = Desk(load().settings)
    asyncio.run(work(desk, lease, chance))
    desk.close()


if __name__ == "__main__":
    main()
