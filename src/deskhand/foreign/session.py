"""One server behind the gate, and the connection that the desk keeps to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    PROTOCOL_VERSION_META_KEY,
    REQUEST_TIMEOUT,
    URL_ELICITATION_REQUIRED,
    Implementation,
    LoggingMessageNotification,
    PaginatedRequestParams,
    PromptListChangedNotification,
    Request,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ServerCapabilities,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter, ValidationError

from deskhand import __version__, environment
from deskhand.errors import AuthRequired, DeskError, OutcomeUnknown, ServerDown, printable
from deskhand.foreign.definitions import Definitions, define, pin_file
from deskhand.foreign.lines import Report, RunningServer, start
from deskhand.foreign.messages import mend, strip_own
from deskhand.foreign.rules import ServerEntry
from deskhand.foreign.web import WebLink, hear_refusals
from deskhand.mail import credentials

START = 30.0
"""Seconds in which a server has to say that it is there."""
LIST = 30.0
CALM = 0.5
"""Seconds between two tellings that a list changed."""
MOST_PAGES = 100
MOST_TOOLS = 1000
LONGEST_LIST = 4 << 20
"""Characters of all definitions of one server."""
_PASSED_ON = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "TZ",
)
"""Of the desk's own environment a server sees no more than this."""
_LOST = (
    OSError,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    anyio.EndOfStream,
    httpx2.HTTPError,
)
_AS_IT_CAME: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
_SAYS_MORE = ("resultType", "_meta")
"""What a result may say of itself."""
_ASKS_BACK = "it asks back (sampling, roots or elicitation), which the desk lets nobody do"
_ABOUT_US = Implementation(name="deskhand", version=__version__)
Told = (
    ToolListChangedNotification
    | ResourceListChangedNotification
    | PromptListChangedNotification
    | ResourceUpdatedNotification
    | LoggingMessageNotification
)
"""What a server says by itself: that something changed, or a line of its log."""
ReadResult = Callable[[], dict[str, Any]]
"""Gives the result of a call. Raises MCPError where the server answered with an error, DeskError where it was lost."""


def secret_name(server: str, variable: str) -> str:
    return f"guard-{server}-{variable}"


