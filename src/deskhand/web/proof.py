"""How far the record was found whole since this process started.

A view of the page looks at the lines that are new since the last one. Whole is what was walked through from the first
line; that is done behind the first view, in small steps, and again whenever the person asks for it.
"""

from datetime import datetime

from starlette.applications import Starlette

from deskhand import audit
from deskhand.app import Desk
from deskhand.audit import START, Broken, Mark
from deskhand.store import Transaction

STEP = 1000
"""Lines for one read transaction."""


class Proof:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._walking = False
        self.good = START
        """The last line of an unbroken chain from the first one."""
        self.broken: Broken | None = None
        self.head = START
        self.since: datetime | None = None
        """When the walk began that led to `good`."""

    @property
    def is_whole(self) -> bool:
        return self.broken is None and self.since is not None and self.good == self.head

    async def glance(self) -> None:
        """Look at what is new, if that is little; whoever is far behind waits for `walk`."""
        await self._step(START.seq if self.since is None else STEP)

    async def walk(self, *, anew: bool = False) -> None:
        """On to the end of the record, from its first line where `anew`."""
        if self._walking:
            return
        self._walking = True
        try:
            if anew or self.since is None:
                self.good, self.broken, self.since = START, None, self._desk.now()
            while await self._step(STEP):
                pass
        finally:
            self._walking = False

    async def _step(self, limit: int) -> bool:
        """Whether there is more to go."""
        good = self.good

        def look(tx: Transaction) -> tuple[Mark, Mark | Broken]:
            return audit.head(tx), audit.follow(tx, good, limit)

        self.head, reached = await self._desk.store.read(look)
        match reached:
            case Broken():
                self.broken = reached
            case Mark() if reached.seq >= self.head.seq and reached != self.head and limit:
                self.broken = Broken(reached.seq, "the line does not match the head of the chain")
            case Mark() if reached == good and reached.seq < self.head.seq and limit:
                self.broken = Broken(reached.seq + 1, "the line is missing at the end")
            case Mark():
                self.good = reached
        return self.broken is None and self.good.seq < self.head.seq


def proof_of(app: Starlette) -> Proof:
    """One for each running page."""
    if not hasattr(app.state, "proof"):
        app.state.proof = Proof(app.state.desk)
    found: Proof = app.state.proof
    return found
