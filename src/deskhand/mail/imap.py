"""Any IMAP and SMTP account as a mailbox.

A folder and a keyword are both labels: `move` puts a mail into the folder, `add_label` sets the keyword. Where a mail
lies in several folders, its copies are one mail with all their labels.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from anyio import CancelScope
from imapclient.exceptions import IMAPClientAbortError, IMAPClientError

from deskhand import clock
from deskhand.config import Settings
from deskhand.errors import (
    AuthRequired,
    DeskError,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    SendFailed,
    UnderWay,
)
from deskhand.mail import (
    Arrived,
    FullMessage,
    Keep,
    MailSummary,
    NotSent,
    Outgoing,
    SavedDraft,
    Sent,
    Unclear,
    imap_session,
    mime,
    permits,
    smtp,
)
from deskhand.mail.accounts import (
    Account,
    imap_account,
    own_address,
    password,
    smtp_account,
)
from deskhand.mail.addresses import people
from deskhand.mail.bearer import BearerTokens, takes_token
from deskhand.mail.changes import Deed
from deskhand.mail.imap_folders import ROLES
from deskhand.mail.imap_query import ImapSearch
from deskhand.mail.imap_session import Copy, ImapSession, header
from deskhand.mail.imap_twins import Twins, list_names

T = TypeVar("T")
MOST_PLACES = 5000
RELAYED_AT_ONCE = 4
"""A relay that is slow takes no thread from anybody else."""
_TAKEN = "taken"
"""Stands for the permit once the server said that it took the mail: what is left to do is the copy in Sent."""

log = logging.getLogger("deskhand.imap")


class ImapMailbox:
    def __init__(
        self,
        settings: Settings,
        aliases: Iterable[str] = (),
        *,
        now: Callable[[], datetime] = clock.utc_now,
    ) -> None:
        self._settings = settings
        self._aliases = frozenset(each.lower() for each in aliases)
        self._now = now
        self._account = imap_account(settings)
        self._tokens: BearerTokens | None = None
        if takes_token(settings):
            self._tokens = BearerTokens(settings, self._account, now)
        self._permits = settings.home / "permits"
        self._session: ImapSession | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="imap")
        self._listening = ThreadPoolExecutor(1, thread_name_prefix="imap-bell")
        self._relaying = ThreadPoolExecutor(RELAYED_AT_ONCE, thread_name_prefix="smtp")
        self._bell: ImapSession | None = None
        self._ends = False
        self._twins = Twins()
        self._places: dict[str, list[Copy]] = {}
        """Where each mail was seen last; only a hint, checked before it is used."""

    async def address(self) -> str:
        return own_address(self._settings)

    async def search(self, query: str, limit: int) -> list[MailSummary]:
        asked = ImapSearch(query, self._now(), self._own)

        def work(session: ImapSession) -> list[MailSummary]:
            found: list[Copy] = []
            for folder in session.folders():
                criteria = asked.criteria(folder, within=session.knows_ages)
                if criteria is not None:
                    found += session.search(folder, criteria, limit)
            found = self._twins.tell_apart(found)
            return sorted(self._merge(found), key=attrgetter("date"), reverse=True)[:limit]

        return await self._read(work)

    async def get(self, message_id: str) -> FullMessage:
        def work(session: ImapSession) -> FullMessage:
            copies = self._copies(session, message_id)
            (summary,) = self._merge(copies)
            return mime.parse(session.raw(copies[0])).full(summary)

        return await self._read(work)

    async def read_raw(self, message_id: str) -> bytes:
        return await self._read(
            lambda session: session.raw(self._copies(session, message_id)[0])
        )

    async def thread(self, thread_id: str) -> list[MailSummary]:
        root = imap_session.decode_name(thread_id)
        if root is None:  # a mail that has no Message-ID is its own thread
            return [(await self.get(thread_id)).summary]
        name = f"<{root}>"
        answers = [b"OR", *header("REFERENCES", name), *header("IN-REPLY-TO", name)]
        criteria = [b"OR", *header("MESSAGE-ID", name), *answers]

        def work(session: ImapSession) -> list[MailSummary]:
            kept = [
                folder
                for folder in session.folders()
                if folder.role not in ("junk", "trash")
            ]
            found = [copy for folder in kept for copy in session.search(folder, criteria)]
            told = self._twins.tell_apart(found)
            mails = [mail for mail in self._merge(told) if mail.thread_id == thread_id]
            if not mails:
                raise NotFound(f"thread {thread_id} not found")
            return sorted(mails, key=attrgetter("date"))

        return await self._read(work)

    async def move(self, message_id: str, label: str) -> None:
        name = label.strip().strip("/")

        def work(session: ImapSession) -> None:
            copies = self._copies(session, message_id)
            if not name or name.upper() in ("SENT", "DRAFT"):
                raise InvalidInput(f"mail cannot be moved to {label!r}")
            source = next(
                (copy for copy in copies if copy.folder.role == "inbox"), copies[0]
            )
            session.move([source], name)
            self._places.pop(message_id, None)

        await self._write(work)

    async def add_label(self, message_id: str, label: str) -> None:
        name = label.strip()
        if not name or name.upper() in {place.label for place in ROLES.values()}:
            raise InvalidInput(
                f"{label!r} is a folder here, not a label to add",
                hint="move the mail into it",
            )

        def work(session: ImapSession) -> None:
            for copy in self._copies(session, message_id):
                match name.upper():
                    case "UNREAD":
                        session.flag([copy], remove=["\\Seen"])
                    case "STARRED":
                        session.flag([copy], add=["\\Flagged"])
                    case _:
                        session.flag([copy], add=[imap_session.keyword_to_set(name)])

        await self._write(work)

    async def list_mails(self, ids: Sequence[str]) -> list[MailSummary]:
        def work(session: ImapSession) -> list[MailSummary]:
            return [self._merge(self._copies(session, each))[0] for each in ids]

        return await self._read(work)

    async def change(self, ids: Sequence[str], change: Deed) -> int:
        def work(session: ImapSession) -> int:
            done = 0
            archive = session.archive().casefold() if change.do == "unarchive" else ""
            lying: dict[str, list[Copy]] = {}
            for each in dict.fromkeys(ids):
                with suppress(NotFound):
                    chosen = [
                        copy
                        for copy in self._copies(session, each)
                        if _concerns(change, copy, archive)
                    ]
                    done += bool(chosen)
                    for copy in chosen:
                        lying.setdefault(copy.folder.name, []).append(copy)
            for copies in lying.values():
                self._do(session, copies, change)
            return done

        return await self._write(work)

    def _do(self, session: ImapSession, copies: list[Copy], change: Deed) -> None:
        """All of them lie in one folder."""
        match change.do:
            case "archive":
                session.move(copies, session.archive())
            case "unarchive":
                session.move(copies, "INBOX")
            case "trash":
                session.move(copies, "TRASH")
            case "untrash":
                places: dict[str, list[Copy]] = {}
                for copy in copies:
                    places.setdefault(self._place_outside_trash(copy), []).append(copy)
                for place, those in places.items():
                    session.move(those, place)
            case "label":
                lacking = [
                    copy
                    for copy in copies
                    if not imap_session.find_keywords(copy, change.label)
                ]
                session.flag(lacking, add=[imap_session.keyword_to_set(change.label)])
            case _:
                gets, loses = _flags(change, copies)
                session.flag(copies, add=gets, remove=loses)
        for copy in copies:
            self._places.pop(copy.id, None)

    def _place_outside_trash(self, copy: Copy) -> str:
        """Where a mail belongs; the server does not remember where it lay."""
        if "\\draft" in {flag.lower() for flag in copy.flags}:
            return "DRAFT"
        return "INBOX" if self._own().isdisjoint(_senders(copy)) else "SENT"

    def _own(self) -> set[str]:
        """The addresses of the account, in small letters."""
        return {own_address(self._settings).lower(), *self._aliases}

    async def create_draft(self, raw: bytes, thread_id: str | None) -> SavedDraft:
        del thread_id  # the mail's own References say it
        parsed = await asyncio.to_thread(mime.parse, raw)
        if not parsed.message_id:
            raise InvalidInput("a draft needs a Message-ID")
        await self._write(
            lambda session: session.append("drafts", raw, ["\\Draft", "\\Seen"])
        )
        filed = _as_sent(parsed)
        return SavedDraft(filed.message_id, filed.message_id, filed.thread_id)

    async def prepare(self, mail: Outgoing) -> str:
        """The token is the Message-ID, which Sent is searched for, and the name of the permit to send by."""
        await asyncio.to_thread(self._relay)
        name = secrets.token_hex(16)
        try:
            permits.sweep(self._permits, self._now())
            permits.grant(self._permits, name)
        except OSError as error:
            raise SendFailed(
                f"nothing can be written to {self._permits}; nothing was sent"
            ) from error
        return f"{mail.message_id} {name}"

    async def send(self, token: str, mail: Outgoing, keep: Keep) -> Sent:
        """The token is kept before the last dot, without which no server has a mail, and
        again once it was taken."""
        account, server = await self._in_relay_thread(partial(self._offer, mail))

        def finish() -> None:
            if not permits.take(self._permits, _permit(token)):
                raise UnderWay("another process looks after this mail by now")
            try:
                smtp.finish(server, account)
            except OutcomeUnknown:
                raise
            except SendFailed:
                with suppress(OSError):
                    permits.grant(self._permits, _permit(token))
                raise

        with closing(server):
            await keep(token)
            await self._finish(server, finish)
        with suppress(
            UnderWay
        ):  # somebody else looks after it by now; it has left all the same
            await keep(f"{mail.message_id} {_TAKEN}")
        sent = _as_sent(await asyncio.to_thread(mime.parse, mail.raw))
        try:
            await self._file(mail)
        except DeskError as error:
            log.warning(
                "sent_but_not_filed",
                extra={"failure": error.message, "action_id": mail.action_id},
            )
            return replace(
                sent,
                remark=f"It left, but no copy of it could be put into Sent: {error.message}.",
            )
        return sent

    async def check(self, token: str, mail: Outgoing) -> Sent | NotSent | Unclear:
        if _permit(token) == _TAKEN:
            return await self._file(mail)
        found = await self._find_sent(mail)
        if found:
            return found
        if permits.stands(self._permits, _permit(token)):
            return NotSent(token)
        return Unclear(
            "the mail is not in the Sent folder, and the server that took it cannot be asked"
        )

    async def _file(self, mail: Outgoing) -> Sent:
        """Put a mail that has left into Sent; some servers do it themselves."""
        found = await self._find_sent(mail)
        if found:
            return found
        await self._write(lambda session: session.append("sent", mail.raw, ["\\Seen"]))
        return _as_sent(await asyncio.to_thread(mime.parse, mail.raw))

    async def _find_sent(self, mail: Outgoing) -> Sent | None:
        criteria = [
            *header("MESSAGE-ID", mail.message_id),
            *header(mime.ACTION_HEADER, mail.action_id),
        ]

        def work(session: ImapSession) -> list[Copy]:
            folder = session.folder_for("sent")
            return session.search(folder, criteria) if folder else []

        found = await self._read(work)
        if not found:
            return None
        return _as_sent(found[0].parsed)

    async def position(self) -> str:
        uidvalidity, uidnext = await self._read(ImapSession.inbox)
        return f"{uidvalidity}:{uidnext}"

    async def find_arrived(self, cursor: str) -> Arrived | None:
        def work(session: ImapSession) -> Arrived | None:
            uidvalidity, uidnext = session.inbox()
            known, _, first = cursor.partition(":")
            if known != str(uidvalidity) or not first.isdecimal():
                return None
            if int(first) >= uidnext:
                return Arrived((), f"{uidvalidity}:{uidnext}")
            copies = session.since(uidvalidity, int(first))
            after = max([uidnext, *(copy.uid + 1 for copy in copies)])
            strange = [copy for copy in copies if not self._twins.knows(copy.id)]
            self._twins.tell_apart(session.like(uidvalidity, strange))
            mails = self._merge(self._twins.tell_apart(copies))
            return Arrived(tuple(mail.id for mail in mails), f"{uidvalidity}:{after}")

        return await self._read(work)

    async def wait(self, cursor: str, seconds: float) -> None:
        """Wait on a connection of its own, because one that waits can do nothing else."""
        loop = asyncio.get_running_loop()
        began = asyncio.Event()
        listening = loop.run_in_executor(
            self._listening,
            self._listen,
            seconds,
            partial(loop.call_soon_threadsafe, began.set),
        )
        try:
            await self._hear(listening, began, cursor)
        finally:
            listening.cancel()  # whoever stops waiting does not ask how it ends
        if self._bell is not None and not self._bell.rings:
            await asyncio.sleep(min(seconds, self._settings.poll_seconds))

    async def _hear(
        self, listening: asyncio.Future[None], began: asyncio.Event, cursor: str
    ) -> None:
        """Until the server rings, or has something that came before it began to listen,
        which would ring no bell."""
        started = asyncio.create_task(began.wait())
        either: list[asyncio.Future[Any]] = [listening, started]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            started.cancel()
        if (
            not listening.done()
            and self._bell is not None
            and await self.position() != cursor
        ):
            self._bell.hang_up()
            with suppress(DeskError):
                await listening
            return
        await listening

    def _listen(self, seconds: float, began: Callable[[], object]) -> None:
        with imap_session.translate_errors(self._account):
            try:
                if self._bell is None:
                    self._bell = self._sign_in()
                if self._ends:
                    return
                self._bell.idle(seconds, began)
            except (IMAPClientError, OSError):
                if self._bell is not None:
                    self._bell.drop()
                    self._bell = None
                raise

    async def try_relay(self) -> None:
        """Sign in where mail is handed over, and hand over none."""
        await self._in_relay_thread(lambda: smtp.try_sign_in(*self._relay()))

    async def close(self) -> None:
        # A bell that is only being signed in cannot be hung up; it looks at this before it listens.
        self._ends = True
        if self._bell is not None:
            self._bell.hang_up()
        self._relaying.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._listening.shutdown)
        if self._bell is not None:
            self._bell.drop()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._sign_out)
        self._thread.shutdown()

    async def _in_relay_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._relaying, work)

    async def _finish(self, server: smtp.Dialogue, finish: Callable[[], None]) -> None:
        """Whoever stops waiting hangs up: a connection is closed when nobody reads from it any more."""
        finishing = asyncio.ensure_future(self._in_relay_thread(finish))
        try:
            await asyncio.shield(finishing)
        except asyncio.CancelledError:
            server.hang_up()
            with CancelScope(shield=True):
                await asyncio.gather(finishing, return_exceptions=True)
            raise

    def _offer(self, mail: Outgoing) -> tuple[Account, smtp.Dialogue]:
        """Hand the mail over up to its last dot; a token that is not taken is renewed once."""
        try:
            account, known = self._relay()
            return account, smtp.offer(account, known, own_address(self._settings), mail)
        except AuthRequired:
            if self._tokens is None:
                raise
            self._tokens.forget()
            account, known = self._relay()
            return account, smtp.offer(account, known, own_address(self._settings), mail)

    def _relay(self) -> tuple[Account, str | None]:
        """Who takes the mail, and the password there: its own, else the one of the IMAP account."""
        account = smtp_account(self._settings)
        if account.user is None:
            return account, None
        return account, account.password or self._secret()

    async def _read(self, work: Callable[[ImapSession], T]) -> T:
        """Do it on the kept connection, and once more on a new one where that turns out to be dead."""

        def attempt() -> T:
            if self._session is not None:
                try:
                    return work(self._session)
                except (IMAPClientAbortError, OSError):
                    self._forget()
            return work(self._open_session())

        return await self._in_thread(attempt)

    async def _write(self, work: Callable[[ImapSession], T]) -> T:
        """Do it once and never again; a kept connection is asked first whether it lives."""

        def attempt() -> T:
            if self._session is not None and not self._session.alive():
                self._forget()
            return work(self._open_session())

        return await self._in_thread(attempt)

    async def _in_thread(self, attempt: Callable[[], T]) -> T:
        def run() -> T:
            with imap_session.translate_errors(self._account):
                try:
                    return attempt()
                except (IMAPClientAbortError, OSError):
                    self._forget()
                    raise

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _secret(self) -> str:
        """What the account's servers want to be shown: an access token, or the password."""
        if self._tokens is None:
            return password(self._settings.home, self._account)
        return self._tokens.access()

    def _sign_in(self) -> ImapSession:
        try:
            return ImapSession(self._account, self._secret())
        except AuthRequired:
            if self._tokens is None:
                raise
            self._tokens.forget()  # it may have ended sooner than was said; a new one tells
            return ImapSession(self._account, self._secret())

    def _sign_out(self) -> None:
        if self._session is not None:
            self._session.close()

    def _open_session(self) -> ImapSession:
        if self._session is None:
            self._session = self._sign_in()
        return self._session

    def _forget(self) -> None:
        if self._session is not None:
            self._session.drop()
            self._session = None

    def _merge(self, found: Iterable[Copy]) -> list[MailSummary]:
        """Each mail once, with the labels of all its copies, whose places are kept in mind."""
        copies: dict[str, list[Copy]] = {}
        for copy in found:
            copies.setdefault(copy.id, []).append(copy)
        if len(self._places) > MOST_PLACES:
            self._places.clear()
        self._places |= copies
        return [_summary(same) for same in copies.values()]

    def _copies(self, session: ImapSession, message_id: str) -> list[Copy]:
        """Where the mail lies now: where it was seen last, else wherever it is found."""
        seen = [
            copy
            for hint in self._places.get(message_id, ())
            for copy in session.at(hint.folder, hint.uidvalidity, hint.uid)
        ]
        copies = [copy for copy in self._twins.tell_apart(seen) if copy.id == message_id]
        if not copies:
            found = _find_copies(session, message_id)
            named = self._twins.tell_apart(found)
            copies = [copy for copy in named if copy.id == message_id]
            # The one that came before it may have gone since.
            copies = copies or [
                replace(copy, id=message_id)
                for copy in found
                if message_id in list_names(copy)
            ]
        if not copies:
            raise NotFound(f"mail {message_id} not found")
        return copies