class ForeignServer:
    def __init__(
        self,
        home: Path,
        name: str,
        entry: ServerEntry,
        tell: Callable[[str, Told], Awaitable[None]],
    ) -> None:
        self.name = name
        self.entry = entry
        self.pin_file = str(pin_file(home, name))
        self._home = home
        self._client: Client | None = None
        self._line: RunningServer | None = None
        self._web: WebLink | None = None
        self._secrets: dict[str, str] | None = None
        """Those with which it was started."""
        self._envelope: dict[str, Any] = {}
        self._there = asyncio.Event()
        self.tools: list[Tool] = []
        """As the server listed them last."""
        self._defined: tuple[list[Tool] | None, Definitions] = (None, {})
        self._tell = tell
        self._watched: set[str] = set()
        """The resources of which somebody wants to know when they change."""
        self._watching: asyncio.Task[None] | None = None
        self._changed: dict[str, Told] = {}
        """What changed since the clients were told last."""
        self._telling: asyncio.Task[None] | None = None
        self.why_down: str | None = None

    async def run(self, works: Callable[[], None]) -> None:
        """Keep the server and a connection to it until it ends; that it ended is an error."""
        try:
            async with self._connect() as client:
                self._client = client
                self._envelope = _envelope_of(client)
                await self.list_tools()
                self._watch_again()
                self.why_down = None
                self._there.set()
                works()
                await self._wait_for_end()
                self._there.clear()
                self._demand_welcome()
                raise ServerDown(f"the server {self.name} is gone: {self._why()}")
        except BaseExceptionGroup as several:
            self._demand_welcome()
            raise ServerDown(
                f"the server {self.name} failed: {self._why(_first(several))}"
            ) from several
        except (MCPError, TimeoutError, ValidationError, *_LOST) as error:
            self._demand_welcome()
            raise ServerDown(
                f"the server {self.name} does not answer: {self._why(error)}"
            ) from error
        finally:
            self._there.clear()
            self._client = None
            for task in (self._watching, self._telling):
                if task is not None:
                    task.cancel()

    @property
    def _link(self) -> RunningServer | WebLink | None:
        return self._line or self._web

    async def _wait_for_end(self) -> None:
        assert self._link is not None  # noqa: S101 - it is connected
        await self._link.ended.wait()

    def _has_ended(self) -> bool:
        return self._link is not None and self._link.ended.is_set()

    def _demand_welcome(self) -> None:
        """Say so where it is the secret that is wrong."""
        if self._web is not None and self._web.wants_secret:
            raise self._web.secret_needed()

    def _why(self, error: BaseException | None = None) -> str:
        if (
            self._link is not None
            and self._link.ended.is_set()
            and not isinstance(error, DeskError)
        ):
            return self._link.why
        return printable(error or "it ended", 300)

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Client]:
        async with AsyncExitStack() as stack:
            transport = await self._open(stack)
            client = Client(
                transport, client_info=_ABOUT_US, cache=None, message_handler=self._hear
            )
            async with asyncio.timeout(START):
                await stack.enter_async_context(client)
            yield client

    async def _open(self, stack: AsyncExitStack) -> Any:
        secrets = {name: self._secret(name) for name in self.entry.env}
        self._secrets = secrets
        if self.entry.url is not None:
            self._web = WebLink(self.name, secrets)
            http = await stack.enter_async_context(self._web.open())
            return streamable_http_client(self.entry.url, http_client=http)
        around = environment.variables()
        variables = {name: around[name] for name in _PASSED_ON if name in around}
        folder = Path(variables.get("HOME", "/"))
        self._line, streams = await stack.enter_async_context(
            start(self.entry.command or [], variables, secrets, folder)
        )
        return streams

    def _secret(self, variable: str) -> str:
        found = credentials.recall(self._home, secret_name(self.name, variable))
        if found is None:
            hint = f"deskhand guard secret {self.name} {variable}"
            raise AuthRequired(
                f"the server {self.name} needs the secret {variable}", hint=hint
            )
        return found

    def has_other_secrets(self) -> bool:
        """Whether the person has given it others since it was started."""
        given = {
            name: credentials.recall(self._home, secret_name(self.name, name))
            for name in self.entry.env
        }
        return given != (self._secrets or {})

    async def _hear(self, message: Any) -> None:
        if not isinstance(message, Told):
            return
        if isinstance(message, ResourceUpdatedNotification | LoggingMessageNotification):
            await self._tell(self.name, message)
            return
        self._changed[message.method] = message
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell_changes())

    async def _tell_changes(self) -> None:
        """Tell that lists changed: the first time at once, then no oftener than somebody can make use of it."""
        while self._changed:
            changed = [*self._changed.values()]
            self._changed.clear()
            for each in changed:
                if isinstance(each, ToolListChangedNotification):
                    with suppress(DeskError, MCPError, TimeoutError, *_LOST):
                        await self.list_tools()
                await self._tell(self.name, each)
            await asyncio.sleep(CALM)

    async def watch(self, uri: str) -> None:
        """Hear of every change of this resource from now on."""
        self._watched.add(uri)
        if self._envelope:
            self._watch_again()
        else:
            await self.ask("resources/subscribe", {"uri": uri})

    def _watch_again(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._watching = asyncio.create_task(self._watch(self.client))

    async def _watch(self, client: Client) -> None:
        """A server of the second era tells of changes while somebody listens, one of the
        first when it was asked."""
        with suppress(MCPError, SubscriptionLost, TimeoutError, *_LOST):
            if not self._envelope:
                for uri in self._watched:
                    await self.ask("resources/subscribe", {"uri": uri})
                return
            lists = {
                "tools_list_changed": True,
                "prompts_list_changed": True,
                "resources_list_changed": True,
            }
            async with client.listen(
                **lists, resource_subscriptions=sorted(self._watched)
            ) as told:
                async for _ in told:
                    pass  # `_hear` hears of it too

    async def wait_there(self) -> None:
        while not self.is_there:
            await self._there.wait()
            await asyncio.sleep(0)  # one that has just ended is noticed first

    @property
    def is_there(self) -> bool:
        link = self._line or self._web  # each call that passes asks
        return self._there.is_set() and not (link and link.ended.is_set())

    @property
    def client(self) -> Client:
        if self._client is None or self._has_ended():
            raise ServerDown(f"the server {self.name} is not there now", hint=self.why_down)
        return self._client

    @property
    def abilities(self) -> ServerCapabilities | None:
        """What it says that it can do; the log of a server of the second era reaches
        nobody but its own caller."""
        found = self.client.server_capabilities
        if found is None or not self._envelope:
            return found
        return found.model_copy(update={"logging": None})

    async def list_tools(self) -> list[Tool]:
        """All pages of the tools, as far as a server may go."""
        tools: list[Tool] = []
        size = 0
        cursor: str | None = None
        async with asyncio.timeout(LIST):
            for _ in range(MOST_PAGES):
                page = await self.client.session.list_tools(
                    params=PaginatedRequestParams(cursor=cursor)
                )
                for tool in page.tools:
                    strip_own({"_meta": tool.meta})
                tools += page.tools
                size += sum(len(tool.model_dump_json()) for tool in page.tools)
                cursor = page.next_cursor
                if cursor is None or len(tools) > MOST_TOOLS or size > LONGEST_LIST:
                    break
        if len(tools) > MOST_TOOLS or size > LONGEST_LIST or cursor is not None:
            raise ServerDown(
                f"the server {self.name} lists more tools than anybody can review"
            )
        self.tools = tools
        return tools

    def definitions(self) -> Definitions:
        if self._defined[0] is not self.tools:  # once for each list: every call asks
            self._defined = (self.tools, _define_all(self.tools))
        return self._defined[1]

    async def call(
        self, tool: str, arguments: Mapping[str, Any], report: Report | None = None
    ) -> dict[str, Any]:
        """Its result, as it came. Raises MCPError where that is an error, OutcomeUnknown where it was lost."""
        line = self._line
        try:
            return await self.ask(
                "tools/call", {"name": tool, "arguments": dict(arguments)}, report
            )
        except (MCPError, *_LOST) as error:
            if _is_word_of(line, error):
                raise
            raise self._lost(error) from error

    def begin_call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        report: Report | None,
        hear: Callable[[ReadResult], None],
    ) -> Callable[[], None] | None:
        """Make the call without waiting; how to cancel it. None where that cannot be done:
        then nothing was done."""
        line = self._line
        if line is None or line.ended.is_set() or line.is_busy:
            return None
        params = {"name": tool, "arguments": arguments, **self._envelope}

        def read_later(answer: dict[str, Any] | ConnectionError) -> None:
            hear(partial(self._read_called, line, answer))

        return partial(line.cancel, line.begin("tools/call", params, report, read_later))

    def _read_called(
        self, line: RunningServer, answer: dict[str, Any] | ConnectionError
    ) -> dict[str, Any]:
        try:
            if isinstance(answer, ConnectionError):
                raise answer
            return self._read_answer(answer)
        except (MCPError, ConnectionError) as error:
            if _is_word_of(line, error):
                raise
            raise self._lost(error) from error

    async def ask(
        self, method: str, params: Mapping[str, Any], report: Report | None = None
    ) -> dict[str, Any]:
        """The result of any request, as it came. Raises MCPError where that is an error."""
        client = self.client
        if self._line is not None:
            answer = await self._line.ask(method, {**params, **self._envelope}, report)
            try:
                return self._read_answer(mend(answer))
            except (ValueError, RecursionError) as error:
                raise self._no_answer() from error
        request = _AnyRequest(method=method, params=dict(params))
        refused = hear_refusals()
        try:
            result = await client.session.send_request(
                request, _AS_IT_CAME, progress_callback=_hear_progress(report)
            )
        except ValidationError as error:
            raise self._no_answer() from error
        except MCPError as error:
            if refused:
                raise self._not_taken(refused[-1]) from error
            answer = {"error": error.error.model_dump()}
        else:
            answer = {"result": result}
        strip_own(answer)
        return self._read_answer(answer)

    def _read_answer(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        match answer:
            case {"result": dict(result)} if result.keys().isdisjoint(_SAYS_MORE):
                return result
            case {"result": {"_meta": str() | int() | float() | list()}}:
                raise self._no_answer()
            case {"result": {"resultType": "input_required"}}:
                raise self._did_not_answer(_ASKS_BACK)
            case {"error": {"code": int(code)}} if code == URL_ELICITATION_REQUIRED:
                raise self._did_not_answer(_ASKS_BACK)
            case {"result": {"resultType": str(kind)}} if kind != "complete":
                raise self._did_not_answer(
                    f"its result is of a kind for which nobody asked ({printable(kind, 30)})"
                )
            case {"result": dict(result)}:
                return result
            case {"error": {"code": int(code), "message": str(message), **more}}:
                raise MCPError(code, message, more.get("data"))
            case _:
                raise self._no_answer()

    def _did_not_answer(self, why: str) -> MCPError:
        return MCPError(INTERNAL_ERROR, f"the server {self.name} did not answer: {why}")

    def _not_taken(self, why: str) -> ServerDown:
        return ServerDown(
            f"the server {self.name} did not take it: {why}", hint="try again in a moment"
        )

    def _no_answer(self) -> MCPError:
        return MCPError(
            INTERNAL_ERROR, f"the server {self.name} answered with what is no result"
        )

    def _lost(self, error: Exception) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the answer of {self.name} was lost: {self._why(error)}", reason="unknown"
        )


