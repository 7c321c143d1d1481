"""Says to every open page that something changed; what it is, the page asks for itself.

One look a second serves all listeners, and where nobody listens nobody looks.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from deskhand.app import Desk
from deskhand.errors import DeskError
from deskhand.gate.cards import Card
from deskhand.gate.requests import Request as Waits
from deskhand.gate.waiting import Counts
from deskhand.orchestrator.steps import count_left
from deskhand.web import sessions
from deskhand.web.render import HEADERS
from deskhand.web.request import desk_of
from deskhand.web.sessions import Session

EVERY = 1.0
BEAT = 15.0
FIRST = 25
"""How many of the oldest cards are looked at; the rest is counted."""


def word(counts: Counts, cards: Sequence[Card | Waits], left: int, messages: int) -> str:
    """What waits, as one word that changes when it does and tells nothing: cards, mails to
    decide, agents' messages."""
    seen = [
        repr(counts),
        str(left),
        str(messages),
        *(f"{card.id} {card.digest} {card.state}" for card in cards),
    ]
    return sha256("\n".join(seen).encode()).hexdigest()[:16]


async def state(desk: Desk) -> str:
    """Asked once a second: no card is made for it, and no text looked at."""
    found, _ = await desk.waiting.requests(limit=FIRST, snoozed=False)
    left = await desk.store.read(count_left, desk.now())
    messages = await desk.count_messages()
    return word(await desk.waiting.counts(), found, left, messages)


class Events:
    def __init__(self, desk: Desk, stopping: asyncio.Event, beat: float = BEAT) -> None:
        self._desk = desk
        self._stopping = stopping
        self._beat = beat
        self._listeners = 0
        self._looking: asyncio.Task[None] | None = None
        self._state: str | None = None
        self._turn = asyncio.Event()

    async def stream(
        self, seen: str | None, welcome: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[str]:
        """`changed` whenever the state is another than the one that the page has seen, and
        a sign of life between."""
        self._enter()
        try:
            while not self._stopping.is_set():
                turn = self._turn
                if self._state is not None and self._state != seen:
                    seen = self._state
                    yield f"id: {seen}\nevent: changed\ndata:\n\n"
                if await self._silent(turn):
                    if not await welcome():
                        return
                    yield ": still here\n\n"
        finally:
            self._leave()

    async def _silent(self, turn: asyncio.Event) -> bool:
        """Whether nothing happened for so long that a sign of life is due; a server that
        ends waits for no stream."""
        waits = [asyncio.create_task(each.wait()) for each in (turn, self._stopping)]
        try:
            done, _ = await asyncio.wait(
                waits, timeout=self._beat, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for each in waits:
                each.cancel()
        return not done

    def _enter(self) -> None:
        self._listeners += 1
        if self._looking is None:
            self._state = None
            self._looking = asyncio.create_task(self._look())

    def _leave(self) -> None:
        self._listeners -= 1
        if not self._listeners and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self) -> None:
        while True:
            # A database that does not answer for a moment must not end the pages' only bell.
            with suppress(DeskError, OSError):
                found = await state(self._desk)
                if found != self._state:
                    self._state = found
                    turn, self._turn = self._turn, asyncio.Event()
                    turn.set()
            await asyncio.sleep(EVERY)


async def events(request: Request) -> Response:
    desk = desk_of(request)
    session: Session = request.state.session
    bell: Events = request.app.state.events

    async def welcome() -> bool:
        return await desk.store.glance(sessions.find, session.key, desk.now()) is not None

    seen = request.headers.get("last-event-id") or request.query_params.get("seen")
    return StreamingResponse(
        bell.stream(seen, welcome), headers=HEADERS, media_type="text/event-stream"
    )
