"""Runs a plain function on the event loop although it waits for awaitables: `work` in a greenlet of its own.

The contract, of both sides:

- `drive(work, argument)` calls `work(argument)`. Where `work` calls `wait_for(awaitable)`, it stops; the loop awaits
  that awaitable and goes on with others meanwhile. Then `work` goes on with the result, or with what was raised.
- `work` waits for nothing else: a file or a lock would hold up the whole loop.
- `wait_for` is called by `work` itself, in its own greenlet, and never outside `drive`.
- `finish` is for work that must not be cut off: a commit that nobody waits for any longer is still completed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")
A = TypeVar("A")


async def drive(work: Callable[[A], T], argument: A) -> T:
    """What `work(argument)` returns, awaiting for it whatever it hands to `wait_for`."""
    worker = greenlet(work)
    asked = worker.switch(argument)
    while not worker.dead:
        try:
            answer = await asked
        except BaseException as error:  # noqa: BLE001 - it belongs to the work, which lets it through
            asked = worker.throw(error)
        else:
            asked = worker.switch(answer)
    # They run: coverage still looks at the greenlet that has ended.
    done: T = asked  # pragma: no cover
    return done  # pragma: no cover


def wait_for(awaitable: Awaitable[Any]) -> Any:
    """The awaitable's result, for work that `drive` runs."""
    driver = getcurrent().parent
    assert driver is not None  # noqa: S101 - `drive` started this greenlet
    return driver.switch(awaitable)


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result; it runs to its end although its caller is cancelled or its loop ends."""
    return await asyncio.shield(_Unstoppable(work))


class _Unstoppable(asyncio.Task[T]):
    """Not cancelled by the end of its loop either: `asyncio.run` cancels every task that
    is left, and waits for it."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        super().__init__(work)
        self.add_done_callback(_look_at_error)

    def cancel(self, msg: Any = None) -> bool:
        del msg
        return False


def _look_at_error(task: asyncio.Task[Any]) -> None:
    """Where the caller has gone nobody sees the error, and asyncio would log it as one never looked at."""
    if not task.cancelled():
        task.exception()
