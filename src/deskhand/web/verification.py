"""How far the record was found whole since this process started.

A view of the page checks the lines that are new since the last one. Whole is what was checked from the first line on;
that is done behind the first view, in small steps, and again whenever the person asks for it.
"""

from datetime import datetime

from deskhand import audit
from deskhand.app import Desk
from deskhand.audit import START, Broken, Mark, witness
from deskhand.store import Transaction

STEP = 1000
"""Lines for one read transaction."""


class Verification:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._is_running = False
        self.good = START
        """The last line of an unbroken chain from the first one."""
        self.broken: Broken | None = None
        self.head = START
        self.since: datetime | None = None
        """When the check began that led to `good`."""

    @property
    def is_whole(self) -> bool:
        return self.broken is None and self.since is not None and self.good == self.head

    async def check_new(self) -> None:
        """Check the first lines that are new; before the first whole check only see how many there are."""
        await self._step(STEP if self.since else 0)

    async def check_all(self, *, again: bool = False) -> None:
        """Check on to the end of the record; with `again` from its first line."""
        if self._is_running:
            return
        self._is_running = True
        try:
            if again or self.since is None:
                self.good = START
                self.broken = None
                self.since = self._desk.now()
            while await self._step(STEP):
                pass
            if self.broken is None:
                self.broken = await witness.find_lost_end(
                    self._desk.store, self._desk.settings.own_place
                )
        finally:
            self._is_running = False

    async def _step(self, limit: int) -> bool:
        """Check up to `limit` lines; whether there are more."""
        good = self.good

        def follow(tx: Transaction) -> tuple[Mark, Mark | Broken]:
            return audit.head(tx), audit.follow(tx, good, limit)

        self.head, reached = await self._desk.store.read(follow)
        match reached:
            case Broken():
                self.broken = reached
            case Mark() if reached.seq >= self.head.seq and reached != self.head and limit:
                self.broken = Broken(
                    reached.seq, "the line does not match the head of the chain"
                )
            case Mark() if reached == good and reached.seq < self.head.seq and limit:
                self.broken = Broken(reached.seq + 1, "the line is missing at the end")
            case Mark():
                self.good = reached
        return self.broken is None and self.good.seq < self.head.seq
