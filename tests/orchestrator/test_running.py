"""Orchestrators that run: killed, drained, rung by the doorbell, at rest, and what they say about themselves."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from deskhand.gate import LEASE, NotApproved, Outcome
from deskhand.gate.actions import SendEmail
from deskhand.orchestrator import mails, rules, steps
from tests.gate.site import Site
from tests.home import Home
from tests.mail.dovecot import Dovecot, Relay
from tests.mail.gmail_double import Slow, Status
from tests.mail.letters import letter
from tests.orchestrator.office import Office, ended, question
from tests.requirements import requirement
from tests.tasks.service import new_database


def until(true: Callable[[], object], seconds: float = 60) -> float:
    """Wait for another process; how long it took."""
    started, pause = time.monotonic(), threading.Event()
    while not true():
        assert time.monotonic() - started < seconds, "it did not happen"
        pause.wait(0.02)
    return time.monotonic() - started


@pytest.fixture(params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, office: Office) -> Office:
    more = {
        "DESKHAND_MAX_SENDS": "1000",
        "DESKHAND_LEASE_SECONDS": "2",
        "MCP_LOG_LEVEL": "ERROR",
    }
    if request.param == "postgresql":
        more["DESKHAND_DATABASE_URL"] = new_database(request.getfixturevalue("postgresql"))
    return office.with_variables(**more)


@requirement("orchestrator:crash")
def test_a_draft_that_is_filed_once_more_keeps_the_yes_that_its_file_was_moved_for(
    office: Office,
) -> None:
    office.receive(question())
    office.once()
    office.move(office.only("Drafts"), "Approved")

    async def file_again() -> None:
        """As after a kill between the draft's file and the end of the step."""
        desk = office.desk()
        minute = timedelta(seconds=60)
        again = "UPDATE steps SET state = 'decided', due = 0, lease = 0"
        await desk.store.write(lambda tx: tx.execute(again))
        step = await desk.store.write(steps.claim, desk.now(), minute)
        assert step is not None
        triage = mails.Triage(rules.RulesFile(desk.settings.home), None)
        async with steps.Held(desk.store, step, minute, desk.now) as held:
            await mails.advance(desk, triage, held)
        await desk.close_mailbox()
        desk.close()

    asyncio.run(file_again())
    office.once()
    assert [mail.subject for mail in office.mails("in:sent")] == ["Re: A question 0"]


@requirement("orchestrator:crash")
def test_killed_workers_lose_nothing_and_do_nothing_twice(shared: Office) -> None:
    number = 24
    shared.receive(*(question(each) for each in range(number)))

    def holds(folder: str, least: int) -> bool:
        return len(shared.files(folder)) >= least

    # Killed as soon as the first notes, drafts or sends show: in the middle of the work, not before it.
    for folder, least in (("Needs_Action", 1), ("Drafts", 6), ("Drafts", 14)):
        worker = shared.start()
        until(partial(holds, folder, least))
        ended(worker, signal.SIGKILL)

    worker = shared.start()
    until(lambda: len(shared.files("Drafts")) == number)
    ended(worker, signal.SIGTERM)
    assert len(shared.files("Needs_Action")) == number
    for draft in shared.files("Drafts"):
        shared.move(draft, "Approved")
    worker = shared.start()
    until(lambda: len(shared.files("Done")) >= 4)
    ended(worker, signal.SIGTERM)
    shared.once()

    sent = [mail.subject for mail in shared.mails("in:sent")]
    assert len(sent) == len(set(sent)) == number, shared.home.command(
        "status", "--json"
    ).stdout
    done = [shared.properties(file) for file in shared.files("Done")]
    assert sum(each["type"] == "email" for each in done) == number
    assert [shared.files(folder) for folder in ("Needs_Action", "Drafts", "Approved")] == [
        [],
        [],
        [],
    ]


