"""A connected assistant decides instead of a model."""

import json
from typing import Any

import pytest
from mcp import Client

from deskhand.mail.local import Incoming
from deskhand.orchestrator.loop import Orchestrator
from deskhand.servers.server import DeskServer
from deskhand.servers.triage import triage_tools
from tests.mail.letters import letter
from tests.orchestrator.office import Office
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def of(result: Any) -> Any:
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)


@requirement("orchestrator:assistant")
async def test_an_assistant_lists_what_waits_and_its_decision_becomes_a_draft(office: Office) -> None:
    desk = office.desk()
    await desk.mailbox.receive([Incoming(letter(subject="Hm", message_id="<h@x>"), seen=False)])
    orchestrator = Orchestrator(desk)
    await orchestrator.once()
    async with Client(DeskServer("desk", triage_tools(desk))) as client:
        (pending,) = (await client.call_tool("list_pending", {})).structured_content["result"]
        assert (pending["status"], pending["sender"]) == ("needs_info", "ann@example.org")
        named = {"message_id": pending["message_id"], "reasoning": "She asks."}
        refused = await client.call_tool("propose_decision", named | {"decision": "draft_reply"})
        assert refused.is_error
        unknown = await client.call_tool("propose_decision", named | {"message_id": "m1", "decision": "archive"})
        assert unknown.is_error
        chosen = await client.call_tool(
            "propose_decision", named | {"decision": "draft_reply", "to": "mallory@evil.example", "reply_body": "Hi."}
        )
        assert chosen.is_error
        of(await client.call_tool("propose_decision", named | {"decision": "draft_reply", "reply_body": "I am fine."}))
        await orchestrator.once()
        again = await client.call_tool("propose_decision", named | {"decision": "archive"})
        assert again.is_error
    await orchestrator.close()
    await desk.close_mailbox()
    desk.close()

    draft = office.only("Drafts")
    assert (office.properties(draft)["drafted_by"], office.properties(draft)["to"]) == ("assistant", "ann@example.org")
    assert office.body(draft) == "I am fine.\n"
    assert len(office.files("Needs_Action")) == 1
