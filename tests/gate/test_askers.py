"""Who asks, in words."""

import json
import re

import pytest
from mcp import Client
from mcp_types import Implementation

from deskhand.app import Desk
from deskhand.askers import asking_as, current_asker, describe_actor, describe_asker
from deskhand.config import load
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
async def test_a_card_names_the_program_that_asks_as_a_person_knows_it(
    home: Home, era: str
) -> None:
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
    words = {
        None: "an assistant",
        "person": "you",
        "email_mcp": "an assistant",
        "assistant": "an assistant",
        "desk": "the desk",
        "follow_up": "the desk",
    }
    words |= {
        "rule:questions": "your rule “questions”",
        "openai:gpt-9": "the model gpt-9 (openai)",
    }
    assert {door: describe_asker(None, door) for door in words} == words
    assert describe_caller(None) == "an assistant on this machine"
    stranger = Implementation(name="x", title="The\u202ePerson\n" + "a" * 99, version="")
    assert describe_caller(stranger).count("\n") == 0
    assert len(describe_caller(stranger)) < 100
    assert "The<U+202E>Person" in describe_caller(stranger)
    # Nor does it say what only the desk knows: by which token somebody came.
    quoted = Implementation(name="x", title="Claude, with the token “mine”", version="1")
    assert describe_caller(quoted) == "Claude, with the token 'mine' 1 on this machine"
    posing = (
        "\u0443\u043eu",
        "\uff59\uff4f\uff55",
        "(you)",
        "your_rule",
        "Deskhand",
        "yourself",
        "- My desk",
    )
    for name in ("you", "You, on the page", "the desk", "your rule", *posing):
        says = f"a program that calls itself “{name}” on this machine"
        assert describe_caller(Implementation(name=name, version="")) == says
    assert (
        describe_caller(Implementation(name="young", version="")) == "young on this machine"
    )
    with asking_as("somebody"):
        assert current_asker() == "somebody"
    assert current_asker() is None


@requirement("cards:asker")
async def test_the_record_names_who_asked_on_the_page_and_in_the_terminal(
    home: Home,
) -> None:
    own = home.environment | {
        "DESKHAND_ADDRESS": "me@example.com",
        "DESKHAND_TIMEZONE": "Asia/Tokyo",
    }
    desk = Desk(load(own).settings)
    async with Client(
        email_server(desk), client_info=Implementation(name="claude-code", version="2.1.3")
    ) as client:
        await client.call_tool("send_email", HELLO)
    await desk.record("person", "end_session", "x", {}, None, 0)
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        page = (await person.reads("/timeline")).text
    assert '<span class="who"><bdi>Claude Code 2.1.3 on this machine</bdi></span>' in page
    assert '<span class="who"><bdi>you</bdi></span>' in page
    assert re.search(
        r'<time datetime="[^"]*\+09:00" title="[^"]*\+09:00">(?:to|yester)day, \d\d:\d\d</time>',
        page,
    )
    await desk.close_mailbox()
    desk.close()

    here = Home(home.vault, own)
    told = here.command("log").stdout
    assert re.search(
        r"(?m)^ +1  (?:to|yester)day, \d\d:\d\d +Claude Code 2.1.3 on this machine  Send a mail",
        told,
    )
    assert json.loads(here.command("log", "--json").stdout.splitlines()[0])[
        "timestamp"
    ].endswith("Z")
    waits = here.command("approvals").stdout
    assert re.search(
        r"asked by Claude Code 2.1.3 on this machine, (?:to|yester)day, \d\d:\d\d$",
        waits.strip(),
    )
    assert json.loads(here.command("approvals", "--json").stdout)["created"].endswith(
        "+00:00"
    )


@requirement("cards:asker")
def test_a_line_of_the_record_speaks_of_a_person_a_token_a_rule_or_a_part() -> None:
    assert describe_actor("person", {}, {}) == "you"
    assert describe_actor("tasks_cli", {}, {}) == "you"
    assert describe_actor("tasks_mcp", {"client": "codex"}, {}) == "an assistant (codex)"
    named = {"client": "codex", "asker": "Codex 1.2, with the token “codex”"}
    assert describe_actor("tasks_mcp", named, {}) == named["asker"]
    assert describe_actor("person", named, {}) == "you"
    assert describe_actor("tasks_api", {}, {}) == "a program"
    assert describe_actor("tasks_api", {"client": "sync"}, {}).endswith("token “sync”")
    assert (
        describe_actor("email_mcp", {"action_id": "gone"}, {"other": "Codex"})
        == "an assistant"
    )
    assert describe_actor("rule:news", {}, {}) == "your rule “news”"
    assert describe_actor("orchestrator", {"action_id": "a"}, {"a": "Codex"}) == "the desk"
