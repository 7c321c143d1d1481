"""The vault's own folder: whose links on the way to it count."""

import json
import os
from functools import partial
from pathlib import Path

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import Unavailable
from deskhand.notes.root import open_folder
from deskhand.servers.obsidian import obsidian_server
from tests.home import Home
from tests.requirements import requirement

SOMEBODY = 65_534


def is_same(folder: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(folder), place.stat())
    finally:
        os.close(folder)


@requirement("notes:root")
def test_ones_own_links_lead_to_the_vault(tmp_path: Path) -> None:
    real = tmp_path / "a" / "real"
    real.mkdir(parents=True)
    (tmp_path / "far").symlink_to(real)
    (tmp_path / "near").symlink_to("a/../far")

    for way in (real, tmp_path / "far", tmp_path / "near", tmp_path / "a" / ".." / "near"):
        assert is_same(open_folder(way), real)
    (tmp_path / "loop").symlink_to("loop")
    for way in (tmp_path / "loop", tmp_path / "nowhere", tmp_path / "near" / "file"):
        with pytest.raises(OSError, match=r"Too many links|No such file"):
            open_folder(way)


@requirement("notes:root")
@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can make a link that is somebody else's"
)
@pytest.mark.parametrize("way", ["vault", "above/vault"])
def test_a_link_of_somebody_else_leads_nowhere(tmp_path: Path, way: str) -> None:
    secret = tmp_path / "secret"
    (secret / "vault").mkdir(parents=True)
    place = tmp_path / "theirs" / way
    link = place if way == "vault" else place.parent
    link.parent.mkdir(parents=True)
    link.symlink_to(secret / "vault" if way == "vault" else secret)
    os.lchown(link, SOMEBODY, SOMEBODY)

    with pytest.raises(OSError, match="Somebody else has put a link"):
        open_folder(place)


@requirement("notes:root")
@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can make a link that is somebody else's"
)
async def test_a_vault_that_was_replaced_by_a_link_is_neither_read_nor_written(
    home: Home, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "note.md").write_text("a secret")
    home.vault.rename(tmp_path / "moved")
    home.vault.symlink_to(secret)
    os.lchown(home.vault, SOMEBODY, SOMEBODY)
    desk = Desk(load(home.environment).settings)
    try:
        for work in (
            partial(desk.vault.save, "desk.db-journal", b"x"),
            partial(desk.vault.read, "note.md"),
            partial(desk.vault.search, "secret", 10, None),
            partial(desk.vault.list_notes, "", None, 10, None),
        ):
            with pytest.raises((OSError, Unavailable)):
                work()
        async with Client(obsidian_server(desk), mode="2026-07-28") as client:
            refused = await client.call_tool("read_note", {"path": "note.md"})
    finally:
        desk.close()
    told = json.loads(refused.content[0].text)["details"]
    said = home.command("notes", "append", "note.md", "more").stderr
    assert [file.name for file in secret.iterdir()] == ["note.md"]
    assert (
        told["reason"],
        "take the link away" in told["hint"],
        "room" in told["hint"],
    ) == ("link", True, False)
    assert ("Take the link away" in said, "room" in said) == (True, False)
