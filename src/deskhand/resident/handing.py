"""A client's own stdin and stdout, which its pipe handed to the desk: no byte of MCP goes through the pipe any more.

What the desk was handed it looks at itself. It takes pipes and unnamed pairs of sockets, as programs give them to what
they start, and neither a terminal, a file nor a connection to somebody with a name.
"""

import asyncio
import fcntl
import os
import socket
import stat
from contextlib import suppress
from typing import Any

import anyio

from deskhand import pipe

_CHUNK = 1 << 16
_END = b"\0\n"
_LONGEST = 4 << 20
"""Bytes of a greeting: a few variables of an environment."""
_ENDS = 2
_HIGH = 1 << 16
"""Bytes that wait to be written before whoever writes has to."""
_AT_ONCE = socket.MSG_DONTWAIT
"""Whether others wait at the same socket is their own affair: its state, which all share, is not changed."""


class End:
    """One end of what a client reads or writes."""

    def __init__(self, file: int, *, writes: bool) -> None:
        """Takes the descriptor in any case. Raises OSError or ValueError where the desk may not use it."""
        self._socket: socket.socket | None = None
        self.file = file
        try:
            os.set_inheritable(file, False)
            mode = os.fstat(file).st_mode
            if stat.S_ISFIFO(mode):
                self.file = _open_anew(file, writes=writes)
                os.close(file)
            else:
                self._socket = _open_pair(file)
        except (OSError, ValueError):
            os.close(file)
            raise

    def read(self) -> bytes:
        if self._socket is not None:
            return self._socket.recv(_CHUNK, _AT_ONCE)
        return os.read(self.file, _CHUNK)

    def write(self, data: bytes | memoryview) -> int:
        if self._socket is not None:
            return self._socket.send(data, _AT_ONCE)
        return os.write(self.file, data)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        else:
            os.close(self.file)


def _open_anew(file: int, *, writes: bool) -> int:
    """The same pipe, opened for the desk alone: whether reading and writing wait is a property that others share.

    A system where that cannot be done raises OSError.
    """
    given = fcntl.fcntl(file, fcntl.F_GETFL)
    way = os.O_WRONLY if writes else os.O_RDONLY
    if given & os.O_ACCMODE not in (way, os.O_RDWR) or given & getattr(os, "O_PATH", 0):
        raise ValueError("it is open the other way")
    return os.open(f"/proc/self/fd/{file}", way | os.O_NONBLOCK | os.O_CLOEXEC)


def _open_pair(file: int) -> socket.socket:
    """One of two sockets that were made as a pair: they have no names."""
    found = socket.socket(fileno=file)
    try:
        is_pair = (found.family, found.type) == (socket.AF_UNIX, socket.SOCK_STREAM)
        if is_pair and not found.getsockname() and not found.getpeername():
            return found
    except OSError:
        pass
    found.detach()
    raise ValueError("it is no pair of sockets")


class Greeting:
    """What a pipe says first, and the descriptors that it sends along: those of its stdin
    and its stdout, or none."""

    def __init__(self) -> None:
        self.words = b""
        self.rest = b""
        """What already came behind the greeting."""
        self._files: list[int] = []

    async def hear(self, door: socket.socket) -> None:
        """Raises EOFError where it is no greeting."""
        heard = b""
        while _END not in heard:
            await anyio.wait_readable(door)
            with suppress(BlockingIOError):
                data, files, _, _ = socket.recv_fds(door, _CHUNK, _ENDS + 1)
                self._files += files
                heard += data
                if not data or len(heard) > _LONGEST or len(self._files) > _ENDS:
                    raise EOFError
        self.words, _, self.rest = heard.partition(_END)

    def take_ends(self) -> tuple[End, End] | None:
        """Where the client is read and written; None where that is not what was sent, or where more was said."""
        if len(self._files) != _ENDS or self.rest:
            return None
        reading = None
        with suppress(OSError, ValueError):
            reading = End(self._files.pop(0), writes=False)
            return reading, End(self._files.pop(0), writes=True)
        if reading is not None:
            reading.close()
        return None

    def close(self) -> None:
        """Close what was not taken."""
        while self._files:
            os.close(self._files.pop())


class HandedTransport(asyncio.Transport):
    """Reads and writes at the client's own ends, for as long as its pipe holds the door."""

    def __init__(self, ends: tuple[End, End], protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._reading, self._writing = ends
        self._protocol = protocol
        self._door: asyncio.Transport | None = None
        self._unwritten = bytearray()
        self._is_reading = False
        self._has_ended = False
        """Whether the client has closed what it writes to."""
        self._is_closing = False
        self._is_gone = False
        protocol.connection_made(self)

    def start(self, door: asyncio.Transport) -> None:
        self._door = door
        self.resume_reading()

    # Reading.

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._reading.file)

    def resume_reading(self) -> None:
        if not (self._is_reading or self._has_ended or self._is_closing or self._is_gone):
            self._is_reading = True
            self._loop.add_reader(self._reading.file, self._read)

    def _read(self) -> None:
        try:
            data = self._reading.read()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._protocol.data_received(data)
            return
        self.pause_reading()
        self._has_ended = True
        if self._door is not None:
            self._door.write(pipe.pack("ended"))
        self._protocol.eof_received()

    # Writing.

    def get_write_buffer_size(self) -> int:
        return len(self._unwritten)

    def write(self, data: Any) -> None:
        if self._is_closing or self._is_gone:
            return
        left = data
        if not self._unwritten:
            left = self._write_now(data)
        if not left or self._is_gone:
            return
        if not self._unwritten:
            self._loop.add_writer(self._writing.file, self._write_more)
        was_low = len(self._unwritten) <= _HIGH
        self._unwritten += left
        if was_low and len(self._unwritten) > _HIGH:
            self._protocol.pause_writing()

    def _write_now(self, data: Any) -> Any:
        """What could not be written now."""
        try:
            return data[self._writing.write(data) :]
        except BlockingIOError:
            return data
        except OSError:
            self.abort()  # the client has gone
            return b""

    def _write_more(self) -> None:
        was_high = len(self._unwritten) > _HIGH
        part = bytes(self._unwritten[:_CHUNK])
        del self._unwritten[: len(part) - len(self._write_now(part))]
        if self._is_gone:
            return
        if was_high and len(self._unwritten) <= _HIGH:
            self._protocol.resume_writing()
        if not self._unwritten:
            self._loop.remove_writer(self._writing.file)
            if self._is_closing:
                self._end()

    # The end.

    def is_closing(self) -> bool:
        return self._is_closing or self._is_gone

    def close(self) -> None:
        self._is_closing = True
        self.pause_reading()
        if not self._unwritten:
            self._end()

    def abort(self) -> None:
        self._end()

    def _end(self) -> None:
        if self._is_gone:
            return
        self.pause_reading()
        self._is_gone = True
        if self._unwritten:
            self._loop.remove_writer(self._writing.file)
            self._unwritten.clear()
        self._reading.close()
        self._writing.close()
        if self._door is not None:
            self._door.close()
        self._loop.call_soon(self._protocol.connection_lost, None)


class HeldDoor(asyncio.Protocol):
    """The socket of a pipe that handed its ends over: while it is open, the pipe is there,
    and nothing more is said."""

    def __init__(self, handed: HandedTransport) -> None:
        self._handed = handed

    def connection_made(self, transport: Any) -> None:
        self._handed.start(transport)

    def data_received(self, data: bytes) -> None:
        del data
        self._handed.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._handed.abort()
