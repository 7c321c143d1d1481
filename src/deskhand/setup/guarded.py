"""The desk as a system service with a user of its own, out of reach of the person's account and all its programs.

Whatever is done to the person's own files is done as the person: a link or a race in a folder that somebody else
controls must not lead root astray.
"""

import os
import pwd
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from deskhand import environment, guard, pipe, running
from deskhand.config import OPTIONS, Settings, display, load
from deskhand.errors import BadConfig, Denied, NotFound, Unavailable
from deskhand.files import open_private, write_atomically
from deskhand.guard import (
    HOME,
    PROGRAM,
    RECORD,
    RUNTIME,
    USER,
    Guard,
    as_user,
    desk_command,
    desk_environment,
)
from deskhand.notes import walk
from deskhand.setup import init, unit
from deskhand.setup.program import copy_program

Say = Callable[[str], None]
UNIT = Path("/etc/systemd/system/deskhand.service")
COMMAND = Path("/usr/local/bin/deskhand")
BACKUPS = Path("/var/backups")
PATIENCE = 60.0
"""Seconds in which a desk has started or ended."""
_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
_TOOLS = {"setfacl": "acl", "setpriv": "util-linux", "tar": "tar", "useradd": "passwd"}
_PASSING = ("./cache", "./running.json", "./desk.sock", "./token")
"""Never moved: what can be made again, or holds for a moment."""
_KNOWN = ("./proof.key", "./push.key", "./password.sealed")
"""Not moved into the guarded home: the account may know by which keys the desk is known, also to itself."""
_LEAD_AWAY = (
    "gmail_api_endpoint",
    "imap_url",
    "smtp_url",
    "accounts",
    "model_base_url",
    "fastapi_base_url",
    "notify",
    "push_networks",
    "database_url",
)
_FILES = ("gmail_credentials", "mail_ca")


def install(person: str, now: datetime, say: Say) -> Guard:
    """Guard the desk of this person, or bring the program of a guarded one up to date."""
    demand_root()
    _demand_tools()
    account = _account(person)
    before = guard.find()
    if before is not None and before.person != person:
        raise Denied(
            f"the desk is guarded for {before.person}",
            reason="guarded",
            hint="`service uninstall` first",
        )
    moved = Path(before.moved) if before else _home_of(account)
    _demand_whole_paths(HOME if before else moved, account)
    settings = load(desk_environment()).settings if before else _settings_of(moved)
    made = replace(
        before or Guard(person, account.pw_uid, str(moved)), port=settings.inbox_port
    )
    if settings.vault_path is not None:
        made = replace(
            made,
            vault=_demand_own(settings.vault, account),
            others=[*_others(settings, account, say)],
        )
    # The person's account and the desk's user may not be able to enter where root stands.
    os.chdir("/")
    was_running = stop(say) if is_running() else False
    _make_user(say)
    copy_program(PROGRAM, (RECORD.name, made.to_json()))
    say(f"the program is in {PROGRAM}, which only root can change")
    _own_folder(HOME, 0o700)
    if before is None:
        _move_home(made, settings, now, say)
    for vault in made.vaults:
        made = replace(
            made, above=sorted({*made.above, *_open_vault(made, Path(vault), say)})
        )
        write_atomically(RECORD, made.to_json(), 0o644)
    for vault in set(before.vaults if before else ()).difference(made.vaults):
        _close_vault(made, Path(vault), say)
    write_atomically(UNIT, unit.text_of(made), 0o644)
    say(f"{UNIT} is written")
    if not COMMAND.exists() and not COMMAND.is_symlink():
        COMMAND.symlink_to(PROGRAM / "bin" / "deskhand")
        say(f"{COMMAND} leads to it")
    if was_running and not runs_systemd():
        start(say)
    return made


def uninstall(now: datetime, say: Say) -> str | None:
    """Give everything back to the person's account, with a copy of the guarded home kept for root.

    Where the home is then; None where the account is gone.
    """
    demand_root()
    made = demand_guard()
    stop(say)
    home = _bring_home_back(made, now, say)
    if runs_systemd():
        subprocess.run(
            ["systemctl", "disable", UNIT.name], capture_output=True, check=False
        )
    UNIT.unlink(missing_ok=True)
    if _has_account(made.person):
        for vault in made.vaults:
            _close_vault(made, Path(vault), say)
        _close_folders(made.above)
    if COMMAND.is_symlink() and COMMAND.readlink() == PROGRAM / "bin" / "deskhand":
        COMMAND.unlink()
    for folder in (PROGRAM, HOME, RUNTIME):
        shutil.rmtree(folder, ignore_errors=True)
    _run(["userdel", USER])
    say(f"{PROGRAM}, {HOME} and the user {USER} are gone")
    return home


