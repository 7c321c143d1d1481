"""`deskhand agentmail`: the agentmail command under another name."""

import argparse
from typing import Any

from deskhand import agentmail
from deskhand.cli.parts import command


def add_to(commands: Any) -> None:
    made = command(commands, "agentmail", _agentmail, "messages between agents; see `agentmail --help`")
    made.add_argument("arguments", nargs=argparse.REMAINDER)


def _agentmail(options: argparse.Namespace) -> int:
    return agentmail.main(options.arguments)
