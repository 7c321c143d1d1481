"""The gate, through the Email server: nothing leaves unapproved, altered or twice, and it is on the record."""

import hmac
import json
import re
import shutil

import anyio
import pytest
from mcp import Client

from deskhand.gate import Failed, Released
from deskhand.orchestrator.loop import Orchestrator
from tests.gate.site import HELLO, Site, said
from tests.mail.gmail_double import Cut, Status
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

REJECTED = (
    "Rejected: No matching approval file found in vault/Approved/ for sending to a***@example.org. "
    "Create an approval file with type: email_send and move it to vault/Approved/."
)


async def asked_and_approved(site: Site, client: Client) -> None:
    assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)
    site.approve()


@requirement("gate:asks")
async def test_a_mail_nobody_approved_is_never_sent_and_its_request_waits(
    site: Site,
) -> None:
    async with site.client("email") as client:
        first = await said(client, "send_email", **HELLO)
        again = await said(client, "send_email", **HELLO)

    assert first.splitlines()[0] == REJECTED
    assert f"Pending_Approval/{site.pending().name}" in first
    assert again == first
    assert site.sent == []
    text = site.pending().read_text()
    for line in (
        "type: email_send",
        "status: pending_approval",
        "action_type: send_email",
        "to: ann@example.org",
    ):
        assert f"\n{line}\n" in text
    assert HELLO["body"] in text


@requirement("gate:released")
async def test_what_the_person_moved_to_approved_is_sent_as_it_stood_there(
    site: Site,
) -> None:
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        answer = await said(client, "send_email", **HELLO)

    (mail,) = site.sent
    assert answer.startswith("Email sent successfully. Message ID: ")
    assert (mail["To"], mail["Subject"], mail.get_content().replace("\r\n", "\n")) == tuple(
        HELLO.values()
    )
    assert site.files("Approved") == site.files("Pending_Approval") == []
    (done,) = site.files("Done")
    assert "status: done" in done.read_text()


@requirement("gate:content-bound")
@pytest.mark.parametrize(
    "change",
    [
        {"to": "eve@example.org"},
        {"subject": "Meeting notes!"},
        {"body": "Dear Ann,\n\nsee you at nine.\n"},
        {"to": "ANN.@example.org"},
        {"to": "ann@example.org <eve@example.org>"},
        {"to": "ann@example.org, eve@example.org"},
        {"subject": "Meeting notes\r\nBcc: eve@example.org"},
    ],
)
async def test_an_approval_for_one_mail_never_releases_another(
    site: Site, change: dict[str, str]
) -> None:
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        answer = await said(client, "send_email", **HELLO | change)

    assert answer.startswith(("Rejected: No matching approval file", "Error: "))
    assert site.sent == []


@requirement("gate:content-bound")
async def test_an_edited_request_releases_nothing_and_waits_again_with_its_difference(
    site: Site,
) -> None:
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        (file,) = site.files("Approved")
        file.write_text(file.read_text().replace("see you at ten", "see you at nine"))
        refused = await said(client, "send_email", **HELLO)
        assert refused.startswith(REJECTED)
        assert "edited" in refused
        assert site.sent == []
        revision = site.pending()
        assert "-see you at ten.\n+see you at nine.\n" in revision.read_text()
        assert site.files("Approved") == []

        site.approve()
        answer = await said(client, "send_email", **HELLO)

    (mail,) = site.sent
    assert "see you at nine" in mail.get_content()
    assert answer.endswith("The person changed the text before approving it.")


@requirement("gate:content-bound")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("to: ann@example.org", "to: eve@example.org"),
        ("to: ann@example.org", "to: nobody"),
        ("status: pending_approval", "status: rejected"),
        ("status: pending_approval", "status: ["),
        ("type: email_send", "type: email_reply"),
        ("subject: Meeting notes", "subject: Meeting  notes"),
        ("subject: ", "thread_id: 18d5a\nsubject: "),
        ("see you at ten", "see you at  ten"),
        ("digest: ", "digest: 0"),
        ("expires: ", "expires: 9"),
        ("seal: ", "seal: ä"),
        ("seal: ", "x: "),
        ("action_id: ", "x: "),
    ],
)
async def test_whatever_is_edited_in_a_sealed_request_it_releases_nothing(
    site: Site, old: str, new: str
) -> None:
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        (file,) = site.files("Approved")
        assert old in file.read_text()
        file.write_bytes(file.read_bytes().replace(old.encode(), new.encode(), 1))

        assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)
    assert site.sent == []


