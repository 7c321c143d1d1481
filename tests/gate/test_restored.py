"""A desk that was put back to a time before a mail left."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gate.site import HELLO, Site, said
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def listed(site: Site) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in site.home.command("approvals", "--json").stdout.splitlines()
    ]


async def ask(site: Site) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)


def restore_beside(site: Site, place: Path) -> Site:
    """The desk of a backup that is made now, restored somewhere else."""
    kept = str(place.with_name("kept"))
    assert site.home.command("backup", kept).returncode == 0
    restored = site.home.command("restore", kept, "--to", str(place))
    assert restored.returncode == 0, restored.stderr
    assert "Nothing leaves it" in restored.stdout
    return site.with_variables(DESKHAND_HOME=str(place))


def copy_by_hand(site: Site, place: Path) -> Site:
    shutil.copytree(site.home.environment["DESKHAND_HOME"], place)
    return site.with_variables(DESKHAND_HOME=str(place))


def move_to_approved(site: Site) -> None:
    (waiting,) = site.files("Pending_Approval")
    (site.home.vault / "Approved").mkdir(exist_ok=True)
    waiting.rename(site.home.vault / "Approved" / waiting.name)


@requirement("backup:left-since")
async def test_what_left_after_the_backup_does_not_wait_as_if_it_had_not(
    site: Site, tmp_path: Path
) -> None:
    async with site.client("email") as client:
        await said(client, "send_email", **HELLO)
        await said(client, "send_email", **HELLO | {"subject": "Not sent"})
    other, sent = sorted(
        listed(site), key=lambda each: each["action"]["subject"] == HELLO["subject"]
    )
    assert site.home.command("backup", str(tmp_path / "kept")).returncode == 0
    assert site.home.command("approve", sent["id"], "--yes").returncode == 0
    async with site.client("email") as client:
        assert "sent successfully" in await said(client, "send_email", **HELLO)
    aside = other["id"]
    (stray,) = [file for file in site.files("Pending_Approval") if aside in file.name]
    (site.home.vault / "Done" / stray.name).write_text(
        stray.read_text()
    )  # put there by hand: it says nothing

    restored = site.home.command(
        "restore", str(tmp_path / "kept"), "--to", str(tmp_path / "again")
    )
    assert restored.returncode == 0, restored.stderr
    shutil.rmtree(site.home.environment["DESKHAND_HOME"])
    (tmp_path / "again" / "desk.place").unlink()  # now it is the desk
    site = site.with_variables(DESKHAND_HOME=str(tmp_path / "again"))
    found = {each["id"]: each for each in listed(site)}
    assert found[sent["id"]]["state"] == "unknown"
    assert "Done/" in found[sent["id"]]["note"]
    assert found[aside]["state"] == "waiting"
    said_so = [
        entry
        for entry in map(json.loads, site.home.command("log", "--json").stdout.splitlines())
        if "may have left already" in entry.get("error", "")
    ]
    assert [entry["parameters"]["action_id"] for entry in said_so] == [sent["id"]]
    assert any(sent["id"] in file.name for file in site.files("Pending_Approval"))
    async with site.client("email") as client:
        assert "outcome unknown" in await said(client, "send_email", **HELLO)
    assert len(site.sent) == 1

    assert (
        site.home.command("approve", sent["id"], "--yes").returncode == 0
    )  # it is found in Sent
    async with site.client("email") as client:
        assert "sent successfully" in await said(client, "send_email", **HELLO)
    assert len(site.sent) == 1
    assert {each["id"]: each["state"] for each in listed(site)} == {aside: "waiting"}


@requirement("backup:copy")
@pytest.mark.parametrize("copied", [restore_beside, copy_by_hand])
async def test_nothing_leaves_a_copy_that_stands_beside_its_desk(
    site: Site, tmp_path: Path, copied: Callable[[Site, Path], Site]
) -> None:
    await ask(site)
    original = site.home.environment["DESKHAND_HOME"]
    copy = copied(site, tmp_path / "copy").with_variables(DEV_MODE="false")
    move_to_approved(site)

    assert copy.home.command("orchestrate", "--once").returncode == 0
    found = json.loads(copy.home.command("doctor", "--json").stdout)["findings"]
    (told,) = [each["says"] for each in found if each["name"] == "approvals"]
    assert f"a copy of {original}" in told
    assert site.sent == []

    assert site.home.command("orchestrate", "--once").returncode == 0
    assert copy.home.command("orchestrate", "--once").returncode == 0
    assert len(site.sent) == 1


@requirement("backup:copy")
@pytest.mark.parametrize("copied", [restore_beside, copy_by_hand])
async def test_whoever_asks_a_copy_is_told_that_it_is_one(
    site: Site, tmp_path: Path, copied: Callable[[Site, Path], Site]
) -> None:
    await ask(site)
    copy = copied(site, tmp_path / "copy")

    async with copy.client("email") as client:
        answers = [
            await said(client, "send_email", **HELLO),
            await said(client, "draft_email", **HELLO),
        ]
    async with copy.client("gmail") as client:
        refused = await client.call_tool("send_email", HELLO)
    move_to_approved(site)
    assert copy.home.command("orchestrate", "--once").returncode == 0

    for answer in answers:
        assert "is a copy of another one and sends nothing" in answer
        assert "DEV_MODE" not in answer
    error = json.loads(refused.content[0].text)
    assert (error["error"], error["details"]["reason"]) == ("permission_denied", "copy")
    assert "copy of another one" in error["message"]
    (card,) = listed(copy)
    assert card["note"].startswith("This desk is a copy of another one")
    assert site.sent == []


@requirement("backup:copy")
async def test_a_restored_copy_stays_one_without_its_original_until_the_person_removes_the_mark(
    site: Site, tmp_path: Path
) -> None:
    await ask(site)
    copy = restore_beside(site, tmp_path / "copy")
    shutil.rmtree(site.home.environment["DESKHAND_HOME"])
    move_to_approved(site)

    assert copy.home.command("orchestrate", "--once").returncode == 0
    assert site.sent == []

    (tmp_path / "copy" / "desk.place").unlink()
    assert copy.home.command("orchestrate", "--once").returncode == 0
    assert len(site.sent) == 1


@requirement("backup:copy")
@pytest.mark.parametrize("moved", ["renamed", "original removed", "original begun anew"])
async def test_a_home_that_was_moved_goes_on(
    site: Site, tmp_path: Path, moved: str
) -> None:
    await ask(site)
    (waiting,) = listed(site)
    original = Path(site.home.environment["DESKHAND_HOME"])
    if moved == "renamed":
        shutil.move(original, tmp_path / "moved")
    else:
        shutil.copytree(original, tmp_path / "moved")
        shutil.rmtree(original)
    if moved == "original begun anew":
        assert site.home.command("approvals", "--json").returncode == 0
    site = site.with_variables(DESKHAND_HOME=str(tmp_path / "moved"))

    assert site.home.command("approve", waiting["id"], "--yes").returncode == 0
    assert site.home.command("orchestrate", "--once").returncode == 0
    assert len(site.sent) == 1
