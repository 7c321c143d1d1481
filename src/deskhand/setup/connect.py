"""Making the desk known to an assistant's program, in the program's own file, and taking that back.

A change is planned first and shown; writing it keeps a copy of what was there. Taking it back restores exactly that,
unless somebody changed the file since: then only the desk's own entry goes.
"""

import json
import shlex
from dataclasses import asdict, dataclass
from datetime import datetime
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from typing import Any

from deskhand.errors import DeskError, InvalidInput, NotFound, Unreadable
from deskhand.setup import files, jsonc, yaml_member
from deskhand.setup.clients import OWN_VARIABLES, Address, Client, Program, entry

MASK = "********"


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """What a client's file would become."""

    client: Client
    file: Path
    name: str
    before: bytes | None
    after: bytes | None
    """None: the file goes, since it was made by us."""
    difference: str
    """How the desk's entry changes, with every secret masked; the rest of the file is not shown."""

    @property
    def changes(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Connection:
    """What was done to a client's file, for taking it back."""

    client: str
    name: str
    file: str
    backup: str | None
    """None: there was no file."""
    written: str
    """The digest of what was left there."""
    token: str | None
    """The name of the token that was made for it."""


def entry_name(server: str) -> str:
    return "deskhand" if server == "desk" else f"deskhand-{server}"


def plan_entry(
    client: Client, file: Path, name: str, server: Program | Address
) -> ClientPlan:
    """The file with the desk's entry in it."""
    if isinstance(server, Address) and client.url_key is None:
        raise InvalidInput(
            f"{client.title} starts programs and takes no addresses in its file",
            hint="connect it without --http, or add the address on its own page for connectors",
        )
    return plan_words(client, file, name, entry(client, name, server))


def plan_words(client: Client, file: Path, name: str, new: dict[str, Any]) -> ClientPlan:
    """The file with this entry in it, in the client's own words."""
    before = files.content(file)
    text, old = _read(client, file, before, name)
    after = before
    if before is None or old != new:
        changed = _with_entry(client, text, name, new)
        _demand_only_ours(client, text, changed, name, new)
        after = changed.encode()
    return ClientPlan(
        client, file, name, before, after, _difference(client, name, old, new)
    )


def connect(home: Path, plan: ClientPlan, token: str | None, now: datetime) -> Connection:
    """Write what was planned; a copy of what was there lies in the desk's home."""
    place = _record_file(home, plan.client, plan.name)
    known = _record(place)
    kept = None
    if plan.before is not None:
        kept = str(
            files.keep(home, f"{plan.client.name}-{plan.file.name}", plan.before, now)
        )
        # Connected twice: what was there before the first time is what is to be restored.
        if known is not None and _digest(plan.before) == known.written:
            kept = known.backup
    after = plan.after or b""
    made = Connection(
        plan.client.name, plan.name, str(plan.file), kept, _digest(after), token
    )
    # The note first: a connection that nobody remembers could not be taken back.
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    noted = files.content(place)
    files.rewrite(place, json.dumps(asdict(made), indent=2).encode() + b"\n", noted)
    try:
        files.rewrite(plan.file, after, plan.before, secret=token is not None)
    except DeskError:
        files.rewrite(place, noted, files.content(place))
        raise
    return made


def plan_undo(home: Path, client: Client, file: Path, name: str) -> ClientPlan:
    """The file as it was before, or without the desk's entry where it was changed since."""
    known = find_connection(home, client, name)
    if known is not None:
        file = Path(known.file)
    before = files.content(file)
    if before is None:
        raise NotFound(f"there is no file {file}", hint=f"{client.title} is not connected")
    text, old = _read(client, file, before, name)
    if old is None:
        raise NotFound(
            f"{file} has no entry {name}", hint=f"{client.title} is not connected"
        )
    after = restore(known, before, _without_entry(client, text, name).encode())
    return ClientPlan(
        client, file, name, before, after, _difference(client, name, old, None)
    )


def restore(known: Connection | None, now: bytes, otherwise: bytes) -> bytes | None:
    """What was there before, where nobody has changed the file since; None: there was no file."""
    if known is None or _digest(now) != known.written:
        return otherwise
    if known.backup is None:
        return None
    kept = files.content(Path(known.backup))
    return otherwise if kept is None else kept


def disconnect(home: Path, plan: ClientPlan, now: datetime) -> Connection | None:
    """Take the entry out; a copy of the file before that is kept too."""
    if plan.before is not None:
        files.keep(home, f"{plan.client.name}-{plan.file.name}", plan.before, now)
    files.rewrite(plan.file, plan.after, plan.before)
    place = _record_file(home, plan.client, plan.name)
    known = _record(place)
    place.unlink(missing_ok=True)
    return known


def find_entry(client: Client, file: Path, name: str) -> dict[str, Any] | None:
    """The desk's entry in the client's file."""
    data = files.content(file)
    if data is None:
        return None
    _, found = _read(client, file, data, name)
    return found


def entries_of(client: Client, file: Path) -> dict[str, dict[str, Any]]:
    """All servers that the client's file names."""
    data = files.content(file)
    if data is None:
        raise NotFound(
            f"there is no file {file}", hint=f"{client.title} keeps its servers there"
        )
    _read(client, file, data, "")
    found = _parse(client, data.decode()).get(client.table) or {}
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)}


