"""`deskhand agentmail`: the agentmail command under another name."""

import argparse
from typing import Any

from deskhand import agentmail
from deskhand.cli.command import command


def add_to(commands: Any) -> None:
    made = command(
        commands,
        "agentmail",
        _agentmail,
        "messages between agents; --help lists its commands",
    )
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.epilog = agentmail.HELP
    made.add_argument("arguments", nargs=argparse.REMAINDER)


def _agentmail(options: argparse.Namespace) -> int:
    return agentmail.main(options.arguments)
