"""The local mailbox and what is imported into it."""

import asyncio
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deskhand.errors import AuthRequired, InvalidInput, NotFound, SendFailed, Unavailable
from deskhand.mail import NotSent, Sent, Unclear
from deskhand.mail.local import Incoming, LocalMailbox
from tests.home import Home
from tests.mail.letters import DATE, letter, outgoing, unwritten
from tests.requirements import requirement
from tests.warm import warm_python

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 2, 24, 12, tzinfo=UTC)


@pytest.fixture
async def mailbox(tmp_path: Path) -> AsyncIterator[LocalMailbox]:
    made = LocalMailbox(tmp_path / "home" / "mail.db", "me@example.com", lambda: NOW)
    yield made
    await made.close()


async def found(mailbox: LocalMailbox, query: str) -> list[str]:
    return [mail.subject for mail in await mailbox.search(query, 50)]


def at(day: int, **changes: str) -> Incoming:
    return Incoming(letter(**changes), seen=False, dated=NOW - timedelta(days=day))


async def test_each_operator_finds_what_it_names(mailbox: LocalMailbox) -> None:
    await mailbox.receive(
        [
            at(
                1,
                sender="Ann Lee <ann@example.org>",
                subject="One",
                body="invoice for January",
                message_id="<1@x>",
            ),
            at(
                10,
                sender="bob@example.net",
                subject="Two",
                body="an Invoice, später",
                attachment="Report.pdf",
            ),
            Incoming(
                letter(subject="Three", body="東京都に行く", to="cy@example.net"),
                seen=True,
                dated=NOW,
            ),
        ]
    )

    for query, subjects in {
        "": ["Three", "One", "Two"],
        "invoice": ["One", "Two"],
        "INVOICE -spater": ["One"],
        '"invoice for"': ["One"],
        '"for invoice"': [],
        "report.pdf": ["Two"],
        "東京": ["Three"],
        "都に": ["Three"],
        "from:ann": ["Three", "One"],
        "from:ann@example.org lee": ["One"],
        "to:cy@example.net": ["Three"],
        "subject:two": ["Two"],
        "subject:invoice": [],
        "is:unread": ["One", "Two"],
        "is:read": ["Three"],
        "in:inbox is:unread invoice": ["One", "Two"],
        "has:attachment": ["Two"],
        "newer_than:2d": ["Three", "One"],
        "older_than:2d": ["Two"],
        "after:2026/02/23 before:2026/02/24": ["One"],
        "rfc822msgid:1@x": ["One"],
        "rfc822msgid:<1@x>": ["One"],
        "subject:(one OR two)": ["One", "Two"],
        "subject:three OR has:attachment": ["Three", "Two"],
        "{from:bob 東京}": ["Three", "Two"],
        "-has:attachment -subject:one": ["Three"],
        "label:nowhere": [],
        "!!!": [],
        'a"b': [],
    }.items():
        if query.count('"') % 2:
            with pytest.raises(InvalidInput):
                await mailbox.search(query, 50)
        else:
            assert await found(mailbox, query) == subjects, query


async def test_trash_is_out_of_sight_but_not_gone(mailbox: LocalMailbox) -> None:
    await mailbox.receive([at(1, subject="One"), at(2, subject="Two")])
    (one, _) = await mailbox.search("", 2)

    await mailbox.move(one.id, "trash")

    assert await found(mailbox, "") == ["Two"]
    assert await found(mailbox, "in:trash") == ["One"]
    assert await found(mailbox, "in:anywhere") == ["One", "Two"]


async def test_labels_have_one_spelling_and_sending_ones_cannot_be_forged(
    mailbox: LocalMailbox,
) -> None:
    await mailbox.receive([at(1)])
    (mail,) = await mailbox.search("", 1)

    await mailbox.add_label(mail.id, "Work/Später")
    await mailbox.add_label(mail.id, "WORK/SPÄTER")

    assert (await mailbox.search("label:work/später", 1))[0].labels == (
        "INBOX",
        "UNREAD",
        "Work/Später",
    )
    for label in ("", " ", "a\nb", "x" * 226, "sent", "DRAFT"):
        with pytest.raises(InvalidInput):
            await mailbox.add_label(mail.id, label)


