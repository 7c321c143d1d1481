"""A connection that speaks MCP in lines, as stdio does: read, written, and brought to an end in order."""

import asyncio
from collections.abc import AsyncIterator

_ANSWER = '{"jsonrpc":"2.0","id":'


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._over = asyncio.Event()
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def __aiter__(self) -> AsyncIterator[str]:
        """The lines that come in, until the other side has no more or this one ends."""
        over = asyncio.create_task(self._over.wait())
        try:
            while True:
                reading = asyncio.create_task(self._reader.readline())
                await asyncio.wait((reading, over), return_when=asyncio.FIRST_COMPLETED)
                if over.done():
                    reading.cancel()
                    return
                if not (line := await reading):
                    return
                self._count(line)
                yield line.decode("utf-8", "replace")
        finally:
            over.cancel()

    def _count(self, line: bytes) -> None:
        if b'"method"' in line and b'"id"' in line:
            self._under_way += 1
            self._quiet.clear()

    async def write(self, text: str) -> None:
        self._writer.write(text.encode("utf-8", "surrogatepass"))
        if text.startswith(_ANSWER) and '"method":' not in text[:200]:
            self._under_way -= 1
        if self._under_way <= 0:
            self._quiet.set()

    async def flush(self) -> None:
        await self._writer.drain()

    async def finish(self, seconds: float) -> None:
        """Let the calls that are under way be answered, then hear no more."""
        try:
            async with asyncio.timeout(seconds):
                await self._quiet.wait()
                await self._writer.drain()
        except (TimeoutError, ConnectionError):
            pass
        self._over.set()
