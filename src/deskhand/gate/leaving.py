"""Leaving a mailing list by one POST, exactly as it would be made."""

from collections.abc import Mapping
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from deskhand.errors import InvalidInput, printable
from deskhand.gate.face import NoMail


class LeaveList(NoMail):
    way_back = "Who has left a list can only join it again. Before it was done: move this file to Rejected/."
    caution = ("The list learns that somebody reads this address.",)
    noun = "request to leave"
    done = "been made"
    again = "make"
    where_to_look = "Look whether the list still writes to you."
    unknown = "the list may or may not have been left, and it is not told again by itself"
    file_type: ClassVar[str] = "leave_list"

    kind: Literal["unsubscribe"] = "unsubscribe"
    account: str
    sender: str
    """Who wrote the mail that names the address."""
    address: str
    signed_by: str
    """The domain whose signature the mail claims for what it says about leaving; nobody has checked it here."""

    @property
    def host(self) -> str:
        return urlsplit(self.address).hostname or ""

    @property
    def to(self) -> str:
        return self.host

    @property
    def target(self) -> str:
        return self.host

    @property
    def subject(self) -> str:
        return f"Leave the list of {printable(self.sender, 200)}"

    @property
    def body(self) -> str:
        return f"POST {self.address}\nList-Unsubscribe=One-Click\n"

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        return (
            ("list", self.sender),
            ("signed by, as the mail says", self.signed_by),
            ("address", self.address),
        )

    @property
    def question(self) -> str:
        return self.subject

    @property
    def about(self) -> str:
        return f"One POST would go to {self.host}, with nothing of you but what the address itself says."

    def edit(self, changes: Mapping[str, str]) -> "LeaveList":
        if any(getattr(self, key, "") != value for key, value in changes.items()):
            raise InvalidInput(
                "this is not edited", hint="say no to it, and how you want it done"
            )
        return self
