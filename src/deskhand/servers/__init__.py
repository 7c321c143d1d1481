"""DeskServer: what every MCP server of the desk has in common, as a thin layer over the SDK.

A tool is a function: its signature is the schema, its docstring the prompt, and it raises DeskError. Here is
the one seam where arguments are checked, errors become the seed's wire form, and effects go on the record.
"""

import contextlib
import inspect
import json
import logging
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import anyio
from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver.context import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolResult,
    ErrorData,
    InputRequiredResult,
    JSONRPCError,
    TextContent,
    ToolAnnotations,
)
from pydantic import AnyHttpUrl, BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json
from starlette.applications import Starlette

from deskhand import __version__
from deskhand.errors import DeskError, FieldProblem, Internal, InvalidInput, Unavailable, mcp_error, printable
from deskhand.listen import serve_http

log = logging.getLogger("deskhand.server")

READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)


@dataclass(frozen=True, slots=True)
class Call:
    """One finished tool call, as the record needs it."""

    tool: str
    arguments: dict[str, Any]
    error: DeskError | None
    milliseconds: int


class DeskServer(MCPServer[None]):
    def __init__(
        self,
        name: str,
        tools: Sequence[Tool],
        *,
        instructions: str | None = None,
        error_form: Callable[[DeskError], dict[str, Any] | str] = mcp_error,
        record: Callable[[Call], Awaitable[None]] | None = None,
        token: str | None = None,
        owner: Callable[[str], Awaitable[str | None]] | None = None,
        invalid_arguments: Callable[[str, ValidationError], InvalidInput] | None = None,
        stateless: bool = False,
        **more: Any,
    ) -> None:
        for each in tools:
            _demand_hints(each)
        super().__init__(
            name,
            version=__version__,
            instructions=instructions,
            tools=list(tools),
            token_verifier=_Tokens(token, owner) if token else None,
            # The token is compared here and was made here, so there is no issuer to ask and no audience to check.
            auth=AuthSettings(issuer_url=AnyHttpUrl("http://127.0.0.1"), resource_server_url=None) if token else None,
            **more,
        )
        self._error_form = error_form
        self._invalid_arguments = invalid_arguments or _invalid_arguments
        self._stateless = stateless
        self._record = record

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        if self._tool_manager.get_tool(name) is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {printable(name)}")
        started = time.perf_counter()
        error: DeskError | None = Unavailable("the call was cancelled")
        try:
            result = await super().call_tool(name, arguments, context)
            error = None
        except ToolError as wrapped:
            error = self._error_behind(wrapped, name)
            if error is None:
                raise
            return self._refusal(error)
        else:
            return result
        finally:
            if self._record:
                call = Call(name, arguments, error, round((time.perf_counter() - started) * 1000))
                # A cancelled call may have had its effect; it still goes on the record.
                with anyio.CancelScope(shield=True):
                    await self._record(call)

    def _refusal(self, error: DeskError) -> CallToolResult:
        # No structuredContent: clients hold an error's against the tool's output schema and throw.
        form = self._error_form(error)
        text = TextContent(text=form if isinstance(form, str) else json.dumps(form, ensure_ascii=False))
        return CallToolResult(content=[text], is_error=True, _meta={"deskhand/error": form})

    def _error_behind(self, wrapped: ToolError, tool_name: str) -> DeskError | None:
        """The desk's error for what the SDK caught; None for one that a tool raised in the SDK's own words."""
        match wrapped.__cause__:
            case DeskError() as error:
                return error
            case ValidationError() as error if not isinstance(wrapped, UnexpectedToolError):
                return self._invalid_arguments(tool_name, error)
            case cause if isinstance(wrapped, UnexpectedToolError):
                reference = secrets.token_hex(4)
                log.error("crash", extra={"tool": tool_name, "reference": reference}, exc_info=cause)
                return _masked(cause, reference)
            case _:
                return None

    def streamable_http_app(self, **options: Any) -> Starlette:
        return super().streamable_http_app(**{"stateless_http": self._stateless} | options)

    async def run_stdio_async(self) -> None:
        async with stdio_server() as (incoming, outgoing):
            server = self._lowlevel_server
            # A stray print stays in Python's buffer and would land on the wire at exit.
            with contextlib.redirect_stdout(sys.stderr):
                await server.run(
                    _Answering(incoming, outgoing),
                    outgoing,
                    server.create_initialization_options(),
                )

    async def run_http_async(self, port: int) -> None:
        await serve_http(self.streamable_http_app(), port, "/mcp")


