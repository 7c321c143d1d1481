"""Removes what killed processes left behind: files that were being written and never got their name."""

import os
import re
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from deskhand.app import Desk

_AGE = timedelta(hours=1)
_IN_HOME = re.compile(r"\..+\.[0-9a-f]{16}|\.stage-.+")
_IN_VAULT = re.compile(r"\.deskhand-[0-9a-f]{16}\.tmp")


def sweep(desk: Desk) -> list[str]:
    """What was removed: of the home and the vaults only names that the desk itself gives,
    and nothing of this hour."""
    found = list(_leftovers(desk.settings.home, _IN_HOME, desk.now()))
    for vault in desk.settings.note_vaults:
        found += _leftovers(vault.path, _IN_VAULT, desk.now())
    for path in found:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return [f"removed {path}, which a killed process left" for path in found]


def _leftovers(root: Path, pattern: re.Pattern[str], now: datetime) -> Iterator[Path]:
    before = (now - _AGE).timestamp()
    for folder, inner, files in os.walk(root):
        for name in (*inner, *files):
            path = Path(folder, name)
            if (
                pattern.fullmatch(name)
                and not path.is_symlink()
                and path.lstat().st_mtime < before
            ):
                yield path
        inner[:] = [name for name in inner if not name.startswith(".")]
