"""A guarded desk on this machine: a real user, real permissions, and everything back where it was in the end."""

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from deskhand import guard
from deskhand.setup import unit
from deskhand.setup.guarded import UNIT
from tests.requirements import requirement
from tests.resident.test_handing import Ends
from tests.resident.test_joining import INITIALIZE
from tests.setup.guarded_account import (
    COMMAND,
    LETTER,
    PASSWORD,
    Account,
    made_account,
    why_not,
)

INSTALL = ["service", "install", "--guarded", "--yes", "--for"]


@requirement("guarded:reach")
@requirement("guarded:moved")
@requirement("guarded:refused")
@requirement("guarded:named")
@requirement("proof:shut-vault")
@pytest.mark.timeout(400)
def test_a_guarded_desk_is_out_of_reach_answers_to_the_password_and_comes_back_whole() -> (
    None
):
    if reason := why_not():
        pytest.skip(reason)
    with made_account(f"dh{os.getpid()}") as account:
        done = account.root(
            "service", "install", "--guarded", "--for", account.name, "--yes", "--json"
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["mode"], told["started"], told["holes"]) == ("guarded", False, [])
        check_that_nothing_is_reached(account)

        assert account.root("password", "set", given=f"{PASSWORD}\n").returncode == 0
        started = account.root("service", "start", "--json")
        assert started.returncode == 0, started.stderr
        check_that_commands_are_refused(account)
        check_what_status_and_doctor_say(account)
        check_that_the_desk_takes_no_file_of_the_account(account)
        check_that_only_the_password_answers(account)
        check_that_a_closed_vault_stops_no_yes_and_is_named(account)
        check_that_no_variable_leads_root_astray(account)

        uninstall_over_deep_folders(account)
        check_that_everything_is_back(account)