def tool(fn: Callable[..., Any], *, title: str, annotations: ToolAnnotations, name: str | None = None) -> Tool:
    """A tool from a function, strict: unknown arguments are refused, none is guessed to be JSON in a string."""
    made = Tool.from_function(
        fn, name=name, title=title, description=inspect.cleandoc(fn.__doc__ or ""), annotations=annotations
    )
    arguments = made.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    made.fn_metadata = _StrictMetadata(
        arg_model=arguments,
        output_schema=_lean(_untitled(made.fn_metadata.output_schema)),
        output_model=made.fn_metadata.output_model,
        wrap_output=made.fn_metadata.wrap_output,
    )
    made.parameters = _untitled(arguments.model_json_schema(by_alias=True))
    return made


class _StrictMetadata(FuncMetadata):
    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        if bad := [name for name, value in arguments_to_validate.items() if _is_unspeakable((name, value))]:
            raise InvalidInput(
                "the arguments are not valid Unicode",
                fields=[
                    FieldProblem(printable(name), "holds a lone surrogate", suggestion="Send valid Unicode")
                    for name in bad
                ],
            )
        return super().validate_arguments(arguments_to_validate)

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        return data

    def convert_result(self, result: Any) -> CallToolResult | InputRequiredResult:
        """A model is dumped once, and the text is the same object: some clients show the one, some the other."""
        # Without an output schema a model is a content block (text, image, …): the SDK's own to convert.
        if self.output_schema is None or not isinstance(result, BaseModel):
            return super().convert_result(result)
        if isinstance(result, CallToolResult | InputRequiredResult):
            return super().convert_result(result)
        structured = result.model_dump(mode="json", by_alias=True)
        text = TextContent(text=json.dumps(structured, ensure_ascii=False))
        return CallToolResult(content=[text], structured_content=structured)


def _is_unspeakable(value: Any) -> bool:
    """Whether it holds text that no UTF-8 file or answer can carry."""
    try:
        to_json(value)
    except PydanticSerializationError:
        return True
    return False


class _Tokens:
    """Accepts the desk's own token, and where a server knows its users the ones that `owner` finds an owner for."""

    def __init__(self, token: str, owner: Callable[[str], Awaitable[str | None]] | None) -> None:
        self._token = token.encode()
        self._owner = owner

    async def verify_token(self, token: str) -> AccessToken | None:
        if secrets.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            return AccessToken(token=token, client_id="desk", scopes=[])
        subject = await self._owner(token) if self._owner else None
        return AccessToken(token=token, client_id="user", scopes=[], subject=subject) if subject else None


class _Incoming(Protocol):
    last_context: Any

    async def receive(self) -> SessionMessage | Exception: ...
    async def aclose(self) -> None: ...


class _Outgoing(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...


class _Answering:
    """The incoming messages; a line that is none is answered here, where the SDK would leave its sender waiting."""

    def __init__(self, incoming: _Incoming, outgoing: _Outgoing) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    @property
    def last_context(self) -> Any:
        return self._incoming.last_context

    async def receive(self) -> SessionMessage | Exception:
        while isinstance(item := await self._incoming.receive(), Exception):
            if (answer := _answer_to(item)) is not None:
                await self._outgoing.send(SessionMessage(answer))
        return item

    async def aclose(self) -> None:
        await self._incoming.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _answer_to(problem: Exception) -> JSONRPCError | None:
    line = problem.errors()[0]["input"] if isinstance(problem, ValidationError) else ""
    if isinstance(line, str):
        if not line.strip():
            return None
        try:
            # More lenient than the SDK's parser: whoever sent a lone surrogate gets an answer to his own id.
            line = json.loads(line)
        except (ValueError, RecursionError):
            return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=PARSE_ERROR, message="Parse error"))
        error = ErrorData(code=INVALID_PARAMS, message="Not valid Unicode: a lone surrogate (\\ud800 to \\udfff)")
    else:
        error = ErrorData(code=INVALID_REQUEST, message="Not a JSON-RPC 2.0 message")
    sender = line.get("id") if isinstance(line, dict) else None
    return JSONRPCError(jsonrpc="2.0", id=sender if isinstance(sender, str | int) else None, error=error)