def _is_word_of(line: RunningServer | None, error: Exception) -> bool:
    """Whether it is an error that the server itself answered with."""
    if not isinstance(error, MCPError):
        return False
    if error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
        return True
    return line is not None and not line.ended.is_set()


class _AnyRequest(Request[dict[str, Any], str]):
    method: str
    params: dict[str, Any]


def _hear_progress(report: Report | None) -> Any:
    if report is None:
        return None

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        said = {"progress": progress, "total": total, "message": message}
        report({key: value for key, value in said.items() if value is not None})

    return hear


def _envelope_of(client: Client) -> dict[str, Any]:
    """What each request to a server of the second era carries."""
    version = client.session.protocol_version
    if version not in MODERN_PROTOCOL_VERSIONS:
        return {}
    about = {PROTOCOL_VERSION_META_KEY: version, CLIENT_INFO_META_KEY: written(_ABOUT_US)}
    return {"_meta": about | {CLIENT_CAPABILITIES_META_KEY: {}}}


def _define_all(tools: Sequence[Tool]) -> Definitions:
    """Of two tools of one name nobody knows which is called: what both say is the definition."""
    listed: dict[str, list[dict[str, Any]]] = {}
    for tool in tools:
        listed.setdefault(tool.name, []).append(define(written(tool)))
    return {
        name: said[0] if len(said) == 1 else {"name": name, "listed": said}
        for name, said in listed.items()
    }


def written(model: BaseModel) -> dict[str, Any]:
    """As it goes over the wire."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _first(several: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = several
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
