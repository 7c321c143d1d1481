"""A desk with a stranger's server behind its gate, served as the running desk does it."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
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
from deskhand.servers.wire import Wire
from deskhand.web.site import site
from tests.home import TOKEN
from tests.transports import http_client
from tests.web.person import served

STRANGER = Path(__file__).with_name("stranger.py")
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "judge", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


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

    def be_modern(self) -> None:
        """Let the stranger be of the second era."""
        (self.folder / "modern").touch()

    @asynccontextmanager
    async def line(self, era: str, name: str = "stranger") -> "AsyncIterator[LineClient]":
        """As `deskhand mcp NAME` comes in by the desk's socket, every line as it is."""
        ours, theirs = socket.socketpair()
        _, wire = await asyncio.get_running_loop().create_connection(Wire, sock=theirs)
        serving = asyncio.create_task(open_door(self.desk, name).run_wire(wire))
        client = LineClient(*await asyncio.open_connection(sock=ours, limit=2 << 20), era)
        try:
            await client.greet()
            yield client
        finally:
            await client.close()
            async with asyncio.timeout(30):
                await serving
                await wire.close()

    @asynccontextmanager
    async def direct(self, era: str) -> "AsyncIterator[LineClient]":
        """The stranger itself, without the desk."""
        command = [sys.executable, str(STRANGER), str(self.folder)]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        client = LineClient(process.stdout, process.stdin, era)
        try:
            await client.greet()
            yield client
        finally:
            await client.close()
            await process.wait()

    async def token(self, name: str, *scopes: str) -> str:
        now = self.desk.now()
        given = scopes or tokens.EVERYTHING
        return await self.desk.store.write(
            lambda tx: tokens.create(tx, name, now, scopes=given)
        )

    def http(
        self, token: str = TOKEN, path: str = "/guard/stranger/mcp", era: str = "2026-07-28"
    ) -> Any:
        return http_client(f"{self.address}{path}", token, era)

    async def cards(self) -> list[Card]:
        found, _ = await self.desk.waiting.cards()
        return found

    async def approve(self) -> Card:
        """The person says yes to the one thing that waits."""
        (card,) = await self.cards()
        return await self.desk.answers.approve_now(card.id, card.digest, "person")


class LineClient:
    """A client that sees each message as it came."""

    def __init__(self, reading: Any, writing: Any, era: str) -> None:
        self._reading = reading
        self._writing = writing
        self._is_modern = era != "legacy"
        self._numbers = count(1)
        self.unclaimed: dict[Any, dict[str, Any]] = {}
        self.abilities: dict[str, Any] = {}
        self.heard: list[dict[str, Any]] = []
        """What came unasked."""

    async def greet(self) -> None:
        if self._is_modern:
            return
        about = {"name": "judge", "version": "1"}
        given = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
        self.abilities = (await self.ask("initialize", **given))["result"]["capabilities"]
        self.send({"method": "notifications/initialized"})

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer, without its number."""
        return await self.answer_to(self.begin(method, **params))

    def begin(self, method: str, **params: Any) -> int:
        number = next(self._numbers)
        if self._is_modern:
            params["_meta"] = ENVELOPE | params.get("_meta", {})
        self.send({"id": number, "method": method, "params": params})
        return number

    async def answer_to(self, number: int) -> dict[str, Any]:
        while number not in self.unclaimed:
            message = await self.read()
            if "method" in message:
                self.heard.append(message)
            else:
                self.unclaimed[message["id"]] = {
                    key: message[key] for key in message if key in ("result", "error")
                }
        return self.unclaimed.pop(number)

    async def hear(self, method: str) -> dict[str, Any]:
        """The first notification of this kind, come or to come."""
        while not (found := [each for each in self.heard if each.get("method") == method]):
            self.heard.append(await self.read())
        self.heard.remove(found[0])
        return found[0].get("params", {})

    async def read(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            return json.loads(await self._reading.readline())

    def send(self, message: dict[str, Any]) -> None:
        self._writing.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")

    async def close(self) -> None:
        self._writing.close()
        with suppress(ConnectionError):
            await self._writing.wait_closed()


def without_era(answer: dict[str, Any]) -> dict[str, Any]:
    """Without what the second era adds to every result."""
    if "result" not in answer:
        return answer
    result = {
        key: each
        for key, each in answer["result"].items()
        if key not in ("resultType", "ttlMs", "cacheScope")
    }
    meta = {
        key: each
        for key, each in result.pop("_meta", {}).items()
        if not key.startswith("io.model")
    }
    return {"result": result | ({"_meta": meta} if meta else {})}


def without_own(answer: dict[str, Any]) -> dict[str, Any]:
    """A list of tools without what the desk puts beside those of a server."""
    if "tools" not in answer.get("result", {}):
        return answer
    tools = [each for each in answer["result"]["tools"] if each["name"] != "ask_person"]
    return {"result": answer["result"] | {"tools": tools}}


def refusal(result: CallToolResult) -> Any:
    assert result.is_error, result.content
    return result.meta["deskhand/error"]


def said(result: CallToolResult) -> str:
    assert not result.is_error, result.content
    return result.content[0].text


@asynccontextmanager
async def guarded(
    tmp_path: Path, *, doors: bool = False, **variables: str
) -> AsyncIterator[Guarded]:
    folder = tmp_path / "stranger"
    folder.mkdir()
    (tmp_path / "vault").mkdir(exist_ok=True)
    given = {"DESKHAND_HOME": str(tmp_path / "home"), "VAULT_PATH": str(tmp_path / "vault")}
    desk = Desk(
        load(
            given
            | {"SERVICE_AUTH_TOKEN": TOKEN, "DESKHAND_ADDRESS": "me@example.com"}
            | variables
        ).settings
    )
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
