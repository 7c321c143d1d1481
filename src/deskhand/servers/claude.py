"""Claude Code asks here before it uses a tool of its own: by its permission-prompt tool, and by its hook (`hook`).

The desk does nothing but ask: a yes goes back to whoever asked, for this very call, once.
"""

import asyncio
import json
import os
import stat
import time
from pathlib import Path
from typing import Annotated, Any

from mcp_types import CallToolResult, TextContent
from pydantic import Field

from deskhand import environment, running
from deskhand.app import Desk
from deskhand.errors import DeskError, NotFound, Unavailable, printable
from deskhand.foreign.arguments import canonical
from deskhand.gate import Failed, Limited, NotApproved, Outcome, Released, SendingOff
from deskhand.gate.outcomes import say_off
from deskhand.gate.requests import Request
from deskhand.gate.toolcall import ToolCall, Workplace
from deskhand.servers import callers
from deskhand.servers.calls import ToolResult, recorder
from deskhand.servers.mail import DRAFTS
from deskhand.servers.server import DeskServer
from deskhand.servers.tool import DeskTool, tool

ACTOR = "claude_mcp"
PROGRAM = "claude-code"
PATIENCE = 50
"""Seconds in which a person may answer while the client waits; most give up after sixty."""
LOOK = 0.25
LONGEST_BEFORE = 200_000
_TITLES = {
    "Bash": "Run {command}",
    "Edit": "Edit {file_path}",
    "MultiEdit": "Edit {file_path}",
    "NotebookEdit": "Edit {notebook_path}",
    "Read": "Read {file_path}",
    "WebFetch": "Fetch {url}",
    "WebSearch": "Search the web for {query}",
    "Write": "Write {file_path}",
}
_UNDER_WAY = ("waiting", "held", "approved", "sending")


def claude_server(desk: Desk, token: str | None = None) -> DeskServer:
    return DeskServer(
        "claude",
        prompt_tools(desk),
        record=recorder(desk, ACTOR),
        area="guard",
        token=token,
        settle=desk.settle_record,
        authenticate=desk.authenticate,
    )


def prompt_tools(desk: Desk) -> list[DeskTool]:
    async def permission_prompt(
        tool_name: Annotated[str, Field(min_length=1, max_length=200)],
        input: dict[str, Any],  # noqa: A002 - as Claude Code calls it
        tool_use_id: Annotated[str, Field(max_length=200)] = "",
        folder: Annotated[
            str | None, Field(max_length=4096, description="where it would be done")
        ] = None,
        session: Annotated[str | None, Field(max_length=200)] = None,
        wait: Annotated[
            float, Field(ge=0, le=PATIENCE, description="seconds for the person to answer")
        ] = PATIENCE,
    ) -> ToolResult[CallToolResult]:
        """Ask the person whether a tool of the program itself may be used. For `claude --permission-prompt-tool`:
        a program calls this, never a model."""
        del tool_use_id  # another one each time that the same is asked
        known = environment.variables()
        where = Workplace(
            folder=folder or desk.folder or os.getcwd(),  # noqa: PTH109 - of this process, as a text
            session=session or desk.session or known.get("CLAUDE_CODE_SESSION_ID", ""),
        )
        try:
            demand_running(desk)
            before = ""
            # A guarded desk reads no files of the person's, nor shows them its own.
            if not desk.settings.is_guarded:
                before = await asyncio.to_thread(read_before, input)
            call = ToolCall(
                server=PROGRAM,
                tool=tool_name,
                arguments=canonical(input),
                definition="",
                asker=callers.asker(),
                template=_TITLES.get(tool_name, ""),
                at=where,
                before=before,
            )
            answer = await ask_and_wait(desk, call, time.monotonic() + wait)
        except DeskError as error:
            return ToolResult(deny(" ".join(filter(None, (error.message, error.hint)))))
        return ToolResult(answer, recorded=True)

    return [
        tool(
            permission_prompt,
            title="May it be used?",
            annotations=DRAFTS,
            recorded_by="gate",
        )
    ]


def demand_running(desk: Desk) -> None:
    if running.find(desk.settings.home) is None:
        raise Unavailable(
            "The desk is not running, so nobody can be asked.",
            hint="Start it with `deskhand up`.",
        )


def read_before(values: dict[str, Any]) -> str:
    """What stands in the file that would be written, as far as this desk may read it."""
    place = values.get("file_path")
    if (
        not isinstance(place, str)
        or "content" not in values
        or not Path(place).is_absolute()
    ):
        return ""
    try:
        opened = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
        try:
            found = os.fstat(opened)
            if not stat.S_ISREG(found.st_mode) or found.st_size > LONGEST_BEFORE:
                return ""
            return os.read(opened, LONGEST_BEFORE).decode()
        finally:
            os.close(opened)
    except (OSError, ValueError):
        return ""


async def ask_and_wait(desk: Desk, call: ToolCall, until: float) -> CallToolResult:
    """Put it before the person, and wait for their answer as long as the client does."""
    while True:
        outcome = await desk.gate.propose(call, ACTOR, client=callers.client())
        if not isinstance(outcome, NotApproved) or outcome.why == "rejected":
            return _answer_of(outcome)
        found = await _wait_for_answer(desk, call, until)
        if found.state in _UNDER_WAY:
            return deny(_describe_wait(desk, found))


async def _wait_for_answer(desk: Desk, call: ToolCall, until: float) -> Request:
    asked = await desk.gate.find_asked(call)
    if asked is None:
        raise NotFound("Nobody was asked for it.")
    while asked.state in _UNDER_WAY and time.monotonic() < until:
        await asyncio.sleep(LOOK)
        asked = await desk.gate.find(asked.id)
    return asked


def _describe_wait(desk: Desk, request: Request) -> str:
    place = desk.card_address(request.id) or f"`deskhand show {request.id}`"
    so_far = (
        "the person has not answered yet, and it is"
        if request.state == "waiting"
        else "the yes rests, and is"
    )
    return (
        f"Nothing was done: {so_far} waiting at {place}. Ask again later with exactly the same input;"
        " in other words it would be another question."
    )


def _answer_of(outcome: Outcome) -> CallToolResult:
    match outcome:
        case Released(action=ToolCall() as done):
            return _say(behavior="allow", updatedInput=done.values)
        case NotApproved(note=note):
            return deny(note)
        case SendingOff(off):
            return deny(f"{say_off(off, 'logged, nobody is asked')}.")
        case Failed(error):
            return deny(error.message)
        case (
            Released() | Limited()
        ):  # pragma: no cover - what is asked here is a call, and none is counted
            return deny("It was not asked.")


def deny(why: str) -> CallToolResult:
    return _say(behavior="deny", message=printable(why, 2000))


def _say(**answer: Any) -> CallToolResult:
    """In Claude Code's own words: one text and nothing beside it, or it takes it for no answer."""
    return CallToolResult(content=[TextContent(text=json.dumps(answer))])
