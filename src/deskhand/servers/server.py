"""DeskServer: what every MCP server of the desk has in common, as a thin layer over the SDK.

Here is the one seam where the caller's scope and the arguments are checked, errors take the form of the server's
contract, and calls go on the record.
"""

import errno
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import anyio
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver.context import Context
from mcp.server.mcpserver.exceptions import (
    ToolError,
    UnexpectedResourceError,
    UnexpectedToolError,
)
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolResult,
    InputRequiredResult,
    TextContent,
)
from mcp_types import Tool as MCPTool
from pydantic import AnyUrl, ValidationError
from starlette.applications import Starlette

from deskhand import __version__, tokens
from deskhand.askers import asking_as
from deskhand.errors import (
    Denied,
    DeskError,
    FieldProblem,
    Internal,
    InvalidInput,
    NotFound,
    OutOfScope,
    Unavailable,
    advice_on,
    mcp_error,
    printable,
)
from deskhand.listen import serve_http
from deskhand.mail import mailboxes
from deskhand.mail.mailboxes import MailView
from deskhand.notes import view
from deskhand.notes.view import VaultView
from deskhand.servers import callers
from deskhand.servers.callers import Authenticate, DeskTokens
from deskhand.servers.calls import Call, Recorder, ToolResult
from deskhand.servers.sdk import SDKServer
from deskhand.servers.tool import DeskTool, demand_complete
from deskhand.tokens import Area

log = logging.getLogger("deskhand.server")

_ERRNO_REASONS = {
    28: "disk_full",
    122: "disk_full",
    27: "disk_full",
    30: "read_only",
    13: "no_access",
    errno.ELOOP: "link",
}


