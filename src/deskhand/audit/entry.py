"""One line of the record: who did what to which thing, when, and how it ended."""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from deskhand import clock
from deskhand.errors import Denied, DeskError, InvalidInput, NotFound

Result = Literal["success", "rejected", "rate_limited", "error", "dev_mode"]


class Entry(BaseModel):
    """The contract's AuditLogEntry."""

    model_config = ConfigDict(frozen=True)

    timestamp: str
    correlation_id: str
    actor: str
    action_type: str
    target: str
    result: Result
    duration_ms: int | None = None
    parameters: dict[str, Any] | None = None
    error: str | None = None

    @classmethod
    def of(
        cls,
        now: datetime,
        by: str,
        what: str,
        target: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        error: DeskError | str | None = None,
        result: Result | None = None,
        milliseconds: int | None = None,
    ) -> Self:
        """An entry with an id of its own. Without a `result` it is the one that the error means."""
        text = f"{error.code}: {error.message}" if isinstance(error, DeskError) else error
        return cls(
            timestamp=clock.iso(now),
            correlation_id=str(uuid.uuid4()),
            actor=by,
            action_type=what,
            target=target,
            result=result or _result_of(error),
            duration_ms=milliseconds,
            parameters=None if parameters is None else dict(parameters),
            error=text,
        )


def _result_of(error: DeskError | str | None) -> Result:
    match error:
        case None:
            return "success"
        case Denied() | InvalidInput() | NotFound():
            return "rejected"
        case _:
            return "error"
