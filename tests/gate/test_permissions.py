"""Standing permissions: what they cover leaves without a question, and nothing else does."""

import asyncio
import json
from collections import Counter
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from datetime import datetime, time, timedelta
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskhand.clock import iso
from deskhand.errors import Denied, InvalidInput, NotFound
from deskhand.foreign.arguments import canonical
from deskhand.gate import permissions
from deskhand.gate.actions import Mail
from deskhand.gate.asking import open_request
from deskhand.gate.cards import Card, card_of
from deskhand.gate.claims import Typed
from deskhand.gate.mailchange import ListedMail, UpdateEmails
from deskhand.gate.permissions import Permission, Terms
from deskhand.gate.recipients import Recipient
from deskhand.gate.risk import Risk
from deskhand.gate.toolcall import ToolCall, Workplace
from deskhand.store import open_store
from deskhand.web.site import site as web_site
from tests.gate.safe_desk import RIGHT, SafeDesk, open_safe
from tests.gate.site import Clock
from tests.home import Home
from tests.requirements import requirement
from tests.web.person import served, signed_in

pytestmark = pytest.mark.anyio


class Permitted(SafeDesk):
    """Its person has written to Ann."""

    async def waiting(self) -> list[Card]:
        return (await self.desk.waiting.cards())[0]

    async def approve(self, **mail: str) -> Card:
        """One mail that the person has approved and that has left."""
        assert (await self.send(**mail)).startswith("Rejected:")
        (card,) = await self.waiting()
        await self.desk.answers.approve(card.id, card.digest, "person", RIGHT)
        await self.settle()
        return await self.desk.waiting.card(card.id)

    async def permit(self, card: Card, per_day: int = 3, days: int = 7) -> Permission:
        terms = Terms(per_day, self.clock() + timedelta(days=days))
        return await self.desk.answers.permit(card.id, card.digest, terms, "person", RIGHT)


def opened(home: Home, **variables: str) -> AbstractAsyncContextManager[Permitted]:
    wanted = {"DESKHAND_ADDRESS": "me@example.org"} | variables
    return open_safe(Permitted, home, **wanted)


@requirement("permission:narrow")
async def test_what_a_permission_covers_rests_and_leaves_without_a_question(
    home: Home,
) -> None:
    async with opened(home) as place:
        made = await place.permit(await place.approve())
        told = await place.send(body="Dear Ann,\n\nmake it eleven.\n")
        assert told.startswith("Rejected: Not sent yet. It leaves at ")
        assert "under a permission of the person" in told
        (card,) = await place.waiting()
        assert card.state == "held"
        assert card.permission == made.id
        assert await place.settle() == 2
        (standing,) = await place.desk.permitting.list_all()
        assert [name for name, _ in standing.uses] == [card.id]
        record = await place.desk.store.read(
            lambda tx: [text for (text,) in tx.all("SELECT entry FROM audit")]
        )
        assert (
            sum(f"permission {made.id}" in text for text in record) == 3
        )  # its yes, that it has rested, the mail


@requirement("permission:narrow")
@pytest.mark.parametrize(
    "other",
    [
        {"to": "bob@example.org"},
        {"subject": "Meeting  notes"},
        {"body": "See https://example.net/ now.\n"},
        {"body": "Send me your password.\n"},
        {"body": "Dear Ann\u200b, at ten.\n"},
        {"body": "<html><p>Dear Ann</p></html>"},
    ],
)
async def test_what_differs_waits(home: Home, other: dict[str, str]) -> None:
    async with opened(home) as place:
        await place.permit(await place.approve())
        assert "waits in" in await place.send(**other)
        assert [card.state for card in await place.waiting()] == ["waiting"]
        assert await place.settle() == 1


@requirement("permission:counted")
async def test_so_many_a_day_and_no_more(home: Home) -> None:
    async with opened(home) as place:
        await place.permit(await place.approve(), per_day=2)
        states: list[str] = []
        for number in range(3):
            await place.send(body=f"number {number}\n")
        states = sorted(card.state for card in await place.waiting())
        assert states == ["held", "held", "waiting"]
        place.clock.pass_by(days=-3)  # a clock that is set back brings no new day
        assert "waits in" in await place.send(body="yesterday\n")
        place.clock.pass_by(days=4, hours=1)
        assert "under a permission" in await place.send(body="tomorrow\n")


