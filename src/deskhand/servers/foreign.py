"""The door to another MCP server: everything passes but the calls of its tools, which the person's rules decide."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import Any, cast
from weakref import WeakSet

from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import event_from_wire
from mcp_types import (
    SERVER_INFO_META_KEY,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    GetPromptRequestParams,
    ListToolsResult,
    LoggingMessageNotification,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ResourceUpdatedNotification,
    ServerCapabilities,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)
from mcp_types import Tool as MCPTool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from deskhand.app import Desk
from deskhand.askers import asking_as
from deskhand.errors import (
    Denied,
    DeskError,
    NotFound,
    OutOfScope,
    Unavailable,
    printable,
)
from deskhand.foreign.arguments import canonical, write_canonical
from deskhand.foreign.definitions import digest_of
from deskhand.foreign.lines import Report
from deskhand.foreign.messages import strip_own
from deskhand.foreign.session import ForeignServer, ReadResult, Told, written
from deskhand.gate import (
    Failed,
    Limited,
    NotApproved,
    Outcome,
    Released,
    SendingOff,
    results,
)
from deskhand.gate.lists import find_calls
from deskhand.gate.outcomes import refuse_off
from deskhand.gate.question import Question
from deskhand.gate.requests import OPEN, Request
from deskhand.gate.toolcall import ToolCall, demand_fitting
from deskhand.servers import callers
from deskhand.servers.asking import asking_tools, describe_answer
from deskhand.servers.chat import name_card
from deskhand.servers.email import describe_ended, refusal_of
from deskhand.servers.handles import Handles
from deskhand.servers.passing import ACTOR, PassingCall, describe_call
from deskhand.servers.sdk import answer_with, connection_of
from deskhand.servers.server import DeskServer, describe_caller_in, protocol_error
from deskhand.servers.shortway import Cancel, ShortWay
from deskhand.servers.wire import Wire

SOON = 5.0
"""Seconds in which a server has to be there to be listed on the whole desk, and to say what it can do."""
MOST_BEHIND = 1000
"""So many calls that passed may be answered before they are on the record."""


def open_door(desk: Desk, name: str, token: str | None = None) -> DeskServer:
    """The server NAME as the desk lets others use it."""
    desk.foreign.entry(name)
    return ForeignDoor(desk, name, token)


class ForeignDoor(DeskServer):
    def __init__(self, desk: Desk, name: str, token: str | None) -> None:
        self._bus = InMemorySubscriptionBus()
        handles = Handles(
            desk,
            self._demand_reading,
            self._find_own,
            partial(describe_end, desk, self.refusal),
            _takes_task,
        )
        super().__init__(
            name,
            asking_tools(desk),
            area="guard",
            token=token,
            authenticate=desk.authenticate,
            subscriptions=self._bus,
            extensions=[handles],
            middleware=[handles.pass_on],
        )
        self._desk = desk
        self._server = name
        self._watching: dict[str, WeakSet[Any]] = {}
        """Who wants to know when a resource changes, by its address."""
        self._answer_all()
        self.promise_changes(self._find_abilities)
        desk.foreign.listen(self)

    def _answer_all(self) -> None:
        self._call_own = self.handler_of("tools/call")
        self.answer("tools/list", PaginatedRequestParams, self._pass_tools)
        self.answer("tools/call", CallToolRequestParams, self._answer_call)
        for method, params in _PASSED_ON.items():
            self.answer(method, params, partial(self._pass_on, method))

        self.answer("resources/subscribe", SubscribeRequestParams, self._watch)
        self.answer("resources/unsubscribe", UnsubscribeRequestParams, self._unwatch)
        self._serve_listener = self.handler_of("subscriptions/listen")
        self.answer("subscriptions/listen", SubscriptionsListenRequestParams, self._listen)

    async def _serve(self, incoming: Any, outgoing: Any) -> None:
        """Say what the server can do as soon as it says so itself."""
        with suppress(DeskError, TimeoutError):
            async with asyncio.timeout(SOON):
                await self._desk.foreign.open(self._server)
        await self._remember_asked()
        await super()._serve(incoming, outgoing)

    async def _remember_asked(self) -> None:
        """Another process, or this desk before it was started anew, may have asked."""
        desk = self._desk
        for each in await desk.store.read(find_calls, self._server, desk.now()):
            desk.foreign.note_asked(each.server, each.tool, each.arguments)

    def _find_abilities(self) -> ServerCapabilities | None:
        with suppress(DeskError):
            if (server := self._desk.foreign.find(self._server)) is not None:
                return server.abilities
        return None

    # What the server says by itself.

    async def hear(self, name: str, told: Told) -> None:
        if name != self._server:
            return
        said = written(told)
        strip_own(said)
        method = told.method
        params = said.get("params")
        match told:
            case LoggingMessageNotification():
                # No line says whose call it is about: where several use it, nobody is told of another's.
                here = {callers.asker_of(each) for each in self._connections.values()}
                if len(here | self._desk.foreign.list_users(name)) == 1:
                    await self.tell(self._connections, method, params)
            case ResourceUpdatedNotification():
                await self.tell(
                    self._watching.get(str(told.params.uri), ()), method, params
                )
            case _:
                await self.tell(self._connections, method, None)
        if event := event_from_wire(method, params):
            await self._bus.publish(event)

    async def _watch(self, ctx: Any, params: SubscribeRequestParams) -> dict[str, Any]:
        server = await self._open()
        self._watching.setdefault(str(params.uri), WeakSet()).add(connection_of(ctx))
        await server.watch(str(params.uri))
        return {}

    async def _unwatch(self, ctx: Any, params: UnsubscribeRequestParams) -> dict[str, Any]:
        self._watching.get(str(params.uri), WeakSet()).discard(connection_of(ctx))
        return {}

    async def _listen(self, ctx: Any, params: SubscriptionsListenRequestParams) -> Any:
        server = await self._open()
        for uri in params.notifications.resource_subscriptions or ():
            await server.watch(str(uri))
        return await self._serve_listener(ctx, params)

    # What passes as it comes.

    async def _open(self) -> ForeignServer:
        try:
            self.demand("guard", writes=False)
            self._desk.foreign.note_user(self._server, callers.asker())
            return await self._desk.foreign.open(self._server)
        except DeskError as error:
            raise protocol_error(error) from error

    async def _pass_tools(
        self, ctx: Any, params: PaginatedRequestParams
    ) -> ListToolsResult:
        del ctx, params
        await self._open()
        listed = await list_open_tools(self._desk, self._server)
        own = [each for each in await self.list_tools() if self._is_own(each.name)]
        return ListToolsResult(tools=[*listed, *own])

    def _is_own(self, name: str) -> bool:
        """Whether it is a tool of the desk beside those of the server; one that is open there is theirs."""
        if name not in self._desk_tools:
            return False
        server = self._desk.foreign.find(self._server)
        if server is None or name not in server.definitions():
            return True
        return name in self._desk.foreign.closed_tools(server)

    async def _pass_on(self, method: str, ctx: Any, params: BaseModel) -> dict[str, Any]:
        """Whatever is no call of a tool, as the server itself answers it."""
        server = await self._open()
        given = params.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude={"meta"}
        )
        result = await server.ask(method, given)
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return _shape(result, modern=False)
        return _NOT_TO_KEEP | _shape(result, modern=True)

    async def _answer_call(
        self, ctx: Any, params: CallToolRequestParams
    ) -> CallToolResult | dict[str, Any]:
        try:
            self.demand("guard", writes=True)
            if self._is_own(params.name):
                return cast(CallToolResult, await self._call_own(ctx, params))
            progress = Progress(ctx)
            with asking_as(describe_caller_in(ctx)):
                result = await call(
                    self._desk,
                    self._server,
                    params.name,
                    params.arguments or {},
                    progress.report,
                )
            await progress.settle()
        except DeskError as error:
            name_card(self._desk, error)
            return self.refusal(error)
        return _shape(result, modern=ctx.protocol_version in MODERN_PROTOCOL_VERSIONS)

    # What waits.

    def _demand_reading(self) -> None:
        try:
            self.demand("guard", writes=False)
        except DeskError as error:
            raise protocol_error(error) from error

    async def _find_own(self, request_id: str) -> Request:
        self._demand_reading()
        try:
            return demand_own(await self._desk.waiting.find(request_id))
        except DeskError as error:
            raise protocol_error(error) from error

    # The short way.

    def listen_to(self, wire: Wire) -> AbstractAsyncContextManager[Any]:
        try:
            self.demand("guard", writes=True)
        except DeskError:
            return nullcontext(wire)
        return ShortWay(wire, self._start_call).lines()

    def _start_call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        report: Report | None,
        modern: bool,
        hear: Callable[[ReadResult], None],
    ) -> Cancel | None:
        """Begin the call, where the server is there and the rules let this very call pass."""
        desk = self._desk
        if desk.settings.sending_off is not None:
            return None
        passing = PassingCall(desk)

        def finish(read: ReadResult) -> None:
            hear(partial(self._read_passed, passing, read, modern))
            passing.record()

        try:
            server = desk.foreign.find_passing(self._server, tool, arguments)
            if server is None or not desk.is_record_settled(behind=MOST_BEHIND):
                return None
            desk.foreign.note_user(self._server, callers.asker())
            cancel = server.begin_call(tool, arguments, report, finish)
        except (DeskError, ValueError):
            return None  # the long way says why
        if cancel is None:
            return None
        # While the server is at work.
        passing.describe(self._server, tool, arguments, write_canonical(arguments))

        def give_up() -> None:
            cancel()
            passing.record()

        return give_up

    def _read_passed(
        self, passing: PassingCall, read: ReadResult, modern: bool
    ) -> dict[str, Any]:
        try:
            result = read()
            passing.end()
        except DeskError as error:
            passing.end(error)
            result = written(self.refusal(error))
        except MCPError as error:
            passing.end(error)
            raise
        return self.stamp(_shape(result, modern=modern), modern=modern)


_PASSED_ON: dict[str, type[BaseModel]] = {
    "resources/list": PaginatedRequestParams,
    "resources/templates/list": PaginatedRequestParams,
    "resources/read": ReadResourceRequestParams,
    "prompts/list": PaginatedRequestParams,
    "prompts/get": GetPromptRequestParams,
    "completion/complete": CompleteRequestParams,
    "logging/setLevel": SetLevelRequestParams,
}


def _takes_task(tool: str) -> bool:
    """Whether a call may wait: a rule can be changed, and counts when the call is made."""
    del tool
    return True


_NOT_TO_KEEP = {"ttlMs": 0, "cacheScope": "private"}
"""What the second era demands of a list, and a server of the first does not say."""


def _shape(result: dict[str, Any], *, modern: bool) -> dict[str, Any]:
    """As a client of this era takes what a server of any era answered."""
    if modern:
        return {"resultType": "complete", **result}
    if "resultType" not in result:
        return result
    meta = {
        key: value
        for key, value in (result.get("_meta") or {}).items()
        if key != SERVER_INFO_META_KEY
    }
    plain = {
        key: value
        for key, value in result.items()
        if key not in ("resultType", "ttlMs", "cacheScope", "_meta")
    }
    if meta:
        plain["_meta"] = meta
    return plain


class Progress:
    """Tells whoever called how far their call is, all of it before the answer."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx
        self._told: list[asyncio.Task[None]] = []

    def report(self, said: Mapping[str, Any]) -> None:
        if self._ctx is None:
            return
        telling = self._ctx.session.report_progress(
            said["progress"], said.get("total"), said.get("message")
        )
        self._told.append(asyncio.create_task(telling))

    async def settle(self) -> None:
        await asyncio.gather(*self._told)


