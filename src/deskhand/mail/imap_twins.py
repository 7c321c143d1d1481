"""Mails that claim to be the same and are not: each has an id of its own."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from deskhand.mail.imap_session import Copy

MOST_KNOWN = 50_000


class Twins:
    """Which mail came first of those with one Message-ID, sender, subject and date: the id that these make is its own.

    Of copies the size tells: where a server delivers or copies a mail again, its bytes stay. A later one of another
    size has that in its id. When the server took a mail nobody outside can say earlier than it was.
    """

    def __init__(self) -> None:
        self._first: dict[str, tuple[datetime, int]] = {}

    def knows(self, mail_id: str) -> bool:
        return mail_id in self._first

    def tell_apart(self, copies: Iterable[Copy]) -> list[Copy]:
        """The copies, which come as the server has them, each with its mail's id."""
        found = [*copies]
        for copy in found:
            if copy.size is None or _is_own(copy):
                continue
            came = (copy.date, copy.size)
            self._first[copy.id] = min(came, self._first.pop(copy.id, came))
        named = [self._name(copy) for copy in found]
        while len(self._first) > MOST_KNOWN:
            del self._first[next(iter(self._first))]
        return named

    def _name(self, copy: Copy) -> Copy:
        _, size = self._first.get(copy.id, (None, copy.size))
        if copy.size in (None, size) or _is_own(copy):
            return copy
        return replace(copy, id=name_twin(copy))


def name_twin(copy: Copy) -> str:
    return f"{copy.id}-{copy.size}"


def _is_own(copy: Copy) -> bool:
    """What the person wrote comes back, if it does, with the marks of its way."""
    return copy.folder.role in ("sent", "drafts")
