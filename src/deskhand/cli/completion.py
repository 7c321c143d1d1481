"""`deskhand completion`: what a shell needs to complete our commands, made from the commands themselves.

The scripts are the files in `shells`; in them stand marks such as @KNOWN@ for what the commands are.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deskhand.cli.command import command

_SHELLS = Path(__file__).parent / "shells"


@dataclass(frozen=True, slots=True)
class Command:
    """One command, and what may follow it."""

    path: str
    words: list[str]
    """Sub-commands and choices of its arguments."""
    flags: list[str]
    values: dict[str, list[str]]
    """The flags that are followed by a value, and the values of those that have a few."""
    files: bool


def add_to(commands: Any) -> None:
    made = command(
        commands,
        "completion",
        _completion,
        "print the completion of a shell; `source` it in your profile",
    )
    made.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")


def _completion(options: argparse.Namespace) -> None:
    from deskhand.cli import parser

    commands = list(_commands(parser(), ""))
    known = [f"'{each.path}'" for each in commands if each.path]
    valued = sorted({flag for each in commands for flag in each.values})
    if options.shell == "fish":
        rules = [
            f"complete -c deskhand -n \"test (__deskhand_at) = '{each.path}'\" {rule}"
            for each in commands
            for rule in _fish_rules(each)
        ]
        print(
            _script(
                "fish",
                KNOWN=" ".join(known),
                VALUED=" ".join(valued),
                RULES="\n".join(rules),
            )
        )
        return
    values = []
    lines = []
    for each in commands:
        words = " ".join(each.words)
        flags = " ".join(each.flags)
        lines.append(
            f"    '{each.path}') words='{words}'; flags='{flags}'; files={'1' * each.files} ;;"
        )
        for flag, few in each.values.items():
            values.append(f"    '{each.path}:{flag}') answer='{' '.join(few)}'; return ;;")
    answers = _script("answers", VALUES="\n".join(values), COMMANDS="\n".join(lines))
    step = _script("step", KNOWN="|".join(known), VALUED="|".join(valued))
    print(_script(options.shell, ANSWERS=answers, STEP=step))


def _script(name: str, **marks: str) -> str:
    text = (_SHELLS / name).read_text(encoding="utf-8").rstrip()
    for mark, put in marks.items():
        text = text.replace(f"@{mark}@", put)
    return text


def _commands(made: argparse.ArgumentParser, path: str) -> Iterator[Command]:
    actions = made._actions  # noqa: SLF001 - argparse has no other way to read a parser
    named = [action for action in actions if action.option_strings]
    placed = [action for action in actions if not action.option_strings]
    yield Command(
        path,
        words=[str(word) for action in placed for word in action.choices or ()],
        flags=[flag for action in named for flag in action.option_strings],
        values={
            flag: [str(word) for word in action.choices or ()]
            for action in named
            if action.nargs != 0
            for flag in action.option_strings
        },
        files=any(action.type is Path for action in actions),
    )
    for action in placed:
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name, inner in action.choices.items():
                yield from _commands(inner, f"{path} {name}".strip())


def _fish_rules(each: Command) -> Iterator[str]:
    if each.words:
        yield f"-a '{' '.join(each.words)}'"
    elif each.files:
        yield "-F"
    for flag in each.flags:
        rule = f"-l {flag[2:]}"
        if not flag.startswith("--"):
            rule = f"-s {flag[1:]}"
        if each.values.get(flag):
            rule += f" -x -a '{' '.join(each.values[flag])}'"
        elif flag in each.values:
            rule += " -r"
        yield rule
