"""The door to another MCP server: everything passes but the calls of its tools, which the person's rules decide."""

import asyncio
import json
import time
from contextlib import suppress
from typing import Any

from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    GetPromptRequestParams,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
)
from mcp_types import Tool as MCPTool

from deskhand.app import Desk
from deskhand.errors import Denied, DeskError, NotFound, Unavailable, printable
from deskhand.foreign.arguments import canonical
from deskhand.foreign.definitions import digest_of
from deskhand.foreign.session import ForeignServer, ListChange
from deskhand.gate import DevMode, Failed, Limited, NotApproved, Outcome, Released
from deskhand.gate.toolcall import ToolCall, demand_fitting
from deskhand.servers import callers
from deskhand.servers.chat import SHOWN_AS_CARD
from deskhand.servers.email import refusal_of
from deskhand.servers.server import DeskServer, protocol_error

ACTOR = "guard_mcp"
SOON = 5.0
"""Seconds in which a server has to be there to be listed on the whole desk."""
OWN = "the person's own program"
"""Who asks on stdio, or with the desk's own token."""


def open_door(desk: Desk, name: str, token: str | None = None) -> DeskServer:
    """The server NAME as the desk lets others use it."""
    desk.foreign.entry(name)
    return ForeignDoor(desk, name, token)


