"""The person at a terminal: the mail is shown and asked about, a yes rests, and mail is read and brought in."""

import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mcp import Client

from deskhand.clock import iso, natural, utc_now
from deskhand.gate import ledger
from deskhand.gate.asking import open_request
from deskhand.gate.leaving import LeaveList
from deskhand.servers.desk import desk_server
from tests.gate.site import HELLO, said
from tests.gate.test_cards import Study, asked, sent, study
from tests.gate.waiting import drafted
from tests.home import Home
from tests.mail.letters import letter
from tests.requirements import requirement

pytestmark = pytest.mark.anyio
_ = study


class Keyboard:
    """`deskhand ARGUMENTS` on a terminal of its own."""

    def __init__(self, home: Home, *arguments: str, **variables: str) -> None:
        self._own, theirs = pty.openpty()
        command = [sys.executable, "-m", "deskhand", *arguments]
        environment = home.environment | variables
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """pytest's own limit ends a wait in vain."""
        while text not in self.shown:
            self.shown += os.read(self._own, 4096).decode()

    def type(self, text: str) -> None:
        os.write(self._own, text.encode())

    def interrupt(self) -> None:
        self._process.send_signal(2)

    def end(self) -> int:
        code = self._process.wait()
        os.close(self._own)
        return code


@requirement("terminal:asks")
async def test_a_terminal_shows_the_mail_asks_and_lets_the_yes_rest(study: Study) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        risky = await asked(
            desk,
            client,
            subject="Keys",
            body="see\u202e https://bank.example@evil.example/\n",
        )

        no = Keyboard(study.home, "approve", card.id)
        no.wait_for("[y/N] ")
        assert "see you at ten." in no.shown
        assert f"from: {card.account}" in no.shown
        assert "risk: medium" in no.shown
        no.type("n\n")
        no.wait_for("Nothing was approved: it still waits.")
        assert "error" not in no.shown
        assert no.end() == 2

        short = Keyboard(study.home, "approve", risky.id)
        short.wait_for("to approve it: ")
        short.type("y\n")
        assert short.end() != 0

        thought_better = Keyboard(
            study.home, "approve", card.id, DESKHAND_HOLD_SECONDS="600"
        )
        thought_better.wait_for("[y/N] ")
        thought_better.type("y\n")
        thought_better.wait_for("Ctrl-C takes it back")
        thought_better.interrupt()
        thought_better.wait_for("Taken back: it still waits for you.")
        assert thought_better.end() == 130
        assert {(await desk.waiting.card(each.id)).state for each in (card, risky)} == {
            "waiting"
        }

        yes = Keyboard(study.home, "approve", risky.id, DESKHAND_HOLD_SECONDS="0")
        yes.wait_for("to approve it: ")
        yes.type(f"{risky.digest[:8]}\n")
        yes.wait_for("approved")
        assert yes.end() == 0
        assert (await desk.waiting.card(risky.id)).state == "approved"
        assert await sent(desk) == []
        assert (await said(client, "send_email", **HELLO)).startswith("Rejected:")


@requirement("terminal:choices")
async def test_a_terminal_offers_the_choices_of_a_question_at_once(study: Study) -> None:
    async with (
        study.opened() as (desk, _),
        Client(desk_server(desk), mode="2026-07-28") as client,
    ):
        question = {"question": "Shall I tell you again?", "choices": ["Later", "Never"]}
        await client.call_tool("ask_person", question)
        ((card,), _) = await desk.waiting.cards()

        silent = Keyboard(study.home, "approve", card.id)
        silent.wait_for("Your answer, 1 to 2")
        assert "1  Later" in silent.shown
        assert "2  Never" in silent.shown
        assert silent.shown.count("Shall I tell you again?") == 1
        assert silent.shown.count("Later") == 1
        silent.type("\n")
        silent.wait_for("Nothing was answered: it still waits.")
        assert "error" not in silent.shown
        assert silent.end() == 2
        wrong = Keyboard(study.home, "approve", card.id)
        wrong.wait_for("Your answer, 1 to 2")
        wrong.type("3\n")
        wrong.wait_for("“3” is none of the choices")
        assert wrong.end() == 2
        in_a_script = study.home.command("approve", card.id)
        assert in_a_script.returncode == 2
        assert f"deskhand respond {card.id} Later`" in in_a_script.stderr
        assert (await desk.waiting.card(card.id)).state == "waiting"

        chosen = Keyboard(study.home, "approve", card.id)
        chosen.wait_for("Your answer, 1 to 2")
        chosen.type("2\n")
        assert chosen.end() == 0
        told = await client.call_tool("ask_person", question)
        assert told.structured_content["answer"] == "Never"
        late = study.home.command("respond", card.id, "Later")
        assert "is answered; nothing is left to decide." in late.stderr
        assert late.returncode == 5