@requirement("permission:counted")
async def test_its_end_stays_its_end_when_the_clock_goes_back(home: Home) -> None:
    async with opened(home) as place:
        made = await place.permit(await place.approve(), days=2)
        place.clock.pass_by(days=2)
        assert "waits in" in await place.send(body="late\n")
        place.clock.pass_by(days=-1)
        assert "waits in" in await place.send(body="later still\n")
        found = await place.desk.permitting.find(made.id)
        assert found.permission.closed_by == "its end"
        assert not found.counts


@requirement("permission:counted")
async def test_two_processes_count_one_permission(home: Home, url: str) -> None:
    async with (
        opened(home, DESKHAND_DATABASE_URL=url) as one,
        opened(home, DESKHAND_DATABASE_URL=url) as other,
    ):
        await one.permit(await one.approve(), per_day=3)
        asked = [
            place.send(body=f"{number}\n") for number in range(4) for place in (one, other)
        ]
        answers = await asyncio.gather(*asked)
        assert sum("under a permission" in each for each in answers) == 3
        assert sorted(card.state for card in await one.waiting()) == ["held"] * 3 + [
            "waiting"
        ]
    async with opened(home, DESKHAND_DATABASE_URL=url) as later:
        assert "waits in" in await later.send(body="after a restart\n")


@requirement("permission:counted")
@settings(max_examples=25)
@given(st.lists(st.integers(-60, 60), min_size=1, max_size=12), st.integers(1, 3))
def test_no_jump_of_the_clock_brings_more_than_the_day_has(
    jumps: list[int], per_day: int
) -> None:
    """Each jump is in hours; the end is two days away."""
    clock = Clock()
    with (
        TemporaryDirectory() as place,
        closing(open_store(f"sqlite:///{place}/desk.db")) as store,
    ):
        made = permissions.make(
            CARD, MAIL, Terms(per_day, clock() + timedelta(days=2)), "page", clock()
        )
        store.write_sync(lambda tx: permissions.insert(tx, made))
        uses: list[datetime] = []
        ended = False
        for number, hours in enumerate(jumps):
            clock.pass_by(hours=hours)
            now = clock()
            request = replace(REQUEST, id=f"{number}")
            open_ones = store.write_sync(permissions.find_open, MAIL)
            used = bool(open_ones) and store.write_sync(
                permissions.use, open_ones[0], request, now
            )
            ended = ended or max(now, *uses, made.made) >= made.ends
            assert not (used and ended)
            assert not (
                used and sum(at > now - timedelta(days=1) for at in uses) >= per_day
            )
            if used:
                uses.append(now)


@requirement("permission:switch")
async def test_one_switch_turns_all_off_at_once_and_only_the_person_turns_them_on(
    home: Home,
) -> None:
    async with opened(home) as place:
        await place.permit(await place.approve())
        await place.send(body="under way\n")
        await place.desk.permitting.turn("person", on=False)
        assert await place.settle() == 1  # what rests does not leave either
        assert "waits in" in await place.send(body="another\n")
        with pytest.raises(Denied):
            await place.desk.answers.permit_again("person", "terminal")
        await place.desk.answers.permit_again("person", RIGHT)
        assert "under a permission" in await place.send(body="once more\n")


@requirement("permission:switch")
async def test_a_revoked_one_lets_nothing_through(home: Home) -> None:
    async with opened(home) as place:
        made = await place.permit(await place.approve())
        await place.send(body="under way\n")
        await place.desk.permitting.revoke(made.id, "person")
        await place.desk.permitting.revoke(made.id, "person")
        assert await place.settle() == 1
        (stopped,) = await place.waiting()
        assert stopped.state == "waiting"
        assert (
            stopped.note
            == "The permission that let it through no longer counts. It waits for you."
        )
        assert "waits in" in await place.send(body="another\n")
        with pytest.raises(NotFound):
            await place.desk.permitting.revoke("0000", "person")


@requirement("permission:proof")
async def test_it_takes_what_an_answer_takes(home: Home) -> None:
    async with opened(home) as place:
        card = await place.approve()
        terms = Terms(1, place.clock() + timedelta(days=1))
        for proof in ("page", "terminal", "permission", Typed("wrong", "here")):
            with pytest.raises(Denied):
                await place.desk.answers.permit(
                    card.id, card.digest, terms, "person", proof
                )
        assert not await place.desk.permitting.list_all()