class ForeignDoor(DeskServer):
    def __init__(self, desk: Desk, name: str, token: str | None) -> None:
        self._bus = InMemorySubscriptionBus()
        super().__init__(name, [], area="guard", token=token, authenticate=desk.authenticate, subscriptions=self._bus)
        self._desk = desk
        self._server = name
        self._answer_all()
        self.promise_changes()
        desk.foreign.listen(self)

    def _answer_all(self) -> None:
        self.answer("tools/list", PaginatedRequestParams, self._pass_tools)
        self.answer("tools/call", CallToolRequestParams, self._answer_call)
        self.answer("resources/list", PaginatedRequestParams, self._pass_resources)
        self.answer("resources/templates/list", PaginatedRequestParams, self._pass_templates)
        self.answer("resources/read", ReadResourceRequestParams, self._pass_resource)
        self.answer("prompts/list", PaginatedRequestParams, self._pass_prompts)
        self.answer("prompts/get", GetPromptRequestParams, self._pass_prompt)
        self.answer("completion/complete", CompleteRequestParams, self._pass_completion)

    async def hear_change(self, name: str, change: ListChange) -> None:
        if name != self._server:
            return
        await self.tell_all(change.method)
        await self._bus.publish(_EVENTS[change.method])

    async def _open(self) -> ForeignServer:
        try:
            self.demand("guard", writes=False)
            return await self._desk.foreign.open(self._server)
        except DeskError as error:
            raise protocol_error(error) from error

    async def _pass_tools(self, ctx: Any, params: PaginatedRequestParams) -> ListToolsResult:
        del ctx, params
        await self._open()
        return ListToolsResult(tools=await list_open_tools(self._desk, self._server))

    async def _answer_call(self, ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        try:
            self.demand("guard", writes=True)
            return await call(self._desk, self._server, params, progress_of(ctx))
        except DeskError as error:
            return self.refusal(error)

    async def _pass_resources(self, ctx: Any, params: PaginatedRequestParams) -> ListResourcesResult:
        del ctx
        client = (await self._open()).client
        if client.server_capabilities.resources is None:
            return ListResourcesResult(resources=[])
        return await client.session.list_resources(params=params)

    async def _pass_templates(self, ctx: Any, params: PaginatedRequestParams) -> ListResourceTemplatesResult:
        del ctx
        client = (await self._open()).client
        if client.server_capabilities.resources is None:
            return ListResourceTemplatesResult(resource_templates=[])
        return await client.session.list_resource_templates(params=params)

    async def _pass_resource(self, ctx: Any, params: ReadResourceRequestParams) -> Any:
        del ctx
        return await (await self._open()).client.session.read_resource(params.uri)

    async def _pass_prompts(self, ctx: Any, params: PaginatedRequestParams) -> ListPromptsResult:
        del ctx
        client = (await self._open()).client
        if client.server_capabilities.prompts is None:
            return ListPromptsResult(prompts=[])
        return await client.session.list_prompts(params=params)

    async def _pass_prompt(self, ctx: Any, params: GetPromptRequestParams) -> Any:
        del ctx
        return await (await self._open()).client.session.get_prompt(params.name, params.arguments)

    async def _pass_completion(self, ctx: Any, params: CompleteRequestParams) -> Any:
        del ctx
        context = params.context.arguments if params.context else None
        session = (await self._open()).client.session
        argument = {"name": params.argument.name, "value": params.argument.value}
        return await session.complete(params.ref, argument, context)


_EVENTS: dict[str, ToolsListChanged | ResourcesListChanged | PromptsListChanged] = {
    "notifications/tools/list_changed": ToolsListChanged(),
    "notifications/resources/list_changed": ResourcesListChanged(),
    "notifications/prompts/list_changed": PromptsListChanged(),
}


def progress_of(ctx: Any) -> ProgressFnT:
    """How progress reaches whoever called, where they want to hear of it."""

    async def report(progress: float, total: float | None, message: str | None) -> None:
        if ctx is None:
            return
        await ctx.session.report_progress(progress, total, message)

    return report


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
    changed = {"name": f"{name}_{listed.name}", "description": said, "meta": (listed.meta or {}) | SHOWN_AS_CARD}
    return listed.model_copy(update=changed)


async def call(desk: Desk, name: str, params: CallToolRequestParams, progress: ProgressFnT) -> CallToolResult:
    """Do with a call what the person's rules say. Raises MCPError for the server's own errors."""
    arguments = params.arguments or {}
    text = canonical(arguments)
    server = await desk.foreign.open(name)
    definition = desk.foreign.demand_pinned(server, params.name)
    rule = desk.foreign.rule_for(name, params.name, arguments)
    match rule.do:
        case "deny":
            refusal = Denied(f"the person's rules deny {printable(params.name, 60)}", reason="denied")
            await _record(desk, name, params.name, refusal, 0)
            raise refusal
        case "pass":
            return await _pass(desk, server, params, progress)
        case "ask":
            shape = definition.get("inputSchema", {})
            demand_fitting(shape, arguments)
            asked = ToolCall(
                server=name,
                tool=params.name,
                arguments=text,
                definition=digest_of(definition),
                asker=asker(),
                template=rule.title,
                shape=shape,
            )
            return _result_of(await desk.gate.propose(asked, ACTOR, client=callers.client()), asked)


def asker() -> str:
    """Who calls, by a name that no client can give itself where it is another one's."""
    name = callers.client()
    if name is None:
        return OWN
    return f"client {name}"


async def _pass(
    desk: Desk, server: ForeignServer, params: CallToolRequestParams, progress: ProgressFnT
) -> CallToolResult:
    if desk.settings.dev_mode:
        raise Denied("DEV_MODE is on: nothing is called", reason="dev_mode", hint="set DEV_MODE=false")
    await desk.settle_record()
    started = time.perf_counter()
    error: DeskError | None = Unavailable("the call was cancelled")
    try:
        result = await server.call(params.name, params.arguments or {}, progress)
        error = None
    except MCPError as answer:
        error = Unavailable(f"the server answered with an error: {printable(answer.message)}")
        raise
    except DeskError as lost:
        error = lost
        raise
    finally:
        await _record(desk, server.name, params.name, error, round((time.perf_counter() - started) * 1000))
    return result


async def _record(desk: Desk, server: str, tool: str, error: DeskError | None, milliseconds: int) -> None:
    facts = {"client": client} if (client := callers.client()) else {}
    await desk.record(ACTOR, printable(tool, 100), server, facts, error, milliseconds)


def _result_of(outcome: Outcome, asked: ToolCall) -> CallToolResult:
    what = f"{printable(asked.tool, 60)} of {asked.server}"
    match outcome:
        case Released(mail=done):
            return read_result(done.result)
        case NotApproved("rejected", request, said):
            raise Denied(
                f"the person said no to {what}", reason="denied", approval="rejected", request=request, hint=said
            )
        case NotApproved(why, note=said, waits=request) as waiting:
            text = f"{what} is called only after the person said yes to exactly this call"
            raise refusal_of(waiting, text, approval=why, request=request, hint=said)
        case DevMode():
            raise Denied("DEV_MODE is on: logged, not done", reason="dev_mode", hint="set DEV_MODE=false")
        case Failed(error):
            raise error
        case Limited():
            raise Denied("too much left the desk in this window", reason="rate_limited")


def read_result(kept: str | None) -> CallToolResult:
    """What a server answered, from what was kept of it."""
    if kept is None:
        raise NotFound("the call was made, but its result is no longer kept")
    answer = json.loads(kept)
    if "error" in answer:
        raise MCPError(**answer["error"])
    return CallToolResult.model_validate(answer["result"])