def own_command(client: Client, name: str, server: Program | Address) -> str | None:
    """The client's own command that adds the entry; None where it has none."""
    if client.own_command is None or isinstance(server, Address):
        return None
    program = shlex.join([server.command, *server.arguments])
    flag = "--env" if client.name in ("codex", "copilot") else "-e"
    given = " ".join(
        f"{flag} {shlex.quote(f'{key}={value}')}" for key, value in server.variables.items()
    )
    match client.name:
        case "gemini" | "qwen":  # take no `--` before the program
            return f"{client.own_command} {given} {name} {program}"
        case _:
            return f"{client.own_command} {name} {given} -- {program}"


def _read(
    client: Client, file: Path, data: bytes | None, name: str
) -> tuple[str, dict[str, Any] | None]:
    """The file's text and the entry in it; a file that its client could not read either is left alone."""
    try:
        text = (data or b"").decode()
        return text, _entry_in(client, text, name)
    except (ValueError, RecursionError, Unreadable) as error:
        why = f"{file} cannot be read as {client.form.upper()}: {error}"
        raise Unreadable(why, hint="correct the file; it was not touched") from error


def _entry_in(client: Client, text: str, name: str) -> dict[str, Any] | None:
    found = _parse(client, text).get(client.table)
    if found is None:
        return None
    if not isinstance(found, dict) or not isinstance(found.get(name, {}), dict):
        raise Unreadable(f"{client.table} does not hold servers")
    inner: dict[str, Any] | None = found.get(name)
    return inner


def _parse(client: Client, text: str) -> dict[str, Any]:
    if client.form == "toml":
        import tomllib

        return tomllib.loads(text)
    if not text.strip("\ufeff \t\r\n"):
        return {}
    match client.form:
        case "json":
            found = json.loads(text)
        case "jsonc":
            found = jsonc.loads(text)
        case "yaml":
            found = yaml_member.loads(text)
    if not isinstance(found, dict):
        raise Unreadable("the file is not an object")
    return found


def _with_entry(client: Client, text: str, name: str, new: dict[str, Any]) -> str:
    if client.form == "yaml":
        return yaml_member.with_member(text, client.table, name, new)
    if client.form != "toml":
        return jsonc.with_member(text, (client.table, name), new)
    import tomlkit

    document = tomlkit.parse(text)
    if client.table not in document:
        document.add(client.table, tomlkit.table(is_super_table=True))
    table = tomlkit.table()
    for key, value in new.items():
        if isinstance(value, dict):
            inline = tomlkit.inline_table()
            inline.update(value)
            table.add(key, inline)
        else:
            table.add(key, value)
    document[client.table][name] = table
    return tomlkit.dumps(document)


def _without_entry(client: Client, text: str, name: str) -> str:
    if client.form == "yaml":
        return yaml_member.without_member(text, client.table, name)
    if client.form != "toml":
        return jsonc.without_member(text, (client.table, name))
    import tomlkit

    document = tomlkit.parse(text)
    del document[client.table][name]
    return tomlkit.dumps(document)


def _demand_only_ours(
    client: Client, before: str, after: str, name: str, new: dict[str, Any]
) -> None:
    """Refuse a change after which the file does not say what it said before, and our entry."""
    expected = _parse(client, before)
    expected[client.table] = (expected.get(client.table) or {}) | {name: new}
    if _parse(client, after) != expected:
        raise Unreadable(
            "the file is written in a way that cannot be changed safely",
            hint="put the entry in by hand: --print shows it; nothing was changed",
        )


def _difference(
    client: Client, name: str, old: dict[str, Any] | None, new: dict[str, Any] | None
) -> str:
    before = snippet(client, name, _mask(old or {})).splitlines()
    after = snippet(client, name, _mask(new or {})).splitlines()
    return "\n".join(unified_diff(before, after, "before", "after", n=100, lineterm=""))


def _mask(server: dict[str, Any]) -> dict[str, Any]:
    """A server's variables and headers are secrets, but for those that we put there ourselves."""
    masked = dict(server)
    for key in ("env", "envs", "environment", "headers", "http_headers"):
        if isinstance(server.get(key), dict):
            own = {
                name: text for name, text in server[key].items() if name in OWN_VARIABLES
            }
            masked[key] = dict.fromkeys(server[key], MASK) | own
    return masked


def snippet(client: Client, name: str, server: dict[str, Any]) -> str:
    """The entry as a person would put it into the file; nothing for none."""
    if not server:
        return ""
    if client.form in ("toml", "yaml"):
        return _with_entry(client, "", name, server).strip()
    return json.dumps({client.table: {name: server}}, indent=2, ensure_ascii=False)


def find_connection(home: Path, client: Client, name: str) -> Connection | None:
    return _record(_record_file(home, client, name))


def _record_file(home: Path, client: Client, name: str) -> Path:
    return home / "connections" / f"{client.name}-{name}.json"


def _record(place: Path) -> Connection | None:
    found = files.content(place)
    if found is None:
        return None
    try:
        return Connection(**json.loads(found))
    except (ValueError, TypeError) as error:
        raise Unreadable(
            f"{place} is damaged",
            hint="move it away; --undo then takes out the entry alone",
        ) from error


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
