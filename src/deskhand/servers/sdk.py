"""All that relies on what the MCP SDK keeps to itself; tests/test_sdk.py names it, piece by piece."""

import contextlib
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any, get_args
from weakref import WeakKeyDictionary

from mcp.server import MCPServer
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions
from mcp.server.mcpserver.context import Context
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    SERVER_INFO_META_KEY,
    CallToolResult,
    GetPromptResult,
    InputRequiredResult,
    ListResourcesResult,
    PaginatedRequestParams,
    ServerCapabilities,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from deskhand.errors import DeskError, FieldProblem, InvalidInput, printable
from deskhand.servers import callers
from deskhand.servers.calls import ToolResult
from deskhand.servers.pipes import take_pipes
from deskhand.servers.stdio import AnsweringStream, NotingStream, OpenRequests
from deskhand.servers.wire import Wire

MOST_PROBLEMS = 50
"""So many problems of a call's arguments are named, each by itself."""


class SDKServer(MCPServer[None]):
    """The SDK's server, with resources in pages and an answer to every line on stdin."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Innermost: whatever looks at an answer sees what is written.
        self._lowlevel_server.middleware.append(_answer_in_whole_characters)
        self._connections: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()
        """Whoever asked something here and is there still, and by which name."""

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        context: Context[None, Any] | None = None,
    ) -> GetPromptResult | InputRequiredResult:
        """The SDK's, without its code 0 and its trace for a prompt that there is not, or
        that lacks an argument."""
        try:
            return await super().get_prompt(name, arguments, context)
        except ValueError as error:
            raise MCPError(INVALID_PARAMS, printable(error)) from error

    async def list_resource_page(self, cursor: str | None) -> ListResourcesResult:
        """One page of the resources; a server with many of them overrides it."""
        del cursor
        return ListResourcesResult(resources=await self.list_resources())

    async def _handle_list_resources(
        self, ctx: ServerRequestContext[None], params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        del ctx
        return await self.list_resource_page(params.cursor if params else None)

    def answer(
        self,
        method: str,
        params: type[BaseModel],
        handler: Callable[[Any, Any], Awaitable[Any]],
    ) -> None:
        """Let the handler answer a method in place of the SDK, and remember who asked."""

        async def answer(ctx: Any, given: Any) -> Any:
            # Those others listen by themselves.
            if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                self._connections[connection_of(ctx)] = callers.client()
            return await handler(ctx, given)

        self._lowlevel_server.add_request_handler(method, params, answer)

    def handler_of(self, method: str) -> Callable[[Any, Any], Awaitable[Any]]:
        """Who answers a method now."""
        found = self._lowlevel_server.get_request_handler(method)
        assert found is not None  # noqa: S101 - a method of the SDK's own
        return found.handler

    def promise_changes(self, known: Callable[[], ServerCapabilities | None]) -> None:
        """Say that clients are told when a list changed, and of the rest no more than is known that it can do."""
        server: Any = self._lowlevel_server
        everything = server.get_capabilities
        promised = NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )

        def describe(*_: Any, protocol_version: str | None = None) -> ServerCapabilities:
            able: ServerCapabilities = everything(
                promised, protocol_version=protocol_version
            )
            found = known()
            if found is None:
                return able
            missing = [part for part in _PARTS if getattr(found, part) is None]
            return able.model_copy(update=dict.fromkeys(missing))

        server.get_capabilities = describe

    def stamp(self, result: dict[str, Any], *, modern: bool) -> dict[str, Any]:
        """The result with this server's name, as the SDK writes it for clients of the second era."""
        if not modern:
            return result
        return {**result, "_meta": self._own_meta | (result.get("_meta") or {})}

    @cached_property
    def _own_meta(self) -> dict[str, Any]:
        return {SERVER_INFO_META_KEY: self._lowlevel_server.server_info_stamp}

    async def tell(
        self, connections: Iterable[Any], method: str, params: dict[str, Any] | None
    ) -> None:
        """Send a notification to clients of the first era."""
        for connection in [*connections]:
            await connection.notify(method, params)

    async def run_stdio_async(self) -> None:
        with take_pipes() as pipes:
            said: Any = pipes
            async with stdio_server(said, said) as (incoming, outgoing):
                # A stray print stays in Python's buffer and would land on the wire at exit.
                with contextlib.redirect_stdout(sys.stderr):
                    await self._serve(incoming, outgoing)

    async def run_wire(self, wire: Wire) -> None:
        """Serve one connection that speaks as stdio does; any number of them at once."""
        said: Any = wire
        async with (
            self.listen_to(wire) as lines,
            stdio_server(lines, said) as (incoming, outgoing),
        ):
            await self._serve(incoming, outgoing)

    def listen_to(self, wire: Wire) -> contextlib.AbstractAsyncContextManager[Any]:
        """The lines that the SDK answers; a server that answers some of them by itself overrides it."""
        return contextlib.nullcontext(wire)

    async def _serve(self, incoming: Any, outgoing: Any) -> None:
        server = self._lowlevel_server
        requests = OpenRequests()
        heard = AnsweringStream(incoming, outgoing, requests)
        said = NotingStream(outgoing, requests)
        await server.run(heard, said, server.create_initialization_options())


