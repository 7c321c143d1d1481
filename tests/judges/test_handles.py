"""The tasks extension on the wire, held against the schemas of those who made it."""

import json
from pathlib import Path
from typing import Any

from deskhand.servers.handles import TASKS
from tests.home import TOKEN, Home
from tests.judges.node import MODULES, PROTOCOL, needs, node
from tests.requirements import requirement
from tests.test_chat import HELLO, answer
from tests.web.test_oauth import Place, opened

SCRIPT = Path(__file__).with_name("handles.mjs")
REVISION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientInfo": {"name": "judge", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
}


async def ask(place: Place, method: str, about: str, /, **params: Any) -> Any:
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": REVISION,
        "Mcp-Method": method,
        "Mcp-Name": about,
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": META}}
    answered = await place.chat.http.post("/mcp", json=body, headers=headers)
    return json.loads(answered.text[answered.text.index("{") :])["result"]


@requirement("chat:handle")
@needs(PROTOCOL / "ext-tasks" / "package.json")
async def test_a_handle_is_what_the_extensions_own_schemas_say(home: Home) -> None:
    async with opened(home.environment) as place:
        made = await ask(
            place, "tools/call", "send_email", name="send_email", arguments=HELLO
        )
        task = made["taskId"]
        working = await ask(place, "tasks/get", task, taskId=task)
        answer(home, "Approved")
        await place.desk.waiting.find(task)
        await place.desk.gate.release_due()
        done = await ask(place, "tasks/get", task, taskId=task)
        heard = await ask(place, "tasks/cancel", task, taskId=task)
    assert (working["status"], done["status"]) == ("working", "completed")
    assert "sent successfully" in done["result"]["content"][0]["text"]
    results = {
        "CreateTaskResultV2Schema": [made],
        "GetTaskResultV2Schema": [working, done],
        "CancelTaskResultV2Schema": [heard],
    }
    judged = node(SCRIPT, MODULES, json.dumps(results), environment=home.environment)
    assert (judged.stdout.strip(), judged.stderr) == ("[]", "")
