"""The assistants' programs: where each keeps its MCP servers, and in which words."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Form = Literal["json", "jsonc", "toml"]


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


CLIENTS = {
    client.name: client
    for client in (
        Client("claude-code", "Claude Code", "json", "mcpServers", "url", True, "claude mcp add --scope user"),
        Client("claude-desktop", "Claude Desktop", "json", "mcpServers", None),
        Client("codex", "Codex", "toml", "mcp_servers", "url", False, "codex mcp add"),
        Client("cursor", "Cursor", "jsonc", "mcpServers", "url"),
        Client("vscode", "VS Code", "jsonc", "servers", "url", True),
        Client("gemini", "Gemini CLI", "jsonc", "mcpServers", "httpUrl", False, "gemini mcp add -s user"),
    )
}


@dataclass(frozen=True, slots=True)
class Program:
    """How a client starts a server of this desk, from any folder."""

    command: str
    arguments: tuple[str, ...]
    home: Path


@dataclass(frozen=True, slots=True)
class Address:
    """Where a running desk answers, and the token that opens it."""

    url: str
    token: str


def entry(client: Client, server: Program | Address) -> dict[str, Any]:
    """The server in the client's own words."""
    words: dict[str, Any]
    match server:
        case Program(command, arguments, home):
            transport = "stdio"
            words = {"command": command, "args": list(arguments), "env": {"DESKHAND_HOME": str(home)}}
        case Address(url, token):
            transport = "http"
            headers = "http_headers" if client.form == "toml" else "headers"
            words = {str(client.url_key): url, headers: {"Authorization": f"Bearer {token}"}}
    if not client.typed:
        return words
    return {"type": transport} | words


def this_program(home: Path, server: str) -> Program:
    """This very installation, by its absolute path."""
    arguments = ("mcp", server)
    script = Path(sys.executable).with_name("deskhand")
    if script.is_file():
        return Program(str(script), arguments, home)
    return Program(sys.executable, ("-m", "deskhand", *arguments), home)


def file_of(client: Client, environment: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Where the client looks for its servers."""
    home = Path(environment.get("HOME") or environment.get("USERPROFILE") or "~").expanduser()
    match client.name:
        case "claude-code":
            return Path(environment.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"
        case "codex":
            return Path(environment.get("CODEX_HOME") or home / ".codex") / "config.toml"
        case "cursor":
            return home / ".cursor" / "mcp.json"
        case "gemini":
            return home / ".gemini" / "settings.json"
        case "claude-desktop":
            return programs_folder(home, environment, platform) / "Claude" / "claude_desktop_config.json"
        case _:
            return programs_folder(home, environment, platform) / "Code" / "User" / "mcp.json"


def programs_folder(home: Path, environment: Mapping[str, str], platform: str) -> Path:
    """Where desktop programs keep their settings."""
    match platform:
        case "darwin":
            return home / "Library" / "Application Support"
        case "win32":
            return Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
        case _:
            return Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
