"""The short way of a call that the person's rules let pass: from the client's line to the server's, and back.

The SDK's way takes a dozen turns of the event loop and holds every value against a schema twice, which costs more than
the call itself. Whatever is not plainly such a call goes the SDK's way, which has all the answers.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp_types import INTERNAL_ERROR, PROTOCOL_VERSION_META_KEY

from deskhand.foreign.lines import Report
from deskhand.foreign.session import strip_own
from deskhand.servers.stdio import LAST_ANSWERS
from deskhand.servers.wire import Wire

Answer = Coroutine[Any, Any, dict[str, Any]]
Start = Callable[[str, Mapping[str, Any], Report | None, bool], Answer | None]
"""Begins a call, for a client of the second era or not; None where it does not pass. Gives the result."""


class ShortWay:
    def __init__(self, wire: Wire, start: Start) -> None:
        self._wire = wire
        self._start = start
        self._is_modern: bool | None = None
        """Of which era the client is; its first line says it."""
        self._open: dict[str | int, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def lines(self) -> AsyncIterator[AsyncIterator[str]]:
        """All lines that did not go the short way."""
        try:
            yield self._listen()
        finally:
            for task in self._open.values():
                task.cancel()
            await asyncio.gather(*self._open.values(), return_exceptions=True)

    async def _listen(self) -> AsyncIterator[str]:
        async for line in self._wire:
            if self._is_modern is None:
                self._is_modern = '"initialize"' not in line
            if not self._take(line):
                yield line
        if self._open:
            await asyncio.wait(self._open.values(), timeout=LAST_ANSWERS)

    def _take(self, line: str) -> bool:
        if '"tools/call"' not in line and not (
            self._open and '"notifications/cancelled"' in line
        ):
            return False
        try:
            message: Any = json.loads(line)
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
            return isinstance(classify_inbound_request(message), InboundModernRoute)
        return isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY not in meta

    def _cancel(self, name: str | int) -> bool:
        task = self._open.get(name)
        if task is None:
            return False
        return task.cancel()

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
        answer = self._start(tool, arguments, report, bool(self._is_modern))
        if answer is None:
            return False
        self._open[name] = asyncio.create_task(self._finish(name, answer))
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

    async def _finish(self, name: str | int, answer: Answer) -> None:
        try:
            line = _write_line({"id": name, "result": await answer})
        except MCPError as error:
            line = _write_line(
                {
                    "id": name,
                    "error": error.error.model_dump(mode="json", exclude_none=True),
                }
            )
        except ValueError as error:
            line = _write_line(
                {
                    "id": name,
                    "error": {"code": INTERNAL_ERROR, "message": f"no JSON: {error}"},
                }
            )
        finally:
            del self._open[name]
        self._wire.put(line)
        await self._wire.flush()


def _write_line(message: Mapping[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", **message}, allow_nan=False) + "\n"
