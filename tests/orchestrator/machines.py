"""Two machines that share a database and a mailbox: one of them has the vault, the other has none."""

import asyncio
import email
import email.policy
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate import LEASE, ledger
from deskhand.gate.actions import SendEmail
from deskhand.gate.requests import Request
from tests.home import Home
from tests.mail.gmail_double import GmailDouble


@dataclass(frozen=True)
class Findings:
    """What became of the mails that were approved."""

    delivered: int
    twice: int
    unapproved: int
    altered: int
    lost: int
    unknown: int
    done: int
    """Requests whose file lies in Done/."""
    left: int
    """Files in Approved/ or Pending_Approval/ that nothing waits for."""

    @property
    def good(self) -> bool:
        return not (self.twice or self.unapproved or self.altered or self.lost or self.left)


class Machines:
    def __init__(
        self, folder: Path, environment: dict[str, str], database: str, gmail: GmailDouble
    ) -> None:
        self.gmail = gmail
        self.vault = folder / "vault"
        self.vault.mkdir(exist_ok=True)
        shared = environment | gmail.environment(folder)
        shared |= {
            "DESKHAND_DATABASE_URL": database,
            "DESKHAND_MAX_SENDS": "100000",
            "DESKHAND_FIRST_DAYS": "0",
        }
        shared.pop("VAULT_PATH", None)
        first = {"DESKHAND_HOME": str(folder / "first"), "VAULT_PATH": str(self.vault)}
        self.first = Home(self.vault, shared | first)
        self.second = Home(self.vault, shared | {"DESKHAND_HOME": str(folder / "second")})

    def at(
        self, home: Home, work: Callable[[Desk], Awaitable[Any]], **variables: str
    ) -> Any:
        """Do something at the desk of one machine."""

        async def whole() -> Any:
            desk = Desk(load(home.environment | variables).settings)
            try:
                return await work(desk)
            finally:
                await desk.close_mailbox()
                desk.close()

        return asyncio.run(whole())

    def start(self, home: Home) -> "subprocess.Popen[bytes]":
        """A worker, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "deskhand", "orchestrate"],
            env=home.environment | {"MCP_LOG_LEVEL": "ERROR"},
            start_new_session=True,
        )

    # An assistant and a person.

    def ask(self, home: Home, letters: list[SendEmail]) -> None:
        async def work(desk: Desk) -> None:
            for letter in letters:
                await desk.gate.propose(letter, "email_mcp")

        self.at(home, work)

    def approve(self, home: Home, subjects: set[str]) -> None:
        """Yes to the requests with these subjects; somebody sends them later."""

        async def work(desk: Desk) -> None:
            more: str | None = None
            while True:
                cards, more = await desk.waiting.cards(limit=200, after=more)
                for card in cards:
                    if card.subject in subjects and card.state == "waiting":
                        await desk.answers.approve_now(card.id, card.digest, "person")
                if more is None:
                    return

        self.at(home, work)

    # What becomes of it.

    def requests(self) -> list[Request]:
        desk = Desk(load(self.first.environment).settings)
        try:
            rows = desk.store.write_sync(lambda tx: tx.all("SELECT id FROM requests"))
            names = [name for (name,) in rows]
            found = [desk.store.write_sync(ledger.find, name) for name in names]
            return [request for request in found if request is not None]
        finally:
            desk.close()

    def let_leases_end(self) -> None:
        """Two minutes pass while nobody works."""
        moment = round(LEASE.total_seconds() * 1000)
        desk = Desk(load(self.first.environment).settings)
        sql = "UPDATE requests SET lease = lease - ?, due = due - ?"
        desk.store.write_sync(lambda tx: tx.execute(sql, moment, moment))
        desk.close()

    def unsent(self) -> int:
        return sum(request.state in ("approved", "sending") for request in self.requests())

    def kill_while_working(self, kills: int, chance: random.Random, seconds: float) -> int:
        """Kill one of the two workers at a random moment and start it again, until all is sent; how many kills."""
        homes = [self.first, self.second]
        working = [self.start(home) for home in homes]
        done = 0
        began = time.monotonic()
        try:
            while done < kills and self.unsent() and time.monotonic() - began < seconds:
                time.sleep(chance.uniform(0.5, 2.5))
                victim = chance.randrange(2)
                kill(working[victim])
                done += 1
                working[victim] = self.start(homes[victim])
        finally:
            for each in working:
                kill(each)
        return done

    def work_in_peace(self, seconds: float) -> None:
        working = [self.start(home) for home in (self.first, self.second)]
        until = time.monotonic() + seconds
        try:
            while self.unsent() and time.monotonic() < until:
                time.sleep(0.2)
        finally:
            for each in working:
                each.terminate()
            for each in working:
                each.wait(timeout=60)

    def judge(self, letters: list[SendEmail], approved: set[str]) -> Findings:
        wanted = {letter.subject: letter for letter in letters}
        mails = [
            email.message_from_bytes(raw, policy=email.policy.default)
            for raw in self.gmail.delivered
        ]
        times = Counter(str(mail["Subject"]) for mail in mails)
        states = {request.action.subject: request.state for request in self.requests()}

        def is_altered(mail: Any) -> bool:
            letter = wanted[str(mail["Subject"])]
            body = mail.get_content().replace("\r\n", "\n")
            return (str(mail["To"]), body, mail["Cc"], mail["Bcc"]) != (
                letter.to,
                letter.body,
                None,
                None,
            )

        unknown = sum(state == "unknown" for state in states.values())
        waiting = len(wanted) - len(approved)
        lying = [
            len(list((self.vault / folder).glob("*.md")))
            for folder in ("Approved", "Pending_Approval")
        ]
        return Findings(
            delivered=len(mails),
            twice=sum(count > 1 for count in times.values()),
            unapproved=sum(subject not in approved for subject in times),
            altered=sum(map(is_altered, mails)),
            lost=sum(
                states.get(subject) not in ("sent", "unknown") for subject in approved
            ),
            unknown=unknown,
            done=len(list((self.vault / "Done").glob("*.md"))),
            left=sum(lying) - waiting - unknown,
        )


def letter(number: int) -> SendEmail:
    lines = "".join(f"Line {line} of {number}.\n" for line in range(20))
    return SendEmail(
        to=f"friend{number}@example.org",
        subject=f"Letter {number}",
        body=f"Letter {number}.\n{lines}",
    )


def kill(process: "subprocess.Popen[bytes]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
