"""What may have left, though nobody knows: it waits for the person, and never again as an ordinary request."""

from datetime import datetime

from deskhand import audit
from deskhand.config import Settings
from deskhand.errors import OutcomeUnknown
from deskhand.gate import ledger
from deskhand.gate.actions import Action
from deskhand.gate.ledger import Conflict
from deskhand.gate.record import GateCall, facts_of
from deskhand.gate.requests import Request
from deskhand.store import Transaction

LEFT = "It may have left already: its file lies in Done/, though this desk was put back to a time before that."


def doubt(tx: Transaction, request: Request, now: datetime) -> Request | Conflict:
    """A restored request that left after its backup waits as one that may have left; the
    record says since when."""
    changes = request.wait_again(f"{LEFT} {request.action.where_to_look}", now)
    changes |= {"token": request.send_id, "snoozed": None}
    doubted = ledger.change(tx, request, "unknown", **changes)
    if isinstance(doubted, Request):
        call = GateCall("vault", request.action.kind, request.action.target, now)
        audit.append(tx, call.entry("error", f"unknown: {LEFT}", now, **facts_of(request)))
    return doubted


def describe_doubt(action: Action, why: str) -> str:
    """What its card says where nobody knows whether it left."""
    return (
        f"This {action.noun} may have {action.done} already ({why}). {action.where_to_look} To {action.again} it"
        " once more, move this file to Approved/; to leave it at that, to Rejected/."
    )


def describe_unknown(settings: Settings, action: Action, file: str) -> OutcomeUnknown:
    path = settings.own_path("Pending_Approval", file)
    return OutcomeUnknown(
        f"outcome unknown; {action.unknown}",
        hint=f"the person can look into the Sent folder and decide with {path}",
        reason="unknown",
        request=path,
    )
