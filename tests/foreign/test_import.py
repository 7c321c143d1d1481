"""`deskhand guard import` for every client that the desk knows: its real shapes, and every byte given back."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from deskhand.errors import Changed
from deskhand.foreign.rules import read_servers
from deskhand.setup import jsonc, takeover
from deskhand.setup.clients import CLIENTS
from tests.home import Home
from tests.requirements import requirement
from tests.setup.test_connect import FILES, TABLE

LOCAL = {"command": "uvx", "args": ["tracker", "--all"], "env": {"API_KEY": "k3y"}}
HEADERS = {"Authorization": "Bearer t0k"}
URL = "https://mcp.example.com/mcp"
SHAPES: dict[str, dict[str, Any]] = {
    "claude-code": {
        "My Server": {"type": "stdio"} | LOCAL,
        "remote": {"type": "http", "url": URL, "headers": HEADERS},
        "off": {"type": "sse", "url": URL},
    },
    "claude-desktop": {"My Server": LOCAL, "off": {"command": "x", "disabled": True}},
    "cursor": {
        "My Server": LOCAL,
        "remote": {"url": URL, "headers": {"authorization": "Bearer t0k"}},
        "off": {"command": "x", "envFile": ".env"},
    },
    "vscode": {
        "My Server": {"type": "stdio"} | LOCAL,
        "remote": {"type": "http", "url": URL, "headers": HEADERS},
        "off": {"type": "stdio", "command": "x", "env": {"K": "${input:key}"}},
    },
    "gemini": {
        "My Server": LOCAL | {"includeTools": ["echo"], "trust": True, "timeout": 600},
        "remote": {"httpUrl": URL, "headers": HEADERS},
        "off": {"url": URL},
    },
    "qwen": {
        "My Server": LOCAL | {"excludeTools": ["rm"]},
        "remote": {"httpUrl": URL, "headers": HEADERS},
        "off": {"command": "x", "env": {"K": "$SECRET"}},
    },
    "opencode": {
        "My Server": {
            "type": "local",
            "command": ["uvx", "tracker", "--all"],
            "environment": {"API_KEY": "k3y"},
            "enabled": True,
        },
        "remote": {"type": "remote", "url": URL, "headers": HEADERS},
        "off": {"type": "local", "command": ["x"], "enabled": False},
    },
    "goose": {
        "My Server": {
            "enabled": True,
            "type": "stdio",
            "name": "My Server",
            "cmd": "uvx",
            "args": ["tracker", "--all"],
            "envs": {"API_KEY": "k3y"},
            "timeout": 60,
        },
        "remote": {
            "enabled": True,
            "type": "streamable_http",
            "name": "remote",
            "uri": URL,
            "headers": HEADERS,
        },
        "off": {"enabled": True, "type": "builtin", "name": "developer"},
    },
    "copilot": {
        "My Server": {"type": "local", "tools": ["echo"]} | LOCAL,
        "remote": {"type": "http", "url": URL, "headers": HEADERS, "tools": ["*"]},
        "off": {"command": "x", "cwd": "/srv"},
    },
    "codex": {
        "My Server": LOCAL | {"enabled_tools": ["echo"]},
        "remote": {"url": URL, "http_headers": HEADERS},
        "off": {"url": URL, "bearer_token_env_var": "X"},
    },
}
KEPT = {
    "gemini": ("includeTools", ["echo"]),
    "qwen": ("excludeTools", ["rm"]),
    "copilot": ("tools", ["echo"]),
    "codex": ("enabled_tools", ["echo"]),
    "goose": ("timeout", 60),
}
"""What the client itself makes of the server's tools stays as it was."""