@requirement("gate:spelling")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            r"status: pending_approval",
            "status: approved\napproved_at: 2026-11-15T09:00:00Z",
        ),
        (r"status: pending_approval\n", ""),
        (r"to: (.*)", r'to: "\1"'),
        (r"subject: (.*)", r"subject: '\1'"),
        (r"(type: .*)\n(status: .*)", r"\2\n\1"),
        (r"\ntype: ", "\ntags: [mail]\nmodified: 2026-11-15\ntype: "),
        (r"\n", "\r\n"),
        (r"\n\Z", "\n\n"),
        (r"\A", "\ufeff"),
    ],
)
async def test_a_yes_counts_in_whatever_spelling_its_properties_are(
    site: Site, old: str, new: str
) -> None:
    async with site.client("email") as client:
        assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)
        file = site.pending()
        changed = re.sub(old, new, file.read_text())
        assert changed != file.read_text()
        file.write_bytes(changed.encode())
        site.approve()

        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
    assert len(site.sent) == 1


@requirement("gate:spelling")
async def test_a_file_that_an_earlier_version_sealed_byte_for_byte_still_counts(
    site: Site,
) -> None:
    async with site.client("email") as client:
        assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)
        file = site.pending()
        unsealed = re.sub(r"\nseal: .*\n", "\n", file.read_text())
        key = (site.home.path / "seal.key").read_bytes().strip()
        seal = hmac.new(key, unsealed.encode(), "sha256").hexdigest()
        file.write_text(unsealed.replace("\n---\n", f'\nseal: "{seal}"\n---\n', 1))
        site.approve()

        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )


@requirement("gate:once")
async def test_a_request_that_was_used_is_used_up(site: Site) -> None:
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        (file,) = site.files("Approved")
        text = file.read_bytes()
        await said(client, "send_email", **HELLO)
        file.write_bytes(text)
        site.clock.pass_by(minutes=11)
        answer = await said(client, "send_email", **HELLO)

    assert answer.startswith(REJECTED)
    assert len(site.sent) == 1


@requirement("gate:once")
async def test_an_old_yes_to_the_same_mail_is_none_to_the_new_request(site: Site) -> None:
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        (old,) = site.files("Approved")
        text = old.read_bytes()
        await said(client, "send_email", **HELLO)
        site.clock.pass_by(minutes=11)
        await said(client, "send_email", **HELLO)
        (site.home.vault / "Approved" / site.pending().name).write_bytes(text)

        assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)
    assert len(site.sent) == 1


@requirement("gate:expires")
async def test_an_approval_that_expired_says_so_and_a_new_request_waits(site: Site) -> None:
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        site.clock.pass_by(days=8)
        answer = await said(client, "send_email", **HELLO)

    assert answer.startswith(REJECTED)
    assert "expired on 2026-11-22" in answer
    assert site.sent == []
    assert site.pending().name in answer
    assert "status: expired" in site.files("Done")[0].read_text()


@requirement("gate:rejected")
async def test_a_no_is_told_apart_and_holds_until_the_person_changes_it(site: Site) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        file = site.reject()
        answer = await said(client, "send_email", **HELLO)
        assert answer.startswith(REJECTED)
        assert "The person said no to it." in answer
        assert site.files("Pending_Approval") == []

        site.approve(file)
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )


@requirement("gate:withdrawn")
async def test_a_yes_that_was_taken_back_sends_nothing(site: Site) -> None:
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        (file,) = site.files("Approved")
        file.rename(site.home.vault / "Pending_Approval" / file.name)

        assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)
    assert site.sent == []


@requirement("gate:hand-written")
@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"subject": HELLO["subject"]},
        {"to": "ANN@Example.org"},
        {"expires": "2026-11-16"},
        {"action_type": "send_email"},
    ],
)
async def test_a_hand_written_approval_releases_one_mail(
    site: Site, properties: dict[str, str]
) -> None:
    site.write(**properties)
    async with site.client("email") as client:
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
        site.clock.pass_by(minutes=11)
        assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)

    assert len(site.sent) == 1
    assert [file.name for file in site.files("Done")] == ["yes.md"]


@requirement("gate:hand-written")
@pytest.mark.parametrize(
    "properties",
    [
        {"type": "email_reply"},
        {"type": "email_draft"},
        {"status": "pending_approval"},
        {"to": "eve@example.org"},
        {"to": "ann@example.org <eve@example.org>"},
        {"subject": "Another"},
        {"expires": "2026-11-15T08:00:00Z"},
        {"expires": "soon"},
        {"thread_id": "18d5a"},
        {"action_type": "reply_email"},
        {"digest": "0" * 64},
    ],
)
async def test_a_hand_written_approval_of_another_mail_releases_nothing(
    site: Site, properties: dict[str, str]
) -> None:
    site.write(**properties)
    async with site.client("email") as client:
        assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)

    assert site.sent == []
    assert [file.name for file in site.files("Approved")] == ["yes.md"]


