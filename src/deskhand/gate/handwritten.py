"""A yes that the person wrote by hand: a file in Approved/ that the desk did not make, and which mail it covers."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from deskhand.errors import InvalidInput
from deskhand.gate.actions import MAIL_TYPES, Action, Mail
from deskhand.mail import mime
from deskhand.mail.addresses import recipient

_SEALED_KEYS = frozenset({"action_id", "digest", "seal"})


def is_sealed(given: Mapping[str, Any]) -> bool:
    """Whether the desk wrote it, or somebody who wants it to look so."""
    return bool(_SEALED_KEYS & given.keys())


def is_approval(given: Mapping[str, Any]) -> bool:
    return given.get("type") in MAIL_TYPES.values() and not is_sealed(given)


def explain_approval(given: Mapping[str, Any], now: datetime) -> str | None:
    """Why a hand-written approval covers no mail at all; None where it waits for one."""
    if given.get("status") != "approved":
        return f"its status is {given.get('status')!s:.40}, not approved"
    kind = given.get("action_type")
    if kind is not None and given["type"] != MAIL_TYPES.get(str(kind)):
        return f"its action_type is {kind!s:.40}, and its type {given['type']}"
    if given.get("to") is None and given.get("thread_id") is None:
        return "it names no recipient and no thread"
    if given.get("to") is not None and not _is_address(given["to"]):
        return f"{given['to']!s:.60} is no address"
    if not _is_fresh(given.get("expires"), now):
        return f"it expired on {given['expires']!s:.40}"
    return None


def covers(
    given: Mapping[str, Any], action: Action, now: datetime, author: str | None = None
) -> bool:
    """Whether a hand-written approval is about this mail: by type, status and recipient, and by all else it names.

    One that names a thread alone is to the author of the mail that is answered: where else that mail wants its answers,
    the person has not said.
    """
    if is_sealed(given) or not isinstance(action, Mail) or action.is_more_than_plain:
        return False
    by_thread = (
        action.kind == "reply_email"
        and given.get("thread_id") is not None
        and _is_address(author, action.to)
    )
    return (
        given.get("type") == action.file_type
        and given.get("status") == "approved"
        and given.get("action_type", action.kind) == action.kind
        and (
            _is_address(given.get("to"), action.to)
            or (by_thread and given.get("to") is None)
        )
        and _is_absent_or(given.get("thread_id"), action.thread_id)
        and _is_absent_or(given.get("reply_to_message_id"), action.reply_to_message_id)
        and _is_absent_or(given.get("account"), action.account)
        and _is_subject(given.get("subject"), action)
        and _is_fresh(given.get("expires"), now)
    )


def covers_thread(given: Mapping[str, Any], thread_id: str, now: datetime) -> bool:
    """Whether a hand-written approval is about an answer in this thread, whomever it would go to."""
    return (
        not is_sealed(given)
        and given.get("type") == MAIL_TYPES["reply_email"]
        and given.get("status") == "approved"
        and given.get("action_type", "reply_email") == "reply_email"
        and str(given.get("thread_id")) == thread_id
        and _is_fresh(given.get("expires"), now)
    )


def _is_address(given: Any, address: str | None = None) -> bool:
    """Whether it is an address, and this one."""
    try:
        read = isinstance(given, str) and recipient(given.strip()).lower()
    except InvalidInput:
        return False
    return bool(read) and (address is None or read == address.lower())


def _is_absent_or(given: Any, actual: str | None) -> bool:
    return given is None or str(given) == actual


def _is_subject(given: Any, action: Action) -> bool:
    if given is None or given == "":
        return True
    text = str(given).strip()
    if text == action.subject.strip():
        return True
    return action.kind == "reply_email" and mime.reply_subject(text) == action.subject


def _is_fresh(expires: Any, now: datetime) -> bool:
    if expires is None:
        return True
    try:
        until = datetime.fromisoformat(str(expires))
    except ValueError:
        return False
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return now < until
