"""What a person reads: each state, action and result by one name, on every surface, and no code of the desk's own."""

import json
import re
from html import unescape
from typing import Any, get_args

import pytest

from deskhand import audit, wording
from deskhand.app import Desk
from deskhand.audit import Entry, Result
from deskhand.gate import ledger, requests
from deskhand.gate.actions import Mail
from deskhand.orchestrator import status, steps
from deskhand.store import Transaction
from tests.gate.site import Clock
from tests.gate.waiting import proposed
from tests.orchestrator.office import Office
from tests.requirements import requirement
from tests.web.person import Person
from tests.web.test_approvals_page import clock as clock  # noqa: PLC0414 - a fixture
from tests.web.test_approvals_page import desk as desk  # noqa: PLC0414 - a fixture
from tests.web.test_approvals_page import person as person  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.anyio
NOT_DONE = "rate_limited: 10 mails left in the last hour"
CODE = re.compile(r"(?<![\w.@/*-])(?:[a-z]+(?:_[a-z]+)+|held|success)(?![\w.@/*-])")
"""A word that is a code: of small letters with underscores between them, or one of those that nobody says."""
FOLDS = re.compile(r"<details.*?</details>|<head>.*?</head>|<script.*?</script>", re.DOTALL)


def read_codes(text: str) -> set[str]:
    return set(CODE.findall(text))


def read_page(page: str) -> str:
    """What stands there to read; the details of a line keep the record's own words."""
    return unescape(re.sub(r"<[^>]*>", " ", FOLDS.sub("", page)))


def fill(tx: Transaction, now: Any) -> None:
    """A request in each state, a mail in each state, and lines of each action with each result."""
    for number, state in enumerate(get_args(requests.State)):
        mail = Mail(
            kind="send_email",
            account="me@example.com",
            to=f"ann{number}@example.org",
            subject=f"Letter {number}",
            body="Dear Ann\n",
        )
        known = {"proposed": mail, "action": mail, "digest": mail.digest, "due": now}
        made = proposed(
            f"{number:016x}",
            f"ann{number}@example.org",
            now,
            asked=mail.digest,
            **known,
            state=state,
            asked_by="email_mcp",
            error=NOT_DONE if state == "approved" else None,
        )
        assert ledger.insert(tx, made)
    for number, state in enumerate(get_args(steps.State)):
        facts = steps.MailFacts(message_id=f"{number}", note=f"note {number}")
        assert steps.add(tx, steps.name_key("local", f"{number}"), facts, now)
        change = "UPDATE steps SET state = ?, due = NULL, error = ? WHERE key = ?"
        tx.execute(change, state, NOT_DONE, f"mail:local:{number}")
    actors = ["person", *wording._ACTORS, "rule:lists", "desk"]
    for number, action in enumerate([*wording._ACTIONS, "create_task", "gh_open_issue"]):
        for result in get_args(Result):
            error = None if result == "success" else NOT_DONE
            by = actors[number % len(actors)]
            entry = Entry.of(now, by, action, "task 1", error=error, result=result)
            audit.append(tx, entry)


@requirement("words:one")
def test_every_state_and_result_of_the_desk_has_one_name() -> None:
    assert set(wording.STATES) == {*get_args(requests.State), "snoozed"}
    assert set(wording.MAILS) == set(get_args(steps.State))
    assert set(wording.RESULTS) == set(get_args(Result))
    assert wording.name_state("sent", "call_tool") == "done"
    assert wording.name_action("gh_open_issue") == "Gh open issue"
    assert wording.plain_error("not_found: no such note") == "no such note"
    assert wording.plain_error("To whom: nobody") == "To whom: nobody"


@requirement("words:one")
async def test_no_page_shows_a_code_where_it_means_a_state_an_action_or_a_result(
    desk: Desk, person: Person
) -> None:
    await desk.store.write(fill, desk.now())
    cards = [f"/approvals/{number:016x}" for number in range(len(get_args(requests.State)))]
    found = {}
    for path in (
        "/",
        "/snoozed",
        "/decided",
        "/timeline",
        "/checkup",
        "/follow-ups",
        *cards,
    ):
        answer = await person.reads(path)
        assert answer.status_code == 200, path
        found[path] = read_codes(read_page(answer.text))
    assert found == {path: set() for path in found}

    line = (await person.reads("/timeline?action=reply_email&result=rate_limited")).text
    assert '<option value="reply_email" selected>Reply to a mail</option>' in line
    assert '<option value="rate_limited" selected>over the limit</option>' in line
    words = read_page(line)
    assert "Reply to a mail over the limit" in re.sub(r"\s+", " ", words)
    assert "10 mails left in the last hour" in words
    # The record's own words are behind Details, and its codes in the address.
    assert "reply_email, rate_limited" in line


