"""`deskhand init`: a few questions, and a config.toml that explains itself."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deskhand import environment
from deskhand.cli import discovery
from deskhand.cli.command import NO_TERMINAL, command, confirm, flag, one_line, tell
from deskhand.clock import utc_now
from deskhand.errors import DeskError, InvalidInput, as_sentence, describe_in_sentences

if TYPE_CHECKING:
    from deskhand.setup.init import ConfigPlan

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
    made = command(
        commands,
        "init",
        _init,
        "set the desk up: a few questions, or flags and --yes",
        json=True,
    )
    made.add_argument("--vault", help="folder of your notes")
    made.add_argument("--mail", choices=("local", "gmail", "imap"), help="which mailbox")
    made.add_argument(
        "--account", help="add a further mail account of this name, with the mail flags"
    )
    made.add_argument("--address", help="the desk's own mail address")
    made.add_argument(
        "--imap-url",
        help="imaps://USER@HOST; the password is asked by `deskhand mail login imap`",
    )
    made.add_argument("--smtp-url", help="smtps://USER@HOST")
    flag(
        made,
        "--accept-discovered",
        "take the servers that are found for --address, without a look at them",
    )
    discovery.add_resolver_to(made)
    made.add_argument("--user", help="whose tasks these are")
    made.add_argument("--timezone", help="a zone such as Europe/Berlin")
    flag(made, "--make-folders", "make the vault and the desk's folders in it")
    flag(made, "--yes", "ask nothing; only what is given is set")


def _init(options: argparse.Namespace) -> None:
    from deskhand.setup import init

    home = Path(environment.home(environment.variables()))
    flags = {name: getattr(options, flag) for flag, name in _FLAGS.items()}
    given = {name: value for name, value in flags.items() if value is not None}
    if options.accept_discovered:
        given = _discover(options, given) | given
    if options.account is not None:
        _add_account(home, options, given)
        return
    if not options.yes:
        if not sys.stdin.isatty():
            raise InvalidInput(
                NO_TERMINAL, hint="give flags and --yes; nothing was changed"
            )
        given = _ask_all(home, given, options) | given
    given |= init.find_place(home, given)
    folders = options.make_folders or _wants_folders(options, given)
    vault = given.get("vault_path")
    if vault is not None and not folders and not Path(vault).expanduser().is_dir():
        raise InvalidInput(
            f"there is no folder {vault}", hint="correct it, or add --make-folders"
        )
    if vault is not None and Path(vault).expanduser().resolve() == home.resolve():
        hint = "choose another folder; nothing was changed"
        raise InvalidInput(f"{vault} is the desk's home, which no tool enters", hint=hint)
    plan = init.plan_config(home, given)
    _show(plan, options)
    if plan.writes and not confirm(f"Write {plan.file}?", yes=options.yes):
        print("Nothing was changed.")
    else:
        _carry_out(plan, options, folders=folders)


def _discover(options: argparse.Namespace, given: dict[str, str]) -> dict[str, str]:
    """What the net says of the address that is given; it is shown, and nobody is asked."""
    if "address" not in given or given.get("mail", "imap") != "imap":
        raise InvalidInput(
            "--accept-discovered goes with --address and --mail imap",
            hint="nothing was changed",
        )
    found = discovery.propose(given["address"], options)
    print(discovery.describe(found), file=sys.stderr)
    return found.answers


def _offer_servers(address: str, options: argparse.Namespace) -> dict[str, str]:
    """The servers of the address, where the person wants them looked for and agrees to what was found."""
    if not confirm(f"Look on the net for the mail servers of {address}?", yes=False):
        return {}
    try:
        found = discovery.propose(address, options)
    except DeskError as error:
        print(describe_in_sentences(error), file=sys.stderr)
        return {}
    print(discovery.describe(found), file=sys.stderr)
    if not confirm("Use these servers?", yes=False):
        return {}
    return found.answers


def _add_account(home: Path, options: argparse.Namespace, given: dict[str, str]) -> None:
    from deskhand.setup import init

    strange = given.keys() - {"mail", "address", "imap_url", "smtp_url"}
    if strange:
        raise InvalidInput(
            "--account goes with --mail, --address, --imap-url and --smtp-url alone"
        )
    plan = init.plan_account(home, options.account, given)
    _show(plan, options)
    if not options.yes and not sys.stdin.isatty():
        raise InvalidInput(NO_TERMINAL, hint="add --yes; nothing was changed")
    if not confirm(f"Write {plan.file}?", yes=options.yes):
        print("Nothing was changed.")
    else:
        _carry_out(plan, options, folders=False)


def _carry_out(plan: "ConfigPlan", options: argparse.Namespace, *, folders: bool) -> None:
    from deskhand import running
    from deskhand.config import load
    from deskhand.setup import init

    kept = init.write(plan, utc_now())
    settings = load().settings
    made = []
    if folders and settings.vault_path:
        made = init.make_folders(settings.vault_path, settings.inside)
    following = init.next_steps(settings)
    runs = running.find(settings.home)
    if runs and plan.changes:
        again = "end it and start it again: it still has the settings of before"
        following = [f"the desk runs as process {runs.pid}; {again}", *following]
    facts = {
        "file": str(plan.file),
        "changed": {each.key: each.new for each in plan.changes},
        "backup": kept and str(kept),
        "folders": [str(each) for each in made],
        "next": following,
    }
    lines = [f"made {folder}" for folder in made]
    if kept:
        lines.append(f"wrote {plan.file}; what was there is in {kept}")
    elif plan.writes:
        lines.append(f"wrote {plan.file}")
    lines += [f"next: {step}" for step in following]
    tell(options, facts, "\n".join(lines))


def _show(plan: "ConfigPlan", options: argparse.Namespace) -> None:
    if options.json:
        return
    for change in plan.changes:
        print(f"{change.key}: {change.old or 'not set'} -> {change.new}")
    if plan.added:
        print(f"{len(plan.added)} options come in as comments, each with its sentence")
    if not plan.changes:
        print("No value changes.")


def _wants_folders(options: argparse.Namespace, given: dict[str, str]) -> bool:
    from deskhand.notes.folders import FOLDERS

    if options.yes or "vault_path" not in given:
        return False
    place = Path(given["vault_path"], given.get("vault_folder", "")).expanduser()
    missing = [name for name in FOLDERS if not (place / name).is_dir()]
    return bool(missing) and confirm(f"Make {', '.join(missing)} in {place}?", yes=False)


def _ask_all(
    home: Path, given: dict[str, str], options: argparse.Namespace
) -> dict[str, str]:
    """Ask for every option that no flag gave; an empty answer leaves it as it is."""
    from deskhand.setup import init

    current = {name: init.current_value(home, name) for name in _FLAGS.values()}
    vaults = _list_vaults()
    answers: dict[str, str] = {}

    def ask(name: str, question: str, note: str | None = None) -> None:
        if note:
            question = f"{question} ({note})"
        while name not in given | answers and (answer := _ask(question, current[name])):
            if name == "vault_path":
                answer = _find_vault(answer, vaults, options)
            if answer and _is_good(home, name, answer):
                answers[name] = answer

    ask(
        "vault_path",
        "Folder of your notes",
        "a number takes one of these vaults" if vaults else None,
    )
    ask(
        "mail",
        "Mailbox: local, gmail or imap",
        None if current["mail"] else "without an answer: local",
    )
    is_imap = (given | answers).get("mail", current["mail"]) == "imap"
    ask("address", "Your mail address")
    address = (given | answers).get("address", current["address"])
    if is_imap and address and "imap_url" not in given:
        answers |= _offer_servers(address, options)
    if is_imap:
        ask("imap_url", "IMAP account, imaps://USER@HOST without the password")
        ask("smtp_url", "SMTP account, smtps://USER@HOST")
    ask(
        "user",
        "User id of your tasks: any name, such as ada",
        "without one there are no tasks",
    )
    ask(
        "timezone",
        "Time zone",
        f"without an answer: {environment.timezone(environment.variables())}",
    )
    return answers


def _find_vault(answer: str, vaults: dict[str, str], options: argparse.Namespace) -> str:
    """The folder that is meant; empty, after a word, where there is none."""
    if answer.isdecimal() and vaults and answer not in vaults:
        print(_describe_list(vaults), file=sys.stderr)
        return ""
    folder = vaults.get(answer, answer)
    return folder if _is_there(folder, options) else ""


def _list_vaults() -> dict[str, str]:
    """The vaults of this machine by the numbers under which they are shown."""
    from deskhand.setup import init

    found = init.vaults(environment.variables())
    vaults = {str(number): str(vault) for number, vault in enumerate(found, 1)}
    for number, vault in vaults.items():
        print(f"  {number}  {vault}", file=sys.stderr)
    return vaults


def _describe_list(vaults: dict[str, str]) -> str:
    if len(vaults) == 1:
        return "There is one vault in the list: 1."
    return f"The vaults in the list are 1 to {len(vaults)}."


def _is_there(vault: str, options: argparse.Namespace) -> bool:
    """Whether the vault is there, or the person wants it made, with the desk's folders in it."""
    place = Path(vault).expanduser().absolute()
    if not place.is_dir() and not options.make_folders:
        options.make_folders = confirm(f"There is no folder {place}. Make it?", yes=False)
        return bool(options.make_folders)
    return True


def _is_good(home: Path, name: str, answer: str) -> bool:
    """Whether the answer can be written; where not, say why, so that one question is asked again and not all."""
    from deskhand.setup import init

    try:
        init.demand_value(home, name, answer)
    except DeskError as error:
        print(_describe_slip(error), file=sys.stderr)
        return False
    return True


def _describe_slip(error: DeskError) -> str:
    """What is wrong with one answer; what would be wrong in a file helps nobody here."""
    said = [
        f"“{field['received_value']}”: {field['message']}"
        for field in error.details.get("fields", ())
    ]
    wrong = "\n".join(as_sentence(one_line(each)) for each in said or [error.message])
    return f"{wrong}\nAnswer once more, or with nothing to leave it as it is."


def _ask(question: str, current: str | None) -> str:
    if current:
        question = f"{question} [{current}]"
    print(f"{question}: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise InvalidInput("the answers ended", hint="nothing was changed")
    return line.strip()
