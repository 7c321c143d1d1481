"""Taking over the servers that a client's own file names: they stand behind the gate, and the client asks the desk.

What was there before is kept in the desk's home, secrets too, readable by its owner only; taking it back restores it.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import Base64Bytes, BaseModel, ConfigDict, ValidationError

from deskhand import clock, environment
from deskhand.errors import BadConfig, Changed, DeskError, Exists, InvalidInput, NotFound
from deskhand.files import write_atomically
from deskhand.foreign import writing
from deskhand.foreign.rules import LONGEST_NAME, ServerEntry, check_name
from deskhand.setup import files
from deskhand.setup.clients import Client, entry, file_of, started_by, this_program
from deskhand.setup.connect import entries_of, plan_words


@dataclass(frozen=True, slots=True)
class Takeover:
    client: Client
    file: Path
    words: dict[str, dict[str, Any]]
    """What each entry of the client's file becomes."""
    before: dict[str, dict[str, Any]]
    """What they were."""
    servers: dict[str, tuple[ServerEntry, dict[str, str]]]
    """Each server that comes behind the gate, with its secrets; empty where it is taken back."""
    left: list[str]
    difference: str

    @property
    def names(self) -> list[str]:
        return list(self.words)


def plan(home: Path, client: Client) -> Takeover:
    """Every server that the desk can start itself and that is not its own."""
    file = file_of(client, environment.variables())
    words: dict[str, dict[str, Any]] = {}
    servers: dict[str, tuple[ServerEntry, dict[str, str]]] = {}
    left = []
    found = entries_of(client, file)
    for name, given in found.items():
        if name.startswith("deskhand"):
            continue
        try:
            own = _own_name(name)
            writing.demand_free(home, own)
            _demand_other(own, servers)
            servers[name] = _read_entry(client, given)
        except (DeskError, ValueError) as error:
            left.append(f"{name}: {error}")
            continue
        kept = {key: given[key] for key in _OF_THE_CLIENT if key in given}
        words[name] = entry(client, name, this_program(home, "mcp", own)) | kept
    if not words:
        raise NotFound(
            f"{file} names no server that could come behind the gate",
            hint="; ".join(left) or None,
        )
    before = {name: found[name] for name in words}
    return Takeover(
        client, file, words, before, servers, left, _describe(client, file, words)
    )


def _demand_other(own: str, servers: Mapping[str, Any]) -> None:
    if own in map(_own_name, servers):
        raise Exists(f"another one of them is called {own} behind the gate")


class Memory(BaseModel):
    """What was there before, kept until it is taken back."""

    model_config = ConfigDict(extra="forbid")

    file: Path
    entries: dict[str, dict[str, Any]] = {}
    before: Base64Bytes | None = None
    """The whole file, and the digest of what was made of it: untouched since, every byte is given back."""
    after: str | None = None


def _recall(home: Path, client: Client) -> Memory | None:
    place = _note(home, client)
    kept = files.content(place)
    if kept is None:
        return None
    try:
        return Memory.model_validate_json(kept)
    except ValidationError:
        raise BadConfig(
            f"{place} is damaged",
            hint=f"the files of {client.title} as they were lie in {home / 'backups'}; nothing was changed",
        ) from None


def _remember(home: Path, client: Client, memory: Memory) -> None:
    place = _note(home, client)
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(place, memory.model_dump_json(exclude_none=True).encode())


def plan_undo(home: Path, client: Client) -> Takeover:
    """The client's own entries as they were before."""
    memory = _recall(home, client)
    if memory is None:
        raise NotFound(f"nothing of {client.title} was taken over")
    words = memory.entries
    difference = _describe(client, memory.file, words)
    return Takeover(client, memory.file, words, {}, {}, [], difference)


def carry_out(home: Path, wanted: Takeover) -> None:
    """First what is kept, then the desk's side, then the client's file."""
    _demand_unchanged(wanted)
    before = files.content(wanted.file)
    memory = _recall(home, wanted.client) or Memory(file=wanted.file)
    if before is not None:
        files.keep(
            home, f"{wanted.client.name}-{wanted.file.name}", before, clock.utc_now()
        )
    if wanted.servers:
        memory.file = wanted.file
        memory.entries |= wanted.before
        _remember(home, wanted.client, memory)
    for name, (server, secrets) in wanted.servers.items():
        writing.add(home, _own_name(name), server)
        for variable, text in secrets.items():
            writing.add_secret(home, _own_name(name), variable, text)
    for name, words in wanted.words.items():
        planned = plan_words(wanted.client, wanted.file, name, words)
        files.rewrite(wanted.file, planned.after, planned.before)
    after = files.content(wanted.file)
    if wanted.servers:
        _note_bytes(memory, before, after)
        _remember(home, wanted.client, memory)
        return
    # Nobody has touched it since.
    if before is not None and memory.after == sha256(before).hexdigest():
        files.rewrite(wanted.file, memory.before, after)
    for name in wanted.words:
        with suppress(NotFound):  # the person has taken it out already
            writing.remove(home, _own_name(name))
    _note(home, wanted.client).unlink()