@requirement("guarded:moved")
def test_a_path_that_means_another_folder_to_each_user_is_named_before_anything_moves(
    tmp_path: Path,
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    config = tmp_path / "config.toml"
    config.write_text("[[notes.vaults]]\nname = 'work'\npath = '~/Work'\n")
    done = subprocess.run(
        [sys.executable, "-m", "deskhand", *INSTALL, "nobody"],
        env={"DESKHAND_HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert f"`path` in {config} begins with ~" in done.stderr
    assert guard.find() is None
    assert [*tmp_path.iterdir()] == [config]


def check_that_nothing_is_reached(account: Account) -> None:
    assert not account.home.exists()
    made = guard.find()
    assert made is not None
    assert made.vaults == [str(account.vault), str(account.second_vault)]
    assert (
        "user:deskhand:rwx"
        in account.run("getfacl", "-p", str(account.second_vault)).stdout
    )
    assert guard.HOME.stat().st_mode & 0o777 == 0o700
    for file in ("config.toml", "desk.db"):
        assert (guard.HOME / file).exists()
        assert account.run("cat", str(guard.HOME / file)).returncode != 0
    assert (
        f'ca = "{guard.HOME}/work-work-ca.pem"' in (guard.HOME / "config.toml").read_text()
    )
    assert (guard.HOME / "work-work-ca.pem").read_text().startswith("-----BEGIN")
    (backup,) = Path("/var/backups").glob(f"deskhand-{account.name}-*.tar.gz")
    assert backup.stat().st_mode & 0o777 == 0o600
    assert account.run("touch", str(guard.PROGRAM / "x")).returncode != 0
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", UNIT], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def check_that_commands_are_refused(account: Account) -> None:
    for home in (
        {},
        {"DESKHAND_HOME": str(guard.HOME)},
        {"DESKHAND_HOME": str(account.home)},
    ):
        refused = account.deskhand("approve", "anything", **home)
        assert (refused.returncode, account.address in refused.stderr) == (5, True)
    for words in (
        ["password", "set"],
        ["link"],
        ["up"],
        ["mcp", "email", "--alone"],
        ["service", "uninstall"],
    ):
        assert account.deskhand(*words).returncode == 5, words


def check_what_status_and_doctor_say(account: Account) -> None:
    status = json.loads(account.deskhand("service", "status", "--json").stdout)
    assert (status["mode"], status["running"], status["holes"]) == ("guarded", True, [])
    assert status["holds"]
    assert status["does_not_hold"]
    program = "import os; os.close(os.open('x', os.O_CREAT, 0o600)); os.rename('x', 'vault/shut.md')"
    account.run("/usr/bin/python3", "-c", program)
    account.deskhand("--version", DESKHAND_HOME=str(account.home))
    account.run("mkdir", "-p", str(account.home))
    account.run("touch", str(account.home / "config.toml"))
    account.run("mkfifo", str(account.home / "running.json"))
    guard.HOME.chmod(0o755)
    (guard.PROGRAM / "lib").chmod(0o777)
    try:
        found = json.loads(account.root("doctor", "--json").stdout)["findings"]
    finally:
        guard.HOME.chmod(0o700)
        (guard.PROGRAM / "lib").chmod(0o755)
    said = " ".join(each["says"] for each in found if each["name"] == "guard")
    for hole in (
        "may enter /var/lib/deskhand",
        "only root can change /opt/deskhand/lib",
        "shut.md",
        "second desk",
    ):
        assert hole in said
    named = {each["name"]: each for each in found}
    assert named["mode"]["says"].startswith("guarded")
    assert "others on this machine" not in named["folders"]["says"], "only the desk may"
    account.run("rm", "-r", str(account.home), str(account.vault / "shut.md"))


def check_that_the_desk_takes_no_file_of_the_account(account: Account) -> None:
    """What another user hands over might be something that only the desk may write to."""
    command = guard.as_user(account.name, account.command, "mcp", "obsidian")
    user = pwd.getpwnam(guard.USER).pw_uid
    with ExitStack() as stack:
        ends = Ends(stack, "pipes", account.folder)
        with subprocess.Popen(
            command,
            env=account.environment,
            cwd=account.folder,
            stdin=ends.given,
            stdout=ends.taken,
        ) as process:
            ends.say(INITIALIZE)
            assert ends.hear()["id"] == "first"
            desk = [
                int(each.name)
                for each in Path("/proc").iterdir()
                if each.name.isdigit() and each.stat().st_uid == user
            ]
            assert desk
            assert not any(ends.is_held_by(each) for each in desk)
            process.kill()


def check_that_only_the_password_answers(account: Account) -> None:
    assert "the request waits in" in account.ask()
    (file,) = (account.vault / "Pending_Approval").glob("*.md")
    assert LETTER["body"] in account.run("cat", str(file)).stdout
    account.run("mv", str(file), str(account.vault / "Approved" / file.name))
    with account.signed_in() as http:
        card, fields = account.card(http)
        for way in ("approve", "reject"):
            assert http.post(f"/approvals/{card}/{way}", data=fields).status_code == 409
        assert (account.answers(), account.sent()) == (0, 0)
        assert "asked for in the vault" in http.get(f"/approvals/{card}").text
        assert account.approve(http).status_code == 303
        assert account.wait_for_sent(1) == 1


def check_that_a_closed_vault_stops_no_yes_and_is_named(account: Account) -> None:
    vault = account.vault
    for number, name in enumerate(("Pending_Approval", "Logs", ""), 2):
        account.ask(subject=f"While the vault is closed {number}")
        if name:  # the desk's own: the account can only put another one in its place
            account.run("mv", str(vault / name), str(vault / "aside"))
            account.run("mkdir", str(vault / name))
        account.run("setfacl", "-b", str(vault / name))
        account.run("chmod", "700", str(vault / name))
        with account.signed_in() as http:
            answer = account.approve(http)
        assert answer.status_code == 303, answer.text
        assert account.wait_for_sent(number) == number
        status = json.loads(account.deskhand("service", "status", "--json").stdout)
        assert any("is closed to the desk" in each for each in status["holes"]), name
        said = json.loads(account.root("doctor", "--json").stdout)["findings"]
        assert any("closed to the desk" in each["says"] for each in said), name
        if name:
            account.run("rm", "-r", str(vault / name))
            account.run("mv", str(vault / "aside"), str(vault / name))
    for entry in ("u:deskhand:rwx", "d:u:deskhand:rwx", f"d:u:{account.name}:rwx"):
        account.run("setfacl", "-m", entry, str(vault))


def check_that_no_variable_leads_root_astray(account: Account) -> None:
    """`su` keeps what a program of the account has set; and root stands where nobody else may."""
    own = account.folder / "trap"
    account.run("mkdir", str(own))
    account.run("ln", "-s", "/var/lib/deskhand-written", str(own / "desk.db"))
    hostile = {
        "DESKHAND_HOME": str(own),
        "XDG_DATA_HOME": str(own),
        "DESKHAND_SOCKET": str(own / "desk.sock"),
        "VAULT_PATH": str(own),
        "HOME": str(own),
        "PATH": f"{own}:{os.environ['PATH']}",
        "PYTHONPATH": str(own),
    }
    for words in (["approvals"], ["doctor"], ["service", "status"], ["log", "--verify"]):
        done = subprocess.run(
            [COMMAND, *words],
            env=hostile,
            cwd="/root",
            capture_output=True,
            text=True,
            check=False,
        )
        assert "error" not in done.stderr, (words, done.stderr)
    assert [each.name for each in own.iterdir()] == ["desk.db"]
    assert not Path("/var/lib/deskhand-written").exists()
    account.run("rm", "-r", str(own))


def uninstall_over_deep_folders(account: Account) -> None:
    """Deeper than a function can call itself, and than a process may have files open."""
    program = "import os\nfor _ in range(1200): os.mkdir('d'); os.chdir('d')"
    deep = account.vault / "deep"
    account.run("mkdir", str(deep))
    account.run("env", "-C", str(deep), "/usr/bin/python3", "-c", program)
    done = account.root("service", "uninstall", "--yes")
    assert done.returncode == 0, done.stderr
    account.run("rm", "-r", str(deep))


def check_that_everything_is_back(account: Account) -> None:
    assert not guard.HOME.exists()
    assert not guard.PROGRAM.exists()
    assert (account.home / "desk.db").stat().st_uid == account.folder.stat().st_uid
    assert {path.owner() for path in account.vault.rglob("*")} == {account.name}
    listed = account.run(
        "getfacl", "-R", "-p", str(account.vault), str(account.folder)
    ).stdout
    assert "user:deskhand" not in listed
    assert not re.search(r"user:\d+:", listed)
    assert (
        f'ca = "{account.home}/work-work-ca.pem"'
        in account.run("cat", str(account.home / "config.toml")).stdout
    )
    program = [sys.executable, "-m", "deskhand", "log", "--verify", "--json"]
    done = subprocess.run(
        program,
        env={"DESKHAND_HOME": str(account.home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["whole"], (
        "the key that the answers were written with came back too"
    )


@requirement("guarded:reach")
def test_root_opens_no_folder_that_the_person_could_have_swapped() -> None:
    """Above the vault: a link in a folder of theirs leads to one of root's."""
    if reason := why_not():
        pytest.skip(reason)
    with (
        made_account(f"dl{os.getpid()}") as account,
        tempfile.TemporaryDirectory() as closed,
    ):
        target = Path(closed) / "vault"
        target.mkdir()
        shutil.chown(target, account.name)
        (account.folder / "way").symlink_to(closed)
        account.folder.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-m", "deskhand", *INSTALL, account.name],
            env={
                "DESKHAND_HOME": str(account.home),
                "VAULT_PATH": str(account.folder / "way" / "vault"),
                "PATH": os.environ["PATH"],
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"{account.folder}/way belongs to root" in done.stderr
        assert "system.posix_acl_access" not in os.listxattr(closed)


@requirement("guarded:unit")
def test_the_unit_leaves_little_exposed_whatever_the_vault_is_called(
    tmp_path: Path,
) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    made = guard.Guard(
        "alex",
        1000,
        "/srv/a",
        '/srv/My "vault": 50% of $HOME',
        others=["/srv/second vault"],
    )
    file = tmp_path / "deskhand.service"
    file.write_bytes(unit.text_of(made))
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", file],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= 2.0
