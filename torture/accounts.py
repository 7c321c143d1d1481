"""A running desk with four mail accounts, of which one is away for a whole minute and the desk is killed meanwhile.

    python3 run.py torture accounts [--seconds N] [--burners N] [--delay MS]

Two accounts at Gmail (the double), one by IMAP (Dovecot) and a local one get mails all the time; an assistant searches
over all of them. Answers that were approved before the minute or in it leave afterwards, each once and from the account
that got the mail. Each mail has one note, and of the account that is away each desk says it once.

Nothing is judged by how long it takes while something moves: the machine may be busy. `--burners` makes it so, and
`--delay` slows each sync of the desk's disk.

Where something is wrong, what the desks said is printed, and their folder with the whole log is kept.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from pathlib import Path
from typing import Any

from mcp import Client

from deskhand.clock import utc_now
from deskhand.mail.local import Incoming, LocalMailbox
from tests.mail.dovecot import PASSWORD, Dovecot, Relay
from tests.mail.gmail_double import Cut, GmailDouble, Status
from tests.mail.letters import letter
from tests.resident.test_up import Running, start
from tests.transports import http_client

NAMES = ("main", "one", "two", "imap")
STILL = 90
"""After so many seconds in which nothing moved, nothing will."""
LONGEST_BURN = 170
MOST_LINES = 200
_BURN = "import os, time\nos.nice(5)\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"


def address(name: str) -> str:
    return f"{name}@example.com"


@dataclass
class Site:
    folder: Path
    gmail: dict[str, GmailDouble]
    imap: Dovecot
    relay: Relay
    delivered: dict[str, list[str]] = field(
        default_factory=lambda: {name: [] for name in NAMES}
    )
    """The subjects of what reached each account."""
    asked: Counter[str] = field(default_factory=Counter)
    """How many answers to each mail the assistant asked for."""

    @property
    def environment(self) -> dict[str, str]:
        accounts: list[dict[str, Any]] = []
        for name, double in self.gmail.items():
            credentials = str(double.credentials(self.folder / f"{name}.json"))
            options = {
                "gmail_credentials": credentials,
                "gmail_api_endpoint": double.origin,
            }
            accounts.append(
                {"name": name, "kind": "gmail", "address": address(name)} | options
            )
        urls = {
            "imap_url": f"imap://{self.imap.user}:{PASSWORD}@127.0.0.1:{self.imap.port}",
            "smtp_url": f"smtp://127.0.0.1:{self.relay.port}",
        }
        accounts.append({"name": "imap", "kind": "imap", "address": address("imap")} | urls)
        inherited = {name: os.environ[name] for name in ("PATH", "HOME")}
        return inherited | {
            "DESKHAND_HOME": str(self.folder / "home"),
            "VAULT_PATH": str(self.vault),
            "DESKHAND_MAIL": "local",
            "DESKHAND_ADDRESS": address("main"),
            "DESKHAND_USER": "me",
            "DESKHAND_MAIL_ACCOUNTS": json.dumps(accounts),
            # The person has said so: otherwise a desk that is slower than the first mail asks, and waits for an answer.
            "DESKHAND_FIRST_MAIL": "all",
            "DESKHAND_MAX_SENDS": "1000",
            "DESKHAND_HOLD_SECONDS": "0",
            "TMPDIR": str(self.folder),
        }

    @property
    def vault(self) -> Path:
        return self.folder / "vault"

    async def deliver(self, name: str) -> None:
        subject = f"{name} round{len(self.delivered[name]):04}"
        raw = letter(
            to=address(name),
            subject=subject,
            message_id=f"<{subject.replace(' ', '.')}@x.example>",
        )
        match name:
            case "main":
                mailbox = LocalMailbox(
                    self.folder / "home" / "mail.db", address("main"), utc_now
                )
                await mailbox.receive([Incoming(raw, seen=False, dated=utc_now())])
                await mailbox.close()
            case "imap":
                await asyncio.to_thread(self.imap.deliver, raw)
            case _:
                self.gmail[name].account.deliver(raw)
        self.delivered[name].append(subject)

    async def sent(self) -> dict[str, list[tuple[str, str]]]:
        """The sender and the subject of what has left each account."""
        raws = {name: double.delivered for name, double in self.gmail.items()}
        raws["imap"] = [raw for _, raw in self.relay.delivered]
        left = {
            name: [
                (str(mail["From"]), str(mail["Subject"]))
                for mail in map(message_from_bytes, several)
            ]
            for name, several in raws.items()
        }
        mailbox = LocalMailbox(self.folder / "home" / "mail.db", address("main"), utc_now)
        mails = await mailbox.search("in:sent", 10_000)
        await mailbox.close()
        return {"main": [(mail.sender, mail.subject) for mail in mails]} | left

    def notes(self) -> Counter[str]:
        """How many notes each mail has, by its subject."""
        files = [
            *(self.vault / "Needs_Action").glob("*.md"),
            *(self.vault / "Done").glob("*.md"),
        ]
        lines = [
            line
            for file in files
            for line in file.read_text().splitlines()
            if line.startswith("subject: ")
        ]
        return Counter(line.removeprefix("subject: ").strip("\"'") for line in lines)

    def approve(self) -> None:
        (self.vault / "Approved").mkdir(exist_ok=True)
        for file in (self.vault / "Pending_Approval").glob("*.md"):
            file.rename(self.vault / "Approved" / file.name)


@contextmanager
def four_accounts(folder: Path) -> Iterator[Site]:
    with (
        GmailDouble() as one,
        GmailDouble() as two,
        Dovecot() as imap,
        Relay(imap) as relay,
    ):
        for name, double in (("one", one), ("two", two)):
            double.account.address = address(name)
            double._server.handle_error = lambda *_: None  # noqa: SLF001 - a desk that is killed leaves broken connections
        (folder / "vault").mkdir()
        (folder / "home").mkdir()
        yield Site(folder, {"one": one, "two": two}, imap, relay)


def be_away(_: str) -> object:
    return random.choice([Status(503), Status(500), Cut(accepted=False)])


@dataclass(frozen=True)
class Found:
    mails: dict[str, dict[str, Any]]
    """By their subject."""
    silent: set[str]
    """The accounts that the answer names as missing."""


async def find(client: Client, number: int) -> Found:
    """The mails of one round that came in."""
    result = await client.call_tool(
        "search_email", {"query": f"in:inbox subject:round{number:04}", "max_results": 50}
    )
    beside = " ".join(getattr(each, "text", "") for each in result.content)
    mails = (result.structured_content or {"emails": []})["emails"]
    return Found(
        {each["subject"]: each for each in mails},
        {name for name in NAMES if f"The mail account {name} did not answer" in beside},
    )


class Motion:
    """Whether something still moves."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since = time.monotonic()

    def is_still(self, seen: object) -> bool:
        if seen != self._seen:
            self._seen = seen
            self._since = time.monotonic()
        return time.monotonic() > self._since + STILL


