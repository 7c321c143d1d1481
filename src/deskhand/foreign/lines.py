"""The wire to a server that the desk starts itself: a message a line, none longer than what memory should hold.

The SDK speaks over it; what the desk asks by itself goes straight through, since a call that passes has to be quick.
"""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from deskhand.errors import ServerDown, printable
from deskhand.foreign.messages import may_forge, read_any, strip_own, write_message
from deskhand.incoming import IncomingLines, LineTooLong

LONGEST = 16 << 20
"""Bytes of one message."""
LAST_WORDS = 2000
"""Characters of what a server said last on stderr: it may say why it ended."""
GRACE = 2.0
"""Seconds in which a server may end by itself when nobody speaks to it any more."""


Report = Callable[[Mapping[str, Any]], None]
"""Hears of the progress of a call: the parameters of each notification."""
_OURS = "desk-"
"""Begins the name of each request that is not the SDK's."""
_MARK = _OURS.encode()
_NAMES = re.compile(rb'"id"\s*:\s*"(desk-\d+)"')


Hear = Callable[[dict[str, Any] | ConnectionError], None]
"""Gets the whole answer, with `result` or `error`, as it came; where it was lost, why."""
_CHUNK = 1 << 16
"""Bytes that are read at once; for asyncio's own number memory is fetched from the system each time."""
_MUCH = 1 << 16
"""Bytes that may wait for a server before whoever asks has to."""


class _LineRequest(NamedTuple):
    hear: Hear
    report: Report | None


class _ProcessLines(asyncio.subprocess.SubprocessStreamProtocol):
    """The streams of a process; the lines of its stdout are seen in the turn of the event
    loop in which they come."""

    def __init__(self) -> None:
        super().__init__(LONGEST, asyncio.get_running_loop())
        self.lines = IncomingLines(LONGEST)
        self._pipe: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._pipe = transport.get_pipe_transport(1)
        self._pipe.max_size = _CHUNK
        self._pipe.set_protocol(_Straight(self._pipe.get_protocol(), self._hear))

    def pipe_data_received(self, fd: int, data: Any) -> None:
        if fd == 1:
            self._hear(data)  # came before there was a straight way
        else:
            super().pipe_data_received(fd, data)

    def _hear(self, data: bytes) -> None:
        self.lines.feed(data)
        if self.lines.are_many:
            self._pipe.pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self.lines.end()
        super().pipe_connection_lost(fd, exc)

    async def read_line(self) -> bytes | None:
        """The next line that nobody took; None where no more will come."""
        line = await self.lines.read()
        if not self.lines.are_many:
            self._pipe.resume_reading()
        return line


class _Straight(asyncio.Protocol):
    """In place of asyncio's own protocol of a pipe, which lets each piece of data wait for one more turn."""

    def __init__(self, own: Any, hear: Callable[[bytes], None]) -> None:
        self._own = own
        self._hear = hear

    def data_received(self, data: bytes) -> None:
        self._hear(data)

    def eof_received(self) -> None:
        self._own.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._own.connection_lost(exc)


