"""Which proof counts: where a desk asks for a password, nothing less is an answer, by whichever door it comes."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import Changed, Denied, InvalidInput, RateLimited
from deskhand.gate import ledger, passwords
from deskhand.gate.actions import Action
from deskhand.gate.cards import Card
from deskhand.gate.claims import Typed
from deskhand.gate.letters import Letter
from deskhand.gate.requests import Request
from deskhand.store import Transaction
from deskhand.web.site import site as web_site
from tests.gate.safe_desk import PASSWORD, RIGHT, SafeDesk, open_safe
from tests.gate.site import HELLO, said
from tests.home import Home
from tests.requirements import requirement
from tests.web.person import served, signed_in

pytestmark = pytest.mark.anyio


class Safe(SafeDesk):
    async def ask(self, **mail: str) -> Card:
        before = {card.id for card in (await self.desk.waiting.cards())[0]}
        assert (await self.send(**mail)).startswith("Rejected:")
        (card,) = [
            card for card in (await self.desk.waiting.cards())[0] if card.id not in before
        ]
        return card

    async def card(self, card: Card) -> Card:
        return await self.desk.waiting.card(card.id)

    async def answers(self) -> list[tuple[str, str]]:
        sql = "SELECT word, proof FROM answers ORDER BY number"
        return await self.desk.store.read(
            lambda tx: [(word, proof) for word, proof in tx.all(sql)]
        )

    def move(self, folder: str, to: str) -> Path:
        (file,) = (self.home.vault / folder).glob("*.md")
        (self.home.vault / to).mkdir(exist_ok=True)
        return file.rename(self.home.vault / to / file.name)


def opened(home: Home, **variables: str) -> AbstractAsyncContextManager[Safe]:
    return open_safe(Safe, home, **variables)


@pytest.fixture
async def safe(home: Home) -> AsyncIterator[Safe]:
    async with opened(home) as made:
        yield made


@requirement("proof:wish")
async def test_a_moved_file_is_a_wish_that_the_card_and_status_show_and_the_password_makes_true(
    safe: Safe,
) -> None:
    card = await safe.ask()
    assert (
        "Answer it on the desk's page"
        in safe.move("Pending_Approval", "Approved").read_text()
    )
    assert await safe.settle() == 0
    shown = await safe.card(card)
    assert (shown.state, shown.note) == (
        "waiting",
        "It was asked for in the vault; confirm it here.",
    )
    (idle,) = await safe.desk.door.find_idle()
    assert "a file alone is no yes here" in idle.why
    assert "once the person approved it on the page" in await said(
        safe.client, "send_email", **HELLO
    )

    with pytest.raises(Denied, match="proves too little"):
        await safe.desk.answers.approve(card.id, card.digest, "person")
    with pytest.raises(Denied, match="the password is wrong"):
        await safe.desk.answers.approve(
            card.id, card.digest, "person", Typed("a wrong password", "here")
        )
    assert await safe.settle() == 0
    assert await safe.answers() == []

    await safe.desk.answers.approve(card.id, card.digest, "person", RIGHT)
    assert await safe.settle() == 1
    assert await safe.answers() == [("held", "password")]


@requirement("proof:wish")
@pytest.mark.parametrize("least", ["page", "passkey"])
async def test_nothing_that_is_done_to_files_answers_or_takes_an_answer_back(
    home: Home, least: str
) -> None:
    async with opened(home, DESKHAND_PROOF=least) as safe:
        card = await safe.ask()
        safe.move("Pending_Approval", "Rejected")
        shown = await safe.card(card)
        assert (shown.state, shown.note) == (
            "waiting",
            "In the vault it was asked to reject it; confirm it here.",
        )
        (file,) = (home.vault / "Pending_Approval").glob("*.md")
        file.write_text(file.read_text().replace("see you at ten", "pay 1,000 euro"))
        safe.move("Pending_Approval", "Approved")
        shown = await safe.card(card)
        assert (
            shown.digest,
            shown.revision,
            "counts for nothing" in (shown.note or ""),
        ) == (card.digest, 1, True)
        assert "pay 1,000 euro" not in file.read_text()

        file.write_text(file.read_text().replace("see you at ten", "pay 1,000 euro"))
        await safe.desk.answers.approve(card.id, card.digest, "person", RIGHT)
        safe.move("Pending_Approval", "Rejected")
        assert (await safe.card(card)).state == "held"
        assert await safe.settle() == 1
        assert await safe.answers() == [("held", "password")]

        card = await safe.ask(subject="Another one")
        await safe.desk.answers.reject(card.id, card.digest, None, "person", RIGHT)
        (rejected,) = (home.vault / "Rejected").glob("*.md")
        rejected.rename(home.vault / "Approved" / rejected.name)
        assert await safe.settle() == 1
        assert (await safe.card(card)).state == "rejected"


@requirement("proof:wish")
async def test_a_hand_written_approval_and_a_moved_draft_release_nothing(
    safe: Safe,
) -> None:
    approved = safe.home.vault / "Approved"
    approved.mkdir(exist_ok=True)
    yes = f"---\ntype: email_send\nstatus: approved\nto: {HELLO['to']}\n---\nFine.\n"
    (approved / "yes.md").write_text(yes)
    (approved / "mail.md").write_text(
        "---\nto: ann@example.org\nsubject: Lunch\n---\nAt noon?\n"
    )
    await safe.ask()
    name = "draft-mine"
    draft = safe.home.vault / "Drafts" / "mine.md"
    draft.parent.mkdir(exist_ok=True)
    head = f"---\ntype: email_draft\ndraft_id: {name}\nto: bob@example.org\nsubject: Tea\n---\n"
    draft.write_text(f"{head}At four?\n")
    await safe.desk.waiting.cards()
    draft.write_text(f"{head}At five?\n")
    assert (await safe.desk.waiting.card(name)).body == "At five?\n"
    safe.move("Drafts", "Approved")

    assert await safe.settle() == 0
    assert await safe.answers() == []
    whys = {each.path: each.why for each in await safe.desk.door.find_idle()}
    assert "does not count" in whys["Approved/yes.md"]
    assert "confirm it here" in ((await safe.desk.waiting.card(name)).note or "")
    card = await safe.desk.waiting.card(name)
    await safe.desk.answers.approve(name, card.digest, "person", RIGHT)
    safe.clock.pass_by(seconds=20)
    await safe.desk.gate.release_due()
    assert len(await safe.desk.mailbox.search("in:sent", 200)) == 1


@requirement("proof:stored")
async def test_a_row_that_was_changed_by_hand_sends_nothing(safe: Safe) -> None:
    card = await safe.ask()
    sql = "UPDATE requests SET state = ?, due = 1, proof = 'password', decided_by = 'person' WHERE id = ?"

    def set_state(tx: Transaction, state: str) -> None:
        tx.execute(sql, state, card.id)

    for state in ("approved", "held", "sending"):
        await safe.desk.store.write(set_state, state)
        assert await safe.settle() == 0
        assert (await safe.card(card)).state == "waiting"

    # A yes that was taken back does not come back with the row, nor does one that somebody else wrote down.
    await safe.desk.answers.approve(card.id, card.digest, "person", RIGHT)
    await safe.desk.answers.undo(card.id, "person", RIGHT)
    sql = "UPDATE requests SET state = 'approved', due = 1 WHERE id = ?"
    await safe.desk.store.write(lambda tx: tx.execute(sql, card.id))
    assert await safe.settle() == 0
    forged = (
        "INSERT INTO answers (request_id, revision, word, digest, proof, said_by, at, number, evidence)"
        " VALUES (?, 1, 'approved', ?, 'password', 'person', 1, 9, ?)"
    )
    await safe.desk.store.write(
        lambda tx: tx.execute(forged, card.id, card.digest, "0" * 64)
    )
    await safe.desk.store.write(lambda tx: tx.execute(sql, card.id))
    assert await safe.settle() == 0
    verified = safe.home.command("log", "--verify", DESKHAND_ADDRESS="me@example.com")
    assert (verified.returncode, card.id in verified.stdout) == (1, True)
    await safe.desk.store.write(
        lambda tx: tx.execute("DELETE FROM answers WHERE number = 9")
    )
    assert (
        safe.home.command("log", "--verify", DESKHAND_ADDRESS="me@example.com").returncode
        == 0
    )
    request = await safe.desk.store.read(ledger.find, card.id)
    assert request is not None
    assert "proved too little" in (request.note or "")


@requirement("proof:throttled")
async def test_a_program_that_guesses_waits_ever_longer_and_keeps_nobody_else_out(
    safe: Safe,
) -> None:
    card = await safe.ask()
    answers = safe.desk.answers
    for number in range(passwords.TRIES):
        with pytest.raises(Denied, match="the password is wrong"):
            await answers.approve(
                card.id,
                card.digest,
                "person",
                Typed(f"guess number {number}", "stolen session"),
            )
    for wait in (60, 120):
        with pytest.raises(RateLimited):
            await answers.approve(
                card.id, card.digest, "person", Typed(PASSWORD, "stolen session")
            )
        safe.clock.pass_by(seconds=wait)
        with pytest.raises(Denied, match="the password is wrong"):
            await answers.approve(
                card.id, card.digest, "person", Typed("one more guess", "stolen session")
            )
    assert (
        await answers.snooze(card.id, safe.clock.time.replace(year=2027), "person", RIGHT)
    ).state == "snoozed"
    safe.clock.pass_by(seconds=240)
    stolen = Typed(PASSWORD, "stolen session")
    assert (await answers.wake(card.id, "person", stolen)).state == "waiting"
    assert (
        await answers.reject(card.id, card.digest, None, "person", stolen)
    ).state == "rejected"


@requirement("proof:cookie")
async def test_a_session_lets_one_look_and_only_the_password_answers(safe: Safe) -> None:
    card = await safe.ask()
    one = f"/approvals/{card.id}"
    seen = {"digest": card.digest, "reason": "", "words": "Later.", "until": "hour"}
    letter = {"to": HELLO["to"], "subject": "Mine", "body": "At nine.\n"}
    async with (
        served(web_site(safe.desk)) as address,
        signed_in(safe.desk, address) as person,
    ):
        page = (await person.reads(one)).text
        assert HELLO["subject"] in page
        for way in ("approve", "reject", "respond", "snooze", "edit"):
            refused = await person.sends(f"{one}/{way}", seen | letter)
            assert (refused.status_code, "proves too little" in refused.text) == (
                409,
                True,
            ), way
        batch = await person.sends("/approvals/batch", {"card": f"{card.id}:{card.digest}"})
        assert batch.status_code == 409
        assert (
            await person.sends(f"{one}/approve", seen | {"password": "wrong wrong wrong"})
        ).status_code == 409
        assert await safe.answers() == []

        typed = {"password": PASSWORD}
        assert (await person.sends(f"{one}/edit", seen | letter | typed)).status_code == 303
        held = await safe.card(card)
        undo = {"digest": held.digest}
        assert (await person.sends(f"{one}/undo", undo)).status_code == 409
        assert (await person.sends(f"{one}/undo", undo | typed)).status_code == 303
        assert (await person.sends(f"{one}/approve", undo | typed)).status_code == 303
    assert await safe.settle() == 1


@requirement("proof:stored")
async def test_without_a_password_nobody_can_answer_and_it_says_so(home: Home) -> None:
    async with opened(home) as safe:
        await safe.desk.store.write(passwords.remove)
        card = await safe.ask()
        with pytest.raises(Denied, match="no password yet"):
            await safe.desk.answers.approve_edited(
                card.id, card.digest, Letter("a@b.org", "", ""), "person", RIGHT
            )


@requirement("proof:stored")
def test_the_terminal_asks_for_the_password_and_the_options_go_together(home: Home) -> None:
    (home.path).mkdir()
    (home.path / "config.toml").write_text(
        '[approvals]\nfiles = "sealed"\nproof = "passkey"\n'
    )
    settings = load(home.environment).settings
    assert (settings.approvals, settings.proof) == ("sealed", "passkey")
    assert load({"DESKHAND_HOME": "/var/lib/deskhand"}).settings.proof == "passkey"
    assert load({"DESKHAND_HOME": "/var/lib/another"}).settings.proof == "vault"
    refused = home.command("snooze", "none", "1h")
    assert refused.returncode == 4


@requirement("proof:wish")
async def test_what_was_edited_where_no_vault_is_stands_in_its_file_where_one_is(
    safe: Safe,
) -> None:
    card = await safe.ask()
    settings = safe.desk.settings.model_copy(update={"vault_path": None})
    away = Desk(settings, safe.clock)
    await away.answers.edit(
        card.id, card.digest, Letter(**HELLO | {"body": "At nine.\n"}), "person", RIGHT
    )
    away.close()
    assert (await safe.card(card)).body == "At nine.\n"
    (file,) = (safe.home.vault / "Pending_Approval").glob("*.md")
    assert "At nine." in file.read_text()


@requirement("entry:password")
async def test_five_wrong_passwords_and_the_page_takes_none_for_a_quarter_of_an_hour(
    safe: Safe,
) -> None:
    store = safe.desk.store
    with pytest.raises(InvalidInput, match="no password for the page"):
        passwords.hash_password("short")
    assert await store.read(passwords.is_set)
    for _ in range(passwords.TRIES):
        assert await store.write(passwords.attempt, safe.clock())
    with pytest.raises(RateLimited, match="too many wrong passwords"):
        await store.write(passwords.attempt, safe.clock())
    safe.clock.pass_by(minutes=15)
    assert await store.write(passwords.attempt, safe.clock())
    await store.write(passwords.forget_wrong_passwords)
    await store.write(passwords.remove)
    assert await store.write(passwords.attempt, safe.clock()) is None


@requirement("entry:link")
async def test_of_many_wrong_links_the_first_few_are_on_the_record(safe: Safe) -> None:
    noted = [
        await safe.desk.store.write(passwords.count_wrong_link, safe.clock())
        for _ in range(passwords.NOTED + 3)
    ]
    assert noted.count(True) == passwords.NOTED


@requirement("proof:throttled")
async def test_nobody_is_locked_out_for_good(safe: Safe) -> None:
    card = await safe.ask()
    answers = safe.desk.answers
    for _ in range(3 * passwords.TRIES):
        with pytest.raises(Denied, match="no password was typed"):
            await answers.approve(card.id, card.digest, "person", Typed("", "terminal"))
    for _ in range(20):
        with pytest.raises(Denied, match="the password is wrong"):
            await answers.approve(
                card.id,
                card.digest,
                "person",
                Typed("one more guess", "terminal, by a script"),
            )
        safe.clock.pass_by(minutes=15)
    assert (
        await answers.approve(card.id, card.digest, "person", Typed(PASSWORD, "terminal"))
    ).state == "held"

    store = safe.desk.store
    await store.write(passwords.know_place, "198.51.100.7", safe.clock())
    await store.write(passwords.know_place, "198.51.100.7", safe.clock())
    for _ in range(passwords.TRIES):
        assert await store.write(passwords.attempt, safe.clock(), "203.0.113.9")
    with pytest.raises(RateLimited):
        await store.write(passwords.attempt, safe.clock(), "203.0.113.10")
    for _ in range(passwords.TRIES):
        assert await store.write(passwords.attempt, safe.clock(), "198.51.100.7")
    with pytest.raises(RateLimited):
        await store.write(passwords.attempt, safe.clock(), "198.51.100.7")
    await store.write(passwords.forget_wrong_passwords, "198.51.100.7")
    assert await store.write(passwords.attempt, safe.clock(), "198.51.100.7")


@requirement("proof:stored")
async def test_a_draft_written_between_the_persons_edit_and_their_yes_is_not_approved(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(home) as safe:
        draft = safe.home.vault / "Drafts" / "mine.md"
        draft.parent.mkdir(exist_ok=True)
        draft.write_text(
            "---\ntype: email_draft\ndraft_id: draft-mine\nto: bob@example.org\nsubject: Tea\n---\nAt four?\n"
        )
        (card,) = (await safe.desk.waiting.cards())[0]
        write_edit = safe.desk.door.write_edit

        async def write_and_swap(request: Request, action: Action) -> None:
            await write_edit(request, action)
            text = draft.read_text()
            draft.write_text(
                text.replace("At six.", "Wire it.").replace(
                    "bob@example.org", "eve@evil.example"
                )
            )

        monkeypatch.setattr(safe.desk.door, "write_edit", write_and_swap)
        letter = Letter("bob@example.org", "Tea", "At six.\n")
        with pytest.raises(Changed):
            await safe.desk.answers.approve_edited(
                card.id, card.digest, letter, "person", RIGHT
            )
        assert await safe.settle() == 0


@requirement("phone:pairing")
async def test_wrong_codes_for_pairing_are_counted_where_they_come_from(safe: Safe) -> None:
    now = safe.desk.now()
    for _ in range(passwords.TRIES):
        await safe.desk.store.write(passwords.demand_few_codes, "10.0.0.1", now)
        await safe.desk.store.write(passwords.count_wrong_code, "10.0.0.1", now)
    with pytest.raises(RateLimited, match="too many wrong codes"):
        await safe.desk.store.write(passwords.demand_few_codes, "10.0.0.1", now)
    await safe.desk.store.write(passwords.demand_few_codes, "10.0.0.2", now)