async def find_round(
    client: Client, number: int, *, without: str | None, wrong: list[str]
) -> Found:
    """A mail that is not found lies in an account that is named; one that is only slow is asked again."""
    motion = Motion()
    while True:
        found = await find(client, number)
        missing = set(NAMES) - {subject.split()[0] for subject in found.mails}
        wrong += [
            f"the mail of round {number} to {name} was not found, and nobody said so"
            for name in missing - found.silent
        ]
        slow = (missing & found.silent) - {without}
        if not slow:
            return found
        if motion.is_still(missing):
            wrong.append(f"{slow} did not answer in round {number}")
            return found


async def answer(site: Site, client: Client, mail: dict[str, Any]) -> None:
    given = {
        "thread_id": mail["thread_id"],
        "message_id": mail["message_id"],
        "body": f"Re {mail['subject']}.\n",
    }
    result = await client.call_tool("reply_email", given)
    if "no_approval" in getattr(result.content[0], "text", ""):
        site.asked[f"Re: {mail['subject']}"] += 1


async def work(
    site: Site, desk: Running, seconds: float, *, without: str | None, wrong: list[str]
) -> None:
    """Mails come, an assistant searches over all and asks for answers, and the person says yes.

    An account that is away stays so until the desk has noticed it.
    """
    token = (desk.home / "token").read_text().strip()
    async with http_client(f"{desk.address}/mcp", token, "2026-07-28") as client:
        until = time.monotonic() + seconds
        while time.monotonic() < until or not _is_noticed(desk, without):
            if time.monotonic() > until + STILL:
                wrong.append(f"that {without} is away was never said")
                break
            site.approve()  # also what was asked before the account was away
            number = len(site.delivered["main"])
            for name in NAMES:
                await site.deliver(name)
            found = await find_round(client, number, without=without, wrong=wrong)
            for mail in found.mails.values():
                await answer(site, client, mail)
            await asyncio.sleep(1)


def _is_noticed(desk: Running, without: str | None) -> bool:
    return without is None or f"mail {without} stopped" in desk.said


