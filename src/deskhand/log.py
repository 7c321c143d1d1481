"""Structured logs: a JSON object in each line, to stderr or a file, because stdout belongs to the protocol."""

import json
import logging
import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from deskhand.files import open_private

LARGEST = 10_000_000

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}

# An address begins where a word does; behind one, where its domain ended. A comment may stand before its sign, which
# has two wider forms, and a number in brackets behind it.
_SIGN = "@\uff20\ufe6b"
_ADDRESS = re.compile(
    rf"(?<![^\s<>()\[\],;:\"'={_SIGN}])([^\s<>()\[\],;:\"{_SIGN}])[^\s<>()\[\],;:\"{_SIGN}]*(?:\([^()]{{0,100}}\))?"
    rf"([{_SIGN}](?:\[[^\s\[\]]+\]|[^\s<>()\[\],;:\"'={_SIGN}]*))"
)
_QUOTED = re.compile(rf'"[^"]*"([{_SIGN}])')


def mask_addresses(text: str) -> str:
    """The text with every address in it as `j***@example.com`."""
    if not any(sign in text for sign in _SIGN):
        return text
    return _QUOTED.sub(r'"***"\1', _ADDRESS.sub(r"\1***\2", text))


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        for key, value in line.items():
            # Whom a call is for is what the contract's log names.
            if isinstance(value, str) and key != "user_id":
                line[key] = mask_addresses(value)
        return json.dumps(line, default=str)


class _PrivateFile(RotatingFileHandler):
    """Turns over while it is written; only its owner can read it."""

    def _open(self) -> TextIOWrapper:
        # Path.open has no opener.
        return open(self.baseFilename, "a", encoding="utf-8", opener=open_private)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """A line that a full disk does not take is said on stderr, and not where in the program it was written."""
        with suppress(OSError, ValueError):  # where nobody listens there either
            sys.stderr.write(f"{self.format(record)}\n")


def configure(level: str, file: Path | None = None) -> None:
    """Log to the file, or to stderr where there is none."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if file is not None:
        handler = _PrivateFile(file, maxBytes=LARGEST, backupCount=1)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # Each request line and file event of the libraries would drown ours; what the mail libraries
    # say at their lowest level are passwords and whole mails.
    for chatty in (
        "uvicorn.access",
        "watchfiles",
        "mcp",
        "httpx2",
        "httpcore2",
        "imapclient",
    ):
        logging.getLogger(chatty).setLevel(
            max(logging.getLevelName(level), logging.WARNING)
        )
