"""The wire to a server that the desk starts itself: a message a line, none longer than what memory should hold."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from deskhand.errors import ServerDown, printable

log = logging.getLogger("deskhand.foreign")

LONGEST = 16 << 20
"""Bytes of one message."""
LAST_WORDS = 2000
"""Characters of what a server said last on stderr: it may say why it ended."""
GRACE = 2.0
"""Seconds in which a server may end by itself when nobody speaks to it any more."""


@dataclass(slots=True)
class RunningServer:
    """A server that runs, as far as this side knows."""

    incoming: Any
    outgoing: Any
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    why: str = "it ended"


@asynccontextmanager
async def start(command: Sequence[str], variables: Mapping[str, str], folder: Path) -> AsyncIterator[RunningServer]:
    """Run the command for as long as the block runs. All that it started ends with it."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(variables),
            cwd=folder,
            limit=LONGEST,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ServerDown(f"{printable(command[0], 100)} cannot be started: {why}") from error
    heard, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, said = anyio.create_memory_object_stream[SessionMessage](0)
    line = RunningServer(incoming, outgoing)
    tasks = [
        asyncio.create_task(_listen(process, heard, line)),
        asyncio.create_task(_speak(process, said, line)),
        asyncio.create_task(_note_last_words(process, line)),
    ]
    try:
        yield line
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process, GRACE * (not line.ended.is_set()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (heard, incoming, outgoing, said):
            stream.close()


async def _listen(process: asyncio.subprocess.Process, heard: Any, line: RunningServer) -> None:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    try:
        while text := await process.stdout.readline():
            with suppress(ValueError):  # a line that is no message is nobody's answer
                await heard.send(SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False)))
    except ValueError:
        line.why = f"it sent a message of more than {LONGEST >> 20} MB"
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
        pass
    finally:
        line.ended.set()
        heard.close()  # wakes everybody who waits for an answer


async def _speak(process: asyncio.subprocess.Process, said: Any, line: RunningServer) -> None:
    assert process.stdin is not None  # noqa: S101 - it was asked for
    try:
        async for item in said:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()
    except (OSError, anyio.ClosedResourceError):
        line.ended.set()


async def _note_last_words(process: asyncio.subprocess.Process, line: RunningServer) -> None:
    assert process.stderr is not None  # noqa: S101 - it was asked for
    words = ""
    while chunk := await process.stderr.read(4096):
        words = (words + chunk.decode("utf-8", "replace"))[-LAST_WORDS:]
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
