"""A connection that speaks MCP in lines, as stdio does: read, written, and brought to an end in order."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

_TOO_LONG = b"{\n"
"""In place of a line that no memory should have to hold: it is answered as one that is no message."""


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._served = asyncio.Event()
        self.has_spoken = False
        """Whether the other side has asked anything yet."""

    async def __aiter__(self) -> AsyncIterator[str]:
        """The lines that come in, until the other side has no more or this one ends."""
        while line := await self._read_line():
            self.has_spoken = True
            yield line.decode("utf-8", "replace")

    async def _read_line(self) -> bytes:
        try:
            return await self._reader.readline()
        except ConnectionError:
            return b""
        except ValueError:
            return _TOO_LONG

    async def write(self, text: str) -> None:
        self.put(text)

    def put(self, text: str) -> None:
        self._writer.write(text.encode("utf-8", "surrogatepass"))

    async def flush(self) -> None:
        # Whoever has gone is seen to have gone where lines are read; what they asked for is done to its end.
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def close(self) -> None:
        """End it when all that was written has gone out."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        self._served.set()

    async def finish(self, seconds: float) -> None:
        """Hear no more, and let what was asked be answered."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]
        self._reader.feed_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._served.wait()