async def settle(site: Site, desk: Running, wrong: list[str]) -> None:
    """Wait until everything that came has a note, and everything that was approved has left."""
    token = (desk.home / "token").read_text().strip()
    every = [subject for several in site.delivered.values() for subject in several]
    motion = Motion()
    async with http_client(f"{desk.address}/mcp", token, "2026-07-28") as client:
        while True:
            site.approve()
            result = await client.call_tool("pending_actions", {})
            waits = (result.structured_content or {"actions": []})["actions"]
            missing = set(every) - set(site.notes())
            left = sum(map(len, (await site.sent()).values()))
            if not missing and not waits and left >= site.asked.total():
                break
            if motion.is_still((missing, len(waits), left)):
                wrong.append(
                    f"{STILL} s nothing moved: {len(missing)} mails have no note, {waits=},"
                    f" {left} of {site.asked.total()} answers left"
                )
                break
            await asyncio.sleep(1)
        found = [
            subject
            for number in range(len(site.delivered["main"]))
            for subject in (
                await find_round(client, number, without=None, wrong=wrong)
            ).mails
        ]
        wrong += [
            f"{subject} is found {found.count(subject)} times"
            for subject in every
            if found.count(subject) != 1
        ]


async def judge(site: Site, wrong: list[str], said: list[str]) -> None:
    every = [subject for several in site.delivered.values() for subject in several]
    wrong += [
        f"{subject} has {count} notes"
        for subject, count in site.notes().items()
        if count != 1
    ]
    left = await site.sent()
    subjects = Counter(subject for mails in left.values() for _, subject in mails)
    wrong += [
        f"{subject} was asked {count} times and left {subjects[subject]} times"
        for subject, count in site.asked.items()
        if subjects[subject] != count
    ]
    for name, mails in left.items():
        for sender, subject in mails:
            origin = subject.removeprefix("Re: ").split()[0]
            if (origin, sender) != (name, address(name)):
                wrong.append(f"the answer to {origin} left from {name} as {sender}")
        wrong += [
            f"{subject} left {count} times"
            for (_, subject), count in Counter(mails).items()
            if count > 1
        ]
    counts = {name: len(mails) for name, mails in left.items()}
    times = [text.count("mail one stopped") for text in said]
    if times != [1, 1]:
        wrong.append(
            f"that the account is away was said {times} times, before and after the kill"
        )
    print(
        f"{len(every)} mails in four accounts, answers that left: {counts}; said that one is away: {times}"
    )


def slow_disk(milliseconds: int) -> list[str]:
    """The program under which each sync takes so long."""
    if not milliseconds:
        return []
    if not shutil.which("strace"):
        sys.exit("strace is not installed: without it no disk can be slowed")
    slow = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"]
    return [*slow, "-e", f"inject=fsync,fdatasync:delay_exit={milliseconds * 1000}"]


@contextmanager
def burn(count: int) -> Iterator[None]:
    """Keep the processors busy; the burners end by themselves whatever happens to this program."""
    command = [sys.executable, "-c", _BURN.format(seconds=LONGEST_BURN)]
    burners = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for each in burners:
            each.kill()
            each.wait()


async def run(folder: Path, seconds: int, before: list[str]) -> list[str]:
    wrong: list[str] = []
    with four_accounts(folder) as site:
        environment = site.environment
        desk = start(folder, environment, "--port", "0", before=before)
        said: list[str] = []
        try:
            await work(site, desk, 10, without=None, wrong=wrong)
            site.gmail["one"].chance = be_away
            await work(site, desk, seconds / 2, without="one", wrong=wrong)
            desk.close()
            said.append(desk.said)
            desk = start(folder, environment, "--port", "0", before=before)
            await work(site, desk, seconds / 2, without="one", wrong=wrong)
            site.gmail["one"].chance = lambda _: None
            await settle(site, desk, wrong)
        finally:
            desk.close()
            said.append(desk.said)
        await judge(site, wrong, said)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=int, default=60, help="how long the account is away (default 60)"
    )
    parser.add_argument("--burners", type=int, default=0, help="processes that burn CPU")
    parser.add_argument(
        "--delay", type=int, default=0, help="milliseconds that each sync takes longer"
    )
    options = parser.parse_args()
    before = slow_disk(options.delay)
    folder = Path(tempfile.mkdtemp(prefix="deskhand-"))
    wrong = [f"it did not come to its end; its folder is {folder}"]
    try:
        with burn(options.burners):
            wrong = asyncio.run(run(folder, options.seconds, before))
    finally:
        if wrong:
            show(folder)
    for each in wrong:
        print(f"WRONG {each}")
    if not wrong:
        shutil.rmtree(folder)
    load = os.getloadavg()[0]
    print(
        f"{options.burners} burners, {options.delay} ms a sync, load at the end {load:.1f}"
    )
    return int(bool(wrong))


def show(folder: Path) -> None:
    """What each desk said, and the end of their common log."""
    log = folder / "home" / "desk.log"
    for file in [*sorted(folder.glob("said-*")), *folder.glob("home/desk.log")]:
        lines = file.read_text().splitlines()
        print(f"--- {file}, {len(lines)} lines", *lines[-MOST_LINES:], sep="\n")
    print(f"--- kept: {folder}, the whole log is {log}")


if __name__ == "__main__":
    sys.exit(main())