@requirement("words:one")
async def test_the_terminal_and_the_dashboard_name_states_as_the_page_does(
    office: Office, desk: Desk
) -> None:
    await desk.store.write(fill, desk.now())
    run = office.home.command
    shown = {
        "status": run("status").stdout,
        "approvals": run("approvals").stdout,
        "log": run("log", "--limit", "500").stdout,
        "show": run("show", f"{1:016x}").stderr,
        "dashboard": status.page(await status.facts(desk), desk.now()).partition("# ")[2],
    }
    assert {name: read_codes(text) for name, text in shown.items()} == {
        name: set() for name in shown
    }

    assert re.search(r"^  to decide +2$", shown["status"], re.MULTILINE)
    assert "- new mail to ann0@example.org: Letter 0" in shown["status"]
    assert "10 mails left in the last hour (tried 0 times)" in shown["status"]
    assert "state: approved" in shown["show"]
    assert "Reply to a mail  task 1  over the limit  10 mails left" in shown["log"]
    facts = json.loads(run("status", "--json").stdout)
    assert (facts["mails"]["needs_info"], facts["errors"][0]["error"]) == (1, NOT_DONE)
    lines = [json.loads(line) for line in run("log", "--json").stdout.splitlines()]
    assert {line["result"] for line in lines} == set(get_args(Result))


@requirement("words:one")
async def test_what_failed_says_what_it_is_and_what_to_write(
    desk: Desk, person: Person
) -> None:
    await desk.store.write(lambda tx: fill(tx, desk.now()))
    for path in ("/approvals/none", "/notes/open?path=None.md", "/nowhere"):
        absent = await person.reads(path)
        assert absent.status_code == 404
        assert "<h1>Not found</h1>" in absent.text
        assert "`" not in read_page(absent.text), path
    refused = await person.sends(
        "/approvals/0000000000000005/follow-up", {"when": "soonish"}
    )
    words = read_page(refused.text)

    assert refused.status_code == 422
    assert "“soonish” is no time until which an answer is awaited." in words
    assert "Write 30m, 2h, 3d, fri 14:00 or 2026-12-24T09:00." in words
    assert "cannot be read" not in words


@requirement("passkey:page")
async def test_without_a_password_the_passkeys_page_says_how_to_sign_in_afresh(
    person: Person, clock: Clock
) -> None:
    fresh = (await person.reads("/passkeys")).text
    clock.pass_by(minutes=16)
    later = (await person.reads("/passkeys")).text
    refused = await person.sends("/passkeys/codes", at="/passkeys")

    assert "deskhand link" not in fresh
    for text in (later, refused.text):
        assert "<code>deskhand link</code>, in a terminal of this machine, prints" in text
        assert "ype the password" not in text
    assert refused.status_code == 403


@requirement("page:timeline")
@requirement("words:one")
async def test_the_timeline_finds_an_address_and_names_what_its_lines_are_about(
    desk: Desk, person: Person
) -> None:
    for actor, action, target in (
        ("email_mcp", "send_email", audit.masked("nora@example.org")),
        ("orchestrator", "decide_mail", "work~m6afc2aeb000000"),
        ("orchestrator", "reply_to_mail", "thread t6afc2aeb000000"),
        ("guard_mcp", "call_tool", "github/create_issue"),
        ("person", "alpha", "Projects/garden_shed.md"),
    ):
        await desk.record(actor, action, target, {}, None, 0)
    await desk.record(
        "person", "decide_mail", "m6afc2aeb000001", {"done": "later"}, None, 0
    )
    by_address = (await person.reads("/timeline?text=Nora%40example.org")).text
    by_another = (await person.reads("/timeline?text=nora%40example.com")).text
    by_name = (await person.reads("/timeline?text=nora")).text
    shown = read_page((await person.reads("/timeline")).text)

    hint = "search for the whole address, or for its domain"
    assert ("n***@example.org" in by_address, hint in by_address) == (True, False)
    assert "n***@example.org" not in by_another
    assert "Nothing suits." in by_name
    assert hint in by_name
    whole = (await person.reads("/timeline")).text
    assert '<a href="/mail/m6afc2aeb000001">a mail</a>' in whole
    assert '<a href="/thread/t6afc2aeb000000">a conversation</a>' in whole
    for words in (
        "Put off",
        "a mail in work",
        "a conversation",
        "create issue, of github",
        "Projects/garden_shed.md",
    ):
        assert words in shown
    assert not re.search(r"orchestrator|m6afc2aeb|t6afc2aeb|create_issue", shown)
