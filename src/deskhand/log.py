"""Structured logs: a JSON object in each line, to stderr, because stdout belongs to the protocol."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(level: str, stream: TextIO | None = None) -> None:
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # Each request line and file event of the libraries would drown ours; what the mail libraries
    # say at their lowest level are passwords and whole mails.
    for chatty in ("uvicorn.access", "watchfiles", "mcp", "httpx2", "httpcore2", "imapclient"):
        logging.getLogger(chatty).setLevel(max(logging.getLevelName(level), logging.WARNING))
