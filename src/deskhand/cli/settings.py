"""`deskhand config`: the desk's options."""

import argparse
import json
from typing import Any

from deskhand.cli.parts import command, group


def add_to(commands: Any) -> None:
    config = group(commands, "config", "the desk's options")
    command(config, "show", _show, "each option's value and where it came from", json=True)
    command(config, "options", _options, "every option with its sentence", json=True)


def _show(options: argparse.Namespace) -> None:
    from deskhand.config import load

    rows = list(load().rows())
    if options.json:
        print(json.dumps({row.key: {"value": row.value, "source": row.source} for row in rows}, indent=2))
        return
    for row in rows:
        print(f"{row.key:<24} {'-' if row.value is None else row.value:<40} {row.source}")


def _options(options: argparse.Namespace) -> None:
    from deskhand.config import OPTIONS, sentence

    if options.json:
        print(json.dumps({o.key: o._asdict() | {"sentence": sentence(name)} for name, o in OPTIONS.items()}, indent=2))
        return
    for name, option in OPTIONS.items():
        print(f"{option.key}  ({option.variable}; {option.form})\n    {sentence(name)}")
