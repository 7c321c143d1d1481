"""An action of its own: mails are marked, moved or put into the trash, exactly those that the person sees in a list."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from deskhand.errors import InvalidInput, printable
from deskhand.gate.face import NoMail
from deskhand.mail.changes import Doing

_SAYS: dict[Doing, str] = {
    "read": "Mark {mails} as read",
    "unread": "Mark {mails} as unread",
    "star": "Star {mails}",
    "unstar": "Take the star off {mails}",
    "archive": "Archive {mails}",
    "unarchive": "Move {mails} back to the inbox",
    "trash": "Move {mails} to the trash",
    "untrash": "Take {mails} out of the trash",
    "label": "Put the label “{label}” on {mails}",
    "unlabel": "Take the label “{label}” off {mails}",
}


def say_change(do: Doing, label: str, count: int) -> str:
    """What is done with that many mails, as a wish."""
    mails = "1 mail" if count == 1 else f"{count} mails"
    return _SAYS[do].format(mails=mails, label=label)


class ListedMail(BaseModel):
    """A mail that is to be changed, as the person sees it in the list."""

    model_config = ConfigDict(frozen=True)

    id: str
    sender: str
    subject: str
    unread: bool


class UpdateEmails(BaseModel):
    model_config = ConfigDict(frozen=True)

    kind: Literal["update_emails"] = "update_emails"
    do: Doing
    label: str = ""
    mails: tuple[ListedMail, ...]


class MailChange(NoMail):
    """What would be done with exactly these mails. Nobody edits it."""

    way_back = "Nothing is deleted: what went into the trash comes out of it again, and marks are set as they were."
    caution = ("Nothing is deleted, and all of it can be undone.",)
    noun = "change"
    done = "been made"
    again = "make"
    where_to_look = "Look at these mails."
    unknown = "some of the mails may have been changed, and the rest is not done by itself"
    file_type: ClassVar[str] = "email_change"

    kind: Literal["update_emails"] = "update_emails"
    account: str
    do: Doing
    label: str = ""
    mails: tuple[ListedMail, ...]

    @property
    def target(self) -> str:
        return self.account

    @property
    def to(self) -> str:
        return self.account

    @property
    def subject(self) -> str:
        said = say_change(self.do, self.label, len(self.mails))
        if not self.unread:
            return said
        several = len(self.mails) > 1
        return f"{said}, {self.unread} of them unread" if several else f"{said}, unread"

    @property
    def body(self) -> str:
        lines = [f"{number}. {_line_of(mail)}" for number, mail in enumerate(self.mails, 1)]
        return "\n".join([f"{self.subject}.", "", *lines]) + "\n"

    @property
    def question(self) -> str:
        return self.subject

    @property
    def about(self) -> str:
        return f"It would be done in the mailbox of {self.account}, with exactly the mails that stand here."

    @property
    def unread(self) -> int:
        return sum(mail.unread for mail in self.mails)

    def edit(self, changes: Mapping[str, str]) -> "MailChange":
        """Another list would be another request; the same words change nothing."""
        if any(getattr(self, key) != value for key, value in changes.items()):
            raise InvalidInput(
                "a list of mails is not edited",
                hint="say no to it, and how you want it done",
            )
        return self


def _line_of(mail: ListedMail) -> str:
    seen = "unread, " if mail.unread else ""
    return f"{printable(mail.subject, 200) or '(no subject)'} ({seen}from {printable(mail.sender, 200)})"
