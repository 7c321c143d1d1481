"""Any IMAP and SMTP account as a mailbox.

A folder and a keyword are both labels: `move` puts a mail into the folder, `add_label` sets the keyword. Where a mail
lies in several folders, its copies are one mail with all their labels.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from imapclient.exceptions import IMAPClientAbortError, IMAPClientError

from deskhand import clock
from deskhand.config import Settings
from deskhand.errors import DeskError, InvalidInput, NotFound
from deskhand.mail import (
    Arrived,
    FullMessage,
    MailSummary,
    NotSent,
    Outgoing,
    Sent,
    Unclear,
    accounts,
    imap_query,
    mime,
    smtp,
)
from deskhand.mail.imap_session import (
    ROLES,
    Copy,
    Folder,
    ImapSession,
    decoded,
    keyword,
    labels,
    mail_id,
    text,
    thread_id,
    translated,
)

T = TypeVar("T")
MOST_PLACES = 5000

log = logging.getLogger("deskhand.imap")


class ImapMailbox:
    def __init__(self, settings: Settings, *, now: Callable[[], datetime] = clock.utc_now) -> None:
        self._settings = settings
        self._now = now
        self._account = accounts.imap_account(settings)
        self._session: ImapSession | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="imap")
        self._listening = ThreadPoolExecutor(1, thread_name_prefix="imap-bell")
        self._bell: ImapSession | None = None
        self._places: dict[str, list[Copy]] = {}
        """Where each mail was seen last; only a hint, checked before it is used."""

    async def address(self) -> str:
        return accounts.own_address(self._settings)

    async def search(self, query: str, limit: int) -> list[MailSummary]:
        wanted = imap_query.parse(query, self._now())

        def work(session: ImapSession) -> list[MailSummary]:
            found: list[Copy] = []
            for folder in session.folders():
                criteria = wanted.criteria(folder, within=session.knows_ages)
                if criteria is not None:
                    found += session.search(folder, criteria, limit)
            return sorted(self._merged(found), key=lambda message: message.date, reverse=True)[:limit]

        return await self._read(work)

    async def get(self, message_id: str) -> FullMessage:
        def work(session: ImapSession) -> FullMessage:
            copies = self._copies(session, message_id)
            (summary,) = self._merged(copies)
            return mime.parse(session.raw(copies[0])).full(summary)

        return await self._read(work)

    async def thread(self, thread_id: str) -> list[MailSummary]:
        root = decoded(thread_id)
        if root is None:  # a mail that has no Message-ID is its own thread
            return [(await self.get(thread_id)).summary]
        name = text(f"<{root}>")
        criteria = [b"OR", b"HEADER", b"MESSAGE-ID", name, b"OR", b"HEADER", b"REFERENCES", name]
        criteria += [b"HEADER", b"IN-REPLY-TO", name]

        def work(session: ImapSession) -> list[MailSummary]:
            kept = [folder for folder in session.folders() if folder.role not in ("junk", "trash")]
            found = [copy for folder in kept for copy in session.search(folder, criteria)]
            mails = [mail for mail in self._merged(found) if mail.thread_id == thread_id]
            if not mails:
                raise NotFound(f"thread {thread_id} not found")
            return sorted(mails, key=lambda message: message.date)

        return await self._read(work)

    async def move(self, message_id: str, label: str) -> None:
        def work(session: ImapSession) -> None:
            copies = self._copies(session, message_id)
            source = next((copy for copy in copies if copy.folder.role == "inbox"), copies[0])
            target = _target(session, label)
            if source.folder.name != target.name:
                session.move(source, target)
                self._places.pop(message_id, None)

        await self._write(work)

    async def add_label(self, message_id: str, label: str) -> None:
        name = label.strip()
        if not name or name.upper() in {role[0] for role in ROLES.values()}:
            raise InvalidInput(f"{label!r} is a folder here, not a label to add", hint="move the mail into it")

        def work(session: ImapSession) -> None:
            for copy in self._copies(session, message_id):
                match name.upper():
                    case "UNREAD":
                        session.flag(copy, remove=["\\Seen"])
                    case "STARRED":
                        session.flag(copy, add=["\\Flagged"])
                    case _:
                        session.flag(copy, add=[keyword(name)])

        await self._write(work)

    async def create_draft(self, raw: bytes, thread_id: str | None) -> str:
        del thread_id  # the mail's own References say it
        parsed = mime.parse(raw)
        if not parsed.message_id:
            raise InvalidInput("a draft needs a Message-ID")

        await self._write(lambda session: session.append(session.by_role("drafts"), raw, ["\\Draft", "\\Seen"]))
        return mail_id(parsed, "", 0, 0)

    async def prepare(self, mail: Outgoing) -> str:
        """The Message-ID is the token: SMTP has no other, and it is what Sent is searched for."""
        self._relay()
        return mail.message_id

    async def send(self, token: str, mail: Outgoing) -> Sent:
        handed = (*self._relay(), await self.address(), mail)
        await asyncio.get_running_loop().run_in_executor(None, smtp.submit, *handed)
        try:
            if not isinstance(await self.check(token, mail), Sent):  # some servers file it themselves
                await self._write(lambda session: session.append(session.by_role("sent"), mail.raw, ["\\Seen"]))
        except DeskError as error:
            log.warning("sent_but_not_filed", extra={"failure": error.message, "action_id": mail.action_id})
        return _sent(mime.parse(mail.raw))

    async def check(self, token: str, mail: Outgoing) -> Sent | NotSent | Unclear:
        criteria = [b"HEADER", b"MESSAGE-ID", text(token), b"HEADER", mime.ACTION_HEADER.encode(), text(mail.action_id)]

        def work(session: ImapSession) -> list[Copy]:
            folder = session.known("sent")
            return session.search(folder, criteria) if folder else []

        found = await self._read(work)
        if found:
            return _sent(found[0].parsed)
        return Unclear("the mail is not in the Sent folder, and the server that took it cannot be asked")

    async def position(self) -> str:
        uidvalidity, uidnext = await self._read(lambda session: session.inbox())
        return f"{uidvalidity}:{uidnext}"

    async def arrived(self, cursor: str) -> Arrived | None:
        def work(session: ImapSession) -> Arrived | None:
            uidvalidity, uidnext = session.inbox()
            known, _, first = cursor.partition(":")
            if known != str(uidvalidity) or not first.isdecimal():
                return None
            found = session.since(uidvalidity, int(first)) if int(first) < uidnext else []
            self._merged(found)
            after = max([uidnext, *(copy.uid + 1 for copy in found)])
            return Arrived(tuple(dict.fromkeys(copy.id for copy in found)), f"{uidvalidity}:{after}")

        return await self._read(work)

    async def wait(self, cursor: str, seconds: float) -> None:
        """On a connection of its own, because one that waits can do nothing else."""
        loop, began = asyncio.get_running_loop(), asyncio.Event()
        listening = loop.run_in_executor(self._listening, self._listen, seconds, partial(_ring, loop, began))
        started = asyncio.create_task(began.wait())
        either: list[asyncio.Future[Any]] = [listening, started]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        # What came before the server began to listen would ring no bell.
        if not listening.done() and self._bell is not None and await self.position() != cursor:
            self._bell.hang_up()
            with suppress(DeskError):
                await listening
            return
        await listening
        if self._bell is not None and not self._bell.rings:
            await asyncio.sleep(min(seconds, self._settings.poll_seconds))

    def _listen(self, seconds: float, began: Callable[[], object]) -> None:
        with translated(self._account.host):
            try:
                if self._bell is None:
                    self._bell = ImapSession(self._account, accounts.password(self._settings.home, self._account))
                self._bell.idle(seconds, began)
            except (IMAPClientError, OSError):
                if self._bell is not None:
                    self._bell.drop()
                    self._bell = None
                raise

    async def close(self) -> None:
        if self._bell is not None:
            self._bell.hang_up()
        await asyncio.get_running_loop().run_in_executor(None, self._listening.shutdown)
        if self._bell is not None:
            self._bell.drop()

        def work() -> None:
            if self._session is not None:
                self._session.close()

        await asyncio.get_running_loop().run_in_executor(self._thread, work)
        self._thread.shutdown()

    def _relay(self) -> tuple[accounts.Account, str | None]:
        """Who takes the mail, and the password there: its own, else the one of the IMAP account."""
        account = accounts.smtp_account(self._settings)
        if account.user is None:
            return account, None
        return account, account.password or accounts.password(self._settings.home, self._account)

    async def _read(self, work: Callable[[ImapSession], T]) -> T:
        """On the kept connection; where it turns out to be dead, once more on a new one."""

        def attempt() -> T:
            if self._session is not None:
                try:
                    return work(self._session)
                except (IMAPClientAbortError, OSError):
                    self._forget()
            return work(self._opened())

        return await self._in_thread(attempt)

    async def _write(self, work: Callable[[ImapSession], T]) -> T:
        """Never tried again; a kept connection is asked first whether it lives."""

        def attempt() -> T:
            if self._session is not None and not self._session.alive():
                self._forget()
            return work(self._opened())

        return await self._in_thread(attempt)

    async def _in_thread(self, attempt: Callable[[], T]) -> T:
        def run() -> T:
            with translated(self._account.host):
                try:
                    return attempt()
                except (IMAPClientAbortError, OSError):
                    self._forget()
                    raise

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _opened(self) -> ImapSession:
        if self._session is None:
            self._session = ImapSession(self._account, accounts.password(self._settings.home, self._account))
        return self._session

    def _forget(self) -> None:
        if self._session is not None:
            self._session.drop()
            self._session = None

    def _merged(self, found: Iterable[Copy]) -> list[MailSummary]:
        copies: dict[str, list[Copy]] = {}
        for copy in found:
            copies.setdefault(copy.id, []).append(copy)
        if len(self._places) > MOST_PLACES:
            self._places.clear()
        self._places |= copies
        return [_message(same) for same in copies.values()]

    def _copies(self, session: ImapSession, message_id: str) -> list[Copy]:
        """Where the mail lies now: where it was seen last, else wherever it is found."""
        copies = [
            copy
            for hint in self._places.get(message_id, ())
            for copy in session.at(hint.folder, hint.uidvalidity, hint.uid)
            if copy.id == message_id
        ]
        copies = copies or _looked_for(session, message_id)
        if not copies:
            raise NotFound(f"mail {message_id} not found")
        return copies


def _ring(loop: asyncio.AbstractEventLoop, bell: asyncio.Event) -> None:
    loop.call_soon_threadsafe(bell.set)


def _looked_for(session: ImapSession, message_id: str) -> list[Copy]:
    name, _, place = message_id.partition(".")
    known = decoded(name)
    uidvalidity, _, uid = place.partition(".")
    if known is None:
        return []
    if uid:
        if not (uidvalidity.isdecimal() and uid.isdecimal()):
            return []
        folders = [folder for folder in session.folders() if folder.name == known]
        found = [copy for folder in folders for copy in session.at(folder, int(uidvalidity), int(uid))]
    else:
        criteria = [b"HEADER", b"MESSAGE-ID", text(f"<{known}>")]
        found = [copy for folder in session.folders() for copy in session.search(folder, criteria)]
    return [copy for copy in found if copy.id == message_id]


def _target(session: ImapSession, label: str) -> Folder:
    """The folder that a label names, made where it is missing."""
    name = label.strip().strip("/")
    if not name or name.upper() in ("SENT", "DRAFT"):
        raise InvalidInput(f"mail cannot be moved to {label!r}")
    folders = session.folders()
    known = next((folder for folder in folders if folder.label.casefold() == name.casefold()), None)
    if known is not None:
        return known
    role = next((role for role, facts in ROLES.items() if facts[0] == name.upper()), None)
    return session.by_role(role) if role else session.create(name)


def _message(copies: list[Copy]) -> MailSummary:
    first = copies[0]
    return MailSummary(
        id=first.id,
        thread_id=thread_id(first.parsed, first.id),
        sender=first.parsed.sender,
        to=first.parsed.to,
        subject=first.parsed.subject,
        date=first.date,
        date_header=first.parsed.date_header,
        snippet=first.snippet,
        labels=labels(copies),
    )


def _sent(parsed: mime.Parsed) -> Sent:
    own_id = mail_id(parsed, "", 0, 0)
    return Sent(own_id, thread_id(parsed, own_id))