async def list_open_tools(desk: Desk, name: str) -> list[MCPTool]:
    """The tools as the server lists them, without those that are not what the person has seen."""
    server = await desk.foreign.open(name)
    listed = await server.list_tools()
    closed = desk.foreign.closed_tools(server)
    return [each for each in listed if each.name not in closed]


def wanted_servers(desk: Desk) -> list[str]:
    """Those whose tools are on the whole-desk server too."""
    with suppress(DeskError):
        return [name for name, entry in desk.foreign.entries.items() if entry.on_desk]
    return []


async def list_prefixed(desk: Desk, taken: frozenset[str]) -> list[MCPTool]:
    """The open tools of the wanted servers, each with its server's name before its own."""
    found: list[MCPTool] = []
    for name in wanted_servers(desk):
        with suppress(DeskError, MCPError, TimeoutError):
            async with asyncio.timeout(SOON):
                found += [_prefix(name, each) for each in await list_open_tools(desk, name)]
    return [each for each in found if each.name not in taken]


def _prefix(name: str, listed: MCPTool) -> MCPTool:
    said = f"[the server {name}] {listed.description or ''}".strip()
    return listed.model_copy(update={"name": f"{name}_{listed.name}", "description": said})


async def call(
    desk: Desk, name: str, tool: str, arguments: Mapping[str, Any], report: Report | None
) -> dict[str, Any]:
    """Do with a call what the person's rules say. Raises MCPError for the server's own errors."""
    text = canonical(arguments)
    desk.foreign.note_user(name, callers.asker())
    server = await desk.foreign.open(name)
    definition = desk.foreign.demand_pinned(server, tool)
    rule = desk.foreign.rule_for(name, tool, arguments)
    if rule.do == "deny":
        refusal = Denied(f"the person's rules deny {printable(tool, 60)}", reason="denied")
        who, what, target, facts = describe_call(name, tool, arguments, text)
        await desk.record(who, what, target, facts, refusal)
        raise refusal
    shape = definition.get("inputSchema", {})
    asked = ToolCall(
        server=name,
        tool=tool,
        arguments=text,
        definition=digest_of(definition),
        asker=callers.asker(),
        template=rule.title,
        shape=shape,
        hints=definition.get("annotations", {}),
    )
    if rule.do == "pass" and not await _was_asked(desk, asked):
        return await _pass(desk, server, tool, arguments, text, report)
    demand_fitting(shape, arguments)
    desk.foreign.note_asked(name, tool, text)
    return _result_of(await desk.gate.propose(asked, ACTOR, client=callers.client()), asked)


