"""What the commands share: how one is declared, and how the desk is opened."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deskhand import unseen
from deskhand.errors import InvalidInput

if TYPE_CHECKING:
    from deskhand.app import Desk

Run = Callable[[argparse.Namespace], int | None]


def command(commands: Any, name: str, run: Run, text: str, *, json: bool = False) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=text, description=_sentence(text))
    made.set_defaults(run=run)
    if json:
        made.add_argument("--json", action="store_true", help="print JSON")
    return made


def group(commands: Any, name: str, text: str) -> Any:
    made = commands.add_parser(name, help=text, description=_sentence(text))
    return made.add_subparsers(title="commands", required=True, metavar="COMMAND")


@contextmanager
def opened_desk(*, env_file: bool = False) -> "Iterator[Desk]":
    """`env_file`: seed 003's `.env` in the working directory is read too."""
    from deskhand.app import Desk
    from deskhand.config import load

    desk = Desk(load(env_file=Path(".env") if env_file else None).settings)
    try:
        yield desk
    finally:
        desk.close()


def plain(text: str) -> str:
    """Text from strangers as a terminal may get it: what would steer it is named, and hides nothing."""
    return unseen.spell_out(text)


def agreed(question: str, *, yes: bool) -> bool:
    """Whether the person says yes; where nobody can be asked, `--yes` must have said it."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise InvalidInput("nobody can be asked here", hint="add --yes to do it without asking; nothing was changed")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
