"""A change of many mails waits for the person like a mail that would leave."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import InvalidInput, ProviderDown
from deskhand.gate import Failed, NotApproved, Released, lists
from deskhand.gate.actions import SendEmail
from deskhand.gate.cards import Card
from deskhand.gate.letters import Letter
from deskhand.gate.mailchange import ListedMail, MailChange
from deskhand.gate.risk import assess_change
from deskhand.mail import Mailbox
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.servers.desk import desk_server
from deskhand.servers.filing import describe_refusal
from deskhand.web.site import site as web_site
from tests.gate.site import HELLO, Clock, Interrupted
from tests.home import Home
from tests.mail.letters import letter
from tests.requirements import requirement
from tests.test_desk_server import fill, ok, refused
from tests.web.person import served, signed_in

pytestmark = pytest.mark.anyio


@pytest.fixture
def furnished(home: Home) -> Home:
    return Home(
        home.vault,
        home.environment | {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_USER": "me"},
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def desk(furnished: Home, clock: Clock) -> AsyncIterator[Desk]:
    made = Desk(load(furnished.environment).settings, clock)
    yield made
    await made.close_mailbox()
    made.close()


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
        assert (error["error"], error["details"]["reason"]) == (
            "permission_denied",
            "no_approval",
        )
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
    assert all(
        "TRASH" in each if do == "trash" else "UNREAD" not in each for each in labels
    )
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


async def change(client: Client, do: str, ids: list[str]) -> bool:
    """Whether it was done at once; the other answer is that the person has to say yes."""
    result = await client.call_tool("update_emails", {"do": do, "ids": ids})
    if result.is_error:
        assert json.loads(result.content[0].text)["details"]["reason"] == "no_approval"
    return not result.is_error


@requirement("mail:bulk-waits")
async def test_what_a_tool_marked_as_read_is_unread_to_the_trash(
    client: Client, desk: Desk, clock: Clock
) -> None:
    first, second, third = await fill(desk, 3, seen=False)
    (seen,) = await fill(desk, 1, name="Seen")

    assert await change(client, "read", [first, second, seen])
    clock.pass_by(hours=2)
    assert await change(client, "read", [first])  # once more, now that it looks read
    assert await change(client, "star", [first])
    for hidden in ([first], [second, seen]):
        assert not await change(client, "trash", hidden)
    assert await change(client, "trash", [seen])
    assert not await change(client, "trash", [third])
    assert [mail.id for mail in await desk.mailbox.search("in:trash", 5)] == [seen]
    (card, *_), _ = await desk.waiting.cards()
    assert card.risk.level == "high"

    clock.pass_by(hours=25)
    assert await change(client, "trash", [second])


@requirement("mail:bulk-waits")
async def test_many_small_calls_are_one_large_one(
    client: Client, desk: Desk, clock: Clock
) -> None:
    ids = await fill(desk, 60)

    assert await change(client, "archive", ids[:30])
    assert await change(client, "star", ids[:30])  # the same mails count once
    assert await change(client, "archive", ids[30:50])
    assert not await change(client, "archive", [ids[50]])
    assert not await change(client, "read", ids[40:51])
    assert (await ok(client, "update_emails", do="star", ids=[ids[59]], dry_run=True))[
        "waits"
    ]
    assert await change(client, "unstar", ids[10:20])

    clock.pass_by(minutes=59)
    assert not await change(client, "archive", [ids[50]])
    clock.pass_by(minutes=2)
    assert await change(client, "archive", ids[50:])


@requirement("mail:bulk-waits")
async def test_moves_are_counted_with_all_other_changes(
    furnished: Home, client: Client, desk: Desk
) -> None:
    ids = await fill(desk, 53)
    assert await change(client, "star", ids[:49])
    assert await ok(client, "move_email", message_id=ids[49], destination_label="Junk") == {
        "moved": True
    }
    assert await ok(client, "move_email", message_id=ids[0], destination_label="Junk") == {
        "moved": True
    }

    for label in ("Junk", "INBOX"):
        error = await refused(
            client, "move_email", message_id=ids[50], destination_label=label
        )
        assert (error["error"], error["details"]["reason"]) == (
            "permission_denied",
            "no_approval",
        )
    assert not await change(client, "star", [ids[51]])
    assert len(await desk.mailbox.search("in:inbox", 100)) == 51

    for file in (furnished.vault / "Pending_Approval").glob("*.md"):
        file.rename(furnished.vault / "Approved" / file.name)
    assert await ok(client, "move_email", message_id=ids[50], destination_label="Junk") == {
        "moved": True
    }
    assert len(await desk.mailbox.search("label:Junk", 100)) == 3
    assert (
        await refused(client, "move_email", message_id=ids[52], destination_label="Junk")
    )["error"]


@requirement("mail:bulk-waits")
@pytest.mark.parametrize(("count", "words"), [(1, "1 mail is"), (2, "2 mails are")])
def test_a_refusal_counts_mails_as_people_do(count: int, words: str) -> None:
    refusal = describe_refusal(NotApproved("waiting", "Pending_Approval/x.md", ""), count)

    assert refusal is not None
    assert refusal.message == f"{words} changed only after the person said yes"


@requirement("mail:bulk-waits")
async def test_of_calls_that_come_together_no_more_than_fifty_mails_are_changed(
    client: Client, desk: Desk
) -> None:
    ids = await fill(desk, 60)
    async with asyncio.TaskGroup() as group:
        calls = [
            group.create_task(change(client, "star", ids[at : at + 6]))
            for at in range(0, 60, 6)
        ]
    assert sum(call.result() for call in calls) == 8
    assert len(await desk.mailbox.search("is:starred", 100)) == 48


@requirement("mail:bulk-waits")
@pytest.mark.parametrize("label", ["TRASH", " trash "])
async def test_the_trash_has_no_second_door(
    furnished: Home, client: Client, desk: Desk, label: str
) -> None:
    unread, marked = await fill(desk, 2, seen=False)
    (seen,) = await fill(desk, 1, name="Seen")
    assert await change(client, "read", [marked])

    for mail in (unread, marked):
        for name, words in (
            ("move_email", {"destination_label": label}),
            ("add_label", {"label_name": label}),
        ):
            error = await refused(client, name, message_id=mail, **words)
            assert (error["error"], error["details"]["reason"]) == (
                "permission_denied",
                "no_approval",
            )
            assert "the same call does it." in json.dumps(error)
    assert (await refused(client, "move_email", message_id=seen, destination_label="Spam"))[
        "details"
    ]["reason"]
    assert await desk.mailbox.search("in:trash", 5) == []
    assert await ok(client, "move_email", message_id=seen, destination_label=label) == {
        "moved": True
    }
    assert await ok(client, "add_label", message_id=seen, label_name=label) == {
        "labelled": True
    }

    files = (furnished.vault / "Pending_Approval").glob("*.md")
    for file in files:
        file.rename(furnished.vault / "Approved" / file.name)
    assert await ok(client, "move_email", message_id=unread, destination_label=label) == {
        "moved": True
    }
    assert {mail.id for mail in await desk.mailbox.search("in:trash", 5)} == {unread, seen}


class _Broken:
    """A real mailbox that changes nothing, and does not say whether it did."""

    def __init__(self, inner: Mailbox) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def change(self, ids: list[str], deed: object) -> int:
        raise ProviderDown("the line broke")


@requirement("mail:bulk-waits")
async def test_what_may_be_done_twice_is_never_unknown(
    furnished: Home, client: Client, desk: Desk
) -> None:
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
async def test_the_card_of_a_change_names_the_mailbox_and_no_recipient(
    client: Client, desk: Desk
) -> None:
    ids = await fill(desk, 1, seen=False)
    await refused(client, "update_emails", do="trash", ids=ids)
    ((card,), _) = await desk.waiting.cards()
    async with served(web_site(desk)) as address, signed_in(desk, address) as person:
        shown = (await person.reads(f"/approvals/{card.id}")).text

    assert "<dt>Mailbox</dt>" in shown
    assert "<dt>To</dt>" not in shown


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
@pytest.mark.parametrize(
    ("unread", "subject", "reason"),
    [
        ((False, False), "Move 2 mails to the trash", None),
        (
            (True,),
            "Move 1 mail to the trash, unread",
            "1 mail that nobody has read goes into the trash.",
        ),
        (
            (True, True, False),
            "Move 3 mails to the trash, 2 of them unread",
            "2 mails that nobody has read go into the trash.",
        ),
    ],
)
def test_what_goes_into_the_trash_is_said_in_plain_words(
    unread: tuple[bool, ...], subject: str, reason: str | None
) -> None:
    mails = tuple(
        ListedMail(id=f"m{number}", sender="ann@example.org", subject="", unread=each)
        for number, each in enumerate(unread)
    )
    change = MailChange(account="me@example.com", do="trash", mails=mails)

    assert change.subject == subject
    assert assess_change(change).reasons == ((reason,) if reason else ())


@requirement("mail:bulk-waits")
def test_a_small_change_is_no_risk_and_says_what_it_is() -> None:
    listed = ListedMail(id="m1", sender="ann@example.org", subject="", unread=False)
    small = MailChange(account="me@example.com", do="label", label="Bills", mails=(listed,))

    assert assess_change(small).level == "low"
    assert small.subject == "Put the label “Bills” on 1 mail"
    assert "(no subject) (from ann@example.org)" in small.body


@requirement("gate:once")
async def test_who_lost_the_lease_before_the_point_of_no_return_sends_nothing(
    furnished: Home, desk: Desk
) -> None:
    await desk.gate.propose(SendEmail(**HELLO), "email_mcp")
    (file,) = (furnished.vault / "Pending_Approval").glob("*.md")
    file.rename(furnished.vault / "Approved" / file.name)
    whole = desk.mailbox

    async def lose() -> None:
        await desk.store.write(
            lambda tx: tx.execute("UPDATE requests SET lease = lease + 1")
        )

    desk.mailbox = Interrupted(whole, lose)
    outcome = await desk.gate.propose(SendEmail(**HELLO), "email_mcp")

    assert isinstance(outcome, Failed)
    assert await whole.search("in:sent", 5) == []
    assert (await desk.store.read(lists.count_states)) == {"sending": 1}


TWO = """
[[mail.accounts]]
name = "first"
kind = "local"
address = "{first}"

