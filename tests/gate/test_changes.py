"""A change of many mails waits for the person like a mail that would leave."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import InvalidInput, ProviderDown
from deskhand.gate import Failed, Released, ledger
from deskhand.gate.actions import ListedMail, MailChange, SendEmail
from deskhand.gate.answers import Letter
from deskhand.gate.risk import assess_change
from deskhand.mail import Mailbox
from deskhand.servers.desk import desk_server
from tests.gate.site import HELLO, Clock, Interrupted
from tests.home import Home
from tests.requirements import requirement
from tests.test_desk_server import fill, ok, refused

pytestmark = pytest.mark.anyio


@pytest.fixture
def furnished(home: Home) -> Home:
    return Home(home.vault, home.environment | {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_USER": "me"})


@pytest.fixture
async def desk(furnished: Home) -> AsyncIterator[Desk]:
    made = Desk(load(furnished.environment).settings, Clock())
    yield made
    await made.close_mailbox()
    made.close()


@pytest.fixture
async def client(desk: Desk) -> AsyncIterator[Client]:
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        yield client


@requirement("mail:bulk-waits")
@pytest.mark.parametrize(("do", "count", "seen"), [("trash", 1, False), ("read", 51, True)])
async def test_many_mails_and_unread_ones_into_the_trash_wait_for_the_person(
    furnished: Home, client: Client, desk: Desk, do: str, count: int, seen: bool
) -> None:
    ids = await fill(desk, count, seen=seen)
    before = await desk.mailbox.list_mails(ids)
    assert (await ok(client, "update_emails", do=do, ids=ids, dry_run=True))["waits"]

    for _ in range(2):
        error = await refused(client, "update_emails", do=do, ids=ids)
        assert (error["error"], error["details"]["reason"]) == ("permission_denied", "no_approval")
    assert await desk.mailbox.list_mails(ids) == before
    (waiting,) = (await ok(client, "pending_actions"))["actions"]
    assert (waiting["kind"], waiting["state"]) == ("update_emails", "waiting")
    (file,) = (furnished.vault / "Pending_Approval").glob("*.md")
    assert "Offer 0" in file.read_text()
    card = await desk.waiting.card(waiting["id"])
    assert card.risk.level == ("high" if do == "trash" else "medium")
    file.rename(furnished.vault / "Approved" / file.name)
    done = await ok(client, "update_emails", do=do, ids=ids)

    assert (done["done"], done["count"]) == (True, count)
    labels = [set(mail.labels) for mail in await desk.mailbox.list_mails(ids)]
    assert all("TRASH" in each if do == "trash" else "UNREAD" not in each for each in labels)
    assert (await desk.gate.find(waiting["id"])).state == "sent"
    assert await desk.store.read(lambda tx: tx.all("SELECT at FROM sends")) == []


@requirement("mail:bulk-waits")
async def test_a_yes_to_one_list_of_mails_releases_no_other_and_no_hand_written_one_does(
    furnished: Home, client: Client, desk: Desk
) -> None:
    ids = await fill(desk, 2, seen=False)
    await refused(client, "update_emails", do="trash", ids=ids[:1])
    (file,) = (furnished.vault / "Pending_Approval").glob("*.md")
    text = file.read_text().replace("Offer 1", "Offer 0")
    (furnished.vault / "Approved").mkdir(exist_ok=True)
    file.rename(furnished.vault / "Approved" / file.name)
    own = "---\ntype: email_change\nstatus: approved\nto: me@example.com\n---\n"
    (furnished.vault / "Approved" / "own.md").write_text(own)
    (furnished.vault / "Approved" / "altered.md").write_text(text)

    for wanted in (ids, ids[1:]):
        await refused(client, "update_emails", do="trash", ids=wanted)

    assert await desk.mailbox.search("in:trash", 5) == []
    assert (await ok(client, "update_emails", do="trash", ids=ids[:1]))["done"]
    assert [mail.id for mail in await desk.mailbox.search("in:trash", 5)] == ids[:1]


class _Broken:
    """A real mailbox that changes nothing, and does not say whether it did."""

    def __init__(self, inner: Mailbox) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def change(self, ids: list[str], deed: object) -> int:
        raise ProviderDown("the line broke")


@requirement("mail:bulk-waits")
async def test_what_may_be_done_twice_is_never_unknown(furnished: Home, client: Client, desk: Desk) -> None:
    ids = await fill(desk, 1, seen=False)
    await refused(client, "update_emails", do="trash", ids=ids)
    (file,) = (furnished.vault / "Pending_Approval").glob("*.md")
    file.rename(furnished.vault / "Approved" / file.name)
    (waiting,) = (await ok(client, "pending_actions"))["actions"]

    whole = desk.mailbox
    desk.mailbox = _Broken(whole)  # type: ignore[assignment]
    broken = await desk.gate.release(waiting["id"], "desk")
    after = (await desk.gate.find(waiting["id"])).state
    desk.mailbox = whole
    done = await desk.gate.release(waiting["id"], "desk")

    assert (isinstance(broken, Failed), after) == (True, "approved")
    assert isinstance(done, Released)
    assert isinstance(done.action, MailChange)


@requirement("mail:bulk-waits")
async def test_nobody_edits_a_list_of_mails(client: Client, desk: Desk) -> None:
    ids = await fill(desk, 1, seen=False)
    await refused(client, "update_emails", do="trash", ids=ids)
    ((card,), _) = await desk.waiting.cards()
    same = Letter(card.to[0].address, card.subject, card.body)
    other = Letter(same.to, "trash: nothing", same.body)

    with pytest.raises(InvalidInput):
        await desk.answers.edit(card.id, card.digest, other, "person", "page")
    await desk.answers.edit(card.id, card.digest, same, "person", "page")

    after = await desk.waiting.card(card.id)
    assert (after.state, after.digest, after.revision) == ("waiting", card.digest, 1)


@requirement("mail:bulk-waits")
def test_a_small_change_is_no_risk_and_says_what_it_is() -> None:
    listed = ListedMail(id="m1", sender="ann@example.org", subject="", unread=False)
    small = MailChange(account="me@example.com", do="label", label="Bills", mails=(listed,))

    assert assess_change(small).level == "low"
    assert small.subject == "label Bills: 1 mail, 0 unread"
    assert "(no subject) (from ann@example.org)" in small.body


@requirement("gate:once")
async def test_who_lost_the_lease_before_the_point_of_no_return_sends_nothing(furnished: Home, desk: Desk) -> None:
    await desk.gate.propose(SendEmail(**HELLO), "email_mcp")
    (file,) = (furnished.vault / "Pending_Approval").glob("*.md")
    file.rename(furnished.vault / "Approved" / file.name)
    whole = desk.mailbox

    async def lose() -> None:
        await desk.store.write(lambda tx: tx.execute("UPDATE requests SET lease = lease + 1"))

    desk.mailbox = Interrupted(whole, lose)  # type: ignore[assignment]
    outcome = await desk.gate.propose(SendEmail(**HELLO), "email_mcp")

    assert isinstance(outcome, Failed)
    assert await whole.search("in:sent", 5) == []
    assert (await desk.store.read(ledger.count_states)) == {"sending": 1}
