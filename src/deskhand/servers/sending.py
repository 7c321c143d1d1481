"""How the whole-desk server asks for a mail to leave: to everybody whom it concerns, with files, or passed on."""

from collections.abc import Callable, Sequence
from typing import Annotated

from anyio import to_thread
from pydantic import Field

from deskhand.app import Desk
from deskhand.gate.actions import MOST_RECIPIENTS, ReplyEmail, SendEmail
from deskhand.gate.enclosures import LARGEST, MOST, Enclosure, demand_bounded, enclose
from deskhand.mail.forwarding import enclose_original, forward_subject, quote_original
from deskhand.mail.mime import read_attachments
from deskhand.notes.attached import read_file
from deskhand.servers.callers import client
from deskhand.servers.calls import ToolResult
from deskhand.servers.email import Answer, Body, describe_reply, describe_send
from deskhand.servers.mail import SENDS, Subject, stays_here
from deskhand.servers.tool import DeskTool, tool

To = Annotated[str | list[str], Field(description=f"one address or a list; at most {MOST_RECIPIENTS} in all")]
Cc = Annotated[list[str] | None, Field(description="addresses that get a copy")]
Bcc = Annotated[list[str] | None, Field(description="addresses that get a hidden copy")]
Files = Annotated[list[str] | None, Field(max_length=MOST, description="vault paths of files")]
MessageId = Annotated[str, Field(min_length=1, description="from search_email")]


def sending_tools(desk: Desk, demand_notes: Callable[[], None]) -> list[DeskTool]:
    """`demand_notes` refuses a caller who may not read the vault, and so attaches nothing of it."""

    async def attach(paths: Sequence[str] | None) -> tuple[Enclosure, ...]:
        if not paths:
            return ()
        demand_notes()
        vault = desk.settings.vault
        inside = desk.settings.inside
        found = [await to_thread.run_sync(read_file, vault, path, LARGEST, inside) for path in paths]
        return await keep([(path.rpartition("/")[2], content, path, None) for path, content in found])

    async def keep(files: Sequence[tuple[str, bytes, str, str | None]]) -> tuple[Enclosure, ...]:
        demand_bounded([len(content) for _, content, _, _ in files])
        await desk.gate.keep([content for _, content, _, _ in files])
        return tuple([await to_thread.run_sync(enclose, *each) for each in files])

    async def send_email(
        to: To,
        subject: Subject,
        body: Body,
        cc: Cc = None,
        bcc: Bcc = None,
        attachments: Files = None,
        send_at: Annotated[str | None, Field(description="not before then: ISO 8601 with an offset")] = None,
    ) -> ToolResult[Answer]:
        """Ask to send an email. It leaves only after the person approved exactly this text and these recipients;
        until then the answer says where the request waits."""
        letter = SendEmail(
            to=to,
            cc=cc or [],
            bcc=bcc or [],
            subject=subject,
            body=body,
            as_text=True,
            attachments=await attach(attachments),
            send_at=send_at,
        )
        outcome = await desk.gate.propose(letter, "email_mcp", client=client())
        return ToolResult(describe_send(letter, outcome, await stays_here(desk, outcome)), recorded=True)

    async def reply_email(
        thread_id: Annotated[str, Field(description="from search_email")],
        message_id: Annotated[str, Field(description="the mail that is answered")],
        body: Body,
        all: Annotated[bool, Field(description="to everybody whom that mail names")] = False,  # noqa: A002 - for the model
        cc: Cc = None,
        attachments: Files = None,
    ) -> ToolResult[Answer]:
        """Ask to reply in a thread. It leaves only after the person approved exactly this text and these recipients."""
        answer = ReplyEmail(
            thread_id=thread_id,
            message_id=message_id,
            body=body,
            all=all,
            cc=cc or [],
            as_text=True,
            attachments=await attach(attachments),
        )
        outcome = await desk.gate.propose(answer, "email_mcp", client=client())
        return ToolResult(describe_reply(answer, outcome, await stays_here(desk, outcome)), recorded=True)

    async def forward_email(
        message_id: MessageId,
        to: To,
        body: Annotated[str, Field(description="your words above it")],
        cc: Cc = None,
        as_attachment: Annotated[bool, Field(description="as one attached mail, not as text")] = False,
    ) -> ToolResult[Answer]:
        """Ask to pass a mail on with its attachments. It leaves only after the person approved exactly this."""
        original = await desk.mailbox.get(message_id)
        raw = await desk.mailbox.read_raw(message_id)
        text = body
        if as_attachment:
            files = [await to_thread.run_sync(enclose_original, raw, original.summary.subject)]
        else:
            files = await to_thread.run_sync(read_attachments, raw)
            text = f"{body.rstrip()}\n\n{quote_original(original)}".lstrip()
        letter = SendEmail(
            kind="forward_email",
            reply_to_message_id=message_id,
            to=to,
            cc=cc or [],
            subject=forward_subject(original.summary.subject),
            body=text,
            as_text=True,
            attachments=await keep([(file.name, file.content, "", file.content_type) for file in files]),
        )
        outcome = await desk.gate.propose(letter, "email_mcp", client=client())
        return ToolResult(describe_send(letter, outcome, await stays_here(desk, outcome)), recorded=True)

    return [
        tool(send_email, title="Send an email", annotations=SENDS, recorded_by="gate"),
        tool(reply_email, title="Reply to an email", annotations=SENDS, recorded_by="gate"),
        tool(forward_email, title="Forward an email", annotations=SENDS, recorded_by="gate"),
    ]
