"""The contract's MCPClient: a kept connection to an MCP server, restarted when it died, with the fallback protocol."""

import asyncio
import json
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from inspect import isawaitable
from pathlib import Path
from typing import Any, TextIO

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    REQUEST_TIMEOUT,
    CallToolResult,
    TextContent,
)

from deskhand import clock
from deskhand.audit import redact, vault_log
from deskhand.clock import iso
from deskhand.config import copy_environment
from deskhand.errors import (
    AuthRequired,
    Denied,
    DeskError,
    Internal,
    InvalidInput,
    NotFound,
    ProviderDown,
    RateLimited,
    SendFailed,
    ServerDown,
    printable,
)

log = logging.getLogger("deskhand.mcp_client")

START_SECONDS = 30
CALL_SECONDS = 150
"""Longer than the gate's lease: when a call ends here, the send behind it has ended or can be looked up."""
_LOST = (
    MCPError,
    OSError,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    anyio.EndOfStream,
    httpx2.HTTPError,
)
_UNREADABLE = (ValueError, RuntimeError)
"""What the SDK says of a call that cannot be written down, and of an answer that is not in its form."""
_NAMED = ("fields", "retryable", "message", "self")
"""Details that an error of ours has another way, or that no keyword may be called."""


class _Complaints:
    """What a server writes to stderr: handed on to ours, with its last lines kept, which say why it ended."""

    def __init__(self) -> None:
        reader, writer = os.pipe()
        self.file = os.fdopen(writer, "w")
        self._last: deque[str] = deque(maxlen=4)
        self._thread = threading.Thread(target=self._hand_on, args=[reader], daemon=True)
        self._thread.start()

    def _hand_on(self, reader: int) -> None:
        with os.fdopen(reader, errors="replace") as lines:
            for line in lines:
                sys.stderr.write(line)
                self._last.append(line.strip())

    def close(self) -> str:
        """The last that was said."""
        self.file.close()
        self._thread.join(timeout=1)
        return "; ".join(line.rstrip(".") for line in self._last if line)


