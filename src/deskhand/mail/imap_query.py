"""Gmail's search syntax as IMAP's: what a folder must be asked to find the mails that match.

What depends on the folder alone (`in:inbox`, `label:Clients`) is settled here, so that most folders are not asked.
IMAP finds parts of words where Gmail finds words, and tells an attachment by the mail's kind only (multipart/mixed).
"""

from datetime import datetime

from deskhand.mail import query
from deskhand.mail.imap_folders import ROLES
from deskhand.mail.imap_session import Folder, header, keyword, quote
from deskhand.mail.query import AllOf, AnyOf, Not, Query

Key = list[bytes]
"""One search key, in prefix form: no brackets, which the client library cannot put around a literal."""

_WHERE = {"anywhere": b"TEXT", "sender": b"FROM", "subject": b"SUBJECT"}
_MONTHS = [
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
]
_FOLDER_LABELS = {place.label for place in ROLES.values()}


class ImapSearch:
    def __init__(self, text: str, now: datetime, own: query.Own) -> None:
        self._query = query.parse(text, now, own)
        self._now = now

    def criteria(self, folder: Folder, *, within: bool) -> Key | None:
        """What to ask `folder`; None where nothing in it can match. `within`: it knows RFC 5032's ages."""
        if folder.role in ("junk", "trash") and query.leaves_trash_out(self._query):
            return None
        keys = [self._key(part, folder, within) for part in query.terms(self._query)]
        if False in keys:
            return None
        return [word for key in keys if isinstance(key, list) for word in key] or [b"ALL"]

    def _key(self, part: Query, folder: Folder, within: bool) -> Key | bool:  # noqa: C901, PLR0911 - one case a kind
        match part:
            case query.Text(words, where):
                return _words(words, where)
            case query.HasLabel(label):
                return _has_label(label, folder)
            case query.HasAttachment():
                return header("CONTENT-TYPE", "multipart/mixed")
            case query.HasMessageId(name):
                return header("MESSAGE-ID", f"<{name}>")
            case query.Since(moment):
                return self._age(b"YOUNGER", b"SINCE", moment, within)
            case query.Until(moment):
                return self._age(b"OLDER", b"BEFORE", moment, within)
            case query.Anywhere():
                return True
            case Not(inner):
                return _not(self._key(inner, folder, within))
            case AnyOf(parts):
                return _any([self._key(each, folder, within) for each in parts])
            case AllOf(parts):
                return _not(_any([_not(self._key(each, folder, within)) for each in parts]))

    def _age(self, age: bytes, day: bytes, moment: datetime, within: bool) -> Key | bool:
        seconds = int((self._now - moment).total_seconds())
        whole_day = (moment.hour, moment.minute, moment.second) == (0, 0, 0)
        if within and not whole_day:
            if seconds <= 0:
                return age == b"OLDER"
            return [age, str(seconds).encode()]
        return [day, f"{moment.day}-{_MONTHS[moment.month - 1]}-{moment.year:04}".encode()]


def _words(words: str, where: query.Where) -> Key | bool:
    value = quote(words)
    if not value.strip(b'"'):
        return True
    if where == "recipients":
        return _any([[field, value] for field in (b"TO", b"CC", b"BCC")])
    return [_WHERE[where], value]


def _has_label(label: str, folder: Folder) -> Key | bool:
    match label:
        case "UNREAD":
            return folder.role not in ("sent", "drafts") and [b"UNSEEN"]
        case "STARRED":
            return [b"FLAGGED"]
        case _ if label in _FOLDER_LABELS:
            return folder.label == label
        case _ if _same(label, folder.label):
            return True
        case _:
            # In a query Gmail writes a label's spaces as hyphens.
            spellings = dict.fromkeys([keyword(label), keyword(label.replace("-", " "))])
            return _any([[b"KEYWORD", spelling.encode()] for spelling in spellings])


def _same(one: str, other: str) -> bool:
    return one.casefold().replace(" ", "-") == other.casefold().replace(" ", "-")


def _not(key: Key | bool) -> Key | bool:
    if isinstance(key, bool):
        return not key
    return key[1:] if key[0] == b"NOT" else [b"NOT", *key]


def _any(keys: list[Key | bool]) -> Key | bool:
    if True in keys:
        return True
    made: Key | bool = False
    for key in reversed([key for key in keys if isinstance(key, list)]):
        made = [b"OR", *key, *made] if isinstance(made, list) else key
    return made
