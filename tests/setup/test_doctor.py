import asyncio
import os
import re
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deskhand import tokens
from deskhand.app import Desk
from deskhand.config import load
from deskhand.mail import documents
from tests.requirements import requirement
from tests.setup.account import Account, Done


def states(done: Done) -> dict[str, str]:
    return {finding["name"]: finding["state"] for finding in done.json["findings"]}


def finding(done: Done, name: str) -> dict[str, str]:
    return next(each for each in done.json["findings"] if each["name"] == name)


@requirement("doctor:findings")
def test_a_desk_in_order_is_called_so_and_nothing_is_made_by_looking(
    account: Account,
) -> None:
    account.set_up("--make-folders")
    account.deskhand("connect", "codex", "--yes")
    listed = sorted(path.name for path in account.home.iterdir())

    done = account.deskhand("doctor", "--json")

    assert done.code == 0
    assert {name for name, state in states(done).items() if state == "bad"} == set()
    assert finding(done, "clients")["says"] == "connected: Codex"
    stays = (
        "stays on this machine: this desk works on a local mailbox, which reaches nobody"
    )
    assert stays in finding(done, "mailbox")["says"]
    assert finding(done, "approvals")["says"].endswith("at most 10 emails in 1 hour")
    assert sorted(path.name for path in account.home.iterdir()) == listed

    shown = account.deskhand("doctor").out
    assert "ok    vault" in shown


@requirement("doctor:findings")
def test_an_assistant_that_came_in_with_a_token_is_connected(account: Account) -> None:
    account.set_up("--make-folders")
    made = account.deskhand("token", "create", "--name", "laptop").out.strip()
    unused = finding(account.deskhand("doctor", "--json"), "clients")
    desk = Desk(load().settings)
    asyncio.run(tokens.authenticate(desk.store, made, desk.now()))
    desk.close()

    used = finding(account.deskhand("doctor", "--json"), "clients")
    assert (unused["state"], unused["says"]) == ("warning", "no assistant is connected")
    assert (used["state"], used["says"]) == ("good", "used tokens: laptop")


@requirement("doctor:findings")
def test_before_anything_is_set_up_it_names_the_command_that_asks(account: Account) -> None:
    done = account.deskhand("doctor", "--json")

    for name in ("vault", "folders"):
        assert finding(done, name)["fix"].startswith("`deskhand init`"), name


def without_vault(account: Account) -> None:
    account.vault.rmdir()


def vault_as_home(account: Account) -> None:
    (account.home / "config.toml").write_text(f'vault_path = "{account.home}"\n')


def open_key(account: Account) -> None:
    (account.home / "seal.key").write_text("x" * 43)
    (account.home / "seal.key").chmod(0o644)


def twin_folder(account: Account) -> None:
    (account.own / "approved").mkdir(parents=True)


def linked_folder(account: Account) -> None:
    account.own.mkdir()
    (account.own / "Approved").symlink_to(account.folder)


def broken_record(account: Account) -> None:
    account.deskhand("log")
    with closing(sqlite3.connect(account.home / "desk.db")) as db:
        db.execute("UPDATE audit_head SET seq = 5")
        db.commit()


def newer_database(account: Account) -> None:
    account.deskhand("log")
    with closing(sqlite3.connect(account.home / "desk.db")) as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
        db.commit()


def no_database(account: Account) -> None:
    (account.home / "desk.db").write_bytes(
        b"this is no database, whatever its name says" * 100
    )
    (account.home / "desk.db").chmod(0o600)


def empty_database(account: Account) -> None:
    asyncio.run(_record_something())
    (account.home / "desk.db").write_bytes(b"")


def no_version(account: Account) -> None:
    account.deskhand("log")
    with closing(sqlite3.connect(account.home / "desk.db")) as db:
        db.execute("DELETE FROM alembic_version")
        db.commit()


async def _record_something() -> None:
    desk = Desk(load().settings)
    await desk.record("person", "sign_in", "page", {}, None, 0)
    assert desk.door is not None
    desk.close()


def zero_page(account: Account) -> None:
    account.deskhand("log")
    with (account.home / "desk.db").open("r+b") as database:
        database.seek(8 * 4096)
        database.write(bytes(4096))


def lost_key(account: Account) -> None:
    asyncio.run(_record_something())
    (account.home / "seal.key").unlink()