@requirement("terminal:seen")
async def test_the_terminal_says_when_a_mail_with_a_time_of_its_own_leaves(
    study: Study,
) -> None:
    leaves = datetime.now(UTC).replace(hour=9, minute=0) + timedelta(days=3)
    told = leaves + timedelta(days=3)
    async with (
        study.opened() as (desk, _),
        Client(desk_server(desk), mode="2026-07-28") as client,
    ):
        study.clock.time = datetime.now(UTC)
        timed = HELLO | {"send_at": iso(leaves), "follow_up": "3d"}
        await client.call_tool("send_email", timed)
        ((card,), _) = await desk.waiting.cards()
        at, then = (natural(each, utc_now(), "UTC") for each in (leaves, told))
        line = study.home.command("approvals").stdout
        assert f"  leaves {at}  you are told {then} if unanswered" in line
        shown = study.home.command("show", card.id).stderr
        assert f"\nleaves: {at}, or at your yes where that comes later\n" in shown
        assert f"\nfollow-up: you are told {then} if nobody has answered by" in shown

        yes = Keyboard(study.home, "approve", card.id, DESKHAND_HOLD_SECONDS="1")
        yes.wait_for("[y/N] ")
        assert f"leaves: {at}, or" in yes.shown
        assert f"follow-up: you are told {then}" in yes.shown
        yes.type("y\n")
        yes.wait_for("It counts in 1 s; Ctrl-C takes it back.")
        yes.wait_for(f"leaves {at}")
        assert yes.end() == 0
        line = study.home.command("approvals").stdout
        assert f"  leaves {at}  you are told" in line
        assert line.count(at) == 1
        assert f"\nleaves: {at}\n" in study.home.command("show", card.id).stderr

        study.clock.pass_by(days=4)
        await desk.gate.release_due()
        shown = study.home.command("show", card.id).stderr
        assert "\nleft: " in shown
        assert f"\nwas to leave: {at}\n" in shown


@requirement("terminal:seen")
async def test_an_edited_mail_is_shown_with_its_files_before_the_yes(
    study: Study, tmp_path: Path
) -> None:
    (study.home.vault / "Plan.pdf").write_bytes(b"%PDF-1.7 plan")
    words = tmp_path / "words.txt"
    words.write_text("At eleven.\n")
    async with (
        study.opened() as (desk, _),
        Client(desk_server(desk), mode="2026-07-28") as client,
    ):
        await client.call_tool("send_email", HELLO | {"attachments": ["Plan.pdf"]})
        ((card,), _) = await desk.waiting.cards()
        edit = Keyboard(
            *(study.home, "edit", card.id, "--body-file", str(words)),
            DESKHAND_HOLD_SECONDS="0",
        )
        edit.wait_for("[y/N] ")
        assert "At eleven." in edit.shown
        assert "Plan.pdf" in edit.shown
        assert f"from: {card.account}" in edit.shown
        assert "risk: medium" in edit.shown
        edit.type("y\n")
        edit.wait_for("approved")
        assert edit.end() == 0