async def _was_asked(desk: Desk, asked: ToolCall) -> bool:
    """Whether this very call was said yes to, or made and not told yet: it is made once, although a rule lets it pass
    now. One that only waits needs no answer any more."""
    found = await desk.gate.find_asked(asked)
    if found is not None and found.state == "waiting":
        note = "Your rules let it pass now: it was made without this card."
        if not await desk.gate.withdraw(found, note):
            return True
    elif found is not None and (
        found.state in OPEN or (found.untold and not found.is_late(desk.now()))
    ):
        return True
    desk.foreign.forget_asked(asked.server, asked.tool, asked.arguments)
    return False


async def _pass(
    desk: Desk,
    server: ForeignServer,
    tool: str,
    arguments: Mapping[str, Any],
    text: str,
    report: Report | None,
) -> dict[str, Any]:
    if off := desk.settings.sending_off:
        raise refuse_off(off, "nothing is called")
    await desk.settle_record(behind=MOST_BEHIND)
    passing = PassingCall(desk)
    passing.describe(server.name, tool, arguments, text)
    try:
        result = await server.call(tool, arguments, report)
        passing.end()
    except (DeskError, MCPError) as error:
        passing.end(error)
        raise
    else:
        return result
    finally:
        passing.record()


def _result_of(outcome: Outcome, asked: ToolCall) -> dict[str, Any]:
    what = f"{printable(asked.tool, 60)} of {asked.server}"
    match outcome:
        case Released(mail=done):
            return read_result(done.result)
        case NotApproved("rejected", request, said):
            raise _said_no(asked, request, said)
        case NotApproved(why, note=said, waits=request) as waiting:
            text = f"{what} is called only after the person said yes to exactly this call"
            raise refusal_of(waiting, text, approval=why, request=request, hint=said)
        case SendingOff(off):
            raise refuse_off(off, "logged, not done")
        case Failed(error):
            raise error
        case Limited():
            raise Denied("too much left the desk in this window", reason="rate_limited")


