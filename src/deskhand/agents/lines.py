"""The lines of AgentMail's files, byte for byte, and how to read what a crash left of them."""

import json
import re
from typing import Any, NamedTuple

from deskhand.agents.mail import NEVER, STATUSES, AgentMessage, AgentState, Status

FLAG = re.compile(rb'"read_flag"\s*:\s*(true|false)')
# The five bytes of a flag may lie on two pages; a kill between them leaves one of these.
_TORN_FLAG = re.compile(rb'"read_flag":(?:talse|trlse|truse|truee)')
_ID = re.compile(rb'"id":"([^"\\]*)"')
# Go escapes these in JSON because a browser might read it as HTML or JavaScript.
_SOMETIME = "1970-01-01T00:00:00Z"
"""When an agent was notified of whom a line says only that it was."""
_GO_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


class MailboxLine(NamedTuple):
    start: int
    raw: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.raw)

    @property
    def id(self) -> bytes | None:
        for found in _ID.finditer(self.raw):
            return found[1]
        return None

    @property
    def is_blank(self) -> bool:
        return self.raw.isspace()

    @property
    def is_surely_read(self) -> bool:
        """Whether the message is read, as far as that is certain without parsing: one
        brace, one flag, which is set."""
        raw = self.raw
        return (
            raw.endswith(b"}\n")
            and raw.count(b"{") == 1
            and [m[1] for m in FLAG.finditer(raw)] == [b"true"]
        )

    @property
    def is_regular(self) -> bool:
        """Whether one flag can be set in place; quotes inside texts are escaped, so what
        looks like a key is one."""
        return b"\0" not in self.raw and [m[1] for m in FLAG.finditer(self.raw)] == [
            b"false"
        ]


def encode(fields: dict[str, Any]) -> bytes:
    return (
        json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
        .translate(_GO_ESCAPES)
        .encode()
        + b"\n"
    )


def encode_message(message: AgentMessage) -> bytes:
    return encode(
        {
            "id": message.id,
            "from": message.sender,
            "to": message.to,
            "message": message.text,
            "read_flag": message.read,
            "created_at": message.created_at,
        }
    )


def decode(raw: bytes) -> dict[str, Any] | None:
    """The JSON object on the line, also where a crash tore its flag; None where there is none."""
    text = raw.strip(b"\0 \t\r\n")
    for candidate in (text, _TORN_FLAG.sub(b'"read_flag":false', text)):
        try:
            found = json.loads(candidate.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else None
    return None


def message_of(fields: dict[str, Any]) -> AgentMessage | None:
    """The message in the fields of a line; None if they are no message's."""
    texts = [fields.get(key) or "" for key in ("id", "from", "to", "created_at")]
    read = fields.get("read_flag") or False
    if not all(
        isinstance(text, str) for text in [*texts, fields.get("message")]
    ) or not isinstance(read, bool):
        return None
    identifier, sender, to, created_at = map(replace_halves, texts)
    return AgentMessage(
        identifier, sender, to, replace_halves(fields["message"]), created_at or NEVER, read
    )


def state_of(fields: dict[str, Any]) -> AgentState | None:
    """The agent's state in either spelling: that of the program AgentMail, or that of its description."""
    name = fields.get("recipient", fields.get("name"))
    if not isinstance(name, str) or not name:
        return None
    updated = _text(fields.get("updated_at"))
    notified = _text(fields.get("notified_at"))
    match fields.get("notified"):
        case False:
            notified = NEVER
        case True if notified == NEVER:
            notified = _SOMETIME if updated == NEVER else updated
    read_at = fields.get("last_read_at")
    status: Status = next(
        (known for known in STATUSES if known == fields.get("status")), "offline"
    )
    return AgentState(
        replace_halves(name),
        status,
        updated,
        notified,
        read_at if isinstance(read_at, int) else 0,
    )


def state_fields(state: AgentState, before: dict[str, Any]) -> dict[str, Any]:
    """The fields of a state's line in both spellings, with what others had added to it."""
    fields: dict[str, Any] = {
        "recipient": state.name,
        "status": state.status,
        "updated_at": state.updated_at,
        "notified_at": state.notified_at,
        "last_read_at": state.last_read_at,
        "name": state.name,
        "notified": state.notified_at != NEVER,
    }
    added = {key: value for key, value in before.items() if key not in fields}
    if not state.last_read_at:
        del fields["last_read_at"]
    return fields | added


def replace_halves(text: str) -> str:
    """The text with U+FFFD for each half of a surrogate pair, as Go reads it."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _text(value: object, default: str = NEVER) -> str:
    return value if isinstance(value, str) else default
