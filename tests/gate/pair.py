"""Two desks with one vault and one database, where the other one acts between two steps of ours."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mcp import Client

from deskhand.app import Desk
from deskhand.gate.actions import SendEmail
from deskhand.gate.requests import Request
from deskhand.servers.email import email_server
from deskhand.store import Store
from tests.gate.site import HELLO, Event, Interrupted, Site, said


class Meanwhile:
    """A real store; before or after its next writes, or after its next reads, somebody else acts."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.before: deque[Event | None] = deque()
        self.after: deque[Event | None] = deque()
        self.after_reads: deque[Event | None] = deque()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        await happen(self.before)
        done = await self._inner.write(work, *given, **named)
        await happen(self.after)
        return done

    write_in_thread = write

    async def read(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        found = await self._inner.read(work, *given, **named)
        await happen(self.after_reads)
        return found


async def happen(events: "deque[Event | None]") -> None:
    if events and (event := events.popleft()) is not None:
        await event()


@dataclass
class Pair:
    """Two desks with one vault and one database: an assistant is at ours, and the other acts in between."""

    site: Site
    ours: Desk
    other: Desk
    client: Client
    between: Meanwhile

    async def send(self, **changes: str) -> str:
        return await said(self.client, "send_email", **HELLO | changes)

    async def other_sends(self, **changes: str) -> object:
        return await self.other.gate.propose(SendEmail(**HELLO | changes), "other")

    async def open_row(self) -> Request:
        (request,), _ = await self.other.waiting.requests()
        return request

    async def look(self) -> None:
        """As the desk does, whenever something changes in the vault."""
        await self.other.door.hear_all()
        await self.other.door.follow_all()

    def interrupt(self, event: Event) -> None:
        self.ours.mailbox = Interrupted(self.ours.mailbox, event)

    async def take_back(self) -> None:
        (file,) = self.site.files("Approved")
        file.rename(self.site.home.vault / "Pending_Approval" / file.name)


@asynccontextmanager
async def pair(site: Site, **variables: str) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        desks = [site.desk(**variables) for _ in range(2)]
        for desk in desks:
            stack.callback(desk.close)
            stack.push_async_callback(desk.close_mailbox)
        ours, other = desks
        between = Meanwhile(ours.store)
        ours.store = between
        client = await stack.enter_async_context(
            Client(email_server(ours), mode="2026-07-28")
        )
        yield Pair(site, ours, other, client, between)
