import asyncio
import json
import os
import pty
import re
import stat
import subprocess
import sys
import tomllib
from email.utils import format_datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deskhand.app import Desk
from deskhand.config import OPTIONS, load, sentence
from deskhand.errors import BadConfig
from deskhand.gate.actions import SendEmail
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.notes.folders import FOLDERS
from deskhand.orchestrator.loop import Orchestrator
from deskhand.running import DeskLock, acquire
from deskhand.setup import init
from tests.mail.letters import letter
from tests.requirements import requirement
from tests.setup.account import Account


@requirement("init:commented")
def test_every_option_is_in_the_file_with_its_sentence_and_its_default(
    account: Account,
) -> None:
    done = account.set_up("--timezone", "Europe/Berlin")

    text = (account.home / "config.toml").read_text()
    written = [name for name in OPTIONS if name not in ("home", "tmux", "tmux_pane")]
    assert [
        name
        for name in written
        if sentence(name) not in text or OPTIONS[name].variable not in text
    ] == []
    assert {key: value for key, value in tomllib.loads(text).items() if value != {}} == {
        "vault_path": str(account.vault),
        "vault": {"folder": "Deskhand"},
        "timezone": "Europe/Berlin",
        "mail": {"address": "me@example.com"},
    }
    assert "# max_sends = 10\n" in text
    assert "timezone: not set -> Europe/Berlin" in done.out
    assert stat.S_IMODE((account.home / "config.toml").stat().st_mode) == 0o600
    assert stat.S_IMODE(account.home.stat().st_mode) == 0o700
    assert list(account.vault.iterdir()) == []

    # Each line that is now a comment may be put in force as it stands, where it has a default.
    uncommented = "\n".join(
        line.removeprefix("# ")
        if line.endswith(("= 10", "= 3600", '= "any"', "= false"))
        else line
        for line in text.splitlines()
    )
    (account.home / "config.toml").write_text(uncommented)
    assert load().sources["max_sends"] == "config.toml"


@requirement("init:kept")
def test_running_it_again_keeps_every_word_and_a_copy(account: Account) -> None:
    account.home.mkdir()
    mine = '# mine\nport = 4000  # because\n\n[mail]\nkind = "local"\n# the address:\naddress = "old@example.com"\n'
    (account.home / "config.toml").write_text(mine)
    (account.home / "config.toml").chmod(0o640)

    done = account.deskhand(
        "init", "--address", "new@example.com", "--user", "ada", "--yes", "--json"
    )

    text = (account.home / "config.toml").read_text()
    assert done.json["changed"] == {"mail.address": "new@example.com", "user": "ada"}
    assert Path(done.json["backup"]).read_text() == mine
    assert all(
        line in text
        for line in ("# mine\n", "port = 4000  # because\n", "# the address:\n")
    )
    assert load().settings.address == "new@example.com"
    assert load().settings.port == 4000
    assert load().settings.user == "ada"
    assert stat.S_IMODE((account.home / "config.toml").stat().st_mode) == 0o640

    again = account.deskhand("init", "--user", "ada", "--yes")
    assert "No value changes." in again.out
    assert (account.home / "config.toml").read_text() == text
    assert len(list((account.home / "backups").iterdir())) == 1


LINES = st.sampled_from(
    [
        "# a comment",
        "",
        "port = 4000",
        "# port = 1",
        'log_level = "INFO"',
        'agents.room = "x"',
        "[mail]",
        "# kind = 'imap'",
        "[ tasks ]",
        "timeout = 3.5 # s",
        '[model]\nname = """a:b"""',
        "[agents]",
    ]
)


@requirement("init:kept")
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(LINES, max_size=10))
def test_whatever_the_file_says_it_still_says_it_or_nothing_is_planned(
    tmp_path: Path, lines: list[str]
) -> None:
    home = tmp_path / "desk"
    home.mkdir(exist_ok=True)
    text = "\n".join(lines)
    (home / "config.toml").write_text(text)
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(BadConfig):
            init.plan_config(home, {"user": "ada"})
        return
    try:
        plan = init.plan_config(home, {"user": "ada", "mail": "imap"})
    except BadConfig:
        return

    after = tomllib.loads(plan.after)
    assert after.pop("user") == "ada"
    assert after["mail"].pop("kind") == "imap"
    assert {key: value for key, value in after.items() if value != {}} == {
        key: value for key, value in before.items() if value != {}
    }
    assert [
        line for line in lines if line.startswith("# a") and line not in plan.after
    ] == []


