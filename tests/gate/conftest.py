"""A desk of the site, and an assistant at its whole-desk server."""

from collections.abc import AsyncIterator

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.servers.desk import desk_server
from tests.gate.site import Site


@pytest.fixture
async def desk(site: Site) -> AsyncIterator[Desk]:
    made = site.desk()
    yield made
    await made.close_mailbox()
    made.close()


@pytest.fixture
async def client(desk: Desk) -> AsyncIterator[Client]:
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        yield client
