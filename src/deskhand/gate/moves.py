"""What the person did with a request's file since it was seen last."""

from dataclasses import dataclass

from deskhand.gate import files
from deskhand.gate.folders import Folders, RequestFile
from deskhand.gate.following import says_the_same
from deskhand.gate.requests import Request


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


def see_missing(request: Request, folders: Folders) -> Move | None:
    if request.state == "unknown":
        return Outdated()
    if request.state != "approved" or request.folder != "Approved":
        return None
    return TakenBack() if folders.has("Approved") else Away()


def see_waiting(request: Request, found: RequestFile) -> Move | None:
    if request.state in ("approved", "rejected") and request.folder == request.place:
        return TakenBack()
    if is_outdated(found, request):
        return Outdated()
    if request.home == "Drafts" and not says_the_same(found, request):
        return Edited(found)
    return None


def is_outdated(found: RequestFile, request: Request) -> bool:
    """Whether a sealed request's file is that of an earlier revision, or still the draft that it was."""
    if request.home == "Drafts":
        return False
    if files.is_draft(found):
        return True
    return files.names(found, request) and files.written_revision(found) < request.revision
