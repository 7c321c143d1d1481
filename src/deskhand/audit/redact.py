"""What may be kept of a call: names and addresses in part, never a body or a secret."""

import re
from collections.abc import Mapping
from typing import Any

from deskhand.audit.entry import Entry

SUBJECT_LIMIT = 50

_ADDRESS = re.compile(r"([^\s<>()\[\],;:\"@])[^\s<>()\[\],;:\"@]*@([^\s<>()\[\],;:\"'=@]+)")
_QUOTED = re.compile(r'"[^"]*"@')
_NEVER = frozenset({"body", "token", "password", "secret", "api_key", "authorization", "message"})


def redact(value: Any) -> Any:
    """What may be kept: addresses as `j***@example.com`, a subject's beginning, never a body or a secret."""
    match value:
        case str() if "@" not in value:
            return value
        case str():
            return _QUOTED.sub('"***"@', _ADDRESS.sub(r"\1***@\2", value))
        case Mapping():
            return {
                redact(key): _redact_item(key, item) for key, item in value.items() if str(key).lower() not in _NEVER
            }
        case list() | tuple():
            return [redact(item) for item in value]
        case _:
            return value


def _redact_item(key: Any, item: Any) -> Any:
    kept = redact(item)
    if key == "subject" and isinstance(item, str):
        # Cut last: half an address would no longer be seen for one.
        return kept[:SUBJECT_LIMIT]
    return kept


def redact_entry(entry: Entry) -> Entry:
    """The entry as it may be kept."""
    return Entry(
        timestamp=entry.timestamp,
        correlation_id=entry.correlation_id,
        actor=entry.actor,
        action_type=entry.action_type,
        target=redact(entry.target),
        result=entry.result,
        duration_ms=entry.duration_ms,
        parameters=redact(entry.parameters),
        error=redact(entry.error),
    )


def masked(address: str) -> str:
    """`j***@example.com`, however strange the local part is."""
    local, at, domain = address.rpartition("@")
    if not at:
        return address
    return f"{local[:1]}***@{domain}"
