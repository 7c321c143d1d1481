"""What lies in the double's Gmail account, and how Gmail itself behaves there: threads, labels, drafts, search."""

import base64
import email.policy
import email.utils
import html
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage, MIMEPart
from functools import lru_cache, partial
from typing import Any

from tests.mail.discovery import Refused

SYSTEM_LABELS = (
    "INBOX",
    "SENT",
    "DRAFT",
    "UNREAD",
    "STARRED",
    "IMPORTANT",
    "SPAM",
    "TRASH",
    "CATEGORY_PERSONAL",
)


@lru_cache(1000)
def _parsed(raw: bytes) -> EmailMessage:
    return email.message_from_bytes(raw, policy=email.policy.default)


@lru_cache(1000)
def _fields(raw: bytes) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in _parsed(raw).items()]


@lru_cache(1000)
def _text(raw: bytes) -> str:
    body = _parsed(raw).get_body(("plain", "html"))
    return body.get_content() if body is not None else ""


@dataclass
class Mail:
    id: str
    thread_id: str
    raw: bytes
    date: datetime
    labels: list[str] = field(default_factory=list)

    @property
    def parsed(self) -> EmailMessage:
        return _parsed(self.raw)

    def header(self, name: str) -> str:
        found = (
            value for field, value in _fields(self.raw) if field.lower() == name.lower()
        )
        return " ".join(next(found, "").split())

    @property
    def text(self) -> str:
        return _text(self.raw)

    @property
    def has_attachment(self) -> bool:
        return any(True for _ in self.parsed.iter_attachments())

    def resource(
        self, form: str = "minimal", headers: list[str] | None = None
    ) -> dict[str, Any]:
        made: dict[str, Any] = {
            "id": self.id,
            "threadId": self.thread_id,
            "labelIds": list(self.labels),
            "snippet": html.escape(" ".join(self.text.split())[:100]),
            "sizeEstimate": len(self.raw),
            "historyId": "1",
            "internalDate": str(round(self.date.timestamp() * 1000)),
        }
        match form:
            case "raw":
                made["raw"] = base64.urlsafe_b64encode(self.raw).decode()
            case "metadata":
                made["payload"] = {"headers": self._headers(headers)}
            case "full":
                made["payload"] = _part(self.parsed, "")
        return made

    def _headers(self, wanted: list[str] | None) -> list[dict[str, str]]:
        names = None if not wanted else {name.lower() for name in wanted}
        return [
            {"name": name, "value": value}
            for name, value in _fields(self.raw)
            if names is None or name.lower() in names
        ]


def _part(part: MIMEPart, number: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "partId": number,
        "mimeType": part.get_content_type(),
        "filename": part.get_filename() or "",
        "headers": [{"name": name, "value": str(value)} for name, value in part.items()],
    }
    if part.is_multipart():
        below = [
            _part(each, f"{number}.{place}".strip("."))
            for place, each in enumerate(part.iter_parts())
        ]
        return made | {"body": {"size": 0}, "parts": below}
    content: Any = part.get_payload(decode=True)
    data = base64.urlsafe_b64encode(content).decode().rstrip("=")
    return made | {"body": {"size": len(content), "data": data}}


