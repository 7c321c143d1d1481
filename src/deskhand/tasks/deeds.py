"""What somebody did to tasks, as the record needs it: who, what, to which task and how it ended.

Of a task's text only the title goes there, under the record's own rule for subjects.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deskhand.errors import DeskError
from deskhand.store import Transaction

ACTOR = "X-Deskhand-Actor"
"""By which door of the desk the service came; believed only with the service's token."""
RECORDED = "X-Deskhand-Recorded"
"""On an answer about something that is on the backend's record, so that nobody writes it down twice."""
DOORS = frozenset({"tasks_mcp", "tasks_cli"})


@dataclass(frozen=True, slots=True)
class Deed:
    actor: str
    user: str
    action: str
    target: str
    parameters: Mapping[str, Any]
    error: DeskError | None
    milliseconds: int


Record = Callable[[Transaction, Deed], None]
