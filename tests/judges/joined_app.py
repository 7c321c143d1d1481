"""The conformance judge's server behind the desk's socket, where `deskhand mcp conformance` joins it."""

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

from deskhand import servers
from deskhand.app import Desk
from deskhand.config import load
from deskhand.resident.joining import JoiningDoor
from deskhand.servers.server import DeskServer
from tests.judges.conformance_app import conformance_server


@dataclass(frozen=True, slots=True)
class JudgedKind(servers.ServerKind):
    def make(self, desk: Desk, token: str | None = None, **options: Any) -> DeskServer:
        del desk, token, options
        return conformance_server()


async def serve() -> None:
    servers.SERVERS["conformance"] = JudgedKind(
        "conformance", "/conformance/mcp", "what the judge calls by name"
    )
    settings = load().settings
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    desk = Desk(settings)
    door = JoiningDoor(desk, settings)
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    await door.listen(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(serve())