async def _answer_in_whole_characters(
    ctx: Any, call_next: Callable[[Any], Awaitable[Any]]
) -> Any:
    """The answer to any request, as the SDK can write it.

    The SDK writes outside of the request: what it cannot write ends the server on stdio, and is no answer over HTTP.
    """
    try:
        return _in_whole_characters(await call_next(ctx))
    except MCPError as error:
        told = error.error
        if _is_unicode((told.message, told.data)):
            raise
        message, data = _in_whole_characters([told.message, told.data])
        raise MCPError(told.code, message, data) from error


def _in_whole_characters(value: Any) -> Any:
    """The same as JSON has it, where it holds half a character without that."""
    if _is_unicode(value):
        return value
    plain = json.dumps(value, ensure_ascii=False, default=to_jsonable_python)
    return json.loads(plain.encode("utf-8", "replace"))


_PARTS = ("prompts", "resources", "logging", "completions")


def connection_of(ctx: Any) -> Any:
    """What lives as long as the client is there; the session itself lives for one request."""
    return ctx.session._connection  # noqa: SLF001


class StrictMetadata(FuncMetadata):
    """How a tool reads its arguments and writes its answer."""

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        bad = [
            name
            for name, value in arguments_to_validate.items()
            if not _is_unicode((name, value))
        ]
        if bad:
            raise InvalidInput(
                "the arguments are not valid Unicode",
                fields=[
                    FieldProblem(
                        printable(name),
                        "holds a lone surrogate",
                        suggestion="Send valid Unicode",
                    )
                    for name in bad
                ],
            )
        given = self._without_empty_nulls(arguments_to_validate)
        try:
            return super().validate_arguments(given)
        except ValidationError as error:
            if error.error_count() <= MOST_PROBLEMS:
                raise
        # To name a hundred thousand of them would keep the desk from everything else for seconds.
        unknown = [name for name in given if name not in self.arg_model.model_fields]
        raise InvalidInput(
            f"more than {MOST_PROBLEMS} of the arguments' values are wrong",
            fields=[
                FieldProblem(printable(name), "is no argument of this tool")
                for name in unknown[:MOST_PROBLEMS]
            ],
            hint="See the tool's schema for the allowed form",
        )

    def _without_empty_nulls(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Without null for an argument that may be left out and knows no null: some
        clients fill everything in."""
        known = self.arg_model.model_fields
        return {
            name: value
            for name, value in arguments.items()
            if value is not None
            or name not in known
            or known[name].is_required()
            or type(None) in get_args(known[name].annotation)
        }

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        """The arguments as they are: no text is taken for JSON."""
        return data

    def convert_result(self, result: Any) -> Any:
        """What goes over the wire, as a ToolResult; a refusal stays what it is."""
        if not isinstance(result, ToolResult):
            return ToolResult(self._convert(result))
        if isinstance(result.content, DeskError):
            return result
        return replace(result, content=self._convert(result.content))

    def _convert(self, content: Any) -> CallToolResult | InputRequiredResult:
        """A model is dumped once, and the text is the same object: some clients show the one, some the other."""
        # Without an output schema a model is a content block (text, image, …): the SDK's own to convert.
        if self.output_schema is None or not isinstance(content, BaseModel):
            try:
                made = super().convert_result(content)
            except PydanticSerializationError:
                made = super().convert_result(_in_whole_characters(content))
            # Some clients show the text alone.
            if isinstance(made, CallToolResult) and not made.content:
                made.content = [TextContent(text=json.dumps(content))]
            return made
        if isinstance(content, CallToolResult | InputRequiredResult):
            return super().convert_result(content)
        return answer_with(content)


def answer_with(content: BaseModel) -> CallToolResult:
    structured = content.model_dump(mode="json", by_alias=True)
    text = TextContent(text=json.dumps(structured, ensure_ascii=False))
    return CallToolResult(content=[text], structured_content=structured)


def make_strict(made: Tool, trim: Callable[[Any], Any]) -> None:
    """Let the tool refuse arguments that it does not know, and read and write through StrictMetadata.

    `trim` shortens the schema of its answers, which some clients check in a slow language.
    """
    given = made.fn_metadata
    given.arg_model.model_config["extra"] = "forbid"
    given.arg_model.model_rebuild(force=True)
    made.parameters = given.arg_model.model_json_schema(by_alias=True)
    made.fn_metadata = StrictMetadata(
        arg_model=given.arg_model,
        output_schema=trim(given.output_schema),
        output_model=given.output_model,
        wrap_output=given.wrap_output,
    )


def _is_unicode(value: Any) -> bool:
    """Whether a UTF-8 file or answer can carry it."""
    try:
        to_json(value)
    except PydanticSerializationError:
        return False
    return True
