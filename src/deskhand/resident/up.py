"""The whole desk in one process: the page, the doors of the assistants, the orchestrator, and the person's decisions.

A part that cannot start is named with what to set, and the others run without it. Without a vault the orchestrator
only sends what is approved; without a mailbox there is nothing that it could leave through.
"""

import asyncio
import logging
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import uvicorn

from deskhand.app import Desk
from deskhand.errors import DeskError
from deskhand.orchestrator.loop import Orchestrator
from deskhand.resident.demo import Arrivals
from deskhand.resident.doors import open_doors
from deskhand.web.site import site

log = logging.getLogger("deskhand.up")

Say = Callable[[str], None]
Ready = Callable[[str], Awaitable[None]]
LAST_STEP = 0.8
"""Seconds in which a step that was begun may end; a later one is taken up by the next start, from its row."""
LAST_ANSWER = 1
"""Seconds in which an answer of the page that was begun may end."""
PAUSE = 0.5
"""The longest time between two looks at what is held."""
_VAULT = "mail and notes need a vault"
_MAILBOX = "mail needs a mailbox"
_NEEDS = {
    _VAULT: attrgetter("settings.vault"),
    _MAILBOX: attrgetter("mailbox"),
    "messages to agents need a name": attrgetter("post"),
}


async def up(desk: Desk, listener: socket.socket, *, say: Say, ready: Ready, demo: bool = False) -> None:
    """Run until a signal ends it; `ready` gets the address when the page answers."""
    stop = asyncio.Event()
    stop_on_signals(stop)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    arrivals = Arrivals(desk) if demo else None
    made = open_doors(desk)
    if arrivals is not None:
        made.routes.extend(arrivals.routes())
    app = site(desk, beside=made.routes, demo=demo)
    try:
        async with _serve(app, listener), made.run():
            say(f"the page and the doors of assistants are at {address}")
            async with _at_work(_parts(desk, arrivals, address, say), stop, say):
                await ready(address)
                await stop.wait()
                say("ending")
                app.state.stopping.set()
    finally:
        await desk.close_mailbox()
        await desk.leave_tasks()


def stop_on_signals(stop: asyncio.Event) -> None:
    """Let the first signal ask for an end; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def ask() -> None:
        stop.set()
        for each in signals:
            loop.remove_signal_handler(each)

    for each in signals:
        loop.add_signal_handler(each, ask)


def missing(desk: Desk) -> Iterator[tuple[str, DeskError]]:
    """What this desk cannot do, and what to set for it."""
    for what, need in _NEEDS.items():
        try:
            need(desk)
        except DeskError as error:
            yield what, error


@dataclass(frozen=True, slots=True)
class Part:
    """What runs beside the page."""

    name: str
    work: Callable[[], Coroutine[Any, Any, None]]
    ending: asyncio.Event | None = None
    """Set, it asks the part to end. A part without one may be dropped at any moment."""


def _parts(desk: Desk, arrivals: Arrivals | None, address: str, say: Say) -> Iterator[Part]:
    closed = dict(missing(desk))
    for what, error in closed.items():
        say(f"{what}: {_why(error)}")
    lost_vault = _VAULT in closed and desk.settings.vault_path is not None
    if _MAILBOX not in closed and not lost_vault:
        # An event of its own: the orchestrator sets it when it fails, and the desk runs on.
        ending = asyncio.Event()
        yield Part("orchestrator", partial(_orchestrate, desk, ending), ending)
    if desk.settings.notify is not None:
        from deskhand.resident import notify

        yield Part("notifications", partial(notify.run, desk, address))
    if arrivals is not None:
        yield Part("demo", arrivals.arrive_later)


def _why(error: DeskError) -> str:
    if error.hint:
        return f"{error.message} ({error.hint})"
    return error.message


async def _orchestrate(desk: Desk, ending: asyncio.Event) -> None:
    orchestrator = Orchestrator(desk)
    try:
        await orchestrator.run(ending)
    finally:
        await orchestrator.close()


@asynccontextmanager
async def _at_work(parts: Iterable[Part], stop: asyncio.Event, say: Say) -> AsyncIterator[None]:
    """Run the parts for as long as the block runs; one that fails is named, and the page stays."""
    tasks = {asyncio.create_task(_run(part, stop, say)): part for part in parts}
    try:
        yield
    finally:
        for task, part in tasks.items():
            if part.ending is None:
                task.cancel()
            else:
                part.ending.set()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LAST_STEP)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _run(part: Part, stop: asyncio.Event, say: Say) -> None:
    """Run one part: a failure is said and logged here, and stops no other part."""
    say(f"{part.name} started")
    try:
        await part.work()
    except DeskError as error:
        log.error("part_stopped", extra={"part": part.name, "why": error.message})  # noqa: TRY400 - it names its cause
        say(f"{part.name} stopped: {_why(error)}")
    except Exception:
        reference = secrets.token_hex(4)
        log.exception("crash", extra={"part": part.name, "reference": reference})
        say(f"{part.name} stopped by an unexpected error; the log has it under {reference}")
    else:
        if not stop.is_set() and part.name != "demo":
            say(f"{part.name} ended")


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the desk's: it lets its parts end before the page goes."""
        yield


@asynccontextmanager
async def _serve(app: Any, listener: socket.socket) -> AsyncIterator[None]:
    config = uvicorn.Config(
        app,
        log_config=None,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=LAST_ANSWER,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving
