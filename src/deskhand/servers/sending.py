"""How the whole-desk server asks for a mail to leave: to everybody whom it concerns."""

from typing import Annotated

from pydantic import Field

from deskhand.app import Desk
from deskhand.gate.actions import MOST_RECIPIENTS, ReplyEmail, SendEmail
from deskhand.servers.callers import client
from deskhand.servers.calls import ToolResult
from deskhand.servers.email import Answer, Body, describe_reply, describe_send
from deskhand.servers.mail import SENDS, Subject, stays_here
from deskhand.servers.tool import DeskTool, tool

To = Annotated[
    str | list[str], Field(description=f"one address or a list; at most {MOST_RECIPIENTS} recipients in all")
]
Cc = Annotated[list[str] | None, Field(description="addresses that get a copy")]
Bcc = Annotated[list[str] | None, Field(description="addresses that get a copy which the others do not see")]


def sending_tools(desk: Desk) -> list[DeskTool]:
    async def send_email(to: To, subject: Subject, body: Body, cc: Cc = None, bcc: Bcc = None) -> ToolResult[Answer]:
        """Ask to send an email. It leaves only after the person approved exactly this text and these recipients;
        until then the answer says where the request waits."""
        letter = SendEmail(to=to, cc=cc or [], bcc=bcc or [], subject=subject, body=body, as_text=True)
        outcome = await desk.gate.propose(letter, "email_mcp", client=client())
        return ToolResult(describe_send(letter, outcome, await stays_here(desk, outcome)), recorded=True)

    async def reply_email(
        thread_id: Annotated[str, Field(description="from search_email")],
        message_id: Annotated[str, Field(description="the mail that is answered")],
        body: Body,
        all: Annotated[bool, Field(description="to everybody whom that mail names")] = False,  # noqa: A002 - for the model
        cc: Cc = None,
    ) -> ToolResult[Answer]:
        """Ask to reply in a thread. It leaves only after the person approved exactly this text and these recipients."""
        answer = ReplyEmail(thread_id=thread_id, message_id=message_id, body=body, all=all, cc=cc or [], as_text=True)
        outcome = await desk.gate.propose(answer, "email_mcp", client=client())
        return ToolResult(describe_reply(answer, outcome, await stays_here(desk, outcome)), recorded=True)

    return [
        tool(send_email, title="Send an email", annotations=SENDS, recorded_by="gate"),
        tool(reply_email, title="Reply to an email", annotations=SENDS, recorded_by="gate"),
    ]
