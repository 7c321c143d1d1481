"""What the commands share: how one is declared, and how the desk is opened."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