@requirement("local:verbatim")
async def test_bytes_are_kept_as_they_came(mailbox: LocalMailbox, tmp_path: Path) -> None:
    mails = [letter(), b"\xff\0\r\n\r nonsense", b"", letter().replace(b"\r\n", b"\n")]
    assert await mailbox.receive([Incoming(raw, seen=True) for raw in mails]) == 4
    assert await mailbox.receive([Incoming(raw, seen=True) for raw in mails]) == 0

    with sqlite3.connect(tmp_path / "home" / "mail.db") as db:
        kept = [raw for (raw,) in db.execute("SELECT bytes FROM raw")]
    db.close()
    assert sorted(kept) == sorted(mails)
    assert (tmp_path / "home" / "mail.db").stat().st_mode & 0o777 == 0o600
    for mail in await mailbox.search("", 10):
        assert (await mailbox.get(mail.id)).summary == mail


async def test_threads_form_in_whatever_order_the_mails_come(mailbox: LocalMailbox) -> None:
    last = at(1, subject="Re: Re: A", message_id="<3@x>", references="<1@x> <2@x>")
    first = at(3, subject="A", message_id="<1@x>")
    middle = at(2, subject="Re: A", message_id="<2@x>", references="<1@x>")
    other = at(4, subject="B", message_id="<4@x>")

    await mailbox.receive([last, first, other, middle])

    (mail, *_) = await mailbox.search("", 1)
    assert [each.subject for each in await mailbox.thread(mail.thread_id)] == [
        "A",
        "Re: A",
        "Re: Re: A",
    ]


async def test_a_date_in_the_future_does_not_stay_on_top(mailbox: LocalMailbox) -> None:
    await mailbox.receive(
        [Incoming(letter(subject="Later"), seen=True, dated=NOW + timedelta(days=9999))]
    )

    assert (await mailbox.search("", 1))[0].date == NOW


@requirement("local:never-twice")
async def test_a_token_sends_once_and_only_what_was_prepared(mailbox: LocalMailbox) -> None:
    mail, other = outgoing(), outgoing(body="something else", action_id="act-2")
    token = await mailbox.prepare(mail)

    assert await mailbox.check(token, mail) == NotSent(token)
    with pytest.raises(SendFailed):
        await mailbox.send(token, other, unwritten)
    sent = await mailbox.send(token, mail, unwritten)

    assert (
        await mailbox.send(token, mail, unwritten)
        == sent
        == await mailbox.check(token, mail)
    )
    assert isinstance(await mailbox.check("unknown", mail), Unclear)
    assert await found(mailbox, "in:sent") == ["Hello"]


RACE = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from deskhand.mail.local import LocalMailbox
from tests.mail.letters import outgoing, unwritten

async def main():
    mailbox = LocalMailbox(Path(sys.argv[1]), "me@example.com", lambda: datetime(2026, 2, 24, tzinfo=UTC))
    print("ready", flush=True)
    sys.stdin.readline()
    for token in sys.argv[2:]:
        print(await mailbox.send(token, outgoing(), unwritten), flush=True)

