"""Several mail accounts as one mailbox.

The id of a mail or a thread carries the name of its account, NAME~ID; those of `main` are as its mailbox gives them.
What one call sees of the accounts is its view: no more than its token opens, and of these the one that it names.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TypeVar

from deskhand.config import MAIN, MailAccount, MailKind, Settings
from deskhand.errors import (
    BadConfig,
    DeskError,
    FieldProblem,
    InvalidInput,
    NoAccount,
    NotFound,
    OutOfScope,
    PartlyDone,
    TimedOut,
    printable,
)
from deskhand.mail import (
    FullMessage,
    Keep,
    Mailbox,
    MailSummary,
    NotSent,
    Outgoing,
    SavedDraft,
    Sent,
    Unclear,
    WatchedMailbox,
)
from deskhand.mail.addresses import addresses_in
from deskhand.mail.answering import mailbox_of
from deskhand.mail.changes import Deed

T = TypeVar("T")
SIGN = "~"


@dataclass(frozen=True, slots=True)
class Patience:
    """For how many seconds a search waits for one account while others have answered."""

    full: float = 20.0
    brief: float = 3.0
    """After it has kept somebody waiting for nothing."""
    rest: float = 60.0
    """So long after that."""


PATIENCE = Patience()

Tell = Callable[[str, DeskError | None], None]
"""Told how an account did: what is wrong with it, or None where it answered."""


@dataclass(frozen=True, slots=True)
class MailView:
    """What a call sees of the accounts."""

    names: frozenset[str] | None = None
    """None: every account."""
    asked: bool = False
    """The caller named the account; otherwise its token opens no other."""
    silent: dict[str, DeskError] = field(default_factory=dict)
    """Accounts that did not answer it."""

    def describe_silent(self) -> list[str]:
        return [
            f"The mail account {name} did not answer, so its mails are missing here: {error.message}"
            for name, error in self.silent.items()
        ]


_view: ContextVar[MailView | None] = ContextVar("view", default=None)


@contextmanager
def viewing(view: MailView) -> Iterator[MailView]:
    """Let whatever is called here see these accounts alone."""
    before = _view.set(view)
    try:
        yield view
    finally:
        _view.reset(before)


def sees(name: str) -> bool:
    """Whether the call that goes on here sees the account."""
    view = _view.get()
    return view is None or view.names is None or name in view.names


def carry(name: str, own_id: str) -> str:
    """The id by which the desk knows what the account's mailbox calls so."""
    if name == MAIN or not own_id:
        return own_id
    return f"{name}{SIGN}{own_id}"


def split(desk_id: str) -> tuple[str | None, str]:
    """The account that an id carries, and the mailbox's own id; a Message-ID header carries none."""
    name, sign, own = desk_id.partition(SIGN)
    if not sign or "@" in desk_id:
        return None, desk_id
    return name, own


def account_of(mail: MailSummary) -> str | None:
    """The name of the account that has the mail, where the desk has several."""
    if not mail.account:
        return None
    return split(mail.id)[0] or MAIN


