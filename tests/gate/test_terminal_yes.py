"""The person at a terminal: the mail is shown and asked about, a yes rests, and mail is read and brought in."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gate.site import HELLO, said
from tests.gate.test_cards import Study, asked, sent, study
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
        assert no.end() != 0

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
        assert thought_better.end() != 0
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
    assert "\u202e" not in shown
    assert (
        json.loads(home.command("mail", "read", "--json", mails[0]["id"]).stdout)[
            "summary"
        ]["id"]
        == mails[0]["id"]
    )
    assert home.command("mail", "read", "nothing").returncode != 0
