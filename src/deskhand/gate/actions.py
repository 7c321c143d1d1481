"""What may be asked, and exactly what would leave the desk.

A Proposal is what a tool was told. The gate completes it to an Action: for a mail account, recipient, subject, text and
thread, as they would be sent. Whoever approves an action approves its digest, which covers every one of these fields.
"""

import difflib
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, TypeAdapter, ValidationInfo

from deskhand.errors import FieldProblem, InvalidInput, NotFound, printable
from deskhand.gate.face import Face, NoMail
from deskhand.gate.toolcall import ToolCall
from deskhand.mail import FullMessage, Mailbox, Outgoing, mime
from deskhand.mail.addresses import recipient
from deskhand.mail.changes import Doing

MAIL_TYPES = {"send_email": "email_send", "reply_email": "email_reply"}
"""What a mail is called in its request's file, and in one that the person writes by hand to release it."""
SUBJECT_LIMIT = 998
BODY_LIMIT = 2_000_000
MOST_COMPARED = 20_000
"""Lines of both texts: to look for each line of one in the other takes the square of it."""


def _subject(text: str) -> str:
    if len(text) > SUBJECT_LIMIT:
        raise _invalid("subject", f"The subject has {len(text)} characters; at most {SUBJECT_LIMIT} are allowed", text)
    if any(ord(char) < 32 or char in "\x7f\x85\u2028\u2029" for char in text):
        raise _invalid("subject", "The subject must be one line without control characters", text)
    return text


def _body(text: str) -> str:
    if not text.strip():
        raise _invalid("body", "The body is empty", "")
    return _text(text)


def _text(text: str) -> str:
    if len(text) > BODY_LIMIT:
        raise _invalid("body", f"The body has {len(text):,} characters; at most {BODY_LIMIT:,} are allowed", "")
    if "\0" in text:
        raise _invalid("body", "The body holds a NUL character", "")
    return text


def _invalid(field: str, message: str, received: str) -> InvalidInput:
    return InvalidInput(message, fields=[FieldProblem(field, message, printable(received, 60))])


def _name(text: str, info: ValidationInfo) -> str:
    if not text.strip():
        raise _invalid(info.field_name or "", f"The {info.field_name} is empty", text)
    return text


Name = Annotated[str, AfterValidator(_name)]
"""What the mailbox calls a mail or a thread."""
Address = Annotated[str, AfterValidator(recipient)]
Subject = Annotated[str, AfterValidator(_subject)]
Body = Annotated[str, AfterValidator(_body)]
Text = Annotated[str, AfterValidator(_text)]
"""A draft may wait for the person to write its body."""


class SendEmail(BaseModel):
    model_config = ConfigDict(frozen=True)

    kind: Literal["send_email"] = "send_email"
    to: Address
    subject: Subject
    body: Body
    reply_to_message_id: str | None = None
    as_text: bool = False
    """Whatever the body looks like, it leaves as plain text."""


class ReplyEmail(BaseModel):
    model_config = ConfigDict(frozen=True)

    kind: Literal["reply_email"] = "reply_email"
    thread_id: Name
    message_id: Name
    body: Body
    as_text: bool = False


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


Proposal = SendEmail | ReplyEmail | UpdateEmails | ToolCall


class Mail(Face):
    """A mail exactly as it would leave."""

    counted = True
    way_back = "Before it left: move this file to Rejected/. Afterwards only a second mail can correct it."
    caution = (
        "A mail cannot be called back once it left.",
        "This is by the text and the address alone; the page and `deskhand show` also know whom you have written to.",
    )

    kind: Literal["send_email", "reply_email"]
    account: str
    to: Address
    subject: Subject
    body: Text
    thread_id: str | None = None
    reply_to_message_id: str | None = None
    in_reply_to: str | None = None
    references: tuple[str, ...] = ()
    as_text: bool = False
    """A body that is written as a whole HTML page leaves as plain text all the same."""

    def digested(self) -> dict[str, Any]:
        fields = super().digested()
        if not self.as_text:
            del fields["as_text"]  # a mail that looks like no page has the digest that it always had
        return fields

    @property
    def target(self) -> str:
        return self.to

    @property
    def file_type(self) -> str:
        return MAIL_TYPES[self.kind]

    @property
    def question(self) -> str:
        verb = "Reply to" if self.kind == "reply_email" else "Send to"
        return f"{verb} {self.to}"

    @property
    def about(self) -> str:
        return f"It would leave from {self.account}, exactly as it stands here."

    def edit(self, changes: Mapping[str, str]) -> "Mail":
        """The same mail with other words; what cannot be sent is refused."""
        return Mail.model_validate(self.model_dump() | dict(changes) | {"body": _body(changes.get("body", self.body))})


