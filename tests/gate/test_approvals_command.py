"""`deskhand approvals`, `show`, `approve`, `reject`: the person at the command line."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deskhand.gate import ledger
from deskhand.gate.actions import SendEmail
from deskhand.gate.asking import open_request
from deskhand.gate.rows import find_one
from deskhand.gate.toolcall import ToolCall
from tests.gate.site import HELLO, Site, said
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("cli:approvals")
async def test_a_person_lists_reads_approves_and_rejects_at_the_command_line(
    site: Site,
) -> None:
    assert site.home.command("approvals").stdout == "Nothing waits.\n"
    assert site.home.command("approvals", "--snoozed").stdout == "Nothing is snoozed.\n"
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        (row,) = [
            json.loads(line)
            for line in site.home.command("approvals", "--json").stdout.splitlines()
        ]
        assert (row["state"], row["action"]["body"]) == ("waiting", HELLO["body"])
        shown = site.home.command("show", row["id"])
        assert shown.stdout.startswith(
            f"To: {HELLO['to']}\nSubject: {HELLO['subject']}\n\n"
        )
        assert HELLO["body"].strip() in shown.stdout
        assert "action_id" not in shown.stdout
        assert re.search(
            r"^asked: [A-Za-z0-9 ]+, \d\d:\d\d, by ", shown.stderr, re.MULTILINE
        )
        facts = json.loads(site.home.command("show", row["id"], "--json").stdout)
        assert facts["filepath"] == str(site.pending())
        assert facts["text"].rstrip("\n") == site.pending().read_text().rstrip("\n")

        rejected = site.home.command("reject", row["id"], "--reason", "too early")
        assert (rejected.returncode, rejected.stdout.split()[:2]) == (
            0,
            [row["id"], "rejected"],
        )
        told = site.home.command("show", row["id"]).stderr
        assert "\nyour reason: too early\n" in told
        again = site.home.command("reject", row["id"])
        assert again.stderr == "It is rejected already; nothing was changed.\n"
        assert again.stdout == rejected.stdout
        assert "The person said no to it: “too early”." in await said(
            client, "send_email", **HELLO
        )

        approved = site.home.command("approve", row["id"])
        assert (approved.returncode, approved.stdout.split()[:2]) == (
            0,
            [row["id"], "approved"],
        )
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )

    assert len(site.sent) == 1
    late = site.home.command("approve", row["id"])
    assert (late.returncode, "nothing is left to decide" in late.stderr) == (5, True)
    assert site.home.command("show", "none").returncode == 4
    short = site.home.command("show", row["id"][:3])
    assert (
        f"error: The id {row['id'][:3]} is too short to name a request.\n" in short.stderr
    )
    assert "Type at least 4 characters of its id" in short.stderr
    done = [
        json.loads(line) for line in site.home.command("log", "--json").stdout.splitlines()
    ]
    assert [
        (line["actor"], line["action_type"]) for line in done if line["actor"] == "person"
    ] == [
        ("person", "rejected"),
        ("person", "approved"),
    ]


@requirement("cli:approvals")
async def test_no_text_of_a_stranger_steers_the_terminal_on_which_it_is_shown(
    site: Site,
) -> None:
    unseen = "Dear Ann,\n\npay 1,000,000\r\x1b[2Kpay 10\x9b8m\u202e euro.\n"
    async with site.client("email") as client:
        answer = await said(client, "send_email", **HELLO | {"body": unseen})
    assert answer.startswith("Rejected:")
    (row,) = listed(site)
    shown = [
        site.home.command(*words)
        for words in (("approvals",), ("show", row["id"]), ("log",), ("status",))
    ]

    text = "".join(each.stdout + each.stderr for each in shown)
    assert "<U+001B>[2Kpay 10<U+009B>8m<U+202E> euro." in text
    assert not set(text) & set("\r\x1b\x9b\u202e")
    assert row["action"]["body"] == unseen


@requirement("terminal:asks")
async def test_without_a_terminal_high_risk_wants_a_word_that_it_was_looked_at(
    site: Site,
) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO | {"body": "Hidden \u200b\u200b words\n"})
        (row,) = [
            json.loads(line)
            for line in site.home.command("approvals", "--json").stdout.splitlines()
        ]
        refused = site.home.command("approve", row["id"])
        assert (refused.returncode, "this is of high risk" in refused.stderr) == (2, True)
        assert site.home.command("reject", row["id"]).returncode == 0
        assert site.home.command("approve", row["id"]).returncode == 2
        done = site.home.command("approve", row["id"], "--digest", row["digest"])
        assert done.returncode == 0, done.stderr
        assert site.home.command("approve", row["id"]).returncode == 0  # said before


@requirement("gate:unknown")
async def test_without_a_terminal_what_may_have_left_wants_a_word_that_this_was_seen(
    site: Site,
) -> None:
    """A script that says yes until it is told that all went well would send it again."""
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
    desk = site.desk()
    request = await desk.store.read(find_one, "1 = 1")
    assert request is not None
    await desk.store.write(ledger.change, request, "unknown", token="lost", revision=2)
    row = json.loads(site.home.command("approvals", "--json").stdout)
    for given in ([], ["--digest", request.digest]):
        refused = site.home.command("approve", row["id"], *given)
        assert refused.returncode in (2, 5), refused.stderr
    done = site.home.command("approve", row["id"], "--digest", row["digest"])
    assert done.returncode == 0, done.stderr
    desk.close()


@requirement("gate:content-bound")
async def test_approving_at_the_command_line_does_not_bless_an_edited_file(
    site: Site,
) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        file = site.pending()
        file.write_text(file.read_text().replace("at ten", "at nine"))
        action_id = file.stem.removeprefix("email-send-")
        refused = site.home.command("approve", action_id)

        assert (refused.returncode, "revision 2" in refused.stderr) == (5, True)
        assert (await said(client, "send_email", **HELLO)).startswith("Rejected:")
    assert site.sent == []


PAGE = (
    "<html><p>Dear Ann</p><p style='display:none'>SECRET</p>"
    "<a href='https&#58;//evil.example'>bank.example</a></html>"
)


@requirement("gate:html")
async def test_a_mail_that_leaves_as_html_says_so_in_its_file_and_at_the_command_line(
    site: Site,
) -> None:
    async with site.client("gmail") as client:
        assert (await client.call_tool("send_email", HELLO | {"body": PAGE})).is_error
    (row,) = listed(site)
    shown = site.home.command("show", row["id"])

    for text in (site.pending().read_text(), shown.stdout):
        _, _, seen = text.partition("## What a reader sees")
        assert "It leaves as HTML." in seen
        assert "Dear Ann" in seen
        assert "SECRET" not in seen
        assert "https://evil.example" in seen
    assert row["risk"]["level"] == "high"
    for reason in (
        "It leaves as HTML",
        "hides 6 characters",
        "Links lead to: evil.example",
        "but leads to evil.example",
    ):
        assert reason in shown.stderr


def listed(site: Site, *arguments: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in site.home.command("approvals", "--json", *arguments).stdout.splitlines()
    ]


@requirement("cli:answers")
@requirement("cards:edited")
async def test_a_person_edits_in_their_own_editor_and_what_they_approve_is_sent(
    site: Site, tmp_path: Path
) -> None:
    editor = tmp_path / "my editor"
    editor.write_text(
        '#!/bin/sh\nsed -i -e \'s/at ten/at nine/\' -e "s/^Subject: .*/Subject: Later/" "$2"\n'
    )
    editor.chmod(0o700)
    own = {"EDITOR": f"'{editor}' --wait"}
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        (row,) = listed(site)
        assert site.home.command("edit", row["id"]).returncode == 3
        edited = site.home.command("edit", row["id"], "--json", **own)
        new = json.loads(edited.stdout)
        assert (new["state"], new["revision"], new["action"]["subject"]) == (
            "waiting",
            2,
            "Later",
        )
        assert new["action"]["body"] == HELLO["body"].replace("ten", "nine")

        stale = site.home.command("approve", row["id"], "--digest", row["digest"])
        assert (stale.returncode, "no longer what was shown" in stale.stderr) == (5, True)
        approved = site.home.command("approve", row["id"], "--digest", new["digest"])
        assert (approved.returncode, approved.stdout.split()[1]) == (0, "approved")
        answer = await said(client, "send_email", **HELLO)
    assert answer.endswith("The person changed the text before approving it.")
    (mail,) = site.sent
    assert (mail["Subject"], "at nine" in mail.get_content()) == ("Later", True)


@requirement("cli:answers")
async def test_an_edit_that_cannot_be_used_keeps_the_persons_text(
    site: Site, tmp_path: Path
) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO | {"body": "no line break at the end"})
        (row,) = listed(site)
        for script, code, words in (
            ("exit 1", 2, "The editor ended with 1"),
            ('echo "free text" > "$1"', 2, "must begin with To:, Subject:"),
            ('printf "To: nobody\\nSubject: x\\n\\ny" > "$1"', 2, "Invalid email address"),
            ('printf "\\377" > "$1"', 2, "not UTF-8"),
        ):
            editor = tmp_path / "editor"
            editor.write_text(f"#!/bin/sh\n{script}\n")
            editor.chmod(0o700)
            done = site.home.command(
                "edit", row["id"], VISUAL=str(editor), TMPDIR=str(tmp_path)
            )
            assert (done.returncode, words in done.stderr) == (code, True), done.stderr
            kept = (
                tmp_path
                / done.stderr.rpartition("Your text is kept in `")[2].partition("`")[0]
            )
            assert kept.exists()
            kept.unlink()
        assert (
            site.home.command("edit", row["id"], EDITOR=str(tmp_path / "none")).returncode
            == 3
        )
        same = json.loads(
            site.home.command(
                "edit", row["id"], "--json", EDITOR="true", TMPDIR=str(tmp_path)
            ).stdout
        )
        assert (same["revision"], same["action"]["body"]) == (1, "no line break at the end")

        assert (
            site.home.command(
                "edit", row["id"], "--body-file", str(tmp_path / "none")
            ).returncode
            == 2
        )
        body = tmp_path / "body.txt"
        body.write_text("From a file.\n")
        given = (
            "--to",
            "bob@example.org",
            "--subject",
            "New",
            "--body-file",
            str(body),
            "--approve",
        )
        done = site.home.command("edit", row["id"], *given)
        assert (done.returncode, done.stdout.split()[1]) == (0, "approved")


@requirement("cli:answers")
async def test_a_person_responds_and_puts_off_at_the_command_line(site: Site) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        (row,) = listed(site)
        assert (row["risk"]["level"], row["known"], row["asked_by"]) == (
            "medium",
            False,
            "email_mcp",
        )
        site.clock.time = datetime.now(UTC)
        for until in ("2h", "tomorrow", "2099-12-24T09:00", "2099-12-24T09:00:00+01:00"):
            snoozed = site.home.command("snooze", row["id"], until)
            assert snoozed.returncode == 0, until
            clipped = re.fullmatch(
                r"It expires [\w ]+, \d\d:\d\d, so it comes back before that\.\n",
                snoozed.stderr,
            )
            if until != "tomorrow":  # which may be after its end
                assert bool(clipped) == until.startswith("2099"), snoozed.stderr
        assert (listed(site), [each["id"] for each in listed(site, "--snoozed")]) == (
            [],
            [row["id"]],
        )
        for until in ("soon", "2001-01-01T00:00"):
            refused = site.home.command("snooze", row["id"], until)
            assert refused.returncode == 2, until
            assert "until:" not in refused.stderr
            facts = site.home.command("snooze", row["id"], until, "--json").stderr
            assert json.loads(facts)["details"]["fields"][0]["field"] == "until"
        assert site.home.command("snooze", row["id"], "soon").stderr == (
            "error: “soon” is no time to put it off until.\n"
            "  Write 30m, 2h, 3d, fri 14:00 or 2026-12-24T09:00.\n"
        )
        assert site.home.command("snooze", row["id"], "now").stdout.split()[1] == "waiting"

        shown = site.home.command("show", row["id"])
        assert f"digest: {row['digest']}" in shown.stderr
        assert "risk: medium" in shown.stderr
        assert site.home.command("respond", row["id"], "x", "--digest", "0").returncode == 5
        assert (
            site.home.command("respond", row["id"], "Call her instead").stdout.split()[1]
            == "rejected"
        )
        assert "sent it back with a note: “Call her instead”." in await said(
            client, "send_email", **HELLO
        )
    assert site.sent == []


@requirement("cli:approvals")
@requirement("gate:recorded")
async def test_status_and_the_record_name_everybody_whom_a_mail_goes_to(site: Site) -> None:
    few = {"to": "ann@example.org", "cc": "bob@example.org", "bcc": "eve@example.org"}
    many = {
        "to": ["ann@example.org", "bob@example.org"],
        "cc": ["c@example.net", "d@example.net"],
    }
    desk = site.desk()
    for lines in (few, many):
        letter = SendEmail.model_validate(HELLO | lines)
        await desk.gate.propose(letter, "email_mcp")
    await desk.close_mailbox()
    desk.close()
    status = site.home.command("status").stdout
    (first, second) = site.home.command("approvals", "--json").stdout.splitlines()
    for row in (first, second):
        assert site.home.command("reject", json.loads(row)["id"]).returncode == 0

    assert "to ann@example.org, bob@example.org, eve@example.org: Meeting" in status
    assert "to ann@example.org and 3 more: Meeting" in status
    recorded = site.home.command("log", "--json").stdout.splitlines()
    assert sorted(json.loads(line)["target"] for line in recorded) == [
        *2 * ["a***@example.org, b***@example.org, c***@example.net, d***@example.net"],
        *2 * ["a***@example.org, b***@example.org, e***@example.org"],
    ]


@requirement("cli:approvals")
def test_the_terminal_calls_a_call_no_mail_and_names_times_as_people_do(site: Site) -> None:
    desk = site.desk()
    call = ToolCall(server="toy", tool="add", arguments="{}", definition="", asker="x")
    before = datetime.now(UTC) - timedelta(hours=41)
    asked = open_request(call, "guard_mcp", None, before)
    desk.store.write_sync(lambda tx: ledger.insert(tx, asked))
    desk.close()
    shown = site.home.command("show", asked.id)
    assert "tool: toy: add\n" in shown.stderr
    assert "email" not in shown.stderr
    assert "(new)" not in site.home.command("approvals").stdout
    state = {
        "last_check": "2026-01-02T03:04:05.678Z",
        "written_by_deskhand": ["last_check"],
    }
    logs = site.home.vault / "Logs"
    logs.mkdir(exist_ok=True)
    (logs / "orchestrator_state.json").write_text(json.dumps(state))
    assert f"(1 day, `{asked.id}`)" in site.home.command("status").stdout
    site.home.command("snooze", asked.id, "2h")
    said_then = site.home.command("status").stdout
    assert asked.id not in said_then
    assert "Nothing waits.\n\nNot in this list: 1 snoozed." in said_then
    assert "03:04:05" not in said_then
    assert "2 Jan" in said_then
