"""What the contract suite does not ask of other people's servers: the copy in Sent, a restart, a refused move."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from deskhand.config import load
from deskhand.errors import Denied
from deskhand.mail.imap import ImapMailbox
from tests.mail.dovecot import Dovecot, ImapAccount, Relay
from tests.mail.foreign import Foreign, shared
from tests.mail.letters import letter, outgoing, unwritten
from tests.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("imap:foreign")]


@pytest.fixture(params=["dovecot", "courier", "cyrus"])
def server(request: pytest.FixtureRequest) -> ImapAccount:
    if request.param == "dovecot":
        return Dovecot()
    return ImapAccount(shared(request.param).port)


@pytest.fixture
def relay(server: ImapAccount) -> Iterator[Relay]:
    with Relay(server) as made:
        yield made


@pytest.fixture
async def mailbox(
    server: ImapAccount, relay: Relay, tmp_path: Path
) -> AsyncIterator[ImapMailbox]:
    made = ImapMailbox(
        load({"DESKHAND_HOME": str(tmp_path)} | server.environment(relay)).settings
    )
    yield made
    await made.close()


async def test_every_mail_and_draft_is_filed_whatever_was_looked_at_before(
    mailbox: ImapMailbox,
) -> None:
    for number in (1, 2, 3):
        mail = outgoing(action_id=f"act-{number}")
        await mailbox.send(await mailbox.prepare(mail), mail, unwritten)
        assert len(await mailbox.search("in:sent", 10)) == number
        await mailbox.create_draft(outgoing(action_id=f"draft-{number}").raw, None)
        assert len(await mailbox.search("in:drafts", 10)) == number


@pytest.mark.parametrize("server", ["cyrus"], indirect=True)
async def test_a_move_that_the_server_refuses_leaves_nothing_behind(
    server: ImapAccount, mailbox: ImapMailbox
) -> None:
    server.deliver(letter(message_id="<one@example.org>"))
    (mail,) = await mailbox.search("", 10)
    with server.client() as client:
        before = [name for _, _, name in client.list_folders()]
        client.setacl("INBOX", server.user, "-te")

    with pytest.raises(Denied):
        await mailbox.move(mail.id, "Elsewhere")

    assert (await mailbox.get(mail.id)).summary.labels == mail.labels
    with server.client() as client:
        assert [name for _, _, name in client.list_folders()] == before


@pytest.mark.parametrize("name", ["courier", "cyrus"])
async def test_a_server_that_was_started_anew_is_found_again(
    name: str, tmp_path: Path
) -> None:
    with Foreign(name) as process:
        account = ImapAccount(process.port)
        mailbox = ImapMailbox(
            load(
                {"DESKHAND_HOME": str(tmp_path)} | account.environment(Relay(account))
            ).settings
        )
        account.deliver(letter(message_id="<one@example.org>"))
        cursor = await mailbox.position()
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(mailbox.wait, cursor, 60)
                await anyio.to_thread.run_sync(
                    account.deliver, letter(message_id="<two@example.org>")
                )
        assert len((await mailbox.find_arrived(cursor)).ids) == 1

        process.restart()
        account.deliver(letter(message_id="<three@example.org>"))
        assert [mail.subject for mail in await mailbox.search("in:inbox", 10)] == ["Hello"]
        await mailbox.add_label((await mailbox.search("", 1))[0].id, "Again")
        await mailbox.close()
