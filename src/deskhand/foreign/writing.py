"""Changing `guard.toml`: one server comes or goes, and everything else that the person wrote stays as it is."""

from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from deskhand.errors import BadConfig, Exists, InvalidInput, NotFound
from deskhand.files import write_atomically
from deskhand.foreign import definitions
from deskhand.foreign.rules import FILE, ServerEntry, check_name, read_servers
from deskhand.foreign.session import secret_name
from deskhand.mail import credentials


def add(home: Path, name: str, entry: ServerEntry) -> None:
    """Write a new server down, without rules: every call of its tools is asked."""
    demand_free(home, name)
    table = tomlkit.table()
    for key, value in entry.model_dump(exclude_defaults=True, exclude={"rules"}).items():
        table.add(key, value)
    document = _read(home)
    if "servers" not in document:
        document.add("servers", tomlkit.table(is_super_table=True))
    document["servers"][name] = table
    _write(home, document)


def remove(home: Path, name: str) -> None:
    """Take a server out, with its rules, its secrets and what was seen of it."""
    entry = demand_known(home, name)
    document = _read(home)
    del document["servers"][name]
    _write(home, document)
    definitions.unpin(home, name)
    for variable in entry.env:
        credentials.forget(home, secret_name(name, variable))


def add_secret(home: Path, name: str, variable: str, text: str) -> str:
    """Keep a secret for the server; where it lies now, in words for the person."""
    entry = demand_known(home, name)
    place = credentials.keep(home, secret_name(name, variable), text)
    document = _read(home)
    if variable not in entry.env:
        document["servers"][name]["env"] = [*entry.env, variable]
    _write(home, document)  # written anew it tells a running desk to look
    return place


def demand_free(home: Path, name: str) -> None:
    try:
        check_name(name)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    if name in read_servers(home):
        hint = f"`deskhand guard remove {name}` takes it out"
        raise Exists(f"there is a server {name} behind the gate already", hint=hint)


def demand_known(home: Path, name: str) -> ServerEntry:
    found = read_servers(home).get(name)
    if found is None:
        raise NotFound(
            f"there is no server {name} behind the gate",
            hint="`deskhand guard list` names those there are",
        )
    return found


def _read(home: Path) -> Any:
    place = home / FILE
    if not place.exists():
        return tomlkit.document()
    try:
        return tomlkit.parse(place.read_text(encoding="utf-8"))
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise BadConfig(
            f"{place} is no TOML: {error}", hint="nothing was changed"
        ) from error


def _write(home: Path, document: Any) -> None:
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(home / FILE, tomlkit.dumps(document).encode())
    read_servers(home)
