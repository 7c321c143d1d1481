"""`deskhand service`: the desk runs whenever the person is signed in."""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deskhand import environment
from deskhand.cli.command import command, flag, group, plain, shell_variables, tell
from deskhand.errors import NotFound

if TYPE_CHECKING:
    from deskhand.setup.service import Service, Told


def add_to(commands: Any) -> None:
    made = group(commands, "service", "run the desk whenever you are signed in")
    command(made, "install", _install, "start the desk at login and after a crash", json=True)
    command(made, "uninstall", _uninstall, "stop that", json=True)
    command(made, "status", _status, "say whether it runs, and what this way of running holds against", json=True)
    logs = command(made, "logs", _logs, "print the end of the desk's log")
    logs.add_argument("-n", "--lines", type=int, default=50, help="how many lines (default 50)")
    flag(logs, "--follow", "go on with what comes")


def _install(options: argparse.Namespace) -> None:
    from deskhand.config import load
    from deskhand.setup import service

    loaded = load()
    found = _service()
    told = service.install(found)
    shell = shell_variables(loaded.sources)
    text = f"{found.file} is written"
    if shell:
        text += f"\nThe service does not see your shell: put into config.toml what {', '.join(shell)} sets"
    tell(options, _facts(found, told) | {"from_shell": shell}, f"{text}\n{_describe(told, 'started', found.start)}")


def _uninstall(options: argparse.Namespace) -> None:
    from deskhand.setup import service

    found = _service()
    if not found.is_installed:
        raise NotFound("no service is installed", hint="`deskhand service install` makes one")
    told = service.uninstall(found)
    text = f"{found.file} is gone\n{_describe(told, 'stopped', found.stop)}"
    tell(options, _facts(found, told), text)


def _status(options: argparse.Namespace) -> None:
    from deskhand.setup import service

    found = _service()
    mode = "user" if found.is_installed else "none"
    runs = service.is_running(_home())
    facts = {"mode": mode, "running": runs, "file": str(found.file)}
    facts |= {"holds": list(service.HOLDS), "does_not_hold": list(service.DOES_NOT_HOLD)}
    lines = [
        f"service: {'installed' if found.is_installed else 'not installed'}",
        f"desk: {'runs' if runs else 'does not run'}",
        "What holds:",
        *(f"- {each}" for each in service.HOLDS),
        "What does not hold:",
        *(f"- {each}" for each in service.DOES_NOT_HOLD),
    ]
    tell(options, facts, "\n".join(lines))


def _logs(options: argparse.Namespace) -> int:
    file = _home() / "desk.log"
    if not file.exists():
        raise NotFound(f"there is no log at {file}", hint="the desk has not run yet")
    if options.follow:
        return subprocess.run(["tail", "-n", str(options.lines), "-F", str(file)], check=False).returncode
    with file.open(encoding="utf-8", errors="replace") as opened:
        lines = opened.readlines()[-options.lines :]
    sys.stdout.writelines(plain(line.rstrip("\n")) + "\n" for line in lines)
    return 0


def _home() -> Path:
    return Path(environment.home(environment.variables()))


def _service() -> "Service":
    from deskhand.setup.service import service_of

    return service_of(Path.home(), _home())


def _facts(found: "Service", told: "Told") -> dict[str, Any]:
    return {"file": str(found.file), "told": told.done, "why": told.why}


def _describe(told: "Told", what: str, by: tuple[str, ...]) -> str:
    if told.done:
        return f"the desk is {what}"
    return f"nothing was {what}: {told.why}\nwhen it can: {' '.join(by)}"