@requirement("gate:hand-written")
async def test_a_hand_written_file_is_no_new_yes_when_it_comes_back(site: Site) -> None:
    async with site.client("email") as client:
        kept = shutil.copy2(site.write(), site.home.vault / "kept.md")
        await said(client, "send_email", **HELLO)
        shutil.copy2(kept, site.home.vault / "Approved" / "copy.md")

        assert (await said(client, "send_email", **HELLO | {"body": "another"})).startswith(
            REJECTED
        )
    assert len(site.sent) == 1


@requirement("gate:hand-written")
async def test_where_only_sealed_approvals_count_a_hand_written_one_does_not(
    site: Site,
) -> None:
    site.write()
    async with site.client("email", DESKHAND_APPROVALS="sealed") as client:
        assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)
        site.approve()
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )


@requirement("gate:hand-written")
async def test_a_link_in_the_approved_folder_releases_nothing(site: Site) -> None:
    real = site.write(folder="Notes")
    (site.home.vault / "Approved").mkdir()
    (site.home.vault / "Approved" / "soft.md").symlink_to(real)
    (site.home.vault / "Approved" / "hard.md").hardlink_to(real)
    async with site.client("email") as client:
        assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)
    assert site.sent == []


@requirement("gate:rate")
async def test_the_rate_is_counted_in_the_ledger_over_servers_and_restarts(
    site: Site,
) -> None:
    limits = {"DESKHAND_MAX_SENDS": "2"}
    for number, name in enumerate(("email", "gmail")):
        site.write(created=str(number))
        async with site.client(name, **limits) as client:
            assert not (await client.call_tool("send_email", HELLO)).is_error
        site.clock.pass_by(minutes=10)
    file = site.write(created="third")
    async with site.client("email", **limits) as client:
        limited = await said(client, "send_email", **HELLO)
        assert (
            limited
            == "Rejected: Rate limit exceeded (2 emails/hour). Next send available in 40 minutes."
        )
        assert file.exists()
        assert len(site.sent) == 2

        site.clock.pass_by(minutes=40)
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )


@requirement("gate:rate")
async def test_without_an_approval_the_rate_is_not_looked_at(site: Site) -> None:
    async with site.client("email", DESKHAND_MAX_SENDS="0") as client:
        assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)
        site.approve()
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Rejected: Rate limit exceeded (0 emails/hour)."
        )


@requirement("gate:put-back")
@pytest.mark.parametrize("call", ["drafts.create", "drafts.send"])
async def test_a_refusal_of_the_provider_spends_neither_the_approval_nor_the_rate(
    site: Site, call: str
) -> None:
    site.gmail.plan(call, Status(403, "rateLimitExceeded", retry_after=60))
    async with site.client("email", DESKHAND_MAX_SENDS="1") as client:
        await asked_and_approved(site, client)
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Error sending email: "
        )
        assert len(site.files("Approved")) == 1

        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
    assert len(site.sent) == 1


@requirement("gate:put-back")
async def test_a_hand_written_approval_comes_back_from_a_refusal_too(site: Site) -> None:
    site.gmail.plan("drafts.send", Status(403, "rateLimitExceeded", retry_after=60))
    site.write()
    async with site.client("email") as client:
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Error sending email: "
        )
        assert [file.name for file in site.files("Approved")] == ["yes.md"]
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
    assert len(site.sent) == 1


@requirement("gate:once")
@pytest.mark.parametrize("accepted", [True, False])
async def test_a_lost_answer_is_looked_up_and_the_mail_leaves_once(
    site: Site, accepted: bool
) -> None:
    site.gmail.plan("drafts.send", Cut(accepted))
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
    assert len(site.sent) == 1


@requirement("gate:unknown")
async def test_what_nobody_knows_is_left_to_the_person_who_may_send_it_once_more(
    site: Site,
) -> None:
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        lose_the_mail(site)
        answer = await said(client, "send_email", **HELLO)
        assert answer.startswith("Error sending email: outcome unknown; ")
        assert site.pending().name in answer
        assert "may have been sent already" in site.pending().read_text()

        again = await said(client, "send_email", **HELLO)
        assert again.startswith("Error sending email: outcome unknown; ")
        assert len(site.gmail.account.drafts) == 0

        site.approve()
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )


