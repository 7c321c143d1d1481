"""Structured logs: a JSON object in each line, to stderr or a file, because stdout belongs to the protocol."""

import json
import logging
import math
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from deskhand.files import open_private

LARGEST = 10_000_000
_MINUTE = 60.0

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}

# The sign of an address has two wider forms, and is spelled out in links and in HTML.
_SIGN = re.compile("[@\uff20\ufe6b]|%40|&#64;")
# What stands before the sign, read backwards from it: blanks, a comment, and then words and what is in quotes.
_LOCAL = re.compile(
    r"(\s{0,3})(?:\)[^()]{0,100}\(\s{0,3})?"
    r"((?:\"(?:[^\"]|\"\\)*\"(?!\\)|[^\s<>()\[\],;:\"]++)+)"
)
_HOST = re.compile(r"\s{0,3}(?:\[|[\w-]+\.[\w-])")
_QUOTED = re.compile('"[^"]*"([@\uff20\ufe6b])')
_FURTHER = 8
"""How much more of a text is read than is shown of it."""
_LONGEST_VALUE = 20_000
"""Of a line of the log; the trace of an error has room in it."""


def mask_addresses(text: str) -> str:
    """The text with every address in it as `j***@example.com`."""
    if not _SIGN.search(text):
        return text
    return _mask_quoted("".join(_mask_parts(text)))


def mask_beginning(text: str, limit: int) -> str:
    """What the text with its addresses masked begins with, and no more of it is read than that takes.

    It is shorter where only the rest would tell whether it belongs to an address.
    """
    if len(text) <= limit:
        return mask_addresses(text)[:limit]
    begun: list[str] = []
    length = 0
    parts = _mask_parts(text)
    for part in parts:
        begun.append(part)
        length += len(part)
        if length > _FURTHER * limit:
            break
    masked = _mask_quoted("".join(begun))
    if next(parts, None) is None:
        return masked[:limit]
    # The last quotation mark may begin a name whose end was not read.
    doubtful = masked.rfind('"')
    return masked[:limit] if doubtful < 0 else masked[: min(limit, doubtful)]


def _mask_parts(text: str) -> Iterator[str]:
    """The text up to each sign of an address, whose name is masked, and what follows the last."""
    end = 0
    for sign in _SIGN.finditer(text):
        before = text[end : sign.start()]
        yield _mask_end(before, text, sign.end()) + sign[0]
        end = sign.end()
    yield text[end:]


def _mask_quoted(text: str) -> str:
    """In the quotes before a sign there may be a sign, too."""
    return _QUOTED.sub(r'"***"\1', text)


def _mask_end(before: str, text: str, after: int) -> str:
    """What stands before a sign, without the name at its end."""
    found = _LOCAL.match(before[::-1])
    if found is None or (found[1] and not _HOST.match(text, after)):
        return before
    name = found[2][-1] + "***"
    if found[2].endswith('"'):
        name += '"'
    return before[: len(before) - found.end()] + name


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
        # Whom a call is for is what the contract's log names.
        masked = {
            key: value if key == "user_id" else _mask_within(value)
            for key, value in line.items()
        }
        return json.dumps(masked, default=str)


def _mask_within(value: object) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case dict():
            return {_short(str(key)): _mask_within(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_mask_within(each) for each in value]
        case _:
            return _short(str(value))


def _short(text: str) -> str:
    if len(text) <= _LONGEST_VALUE:
        return mask_addresses(text)
    return f"{mask_beginning(text, _LONGEST_VALUE)}… ({len(text)} characters)"


class _PrivateFile(RotatingFileHandler):
    """Turns over while it is written; only its owner can read it."""

    def _open(self) -> TextIOWrapper:
        # Path.open has no opener.
        return open(self.baseFilename, "a", encoding="utf-8", opener=open_private)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """A line that a full disk does not take is said on stderr, and not where in the
        program it was written."""
        with suppress(OSError, ValueError):  # where nobody listens there either
            sys.stderr.write(f"{self.format(record)}\n")


class Once(logging.Filter):
    """Lets the same line pass once a minute: out of descriptors, the event loop says so
    hundreds of times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._last = ("", -math.inf)

    def filter(self, record: logging.LogRecord) -> bool:
        said, at = self._last
        if record.getMessage() == said and record.created < at + _MINUTE:
            return False
        self._last = (record.getMessage(), record.created)
        return True


def configure(level: str, file: Path | None = None) -> None:
    """Log to the file, or to stderr where there is none."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if file is not None:
        handler = _PrivateFile(file, maxBytes=LARGEST, backupCount=1)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("asyncio").addFilter(Once())
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