def _demand_unchanged(wanted: Takeover) -> None:
    """Refuse to put behind the gate what the client no longer means."""
    if not wanted.before:
        return
    found = entries_of(wanted.client, wanted.file)
    if any(found.get(name) != given for name, given in wanted.before.items()):
        raise Changed(
            f"{wanted.file} was changed meanwhile",
            hint="nothing was done; look at it again",
        )


def _note_bytes(memory: Memory, before: bytes | None, after: bytes | None) -> None:
    """Keep the file as it was, to give back every byte of it; at a second import what was there at the first."""
    found = sha256(before or b"").hexdigest()
    if memory.after not in (None, found):
        return
    if memory.before is None:
        memory.before = before or b""
    memory.after = sha256(after or b"").hexdigest()


def _own_name(name: str) -> str:
    return check_name(re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST_NAME])


_OF_THE_CLIENT = (
    "tools",
    "includeTools",
    "excludeTools",
    "enabled_tools",
    "disabled_tools",
    "available_tools",
    "timeout",
    "startup_timeout_sec",
    "tool_timeout_sec",
)
"""What the client itself makes of a server's tools, whoever starts it."""
_BY_CLIENT = (
    "envFile",
    "env_keys",
    "env_vars",
    "bearer_token_env_var",
    "env_http_headers",
    "headersHelper",
)
"""Where an entry names what only the client itself can fill in."""
_FILLED_IN = re.compile(r"\$\{|\{(env|file):")
_VARIABLE = re.compile(r"\$[A-Za-z_]")


def _find_obstacle(client: Client, given: Mapping[str, Any]) -> str | None:
    """Why the desk cannot start the server as the client does."""
    if given.get("disabled") is True or given.get("enabled") is False:
        return "it is turned off"
    if given.get("type") == "sse" or (client.url_key == "httpUrl" and "url" in given):
        return "it speaks SSE, which the desk does not"
    command = started_by(given)[0] or ""
    if given.get("cwd") or ("/" in command and not command.startswith("/")):
        return "it starts in a folder of its own"
    if Path(command).name == "deskhand" or "deskhand" in (given.get("args") or ()):
        return "it is the desk's own"
    named = [key for key in _BY_CLIENT if given.get(key)]
    text = json.dumps(dict(given), default=str)
    if (
        named
        or _FILLED_IN.search(text)
        or (client.url_key == "httpUrl" and _VARIABLE.search(text))
    ):
        return "the client itself fills in some of its values"
    return None


def _find_fault(given: Mapping[str, Any]) -> str | None:
    """What no client can make use of either."""
    command = given.get("command") or given.get("cmd") or ""
    words = command if isinstance(command, list) else [command]
    arguments = given.get("args") or []
    headers = given.get("headers") or given.get("http_headers") or {}
    if not all(map(_is_text, words)):
        return "its command is no text"
    if not isinstance(arguments, list) or not all(map(_is_text, arguments)):
        return "its arguments are no list of texts"
    if not isinstance(started_by(given)[1], dict):
        return "its variables are no table"
    if not isinstance(headers, dict) or not all(map(_is_text, headers.values())):
        return "its headers are no table of texts"
    return None


def _is_text(value: Any) -> bool:
    """Whether a program can get it: half a character it cannot, nor what ends a text in between."""
    if not isinstance(value, str) or "\0" in value:
        return False
    return not any("\ud800" <= each <= "\udfff" for each in value)


def _read_entry(
    client: Client, given: Mapping[str, Any]
) -> tuple[ServerEntry, dict[str, str]]:
    if obstacle := _find_fault(given) or _find_obstacle(client, given):
        raise ValueError(obstacle)
    command, variables = started_by(given)
    try:
        if command is not None:
            arguments = given.get("args") or []
            if isinstance(given.get("command"), list):
                arguments = given["command"][1:]
            secrets = {name: _write_value(value) for name, value in variables.items()}
            return ServerEntry.model_validate(
                {"command": [command, *arguments], "env": list(secrets)}
            ), secrets
        headers = given.get("headers") or given.get("http_headers") or {}
        secrets = {name.upper(): value for name, value in headers.items()}
        if secrets.keys() - {"AUTHORIZATION"}:
            raise ValueError("it needs headers that the desk does not send")
        return ServerEntry.model_validate(
            {"url": given.get(client.url_key or ""), "env": list(secrets)}
        ), secrets
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None


def _write_value(value: Any) -> str:
    """As a program gets it in a variable."""
    if isinstance(value, int | float):
        return json.dumps(value)
    if not _is_text(value):
        raise InvalidInput("a variable of it is no text")
    return str(value)


def _describe(client: Client, file: Path, words: Mapping[str, dict[str, Any]]) -> str:
    return "\n".join(
        plan_words(client, file, name, each).difference for name, each in words.items()
    )


def _note(home: Path, client: Client) -> Path:
    return home / "connections" / f"taken-from-{client.name}.json"
