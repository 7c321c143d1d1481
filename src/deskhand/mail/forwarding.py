"""A mail that is passed on: as text with the original's headers, or whole as an attached mail."""

import re

from deskhand.clock import iso
from deskhand.mail import FullMessage, headers, mime
from deskhand.mail.mime import AttachedFile

_FW = re.compile(r"\s*(?:fwd?|wg|tr|rv)\s*:\s*", re.IGNORECASE)


def forward_subject(subject: str) -> str:
    """`Fwd:` once, whatever language it had before."""
    rest = headers.text(subject)
    while found := _FW.match(rest):
        rest = rest[found.end() :]
    return f"Fwd: {rest}".rstrip()[: mime.LONGEST_SUBJECT]


def is_forward(subject: str) -> bool:
    """Whether a mail of this subject passes another one on, and answers none."""
    return _FW.match(headers.text(subject)) is not None


def quote_original(mail: FullMessage) -> str:
    """The mail as text, below the headers by which a reader knows whose it is."""
    summary = mail.summary
    fields = {
        "From": summary.sender,
        "Date": summary.date_header or iso(summary.date),
        "Subject": summary.subject,
        "To": summary.to,
        "Cc": mail.cc,
    }
    lines = [
        f"{name}: {' '.join(value.split())}" for name, value in fields.items() if value
    ]
    return "\n".join(["---------- Forwarded message ----------", *lines, "", mail.body])


def enclose_original(raw: bytes, subject: str) -> AttachedFile:
    """The whole mail as one file, without its Bcc. What no server would take as a mail
    inside of a mail is a file."""
    whole = mime.without_bcc(raw)
    name = mime.attachment_name(
        f"{headers.text(subject).replace('/', '_')[:100].strip(' .') or 'mail'}.eml"
    )
    kind = mime.MAIL_TYPE if mime.can_enclose(whole) else "application/octet-stream"
    return AttachedFile(name, kind, whole)
