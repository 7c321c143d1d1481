"""stdin and stdout as the event loop reads and writes them, where they are pipes or sockets.

The SDK has a thread read each line, and two more turns of a thread write each answer: of a small call that is a fifth.
"""

import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl

import anyio

_STDIN, _STDOUT, _STDERR = range(3)
_PIECE = 1 << 18


class StdPipes:
    """The lines that come in, and what is said; as the SDK asks its own files for them."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing

    async def __aiter__(self) -> AsyncIterator[str]:
        """Line by line; the last one may have no end."""
        begun: list[bytes] = []
        while piece := await self._read():
            first, *more = piece.split(b"\n")
            begun.append(first)
            for following in more:
                yield _text(begun)
                begun = [following]
        if any(begun):
            yield _text(begun)

    async def _read(self) -> bytes:
        while True:
            await anyio.wait_readable(self._reading)
            try:
                return os.read(self._reading, _PIECE)
            except BlockingIOError:
                continue
            except ConnectionError:
                return b""

    async def write(self, text: str) -> None:
        left = memoryview(text.encode("utf-8", "surrogatepass"))
        # Whoever has gone is seen to have gone where lines are read; what they asked for is done to its end.
        with suppress(ConnectionError):
            while left:
                try:
                    left = left[os.write(self._writing, left) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._writing)

    async def flush(self) -> None:
        """Nothing is kept back."""


def _text(pieces: list[bytes]) -> str:
    return b"".join(pieces).decode("utf-8", "replace")


@contextmanager
def take_pipes() -> Iterator[StdPipes | None]:
    """stdin and stdout for this use alone; None where they are no pipes, or stderr is the same one.

    Meanwhile whoever reads stdin finds its end, and what is printed goes to stderr.
    """
    if not _are_pipes():
        yield None
        return
    reading = fcntl(_STDIN, F_DUPFD_CLOEXEC, _STDERR + 1)
    writing = fcntl(_STDOUT, F_DUPFD_CLOEXEC, _STDERR + 1)
    try:
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, _STDIN)
        os.close(nothing)
        os.dup2(_STDERR, _STDOUT)
        yield StdPipes(reading, writing)
    finally:
        for taken, place in ((reading, _STDIN), (writing, _STDOUT)):
            # Other processes may have it, too, and would not know what to do where it is full or empty.
            os.set_blocking(taken, True)
            os.dup2(taken, place)
            os.close(taken)


def _are_pipes() -> bool:
    try:
        ends = [os.fstat(number) for number in (_STDIN, _STDOUT, _STDERR)]
    except OSError:  # one of them is closed
        return False
    return all(
        stat.S_ISFIFO(end.st_mode) or stat.S_ISSOCK(end.st_mode) for end in ends[:_STDERR]
    ) and not os.path.samestat(ends[_STDOUT], ends[_STDERR])