asyncio.run(main())
"""


def racer(file: Path, *tokens: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RACE, str(file), *tokens]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    started = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        bufsize=1,
    )
    assert started.stdout.readline() == "ready\n"
    return started


@requirement("local:never-twice")
async def test_racing_processes_send_each_token_once(
    mailbox: LocalMailbox, tmp_path: Path
) -> None:
    tokens = [await mailbox.prepare(outgoing()) for _ in range(20)]
    racers = [racer(tmp_path / "home" / "mail.db", *tokens) for _ in range(3)]
    for each in racers:
        each.stdin.write("go\n")
    answers = [each.communicate(timeout=60)[0].splitlines() for each in racers]

    assert answers[0] == answers[1] == answers[2]
    assert len(set(answers[0])) == 20
    assert len(await mailbox.search("in:sent", 100)) == 20


@requirement("local:never-twice")
async def test_a_killed_sender_leaves_each_mail_sent_once_or_not_at_all(
    mailbox: LocalMailbox, tmp_path: Path
) -> None:
    tokens = [await mailbox.prepare(outgoing()) for _ in range(60)]
    sender = racer(tmp_path / "home" / "mail.db", *tokens)
    sender.stdin.write("go\n")
    for _ in range(5):
        sender.stdout.readline()
    sender.send_signal(signal.SIGKILL)
    sender.communicate()

    seen = [await mailbox.check(token, outgoing()) for token in tokens]
    assert (
        sum(isinstance(each, Sent) for each in seen)
        == len(await mailbox.search("in:sent", 100))
        >= 5
    )
    for token in tokens:
        await mailbox.send(token, outgoing(), unwritten)
    assert len(await mailbox.search("in:sent", 100)) == 60


async def test_many_searches_and_writes_at_once_do_not_disturb_each_other(
    mailbox: LocalMailbox,
) -> None:
    async def send(number: int) -> None:
        mail = outgoing(
            to="me@example.com", subject=f"Mail {number}", action_id=f"act-{number}"
        )
        await mailbox.send(await mailbox.prepare(mail), mail, unwritten)

    await asyncio.gather(
        *(send(number) for number in range(20)),
        *(mailbox.search("mail", 50) for _ in range(20)),
    )

    assert len(await mailbox.search("in:inbox is:unread subject:mail", 50)) == 20


async def test_a_damaged_mailbox_gives_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "mail.db").write_bytes(b"not a database" * 100)

    with pytest.raises(Unavailable, match="local mailbox"):
        LocalMailbox(tmp_path / "mail.db", "me@example.com", lambda: NOW)


@pytest.mark.parametrize(
    "name", ["m1", "mffffffffffffffff", "t1", "", "x", "m1 ", "m'; DROP TABLE mail"]
)
async def test_an_id_that_is_none_is_not_found(mailbox: LocalMailbox, name: str) -> None:
    await mailbox.receive([at(1)])

    with pytest.raises(NotFound):
        await mailbox.get(name)
    with pytest.raises(NotFound):
        await mailbox.thread(name)
    with pytest.raises(NotFound):
        await mailbox.create_draft(letter(), name)
    assert len(await mailbox.search("", 10)) == 1


# The command line


def test_a_desk_without_an_address_has_no_mailbox(home: Home) -> None:
    environment = {
        key: value for key, value in home.environment.items() if key != "DESKHAND_ADDRESS"
    }
    done = Home(home.vault, environment).command("mail", "search")

    assert done.returncode == AuthRequired.exit_code
    assert "DESKHAND_ADDRESS" in done.stderr


def maildir(folder: Path) -> Path:
    for name in ("cur", "new", "tmp"):
        (folder / name).mkdir(parents=True)
    (folder / "cur" / "1.a:2,S").write_bytes(letter(subject="Seen"))
    (folder / "cur" / "2.a:2,").write_bytes(letter(subject="Unseen"))
    (folder / "new" / "3.a").write_bytes(letter(subject="New"))
    (folder / "tmp" / "4.a").write_bytes(letter(subject="Half"))
    (folder / "dovecot.index.log").write_bytes(b"\0\1\2")
    return folder


def mbox(file: Path) -> Path:
    first = letter(
        subject="First", body="Dear all,\n\nFrom here on\nit is quoted.\n"
    ).replace(b"\r\n", b"\n")
    second = b"Status: RO\n" + letter(subject="Second", body="x").replace(b"\r\n", b"\n")
    quoted = first.replace(b"\nFrom here", b"\n>From here")
    file.write_bytes(
        b"From a@x Mon Feb  2 10:00:00 2026\n"
        + quoted
        + b"\nFrom - Tue Feb  3 10:00:00 2026\n"
        + second
        + b"\n"
    )
    return file


@requirement("mail:import")
async def test_an_imported_copy_of_what_the_person_sent_is_sent_mail_and_a_forged_one_is_not(
    tmp_path: Path,
) -> None:
    mailbox = LocalMailbox(tmp_path / "mail.db", "me@example.com", lambda: DATE)
    own = letter(sender="Me <Me@example.com>", to="ann@example.org", subject="Mine")
    traces = ["Received: from x by y; Mon, 2 Feb 2026 10:00:00 +0000", "Received: ?"]
    forged = [
        trace.encode()
        + b"\r\n"
        + letter(sender="me@example.com", to="thief@example.org", subject="Forged")
        for trace in (*traces, "Return-Path: <x@example.org>", "Delivered-To: me")
    ]
    reminder = letter(sender="me@example.com", subject="Reminder")
    mails = [Incoming(raw, False) for raw in (own, *forged, reminder)]
    assert await mailbox.receive(mails) == 6
    sent = {mail.subject for mail in await mailbox.search("in:sent", 9)}
    assert sent == {"Mine", "Reminder"}
    arrived = {mail.subject for mail in await mailbox.search("in:inbox", 9)}
    assert arrived == {"Forged", "Reminder"}


@requirement("mail:import")
def test_maildir_mbox_and_eml_are_imported_once(home: Home, tmp_path: Path) -> None:
    source = tmp_path / "old mail"
    maildir(source / "Maildir")
    mbox(source / "archive.mbox")
    (source / "one.eml").write_bytes(letter(subject="Eml"))
    (source / "notes.txt").write_text("not a mail")
    before = {file: file.read_bytes() for file in source.rglob("*") if file.is_file()}

    first = home.command(
        "mail", "import", str(source), "--json", DESKHAND_ADDRESS="me@example.com"
    )
    again = home.command(
        "mail", "import", str(source), "--json", DESKHAND_ADDRESS="me@example.com"
    )
    listed = home.command("mail", "search", "--json", DESKHAND_ADDRESS="me@example.com")

    assert json.loads(first.stdout) == {"imported": 6, "already_there": 0, "left_out": 2}
    assert "notes.txt: is not a mail" in first.stderr
    assert json.loads(again.stdout) == {"imported": 0, "already_there": 6, "left_out": 2}
    mails = {mail["subject"]: mail for mail in map(json.loads, listed.stdout.splitlines())}
    assert set(mails) == {"Seen", "Unseen", "New", "First", "Second", "Eml"}
    assert {
        subject for subject, mail in mails.items() if "UNREAD" not in mail["labels"]
    } == {"Seen", "Second"}
    assert all("INBOX" in mail["labels"] for mail in mails.values())
    assert mails["First"]["snippet"] == "Dear all, From here on it is quoted."
    assert mails["First"]["date"].startswith("2026-02-02 10:00:00")

    own_id = mails["First"]["id"]
    read = home.command("mail", "read", own_id, "--json", DESKHAND_ADDRESS="me@example.com")
    assert json.loads(read.stdout)["summary"] == mails["First"]
    assert mails["Eml"]["date"] == str(DATE)
    assert {
        file: file.read_bytes() for file in source.rglob("*") if file.is_file()
    } == before


@requirement("mail:import")
def test_what_holds_no_mail_is_refused(home: Home, tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 100)
    (tmp_path / "empty.eml").write_bytes(b"")

    for name in ("picture.png", "empty.eml", "nowhere"):
        done = home.command(
            "mail", "import", str(tmp_path / name), DESKHAND_ADDRESS="me@example.com"
        )
        assert done.returncode == (4 if name == "nowhere" else 2), name
        assert name in done.stderr


def test_a_person_sees_a_bar_and_then_the_mails(home: Home, tmp_path: Path) -> None:
    environment = home.environment | {"DESKHAND_ADDRESS": "me@example.com"}
    terminal, other_end = pty.openpty()
    command = [
        warm_python(),
        "-m",
        "deskhand",
        "mail",
        "import",
        str(mbox(tmp_path / "a.mbox")),
    ]

    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=other_end,
        text=True,
        check=True,
    )
    os.close(other_end)
    shown = os.read(terminal, 10_000).decode()
    os.close(terminal)
    listed = home.command("mail", "search", "is:unread", DESKHAND_ADDRESS="me@example.com")

    assert f"\r[{'#' * 30}] 2 mails" in shown
    assert done.stdout == "2 mails imported, 0 were already there.\n"
    assert listed.stdout.startswith(
        "Mon 2 Feb, 10:00   ● Ann <ann@example.org>  First\n    m"
    )


@requirement("mail:import")
def test_a_from_line_that_only_says_when_the_file_was_written_dates_no_mail(
    home: Home, tmp_path: Path
) -> None:
    lines = {
        "Daemon": b"From MAILER-DAEMON Mon Feb  2 10:00:00 2026\n",
        "Late": b"From a@x Mon Nov  2 10:00:00 2026\n",
        "Early": b"From a@x Mon Feb  2 10:00:00 2026\n",
        "Undated": b"From MAILER-DAEMON Mon Feb  2 10:00:00 2026\n",
    }
    mails = {
        name: letter(subject=name, message_id=f"<{name}@x>").replace(b"\r\n", b"\n")
        for name in lines
    }
    mails["Undated"] = mails["Undated"].replace(b"\nDate:", b"\nX-Date:")
    file = tmp_path / "archive.mbox"
    file.write_bytes(b"\n".join(lines[name] + mail for name, mail in mails.items()))
    assert (
        home.command(
            "mail", "import", str(file), DESKHAND_ADDRESS="me@example.com"
        ).returncode
        == 0
    )
    listed = home.command("mail", "search", "--json", DESKHAND_ADDRESS="me@example.com")
    dates = {
        mail["subject"]: mail["date"][:10]
        for mail in map(json.loads, listed.stdout.splitlines())
    }
    assert dates == {
        "Daemon": "2026-02-10",
        "Late": "2026-02-10",
        "Early": "2026-02-02",
        "Undated": "2026-02-02",
    }
