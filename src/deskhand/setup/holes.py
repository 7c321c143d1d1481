"""What a guarded desk holds against, what it does not, and what on this machine opens a way around it."""

import grp
import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from deskhand import guard, running
from deskhand.errors import Unavailable
from deskhand.guard import HOME, PROGRAM, USER, Guard
from deskhand.setup.checks.findings import Finding, bad, warning
from deskhand.setup.program import writable_parts

HOLDS = (
    "Nothing leaves before you typed your password for exactly that text, whatever runs on your account.",
    "A moved or hand-written file is a wish; a stolen session can look, and cannot answer.",
    "No program of your account can read the mailbox's credentials, the keys or the database.",
    "The program, its configuration and its environment are root's and the desk's; nothing of yours changes them.",
)
DOES_NOT_HOLD = (
    "Root. A program in a terminal in which you have just used sudo can use it too; timestamp_timeout=0 ends that.",
    "A browser that is taken over while you type, or that keeps your password: a program reads it there.",
    "A card that you say yes to without reading it.",
    "What the account knew before: renew credentials that it could read.",
    "Reading and disturbing: programs of the account use the tools of the desk, and can change the vault's files.",
)
_RISKY = {
    "root": "is root",
    "sudo": "becomes root with its password",
    "wheel": "becomes root with its password",
    "admin": "becomes root with its password",
    "docker": "becomes root through Docker",
    "lxd": "becomes root through LXD",
    "incus": "becomes root through Incus",
    "libvirt": "becomes root through virtual machines",
    "disk": "reads every disk",
    "shadow": "reads everybody's password hashes",
    "kvm": "reaches virtual machines",
    USER: "reads what belongs to the desk",
}
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ADDRESSES = {
    "127.0.0.1": ("0100007F", "0000000000000000FFFF00000100007F", "00000000", "0" * 32),
    "[::1]": ("00000000000000000000000001000000", "0" * 32),
}
"""Where a browser looks for the page, as the kernel writes it."""
_MOST = 2000
"""So many files of the vault are looked at."""


def find(made: Guard) -> list[Finding]:
    """Every hole that whoever asks can see; root sees them all."""
    checks = (_groups, _files, _home, _vault, _second_desk, _port, _sudo)
    return [each for check in checks for each in check(made)]


def describe(made: Guard) -> Finding:
    """The mode, and what it holds against."""
    whole = "" if os.geteuid() == 0 else " (sudo deskhand doctor looks at all of it)"
    says = f"guarded, for {made.person}{whole}. {' '.join(HOLDS)} It does not hold against: {' '.join(DOES_NOT_HOLD)}"
    return Finding(name="mode", state="good", says=says)


def _groups(made: Guard) -> Iterator[Finding]:
    account = pwd.getpwnam(made.person)
    for number in sorted(os.getgrouplist(made.person, account.pw_gid)):
        name = grp.getgrgid(number).gr_name
        if name in _RISKY and name not in ("sudo", "wheel", "admin"):
            yield bad(
                f"{made.person} is in the group {name}: it {_RISKY[name]}",
                f"gpasswd -d {made.person} {name}",
            )
        elif name in _RISKY:
            yield warning(
                f"{made.person} is in the group {name}: it {_RISKY[name]}, and without it while sudo remembers",
                "add `Defaults timestamp_timeout=0` with visudo",
            )


def _files(made: Guard) -> Iterator[Finding]:
    del made
    if found := writable_parts(PROGRAM):
        yield bad(
            f"not only root can change {found[0]}",
            "sudo deskhand service install --guarded makes it anew",
        )
    python = Path(os.path.realpath(guard.PYTHON))
    for path in (python, *python.parents):
        if path.exists() and (
            path.stat().st_uid != 0 or path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        ):
            yield bad(
                f"not only root can change {path}, which the desk runs",
                f"chown root {path}; chmod go-w {path}",
            )


def _home(made: Guard) -> Iterator[Finding]:
    del made
    if not HOME.is_dir():
        yield bad(f"{HOME} is not there", "sudo deskhand service install --guarded")
        return
    info = HOME.stat()
    if info.st_mode & _OTHERS:
        yield bad(
            f"others may enter {HOME}, where keys and credentials are", f"chmod 700 {HOME}"
        )
    if info.st_uid != pwd.getpwnam(USER).pw_uid:
        yield bad(f"{HOME} does not belong to {USER}", f"chown {USER}: {HOME}")
    if sys.platform == "linux" and "system.posix_acl_access" in os.listxattr(HOME):
        yield bad(f"{HOME} has access-control entries", f"setfacl -b {HOME}")


def _vault(made: Guard) -> Iterator[Finding]:
    for vault in map(Path, made.vaults):
        yield from _look_into(made, vault)