class DeskServer(SDKServer):
    def __init__(
        self,
        name: str,
        tools: Sequence[Tool],
        *,
        instructions: str | None = None,
        error_form: Callable[[DeskError], dict[str, Any] | str] = mcp_error,
        record: Recorder | None = None,
        settle: Callable[[], Awaitable[None]] | None = None,
        area: Area | Mapping[str, Area] | None = None,
        token: str | None = None,
        authenticate: Authenticate | None = None,
        invalid_arguments: Callable[[str, ValidationError], InvalidInput] | None = None,
        stateless: bool = False,
        accounts: Sequence[str] = (),
        vaults: Sequence[str] = (),
        **more: Any,
    ) -> None:
        """`area` is the part of the desk that all tools belong to, or that of each by its name. `accounts` are the
        desk's mail accounts and `vaults` its vaults, for a server that has tools for them."""
        self._desk_tools = {each.name: demand_complete(each) for each in tools}
        only: Area | None = None
        if isinstance(area, str):
            only = area
            area = dict.fromkeys(self._desk_tools, only)
        self._tokens = DeskTokens(token, authenticate) if token else None
        if self._tokens:
            more |= {"token_verifier": self._tokens, "auth": callers.auth_settings(only)}
        super().__init__(
            name, version=__version__, instructions=instructions, tools=list(tools), **more
        )
        self._areas = area or {}
        self._needed = f"{only}:read" if only else None
        self._within: tuple[str, ...] | None = None
        self._error_form = error_form
        self._invalid_arguments = invalid_arguments or _invalid_arguments
        self._stateless = stateless
        self._accounts = accounts
        self._vaults = vaults
        self._record = record
        self._settle = settle
        """Makes sure that what a tool does can go on the record; raises where it cannot."""

    def narrow(self, scopes: Iterable[str]) -> None:
        """Open no more than these scopes do, whoever comes."""
        self._within = tokens.check_scopes(scopes)

    def demand(self, area: Area | None, *, writes: bool) -> None:
        """Refuse a caller without the scope for this part of the desk."""
        callers.demand(area, writes=writes, within=self._within)

    def view_mail(
        self, account: str | None = None, *, writes: bool
    ) -> AbstractContextManager[MailView]:
        """What the caller sees of the mail accounts, and of these the one that it names."""
        names = self._see("mail account", "mail", self._accounts, writes=writes)
        _demand_known(
            "account",
            "mail account",
            account,
            [name for name in self._accounts if names is None or name in names],
        )
        if account is not None:
            return mailboxes.viewing(MailView(frozenset({account}), asked=True))
        return mailboxes.viewing(MailView(names))

    def view_notes(
        self, vault: str | None = None, *, writes: bool
    ) -> AbstractContextManager[None]:
        """What the caller sees of the vaults, and of these the one that it names."""
        names = self._see("vault", "notes", self._vaults, writes=False)
        _demand_known(
            "vault",
            "vault",
            vault,
            [name for name in self._vaults if names is None or name in names],
        )
        return view.viewing(
            VaultView(
                names, self._see("vault", "notes", self._vaults, writes=writes), vault
            )
        )

    def _see(
        self, what: str, area: Area, there: Sequence[str], *, writes: bool
    ) -> frozenset[str] | None:
        """The mail accounts or vaults of the desk that the caller may see; None where it may see all of them."""
        opened = callers.opened_names(area, writes=writes, within=self._within)
        if opened is None:
            return None
        if opened.isdisjoint(there):
            needed = f"{area}:{'write' if writes else 'read'}"
            raise OutOfScope(
                f"the client was given no {what} that this desk has", scope=needed
            )
        return opened.intersection(there)

    async def list_tools(self) -> list[MCPTool]:
        return [each for each in await super().list_tools() if self._is_open(each.name)]

    def _is_open(self, name: str) -> bool:
        try:
            self._demand_tool(self._desk_tools[name])
        except OutOfScope:
            return False
        return True

    def _demand_tool(self, made: DeskTool) -> None:
        self.demand(self._areas.get(made.name), writes=made.writes)

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        context: Context[None, Any] | None = None,
    ) -> CallToolResult | InputRequiredResult:
        made = self._desk_tools.get(name)
        if made is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {printable(name)}")
        started = time.perf_counter()
        ended: ToolResult[CallToolResult | InputRequiredResult] = ToolResult(
            Unavailable("the call was cancelled")
        )
        try:
            ended = await self._run(made, arguments, context)
        finally:
            # A cancelled call may have had its effect; it still goes on the record.
            with anyio.CancelScope(shield=True):
                asker = describe_caller_in(context)
                await self._record_call(made, arguments, ended, started, asker)
        if isinstance(ended.content, DeskError):
            return await self.refuse(ended.content, context)
        return ended.content

    async def _run(
        self, made: DeskTool, arguments: dict[str, Any], context: Context[None, Any] | None
    ) -> ToolResult[CallToolResult | InputRequiredResult]:
        try:
            self._demand_tool(made)
            if self._settle is not None and made.writes and made.recorded_by == "door":
                await self._settle()
            asked_as = asking_as(describe_caller_in(context))
            with (
                self._view_mail(made, arguments) as seen,
                self._view_notes(made, arguments),
                asked_as,
            ):
                # The SDK hands on what StrictMetadata made of the tool's answer.
                ended: Any = await super().call_tool(
                    made.name, made.own_arguments(arguments), context
                )
        except DeskError as error:
            return ToolResult(error)
        except ToolError as wrapped:
            return ToolResult(self._error_behind(wrapped, made.name))
        assert isinstance(ended, ToolResult)  # noqa: S101 - see StrictMetadata.convert_result
        if ended.waits and isinstance(ended.content, CallToolResult):
            ended.content.meta = {"deskhand/waits": ended.waits}
        if seen.silent and isinstance(ended.content, CallToolResult):
            ended.content.content += [
                TextContent(text=line) for line in seen.describe_silent()
            ]
        return ended

    def _view_mail(
        self, made: DeskTool, arguments: dict[str, Any]
    ) -> AbstractContextManager[MailView]:
        of_mail = self._areas.get(made.name) == "mail"
        if not of_mail and "account" not in made.takes:
            return nullcontext(MailView())
        account = arguments.get("account") if "account" in made.takes else None
        return self.view_mail(account, writes=of_mail and made.writes)

    def _view_notes(
        self, made: DeskTool, arguments: dict[str, Any]
    ) -> AbstractContextManager[None]:
        if "vault" not in made.takes:
            return nullcontext()
        return self.view_notes(arguments.get("vault"), writes=made.writes)

    async def _record_call(
        self,
        made: DeskTool,
        arguments: dict[str, Any],
        ended: ToolResult[Any],
        started: float,
        asker: str,
    ) -> None:
        error = ended.content if isinstance(ended.content, DeskError) else None
        call = Call(made.name, arguments, error, _since(started), callers.client(), asker)
        is_ours = made.recorded_by != "nobody" and not ended.recorded
        if self._record and (is_ours or call.out_of_scope):
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
            call = Call(
                "resources/read",
                {"path": str(uri)},
                error,
                _since(started),
                callers.client(),
            )
            if self._record and call.out_of_scope:
                await self._record(call)
            raise protocol_error(error) from error

    async def refuse(
        self, error: DeskError, context: Context[None, Any] | None
    ) -> CallToolResult | InputRequiredResult:
        """How a call is refused that this client made."""
        del context
        return self.refusal(error)

    def refusal(self, error: DeskError) -> CallToolResult:
        # No structuredContent: clients hold an error's against the tool's output schema and throw.
        form = self._error_form(error)
        text = form if isinstance(form, str) else json.dumps(form, ensure_ascii=False)
        return CallToolResult(
            content=[TextContent(text=text)], is_error=True, _meta={"deskhand/error": form}
        )

    def _error_behind(self, wrapped: ToolError, tool_name: str) -> DeskError:
        """The desk's error for what the SDK caught; what a tool raised in the SDK's own words is raised again."""
        match wrapped.__cause__:
            case DeskError() as error:
                return error
            case ValidationError() as error if not isinstance(wrapped, UnexpectedToolError):
                return self._invalid_arguments(tool_name, error)
            case cause if isinstance(wrapped, UnexpectedToolError):
                reference = secrets.token_hex(4)
                log.error(
                    "crash",
                    extra={"tool": tool_name, "reference": reference},
                    exc_info=cause,
                )
                return _masked_crash(cause, reference)
            case _:
                raise wrapped

    def http_app_at(self, endpoint: str, origin: str | None) -> Starlette:
        """The server beside the page of the desk, where tokens that a client got by OAuth count, too."""
        if self._tokens is not None:
            self._tokens.endpoint = endpoint
        return self.streamable_http_app(streamable_http_path=endpoint, origin=origin)

    def streamable_http_app(
        self, *, origin: str | None = None, **options: Any
    ) -> Starlette:
        """The server over HTTP; `origin` is where it answers beside the names of this machine."""
        if origin is not None:
            options["transport_security"] = callers.own_names(origin)
        app: Starlette = super().streamable_http_app(
            **{"stateless_http": self._stateless} | options
        )
        if self._tokens is not None:
            app.add_middleware(callers.EndWithToken, tokens_here=self._tokens)
        if self._record is not None:
            app.add_middleware(
                callers.RecordClosed, needed=self._needed, record=self._record_closed
            )
        return app

    async def _record_closed(self, client: str, error: OutOfScope) -> None:
        """A caller whose token opens nothing of this server did not come as far as a tool."""
        assert self._record is not None  # noqa: S101 - see streamable_http_app
        await self._record(Call("connect", {"path": self.name}, error, 0, client))

    async def run_http_async(self, port: int) -> None:
        await serve_http(self.streamable_http_app(), port, "/mcp")


