"""What the commands share: how one is declared, how the desk is opened, how something is said and asked."""

import argparse
import asyncio
import json as json_text
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from deskhand import unseen
from deskhand.clock import natural, natural_end, utc_now
from deskhand.errors import InvalidInput, as_sentence

if TYPE_CHECKING:
    from deskhand.app import Desk
    from deskhand.config import Settings

T = TypeVar("T")
Run = Callable[[argparse.Namespace], int | None]


_NO_CHOICE = re.compile(
    r"argument (?P<where>\S+): invalid choice: '(?P<typed>.*)' \(choose from (?P<known>.*)\)",
    re.DOTALL,
)
WRONG_USAGE = 2


class Parser(argparse.ArgumentParser):
    """Tells whoever slipped where to look; the parsers of its commands are of this class too."""

    def parse_known_args(  # type: ignore[override]
        self, args: Any = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """What a command does not know, that command refuses; the desk's own usage would help nobody."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        wrong, guess = _explain(message)
        self.print_usage(sys.stderr)
        said = as_sentence(one_line(wrong))
        hint = f"{guess}`{self.prog} --help` shows what there is."
        self.exit(WRONG_USAGE, f"error: {said}\n  {hint}\n")


def _explain(message: str) -> tuple[str, str]:
    """What is wrong, and the word that was meant, where one is near."""
    from difflib import get_close_matches

    found = _NO_CHOICE.search(message)
    if found is None:
        return message, ""
    known = [each.strip(" '") for each in found["known"].split(",")]
    near = get_close_matches(found["typed"], known, 1)
    guess = f"Did you mean {near[0]}? " if near else ""
    if found["where"] == "COMMAND":
        return f"there is no command {found['typed']}", guess
    return (
        f"“{found['typed']}” is no {found['where']}; it is one of {', '.join(known)}",
        guess,
    )


class Suggested(tuple[str, ...]):
    """Words that a shell completes; any other is taken too."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        return True


def command(
    commands: Any, name: str, run: Run, text: str, *, json: bool = False
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=_sentence(text)
    )
    made.set_defaults(run=run)
    if json:
        flag(made, "--json", "print JSON")
    return made


def flag(made: argparse.ArgumentParser, name: str, text: str) -> None:
    made.add_argument(name, action="store_true", help=text)


def group(commands: Any, name: str, text: str) -> Any:
    made = commands.add_parser(name, help=text, description=_sentence(text))
    return made.add_subparsers(title="commands", required=True, metavar="COMMAND")


@contextmanager
def opened_desk(
    settings: "Settings | None" = None, *, env_file: bool = False
) -> "Iterator[Desk]":
    """With `env_file` the `.env` in the working directory is read too, as the tasks contract wants it."""
    from deskhand.app import Desk
    from deskhand.config import load

    place = Path(".env") if env_file else None
    desk = Desk(settings or load(env_file=place).settings)
    try:
        yield desk
    finally:
        desk.close()


def at_desk(work: "Callable[[Desk], Awaitable[T]]", *, env_file: bool = False) -> T:
    with opened_desk(env_file=env_file) as desk:
        return run(desk, work)


def run(desk: "Desk", work: "Callable[[Desk], Awaitable[T]]") -> T:
    """Do the work in an event loop, and close in that loop what it has opened there."""

    async def whole() -> T:
        try:
            return await work(desk)
        finally:
            await desk.close_foreign()
            await desk.close_mailbox()
            await desk.leave_tasks()

    return asyncio.run(whole())


def plain(text: str) -> str:
    """Text from strangers for the terminal: characters that would steer it or hide
    something are named instead."""
    return unseen.spell_out(text)


def one_line(text: str) -> str:
    """The same for a text that has to stay one line: a second one could pass for a line of ours."""
    return unseen.spell_out_line(text)


def say_time(at: datetime) -> str:
    """The time as people say it, in the person's own time zone."""
    return natural(at, utc_now(), _find_zone())


def say_end(at: datetime) -> str:
    """When something ends, in the person's own time zone."""
    return natural_end(at, utc_now(), _find_zone())


@cache
def _find_zone() -> str:
    from deskhand.config import load

    return load().settings.timezone


def tell(options: argparse.Namespace, facts: Any, text: str) -> None:
    """Print the facts as JSON where `--json` asks for it, else the text."""
    if options.json:
        print(json_text.dumps(facts), flush=True)
    else:
        print(text, flush=True)


def show_progress(done: int, total: int, text: str) -> None:
    """Draw the progress bar over the last one; nothing where the output is no terminal."""
    if not sys.stderr.isatty():
        return
    width = 30
    filled = width
    if total:
        filled = min(width, width * done // total)
    bar = "#" * filled + "·" * (width - filled)
    print(f"\r[{bar}] {text}", end="", file=sys.stderr, flush=True)


def end_progress() -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)


NO_TERMINAL = "not a terminal, so nothing can be asked"


def confirm(question: str, *, yes: bool) -> bool:
    """Whether the person says yes; where nobody can be asked, `--yes` must have said it."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise InvalidInput(
            NO_TERMINAL, hint="add --yes to do it without asking; nothing was changed"
        )
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def ask_secret(question: str) -> str:
    """Ask for a password. It is never an argument: those are in the shell's history and in lists of processes."""
    from getpass import getpass

    if sys.stdin.isatty():
        return getpass(question)
    return sys.stdin.readline().rstrip("\r\n")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def shell_variables(sources: Mapping[str, str]) -> list[str]:
    """The variables of this shell that count here; a client or a service starts the desk without them."""
    from deskhand.config import OPTIONS

    fine = {"home", "tmux", "tmux_pane", "log_level"}
    names = [name for name, source in sources.items() if source == "environment"]
    return [OPTIONS[name].variable for name in names if name not in fine]