def _look_into(made: Guard, vault: Path) -> Iterator[Finding]:
    if vault.resolve().is_relative_to(HOME) or HOME.is_relative_to(vault):
        yield bad(
            f"the vault {vault} and the desk's home lie in one another", "move the vault"
        )
    if not vault.is_relative_to(pwd.getpwnam(made.person).pw_dir) and vault.exists():
        yield warning(
            f"the vault {vault} is outside {made.person}'s home",
            "look who else may reach it there",
        )
    if os.geteuid() == made.uid:
        yield from _closed(vault)
        yield from _unreadable(vault)
    elif os.geteuid() == 0:
        listed = subprocess.run(
            guard.as_user(USER, "find", str(vault), "-name", "*.md", "!", "-readable"),
            capture_output=True,
            text=True,
            check=False,
        )
        if names := listed.stdout.splitlines():
            yield _shut(names)
        if listed.returncode:
            why = "".join(listed.stderr.splitlines()[:1])
            yield _say_closed(vault, why)


def _closed(vault: Path) -> Iterator[Finding]:
    """A folder whose entry for the desk was taken away, as far as the person's account sees that."""
    for folder in (vault, *(path for path in vault.glob("*") if path.is_dir())):
        if folder.is_symlink() or _lets_in(folder):
            continue
        yield _say_closed(vault, str(folder))
        return


def _lets_in(folder: Path) -> bool:
    """Whether there is an entry, and its mask leaves the desk everything."""
    if sys.platform != "linux":
        return True
    has_entry = "system.posix_acl_access" in os.listxattr(folder)
    return has_entry and folder.stat().st_mode & stat.S_IRWXG == stat.S_IRWXG


def _say_closed(vault: Path, where: str) -> Finding:
    return bad(
        f"the vault {vault} is closed to the desk: {where}",
        "sudo deskhand service install --guarded opens it",
    )


def _unreadable(vault: Path) -> Iterator[Finding]:
    """Files whose mask shuts the desk out: made with mode 0600 and renamed into place."""
    notes = [path for path, _ in zip(vault.rglob("*.md"), range(_MOST), strict=False)]
    shut = [
        str(path)
        for path in notes
        if not path.is_symlink() and not path.stat().st_mode & stat.S_IRGRP
    ]
    if shut:
        yield _shut(shut)


def _shut(names: list[str]) -> Finding:
    some = ", ".join(names[:3])
    return warning(
        f"the desk cannot read {len(names)} notes, as {some}: a program saved them for their owner alone",
        f"setfacl -m u:{USER}:rw -m m::rw {some}",
    )


def _second_desk(made: Guard) -> Iterator[Finding]:
    """A desk on the account itself is not guarded, and an assistant may be connected to it."""
    home = Path(made.moved)
    try:
        if (home / "desk.db").exists() or (home / "config.toml").exists():
            yield bad(
                f"there is a second desk of {made.person}'s account in {home}",
                "remove it, or bring it over",
            )
        if running.find(home) is not None:
            yield bad(f"a second desk runs in {home}", "end it")
    except (PermissionError, Unavailable):
        return
    unit = (
        Path(pwd.getpwnam(made.person).pw_dir)
        / ".config"
        / "systemd"
        / "user"
        / "deskhand.service"
    )
    try:
        if unit.exists():
            yield bad(f"{unit} starts a second desk", "remove it")
    except PermissionError:
        return


def _port(made: Guard) -> Iterator[Finding]:
    """Whoever else listens at the page's port could ask for the password."""
    for name, places in _ADDRESSES.items():
        owner = _find_listener(made.port, places)
        if owner is not None and owner != pwd.getpwnam(USER).pw_uid:
            says = f"what answers at http://{name}:{made.port} is no desk: it belongs to {_name_user(owner)}"
            yield bad(
                says, "type no password there; end that program and start the desk again"
            )


def _name_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # of a container, or an account that is gone
        return f"user {number}"


def _find_listener(port: int, places: Sequence[str]) -> int | None:
    """Whose program gets what is sent there: who listens at just this address comes before who listens at all."""
    found: dict[str, int] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        listening = (fields for fields in map(str.split, lines) if fields[3] == "0A")
        found |= {fields[1]: int(fields[7]) for fields in listening}
    owners = (found.get(f"{place}:{port:04X}") for place in places)
    return next((owner for owner in owners if owner is not None), None)


def _sudo(made: Guard) -> Iterator[Finding]:
    """Whether the account becomes root without being asked."""
    if os.geteuid() != 0 or shutil.which("sudo") is None:
        return
    listed = subprocess.run(
        ["sudo", "-n", "-l", "-U", made.person], capture_output=True, text=True, check=False
    ).stdout
    if "NOPASSWD" in listed:
        yield bad(
            f"{made.person} may use sudo without a password",
            "take NOPASSWD out with visudo",
        )
