"""Accounts that are renamed, exchanged, removed or down while mails of them wait at the desk."""

import re

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.gate import follow_ups
from deskhand.orchestrator import reminding, steps, watcher
from deskhand.orchestrator.loop import Orchestrator
from deskhand.servers.desk import desk_server
from deskhand.web.site import site
from tests.mail.gmail_double import Cut, Status
from tests.mail.letters import letter
from tests.mail.test_accounts import (
    Accounts,
    _notes,
    accounts,
    call,
    desk,
    refused,
)
from tests.requirements import requirement
from tests.web.person import Person, served, signed_in

__all__ = ["accounts", "desk"]
pytestmark = pytest.mark.anyio

SUBJECTS = {"From home", "From Google", "From work"}
RENAMED = {"work": "office"}
EXCHANGED = {"work": "google", "google": "work"}
NEW_NAMES = pytest.mark.parametrize(
    "names", [RENAMED, EXCHANGED], ids=["renamed", "exchanged"]
)


def rename(accounts: Accounts, names: dict[str, str]) -> None:
    file = accounts.home.path / "config.toml"

    def new(found: re.Match[str]) -> str:
        return f'name = "{names.get(found[1], found[1])}"'

    file.write_text(re.sub('name = "(work|google)"', new, file.read_text()))


async def bring_in(desk: Desk) -> None:
    """A mail of each account is left to the person."""
    orchestrator = Orchestrator(desk)
    await orchestrator.once()
    await orchestrator.close()


async def listed(person: Person) -> tuple[str, dict[str, str]]:
    """The page, and where it leads from each mail that it lists."""
    answer = await person.reads("/decide")
    assert answer.status_code == 200, answer.text
    rows = re.findall(
        r'<a href="(/decide\?mail=[^"]*)".*?class="subject"><bdi>(.*?)</bdi>',
        answer.text,
        re.DOTALL,
    )
    return answer.text, {subject: place for place, subject in rows}


@requirement("accounts:renamed")
@NEW_NAMES
async def test_a_mail_that_waits_for_the_person_is_answered_from_its_account_under_any_name(
    accounts: Accounts, desk: Desk, names: dict[str, str]
) -> None:
    await bring_in(desk)
    rename(accounts, names)
    async with (
        accounts.desk() as later,
        served(site(later)) as address,
        signed_in(later, address) as person,
    ):
        _, places = await listed(person)
        opened = (await person.reads(places["From work"])).text
        (mail,) = re.findall(r'name="mail" value="(.*?)"', opened.partition("card")[2])[:1]
        replied = await person.sends("/decide/reply", {"mail": mail, "text": "Yes."})
        draft = replied.headers["location"].rpartition("/")[2]
        _, after = await listed(person)
        undone = await person.sends("/decide/archive", {"mail": _id(places["From Google"])})
        request = await later.gate.find(draft)

    assert set(places) == SUBJECTS
    assert "From work" in opened
    assert request.action.account == "me@work.example"
    assert set(after) == {"From home", "From Google"}
    assert undone.status_code == 303
    async with accounts.desk() as later:
        inbox = await later.account_mailbox(names.get("google", "google")).search(
            "in:inbox", 5
        )
    assert inbox == []


@requirement("accounts:renamed")
@NEW_NAMES
async def test_an_assistant_reads_and_decides_what_waits_under_its_new_name(
    accounts: Accounts, desk: Desk, names: dict[str, str]
) -> None:
    await bring_in(desk)
    rename(accounts, names)
    async with (
        accounts.desk() as later,
        Client(desk_server(later), mode="2026-07-28") as client,
    ):
        pending = (await call(client, "list_pending"))["result"]
        read = [
            await call(client, "get_email", message_id=each["message_id"])
            for each in pending
        ]
        for each in pending:
            await call(
                client,
                "propose_decision",
                message_id=each["message_id"],
                decision="archive",
                reasoning="Done.",
            )
        await bring_in(later)
        left = await later.store.read(steps.in_states, ("archived",), 10)

    assert {each["subject"] for each in read} == SUBJECTS
    assert {each.error for each in left} == {None}
    assert len(left) == 3


