"""The gate between two of its steps: what another process or the person does in that very moment."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from deskhand.app import Desk
from deskhand.errors import Changed, SendFailed, UnderWay
from deskhand.gate import Failed, Gate, Released
from deskhand.gate.actions import SendEmail
from deskhand.gate.enclosures import enclose
from deskhand.gate.letters import Letter
from tests.gate.pair import pair
from tests.gate.site import HELLO, Interrupted, Site, said
from tests.mail.gmail_double import Cut, Slow
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

BUSY = "Error sending email: another process is sending this mail right now"
SENT = "Email sent successfully."


@requirement("gate:asks")
async def test_who_asks_in_the_moment_in_which_another_does_finds_that_request(
    site: Site,
) -> None:
    async with pair(site) as two:
        two.between.before.append(two.other_sends)
        answer = await two.send()
        assert answer.startswith("Rejected:")
        assert site.pending().name in answer
        site.pending().unlink()

        async def asked_and_approved() -> None:
            await two.other_sends(subject="Second")
            waiting, _ = await two.other.waiting.requests()
            (row,) = [row for row in waiting if row.action.subject == "Second"]
            await two.other.answers.approve_now(row.id, row.digest, "person")

        two.between.before.append(asked_and_approved)
        assert (await two.send(subject="Second")).startswith(BUSY)
        assert (await two.send(subject="Second")).startswith(SENT)
    assert [mail["Subject"] for mail in site.sent] == ["Second"]


@requirement("gate:rejected")
async def test_a_no_that_comes_before_the_requests_file_is_there_stays_a_no(
    site: Site,
) -> None:
    rejected: list[str] = []
    async with pair(site) as two:

        async def other_says_no() -> None:
            row = await two.open_row()
            rejected.append(row.id)
            await two.other.answers.reject(row.id, row.digest, "too early", "person")

        two.between.after.append(other_says_no)
        await two.send()
        await two.look()
        assert "too early" in await two.send()
        (file,) = site.files("Rejected")
        assert "status: rejected" in file.read_text()
        assert site.files("Pending_Approval") == []

        # The same where the desk ends before it can put the file where it belongs.
        file.write_text(
            file.read_text().replace("status: rejected", "status: pending_approval")
        )
        file.rename(site.home.vault / "Pending_Approval" / file.name)
        await two.look()
        assert "too early" in await two.send()
        assert len(site.files("Rejected")) == 1

        # The person, who moves it there as it lies in Rejected/, takes the no back.
        (file,) = site.files("Rejected")
        file.rename(site.home.vault / "Pending_Approval" / file.name)
        assert (await two.other.gate.find(rejected[0])).state == "waiting"


@requirement("gate:once")
async def test_what_left_before_its_file_was_there_has_its_file_in_done(site: Site) -> None:
    async with pair(site) as two:

        async def other_approves() -> None:
            row = await two.open_row()
            await two.other.answers.approve_now(row.id, row.digest, "person")
            assert isinstance(await two.other_sends(), Released)

        two.between.after.append(other_approves)
        await two.send()
        assert (len(site.sent), len(site.files("Done"))) == (1, 1)
        assert site.files("Pending_Approval") == []


@requirement("gate:once")
@requirement("gate:content-bound")
async def test_what_another_process_made_of_a_request_in_that_moment_holds(
    site: Site,
) -> None:
    async with pair(site) as two:
        await two.send()
        site.approve()
        two.between.before.append(two.other_sends)
        assert (await two.send()).startswith(SENT)
        assert len(site.sent) == 1

        site.clock.pass_by(minutes=11)
        await two.send()
        file = site.approve()
        file.write_text(file.read_text().replace("at ten", "at nine"))
        two.between.before.append(two.open_row)
        assert "The approval file was edited" in await two.send()
        row = await two.open_row()
        assert (row.revision, row.file) == (2, site.pending().name)

        async def other_edits() -> None:
            await two.other.answers.edit(
                row.id, row.digest, Letter(**HELLO | {"body": "At eight.\n"}), "person"
            )

        two.between.before.append(other_edits)
        with pytest.raises(Changed):
            await two.ours.answers.edit(
                row.id, row.digest, Letter(**HELLO | {"body": "At seven.\n"}), "person"
            )
        assert (await two.open_row()).action.body == "At eight.\n"

        await two.other.answers.approve_now(row.id, None, "person")
        two.between.before.append(two.other_sends)
        assert (await two.send()).startswith(BUSY)
    assert len(site.sent) == 2


@requirement("gate:withdrawn")
@requirement("gate:content-bound")
async def test_a_yes_that_is_taken_back_or_changed_in_the_moment_of_the_claim_sends_nothing(
    site: Site,
) -> None:
    async with pair(site) as two:
        await two.send()
        site.approve()
        two.between.after.append(two.take_back)
        assert (await two.send()).endswith("is gone")

        site.approve()
        two.between.before.append(two.take_back)
        assert (await two.send()).endswith("is gone")

        async def change() -> None:
            (file,) = site.files("Approved")
            file.write_text(file.read_text().replace("at ten", "at nine"))

        site.approve()
        two.between.before.append(change)
        assert (await two.send()).endswith("was changed in this moment")
        assert len(site.files("Approved")) == 1
        assert "The approval file was edited" in await two.send()
    assert site.sent == []


@requirement("gate:hand-written")
@requirement("gate:once")
async def test_a_hand_written_yes_that_vanishes_or_is_used_in_that_moment_releases_nothing(
    site: Site,
) -> None:
    async with pair(site) as two:
        os.utime(site.write("old.md", created="1"), (1, 1))
        newest = site.write("new.md", created="2")

        async def remove() -> None:
            newest.unlink()

        two.between.before.append(remove)
        assert (await two.send()).startswith(SENT)
        assert [file.name for file in site.files("Done")] == ["old.md"]

        site.clock.pass_by(minutes=11)
        site.write(created="3")
        two.between.before.append(lambda: two.other_sends(body="Another text.\n"))
        assert (await two.send()).startswith("Rejected: No matching approval file")

        site.write(to="bob@example.org", created="4")
        two.between.before.append(lambda: two.other_sends(to="bob@example.org"))
        assert (await two.send(to="bob@example.org")).startswith(BUSY)
    assert [mail.get_content().strip()[:7] for mail in site.sent] == [
        "Dear An",
        "Another",
        "Dear An",
    ]


@requirement("cards:told")
async def test_of_two_calls_in_one_moment_one_is_told_that_it_was_sent(site: Site) -> None:
    async with pair(site, DESKHAND_HOLD_SECONDS="0") as two:
        await two.send()
        row = await two.open_row()
        await two.other.answers.approve(row.id, row.digest, "person")
        two.between.before.append(two.other_sends)
        assert (await two.send()).startswith(SENT)
        log = [
            (line["actor"], line["action_type"], line["parameters"].get("told"))
            for line in site.log()
        ]
    asked = ("email_mcp", "send_email", None)
    assert log == [
        asked,
        asked,
        ("other", "send_email", True),
        ("email_mcp", "send_email", True),
    ]
    assert len(site.sent) == 1


@requirement("gate:takeover")
@requirement("gate:rate")
async def test_who_comes_back_after_another_took_over_neither_sends_nor_gives_the_rate_back(
    site: Site,
) -> None:
    async with pair(site, DESKHAND_MAX_SENDS="2") as two:

        async def taken_over() -> None:
            site.clock.pass_by(minutes=10)
            await two.other_sends()

        async def taken_over_and_refused() -> None:
            await taken_over()
            raise SendFailed("refused, much too late")

        inner = two.ours.mailbox
        for event, words in (
            (taken_over, "outcome unknown"),
            (taken_over_and_refused, "refused, much too late"),
        ):
            site.clock.pass_by(minutes=11)
            await two.send()
            site.approve()
            two.ours.mailbox = Interrupted(inner, event)
            assert (await two.send()).startswith(f"Error sending email: {words}")
        assert len(site.sent) == 2
        two.ours.mailbox = inner
        site.clock.pass_by(minutes=11)
        await two.send()
        site.approve()
        assert (await two.send()).startswith("Rejected: Rate limit exceeded")
    assert len(site.files("Done")) == 2


@requirement("gate:race")
async def test_a_file_whose_mail_is_being_sent_is_used_while_another_mail_leaves(
    site: Site,
) -> None:
    approved: list[list[Path]] = []
    async with pair(site) as two:
        site.write(subject=HELLO["subject"])

        async def another_leaves() -> None:
            site.write("other.md", subject="Other")
            await two.other_sends(subject="Other")
            approved.append(site.files("Approved"))

        two.interrupt(another_leaves)
        assert (await two.send()).startswith(SENT)
    assert [file.name for file in approved[0]] == ["yes.md"]
    assert [mail["Subject"] for mail in site.sent] == ["Other", HELLO["subject"]]
    assert sorted(file.name for file in site.files("Done")) == ["other.md", "yes.md"]


@requirement("gate:put-back")
async def test_a_mail_that_the_provider_never_takes_is_given_up_after_some_tries(
    site: Site,
) -> None:
    site.gmail.plan("drafts.send", *3 * [Cut(accepted=False)])
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        site.approve()
        answer = await said(client, "send_email", **HELLO)
        assert answer == "Error sending email: the provider did not take the mail"
        assert len(site.files("Approved")) == 1
        assert (await said(client, "send_email", **HELLO)).startswith(SENT)
    assert len(site.sent) == 1


@requirement("gate:unknown")
@requirement("gate:put-back")
async def test_a_mailbox_that_does_not_answer_in_time_loses_and_repeats_nothing(
    site: Site,
) -> None:
    answers = threading.Event()
    async with pair(site) as two:
        await two.send()
        site.approve()
        two.ours.gate = patient_for(two.ours, timedelta(seconds=2))
        site.gmail.plan("drafts.create", Slow(60, until=answers))
        assert (await two.send()).startswith(
            "Error sending email: the mailbox did not answer in time"
        )
        assert len(site.files("Approved")) == 1

        for call in ("drafts.send", "drafts.get"):
            site.gmail.plan(call, Slow(60, until=answers))
        assert (await two.send()).startswith(
            "Error sending email: outcome unknown; the mailbox did not say"
        )
        answers.set()
        assert (await two.other.gate.find((await two.open_row()).id)).state == "sending"
        assert (await two.send()).startswith(SENT)
    assert len(site.sent) == 1


def patient_for(desk: Desk, lease: timedelta) -> Gate:
    return Gate(desk.settings, desk.store, lambda: desk.mailbox, desk.door, desk.now, lease)


@requirement("gate:once")
async def test_a_mail_with_large_files_has_the_time_that_a_slow_line_takes_for_them(
    site: Site,
) -> None:
    content = os.urandom(400_000)
    letter = SendEmail(**HELLO, attachments=(enclose("large.bin", content),))
    others: list[object] = []
    async with pair(site) as two:
        for desk in (two.ours, two.other):
            desk.gate = patient_for(desk, timedelta(seconds=2))
        await two.ours.gate.keep_attachments([content])
        await two.ours.gate.propose(letter, "email_mcp")
        site.approve()

        async def other_tries() -> None:
            site.clock.pass_by(seconds=5)
            others.append(await two.other.gate.release((await two.open_row()).id, "other"))
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 1.5)

        two.interrupt(other_tries)
        assert isinstance(await two.ours.gate.propose(letter, "email_mcp"), Released)
    (other,) = others
    assert isinstance(other, Failed)
    assert isinstance(other.error, UnderWay)
    assert len(site.sent) == 1


@requirement("gate:once")
async def test_a_file_that_an_earlier_version_had_put_aside_is_a_yes_like_any_other(
    site: Site,
) -> None:
    sending = site.home.vault / "Approved" / ".sending"
    sending.mkdir(parents=True)
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        file = site.approve()
        # It died behind the rename and before the commit; of the other file nobody knows any more.
        file.rename(sending / f"{file.stem.removeprefix('email-send-')} {file.name}")
        (sending / "0123456789abcdef stray.md").write_text("What is this?\n")
    async with site.client("email") as client:
        assert (await said(client, "send_email", **HELLO)).startswith(SENT)
    assert list(sending.iterdir()) == []
    assert [file.name for file in site.files("Approved")] == ["stray.md"]
    assert len(site.sent) == 1


@requirement("faults:leftovers")
@pytest.mark.parametrize("leftover", ["a folder", "a link"])
async def test_what_an_earlier_version_put_aside_and_nobody_can_move_holds_up_no_yes(
    site: Site, leftover: str, caplog: pytest.LogCaptureFixture
) -> None:
    sending = site.home.vault / "Approved" / ".sending"
    sending.parent.mkdir(exist_ok=True)
    if leftover == "a folder":
        (sending / "0123456789abcdef stray.md").mkdir(parents=True)
    else:
        sending.symlink_to(site.home.path, target_is_directory=True)
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        site.approve()
        assert (await said(client, "send_email", **HELLO)).startswith(SENT)
    assert len(site.sent) == 1
    caplog.clear()
    desk = site.desk()
    await desk.door.return_claimed()
    await desk.door.return_claimed()
    assert [record.message for record in caplog.records] == ["not_returned"]
    await desk.close_mailbox()
    desk.close()


@requirement("gate:expires")
async def test_a_request_expires_though_its_file_is_gone_or_can_no_longer_be_read(
    site: Site,
) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        site.pending().unlink()
        site.clock.pass_by(days=8)
        assert "expired on 2026-11-22" in await said(client, "send_email", **HELLO)
        assert site.files("Done") == []

        site.pending().write_text("---\nto: [\n---\n")
        site.clock.pass_by(days=8)
        assert "expired on 2026-11-30" in await said(client, "send_email", **HELLO)
        assert [file.read_text() for file in site.files("Done")] == ["---\nto: [\n---\n"]
    assert site.sent == []


MOVING = """
import os, sys
there, away = sys.argv[1:]
print("moving", flush=True)
while True:
    os.rename(there, away)
    os.rename(away, there)
"""


@pytest.fixture
def moving(site: Site) -> Iterator[str]:
    """A note among others in Drafts/ that a process moves away and back, all the time; its name."""
    for number in range(100):
        site.write(f"note {number}.md", folder="Drafts")
    there, away = site.home.vault / "Drafts" / "note 50.md", site.home.vault / "away.md"
    with subprocess.Popen(
        [sys.executable, "-c", MOVING, there, away], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"moving\n"
        yield there.name
        process.kill()


@requirement("cards:waiting")
async def test_a_file_that_is_moved_while_its_folder_is_listed_disturbs_nobody(
    site: Site, moving: str
) -> None:
    desk = site.desk()
    # Listed, and gone when it was looked at: that comes once in a few times.
    while (moving, 0, 0) not in (found := desk.door.folders.names("Drafts")):
        assert len(found) >= 99
    assert (await desk.waiting.counts()).waiting == 0
    desk.close()