@requirement("init:asks-nothing-twice")
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--vault", "/nowhere/at/all", "--yes"], "There is no folder /nowhere/at/all"),
        (["--address", "not an address", "--yes"], "Invalid email address format"),
        (["--address", "not an address", "--yes"], "mail.address: is not one bare"),
        (["--timezone", "Mars/Olympus", "--yes"], "not a time zone"),
        (["--user", "ada"], "Not a terminal, so nothing can be asked"),
    ],
)
def test_a_bad_answer_is_named_and_nothing_is_written(
    account: Account, flags: list[str], says: str
) -> None:
    done = account.deskhand("init", *flags)

    assert done.code in (2, 3)
    assert says in done.err
    assert not account.home.exists()


@requirement("init:asks-nothing-twice")
def test_the_desk_s_home_is_no_vault(account: Account) -> None:
    account.home.mkdir(parents=True)
    done = account.deskhand("init", "--vault", account.home, "--yes")
    assert done.code == 2
    assert "is the desk's home, which no tool enters" in done.err
    assert list(account.home.iterdir()) == []


@requirement("init:vaults")
@pytest.mark.parametrize(
    ("platform", "place"),
    [
        ("linux", ".config/obsidian"),
        ("linux", ".var/app/md.obsidian.Obsidian/config/obsidian"),
        ("darwin", "Library/Application Support/obsidian"),
        ("win32", "AppData/Roaming/obsidian"),
    ],
)
def test_vaults_are_found_where_obsidian_itself_knows_them(
    tmp_path: Path, platform: str, place: str
) -> None:
    for name in ("Old", "Open"):
        (tmp_path / name).mkdir()
    listed = {
        "a": {"path": str(tmp_path / "Old"), "ts": 5},
        "b": {"path": str(tmp_path / "Open"), "ts": 1, "open": True},
        "c": {"path": str(tmp_path / "Gone"), "ts": 9},
        "d": "nonsense",
    }
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "obsidian.json").write_text(json.dumps({"vaults": listed}))

    assert init.vaults({"HOME": str(tmp_path)}, platform) == [
        tmp_path / "Open",
        tmp_path / "Old",
    ]

    (tmp_path / place / "obsidian.json").write_text("{broken")
    assert init.vaults({"HOME": str(tmp_path)}, platform) == []


