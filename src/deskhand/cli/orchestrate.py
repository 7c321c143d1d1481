"""`deskhand orchestrate` and `deskhand status`: from the inbox to the approved reply, and how that stands."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deskhand.cli.command import at_desk, command, flag, one_line, opened_desk, run
from deskhand.clock import natural, utc_now
from deskhand.errors import DeskError, Unavailable, describe_in_sentences

if TYPE_CHECKING:
    from deskhand.app import Desk


def add_to(commands: Any) -> None:
    text = "bring mail to the desk, draft replies, send what you approved"
    made = command(commands, "orchestrate", _orchestrate, text)
    flag(made, "--once", "make one pass over all that waits, then end")
    made.add_argument(
        "--workers", type=_positive, default=4, help="how many steps at a time (default 4)"
    )
    command(commands, "status", _status, "say how the desk stands", json=True)


def _positive(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 64:
        raise argparse.ArgumentTypeError("1 to 64")
    return number


def _orchestrate(options: argparse.Namespace) -> int:
    from deskhand import log
    from deskhand.store import refuse_newer

    try:
        with opened_desk() as desk:
            refuse_newer(desk.settings.database)
            log.configure(desk.settings.log_level)
            run(desk, partial(_orchestrate_until_stopped, options=options))
    except DeskError as error:
        # A failing model or provider is a state that the vault shows; this is a desk that cannot work at all.
        print(describe_in_sentences(error), file=sys.stderr)
        return 1
    return 0


async def _orchestrate_until_stopped(desk: "Desk", options: argparse.Namespace) -> None:
    from deskhand.orchestrator.loop import Orchestrator

    _ = desk.mailbox, desk.store  # what is missing is said now, not in the middle
    if desk.settings.vault_path is not None:
        _ = desk.settings.vault
    orchestrator = Orchestrator(desk, options.workers)
    try:
        if options.once:
            await orchestrator.once()
        else:
            stop = asyncio.Event()
            for each in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(each, stop.set)
            await orchestrator.run(stop)
    finally:
        await orchestrator.close()


NOBODY = "No desk runs here: what you approve waits until `deskhand up` starts it."
_SILENT = timedelta(minutes=2)
"""For so long whoever works for the desk may say nothing."""


def is_at_work(home: Path, health: Mapping[str, Any]) -> bool:
    """Whether a desk runs here, or an orchestrator by itself looked around a moment ago."""
    from deskhand import running

    try:
        if running.find(home) is not None:
            return True
        if running.has_died(home):
            return False
    except Unavailable:
        return True  # it is just starting
    seen = str(health.get("last_check"))
    with suppress(ValueError):
        return datetime.fromisoformat(seen) > utc_now() - _SILENT
    return False


def _status(options: argparse.Namespace) -> None:
    """How the desk stands; which parts do not run is said also where nothing else can be."""
    from deskhand import running
    from deskhand.config import load
    from deskhand.orchestrator import status

    down: dict[str, str] = {}
    with suppress(Unavailable):  # one that is just starting says nothing yet
        desk = running.find(load().settings.home)
        down = desk.down if desk is not None else {}
    if not options.json:
        for name, why in down.items():
            print(one_line(f"{name} does not run: {why}"))
    try:
        found = at_desk(status.facts)
    except DeskError as error:
        error.details["down"] = down or None
        raise
    if options.json:
        print(found.model_copy(update={"down": down}).model_dump_json())
    else:
        if not is_at_work(load().settings.home, found.health):
            print(f"{NOBODY}\n")
        now = utc_now()
        zone = load().settings.timezone

        def say(text: str) -> str:
            return status.name_times(one_line(text), lambda at: natural(at, now, zone))

        page = status.page(found, now, one_line, say).partition("---\n\n")[2]
        print("\n".join(_lay_out(page.splitlines())))


def _lay_out(page: list[str]) -> Iterator[str]:
    """The page without what only Markdown reads: headings as lines, tables in columns."""
    for line in page:
        if line.startswith("| ") and line.endswith(" |"):
            name, count = line.strip("| ").rsplit(" | ", 1)
            if count.isdecimal():
                yield f"  {name:<24}{count:>6}"
        elif not line.startswith("|"):
            yield line.lstrip("# ") if line.startswith("#") else line
