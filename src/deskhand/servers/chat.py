"""What a chat client can do with a request that waits: show it, open its card, or wait for it by a handle.

Each is for clients that say so, and none is an answer: whoever opens the card answers on the desk's own page.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding, ResourceBinding
from mcp.server.mcpserver.context import Context
from mcp.server.mcpserver.resources import TextResource
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestURLParams,
    InputRequiredResult,
    RequestParams,
    Result,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from deskhand.clock import iso
from deskhand.errors import AwaitsPerson
from deskhand.gate.requests import LIFETIME, OPEN, Request

TASKS = "io.modelcontextprotocol/tasks"
CARD = "ui://deskhand/card.html"
SHOWN_AS_CARD = {"ui": {"resourceUri": CARD}}
"""On a tool: clients that know MCP Apps show its calls so."""
_POLL = 5000
_ASKED = "This waits for your answer on your desk's own page."


def offer_card(error: AwaitsPerson, card: str, context: Context[None, Any] | None) -> InputRequiredResult | None:
    """Let the client ask the person to open the card, once for each request; None where it cannot.

    A client of the older revisions hears it as an error of the protocol, which is theirs for this.
    """
    if context is None or not error.is_new or not _opens_addresses(context.client_capabilities):
        return None
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        asked = ElicitRequest(params=ElicitRequestURLParams(message=_ASKED, url=card))
        return InputRequiredResult(input_requests={error.id: asked})
    raise UrlElicitationRequiredError([ElicitRequestURLParams(message=_ASKED, url=card, elicitation_id=error.id)])


def _opens_addresses(client: ClientCapabilities | None) -> bool:
    """Whether the client opens addresses for the person; one that waits by a handle has the address there."""
    if client is None or client.elicitation is None or TASKS in (client.extensions or {}):
        return False
    return client.elicitation.url is not None


class AppCard(Extension):
    """MCP Apps: a card in the chat that shows what was asked for and opens the page. It has nothing to answer with."""

    identifier = EXTENSION_ID

    def resources(self) -> Sequence[ResourceBinding]:
        shown = TextResource(uri=CARD, name="card", title="A request", mime_type=APP_MIME_TYPE, text=_card())
        return [ResourceBinding(shown)]


@cache
def _card() -> str:
    return Path(__file__).with_name("card.html").read_text(encoding="utf-8")


class Handle(Result):
    """A request as a task: how far it has come, and once it ended, what its call would have answered."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    result_type: Literal["task", "complete"]
    task_id: str
    status: Literal["working", "completed"]
    status_message: str
    created_at: str
    last_updated_at: str
    ttl_ms: int = int(LIFETIME.total_seconds() * 1000)
    poll_interval_ms: int = _POLL
    result: dict[str, Any] | None = None


class TaskParams(RequestParams):
    task_id: str


class Handles(Extension):
    """The tasks extension: a call that waits for the person is answered with a handle, whose id is the request's."""

    identifier = TASKS

    def __init__(
        self, find: Callable[[str], Awaitable[Request]], describe: Callable[[Request], CallToolResult]
    ) -> None:
        self._find = find
        self._describe = describe

    def methods(self) -> Sequence[MethodBinding]:
        modern = frozenset(MODERN_PROTOCOL_VERSIONS)
        served = {"tasks/get": self._get, "tasks/update": self._acknowledge, "tasks/cancel": self._acknowledge}
        return [MethodBinding(name, TaskParams, handler, modern) for name, handler in served.items()]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        del params
        ended = await call_next(ctx)
        client = ctx.session.client_capabilities
        declared = client is not None and TASKS in (client.extensions or {})
        waiting = _waiting_in(ended)
        if waiting is None or not declared or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return ended
        waits, message = waiting
        return self._handle(await self._find(waits), "task", message)

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
        del ctx
        return self._handle(await self._find(params.task_id), "complete", _ASKED)

    async def _acknowledge(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
        """Heard, and no more: what waits before the person is theirs to answer."""
        del ctx
        await self._find(params.task_id)
        return Result()

    def _handle(self, request: Request, kind: Literal["task", "complete"], message: str) -> Handle:
        changed = request.decided or request.created
        made = Handle(
            result_type=kind,
            task_id=request.id,
            status="working",
            status_message=message,
            created_at=iso(request.created),
            last_updated_at=iso(changed),
        )
        if request.state in OPEN or kind == "task":
            return made
        result = self._describe(request).model_dump(mode="json", by_alias=True, exclude_none=True)
        ended = {"status": "completed", "status_message": request.state, "result": result}
        return made.model_copy(update=ended)


def _waiting_in(ended: HandlerResult) -> tuple[str, str] | None:
    """The id of the request that a call was refused for, because it waits, and what the refusal says."""
    if not isinstance(ended, CallToolResult) or not ended.is_error:
        return None
    match (ended.meta or {}).get("deskhand/error"):
        case {"message": str(message), "details": {"reason": "no_approval", "id": str(waits)}}:
            return waits, message
        case _:
            return None
