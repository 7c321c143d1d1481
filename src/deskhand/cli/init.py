"""`deskhand init`: a few questions, and a config.toml that explains itself."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deskhand import environment as places
from deskhand.cli.parts import agreed, command
from deskhand.clock import utc_now
from deskhand.errors import DeskError, InvalidInput, describe

if TYPE_CHECKING:
    from deskhand.setup.init import Plan

_FLAGS = {
    "vault": "vault_path",
    "mail": "mail",
    "address": "address",
    "imap_url": "imap_url",
    "smtp_url": "smtp_url",
    "user": "user",
    "timezone": "timezone",
}
"""Each flag and the option it sets."""


def add_to(commands: Any) -> None:
    made = command(commands, "init", _init, "set the desk up: a few questions, or flags and --yes", json=True)
    made.add_argument("--vault", help="folder of your notes")
    made.add_argument("--mail", choices=("local", "gmail", "imap"), help="which mailbox")
    made.add_argument("--address", help="the desk's own mail address")
    made.add_argument("--imap-url", help="imaps://USER@HOST; the password is asked by `deskhand mail login imap`")
    made.add_argument("--smtp-url", help="smtps://USER@HOST")
    made.add_argument("--user", help="whose tasks these are")
    made.add_argument("--timezone", help="a zone such as Europe/Berlin")
    made.add_argument("--make-folders", action="store_true", help="make the vault and the desk's folders in it")
    made.add_argument("--yes", action="store_true", help="ask nothing; only what is given is set")


def _init(options: argparse.Namespace) -> int:
    from deskhand.setup import init

    home = Path(places.home(places.variables()))
    given = {name: getattr(options, flag) for flag, name in _FLAGS.items() if getattr(options, flag) is not None}
    if not options.yes:
        if not sys.stdin.isatty():
            raise InvalidInput("nobody can be asked here", hint="give flags and --yes; nothing was changed")
        given |= _asked(home, given)
    folders = options.make_folders or _wants_folders(options, given)
    if "vault_path" in given and not folders and not Path(given["vault_path"]).expanduser().is_dir():
        raise InvalidInput(f"there is no folder {given['vault_path']}", hint="correct it, or add --make-folders")
    plan = init.planned(home, given)
    _show(plan, options)
    if plan.writes and not agreed(f"Write {plan.file}?", yes=options.yes):
        print("nothing was changed")
        return 0
    return _carry_out(plan, options, folders=folders)


def _carry_out(plan: "Plan", options: argparse.Namespace, *, folders: bool) -> int:
    from deskhand.config import load
    from deskhand.setup import init

    kept = init.write(plan, utc_now())
    settings = load().settings
    made = init.make_folders(settings.vault_path) if folders and settings.vault_path else []
    following = init.next_steps(settings)
    if options.json:
        facts: dict[str, Any] = {"file": str(plan.file), "changed": {each.key: each.new for each in plan.changes}}
        facts |= {"backup": str(kept) if kept else None, "folders": [str(each) for each in made], "next": following}
        print(json.dumps(facts))
        return 0
    for folder in made:
        print(f"made {folder}")
    if plan.writes:
        print(f"wrote {plan.file}{f'; what was there is in {kept}' if kept else ''}")
    for step in following:
        print(f"next: {step}")
    return 0


def _show(plan: "Plan", options: argparse.Namespace) -> None:
    if options.json:
        return
    for change in plan.changes:
        print(f"{change.key}: {change.old or 'not set'} -> {change.new}")
    if plan.added:
        print(f"{len(plan.added)} options come in as comments, each with its sentence")
    if not plan.changes:
        print("no value changes")


def _wants_folders(options: argparse.Namespace, given: dict[str, str]) -> bool:
    from deskhand.setup.init import FOLDERS

    if options.yes or "vault_path" not in given:
        return False
    vault = Path(given["vault_path"]).expanduser()
    missing = [name for name in FOLDERS if not (vault / name).is_dir()]
    return bool(missing) and agreed(f"Make {', '.join(missing)} in {vault}?", yes=False)


def _asked(home: Path, given: dict[str, str]) -> dict[str, str]:
    """Only what was not given; an empty answer leaves the option as it is."""
    from deskhand.setup import init

    present = {name: init.present(home, name) for name in _FLAGS.values()}
    found = init.vaults(places.variables())
    for number, vault in enumerate(found, 1):
        print(f"  {number}  {vault}", file=sys.stderr)
    answers: dict[str, str] = {}

    def ask(name: str, question: str) -> None:
        while name not in given and (answer := _answer(question, present[name])):
            if _is_good(home, name, answer):
                answers[name] = answer
                break

    ask("vault_path", f"Folder of your notes{' (a number takes one of these vaults)' if found else ''}")
    if answers.get("vault_path", "").isdecimal() and 0 < int(answers["vault_path"]) <= len(found):
        answers["vault_path"] = str(found[int(answers["vault_path"]) - 1])
    ask("mail", f"Mailbox: local, gmail or imap{'' if present['mail'] else ' (without an answer: local)'}")
    if (given | answers).get("mail", present["mail"]) == "imap":
        ask("imap_url", "IMAP account, imaps://USER@HOST without the password")
        ask("smtp_url", "SMTP account, smtps://USER@HOST")
    ask("address", "Your mail address")
    ask("user", "User id of your tasks: any name, such as ada (without one there are no tasks)")
    zone = init.system_zone()
    ask("timezone", f"Time zone{f' (this machine: {zone})' if zone else ''}")
    return answers


def _is_good(home: Path, name: str, answer: str) -> bool:
    """A slip costs one question, not all answers."""
    from deskhand.setup import init

    try:
        init.demand_answer(home, name, answer)
    except DeskError as error:
        print(f"{describe(error)}\n  answer once more, or with nothing to leave it as it is", file=sys.stderr)
        return False
    return True


def _answer(question: str, present: str | None) -> str:
    print(f"{question}{f' [{present}]' if present else ''}: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise InvalidInput("the answers ended", hint="nothing was changed")
    return line.strip()
