"""Where a yes or an answer is all that somebody waits for, the database alone tells nobody that it was given."""

from collections.abc import AsyncIterator

import pytest
from mcp import Client

from deskhand.errors import Denied
from deskhand.gate import Released
from deskhand.gate.forgery import Forged, Genuine
from deskhand.gate.outcomes import NotApproved
from deskhand.gate.rows import ANSWER_COLUMNS, WrittenAnswer
from deskhand.gate.toolcall import ToolCall, Workplace
from deskhand.gate.webauthn import Said
from deskhand.servers.desk import desk_server
from deskhand.store import Transaction
from tests.gate.safe_desk import RIGHT
from tests.gate.test_passkeys import Signer
from tests.gate.test_proofs import opened
from tests.gate.test_questions import ask
from tests.home import Home
from tests.requirements import requirement

pytestmark = pytest.mark.anyio
BY_HAND = (
    "UPDATE requests SET state = 'sent', untold = 1, words = ?, proof = 'passkey',"
    " decided_by = 'person', decided = created, tried = created WHERE id = ?"
)
COMMAND = ToolCall(
    server="claude-code",
    tool="Bash",
    arguments='{"command":"rm -r work"}',
    definition="",
    asker="the person's own program",
    at=Workplace(folder="/srv/garden", session="one"),
)


@pytest.fixture
async def signer(home: Home) -> AsyncIterator[Signer]:
    async with opened(home) as safe:
        made = Signer(safe)
        await made.enrol()
        yield made


@requirement("passkey:told")
async def test_a_program_hears_no_yes_that_was_written_into_the_database(
    signer: Signer,
) -> None:
    gate = signer.desk.gate
    waits = await gate.propose(COMMAND, "claude_mcp")
    assert isinstance(waits, NotApproved)
    await signer.change(BY_HAND, None, waits.waits)
    signer.safe.clock.pass_by(seconds=1)
    again = await gate.propose(COMMAND, "claude_mcp")
    assert isinstance(again, NotApproved)

    card = await signer.desk.waiting.card(again.waits or "")
    await signer.approve(card)
    await signer.safe.settle()
    assert isinstance(await gate.propose(COMMAND, "claude_mcp"), Released)
    # A yes is for one call: what was told is not told again because a row says so.
    await signer.change("UPDATE requests SET untold = 1")
    assert isinstance(await gate.propose(COMMAND, "claude_mcp"), NotApproved)


@requirement("passkey:told")
async def test_a_yes_that_a_program_heard_at_once_is_not_told_a_second_time(
    signer: Signer,
) -> None:
    gate = signer.desk.gate
    waits = await gate.propose(COMMAND, "claude_mcp")
    assert isinstance(waits, NotApproved)
    card = await signer.desk.waiting.card(waits.waits or "")
    await signer.desk.answers.approve_now(card.id, card.digest, "person", RIGHT)
    assert isinstance(await gate.propose(COMMAND, "claude_mcp"), Released)
    await signer.change("UPDATE requests SET untold = 1")
    assert isinstance(await gate.propose(COMMAND, "claude_mcp"), NotApproved)


@requirement("passkey:told")
async def test_a_yes_whose_proof_was_taken_away_is_not_told(signer: Signer) -> None:
    gate = signer.desk.gate
    waits = await gate.propose(COMMAND, "claude_mcp")
    assert isinstance(waits, NotApproved)
    await signer.approve(await signer.desk.waiting.card(waits.waits or ""))
    await signer.safe.settle()
    await signer.change("UPDATE answers SET evidence = NULL")
    assert isinstance(await gate.propose(COMMAND, "claude_mcp"), NotApproved)


@requirement("passkey:told")
async def test_an_assistant_hears_no_answer_that_the_person_did_not_give(
    signer: Signer,
) -> None:
    async with Client(desk_server(signer.desk), mode="2026-07-28") as client:

        async def said_of(name: str) -> object:
            found = await client.call_tool("get_action", {"id": name})
            return found.structured_content["said"]

        first = await ask(client, "Delete all?")
        await signer.change(BY_HAND, "yes, all", first["request"])
        assert await said_of(first["request"]) is None
        signer.safe.clock.pass_by(seconds=1)
        second = await ask(client, "Delete all?")
        assert (second["state"], not second["answer"]) == ("waiting", True)

        card = await signer.desk.waiting.card(second["request"])
        claim = signer.sign("responded", card, words="never")
        await signer.desk.answers.respond(card.id, card.digest, "never", "person", claim)
        assert await said_of(card.id) == "never"
        assert (await ask(client, "Delete all?"))["answer"] == "never"
        await signer.change("UPDATE requests SET words = 'yes, all' WHERE id = ?", card.id)
        assert isinstance(await signer.check(), Forged)
        assert await said_of(card.id) is None


@requirement("passkey:words")
async def test_the_words_of_an_answer_are_signed(signer: Signer) -> None:
    """Whoever has the key of the desk beside its database can write no other words over a signature."""
    answers = signer.desk.answers
    policy = signer.desk.policy
    async with Client(desk_server(signer.desk), mode="2026-07-28") as client:
        await ask(client, "Delete all?")
        (card,) = (await signer.desk.waiting.cards())[0]
        wordless = Said(word="responded", about=((card.id, card.digest),))
        for other in (
            signer.sign("responded", card, words="yes"),
            signer.signed(wordless, signer.nonce()),
        ):
            with pytest.raises(Denied, match="something else"):
                await answers.respond(card.id, card.digest, "never", "person", other)
        claim = signer.sign("responded", card, words="never")
        await answers.respond(card.id, card.digest, "never", "person", claim)
    assert await signer.check() == Genuine(1)

    def forge(tx: Transaction) -> None:
        row = tx.one(f"SELECT {ANSWER_COLUMNS} FROM answers")
        assert row is not None
        forged = WrittenAnswer(*row)._replace(words="yes")
        sql = "UPDATE answers SET words = ?, evidence = ?"
        tx.execute(sql, forged.words, policy.evidence(forged))
        tx.execute("UPDATE requests SET words = 'yes'")

    await signer.desk.store.write(forge)
    found = await signer.check()
    assert isinstance(found, Forged)
    assert "other words were signed" in found.why


@requirement("passkey:words")
async def test_a_no_is_signed_with_its_reason(signer: Signer) -> None:
    answers = signer.desk.answers
    card = await signer.safe.ask()
    for reason in (None, "later"):
        other = signer.sign("rejected", card, words="another")
        with pytest.raises(Denied, match="something else"):
            await answers.reject(card.id, card.digest, reason, "person", other)
        claim = signer.sign("rejected", card, words=reason)
        await answers.reject(card.id, card.digest, reason, "person", claim)
    other = signer.sign("rejected", card, words="another")
    with pytest.raises(
        Denied, match="something else"
    ):  # also where it would change nothing
        await answers.reject(card.id, card.digest, None, "person", other)
    assert await signer.check() == Genuine(2)
