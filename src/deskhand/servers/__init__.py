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
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import anyio
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver.context import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedResourceError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
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
from mcp_types import Tool as MCPTool
from pydantic import AnyHttpUrl, AnyUrl, BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json
from starlette.applications import Starlette

from deskhand import __version__, tokens
from deskhand.app import Desk
from deskhand.errors import (
    Denied,
    DeskError,
    FieldProblem,
    Internal,
    InvalidInput,
    NotFound,
    Unavailable,
    mcp_error,
    printable,
)
from deskhand.listen import serve_http
from deskhand.tokens import Area, Token

log = logging.getLogger("deskhand.server")

READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
_DESK = "desk"
"""The client id of the desk's own token, which opens everything; an assistant's has a prefix before its name."""
_TOKEN = "token:"  # noqa: S105 - a prefix


@dataclass(frozen=True, slots=True)
class Call:
    """One finished tool call, as the record needs it."""

    tool: str
    arguments: dict[str, Any]
    error: DeskError | None
    milliseconds: int
    client: str | None = None
    """The name of the token it came with."""

    @property
    def out_of_scope(self) -> bool:
        return isinstance(self.error, Denied) and self.error.details["reason"] == "scope"


Recorder = Callable[[Call], Awaitable[None]]


class DeskServer(MCPServer[None]):
    def __init__(
        self,
        name: str,
        tools: Sequence[Tool],
        *,
        instructions: str | None = None,
        error_form: Callable[[DeskError], dict[str, Any] | str] = mcp_error,
        record: Recorder | None = None,
        area: Area | Mapping[str, Area] | None = None,
        token: str | None = None,
        shown: Callable[[str], Awaitable[Token | None]] | None = None,
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
            token_verifier=_Tokens(token, shown) if token else None,
            auth=_entry(area) if token else None,
            **more,
        )
        self._areas = dict.fromkeys((each.name for each in tools), area) if isinstance(area, str) else dict(area or {})
        self._only: tuple[str, ...] | None = None
        self._error_form = error_form
        self._invalid_arguments = invalid_arguments or _invalid_arguments
        self._stateless = stateless
        self._record = record

    def narrow(self, scopes: Iterable[str]) -> None:
        """Open no more than these scopes do, whoever comes."""
        self._only = tokens.check_scopes(scopes)

    def demand(self, area: Area | None, *, writes: bool) -> None:
        """Refuse who comes without the scope for this part of the desk."""
        needed = f"{area}:{'write' if writes else 'read'}"
        for scopes in _limits(self._only):
            if area is None or not tokens.opens(scopes, area, writes=writes):
                raise Denied(
                    f"this needs the scope {needed}, which the client was not given",
                    reason="scope",
                    scope=needed,
                    hint=f"the person can give it: deskhand token create --name NAME --scope {needed}",
                )

    async def list_tools(self) -> list[MCPTool]:
        return [each for each in await super().list_tools() if self._is_open(each.name)]

    def _is_open(self, name: str) -> bool:
        try:
            self._demand_tool(name)
        except Denied:
            return False
        return True

    def _demand_tool(self, name: str) -> None:
        made = self._tool_manager.get_tool(name)
        self.demand(self._areas.get(name), writes=not (made and made.annotations and made.annotations.read_only_hint))

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        if self._tool_manager.get_tool(name) is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {printable(name)}")
        started = time.perf_counter()
        error: DeskError | None = Unavailable("the call was cancelled")
        try:
            self._demand_tool(name)
            result = await super().call_tool(name, arguments, context)
            error = None
        except Denied as refused:
            error = refused
            return self._refusal(refused)
        except ToolError as wrapped:
            error = self._error_behind(wrapped, name)
            if error is None:
                raise
            return self._refusal(error)
        else:
            return result
        finally:
            if self._record:
                call = Call(name, arguments, error, _since(started), client())
                # A cancelled call may have had its effect; it still goes on the record.
                with anyio.CancelScope(shield=True):
                    await self._record(call)

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[None, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        started = time.perf_counter()
        try:
            return await super().read_resource(uri, context)
        except UnexpectedResourceError as wrapped:
            if not isinstance(error := wrapped.__cause__, DeskError):
                raise
            call = Call("resources/read", {"path": str(uri)}, error, _since(started), client())
            if self._record and call.out_of_scope:
                await self._record(call)
            raise protocol_error(error) from error

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


def protocol_error(error: DeskError) -> MCPError:
    """For what is no tool and has no other way to say that it failed."""
    expected = isinstance(error, InvalidInput | NotFound | Denied)
    message = error.message + (f"; {error.hint}" if error.hint else "")
    return MCPError(INVALID_PARAMS if expected else INTERNAL_ERROR, message, data=mcp_error(error))


def _since(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)


def writes_recorder(desk: Desk, actor: str, written: Collection[str]) -> Recorder:
    """One entry for each call of these tools, and for each that was out of the caller's scope."""

    async def record(call: Call) -> None:
        if call.tool in written or call.out_of_scope:
            shown = {key: value for key, value in call.arguments.items() if key in _RECORDED}
            target = next((shown[key] for key in _TARGETS if shown.get(key)), "-")
            named = {"client": call.client} if call.client else {}
            await desk.record(actor, call.tool, target, shown | named, call.error, call.milliseconds)

    return record


_TARGETS = ("path", "source", "task_id", "recipient", "message_id", "id")
# Names of things and how they were changed, never what somebody wrote into them.
_RECORDED = frozenset(
    {*_TARGETS, "destination", "if_match", "merge", "update_links", "task_ids", "action", "decision", "status"}
)


def client() -> str | None:
    """The name of the token by which the one who calls came in; None for the desk's own, and on stdio."""
    access = get_access_token()
    return access.client_id.removeprefix(_TOKEN) if access and access.client_id != _DESK else None


def is_service() -> bool:
    """Whether who calls proved the desk's own token."""
    access = get_access_token()
    return access is not None and access.client_id == _DESK


def _limits(only: tuple[str, ...] | None) -> list[Iterable[str]]:
    """Each of these must hold: what the server was narrowed to, and what the token opens."""
    access = get_access_token()
    limits: list[Iterable[str]] = [] if only is None else [only]
    return limits if access is None or access.client_id == _DESK else [*limits, access.scopes]


def _entry(area: Area | Mapping[str, Area] | None) -> AuthSettings:
    # The token is compared here and was made here, so there is no issuer to ask and no audience to check.
    return AuthSettings(
        issuer_url=AnyHttpUrl("http://127.0.0.1"),
        resource_server_url=None,
        required_scopes=[f"{area}:read"] if isinstance(area, str) else None,
    )


class _Tokens:
    """Accepts the desk's own token, and those of assistants and users."""

    def __init__(self, token: str, shown: Callable[[str], Awaitable[Token | None]] | None) -> None:
        self._token = token.encode()
        self._shown = shown

    async def verify_token(self, token: str) -> AccessToken | None:
        if secrets.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            return AccessToken(token=token, client_id=_DESK, scopes=list(tokens.SCOPES))
        kept = await self._shown(token) if self._shown else None
        if kept is None:
            return None
        scopes = tokens.with_reading(kept.scopes)
        return AccessToken(token=token, client_id=f"{_TOKEN}{kept.name}", scopes=scopes, subject=kept.user_id)


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
