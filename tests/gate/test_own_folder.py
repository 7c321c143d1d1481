"""The desk's own folders in one folder of the vault: the same way from the request to the mail, as closed as ever."""

import json
from pathlib import Path

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import BadConfig, Denied
from deskhand.notes.attached import read_file
from deskhand.orchestrator import status
from deskhand.orchestrator.loop import Orchestrator
from deskhand.servers.obsidian import obsidian_server
from deskhand.web import site as web
from tests.gate.site import HELLO, Site
from tests.gate.test_gmail_server import ok, refused
from tests.home import Home
from tests.requirements import requirement
from tests.web.person import served, signed_in

pytestmark = pytest.mark.anyio


@requirement("notes:folder")
async def test_a_request_waits_is_approved_and_logged_in_the_one_folder(site: Site) -> None:
    inside = site.with_variables(DESKHAND_VAULT_FOLDER="Deskhand")
    own = site.home.vault / "Deskhand"
    async with inside.client_over("stdio", "2026-07-28", "gmail") as client:
        denied = await refused(client, "send_email", **HELLO)
        (file,) = (own / "Pending_Approval").glob("*.md")
        (own / "Approved").mkdir(exist_ok=True)
        file.rename(own / "Approved" / file.name)
        await ok(client, "send_email", **HELLO)
        again = HELLO | {"subject": "Another"}
        await refused(client, "send_email", **again)
        (file,) = (own / "Pending_Approval").glob("*.md")
        (own / "Rejected").mkdir(exist_ok=True)
        file.rename(own / "Rejected" / file.name)
        rejected = await refused(client, "send_email", **again)

    assert denied["details"]["request"].startswith("Deskhand/Pending_Approval/")
    assert "moves it to Deskhand/Approved/" in json.dumps(denied)
    assert rejected["details"]["request"].startswith("Deskhand/Rejected/")
    assert len(site.gmail.account.search("in:sent", [])) == 1
    assert [path.name for path in site.home.vault.iterdir()] == ["Deskhand"]
    assert len([*own.glob("Logs/gmail_mcp_*.jsonl"), *own.glob("Logs/actions/*.json")]) == 2


CLOSED = (
    "Deskhand/Approved/x.md",
    "deskhand/approved/x.md",
    "Deskhand/Logs/x.md",
    "Deskhand/Appr\u043eved/x.md",
    "D\u0435skhand/x.md",
    "Deskhan\u0501/Approved/x.md",
    "Deskhand\u200b/Approved/x.md",
    "Deskhand/PlaNs\u200b/x.md",
)
OPEN = (
    "Approved/x.md",
    "Done/x.md",
    "Deskhand/Needs_Action/x.md",
    "Deskhand/Plans/x.md",
    "Deskhand notes/x.md",
)


@requirement("notes:folder")
async def test_no_tool_writes_where_the_person_decides_and_the_person_s_own_names_are_free(
    home: Home,
) -> None:
    desk = Desk(load(home.environment | {"DESKHAND_VAULT_FOLDER": "Deskhand"}).settings)
    async with Client(obsidian_server(desk)) as notes:
        says = notes.instructions or ""
        answers = {
            path: await notes.call_tool(
                "write_note", {"path": path, "frontmatter": {}, "body": "x"}
            )
            for path in (*CLOSED, *OPEN)
        }
        moved = await notes.call_tool(
            "move_note", {"source": "Done/x.md", "destination": "Deskhand/Done/x.md"}
        )
    await status.publish(desk, {})
    with pytest.raises(Denied):
        read_file(
            home.vault, "Deskhand/Logs/orchestrator_state.json", 1000, desk.settings.inside
        )
    assert read_file(home.vault, "Done/x.md", 1000, desk.settings.inside)[0] == "Done/x.md"
    desk.close()

    assert [path for path, answer in answers.items() if not answer.is_error] == [*OPEN]
    assert moved.is_error
    assert "Deskhand/" in says
    assert (home.vault / "Deskhand" / "Dashboard.md").exists()
    assert (home.vault / "Deskhand" / "Logs" / status.STATE_FILE).exists()


@requirement("notes:folder")
@pytest.mark.parametrize("name", ["", ".obsidian", "a/b", "..", "x:", "a.", " a"])
def test_what_is_no_plain_name_of_a_folder_is_refused(home: Home, name: str) -> None:
    with pytest.raises(BadConfig):
        load(home.environment | {"DESKHAND_VAULT_FOLDER": name})


@requirement("notes:folder")
def test_a_link_in_its_place_is_not_followed(home: Home, tmp_path: Path) -> None:
    (home.vault / "Deskhand").symlink_to(tmp_path)
    desk = Desk(load(home.environment | {"DESKHAND_VAULT_FOLDER": "Deskhand"}).settings)

    with pytest.raises(Denied):
        _ = desk.own_root


@requirement("notes:folder")
async def test_files_that_do_nothing_are_named_with_the_folder_they_lie_in(
    home: Home,
) -> None:
    own = home.environment | {
        "DESKHAND_VAULT_FOLDER": "Deskhand",
        "DESKHAND_ADDRESS": "me@example.com",
    }
    desk = Desk(load(own).settings)
    for path in ("Approved/letter.txt", "Needs_Action/odd.md"):
        file = home.vault / "Deskhand" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("---\nstatus: pending\n---\nx\n")
    orchestrator = Orchestrator(desk)
    await orchestrator.once()
    await orchestrator.close()
    async with served(web.site(desk)) as address, signed_in(desk, address) as person:
        page = (await person.reads("/")).text
    await desk.close_mailbox()
    desk.close()

    dashboard = (home.vault / "Deskhand" / "Dashboard.md").read_text().replace("\\", "")
    told = Home(home.vault, own).command("status").stdout
    for text in (page, dashboard, told):
        assert "Deskhand/Approved/letter.txt" in text
        assert "Deskhand/Needs_Action/odd.md" in text
