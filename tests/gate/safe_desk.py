"""A desk that asks for a password with each answer, and an assistant at its Email server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate import passwords
from deskhand.gate.claims import Typed
from deskhand.orchestrator.loop import Orchestrator
from deskhand.servers.email import email_server
from tests.gate.site import HELLO, Clock, said
from tests.home import Home

PASSWORD = "a password for tests"
RIGHT = Typed(PASSWORD, "here")


@dataclass(frozen=True)
class SafeDesk:
    home: Home
    desk: Desk
    client: Client
    clock: Clock

    async def send(self, **mail: str) -> str:
        return await said(self.client, "send_email", **HELLO | mail)

    async def settle(self) -> int:
        """Let the hold end and everything leave that may; how many mails left so far."""
        self.clock.pass_by(seconds=20)
        orchestrator = Orchestrator(self.desk)
        try:
            await orchestrator.once()
        finally:
            await orchestrator.close()
        return len(await self.desk.mailbox.search("in:sent", 200))


Kind = TypeVar("Kind", bound=SafeDesk)


@asynccontextmanager
async def open_safe(kind: type[Kind], home: Home, **variables: str) -> AsyncIterator[Kind]:
    clock = Clock()
    wanted = {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_PROOF": "passkey"}
    desk = Desk(load(home.environment | wanted | variables).settings, clock)
    try:
        await desk.store.write(passwords.keep, passwords.hash_password(PASSWORD))
        async with Client(email_server(desk), mode="2026-07-28") as client:
            yield kind(home, desk, client, clock)
    finally:
        await desk.close_mailbox()
        desk.close()
