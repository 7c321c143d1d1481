"""`agentmail receive --hook` in the real Claude Code, at each event, with a scripted model on loopback.

    python3 run.py torture hooks [PATH_OF_CLAUDE]      without a path: the `claude` of this shell

The model must see the message, the prompt must reach it, and at an event of which it sees nothing no mail is read.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from deskhand.agents.files import FilesRoom
from deskhand.agents.mail import AgentMessage

AGENTMAIL = Path(sys.executable).with_name("agentmail")
PROMPT = "Say hello to the garden."
LETTER = "The \u001b[2J parser is ready; mind the 'quotes' & <tags>."
SHOWN = "The <U+001B>[2J parser is ready; mind the 'quotes' & <tags>."
READ_AT = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop")
NEVER_AT = ("PreToolUse", "SessionEnd", "Notification")


class ScriptedModel:
    """Answers as the model would: one call of a tool, then a sentence. It keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def answer(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        # Beside the conversation it asks for titles and the like, without the tools.
        if not request.get("tools"):
            return [{"type": "text", "text": "A title"}]
        self.asked.append(request)
        if len(self.asked) == 1:
            return [
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "Bash",
                    "input": {"command": "echo one"},
                }
            ]
        return [{"type": "text", "text": "Hello, garden."}]

    def heard(self) -> str:
        return json.dumps(
            [request["messages"] for request in self.asked], ensure_ascii=False
        )


def events(content: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The answer as the API streams it."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
    }
    yield {
        "type": "message_start",
        "message": message | {"stop_reason": None, "usage": usage},
    }
    stop = "end_turn"
    for index, block in enumerate(content):
        if block["type"] == "tool_use":
            stop = "tool_use"
            begun = block | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            begun = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": None},
        "usage": usage,
    }
    yield {"type": "message_stop"}


@contextmanager
def serving(model: ScriptedModel) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if not self.path.startswith("/v1/messages") or "count_tokens" in self.path:
                self._send(b'{"input_tokens": 1}', "application/json")
                return
            lines = (
                f"event: {each['type']}\ndata: {json.dumps(each)}\n\n"
                for each in events(model.answer(json.loads(body)))
            )
            self._send("".join(lines).encode(), "text/event-stream")

        def do_GET(self) -> None:
            self._send(b"{}", "application/json")

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing is said on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def run(claude: str, event: str, place: Path) -> str | None:
    """What is wrong at this event; None where nothing is."""
    repository = place / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    room = FilesRoom(str(repository))
    room.append(AgentMessage("id000001", "reviewer", "bob", LETTER))
    hook = {"type": "command", "command": f"{AGENTMAIL} receive --hook"}
    settings = {
        "hooks": {event: [{"hooks": [hook]}]},
        "permissions": {"allow": ["Bash(echo:*)"]},
    }
    model = ScriptedModel()
    with serving(model) as address:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "DESKHAND_HOME": str(place / "desk"),
            "DESKHAND_AGENT": "bob",
            "ANTHROPIC_BASE_URL": address,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        command = [claude, "-p", PROMPT, "--settings", json.dumps(settings)]
        done = subprocess.run(
            command,
            cwd=repository,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    heard = model.heard()
    is_read = not room.has_unread("bob")
    if PROMPT not in heard:
        return f"the prompt is lost: {done.stdout[-300:]} {done.stderr[-300:]}"
    if is_read != (event in READ_AT):
        return f"the message is {'read' if is_read else 'unread'}"
    if is_read != (SHOWN in json.dumps(json.loads(heard), ensure_ascii=False)):
        return "it was read, and the model did not see it"
    if "Hello, garden." not in done.stdout:
        return f"the answer is lost: {done.stdout[-300:]} {done.stderr[-300:]}"
    return None


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "claude",
        nargs="?",
        default=shutil.which("claude"),
        help="the path of Claude Code's program",
    )
    claude = parser.parse_args(argv).claude
    if claude is None:
        print(
            "no claude in this shell: `npm install @anthropic-ai/claude-code`, then name its path"
        )
        return 0
    failed = 0
    for event in (*READ_AT, *NEVER_AT):
        with tempfile.TemporaryDirectory() as place:
            wrong = run(claude, event, Path(place))
        failed += wrong is not None
        print(f"{event:18} {wrong or 'as promised'}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