[[mail.accounts]]
name = "second"
kind = "local"
address = "{second}"
"""


@requirement("mail:bulk-waits")
@pytest.mark.parametrize("swapped", [True, False])
async def test_what_was_approved_for_one_address_is_done_in_no_other(
    home: Home, clock: Clock, swapped: bool
) -> None:
    home.path.mkdir(parents=True, exist_ok=True)
    config = home.path / "config.toml"

    async def at(first: str, second: str, work: Callable[[Desk], Awaitable[Any]]) -> Any:
        config.write_text(TWO.format(first=first, second=second))
        desk = Desk(load(home.environment).settings, clock)
        try:
            return await work(desk)
        finally:
            await desk.close_mailbox()
            desk.close()

    async def ask(desk: Desk) -> Card:
        for name in ("first", "second"):
            box = desk.account_mailbox(name)
            assert isinstance(box, LocalMailbox)
            await box.receive([Incoming(letter(subject=name), seen=False)])
        (mail,) = await desk.mailbox.search("subject:first", 2)
        async with Client(desk_server(desk), mode="2026-07-28") as client:
            await refused(client, "update_emails", do="trash", ids=[mail.id])
        ((card,), _) = await desk.waiting.cards()
        await desk.answers.approve(card.id, card.digest, "person")
        return card

    card: Card = await at("a@example.com", "b@example.com", ask)
    clock.pass_by(minutes=5)

    async def release(desk: Desk) -> tuple[Any, list[str]]:
        await desk.gate.release_due()
        state = (await desk.gate.find(card.id)).state
        return state, [mail.account for mail in await desk.mailbox.search("in:trash", 5)]

    if swapped:  # the names went to the other mailboxes, which have a mail of the same id
        for one, other in (("first", "aside"), ("second", "first"), ("aside", "second")):
            for each in home.path.glob(f"mail-{one}.db*"):
                each.rename(each.with_name(each.name.replace(one, other)))
        assert await at("b@example.com", "a@example.com", release) == (
            "sent",
            ["a@example.com"],
        )
    else:
        assert await at("c@example.com", "b@example.com", release) == ("approved", [])