class RunningServer:
    """A server that runs, as far as this side knows."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None  # noqa: S101 - it was asked for
        self._stdin = process.stdin
        self._transport = process.stdin.transport
        self._asked: dict[str, _LineRequest] = {}
        self._numbers = count(1)
        self.ended = asyncio.Event()
        self.why = "it ended"

    @property
    def is_busy(self) -> bool:
        """Whether it does not read what it is asked."""
        return self._transport.get_write_buffer_size() > _MUCH

    def begin(
        self, method: str, params: Mapping[str, Any], report: Report | None, hear: Hear
    ) -> str:
        """Ask without waiting; by which name the request can be cancelled. `hear` is
        called once, and not before."""
        if self.ended.is_set():
            raise ConnectionResetError(self.why)
        name = f"{_OURS}{next(self._numbers)}"
        if report is not None:
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": name}}
        asked = {"jsonrpc": "2.0", "id": name, "method": method, "params": params}
        self._transport.write(write_message(asked))
        self._asked[name] = _LineRequest(hear, report)
        return name

    def cancel(self, name: str) -> None:
        """Tell the server that nobody waits for the answer any more."""
        if self._asked.pop(name, None) is None:
            return
        told = {"requestId": name, "reason": "whoever called gave up"}
        said = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": told}
        self._transport.write(write_message(said))

    async def ask(
        self, method: str, params: Mapping[str, Any], report: Report | None
    ) -> dict[str, Any]:
        """The whole answer, with `result` or `error`, as it came. Raises ConnectionError where it was lost."""
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        def hear(heard: dict[str, Any] | ConnectionError) -> None:
            if answer.done():
                return
            if isinstance(heard, ConnectionError):
                answer.set_exception(heard)
            else:
                answer.set_result(heard)

        name = self.begin(method, params, report, hear)
        try:
            await self._stdin.drain()
            return await answer
        finally:
            self.cancel(name)

    async def write(self, text: str) -> None:
        self._stdin.write(text.encode() + b"\n")
        await self._stdin.drain()

    def take(self, text: bytes) -> bool:
        """Whether the line was about something that the desk asked by itself."""
        if _MARK not in text:
            return False
        try:
            message = read_any(text)
        except (ValueError, RecursionError):
            self._answer_unread(text)
            return True
        name = _find_name(message)
        if not (isinstance(name, str) and name.startswith(_OURS)):
            return False
        if may_forge(text):
            strip_own(message)
        if "method" in message:
            self._report(name, message["params"])
        elif asked := self._asked.pop(name, None):
            asked.hear(message)
        return True

    def _report(self, name: str, params: Mapping[str, Any]) -> None:
        asked = self._asked.get(name)
        if asked and asked.report and _is_progress(params):
            with suppress(ValueError, RecursionError):  # what nobody can be told
                asked.report(params)

    def _answer_unread(self, text: bytes) -> None:
        """Let nobody wait for an answer that came and cannot be read."""
        for name in _NAMES.findall(text):
            if asked := self._asked.pop(name.decode(), None):
                asked.hear({})

    def end(self) -> None:
        """Wake everybody who waits for an answer."""
        self.ended.set()
        lost = [*self._asked.values()]
        self._asked.clear()
        for asked in lost:
            asked.hear(ConnectionResetError(self.why))


def _find_name(message: Any) -> Any:
    """The name of the request of which it is the answer, or tells the progress."""
    if not isinstance(message, dict):
        return None
    if "method" not in message:
        return message.get("id")
    match message:
        case {"method": "notifications/progress", "params": {"progressToken": name}}:
            return name
    return None


def _is_progress(params: Mapping[str, Any]) -> bool:
    numbers = (params.get("progress"), params.get("total", 0))
    words = params.get("message", "")
    return isinstance(words, str) and all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in numbers
    )


@dataclass(frozen=True, slots=True)
class Streams:
    """What the SDK hears and says, as it takes them."""

    incoming: Any
    outgoing: Any

    async def __aenter__(self) -> tuple[Any, Any]:
        return self.incoming, self.outgoing

    async def __aexit__(self, *_: object) -> None:
        return None


@asynccontextmanager
async def start(
    command: Sequence[str],
    variables: Mapping[str, str],
    secrets: Mapping[str, str],
    folder: Path,
) -> AsyncIterator[tuple[RunningServer, Streams]]:
    """Run the command for as long as the block runs. All that it started ends with it."""
    loop = asyncio.get_running_loop()
    try:
        transport, streams = await loop.subprocess_exec(
            _ProcessLines,
            *command,
            env={**variables, **secrets},
            cwd=folder,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ServerDown(
            f"{printable(command[0], 100)} cannot be started: {why}"
        ) from error
    heard, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, said = anyio.create_memory_object_stream[SessionMessage](0)
    process = asyncio.subprocess.Process(transport, streams, loop)
    line = RunningServer(process)
    streams.lines.take = line.take
    tasks = [
        asyncio.create_task(_listen(streams, heard, line)),
        asyncio.create_task(_speak(said, line)),
        asyncio.create_task(_note_last_words(process, line, secrets.values())),
    ]
    try:
        yield line, Streams(incoming, outgoing)
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process, GRACE * (not line.ended.is_set()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (heard, incoming, outgoing, said):
            stream.close()


async def _listen(streams: _ProcessLines, heard: Any, line: RunningServer) -> None:
    try:
        while (text := await streams.read_line()) is not None:
            with suppress(ValueError):  # a line that is no message is nobody's answer
                message = jsonrpc_message_adapter.validate_json(text, by_name=False)
                await heard.send(SessionMessage(message))
    except LineTooLong:
        line.why = f"it sent a message of more than {LONGEST >> 20} MB"
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        pass
    finally:
        line.end()
        heard.close()  # wakes everybody in the SDK


async def _speak(said: Any, line: RunningServer) -> None:
    try:
        async for item in said:
            await line.write(
                item.message.model_dump_json(by_alias=True, exclude_unset=True)
            )
    except (OSError, anyio.ClosedResourceError):
        line.end()


async def _note_last_words(
    process: asyncio.subprocess.Process, line: RunningServer, secrets: Collection[str]
) -> None:
    """Whoever asks is told why a server ended, but not the secrets that it was given."""
    assert process.stderr is not None  # noqa: S101 - it was asked for
    words = ""
    while chunk := await process.stderr.read(4096):
        words += chunk.decode("utf-8", "replace")
        for secret in filter(None, secrets):
            words = words.replace(secret, "[a secret]")
        words = words[-LAST_WORDS:]
        last = words.strip().rpartition("\n")[2]
        line.why = printable(f"it ended; its last words: {last}", 300)


async def _end(process: asyncio.subprocess.Process, grace: float) -> None:
    assert process.stdin is not None  # noqa: S101 - it was asked for
    process.stdin.close()
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await process.wait()
                break
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
    with suppress(ProcessLookupError, PermissionError):  # what it started itself
        os.killpg(process.pid, signal.SIGKILL)
    # Whoever inherited its pipes must not keep this side waiting.
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - nothing public closes them
