"""Mails that claim to be the same and are not: each has an id of its own."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from deskhand.mail.imap_session import Copy

MOST_KNOWN = 50_000
Mark = Callable[[Copy], int | str | None]
"""What copies of one mail have in common; None where nobody knows it."""
Firsts = dict[str, tuple[datetime, int | str]]


class Twins:
    """Which mail came first of those with one Message-ID, sender, subject and date: the id that these make is its own.

    Of copies the size tells, and of those of one size the way by which they came, which servers write: where a server
    copies a mail or delivers it to another folder, its bytes stay. A later one that differs has that in its id. When
    the server took a mail nobody outside can say earlier than it was.
    """

    def __init__(self) -> None:
        self._sizes: Firsts = {}
        self._ways: Firsts = {}

    def knows(self, mail_id: str) -> bool:
        return mail_id in self._sizes

    def tell_apart(self, copies: Iterable[Copy]) -> list[Copy]:
        """The copies, which come as the server has them, each with its mail's id."""
        return _tell_apart(
            _tell_apart([*copies], self._sizes, _size_of), self._ways, _way_of
        )


def list_names(copy: Copy) -> set[str]:
    """The ids that it can have where another claims to be the same."""
    return {
        f"{copy.id}-{copy.size}",
        f"{copy.id}-{copy.way}",
        f"{copy.id}-{copy.size}-{copy.way}",
    }


def _tell_apart(copies: list[Copy], firsts: Firsts, mark: Mark) -> list[Copy]:
    for copy in copies:
        own = mark(copy)
        if own is not None and not _is_own(copy):
            came = (copy.date, own)
            firsts[copy.id] = min(came, firsts.pop(copy.id, came))
    named = [_name(copy, firsts, mark(copy)) for copy in copies]
    while len(firsts) > MOST_KNOWN:
        del firsts[next(iter(firsts))]
    return named


def _name(copy: Copy, firsts: Firsts, own: int | str | None) -> Copy:
    _, first = firsts.get(copy.id, (None, own))
    if own in (None, first) or _is_own(copy):
        return copy
    return replace(copy, id=f"{copy.id}-{own}")


def _size_of(copy: Copy) -> int | None:
    return copy.size


def _way_of(copy: Copy) -> str:
    return copy.way


def _is_own(copy: Copy) -> bool:
    """What the person wrote comes back, if it does, with the marks of its way."""
    return copy.folder.role in ("sent", "drafts")
