"""`deskhand backup` and `deskhand restore`: the desk in one file, and back."""

import argparse
from pathlib import Path
from typing import Any

from deskhand import environment
from deskhand.cli.command import command, flag, tell
from deskhand.clock import dated, utc_now
from deskhand.errors import DeskError


def add_to(commands: Any) -> None:
    made = command(
        commands,
        "backup",
        _backup,
        "write database, keys, config and local mailbox to a file",
        json=True,
    )
    made.add_argument(
        "file", type=Path, help="a new file; it holds secrets and only you can read it"
    )
    flag(made, "--without-database", "leave the database to its own tool")
    back = command(
        commands,
        "restore",
        _restore,
        "put a backup back; what was there is kept aside",
        json=True,
    )
    back.add_argument("file", type=Path, help="a file of `deskhand backup`")
    back.add_argument("--to", type=Path, help="another folder than DESKHAND_HOME")


def _backup(options: argparse.Namespace) -> None:
    from deskhand.config import load
    from deskhand.setup.backup import backup

    made = backup(
        load().settings, options.file, utc_now(), database=not options.without_database
    )
    proof = "without the database"
    if made.entries is not None:
        proof = f"record intact: {made.entries:,} entries"
    text = f"""\
{made.file}: {len(made.members)} files, read back, {proof}
It holds the desk's keys: keep it where only you can read it. Not in it: the vault, and the keyring's secrets."""
    tell(
        options,
        {"file": str(made.file), "files": made.members, "entries": made.entries},
        text,
    )


def _restore(options: argparse.Namespace) -> None:
    from deskhand import place
    from deskhand.setup.backup import restore
    from deskhand.web import sessions

    own = Path(environment.home(environment.variables()))
    home = options.to or own
    copy_of = own if home.resolve() != own.resolve() else None
    done = restore(options.file, home, utc_now(), sessions.end_all, copy_of=copy_of)
    aside = done.aside and str(done.aside)
    made = dated(done.made, _find_zone(done.home))
    text = f"{done.home} is the desk as it was on {made}"
    if aside:
        text += f"; what was there is in {aside}"
    if copy_of is not None:
        text += f"\nNothing leaves it: {place.FILE} there says that it is a copy. Remove that file when no other desk"
        text += " works with its vault and mailbox."
    text += "\nA yes that still rested in it waits for you again: `deskhand approvals`."
    text += "\nSign in anew (`deskhand link`). Tokens that were revoked since then hold again: `deskhand token list`."
    facts = {
        "home": str(done.home),
        "aside": aside,
        "made": done.made.isoformat(),
        "entries": done.entries,
    }
    tell(options, facts, text)


def _find_zone(home: Path) -> str:
    """The person's, as the desk that was put back has it. What is wrong with its
    configuration is not said here."""
    from deskhand.config import load

    variables = environment.variables() | {"DESKHAND_HOME": str(home)}
    try:
        return load(variables).settings.timezone
    except DeskError:
        return environment.timezone(variables)
