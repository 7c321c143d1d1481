"""What the person makes of a request before they say yes to it."""

from dataclasses import dataclass

from deskhand.gate.actions import Action
from deskhand.gate.requests import Request


@dataclass(frozen=True, slots=True)
class Letter:
    """What a person may change before saying yes."""

    to: str
    subject: str
    body: str
    cc: str | None = None
    """None: as it is."""
    bcc: str | None = None


def edit_action(request: Request, letter: Letter) -> Action:
    body = letter.body.replace("\r\n", "\n")
    if request.home == "Drafts" and body.strip():
        body = f"{body.strip()}\n"  # as a note is read
    changes = {
        "to": letter.to,
        "cc": letter.cc,
        "bcc": letter.bcc,
        "subject": letter.subject,
        "body": body,
    }
    return request.action.edit(
        {name: value for name, value in changes.items() if value is not None}
    )
