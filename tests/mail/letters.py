"""Mails for tests."""

from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import EmailMessage

from deskhand.mail import Outgoing, mime
from deskhand.mail.mime import AttachedFile

DATE = datetime(2026, 2, 10, 9, 30, tzinfo=UTC)


async def unwritten(token: str) -> None:
    """Where a test sends by itself, nobody keeps the token."""


def letter(
    *,
    sender: str = "Ann <ann@example.org>",
    to: str = "me@example.com",
    subject: str = "Hello",
    body: str = "How are you?",
    message_id: str | None = None,
    references: str | None = None,
    reply_to: str | None = None,
    attachment: str | None = None,
    content: str = "content",
) -> bytes:
    """A mail from outside, written by the standard library."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"], mail["Date"] = sender, to, subject, DATE
    if message_id:
        mail["Message-ID"] = message_id
    if references:
        mail["In-Reply-To"], mail["References"] = references.split()[-1], references
    if reply_to:
        mail["Reply-To"] = reply_to
    mail.set_content(body)
    if attachment:
        mail.add_attachment(
            content.encode(),
            maintype="application",
            subtype="octet-stream",
            filename=attachment,
        )
    return mail.as_bytes().replace(b"\n", b"\r\n")


def outgoing(
    *,
    to: str = "ann@example.org",
    cc: Sequence[str] = (),
    bcc: Sequence[str] = (),
    subject: str = "Hello",
    body: str = "I am fine.\n",
    html: str = "",
    action_id: str = "act-1",
    in_reply_to: str | None = None,
    files: Sequence[AttachedFile] = (),
    thread_id: str | None = None,
) -> Outgoing:
    """A mail as the gate hands it over."""
    message_id = f"<{action_id}@desk.example>"
    raw = mime.compose(
        sender="me@example.com",
        to=[to],
        cc=cc,
        subject=subject,
        body=body,
        html=html,
        message_id=message_id,
        date=DATE,
        action_id=action_id,
        in_reply_to=in_reply_to,
        references=[in_reply_to] if in_reply_to else [],
        files=files,
    )
    return Outgoing(raw, (to, *cc, *bcc), message_id, action_id, thread_id, tuple(bcc))
