"""What the two mail servers have in common: their arguments' descriptions, and how a call goes on the record."""

from typing import Annotated, Any

from mcp_types import ToolAnnotations
from pydantic import Field

from deskhand.app import Desk
from deskhand.audit import Result, masked
from deskhand.errors import DeskError, printable
from deskhand.servers import Call, Recorder

SENDS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)
DRAFTS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True)
FETCHES = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
FILES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=True)

To = Annotated[str, Field(description="Recipient email address")]
Subject = Annotated[str, Field(max_length=998, description="Email subject line")]

# Of an unknown argument nobody knows what is in it, so only these are ever written down.
_RECORDED = frozenset(
    {
        "to",
        "subject",
        "query",
        "max_results",
        "thread_id",
        "message_id",
        "reply_to_message_id",
        "destination_label",
        "label_name",
    }
)


def on_record(error: DeskError) -> DeskError:
    """An error about what the gate has written down already."""
    error.on_record = True
    return error


def recorder(desk: Desk, actor: str) -> Recorder:
    """One entry for each call. What the gate did is on the record already, written together with its effect."""

    async def record(call: Call) -> None:
        error = call.error
        gated = call.tool in ("send_email", "reply_email")
        if gated and (error is None or error.on_record):
            return
        parameters = {key: _shown(key, value) for key, value in call.arguments.items() if key in _RECORDED}
        parameters |= {"client": call.client} if call.client else {}
        target = next((parameters[key] for key in ("to", "message_id", "thread_id", "query") if key in parameters), "-")
        logged_only = call.tool == "draft_email" and error is None and desk.settings.dev_mode
        result: Result | None = "dev_mode" if logged_only else None
        await desk.record(actor, call.tool, target, parameters, error, call.milliseconds, result=result, in_vault=True)

    return record


def _shown(key: str, value: Any) -> str:
    return masked(printable(value)) if key == "to" else printable(value)
