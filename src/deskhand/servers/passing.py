"""A call of another server's tool that passes, from when it begins until it is on the record.

That it began is kept at once. How it ended is kept when whoever called has the answer: they need not wait for it.
"""

import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from mcp.shared.exceptions import MCPError

from deskhand.app import Desk
from deskhand.askers import current_asker
from deskhand.audit.behind import Begun
from deskhand.errors import DeskError, Unavailable, printable
from deskhand.servers import callers

ACTOR = "guard_mcp"
_CANCELLED = Unavailable("the call was cancelled")


class PassingCall:
    """Cancelled, unless `end` says how it ended, which `record` puts on the record."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._error: DeskError | None = _CANCELLED
        self._started = time.perf_counter()
        self._entry: Begun | None = None

    def describe(
        self, server: str, tool: str, arguments: Mapping[str, Any], text: str
    ) -> None:
        """Say what is called and by whom, where that is known: the answer comes on somebody else's way."""
        facts = tuple(_name_facts(arguments).items())
        action, digest = printable(tool, 100), _digest_of(text)
        self._entry = Begun(self._desk.now(), ACTOR, action, server, facts, digest)
        self._desk.keep_begun(self._entry)

    def end(self, raised: DeskError | MCPError | None = None) -> None:
        """It gave its result, or raised this."""
        if isinstance(raised, MCPError):
            text = f"the server answered with an error: {printable(raised.message)}"
            raised = Unavailable(text)
        self._error = raised

    def record(self) -> None:
        milliseconds = round((time.perf_counter() - self._started) * 1000)
        assert self._entry is not None  # noqa: S101 - it was described
        self._desk.record_behind(self._entry, self._error, milliseconds)


def describe_call(
    server: str, tool: str, arguments: Mapping[str, Any], text: str
) -> tuple[str, str, str, dict[str, str]]:
    """Of a call, as `Desk.record` takes them: of the arguments their names, and a digest of them all."""
    facts = _name_facts(arguments) | {"digest": _digest_of(text)}
    return ACTOR, printable(tool, 100), server, facts


def _name_facts(arguments: Mapping[str, Any]) -> dict[str, str]:
    facts = {"arguments": printable(", ".join(sorted(arguments)), 200)}
    if client := callers.client():
        facts["client"] = printable(client)
    if asker := current_asker():
        facts["asker"] = asker
    return facts


def _digest_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()
