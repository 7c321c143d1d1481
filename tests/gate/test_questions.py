"""An assistant asks the person: the question waits with everything else, and the answer goes to whoever asked."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from mcp import Client

from deskhand import audit
from deskhand.errors import InvalidInput
from deskhand.gate.hands import AnswerHand
from deskhand.gate.question import Question
from deskhand.mail import NotSent
from deskhand.orchestrator.status import facts
from deskhand.servers.desk import desk_server
from deskhand.web.site import site as web_site
from tests.gate.safe_desk import RIGHT
from tests.gate.test_permissions import Permitted, opened
from tests.home import Home
from tests.requirements import requirement
from tests.web.person import served, signed_in

pytestmark = pytest.mark.anyio


@pytest.fixture
async def place(home: Home) -> AsyncIterator[Permitted]:
    async with opened(home) as made:
        yield made


async def ask(client: Client, question: str, **more: object) -> dict[str, str]:
    result = await client.call_tool("ask_person", {"question": question, **more})
    assert not result.is_error, result.content
    return result.structured_content


@requirement("ask:answered")
async def test_the_persons_words_come_back_to_whoever_asked(place: Permitted) -> None:
    async with Client(desk_server(place.desk), mode="2026-07-28") as client:
        first = await ask(client, "Which day suits you?")
        again = await ask(client, "Which day suits you?")
        (card,) = await place.waiting()
        assert first["request"] == again["request"] == card.id
        assert first["state"] == "waiting"
        await place.desk.answers.respond(card.id, card.digest, "Tuesday", "person", RIGHT)
        told = await ask(client, "Which day suits you?")
        assert (told["state"], told["answer"]) == ("answered", "Tuesday")
        found = await client.call_tool("get_action", {"id": card.id})
        assert (found.structured_content["state"], found.structured_content["said"]) == (
            "answered",
            "Tuesday",
        )
        assert await place.waiting() == []
    entries = await place.desk.store.read(audit.entries)
    said = {each.action_type: each.target for _, each in entries}
    assert said["ask_person"] == said["replied"] == "a question"


@requirement("ask:answered")
async def test_a_yes_and_a_no_are_answers_too(place: Permitted) -> None:
    async with Client(desk_server(place.desk), mode="2026-07-28") as client:
        await ask(client, "Shall I go on?")
        (card,) = await place.waiting()
        await place.desk.answers.approve(card.id, card.digest, "person", RIGHT)
        await place.settle()
        assert (await ask(client, "Shall I go on?"))["answer"] == "yes"
        await ask(client, "And delete all?")
        (card,) = await place.waiting()
        await place.desk.answers.reject(card.id, card.digest, "never", "person", RIGHT)
        refused = await ask(client, "And delete all?")
        assert (refused["state"], "never" in refused["hint"]) == ("rejected", True)


@requirement("ask:answered")
async def test_where_no_proof_is_asked_for_the_persons_words_come_back_too(
    home: Home,
) -> None:
    async with (
        opened(home, DESKHAND_PROOF="vault") as place,
        Client(desk_server(place.desk), mode="2026-07-28") as client,
    ):
        await ask(client, "Which day suits you?")
        (card,) = await place.waiting()
        await place.desk.answers.respond(card.id, card.digest, "Tuesday", "person")
        assert (await ask(client, "Which day suits you?"))["answer"] == "Tuesday"


@requirement("ask:answered")
async def test_of_choices_one_is_chosen(place: Permitted) -> None:
    async with Client(desk_server(place.desk), mode="2026-07-28") as client:
        await ask(client, "Tea or coffee?", choices=["tea ", "coffee"], expires_in=60)
        (card,) = await place.waiting()
        assert card.expires == card.created + timedelta(hours=1)
        with pytest.raises(InvalidInput, match="choose one of: tea, coffee"):
            await place.desk.answers.respond(card.id, card.digest, "water", "person", RIGHT)
        with pytest.raises(InvalidInput, match="not edited"):
            (await place.desk.waiting.find(card.id)).action.edit({"body": "x"})
        await place.desk.answers.respond(card.id, card.digest, "tea", "person", RIGHT)
        assert (await ask(client, "Tea or coffee?", choices=["tea", "coffee"]))[
            "answer"
        ] == "tea"
        for wrong in (
            {"choices": ["a", "a "]},
            {"choices": ["caf\u00e9", "cafe\u0301"]},
            {"question": " \n"},
            {"choices": ["a", " "]},
            {"choices": ["a\nb"]},
            {"choices": list("abcdefg")},
            {"expires_in": 0},
        ):
            assert (
                await client.call_tool("ask_person", {"question": "x", **wrong})
            ).is_error


@requirement("ask:answered")
async def test_a_yes_is_none_of_the_choices(place: Permitted) -> None:
    async with Client(desk_server(place.desk), mode="2026-07-28") as client:
        await ask(client, "Tea or coffee?", choices=["tea", "coffee"])
        (card,) = await place.waiting()
        with pytest.raises(InvalidInput, match="choose one of") as refused:
            await place.desk.answers.approve(card.id, card.digest, "person", RIGHT)
        assert "`deskhand respond " in str(refused.value.hint)


@requirement("ask:answered")
async def test_nobody_else_sees_the_question_or_its_answer(place: Permitted) -> None:
    async with Client(desk_server(place.desk), mode="2026-07-28") as client:
        await ask(client, "What is the code?")
        (card,) = await place.waiting()
        await place.desk.answers.respond(card.id, card.digest, "1742", "person", RIGHT)
        request = await place.desk.waiting.find(card.id)
        other = request.action.model_copy(update={"asker": "client another"})
        await place.desk.store.write(
            lambda tx: tx.execute("UPDATE requests SET action = ?", other.model_dump_json())
        )
        refused = await client.call_tool("get_action", {"id": card.id})
        assert refused.is_error
        assert f"{card.id} was asked for by another assistant" in refused.content[0].text


@requirement("ask:answered")
async def test_a_file_among_the_approved_is_no_choice_and_can_still_be_answered(
    place: Permitted,
) -> None:
    async with Client(desk_server(place.desk), mode="2026-07-28") as client:
        await ask(client, "Tea or coffee?", choices=["tea", "coffee"])
        (card,) = await place.waiting()
        await place.desk.store.write(
            lambda tx: tx.execute("UPDATE requests SET state = 'approved', proof = 'vault'")
        )
        await place.desk.answers.respond(card.id, card.digest, "tea", "person", RIGHT)
        assert (await ask(client, "Tea or coffee?", choices=["tea", "coffee"]))[
            "answer"
        ] == "tea"


@requirement("ask:answered")
async def test_a_moved_file_is_no_choice_and_the_page_still_asks(home: Home) -> None:
    async with (
        opened(home, DESKHAND_PROOF="vault") as place,
        Client(desk_server(place.desk), mode="2026-07-28") as client,
    ):
        await ask(client, "Tea or coffee?", choices=["tea", "coffee"])
        (card,) = await place.waiting()
        (asked,) = (home.vault / "Pending_Approval").glob("*.md")
        text = asked.read_text()
        assert "\n# Tea or coffee?\n" in text
        assert f"`deskhand respond {card.id} CHOICE`" in text
        assert "to say yes" not in text
        asked.rename(home.vault / "Approved" / asked.name)
        await place.settle()
        async with (
            served(web_site(place.desk)) as address,
            signed_in(place.desk, address) as person,
        ):
            shown = (await person.reads(f"/approvals/{card.id}")).text
            assert "A yes is none of the choices" in shown
            assert '<button name="words" value="coffee">' in shown
            await person.sends(
                f"/approvals/{card.id}/respond",
                {"digest": card.digest, "words": "coffee"},
                at=f"/approvals/{card.id}",
            )
        told = await ask(client, "Tea or coffee?", choices=["tea", "coffee"])
        assert told["answer"] == "coffee"


@requirement("ask:answered")
async def test_the_page_shows_the_question_and_its_choices(home: Home) -> None:
    async with opened(home, DESKHAND_PROOF="page") as place:
        async with Client(desk_server(place.desk), mode="2026-07-28") as client:
            await ask(
                client,
                "Tea\u200b or coffee? https://evil.example",
                choices=["tea", "coffee"],
            )
            (card,) = await place.waiting()
            await ask(client, "Is it late?", choices=["Yes", "No"])
            mail = {"to": "ann@example.org", "subject": "Tea", "body": "At four."}
            await client.call_tool("send_email", mail)
        assert card.risk.level == "high"
        assert "ask_person: Is it late?" in [
            line.what for line in (await facts(place.desk)).waiting
        ]
        (late,) = [each for each in await place.waiting() if each.risk.level == "low"]
        async with (
            served(web_site(place.desk)) as address,
            signed_in(place.desk, address) as person,
        ):
            queue = (await person.reads("/")).text
            assert "a question to you" in queue
            # A yes to many at once answers no question, and nothing is asked by an account without a name.
            assert f'value="{late.id}"' not in queue
            assert "Account" not in queue
            asked = (await person.reads(f"/approvals/{late.id}")).text
            assert '<summary class="button">None of these</summary>' in asked
            assert "Before you answer" in asked
            assert "Before you say yes" not in asked
            shown = (await person.reads(f"/approvals/{card.id}")).text
            assert '<button name="words" value="coffee">' in shown
            fields = {"digest": card.digest, "words": "coffee"}
            await person.sends(
                f"/approvals/{card.id}/respond", fields, at=f"/approvals/{card.id}"
            )
            assert "Answered: coffee" in (await person.reads(f"/approvals/{card.id}")).text


async def test_an_answer_may_be_given_again_after_a_kill() -> None:
    question = Question(text="Shall I?", asker="me")
    assert await AnswerHand(question).check("token") == NotSent("token")
    assert question.edit({"body": question.body}) is question
