"""What a permission counts, with two processes, one of which dies, and clocks that jump."""

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate import permissions
from deskhand.gate.actions import SendEmail
from deskhand.gate.permissions import DAY, Permission, Terms
from tests.gate.site import HELLO
from tests.home import Home
from tests.requirements import requirement

pytestmark = pytest.mark.anyio
PER_DAY = 2
ROUNDS = 12
WORKER = Path(__file__).with_name("permit_worker.py")


class Process:
    def __init__(self, environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, WORKER], env=environment, stdin=pipe, stdout=pipe, text=True
        )

    def tell(self, **asked: Any) -> None:
        print(json.dumps(asked), file=self._process.stdin, flush=True)

    def hear(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.kill()
        self.close()

    def close(self) -> None:
        with self._process:
            pass


async def permit(desk: Desk) -> Permission:
    """The person has written to Ann twice, and lets mails like it leave."""
    for body in ("one\n", "two\n"):
        await desk.gate.propose(SendEmail(**HELLO | {"body": body}), "test")
        ((card,), _) = await desk.waiting.cards()
        await desk.answers.approve_now(card.id, card.digest, "person")
        await desk.gate.release_due()
    terms = Terms(PER_DAY, desk.now() + timedelta(days=4))
    return await desk.answers.permit(card.id, card.digest, terms, "person")


def is_counted(before: Sequence[datetime], new: Sequence[datetime]) -> bool:
    """Whether there is an order in which each new use was one that the day still had."""
    if not new:
        return True
    for number, moment in enumerate(new):
        rest = [*new[:number], *new[number + 1 :]]
        if sum(at > moment - DAY for at in before) < PER_DAY and is_counted(
            [*before, moment], rest
        ):
            return True
    return False


@requirement("permission:processes")
async def test_two_processes_whose_clocks_jump_use_no_more_than_the_person_gave(
    home: Home, url: str
) -> None:
    given = {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_DATABASE_URL": url}
    environment = home.environment | given
    desk = Desk(load(environment).settings)
    made = await permit(desk)

    async def list_uses() -> list[datetime]:
        found = await desk.store.read(permissions.uses_of, made.id)
        return [at for _, at in found]

    chance = random.Random(7)
    two = [Process(environment), Process(environment)]
    assert [each.hear() for each in two] == ["ready", "ready"]
    ended = False
    uses = await list_uses()
    for number in range(ROUNDS):
        hours = [chance.choice([0, 0, -30, 5, 20, 26, 50, 100]) for _ in two]
        for each, jump in zip(two, hours, strict=True):
            each.tell(**HELLO | {"body": f"{number} {id(each)}\n"}, hours=jump)
        said = [each.hear() for each in two]
        found = await list_uses()
        new = found.copy()
        for each_use in uses:
            new.remove(each_use)
        assert len(new) == sum(each != "waiting" for each in said), said
        assert is_counted(uses, new), (uses, new)
        assert not (ended and new)
        assert all(at < made.ends for at in new)
        ended = ended or max(hours) >= 100
        uses = found
        if number == ROUNDS // 2:
            two[0].kill()
            two[0] = Process(environment)
            assert two[0].hear() == "ready"
    for each in two:
        each.close()
    await desk.close_mailbox()
    desk.close()
    assert len(uses) >= PER_DAY