@requirement("gate:unknown")
@requirement("orchestrator:sealed-requests")
async def test_once_more_needs_no_call_of_the_assistant_either(site: Site) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
    site.approve()
    lose_the_mail(site)
    await orchestrated(site)
    assert "may have been sent already" in site.pending().read_text()
    assert site.sent == []

    site.approve()
    site.clock.pass_by(seconds=1)
    await orchestrated(site)
    assert len(site.sent) == 1


async def orchestrated(site: Site) -> None:
    desk = site.desk()
    orchestrator = Orchestrator(desk)
    try:
        await orchestrator.once()
    finally:
        await orchestrator.close()
        await desk.close_mailbox()
        desk.close()


def lose_the_mail(site: Site) -> None:
    """Gmail takes the mail and loses both its answer and the mail: the draft is gone, and nothing is in Sent."""

    def vanish(name: str) -> Cut | None:
        if name != "drafts.send":
            return None
        site.gmail.account.drafts.clear()
        site.gmail.chance = lambda _: None
        return Cut(accepted=False)

    site.gmail.chance = vanish


@requirement("gate:recorded")
async def test_every_call_is_on_the_record_once_and_redacted(site: Site) -> None:
    async with site.client("email") as client:
        await said(client, "search_email", query="from:ann@example.org")
        await said(client, "send_email", **HELLO)
        await said(client, "send_email", **HELLO | {"to": "nonsense"})
        await said(client, "send_email", **HELLO | {"colour": "a secret"})
        site.approve()
        await said(client, "send_email", **HELLO)
        await said(client, "draft_email", **HELLO | {"to": f" {HELLO['to']} "})
        await said(
            client, "reply_email", thread_id="none", message_id="none", body="a secret"
        )

    lines = site.log()
    assert [(line["action_type"], line["target"], line["result"]) for line in lines] == [
        ("search_email", "from:a***@example.org", "success"),
        ("send_email", "a***@example.org", "rejected"),
        ("send_email", "nonsense", "rejected"),
        ("send_email", "a***@example.org", "rejected"),
        ("send_email", "a***@example.org", "success"),
        ("draft_email", "a***@example.org", "success"),
        ("reply_email", "thread none", "rejected"),
    ]
    assert {line["actor"] for line in lines} == {"email_mcp"}
    assert len({line["correlation_id"] for line in lines}) == len(lines)
    text = json.dumps(lines)
    assert "ann@" not in text
    assert "secret" not in text
    assert "see you" not in text
    (log,) = (site.home.vault / "Logs" / "actions").iterdir()
    assert log.stat().st_mode & 0o777 == 0o600
    # Beside the calls stands the person's answer, which came in by the vault's door.
    assert (
        site.home.command("log", "--verify").stdout
        == "Record intact: 8 entries verified.\n"
    )


@requirement("gate:asks")
async def test_two_who_ask_for_the_same_at_once_make_one_request(site: Site) -> None:
    answers: list[str] = []
    async with (
        site.client("email") as one,
        site.client("email") as other,
        anyio.create_task_group() as asking,
    ):
        for client in (one, other, one, other):

            async def ask(client: Client = client) -> None:
                answers.append(await said(client, "send_email", **HELLO))

            asking.start_soon(ask)

    assert len(set(answers)) == 1
    assert site.pending().name in answers[0]


@requirement("gate:released")
async def test_what_was_approved_can_be_sent_without_another_call_of_the_asker(
    site: Site,
) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
    desk = site.desk()
    ((row,), _) = await desk.waiting.requests()
    refused = await desk.gate.release(row.id, "orchestrator")
    assert isinstance(refused, Failed)
    assert site.sent == []

    site.approve()
    ((row,), _) = await desk.waiting.requests()
    assert row.state == "approved"
    assert isinstance(await desk.gate.release(row.id, "orchestrator"), Released)
    assert isinstance(await desk.gate.release(row.id, "orchestrator"), Failed)
    await desk.close_mailbox()
    desk.close()
    assert len(site.sent) == 1


@requirement("gate:withdrawn")
async def test_a_hand_written_yes_closes_the_request_that_waited(site: Site) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        request = site.pending().read_bytes()
        site.write()
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
        assert site.files("Pending_Approval") == []
        (site.home.vault / "Approved" / "again.md").write_bytes(request)
        assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)
    assert len(site.sent) == 1


@requirement("gate:content-bound")
async def test_a_request_may_be_renamed_on_its_way(site: Site) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        site.approve(
            site.pending().rename(site.home.vault / "Pending_Approval" / "Ann, please.md")
        )
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
    assert [file.name for file in site.files("Done")] == ["Ann, please.md"]