@requirement("permission:proof")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE permissions SET per_day = 50",
        "UPDATE permissions SET ends = ends + 86400000",
        "UPDATE permissions SET seen = '[\"x\"]'",
        "UPDATE permissions SET evidence = '00'",
        "UPDATE permissions SET proof = 'page'",
    ],
)
async def test_one_that_was_changed_in_the_database_counts_no_more(
    home: Home, change: str
) -> None:
    async with opened(home) as place:
        await place.permit(await place.approve())
        await place.send(body="under way\n")
        await place.desk.store.write(lambda tx: tx.execute(change))
        assert "waits in" in await place.send(body="another\n")
        assert await place.settle() == 1


@requirement("permission:proof")
async def test_a_permitted_yes_that_names_another_text_sends_nothing(home: Home) -> None:
    async with opened(home) as place:
        await place.permit(await place.approve())
        await place.send(body="under way\n")
        change = "UPDATE answers SET digest = '00' WHERE proof = 'permission'"
        await place.desk.store.write(lambda tx: tx.execute(change))
        assert await place.settle() == 1


@requirement("permission:proof")
async def test_a_row_that_says_it_was_permitted_sends_nothing(home: Home) -> None:
    async with opened(home) as place:
        await place.send()
        await place.desk.store.write(
            lambda tx: tx.execute(
                "UPDATE requests SET state = 'approved', proof = 'permission', due = 0"
            )
        )
        assert await place.settle() == 0


@requirement("permission:narrow")
async def test_what_is_asked_each_time(home: Home) -> None:
    async with opened(home) as place:
        await place.send()
        (new,) = await place.waiting()
        with pytest.raises(Denied, match="have not said yes"):
            await place.permit(new)
        await place.desk.answers.approve(new.id, new.digest, "person", RIGHT)
        with pytest.raises(Denied, match="not written to everybody"):
            await place.permit(new)
        await place.settle()
        risky = await place.approve(subject="Look", body="a\u200bb\n")
        with pytest.raises(Denied, match="high risk"):
            await place.permit(risky)
        card = await place.approve(subject="Fine")
        for terms in (
            Terms(0, place.clock() + timedelta(days=1)),
            Terms(1, place.clock()),
            Terms(1, FAR),
        ):
            with pytest.raises(InvalidInput):
                await place.desk.answers.permit(
                    card.id, card.digest, terms, "person", RIGHT
                )


@requirement("permission:narrow")
async def test_what_the_person_answered_meanwhile_is_not_let_through(home: Home) -> None:
    async with opened(home) as place:
        card = await place.approve()
        await place.send(body="first\n")
        (waiting,) = await place.waiting()
        stale = await place.desk.waiting.find(waiting.id)
        await place.permit(card)
        await place.desk.answers.reject(waiting.id, None, None, "person", RIGHT)
        assert await place.desk.permitting.let_through(stale) is None
        (standing,) = await place.desk.permitting.list_all()
        assert standing.uses == []


@requirement("permission:narrow")
async def test_a_change_of_mails_is_asked_each_time(home: Home) -> None:
    async with opened(home) as place:
        mails = tuple(
            ListedMail(id=str(at), sender="a@b.c", subject="x", unread=True)
            for at in range(2)
        )
        await place.desk.gate.propose(UpdateEmails(do="trash", mails=mails), "desk")
        (card,) = await place.waiting()
        request = await place.desk.waiting.find(card.id)
        assert await place.desk.permitting.suggest(request, card) == []
        terms = Terms(1, place.clock() + timedelta(days=1))
        with pytest.raises(Denied, match="one by one"):
            permissions.make(card, request.action, terms, "page", place.clock())


@requirement("permission:narrow")
@pytest.mark.parametrize(
    ("seen", "other"),
    [
        (" ".join(f"https://h{n}.example/" for n in range(11)), "https://evil.example/pay"),
        ("bank transfer credit card gift card invoice iban refund", "password"),
    ],
)
async def test_what_the_card_did_not_name_was_not_seen(
    home: Home, seen: str, other: str
) -> None:
    async with opened(home) as place:
        await place.permit(await place.approve(body=f"{seen}\n"))
        assert "waits in" in await place.send(body=f"{seen.rpartition(' ')[0]} {other}\n")


@requirement("permission:proof")
async def test_a_revoked_passkey_ends_what_was_permitted_by_a_signature(home: Home) -> None:
    async with opened(home) as place:
        made = await place.permit(await place.approve())
        await place.desk.store.write(
            lambda tx: tx.execute("UPDATE permissions SET proof = 'passkey'")
        )
        await place.desk.store.write(permissions.close_signed, place.clock())
        assert (
            await place.desk.permitting.find(made.id)
        ).permission.closed_by == "a revoked passkey"