def _invalid_arguments(tool_name: str, error: ValidationError) -> InvalidInput:
    return InvalidInput(
        f"{tool_name}: invalid arguments",
        fields=[_field_problem(details) for details in error.errors(include_url=False)],
    )


def _masked(cause: BaseException | None, reference: str) -> Internal:
    if isinstance(cause, OSError) and cause.errno is not None:
        return Internal(
            f"the machine refused: {cause.strerror}",
            reference=reference,
            reason=_ERRNO_REASONS.get(cause.errno, "io_error"),
            hint="nothing was changed; make room or repair the disk, then try again",
        )
    return Internal(
        "an unexpected error; nothing of it is shown here",
        reference=reference,
        reason="crash",
        hint="search the server's log for the reference",
    )


_ERRNO_REASONS = {28: "disk_full", 122: "disk_full", 27: "disk_full", 30: "read_only", 13: "no_access"}


def _field_problem(details: Any) -> FieldProblem:
    field = ".".join(printable(part) for part in details["loc"]) or "arguments"
    received = None if details["type"] == "missing" else printable(details["input"])
    return FieldProblem(field, details["msg"].removeprefix("Value error, "), received, _suggestion(details))


def _suggestion(details: Any) -> str:
    match details["type"]:
        case "missing":
            return "Provide this argument"
        case "extra_forbidden":
            return "Leave this argument out; the tool's schema lists the ones it takes"
        case kind if kind.endswith(("_type", "_parsing")):
            return f"Send a value of type {kind.rsplit('_', 1)[0]}"
        case _:
            return "See the tool's schema for the allowed form"


def _demand_hints(made: Tool) -> None:
    hints = made.annotations.model_dump(exclude={"title"}).values() if made.annotations else [None]
    if not made.title or not made.description or None in hints:
        raise TypeError(f"tool {made.name} needs a title, a docstring and all four annotation hints")
    if made.parameters.get("additionalProperties") is not False:
        raise TypeError(f"tool {made.name} is not strict; make it with deskhand.servers.tool")


def _untitled(schema: Any) -> Any:
    """Without the titles pydantic makes from the names: a model pays for each character."""
    match schema:
        case {"properties": dict(properties), **rest}:
            named = {name: _untitled(value) for name, value in properties.items()}
            return _untitled(rest) | {"properties": named}
        case dict():
            return {key: _untitled(value) for key, value in schema.items() if key != "title"}
        case list():
            return [_untitled(item) for item in schema]
        case _:
            return schema


def _lean(schema: Any) -> Any:
    """The same schema without detours: some clients check each answer against it in a slow language."""
    definitions = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    flat = _flat(schema, definitions, ())
    if "$ref" in json.dumps(flat):  # one that names itself keeps its definitions
        return schema
    return {key: value for key, value in flat.items() if key != "$defs"} if definitions else flat


def _flat(schema: Any, definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    match schema:
        case {"$ref": str(reference), **rest} if (name := reference.removeprefix("#/$defs/")) not in inside:
            return _flat(definitions[name], definitions, (*inside, name)) | rest
        case {"anyOf": [{"type": str(first), **narrower}, {"type": "null"}], **rest} if "enum" not in narrower:
            return _flat(narrower | rest, definitions, inside) | {"type": [first, "null"]}
        case dict():
            return {key: _flat(value, definitions, inside) for key, value in schema.items()}
        case list():
            return [_flat(item, definitions, inside) for item in schema]
        case _:
            return schema
