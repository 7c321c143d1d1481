"""The whole desk in one process: the page, the doors of the assistants, the orchestrator, and the person's decisions.

A part that is not set up is named with what to set, and the others run without it. One that fails is started again and
named wherever the person looks. Without a vault the orchestrator only sends what is approved; without a mailbox there
is nothing that it could leave through.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import uvicorn

from deskhand.agents.mailman import AGAIN_SECONDS, Mailman
from deskhand.app import Desk
from deskhand.audit import search
from deskhand.errors import BadConfig, DeskError
from deskhand.listen import http_config, open_twin
from deskhand.orchestrator.loop import TICK, Orchestrator
from deskhand.parts import DownPart, Parts, describe_failure
from deskhand.resident import notify, push
from deskhand.resident.demo import Arrivals
from deskhand.resident.doors import open_doors
from deskhand.resident.joining import JoiningDoor
from deskhand.setup.sweep import sweep
from deskhand.web.site import site
from deskhand.wording import LOCAL

log = logging.getLogger("deskhand.up")

Say = Callable[[str], None]
Ready = Callable[[str], Awaitable[None]]
Announce = Callable[[], None]
LAST_STEP = 0.8
"""Seconds in which a step that was begun may end; a later one is taken up by the next start, from its row."""
LAST_ANSWER = 1
"""Seconds in which an answer of the page that was begun may end."""
SWEEP_EVERY = 24 * 3600
_TWIN = "page at [::1]"
_VAULT = "mail and notes need a vault"
_MAILBOX = "mail needs a mailbox"
_NEEDS = {
    _VAULT: attrgetter("settings.vault"),
    _MAILBOX: attrgetter("mailbox"),
}


async def up(
    desk: Desk,
    listener: socket.socket,
    joining: JoiningDoor,
    *,
    say: Say,
    ready: Ready,
    announce: Announce,
    demo: bool = False,
) -> None:
    """Run until a signal ends it; `ready` gets the address when the page answers,
    `announce` says which parts run."""
    desk.parts.tell = _tell_of(say, announce)
    stop = asyncio.Event()
    stop_on_signals(stop)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    arrivals = Arrivals(desk) if demo else None
    await asyncio.to_thread(desk.adopt_secrets)
    made = open_doors(desk)
    if arrivals is not None:
        made.routes.extend(arrivals.routes())
    app = site(desk, beside=made.routes, demo=demo)
    try:
        async with _serve(app, listener, desk), made.run():
            say(f"page and MCP endpoints: {address}")
            if desk.settings.inbox_origin is not None:
                say(f"behind your proxy they are at {desk.settings.inbox_origin}")
            if desk.settings.own_addresses and desk.settings.reaches_nobody:
                say(f"what you send stays on this machine: {LOCAL}")
            async with _at_work(_parts(desk, joining, arrivals, address, say), desk.parts):
                await ready(address)
                await stop.wait()
                say("ending")
                app.state.stopping.set()
    finally:
        await desk.close_foreign()
        await desk.close_mailbox()
        await desk.leave_tasks()


def _tell_of(say: Say, announce: Announce) -> Callable[[DownPart | None, str], None]:
    def tell(down: DownPart | None, name: str) -> None:
        if down is None:
            say(f"{name} works again")
        elif down.failures == 1:
            say(f"{name} stopped: {down.why}; it is started again by itself")
        with suppress(OSError):  # on a full disk the page still shows it
            announce()

    return tell


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
    for vault in desk.settings.note_vaults[1:]:
        try:
            vault.demand()
        except DeskError as error:
            yield f"the notes of the vault {vault.name} are missing", error


@dataclass(frozen=True, slots=True)
class Part:
    """What runs beside the page."""

    name: str
    work: Callable[[], Coroutine[Any, Any, None]]
    ending: asyncio.Event | None = None
    """Set, it asks the part to end. A part without one may be dropped at any moment."""


def _parts(
    desk: Desk, joining: JoiningDoor, arrivals: Arrivals | None, address: str, say: Say
) -> Iterator[Part]:
    ending = asyncio.Event()
    yield Part("socket", partial(joining.listen, ending), ending)
    closed = dict(missing(desk))
    for what, error in closed.items():
        say(f"{what}: {describe_failure(error)}")
    if not isinstance(closed.get(_MAILBOX), BadConfig):
        ending = asyncio.Event()
        yield Part("orchestrator", partial(_orchestrate, desk, ending), ending)
    else:
        yield Part("approvals", partial(_release, desk))
    yield Part("guard", desk.foreign.run)
    if desk.settings.notify is not None:
        yield Part(
            notify.PART, partial(notify.run, desk, desk.settings.inbox_origin or address)
        )
    yield Part(push.PART, partial(push.run, desk))
    if desk.settings.agents_mailman:
        yield Part("mailman", partial(_tell_agents, desk))
    yield Part("sweeper", partial(_sweep, desk))
    if arrivals is not None:
        yield Part("demo", arrivals.arrive_later)


async def _sweep(desk: Desk) -> None:
    while True:
        for line in await asyncio.to_thread(sweep, desk):
            log.info("swept", extra={"what": line})
        await desk.store.write(search.forget_quarters, desk.now())
        desk.parts.works("sweeper")
        await asyncio.sleep(SWEEP_EVERY)


async def _release(desk: Desk) -> None:
    """Without a mailbox only calls of other servers' tools can be approved."""
    while True:
        await desk.gate.release_due()
        desk.parts.works("approvals")
        await asyncio.sleep(TICK)


