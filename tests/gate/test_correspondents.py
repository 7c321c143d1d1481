"""Whom the desk knows on its first day: what the mailbox has of an address, and who only looks like somebody known."""

from datetime import UTC, datetime

import pytest

from deskhand import clock
from deskhand.gate import recipients
from deskhand.gate.correspondents import learn_about
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.mail.lookalikes import is_alike
from tests.gate.test_cards import Study, asked, study
from tests.mail.letters import letter, outgoing
from tests.requirements import requirement

pytestmark = pytest.mark.anyio
_ = study


async def keep_nothing(token: str) -> None:
    del token


@requirement("people:met")
@requirement("people:alike")
async def test_the_first_day_knows_whom_the_person_wrote_to_heard_from_and_never_met(
    study: Study,
) -> None:
    async with study.opened() as (desk, client):
        mailbox = desk.mailbox
        assert isinstance(mailbox, LocalMailbox)
        await mailbox.receive([Incoming(letter(sender="bob@example.net"), seen=False)])
        own = outgoing(to="ann@example.org")  # by another program of the person's
        await mailbox.send(await mailbox.prepare(own), own, keep_nothing)
        told = {}
        for to in (
            "ann@example.org",
            "bob@example.net",
            "ann@examp1e.org",
            "carl@example.net",
        ):
            card = await asked(desk, client, to=to)
            told[to] = (card.to[0].known, card.risk.level, card.to[0].since)
        heard, wrote = [
            (await mailbox.search(query, 1))[0].date for query in ("from:bob", "in:sent")
        ]
        assert told == {
            "ann@example.org": (
                True,
                "low",
                f"you wrote to them before, last on {clock.day(wrote, 'UTC')}",
            ),
            "bob@example.net": (
                False,
                "medium",
                f"wrote to you before, on {clock.day(heard, 'UTC')}; your first email to them",
            ),
            "ann@examp1e.org": (
                False,
                "high",
                "first email to this address; it looks like ann@example.org, whom you know",
            ),
            "carl@example.net": (False, "medium", "first email to this address"),
        }


@requirement("people:met")
@requirement("people:alike")
@pytest.mark.parametrize("line", ["Cc", "Bcc"])
async def test_whoever_got_a_copy_of_a_mail_of_the_persons_is_known_as_who_it_went_to_is(
    study: Study, line: str
) -> None:
    mine = letter(sender="me@example.com", to="ann@example.org")
    copied = f"{line}: Olivier <olivier@cuisine.example>, eve@example.net\n".encode()
    async with study.opened() as (desk, client):
        mailbox = desk.mailbox
        assert isinstance(mailbox, LocalMailbox)
        await mailbox.receive([Incoming(copied + mine, seen=True)])
        (wrote,) = await mailbox.search("in:sent", 5)
        card = await asked(desk, client, to="Olivier@cuisine.example")
        alike = await asked(desk, client, to="olivier@cuis1ne.example")

    day = clock.day(wrote.date, "UTC")
    assert card.to[0].since == f"you wrote to them before, last on {day}"
    assert (card.to[0].known, card.risk.level) == (True, "low")
    assert "looks like olivier@cuisine.example" in alike.to[0].since


@requirement("people:alike")
@pytest.mark.parametrize("alike", ["nora@Iindqvist.example", "n0ra@lindqvist.example"])
async def test_who_looks_like_somebody_who_only_wrote_to_the_person_is_named_at_high_risk(
    study: Study, alike: str
) -> None:
    async with study.opened() as (desk, client):
        assert isinstance(desk.mailbox, LocalMailbox)
        mails = [
            Incoming(letter(sender=sender), seen=False)
            for sender in ("nora@lindqvist.example", "nora@elsewhere.example")
        ]
        await desk.mailbox.receive(mails)
        card = await asked(desk, client, to=alike)
        nora = await asked(desk, client, to="nora@lindqvist.example")

    twin = "nora@lindqvist.example, who wrote to you"
    assert card.to[0].since == f"first email to this address; it looks like {twin}"
    assert card.risk.level == "high"
    assert f"{card.to[0].address} is new and looks like {twin}." in card.risk.reasons
    assert nora.to[0].since.startswith("wrote to you before, on ")


@requirement("people:met")
async def test_a_card_names_the_day_of_the_last_mail_as_it_was_where_the_person_is(
    study: Study,
) -> None:
    study.clock.time = datetime(2026, 10, 2, 23, 30, tzinfo=UTC)
    async with study.opened(DESKHAND_HOLD_SECONDS="0") as (desk, client):
        card = await asked(desk, client)
        await desk.answers.approve(card.id, card.digest, "person")
    async with study.opened(DESKHAND_TIMEZONE="Europe/Berlin") as (desk, client):
        card = await asked(desk, client, subject="And another")

    assert card.to[0].since == "1 mail sent, last on 3 Oct 2026"


@requirement("people:met")
async def test_a_mailbox_that_cannot_say_keeps_nobody_from_asking(study: Study) -> None:
    async with study.opened() as (desk, _client):
        await learn_about(
            desk.store, desk.mailbox, ['odd"name@example.org', "after:x@example.org"]
        )
        found = await desk.store.read(recipients.find, ["after:x@example.org"], "UTC")
        assert not found.recipient("after:x@example.org", None).known


@requirement("people:alike")
@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("ann@example.org", "ANN@example.org", False),
        ("ann@exarnple.org", "ann@example.org", True),
        ("bob@exarnple.org", "ann@example.org", False),
        ("rob@example.org", "bob@example.org", False),
        ("\u0430nn@example.org", "ann@example.org", True),
    ],
)
def test_an_address_that_could_pass_for_another_is_alike(
    one: str, other: str, *, alike: bool
) -> None:
    assert is_alike(one, other) is alike


@requirement("people:alike")
@pytest.mark.parametrize(
    ("address", "twin"),
    [
        ("ann@exmaple.org", "ann@example.org"),
        ("ann@exarnple.org", "ann@example.org"),
        ("b0b@example.net", "bob@example.net"),
        ("ann@exampl.org", "ann@example.org"),
        ("bob@exmaple.org", None),
        ("ann@elsewhere.net", None),
    ],
)
def test_of_all_whom_the_person_wrote_to_the_first_is_named_that_an_address_looks_like(
    address: str, twin: str | None
) -> None:
    written = frozenset(
        ("bob@example.net", "ann@example.org", "ann@examples.org", "cy@example.org")
    )
    known = recipients.Acquaintance({}, frozenset(), "UTC", written=written)
    since = known.recipient(address, None).since

    by_one = [each for each in sorted(written) if is_alike(address, each)]
    assert by_one[:1] == ([twin] if twin else [])
    assert since.removeprefix("first email to this address") == (
        f"; it looks like {twin}, whom you know" if twin else ""
    )