@requirement("orchestrator:failure")
@requirement("orchestrator:client")
@pytest.mark.parametrize("call", ["drafts.create", "drafts.send"])
def test_a_gmail_server_killed_during_a_send_sends_nothing_twice_and_nothing_is_called_sent(
    site: Site, call: str
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def hold(name: str) -> Slow | None:
        if name != call:
            return None
        entered.set()
        return Slow(60, until=go_on)

    office = Office(
        Home(site.home.vault, site.home.environment | {"DESKHAND_POLL_SECONDS": "1"})
    )
    site.gmail.account.deliver(question())
    office.once()
    draft = office.move(office.only("Drafts"), "Approved")
    site.gmail.chance = hold
    worker = office.start(sys.executable)
    assert entered.wait(60)
    server = _server_of(worker.pid)
    site.gmail.chance = lambda _: None
    subprocess.run(["kill", "-KILL", str(server)], check=True)
    log = office.vault / "Logs"
    until(lambda: list(log.glob("orchestrator_*.jsonl")))
    ended(worker, signal.SIGTERM)
    go_on.set()

    assert [file.name for file in (office.vault / "Approved").rglob("*.md")] == [draft.name]
    assert office.properties(office.only("Needs_Action"))["status"] == "drafted"
    assert office.files("Done") == []
    assert office.status()["sends"] == {"sending": 1}

    desk = office.desk()
    moment = round(LEASE.total_seconds() * 1000)
    desk.store.write_sync(
        lambda tx: tx.execute(
            "UPDATE requests SET lease = lease - ?, due = due - ?", moment, moment
        )
    )
    desk.close()
    office.once()
    assert len(site.gmail.delivered) == 1
    assert len(office.files("Done")) == 2


@requirement("orchestrator:crash")
def test_a_draft_that_is_answered_before_its_mail_is_filed_counts_as_answered_afterwards(
    site: Site,
) -> None:
    office = Office(Home(site.home.vault, site.home.environment))
    site.gmail.account.deliver(question())
    site.gmail.chance = lambda name: Status(503) if name == "messages.modify" else None
    office.once()
    office.move(office.only("Drafts"), "Approved")
    office.once()
    assert len(site.gmail.delivered) == 1
    assert office.status()["mails"] == {"decided": 1}
    site.gmail.chance = lambda _: None
    for _ in range(2):
        office.once()
    assert office.status()["mails"] == {"answered": 1}
    assert len(office.files("Done")) == 2


def _server_of(pid: int) -> int:
    (child,) = [
        int(each)
        for file in Path(f"/proc/{pid}/task").glob("*/children")
        for each in file.read_text().split()
        if "gmail" in Path(f"/proc/{each}/cmdline").read_text()
    ]
    return child


@requirement("orchestrator:doorbell")
@requirement("orchestrator:drains")
def test_a_mail_that_arrives_has_its_note_at_once_and_sigterm_drains(
    office: Office,
) -> None:
    worker = office.start(MCP_LOG_LEVEL="WARNING")
    until((office.vault / "Dashboard.md").exists)
    office.receive(question())
    took = until(lambda: office.files("Needs_Action"))
    ended(worker, signal.SIGTERM)
    assert worker.returncode == 0
    print(f"local: {took:.2f} s")  # noqa: T201 - a figure
    assert took < 2


@requirement("orchestrator:doorbell")
def test_on_imap_the_server_itself_rings(home: Home) -> None:
    with Dovecot() as server, Relay(server) as relay:
        office = Office(Home(home.vault, home.environment | server.environment(relay)))
        worker = office.start()
        until(lambda: "ok" in _state(office).get("mailbox", ""))
        server.deliver(question())
        took = until(lambda: office.files("Drafts"))
        ended(worker, signal.SIGTERM)
    assert worker.returncode == 0
    print(f"imap: {took:.2f} s")  # noqa: T201 - a figure
    assert took < 2
    assert office.properties(office.only("Drafts"))["to"] == "ann@example.org"


def _state(office: Office) -> dict[str, str]:
    file = office.vault / "Logs" / "orchestrator_state.json"
    found: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return found


@requirement("orchestrator:status")
def test_status_and_the_dashboard_show_counts_what_waits_and_no_live_links_of_strangers(
    office: Office,
) -> None:
    office.receive(question(), letter(subject="Hm [[Approved/x]]", message_id="<h@x>"))
    office.passes()

    found = office.status()
    assert (found["folders"]["Needs_Action"], found["folders"]["Drafts"]) == (2, 1)
    assert found["mails"] == {"drafted": 1, "needs_info": 1}
    (waiting,) = found["waiting"]
    assert waiting["what"] == "draft to ann@example.org"
    assert waiting["age_seconds"] >= 0
    page = (office.vault / "Dashboard.md").read_text()
    assert "| Needs_Action | 2 |" in page
    assert "drafted reply to ann@example.org" in page
    assert not re.search(r"last mail: 20..-", page)
    assert "[[" not in page
    assert "cursor" in _state(office)
    shown = office.home.command("status").stdout
    assert re.search(r"^  Needs_Action +2$", shown, re.MULTILINE)
    assert "\nWaiting for you\n\n- drafted reply to ann@example.org" in shown
    assert not re.search(r"^[|#]|\|$", shown, re.MULTILINE)
    assert "No desk runs here" not in shown


@requirement("orchestrator:status")
def test_status_says_that_no_desk_runs(office: Office) -> None:
    says = "No desk runs here: what you approve waits until `deskhand up` starts it."
    assert says in office.home.command("status").stdout


@requirement("orchestrator:status")
def test_a_desk_that_was_killed_is_missed_at_once(office: Office) -> None:
    says = "No desk runs here: what you approve waits until `deskhand up` starts it."
    office.receive(question())
    office.passes()
    card = json.loads(office.home.command("approvals", "--json").stdout)
    assert says not in office.home.command("status").stdout
    left = office.home.path / "running.json"
    left.write_text('{"pid": 1, "port": 2, "down": {}}')
    yes = office.home.command("approve", card["id"])

    assert (yes.returncode, yes.stderr) == (0, f"{says}\n")
    assert says in office.home.command("status").stdout


@requirement("orchestrator:rest")
def test_a_thousand_waiting_approvals_cost_next_to_nothing(office: Office) -> None:
    _thousand(office)
    worker = office.start(sys.executable, MCP_LOG_LEVEL="ERROR")
    until((office.vault / "Dashboard.md").exists)
    began, used = time.monotonic(), _cpu(worker.pid)
    threading.Event().wait(5)
    share = (_cpu(worker.pid) - used) / (time.monotonic() - began)
    ended(worker, signal.SIGTERM)
    print(f"at rest: {share:.2%} of a core")  # noqa: T201 - a figure
    assert "1000" in (office.vault / "Dashboard.md").read_text()
    assert share < 0.01


def _thousand(office: Office) -> None:
    """Real requests, each proposed to the gate and sealed by it."""

    async def propose() -> list[Outcome]:
        desk = office.desk()
        try:
            asked = [
                SendEmail(to=f"p{n}@example.org", subject=f"Request {n}", body="Hello.")
                for n in range(1000)
            ]
            return await asyncio.gather(
                *(desk.gate.propose(each, "test") for each in asked)
            )
        finally:
            await desk.close_mailbox()
            desk.close()

    assert all(isinstance(outcome, NotApproved) for outcome in asyncio.run(propose()))
    assert len(office.files("Pending_Approval")) == 1000
    assert "seal:" in office.files("Pending_Approval")[0].read_text()


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@requirement("orchestrator:rules")
@requirement("orchestrator:pending-notes")
def test_while_the_rules_have_errors_mails_wait_and_what_is_approved_leaves(
    office: Office,
) -> None:
    office.receive(question(1))
    office.passes()
    rules = office.home.path / "rules.toml"
    good = rules.read_text()
    rules.write_text("broken = [")
    worker = office.start(MCP_LOG_LEVEL="WARNING")
    office.move(office.only("Drafts"), "Approved")
    office.receive(question(2))
    until(lambda: office.mails("in:sent"))
    until(lambda: "rules.toml" in _dashboard(office))
    assert office.files("Drafts") == []

    rules.write_text(good.replace("I will look into it.", "I have new rules."))
    until(lambda: office.files("Drafts"))
    assert "I have new rules." in office.only("Drafts").read_text()

    incomplete = office.vault / "Needs_Action" / "other.md"
    incomplete.write_text(
        "---\nstatus: pending\nfrom: bob@example.org\nsubject: A question\n---\n"
    )
    until(lambda: "other.md: it has no message_id" in _dashboard(office))
    with incomplete.open("w") as file:
        file.write(
            "---\nstatus: pending\nfrom: bob@example.org\nsubject: A question\nmessage_id: m9\n---\n"
        )
    took = until(lambda: len(office.files("Drafts")) == 2)
    ended(worker, signal.SIGTERM)
    assert worker.returncode == 0
    assert took < 10


def _dashboard(office: Office) -> str:
    """Its words: a stranger's may be escaped."""
    return (office.vault / "Dashboard.md").read_text().replace("\\", "")
