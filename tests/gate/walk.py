"""Which modules a mail passes from the tool's function to the audit line, as a trace shows them: one name a line.

At each point where the mail gets on, whoever called is noted, up to the door: a row changes, a card is made, the mail
leaves, a line goes on the record. Work that another thread does was called by whoever handed it over.
"""

import asyncio
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from mcp import Client

import deskhand
from deskhand import audit
from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate import cards, ledger
from deskhand.mail.local import LocalMailbox
from deskhand.servers.email import email_server
from deskhand.store.sqlite import SqliteStore
from deskhand.web.site import site
from tests.gate.site import HELLO, Clock
from tests.web.person import served, signed_in

SOURCE = f"{Path(deskhand.__file__).parent}/"
POINTS = {
    each.__code__
    for each in (
        ledger.insert,
        ledger.change,
        ledger.mark_sent,
        audit.append,
        cards.card_of,
        LocalMailbox.send,
    )
}
HANDED_OVER = {
    SqliteStore.write.__code__: "work",
    SqliteStore.write_in_thread.__code__: "work",
    asyncio.to_thread.__code__: "func",
}
"""Where one thread gives work to another, and what it calls the function."""
EVERYBODY_PASSES = (
    *("servers/sdk.py", "servers/server.py"),
    *("web/site.py", "web/address.py", "web/entry.py"),
    *("store/__init__.py", "store/sqlite.py", "store/threads.py"),
)

passed: dict[str, None] = {}
handed: dict[CodeType | None, list[str]] = {}


def name_callers(frame: FrameType | None) -> list[str]:
    """The modules from the door down to this frame."""
    found: list[str] = []
    first = None
    while frame is not None:
        code = frame.f_code
        name = code.co_filename.removeprefix(SOURCE)
        if name != code.co_filename and name not in EVERYBODY_PASSES:
            found.insert(0, name)
            first = code
        frame = frame.f_back
    return handed.get(first, []) + found


def note(frame: FrameType, event: str, _: Any) -> None:
    if event != "call":
        return
    if frame.f_code in POINTS:
        passed.update(dict.fromkeys(name_callers(frame)))
    elif name := HANDED_OVER.get(frame.f_code):
        work = frame.f_locals[name]
        code = getattr(getattr(work, "__func__", work), "__code__", None)
        if code is not None and frame.f_back is not None:
            handed[code] = name_callers(frame.f_back)


async def send_a_mail(folder: Path) -> None:
    (folder / "vault").mkdir()
    variables = {
        "DESKHAND_HOME": str(folder / "home"),
        "VAULT_PATH": str(folder / "vault"),
        "DESKHAND_MAIL": "local",
        "DESKHAND_ADDRESS": "me@example.com",
    }
    clock = Clock()
    desk = Desk(load(variables).settings, clock)
    async with (
        served(site(desk)) as address,
        signed_in(desk, address) as person,
        Client(email_server(desk), mode="2026-07-28") as client,
    ):
        await desk.settle_record()
        passed.clear()  # until now somebody signed in
        await client.call_tool("send_email", HELLO)
        (name,) = await desk.waiting.ids()
        page = f"/approvals/{name}"
        digest = (await desk.gate.find(name)).digest
        await person.sends(f"{page}/approve", {"digest": digest}, at=page)
        clock.pass_by(minutes=1)
        assert await desk.gate.release_due() == [name]
        assert (await desk.gate.find(name)).state == "sent"
        walk = list(passed)
    await desk.close_mailbox()
    desk.close()
    sys.stdout.write("\n".join(walk))


if __name__ == "__main__":
    threading.setprofile(note)
    sys.setprofile(note)
    with tempfile.TemporaryDirectory() as given:
        asyncio.run(send_a_mail(Path(given)))