@requirement("permission:proposed")
async def test_five_equal_answers_bring_a_proposal(home: Home) -> None:
    async with opened(home, DESKHAND_MAX_SENDS="50") as place:
        first = await place.approve()
        for number in range(4):
            assert await suggested(place, first) == []
            last = await place.approve(body=f"number {number}\n")
        assert len(await suggested(place, last)) == 5
        assert await suggested(place, await place.approve(subject="Another thing")) == []


@requirement("permission:proposed")
async def test_a_no_among_equal_answers_is_told_and_brings_no_proposal(home: Home) -> None:
    async with opened(home, DESKHAND_MAX_SENDS="50") as place:
        for number in range(5):
            last = await place.approve(body=f"number {number}\n")
        place.clock.pass_by(minutes=1)
        assert (await place.send(body="a wrong one\n")).startswith("Rejected:")
        (wrong,) = await place.waiting()
        await place.desk.answers.reject(wrong.id, wrong.digest, "no", "person", RIGHT)
        place.clock.pass_by(minutes=1)
        assert await suggested(place, last) == []
        for number in range(5, 10):
            assert await suggested(place, last) == []
            last = await place.approve(body=f"number {number}\n")
        found = await suggested(place, last)
        assert Counter(each.state for each in found) == {"sent": 10, "rejected": 1}
        async with (
            served(web_site(place.desk)) as address,
            signed_in(place.desk, address) as person,
        ):
            page = (await person.reads(f"/approvals/{last.id}")).text
        assert "would have let 11 through" in page
        assert page.count("to which you said no") == 1


@requirement("permission:proposed")
async def test_what_is_very_long_is_not_read_again_for_each_card(home: Home) -> None:
    async with opened(home, DESKHAND_MAX_SENDS="50") as place:
        for number in range(5):
            last = await place.approve(body=f"{number} " + "long " * 5_000)
        assert await suggested(place, last) == []


async def suggested(place: Permitted, card: Card) -> list[Card]:
    return await place.desk.permitting.suggest(await place.desk.waiting.find(card.id), card)


async def test_without_a_hold_it_leaves_at_once(home: Home) -> None:
    async with opened(home, DESKHAND_HOLD_SECONDS="0") as place:
        await place.permit(await place.approve())
        assert (await place.send(body="at once\n")).startswith("Email sent successfully")


@requirement("permission:switch")
async def test_the_page_makes_lists_and_ends_them(home: Home) -> None:
    async with opened(home, DESKHAND_PROOF="page") as place:
        card = await place.approve()
        async with (
            served(web_site(place.desk)) as address,
            signed_in(place.desk, address) as person,
        ):
            assert "And from now on" in (await person.reads(f"/approvals/{card.id}")).text
            path = f"/approvals/{card.id}/permit"
            terms = {
                "digest": card.digest,
                "per_day": "2",
                "ends": f"{place.clock() + timedelta(days=9):%Y-%m-%d}",
            }
            for wrong in (
                {"per_day": "0"},
                {"per_day": "x"},
                {"ends": "soon"},
                {"ends": "1999-01-01"},
                {"digest": ""},
            ):
                assert (await person.sends(path, terms | wrong)).status_code in (409, 422)
            assert (await person.sends(path, terms)).headers[
                "location"
            ] == "/permissions?done=made"
            (standing,) = await place.desk.permitting.list_all()
            await place.send(body="under it\n")
            (held,) = await place.waiting()
            link = f"/permissions#{standing.permission.id}"
            assert link in (await person.reads(f"/approvals/{held.id}")).text
            text = (await person.reads("/permissions")).text
            until = f"{place.clock() + timedelta(days=9):%a %d %b}"
            assert f"at most 2 a day, until the end of {until}<" in text
            assert standing.permission.ends.time() == time()
            said = home.command("permit", "list", DESKHAND_PROOF="page").stdout
            assert f"a day, until the end of {until}" in said
            assert held.id in text
            await person.sends("/permissions/off", at="/permissions")
            assert "turned off" in (await person.reads("/permissions")).text
            await person.sends("/permissions/on", at="/permissions")
            await person.sends(
                "/permissions/revoke",
                {"permission": standing.permission.id},
                at="/permissions",
            )
            assert "ended" in (await person.reads("/permissions")).text


