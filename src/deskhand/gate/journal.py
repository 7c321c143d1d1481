"""The seeds' log files in the vault, one JSON object a line, readable by their owner only."""

import json
import logging
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from deskhand import audit, clock
from deskhand.errors import DeskError
from deskhand.gate.actions import Action
from deskhand.notes import paths

log = logging.getLogger("deskhand.journal")


class AuditLogEntry(BaseModel):
    """Seed 000's line, written before the mailbox is called."""

    event: str = "pre_send_audit"
    timestamp: str
    to: str
    subject: str
    body_preview: str
    reply_to_message_id: str | None
    severity: str = "INFO"


def action(vault: Path, entry: audit.Entry) -> None:
    """Seed 001's line: the entry of the chain, redacted like there."""
    line = audit.redacted(entry).model_dump(exclude_none=True)
    try:
        append(vault, ("Logs", "actions"), f"{entry.timestamp[:10]}.json", line)
    except (OSError, DeskError) as failure:
        # The chain has it; hiding the result from the caller would not bring the line back.
        log.critical("not_in_the_vault", extra={"entry": line, "failure": str(failure)})


def pre_send(vault: Path, leaving: Action, now: datetime) -> None:
    entry = AuditLogEntry(
        timestamp=clock.iso(now),
        to=leaving.to,
        subject=leaving.subject,
        body_preview=leaving.body[:200],
        reply_to_message_id=leaving.reply_to_message_id,
    )
    append(vault, ("Logs",), f"gmail_mcp_{now:%Y-%m-%d}.jsonl", entry.model_dump())


def append(vault: Path, folders: tuple[str, ...], name: str, line: dict[str, Any]) -> None:
    with paths.opened(vault, folders, create=True) as (folder, _):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, 0o600, dir_fd=folder)
        with os.fdopen(file, "ab", buffering=0) as opened:
            # In ASCII: some readers take U+2028 and the like for the end of a line.
            opened.write(f"{json.dumps(line)}\n".encode())
            os.fsync(file)
