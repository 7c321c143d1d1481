"""HTTP in front of `deskhand mcp NAME`: the conformance judge speaks nothing else.

What belongs to HTTP itself (its headers, its sessions) is the bridge's own, and shows nothing of the pipe.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

SESSION = "mcp-session-id"


class BridgedPipe:
    """One server on stdio, and the answers that somebody waits for."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[object, asyncio.Queue[dict[str, Any]]] = {}
        self.unasked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            message = json.loads(line)
            queue = self.unasked
            if "method" not in message and message.get("id") in self._waiting:
                queue = self._waiting[message["id"]]
            elif self._waiting:
                queue = list(self._waiting.values())[-1]
            queue.put_nowait(message)

    def tell(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def ask(self, message: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """All that the server says until it has answered."""
        queue = self._waiting[message["id"]] = asyncio.Queue()
        self.tell(message)
        try:
            while True:
                said = await queue.get()
                yield said
                if "method" not in said:
                    return
        finally:
            del self._waiting[message["id"]]

    async def close(self) -> None:
        self._reading.cancel()
        self._process.kill()
        await self._process.wait()


class Bridge:
    def __init__(self, command: Iterable[str], environment: dict[str, str]) -> None:
        self._command = list(command)
        self._environment = environment
        self._pipes: dict[str, BridgedPipe] = {}
        self.app = Starlette(
            routes=[Route("/mcp", self._answer, methods=["POST", "GET", "DELETE"])]
        )

    async def _answer(self, request: Request) -> Response:
        known = self._pipes.get(request.headers.get(SESSION, ""))
        if request.method == "GET" and known:
            return _stream(_forever(known.unasked))
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        if known is None:
            name = uuid.uuid4().hex
            known = self._pipes[name] = await self._open()
            if message.get("method") == "initialize":
                return _stream(known.ask(message), {SESSION: name})
        if "method" in message and "id" in message:
            return _stream(known.ask(message))
        known.tell(message)
        return Response(status_code=202)

    async def _open(self) -> BridgedPipe:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._environment,
            stdin=pipe,
            stdout=pipe,
            stderr=asyncio.subprocess.DEVNULL,
            limit=1 << 26,
        )
        return BridgedPipe(process)

    async def close(self) -> None:
        for each in self._pipes.values():
            await each.close()


async def _forever(queue: "asyncio.Queue[dict[str, Any]]") -> AsyncIterator[dict[str, Any]]:
    while True:
        yield await queue.get()


def _stream(
    messages: AsyncIterator[dict[str, Any]], headers: dict[str, str] | None = None
) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        async for each in messages:
            yield f"event: message\ndata: {json.dumps(each)}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)