def other_key(account: Account) -> None:
    asyncio.run(_record_something())
    (account.home / "seal.key").write_text("z" * 43)


def empty_token(account: Account) -> None:
    (account.home / "token").touch(0o600)


def broken_mailbox(account: Account) -> None:
    (account.home / "mail.db").write_bytes(b"x" * 9000)
    (account.home / "mail.db").chmod(0o600)


def binary_rules(account: Account) -> None:
    (account.home / "rules.toml").write_bytes(b"\xff\xfe" * 50)


def unknown_option(account: Account) -> None:
    (account.home / "config.toml").write_text('approvls = "sealed"\n')


TROUBLE = {
    "vault": without_vault,
    "home": open_key,
    "folders": twin_folder,
    "record": broken_record,
    "database": newer_database,
    "configuration": unknown_option,
}


@requirement("doctor:findings")
@pytest.mark.parametrize(
    ("name", "make"),
    [
        *TROUBLE.items(),
        ("vault", vault_as_home),
        ("folders", linked_folder),
        ("database", no_database),
        ("database", empty_database),
        ("database", no_version),
        ("database", zero_page),
        ("keys", lost_key),
        ("keys", other_key),
        ("keys", empty_token),
        ("mailbox", broken_mailbox),
        ("rules", binary_rules),
    ],
)
def test_each_trouble_is_found_with_what_to_do_and_a_code_that_scripts_see(
    account: Account, name: str, make: Callable[[Account], Any]
) -> None:
    account.set_up()
    make(account)

    done = account.deskhand("doctor", "--json")

    assert done.code == 1
    assert done.json["good"] is False
    assert finding(done, name)["state"] == "bad"
    assert finding(done, name)["fix"]
    assert "\n" not in finding(done, name)["says"]
    assert finding(done, name)["fix"] not in finding(done, name)["says"]


@requirement("doctor:findings")
@requirement("doctor:findings")
def test_documents_that_nothing_here_can_read_are_named(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.set_up()
    done = account.deskhand("doctor", "--json")
    assert finding(done, "attachments")["state"] == "good"
    monkeypatch.setitem(sys.modules, "pypdf", None)

    assert documents.unread_kinds() == ["PDF"]


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # apprise's
@pytest.mark.parametrize(
    ("variables", "name"),
    [
        (
            {"DESKHAND_MAIL": "imap", "DESKHAND_IMAP_URL": "imap://me:hunter2@127.0.0.1:1"},
            "mailbox",
        ),
        (
            {"FASTAPI_BASE_URL": "http://127.0.0.1:1", "SERVICE_AUTH_TOKEN": "hunter2"},
            "tasks",
        ),
        ({"DESKHAND_DATABASE_URL": "postgresql://me:hunter2@127.0.0.1:1/desk"}, "database"),
        ({"DESKHAND_MODEL": "openai:some"}, "model"),
        ({"DESKHAND_NOTIFY": "nonsense://hunter2"}, "notify"),
    ],
)
def test_what_does_not_answer_is_bad_and_no_secret_is_shown(
    account: Account, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], name: str
) -> None:
    account.set_up()
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)

    done = account.deskhand("doctor", "--json")

    assert done.code == 1
    assert finding(done, name)["state"] == "bad"
    assert "hunter2" not in done.out + done.err


