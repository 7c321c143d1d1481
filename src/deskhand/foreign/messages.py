"""Messages of MCP as they stand on a line, and what no other server may say in them.

A call that passes is read and written four times: pydantic's own reader and writer take a third of the time that
Python's do. What these cannot say, Python's say, or refuse.
"""

import json
from typing import Any

from pydantic_core import from_json, to_json

OWN_WORDS = "deskhand/"
"""Begins each key of a `_meta` that is the desk's."""
LONGEST_RESULT = 1_000_000
"""Characters of a result that are kept for whoever asked."""
_OWN = OWN_WORDS.rstrip("/").encode()
_EXACT = json.JSONEncoder(allow_nan=False)
_EXACT_TEXT = json.JSONEncoder(allow_nan=False, ensure_ascii=False)


def read_message(line: bytes) -> Any:
    """Raises ValueError where it is no JSON, or such as not everybody reads in the same way."""
    return from_json(line, allow_inf_nan=False)


def read_any(line: bytes) -> Any:
    """As much of it as anybody reads. Raises ValueError or RecursionError where it is no JSON."""
    try:
        return read_message(line)
    except ValueError:
        return json.loads(line)


def write_message(message: Any) -> bytes:
    """A line with its end. Raises ValueError or RecursionError where it is no JSON."""
    try:
        text = to_json(message, ensure_ascii=True)
    except ValueError:
        return _write_exactly(message)
    if _may_be_endless(text):
        return _write_exactly(message)
    return text + b"\n"


def _may_be_endless(text: bytes) -> bool:
    """Whether there is a number in it that is none, or only the words for it."""
    return b"Infinity" in text or b"NaN" in text


def _write_exactly(message: Any) -> bytes:
    return _EXACT.encode(message).encode() + b"\n"


def mend(answer: Any) -> Any:
    """The answer as everybody can be told it: half a character becomes a question mark.

    Raises ValueError or RecursionError where it is no JSON, or deeper than everybody reads.
    """
    try:
        if not _may_be_endless(to_json(answer)):
            return answer
    except ValueError:
        pass
    return read_message(_EXACT_TEXT.encode(answer).encode("utf-8", "replace"))


def may_forge(line: bytes) -> bool:
    """Whether the desk's own words can stand in it; a letter can be written in many ways."""
    return _OWN in line.lower() or b"\\u" in line or not line.isascii()


def strip_own(answer: Any) -> None:
    """Take out of another's answer what only the desk says, wherever it stands in it."""
    left = [answer]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            if isinstance(meta := found.get("_meta"), dict):
                for key in [key for key in meta if _is_own(key)]:
                    del meta[key]
            left += found.values()
        elif isinstance(found, list):
            left += found


def _is_own(key: str) -> bool:
    return key.strip().casefold().startswith(OWN_WORDS)
