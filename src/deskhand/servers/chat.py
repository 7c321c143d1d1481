"""What a chat client can do with a request that waits: show it, or open its card; `handles` lets it wait.

Each is for clients that say so, and none is an answer: whoever opens the card answers on the desk's own page.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID
from mcp.server.extension import Extension, ResourceBinding
from mcp.server.mcpserver.context import Context
from mcp.server.mcpserver.resources import TextResource
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import (
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestURLParams,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from deskhand.app import Desk
from deskhand.errors import AwaitsPerson, DeskError
from deskhand.servers.handles import wants_task

CARD = "ui://deskhand/card.html"
SHOWN_AS_CARD = {"ui": {"resourceUri": CARD}}
"""On a tool: clients that know MCP Apps show its calls so."""
_ASKED = "This waits for your answer on your desk's own page."


def name_card(desk: Desk, error: DeskError) -> str | None:
    """Say in a refusal where the person answers; the address, where it waits for them and a desk runs."""
    card = desk.card_address(error.id) if isinstance(error, AwaitsPerson) else None
    if card is not None:
        error.details["card"] = card
        said = error.waiting_note or error.said or error.message
        error.waiting_note = f"{said}\nThe person answers at {card}"
    return card


def offer_card(
    error: AwaitsPerson, card: str, context: Context[None, Any] | None
) -> InputRequiredResult | None:
    """Let the client ask the person to open the card, once for each request; None where it cannot.

    A client of the older revisions hears it as an error of the protocol, which is theirs for this.
    """
    if (
        context is None
        or not error.is_new
        or not _opens_addresses(context.client_capabilities)
    ):
        return None
    if wants_task(context.request_context):  # the handle has the address
        return None
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        asked = ElicitRequest(params=ElicitRequestURLParams(message=_ASKED, url=card))
        return InputRequiredResult(input_requests={error.id: asked})
    raise UrlElicitationRequiredError(
        [ElicitRequestURLParams(message=_ASKED, url=card, elicitation_id=error.id)]
    )


def _opens_addresses(client: ClientCapabilities | None) -> bool:
    if client is None or client.elicitation is None:
        return False
    return client.elicitation.url is not None


class AppCard(Extension):
    """MCP Apps: a card in the chat that shows what was asked for and opens the page. It
    has nothing to answer with."""

    identifier = EXTENSION_ID

    def resources(self) -> Sequence[ResourceBinding]:
        shown = TextResource(
            uri=CARD, name="card", title="A request", mime_type=APP_MIME_TYPE, text=_card()
        )
        return [ResourceBinding(shown)]


@cache
def _card() -> str:
    return Path(__file__).with_name("card.html").read_text(encoding="utf-8")
