"""What may be asked, and exactly what would leave the desk.

A Proposal is what a tool was told. The gate completes it to an Action: for a mail account, recipient, subject, text and
thread, as they would be sent. Whoever approves an action approves its digest, which covers every one of these fields.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from operator import not_
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    TypeAdapter,
    model_validator,
)

from deskhand.clock import iso
from deskhand.errors import FieldProblem, InvalidInput
from deskhand.gate.enclosures import Enclosure
from deskhand.gate.face import Face
from deskhand.gate.fields import (
    Addresses,
    AddressLine,
    Body,
    Moment,
    Name,
    Subject,
    Text,
    demand_body,
)
from deskhand.gate.leaving import LeaveList
from deskhand.gate.mailchange import MailChange, UpdateEmails
from deskhand.gate.question import Question
from deskhand.gate.toolcall import ToolCall
from deskhand.mail import Outgoing, mime
from deskhand.mail.addresses import once_each
from deskhand.mail.mime import AttachedFile
from deskhand.mail.rendering import render_html

MAIL_TYPES = {
    "send_email": "email_send",
    "reply_email": "email_reply",
    "forward_email": "email_forward",
}
"""What a mail is called in its request's file, and in one that the person writes by hand to release it."""
MOST_RECIPIENTS = 50
FURTHEST = timedelta(days=366)
"""How far ahead a mail can be told to wait."""


class SendEmail(BaseModel):
    model_config = ConfigDict(frozen=True)

    kind: Literal["send_email", "forward_email"] = "send_email"
    to: Addresses
    cc: Addresses = ""
    bcc: Addresses = ""
    subject: Subject
    body: Body
    attachments: tuple[Enclosure, ...] = ()
    send_at: Moment = None
    """When it leaves, once it is approved; None: at once."""
    reply_to_message_id: str | None = None
    sender: str | None = None
    """The own address from which it leaves; None: where the mail lies that it answers,
    else the default account."""
    as_text: bool = False
    """Whatever the body looks like, it leaves as plain text."""
    html: bool = False
    """It leaves as HTML too, made of the body as Markdown."""
    follow_up: datetime | timedelta | None = None
    """When, or how long after it left, the person is told if nobody has answered; nothing
    of it leaves the desk."""


class ReplyEmail(BaseModel):
    model_config = ConfigDict(frozen=True)

    kind: Literal["reply_email"] = "reply_email"
    thread_id: Name
    message_id: Name
    body: Body
    all: bool = False
    """To everybody whom the mail names, not to its sender alone."""
    cc: Addresses = ""
    attachments: tuple[Enclosure, ...] = ()
    as_text: bool = False
    follow_up: datetime | timedelta | None = None


Proposal = SendEmail | ReplyEmail | UpdateEmails | LeaveList | ToolCall | Question


