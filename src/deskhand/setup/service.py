"""The desk as a service of the person's account: it starts at login, comes back after a crash, and stops in order.

A systemd user unit on Linux, a launchd agent on macOS: a file of the account, written whole and taken away again.
"""

import plistlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deskhand import running
from deskhand.errors import Unavailable
from deskhand.files import write_atomically

UNIT = "deskhand.service"
AGENT = "dev.deskhand.desk"
HOLDS = (
    "Nothing leaves by a tool of the desk before you said yes to exactly that text.",
    "Tokens limit what an assistant reaches over HTTP.",
)
DOES_NOT_HOLD = (
    "A program that runs as you can move files to Approved/, run `deskhand approve` and read the desk's keys.",
    "A program that runs as you can read the mailbox's credentials and send by itself.",
)
_UNIT = """\
[Unit]
Description=Deskhand: the person's desk for AI assistants

[Service]
ExecStart={command}
{environment}Restart=on-failure
RestartSec=2
TimeoutStopSec=15
UMask=0077

[Install]
WantedBy=default.target
"""


@dataclass(frozen=True, slots=True)
class Service:
    """Where the service of an account is written, and how its system is told."""

    file: Path
    text: bytes
    start: tuple[str, ...]
    stop: tuple[str, ...]

    @property
    def is_installed(self) -> bool:
        return self.file.exists()


@dataclass(frozen=True, slots=True)
class Told:
    """What the system made of it."""

    done: bool
    why: str = ""


def service_of(
    account: Path, home: Path, python: str = sys.executable, platform: str = sys.platform
) -> Service:
    """The service that runs the desk of `home` for the account whose folder is `account`."""
    command = [python, "-m", "deskhand", "up", "--no-browser"]
    if platform == "darwin":
        file = account / "Library" / "LaunchAgents" / f"{AGENT}.plist"
        agent = _agent(command, home)
        return Service(
            file,
            agent,
            ("launchctl", "load", "-w", str(file)),
            ("launchctl", "unload", "-w", str(file)),
        )
    if platform != "linux":
        raise Unavailable(
            "there are services on Linux and macOS only",
            hint="keep `deskhand up` open in a terminal",
        )
    file = account / ".config" / "systemd" / "user" / UNIT
    start = ("systemctl", "--user", "enable", "--now", UNIT)
    return Service(
        file, _unit(command, home), start, ("systemctl", "--user", "disable", "--now", UNIT)
    )


def install(service: Service) -> Told:
    service.file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(service.file, service.text, 0o644)
    return _tell(service.start)


def uninstall(service: Service) -> Told:
    told = _tell(service.stop)
    service.file.unlink(missing_ok=True)
    return told


def is_running(home: Path) -> bool:
    try:
        return running.find(home) is not None
    except Unavailable:  # it is just starting or ending
        return True


def _tell(command: Sequence[str]) -> Told:
    if shutil.which(command[0]) is None:
        return Told(False, f"{command[0]} is not installed")
    if command[0] == "systemctl":
        subprocess.run(
            ["systemctl", "--user", "daemon-reload"], capture_output=True, check=False
        )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return Told(
            False, done.stderr.strip() or f"{command[0]} ended with {done.returncode}"
        )
    return Told(True)


def _unit(command: Sequence[str], home: Path) -> bytes:
    line = " ".join(_quote(part) for part in command)
    environment = f"Environment={_quote(f'DESKHAND_HOME={home}')}\n"
    return _UNIT.format(command=line, environment=environment).encode()


def _quote(part: str) -> str:
    """As systemd reads a word: `%` and `$` mean something there."""
    escaped = (
        part.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    )
    return f'"{escaped}"'


def _agent(command: Sequence[str], home: Path) -> bytes:
    log = str(home / "service.log")
    found = {
        "Label": AGENT,
        "ProgramArguments": list(command),
        "EnvironmentVariables": {"DESKHAND_HOME": str(home)},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": 15,
        "Umask": 0o077,
        "StandardErrorPath": log,
        "StandardOutPath": log,
    }
    return plistlib.dumps(found)
