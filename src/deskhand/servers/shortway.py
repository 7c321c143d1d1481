"""The short way of a call that the person's rules let pass: from the client's line to the server's, and back.

The SDK's way takes a dozen turns of the event loop and holds every value against a schema twice, which costs more than
the call itself. Whatever is not plainly such a call goes the SDK's way, which has all the answers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp_types import INTERNAL_ERROR, PROTOCOL_VERSION_META_KEY

from deskhand.foreign.arguments import is_writable
from deskhand.foreign.lines import Report
from deskhand.foreign.messages import read_message, write_message
from deskhand.foreign.session import ReadResult
from deskhand.servers.stdio import LAST_ANSWERS
from deskhand.servers.wire import Wire

_HEAD = {"jsonrpc": "2.0"}
_CALL_KEYS = {"name", "arguments", "_meta"}
Cancel = Callable[[], None]
Start = Callable[
    [str, Mapping[str, Any], Report | None, bool, Callable[[ReadResult], None]],
    Cancel | None,
]
"""Begins a call, for a client of the second era or not, and has its answer heard; None where it does not pass."""


class ShortWay:
    """A call begins in the turn of the event loop in which its line came, and ends in that
    in which the answer came."""

    def __init__(self, wire: Wire, start: Start) -> None:
        self._wire = wire
        self._start = start
        self._is_modern: bool | None = None
        """Of which era the client is; its first line says it."""
        self._envelope: Any = None
        """What the last good call of a client of the second era said of itself; the next one says the same."""
        self._open: dict[str | int, Cancel] = {}
        self._all_answered = asyncio.Event()

    @asynccontextmanager
    async def lines(self) -> AsyncIterator[AsyncIterator[str]]:
        """All lines that did not go the short way."""
        self._wire.offer_lines(self._take)
        try:
            yield self._listen()
        finally:
            for cancel in self._open.values():
                cancel()
            self._open.clear()

    async def _listen(self) -> AsyncIterator[str]:
        async for line in self._wire:
            yield line
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_ANSWERS):
                while self._open:
                    self._all_answered.clear()
                    await self._all_answered.wait()

    def _take(self, line: bytes) -> bool:
        if self._is_modern is None:
            self._is_modern = b'"initialize"' not in line
        is_end = self._open and b'"notifications/cancelled"' in line
        if not is_end and b'"tools/call"' not in line:
            return False
        try:
            message = read_message(line)
            method, params = message["method"], message["params"]
        except (ValueError, KeyError, TypeError):
            return False
        if method == "tools/call":
            return (
                self._is_plain(message, params)
                and is_writable(params.get("arguments", {}), line)
                and self._begin(message["id"], params)
            )
        return method == "notifications/cancelled" and self._cancel(params)

    def _is_plain(self, message: Mapping[str, Any], params: Any) -> bool:
        """Whether it is a call as the protocol wants it, with nothing beside it."""
        if (
            not isinstance(params, dict)
            or type(message.get("id")) not in (str, int)
            or message.get("jsonrpc") != "2.0"
            or not isinstance(params.get("name"), str)
            or not isinstance(params.get("arguments", {}), dict)
            or not isinstance(meta := params.get("_meta", {}), dict)
            or not params.keys() <= _CALL_KEYS
        ):
            return False
        if not self._is_modern:
            return PROTOCOL_VERSION_META_KEY not in meta
        if meta == self._envelope:
            return True
        if not isinstance(classify_inbound_request(message), InboundModernRoute):
            return False
        self._envelope = meta
        return True

    def _cancel(self, params: Any) -> bool:
        match params:
            case {"requestId": str() | int() as name} if name in self._open:
                self._open.pop(name)()
                return True
        return False

    def _begin(self, name: str | int, params: Mapping[str, Any]) -> bool:
        if name in self._open:
            return False
        report = None
        token = params.get("_meta", {}).get("progressToken")
        if type(token) in (str, int):
            report = self._reporter(token)
        hear = partial(self._finish, name)
        arguments = params.get("arguments", {})
        cancel = self._start(params["name"], arguments, report, bool(self._is_modern), hear)
        if cancel is None:
            return False
        self._open[name] = cancel
        return True

    def _reporter(self, token: str | int) -> Report:
        def report(params: Mapping[str, Any]) -> None:
            told = {
                **_HEAD,
                "method": "notifications/progress",
                "params": {**params, "progressToken": token},
            }
            self._wire.put(write_message(told))

        return report

    def _finish(self, name: str | int, read: ReadResult) -> None:
        del self._open[name]
        if not self._open:
            self._all_answered.set()
        try:
            answer = {"result": read()}
        except MCPError as error:
            answer = {"error": _describe(error)}
        try:
            line = write_message({**_HEAD, "id": name, **answer})
        except (ValueError, RecursionError) as error:
            said = {"code": INTERNAL_ERROR, "message": f"no JSON: {error}"}
            line = write_message({**_HEAD, "id": name, "error": said})
        self._wire.put(line)


def _describe(error: MCPError) -> dict[str, Any]:
    said = {"code": error.code, "message": error.message, "data": error.data}
    return {key: value for key, value in said.items() if value is not None}
