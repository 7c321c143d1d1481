"""The socket of the running desk: `deskhand mcp NAME` joins here instead of starting a server of its own.

Whoever may open the socket file is the person's own program, as on stdio. See `pipe` for the greeting.
"""

import asyncio
import logging
import os
import socket
import struct
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import anyio

from deskhand import __version__, guard, pipe
from deskhand.app import Desk, Seat
from deskhand.config import OPTIONS, Settings, is_secret, load
from deskhand.errors import BadConfig, DeskError
from deskhand.resident.handing import Greeting, HandedTransport, HeldDoor
from deskhand.servers import SERVERS
from deskhand.servers.foreign import open_door
from deskhand.servers.server import DeskServer
from deskhand.servers.wire import Wire

log = logging.getLogger("deskhand.joining")

MOST = 200
"""So many callers there are at once; the page and the others must not run out of files. A further one takes the place
of the first that has asked nothing yet: a crowd that says nothing keeps nobody out."""
MOST_HANDED = 100
"""Of so many the desk holds stdin and stdout too, which takes two files more; bytes of others go through their pipe."""
PAUSE = 1.0
"""Seconds before a desk that has no file left lets somebody in again."""
GREETING = 10.0
"""Seconds in which whoever connects has to say what it wants."""
LAST_ANSWERS = 0.6
"""Seconds in which the calls that are under way may be answered when the desk ends."""
_SEATED = ("desk", "agentmail", "claude")
"""Servers in which it matters who the caller is among the agents."""
_SESSION = "CLAUDE_CODE_SESSION_ID"
_OF_THE_SEAT = ("agent", "tmux", "tmux_pane")


