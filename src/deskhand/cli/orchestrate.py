"""`deskhand orchestrate` and `deskhand status`: from the inbox to the approved reply, and how that stands."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from deskhand.cli.command import command, opened_desk, plain
from deskhand.errors import DeskError, describe

if TYPE_CHECKING:
    from deskhand.app import Desk


def add_to(commands: Any) -> None:
    text = "bring mail to the desk, draft replies, send what you approved"
    run = command(commands, "orchestrate", _orchestrate, text)
    run.add_argument("--once", action="store_true", help="make one pass over all that waits, then end")
    run.add_argument("--workers", type=_positive, default=4, help="how many steps at a time (default 4)")
    command(commands, "status", _status, "say how the desk stands", json=True)


def _positive(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 64:
        raise argparse.ArgumentTypeError("1 to 64")
    return number


def _orchestrate(options: argparse.Namespace) -> int:
    import asyncio

    from deskhand import log

    try:
        with opened_desk() as desk:
            log.configure(desk.settings.log_level)
            asyncio.run(_run(desk, options))
    except DeskError as error:
        # A failing model or provider is a state that the vault shows; this is a desk that cannot work at all.
        print(describe(error), file=sys.stderr)
        return 1
    return 0


async def _run(desk: "Desk", options: argparse.Namespace) -> None:
    import asyncio
    import signal

    from deskhand.orchestrator.loop import Orchestrator

    _ = desk.settings.vault, desk.mailbox, desk.store  # what is missing is said now, not in the middle
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
        await desk.close_mailbox()


def _status(options: argparse.Namespace) -> None:
    import asyncio

    from deskhand.orchestrator import status

    with opened_desk() as desk:
        found = asyncio.run(status.facts(desk))
        page = status.page(found, desk.now()).partition("---\n\n")[2]
    if options.json:
        print(found.model_dump_json())
    else:
        print(plain(page))
