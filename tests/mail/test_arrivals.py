"""What arrived after a cursor, on each mailbox."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from deskhand.app import Desk
from deskhand.config import load
from deskhand.mail import WatchedMailbox
from deskhand.mail.local import Incoming, LocalMailbox
from tests.home import Home
from tests.mail.dovecot import Dovecot, ImapAccount, Relay
from tests.mail.foreign import shared
from tests.mail.gmail_double import GmailDouble
from tests.mail.letters import letter
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@dataclass
class Post:
    mailbox: WatchedMailbox
    deliver: Callable[[bytes], Awaitable[None]]


@asynccontextmanager
async def local(home: Home, folder: Path) -> AsyncIterator[Post]:
    desk = Desk(load(home.environment | {"DESKHAND_ADDRESS": "me@example.com"}).settings)
    other = Desk(load(home.environment | {"DESKHAND_ADDRESS": "me@example.com"}).settings)
    box = other.mailbox
    assert isinstance(box, LocalMailbox)

    async def deliver(raw: bytes) -> None:
        await box.receive([Incoming(raw, seen=False)])

    yield Post(desk.account_mailbox("main"), deliver)
    await desk.close_mailbox()
    await other.close_mailbox()


@asynccontextmanager
async def gmail(home: Home, folder: Path) -> AsyncIterator[Post]:
    with GmailDouble() as double:
        desk = Desk(
            load(
                home.environment
                | double.environment(folder)
                | {"DESKHAND_POLL_SECONDS": "1"}
            ).settings
        )

        async def deliver(raw: bytes) -> None:
            double.account.deliver(raw)

        yield Post(desk.account_mailbox("main"), deliver)
        await desk.close_mailbox()


def imap(home: Home, folder: Path) -> AbstractAsyncContextManager[Post]:
    return _on_imap(Dovecot(), home)


def courier(home: Home, folder: Path) -> AbstractAsyncContextManager[Post]:
    account = ImapAccount(shared("courier").port)
    account.deliver(
        letter(subject="Old")
    )  # a folder that never held a mail is numbered anew each time
    return _on_imap(account, home)


def cyrus(home: Home, folder: Path) -> AbstractAsyncContextManager[Post]:
    return _on_imap(ImapAccount(shared("cyrus").port), home)


@asynccontextmanager
async def _on_imap(server: ImapAccount, home: Home) -> AsyncIterator[Post]:
    with Relay(server) as relay:
        desk = Desk(load(home.environment | server.environment(relay)).settings)

        async def deliver(raw: bytes) -> None:
            await anyio.to_thread.run_sync(server.deliver, raw)

        yield Post(desk.account_mailbox("main"), deliver)
        await desk.close_mailbox()


@pytest.fixture(params=[local, gmail, imap, courier, cyrus], ids=lambda each: each.__name__)
async def post(
    request: pytest.FixtureRequest, home: Home, tmp_path: Path
) -> AsyncIterator[Post]:
    async with request.param(home, tmp_path) as made:
        yield made


@requirement("mail:cursor")
async def test_what_arrives_after_a_cursor_is_told_once_in_order_whatever_its_date(
    post: Post,
) -> None:
    await post.deliver(letter(subject="Before", message_id="<0@x>"))
    cursor = await post.mailbox.position()
    assert (await post.mailbox.find_arrived(cursor)).ids == ()
    for number in range(1, 6):
        old = letter(subject=f"Number {number}", message_id=f"<{number}@x>").replace(
            b"2026", f"20{20 - number}".encode()
        )
        await post.deliver(old)

    arrived = await post.mailbox.find_arrived(cursor)
    subjects = [(await post.mailbox.get(mail)).summary.subject for mail in arrived.ids]
    assert subjects == [f"Number {number}" for number in range(1, 6)]
    assert (await post.mailbox.find_arrived(arrived.cursor)).ids == ()
    assert (await post.mailbox.find_arrived(arrived.cursor)).cursor == arrived.cursor


@requirement("mail:cursor")
async def test_a_cursor_that_means_nothing_here_is_void(post: Post) -> None:
    assert await post.mailbox.find_arrived("0:nonsense") is None


@requirement("mail:cursor")
async def test_whoever_waits_is_woken_by_the_next_mail(post: Post) -> None:
    cursor = await post.mailbox.position()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(post.mailbox.wait, cursor, 60)
            await post.deliver(letter(message_id="<1@x>"))
    assert len((await post.mailbox.find_arrived(cursor)).ids) == 1


@requirement("mail:cursor")
async def test_history_that_gmail_has_forgotten_voids_the_cursor(
    home: Home, tmp_path: Path
) -> None:
    with GmailDouble(now=lambda: datetime(2026, 11, 15, tzinfo=UTC)) as double:
        desk = Desk(load(home.environment | double.environment(tmp_path)).settings)
        cursor = await desk.account_mailbox("main").position()
        double.account.deliver(letter())
        double.account.history_begins = 2
        assert await desk.account_mailbox("main").find_arrived(cursor) is None
        await desk.close_mailbox()
