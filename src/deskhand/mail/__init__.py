"""Mail: one protocol, three mailboxes (local, gmail, imap), and several of them as one. Knows nothing of approval.

Sending is three steps, so that it can never happen twice: `prepare` gives a token, `send` has it written down at the
last moment in which certainly nothing has left, and `check` tells what became of a send whose answer was lost.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, count
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from deskhand.mail.changes import Deed

SLOW_LINE = 100_000
"""Bytes a second of a line that takes its time: mails with large files leave on it all the same."""
BodyFrom = Literal["plain", "html", "none"]
Keep = Callable[[str], Awaitable[None]]
"""Writes down a token for good; raises where that could not be, and then nothing may be sent."""


@dataclass(frozen=True, slots=True)
class Attachment:
    name: str
    content_type: str
    size: int
    charset: str = ""
    """Of a text, as its sender says."""


class MailSummary(NamedTuple):
    """A mail as a list shows it; of which there are many, and a tuple is made in half the
    time of a frozen class."""

    id: str
    thread_id: str
    sender: str
    """The From header, decoded."""
    to: str
    subject: str
    date: datetime
    """When it arrived, UTC; what its own Date header claims is `date_header`."""
    date_header: str
    snippet: str
    labels: tuple[str, ...]
    label_ids: tuple[str, ...] = ()
    """The provider's own ids of the labels, where it has any beside their names."""
    account: str = ""
    """The address of the account that has it, where the desk has several; the alias that it was sent to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailContent:
    """What a reader sees of a mail beyond its summary."""

    cc: str
    reply_to: str
    message_id: str
    """The Message-ID header, with its angle brackets; empty where there is none."""
    references: tuple[str, ...]
    body: str
    body_from: BodyFrom
    warnings: tuple[str, ...]
    """What a reader should know: hidden text removed (how much), links that show another
    host, text that was cut."""
    attachments: tuple[Attachment, ...]
    list_mail: bool
    """A mailing list, a newsletter or a machine says that it sent this to many."""
    calm: tuple[str, ...] = ()
    """Those of the warnings that ordinary mail has too, such as about a newsletter's preheader."""
    list_id: str = ""
    """By which a mailing list names itself (List-Id), without its brackets."""
    list_post: str = ""
    """The address that a mailing list takes mails at."""
    followup_to: str = ""
    """Whom an answer to all should go to, as its sender wishes (Mail-Followup-To)."""
    has_html: bool = False
    """It can be looked at as its sender meant it, whatever `body` was taken from."""

    @property
    def file_names(self) -> list[str]:
        """By which its attachments are asked for."""
        return tell_apart(each.name for each in self.attachments)

    @property
    def alarms(self) -> tuple[str, ...]:
        """The warnings that should make a reader careful."""
        return tuple(each for each in self.warnings if each not in self.calm)


def tell_apart(names: Iterable[str]) -> list[str]:
    """The same names, each once: the second of a name is NAME#2."""
    found: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}#{number}" for number in count(2))
        found[next(each for each in chain([name], numbered) if each not in found)] = None
    return list(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullMessage(MailContent):
    summary: MailSummary


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Exactly what would leave: the bytes, who gets them, and which action they belong to."""

    raw: bytes
    recipients: tuple[str, ...]
    message_id: str
    action_id: str
    thread_id: str | None = None
    bcc: tuple[str, ...] = ()
    """Those of the recipients whom no header names."""
    account: str = ""
    """The address from which it leaves."""


@dataclass(frozen=True, slots=True)
class SavedDraft:
    id: str
    """The draft's own id, where the provider has one beside its mail's."""
    message_id: str
    thread_id: str


@dataclass(frozen=True, slots=True)
class Sent:
    message_id: str
    """The provider's id of the sent mail, not its Message-ID header."""
    thread_id: str
    remark: str | None = None
    """What the person should know of it, though it left."""
    result: str | None = None
    """What another server answered to a call, as JSON; of a mail there is none."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """Certainly not sent; `send` may be called with this token."""

    token: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """It may or may not have been sent: a person decides."""

    why: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """The mails that came into the inbox, and the cursor after them."""

    ids: tuple[str, ...]
    cursor: str


class Mailbox(Protocol):
    async def address(self) -> str:
        """The mailbox's own address."""

    async def search(self, query: str, limit: int) -> list[MailSummary]:
        """Gmail's search syntax; newest first; an empty query is everything."""

    async def get(self, message_id: str) -> FullMessage: ...

    async def read_raw(self, message_id: str) -> bytes:
        """The mail's own bytes."""

    async def thread(self, thread_id: str) -> list[MailSummary]:
        """All mails of a thread, oldest first; NotFound where there is none."""

    async def move(self, message_id: str, label: str) -> None:
        """Add the label (made where it is missing), remove INBOX."""

    async def add_label(self, message_id: str, label: str) -> None: ...

    async def list_mails(self, ids: Sequence[str]) -> list[MailSummary]:
        """These mails, in this order; NotFound where one is not there."""

    async def change(self, ids: Sequence[str], change: "Deed") -> int:
        """Do something with mails; with how many. Those that are gone are left out, and none is ever expunged."""

    async def create_draft(self, raw: bytes, thread_id: str | None) -> SavedDraft:
        """Put a draft into the mailbox."""

    async def prepare(self, mail: Outgoing) -> str:
        """Make a token for one send; nothing leaves yet."""

    async def send(self, token: str, mail: Outgoing, keep: Keep) -> Sent:
        """Send once. SendFailed and RateLimited mean certainly not sent; OutcomeUnknown that nobody knows.

        Until `keep` has returned nothing can have left. Whoever learns more later keeps a token that says more.
        """

    async def check(self, token: str, mail: Outgoing) -> Sent | NotSent | Unclear:
        """What became of a send whose answer was lost."""

    async def close(self) -> None: ...


class WatchedMailbox(Mailbox, Protocol):
    """The mailbox of one account, which tells what arrives in it."""

    async def position(self) -> str:
        """A cursor at the end of the inbox: whatever arrives from now on lies after it."""

    async def find_arrived(self, cursor: str) -> Arrived | None:
        """What came into the inbox after the cursor, whatever its date says; None where the cursor is void."""

    async def wait(self, cursor: str, seconds: float) -> None:
        """Return when something may have arrived after the cursor, at the latest after `seconds`."""
