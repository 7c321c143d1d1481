"""One server behind the gate, and the connection that the desk keeps to it."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    PaginatedRequestParams,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    Tool,
    ToolListChangedNotification,
)
from pydantic import BaseModel, ValidationError

from deskhand import __version__, environment
from deskhand.errors import AuthRequired, OutcomeUnknown, ServerDown, printable
from deskhand.foreign.definitions import Definitions, define
from deskhand.foreign.lines import RunningServer, start
from deskhand.foreign.rules import ServerEntry
from deskhand.mail import credentials

log = logging.getLogger("deskhand.foreign")

START = 30.0
"""Seconds in which a server has to say that it is there."""
LIST = 30.0
MOST_PAGES = 100
MOST_TOOLS = 1000
LONGEST_LIST = 4 << 20
"""Characters of all definitions of one server."""
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "TMPDIR", "TZ")
"""Of the desk's own environment a server sees no more than this."""
_LOST = (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, httpx2.HTTPError)
T = TypeVar("T", bound=BaseModel)
ListChange = ToolListChangedNotification | ResourceListChangedNotification | PromptListChangedNotification
"""What a server says when one of its lists is no longer what it was."""


def secret_name(server: str, variable: str) -> str:
    return f"guard-{server}-{variable}"


class ForeignServer:
    def __init__(
        self, home: Path, name: str, entry: ServerEntry, tell: Callable[[str, ListChange], Awaitable[None]]
    ) -> None:
        self.name = name
        self.entry = entry
        self._home = home
        self._client: Client | None = None
        self._line: RunningServer | None = None
        self._there = asyncio.Event()
        self.tools: list[Tool] = []
        """As the server listed them last."""
        self._defined: tuple[list[Tool] | None, Definitions] = (None, {})
        self._tell = tell
        self.why_down: str | None = None

    async def run(self, works: Callable[[], None]) -> None:
        """Keep the server and a connection to it until it ends; that it ended is an error."""
        try:
            async with self._connect() as client:
                self._client = client
                await self.list_tools()
                self.why_down = None
                self._there.set()
                works()
                await self._wait_for_end()
                self._there.clear()
                raise ServerDown(f"the server {self.name} is gone: {self._why()}")
        except BaseExceptionGroup as several:
            raise ServerDown(f"the server {self.name} failed: {_first(several)}") from several
        except (MCPError, TimeoutError, ValidationError, *_LOST) as error:
            raise ServerDown(f"the server {self.name} does not answer: {self._why(error)}") from error
        finally:
            self._there.clear()
            self._client = None

    async def _wait_for_end(self) -> None:
        if self._line is None:
            await asyncio.Event().wait()
        else:
            await self._line.ended.wait()

    def _why(self, error: BaseException | None = None) -> str:
        if self._line is not None and self._line.ended.is_set():
            return self._line.why
        return printable(error or "it ended", 300)

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Client]:
        async with AsyncExitStack() as stack:
            transport = await self._open(stack)
            info = Implementation(name="deskhand", version=__version__)
            client = Client(transport, client_info=info, cache=None, message_handler=self._hear)
            async with asyncio.timeout(START):
                await stack.enter_async_context(client)
            yield client

    async def _open(self, stack: AsyncExitStack) -> Any:
        secrets = {name: self._secret(name) for name in self.entry.env}
        if self.entry.url is not None:
            headers = {}
            if "AUTHORIZATION" in secrets:
                headers["Authorization"] = secrets["AUTHORIZATION"]
            http = await stack.enter_async_context(create_mcp_http_client(headers=headers))
            return streamable_http_client(self.entry.url, http_client=http)
        around = environment.variables()
        variables = {name: around[name] for name in _PASSED_ON if name in around} | secrets
        folder = Path(variables.get("HOME", "/"))
        self._line = await stack.enter_async_context(start(self.entry.command or [], variables, folder))
        return _GivenStreams(self._line)

    def _secret(self, variable: str) -> str:
        found = credentials.recall(self._home, secret_name(self.name, variable))
        if found is None:
            hint = f"deskhand guard secret {self.name} {variable}"
            raise AuthRequired(f"the server {self.name} needs the secret {variable}", hint=hint)
        return found

    async def _hear(self, message: Any) -> None:
        if not isinstance(message, ListChange):
            return
        if isinstance(message, ToolListChangedNotification):
            await self.list_tools()
        await self._tell(self.name, message)

    async def wait_there(self) -> None:
        while not self.is_there:
            await self._there.wait()
            await asyncio.sleep(0)  # one that has just ended is noticed first

    @property
    def is_there(self) -> bool:
        return self._there.is_set() and not (self._line is not None and self._line.ended.is_set())

    @property
    def client(self) -> Client:
        if self._client is None or (self._line is not None and self._line.ended.is_set()):
            raise ServerDown(f"the server {self.name} is not there now", hint=self.why_down)
        return self._client

    async def list_tools(self) -> list[Tool]:
        """All pages of the tools, as far as a server may go."""
        tools: list[Tool] = []
        size = 0
        cursor: str | None = None
        async with asyncio.timeout(LIST):
            for _ in range(MOST_PAGES):
                page = await self.client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
                tools += page.tools
                size += sum(len(tool.model_dump_json()) for tool in page.tools)
                cursor = page.next_cursor
                if cursor is None or len(tools) > MOST_TOOLS or size > LONGEST_LIST:
                    break
        if len(tools) > MOST_TOOLS or size > LONGEST_LIST or cursor is not None:
            raise ServerDown(f"the server {self.name} lists more tools than anybody can review")
        self.tools = tools
        return tools

    def definitions(self) -> Definitions:
        if self._defined[0] is not self.tools:  # once for each list: every call asks
            names = Counter(tool.name for tool in self.tools)
            defined = {tool.name: define(written(tool)) for tool in self.tools}
            # Of two tools of one name nobody knows which is called: they are as closed as one that changed.
            twice = {name: {"name": name, "listed": times} for name, times in names.items() if times > 1}
            self._defined = (self.tools, defined | twice)
        return self._defined[1]

    async def call(
        self, tool: str, arguments: Mapping[str, Any], progress: ProgressFnT | None = None
    ) -> CallToolResult:
        """Its answer, as it came. Raises MCPError where that is an error, OutcomeUnknown where it was lost."""
        client = self.client
        line = self._line
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=dict(arguments)))
        try:
            return await client.session.send_request(request, CallToolResult, progress_callback=progress)
        except MCPError as error:
            if error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
                raise
            if line is not None and not line.ended.is_set():
                raise  # the server's own words
            raise self._lost(error) from error
        except ValidationError as error:
            raise MCPError(-32603, f"the server {self.name} answered with what is no result of a tool") from error
        except _LOST as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> OutcomeUnknown:
        return OutcomeUnknown(f"the answer of {self.name} was lost: {self._why(error)}", reason="unknown")


class _GivenStreams:
    """The streams of a server that was started, as the SDK takes them."""

    def __init__(self, line: RunningServer) -> None:
        self._line = line

    async def __aenter__(self) -> tuple[Any, Any]:
        return self._line.incoming, self._line.outgoing

    async def __aexit__(self, *_: object) -> None:
        return None


def written(model: BaseModel) -> dict[str, Any]:
    """As it goes over the wire."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _first(several: BaseExceptionGroup[BaseException]) -> str:
    found: BaseException = several
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return printable(found, 300)