class Mail(Face):
    """A mail exactly as it would leave."""

    counted = True
    may_be_permitted = True
    free = frozenset({"body", "html", "reply_to_message_id", "in_reply_to", "references"})
    way_back = "Before it left: move this file to Rejected/. Afterwards only a second mail can correct it."
    caution = (
        "A mail cannot be called back once it left.",
        "This is by the text and the address alone; the page and `deskhand show` also know whom you have written to.",
    )

    kind: Literal["send_email", "reply_email", "forward_email"]
    account: str
    to: AddressLine
    cc: AddressLine = Field("", exclude_if=not_)
    bcc: AddressLine = Field("", exclude_if=not_)
    subject: Subject
    body: Text
    thread_id: str | None = None
    reply_to_message_id: str | None = None
    in_reply_to: str | None = None
    references: tuple[str, ...] = ()
    as_text: bool = False
    """A body that is written as a whole HTML page leaves as plain text all the same."""
    attachments: tuple[Enclosure, ...] = Field((), exclude_if=not_)
    send_at: Moment = Field(None, exclude_if=not_)
    html: str = Field("", exclude_if=not_)
    """The same text as HTML, which leaves beside it."""

    def digested(self) -> dict[str, Any]:
        fields = super().digested()
        if not self.as_text:
            # A mail that looks like no page has the digest that it always had.
            del fields["as_text"]
        return fields

    @property
    def target(self) -> str:
        return ", ".join(filter(None, (self.to, self.cc, self.bcc)))

    @property
    def everybody(self) -> tuple[str, ...]:
        """Each address that it goes to."""
        return tuple(
            each for line in (self.to, self.cc, self.bcc) for each in addresses_of(line)
        )

    @property
    def is_more_than_plain(self) -> bool:
        """Whether it has what a file written by hand knows no words for."""
        return (
            len(self.everybody) > 1
            or bool(self.attachments or self.html)
            or self.send_at is not None
        )

    @model_validator(mode="after")
    def _demand_few(self) -> Self:
        if len(self.everybody) > MOST_RECIPIENTS:
            problem = FieldProblem(
                "to",
                f"names {len(self.everybody)} recipients",
                None,
                f"at most {MOST_RECIPIENTS}",
            )
            hint = f"send it to at most {MOST_RECIPIENTS} at a time, or write to a mailing list"
            raise InvalidInput(
                f"A mail goes to at most {MOST_RECIPIENTS} recipients.",
                fields=[problem],
                hint=hint,
            )
        return self

    @property
    def file_type(self) -> str:
        return MAIL_TYPES[self.kind]

    @property
    def question(self) -> str:
        verb = {
            "send_email": "Send to",
            "reply_email": "Reply to",
            "forward_email": "Forward to",
        }[self.kind]
        first, *others = self.everybody
        more = f" and {len(others)} more" if others else ""
        return f"{verb} {first}{more}"

    @property
    def about(self) -> str:
        when = f" at {iso(self.send_at)}" if self.send_at else ""
        return f"It would leave from {self.account}{when}, exactly as it stands here."

    def edit(self, changes: Mapping[str, str]) -> "Mail":
        """The same mail with other words; what cannot be sent is refused."""
        edited = Mail.model_validate(
            self.model_dump()
            | dict(changes)
            | {"body": demand_body(changes.get("body", self.body))}
        )
        if edited.html:
            edited = edited.with_html()
        return edited.model_copy(update=address_lines(edited.to, edited.cc, edited.bcc))

    def with_html(self) -> "Mail":
        """The same mail, whose text leaves as HTML too."""
        return self.model_copy(update={"html": render_html(self.body)})


Action = Annotated[
    Mail | MailChange | LeaveList | ToolCall | Question, Discriminator("kind")
]
"""Everything that may be asked, a closed union told apart by `kind`.

Another kind joins it here with its `Face`, and gets its hand in `hands.hand_for` and its risk in
`risk.assess_action`; everything else knows an action by its face alone.
"""
_ACTION: TypeAdapter[Action] = TypeAdapter(Action)


def read_action(text: str) -> Action:
    """An action as its row keeps it."""
    return _ACTION.validate_json(text)


def addresses_of(line: str) -> list[str]:
    """Each address of a line that was read before."""
    return line.split(", ") if line else []


def address_lines(to: str, cc: str, bcc: str) -> dict[str, str]:
    """Who is named twice gets one mail, and is named where most can see it."""
    return dict(zip(("to", "cc", "bcc"), once_each(to, cc, bcc), strict=True))


def demand_in_time(action: Action, now: datetime) -> None:
    """Refuse a time that has passed, or that nobody would remember."""
    at = action.send_at
    if at is None or now < at <= now + FURTHEST:
        return
    why, instead = "is past", "name a later time, or none"
    if at > now:
        why, instead = "is more than a year ahead", "name an earlier time, or none"
    problem = FieldProblem("send_at", why, iso(at), instead)
    raise InvalidInput(f"The time to send it at {why}.", fields=[problem])


def demand_sendable(action: Action, now: datetime) -> None:
    """Refuse what could not be sent as it reads."""
    if isinstance(action, Mail):
        compose(action, "check", now)


def compose(
    mail: Mail, send_id: str, date: datetime, contents: Sequence[bytes] = ()
) -> Outgoing:
    """The bytes, always the same ones for the same mail, id and date; what cannot be sent
    as it reads is refused."""
    message_id = f"<{send_id}@{mail.account.rpartition('@')[2]}>"
    files = zip(mail.attachments, contents, strict=bool(contents))
    raw = mime.compose(
        sender=mail.account,
        to=addresses_of(mail.to),
        cc=addresses_of(mail.cc),
        subject=mail.subject,
        body=mail.body,
        message_id=message_id,
        date=date,
        action_id=send_id,
        in_reply_to=mail.in_reply_to,
        references=mail.references,
        as_text=mail.as_text,
        html=mail.html,
        files=[
            AttachedFile(each.name, each.content_type, content) for each, content in files
        ],
    )
    bcc = tuple(addresses_of(mail.bcc))
    return Outgoing(
        raw, mail.everybody, message_id, send_id, mail.thread_id, bcc, mail.account
    )