def _demand_known(field: str, what: str, name: str | None, names: Sequence[str]) -> None:
    if name is not None and name not in names:
        problem = FieldProblem(
            field, f"is no {what} of this desk", printable(name), ", ".join(names)
        )
        raise InvalidInput(f"there is no such {what}", fields=[problem])


def describe_caller_in(context: Any) -> str:
    """Who makes the call that came with this context, in words."""
    said = None
    if context is not None and context.session.client_params is not None:
        said = context.session.client_params.client_info
    return callers.describe_caller(said)


def protocol_error(error: DeskError) -> MCPError:
    """For a request that is no tool call and has no other way to say that it failed."""
    code = INTERNAL_ERROR
    if isinstance(error, InvalidInput | NotFound | Denied):
        code = INVALID_PARAMS
    message = "; ".join(filter(None, (error.message, error.hint)))
    return MCPError(code, message, data=mcp_error(error))


def _since(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)


def _invalid_arguments(tool_name: str, error: ValidationError) -> InvalidInput:
    return InvalidInput(
        f"{tool_name}: invalid arguments",
        fields=[_field_problem(details) for details in error.errors(include_url=False)],
    )


def _field_problem(details: Any) -> FieldProblem:
    field = ".".join(printable(part) for part in details["loc"]) or "arguments"
    received = None
    if details["type"] != "missing" and details["input"] is not None:
        received = printable(details["input"])
    return FieldProblem(
        field,
        details["msg"].removeprefix("Value error, "),
        received,
        _suggestion(details["type"]),
    )


def _suggestion(problem: str) -> str:
    match problem:
        case "missing":
            return "Provide this argument"
        case "extra_forbidden":
            return "Leave this argument out; the tool's schema lists the ones it takes"
        case _ if problem.endswith(("_type", "_parsing")):
            return f"Send a value of type {problem.rsplit('_', 1)[0]}"
        case _:
            return "See the tool's schema for the allowed form"


def _masked_crash(cause: BaseException | None, reference: str) -> Internal:
    """Says nothing of a crash but where to find it; what the machine itself refused may be told."""
    if isinstance(cause, OSError) and cause.errno is not None:
        return Internal(
            f"the machine refused: {cause.strerror}",
            reference=reference,
            reason=_ERRNO_REASONS.get(cause.errno, "io_error"),
            hint=f"nothing was changed; {advice_on(cause, 'make room or repair the disk')}, then try again",
        )
    return Internal(
        "an unexpected error; nothing of it is shown here",
        reference=reference,
        reason="crash",
        hint="search the server's log for the reference",
    )
