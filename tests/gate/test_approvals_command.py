"""`deskhand approvals`, `show`, `approve`, `reject`: the person at the command line."""

import json

import pytest
from gate.site import HELLO, Site, said
from requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("cli:approvals")
async def test_a_person_lists_reads_approves_and_rejects_at_the_command_line(site: Site) -> None:
    assert site.home.command("approvals").stdout == "nothing waits\n"
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        (row,) = [json.loads(line) for line in site.home.command("approvals", "--json").stdout.splitlines()]
        assert (row["state"], row["action"]["body"]) == ("waiting", HELLO["body"])
        shown = site.home.command("show", row["id"])
        assert shown.stdout.rstrip("\n") == site.pending().read_text().rstrip("\n")

        rejected = site.home.command("reject", row["id"], "--reason", "too early")
        assert (rejected.returncode, rejected.stdout.split()[:2]) == (0, [row["id"], "rejected"])
        assert "The person said no to it: too early." in await said(client, "send_email", **HELLO)

        approved = site.home.command("approve", row["id"])
        assert (approved.returncode, approved.stdout.split()[:2]) == (0, [row["id"], "approved"])
        assert (await said(client, "send_email", **HELLO)).startswith("Email sent successfully.")

    assert len(site.sent) == 1
    late = site.home.command("approve", row["id"])
    assert (late.returncode, "nothing is left to decide" in late.stderr) == (5, True)
    assert site.home.command("show", "none").returncode == 4
    done = [json.loads(line) for line in site.home.command("log", "--json").stdout.splitlines()]
    assert [(line["actor"], line["action_type"]) for line in done if line["actor"] == "person"] == [
        ("person", "rejected"),
        ("person", "approved"),
    ]


@requirement("gate:content-bound")
async def test_approving_at_the_command_line_does_not_bless_an_edited_file(site: Site) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        file = site.pending()
        file.write_text(file.read_text().replace("at ten", "at nine"))
        action_id = file.stem.removeprefix("email-send-")
        refused = site.home.command("approve", action_id)

        assert (refused.returncode, "revision 2" in refused.stderr) == (5, True)
        assert (await said(client, "send_email", **HELLO)).startswith("Rejected:")
    assert site.sent == []
