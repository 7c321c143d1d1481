"""Changing somebody's file: a copy of what was there first, then all of the new text in one step."""

import os
import stat
from datetime import datetime
from pathlib import Path

from deskhand.errors import Changed, Unavailable
from deskhand.files import write_atomically


def content(file: Path) -> bytes | None:
    """What is in the file; None where there is none. A link is followed, as the file's owner meant it."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(
            f"cannot read {file}: {error.strerror}", hint="nothing was changed"
        ) from error


def rewrite(
    file: Path, data: bytes | None, seen: bytes | None, *, secret: bool = False
) -> None:
    """Put `data` into the file that held `seen`; None: no file. Its permissions stay, and a link stays a link.

    A file into which a secret comes is its owner's alone.
    """
    place = Path(os.path.realpath(file))
    if content(place) != seen:
        raise Changed(
            f"{file} was changed by another program", hint="try again; nothing was changed"
        )
    mode = 0o600  # a new file may hold a token or an address
    try:
        if data is None:
            file.unlink(missing_ok=True)
            return
        if seen is not None and not secret:
            mode = stat.S_IMODE(place.stat().st_mode)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, data, mode)
    except OSError as error:
        raise Unavailable(
            f"cannot write {file}: {error.strerror}", hint="nothing was changed"
        ) from error


def keep(home: Path, name: str, data: bytes, now: datetime) -> Path:
    """Write a copy of `data` into the desk's home, readable by its owner only; returns its place."""
    folder = home / "backups"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    first = folder / f"{name}.{now:%Y%m%dT%H%M%S}"
    place = first
    for more in range(1, 10_000):
        if not place.exists():
            break
        place = folder / f"{first.name}-{more}"
    write_atomically(place, data)
    return place
