"""What the person did with a request's file since it was seen last."""

from dataclasses import dataclass

from deskhand.gate import files
from deskhand.gate.folders import Folders, RequestFile
from deskhand.gate.following import says_the_same
from deskhand.gate.question import Question
from deskhand.gate.requests import Request

_WAITS = "pending_approval"
"""What the desk writes into a file that waits. With a no it writes there that it was rejected."""


@dataclass(frozen=True, slots=True)
class Yes:
    found: RequestFile


@dataclass(frozen=True, slots=True)
class No:
    found: RequestFile


@dataclass(frozen=True, slots=True)
class Edited:
    found: RequestFile


@dataclass(frozen=True, slots=True)
class TakenBack:
    """A yes or a no whose file was moved back, or a yes whose file was deleted."""


@dataclass(frozen=True, slots=True)
class Away:
    """The folder of a yes is gone as a whole: the vault is not there, and nobody took anything back."""


@dataclass(frozen=True, slots=True)
class Outdated:
    """Whoever made the newest revision could not write its file: the process died, or has no vault."""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """The desk itself put the file there, or has seen it there before: that is no new answer."""


@dataclass(frozen=True, slots=True)
class Left:
    """Its file lies in Done/, of which the row knows nothing: the database is older, from a backup."""


Move = Yes | No | Edited | TakenBack | Away | Outdated | Misplaced | Left
"""What the person did with a file since it was seen last."""


def see(
    request: Request, found: RequestFile | None, folders: Folders, key: bytes
) -> Move | None:
    """What was done with the request's file, which lies at `found` now; None where that is nothing new."""
    if found is None:
        return _see_missing(request, folders)
    match found.folder:
        case "Rejected" if request.state == "rejected":
            return None
        case "Rejected" if request.folder == "Rejected":
            return Misplaced()  # a no that was taken back on the page
        case "Rejected":
            return No(found)
        case "Approved":
            return _see_approved(request, found, key)
        case _:
            return _see_waiting(request, found)


def _see_approved(request: Request, found: RequestFile, key: bytes) -> Move | None:
    seen = request.folder == "Approved"
    unconfirmed = seen and request.resting == "unconfirmed"
    if seen and request.state != "approved" and not unconfirmed:
        return Misplaced()
    if request.home == "Drafts":
        same = says_the_same(found, request)
        if request.state == "approved":
            return None if same else Edited(found)
        return None if same and unconfirmed else Yes(found)
    if files.is_intact(found, request, key):
        return None if request.state == "approved" or unconfirmed else Yes(found)
    return Outdated() if _is_outdated(found, request) else Edited(found)


def _see_missing(request: Request, folders: Folders) -> Move | None:
    if request.state == "unknown":
        return Outdated()
    if request.state != "approved" or request.folder != "Approved":
        return None
    return TakenBack() if folders.has("Approved") else Away()


def _see_waiting(request: Request, found: RequestFile) -> Move | None:
    if request.state == "rejected" and found.properties.get("status") == _WAITS:
        return Misplaced()  # the no is older than this file, or than this copy of it
    if request.state in ("approved", "rejected") and request.folder == request.place:
        return TakenBack()
    if _is_outdated(found, request):
        return Outdated()
    if request.home == "Drafts" and not says_the_same(found, request):
        return Edited(found)
    return None


def _is_outdated(found: RequestFile, request: Request) -> bool:
    """Whether a sealed request's file is that of an earlier revision, or still the draft that it was."""
    if request.home == "Drafts":
        return False
    if files.is_draft(found):
        return True
    return (
        files.is_sealed_for(found, request)
        and files.written_revision(found) < request.revision
    )


def lies_in_done(request: Request, folders: Folders) -> bool:
    """Whether the vault knows of its leaving what the row does not: the database is older, from a backup."""
    if request.may_have_left or request.state == "rejected":
        return False
    if isinstance(request.action, Question):
        return False
    found = folders.read("Done", request.file)
    if found is None or found.properties.get("status") not in ("done", "unknown"):
        return False
    return files.is_file_of(found, request)
