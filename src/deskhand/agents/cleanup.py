"""What a person does with all the mail at once: remove what is old, copy it between files and database."""

from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

from deskhand.agents.mail import AgentMessage, Mailroom, instant, timestamp

HOUR = 3_600_000_000_000


class Removed(NamedTuple):
    offline: int
    stale: int
    messages: int
    mailboxes: int


def clean_up(
    room: Mailroom,
    windows: list[str] | None,
    now: int,
    stale_hours: float,
    delivered_hours: float,
    *,
    dry_run: bool,
) -> Removed:
    """Forget agents that are gone and mail that was read long ago; never a message that nobody read."""
    registered = room.registrations()
    seen = registered | {
        entry.name: instant(entry.updated_at) or 0 for entry in room.states()
    }
    offline = [
        name
        for name in seen
        if windows is not None and name not in windows and name not in registered
    ]
    stale = [
        name
        for name, at in seen.items()
        if at <= now - stale_hours * HOUR and name not in offline
    ]
    if not dry_run:
        room.remove_states([*offline, *stale])
    before = timestamp(now - int(delivered_hours * HOUR))
    messages = mailboxes = 0
    for name in room.mailboxes():
        messages += room.remove_read(name, before, dry_run=dry_run)
        mailboxes += room.remove_if_empty(name, dry_run=dry_run)
    return Removed(len(offline), len(stale), messages, mailboxes)


def copy_mail(source: Mailroom, target: Mailroom) -> tuple[int, int]:
    """Copy every message that the target does not have; returns how many were copied and how many it had."""
    copied = total = 0
    for name in source.mailboxes():
        messages = [
            message if message.id else _with_id(message)
            for message in source.messages(name)
        ]
        total += len(messages)
        copied += target.merge(name, messages)
    return copied, total - copied


def _with_id(message: AgentMessage) -> AgentMessage:
    """The message with an id made from its content, which the next copy makes again;
    another program left it out."""
    content = f"{message.sender}\n{message.created_at}\n{message.text}"
    return replace(message, id=sha256(content.encode()).hexdigest()[:16])