async def _tell_agents(desk: Desk) -> None:
    """Go round as the mailman does, whenever something changes and every minute."""

    def tell(line: str) -> None:
        log.info("mailman", extra={"says": line.strip()})

    room = desk.person_post.mailroom
    mailman = Mailman(None, room, desk.settings.agents_programs.split(), say=tell)
    with room.bell(None) as bell:
        while True:
            await asyncio.to_thread(mailman.go_round)
            desk.parts.works("mailman")
            left = AGAIN_SECONDS
            while left > 0 and not await asyncio.to_thread(bell.wait, 1.0):
                left -= 1


async def _orchestrate(desk: Desk, ending: asyncio.Event) -> None:
    orchestrator = Orchestrator(desk, asks=True)
    try:
        await orchestrator.run(ending)
    finally:
        await orchestrator.close()


@asynccontextmanager
async def _at_work(parts: Iterable[Part], kept: Parts) -> AsyncIterator[None]:
    """Run the parts for as long as the block runs."""
    tasks = {}
    for part in parts:
        log.info("part_started", extra={"part": part.name})
        tasks[asyncio.create_task(kept.keep(part.name, part.work))] = part
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


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the desk's: it lets its parts end before the page goes."""
        yield


@asynccontextmanager
async def _serve(app: Any, listener: socket.socket, desk: Desk) -> AsyncIterator[None]:
    kept = desk.parts
    options = {"lifespan": "off", "timeout_graceful_shutdown": LAST_ANSWER}
    server = _Server(http_config(app, desk.settings.trusted_proxies, **options))

    twin = _Server(http_config(app, desk.settings.trusted_proxies, **options))

    async def serve() -> None:
        kept.works("page")
        # Of a copy: a server that fails closes what it has, and the next one listens at the same place.
        await server.serve([listener.dup()])

    async def serve_twin() -> None:
        if opened := open_twin(listener.getsockname()[1]):
            kept.works(_TWIN)
            await twin.serve([opened])

    serving = asyncio.create_task(kept.keep("page", serve))
    beside = asyncio.create_task(kept.keep(_TWIN, serve_twin))
    try:
        yield
    finally:
        server.should_exit = twin.should_exit = True
        if not twin.started:
            beside.cancel()
        await asyncio.gather(serving, beside, return_exceptions=True)
