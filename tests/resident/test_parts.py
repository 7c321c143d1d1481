"""A part of the running desk that fails is seen wherever somebody looks, and comes back when the cause is gone."""

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path

import anyio
import httpx2
import pytest

from deskhand import clock
from deskhand.app import Desk
from deskhand.config import load
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.parts import Parts
from tests.home import TOKEN, Home
from tests.mail.letters import letter
from tests.requirements import requirement
from tests.resident.test_notify import listening
from tests.resident.test_up import Running, start
from tests.transports import http_client


async def until(asked: Callable[[], bool]) -> None:
    with anyio.fail_after(40):
        while not await anyio.to_thread.run_sync(asked):
            await anyio.lowlevel.checkpoint()


def is_down(up: Running, *parts: str) -> Callable[[], bool]:
    """Whether /health names these parts, and no other."""

    def ask() -> bool:
        answer = httpx2.get(f"{up.address}/health", timeout=60)
        down = answer.json().get("down", [])
        expected = (503, "degraded") if down else (200, "ok")
        assert (answer.status_code, answer.json()["status"]) == expected
        return sorted(down) == sorted(parts)

    return ask


def status(home: Home) -> dict[str, str]:
    done = home.command("status", "--json")
    told = json.loads(done.stdout or done.stderr)
    found: dict[str, str] = told.get("details", told).get("down", {})
    return found


@requirement("up:restarts")
@requirement("notify:down")
async def test_a_part_that_fails_is_named_everywhere_until_it_is_back(
    home: Home, tmp_path: Path
) -> None:
    home.path.mkdir(mode=0o700)
    rules = home.path / "rules.toml"
    rules.write_text("broken = [")
    with listening() as post:
        home = Home(
            home.vault,
            home.environment
            | {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_NOTIFY": post.url},
        )
        up = start(tmp_path, home.environment, "--port", "0")
        try:
            await until(is_down(up, "orchestrator"))
            told = await post.next()
            doctor = home.command("doctor")
            page = await _page(up)
            assert status(home).keys() == {"orchestrator"}
            rules.unlink()
            await until(is_down(up))
            back = home.command("doctor").stdout
        finally:
            up.close()
    assert told["title"] == "Deskhand: orchestrator does not run"
    assert str(home.path) not in json.dumps(told)
    assert (doctor.returncode, doctor.stdout.count("rules.toml: Invalid value")) == (1, 2)
    assert "<strong>orchestrator</strong> does not run" in page
    assert "each part of the desk" in back
    assert "orchestrator stopped" in up.said
    assert "orchestrator works again" in up.said


@requirement("up:restarts")
async def test_mail_goes_on_after_its_box_broke_and_the_vault_was_away(
    home: Home, tmp_path: Path
) -> None:
    own = home.environment | {
        "DESKHAND_ADDRESS": "me@example.com",
        "DESKHAND_FIRST_DAYS": "3650",
    }
    home = Home(home.vault, own)
    home.path.mkdir(mode=0o700)
    (home.path / "mail.db").write_bytes(b"no database at all" * 1000)
    away = home.vault.with_name("away")
    home.vault.rename(away)
    up = start(tmp_path, own, "--port", "0")
    try:
        servers = {"email server", "gmail server", "obsidian server"}
        # The orchestrator itself runs: what was approved leaves without the vault.
        down = {"watcher", "notes", "approvals", "dashboard"} | servers
        await until(is_down(up, *down))
        assert status(home).keys() == down
        assert httpx2.post(f"{up.address}/obsidian/mcp", timeout=60).status_code == 503
        (home.path / "mail.db").unlink()
        away.rename(home.vault)
        await until(is_down(up))
        home.vault.rename(away)
        await until(lambda: "approvals" in status(home))
        away.rename(home.vault)
        await until(is_down(up))
        async with http_client(f"{up.address}/obsidian/mcp", TOKEN, "2026-07-28") as client:
            assert (await client.list_tools()).tools
        await _receive(home)
        await until(lambda: len(list(home.vault.glob("Needs_Action/*.md"))) == 1)
    finally:
        up.close()


async def _receive(home: Home) -> None:
    desk = Desk(load(home.environment).settings)
    assert isinstance(desk.mailbox, LocalMailbox)
    await desk.mailbox.receive([Incoming(letter(subject="After all"), seen=False)])
    await desk.close_mailbox()
    desk.close()


async def _page(up: Running) -> str:
    async with httpx2.AsyncClient(
        base_url=up.address, follow_redirects=True, timeout=60
    ) as http:
        return (await http.get(up.told["link"])).text


@requirement("up:ends")
@pytest.mark.anyio
async def test_a_part_that_fails_while_it_is_ended_does_not_begin_anew() -> None:
    begun = asyncio.Event()

    async def fail_at_the_end() -> None:
        if begun.is_set():
            return  # it should not have begun anew
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("the connection broke at the same moment") from None

    part = asyncio.create_task(Parts(clock.utc_now).keep("mail", fail_at_the_end))
    await begun.wait()
    part.cancel()
    done, _ = await asyncio.wait([part], timeout=10)
    part.cancel()  # one that went on ends here
    assert done
    assert part.cancelled()


@requirement("up:localhost")
async def test_localhost_is_the_desk_whichever_address_that_is_or_who_stands_there_is_named(
    home: Home, tmp_path: Path
) -> None:
    try:
        taken = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no ::1")
    port = taken.getsockname()[1]
    known = home.environment | {"DESKHAND_ADDRESS": "me@example.org"}
    up = start(tmp_path, known, "--port", str(port))
    try:
        await until(is_down(up, "page at [::1]"))
        assert "somebody else listens at [::1]" in status(home)["page at [::1]"]
        taken.close()
        await until(is_down(up))
        for name in (f"[::1]:{port}", f"localhost:{port}"):
            answer = httpx2.get(f"http://[::1]:{port}/health", headers={"Host": name})
            assert (answer.status_code, answer.json()["status"]) == (200, "ok")
        strange = httpx2.get(
            f"http://[::1]:{port}/health", headers={"Host": "evil.example"}
        )
        assert strange.status_code == 421
    finally:
        taken.close()
        up.close()


@requirement("up:restarts")
async def test_what_the_machine_refuses_is_said_in_a_sentence_and_is_no_crash(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = Parts(clock.utc_now)
    for _ in range(3):
        parts.fail("dashboard", PermissionError(13, "Permission denied", "/vault/Logs"))
    (down,) = parts.down
    assert down.why == "the machine refused: /vault/Logs: Permission denied"
    assert [each.message for each in caplog.records] == ["part_stopped"]
