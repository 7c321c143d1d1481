"""Mails that a tool changes by itself: few in an hour, and into the trash none that the person has not read.

What a tool marked as read nobody has read: for a day it counts as unread.
"""

from datetime import datetime, timedelta

from deskhand import clock
from deskhand.gate import sends
from deskhand.gate.mailchange import ListedMail, UpdateEmails
from deskhand.gate.risk import MANY
from deskhand.store import Transaction

WINDOW = timedelta(hours=1)
"""In this time no more than MANY mails are changed without the person's yes, in however many calls."""
_REMEMBERED = timedelta(days=1)


def recall(tx: Transaction, change: UpdateEmails, now: datetime) -> UpdateEmails:
    """The same change, in which a mail that only a tool has read is unread."""
    rows = tx.all(
        "SELECT mail FROM filed WHERE read_at > ?", clock.to_ms(now - _REMEMBERED)
    )
    by_tools = {mail for (mail,) in rows}

    def recalled(mail: ListedMail) -> ListedMail:
        return mail.model_copy(update={"unread": mail.unread or mail.id in by_tools})

    return change.model_copy(update={"mails": tuple(map(recalled, change.mails))})


def needs_yes(tx: Transaction, change: UpdateEmails, now: datetime) -> bool:
    """Whether only the person may have this done; `change` is as it was recalled."""
    if change.do == "trash" and any(mail.unread for mail in change.mails):
        return True
    rows = tx.all("SELECT mail FROM filed WHERE at > ?", clock.to_ms(now - WINDOW))
    return len({mail for (mail,) in rows} | {mail.id for mail in change.mails}) > MANY


def take(tx: Transaction, change: UpdateEmails, now: datetime) -> bool:
    """Whether it may be done at once; then its mails count from now on, also where the mailbox fails."""
    sends.take_turns(tx)
    tx.execute("DELETE FROM filed WHERE at <= ?", clock.to_ms(now - _REMEMBERED))
    if needs_yes(tx, change, now):
        return False
    at = clock.to_ms(now)
    for mail in change.mails:
        read_at = at if change.do == "read" and mail.unread else None
        tx.execute(
            "INSERT INTO filed (mail, at, read_at) VALUES (?, ?, ?)"
            " ON CONFLICT (mail) DO UPDATE SET at = excluded.at, read_at = COALESCE(excluded.read_at, filed.read_at)",
            mail.id,
            at,
            read_at,
        )
    return True
