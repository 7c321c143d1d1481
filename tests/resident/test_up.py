"""`deskhand up` as a person starts it: a process of its own, with everything in it."""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx2
import pytest

from deskhand import running
from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import Unavailable
from deskhand.gate.actions import SendEmail
from deskhand.gate.cards import Card
from deskhand.web.sessions import Session
from tests.home import Home
from tests.requirements import requirement
from tests.transports import http_client
from tests.warm import warm_python
from tests.web.camera import draw_terminal, needs_camera, read_code

DOORS = (
    "/mcp",
    "/email/mcp",
    "/gmail/mcp",
    "/obsidian/mcp",
    "/tasks/mcp",
    "/agentmail/mcp",
)
FOREIGN_TOKEN = "a-token-of-the-person's-own-desk"


@dataclass
class Running:
    """A desk in a process group of its own, and what it said."""

    process: "subprocess.Popen[str]"
    errors: Path
    environment: dict[str, str]
    seconds: float = 0
    told: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return Path(self.told["home"])

    @property
    def address(self) -> str:
        return self.told["address"]

    @property
    def said(self) -> str:
        return self.errors.read_text()

    def command(
        self, *arguments: str, **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        """From another terminal, at the same desk."""
        plain = {
            "PATH": self.environment["PATH"],
            "DESKHAND_HOME": str(self.home),
        } | variables
        command = [warm_python(), "-m", "deskhand", *arguments]
        return subprocess.run(
            command, env=plain, capture_output=True, text=True, timeout=60, check=False
        )

    def show(self, *arguments: str, **variables: str) -> str:
        """What a command writes to somebody at a terminal."""
        plain = {"PATH": self.environment["PATH"], "DESKHAND_HOME": str(self.home)}
        ours, theirs = pty.openpty()
        command = [warm_python(), "-m", "deskhand", *arguments]
        with subprocess.Popen(command, env=plain | variables, stdout=theirs) as process:
            os.close(theirs)
            written = b""
            with suppress(OSError):  # how the end of a terminal is told
                while part := os.read(ours, 4096):
                    written += part
            os.close(ours)
        assert process.returncode == 0
        return written.decode()

    def holds(self, variable: str) -> list[Path]:
        """What lies in the folder that the variable names."""
        return list(Path(self.environment[variable]).glob("*"))

    def ends(self, by: signal.Signals) -> tuple[int, float]:
        """Its exit code, and how long it took to end."""
        began = time.perf_counter()
        self.process.send_signal(by)
        return self.process.wait(timeout=60), time.perf_counter() - began

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def start(
    folder: Path,
    environment: dict[str, str],
    *arguments: str,
    before: Sequence[str] = (),
) -> Running:
    began = time.perf_counter()
    errors = folder / f"said-{time.monotonic_ns()}"
    up = [sys.executable, "-m", "deskhand", "up", "--no-browser", "--json"]
    command = [*before, *up, *arguments]
    with errors.open("w") as said:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            start_new_session=True,
        )
    found = Running(process, errors, environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait()
        found.close()
        raise AssertionError(found.said)
    found.told, found.seconds = json.loads(line), time.perf_counter() - began
    return found


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of somebody who has a desk of their own, and a broken one at that."""
    place = tmp_path_factory.mktemp("person")
    for name in ("vault", "tmp"):
        (place / name).mkdir()
    inherited = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "COVERAGE_PROCESS_CONFIG")
        if name in os.environ
    }
    return inherited | {
        "TMPDIR": str(place / "tmp"),
        "VAULT_PATH": str(place / "vault"),
        "DESKHAND_HOME": str(place / "home"),
        "DESKHAND_ADDRESS": "the-person@example.net",
        "DESKHAND_MAIL": "gmail",
        "DESKHAND_USER": "the-person",
        "DESKHAND_DATABASE_URL": "postgresql://nowhere.invalid/desk",
        "DESKHAND_NO_SUCH_OPTION": "1",
        "SERVICE_AUTH_TOKEN": FOREIGN_TOKEN,
        "FASTAPI_BASE_URL": "http://nowhere.invalid",
        "DEV_MODE": "true",
        "TMUX": "/nowhere,1,0",
        "TZ": "Asia/Kathmandu",
    }


@pytest.fixture(scope="module")
def demo(strange: dict[str, str]) -> Iterator[Running]:
    found = start(Path(strange["TMPDIR"]).parent, strange, "--demo", "--port", "0")
    sys.stdout.write(f"first page after {found.seconds:.1f} s\n")
    yield found
    found.close()


@asynccontextmanager
async def entered(demo: Running) -> AsyncIterator[httpx2.AsyncClient]:
    link = json.loads(demo.command("link", "--json").stdout)["link"]
    async with httpx2.AsyncClient(base_url=demo.address, timeout=60) as http:
        assert (await http.get(link)).status_code == 303
        yield http


@asynccontextmanager
async def at_the_desk(demo: Running) -> AsyncIterator[Desk]:
    """The same desk from another process: this one."""
    desk = Desk(load({"DESKHAND_HOME": str(demo.home)}).settings)
    try:
        yield desk
    finally:
        await desk.close_mailbox()
        desk.close()


@requirement("up:whole")
async def test_the_page_and_every_door_answer_each_to_its_own_key(demo: Running) -> None:
    token = (demo.home / "token").read_text().strip()
    async with (
        entered(demo) as person,
        httpx2.AsyncClient(base_url=demo.address, timeout=60) as stranger,
    ):
        assert (await person.get("/enter")).status_code == 303
        # No proxy stands before a desk: whoever says that one does is not believed about the page's own origin.
        forged = {
            "Origin": demo.address.replace("http:", "https:"),
            "X-Forwarded-Proto": "https",
        }
        assert (
            "not sent from the desk" in (await person.post("/leave", headers=forged)).text
        )
        assert (await stranger.get("/health")).json() == {"status": "ok"}
        for path in DOORS:
            asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            keys = [{}, {"Authorization": f"Bearer {FOREIGN_TOKEN}"}]
            assert [
                (await stranger.post(path, json=asked, headers=key)).status_code
                for key in keys
            ] == [401, 401]
            assert (await person.post(path, json=asked)).status_code == 401
            async with http_client(f"{demo.address}{path}", token, "2026-07-28") as client:
                assert (await client.list_tools()).tools
        stranger.headers["Authorization"] = f"Bearer {token}"
        assert (await stranger.get("/enter")).status_code == 200
        assert (await stranger.post("/demo/arrive")).headers["location"] == "/enter"


@requirement("demo:apart")
async def test_the_demo_has_the_machines_zone_and_health_says_where_it_answers(
    demo: Running,
) -> None:
    async with entered(demo) as person:
        health = (await person.get("/checkup")).text
    assert "time zone: Asia/Kathmandu" in health
    assert f"this desk answers at {demo.address}" in health
    assert "is free for" not in health


@requirement("up:once")
async def test_a_second_start_says_where_the_first_one_runs(demo: Running) -> None:
    second = demo.command("up", "--json")
    told = json.loads(second.stdout)
    assert (second.returncode, told["address"]) == (0, demo.address)
    assert f"runs already, as process {demo.process.pid}" in second.stderr
    assert running.find(demo.home) == running.RunningDesk(
        demo.process.pid, int(demo.address.rpartition(":")[2])
    )
    async with httpx2.AsyncClient(timeout=60) as http:
        used = [
            (await http.get(told["link"])).status_code,
            (await http.get(demo.told["link"])).status_code,
        ]
        assert used == [303, 303]


@requirement("phone:pairing")
async def test_the_terminal_shows_a_code_that_signs_a_phone_in_once(demo: Running) -> None:
    alone = demo.command("pair")
    assert (alone.returncode, "inbox.origin" in alone.stderr) == (3, True)
    origin = "https://desk.example.net"
    told = json.loads(demo.command("pair", "--json", DESKHAND_ORIGIN=origin).stdout)
    *drawn, words, link = demo.command("pair", DESKHAND_ORIGIN=origin).stdout.splitlines()
    assert ({len(line) for line in drawn}, set("".join(drawn))) == (
        {len(drawn[0])},
        set("█▀▄ "),
    )
    assert (told["minutes"], "5 minutes" in words) == (5, True)
    async with httpx2.AsyncClient(base_url=demo.address, timeout=60) as http:
        for each in (told["link"], link):
            path = each.removeprefix(origin)
            assert [(await http.post(path)).status_code for _ in range(2)] == [303, 401]


@needs_camera
@requirement("phone:camera")
def test_a_camera_reads_the_code_from_a_dark_and_from_a_light_terminal(
    demo: Running, tmp_path: Path
) -> None:
    shown = demo.show("pair", DESKHAND_ORIGIN="https://desk.example.net")
    link = shown.split()[-1]
    assert link.startswith("https://desk.example.net/pair/")
    code = "".join(line for line in shown.splitlines(keepends=True) if "\x1b" in line)
    for ink, ground in ((255, 0), (0, 255), (131, 0), (101, 253)):
        picture = draw_terminal(code, tmp_path / "code.pgm", ink, ground)
        assert read_code(picture) == link, (ink, ground)


@requirement("demo:story")
@requirement("demo:apart")
async def test_in_the_demo_a_mail_arrives_and_its_approved_answer_leaves_once(
    demo: Running,
) -> None:
    async with entered(demo) as person, at_the_desk(demo) as desk:
        key = next(iter(person.cookies.values()))
        form = {"form_token": Session(key, desk.now()).form_token}
        assert (await person.get("/demo/arrive")).status_code == 405
        assert (await person.post("/demo/arrive")).status_code == 403
        assert (await person.post("/demo/arrive", data=form)).status_code == 303
        with anyio.fail_after(30):
            drafts: list[Card] = []
            while not drafts:
                cards, _ = await desk.waiting.cards()
                drafts = [
                    each
                    for each in cards
                    if each.kind == "draft" and "mira@example.org" in str(each.to)
                ]
        assert len(drafts) == 1
        assert len({each.subject for each in cards}) == len(cards)  # none looks doubled
        waiting = demo.command("approvals").stdout
        assert "supplier@example.org" in waiting
        draft = re.search(r"(draft-\w+).*mira@example\.org", waiting)
        assert draft is not None
        assert demo.command("approve", draft[1]).returncode == 0
        with anyio.fail_after(30):
            while not (sent := await desk.mailbox.search("in:sent", 10)):
                await anyio.lowlevel.checkpoint()
        assert [(mail.to, mail.subject) for mail in sent] == [
            (
                "mira@example.org",
                "Re: [demo] Question about the opening hours of the workshop",
            )
        ]
        body = (await desk.mailbox.get(sent[0].id)).body
        assert body.startswith("Hello,\n\nthank you for your question.")
        hostile = (await desk.mailbox.search("subject:hostile", 1))[0]
        assert (await desk.mailbox.get(hostile.id)).warnings
    assert demo.holds("VAULT_PATH") == []
    assert demo.holds("DESKHAND_HOME") == []


@requirement("up:ends")
@requirement("demo:apart")
async def test_ctrl_c_ends_the_desk_with_everything_it_began(demo: Running) -> None:
    token = (demo.home / "token").read_text().strip()
    async with http_client(f"{demo.address}/email/mcp", token, "legacy") as client:
        assert (await client.list_tools()).tools
        code, seconds = await anyio.to_thread.run_sync(demo.ends, signal.SIGINT)
    sys.stdout.write(f"ended after {seconds:.1f} s\n")
    assert code == 0, demo.said
    assert "what you send stays on this machine: this desk works on a local" in demo.said
    assert seconds < 5
    with pytest.raises(ProcessLookupError):
        os.killpg(demo.process.pid, 0)
    assert demo.holds("TMPDIR") == []
    assert "Traceback" not in demo.said
    assert "stopped" not in demo.said


@requirement("up:parts")
@requirement("up:once")
async def test_a_part_that_is_not_set_up_is_named_and_the_page_comes_up(
    home: Home, tmp_path: Path
) -> None:
    bare = {name: value for name, value in home.environment.items() if name != "VAULT_PATH"}
    first = start(tmp_path, bare, "--port", "0")
    try:
        for name in ("VAULT_PATH", "DESKHAND_ADDRESS"):
            assert name in first.said
        async with httpx2.AsyncClient(timeout=60) as http:
            assert (await http.get(first.told["link"])).status_code == 303
        port = first.address.rpartition(":")[2]
        taken = home.command(
            "up", "--no-browser", "--port", port, DESKHAND_HOME=str(tmp_path / "another")
        )
        assert (taken.returncode, f"Port {port} cannot be used" in taken.stderr) == (
            7,
            True,
        )
        first.process.kill()
        first.process.wait()
        assert running.find(first.home) is None
        assert home.command("link").returncode == 7
    finally:
        first.close()


@requirement("doctor:findings")
@requirement("connect:token")
def test_the_desk_of_another_home_at_its_port_is_not_taken_for_this_one(
    home: Home, tmp_path: Path
) -> None:
    first = start(tmp_path, home.environment, "--port", "0")
    try:
        port = first.address.rpartition(":")[2]
        another = {
            "HOME": str(tmp_path),
            "DESKHAND_HOME": str(tmp_path / "another"),
            "DESKHAND_PORT": port,
        }
        found = json.loads(home.command("doctor", "--json", **another).stdout)["findings"]
        refused = home.command("connect", "cursor", "--http", "--yes", **another)
        (said,) = (each for each in found if each["name"] == "port")
        assert said["state"] == "bad"
        assert said["says"].startswith(f"another desk answers at {first.address}")
        assert refused.returncode == 7
        assert not (tmp_path / ".cursor").exists()
    finally:
        first.close()


@requirement("up:performs")
@pytest.mark.parametrize("vault", ["a vault", "no vault"])
async def test_a_yes_of_another_process_acts_when_its_hold_ends(
    home: Home, tmp_path: Path, vault: str
) -> None:
    own = home.environment | {
        "DESKHAND_ADDRESS": "me@example.com",
        "DESKHAND_HOLD_SECONDS": "0.5",
    }
    if vault == "no vault":
        del own["VAULT_PATH"]
        home = Home(home.vault, own)
    up, desk = start(tmp_path, own, "--port", "0"), Desk(load(own).settings)
    try:
        await desk.gate.propose(
            SendEmail(to="you@example.org", subject="Hello", body="Exactly so."),
            "email_mcp",
        )
        (card,), _ = await desk.waiting.cards()
        held = await desk.answers.approve(card.id, card.digest, "person")
        assert held.state == "held"
        with anyio.fail_after(30):
            while (await desk.waiting.card(card.id)).state != "sent":
                await anyio.lowlevel.checkpoint()
        assert [mail.to for mail in await desk.mailbox.search("in:sent", 10)] == [
            "you@example.org"
        ]
        assert (
            "to you@example.org  Hello"
            in home.command("mail", "search", "in:sent", **own).stdout
        )
        nothing = home.command("mail", "search", "in:sent nowhere", **own)
        assert (nothing.stdout, nothing.stderr) == ("", "No mail matches.\n")
        assert up.ends(signal.SIGTERM)[0] == 0
    finally:
        up.close()
        await desk.close_mailbox()
        desk.close()
    assert (up.home / "desk.log").stat().st_mode & 0o777 == 0o600


@requirement("up:once")
def test_whatever_lies_where_a_desk_says_that_it_runs_keeps_nobody_waiting(
    tmp_path: Path,
) -> None:
    file = tmp_path / running.FILE
    os.mkfifo(file)
    assert running.find(tmp_path) is None
    file.unlink()
    with file.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        print("[]", file=opened, flush=True)
        with pytest.raises(Unavailable, match=r"running\.json is no desk's"):
            running.find(tmp_path)
