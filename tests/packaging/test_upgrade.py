"""An older deskhand at the desk of a newer one."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from deskhand.store import open_store
from tests.home import Home
from tests.requirements import requirement


def everything(*folders: Path) -> dict[str, str]:
    """Each file and folder in these, with its content."""
    found = {}
    for folder in folders:
        for each in sorted(folder.rglob("*")):
            found[str(each)] = ""
            if each.is_file():
                found[str(each)] = hashlib.sha256(each.read_bytes()).hexdigest()
    return found


@requirement("install:downgrade")
@pytest.mark.parametrize(
    "command",
    [["up", "--no-browser", "--port", "0"], ["mcp", "desk"], ["orchestrate", "--once"]],
)
def test_an_older_deskhand_refuses_a_newer_desk_and_touches_nothing(
    command: list[str], home: Home
) -> None:
    file = home.path / "desk.db"
    open_store(f"sqlite:///{file}").close()
    with closing(sqlite3.connect(file)) as newer, newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
    before = everything(home.path, home.vault)

    done = home.command(*command)

    assert done.returncode in (1, 3)
    assert "newer deskhand made this desk's database" in done.stderr
    assert "Traceback" not in done.stderr
    assert everything(home.path, home.vault) == before
