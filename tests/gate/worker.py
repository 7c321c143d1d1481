"""A process at the desk: submits what it reads, one proposal as JSON a line, and says what came of it."""

import asyncio
import json
import random
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import OutcomeUnknown, SendFailed
from deskhand.gate import LEASE, Failed, Gate, Released
from deskhand.gate.actions import SendEmail
from deskhand.mail import Keep, Mailbox, Outgoing, Sent
from deskhand.mail.mailboxes import MailView, viewing

Receive = Callable[[], str]
Answer = Callable[[str], object]


class Unreliable:
    """A real mailbox behind a bad line: of 100 sends `chance` are refused or their answers lost, before or after."""

    def __init__(self, inner: Mailbox, chance: int) -> None:
        self._inner = inner
        self._chance = chance

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def send(self, token: str, mail: Outgoing, keep: Keep) -> Sent:
        match random.randrange(300 // self._chance) if self._chance else 99:
            case 0:
                raise SendFailed("refused, as planned")
            case 1:
                await keep(token)
                raise OutcomeUnknown("lost before, as planned")
            case 2:
                await self._inner.send(token, mail, keep)
                raise OutcomeUnknown("lost after, as planned")
            case _:
                return await self._inner.send(token, mail, keep)


async def work(
    desk: Desk, lease: timedelta, chance: int, receive: Receive, answer: Answer
) -> None:
    mailbox: Any = Unreliable(desk.mailbox, chance) if chance else desk.mailbox
    gate = Gate(desk.settings, desk.store, lambda: mailbox, desk.door, desk.now, lease)
    answer("ready")
    while line := await asyncio.to_thread(receive):
        proposal = json.loads(line)
        account = proposal.pop("account", None)
        with viewing(MailView(account and frozenset({account}))):
            outcome = await gate.propose(SendEmail(**proposal), "worker")
        said = outcome.error.message if isinstance(outcome, Failed) else ""
        kind = type(outcome).__name__
        if isinstance(outcome, Released) and outcome.earlier:
            kind = "Told"  # of what another one sent
        answer(json.dumps([kind, said]))
    await desk.close_mailbox()


def serve(
    environment: dict[str, str], lease: timedelta, chance: int, connection: Connection
) -> None:
    """The same for a process that was forked, over a pipe."""
    desk = Desk(load(environment).settings)
    asyncio.run(work(desk, lease, chance, connection.recv, connection.send))
    desk.close()


def main() -> None:
    desk = Desk(load().settings)
    asyncio.run(work(desk, LEASE, 0, sys.stdin.readline, partial(print, flush=True)))
    desk.close()


if __name__ == "__main__":
    main()
