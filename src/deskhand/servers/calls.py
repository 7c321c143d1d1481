"""Who puts a call on the record, and what the door writes of it.

Every call that is recorded at all is recorded once. Where the gate or the tasks backend writes an entry together
with the effect, the tool says so in its result; everything else is written here, at the door.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from deskhand.app import Desk
from deskhand.errors import DeskError, OutOfScope

T = TypeVar("T")
RecordedBy = Literal["door", "gate", "backend", "nobody"]
"""Who records the calls of a tool. What never reached the gate or the backend is recorded by the door, and so is
a call out of the caller's scope, whatever the tool."""

_TARGETS = ("path", "source", "task_id", "recipient", "message_id", "id")
# Names of things and how they were changed, never what somebody wrote into them.
_RECORDED = frozenset(
    {
        *_TARGETS,
        *(
            "destination",
            "if_match",
            "merge",
            "update_links",
            "template",
            "date",
            "create",
            "vault",
        ),
        *("task_ids", "action", "decision", "status"),
    }
)


@dataclass(frozen=True, slots=True)
class ToolResult(Generic[T]):
    """How a call ended: what the tool gives back or why it refused, and whether that is on the record already."""

    content: T | DeskError
    recorded: bool = False
    waits: str | None = None
    """The request whose answer is still to come, where that is no refusal."""


@dataclass(frozen=True, slots=True)
class Call:
    """One finished tool call, as the record needs it."""

    tool: str
    arguments: dict[str, Any]
    error: DeskError | None
    milliseconds: int
    client: str | None = None
    """The name of the token it came with."""
    asker: str | None = None
    """Who called, as a person knows them."""

    @property
    def out_of_scope(self) -> bool:
        return isinstance(self.error, OutOfScope)

    def with_client(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters of its entry, and who called where that is known."""
        known = {"client": self.client, "asker": self.asker}
        return parameters | {name: value for name, value in known.items() if value}


Recorder = Callable[[Call], Awaitable[None]]


def recorder(desk: Desk, actor: str) -> Recorder:
    """Writes the names among the arguments: which note or task, and where to, but no text."""

    async def record(call: Call) -> None:
        kept = {key: value for key, value in call.arguments.items() if key in _RECORDED}
        target = next((kept[key] for key in _TARGETS if kept.get(key)), "-")
        await desk.record(
            actor, call.tool, target, call.with_client(kept), call.error, call.milliseconds
        )

    return record