def write(client: str, servers: dict[str, Any]) -> str:
    """A file as its client and its owner leave it, with what belongs to neither of the servers."""
    table = TABLE.get(client, "mcpServers")
    match CLIENTS[client].form:
        case "json":
            return json.dumps({"theme": "mine", table: servers, "last": [1]}, indent=4)
        case "jsonc":
            entries = [
                f'\t\t"{name}": {json.dumps(each)}, // of {name}  '
                for name, each in servers.items()
            ]
            lines = ['{\t// mine\n\t"theme": 1,\n', f'\t"{table}": {{', *entries]
            return "\r\n".join([*lines, "\t},", "\t/* last */", "}"])
        case "yaml":
            inner = yaml.safe_dump({table: servers}, sort_keys=False)
            return f"# mine\nGOOSE_MODEL: x  # y\n{inner}# last\nother: 'z'\n"
        case "toml":
            lines = ["# mine", 'model = "x"  # y', ""]
            for name, each in servers.items():
                lines.append(f'[{table}."{name}"]  # of {name}')
                tables = {k: v for k, v in each.items() if isinstance(v, dict)}
                lines += [
                    f"{k} = {json.dumps(v)}" for k, v in each.items() if k not in tables
                ]
                for key, values in tables.items():
                    lines.append(f'[{table}."{name}".{key}]')
                    lines += [f"{k} = {json.dumps(v)}" for k, v in values.items()]
            return "\n".join([*lines, "", "[tui]", "last = 1", ""])


def read(client: str, text: str) -> dict[str, Any]:
    match CLIENTS[client].form:
        case "toml":
            found = tomllib.loads(text)
        case "yaml":
            found = yaml.safe_load(text)
        case _:
            found = jsonc.loads(text)
    servers: dict[str, Any] = found[TABLE.get(client, "mcpServers")]
    return servers


@pytest.fixture
def inside(home: Home, tmp_path: Path) -> Home:
    """A person whose clients keep their files in the usual places."""
    unset = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "QWEN_HOME")
    kept = {key: each for key, each in home.environment.items() if key not in unset}
    return Home(home.vault, kept | {"HOME": str(tmp_path)})


def desk_home(inside: Home) -> Path:
    return Path(inside.environment["DESKHAND_HOME"])


@requirement("guard:clients")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_clients_own_file_is_taken_over_once_and_given_back_byte_for_byte(
    client: str, inside: Home, tmp_path: Path
) -> None:
    file = tmp_path / FILES[client]
    file.parent.mkdir(parents=True, exist_ok=True)
    before = write(client, SHAPES[client]).encode()
    file.write_bytes(before)
    done = inside.command("guard", "import", client, "--yes")
    assert done.returncode == 0, done.stderr
    after = file.read_bytes()
    again = inside.command("guard", "import", client, "--yes")
    servers = read_servers(desk_home(inside))
    text = after.decode()
    taken = read(client, text)
    remote = client != "claude-desktop"
    assert servers.keys() == {"my-server", "remote"} if remote else {"my-server"}
    assert servers["my-server"].command == ["uvx", "tracker", "--all"]
    assert servers["my-server"].env == ["API_KEY"]
    assert "left alone: off: " in done.stdout
    assert taken["off"] == SHAPES[client]["off"]
    for secret in ("k3y", "t0k"):
        assert secret not in text + done.stdout + done.stderr
    assert "mcp" in str(taken["My Server"])
    assert "my-server" in str(taken["My Server"])
    assert "mine" in text
    assert "last" in text
    if client in KEPT:
        key, value = KEPT[client]
        assert taken["My Server"][key] == value
    assert again.returncode != 0
    assert file.read_bytes() == after
    assert read_servers(desk_home(inside)) == servers
    back = inside.command("guard", "import", client, "--undo", "--yes")
    assert back.returncode == 0, back.stderr
    assert file.read_bytes() == before
    assert read_servers(desk_home(inside)) == {}


