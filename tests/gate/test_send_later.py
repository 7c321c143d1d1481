"""A mail with a time of its own: approved now, gone then, and called back until then."""

from datetime import timedelta
from typing import Any

import pytest
from mcp import Client

from deskhand import audit
from deskhand.app import Desk
from deskhand.clock import iso
from deskhand.errors import Denied
from deskhand.gate import ledger, lists
from deskhand.gate.cards import Card
from deskhand.gate.letters import Letter
from tests.gate.site import HELLO, Site
from tests.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("gate:send-later")]


async def call(client: Client, **arguments: Any) -> str:
    result = await client.call_tool("send_email", HELLO | arguments)
    return str(result.content[0].text)


async def asked(site: Site, desk: Desk, client: Client, **later: float) -> tuple[Card, str]:
    at = iso(site.clock() + timedelta(**later))
    assert "no_approval" in await call(client, send_at=at)
    ((card,), _) = await desk.waiting.cards()
    return card, at


@pytest.mark.parametrize("how", ["page", "terminal"])
async def test_the_answer_was_given_when_the_person_gave_it_however_long_the_yes_rests(
    site: Site, desk: Desk, client: Client, how: str
) -> None:
    card, _ = await asked(site, desk, client, days=5)
    site.clock.pass_by(minutes=7)
    answered = site.clock()
    say = desk.answers.approve if how == "page" else desk.answers.approve_now
    await say(card.id, card.digest, "person")
    site.clock.pass_by(days=5, hours=1, minutes=28)
    later = site.desk()  # the desk did not run when its time came
    await later.gate.release_due()
    sent = await later.waiting.card_as_answered(card.id)
    waits = await later.store.read(lists.waits_of, card.created, 10)
    entries = await later.store.read(audit.entries)
    left = site.clock()
    await later.close_mailbox()
    later.close()

    assert (sent.state, sent.answered, sent.left) == ("sent", answered, left)
    assert waits == [timedelta(minutes=7)]
    (approved,) = (each for _, each in entries if each.action_type == "approved")
    assert (approved.parameters or {})["answered"] == iso(answered)
    (done,) = site.files("Done")
    assert iso(answered) in done.read_text()


@pytest.mark.parametrize("how", ["page", "terminal", "vault"])
async def test_what_is_approved_leaves_at_its_time_and_once(
    site: Site, desk: Desk, client: Client, how: str
) -> None:
    card, at = await asked(site, desk, client, days=20)
    assert card.send_at
    assert iso(card.send_at) == at
    assert f"leave from me@example.com at {at}" in site.pending().read_text().replace(
        "\\", ""
    )
    if how == "page":
        await desk.answers.approve(card.id, card.digest, "person")
    elif how == "terminal":
        await desk.answers.approve_now(card.id, card.digest, "person")
    else:
        site.approve()
        await desk.door.hear_all()
    again = await call(client, send_at=at)
    await desk.gate.release_due()
    await desk.store.write(
        lambda tx: tx.execute("UPDATE requests SET due = ?", 0)
    )  # as a clock that was ahead leaves it
    await desk.gate.release_due()
    due = await desk.gate.next_due()
    site.clock.pass_by(days=19, hours=23)
    await desk.gate.release_due()
    early = list(site.gmail.delivered)
    site.clock.pass_by(hours=2)
    later = site.desk()  # another process, after a restart
    await later.gate.release_due()
    await later.gate.release_due()
    await later.close_mailbox()
    later.close()
    told = await call(client, send_at=at)

    assert "no_approval" in again or "it is approved and leaves at its time" in again
    assert due
    assert iso(due) == at
    assert early == []
    assert len(site.gmail.delivered) == 1
    assert "Email sent successfully." in told
    entries = await desk.store.read(lambda tx: audit.entries(tx, limit=50))
    held = [entry.parameters for _, entry in entries if entry.action_type == "held"]
    assert [each["until"] for each in held] == ([] if how == "vault" else [at])


async def test_it_is_called_back_until_its_time(
    site: Site, desk: Desk, client: Client
) -> None:
    card, _ = await asked(site, desk, client, hours=5)
    held = await desk.answers.approve(card.id, card.digest, "person")
    site.clock.pass_by(hours=4)
    undone = await desk.answers.undo(card.id, "person")
    site.clock.pass_by(hours=4)
    await desk.gate.release_due()
    nothing = list(site.gmail.delivered)
    await desk.answers.approve(card.id, card.digest, "person")
    site.clock.pass_by(minutes=1)
    await desk.gate.release_due()

    assert (held.state, held.until) == ("held", card.send_at)
    assert undone.state == "waiting"
    assert nothing == []
    assert len(site.gmail.delivered) == 1  # the yes came after its time
    with pytest.raises(Denied):
        await desk.answers.undo(card.id, "person")


async def test_a_yes_in_the_vault_is_taken_back_until_its_time(
    site: Site, desk: Desk, client: Client
) -> None:
    await asked(site, desk, client, hours=5)
    file = site.approve()
    await desk.door.hear_all()
    site.reject(file)
    site.clock.pass_by(hours=6)
    await desk.gate.release_due()

    assert site.gmail.delivered == []


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("2026-11-15T08:59:59+00:00", "The time to send it at is past."),
        ("2026-11-20T09:00:00", ""),
        ("tomorrow", ""),
        ("", ""),
        ("2028-01-01T00:00:00Z", "The time to send it at is more than a year ahead."),
        ("9999-12-31T23:59:59-23:59", ""),
    ],
)
async def test_a_time_that_means_nothing_is_refused(
    site: Site, client: Client, when: str, why: str
) -> None:
    told = await call(client, send_at=when)
    assert "send_at" in told
    assert why in told
    assert site.files("Pending_Approval") == []


async def test_another_time_is_another_mail_and_an_edit_keeps_it(
    site: Site, desk: Desk, client: Client
) -> None:
    card, at = await asked(site, desk, client, hours=5)
    assert card.send_at is not None
    edited = await desk.answers.edit(
        card.id, card.digest, Letter("ann@example.org", "Other", card.body), "person"
    )
    site.write("yes.md")
    request = await desk.store.read(ledger.find, card.id)

    assert edited.send_at
    assert card.send_at
    assert (iso(edited.send_at), edited.digest == card.digest) == (at, False)
    assert "no_approval" in await call(
        client, send_at=iso(card.send_at + timedelta(hours=1))
    )
    assert request.expires == card.send_at + timedelta(days=7)
    assert site.gmail.delivered == []
