"""Each tool of each server, called through what toolkits make of the schemas; no model is needed.

    python3 run.py torture toolkits [--only openai-agents|llama-index|mcp-use]

openai-agents in strict mode makes every argument required, so null is its only way to leave one alone; mcp-use fills in
null for what was left out. Nothing may be cleared by that, and nothing refused that is right. Each toolkit is installed
into an environment of its own under .judges and talks to `deskhand mcp NAME` on stdio.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.home import Home
from tests.mail.letters import letter
from tests.orchestrator.office import Office

PLACE = Path(__file__).parents[1] / ".judges" / "toolkits"
PACKAGES = {
    "openai-agents": "openai-agents==0.24.0",
    "llama-index": "llama-index-tools-mcp==0.6.0",
    "mcp-use": "mcp-use==1.7.1",
}
TALK = """
import asyncio, json, os, sys

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what a toolkit prints itself

def filled(schema, given):
    def value(name, kind):
        if name in given:
            return given[name]
        kinds = [kind.get("type"), *(each.get("type") for each in kind.get("anyOf", ()))]
        if "null" in kinds or any(isinstance(each, list) and "null" in each for each in kinds):
            return None
        return kind.get("default")
    return {name: value(name, kind) for name, kind in schema.get("properties", {}).items()}

async def talk(names, call):
    print(json.dumps(sorted(names)), file=answers, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, given = json.loads(line)
        try:
            said = await call(name, given)
        except Exception as error:
            said = f"RAISED {type(error).__name__}: {error}"
        print(json.dumps(str(said)), file=answers, flush=True)

command, *arguments = sys.argv[1:]
environment = dict(os.environ)
"""
PROGRAMS = {
    "openai-agents": """
from agents.mcp import MCPServerStdio, MCPUtil
from agents.tool_context import ToolContext

async def main():
    place = {"command": command, "args": arguments, "env": environment}
    async with MCPServerStdio(params=place, client_session_timeout_seconds=60) as server:
        tools = {each.name: MCPUtil.to_function_tool(each, server, True) for each in await server.list_tools()}

        async def call(name, given):
            tool = tools[name]
            text = json.dumps(filled(tool.params_json_schema, given))
            context = ToolContext(context=None, tool_name=name, tool_call_id="1", tool_arguments=text)
            said = await tool.on_invoke_tool(context, text)
            return f"STRICT {tool.strict_json_schema} {said['text'] if isinstance(said, dict) else said}"

        await talk(tools, call)

asyncio.run(main())
""",
    "llama-index": """
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

async def main():
    client = BasicMCPClient(command, args=arguments, env=environment, timeout=60)
    tools = {each.metadata.name: each for each in await McpToolSpec(client=client).to_tool_list_async()}

    async def call(name, given):
        made = tools[name].metadata.fn_schema(**given)
        return await tools[name].acall(**{key: getattr(made, key) for key in type(made).model_fields})

    await talk(tools, call)

asyncio.run(main())
""",
    "mcp-use": """
from mcp_use import MCPClient
from mcp_use.agents.adapters.langchain_adapter import LangChainAdapter

async def main():
    server = {"command": command, "args": arguments, "env": environment}
    client = MCPClient.from_dict({"mcpServers": {"desk": server}})
    await client.create_all_sessions()
    tools = {each.name: each for each in await LangChainAdapter().create_tools(client)}

    async def call(name, given):
        return await tools[name].ainvoke(given)

    await talk(tools, call)
    await client.close_all_sessions()

asyncio.run(main())
""",
}


def install(toolkit: str) -> Path:
    place = PLACE / toolkit
    stamp = place / PACKAGES[toolkit]
    if not stamp.exists():
        print(f"  installing {PACKAGES[toolkit]}", flush=True)
        venv.create(place, with_pip=True, clear=True)
        subprocess.run(
            [place / "bin" / "pip", "install", "-q", PACKAGES[toolkit]],
            check=True,
            capture_output=True,
        )
        stamp.touch()
    return place / "bin" / "python"


LEAVE = b"List-Unsubscribe: <mailto:leave@lists.example.org>\r\n"
WAITS = "the request waits|Waiting for the person"


class Toolkit:
    """One toolkit that is connected to one server."""

    def __init__(
        self, process: "subprocess.Popen[str]", server: str, wrong: list[str]
    ) -> None:
        self._process = process
        self._server = server
        self.wrong = wrong
        self.tools: list[str] = json.loads(self._read())
        self.called: set[str] = set()

    def call(self, tool: str, /, expected: str, **given: Any) -> str:
        """What the tool says; it must begin to say what is expected somewhere."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([tool, given]) + "\n")
        self._process.stdin.flush()
        said = str(json.loads(self._read()))
        self.called.add(tool)
        if not re.search(expected, said):
            self.wrong.append(f"{self._server} {tool} {given}: {said[:400]}")
        return said

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline() or '"ENDED"'


@contextmanager
def connected(
    toolkit: str, office: Office, server: str, wrong: list[str]
) -> Iterator[Toolkit]:
    command = [
        install(toolkit),
        "-c",
        TALK + PROGRAMS[toolkit],
        sys.executable,
        "-m",
        "deskhand",
        "mcp",
        server,
    ]
    pipes = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.DEVNULL,
        "text": True,
    }
    environment = office.home.environment | {"MCP_USE_ANONYMIZED_TELEMETRY": "false"}
    with subprocess.Popen(command, env=environment, cwd=office.vault, **pipes) as process:  # type: ignore[call-overload]
        made = Toolkit(process, f"{toolkit}: {server}", wrong)
        yield made
        process.stdin.close()
    wrong += [
        f"{toolkit}: {server} {tool} was not called"
        for tool in made.tools
        if tool not in made.called
    ]