@requirement("doctor:findings")
def test_warnings_name_the_port_dev_mode_secrets_in_git_and_old_clients(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.set_up()
    account.deskhand("connect", "cursor", "--yes")
    file = account.folder / ".cursor" / "mcp.json"
    file.write_text(file.read_text().replace('/deskhand"', '/moved-away"'))
    subprocess.run(["git", "init", "-q", str(account.folder)], check=True)
    monkeypatch.setenv("DEV_MODE", "true")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("DESKHAND_PORT", str(taken.getsockname()[1]))
        done = account.deskhand("doctor", "--json")

    warned = {name for name, state in states(done).items() if state == "warning"}
    assert {"port", "approvals", "secrets", "clients", "folders", "tasks"} <= warned
    assert done.code == 0


@requirement("doctor:findings")
def test_a_sound_desk_is_told_in_words_and_without_a_warning(account: Account) -> None:
    account.set_up("--make-folders")
    (account.own / "Plans").rmdir()
    account.deskhand("log")
    done = account.deskhand("doctor", "--json")

    assert finding(done, "folders") == {
        "name": "folders",
        "state": "good",
        "says": "in the vault; Plans will be made when needed",
        "fix": None,
    }
    assert finding(done, "database")["says"] == "sqlite, in order and up to date"
    assert re.match(
        r"\w{3} \d{1,2} \w{3} 20\d\d, \d\d:\d\d; ", finding(done, "clock")["says"]
    )


@requirement("doctor:fix")
def test_fix_repairs_what_is_safe_says_so_and_touches_nothing_else(
    account: Account,
) -> None:
    account.set_up()
    (account.vault / "note.md").write_text("mine\n")
    assert account.deskhand("notes", "index").code == 0
    (index,) = (account.home / "cache").glob("*.db")
    for path in (account.home / "cache").iterdir():
        path.write_bytes(b"damaged" * 1000)
    open_key(account)
    account.home.chmod(0o755)

    assert account.deskhand("doctor", "--json").code == 1
    done = account.deskhand("doctor", "--fix", "--json")

    assert done.code == 0, done.out
    assert len(done.json["repaired"]) == 2 + 9 + 1
    assert stat.S_IMODE(account.home.stat().st_mode) == 0o700
    assert stat.S_IMODE((account.home / "seal.key").stat().st_mode) == 0o600
    assert (account.own / "Needs_Action").is_dir()
    assert index.read_bytes().startswith(b"SQLite format 3")
    assert (account.vault / "note.md").read_text() == "mine\n"
    assert account.deskhand("doctor", "--fix", "--json").json["repaired"] == []
    assert os.access(Path(account.home), os.W_OK)


@requirement("doctor:findings")
def test_rules_that_an_editor_wrote_into_a_closed_home_are_no_trouble(
    account: Account,
) -> None:
    account.set_up("--make-folders")
    for name in ("rules.toml", "guard.toml"):
        (account.home / name).touch(0o644)
        (account.home / name).chmod(0o644)
    closed = account.deskhand("doctor", "--json")
    account.home.chmod(0o755)
    opened = account.deskhand("doctor", "--json")

    assert finding(closed, "home")["state"] == "good"
    assert "rules.toml" in finding(opened, "home")["says"]


@requirement("doctor:deep")
def test_deeply_the_desk_is_tried_as_strangers_would(account: Account) -> None:
    account.set_up("--make-folders", "--user", "ada")
    account.deskhand("tasks", "add", "Call Ann")
    names = {"integrity", "doors", "command lines", "private files", "waiting", "readers"}

    whole = account.deskhand("doctor", "--deep", "--json")
    (account.home / "cache").mkdir(mode=0o755)
    (account.own / "Approved" / "a.md").symlink_to(account.home / "desk.db")
    with (account.home / "desk.db").open("r+b") as database:
        database.seek(4096 * 3)
        database.write(os.urandom(4096))
    broken = account.deskhand("doctor", "--deep", "--json")

    assert {states(whole)[name] for name in names} == {"good"}
    assert finding(whole, "record")["says"] == "intact: 1 entry"
    assert [states(broken)[name] for name in ("integrity", "private files")] == [
        "bad",
        "bad",
    ]


@requirement("doctor:rules")
def test_each_error_in_the_rules_is_named_with_its_line(account: Account) -> None:
    account.set_up()
    rules = account.home / "rules.toml"
    rules.write_text(
        '[[rule]]\nname = "a"\nsender = "a@x"\ndecision = "archive"\n\n'
        '[[rule]]\nname = "b"\nsender = " "\ndecision = "shred"\n\n[[rule]]\nname = "c"\ndecision = "archive"\n'
    )
    says = finding(account.deskhand("doctor", "--json"), "rules")["says"]
    assert "line 8: rule 2, sender: must not be empty" in says
    assert "line 9: rule 2, decision: " in says
    assert "line 11: rule 3: needs at least one of account, sender" in says

    rules.write_text('[[rule]]\nname = "a"\nsender = a@x\n')
    assert "line 3" in finding(account.deskhand("doctor", "--json"), "rules")["says"]
    rules.write_text('[defualt]\ndecision = "archive"\n')
    assert (
        "line 1: defualt: there is no such word here"
        in finding(account.deskhand("doctor", "--json"), "rules")["says"]
    )
    rules.write_text('[[rule]]\nname = "a"\nsender = "a@x"\ndecision = "archive"\n')
    assert finding(account.deskhand("doctor", "--json"), "rules")["state"] == "good"