class Mailboxes:
    def __init__(
        self,
        accounts: Sequence[MailAccount],
        default: MailAccount,
        open_account: Callable[[MailAccount], WatchedMailbox],
        tell: Tell,
        patience: Patience = PATIENCE,
    ) -> None:
        self._patience = patience
        self._slow: dict[str, float] = {}
        """Accounts that kept somebody waiting for nothing, and until when, by the event loop's clock."""
        self._told: dict[str, str] = {}
        """The addresses that accounts told themselves."""
        self._accounts = {account.name: account for account in accounts}
        self._default = default.name
        self._open = open_account
        self._tell = tell
        self._opened: dict[str, WatchedMailbox] = {}

    def box(self, name: str) -> WatchedMailbox:
        """The mailbox of one account, which knows its own ids only."""
        if name not in self._opened:
            self._opened[name] = self._open(self._accounts[name])
        return self._opened[name]

    async def address(self) -> str:
        """The address from which a mail leaves that answers none."""
        return await self.address_of(self._sender())

    async def address_of(self, name: str) -> str:
        account = self._accounts[name]
        if account.address is not None and account.kind != "gmail":
            return account.address
        found = await self._ask_itself(name)
        if account.addresses and found.lower() not in account.addresses:
            wrong = f"the account {name} is signed in as {found}, not as {account.address}"
            raise BadConfig(
                wrong,
                hint=f"`deskhand mail login gmail --account {name}`, or correct its address",
            )
        if account.address is None:
            self._demand_only_one(name, found)
        return account.address or found

    async def _ask_itself(self, name: str) -> str:
        found = await self.box(name).address()
        self._told[name] = found
        return found

    def _demand_only_one(self, name: str, told: str) -> None:
        """Refuse an address that another account has: each of its mails would be there twice."""
        address = told.lower()
        names = list(self._accounts)
        first = [
            other for other, each in self._accounts.items() if address in each.addresses
        ]
        first += [
            other
            for other in names[: names.index(name)]
            if self._told.get(other, "").lower() == address
        ]
        if first:
            raise BadConfig(
                f"the account {name} is signed in as {told}, which the account {first[0]} is",
                hint=f"take one of the two out of config.toml, or sign in to {name} as somebody else",
            )

    async def find_owner(self, address: str) -> str:
        """The account that has the address; never another one where it has gone."""
        wanted = address.lower()
        for name, account in self._accounts.items():
            if wanted in account.addresses:
                return name
        unknown = [
            name for name, account in self._accounts.items() if account.address is None
        ]
        for name in unknown:
            if (await self._ask_itself(name)).lower() == wanted:
                return name
        raise NoAccount(
            f"this desk has no mail account {address} now",
            hint=f"its accounts are {', '.join(self._accounts)}; bring it back in config.toml, or say no to it",
        )

    async def ask_untold(self) -> frozenset[str]:
        """The addresses that nobody wrote down and the accounts tell themselves, as far as they ever did."""
        untold = [each.name for each in self._accounts.values() if each.address is None]
        answers = await asyncio.gather(*map(self._ask_address, untold))
        return frozenset(filter(None, answers))

    async def _ask_address(self, name: str) -> str | None:
        if name not in self._told and not self._is_slow(name):
            with suppress(DeskError, TimeoutError):
                async with asyncio.timeout(self._patience.brief):
                    await self._ask_itself(name)
        return self._told.get(name)

    async def sees_address(self, address: str) -> bool:
        """Whether the call sees the account that has the address; one that nobody has is seen where all are."""
        names = self._in_view()
        if len(names) == len(self._accounts):
            return True
        try:
            return await self.find_owner(address) in names
        except DeskError:
            return False

    async def search(self, query: str, limit: int) -> list[MailSummary]:
        names = self._in_view()
        if len(names) == 1:
            return await self._search(names[0], query, limit)
        answers = await asyncio.gather(
            *(self.listen_to(name, self._search(name, query, limit)) for name in names)
        )
        failed = {
            name: answer
            for name, answer in zip(names, answers, strict=True)
            if isinstance(answer, DeskError)
        }
        if len(failed) == len(names):
            raise failed[names[0]]
        if view := _view.get():
            view.silent.update(failed)
        found = [
            mail
            for answer in answers
            if not isinstance(answer, DeskError)
            for mail in answer
        ]
        return sorted(found, key=attrgetter("date"), reverse=True)[:limit]

    async def _search(self, name: str, query: str, limit: int) -> list[MailSummary]:
        found = await self.box(name).search(query, limit)
        return await self._mark(name, found)

    async def listen_to(self, name: str, work: Awaitable[T]) -> T | DeskError:
        """What one account answers while somebody waits for all of them, or why it does not."""
        began = asyncio.get_running_loop().time()
        is_slow = self._is_slow(name)
        try:
            async with asyncio.timeout(
                self._patience.brief if is_slow else self._patience.full
            ):
                answer = await work
        except InvalidInput as error:
            return error  # it does not understand the query, and is well
        except TimeoutError:
            # Nobody is told that it is away: it may only be slow, and who watches it knows.
            self._note_slow(name, began, is_slow=is_slow)
            return TimedOut(f"the account {name} did not answer in time")
        except DeskError as error:
            self._note_slow(name, began, is_slow=is_slow)
            self._tell(name, error)
            return error
        self._slow.pop(name, None)
        self._tell(name, None)
        return answer

    def _note_slow(self, name: str, began: float, *, is_slow: bool) -> None:
        now = asyncio.get_running_loop().time()
        if not is_slow and now - began > self._patience.brief:
            self._slow[name] = now + self._patience.rest

    def _is_slow(self, name: str) -> bool:
        return asyncio.get_running_loop().time() < self._slow.get(name, 0)

    async def get(self, message_id: str) -> FullMessage:
        name, own = self.place(message_id)
        found = await self.box(name).get(own)
        (summary,) = await self._mark(name, [found.summary])
        reached = await asyncio.to_thread(self._reached, name, summary.account, found)
        return replace(found, summary=summary._replace(account=reached))

    def _reached(self, name: str, address: str, mail: FullMessage) -> str:
        """By which of its own addresses the mail reached the account: from there it is answered."""
        named = set(map(mailbox_of, addresses_in(f"{mail.summary.to}, {mail.cc}")))
        own = [address, *self._accounts[name].aliases]
        return next((each for each in own if mailbox_of(each) in named), address)

    async def read_raw(self, message_id: str) -> bytes:
        name, own = self.place(message_id)
        return await self.box(name).read_raw(own)

    async def thread(self, thread_id: str) -> list[MailSummary]:
        name, own = self.place(thread_id)
        return await self._mark(name, await self.box(name).thread(own))

    async def move(self, message_id: str, label: str) -> None:
        name, own = self.place(message_id)
        await self.box(name).move(own, label)

    async def add_label(self, message_id: str, label: str) -> None:
        name, own = self.place(message_id)
        await self.box(name).add_label(own, label)

    async def list_mails(self, ids: Sequence[str]) -> list[MailSummary]:
        found: dict[tuple[str, str], MailSummary] = {}
        for name, own_ids in self._by_account(ids).items():
            mails = await self._mark(name, await self.box(name).list_mails(own_ids))
            found |= {(name, own): mail for own, mail in zip(own_ids, mails, strict=True)}
        return [found[self.place(each)] for each in ids]

    async def change(self, ids: Sequence[str], change: Deed) -> int:
        """In each account for itself; PartlyDone where one of several could not do it."""
        counts: list[int] = []
        failed: dict[str, DeskError] = {}
        for name, own_ids in self._by_account(ids).items():
            try:
                counts.append(await self.box(name).change(own_ids, change))
            except DeskError as error:
                failed[name] = error
        if failed and not counts:
            raise next(iter(failed.values()))
        if failed:
            raise PartlyDone(sum(counts), failed)
        return sum(counts)

    async def open_owned(self, address: str) -> WatchedMailbox:
        """The mailbox of the account that has the address, whatever it is called now."""
        name = await self.find_owner(address)
        await self.address_of(name)
        self._demand_in_view(name)
        return self.box(name)

    async def create_draft(self, raw: bytes, thread_id: str | None) -> SavedDraft:
        name = self._sender()
        own = None
        if thread_id is not None:
            name, own = self.place(thread_id)
        saved = await self.box(name).create_draft(raw, own)
        return SavedDraft(
            carry(name, saved.id),
            message_id=carry(name, saved.message_id),
            thread_id=carry(name, saved.thread_id),
        )

    async def prepare(self, mail: Outgoing) -> str:
        box, _, own = await self._sending(mail)
        return await box.prepare(own)

    async def send(self, token: str, mail: Outgoing, keep: Keep) -> Sent:
        box, name, own = await self._sending(mail)
        return _carried(name, await box.send(token, own, keep))

    async def check(self, token: str, mail: Outgoing) -> Sent | NotSent | Unclear:
        box, name, own = await self._sending(mail)
        found = await box.check(token, own)
        if isinstance(found, Sent):
            return _carried(name, found)
        return found

    async def close(self) -> None:
        while self._opened:
            _, box = self._opened.popitem()
            await box.close()

    async def _sending(self, mail: Outgoing) -> tuple[WatchedMailbox, str, Outgoing]:
        """The account from which it leaves, and the mail as that one knows it."""
        box = await self.open_owned(mail.account)
        name = await self.find_owner(mail.account)
        thread = None
        if mail.thread_id is not None:
            place, own = self._split(mail.thread_id)
            # An account that has another name by now finds the thread by the mail's own References.
            thread = own if place == name else None
        return box, name, replace(mail, thread_id=thread)

    def _in_view(self) -> list[str]:
        return [name for name in self._accounts if sees(name)]

    def _sender(self) -> str:
        """The default, or the only account that the call sees."""
        seen = self._in_view()
        if self._default in seen:
            return self._default
        if len(seen) != 1:
            problem = FieldProblem(
                "account", "is needed: the default account is not open to you", None, *seen
            )
            raise InvalidInput("name the account from which it leaves", fields=[problem])
        return seen[0]

    def place(self, desk_id: str) -> tuple[str, str]:
        """The account in which it lies, which the call must see, and its id there."""
        name, own = self._split(desk_id)
        if name not in self._accounts:
            known = ", ".join(self._accounts)
            raise NoAccount(
                f"this desk has no mail account {printable(name)}",
                hint=f"its accounts are {known}",
            )
        self._demand_in_view(name)
        return name, own

    def _split(self, desk_id: str) -> tuple[str, str]:
        """The account that an id names, whether or not there is one, and the id there. A bare one is main's."""
        name, own = split(desk_id)
        if name is None:
            name = MAIN if MAIN in self._accounts else self._default
        return name, own

    def _demand_in_view(self, name: str) -> None:
        view = _view.get()
        if sees(name):
            return
        if view is not None and view.asked:
            raise NotFound(f"it lies in the account {name}, not in the one that was named")
        raise OutOfScope(
            f"the client was not given the account {name}", scope=f"mail:read:{name}"
        )

    def _by_account(self, ids: Sequence[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, own in map(self.place, ids):
            found.setdefault(name, []).append(own)
        return found

    async def _mark(self, name: str, mails: Sequence[MailSummary]) -> list[MailSummary]:
        """The mails as the desk knows them."""
        if not mails:
            return []
        address = await self.address_of(name)
        return [
            mail._replace(
                id=carry(name, mail.id),
                thread_id=carry(name, mail.thread_id),
                account=address,
            )
            for mail in mails
        ]


async def find_own(mailbox: Mailbox, settings: Settings) -> frozenset[str]:
    """All addresses that are known to be the person's own."""
    if isinstance(mailbox, Mailboxes):
        return settings.own_addresses | await mailbox.ask_untold()
    return settings.own_addresses


async def find_kind(mailbox: Mailbox, settings: Settings, address: str) -> MailKind | None:
    """The kind of the account that has the address; None where it has gone."""
    if not isinstance(mailbox, Mailboxes):
        return settings.mail
    kinds = {account.name: account.kind for account in settings.mail_accounts}
    with suppress(DeskError):
        return kinds[await mailbox.find_owner(address)]
    return None


async def open_owned(mailbox: Mailbox, address: str) -> Mailbox:
    """The mailbox that has the address, with its own ids: never another that is in its place by now."""
    if isinstance(mailbox, Mailboxes):
        return await mailbox.open_owned(address)
    if (found := await mailbox.address()).lower() != address.lower():
        hint = f"it has {found}; bring the other back, or say no to what was asked of it"
        raise NoAccount(f"this desk has no mail account {address} now", hint=hint)
    return mailbox


def _carried(name: str, sent: Sent) -> Sent:
    return replace(
        sent, message_id=carry(name, sent.message_id), thread_id=carry(name, sent.thread_id)
    )
