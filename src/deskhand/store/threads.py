"""Work that goes to another thread, and the way back: who waits on an event loop is woken by as few calls as can be.

A future of `concurrent.futures` that asyncio waits for is two futures, with locks and a call to the loop for each: 2 %
of what the server does for a list of tasks, 3 % of a create.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, ParamSpec, TypeVar

from deskhand.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")


class Job(Generic[P, T]):
    """A piece of work. Its caller waits for `ended`, and takes the result then."""

    def __init__(
        self, work: Callable[P, T], ended: Future[None] | asyncio.Future[None]
    ) -> None:
        self.work = work
        self.ended = ended
        self.error: BaseException | None = None
        self._value: T

    def do(self, *given: P.args, **named: P.kwargs) -> None:
        """Keep what the work returns, or what it raises: that belongs to its caller."""
        try:
            self._value = self.work(*given, **named)
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            self.error = error

    def take_result(self) -> T:
        error = self.error
        try:
            if error is not None:
                raise error
        finally:
            # An error that is held by a frame of its own trace stays in memory, and so does all that it saw.
            self.error = error = None
        return self._value


def tell(jobs: Iterable[Job[..., Any]]) -> None:
    """Wake who waits for these, of each event loop all by one call: a call goes through a socket."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for job in jobs:
        if isinstance(job.ended, Future):
            job.ended.set_result(None)
        else:
            loops.setdefault(job.ended.get_loop(), []).append(job.ended)
    for loop, waiting in loops.items():
        with suppress(RuntimeError):  # it has ended, and nobody waits there any longer
            loop.call_soon_threadsafe(_wake, waiting)


def _wake(waiting: Iterable[asyncio.Future[None]]) -> None:
    for ended in waiting:
        if not ended.done():
            ended.set_result(None)


class Threads:
    """A few threads that do what they are handed, one after the other."""

    def __init__(self, number: int, name: str) -> None:
        self._jobs: queue.SimpleQueue[Job[[], Any] | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._threads = [
            threading.Thread(
                target=self._work_until_closed, name=f"{name}-{each}", daemon=True
            )
            for each in range(number)
        ]
        for thread in self._threads:
            thread.start()

    async def do(self, work: Callable[[], T]) -> T:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job = Job(work, ended)
        with self._closing:
            if self._closed:
                raise Unavailable("the database is closed")
            self._jobs.put(job)
        await ended
        return job.take_result()

    def close(self) -> None:
        """Do what was handed in, and nothing after."""
        with self._closing:
            self._closed = True
            for _ in self._threads:
                self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work_until_closed(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not job.ended.cancelled():
                job.do()
                tell([job])
