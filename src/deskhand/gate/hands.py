"""The hands by which an action leaves, one for each kind: prepare, send, and look what became of it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from deskhand.errors import OutcomeUnknown, Unavailable
from deskhand.gate import enclosures
from deskhand.gate.actions import Mail, compose
from deskhand.gate.leaving import LeaveList
from deskhand.gate.mailchange import MailChange
from deskhand.gate.question import Question
from deskhand.gate.requests import Request
from deskhand.gate.toolcall import ToolCall
from deskhand.mail import Keep, Mailbox, NotSent, Outgoing, Sent, Unclear
from deskhand.mail.changes import Deed
from deskhand.mail.mailboxes import open_owned, split
from deskhand.mail.one_click import OneClick
from deskhand.store import Store

one_click = OneClick()
"""How the desk goes to the address that a list names."""


class MailHand:
    """How a mail leaves: by a token that finds it again, whatever becomes of the answer."""

    steps = 1

    def __init__(self, mailbox: Mailbox, mail: Outgoing) -> None:
        self._mailbox = mailbox
        self._mail = mail

    async def prepare(self) -> str:
        await open_owned(self._mailbox, self._mail.account)
        return await self._mailbox.prepare(self._mail)

    async def send(self, token: str, keep: Keep) -> Sent:
        # The account may be signed in as somebody else since it was prepared.
        await open_owned(self._mailbox, self._mail.account)
        return await self._mailbox.send(token, self._mail, keep)

    async def check(self, token: str) -> Sent | NotSent | Unclear:
        return await self._mailbox.check(token, self._mail)


class ChangeHand:
    """How mails are changed. It may be done twice, so that nobody has to know whether it was done."""

    steps = 1

    def __init__(self, mailbox: Mailbox, action: MailChange) -> None:
        self._mailbox = mailbox
        self._action = action

    async def prepare(self) -> str:
        await open_owned(self._mailbox, self._action.account)
        return self._action.digest

    async def send(self, token: str, keep: Keep) -> Sent:
        await keep(token)
        box = await open_owned(self._mailbox, self._action.account)
        own_ids = [split(mail.id)[1] for mail in self._action.mails]
        await box.change(own_ids, Deed(self._action.do, self._action.label))
        return Sent("", "")

    async def check(self, token: str) -> Sent | NotSent | Unclear:
        return NotSent(token)


class AnswerHand:
    """A yes is all that whoever asked waits for. It may be given twice, so that nobody has
    to know whether it was."""

    steps = 1

    def __init__(self, asked: Question | ToolCall) -> None:
        self._asked = asked

    async def prepare(self) -> str:
        if isinstance(self._asked, Question):
            self._asked.demand_answer("yes")
        return self._asked.digest

    async def send(self, token: str, keep: Keep) -> Sent:
        await keep(token)
        return Sent("", "")

    async def check(self, token: str) -> Sent | NotSent | Unclear:
        return NotSent(token)


class LeaveHand:
    """How a list is left: by one POST, of which nobody can ask afterwards what became of it."""

    steps = 1

    def __init__(self, action: LeaveList) -> None:
        self._action = action
        self._why = "the list did not say that it was done"

    async def prepare(self) -> str:
        await one_click.resolve(self._action.address)
        return self._action.digest

    async def send(self, token: str, keep: Keep) -> Sent:
        await keep(token)
        try:
            await one_click.leave(self._action.address)
        except OutcomeUnknown as error:
            self._why = error.message
            raise
        return Sent("", "")

    async def check(self, token: str) -> Sent | NotSent | Unclear:
        del token
        return Unclear(self._why)


class CallHand:
    """How another server's tool is called. Nobody can ask that server what became of a
    call whose answer was lost."""

    steps = 3

    def __init__(self, servers: "Callable[[], Servers]", call: ToolCall) -> None:
        self._servers = servers
        self._call = call
        self._what = (call.server, call.tool, call.values)

    async def prepare(self) -> str:
        await self._servers().prepare(*self._what, self._call.definition)
        return self._call.digest

    async def send(self, token: str, keep: Keep) -> Sent:
        await keep(token)
        result = await self._servers().perform(*self._what, self._call.asker)
        return Sent("", "", result=result)

    async def check(self, token: str) -> Sent | NotSent | Unclear:
        if self._servers().may_repeat(*self._what):
            return NotSent(token)
        return Unclear(f"the answer of {self._call.server} was lost")


class Servers(Protocol):
    """The other servers that stand behind this gate."""

    async def prepare(
        self, server: str, tool: str, arguments: Mapping[str, Any], definition: str
    ) -> None:
        """Refuse a call that could not be made now, or whose tool is no longer what the person has seen."""

    async def perform(
        self, server: str, tool: str, arguments: Mapping[str, Any], asker: str
    ) -> str:
        """What the server answered. Raises SendFailed where the call certainly did not reach it."""

    def may_repeat(self, server: str, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the person said that calling this tool twice does no harm."""


def no_servers() -> Servers:
    raise Unavailable("no other server stands behind this gate")


Hand = MailHand | ChangeHand | LeaveHand | CallHand | AnswerHand
"""How one action leaves. Its answer may take `steps` quarters of the lease."""


async def hand_for(
    request: Request,
    mailbox: Callable[[], Mailbox],
    store: Store,
    servers: Callable[[], Servers],
) -> Hand:
    match request.action:
        case Mail() as mail:
            date = request.frozen or request.created
            contents = await store.read(enclosures.load, mail.attachments)
            return MailHand(
                mailbox(),
                await asyncio.to_thread(compose, mail, request.send_id, date, contents),
            )
        case MailChange() as change:
            return ChangeHand(mailbox(), change)
        case LeaveList() as leaving:
            return LeaveHand(leaving)
        case ToolCall(at=None) as call:
            return CallHand(servers, call)
        case ToolCall() as own:
            return AnswerHand(own)
        case Question() as question:
            return AnswerHand(question)
