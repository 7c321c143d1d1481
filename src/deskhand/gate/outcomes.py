"""What comes of asking for something to leave the desk: values, each told apart by its type."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from deskhand.audit import Result
from deskhand.config import OffReason
from deskhand.errors import (
    AuthRequired,
    Denied,
    DeskError,
    InvalidInput,
    OutcomeUnknown,
    ProviderDown,
    RateLimited,
    SendFailed,
)
from deskhand.gate.actions import Action
from deskhand.gate.rate import Limits
from deskhand.mail import Sent, Unclear

_OFF: dict[OffReason, str] = {
    "dev_mode": "DEV_MODE is on",
    "copy": "this desk is a copy of another one and sends nothing",
}
_OFF_HINTS: dict[OffReason, str] = {
    "dev_mode": "set DEV_MODE=false",
    "copy": "ask the desk that it is a copy of; `deskhand doctor` says where that is",
}
_CERTAINLY_NOT_SENT = (SendFailed, RateLimited, AuthRequired, Denied, InvalidInput)


@dataclass(frozen=True, slots=True)
class Released:
    """It left, exactly as the person approved it."""

    mail: Sent
    at: datetime
    edited: bool
    """The person changed what was proposed before saying yes."""
    action: Action
    """What left."""
    earlier: str | None = None
    """The request by which it left before this call; this call sent nothing."""


@dataclass(frozen=True, slots=True)
class SendingOff:
    """It was logged and not sent."""

    why: OffReason


@dataclass(frozen=True, slots=True)
class Limited:
    limits: Limits
    wait: timedelta


@dataclass(frozen=True, slots=True)
class Failed:
    error: DeskError


@dataclass(frozen=True, slots=True)
class NotTaken:
    """Certainly not sent."""

    error: DeskError


@dataclass(frozen=True, slots=True)
class NotSeen:
    """The answer was lost, and looking failed too: whoever comes next looks again."""

    error: DeskError


Attempt = Sent | Unclear | NotTaken | NotSeen
"""What comes of one try to send."""
Departure = Released | SendingOff | Limited | Failed
"""What comes of a mail that a person has approved."""


@dataclass(frozen=True, slots=True)
class NotApproved:
    """Not yet answered, answered with no, and expired are different answers."""

    why: Literal["waiting", "rejected", "expired", "changed", "not_found", "permitted"]
    request: str
    """Where the request lies in the vault."""
    note: str
    waits: str | None = None
    """The id of the request that waits for the person's answer."""
    is_new: bool = False
    waiting_note: str | None = None
    """That it waits, since when and until when, for an assistant."""


Outcome = Departure | NotApproved


def result_of(outcome: Departure) -> tuple[Result, str | None]:
    """How the record calls it, and the error."""
    match outcome:
        case Released():
            return "success", None
        case SendingOff("copy" as why):
            return "dev_mode", _OFF[why]
        case SendingOff():
            return "dev_mode", None
        case Limited():
            return "rate_limited", None
        case Failed(error):
            return "error", error.line


def say_off(why: OffReason, consequence: str) -> str:
    return f"{_OFF[why]}: {consequence}"


def refuse_off(why: OffReason, consequence: str) -> Denied:
    return Denied(say_off(why, consequence), reason=why, hint=_OFF_HINTS[why])


def says_not_sent(error: DeskError | TimeoutError) -> bool:
    return isinstance(error, _CERTAINLY_NOT_SENT) and not isinstance(error, OutcomeUnknown)


def explain(error: DeskError | TimeoutError) -> DeskError:
    if isinstance(error, DeskError):
        return error
    return ProviderDown("the mailbox did not answer in time")
