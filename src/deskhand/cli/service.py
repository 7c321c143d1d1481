"""`deskhand service`: the desk runs whenever the person is signed in."""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deskhand import environment, guard
from deskhand.cli.command import (
    command,
    confirm,
    flag,
    group,
    one_line,
    plain,
    shell_variables,
    tell,
)
from deskhand.clock import utc_now
from deskhand.errors import Denied, InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from deskhand.setup.service import Service, Told


def add_to(commands: Any) -> None:
    made = group(commands, "service", "run the desk whenever you are signed in")
    install = command(
        made, "install", _install, "start the desk at login and after a crash", json=True
    )
    flag(
        install,
        "--guarded",
        "as root: run it as a user of its own, out of reach of the person's programs (Linux)",
    )
    install.add_argument(
        "--for",
        dest="person",
        metavar="USER",
        help="with --guarded: whose desk it is (default: who used sudo)",
    )
    flag(install, "--yes", "ask nothing")
    uninstall = command(
        made, "uninstall", _uninstall, "stop that, and give a guarded desk back", json=True
    )
    flag(uninstall, "--yes", "ask nothing")
    command(
        made,
        "start",
        _start,
        "as root: start the guarded desk, with systemd or without",
        json=True,
    )
    command(made, "stop", _stop, "as root: stop the guarded desk", json=True)
    command(
        made,
        "status",
        _status,
        "say whether it runs, and what this way of running holds against",
        json=True,
    )
    logs = command(made, "logs", _logs, "print the end of the desk's log")
    logs.add_argument(
        "-n", "--lines", type=int, default=50, help="how many lines (default 50)"
    )
    flag(logs, "--follow", "go on with what comes")


def _install(options: argparse.Namespace) -> None:
    if options.guarded:
        _install_guarded(options)
        return
    if options.person:
        raise InvalidInput(
            "--for names whose desk is guarded", hint="add --guarded, or leave it out"
        )
    from deskhand.config import load
    from deskhand.setup import service

    loaded = load()
    found = _service()
    told = service.install(found)
    shell = shell_variables(loaded.sources)
    text = f"{found.file} is written"
    if shell:
        text += f"\nThe service does not see your shell: put into config.toml what {', '.join(shell)} sets"
    tell(
        options,
        _facts(found, told) | {"from_shell": shell},
        f"{text}\n{_describe(told, 'started', found.start)}",
    )


def _install_guarded(options: argparse.Namespace) -> None:
    from deskhand.setup import guarded, holes

    guarded.demand_root()
    before = guard.find()
    person = options.person or (
        before.person if before else environment.variables().get("SUDO_USER")
    )
    if not person:
        raise InvalidInput(
            "nobody says whose desk it is", hint="name the account: --for USER"
        )
    home, program = guard.HOME, guard.PROGRAM
    question = f"Guard the desk of {person}: a user {guard.USER}, the program in {program}, its home moved to {home}?"
    if before is None and not confirm(question, yes=options.yes):
        raise Denied("nothing was changed", reason="refused")
    said: list[str] = []
    made = guarded.install(person, utc_now(), _telling(options, said))
    if guarded.runs_systemd():
        guarded.start(_telling(options, said))
    link = guarded.sign_in_link() if guarded.is_running() else None
    gaps = [f"{each.says} ({each.fix})" for each in holes.find(made)]
    more = [
        *(f"A hole: {each}" for each in gaps),
        f"The page is at {made.address}. Answers need your password: sudo deskhand password set",
        f"To sign in: {link}"
        if link
        else "nothing was started; when it shall: sudo deskhand service start",
    ]
    facts = {
        "mode": "guarded",
        "person": person,
        "file": str(guarded.UNIT),
        "done": said,
        "started": link is not None,
    }
    tell(options, facts | {"link": link, "holes": gaps}, "\n".join(more))


def _telling(options: argparse.Namespace, said: list[str]) -> "Callable[[str], None]":
    """Say each thing as it is done; with --json at the end."""

    def say(text: str) -> None:
        said.append(text)
        if not options.json:
            print(one_line(f"· {text}"), file=sys.stderr, flush=True)

    return say


def _start(options: argparse.Namespace) -> None:
    from deskhand.setup import guarded

    said: list[str] = []
    guarded.start(_telling(options, said))
    link = guarded.sign_in_link()
    tell(
        options,
        {"running": guarded.is_running(), "done": said, "link": link},
        f"To sign in: {link}",
    )


def _stop(options: argparse.Namespace) -> None:
    from deskhand.setup import guarded

    guarded.demand_root()
    guarded.demand_guard()
    said: list[str] = []
    stopped = guarded.stop(_telling(options, said))
    tell(options, {"running": guarded.is_running(), "stopped": stopped, "done": said}, "")


def _uninstall_guarded(options: argparse.Namespace) -> None:
    from deskhand.setup import guarded

    guarded.demand_root()
    made = guarded.demand_guard()
    question = f"Give the desk back to {made.person}'s account, which all its programs can use then?"
    if not confirm(question, yes=options.yes):
        raise Denied("nothing was changed", reason="refused")
    said: list[str] = []
    home = guarded.uninstall(utc_now(), _telling(options, said))
    ending = "the desk is gone"
    if home is not None:
        ending = f"the desk is in {home} again"
    tell(options, {"mode": "none", "done": said, "home": home}, ending)


def _uninstall(options: argparse.Namespace) -> None:
    if guard.find() is not None:
        _uninstall_guarded(options)
        return
    from deskhand.setup import service

    found = _service()
    if not found.is_installed:
        raise NotFound(
            "no service is installed", hint="`deskhand service install` makes one"
        )
    told = service.uninstall(found)
    text = f"{found.file} is gone\n{_describe(told, 'stopped', found.stop)}"
    tell(options, _facts(found, told), text)


def _status(options: argparse.Namespace) -> None:
    from deskhand.setup import service

    if guard.find() is not None:
        _status_guarded(options)
        return
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


def _status_guarded(options: argparse.Namespace) -> None:
    from deskhand.setup import guarded, holes

    found = guarded.demand_guard()
    runs = guarded.is_running()
    gaps = [f"{each.says} ({each.fix})" for each in holes.find(found)]
    does_not_hold = [*holes.DOES_NOT_HOLD, *gaps]
    facts = {
        "mode": "guarded",
        "running": runs,
        "person": found.person,
        "address": found.address,
    }
    facts |= {
        "file": str(guarded.UNIT),
        "holds": list(holes.HOLDS),
        "does_not_hold": does_not_hold,
        "holes": gaps,
    }
    lines = [
        f"service: guarded, for {found.person}",
        f"desk: {'runs' if runs else 'does not run'}; answers at {found.address}",
        "What holds:",
        *(f"- {each}" for each in holes.HOLDS),
        "What does not hold:",
        *(f"- {each}" for each in does_not_hold),
    ]
    tell(options, facts, "\n".join(map(plain, lines)))


def _logs(options: argparse.Namespace) -> int:
    file = (guard.HOME if guard.find() else _home()) / "desk.log"
    if guard.find() and not os.access(guard.HOME, os.X_OK):
        raise Denied(
            "the log of a guarded desk is for root",
            reason="guarded",
            hint="sudo deskhand service logs",
        )
    if not file.exists():
        raise NotFound(f"there is no log at {file}", hint="the desk has not run yet")
    if options.follow:
        return subprocess.run(
            ["tail", "-n", str(options.lines), "-F", str(file)], check=False
        ).returncode
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
