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

from deskhand import __version__, guard, pipe
from deskhand.app import Desk, Seat
from deskhand.config import OPTIONS, Settings, is_secret, load
from deskhand.errors import BadConfig, DeskError
from deskhand.servers import SERVERS
from deskhand.servers.foreign import open_door
from deskhand.servers.server import DeskServer
from deskhand.servers.wire import Wire

log = logging.getLogger("deskhand.joining")

LONGEST_LINE = 64 << 20
MOST = 200
"""So many callers there are at once; the page and the others must not run out of files. A further one takes the place
of the first that has asked nothing yet: a crowd that says nothing keeps nobody out."""
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
        self._callers: dict[asyncio.StreamWriter, Wire | None] = {}
        """In the order in which they came; with a wire since they said what they want."""
        self._users = {0, os.getuid()} | guard.users_of(settings.home)
        """Who may join: the desk's own user and root, of a guarded desk also the person."""
        self._server = lru_cache(maxsize=64)(self._make)

    async def listen(self, ending: asyncio.Event) -> None:
        """Let others join until the desk ends; then what was asked is answered, and every client sees the end."""
        place = place_of(self._settings)
        listener = await asyncio.to_thread(_bind, place)
        accepting = await asyncio.start_unix_server(
            self._accept, sock=listener, limit=LONGEST_LINE
        )
        self._desk.parts.works("socket")
        try:
            await ending.wait()
        finally:
            accepting.close()
            with suppress(FileNotFoundError):
                place.unlink()
            await asyncio.gather(
                *(wire.finish(LAST_ANSWERS) for wire in self._callers.values() if wire)
            )

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            user = _user_of(writer)
            if user not in self._users or not self._make_room():
                return
            self._callers[writer] = None
            server = await self._greet(reader, writer, user)
            if server is not None:
                await self._serve(server, Wire(reader, writer), writer)
        except (
            ConnectionError,
            TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.CancelledError,
        ):
            log.info("left", extra={"socket": pipe.SOCKET})
        finally:
            self._callers.pop(writer, None)
            writer.close()

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
        del self._callers[first]
        first.close()
        return True

    async def _serve(
        self, server: DeskServer, wire: Wire, writer: asyncio.StreamWriter
    ) -> None:
        self._callers[writer] = wire
        try:
            await server.run_wire(wire)
        finally:
            await wire.close()

    async def _greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, user: int
    ) -> DeskServer | None:
        names = sorted({option.variable for option in OPTIONS.values()} | {"TZ", _SESSION})
        writer.write(pipe.pack("deskhand", __version__, *names))
        async with asyncio.timeout(GREETING):
            wanted = pipe.unpack(await reader.readuntil(b"\0\n"))
        try:
            server = self._admit(user, *wanted)
        except (DeskError, TypeError, ValueError) as error:
            writer.write(pipe.pack("refused", str(error)))
            await writer.drain()
            return None
        writer.write(pipe.pack("joined"))
        return server

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


def _user_of(writer: asyncio.StreamWriter) -> int:
    """Who is at the other end; on a system that does not tell, whoever can open the file is the owner."""
    known = getattr(socket, "SO_PEERCRED", None)
    if known is None:
        return os.getuid()
    peer = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, known, struct.calcsize("3i")
    )
    return int(struct.unpack("3i", peer)[1])
