"""The desk's config.toml: written with every option in it, changed later without losing a word of the person's."""

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from deskhand.config import OPTIONS, Option, Settings, is_secret, load, sentence, shown
from deskhand.environment import flat
from deskhand.errors import BadConfig, FieldProblem, InvalidInput
from deskhand.mail.addresses import recipient
from deskhand.orchestrator import files as files_of_the_desk
from deskhand.setup import files
from deskhand.setup.clients import programs_folder

FOLDERS = (*files_of_the_desk.FOLDERS, "Logs")
"""The desk's own folders in the vault."""

_HEAD = """\
# The desk's options. The environment wins over this file; `deskhand config show` tells where each value comes from.
# A line without its # is in force.
"""
_NOT_HERE = frozenset({"home", "tmux", "tmux_pane"})
"""Where the file lies, and what tmux says: neither can be written in it."""


@dataclass(frozen=True, slots=True)
class Change:
    key: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What config.toml would become."""

    file: Path
    before: bytes | None
    after: str
    changes: tuple[Change, ...]
    """The values that change, secrets masked."""
    added: tuple[str, ...]
    """Options that the file did not speak of; they come in as comments."""

    @property
    def writes(self) -> bool:
        return self.before != self.after.encode()


def vaults(environment: Mapping[str, str], platform: str = sys.platform) -> list[Path]:
    """The folders that Obsidian itself knows as vaults and that are there, the open and the latest ones first."""
    found: dict[Path, tuple[bool, int]] = {}
    for file in _obsidian_files(environment, platform):
        for vault in _known_to_obsidian(file):
            path = Path(str(vault.get("path")))
            if path.is_absolute() and path.is_dir():
                latest = vault.get("ts")
                found[path] = (bool(vault.get("open")), latest if isinstance(latest, int) else 0)
    return sorted(found, key=lambda path: found[path], reverse=True)


def planned(home: Path, answers: Mapping[str, str]) -> Plan:
    """config.toml with the answers in it; `answers` has a value for each field of Settings that is to be set."""
    file = home / "config.toml"
    before = files.content(file)
    old = _values(file, before)
    new = {OPTIONS[name].key: _checked(name, value) for name, value in answers.items()}
    text, added = _edited((before or b"").decode(), new)
    if _flat_or_none(text) != old | new:
        raise BadConfig(
            f"{file} is written in a way that cannot be changed safely",
            hint="set the options by hand; it was not touched",
        )
    _demand_valid(file, text)
    changes = tuple(
        Change(key, _shown(key, old.get(key)), _shown(key, value))
        for key, value in new.items()
        if old.get(key) != value
    )
    return Plan(file, before, text, changes, tuple(added))


def demand_answer(home: Path, name: str, value: str) -> None:
    """One answer that config.toml can hold, whatever else stands in it."""
    text, _ = _edited("", {OPTIONS[name].key: _checked(name, value)})
    _demand_valid(home / "config.toml", text)


def _edited(text: str, new: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The text with the values in it, and which options came in as comments; the caller checks what it says now."""
    written, added = _complete(text)
    for key, value in new.items():
        if _flat_or_none(written) is None:
            break
        written = _set(written, key, value)
    return written, added


def write(plan: Plan, now: datetime) -> Path | None:
    """Put it there; the place of the copy of what was there before."""
    if not plan.writes:
        return None
    home = plan.file.parent
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = None
    if plan.before is not None:
        kept = files.keep(home, "config.toml", plan.before, now)
    files.rewrite(plan.file, plan.after.encode(), plan.before)
    return kept


def present(home: Path, name: str) -> str | None:
    """What config.toml says of an option now, a secret masked."""
    file = home / "config.toml"
    return _shown(OPTIONS[name].key, _values(file, files.content(file)).get(OPTIONS[name].key))


def next_steps(settings: Settings) -> list[str]:
    """What is left for the person to do."""
    login = {"gmail": "deskhand mail login gmail", "imap": "deskhand mail login imap"}.get(settings.mail)
    missing = [name for name in ("vault_path", "address") if getattr(settings, name) is None]
    steps = [f"set {OPTIONS[name].key} ({sentence(name).rstrip('.').lower()})" for name in missing]
    return [*steps, *([login] if login else []), "deskhand doctor", "deskhand up", "deskhand connect claude-code"]


def make_folders(vault: Path) -> list[Path]:
    """The vault and the desk's own folders in it, where they are missing; those that were made."""
    missing = [folder for folder in (vault, *(vault / name for name in FOLDERS)) if not folder.is_dir()]
    for folder in missing:
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise InvalidInput(f"cannot make {folder}: {error.strerror}", hint="choose another vault") from error
    return missing


def system_zone() -> str | None:
    """The zone this machine is set to, where it tells."""
    target = str(Path("/etc/localtime").resolve())
    _, found, zone = target.partition("/zoneinfo/")
    return zone if found else None


