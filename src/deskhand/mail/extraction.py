"""The text of an attachment, read by a process that may take little and, on Linux, change and send nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import NamedTuple

from deskhand.errors import TooLarge

LARGEST = 30_000_000
_SECONDS = 30
_SLOW = "It takes too long to read; what follows is as far as it was read."
_ENDED = "Reading it took more time or memory than it is given; what follows is as far as it was read."
_FAILED = "It cannot be read; what follows is as far as it was read."


@dataclass(frozen=True, slots=True)
class Extract:
    text: str
    has_text: bool
    """Whether it is of a kind that holds text at all."""
    warnings: tuple[str, ...]
    """Why there is no text or not all of it, and what was hidden in it."""


class Finished(NamedTuple):
    """What a process wrote that read something on its own."""

    written: bytes
    said: str
    ending: str
    """What is to be said where the process itself said nothing."""


def extract(content: bytes, kind: str, name: str, charset: str = "") -> Extract:
    """Never raises for anything that a stranger put into a document."""
    if len(content) > LARGEST:
        raise TooLarge(
            f"the attachment has {len(content):,} bytes; at most {LARGEST:,} are read",
            hint="save it instead",
        )
    done = run_apart("deskhand.mail.documents", (kind, name, charset), content)
    return _judge(done.written.decode("utf-8", "replace"), done.said, done.ending)


def run_apart(module: str, arguments: Sequence[str], content: bytes) -> Finished:
    """Give the content to a module that shuts itself in, and wait for it, but not for ever."""
    command = [sys.executable, "-P", "-m", module, *map(_plain, arguments)]
    known = os.pathsep.join(filter(None, sys.path))
    environment = {
        "PYTHONPATH": known,
        "PYTHONIOENCODING": "utf-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with TemporaryFile() as given, TemporaryFile() as read, TemporaryFile() as said:
        given.write(content)
        given.seek(0)
        process = subprocess.Popen(
            command,
            stdin=given,
            stdout=read,
            stderr=said,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
        try:
            ending = _FAILED if process.wait(_SECONDS) >= 0 else _ENDED
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ending = _SLOW
        read.seek(0)
        said.seek(0)
        return Finished(read.read(), said.read().decode("utf-8", "replace"), ending)


def _plain(text: str) -> str:
    """As an argument of a command can be; only its beginning or ending tells anything."""
    return text.encode("ascii", "replace").decode().replace("\0", "")[-200:]


def _judge(text: str, said: str, ending: str) -> Extract:
    """What the process said at its end; one that was ended said nothing."""
    try:
        report = json.loads(said.rpartition("\n")[2])
    except ValueError:
        return Extract(text, has_text=True, warnings=(ending,))
    problem = [report["problem"]] if report["problem"] else []
    return Extract(text, report["has_text"], (*problem, *report["warnings"]))