class Account:
    def __init__(self, address: str, now: Callable[[], datetime]) -> None:
        self.address = address
        self.now = now
        self.mails: dict[str, Mail] = {}
        self.drafts: dict[str, str] = {}
        self.labels = {name: name for name in SYSTEM_LABELS}
        self.delivered: list[bytes] = []
        """What left, byte for byte as it was submitted."""
        self.reached: list[tuple[tuple[str, ...], bytes]] = []
        """Whom it reached, and the copy that they got: Gmail takes Bcc out of it."""
        self._numbers = itertools.count(1)
        self.history: list[tuple[int, Mail]] = []
        """Each mail that was added, by its place in the account's history."""
        self.history_begins = 1
        """What lies before is forgotten, as Gmail does after about a week."""

    def deliver(self, raw: bytes, *labels: str, at: datetime | None = None) -> Mail:
        """A mail from outside arrives."""
        return self._add(raw, [*(labels or ("INBOX", "UNREAD"))], self._thread_of(raw), at)

    def draft(self, raw: bytes, thread_id: str | None) -> str:
        if thread_id is not None and not self.thread(thread_id):
            raise _not_found()
        draft_id = f"r{7_000_000_000 + next(self._numbers)}"
        self.drafts[draft_id] = self._add(raw, ["DRAFT"], thread_id).id
        return draft_id

    def send_draft(self, draft_id: str, raw: bytes | None) -> Mail:
        if draft_id not in self.drafts:
            raise _not_found()
        held = self.mails[self.drafts[draft_id]]
        sent = self.send(held.raw if raw is None else raw, held.thread_id)
        del self.mails[self.drafts.pop(draft_id)]
        return sent

    def send(self, raw: bytes, thread_id: str | None) -> Mail:
        message = _parsed(raw)
        fields = [
            str(value)
            for name in ("To", "Cc", "Bcc")
            for value in message.get_all(name, [])
        ]
        to = [address for _, address in email.utils.getaddresses(fields)]
        if not any("@" in address for address in to):
            raise Refused(400, "invalidArgument", "Recipient address required")
        self.delivered.append(raw)
        self.reached.append(
            (tuple(to), re.sub(rb"(?im)\Abcc:.*\r?\n([ \t].*\r?\n)*", b"", raw))
        )
        own = ["INBOX", "UNREAD"] if self.address in to else []
        # Gmail puts its own Message-ID on what it sends.
        rewritten = f"Message-ID: <CA{next(self._numbers)}@mail.gmail.com>".encode()
        stored = re.sub(rb"(?im)^message-id:.*(\r?\n[ \t].*)*", rewritten, raw, count=1)
        return self._add(stored, ["SENT", *own], self._joined(message, thread_id))

    def thread(self, thread_id: str) -> list[Mail]:
        return sorted(
            (mail for mail in self.mails.values() if mail.thread_id == thread_id),
            key=lambda m: m.date,
        )

    def mail(self, mail_id: str) -> Mail:
        if not re.fullmatch(r"[0-9a-f]{16}", mail_id):
            raise Refused(400, "invalidArgument", "Invalid id value")
        if mail_id not in self.mails:
            raise _not_found()
        return self.mails[mail_id]

    def add_label(self, name: str) -> str:
        if name.casefold() in map(str.casefold, self.labels.values()):
            raise Refused(409, "aborted", "Label name exists or conflicts")
        label_id = f"Label_{next(self._numbers)}"
        self.labels[label_id] = name
        return label_id

    def modify(self, mail: Mail, add: list[str], remove: list[str]) -> None:
        for label in (*add, *remove):
            if label not in self.labels or label in ("SENT", "DRAFT"):
                raise Refused(400, "invalidArgument", f"Invalid label: {label}")
        mail.labels[:] = [label for label in mail.labels if label not in remove]
        mail.labels += [label for label in add if label not in mail.labels]

    def search(
        self, query: str, labels: list[str], *, everywhere: bool = False
    ) -> list[Mail]:
        test = _Query(query, self).test
        hidden = (
            set()
            if everywhere or re.search(r"\bin:(spam|trash|anywhere)", query)
            else {"SPAM", "TRASH"}
        )
        found = [
            mail
            for mail in self.mails.values()
            if set(labels) <= set(mail.labels)
            and not hidden & set(mail.labels)
            and test(mail)
        ]
        return sorted(found, key=lambda mail: mail.date, reverse=True)

    def _add(
        self,
        raw: bytes,
        labels: list[str],
        thread_id: str | None,
        at: datetime | None = None,
    ) -> Mail:
        number = f"{0x18D5A00000000000 + next(self._numbers):x}"
        # Mails that come within a moment still have an order.
        date = at or max(
            [
                self.now(),
                *(each.date + timedelta(milliseconds=1) for each in self._same_time()),
            ]
        )
        self.mails[number] = Mail(number, thread_id or number, raw, date, labels)
        self.history.append((self.history_id + 1, self.mails[number]))
        return self.mails[number]

    @property
    def history_id(self) -> int:
        return self.history[-1][0] if self.history else 1

    def _same_time(self) -> Iterator[Mail]:
        now = self.now()
        return (
            mail
            for mail in self.mails.values()
            if now <= mail.date < now + timedelta(minutes=1)
        )

    def _thread_of(self, raw: bytes) -> str | None:
        message = _parsed(raw)
        named = re.findall(
            r"<[^<>]+>", f"{message.get('References', '')} {message.get('In-Reply-To', '')}"
        )
        by_header = (
            {mail.header("Message-ID"): mail.thread_id for mail in self.mails.values()}
            if named
            else {}
        )
        return next(
            (by_header[name] for name in reversed(named) if name in by_header), None
        )

    def _joined(self, message: EmailMessage, thread_id: str | None) -> str | None:
        """All three or no thread: threadId, the headers, the subject."""
        if thread_id is None or not ("In-Reply-To" in message and "References" in message):
            return None
        subjects = {_bare(mail.header("Subject")) for mail in self.thread(thread_id)}
        return thread_id if _bare(str(message["Subject"])) in subjects else None