@requirement("guard:clients")
@pytest.mark.parametrize("client", ["claude-code", "codex", "goose", "opencode"])
def test_what_the_person_changed_meanwhile_stays_and_the_servers_come_back(
    client: str, inside: Home, tmp_path: Path
) -> None:
    file = tmp_path / FILES[client]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(write(client, SHAPES[client]))
    assert inside.command("guard", "import", client, "--yes").returncode == 0
    file.write_text(file.read_text().replace("mine", "my own words"))
    assert inside.command("guard", "remove", "remote").returncode == 0
    back = inside.command("guard", "import", client, "--undo", "--yes")
    assert back.returncode == 0, back.stderr
    assert "my own words" in file.read_text()
    assert read(client, file.read_text()) == SHAPES[client]
    assert read_servers(desk_home(inside)) == {}
    assert inside.command("guard", "import", client, "--undo", "--yes").returncode != 0


@requirement("guard:clients")
@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b'{"file": 3}',
        b'{"file": "/x", "entries": []}',
        b"\xff\x00",
        b"{}",
    ],
)
def test_a_damaged_memory_of_what_was_taken_over_is_named_and_changes_nothing(
    damage: bytes, inside: Home, tmp_path: Path
) -> None:
    file = tmp_path / FILES["claude-code"]
    file.write_text(write("claude-code", SHAPES["claude-code"]))
    assert inside.command("guard", "import", "claude-code", "--yes").returncode == 0
    after = file.read_bytes()
    place = desk_home(inside) / "connections" / "taken-from-claude-code.json"
    place.write_bytes(damage)
    back = inside.command("guard", "import", "claude-code", "--undo", "--yes")
    assert back.returncode == 3, back.stderr
    assert f"{place} is damaged" in back.stderr
    assert "backups" in back.stderr
    assert file.read_bytes() == after
    assert read_servers(desk_home(inside)).keys() == {"my-server", "remote"}


@requirement("guard:clients")
def test_what_cannot_come_behind_the_gate_is_left_alone_and_nothing_is_half_done(
    inside: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd: dict[str, Any] = {
        "Tracker": LOCAL | {"env": {"PORT": 8080, "DEBUG": True}},
        "tracker": LOCAL,
        "gmail": LOCAL,
        "desk again": {"command": "/usr/bin/deskhand", "args": ["mcp", "tracker"]},
        "nested": LOCAL | {"env": {"A": {"b": 1}}},
        "near": LOCAL | {"command": "./server"},
        "none": {"command": "x", "args": None, "env": None},
        "more": {"url": URL, "headers": HEADERS | {"X-Key": "k3y"}},
        "words": {"command": "x", "args": "y"},
        "number": {"command": 5},
        "numbers": {"command": [5]},
        "lines": {"command": "x", "env": ["A=b"]},
        "half": {"command": "x", "args": ["\ud800"]},
        "cut": {"command": "x", "env": {"A": "b\0c"}},
        "header": {"url": URL, "headers": {"Authorization": 5}},
        "headers": {"url": URL, "headers": ["Authorization: x"]},
        "a\x1b[31m": {"command": "x"},
    }
    file = tmp_path / FILES["cursor"]
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"mcpServers": odd}))
    monkeypatch.setenv("HOME", str(tmp_path))
    plan = takeover.plan(desk_home(inside), CLIENTS["cursor"])
    file.write_text(file.read_text().replace('"x"', '"other"'))
    with pytest.raises(Changed):
        takeover.carry_out(desk_home(inside), plan)
    assert read_servers(desk_home(inside)) == {}
    done = inside.command("guard", "import", "cursor", "--yes")
    assert done.returncode == 0, done.stderr
    left = [
        line.split(": ")[1]
        for line in done.stdout.splitlines()
        if line.startswith("left alone")
    ]
    assert left == [
        *("tracker", "gmail", "desk again", "nested", "near", "more", "words"),
        *("number", "numbers", "lines", "half", "cut", "header", "headers"),
    ]
    assert "\x1b" not in done.stdout
    found = read_servers(desk_home(inside))
    assert found["tracker"].env == ["PORT", "DEBUG"]
    assert found["none"].command == ["other"]
    assert "k3y" not in done.stdout
