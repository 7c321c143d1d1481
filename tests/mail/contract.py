"""One world per mailbox for the contract: the mailbox, how mail reaches it, and what left it."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from deskhand.config import load
from deskhand.mail import WatchedMailbox, mime
from deskhand.mail.gmail import GmailMailbox
from deskhand.mail.imap import ImapMailbox
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.mail.mime import Parsed
from tests.mail.dovecot import Dovecot, ImapAccount, Relay
from tests.mail.foreign import shared
from tests.mail.gmail_double import GmailDouble

ME = "me@example.com"


@dataclass(frozen=True)
class World:
    mailbox: WatchedMailbox
    deliver: Callable[[bytes], object]
    """A mail from outside arrives, later than all before it."""
    left: Callable[[], list[Parsed]]
    """What has left the desk."""
    reached: Callable[[], list[tuple[tuple[str, ...], bytes]]]
    """Whom it reached, and their copy of it; a local mailbox reaches nobody."""
    account: dict[str, str]
    """What makes an account of a desk of it."""


def _days() -> Iterator[datetime]:
    """IMAP tells arrivals apart by the second only."""
    return (datetime(2026, 2, day, tzinfo=UTC) for day in range(1, 28))


@asynccontextmanager
async def local(folder: Path) -> AsyncIterator[World]:
    days = _days()
    waiting: list[Incoming] = []

    class Fed(LocalMailbox):
        """Takes in what was delivered when it is next looked at, as a real mailbox does."""

        async def search(self, query: str, limit: int) -> list:  # type: ignore[type-arg]
            await self.receive(waiting)
            waiting.clear()
            return await super().search(query, limit)

    mailbox = Fed(folder / "mail.db", ME, lambda: datetime(2026, 2, 28, tzinfo=UTC))

    def left() -> list[Parsed]:
        rows = mailbox._db.execute(
            "SELECT bytes FROM raw JOIN labelled ON mail = raw.id WHERE label = 'sent'"
        )
        return [mime.parse(raw) for (raw,) in rows]

    yield World(
        mailbox,
        lambda raw: waiting.append(Incoming(raw, seen=False, dated=next(days))),
        left,
        list,
        {"kind": "local"},
    )
    await mailbox.close()


@asynccontextmanager
async def gmail(folder: Path) -> AsyncIterator[World]:
    with GmailDouble() as double:
        environment = double.environment(folder)
        mailbox = GmailMailbox(load({"DESKHAND_HOME": str(folder)} | environment).settings)
        account = double.account
        left = account.delivered
        yield World(
            mailbox,
            account.deliver,
            lambda: [*map(mime.parse, left)],
            lambda: account.reached,
            {
                "kind": "gmail",
                "gmail_credentials": environment["DESKHAND_GMAIL_CREDENTIALS"],
                "gmail_api_endpoint": double.origin,
            },
        )
        await mailbox.close()


def imap(folder: Path) -> AbstractAsyncContextManager[World]:
    return _on_imap(Dovecot(), folder)


def courier(folder: Path) -> AbstractAsyncContextManager[World]:
    return _on_imap(ImapAccount(shared("courier").port), folder)


def cyrus(folder: Path) -> AbstractAsyncContextManager[World]:
    return _on_imap(ImapAccount(shared("cyrus").port), folder)


@asynccontextmanager
async def _on_imap(server: ImapAccount, folder: Path) -> AsyncIterator[World]:
    with Relay(server) as relay:
        environment = server.environment(relay)
        mailbox = ImapMailbox(load({"DESKHAND_HOME": str(folder)} | environment).settings)
        days = _days()
        yield World(
            mailbox,
            lambda raw: server.deliver(raw, at=next(days)),
            lambda: [mime.parse(raw) for _, raw in relay.delivered],
            lambda: relay.delivered,
            {
                "kind": "imap",
                "imap_url": environment["DESKHAND_IMAP_URL"],
                "smtp_url": environment["DESKHAND_SMTP_URL"],
            },
        )
        await mailbox.close()


WORLDS = {"local": local, "gmail": gmail, "imap": imap, "courier": courier, "cyrus": cyrus}
