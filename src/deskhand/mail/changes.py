"""What is done with mails every day: read, star, archive, trash, label. Doing it twice is the same as doing it once."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from deskhand.errors import FieldProblem, InvalidInput, printable
from deskhand.mail import MailSummary
from deskhand.mail.query import SYSTEM_LABELS, label_name

Doing = Literal[
    "read",
    "unread",
    "star",
    "unstar",
    "archive",
    "unarchive",
    "trash",
    "untrash",
    "label",
    "unlabel",
]
_SWITCHES: dict[str, tuple[set[str], set[str]]] = {
    "read": (set(), {"UNREAD"}),
    "unread": ({"UNREAD"}, set()),
    "star": ({"STARRED"}, set()),
    "unstar": (set(), {"STARRED"}),
    "archive": (set(), {"INBOX"}),
    "unarchive": ({"INBOX"}, set()),
    "trash": ({"TRASH"}, {"INBOX"}),
    "untrash": ({"INBOX"}, {"TRASH"}),
}
_WRITTEN_HERE = {"SENT", "DRAFT"}
_NOT_ARCHIVED = _WRITTEN_HERE | {"INBOX", "TRASH", "SPAM"}
_OPPOSITES: dict[Doing, Doing] = {
    "read": "unread",
    "star": "unstar",
    "archive": "unarchive",
    "trash": "untrash",
    "label": "unlabel",
}
_OPPOSITES |= {back: do for do, back in _OPPOSITES.items()}


@dataclass(frozen=True, slots=True)
class Deed:
    do: Doing
    label: str = ""

    def labels_for(self, labels: Collection[str]) -> tuple[frozenset[str], frozenset[str]]:
        """Which labels a mail with these gets and loses. Only what is in the trash comes out of it, and into the inbox
        only what came from outside."""
        match self.do:
            case "label":
                return frozenset({self.label}), frozenset()
            case "unlabel":
                return frozenset(), frozenset({self.label})
            case "untrash" if "TRASH" not in labels:
                return frozenset(), frozenset()
            case "unarchive" if not _NOT_ARCHIVED.isdisjoint(labels):
                return frozenset(), frozenset()
        gets, loses = _SWITCHES[self.do]
        if self.do == "untrash" and not _WRITTEN_HERE.isdisjoint(labels):
            gets = set()
        return frozenset(gets), frozenset(loses)


def find_way_back(
    change: Deed, before: Sequence[MailSummary]
) -> list[tuple[Deed, list[str]]]:
    """What undoes a change, for the mails that it changes; `before` is as they were. What lay in no inbox when it went
    into the trash is archived again."""
    moved = [mail for mail in before if any(_differences(change, mail))]
    steps = [(Deed(_OPPOSITES[change.do], change.label), moved)]
    if change.do == "trash":
        steps.append(
            (Deed("archive"), [mail for mail in moved if "INBOX" not in mail.labels])
        )
    return [(deed, [mail.id for mail in mails]) for deed, mails in steps if mails]


def _differences(change: Deed, mail: MailSummary) -> tuple[frozenset[str], frozenset[str]]:
    """The labels that the mail really gets and loses; of labels capitals do not count."""
    has = {label.casefold() for label in mail.labels}
    gets, loses = change.labels_for(mail.labels)
    return (
        frozenset(each for each in gets if each.casefold() not in has),
        frozenset(each for each in loses if each.casefold() in has),
    )


def read_change(do: Doing, label: str | None) -> Deed:
    """What was asked for; a label that has a word of its own in `do` is no label to put on."""
    if do not in ("label", "unlabel"):
        if label is not None:
            raise _bad_label(label, f"only `label` and `unlabel` take a label, not `{do}`")
        return Deed(do)
    name = label_name((label or "").strip())
    if not name or name.upper() in SYSTEM_LABELS:
        raise _bad_label(
            name, "is missing, or a place or mark that has a word of its own in `do`"
        )
    return Deed(do, name)


def _bad_label(label: str, problem: str) -> InvalidInput:
    return InvalidInput(
        f"label: {problem}", fields=[FieldProblem("label", problem, printable(label))]
    )