class MCPClient:
    """Wraps MCP tool calls with the fallback protocol."""

    def __init__(
        self,
        server_name: str,
        command: list[str],
        vault_path: Path,
        *,
        environment: dict[str, str] | None = None,
        token: str | None = None,
        seconds: float = CALL_SECONDS,
        start_seconds: float = START_SECONDS,
        now: Callable[[], datetime] = clock.utc_now,
        logs: tuple[str, ...] = ("Logs",),
    ) -> None:
        self.server_name = server_name
        self.command = command
        """The server's command line, or the URL of one that runs."""
        self.vault_path = Path(vault_path)
        self._environment = environment
        self._token = token
        self._seconds = seconds
        self._start_seconds = start_seconds
        self._now = now
        self._logs = logs
        self._turn = asyncio.Lock()
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()

    async def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any],
        fallback: Callable[[], Any] | None = None,
    ) -> dict[str, Any]:
        """Call the tool. Where the server does not answer (mcp_unavailable) or the tool answers with an error, that is
        logged, and the fallback runs or the error is raised. What the fallback returns stands under `fallback`, beside
        the error, so that nobody can take it for the tool's own answer."""
        try:
            result = await self._call(tool_name, arguments)
            if result.is_error:
                raise _error(result)
        except DeskError as error:
            await asyncio.to_thread(self._log, tool_name, error, fallback is not None)
            if fallback is None:
                raise
            made = fallback()
            return {
                "error": error.code,
                "message": error.message,
                "fallback": await made if isawaitable(made) else made,
            }
        return _read_answer(result)

    async def close(self) -> None:
        async with self._turn:
            await self._drop()

    async def _call(self, tool_name: str, arguments: dict[str, Any]) -> CallToolResult:
        client = await self._connect()
        try:
            with anyio.fail_after(self._seconds):
                return await client.call_tool(tool_name, arguments)
        except TimeoutError as error:
            await self._forget(client)
            raise ServerDown(
                f"the {self.server_name} server did not answer within {self._seconds:g} seconds"
            ) from error
        except _LOST as error:
            if isinstance(error, MCPError) and self._is_answer(error):
                why = f"the {self.server_name} server does not take this call: {printable(error.message)}"
                raise Internal(why, reference="-") from error
            # Not tried again here: nobody knows how far the call came.
            await self._forget(client)
            raise ServerDown(
                f"the {self.server_name} server broke off",
                reason=type(error).__name__,
                hint="it is started anew",
            ) from error
        except _UNREADABLE as error:
            why = printable(str(error).partition("\n")[0])
            raise Internal(
                f"the {self.server_name} server's {printable(tool_name)} cannot be used: {why}",
                reference="-",
            ) from error

    def _is_answer(self, error: MCPError) -> bool:
        """Whether the server itself said this. Over HTTP the SDK says most codes in place of a bad status."""
        if self._is_remote:
            return error.code == INVALID_PARAMS
        return error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT)

    @property
    def _is_remote(self) -> bool:
        return self.command[0].startswith(("http://", "https://"))

    async def _connect(self) -> Client:
        async with self._turn:
            if self._client is None or self._owner is None or self._owner.done():
                await self._drop()
                await self._start()
            assert self._client is not None  # noqa: S101 - _start set it or raised
            return self._client

    async def _start(self) -> None:
        if not self.command:
            raise ServerDown(
                f"the {self.server_name} server cannot be reached: it has no command",
                hint="name the program that starts it, or its URL",
            )
        started: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        # One task opens the connection, keeps it and closes it: its scopes must not cross tasks.
        self._owner = asyncio.create_task(self._keep(started, self._leave))
        try:
            self._client = await asyncio.wait_for(started, self._start_seconds)
        except TimeoutError:
            self._owner.cancel()
            await self._drop()
            raise ServerDown(f"the {self.server_name} server does not start") from None

    async def _keep(self, started: "asyncio.Future[Client]", leave: asyncio.Event) -> None:
        complaints = _Complaints()
        try:
            async with (
                httpx2.AsyncClient(headers=self._headers) as http,
                Client(self._server(http, complaints.file)) as client,
            ):
                if not started.done():
                    started.set_result(client)
                    await leave.wait()
        except (*_LOST, ValueError, ExceptionGroup) as error:
            if not started.done():
                why = await asyncio.to_thread(complaints.close) or _innermost(error)
                problem = ServerDown(
                    f"the {self.server_name} server cannot be reached: {printable(why)}",
                    hint=f"the command is {' '.join(self.command)}",
                )
                started.set_exception(problem)
        finally:
            complaints.file.close()

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _server(self, http: httpx2.AsyncClient, complaints: TextIO) -> Any:
        if self._is_remote:
            return streamable_http_client(self.command[0], http_client=http)
        program, *arguments = self.command
        environment = self._environment
        if environment is None:
            environment = copy_environment() | {"VAULT_PATH": str(self.vault_path)}
        return stdio_client(
            StdioServerParameters(command=program, args=arguments, env=environment),
            complaints,
        )

    async def _forget(self, client: Client) -> None:
        async with self._turn:
            if self._client is client:
                await self._drop()

    async def _drop(self) -> None:
        owner, self._owner, self._client = self._owner, None, None
        # One that is done may have lived in an event loop that is closed: nothing waits for it.
        if owner is not None and not owner.done():
            self._leave.set()
            with suppress(asyncio.CancelledError, *_LOST, ExceptionGroup):
                await asyncio.wait([owner], timeout=10)

    def _log(self, tool_name: str, error: DeskError, falls_back: bool) -> None:
        message = redact(error.message)
        line = {
            "timestamp": iso(self._now()),
            "event": error.code,
            "server": self.server_name,
            "tool": tool_name,
            "message": message,
            "fallback": falls_back,
            "severity": "ERROR",
        }
        log.error(
            error.code,
            extra={"server": self.server_name, "tool": tool_name, "why": message},
        )
        with suppress(
            OSError, DeskError
        ):  # a vault that cannot be written must not hide the failure itself
            vault_log.append(
                self.vault_path,
                self._logs,
                f"orchestrator_{self._now():%Y-%m-%d}.jsonl",
                line,
            )


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


_ERRORS: dict[str, type[DeskError]] = {
    "auth_required": AuthRequired,
    "not_found": NotFound,
    "rate_limited": RateLimited,
    "parse_error": InvalidInput,
    "send_failed": SendFailed,
    "mcp_unavailable": ServerDown,
}


def _read_answer(result: CallToolResult) -> dict[str, Any]:
    """What the tool said, as data. A server may say it in text alone, where a list or a
    sentence is the `result`."""
    if result.structured_content:
        return dict(result.structured_content)
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    if not texts:
        return {}
    if len(texts) > 1:
        return {"result": [_read_text(text) for text in texts]}
    said = _read_text(texts[0])
    return said if isinstance(said, dict) else {"result": said}


def _read_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _error(result: CallToolResult) -> DeskError:
    """The desk's own error again, from the wire form of the Gmail server's contract."""
    text = "".join(getattr(block, "text", "") for block in result.content)
    try:
        form = json.loads(text)
        code, message, details = (
            str(form["error"]),
            str(form["message"]),
            dict(form.get("details") or {}),
        )
    except (ValueError, KeyError, TypeError):
        return Internal(printable(text), reference="-")
    hint = details.pop("hint", None)
    known = {key: value for key, value in details.items() if key not in _NAMED}
    if known.get("reason") == "provider_unavailable":
        del known["reason"]
        return ProviderDown(message, hint=hint, **known)
    if code == "permission_denied":
        return Denied(
            message, reason=str(known.pop("reason", "denied")), hint=hint, **known
        )
    if code in _ERRORS:
        return _ERRORS[code](message, hint=hint, **known)
    return Internal(message, reference=str(known.pop("reference", "-")), hint=hint)
