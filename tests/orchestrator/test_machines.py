"""Workers on two machines, of which one has no vault: what is approved leaves once, and the files follow."""

import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskhand.app import Desk
from tests.home import Home
from tests.mail.gmail_double import Cut, GmailDouble
from tests.orchestrator.machines import Machines, letter
from tests.orchestrator.office import RULES, ended, question
from tests.orchestrator.test_running import until
from tests.requirements import requirement
from tests.warm import warm_python

LOOKING = {"history.list", "messages.list", "threads.get"}


@pytest.fixture
def machines(home: Home, tmp_path: Path, url: str) -> Iterator[Machines]:
    with GmailDouble() as gmail:
        yield Machines(tmp_path, home.environment | {"MCP_LOG_LEVEL": "INFO"}, url, gmail)


@requirement("orchestrator:no-vault")
def test_a_worker_without_a_vault_sends_what_is_approved_and_does_nothing_else(
    machines: Machines,
) -> None:
    asked = [letter(number) for number in range(3)]
    machines.ask(machines.first, asked)
    machines.approve(machines.first, {"Letter 0"})
    machines.approve(machines.second, {"Letter 1"})
    machines.gmail.account.deliver(question())
    machines.gmail.asked.clear()

    done = machines.second.command("orchestrate", "--once")
    assert (
        done.returncode,
        "sending what is approved; for mail and drafts set VAULT_PATH" in done.stderr,
    ) == (0, True)
    assert not LOOKING & set(machines.gmail.asked)
    assert len(machines.gmail.delivered) == 2
    assert not (machines.vault / "Dashboard.md").exists()
    assert len(list((machines.vault / "Pending_Approval").glob("*.md"))) == 2

    done = machines.first.command("orchestrate", "--once")
    assert (done.returncode, "mail, drafts, and sending" in done.stderr) == (0, True)
    found = machines.judge(asked, {"Letter 0", "Letter 1"})
    assert found.good, found
    assert (found.delivered, found.done) == (2, 2)


@requirement("orchestrator:no-vault")
def test_what_was_asked_without_a_vault_leaves_where_there_is_one(
    machines: Machines,
) -> None:
    machines.ask(machines.second, [letter(0)])
    machines.approve(machines.second, {"Letter 0"})
    for _ in range(2):
        assert machines.first.command("orchestrate", "--once").returncode == 0
    assert [request.state for request in machines.requests()] == ["sent"]
    assert len(machines.gmail.delivered) == 1


@requirement("orchestrator:no-vault")
def test_a_draft_that_leaves_without_the_vault_is_told_in_its_note_by_who_has_it(
    machines: Machines,
) -> None:
    draft_reply(machines)
    machines.approve(machines.second, {"Re: A question 0"})
    assert machines.second.command("orchestrate", "--once").returncode == 0
    assert len(machines.gmail.delivered) == 1

    assert machines.first.command("orchestrate", "--once").returncode == 0
    assert len(list((machines.vault / "Done").glob("*.md"))) == 2
    assert not list((machines.vault / "Needs_Action").glob("*.md"))
    assert len(machines.gmail.delivered) == 1


@requirement("gate:unknown")
@pytest.mark.parametrize("approved_at", ["first", "second"])
@pytest.mark.parametrize("kind", ["request", "draft"])
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_may_have_left_without_the_vault_waits_in_the_vault_for_the_person(
    machines: Machines, kind: str, approved_at: str
) -> None:
    def vanish(name: str) -> Cut | None:
        if name != "drafts.send":
            return None
        machines.gmail.account.drafts.clear()
        machines.gmail.chance = lambda _: None
        return Cut(accepted=False)

    if kind == "request":
        machines.ask(machines.first, [letter(0)])
    else:
        draft_reply(machines)
    machines.approve(getattr(machines, approved_at), {"Letter 0", "Re: A question 0"})
    machines.gmail.chance = vanish
    assert machines.second.command("orchestrate", "--once").returncode == 0
    assert [request.state for request in machines.requests()] == ["unknown"]

    assert machines.first.command("orchestrate", "--once").returncode == 0
    (file,) = (machines.vault / "Pending_Approval").glob("*.md")
    assert "may have been sent already" in file.read_text()
    others = [
        each
        for name in ("Approved", "Drafts")
        for each in (machines.vault / name).glob("*.md")
    ]
    assert others == []
    file.rename(machines.vault / "Approved" / file.name)
    assert machines.first.command("orchestrate", "--once").returncode == 0
    assert len(machines.gmail.delivered) == 1


def draft_reply(machines: Machines) -> None:
    """A mail arrives, and the worker with the vault drafts an answer."""
    machines.first.path.mkdir()
    (machines.first.path / "rules.toml").write_text(RULES)
    machines.gmail.account.deliver(question())
    assert (
        machines.first.command(
            "orchestrate", "--once", DESKHAND_FIRST_DAYS="3650"
        ).returncode
        == 0
    )


@requirement("orchestrator:no-vault")
def test_without_a_vault_a_hold_ends_in_the_worker_that_runs(machines: Machines) -> None:
    async def approve(desk: Desk) -> None:
        (card,), _ = await desk.waiting.cards()
        await desk.answers.approve(card.id, card.digest, "person")

    machines.ask(machines.second, [letter(0)])
    command = [warm_python(), "-m", "deskhand", "orchestrate"]
    environment = machines.second.environment
    worker = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        machines.at(machines.second, approve, DESKHAND_HOLD_SECONDS="0.5")
        until(lambda: machines.gmail.delivered, 20)
    finally:
        said = ended(worker, signal.SIGTERM)
    assert (worker.returncode, "VAULT_PATH" in said) == (0, True)
    assert [request.state for request in machines.requests()] == ["sent"]


@requirement("orchestrator:no-vault")
def test_without_vault_and_mailbox_it_says_what_to_set(home: Home) -> None:
    bare = {name: value for name, value in home.environment.items() if name != "VAULT_PATH"}
    done = Home(home.vault, bare).command("orchestrate")
    assert (
        done.returncode,
        "DESKHAND_ADDRESS" in done.stderr,
        "Traceback" in done.stderr,
    ) == (1, True, False)
    gone = home.command(
        "orchestrate",
        DESKHAND_ADDRESS="me@example.com",
        VAULT_PATH=str(home.vault / "gone"),
    )
    assert (gone.returncode, "VAULT_PATH" in gone.stderr) == (1, True)


@requirement("orchestrator:crash")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_of_two_machines_whose_workers_are_killed_each_approved_mail_leaves_once(
    machines: Machines,
) -> None:
    machines.gmail.latency = 0.2
    asked = [letter(number) for number in range(22)]
    machines.ask(machines.first, asked)
    approved = {each.subject for each in asked[:20]}
    machines.approve(machines.first, {each.subject for each in asked[:10]})
    machines.approve(machines.second, approved)

    kills = machines.kill_while_working(6, random.Random(1), seconds=30)
    machines.let_leases_end()
    machines.work_in_peace(20)
    assert machines.first.command("orchestrate", "--once").returncode == 0
    found = machines.judge(asked, approved)
    assert found.good, found
    assert (found.delivered, found.unknown, kills > 1) == (20, 0, True)
