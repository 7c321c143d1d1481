"""The commands: parse, call, print. What is heavy is imported by the command that needs it."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from functools import cache

from deskhand import __version__, guard
from deskhand.cli import (
    agents,
    approvals,
    backup,
    completion,
    connect,
    doctor,
    entry,
    follow_up,
    foreign,
    init,
    mail,
    notes,
    orchestrate,
    passkeys,
    permit,
    record,
    serve,
    service,
    settings,
    tasks,
    tokens,
)
from deskhand.cli.command import WRONG_USAGE, Parser, plain
from deskhand.errors import (
    DeskError,
    Internal,
    Unavailable,
    advice_on,
    describe_in_sentences,
    mcp_error,
    speak_to_person,
)

EXIT_CODES = """\
exit codes:
  0  done
  1  internal error           5  not allowed, or changed meanwhile
  2  wrong usage or input     6  a person must sign in
  3  bad configuration        7  not available right now; try again
  4  not found                8  the provider refused
"""


def main(argv: Sequence[str] | None = None) -> int:
    # Whoever serves configures the log; a command says what it has to say itself.
    logging.getLogger("deskhand").addHandler(logging.NullHandler())
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments:
        parser().exit(WRONG_USAGE, parser().format_help())
    options = parser().parse_args(argv)
    try:
        guard.direct(arguments)
        return int(options.run(options) or 0)
    except DeskError as error:
        return _report(error, options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has seen enough; Python must not try to flush it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        why = f"the machine refused: {error.strerror or error}"
        if error.filename:
            why = f"the machine refused: {error.filename}: {error.strerror or error}"
        hint = advice_on(
            error, "is there such a folder, may you write there, is there room?"
        )
        return _report(Unavailable(why, hint=hint), options)
    except Exception as error:  # noqa: BLE001 - the seam of this door
        return _report(_mask(error), options)


def _mask(error: Exception) -> Internal:
    """A mistake of ours: in one line, with the place where it happened for whoever mends it."""
    import secrets
    import traceback

    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
    message = f"an unexpected error at {where}: {type(error).__name__}: {error}"
    return Internal(
        message,
        reference=secrets.token_hex(4),
        hint="please report it; `deskhand doctor` may say more",
    )


def _report(error: DeskError, options: argparse.Namespace) -> int:
    text = plain(describe_in_sentences(speak_to_person(error)))
    if getattr(options, "json", False):
        text = json.dumps(mcp_error(error))
    print(text, file=sys.stderr)
    return error.exit_code


@cache
def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="deskhand",
        description="Safe hands for AI assistants at a person's desk: mail, notes, tasks and messages, over MCP.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"deskhand {__version__}")
    commands = made.add_subparsers(title="commands", required=True, metavar="COMMAND")
    first = (
        init,
        doctor,
        connect,
        foreign,
        serve,
        service,
        entry,
        passkeys,
        orchestrate,
        approvals,
    )
    for part in (
        *first,
        follow_up,
        mail,
        notes,
        tasks,
        agents,
        permit,
        tokens,
        record,
        settings,
        backup,
        completion,
    ):
        part.add_to(commands)
    return made