def _obsidian_files(environment: Mapping[str, str], platform: str) -> Iterator[Path]:
    home = Path(environment.get("HOME") or environment.get("USERPROFILE") or "~").expanduser()
    yield programs_folder(home, environment, platform) / "obsidian" / "obsidian.json"
    if platform == "linux":
        yield home / ".var" / "app" / "md.obsidian.Obsidian" / "config" / "obsidian" / "obsidian.json"
        yield home / "snap" / "obsidian" / "current" / ".config" / "obsidian" / "obsidian.json"


def _known_to_obsidian(file: Path) -> Iterator[dict[str, Any]]:
    """Another program's file: what is not as expected is passed over, it only saves typing."""
    try:
        said = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return
    listed = said.get("vaults") if isinstance(said, dict) else None
    for vault in listed.values() if isinstance(listed, dict) else ():
        if isinstance(vault, dict):
            yield vault


def _options() -> Iterator[tuple[str, Option]]:
    """Plain keys first: in TOML what follows a table belongs to it."""
    here = [(name, option) for name, option in OPTIONS.items() if name not in _NOT_HERE]
    yield from sorted(here, key=lambda pair: "." in pair[1].key)


def _complete(text: str) -> tuple[str, list[str]]:
    """The text with each option that it does not speak of as a comment, in its table; and which those are."""
    written = text if text.strip() else _HEAD
    added = []
    for name, option in _options():
        table, _, key = option.key.rpartition(".")
        if _line_of(written, table, rf"(?:#\s*)?{re.escape(key)}\s*=") is None:
            written = _with_lines(written, table, _commented(name, key))
            added.append(option.key)
    return written, added


def _commented(name: str, key: str) -> str:
    default = Settings.model_fields[name].default
    value = OPTIONS[name].form if default in (None, PydanticUndefined) else default
    return f"# {sentence(name)} ({OPTIONS[name].variable}: {OPTIONS[name].form})\n# {key} = {_toml(value)}\n"


def _set(text: str, key: str, value: Any) -> str:
    import tomlkit

    table, _, name = key.rpartition(".")
    if key in _flat_toml(text):
        document = tomlkit.parse(text)
        holder: Any = document
        for part in table.split(".") if table else ():
            holder = holder[part]
        holder[name] = value
        return tomlkit.dumps(document)
    at = _line_of(text, table, rf"#\s*{re.escape(name)}\s*=")
    lines = text.splitlines(keepends=True)
    if at is None:
        return _with_lines(text, table, f"{name} = {_toml(value)}\n")
    lines[at] = f"{name} = {_toml(value)}\n"
    return "".join(lines)


def _line_of(text: str, table: str, pattern: str) -> int | None:
    """Where in the table a line begins so."""
    start, end = _extent(text, table)
    lines = text.splitlines()
    return next((at for at in range(start, end) if re.match(rf"\s*{pattern}", lines[at])), None)


def _with_lines(text: str, table: str, new: str) -> str:
    """`new` at the end of the table, which is made where it is missing."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    start, end = _extent(text, table)
    if table and start == end:
        return "".join([*lines, f"\n[{table}]\n", new])
    while end > start and not lines[end - 1].strip():
        end -= 1
    return "".join([*lines[:end], "\n", new, *lines[end:]])


def _extent(text: str, table: str) -> tuple[int, int]:
    """The table's lines, its header left out; for the plain keys all lines before the first header."""
    lines = text.splitlines()
    headers = [at for at, line in enumerate(lines) if re.match(r"\s*\[", line)]
    if not table:
        return 0, headers[0] if headers else len(lines)
    own = [at for at in headers if re.match(rf"\s*\[\s*{re.escape(table)}\s*\]", lines[at])]
    if not own:
        return len(lines), len(lines)
    return own[0] + 1, next((at for at in headers if at > own[0]), len(lines))


def _checked(name: str, value: str) -> str:
    """A path that holds from any folder; an address that is one."""
    if OPTIONS[name].form in ("a folder", "a file"):
        return str(Path(value).expanduser().absolute())
    return recipient(value) if name == "address" else value


def _values(file: Path, data: bytes | None) -> dict[str, Any]:
    try:
        return _flat_toml((data or b"").decode())
    except ValueError as error:
        raise BadConfig(
            f"cannot read {file}: {error}", hint="correct the file or move it away; it was not touched"
        ) from error


def _flat_toml(text: str) -> dict[str, Any]:
    import tomllib

    return dict(flat(tomllib.loads(text)))


def _flat_or_none(text: str) -> dict[str, Any] | None:
    try:
        return _flat_toml(text)
    except ValueError:
        return None


def _demand_valid(file: Path, text: str) -> None:
    """A desk that cannot start is not written."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.toml").write_text(text, encoding="utf-8")
        try:
            load({"DESKHAND_HOME": folder})
        except BadConfig as error:
            problems = [FieldProblem(**field) for field in error.details.get("fields", ())]
            raise BadConfig(
                error.message,
                hint=f"nothing was written to {file}; `deskhand config options` explains",
                fields=problems,
            ) from error


def _shown(key: str, value: Any) -> str | None:
    name = next((name for name, option in OPTIONS.items() if option.key == key), None)
    return shown(SecretStr(value)) if name and is_secret(name) and isinstance(value, str) else shown(value)


def _toml(value: Any) -> str:
    import tomlkit

    return str(tomlkit.item(value).as_string())