@requirement("permission:switch")
async def test_the_terminal_lists_and_ends_them(home: Home) -> None:
    async with opened(home, DESKHAND_PROOF="page") as place:
        made = await place.permit(await place.approve())
    (listed,) = home.command(
        "permit", "list", "--json", DESKHAND_PROOF="page"
    ).stdout.splitlines()
    assert json.loads(listed)["id"] == made.id
    shown = home.command("permit", "show", made.id, DESKHAND_PROOF="page").stdout
    assert "counts" in shown
    assert "used 0 times" in shown
    assert iso(made.ends) not in shown
    assert "everything waits" in home.command("permit", "off").stdout
    assert "turned off" in home.command("permit", "list").stdout
    assert home.command("permit", "on", DESKHAND_PROOF="page").returncode == 0
    assert home.command("permit", "revoke", made.id).returncode == 0
    assert home.command("permit", "revoke", "none").returncode == 4


FAR = datetime.max.replace(tzinfo=Clock()().tzinfo)
MAIL = Mail(
    kind="reply_email",
    account="me@example.org",
    to="ann@example.org",
    subject="Re: x",
    body="b",
    thread_id="t",
)
FIELDS = {
    "account": st.sampled_from(["me@example.org", "other@example.org"]),
    "to": st.sampled_from(["ann@example.org", "an@example.org", "Ann@example.org"]),
    "cc": st.sampled_from(["", "bob@example.org"]),
    "bcc": st.sampled_from(["", "bob@example.org"]),
    "subject": st.sampled_from(["Re: x", "Re:  x", "re: x", ""]),
    "thread_id": st.sampled_from(["t", "T", "t2", None]),
    "as_text": st.booleans(),
    "body": st.text(min_size=1),
    "references": st.lists(st.text(), max_size=2).map(tuple),
}


@requirement("permission:narrow")
@given(st.fixed_dictionaries(FIELDS))
def test_a_permission_never_covers_what_differs_in_a_field_that_it_names(
    fields: dict[str, object],
) -> None:
    other = MAIL.model_copy(update=fields)
    made = permissions.make(
        CARD, MAIL, Terms(1, CARD.created + timedelta(days=1)), "page", CARD.created
    )
    differs = any(
        getattr(other, name) != getattr(MAIL, name)
        for name in FIELDS
        if name not in Mail.free
    )
    assert made.covers(other, CARD) is not differs


REQUEST = open_request(MAIL, "email_mcp", None, Clock()())


def _card() -> Card:
    return card_of(
        REQUEST, ((Recipient(MAIL.to, True, "known"),), (), ()), Risk("low", ()), Clock()()
    )


CARD = _card()


@requirement("permission:narrow")
@pytest.mark.parametrize(
    "card",
    [
        replace(CARD, risk=Risk("high", ())),
        replace(CARD, risk=Risk("medium", ("Links lead to: example.net.",))),
        replace(CARD, to=(Recipient(MAIL.to, False, "new"),)),
        replace(CARD, bcc=(Recipient("eve@example.net", False, "new"),)),
    ],
)
def test_what_is_odd_and_was_not_seen_is_not_covered(card: Card) -> None:
    made = permissions.make(
        CARD, MAIL, Terms(1, CARD.created + timedelta(days=1)), "page", CARD.created
    )
    assert made.covers(MAIL, CARD)
    assert not made.covers(MAIL, card)


CALL = ToolCall(
    server="git", tool="push", arguments='{"a":1,"b":["x"]}', definition="d", asker="me"
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, 1.0, -0.0, 2, "1", "x", "X", "x ", ""]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)
CHANGES = {
    "server": st.sampled_from(["git", "Git"]),
    "tool": st.sampled_from(["push", "pull"]),
    "definition": st.sampled_from(["d", "e"]),
    "asker": st.sampled_from(["me", "you"]),
    "at": st.sampled_from([None, Workplace(folder="/srv", session="one")]),
    "arguments": st.just(CALL.arguments)
    | st.dictionaries(
        st.sampled_from("abc"), JSON | st.just(["x"]) | st.just(1), max_size=3
    ).map(canonical),
    "template": st.sampled_from(["", "Push"]),
}


@requirement("permission:narrow")
@given(st.fixed_dictionaries({}, optional=CHANGES))
def test_a_permission_for_a_call_is_for_the_same_bytes_of_arguments(
    changes: dict[str, object],
) -> None:
    other = CALL.model_copy(update=changes)
    card = card_of(
        open_request(CALL, "guard_mcp", None, Clock()()),
        ((), (), ()),
        Risk("low", ()),
        Clock()(),
    )
    made = permissions.make(
        card, CALL, Terms(1, card.created + timedelta(days=1)), "page", card.created
    )
    differs = any(
        getattr(other, name) != getattr(CALL, name)
        for name in CHANGES
        if name != "template"
    )
    assert made.covers(other, card) is not differs
