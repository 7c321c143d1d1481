"""The assistants' programs: where each keeps its MCP servers, and in which words."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Form = Literal["json", "jsonc", "toml", "yaml"]


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    title: str
    form: Form
    """`json` is read strictly by the client; `jsonc` may hold comments."""
    table: str
    """The object that holds its servers."""
    url_key: str | None
    """What it calls a server's address; None where it starts programs only."""
    typed: bool = False
    """Whether an entry names its transport."""
    own_command: str | None = None
    """The beginning of its own command that adds a server."""
    note: str | None = None
    """What the person has to know of it afterwards."""


CLIENTS = {
    client.name: client
    for client in (
        Client(
            "claude-code",
            "Claude Code",
            "json",
            "mcpServers",
            "url",
            True,
            "claude mcp add --scope user",
        ),
        Client("claude-desktop", "Claude Desktop", "json", "mcpServers", None),
        Client("codex", "Codex", "toml", "mcp_servers", "url", False, "codex mcp add"),
        Client("cursor", "Cursor", "jsonc", "mcpServers", "url"),
        Client("vscode", "VS Code", "jsonc", "servers", "url", True),
        Client(
            *(
                "gemini",
                "Gemini CLI",
                "jsonc",
                "mcpServers",
                "httpUrl",
                False,
                "gemini mcp add -s user",
            ),
            note="it uses servers in folders that you trust: it asks at its start there, or say /permissions",
        ),
        Client("opencode", "opencode", "jsonc", "mcp", "url"),
        Client("goose", "goose", "yaml", "extensions", "uri"),
        Client(
            "copilot", "Copilot CLI", "json", "mcpServers", "url", True, "copilot mcp add"
        ),
        Client(
            *(
                "qwen",
                "Qwen Code",
                "jsonc",
                "mcpServers",
                "httpUrl",
                False,
                "qwen mcp add -s user",
            ),
            note="it rewrites a new file at its first start, readable by others: `chmod 600` it if it holds a token",
        ),
    )
}


OWN_VARIABLES = ("DESKHAND_HOME", "DESKHAND_AGENT")
"""What an entry sets for the server that it starts: see `Program.variables`."""


@dataclass(frozen=True, slots=True)
class Program:
    """How a client starts a server of this desk, from any folder."""

    command: str
    arguments: tuple[str, ...]
    home: Path
    agent: str | None = None
    """Under which name whoever calls there writes to the person and to other agents; None where nobody does."""

    @property
    def variables(self) -> dict[str, str]:
        found = {"DESKHAND_HOME": str(self.home)}
        if self.agent:
            found["DESKHAND_AGENT"] = self.agent
        return found


@dataclass(frozen=True, slots=True)
class Address:
    """Where a running desk answers, and the token that opens it."""

    url: str
    token: str


def entry(client: Client, name: str, server: Program | Address) -> dict[str, Any]:
    """The server in the client's own words."""
    match server:
        case Program():
            return _program_entry(client, name, server)
        case Address(url, token):
            headers = "http_headers" if client.form == "toml" else "headers"
            words = {
                str(client.url_key): url,
                headers: {"Authorization": f"Bearer {token}"},
            }
    match client.name:
        case "opencode":
            return {"type": "remote"} | words
        case "goose":
            return {"enabled": True, "type": "streamable_http", "name": name} | words
        case "copilot":
            return {"type": "http"} | words | {"tools": ["*"]}
        case _ if client.typed:
            return {"type": "http"} | words
        case _:
            return words


def _program_entry(client: Client, name: str, server: Program) -> dict[str, Any]:
    variables = server.variables
    words = {"command": server.command, "args": list(server.arguments), "env": variables}
    match client.name:
        case "opencode":
            return {
                "type": "local",
                "command": [server.command, *server.arguments],
                "environment": variables,
            }
        case "goose":
            started = {
                "cmd": server.command,
                "args": list(server.arguments),
                "envs": variables,
            }
            return (
                {"enabled": True, "type": "stdio", "name": name}
                | started
                | {"timeout": 300}
            )
        case "copilot":
            return {"type": "local"} | words | {"tools": ["*"]}
        case "codex":
            # Otherwise it asks its model before the tools are there.
            return words | {"required": True, "startup_timeout_sec": 30}
        case _ if client.typed:
            return {"type": "stdio"} | words
        case _:
            return words


def started_by(entry: Mapping[str, Any]) -> tuple[str | None, dict[str, str]]:
    """The program that an entry starts, None for an address, and the variables that it gets."""
    command = entry.get("command") or entry.get("cmd")
    if isinstance(command, list):
        command = command[0]
    return command, entry.get("env") or entry.get("envs") or entry.get("environment") or {}


def this_program(home: Path, *arguments: str, agent: str | None = None) -> Program:
    """This very installation, by its absolute path."""
    script = Path(sys.executable).with_name("deskhand")
    if script.is_file():
        return Program(str(script), arguments, home, agent)
    return Program(sys.executable, ("-m", "deskhand", *arguments), home, agent)


_OWN_FOLDERS = {
    "claude-code": ("CLAUDE_CONFIG_DIR", "", ".claude.json"),
    "codex": ("CODEX_HOME", ".codex", "config.toml"),
    "copilot": ("COPILOT_HOME", ".copilot", "mcp-config.json"),
    "cursor": ("", ".cursor", "mcp.json"),
    "gemini": ("", ".gemini", "settings.json"),
    "qwen": ("QWEN_HOME", ".qwen", "settings.json"),
}
"""The variable that names the client's folder, else the folder in the person's home, and the file there."""


def file_of(
    client: Client, environment: Mapping[str, str], platform: str = sys.platform
) -> Path:
    """Where the client looks for its servers."""
    home = Path(
        environment.get("HOME") or environment.get("USERPROFILE") or "~"
    ).expanduser()
    if client.name in _OWN_FOLDERS:
        variable, folder, file = _OWN_FOLDERS[client.name]
        return Path(environment.get(variable) or home / folder) / file
    programs = programs_folder(home, environment, platform)
    match client.name:
        case "opencode":
            made = terminal_folder(home, environment) / "opencode" / "opencode.json"
            with_comments = made.with_suffix(".jsonc")
            return with_comments if with_comments.is_file() else made
        case "goose" if platform == "win32":
            return programs / "Block" / "goose" / "config" / "config.yaml"
        case "goose":
            return terminal_folder(home, environment) / "goose" / "config.yaml"
        case "claude-desktop":
            return programs / "Claude" / "claude_desktop_config.json"
        case _:
            return programs / "Code" / "User" / "mcp.json"


def terminal_folder(home: Path, environment: Mapping[str, str]) -> Path:
    """Where programs of the terminal keep their settings, on every platform."""
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config")


def programs_folder(home: Path, environment: Mapping[str, str], platform: str) -> Path:
    """Where desktop programs keep their settings."""
    match platform:
        case "darwin":
            return home / "Library" / "Application Support"
        case "win32":
            return Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
        case _:
            return Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