def walk_mail(kit: Toolkit, message: str, thread: str, news: str) -> None:
    words = {
        "to": "ann@example.org",
        "subject": f"Hello from {kit.tools[0]}",
        "body": "Dear Ann",
    }
    if "search_email" in kit.tools:
        kit.call("search_email", r"Found \d+ emails", query="idea")
        kit.call("draft_email", "Draft created successfully", **words)
        kit.call("reply_email", WAITS, thread_id=thread, message_id=message, body="Yes")
    kit.call("send_email", WAITS, **words)
    if "list_emails" in kit.tools:
        kit.call("list_emails", message)
    if "get_email" in kit.tools:
        kit.call("get_email", "an idea", message_id=message)
        kit.call("add_label", "true|ok|[Ll]abel", message_id=message, label_name="Clients")
        if "update_emails" in kit.tools:
            kit.call("get_thread", "an idea", thread_id=thread)
            kit.call("update_emails", "1", do="star", ids=[message])
            walk_attachments(kit, message, words)
            kit.call("unsubscribe", WAITS, message_id=news)
            kit.call(
                "ask_person", "waiting", question="Which colour?", choices=["red", "white"]
            )
        kit.call(
            "move_email", "true|ok|[Mm]ove", message_id=message, destination_label="Later"
        )


def walk_attachments(kit: Toolkit, message: str, words: dict[str, str]) -> None:
    kit.call("get_attachment", "roses", message_id=message, name="list.txt")
    kit.call(
        "save_attachment",
        "list.txt",
        message_id=message,
        name="list.txt",
        path="Kept/list.txt",
    )
    kit.call(
        "send_email",
        WAITS,
        **words | {"subject": "Files"},
        cc=["bob@example.org"],
        attachments=["Kept/list.txt"],
    )
    kit.call(
        "forward_email", WAITS, message_id=message, to="bob@example.org", body="See below"
    )


def walk_notes(kit: Toolkit, office: Office) -> None:
    note = office.vault / f"{(kit.called and 'b') or 'a'}.md"
    note.write_text("---\nkept: yes\nlist: [1, 2]\n---\nOld words, [[other]].\n")
    kit.call("read_note", "Old words", path=note.name)
    kit.call(
        "write_note",
        note.name,
        path=note.name,
        frontmatter={"new": 1},
        body="New words\n",
        merge=True,
    )
    if "kept: yes" not in note.read_text() or "new: 1" not in note.read_text():
        kit.wrong.append(f"write_note with merge left {note.read_text()!r}")
    kit.call("list_notes", note.name, directory=".")
    kit.call("search_notes", note.name, query="New words")
    kit.call("append_note", note.name, path=note.name, text="A line")
    insert = {"do": "replace", "key": "new", "value": 2}
    kit.call("edit_note", note.name, path=note.name, edits=[insert])
    kit.call(
        "edit_note",
        note.name,
        path=note.name,
        edits=[insert | dict.fromkeys(("heading", "block", "text"))],
    )
    kit.call("get_links", "links|\\[\\]", path=note.name)
    kit.call("list_tags", "tags|\\[\\]")
    kit.call("get_outline", "kept|headings|\\[\\]", path=note.name)
    kit.call("daily_note", "path|md", create=True)
    (office.vault / "template.md").write_text("# {{title}}\n")
    kit.call("create_from_template", "made.md", template="template.md", path="made.md")
    (office.vault / "made.md").unlink(missing_ok=True)
    kit.call("move_note", "moved", source=note.name, destination=f"moved-{note.name}")
    (office.vault / f"moved-{note.name}").unlink()


