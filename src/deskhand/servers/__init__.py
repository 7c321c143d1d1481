"""The MCP servers of the desk, and what can be said of each without loading it.

The server NAME is made from a desk in the module deskhand.servers.NAME. All of them are a DeskServer (server.py)
with tools (tool.py); the SDK is loaded only when a server is made.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deskhand.app import Desk
    from deskhand.servers.server import DeskServer
    from deskhand.tokens import Area


@dataclass(frozen=True, slots=True)
class ServerKind:
    name: str
    path: str
    """Where the running desk answers for it."""
    title: str
    area: "Area | None" = None
    """The part of the desk that it opens; None for all of them."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """What a token may open here."""
        from deskhand.tokens import SCOPES

        return tuple(
            each for each in SCOPES if self.area is None or each.startswith(f"{self.area}:")
        )

    def make(self, desk: "Desk", token: str | None = None, **options: Any) -> "DeskServer":
        """The server over this desk; with a token it lets nobody in who shows none."""
        module = import_module(f"deskhand.servers.{self.name}")
        server: DeskServer = getattr(module, f"{self.name}_server")(desk, token, **options)
        return server


SERVERS = {
    kind.name: kind
    for kind in (
        ServerKind("desk", "/mcp", "the whole desk"),
        ServerKind("email", "/email/mcp", "mail: search, draft, ask to send", "mail"),
        ServerKind("gmail", "/gmail/mcp", "mail: list, read, label, ask to send", "mail"),
        ServerKind("obsidian", "/obsidian/mcp", "notes", "notes"),
        ServerKind("tasks", "/tasks/mcp", "tasks", "tasks"),
        ServerKind("agentmail", "/agentmail/mcp", "messages between agents", "agents"),
        ServerKind(
            "claude", "/claude/mcp", "Claude Code's own permission prompts", "guard"
        ),
    )
}


def guarded_kind(name: str) -> ServerKind:
    """What can be said of another server behind the gate; the module `foreign` opens the door to it."""
    return ServerKind(
        name, f"/guard/{name}/mcp", f"the server {name} behind your gate", "guard"
    )
