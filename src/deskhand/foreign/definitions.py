"""What the person has seen of each tool: its definition, pinned. One that changed since is closed until it is reviewed.

A server is taken as it is when it is first met; a tool that comes later is as closed as one that changed.
"""

import json
import logging
from collections.abc import Mapping
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from typing import Any

from deskhand.errors import BadConfig
from deskhand.files import create_once, write_atomically

log = logging.getLogger("deskhand.foreign")

Definitions = dict[str, dict[str, Any]]
"""Of each tool all that it says of itself, by its name."""
_PINNED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


def define(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The part of what a server lists that a model reads and a person reviews."""
    return {key: tool[key] for key in _PINNED if tool.get(key) is not None}


def digest_of(definition: Mapping[str, Any]) -> str:
    return sha256(
        json.dumps(definition, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def read_pins(home: Path, server: str) -> Definitions | None:
    """What was reviewed; None where the server was never met."""
    place = pin_file(home, server)
    try:
        found: Definitions = json.loads(place.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BadConfig(
            f"{place} is damaged", hint=f"`deskhand guard review {server}` writes it anew"
        ) from error
    return found


def pin(home: Path, server: str, seen: Definitions) -> None:
    """Keep what the person has seen."""
    place = pin_file(home, server)
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(place, _written(seen))


def pin_first(home: Path, server: str, seen: Definitions) -> Definitions:
    """Keep a server's tools as they are when it is first met; what is pinned, whoever was first."""
    place = pin_file(home, server)
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    create_once(place, _written(seen))
    return read_pins(home, server) or {}


def unpin(home: Path, server: str) -> None:
    pin_file(home, server).unlink(missing_ok=True)
    forget_running(home, server)


def keep_running(home: Path, server: str, listed: Definitions) -> None:
    """For the review: what a server lists that runs; when it is started anew it may say what it said before.

    A full disk changes nothing for whoever calls: what is closed is closed.
    """
    data = _written(listed)
    place = _running_file(home, server)
    try:
        if not place.exists() or place.read_bytes() != data:
            write_atomically(place, data)
    except OSError as failure:
        log.warning("not_kept", extra={"server": server, "failure": str(failure)})


def read_running(home: Path, server: str) -> Definitions | None:
    """What is closed in a server that runs; None where nothing is."""
    try:
        found: Definitions = json.loads(_running_file(home, server).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found


def forget_running(home: Path, server: str) -> None:
    _running_file(home, server).unlink(missing_ok=True)


def find_changed(pinned: Definitions, seen: Definitions) -> list[str]:
    """The tools that are new, gone or no longer what they were."""
    return sorted(
        name
        for name in pinned.keys() | seen.keys()
        # Not as Python compares them: 1 and true are two things.
        if digest_of(pinned.get(name, {})) != digest_of(seen.get(name, {}))
    )


def pin_file(home: Path, server: str) -> Path:
    return home / "guard" / f"{server}.json"


def _running_file(home: Path, server: str) -> Path:
    return home / "guard" / f"{server}.running.json"


def _written(seen: Definitions) -> bytes:
    return json.dumps(seen, indent=1, sort_keys=True, ensure_ascii=True).encode() + b"\n"


def describe_changes(pinned: Definitions, seen: Definitions) -> list[str]:
    """What is new, gone or otherwise, line by line."""
    lines: list[str] = []
    for name in find_changed(pinned, seen):
        before = _lines(pinned.get(name))
        after = _lines(seen.get(name))
        lines += unified_diff(
            before, after, f"{name}, as you saw it", f"{name}, as it is now", lineterm=""
        )
    return lines


def _lines(definition: dict[str, Any] | None) -> list[str]:
    if definition is None:
        return []
    return json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=True).splitlines()