def walk_tasks(kit: Toolkit) -> None:
    given = {
        "title": "Garden",
        "description": "Roses",
        "priority": "High",
        "due_date": "2027-01-10T10:00:00Z",
    }
    made = kit.call("create_task", "Roses", **given)
    found = re.search(r'"id": ?(\d+)', made)
    if found is None:
        return
    task = int(found[1])
    kept = "Roses.*High.*2027-01-10"
    kit.call("update_task", f"Gardens.*{kept}", task_id=task, title="Gardens")
    kit.call("list_tasks", f"Gardens.*{kept}")
    kit.call("create_task", "Bare.*Medium", title="Bare")
    if "arrange_task" in kit.tools:
        kit.call(
            "arrange_task",
            f"{kept}.*Outside",
            task_id=task,
            project="Outside",
            labels=["a"],
            recurrence="FREQ=DAILY",
        )
        kit.call("arrange_task", f"{kept}.*Outside.*FREQ=DAILY", task_id=task, labels=["b"])
        kit.call("get_task", f"{kept}.*Outside.*FREQ=DAILY", task_id=task)
        kit.call("arrange_task", f"{kept}.*FREQ=DAILY", task_id=task, clear=["project"])
        kit.call(
            "change_tasks", "true|ok|done|completed", task_ids=[task], action="complete"
        )
        kit.call("undo_task_change", "Gardens|undone|complete")
    kit.call("mark_task_completed", '"completed": ?true', task_id=task)
    kit.call("delete_task", "was deleted", task_id=task)


def walk_agents(kit: Toolkit) -> None:
    names = ("send", "receive", "status", "list-recipients")
    if "send_to_agent" in kit.tools:
        names = ("send_to_agent", "receive_from_agents", "set_agent_status", "list_agents")
    send, receive, status, listed = names
    listed = next(
        (
            each
            for each in kit.tools
            if re.sub(r"\W", "_", each) == re.sub(r"\W", "_", listed)
        ),
        listed,
    )
    kit.call(status, "ok", status="ready")
    kit.call(listed, "ann")
    kit.call(send, "message_id", recipient="bob", message="Hello Bob")
    kit.call(receive, "No unread messages|Hello")


def walk_actions(kit: Toolkit, message: str) -> None:
    waiting = kit.call("pending_actions", "waiting")
    found = re.search(r'"id": ?"([^"]+)"', waiting)
    kit.call("get_action", "waiting", id=found[1] if found else "")
    kit.call("list_pending", message)
    asked = {
        "decision": "needs_info",
        "reasoning": "It does not say when.",
        "info_needed": "when",
    }
    kit.call("propose_decision", "accepted", message_id=message, **asked)


def walk(toolkit: str, wrong: list[str]) -> int:
    calls = 0
    with tempfile.TemporaryDirectory() as place:
        vault = Path(place) / "vault"
        vault.mkdir()
        inherited = {name: os.environ[name] for name in ("PATH", "HOME")}
        own = {
            "DESKHAND_HOME": f"{place}/home",
            "VAULT_PATH": str(vault),
            "TZ": "UTC",
            "MCP_LOG_LEVEL": "ERROR",
        }
        names = {
            "DESKHAND_ADDRESS": "me@example.com",
            "DESKHAND_USER": "ann",
            "DESKHAND_AGENT": "ann",
        }
        names["DESKHAND_FIRST_DAYS"] = "3650"
        office = Office(
            Home(vault, inherited | own | names | {"SERVICE_AUTH_TOKEN": "a-token"})
        )
        subprocess.run(["git", "init", "-q", vault], check=True)
        bob = office.home.environment | {"DESKHAND_AGENT": "bob"}
        agentmail = Path(sys.executable).with_name("agentmail")
        subprocess.run(
            [agentmail, "status", "ready"],
            env=bob,
            cwd=vault,
            check=True,
            capture_output=True,
        )
        asked = {
            "subject": "an idea, no query",
            "body": "When?",
            "attachment": "list.txt",
            "content": "roses",
        }
        office.receive(letter(**asked))
        office.passes()
        (mail,) = office.mails("")
        office.receive(LEAVE + letter(subject="news", body="No more?"))
        (news,) = office.mails("subject:news")
        for server in ("email", "gmail", "obsidian", "tasks", "agentmail", "desk"):
            with connected(toolkit, office, server, wrong) as kit:
                if "send_email" in kit.tools:
                    walk_mail(kit, mail.id, mail.thread_id, news.id)
                if "read_note" in kit.tools:
                    walk_notes(kit, office)
                if "create_task" in kit.tools:
                    walk_tasks(kit)
                if server in ("agentmail", "desk"):
                    walk_agents(kit)
                if server == "desk":
                    walk_actions(kit, mail.id)
                calls += len(kit.called)
                print(
                    f"  {toolkit}: {server}, {len(kit.called)} of {len(kit.tools)} tools",
                    flush=True,
                )
    return calls


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--only", choices=[*PACKAGES])
    given = options.parse_args()
    wrong: list[str] = []
    for toolkit in PACKAGES:
        if given.only in (None, toolkit):
            called = walk(toolkit, wrong)
            print(f"{toolkit}: {called} tools called, {len(wrong)} wrong so far")
    for each in wrong:
        print(f"WRONG {each}")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
