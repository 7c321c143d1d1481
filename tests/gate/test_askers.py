"""Who asks, in words."""

import pytest
from mcp import Client
from mcp_types import Implementation

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate.askers import asking_as, current_asker, describe_asker
from deskhand.servers.callers import describe_caller
from deskhand.servers.email import email_server
from deskhand.web.site import site
from tests.gate.site import ERAS, HELLO
from tests.home import Home
from tests.requirements import requirement
from tests.web.person import served, signed_in

pytestmark = pytest.mark.anyio


@requirement("cards:asker")
@pytest.mark.parametrize("era", ERAS)
async def test_a_card_names_the_program_that_asks_as_a_person_knows_it(home: Home, era: str) -> None:
    desk = Desk(load(home.environment | {"DESKHAND_ADDRESS": "me@example.com"}).settings)
    said = Implementation(name="claude-code", version="2.1.3")
    async with Client(email_server(desk), mode=era, client_info=said) as client:
        await client.call_tool("send_email", HELLO)
    (card,), _ = await desk.waiting.cards()
    assert (card.asker, card.asked_by) == ("Claude Code 2.1.3 on this machine", "email_mcp")
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        page = (await person.reads(f"/approvals/{card.id}")).text
    assert "Claude Code 2.1.3 on this machine" in page
    assert "email_mcp" not in page
    await desk.close_mailbox()
    desk.close()


@requirement("cards:asker")
def test_a_door_a_rule_and_a_model_have_words_too() -> None:
    words = {None: "an assistant", "email_mcp": "an assistant", "assistant": "assistant"}
    words |= {"rule:questions": "your rule “questions”", "openai:gpt-9": "the model gpt-9 (openai)"}
    assert {door: describe_asker(None, door) for door in words} == words
    assert describe_caller(None) == "An assistant on this machine"
    stranger = Implementation(name="x", title="The\u202ePerson\n" + "a" * 99, version="")
    assert describe_caller(stranger).count("\n") == 0
    assert len(describe_caller(stranger)) < 100
    with asking_as("somebody"):
        assert current_asker() == "somebody"
    assert current_asker() is None
