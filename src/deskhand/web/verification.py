"""How far the record was found whole since this process started.

A view of the page checks the lines that are new since the last one. Whole is what was checked from the first line on;
that is done behind the first view, in small steps, and again whenever the person asks for it.
"""

from datetime import datetime
from typing import NamedTuple

from deskhand import audit
from deskhand.app import Desk
from deskhand.audit import START, Broken, Mark, witness
from deskhand.store import Transaction

STEP = 1000
"""Lines for one read transaction."""


class Followed(NamedTuple):
    """What one transaction saw of the record, from a good line on."""

    good: Mark
    limit: int
    """Lines that it looked at, at most; 0 where it only looked how many there are."""
    head: Mark
    reached: Mark | Broken


class Verification:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._is_running = False
        self.good = START
        """The last line of an unbroken chain from the first one."""
        self.broken: Broken | None = None
        self.head = START
        self.since: datetime | None = None
        """When the last check from the first line on began."""
        self.whole = START
        """The last line that it reached; later ones were checked as they were seen."""

    @property
    def is_whole(self) -> bool:
        return self.broken is None and self.since is not None and self.good == self.head

    def read_new(self, tx: Transaction) -> Followed:
        """Follow the first lines that are new; before the first whole check only see how many there are."""
        return _follow(tx, self.good, STEP if self.since else 0)

    def note(self, found: Followed) -> bool:
        """Take over what was found; whether there are more lines."""
        good, limit, head, reached = found
        self.head = head
        match reached:
            case Broken():
                self.broken = reached
            case Mark() if reached.seq >= head.seq and reached != head and limit:
                self.broken = Broken(
                    reached.seq, "the line does not match the head of the chain"
                )
            case Mark() if reached == good and reached.seq < head.seq and limit:
                self.broken = Broken(reached.seq + 1, "the line is missing at the end")
            case Mark():
                self.good = reached
        return self.broken is None and self.good.seq < self.head.seq

    async def check_all(self, *, again: bool = False) -> None:
        """Check on to the end of the record; with `again` from its first line."""
        if self._is_running:
            return
        self._is_running = True
        anew = again or self.since is None
        try:
            if anew:
                self.good = START
                self.broken = None
                self.since = self._desk.now()
            while self.note(await self._desk.store.read(_follow, self.good, STEP)):
                pass
            if anew:
                self.whole = self.good
            if self.broken is None:
                self.broken = await witness.find_lost_end(
                    self._desk.store, self._desk.settings.own_place
                )
        finally:
            self._is_running = False


def _follow(tx: Transaction, good: Mark, limit: int) -> Followed:
    return Followed(good, limit, audit.head(tx), audit.follow(tx, good, limit))