# Running.


def start(say: Say) -> None:
    """By systemd where it runs, else as a process of the desk's user with the unit's environment."""
    demand_root()
    demand_guard()
    if is_running():
        say("the desk runs already")
        return
    if runs_systemd():
        _run(["systemctl", "enable", "--now", UNIT.name])
        say("systemd started it, and will at each start of the machine")
        return
    _own_folder(RUNTIME, 0o711)
    log = HOME / "service.log"
    with open(log, "ab", opener=_open_no_link) as opened:
        _give(log)
        began = subprocess.Popen(
            desk_command("up", "--no-browser"),
            env=desk_environment(),
            cwd=HOME,
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=opened,
            start_new_session=True,
            umask=0o077,
        )
    _wait_until(lambda: is_running() or began.poll() is not None)
    if not is_running():
        raise Unavailable(
            "the desk did not start", hint=f"{log} says why: {_last_line(log)}"
        )
    say(
        f"started as process {began.pid} of {USER}; systemd does not run here, so nothing starts it again by itself"
    )


def stop(say: Say) -> bool:
    """Whether there was one to stop."""
    demand_root()
    if runs_systemd():
        subprocess.run(["systemctl", "stop", UNIT.name], capture_output=True, check=False)
    try:
        found = running.find(HOME)
    except Unavailable:  # it is just starting or ending
        _wait_until(lambda: not is_running())
        found = None
    if found is None:
        say("no desk runs")
        return False
    if Path(f"/proc/{found.pid}").stat().st_uid != pwd.getpwnam(USER).pw_uid:
        raise Unavailable(
            f"process {found.pid} is not the desk's", hint="nothing was stopped"
        )
    os.kill(found.pid, signal.SIGTERM)
    if not _wait_until(lambda: not Path(f"/proc/{found.pid}").exists()):
        raise Unavailable(
            f"the desk (process {found.pid}) has not ended yet",
            hint="try again in a moment",
        )
    say("the desk is stopped")
    return True


def is_running() -> bool:
    """Whether the desk's own user listens at the socket, which everybody may ask."""
    if sys.platform != "linux":
        return False
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(5)
        try:
            door.connect(pipe.GUARDED)
            peer = door.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
            )
            return int(struct.unpack("3i", peer)[1]) == pwd.getpwnam(USER).pw_uid
        except (OSError, KeyError):
            return False


