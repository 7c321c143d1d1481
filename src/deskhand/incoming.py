"""Lines that come in on a connection: each is offered at once, and waits for its reader where nobody takes it."""

import asyncio
from collections import deque
from collections.abc import Callable

MUCH = 1 << 20
"""Bytes that may wait before the other side has to."""


class LineTooLong(Exception):
    """A line that no memory should have to hold; it was dropped."""


class IncomingLines:
    def __init__(self, longest: int) -> None:
        """`longest`: bytes of one line."""
        self._longest = longest
        self.take: Callable[[bytes], bool] = _take_none
        """Sees each line when the reader would get it, in the same turn of the event loop where the reader already
        waits; what it takes the reader does not get."""
        self._begun: list[bytes] = []
        self._length = 0
        """Of the line that has begun."""
        self._waiting: deque[bytes | None] = deque()
        """None stands for a line that was too long."""
        self._size = 0
        self._has_ended = False
        self._more: asyncio.Future[None] | None = None
        """Where the reader waits."""

    @property
    def are_many(self) -> bool:
        """Whether so much waits for the reader that no more should come."""
        return self._size > MUCH

    def feed(self, data: bytes) -> None:
        if not self._length and 0 <= data.find(b"\n") == len(data) - 1 <= self._longest:
            self._offer(data[:-1])  # one line and all of it, as nearly always
            return
        first, *others = data.split(b"\n")
        self._go_on(first)
        for each in others:
            self._end_line()
            self._go_on(each)

    def _go_on(self, part: bytes) -> None:
        if not part:
            return
        was_short = self._length <= self._longest
        self._length += len(part)
        if self._length <= self._longest:
            self._begun.append(part)
        elif was_short:
            self._begun.clear()
            self._let_wait(None)

    def _end_line(self) -> None:
        is_whole = self._length <= self._longest
        self._length = 0
        if not is_whole:
            return
        line = b"".join(self._begun)
        self._begun.clear()
        self._offer(line)

    def _offer(self, line: bytes) -> None:
        # Where the reader is behind, the order of the lines is kept: they are offered when it comes to them.
        if self._more is None or self._waiting or not self.take(line):
            self._let_wait(line)

    def _let_wait(self, line: bytes | None) -> None:
        self._waiting.append(line)
        self._size += len(line or b"")
        self._wake()

    def end(self) -> None:
        """No more will come; a last line without its end counts."""
        if self._has_ended:
            return
        if self._length:
            self._end_line()
        self._has_ended = True
        self._wake()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    async def read(self) -> bytes | None:
        """The next line that nobody took, without its end; None where no more will come. Raises LineTooLong."""
        while True:
            while self._waiting:
                line = self._waiting.popleft()
                if line is None:
                    raise LineTooLong
                self._size -= len(line)
                if not self.take(line):
                    return line
            if self._has_ended:
                return None
            self._more = asyncio.get_running_loop().create_future()
            try:
                await self._more
            finally:
                self._more = None


def _take_none(line: bytes) -> bool:
    del line
    return False
