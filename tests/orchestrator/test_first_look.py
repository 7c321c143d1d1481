"""The first `deskhand up`: it asks before it brings mail in."""

import json

from tests.gate.test_terminal_yes import Keyboard
from tests.mail.letters import letter
from tests.orchestrator.office import Office
from tests.orchestrator.test_running import until
from tests.requirements import requirement


@requirement("decide:first")
def test_a_terminal_asks_at_the_first_start_and_the_desk_runs_meanwhile(
    office: Office,
) -> None:
    office.receive(
        letter(subject="Hm", message_id="<1@x>"), letter(subject="Ah", message_id="<2@x>")
    )
    desk = Keyboard(office.home, "up", "--no-browser", "--port", "0")
    desk.wait_for("open http")
    desk.wait_for(
        "2 unread mails of the last 3650 days in me@example.com: bring them in? Answer on the page, or by"
    )
    assert " started" not in desk.shown  # the parts by their names are for the log
    asked = json.loads(office.home.command("mail", "bring-in", "--json").stdout)
    assert asked == [
        {"mailbox": "local:me@example.com", "unread": 2, "days": 3650, "answer": None}
    ]
    told = office.home.command("mail", "bring-in").stdout
    assert told.endswith(
        "bring them in?\n`deskhand mail bring-in all | new | none` answers.\n"
    )
    assert office.files("Needs_Action") == []

    office.receive(letter(subject="Since", message_id="<3@x>"))
    for answer, says in (
        ("none", "Nothing of me@example.com is brought in until you say so.\n"),
        (
            "new",
            "What comes to me@example.com from now on is brought in; the 2 unread mails before stay.\n",
        ),
    ):
        done = office.home.command("mail", "bring-in", answer)
        assert (done.returncode, done.stdout) == (0, says)
    until(lambda: office.files("Needs_Action"))
    desk.interrupt()
    desk.end()
    assert "since" in office.only("Needs_Action").name
    assert (
        "There is nothing to answer"
        in office.home.command("mail", "bring-in", "none").stdout
    )
