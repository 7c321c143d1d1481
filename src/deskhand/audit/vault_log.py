"""The log files in the vault, under their contracts' names: a JSON object in each line, readable by the owner only."""

import json
import logging
import os
import stat
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel

from deskhand import clock
from deskhand.audit import Entry, redact_entry
from deskhand.durable import sync
from deskhand.errors import Denied, DeskError
from deskhand.files import private_mode
from deskhand.locks import wait_for_lock
from deskhand.notes import paths

log = logging.getLogger("deskhand.journal")

_FLAGS = (
    os.O_RDWR
    | os.O_APPEND
    | os.O_CREAT
    | os.O_NOFOLLOW
    | os.O_CLOEXEC
    | os.O_NONBLOCK  # nobody waits for a pipe's other end, or until somebody gives a lease back
)


class AuditLogEntry(BaseModel):
    """The Gmail server's line, written before the mailbox is called."""

    event: str = "pre_send_audit"
    timestamp: str
    to: str
    subject: str
    body_preview: str
    reply_to_message_id: str | None
    severity: str = "INFO"


class Leaving(Protocol):
    """A mail that is about to be sent."""

    @property
    def to(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def body(self) -> str: ...
    @property
    def reply_to_message_id(self) -> str | None: ...


def write_entry(vault: Path, logs: tuple[str, ...], entry: Entry) -> None:
    """Write the entry of the chain, redacted like there, to the log of its day."""
    line = redact_entry(entry).model_dump(exclude_none=True)
    if entry.result == "waiting":
        line["result"] = "rejected"  # the contract's word for what has no approval yet
    try:
        append(vault, (*logs, "actions"), f"{entry.timestamp[:10]}.json", line)
    except (OSError, DeskError) as failure:
        # The chain has it; hiding the result from the caller would not bring the line back.
        log.critical("not_in_the_vault", extra={"entry": line, "failure": str(failure)})


def write_pre_send(
    vault: Path, logs: tuple[str, ...], leaving: Leaving, now: datetime
) -> None:
    """Write down that a mail is about to leave; where that fails, it does not."""
    entry = AuditLogEntry(
        timestamp=clock.iso(now),
        to=leaving.to,
        subject=leaving.subject,
        body_preview=leaving.body[:200],
        reply_to_message_id=leaving.reply_to_message_id,
    )
    append(vault, logs, f"gmail_mcp_{now:%Y-%m-%d}.jsonl", entry.model_dump())


def append(vault: Path, folders: tuple[str, ...], name: str, line: dict[str, Any]) -> None:
    """Add a line to a file in these folders of the vault, and wait until it is on the disk."""
    with paths.opened(vault, folders, create=True) as (folder, _):
        file = os.open(name, _FLAGS, private_mode(folder, 0o600), dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise Denied(f"{name} is not an ordinary file", reason="special")
            wait_for_lock(file, name)
            # In ASCII: some readers take U+2028 and the like for the end of a line.
            _append_line(file, json.dumps(line).encode() + b"\n")
            sync(file)
        finally:
            os.close(file)


def _append_line(file: int, line: bytes) -> None:
    """The whole line or nothing of it; what another program left without an end gets one first."""
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        line = b"\n" + line
    try:
        while line:
            line = line[os.write(file, line) :]
    except OSError:
        os.ftruncate(file, size)
        raise
