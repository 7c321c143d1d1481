"""A desk with a local mailbox, its rules, and a person who decides by moving files."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deskhand.app import Desk
from deskhand.config import load
from deskhand.mail import MailSummary
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.notes import frontmatter
from deskhand.orchestrator.loop import Orchestrator
from tests.home import Home
from tests.mail.letters import letter
from tests.warm import warm_python

RULES = """
[[rule]]
name = "questions"
subject = "question"
decision = "draft_reply"
reply_body = "Thank you, I will look into it."

[[rule]]
name = "alarms"
subject = "alarm"
decision = "urgent"
reply_body = "On my way."

[[rule]]
name = "for Bob"
subject = "for bob"
decision = "delegate"
delegation_target = "Bob"

[[rule]]
name = "lists"
list_mail = true
decision = "archive"
"""


def local(desk: Desk) -> LocalMailbox:
    assert isinstance(desk.mailbox, LocalMailbox)
    return desk.mailbox


@dataclass
class Office:
    home: Home

    def __post_init__(self) -> None:
        self.home.path.mkdir(parents=True, exist_ok=True)
        (self.home.path / "rules.toml").write_text(RULES)

    @property
    def vault(self) -> Path:
        return self.home.vault

    def with_variables(self, **variables: str) -> "Office":
        return Office(Home(self.vault, self.home.environment | variables))

    def desk(self, **variables: str) -> Desk:
        return Desk(load(self.home.environment | variables).settings)

    def use(self, work: Callable[[LocalMailbox], Any]) -> Any:
        """Do something with the mailbox, apart from the orchestrator."""

        async def whole() -> Any:
            desk = self.desk()
            try:
                assert isinstance(desk.mailbox, LocalMailbox)
                return await work(desk.mailbox)
            finally:
                await desk.close_mailbox()
                desk.close()

        return asyncio.run(whole())

    def receive(self, *mails: bytes, seen: bool = False) -> None:
        self.use(lambda mailbox: mailbox.receive([Incoming(mail, seen) for mail in mails]))

    def mails(self, query: str) -> list[MailSummary]:
        found: list[MailSummary] = self.use(lambda mailbox: mailbox.search(query, 2000))
        return found

    def once(self, **variables: str) -> subprocess.CompletedProcess[str]:
        done = self.home.command("orchestrate", "--once", **variables)
        assert done.returncode == 0, done.stderr
        return done

    def passes(self, times: int = 1, **variables: str) -> None:
        """The same in this process: a process costs more than what it does here."""

        async def whole() -> None:
            desk = self.desk(**variables)
            try:
                for _ in range(times):
                    orchestrator = Orchestrator(desk)
                    await orchestrator.once()
                    await orchestrator.close()
            finally:
                await desk.close_mailbox()
                desk.close()

        asyncio.run(whole())

    def start(
        self, python: str | None = None, arguments: Sequence[str] = (), **variables: str
    ) -> "subprocess.Popen[str]":
        """An orchestrator that runs, in a process group of its own."""
        return subprocess.Popen(
            [python or warm_python(), "-m", "deskhand", "orchestrate", *arguments],
            env=self.home.environment | variables,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    # The person.

    def files(self, folder: str) -> list[Path]:
        return sorted((self.vault / folder).glob("*.md"))

    def only(self, folder: str) -> Path:
        (file,) = self.files(folder)
        return file

    def move(self, file: Path, folder: str) -> Path:
        (self.vault / folder).mkdir(exist_ok=True)
        return file.rename(self.vault / folder / file.name)

    def properties(self, file: Path) -> dict[str, Any]:
        return frontmatter.parse(file.read_text()).frontmatter

    def body(self, file: Path) -> str:
        return frontmatter.parse(file.read_text()).body

    def status(self) -> dict[str, Any]:
        done = self.home.command("status", "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def ended(process: "subprocess.Popen[str]", sign: signal.Signals) -> str:
    """End a process that the test started, with all it started itself; what it said."""
    with suppress(ProcessLookupError):
        if sign is signal.SIGKILL:
            os.killpg(process.pid, sign)
        else:
            process.send_signal(sign)
    _, said = process.communicate(timeout=60)
    return said


def question(number: int = 0, **more: str) -> bytes:
    return letter(
        subject=f"A question {number}", message_id=f"<q{number}@example.org>", **more
    )
