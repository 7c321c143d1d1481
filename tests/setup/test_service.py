"""`deskhand service`: the desk at login, as a file that systemd and launchd take."""

import json
import os
import plistlib
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from deskhand.setup.service import service_of
from tests.home import Home
from tests.requirements import requirement
from tests.resident.test_up import start


@pytest.fixture
def account(home: Home, tmp_path: Path) -> Home:
    """The home of a person who has a folder of their own."""
    (tmp_path / "person").mkdir()
    return Home(
        home.vault,
        home.environment
        | {"HOME": str(tmp_path / "person"), "DESKHAND_ADDRESS": "me@example.org"},
    )


def unit_of(account: Home) -> Path:
    return (
        Path(account.environment["HOME"])
        / ".config"
        / "systemd"
        / "user"
        / "deskhand.service"
    )


@requirement("service:installed")
def test_install_writes_a_unit_says_what_it_did_not_start_and_uninstall_takes_it_away(
    account: Home,
) -> None:
    assert account.command("service", "install", "--for", "alex").returncode == 2
    done = account.command("service", "install", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["file"] == str(unit_of(account))
    assert {"VAULT_PATH", "DESKHAND_ADDRESS"} <= set(facts["from_shell"])
    assert facts["told"] or facts["why"]
    assert unit_of(account).stat().st_mode & 0o777 == 0o644
    text = account.command("service", "install").stdout
    assert "put into config.toml what" in text
    assert (
        json.loads(account.command("service", "status", "--json").stdout)["mode"] == "user"
    )

    assert account.command("service", "uninstall").returncode == 0
    assert not unit_of(account).exists()
    again = account.command("service", "uninstall")
    assert again.returncode == 4
    assert "No service is installed" in again.stderr


@requirement("service:installed")
def test_systemd_reads_the_unit_without_a_complaint(account: Home) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    account.command("service", "install")
    done = subprocess.run(
        ["systemd-analyze", "verify", unit_of(account)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@requirement("service:installed")
def test_what_the_unit_starts_is_this_desk_and_status_says_that_it_runs(
    account: Home, tmp_path: Path
) -> None:
    account.command("service", "install")
    lines = dict(
        line.split("=", 1)
        for line in unit_of(account).read_text().splitlines()
        if "=" in line
    )
    command = shlex.split(lines["ExecStart"])
    assert command[1:] == ["-m", "deskhand", "up", "--no-browser"]
    assert shlex.split(lines["Environment"]) == [f"DESKHAND_HOME={account.path}"]
    assert (
        json.loads(account.command("service", "status", "--json").stdout)["running"]
        is False
    )

    desk = start(tmp_path, account.environment, "--port", "0")
    try:
        status = json.loads(account.command("service", "status", "--json").stdout)
        logs = account.command("service", "logs", "-n", "5")
    finally:
        desk.close()
    assert status["running"] is True
    assert any("Approved/" in each for each in status["does_not_hold"])
    assert logs.returncode == 0


@requirement("service:installed")
def test_names_that_mean_something_to_systemd_are_only_names(tmp_path: Path) -> None:
    found = service_of(
        tmp_path, Path('/opt/a b/50% "$HOME"'), python="/opt/my python/bin/python"
    )
    text = found.text.decode()
    assert (
        'ExecStart="/opt/my python/bin/python" "-m" "deskhand" "up" "--no-browser"' in text
    )
    assert 'Environment="DESKHAND_HOME=/opt/a b/50%% \\"$$HOME\\""' in text


@requirement("service:installed")
def test_the_agent_of_macos_is_a_property_list_that_says_the_same(tmp_path: Path) -> None:
    found = service_of(
        tmp_path, Path("/opt/a/desk & <home>"), python="/usr/bin/python3", platform="darwin"
    )
    read = plistlib.loads(found.text)
    assert found.file == tmp_path / "Library" / "LaunchAgents" / "dev.deskhand.desk.plist"
    assert read["ProgramArguments"] == [
        "/usr/bin/python3",
        "-m",
        "deskhand",
        "up",
        "--no-browser",
    ]
    assert read["EnvironmentVariables"] == {"DESKHAND_HOME": "/opt/a/desk & <home>"}
    assert (read["RunAtLoad"], read["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert os.fspath(found.file) in found.start
