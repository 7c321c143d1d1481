"""How the whole-desk server asks for a mail to leave: to everybody whom it concerns, with files, or passed on."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Annotated

from anyio import to_thread
from pydantic import Field

from deskhand.app import Desk
from deskhand.gate.actions import MOST_RECIPIENTS, ReplyEmail, SendEmail
from deskhand.gate.enclosures import LARGEST, MOST, Enclosure, demand_bounded, enclose
from deskhand.mail.forwarding import enclose_original, forward_subject, quote_original
from deskhand.mail.mime import read_attachments
from deskhand.servers.callers import client
from deskhand.servers.calls import ToolResult
from deskhand.servers.email import Answer, Body, describe_reply, describe_send
from deskhand.servers.mail import SENDS, Subject, stays_here
from deskhand.servers.tool import DeskTool, tool
from deskhand.tasks.due import read_wait

To = Annotated[
    str | list[str],
    Field(description=f"one address or a list; at most {MOST_RECIPIENTS} in all"),
]
Cc = Annotated[Sequence[str], Field(description="who gets a copy")]
Bcc = Annotated[Sequence[str], Field(description="copies that the others do not see")]
Files = Annotated[Sequence[str], Field(max_length=MOST, description="vault paths of files")]
FollowUp = Annotated[
    str,
    Field(max_length=60, description="tell the person if unanswered by: fri, 3d, ISO 8601"),
]
MessageId = Annotated[str, Field(min_length=1, description="from search_email")]


ViewNotes = Callable[[], AbstractContextManager[None]]
"""Refuses a caller who may not read notes, and lets another attach files of the vaults it sees."""


def sending_tools(desk: Desk, view_notes: ViewNotes) -> list[DeskTool]:
    return [
        _tool_to_send(desk, view_notes),
        _tool_to_reply(desk, view_notes),
        _tool_to_forward(desk),
    ]


def _tool_to_send(desk: Desk, view_notes: ViewNotes) -> DeskTool:
    async def send_email(
        to: To,
        subject: Subject,
        body: Body,
        cc: Cc = (),
        bcc: Bcc = (),
        attachments: Files = (),
        send_at: Annotated[
            str | None, Field(description="leave then: ISO 8601 with an offset")
        ] = None,
        *,
        follow_up: FollowUp = "",
        html: Annotated[
            bool, Field(description="the body is Markdown; send it as HTML too")
        ] = False,
    ) -> ToolResult[Answer]:
        """Ask to send an email. It leaves only after the person approved exactly this."""
        letter = SendEmail(
            to=to,
            cc=cc,
            bcc=bcc,
            subject=subject,
            body=body,
            as_text=True,
            attachments=await _attach(desk, view_notes, attachments),
            send_at=send_at,
            html=html,
            follow_up=_read_follow_up(desk, follow_up),
        )
        outcome = await desk.gate.propose(letter, "email_mcp", client=client())
        return ToolResult(
            describe_send(letter, outcome, await stays_here(desk, outcome)), recorded=True
        )

    return tool(send_email, title="Send an email", annotations=SENDS, recorded_by="gate")


def _tool_to_reply(desk: Desk, view_notes: ViewNotes) -> DeskTool:
    async def reply_email(
        thread_id: Annotated[str, Field(description="from search_email")],
        message_id: Annotated[str, Field(description="the one answered")],
        body: Body,
        all: Annotated[bool, Field(description="to everybody in that mail")] = False,  # noqa: A002 - for the model
        cc: Cc = (),
        attachments: Files = (),
        follow_up: FollowUp = "",
    ) -> ToolResult[Answer]:
        """Ask to reply in a thread. It leaves only after the person approved exactly this."""
        answer = ReplyEmail(
            thread_id=thread_id,
            message_id=message_id,
            body=body,
            all=all,
            cc=cc,
            as_text=True,
            attachments=await _attach(desk, view_notes, attachments),
            follow_up=_read_follow_up(desk, follow_up),
        )
        outcome = await desk.gate.propose(answer, "email_mcp", client=client())
        return ToolResult(
            describe_reply(answer, outcome, await stays_here(desk, outcome)), recorded=True
        )

    return tool(
        reply_email, title="Reply to an email", annotations=SENDS, recorded_by="gate"
    )


def _tool_to_forward(desk: Desk) -> DeskTool:
    async def forward_email(
        message_id: MessageId,
        to: To,
        body: Annotated[str, Field(description="your words above it")],
        cc: Cc = (),
        as_attachment: Annotated[bool, Field(description="as an attached mail")] = False,
        follow_up: FollowUp = "",
    ) -> ToolResult[Answer]:
        """Ask to pass a mail on with its attachments. It leaves only after the person approved exactly this."""
        original = await desk.mailbox.get(message_id)
        raw = await desk.mailbox.read_raw(message_id)
        text = body
        if as_attachment:
            files = [
                await to_thread.run_sync(enclose_original, raw, original.summary.subject)
            ]
        else:
            files = await to_thread.run_sync(read_attachments, raw)
            text = f"{body.rstrip()}\n\n{quote_original(original)}".lstrip()
        letter = SendEmail(
            kind="forward_email",
            reply_to_message_id=message_id,
            to=to,
            cc=cc,
            subject=forward_subject(original.summary.subject),
            body=text,
            as_text=True,
            attachments=await _keep(
                desk, [(file.name, file.content, "", file.content_type) for file in files]
            ),
            follow_up=_read_follow_up(desk, follow_up),
        )
        outcome = await desk.gate.propose(letter, "email_mcp", client=client())
        return ToolResult(
            describe_send(letter, outcome, await stays_here(desk, outcome)), recorded=True
        )

    return tool(
        forward_email, title="Forward an email", annotations=SENDS, recorded_by="gate"
    )


def _read_follow_up(desk: Desk, words: str) -> datetime | timedelta | None:
    if not words:
        return None
    return read_wait(words, desk.now(), desk.settings.timezone, "follow_up")


async def _attach(
    desk: Desk, view_notes: ViewNotes, paths: Sequence[str]
) -> tuple[Enclosure, ...]:
    if not paths:
        return ()
    with view_notes():
        found = [
            await to_thread.run_sync(desk.vaults.attach, path, LARGEST) for path in paths
        ]
    return await _keep(
        desk, [(path.rpartition("/")[2], content, path, None) for path, content in found]
    )


async def _keep(
    desk: Desk, files: Sequence[tuple[str, bytes, str, str | None]]
) -> tuple[Enclosure, ...]:
    demand_bounded([len(content) for _, content, _, _ in files])
    await desk.gate.keep_attachments([content for _, content, _, _ in files])
    return tuple([await to_thread.run_sync(enclose, *each) for each in files])
