"""A call of another server's tool that passes, from when it begins until it is on the record."""

import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from mcp.shared.exceptions import MCPError

from deskhand.app import Desk
from deskhand.audit.behind import Begun
from deskhand.errors import DeskError, Unavailable, printable
from deskhand.servers import callers

ACTOR = "guard_mcp"
CANCELLED = Unavailable("the call was cancelled")


class PassingCall:
    """Around what gives its result: how that ends goes on the record."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._started = time.perf_counter()
        self._entry: Begun | None = None

    def describe(
        self, server: str, tool: str, arguments: Mapping[str, Any], text: str
    ) -> None:
        """Say what is called and by whom, where that is known: the answer comes on somebody else's way."""
        facts = describe_call(server, tool, arguments, text)
        self._entry = self._desk.begin_entry(*facts)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, raised: BaseException | None, trace: object) -> None:
        match raised:
            case None | DeskError():
                self.record(raised)
            case MCPError(message=said):
                text = f"the server answered with an error: {printable(said)}"
                self.record(Unavailable(text))
            case _:
                self.record(CANCELLED)

    def record(self, error: DeskError | None) -> None:
        milliseconds = round((time.perf_counter() - self._started) * 1000)
        assert self._entry is not None  # noqa: S101 - it was described
        self._desk.record_behind(self._entry, error, milliseconds)


def describe_call(
    server: str, tool: str, arguments: Mapping[str, Any], text: str
) -> tuple[str, str, str, dict[str, str]]:
    """Of a call, as `Desk.record` takes them: of the arguments their names, and a digest of them all."""
    digest = sha256(text.encode()).hexdigest()
    facts = {"arguments": printable(", ".join(sorted(arguments)), 200), "digest": digest}
    if client := callers.client():
        facts["client"] = client
    return ACTOR, printable(tool, 100), server, facts
