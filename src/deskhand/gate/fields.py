"""What the fields of an action take; everything else is refused with the field's name."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from deskhand.errors import FieldProblem, InvalidInput, printable
from deskhand.mail.addresses import recipient, recipients

SUBJECT_LIMIT = 998
BODY_LIMIT = 2_000_000


def _subject(text: str) -> str:
    if len(text) > SUBJECT_LIMIT:
        raise _invalid(
            "subject",
            f"The subject has {len(text)} characters; at most {SUBJECT_LIMIT} are allowed",
            text,
        )
    if any(ord(char) < 32 or char in "\x7f\x85\u2028\u2029" for char in text):
        raise _invalid(
            "subject", "The subject must be one line without control characters", text
        )
    return text


def demand_body(text: str) -> str:
    if not text.strip():
        raise _invalid("body", "The body is empty", "")
    return _text(text)


def _text(text: str) -> str:
    if len(text) > BODY_LIMIT:
        raise _invalid(
            "body",
            f"The body has {len(text):,} characters; at most {BODY_LIMIT:,} are allowed",
        )
    if "\0" in text:
        raise _invalid("body", "The body holds a NUL character")
    return text


def _invalid(field: str, message: str, received: str | None = None) -> InvalidInput:
    shown = received and printable(received, 60)
    return InvalidInput(message, fields=[FieldProblem(field, message, shown)])


def _name(text: str, info: ValidationInfo) -> str:
    if not text.strip():
        raise _invalid(info.field_name or "", f"The {info.field_name} is empty", text)
    return text


def _join_addresses(given: str | Sequence[str], info: ValidationInfo) -> str:
    named = [given] if isinstance(given, str) else given
    return ", ".join(recipient(each, info.field_name or "to") for each in named)


def _address_line(text: str, info: ValidationInfo) -> str:
    if not text.strip() and info.field_name != "to":
        return ""
    return ", ".join(recipients(text, info.field_name or "to"))


def _moment(given: object) -> object:
    """A time that is the same everywhere, to the second."""
    if given is None:
        return None
    try:
        found = datetime.fromisoformat(given) if isinstance(given, str) else given
        if isinstance(found, datetime) and found.tzinfo is not None:
            return found.astimezone(UTC).replace(microsecond=0)
    except (ValueError, OverflowError):
        pass
    raise _invalid(
        "send_at",
        "The time is not ISO 8601 with an offset, as 2026-12-24T09:00:00+01:00",
        str(given),
    )


Name = Annotated[str, AfterValidator(_name)]
"""What the mailbox calls a mail or a thread."""
Addresses = Annotated[str, BeforeValidator(_join_addresses)]
"""Whom a tool names: one bare address, or a list of them. It becomes a line."""
AddressLine = Annotated[str, AfterValidator(_address_line)]
"""Bare addresses with commas between them, as a person reads and edits them."""
Subject = Annotated[str, AfterValidator(_subject)]
Body = Annotated[str, AfterValidator(demand_body)]
Text = Annotated[str, AfterValidator(_text)]
"""A draft may wait for the person to write its body."""
Moment = Annotated[datetime | None, BeforeValidator(_moment)]
