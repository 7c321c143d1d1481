"""A request: an action that waits for the person, with its life. One row each, whoever asked for it.

    waiting ─► held ─► approved ─► sending ─► sent
     │ ▲ ▲      │         │           ├─► approved   certainly not sent: the yes stays, and it is tried again
     │ │ └─undo─┘         │           ├─► failed     the same, where a hand-written file had released it
     │ └──── taken back ──┘           └─► unknown ─► held, approved   the person has looked and says: once more
     ├─► rejected ─► approved         the person moved the file to Approved/ after all
     ├─► expired
     └─► withdrawn                    a hand-written approval released the same mail

`due` says when somebody has to go on with it: when a hold ends, when an approved one is tried, when a lease is over.
The rows are in `ledger`; a file in the vault follows its row, never the other way round.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from deskhand.gate.actions import Action, Mail
from deskhand.gate.enclosures import time_to_hand_over

Origin = Literal["tool", "draft"]
"""Who made it: an assistant that called a tool, or the orchestrator (or the person) who wrote a draft."""
State = Literal[
    "waiting",
    "held",
    "approved",
    "sending",
    "sent",
    "unknown",
    "rejected",
    "expired",
    "withdrawn",
    "failed",
]
Folder = Literal["Pending_Approval", "Drafts", "Approved", "Rejected", "Done"]
Proof = Literal[
    "vault", "page", "terminal", "hand-written", "password", "passkey", "permission"
]
"""Why an answer counts as the person's: how it came in, that a password or a signature was given for this one, or that
a permission covers it."""
Word = Literal[
    "held",
    "approved",
    "rejected",
    "edited",
    "responded",
    "snoozed",
    "woken",
    "undone",
    "permitted",
    "replied",
]
"""What the person can say to a request, or have said."""
YES: tuple[Word, ...] = ("held", "approved")
"""The words of a yes: one that rests first, and one that counts at once."""
Resting = Literal["dev_mode", "unconfirmed", "rate"]
"""Why it rests: sending is off, a file in Approved/ is no yes until it is confirmed, or the rate limit is reached."""

OPEN: tuple[State, ...] = ("waiting", "held", "approved", "sending", "unknown")
ANSWERABLE: tuple[State, ...] = ("waiting", "held", "unknown")
"""States in which there is something left to answer."""
DRAFT_PREFIX = "draft-"
"""Every draft's id begins so; no tool's request does."""
LIFETIME = timedelta(days=7)
"""How long a request of a tool and the yes to it are good for."""

REPEATED = timedelta(minutes=10)
"""How long after a send the same call is taken for the one whose answer was lost."""


@dataclass(frozen=True, slots=True)
class Request:
    id: str
    origin: Origin
    send_id: str
    """The id that the mail itself carries, by which a send is found again."""
    asked: str
    """The digest of what was proposed; a person's edit changes the action, not this."""
    proposed: Action
    action: Action
    digest: str
    state: State
    file: str
    """The name of its file in the vault."""
    folder: Folder
    """Where that file was put or seen last: a file that lies elsewhere was moved by the person."""
    created: datetime
    revision: int = 1
    expires: datetime | None = None
    asked_by: str | None = None
    """The door by which it was proposed; of a draft the rule, the model or the assistant that decided so."""
    asker: str | None = None
    """Who asked by that door, in words that a person knows."""
    reason: str | None = None
    """Why it was drafted, in the words of who decided so."""
    mail: str | None = None
    """The orchestrator's key of the mail that a draft answers."""
    about: str | None = None
    """The name of that mail's note."""
    urgent: bool = False
    sender: str | None = None
    """Whose mail it answers, as the desk read it."""
    participants: tuple[str, ...] = ()
    """Everybody whom that mail names: its sender, and whom it went to."""
    warnings: tuple[str, ...] = ()
    """What was odd about that mail."""
    difference: str | None = None
    """To what was proposed, as a unified diff."""
    fault: str | None = None
    """Why a draft cannot be sent as its file stands."""
    note: str | None = None
    """What the card says about it: the person's words with a no, why a yes came to nothing."""
    words: str | None = None
    """How the person wants it done instead."""
    proof: Proof | None = None
    decided_by: str | None = None
    decided: datetime | None = None
    once_more: bool = False
    """The person has looked and wants it sent although it may have left before."""
    due: datetime | None = None
    tried: datetime | None = None
    attempts: int = 0
    error: str | None = None
    resting: Resting | None = None
    snoozed: datetime | None = None
    frozen: datetime | None = None
    """The Date of the bytes that are sent: they are the same at every attempt."""
    lease: datetime | None = None
    token: str | None = None
    message_id: str | None = None
    thread_id: str | None = None
    untold: bool = False
    """The desk sent it by itself, and whoever proposed it does not know yet."""
    settled: bool = False
    """The note of the mail it answers says what became of it."""
    assessed: str | None = None
    """What the card said when the person answered it; `waiting` reads it."""

    @property
    def home(self) -> Folder:
        """Where its file waits. One that may have left already waits as a sealed request, whoever wrote it."""
        if self.origin == "draft" and not self.may_have_left:
            return "Drafts"
        return "Pending_Approval"

    @property
    def place(self) -> Folder:
        """Where its file belongs in this state."""
        match self.state:
            case "waiting" | "held" | "unknown":
                return self.home
            case "approved" | "sending":
                return "Approved"
            case "rejected":
                return "Rejected"
            case "sent" | "expired" | "withdrawn" | "failed":
                return "Done"

    @property
    def upload(self) -> timedelta:
        """How much longer its files may be on their way, on a slow line."""
        return time_to_hand_over(self.action.attachments)

    @property
    def next_revision(self) -> dict[str, Any]:
        """What changes in its row with the next revision, which has a sealed file of its own."""
        number = self.revision + 1
        return {
            "revision": number,
            "file": file_name(self.id, self.action.kind, number),
        }

    def wait_again(self, note: str, now: datetime) -> dict[str, Any]:
        """What changes where it waits as a new revision, so that the file which said yes
        says nothing any more."""
        return self.next_revision | {
            "folder": "Pending_Approval",
            "note": note,
            "expires": now + LIFETIME,
            "lease": None,
            "due": None,
        }

    def is_late(self, now: datetime) -> bool:
        """Whether its time has run out."""
        return self.expires is not None and now >= self.expires

    def is_early(self, now: datetime) -> bool:
        """Whether it has a time of its own, and that has not come."""
        return self.action.send_at is not None and now < self.action.send_at

    @property
    def seen(self) -> str:
        """What an answer names that was given to it as it is: of one that may have left the revision too, since a yes
        sends it once more."""
        if self.state != "unknown":
            return self.digest
        return f"{self.digest}-{self.revision}"

    @property
    def may_have_left(self) -> bool:
        """It was begun to be sent, or is sent once more: a try of that which failed says
        nothing about the first."""
        return self.token is not None or self.once_more

    @property
    def waits_for_limit(self) -> bool:
        """The person has said yes, and it leaves when the rate lets it."""
        return self.state == "approved" and self.resting == "rate"

    @property
    def left(self) -> datetime:
        """When a sent one left the desk."""
        return self.tried or self.frozen or self.created

    @property
    def unanswered(self) -> State:
        """The state in which it waits for the person: one that may have left is never
        again an ordinary request."""
        if self.may_have_left:
            return "unknown"
        return "waiting"

    @property
    def lost_yes(self) -> str:
        """What its card says where the yes that it had releases nothing."""
        if self.proof == "permission":
            return "The permission that let it through no longer counts. It waits for you."
        return "A yes does not count: it was to another text, or proved too little. It is waiting again."


