"""What a person does with the mail as a whole: forget the old, copy between stores."""

from typing import NamedTuple

from deskhand.agents.mail import Mailroom, instant, timestamp

HOUR = 3_600_000_000_000


class Removed(NamedTuple):
    offline: int
    stale: int
    messages: int
    mailboxes: int


def clean_up(
    room: Mailroom, windows: list[str] | None, now: int, stale_hours: float, delivered_hours: float, *, dry_run: bool
) -> Removed:
    """Forget agents that are gone and mail that was read long ago; never a message that nobody read."""
    registered = room.registered()
    seen = registered | {entry.name: instant(entry.updated_at) or 0 for entry in room.entries()}
    offline = [name for name in seen if windows is not None and name not in windows and name not in registered]
    stale = [name for name, at in seen.items() if at <= now - stale_hours * HOUR and name not in offline]
    if not dry_run:
        room.remove_entries([*offline, *stale])
    before = timestamp(now - int(delivered_hours * HOUR))
    messages = mailboxes = 0
    for name in room.mailboxes():
        messages += room.remove_read(name, before, dry_run=dry_run)
        mailboxes += room.remove_if_empty(name, dry_run=dry_run)
    return Removed(len(offline), len(stale), messages, mailboxes)


def copy_mail(source: Mailroom, target: Mailroom) -> tuple[int, int]:
    """Copy every message that the target does not have; how many were copied, how many were there."""
    copied = total = 0
    for name in source.mailboxes():
        messages = source.messages(name)
        total += len(messages)
        copied += target.merge(name, messages)
    return copied, total - copied
