"""What the person makes of a request before they say yes to it."""

import re
from dataclasses import dataclass

from deskhand.gate.actions import Action
from deskhand.gate.requests import Request

_BLANK_LINES = re.compile(r"\A\s*\n")


@dataclass(frozen=True, slots=True)
class Letter:
    """The words of a mail that the person may change."""

    to: str
    subject: str
    body: str
    cc: str | None = None
    """None: as it is."""
    bcc: str | None = None


def edit_action(request: Request, letter: Letter) -> Action:
    body = letter.body.replace("\r\n", "\n")
    if request.home == "Drafts" and body.strip():
        body = trim(body)  # as a note is read
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


def trim(body: str) -> str:
    """The text of a draft's note: whichever line ends an editor writes, and without the blank lines around it."""
    text = _BLANK_LINES.sub("", body.replace("\r\n", "\n"))
    words = text.rstrip()
    if not words:
        return ""
    blanks, _, _ = text[len(words) :].partition("\n")
    return f"{words}{blanks}\n"