def is_draft_id(text: object) -> bool:
    """Whether it can name a draft: a name that is part of an address would lead elsewhere."""
    if not isinstance(text, str) or not text.startswith(DRAFT_PREFIX):
        return False
    rest = text.removeprefix(DRAFT_PREFIX)
    return (
        0 < len(rest) <= 64
        and rest.isascii()
        and rest.replace("-", "").replace("_", "").isalnum()
    )


def describe_earlier_send(request_id: str, when: str, action: Action) -> str:
    done = "sent" if isinstance(action, Mail) else "made"
    return (
        f"Exactly this {action.noun} was {done} before, on {when} (request {request_id})."
    )


def file_name(request_id: str, kind: str, revision: int) -> str:
    """What a sealed request is called in the vault."""
    name = f"email-{kind.removesuffix('_email')}-{request_id}"
    if kind in ("call_tool", "ask_person"):
        name = f"{kind.partition('_')[0]}-{request_id}"
    if revision == 1:
        return f"{name}.md"
    return f"{name}-{revision}.md"


def open_draft(draft_id: str, action: Action, send_id: str, now: datetime) -> Request:
    """A draft as it begins: it waits for the person, who may edit it in its file."""
    return Request(
        id=draft_id,
        origin="draft",
        send_id=send_id,
        asked=action.digest,
        proposed=action,
        action=action,
        digest=action.digest,
        state="waiting",
        file=draft_file_name(draft_id),
        folder="Drafts",
        created=now,
    )


def draft_file_name(draft_id: str) -> str:
    return f"reply-{draft_id.removeprefix(DRAFT_PREFIX)}.md"