@requirement("init:asks-nothing-twice")
def test_at_a_terminal_it_asks_offers_the_vaults_and_makes_folders_when_told(
    account: Account,
) -> None:
    known = account.folder / ".config" / "obsidian"
    known.mkdir(parents=True)
    (known / "obsidian.json").write_text(
        json.dumps({"vaults": {"a": {"path": str(account.vault)}}})
    )
    ours, theirs = pty.openpty()
    # A folder with a slip, not to be made; a number that is not in the list.
    # Then the number of the vault; a mailbox that is none, then none; an address at
    # the second try; no user; a zone at the second try; yes to folders; yes to writing.
    os.write(
        ours,
        b"~/Valut\nn\n9\n1\noutlook\n\nme\nme@example.com\n\nBerlin\nEurope/Berlin\ny\ny\n",
    )
    done = subprocess.run(
        [sys.executable, "-m", "deskhand", "init"],
        stdin=theirs,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(ours)
    os.close(theirs)

    assert done.returncode == 0, done.stderr
    assert f"1  {account.vault}" in done.stderr
    assert f"There is no folder {account.folder / 'Valut'}. Make it?" in done.stderr
    assert "There is one vault in the list: 1.\n" in done.stderr
    assert done.stderr.count("“outlook”: is none of 'local', 'gmail' or 'imap'.\n") == 1
    assert "“Berlin”: not a time zone; did you mean Europe/Berlin?\n" in done.stderr
    assert "the configuration has errors" not in done.stderr.lower()
    assert load().settings.vault_path == account.vault
    assert (load().settings.mail, load().settings.address) == ("local", "me@example.com")
    assert load().settings.timezone == "Europe/Berlin"
    assert load().settings.user is None
    assert "“me”: is not one bare address.\n" in done.stderr
    assert sorted(path.name for path in account.own.iterdir()) == sorted(FOLDERS)
    assert "next: deskhand doctor\nnext: deskhand up\n" in done.stdout


@requirement("init:kept")
def test_a_link_stays_a_link_and_a_password_is_not_shown(account: Account) -> None:
    real = account.folder / "dotfiles.toml"
    real.write_text(
        '[mail]\nkind = "imap"\nimap_url = "imaps://me:old-secret@mail.example.org"\n'
    )
    account.home.mkdir()
    (account.home / "config.toml").symlink_to(real)

    done = account.deskhand(
        "init", "--imap-url", "imaps://me:new-secret@mail.example.org", "--yes"
    )

    assert done.code == 0, done.err
    assert (account.home / "config.toml").is_symlink()
    assert "new-secret" in real.read_text()
    assert "secret@" not in done.out + done.err
    assert "imaps://me:********@mail.example.org" in done.out


@requirement("init:folder")
def test_a_new_vault_gets_one_folder_and_one_that_a_desk_worked_in_stays_as_it_is(
    account: Account,
) -> None:
    (account.vault / "Done").mkdir()  # the person's own
    account.set_up("--make-folders")
    again = account.deskhand("init", "--vault", account.vault, "--yes", "--json")

    assert sorted(path.name for path in account.vault.iterdir()) == ["Deskhand", "Done"]
    assert (load().settings.vault_folder, again.json["changed"]) == ("Deskhand", {})

    for older in ("Pending_Approval", None):
        (account.home / "config.toml").write_text(
            f'vault_path = "{account.vault if older is None else "/nowhere"}"\n'
        )
        if older:
            (account.vault / older).mkdir()
        assert account.deskhand("init", "--vault", account.vault, "--yes").code == 0
        assert load().settings.vault_folder is None


@requirement("init:private")
def test_what_the_desk_makes_in_the_vault_is_the_person_s_alone(account: Account) -> None:
    account.vault.rmdir()
    account.set_up("--make-folders")
    asyncio.run(_take_mail_in_and_propose())

    made = [account.vault, *account.vault.rglob("*")]
    assert {"Needs_Action", "Pending_Approval"} <= {
        path.parent.name for path in made if path.suffix == ".md"
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()} == {0o600}
    for folder in (account.vault, account.own, account.own / "Needs_Action"):
        folder.chmod(0o755)
    found = account.deskhand("doctor", "--json").json["findings"]
    assert [
        each["says"]
        for each in found
        if each["name"] == "folders" and each["state"] == "warning"
    ] == ["others on this machine may read Needs_Action: your mail and what waits"]


async def _take_mail_in_and_propose() -> None:
    desk = Desk(load().settings)
    assert isinstance(desk.mailbox, LocalMailbox)
    today = re.sub(
        rb"Date: .*", f"Date: {format_datetime(desk.now())}\r".encode(), letter()
    )
    await desk.mailbox.receive([Incoming(today, seen=False)])
    await desk.gate.propose(
        SendEmail(to="ann@example.org", subject="Re: Hello", body="Hi.\n"), "email_mcp"
    )
    orchestrator = Orchestrator(desk)
    await orchestrator.once()
    await orchestrator.close()
    await desk.close_mailbox()
    desk.close()


@requirement("init:asks-nothing-twice")
def test_a_desk_that_runs_is_named_because_it_has_the_settings_of_before(
    account: Account,
) -> None:
    account.set_up()
    words = ("init", "--account", "work", "--mail", "local", "--address", "me@x.de")
    lock = acquire(account.home)
    assert isinstance(lock, DeskLock)
    with lock:
        lock.announce(8642, {})
        done = account.deskhand(*words, "--yes")
        assert (
            f"the desk runs as process {os.getpid()}; end it and start it again" in done.out
        )
        assert "start it again" not in account.deskhand("init", "--yes").out
    words = (*words[:2], "home", *words[3:-1], "me@y.de")
    assert "start it again" not in account.deskhand(*words, "--yes").out