class MailChange(NoMail):
    """What would be done with exactly these mails. Nobody edits it."""

    way_back = "Nothing is deleted: what went into the trash comes out of it again, and marks are set as they were."
    caution = ("Nothing is deleted, and all of it can be undone.",)
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
        name = f" {self.label}" if self.label else ""
        mails = "1 mail" if len(self.mails) == 1 else f"{len(self.mails)} mails"
        return f"{self.do}{name}: {mails}, {self.unread} unread"

    @property
    def body(self) -> str:
        lines = [f"{number}. {_line_of(mail)}" for number, mail in enumerate(self.mails, 1)]
        return "\n".join([f"{self.subject}.", "", *lines]) + "\n"

    @property
    def question(self) -> str:
        return f"Change mails: {self.subject}"

    @property
    def about(self) -> str:
        return f"It would be done in the mailbox of {self.account}, with exactly the mails that stand here."

    @property
    def unread(self) -> int:
        return sum(mail.unread for mail in self.mails)

    def edit(self, changes: Mapping[str, str]) -> "MailChange":
        """Another list would be another request; the same words change nothing."""
        if any(getattr(self, key) != value for key, value in changes.items()):
            raise InvalidInput("a list of mails is not edited", hint="say no to it, and how you want it done")
        return self


def _line_of(mail: ListedMail) -> str:
    seen = "unread, " if mail.unread else ""
    return f"{printable(mail.subject, 200) or '(no subject)'} ({seen}from {printable(mail.sender, 200)})"


Action = Annotated[Mail | MailChange | ToolCall, Discriminator("kind")]
"""Everything that may be asked, a closed union told apart by `kind`.

Another kind joins it here with its `Face`, and gets its hand in `delivery.hand_for` and its risk in
`risk.assess_action`; everything else knows an action by its face alone.
"""
_ACTION: TypeAdapter[Action] = TypeAdapter(Action)


def read_action(text: str) -> Action:
    """An action as its row keeps it."""
    return _ACTION.validate_json(text)


def describe_difference(old: Action, new: Action) -> str | None:
    """What the person changed, line by line; None where they changed nothing."""
    before = _lines(old)
    after = _lines(new)
    if before == after:
        return None
    names = ("as it was proposed", "as it was edited")
    if len(before) + len(after) <= MOST_COMPARED:
        return "\n".join(difflib.unified_diff(before, after, *names, lineterm="", n=1))
    return "\n".join([f"--- {names[0]}", f"+++ {names[1]}", *_replace_middle(before, after)])


def _replace_middle(before: list[str], after: list[str]) -> list[str]:
    """The one hunk of what lies between the lines with which both begin and those with which both end."""
    head = _count_same(before, after)
    tail = _count_same(before[head:][::-1], after[head:][::-1])
    old = before[head : len(before) - tail]
    new = after[head : len(after) - tail]
    place = f"@@ -{head + 1},{len(old)} +{head + 1},{len(new)} @@"
    return [place, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]


def _count_same(old: list[str], new: list[str]) -> int:
    """With how many lines both begin."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))


def _lines(mail: Action) -> list[str]:
    return [f"To: {mail.to}", f"Subject: {mail.subject}", "", *mail.body.splitlines()]


async def complete(
    proposal: SendEmail | ReplyEmail | UpdateEmails, mailbox: Mailbox
) -> tuple[Action, FullMessage | None]:
    """What is meant, and the mail that it answers. Who gets a reply is read from that one."""
    account = await mailbox.address()
    match proposal:
        case UpdateEmails(do=do, label=label, mails=mails):
            return MailChange(account=account, do=do, label=label, mails=mails), None
        case SendEmail(to=to, subject=subject, body=body, reply_to_message_id=None):
            as_text = proposal.as_text and mime.is_html(body)
            return Mail(kind="send_email", account=account, to=to, subject=subject, body=body, as_text=as_text), None
        case SendEmail(to=to, subject=subject, body=body, reply_to_message_id=str() as message_id):
            found = await mailbox.get(message_id)
        case ReplyEmail(message_id=message_id, body=body):
            found = await mailbox.get(message_id)
            if found.summary.thread_id != proposal.thread_id:
                raise NotFound(f"there is no message {message_id} in thread {proposal.thread_id}")
            to = mime.reply_recipient(found, account)
            subject = mime.reply_subject(found.summary.subject)
    as_text = proposal.as_text and mime.is_html(body)
    mail = Mail(kind=proposal.kind, account=account, to=to, subject=subject, body=body, as_text=as_text)
    return in_thread(mail, found), found


def in_thread(mail: Mail, original: FullMessage) -> Mail:
    """The mail as an answer to another one."""
    references = original.references
    if original.message_id:
        references = (*references, original.message_id)
    place = {
        "thread_id": original.summary.thread_id,
        "reply_to_message_id": original.summary.id,
        "in_reply_to": original.message_id or None,
        "references": references,
    }
    return mail.model_copy(update=place)


def demand_sendable(action: Action, now: datetime) -> None:
    """Refuse what could not be sent as it reads."""
    if isinstance(action, Mail):
        compose(action, "check", now)


def compose(mail: Mail, send_id: str, date: datetime) -> Outgoing:
    """The bytes, always the same ones for the same mail, id and date; what cannot be sent as it reads is refused."""
    message_id = f"<{send_id}@{mail.account.rpartition('@')[2]}>"
    raw = mime.compose(
        sender=mail.account,
        to=[mail.to],
        subject=mail.subject,
        body=mail.body,
        message_id=message_id,
        date=date,
        action_id=send_id,
        in_reply_to=mail.in_reply_to,
        references=mail.references,
        as_text=mail.as_text,
    )
    return Outgoing(raw, (mail.to,), message_id, send_id, mail.thread_id)
