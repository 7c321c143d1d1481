"""Leaving a mailing list, on the whole-desk server: a request that waits like any other mail."""

from typing import Annotated

from pydantic import Field

from deskhand.app import Desk
from deskhand.errors import NotFound, printable
from deskhand.gate.actions import SendEmail
from deskhand.gate.completing import own_address
from deskhand.gate.leaving import LeaveList
from deskhand.mail import FullMessage
from deskhand.mail.lists import WayOut, find_way_out
from deskhand.servers.callers import client
from deskhand.servers.calls import ToolResult
from deskhand.servers.email import Answer, describe_leave, describe_send
from deskhand.servers.mail import SENDS, one_line, stays_here, view_account_of
from deskhand.servers.tool import DeskTool, tool

LONGEST_SENDER = 300


def unsubscribing_tools(desk: Desk) -> list[DeskTool]:
    async def leave(mail: FullMessage, way: WayOut) -> ToolResult[Answer]:
        with view_account_of(mail.summary):
            account = await own_address(desk.mailbox, mail)
            sender = one_line(mail.summary.sender)[:LONGEST_SENDER]
            asked = LeaveList(
                account=account,
                sender=sender,
                address=way.one_click or "",
                signed_by=way.signed_by,
            )
            outcome = await desk.gate.propose(asked, "email_mcp", client=client())
        return ToolResult(describe_leave(asked.subject, outcome), recorded=True)

    async def unsubscribe(
        message_id: Annotated[str, Field(min_length=1, description="a mail of the list")],
    ) -> ToolResult[Answer]:
        """Ask to leave a mailing list, as the list itself says: by one click, or by a mail to its address.
        It happens only after the person approved it."""
        mail = await desk.mailbox.get(message_id)
        way = find_way_out(await desk.mailbox.read_raw(message_id))
        if way.one_click:
            return await leave(mail, way)
        letter = SendEmail(
            to=_demand_address(way),
            subject=way.subject,
            body=way.body,
            sender=await own_address(desk.mailbox, mail),
            as_text=True,
        )
        list_mail = f"{one_line(mail.summary.subject)[:200]} from {one_line(mail.summary.sender)[:LONGEST_SENDER]}"
        with view_account_of(mail.summary):
            outcome = await desk.gate.propose(
                letter,
                "email_mcp",
                client=client(),
                note=f"To leave the list of the mail {list_mail}.",
            )
        return ToolResult(
            describe_send(letter, outcome, await stays_here(desk, outcome)), recorded=True
        )

    return [
        tool(
            unsubscribe, title="Leave a mailing list", annotations=SENDS, recorded_by="gate"
        )
    ]


def _demand_address(way: WayOut) -> str:
    if way.address is not None:
        return way.address
    hint = "the mail does not say how"
    if way.page:
        hint = f"the person can open {printable(way.page, 500)}"
    raise NotFound("the list names no address to write to", hint=hint)