@requirement("gate:unknown")
async def test_editing_a_mail_that_may_have_left_does_not_change_it(site: Site) -> None:
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        lose_the_mail(site)
        await said(client, "send_email", **HELLO)
        file = site.approve()
        file.write_text(file.read_text().replace("at ten", "at nine"))
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Error sending email: outcome unknown; "
        )
        site.approve()
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
    assert all("at ten" in mail.get_content() for mail in site.sent)


@requirement("gate:unknown")
async def test_while_the_mailbox_does_not_say_what_became_of_a_mail_nothing_is_sent_again(
    site: Site,
) -> None:
    site.gmail.plan("drafts.send", Cut(accepted=True))
    site.gmail.plan("drafts.get", *4 * [Status(403, "forbidden")])
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        answer = await said(client, "send_email", **HELLO)
        assert answer.startswith(
            "Error sending email: outcome unknown; the mailbox did not say"
        )
        site.gmail._plan.clear()

        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
    assert len(site.sent) == 1


@requirement("gate:withdrawn")
async def test_a_request_that_the_person_deleted_is_asked_again(site: Site) -> None:
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        (file,) = site.files("Approved")
        file.unlink()
        assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)
    assert site.pending().name == file.name
    assert site.sent == []


@requirement("gate:recorded")
async def test_the_key_of_the_seals_is_the_owners_and_not_in_the_vault(site: Site) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
    key = site.home.path / "seal.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert all(
        key.read_bytes() not in file.read_bytes()
        for file in site.home.vault.rglob("*")
        if file.is_file()
    )


@requirement("gate:recorded")
async def test_a_vault_that_takes_no_line_hides_no_result_and_the_record_has_it(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    (site.home.vault / "Logs").write_text("This is no folder.")
    site.write()
    async with site.client("email") as client:
        assert (await said(client, "send_email", **HELLO)).startswith(
            "Email sent successfully."
        )
    (line,) = [each for each in caplog.records if each.message == "not_in_the_vault"]
    assert (line.levelname, vars(line)["entry"]["target"]) == (
        "CRITICAL",
        "a***@example.org",
    )
    assert (
        site.home.command("log", "--verify").stdout == "Record intact: 1 entry verified.\n"
    )


@requirement("gate:repeated-call")
@pytest.mark.parametrize("by_hand", [False, True])
async def test_the_same_call_after_a_lost_answer_hears_of_the_send_and_asks_for_nothing(
    site: Site, by_hand: bool
) -> None:
    async with site.client("email") as client:
        if by_hand:
            site.write()
        else:
            await asked_and_approved(site, client)
        sent = await said(client, "send_email", **HELLO)
        site.clock.pass_by(minutes=9)
        site.write(
            "another.md"
        )  # a yes to somebody's next mail is none to the one that has left
        again = await said(client, "send_email", **HELLO)

        assert again.startswith(sent)
        assert re.search(
            r"It was sent at 2026-11-15T09:00:00.000Z, request \w+; this call sent nothing\.",
            again,
        )
        assert len(site.sent) == 1
        assert site.files("Pending_Approval") == []

    async with site.client("gmail") as client:  # another asker
        refused = await client.call_tool("send_email", HELLO | {"body": HELLO["body"]})
        assert not refused.is_error  # the yes that lies there covers it


@requirement("gate:repeated-call")
async def test_later_the_same_mail_is_asked_for_anew_and_its_card_names_the_first(
    site: Site,
) -> None:
    async with site.client("email") as client:
        await asked_and_approved(site, client)
        await said(client, "send_email", **HELLO)
        site.clock.pass_by(minutes=11)
        assert (await said(client, "send_email", **HELLO)).startswith(REJECTED)

    assert (
        "Exactly this mail was sent before, on 2026-11-15T09:00:00.000Z"
        in site.pending().read_text()
    )
    desk = site.desk()
    ((card,), _) = await desk.waiting.cards()
    desk.close()
    assert card.risk.level == "high"
    assert card.risk.reasons[0].startswith(
        "Exactly this mail was sent before, on Sun 15 Nov 2026, 09:00 (request "
    )


@requirement("email:contract")
async def test_a_body_that_looks_like_a_page_leaves_the_email_server_as_the_plain_text_that_it_is(
    site: Site,
) -> None:
    page = "<html><body><p style='display:none'>x</p>Hello</body></html>"
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO | {"body": page})
        assert "leaves as HTML" not in site.pending().read_text()
        site.approve()
        await said(client, "send_email", **HELLO | {"body": page})
        await said(client, "draft_email", **HELLO | {"body": page})
    (mail,) = site.sent
    assert mail.get_content_type() == "text/plain"
    assert mail.get_content().strip() == page
    (draft,) = site.gmail.account.drafts.values()
    assert b"text/plain" in site.gmail.account.mails[draft].raw
