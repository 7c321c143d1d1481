"""Files in Approved/ that release nothing, each with its reason: nobody should wait for a mail that will not leave."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from deskhand.errors import InvalidInput
from deskhand.gate import authorship, files, handwritten, ledger, sends
from deskhand.gate.folders import RequestFile
from deskhand.gate.requests import Request
from deskhand.store import Transaction

_NOT_THE_PERSONS = (
    "an assistant wrote or moved a note that says the same, so it is not the person's word"
)


@dataclass(frozen=True, slots=True)
class IdleFile:
    path: str
    why: str


def find(
    tx: Transaction,
    found: list[RequestFile],
    now: datetime,
    unopened: Mapping[str, str],
    *,
    sealed: bool,
) -> list[IdleFile]:
    """Those that release nothing; `unopened` says of a draft why it could not be made a request."""
    reasons = [(each, _explain(tx, each, now, unopened, sealed=sealed)) for each in found]
    return [IdleFile(each.path, why) for each, why in reasons if why]


def _explain(
    tx: Transaction,
    found: RequestFile,
    now: datetime,
    unopened: Mapping[str, str],
    *,
    sealed: bool,
) -> str | None:
    """Why the file releases nothing; None where it does, or will when its mail is asked for."""
    given = found.properties
    named = given.get("draft_id") or given.get("action_id")
    request = ledger.find(tx, str(named)) if named else None
    if request is not None:
        return _explain_request(request, found)
    if handwritten.is_sealed(given):
        return "no request of this desk has its id"
    if files.is_draft(found):
        return _explain_draft(
            tx, found, unopened.get(found.path, "the mail that it answers is not read yet")
        )
    if handwritten.is_approval(given):
        return _explain_approval(tx, found, now, sealed=sealed)
    return _explain_note(found)


def _explain_request(request: Request, found: RequestFile) -> str | None:
    match request.state:
        case "approved" | "sending" if request.file != found.name:
            return f"what counts for {request.id} is Approved/{request.file}"
        case "waiting" | "held" | "unknown" if request.fault:
            return request.fault
        case "waiting" | "held" | "unknown" if request.resting == "unconfirmed":
            how = f"answer {request.id} on the page, or run `deskhand approve {request.id}`"
            return f"a file alone is no yes here (approvals are sealed here, or need a stronger proof): {how}"
        case "waiting" | "held" | "unknown" | "approved" | "sending":
            return None
        case "sent":
            return "its mail was sent; it is used up"
        case ended:
            return f"its request is {ended}"


def _explain_draft(tx: Transaction, found: RequestFile, why: str) -> str:
    if authorship.is_a_tools_mail(tx, found.properties, found.body):
        return _NOT_THE_PERSONS
    try:
        files.read_draft(found)
        files.demand_open(found)
    except InvalidInput as error:
        return error.message
    return f"{why}; it is looked at again"


def _explain_approval(
    tx: Transaction, found: RequestFile, now: datetime, *, sealed: bool
) -> str | None:
    if sealed:
        return "approvals are sealed here, or need a stronger proof: a file written by hand does not count"
    if authorship.is_a_tools_yes(tx, found.properties):
        return _NOT_THE_PERSONS
    if sends.was_used(tx, found):
        return "it, or a file with its very words, was used before; write it anew to say yes once more"
    return handwritten.explain_approval(found.properties, now)


def _explain_note(found: RequestFile) -> str:
    if not found.properties:
        return "it has no properties that can be read, so it names no recipient"
    kind = found.properties.get("type")
    if kind is None:
        return "a mail needs `to` and `subject`, an approval `type`, `status` and `to`"
    return f"its type {kind!s:.40} is none that releases a mail"