class JoiningDoor:
    def __init__(self, desk: Desk, settings: Settings) -> None:
        """`settings` are those of the person, without what the running desk changes for itself."""
        self._desk = desk
        self._settings = settings
        self._callers: dict[asyncio.Task[None], Wire | None] = {}
        """In the order in which they came; with a wire since they said what they want."""
        self._handed: set[Wire] = set()
        """Those of them that read and write at the client's own ends."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._users = {0, os.getuid()} | guard.users_of(settings.home)
        """Who may join: the desk's own user and root, of a guarded desk also the person."""
        self._server = lru_cache(maxsize=64)(self._make)

    async def listen(self, ending: asyncio.Event) -> None:
        """Let others join until the desk ends; then what was asked is answered, and every client sees the end."""
        place = place_of(self._settings)
        listener = await asyncio.to_thread(_bind, place)
        accepting = asyncio.create_task(self._accept_all(listener))
        self._desk.parts.works("socket")
        try:
            await ending.wait()
        finally:
            accepting.cancel()
            await asyncio.wait([accepting])
            listener.close()
            with suppress(FileNotFoundError):
                place.unlink()
            await asyncio.gather(
                *(wire.finish(LAST_ANSWERS) for wire in self._callers.values() if wire)
            )

    async def _accept_all(self, listener: socket.socket) -> None:
        # Not the loop's own sock_accept: ended in the moment in which somebody comes, it fails on Python 3.11.
        while True:
            try:
                door, _ = listener.accept()
            except BlockingIOError:
                await anyio.wait_readable(listener)
                continue
            except OSError as error:  # no file is left: somebody has to go first
                log.warning("not_accepted", extra={"failure": str(error)})
                await asyncio.sleep(PAUSE)
                continue
            door.setblocking(False)
            task = asyncio.create_task(self._accept(door))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)  # a crowd at the door lets those inside be served

    async def _accept(self, door: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this runs in one
        try:
            user = _user_of(door)
            if user not in self._users or not self._make_room():
                return
            self._callers[task] = None
            joined = await self._greet(door, user)
            if joined is not None:
                await self._serve(task, *joined)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            log.info("left", extra={"socket": pipe.SOCKET})
        finally:
            self._callers.pop(task, None)
            door.close()

    def _make_room(self) -> bool:
        if len(self._callers) < MOST:
            return True
        silent = (
            each
            for each, wire in self._callers.items()
            if wire is None or not wire.has_spoken
        )
        first = next(silent, None)
        if first is None:
            return False
        if wire := self._callers.pop(first):
            wire.drop()
        else:
            first.cancel()
        return True

    async def _serve(
        self, task: "asyncio.Task[None]", server: DeskServer, wire: Wire
    ) -> None:
        self._callers[task] = wire
        try:
            await server.run_wire(wire)
            await wire.close()
        finally:
            wire.drop()
            self._handed.discard(wire)

    async def _greet(
        self, door: socket.socket, user: int
    ) -> tuple[DeskServer, Wire] | None:
        loop = asyncio.get_running_loop()
        names = sorted({option.variable for option in OPTIONS.values()} | {"TZ", _SESSION})
        greeting = Greeting()
        try:
            async with asyncio.timeout(GREETING):
                await loop.sock_sendall(door, pipe.pack("deskhand", __version__, *names))
                await greeting.hear(door)
                try:
                    server = self._admit(user, *pipe.unpack(greeting.words))
                except (DeskError, TypeError, ValueError) as error:
                    await loop.sock_sendall(door, pipe.pack("refused", str(error)))
                    return None
                return server, await self._let_in(door, user, greeting)
        finally:
            greeting.close()

    async def _let_in(self, door: socket.socket, user: int, greeting: Greeting) -> Wire:
        loop = asyncio.get_running_loop()
        wire = Wire()
        # What another user hands over might be something that only the desk may write to.
        ends = None
        if user == os.getuid() and len(self._handed) < MOST_HANDED:
            ends = greeting.take_ends()
        if ends is None:
            greeting.close()  # whoever hears that it joined finds nothing of its own here
            await loop.sock_sendall(door, pipe.pack("joined"))
            await loop.connect_accepted_socket(lambda: wire, door)
            wire.data_received(greeting.rest)
            return wire
        handed = HandedTransport(ends, wire)
        self._handed.add(wire)
        try:
            await loop.sock_sendall(door, pipe.pack("joined", pipe.HANDED))
            await loop.connect_accepted_socket(lambda: HeldDoor(handed), door)
        except BaseException:
            handed.abort()
            self._handed.discard(wire)
            raise
        return wire

    def _admit(
        self, user: int, name: str, scopes: str, folder: str, *given: str
    ) -> DeskServer:
        """The server for this caller; refused where its environment asks for another desk than this one."""
        if name not in SERVERS:
            self._desk.foreign.entry(name)
        variables = dict(each.split("=", 1) for each in given if each)
        if self._settings.is_guarded and not guard.is_own_home(
            variables.get("DESKHAND_HOME")
        ):
            raise BadConfig("the environment sets DESKHAND_HOME to something else")
        loaded = load(variables | {"DESKHAND_HOME": str(self._settings.home)})
        here = {name for name, source in loaded.sources.items() if source == "environment"}
        for option in here - {*_OF_THE_SEAT, "home", "socket"}:
            # Of a secret not even that it is the same is told to another user, who might be guessing.
            guessed = user != os.getuid() and is_secret(option)
            if guessed or getattr(loaded.settings, option) != getattr(
                self._settings, option
            ):
                raise BadConfig(
                    f"the environment sets {OPTIONS[option].variable} to something else"
                )
        if "TZ" in variables and loaded.settings.timezone != self._settings.timezone:
            raise BadConfig("the environment sets TZ to something else")
        seat = None
        if name in _SEATED:
            seat = Seat(
                folder, *(getattr(loaded.settings, option) for option in _OF_THE_SEAT)
            )
            if name == "claude":
                return self._server(
                    name, scopes, replace(seat, session=variables.get(_SESSION))
                )
            if user != os.getuid():
                # The desk goes into no folder of another user's, and talks to none of their programs.
                room = self._settings.agents_room or Path(folder).name or "desk"
                seat = Seat("/", seat.agent, None, None, room)
        return self._server(name, scopes, seat)

    def _make(self, name: str, scopes: str, seat: Seat | None) -> DeskServer:
        options = {"ends_with_tmux": False} if name == "agentmail" else {}
        if name in SERVERS:
            server = SERVERS[name].make(
                self._desk.seat(seat) if seat else self._desk, None, **options
            )
        else:
            server = open_door(self._desk, name)
        if scopes:
            server.narrow(scopes.split(" "))
        return server


def place_of(settings: Settings) -> Path:
    if settings.is_guarded:
        return Path(pipe.GUARDED)
    return settings.socket or settings.home / pipe.SOCKET


def _bind(place: Path) -> socket.socket:
    """A listener that only the owner may reach. One desk runs in a home, so that a file of before is dead.

    To that of a guarded desk everybody may come: whom it lets in, the kernel's word about them decides.
    """
    place.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    reached = pipe.reachable(str(place))
    listener.bind(reached)
    os.chmod(reached, 0o666 if str(place) == pipe.GUARDED else 0o600)  # noqa: PTH101 - by its short name; nobody can connect before somebody listens
    listener.listen(64)
    listener.setblocking(False)
    return listener


def _user_of(door: socket.socket) -> int:
    """Who is at the other end; on a system that does not tell, whoever can open the file is the owner."""
    known = getattr(socket, "SO_PEERCRED", None)
    if known is None:
        return os.getuid()
    peer = door.getsockopt(socket.SOL_SOCKET, known, struct.calcsize("3i"))
    return int(struct.unpack("3i", peer)[1])