def _concerns(change: Deed, copy: Copy, archive: str) -> bool:
    match change.do:
        case "unarchive":
            return copy.folder.label.casefold() == archive
        case "archive":
            return copy.folder.role == "inbox"
        case "trash":
            return copy.folder.role != "trash"
        case "untrash":
            return copy.folder.role == "trash"
        case _:
            return True


def _flags(change: Deed, copies: Sequence[Copy]) -> tuple[list[str], list[str]]:
    """Which flags the mails get and lose."""
    match change.do:
        case "read":
            return ["\\Seen"], []
        case "unread":
            return [], ["\\Seen"]
        case "star":
            return ["\\Flagged"], []
        case "unstar":
            return [], ["\\Flagged"]
        case _:
            found = [imap_session.find_keywords(copy, change.label) for copy in copies]
            return [], sorted(set().union(*found))


def _senders(copy: Copy) -> list[str]:
    return [person.address.lower() for person in people(copy.parsed.sender)]


def _find_copies(session: ImapSession, message_id: str) -> list[Copy]:
    """Whatever may be the mail, wherever it is."""
    name, _, place = message_id.partition(".")
    known = imap_session.decode_name(name)
    uidvalidity, _, uid = place.partition(".")
    found: list[Copy] = []
    for folder in session.folders():
        if known is not None and not uid:
            found += session.search(folder, header("MESSAGE-ID", f"<{known}>"))
        elif folder.name == known and uidvalidity.isdecimal() and uid.isdecimal():
            found += session.at(folder, int(uidvalidity), int(uid))
    return found


def _summary(copies: list[Copy]) -> MailSummary:
    first = copies[0]
    thread = imap_session.thread_id(first.parsed, first.id)
    return first.parsed.summary(
        first.id, thread, first.date, first.snippet, imap_session.labels(copies)
    )


def _permit(token: str) -> str:
    """The name of the permit; of a token from the time before there were any a name that no permit has."""
    return token.partition(" ")[2] or "none"


def _as_sent(parsed: mime.Parsed) -> Sent:
    own_id = imap_session.mail_id(parsed, "", 0, 0)
    return Sent(own_id, imap_session.thread_id(parsed, own_id))