@requirement("accounts:renamed")
@NEW_NAMES
async def test_a_mail_that_nobody_has_read_yet_is_not_taken_for_deleted(
    accounts: Accounts, desk: Desk, names: dict[str, str]
) -> None:
    for name in ("main", "google", "work"):
        await watcher.look(desk, name)
    rename(accounts, names)
    async with accounts.desk() as later:
        await bring_in(later)

    assert _notes(accounts.home.vault) == {
        "From home": "me@home.example",
        "From Google": "me@gmail.example",
        "From work": "me@work.example",
    }


@requirement("accounts:renamed")
async def test_what_waits_of_an_account_that_has_gone_is_there_when_it_is_back(
    accounts: Accounts, desk: Desk
) -> None:
    await bring_in(desk)
    accounts.write_config(without="work")
    async with (
        accounts.desk() as later,
        served(site(later)) as address,
        signed_in(later, address) as person,
        Client(desk_server(later), mode="2026-07-28") as client,
    ):
        page, places = await listed(person)
        gone = await person.reads("/decide?mail={await _kept_id(later)}")
        pending = (await call(client, "list_pending"))["result"]
    accounts.write_config()
    async with (
        accounts.desk() as later,
        served(site(later)) as address,
        signed_in(later, address) as person,
    ):
        _, back = await listed(person)

    assert {"From home", "From Google"} <= set(places)
    assert "no mail account me@work.example" in page
    assert "no mail account" in gone.text
    assert len(pending) == 3
    assert set(back) == SUBJECTS


@requirement("mail:follow-up")
@NEW_NAMES
async def test_an_answer_is_seen_whatever_its_account_is_called_when_it_comes(
    accounts: Accounts, desk: Desk, names: dict[str, str]
) -> None:
    (mail,) = await desk.mailbox.search('subject:"From work"', 5)
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        place = {"thread_id": mail.thread_id, "message_id": mail.id}
        await refused(client, "reply_email", **place, body="Yes.\n", follow_up="1d")
    ((request,), _) = await desk.waiting.requests()
    accounts.approve_all()
    await desk.gate.release(request.id, "desk")
    answer = letter(
        sender="Bob <bob@other.example>",
        subject="About something else",
        to="me@work.example",
        message_id="<b@x>",
    )
    accounts.work.deliver(b"In-Reply-To: <w@x>\r\nReferences: <w@x>\r\n" + answer)
    rename(accounts, names)
    async with accounts.desk() as later:
        awaited = await later.store.read(follow_ups.list_awaited)
        await reminding.look(later, all_of_them=True)
        after = await later.store.read(follow_ups.list_awaited)

    assert (len(awaited), after) == (1, [])


@requirement("accounts:down")
async def test_what_the_person_typed_stays_when_the_account_does_not_answer(
    accounts: Accounts, desk: Desk
) -> None:
    await bring_in(desk)
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        _, places = await listed(person)
        accounts.google.chance = lambda _: Cut(accepted=False)
        answer = {"mail": _id(places["From Google"]), "text": "The words I typed."}
        refusal = await person.sends("/decide/reply", answer)

    assert refusal.status_code == 422
    assert "The words I typed." in refusal.text
    assert "cannot be reached" in refusal.text


@requirement("accounts:scopes")
async def test_what_waits_in_other_accounts_hides_nothing_from_a_token_for_one(
    accounts: Accounts, desk: Desk
) -> None:
    await bring_in(desk)
    server = desk_server(desk)
    server.narrow(["mail:read:work"])
    async with Client(server, mode="2026-07-28") as client:
        pending = (await call(client, "list_pending", limit=1))["result"]

    assert [each["message_id"].partition("~")[0] for each in pending] == ["work"]


@requirement("accounts:down")
async def test_what_waits_of_other_accounts_is_decided_while_one_is_down(
    accounts: Accounts, desk: Desk
) -> None:
    await bring_in(desk)
    accounts.google.chance = lambda _: Status(403)
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        page, places = await listed(person)
        archived = await person.sends("/decide/archive", {"mail": _id(places["From work"])})
        _, after = await listed(person)

    assert {"From home", "From work"} <= set(places)
    assert "The mail account google did not answer" in page
    assert archived.status_code == 303
    assert "From work" not in after


def _id(place: str) -> str:
    return place.removeprefix("/decide?mail=").replace("%7E", "~")


async def _kept_id(desk: Desk) -> str:
    """By which the desk knew the mail of the account that has gone."""
    waiting = await desk.store.read(steps.in_states, ("needs_info",), 10)
    (gone,) = [each for each in waiting if each.data.message_id.startswith("work~")]
    return gone.data.message_id
