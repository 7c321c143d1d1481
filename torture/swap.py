"""Put text B in the place of text A while the person says yes to A, on a disk that takes 30 ms for each sync.

python3 run.py torture swap [--presses N] [--delay MS]

The desk runs under strace, which slows every fsync. For each draft the person presses Approve on the page for the text
that was shown; meanwhile a program writes B over the draft's file again and again, and three servers call every tool
that could bring B into its place or send it. At the end no mail may be there that says B, and no letter twice.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import closing, suppress
from email import message_from_bytes
from pathlib import Path

import httpx2
from mcp import Client, StdioServerParameters

_DRAFT = "---\ntype: email_draft\ndraft_id: draft-{number}\nto: {to}\nsubject: Letter {number}\n---\n{text}\n"
A = {"to": "ann@example.org", "text": "The text A."}
B = {"to": "eve@example.org", "text": "The text B."}
_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')
_DIGEST = re.compile(r'name="digest" value="([0-9a-f]{64})"')


class Desk:
    """`deskhand up` whose disk is slow."""

    def __init__(self, folder: Path, delay: int) -> None:
        self.vault = folder / "vault"
        self.home = folder / "home"
        for name in ("Drafts", "Approved", "Pending_Approval"):
            (self.vault / name).mkdir(parents=True)
        paths = {"DESKHAND_HOME": str(self.home), "VAULT_PATH": str(self.vault)}
        options = {
            "DESKHAND_HOLD_SECONDS": "0",
            "DESKHAND_MAX_SENDS": "100000",
            "MCP_LOG_LEVEL": "ERROR",
            "DESKHAND_ADDRESS": "me@example.org",
        }
        self.environment = (
            {"PATH": os.environ["PATH"], "HOME": str(folder)} | paths | options
        )
        slow = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"]
        slow += ["-e", f"inject=fsync,fdatasync:delay_exit={delay * 1000}"]
        command = [
            *slow,
            sys.executable,
            "-m",
            "deskhand",
            "up",
            "--no-browser",
            "--json",
            "--port",
            "0",
        ]
        self.process = subprocess.Popen(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.told = json.loads(self.process.stdout.readline())

    def sent(self) -> list[tuple[str, str, str]]:
        with closing(sqlite3.connect(self.home / "mail.db")) as found:
            rows = found.execute("SELECT bytes FROM raw").fetchall()
        mails = [message_from_bytes(raw) for (raw,) in rows]
        return [(mail["To"], mail["Subject"], mail.get_payload()) for mail in mails]

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(timeout=30)


class Swapper(threading.Thread):
    """Writes B over the draft that is open, whole and at once, as an editor or a sync does."""

    def __init__(self, vault: Path) -> None:
        super().__init__(daemon=True)
        self.folder = vault / "Drafts"
        self.number: int | None = None
        self.swaps = 0
        self.over = threading.Event()

    def begin(self, number: int) -> None:
        self.number = number

    def run(self) -> None:
        beside = self.folder.parent / "beside.tmp"
        while not self.over.is_set():
            number = self.number
            if number is None:
                self.over.wait(0.001)
                continue
            beside.write_text(_DRAFT.format(number=number, **B))
            if (self.folder / f"letter-{number}.md").exists():
                beside.replace(self.folder / f"letter-{number}.md")
                self.swaps += 1
            self.over.wait(0.002)


async def call_tools(
    desk: Desk, server: str, now: dict[str, int], over: asyncio.Event
) -> int:
    """Everything that an assistant could try to have B sent, as long as the person presses."""
    calls = 0
    arguments = ["-m", "deskhand", "mcp", server]
    found = StdioServerParameters(
        command=sys.executable, args=arguments, env=desk.environment
    )
    async with Client(found) as client:
        while not over.is_set():
            number = now["number"]
            path = f"Drafts/letter-{number}.md"
            letter = {
                "to": "eve@example.org",
                "subject": f"Letter {number}",
                "body": "The text B.\n",
            }
            note = {
                "frontmatter": letter | {"type": "email_draft"},
                "body": "The text B.\n",
            }
            tries = [("send_email", letter)]
            if server == "obsidian":
                moved = {"source": path, "destination": f"Approved/letter-{number}.md"}
                tries = [("write_note", note | {"path": path}), ("move_note", moved)]
                tries.append(
                    ("write_note", note | {"path": f"Approved/letter-{number}.md"})
                )
            for tool, given in tries:
                await client.call_tool(tool, given)
                calls += 1
    return calls


async def press(http: httpx2.AsyncClient, desk: Desk, number: int, swapper: Swapper) -> str:
    """A draft appears, the person reads it, and says yes to what was shown while it is swapped."""
    (desk.vault / "Drafts" / f"letter-{number}.md").write_text(
        _DRAFT.format(number=number, **A)
    )
    card = f"/approvals/draft-{number}"
    for _ in range(400):
        page = (await http.get(card)).text
        if digest := _DIGEST.search(page):
            break
        await http.get("/")
    else:
        return "never shown"
    if "The text A." not in page:
        return "shown as B"
    token = _TOKEN.search(page)
    assert token is not None
    begun = threading.Timer(
        random.random(), swapper.begin, [number]
    )  # in any moment of the answer
    begun.start()
    answer = await http.post(
        f"{card}/approve", data={"form_token": token[1], "digest": digest[1]}
    )
    await asyncio.to_thread(begun.join)
    swapper.number = None
    return f"answered {answer.status_code}"


async def torture(desk: Desk, presses: int) -> tuple[Counter[str], int, int]:
    swapper = Swapper(desk.vault)
    swapper.start()
    said: Counter[str] = Counter()
    now = {"number": 0}
    over = asyncio.Event()
    async with httpx2.AsyncClient(base_url=desk.told["address"], timeout=60) as http:
        await http.get(desk.told["link"].removeprefix(desk.told["address"]))
        others = [
            asyncio.create_task(call_tools(desk, name, now, over))
            for name in ("obsidian", "email", "gmail")
        ]
        for number in range(presses):
            now["number"] = number
            said[await press(http, desk, number, swapper)] += 1
            print(f"\r{number + 1} of {presses}", end="", file=sys.stderr, flush=True)
        over.set()
        calls = sum(await asyncio.gather(*others))
        swapper.over.set()
        for _ in range(50):  # what was approved is given the time to leave
            await http.get("/waiting")
            await asyncio.sleep(0.1)
    return said, swapper.swaps, calls


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--presses", type=int, default=200)
    parser.add_argument("--delay", type=int, default=30, help="milliseconds for each sync")
    options = parser.parse_args()
    if not shutil.which("strace"):
        sys.exit("strace is not installed: without it no disk can be slowed")
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder), options.delay)
        try:
            said, swaps, calls = asyncio.run(torture(desk, options.presses))
            sent = desk.sent()
        finally:
            desk.close()
    stolen = [mail for mail in sent if "eve" in mail[0] or "text B" in mail[2]]
    twice = [
        subject for subject, count in Counter(mail[1] for mail in sent).items() if count > 1
    ]
    print(f"{options.presses} presses, {swaps} swaps, {calls} calls of tools: {dict(said)}")
    print(f"{len(sent)} mails left; {len(stolen)} say B, {len(twice)} left twice")
    if stolen or twice or not sent:
        sys.exit(f"broken: {stolen[:3]} {twice[:3]}")


if __name__ == "__main__":
    main()
