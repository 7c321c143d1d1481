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

from deskhand.config import OPTIONS, Option, Settings, display, is_secret, load, sentence
from deskhand.environment import flat
from deskhand.errors import BadConfig, Exists, FieldProblem, InvalidInput
from deskhand.mail.addresses import recipient
from deskhand.notes.folders import FOLDERS
from deskhand.setup import files
from deskhand.setup.clients import programs_folder

_HEAD = """\
# The desk's options. The environment wins over this file; `deskhand config show` tells where each value comes from.
# A line without its # is in force.
"""
NEW_FOLDER = "Deskhand"
_TELLING = ("Needs_Action", "Pending_Approval", "Approved", "Rejected")
"""Folders that no vault has but that of a desk."""
_NOT_HERE = frozenset({"home", "tmux", "tmux_pane"})
"""Options that config.toml cannot hold: where it lies itself, and what tmux says."""


@dataclass(frozen=True, slots=True)
class Change:
    key: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class ConfigPlan:
    """What config.toml would become."""

    file: Path
    before: bytes | None
    after: str
    changes: tuple[Change, ...]
    """The values that change, secrets masked."""
    added: tuple[str, ...]
    """Options that the file does not name yet; they are added as comments."""

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
                if not isinstance(latest, int):
                    latest = 0
                found[path] = (bool(vault.get("open")), latest)
    return sorted(found, key=found.__getitem__, reverse=True)


def plan_config(home: Path, answers: Mapping[str, str]) -> ConfigPlan:
    """config.toml with the answers in it; `answers` has a value for each field of Settings that is to be set."""
    file = home / "config.toml"
    before = files.content(file)
    old = _values(file, before)
    new = {OPTIONS[name].key: _check(name, value) for name, value in answers.items()}
    text, added = _edit((before or b"").decode(), new)
    if _says(text) != old | new:
        why = f"{file} is written in a way that cannot be changed safely"
        raise BadConfig(why, hint="set the options by hand; it was not touched")
    _demand_valid(file, text)
    changes = tuple(
        Change(key, _display(key, old.get(key)), _display(key, value))
        for key, value in new.items()
        if old.get(key) != value
    )
    return ConfigPlan(file, before, text, changes, tuple(added))


def plan_account(home: Path, name: str, answers: Mapping[str, str]) -> ConfigPlan:
    """config.toml with one more mail account, whose options have the names that they have for the one account."""
    file = home / "config.toml"
    before = files.content(file)
    if name in [
        each.get("name") for each in _values(file, before).get("mail.accounts", ())
    ]:
        raise Exists(f"there is an account {name}", hint=f"change it in {file}")
    given = {"name": name} | {
        OPTIONS[key].key.removeprefix("mail."): _check(key, answers[key]) for key in answers
    }
    lines = "".join(f"{key} = {_toml(value)}\n" for key, value in given.items())
    text = (before or _HEAD.encode()).decode().rstrip("\n")
    after = f"{text}\n\n[[mail.accounts]]\n{lines}"
    _demand_valid(file, after)
    return ConfigPlan(file, before, after, (Change("mail.accounts", None, name),), ())


def demand_value(home: Path, name: str, value: str) -> None:
    """Refuse an answer that config.toml cannot hold, whatever else stands in it."""
    text, _ = _edit("", {OPTIONS[name].key: _check(name, value)})
    _demand_valid(home / "config.toml", text)


