"""`deskhand config`: the desk's options."""

import argparse
import json
from typing import Any

from deskhand.cli.command import command, group


def add_to(commands: Any) -> None:
    config = group(commands, "config", "the desk's options")
    command(config, "show", _show, "each option's value and where it came from", json=True)
    command(config, "options", _options, "every option with its sentence", json=True)


def _show(options: argparse.Namespace) -> None:
    from deskhand.config import load

    rows = list(load().rows())
    if options.json:
        print(
            json.dumps(
                {row.key: {"value": row.value, "source": row.source} for row in rows},
                indent=2,
            )
        )
        return
    for row in rows:
        value = row.value
        if value is None:
            value = "-"
        print(f"{row.key:<24} {value:<40} {row.source}")


def _options(options: argparse.Namespace) -> None:
    from deskhand.config import OPTIONS, sentence

    if options.json:
        facts = {
            option.key: option._asdict() | {"sentence": sentence(name)}
            for name, option in OPTIONS.items()
        }
        print(json.dumps(facts, indent=2))
        return
    for name, option in OPTIONS.items():
        print(f"{option.key}  ({option.variable}; {option.form})\n    {sentence(name)}")
