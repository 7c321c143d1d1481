"""A connection that speaks MCP in lines, as stdio does: read, written, and brought to an end in order."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from deskhand.incoming import IncomingLines, LineTooLong

LONGEST_LINE = 64 << 20
MOST_UNREAD = 4 << 20
"""Bytes of answers that may wait for a client before no more of it is heard."""
_TOO_LONG = "{\n"
"""In place of a line that no memory should have to hold: it is answered as one that is no message."""


class Wire(asyncio.Protocol):
    def __init__(self) -> None:
        self._lines = IncomingLines(LONGEST_LINE)
        self._transport: Any = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._lost = asyncio.Event()
        self._served = asyncio.Event()
        self._is_finishing = False
        self.has_spoken = False
        """Whether the other side has asked anything yet."""

    def offer_lines(self, take: Callable[[bytes], bool]) -> None:
        """Let somebody see each line first, and take it."""
        self._lines.take = take

    # What the transport says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self.has_spoken:
            self.has_spoken = b"\n" in data
        self._lines.feed(data)
        if self._lines.are_many or self._is_unread:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._lines.end()
        return True  # what was asked is still answered

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()
        self._go_on_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._lines.end()
        self._may_write.set()
        self._lost.set()

    # What a server does with it.

    async def __aiter__(self) -> AsyncIterator[str]:
        """The lines that come in, until the other side has no more or this one ends."""
        while True:
            try:
                line = await self._lines.read()
            except LineTooLong:
                yield _TOO_LONG
                continue
            if line is None:
                return
            self._go_on_reading()
            yield line.decode("utf-8", "replace") + "\n"

    @property
    def _is_unread(self) -> bool:
        return bool(self._transport.get_write_buffer_size() > MOST_UNREAD)

    def _go_on_reading(self) -> None:
        if self._is_finishing or self._lost.is_set():
            return
        if not (self._lines.are_many or self._is_unread):
            self._transport.resume_reading()

    async def write(self, text: str) -> None:
        self.put(text.encode("utf-8", "surrogatepass"))

    def put(self, data: bytes) -> None:
        # Whoever has gone is seen to have gone where lines are read; what they asked for is done to its end.
        if not self._lost.is_set():
            self._transport.write(data)

    async def flush(self) -> None:
        await self._may_write.wait()

    async def close(self) -> None:
        """End it when all that was written has gone out."""
        self._transport.close()
        await self._lost.wait()
        self._served.set()

    def drop(self) -> None:
        """End it at once."""
        self._transport.abort()

    async def finish(self, seconds: float) -> None:
        """Hear no more, and let what was asked be answered."""
        self._is_finishing = True
        self._transport.pause_reading()
        self._lines.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._served.wait()
