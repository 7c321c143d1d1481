"""What the person changed in an action, line by line."""

import difflib

from deskhand.clock import iso
from deskhand.gate.actions import Action

MOST_COMPARED = 20_000
"""Lines of both texts: to look for each line of one in the other takes the square of it."""


def describe_difference(old: Action, new: Action) -> str | None:
    """What the person changed, line by line; None where they changed nothing."""
    before = _lines(old)
    after = _lines(new)
    if before == after:
        return None
    names = ("as it was proposed", "as it was edited")
    if len(before) + len(after) <= MOST_COMPARED:
        return "\n".join(difflib.unified_diff(before, after, *names, lineterm="", n=1))
    return "\n".join(
        [f"--- {names[0]}", f"+++ {names[1]}", *_replace_middle(before, after)]
    )


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
    copies = [
        f"{name}: {line}" for name, line in (("Cc", mail.cc), ("Bcc", mail.bcc)) if line
    ]
    copies += [f"Send at: {iso(mail.send_at)}"] if mail.send_at else []
    copies += [f"Attachment: {each.describe()}" for each in mail.attachments]
    return [
        f"To: {mail.to}",
        *copies,
        f"Subject: {mail.subject}",
        "",
        *mail.body.splitlines(),
    ]
