"""`deskhand backup` and `deskhand restore`: the desk in one file, and back."""

import argparse
import json
from pathlib import Path
from typing import Any

from deskhand import environment as places
from deskhand.cli.parts import command
from deskhand.clock import utc_now


def add_to(commands: Any) -> None:
    made = command(commands, "backup", _backup, "write database, keys, config and local mailbox to a file", json=True)
    made.add_argument("file", type=Path, help="a new file; it holds secrets and only you can read it")
    made.add_argument("--without-database", action="store_true", help="leave the database to its own tool")
    back = command(commands, "restore", _restore, "put a backup back; what was there is kept aside", json=True)
    back.add_argument("file", type=Path, help="a file of `deskhand backup`")
    back.add_argument("--to", type=Path, help="another folder than DESKHAND_HOME")


def _backup(options: argparse.Namespace) -> None:
    from deskhand.config import load
    from deskhand.setup.backup import backup

    made = backup(load().settings, options.file, utc_now(), database=not options.without_database)
    if options.json:
        print(json.dumps({"file": str(made.file), "files": made.members, "entries": made.entries}))
        return
    proof = "without the database" if made.entries is None else f"record whole: {made.entries} entries"
    print(f"{made.file}: {len(made.members)} files, read back, {proof}")
    print(
        "It holds the desk's keys: keep it where only you can read it. Not in it: the vault, and the keyring's secrets."
    )


def _restore(options: argparse.Namespace) -> None:
    from deskhand.setup.backup import restore

    done = restore(options.file, options.to or Path(places.home(places.variables())), utc_now())
    if options.json:
        facts = {"home": str(done.home), "aside": str(done.aside) if done.aside else None}
        print(json.dumps(facts | {"made": done.made, "entries": done.entries}))
        return
    print(f"{done.home} is the desk of {done.made}{f'; what was there is in {done.aside}' if done.aside else ''}")
    print("Sign in anew (`deskhand link`). Tokens that were revoked since then hold again: `deskhand token list`.")
