"""Several processes at one desk: one of them sends, and one that died is looked after."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deskhand.app import Desk
from deskhand.config import load
from tests.gate.site import HELLO, Site, said
from tests.home import Home
from tests.mail.dovecot import Dovecot, Relay
from tests.mail.gmail_double import Slow
from tests.requirements import requirement
from tests.tasks.service import new_database

pytestmark = pytest.mark.anyio


class Worker:
    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), *arguments]
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def told(self, proposal: dict[str, str]) -> None:
        print(json.dumps(proposal), file=self.process.stdin, flush=True)

    def said(self) -> str:
        return self.process.stdout.readline().strip()

    def outcome(self) -> tuple[str, str]:
        kind, error = json.loads(self.said())
        return kind, error

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        with self.process:
            pass


@contextmanager
def workers(environment: dict[str, str], number: int) -> Iterator[list[Worker]]:
    started = [Worker(environment) for _ in range(number)]
    try:
        assert [worker.said() for worker in started] == ["ready"] * number
        yield started
    finally:
        for worker in started:
            worker.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, home: Home) -> Home:
    """A desk whose mailbox is the local one, on each database."""
    more = {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_MAX_SENDS": "1000"}
    if request.param == "postgresql":
        more["DESKHAND_DATABASE_URL"] = new_database(request.getfixturevalue("postgresql"))
    return Home(home.vault, home.environment | more)


@requirement("gate:race")
async def test_of_processes_that_race_for_one_approval_one_sends(shared: Home) -> None:
    approved = shared.vault / "Approved"
    approved.mkdir()
    with workers(shared.environment, 4) as racing:
        for number in range(8):
            proposal = HELLO | {"subject": f"Round {number}"}
            text = f"---\ntype: email_send\nstatus: approved\nto: {HELLO['to']}\nsubject: Round {number}\n---\n"
            (approved / f"{number}.md").write_text(text)
            for worker in racing:
                worker.told(proposal)
            outcomes = [worker.outcome() for worker in racing]
            assert sorted(kind for kind, _ in outcomes).count("Released") == 1, outcomes

            # The same for a sealed request: whoever lost, or comes afterwards, finds nothing that releases it again.
            sealed = HELLO | {"subject": f"Sealed {number}"}
            racing[0].told(sealed)
            assert racing[0].outcome()[0] == "NotApproved"
            (request,) = [
                file
                for file in (shared.vault / "Pending_Approval").iterdir()
                if "Sealed" in file.read_text()
            ]
            request.rename(approved / request.name)
            for worker in racing:
                worker.told(sealed)
            outcomes = [worker.outcome() for worker in racing]
            assert sorted(kind for kind, _ in outcomes).count("Released") == 1, outcomes
            for file in (shared.vault / "Pending_Approval").iterdir():
                file.unlink()

    desk = Desk(load(shared.environment).settings)
    mails = await desk.mailbox.search("in:sent", 100)
    await desk.close_mailbox()
    desk.close()
    assert len({mail.subject for mail in mails}) == len(mails) == 16
    assert list(approved.iterdir()) == []


@requirement("gate:takeover")
@pytest.mark.parametrize("call", ["drafts.create", "drafts.send"])
async def test_a_send_whose_process_was_killed_is_finished_by_another_once(
    site: Site, call: str
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def hold(name: str) -> Slow | None:
        if name != call:
            return None
        entered.set()
        site.gmail.chance = lambda _: None
        return Slow(60, until=go_on)

    site.clock.time = datetime.now(UTC)
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        site.approve()
        worker = Worker(site.home.environment)
        assert worker.said() == "ready"
        site.gmail.chance = hold
        worker.told(HELLO)
        assert entered.wait(60)
        worker.kill()
        go_on.set()

        busy = await said(client, "send_email", **HELLO)
        assert busy.startswith(
            "Error sending email: another process is sending this mail right now"
        )
        site.clock.pass_by(minutes=10)
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
    assert len(site.sent) == 1
    assert [file.name[:11] for file in site.files("Done")] == ["email-send-"]


@requirement("imap:precise")
@pytest.mark.parametrize(
    ("moment", "said_next"),
    [("chance", "Email sent successfully."), ("accept", "Error sending")],
)
async def test_over_smtp_only_a_kill_after_the_last_dot_leaves_a_send_unknown(
    site: Site, moment: str, said_next: str
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        entered.set()
        go_on.wait(60)

    site.clock.time = datetime.now(UTC)
    with Dovecot() as server, Relay(server) as relay:
        imap = site.with_variables(**server.environment(relay))
        async with imap.client("email") as client:
            await said(client, "send_email", **HELLO)
            imap.approve()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(relay, moment, hold)
                worker = Worker(imap.home.environment)
                assert worker.said() == "ready"
                worker.told(HELLO)
                assert entered.wait(60)
                worker.kill()
                go_on.set()

            imap.clock.pass_by(minutes=10)
            answer = await said(client, "send_email", **HELLO)
        delivered = len(relay.delivered)

    assert answer.startswith(said_next)
    assert delivered == (moment == "chance")
    assert ("outcome unknown" in answer) == (moment == "accept")
