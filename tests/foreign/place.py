"""A desk with a stranger's server behind its gate, served as the running desk does it."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client
from mcp_types import CallToolResult

from deskhand import tokens
from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate.cards import Card
from deskhand.resident.doors import open_doors
from deskhand.servers.foreign import open_door
from deskhand.web.site import site
from tests.home import TOKEN
from tests.transports import http_client
from tests.web.person import served

STRANGER = Path(__file__).with_name("stranger.py")


@dataclass(frozen=True)
class Guarded:
    desk: Desk
    folder: Path
    address: str = ""

    @property
    def home(self) -> Path:
        return self.desk.settings.home

    @property
    def done(self) -> list[str]:
        """What the stranger has really done."""
        file = self.folder / "done"
        return file.read_text().splitlines() if file.exists() else []

    def rules(self, *rules: str, name: str = "stranger", more: str = "") -> None:
        """Write guard.toml: each rule as its lines."""
        command = json.dumps([sys.executable, str(STRANGER), str(self.folder)])
        text = f"[servers.{name}]\ncommand = {command}\n{more}\n"
        text += "".join(f"[[servers.{name}.rules]]\n{rule}\n" for rule in rules)
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "guard.toml").write_text(text)

    def other(self, **definitions: Any) -> None:
        """Let the stranger define these tools otherwise from now on."""
        (self.folder / "other").write_text(json.dumps(definitions))

    def client(self, mode: str = "2026-07-28", name: str = "stranger") -> Client:
        """In this process: the shortest way through the front door."""
        return Client(open_door(self.desk, name), mode=mode)

    async def token(self, name: str, *scopes: str) -> str:
        now = self.desk.now()
        given = scopes or tokens.EVERYTHING
        return await self.desk.store.write(lambda tx: tokens.create(tx, name, now, scopes=given))

    def http(self, token: str = TOKEN, path: str = "/guard/stranger/mcp", era: str = "2026-07-28") -> Any:
        return http_client(f"{self.address}{path}", token, era)

    async def cards(self) -> list[Card]:
        found, _ = await self.desk.waiting.cards()
        return found

    async def approve(self) -> Card:
        """The person says yes to the one thing that waits."""
        (card,) = await self.cards()
        return await self.desk.answers.approve_now(card.id, card.digest, "person")


def refusal(result: CallToolResult) -> Any:
    assert result.is_error, result.content
    return result.meta["deskhand/error"]


def said(result: CallToolResult) -> str:
    assert not result.is_error, result.content
    return result.content[0].text


@asynccontextmanager
async def guarded(tmp_path: Path, *, doors: bool = False, **variables: str) -> AsyncIterator[Guarded]:
    folder = tmp_path / "stranger"
    folder.mkdir()
    (tmp_path / "vault").mkdir(exist_ok=True)
    given = {"DESKHAND_HOME": str(tmp_path / "home"), "VAULT_PATH": str(tmp_path / "vault")}
    desk = Desk(load(given | {"SERVICE_AUTH_TOKEN": TOKEN, "DESKHAND_ADDRESS": "me@example.com"} | variables).settings)
    place = Guarded(desk, folder)
    place.rules()
    try:
        if doors:
            made = open_doors(desk)
            async with made.run(), served(site(desk, beside=made.routes)) as address:
                yield Guarded(desk, folder, address)
        else:
            yield place
    finally:
        await desk.close_foreign()
        await desk.close_mailbox()
        desk.close()


async def until(condition: Any) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(60):
        while not condition():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.02)
