"""`deskhand claude-hook`: the hook by which Claude Code asks the running desk before it uses a tool of its own.

It reads what Claude Code says of the call on stdin and prints the answer. Whatever goes wrong, the answer is no.
Imports a little of the standard library: at a terminal it is started before every command.
"""

import json
import sys

from deskhand import environment, pipe

TYPE_CHECKING = False  # typing's own would cost as much as all the rest
if TYPE_CHECKING:
    from typing import Any

BLOCKS = 2
"""The exit code of a hook that lets nothing through."""
TIMEOUT = 120
"""Seconds after which Claude Code ends the hook, which lets the call through: long after the hook gives up itself."""
_PATIENCE = 57.0
_LONGEST = 64 << 20
ALWAYS = "Bash|Edit|MultiEdit|Write|NotebookEdit"
"""Tools that are asked for where nobody sits before Claude Code."""
PROMPTED = f"{ALWAYS}|Read|WebFetch|WebSearch|mcp__.*"
"""Tools of which Claude Code itself would ask at the terminal."""
_OWN = "mcp__deskhand"
"""The desk's own servers: what leaves by them waits at the gate anyway."""
_HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "claude-code", "version": "by its hook"},
}


def main(wait: float = 50) -> int:
    """Answer the hook; the person has so many seconds before it is told to ask again."""
    try:
        given = json.load(sys.stdin)
        event = given["hook_event_name"]
        is_left = _is_left_to_claude(event, given["tool_name"])
    except Exception as error:  # noqa: BLE001 - any other end than this lets the call through
        sys.stderr.write(
            f"Nothing was done: this is no call that Claude Code tells its hooks of: {error!r}\n"
        )
        return BLOCKS
    if is_left:
        return 0
    try:
        answer = ask(given, wait)
    except Exception as error:  # noqa: BLE001 - as above
        answer = {"behavior": "deny", "message": _explain(error)}
    sys.stdout.write(json.dumps(describe(event, answer)) + "\n")
    return 0


def _is_left_to_claude(event: str, tool: str) -> bool:
    """At a terminal only what Claude Code would ask there itself is asked on the page."""
    if tool.startswith(_OWN):
        return True
    return (
        event == "PreToolUse"
        and environment.variables().get("CLAUDE_CODE_ENTRYPOINT") == "cli"
    )


def ask(given: "dict[str, Any]", wait: float) -> "dict[str, Any]":
    """The person's answer, or that there is none yet."""
    asked = {
        "tool_name": given["tool_name"],
        "input": given["tool_input"],
        "folder": given["cwd"],
        "session": given["session_id"],
        "wait": wait,
    }
    door = pipe.enter("claude", [])
    door.settimeout(_PATIENCE)
    lines = (
        {"id": 1, "method": "initialize", "params": _HELLO},
        {"method": "notifications/initialized"},
        {
            "id": 2,
            "method": "tools/call",
            "params": {"name": "permission_prompt", "arguments": asked},
        },
    )
    door.sendall(
        "".join(
            json.dumps({"jsonrpc": "2.0"} | line, allow_nan=False) + "\n" for line in lines
        ).encode()
    )
    return _read_answer(door)


def _read_answer(door: "Any") -> "dict[str, Any]":
    read = b""
    while len(read) < _LONGEST:
        *whole, read = read.split(b"\n")
        for line in whole:
            message = json.loads(line)
            if message.get("id") == 2:
                return _answer_in(message)
        more = door.recv(1 << 16)
        if not more:
            break
        read += more
    raise ValueError("the desk ended before the person answered; ask again when it runs")


def _answer_in(message: "dict[str, Any]") -> "dict[str, Any]":
    result = message["result"]
    text = result["content"][0]["text"]
    if result.get("isError"):
        raise ValueError(text)
    answer: dict[str, Any] = json.loads(text)
    if answer["behavior"] == "allow" and not isinstance(answer["updatedInput"], dict):
        raise ValueError("the desk did not say what may be done")
    return answer


def describe(event: str, answer: "dict[str, Any]") -> "dict[str, Any]":
    """The answer in the words of the event."""
    if event == "PermissionRequest":
        return {"hookSpecificOutput": {"hookEventName": event, "decision": answer}}
    told = {"hookEventName": event, "permissionDecision": answer["behavior"]}
    if answer["behavior"] == "allow":
        told |= {
            "permissionDecisionReason": "The person said yes on the desk's page.",
            "updatedInput": answer["updatedInput"],
        }
    else:
        told["permissionDecisionReason"] = answer["message"]
    return {"hookSpecificOutput": told}


def _explain(error: Exception) -> str:
    if isinstance(error, pipe.NotJoined):
        return f"Nothing was done: the desk cannot be asked ({error}). Start it with `deskhand up`."
    return f"Nothing was done: the desk could not be asked: {error}"
