"""`deskhand log`: what was done at this desk, and the proof that nothing was changed since."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from deskhand.cli.parts import command, opened_desk, plain

if TYPE_CHECKING:
    from deskhand.app import Desk


def add_to(commands: Any) -> None:
    log = command(commands, "log", _log, "show what was done at this desk", json=True)
    log.add_argument("--limit", type=int, default=50, help="at most so many entries, the newest (default 50)")
    log.add_argument("--verify", action="store_true", help="prove the record whole, or name the first bad line")


def _log(options: argparse.Namespace) -> int:
    from deskhand import audit

    with opened_desk() as desk:
        if options.verify:
            return _verify(desk, options)
        lines = desk.store.write_sync(lambda tx: audit.entries(tx, limit=options.limit))
    for seq, entry in reversed(lines):
        if options.json:
            print(json.dumps({"seq": seq} | entry.model_dump(exclude_none=True)))
        else:
            what = f"{entry.actor}  {entry.action_type}  {entry.target}  {entry.result}"
            print(plain(f"{seq:>6}  {entry.timestamp}  {what}{f'  {entry.error}' if entry.error else ''}"))
    return 0


def _verify(desk: "Desk", options: argparse.Namespace) -> int:
    import anyio

    from deskhand import audit

    # Of one state: lines that others append between the last page and the head would look like missing ones.
    match anyio.run(desk.store.read, audit.verify):
        case audit.Verified(entries):
            print(json.dumps({"whole": True, "entries": entries}) if options.json else f"whole: {entries} entries")
            return 0
        case audit.Broken(seq, why):
            broken = {"whole": False, "first_bad_line": seq, "why": why}
            print(json.dumps(broken) if options.json else f"NOT whole: line {seq}: {why}")
            return 1
