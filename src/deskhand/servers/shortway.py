"""The short way of a call that the person's rules let pass: from the client's line to the server's, and back.

The SDK's way takes a dozen turns of the event loop and holds every value against a schema twice, which costs more than
the call itself. Whatever is not plainly such a call goes the SDK's way, which has all the answers.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp_types import INTERNAL_ERROR, PROTOCOL_VERSION_META_KEY

from deskhand.foreign.lines import Report
from deskhand.foreign.session import ReadResult, strip_own
from deskhand.servers.stdio import LAST_ANSWERS
from deskhand.servers.wire import Wire

_JSON = json.JSONEncoder(allow_nan=False)
Cancel = Callable[[], None]
Start = Callable[
    [str, Mapping[str, Any], Report | None, bool, Callable[[ReadResult], None]],
    Cancel | None,
]
"""Begins a call, for a client of the second era or not, and has its answer heard; None where it does not pass."""


class ShortWay:
    """A call begins in the turn of the event loop in which its line came, and ends in that in which the answer came."""

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
        if b'"tools/call"' not in line and not (
            self._open and b'"notifications/cancelled"' in line
        ):
            return False
        try:
            message: Any = json.loads(line.decode())
        except (ValueError, RecursionError):
            return False
        match message:
            case {
                "method": "notifications/cancelled",
                "params": {"requestId": str() | int() as name},
            }:
                return self._cancel(name)
            case {
                "jsonrpc": "2.0",
                "id": str() | int() as name,
                "method": "tools/call",
                "params": {"name": str()} as params,
            } if not isinstance(name, bool) and self._is_plain(message):
                return self._begin(
                    name,
                    params["name"],
                    params.get("arguments", {}),
                    params.get("_meta", {}),
                )
        return False

    def _is_plain(self, message: Mapping[str, Any]) -> bool:
        params = message["params"]
        meta = params.get("_meta", {})
        if params.keys() - {"name", "arguments", "_meta"} or not isinstance(
            params.get("arguments", {}), dict
        ):
            return False
        if self._is_modern:
            if meta == self._envelope:
                return True
            if not isinstance(classify_inbound_request(message), InboundModernRoute):
                return False
            self._envelope = meta
            return True
        return isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY not in meta

    def _cancel(self, name: str | int) -> bool:
        cancel = self._open.pop(name, None)
        if cancel is None:
            return False
        cancel()
        return True

    def _begin(
        self,
        name: str | int,
        tool: str,
        arguments: Mapping[str, Any],
        meta: Mapping[str, Any],
    ) -> bool:
        if name in self._open:
            return False
        report = None
        match meta.get("progressToken"):
            case str() | int() as token if not isinstance(token, bool):
                report = self._reporter(token)
        hear = partial(self._finish, name)
        cancel = self._start(tool, arguments, report, bool(self._is_modern), hear)
        if cancel is None:
            return False
        self._open[name] = cancel
        return True

    def _reporter(self, token: str | int) -> Report:
        def report(params: Mapping[str, Any]) -> None:
            strip_own(params)
            told = {
                "method": "notifications/progress",
                "params": {**params, "progressToken": token},
            }
            self._wire.put(_write_line(told))

        return report

    def _finish(self, name: str | int, read: ReadResult) -> None:
        del self._open[name]
        if not self._open:
            self._all_answered.set()
        try:
            line = _write_line({"id": name, "result": read()})
        except MCPError as error:
            said = error.error.model_dump(mode="json", exclude_none=True)
            line = _write_line({"id": name, "error": said})
        except (ValueError, RecursionError) as error:
            said = {"code": INTERNAL_ERROR, "message": f"no JSON: {error}"}
            line = _write_line({"id": name, "error": said})
        self._wire.put(line)


def _write_line(message: Mapping[str, Any]) -> str:
    return _JSON.encode({"jsonrpc": "2.0", **message}) + "\n"
