"""A desk with a Gmail of its own, a clock that stands still, and a person who decides by moving files."""

import email
import email.policy
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate.cards import Card
from deskhand.mail import Mailbox, Outgoing
from deskhand.servers.email import email_server
from deskhand.servers.gmail import gmail_server
from tests.home import TOKEN, Home
from tests.mail.gmail_double import GmailDouble
from tests.transports import http_client, http_server
from tests.warm import warm_python

HELLO = {
    "to": "ann@example.org",
    "subject": "Meeting notes",
    "body": "Dear Ann,\n\nsee you at ten.\n",
}
ERAS = ("legacy", "2026-07-28")
Event = Callable[[], Awaitable[object]]


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def pass_by(self, **span: float) -> None:
        self.time += timedelta(**span)


@dataclass
class Site:
    home: Home
    gmail: GmailDouble
    clock: Clock = field(default_factory=Clock)

    def desk(self, **variables: str) -> Desk:
        return Desk(load(self.home.environment | variables).settings, self.clock)

    def with_variables(self, **variables: str) -> "Site":
        return replace(self, home=Home(self.home.vault, self.home.environment | variables))

    @asynccontextmanager
    async def client(self, name: str, **variables: str) -> AsyncIterator[Client]:
        """A client to a server in this process: the shortest way through the front door."""
        desk = self.desk(**variables)
        make = {"email": email_server, "gmail": gmail_server}[name]
        try:
            async with Client(make(desk), mode="2026-07-28") as client:
                yield client
        finally:
            await desk.close_mailbox()
            desk.close()

    @asynccontextmanager
    async def client_over(self, way: str, era: str, name: str) -> AsyncIterator[Client]:
        """A client to a server process."""
        match way:
            case "stdio":
                arguments = ["-m", "deskhand", "mcp", name]
                server = StdioServerParameters(
                    command=warm_python(), args=arguments, env=self.home.environment
                )
                async with Client(server, mode=era) as client:
                    yield client
            case "http":
                with http_server(self.home, name) as address:
                    async with http_client(address, TOKEN, era) as client:
                        yield client

    # The person.

    def files(self, folder: str) -> list[Path]:
        return sorted((self.home.vault / folder).glob("*.md"))

    def pending(self) -> Path:
        (file,) = self.files("Pending_Approval")
        return file

    def approve(self, file: Path | None = None) -> Path:
        return self._move(file or self.pending(), "Approved")

    def reject(self, file: Path | None = None) -> Path:
        return self._move(file or self.pending(), "Rejected")

    def write(
        self, name: str = "yes.md", *, folder: str = "Approved", **properties: str
    ) -> Path:
        """A hand-written approval."""
        given = {"type": "email_send", "status": "approved", "to": HELLO["to"]} | properties
        lines = [f"{key}: {json.dumps(value)}" for key, value in given.items()]
        file = self.home.vault / folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join(["---", *lines, "---", "Fine with me.", ""]))
        return file

    def _move(self, file: Path, folder: str) -> Path:
        target = self.home.vault / folder
        target.mkdir(exist_ok=True)
        return file.rename(target / file.name)

    # What became of it.

    @property
    def sent(self) -> list[EmailMessage]:
        return [read(raw) for raw in self.gmail.delivered]

    def log(self) -> list[dict[str, Any]]:
        """Seed 001's log in the vault."""
        files = sorted((self.home.vault / "Logs" / "actions").glob("*.json"))
        return [
            json.loads(line) for file in files for line in file.read_text().splitlines()
        ]


class Interrupted:
    """A real mailbox; when it has prepared a mail, something else happens first."""

    def __init__(self, inner: Mailbox, event: Event) -> None:
        self._inner = inner
        self._event = event

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def prepare(self, mail: Outgoing) -> str:
        token = await self._inner.prepare(mail)
        await self._event()
        return token


def read(raw: bytes) -> EmailMessage:
    message = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    return message


async def said(client: Client, name: str, /, **arguments: Any) -> str:
    """What a tool of the Email server answers; refusals are errors to the client, and only they."""
    result = await client.call_tool(name, arguments)
    (content,) = result.content
    assert result.is_error == content.text.startswith(("Rejected:", "Error")), content.text
    return str(content.text)


async def only_card(desk: Desk) -> Card:
    ((card,), _) = await desk.waiting.cards()
    return card