def demand_own(request: Request) -> Request:
    """The request, unless another client asked for the call or the question: they alone
    are told what came of it."""
    action = request.action
    if isinstance(action, ToolCall | Question) and action.asker != callers.asker():
        raise OutOfScope(f"another client asked for {request.id}", scope="guard:read")
    return request


async def describe_end(
    desk: Desk, refuse: Callable[[DeskError], CallToolResult], request: Request
) -> dict[str, Any]:
    """What came of a request in the end, as its call is answered in the first era."""
    try:
        match request:
            case Request(action=ToolCall(), state="sent"):
                kept = await desk.store.read(results.find, request.id, desk.now())
                return _shape(read_result(kept), modern=False)
            case Request(action=ToolCall() as asked, state="rejected"):
                raise _said_no(asked, request.id, request.note)
            case Request(action=Question()):
                ended = answer_with(await describe_answer(desk, request))
            case _:
                ended = describe_ended(request)
    except DeskError as error:
        ended = refuse(error)
    except MCPError as answer:
        text = f"the server answered with an error: {printable(answer.message)}"
        ended = refuse(Unavailable(text))
    return written(ended)


def _said_no(asked: ToolCall, request: str, said: str | None) -> Denied:
    return Denied(
        f"the person said no to {printable(asked.tool, 60)} of {asked.server}",
        reason="denied",
        approval="rejected",
        request=request,
        hint=said,
    )


def read_result(kept: str | None) -> dict[str, Any]:
    """What a server answered, from what was kept of it."""
    if kept is None:
        raise NotFound("the call was made, but its result is no longer kept")
    answer = json.loads(kept)
    if "error" in answer:
        raise MCPError(**answer["error"])
    result: dict[str, Any] = answer["result"]
    return result