@requirement("terminal:seen")
async def test_a_terminal_says_that_a_yes_leaves_a_list(study: Study) -> None:
    desk = study.desk()
    leave = LeaveList(
        account="me@example.com",
        sender="News <news@news.example>",
        address="https://news.example/out?id=1",
        signed_by="news.example",
    )
    asked_for = open_request(leave, "desk_mcp", None, study.clock())
    desk.store.write_sync(lambda tx: ledger.insert(tx, asked_for))
    desk.close()
    no = Keyboard(study.home, "approve", asked_for.id)
    no.wait_for("[y/N] ")
    assert "what: leave a list" in no.shown
    assert "list: News <news@news.example>" in no.shown
    assert "host: news.example" in no.shown
    no.type("n\n")
    assert no.end() == 2


@requirement("terminal:beginning")
async def test_the_beginning_of_an_id_is_enough_where_it_is_only_one(study: Study) -> None:
    async with study.opened() as (desk, client):
        card = await asked(desk, client)
        start = card.id[:5]

        assert f"digest: {card.digest}" in study.home.command("show", start).stderr
        assert study.home.command("show", card.id[:3]).returncode == 4
        later = study.home.command("snooze", start, "2099-12-24T09:00")
        assert later.stdout.startswith(f"{card.id}  snoozed")
        assert study.home.command("snooze", start, "now").returncode == 0
        assert study.home.command("follow-up", "set", start, "2026-11-20").returncode == 0

        for unseen in ([], ["--yes"]):
            refused = study.home.command("approve", start, *unseen)
            assert refused.returncode == 2
            assert "wants the whole id" in refused.stderr
            assert card.id in refused.stderr
        edit = ["--subject", "New", "--approve"]
        assert study.home.command("edit", start, *edit).returncode == 2
        no = study.home.command("reject", start, "--json")
        assert json.loads(no.stdout)["id"] == card.id
        yes = study.home.command("approve", start, "--digest", card.digest)
        assert yes.returncode == 0, yes.stderr


@requirement("terminal:beginning")
async def test_a_beginning_of_several_ids_names_them(study: Study) -> None:
    desk = study.desk()
    several = [
        drafted(f"draft-{number}", "ann@example.org", study.clock()) for number in "12"
    ]
    for each in several:
        await desk.store.write(ledger.insert, each)
    desk.close()
    refused = study.home.command("reject", "draft-")
    assert refused.returncode == 2
    assert all(each.id in refused.stderr for each in several)


@requirement("terminal:mail")
def test_mail_is_brought_in_from_many_paths_listed_and_read(
    study: Study, tmp_path: Path
) -> None:
    files = [tmp_path / f"{number}.eml" for number in range(3)]
    for number, file in enumerate(files):
        file.write_bytes(
            letter(
                subject=f"Letter {number}",
                body="How\u202eare you?",
                message_id=f"<{number}@x.org>",
            )
        )
    home = study.home
    missing = home.command("mail", "import", str(files[0]), str(tmp_path / "none.eml"))
    assert missing.returncode != 0
    assert home.command("mail", "list", "--json").stdout == ""
    done = home.command("mail", "import", "--json", *map(str, files))
    assert json.loads(done.stdout)["imported"] == 3
    mails = [
        json.loads(line)
        for line in home.command("mail", "list", "--json").stdout.splitlines()
    ]
    assert {mail["subject"] for mail in mails} == {"Letter 0", "Letter 1", "Letter 2"}
    shown = home.command("mail", "read", mails[0]["id"]).stdout
    assert f"Subject: {mails[0]['subject']}" in shown
    date = datetime.fromisoformat(mails[0]["date"])
    assert f"\nDate: {natural(date, utc_now(), 'UTC')}\n" in shown
    assert "\u202e" not in shown
    assert (
        json.loads(home.command("mail", "read", "--json", mails[0]["id"]).stdout)[
            "summary"
        ]["id"]
        == mails[0]["id"]
    )
    assert home.command("mail", "read", "nothing").returncode != 0