def _bare(subject: str) -> str:
    return re.sub(
        r"^(re:\s*)+", "", " ".join(subject.split()), flags=re.IGNORECASE
    ).casefold()


def _not_found() -> Refused:
    return Refused(404, "notFound", "Requested entity was not found.")


class _Query:
    """Gmail's search syntax, read apart from the product's own reader of it."""

    def __init__(self, text: str, account: Account) -> None:
        self.account = account
        self.tokens = re.findall(r'-?\w+:"[^"]*"|-?"[^"]*"|[()]|-(?=\()|[^\s()]+', text)
        self.test = self._any()

    def _any(self) -> Callable[[Mail], bool]:
        tests = [self._all()]
        while self.tokens and self.tokens[0] == "OR":
            self.tokens.pop(0)
            tests.append(self._all())
        return lambda mail: any(test(mail) for test in tests)

    def _all(self) -> Callable[[Mail], bool]:
        tests: list[Callable[[Mail], bool]] = []
        while self.tokens and self.tokens[0] not in (")", "OR"):
            tests.append(self._one(self.tokens.pop(0)))
            # OR binds tighter than the space between words.
            while self.tokens and self.tokens[0] == "OR":
                self.tokens.pop(0)
                left, right = tests.pop(), self._one(self.tokens.pop(0))
                tests.append(partial(_either, left, right))
        return lambda mail: all(test(mail) for test in tests)

    def _one(self, token: str) -> Callable[[Mail], bool]:
        if token == "(":
            inner = self._any()
            if self.tokens:
                self.tokens.pop(0)
            return inner
        if token.startswith("-"):
            inner = self._one(token[1:] or self.tokens.pop(0))
            return lambda mail: not inner(mail)
        name, colon, value = token.partition(":")
        if not colon or token.startswith('"'):
            return lambda mail: _has(
                " ".join((mail.header("Subject"), _people(mail), mail.text)), token
            )
        return self._operator(name.lower(), value.strip('"'))

    def _operator(self, name: str, value: str) -> Callable[[Mail], bool]:  # noqa: PLR0911 - one case an operator
        now = self.account.now()
        match name:
            case "from" | "to" | "subject":
                return lambda mail: _has(mail.header(name), value)
            case "rfc822msgid":
                return lambda mail: (
                    mail.header("Message-ID").strip("<>") == value.strip("<>")
                )
            case "label" | "in" | "is":
                return lambda mail: self._labelled(mail, value.casefold())
            case "has":
                return lambda mail: value == "attachment" and mail.has_attachment
            case "after":
                return lambda mail: mail.date >= _day(value)
            case "before":
                return lambda mail: mail.date < _day(value)
            case "newer_than":
                return lambda mail: mail.date >= now - _span(value)
            case "older_than":
                return lambda mail: mail.date < now - _span(value)
            case _:
                return lambda mail: _has(mail.text, f"{name}:{value}")

    def _labelled(self, mail: Mail, wanted: str) -> bool:
        names = {
            self.account.labels[label].casefold().replace(" ", "-") for label in mail.labels
        }
        match wanted:
            case "read":
                return "unread" not in names
            case "anywhere":
                return True
            case "drafts":
                return "draft" in names
            case _:
                return wanted.replace(" ", "-") in names


def _either(
    left: Callable[[Mail], bool], right: Callable[[Mail], bool], mail: Mail
) -> bool:
    return left(mail) or right(mail)


def _people(mail: Mail) -> str:
    return " ".join(mail.header(name) for name in ("From", "To", "Cc"))


def _has(text: str, words: str) -> bool:
    def bare(some: str) -> str:
        return " ".join(re.findall(r"\w+", some.casefold()))

    return f" {bare(words)} " in f" {bare(text)} "


def _day(text: str) -> datetime:
    if text.isdecimal():
        return datetime.fromtimestamp(int(text), UTC)
    year, month, day = map(int, re.split(r"[/-]", text))
    return datetime(year, month, day, tzinfo=UTC)


def _span(text: str) -> timedelta:
    days = {"d": 1, "m": 30, "y": 365}
    return (
        timedelta(hours=int(text[:-1]))
        if text[-1] == "h"
        else timedelta(days=int(text[:-1]) * days[text[-1]])
    )