def sign_in_link() -> str | None:
    """A link for the person's browser, for root's eyes; None where no desk runs."""
    done = subprocess.run(
        desk_command("link"),
        env=desk_environment(),
        cwd=HOME,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or None


def runs_systemd() -> bool:
    return Path("/run/systemd/system").is_dir()


def demand_root() -> None:
    if sys.platform != "linux":
        raise Unavailable(
            "a desk is guarded on Linux only",
            hint="run the assistant as another user instead",
        )
    if os.geteuid() != 0:
        raise Denied(
            "only root can do that", reason="guarded", hint="sudo deskhand service …"
        )


def demand_guard() -> Guard:
    found = guard.find()
    if found is None:
        raise NotFound(
            "no guarded desk is installed",
            hint="`sudo deskhand service install --guarded` makes one",
        )
    return found


# The home.


def _home_of(account: pwd.struct_passwd) -> Path:
    named = environment.variables().get("DESKHAND_HOME")
    return (
        Path(named).absolute()
        if named
        else Path(account.pw_dir) / ".local" / "share" / "deskhand"
    )


def _settings_of(home: Path) -> Settings:
    settings = load({**environment.variables(), "DESKHAND_HOME": str(home)}).settings
    if settings.vault_path is None:
        hint = "`deskhand init` as the person writes it into config.toml; or set VAULT_PATH for this command"
        raise BadConfig("nobody says where the vault is", hint=hint)
    if (
        settings.database_url is not None
        and str(home) not in settings.database
        and "sqlite" in settings.database
    ):
        raise BadConfig(
            "the database lies outside the desk's home", hint=f"move it to {home} first"
        )
    return settings


def _demand_whole_paths(home: Path, account: pwd.struct_passwd) -> None:
    """In a path ~ is one folder for the person, who wrote it, and another one for root and
    for the desk's own user."""
    config = home / "config.toml"
    if config.is_file():
        short = re.search(
            r"""^\s*(\w+)\s*=\s*["']~(?=[/"'])""", config.read_text(), re.MULTILINE
        )
        if short:
            raise BadConfig(
                f"`{short[1]}` in {config} begins with ~",
                hint=f"write {account.pw_dir} instead; nothing was moved",
            )


def _move_home(made: Guard, settings: Settings, now: datetime, say: Say) -> None:
    moved = Path(made.moved)
    if running.find(moved) is not None:
        raise Denied(
            f"a desk runs in {moved}",
            reason="running",
            hint="end it first; nothing was moved",
        )
    if moved.is_dir():
        kept = _keep(made.person, moved, f"{made.person}-{now:%Y%m%dT%H%M%S}", say)
        with kept.open("rb") as opened:
            leave = [f"--exclude={name}" for name in (*_PASSING, *_KNOWN)]
            _run(
                as_user(
                    USER, "tar", "-C", str(HOME), "-xz", "--no-same-permissions", *leave
                ),
                stdin=opened,
            )
        _own_folder(HOME, 0o700)  # the archive says how open the old one was
        # No link leads out of it.
        _run(as_user(USER, "find", str(HOME), "-type", "l", "-delete"))
    _write_config(made, settings, say)
    if moved.is_dir():
        # Only now: until here everything is still where it was.
        _run(as_user(made.person, "rm", "-rf", "--", str(moved)))
        say(f"{moved} moved to {HOME}")
    settle = "from deskhand.resident import settling; settling.forget_all()"
    _run(
        as_user(USER, str(guard.PYTHON), "-I", "-c", settle),
        env=desk_environment(),
        cwd=HOME,
    )
    say(
        "sessions, sign-in links, the password and every open yes are forgotten: the account may know them"
    )


def _demand_own(vault: Path, account: pwd.struct_passwd) -> str:
    """The vault's path, where it is the person's and can stand in a unit."""
    if vault.stat().st_uid != account.pw_uid:
        raise Denied(
            f"the vault {vault} is not {account.pw_name}'s",
            reason="vault",
            hint="correct vault_path",
        )
    if not str(vault).isprintable():
        raise BadConfig(
            "the vault's path has characters that cannot be seen",
            hint="give it another name",
        )
    return str(vault)


def _others(settings: Settings, account: pwd.struct_passwd, say: Say) -> Iterator[str]:
    """The vaults beside the first one that are there."""
    for each in settings.note_vaults[1:]:
        if each.path.is_dir():
            yield _demand_own(each.path, account)
        else:
            say(
                f"the vault {each.name} is not there ({each.path}): install once more when it is"
            )


def _tell_of_others(settings: Settings, sources: Mapping[str, str], say: Say) -> None:
    """Name what the account's own config.toml connects the desk to: a program there may have written it."""
    if not (settings.gmail_server or "http").startswith("http"):
        raise BadConfig(
            "orchestrator.gmail_server starts a program",
            hint="take it out of config.toml first",
        )
    for name in _LEAD_AWAY:
        if sources[name] == "config.toml":
            say(
                f"taken over, see that it is yours: {OPTIONS[name].key} = {display(getattr(settings, name))}"
            )


def _write_config(made: Guard, settings: Settings, say: Say) -> None:
    """What the person's options and this command's environment say, in the file that alone counts from now on."""
    loaded = load({**environment.variables(), "DESKHAND_HOME": made.moved})
    _tell_of_others(settings, loaded.sources, say)
    given = [name for name, source in loaded.sources.items() if source == "environment"]
    fine = {"home", "tmux", "tmux_pane", "log_level", "socket"}
    answers = {
        name: _plain(getattr(loaded.settings, name)) for name in given if name not in fine
    }
    for name in _FILES:
        if place := getattr(settings, name):
            answers[name] = str(_take_file(made, Path(place), say))
    if settings.database_url is not None:
        answers["database_url"] = settings.database.replace(made.moved, str(HOME))
    planned = init.plan_config(HOME, answers)
    text = _take_account_files(made, planned.after, settings, say)
    write_atomically(planned.file, text.encode(), 0o600)
    _give(planned.file)
    if load(desk_environment()).settings.proof != "passkey":
        hint = f"take `proof` out of config.toml in {made.moved}; nothing was moved"
        raise BadConfig("config.toml asks for less than a guarded desk does", hint=hint)


def _take_account_files(made: Guard, text: str, settings: Settings, say: Say) -> str:
    """The config, with each file that a mail account names in the guarded home."""
    tables = tomllib.loads(text).get("mail", {}).get("accounts", [])
    named = {
        (option, table[option]): (account.name, getattr(account, option))
        for table, account in zip(tables, settings.accounts, strict=True)
        for option in ("gmail_credentials", "ca")
        if option in table
    }
    for (option, written), (account, place) in named.items():
        target = _take_file(made, place, say, f"{account}-{place.name}")
        line = re.compile(
            rf"""^(\s*{option}\s*=\s*)["']{re.escape(written)}["']""", re.MULTILINE
        )
        text, count = line.subn(rf'\1"{target}"', text)
        if not count:
            hint = "write it as a plain path in quotes, on a line of its own; nothing was moved"
            raise BadConfig(
                f"{option} of the account {account} cannot be rewritten", hint=hint
            )
    return text


def _take_file(made: Guard, place: Path, say: Say, name: str | None = None) -> Path:
    """A file that an option names, in the guarded home."""
    if place.is_relative_to(made.moved):
        return HOME / place.relative_to(made.moved)
    target = HOME / (name or place.name)
    read = _start(as_user(made.person, "cat", "--", str(place)))
    if read.returncode:
        raise BadConfig(
            f"{made.person} cannot read {place}",
            hint="correct it in config.toml; nothing was moved",
        )
    write_atomically(target, read.stdout, 0o600)
    _give(target)
    if "credentials" in place.name or place.suffix == ".json":
        write_atomically(
            BACKUPS / f"deskhand-{made.person}-{target.name}", read.stdout, 0o600
        )
        _run(as_user(made.person, "rm", "-f", "--", str(place)))
    say(f"{place} moved to {target}")
    return target


def _bring_home_back(made: Guard, now: datetime, say: Say) -> str | None:
    moved = Path(made.moved)
    kept = _keep(USER, HOME, f"guarded-{now:%Y%m%dT%H%M%S}", say)
    if not _has_account(made.person):
        say(f"the account {made.person} is gone: what the desk had stays in {kept}")
        return None
    _run(as_user(made.person, "mkdir", "-p", "-m", "700", "--", str(moved)))
    with kept.open("rb") as opened:
        leave = [f"--exclude={name}" for name in _PASSING]
        _run(
            as_user(
                made.person, "tar", "-C", str(moved), "-xz", "--no-same-permissions", *leave
            ),
            stdin=opened,
        )
    text = (HOME / "config.toml").read_text().replace(f"{HOME}/", f"{moved}/")
    write = as_user(made.person, "tee", "--", str(moved / "config.toml"))
    _run(write, input=text.encode())
    say(f"{HOME} moved back to {moved}")
    return made.moved


def _has_account(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _keep(user: str, folder: Path, name: str, say: Say) -> Path:
    """A copy that only root can read, read by whoever the folder belongs to."""
    BACKUPS.mkdir(mode=0o755, exist_ok=True)
    place = BACKUPS / f"deskhand-{name}.tar.gz"
    with open(place, "wb", opener=open_private) as opened:
        _run(
            as_user(
                user, "tar", "-C", str(folder), "-czS", "--exclude=./running.json", "."
            ),
            stdout=opened,
        )
        os.fsync(opened.fileno())
    say(f"a copy of {folder} is {place}")
    return place


# The vault.


def _open_vault(made: Guard, vault: Path, say: Say) -> Iterator[str]:
    """Let the desk into the vault and through the folders above it; those that were opened for it."""
    shared = [
        "-m",
        f"u:{USER}:rwX",
        "-m",
        f"d:u:{USER}:rwX",
        "-m",
        f"d:u:{made.person}:rwX",
    ]
    # What the desk itself made there has inherited them; whatever else stays closed, `holes` names.
    opening = as_user(made.person, "setfacl", "-R", "-P", *shared, "--", str(vault))
    _try(opening)
    # What lies in a folder that the person may change can be a link to anywhere by now: root keeps out of it.
    trusted = {made.person, "root"}
    for folder in reversed(vault.parents):
        owner = pwd.getpwuid(folder.stat().st_uid).pw_name
        if not _may_enter(folder):
            if owner not in trusted:
                raise Denied(
                    f"{folder} belongs to {owner}",
                    reason="vault",
                    hint=f"let {USER} through it, or move the vault",
                )
            _run(as_user(owner, "setfacl", "-m", f"u:{USER}:x", "--", str(folder)))
            yield str(folder)
        if _try(as_user(made.person, "test", "-O", str(folder), "-o", "-w", str(folder))):
            trusted = {made.person}
    say(f"{USER} may read and write {vault}, and nothing else of {made.person}'s")


def _close_vault(made: Guard, vault: Path, say: Say) -> None:
    try:
        _give_vault_back(made, vault)
    except Unavailable as error:
        say(f"what the desk made in {vault} stays as it is: {error.message}")
    gone = [
        word
        for name in (USER, made.person)
        for word in ("-x", f"u:{name}", "-x", f"d:u:{name}")
    ]
    _try(as_user(made.person, "setfacl", "-R", "-P", *gone, "--", str(vault)))
    say(f"{vault} is {made.person}'s alone again")


def _close_folders(above: Iterable[str]) -> None:
    for folder in above:
        with suppress(FileNotFoundError):
            owner = pwd.getpwuid(Path(folder).stat().st_uid).pw_name
            _try(as_user(owner, "setfacl", "-x", f"u:{USER}", "--", folder))


def _give_vault_back(made: Guard, vault: Path) -> None:
    """What the desk made in the vault becomes the person's. By descriptors: no name can be swapped in between."""
    if sys.platform != "linux":
        return
    account = pwd.getpwnam(made.person)
    desk = pwd.getpwnam(USER).pw_uid
    folders = [""]
    with walk.open_root(vault) as root:
        while folders:
            folder = folders.pop()
            try:
                opened = root.reach(folder)
                names = [entry.name for entry in os.scandir(opened)]
            except OSError:
                continue  # gone, or a link by now
            folders += [
                f"{folder}/{name}".lstrip("/")
                for name in names
                if _give_back(opened, name, desk, account)
            ]


def _give_back(folder: int, name: str, desk: int, account: pwd.struct_passwd) -> bool:
    """What the desk made becomes the person's. Whether it is a folder."""
    try:
        found = os.open(name, _LOOK, dir_fd=folder)
    except OSError:
        return False
    try:
        info = os.fstat(found)
        if info.st_uid == desk:
            os.chown(f"/proc/self/fd/{found}", account.pw_uid, account.pw_gid)
        return stat.S_ISDIR(info.st_mode)
    finally:
        os.close(found)


def _may_enter(folder: Path) -> bool:
    return _try(as_user(USER, "test", "-x", str(folder)))


# Small.


def _account(person: str) -> pwd.struct_passwd:
    try:
        account = pwd.getpwnam(person)
    except KeyError:
        raise NotFound(
            f"there is no user {person}", hint="name the person's account: --for USER"
        ) from None
    if account.pw_uid == 0:
        raise Denied(
            "root needs no guard against itself",
            reason="guarded",
            hint="name the person: --for USER",
        )
    return account


def _demand_tools() -> None:
    missing = [package for tool, package in _TOOLS.items() if shutil.which(tool) is None]
    if missing:
        hint = f"install them: apt install {' '.join(missing)}"
        raise Unavailable(
            f"a guarded desk needs the packages {', '.join(missing)}", hint=hint
        )


def _make_user(say: Say) -> None:
    try:
        pwd.getpwnam(USER)
    except KeyError:
        shell = [
            "--shell",
            "/usr/sbin/nologin",
            "--home-dir",
            str(HOME),
            "--no-create-home",
        ]
        _run(["useradd", "--system", "--user-group", *shell, USER])
        say(f"the user {USER} is made")


def _own_folder(folder: Path, mode: int) -> None:
    folder.mkdir(mode=mode, exist_ok=True)
    folder.chmod(mode)
    _give(folder)


def _give(path: Path) -> None:
    account = pwd.getpwnam(USER)
    os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def _plain(value: object) -> str:
    if hasattr(value, "get_secret_value"):
        return str(value.get_secret_value())
    return str(value).lower() if isinstance(value, bool) else str(value)


def _start(command: list[str], **how: object) -> subprocess.CompletedProcess[bytes]:
    """Run it without root's terminal: as the person it can be taken over, and could type there."""
    around = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if "input" not in how:
        around["stdin"] = subprocess.DEVNULL
    return subprocess.run(command, check=False, start_new_session=True, **around | how)  # type: ignore[call-overload,no-any-return]


def _try(command: list[str]) -> bool:
    return _start(command).returncode == 0


def _run(command: list[str], **how: object) -> None:
    done = _start(command, **how)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().splitlines()
        inner = command
        if command[0] == "setpriv":
            inner = command[command.index("--") + 1 :]
        raise Unavailable(f"{' '.join(inner[:2])} failed: {''.join(why[-1:])}")


def _wait_until(is_so: Callable[[], bool]) -> bool:
    """Whether it became so in time."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
