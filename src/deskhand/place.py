"""Where a desk's ledger lies, kept beside it. Whoever copies a home copies this too, and the copy knows that it is one.
A home that is restored beside its desk is marked as a copy here, until the person removes the mark.

Two ledgers that know the same requests and hear the same vault would both take a moved file for a yes, and both send.
"""

import json
from pathlib import Path
from typing import Any

from deskhand.files import write_atomically

FILE = "desk.place"
_LEDGER = "desk.db"
_KEY = "seal.key"
_MARK = "copy"


def find_original(home: Path) -> Path | None:
    """The home that this one is a copy of: one that was copied by hand is its own desk once that is gone."""
    kept = _read(home / FILE)
    if kept is None:
        return None
    original = Path(kept["ledger"]).parent
    if _MARK in kept:
        return original
    if _is_here(home, kept):
        return None
    try:
        is_there = (original / _LEDGER).exists()
        has_same_key = (original / _KEY).read_bytes() == (home / _KEY).read_bytes()
    except OSError:  # nobody can say; a home that was moved finds nothing where it was
        return None
    return original if is_there and has_same_key else None


def mark_copy(home: Path, original: Path) -> None:
    """Say of a home that it is a copy. Where it does not know of which, it is `original`."""
    kept = _read(home / FILE) or {"ledger": str(original / _LEDGER), "file": None}
    write_atomically(home / FILE, json.dumps(kept | {_MARK: True}).encode(), 0o600)


def is_marked(home: Path) -> bool:
    return _MARK in (_read(home / FILE) or {})


def keep(home: Path) -> None:
    """Note that the ledger lies here; of a copy only where its original is gone."""
    here = _describe(home)
    if _read(home / FILE) != here and find_original(home) is None:
        write_atomically(home / FILE, json.dumps(here).encode(), 0o600)


def _is_here(home: Path, kept: dict[str, Any]) -> bool:
    """A home that was moved keeps its file, one that was restored its name."""
    here = _describe(home)
    return any(kept[each] == here[each] for each in here)


def _describe(home: Path) -> dict[str, Any]:
    ledger = (home / _LEDGER).resolve()
    try:
        found = ledger.stat()
    except OSError:
        return {"ledger": str(ledger), "file": None}
    return {"ledger": str(ledger), "file": [found.st_dev, found.st_ino]}


def _read(file: Path) -> dict[str, Any] | None:
    try:
        kept = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    if isinstance(kept, dict) and isinstance(kept.get("ledger"), str) and "file" in kept:
        return kept
    return None