def _edit(text: str, new: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The text with the values in it, and the options that were added as comments. The
    caller checks the result."""
    written, added = _complete(text)
    for key, value in new.items():
        if _says(written) is None:
            break
        written = _set(written, key, value)
    return written, added


def write(plan: ConfigPlan, now: datetime) -> Path | None:
    """Write the planned file; returns where a copy of the old one is."""
    if not plan.writes:
        return None
    home = plan.file.parent
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = None
    if plan.before is not None:
        kept = files.keep(home, "config.toml", plan.before, now)
    files.rewrite(plan.file, plan.after.encode(), plan.before)
    return kept


def current_value(home: Path, name: str) -> str | None:
    """What config.toml says of an option now, a secret masked."""
    file = home / "config.toml"
    key = OPTIONS[name].key
    return _display(key, _values(file, files.content(file)).get(key))


def next_steps(settings: Settings) -> list[str]:
    """What is left for the person to do."""
    missing = [
        name for name in ("vault_path", "address") if getattr(settings, name) is None
    ]
    if settings.accounts:
        missing = [name for name in missing if name != "address"]
    steps = [
        f"set {OPTIONS[name].key} ({sentence(name).rstrip('.').lower()})"
        for name in missing
    ]
    for account in settings.mail_accounts:
        if account.kind != "local":
            which = f" --account {account.name}" if settings.accounts else ""
            steps.append(f"deskhand mail login {account.kind}{which}")
    return [*steps, "deskhand doctor", "deskhand up", "deskhand connect claude-code"]


def find_place(home: Path, given: Mapping[str, str]) -> dict[str, str]:
    """In which folder of the vault the desk's own ones are to lie: in one of its own,
    unless they lie there already."""
    vault = given.get("vault_path")
    if vault is None or current_value(home, "vault_folder") is not None:
        return {}
    place = Path(vault).expanduser().absolute()
    known = current_value(home, "vault_path")
    if (known and Path(known) == place) or any(
        (place / name).exists() for name in _TELLING
    ):
        return {}
    return {"vault_folder": NEW_FOLDER}


def make_folders(vault: Path, inside: tuple[str, ...]) -> list[Path]:
    """Make the vault and the desk's own folders in it, for the person alone, where they
    are missing; returns those."""
    own_place = vault.joinpath(*inside)
    folders = dict.fromkeys([vault, own_place, *(own_place / name for name in FOLDERS)])
    missing = [folder for folder in folders if not folder.is_dir()]
    for folder in missing:
        try:
            folder.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise InvalidInput(
                f"cannot make {folder}: {error.strerror}", hint="choose another vault"
            ) from error
    return missing


def _obsidian_files(environment: Mapping[str, str], platform: str) -> Iterator[Path]:
    home = Path(
        environment.get("HOME") or environment.get("USERPROFILE") or "~"
    ).expanduser()
    yield programs_folder(home, environment, platform) / "obsidian" / "obsidian.json"
    if platform == "linux":
        yield (
            home
            / ".var"
            / "app"
            / "md.obsidian.Obsidian"
            / "config"
            / "obsidian"
            / "obsidian.json"
        )
        yield (
            home
            / "snap"
            / "obsidian"
            / "current"
            / ".config"
            / "obsidian"
            / "obsidian.json"
        )


def _known_to_obsidian(file: Path) -> Iterator[dict[str, Any]]:
    """The vaults in Obsidian's own file. It only saves typing: what is not as expected is passed over."""
    try:
        match json.loads(file.read_bytes()):
            case {"vaults": dict(listed)}:
                yield from (vault for vault in listed.values() if isinstance(vault, dict))
    except (OSError, ValueError):
        return


def _options() -> Iterator[tuple[str, Option]]:
    """All options, those outside of tables first: in TOML what follows a table belongs to it."""
    here = [(name, option) for name, option in OPTIONS.items() if name not in _NOT_HERE]
    yield from (pair for pair in here if "." not in pair[1].key)
    yield from (pair for pair in here if "." in pair[1].key)


def _complete(text: str) -> tuple[str, list[str]]:
    """The text with each option that it does not name as a comment in its table; and which those are."""
    written = text if text.strip() else _HEAD
    added = []
    for name, option in _options():
        table, _, key = option.key.rpartition(".")
        if _line_of(written, table, rf"(?:#\s*)?{re.escape(key)}\s*=") is None:
            written = _with_lines(written, table, _commented(name, key))
            added.append(option.key)
    return written, added


def _commented(name: str, key: str) -> str:
    option = OPTIONS[name]
    value = Settings.model_fields[name].default
    if value in (None, PydanticUndefined):
        value = option.form
    if isinstance(value, tuple):
        value = list(value)
    return (
        f"# {sentence(name)} ({option.variable}: {option.form})\n# {key} = {_toml(value)}\n"
    )


def _set(text: str, key: str, value: Any) -> str:
    import tomlkit

    table, _, name = key.rpartition(".")
    if key in _flat_toml(text):
        document = tomlkit.parse(text)
        holder: Any = document
        for part in key.split(".")[:-1]:
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
    """The number of the first line in the table that begins with the pattern."""
    start, end = _extent(text, table)
    lines = text.splitlines()
    return next(
        (at for at in range(start, end) if re.match(rf"\s*{pattern}", lines[at])), None
    )


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
    start = 0
    if table:
        own = [
            at for at in headers if re.match(rf"\s*\[\s*{re.escape(table)}\s*\]", lines[at])
        ]
        if not own:
            return len(lines), len(lines)
        start = own[0] + 1
    return start, next((at for at in headers if at >= start), len(lines))


def _check(name: str, value: str) -> str:
    """The answer as it is written down: a path made absolute, a mail address checked."""
    if OPTIONS[name].form in ("a folder", "a file"):
        return str(Path(value).expanduser().absolute())
    if name == "address":
        return recipient(value, OPTIONS[name].key)
    return value


def _values(file: Path, data: bytes | None) -> dict[str, Any]:
    try:
        return _flat_toml((data or b"").decode())
    except ValueError as error:
        hint = "correct the file or move it away; it was not touched"
        raise BadConfig(f"cannot read {file}: {error}", hint=hint) from error


def _flat_toml(text: str) -> dict[str, Any]:
    import tomllib

    return dict(flat(tomllib.loads(text)))


def _says(text: str) -> dict[str, Any] | None:
    """The values in the text; None where it is no TOML."""
    try:
        return _flat_toml(text)
    except ValueError:
        return None


def _demand_valid(file: Path, text: str) -> None:
    """Refuse a config.toml with which no desk could start."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.toml").write_text(text, encoding="utf-8")
        try:
            load({"DESKHAND_HOME": folder})
        except BadConfig as error:
            problems = [FieldProblem(**field) for field in error.details.get("fields", ())]
            hint = f"nothing was written to {file}; `deskhand config options` explains"
            raise BadConfig(error.message, hint=hint, fields=problems) from error


def _display(key: str, value: Any) -> str | None:
    """The value for the terminal, a secret masked."""
    secrets = {option.key for name, option in OPTIONS.items() if is_secret(name)}
    if key in secrets and isinstance(value, str):
        return display(SecretStr(value))
    return display(value)


def _toml(value: Any) -> str:
    import tomlkit

    return str(tomlkit.item(value).as_string())
