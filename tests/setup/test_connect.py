import json
import os
import re
import socket
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters

from deskhand.running import DeskLock, acquire
from deskhand.setup import jsonc, yaml_member
from deskhand.setup.clients import CLIENTS, file_of
from tests.requirements import requirement
from tests.setup.account import Account
from tests.warm import warm_python

FILES = {
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "codex": ".codex/config.toml",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "gemini": ".gemini/settings.json",
    "opencode": ".config/opencode/opencode.json",
    "goose": ".config/goose/config.yaml",
    "copilot": ".copilot/mcp-config.json",
    "qwen": ".qwen/settings.json",
}
TABLE = {
    "codex": "mcp_servers",
    "vscode": "servers",
    "opencode": "mcp",
    "goose": "extensions",
}
YAML = """# mine
GOOSE_MODEL: x  # y
extensions:
  # the first
  other:
    command: x
    env: {KEY: hunter2}
  # the last
GOOSE_PROVIDER: 'z'
"""
JSONC = """{
  // my servers
  "TABLE": {
    "other": { "command": "x", "env": { "KEY": "hunter2" } }, /* mine */
  },
  "theme": "dark" // at night
}
"""
TOML = (
    '# mine\nmodel = "x"  # y\n\n[mcp_servers.other]\ncommand = "x"\n'
    'env = { KEY = "hunter2" }\n\n[profiles.a]\nb = 1\n'
)
JSON = '{"mcpServers":{"other":{"command":"x","env":{"KEY":"hunter2"}}},\n    "numStartups": 7}'


def before(client: str) -> str:
    text = {"toml": TOML, "jsonc": JSONC, "json": JSON, "yaml": YAML}[CLIENTS[client].form]
    return text.replace("TABLE", TABLE.get(client, "mcpServers"))


def read(client: str, text: str) -> dict[str, Any]:
    match CLIENTS[client].form:
        case "toml":
            return tomllib.loads(text)
        case "yaml":
            return yaml.safe_load(text)
        case _:
            return jsonc.loads(text)


def start(client: str, entry: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command line by which the client starts the server, and the variables that it gives it."""
    match client:
        case "opencode":
            return entry["command"], entry["environment"]
        case "goose":
            return [entry["cmd"], *entry["args"]], entry["envs"]
        case _:
            return [entry["command"], *entry["args"]], entry["env"]


@requirement("connect:guarded")
def test_a_server_behind_the_gate_is_connected_as_the_desks_own_are(
    account: Account,
) -> None:
    account.set_up()
    file = account.folder / FILES["claude-code"]
    file.write_text(before("claude-code"))
    away = account.deskhand("connect", "claude-code", "--server", "github", "--yes")
    (account.home / "guard.toml").write_text('[servers.github]\ncommand = ["github"]\n')
    on_stdio = account.deskhand("connect", "claude-code", "--server", "github", "--yes")
    servers = read("claude-code", file.read_text())["mcpServers"]
    undone = account.deskhand(
        "connect", "claude-code", "--server", "github", "--undo", "--yes"
    )
    restored = file.read_text()
    over_http = account.deskhand(
        "connect", "claude-code", "--server", "github", "--http", "--yes"
    )
    by_address = read("claude-code", file.read_text())["mcpServers"]["deskhand-github"]
    (account.home / "guard.toml").write_text("")
    gone = account.deskhand(
        "connect", "claude-code", "--server", "github", "--undo", "--yes"
    )

    assert away.code != 0
    assert "no server github" in away.err
    assert "guard add" in away.err
    assert on_stdio.code == 0, on_stdio.err
    command, variables = start("claude-code", servers["deskhand-github"])
    assert command[-2:] == ["mcp", "github"]
    assert variables == {"DESKHAND_HOME": str(account.home)}
    assert undone.code == 0, undone.err
    assert restored == before("claude-code")
    assert over_http.code == 0, over_http.err
    assert by_address["url"].endswith("/guard/github/mcp")
    assert gone.code == 0, gone.err
    assert file.read_text() == before("claude-code")


@requirement("connect:own-file")
@pytest.mark.parametrize("client", CLIENTS)
def test_the_entry_comes_into_the_clients_own_file_and_goes_again_byte_for_byte(
    account: Account, client: str
) -> None:
    account.set_up()
    file = account.folder / FILES[client]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(before(client))
    file.chmod(0o640)

    done = account.deskhand("connect", client, "--yes")

    text = file.read_text()
    servers = read(client, text)[TABLE.get(client, "mcpServers")]
    assert done.code == 0, done.err
    command, variables = start(client, servers["deskhand"])
    assert command[-2:] == ["mcp", "desk"]
    assert variables == {"DESKHAND_HOME": str(account.home), "DESKHAND_AGENT": client}
    assert servers["other"] == {"command": "x", "env": {"KEY": "hunter2"}}
    assert "hunter2" not in done.out + done.err
    assert "+" in done.out
    assert str(account.home) in done.out
    assert re.search(rf"DESKHAND_AGENT\W+{client}\b", done.out)
    assert all(
        comment in text
        for comment in (
            "// my servers",
            "/* mine */",
            "// at night",
            "# mine",
            "# y",
            "# the first",
            "# the last",
        )
        if comment in before(client)
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    copies = [
        path
        for path in (account.home / "backups").iterdir()
        if path.read_text() == before(client)
    ]
    assert [stat.S_IMODE(copy.stat().st_mode) for copy in copies] == [0o600]

    assert "nothing was changed" in account.deskhand("connect", client, "--yes").out
    undone = account.deskhand("connect", client, "--undo", "--yes")
    assert undone.code == 0, undone.err
    assert file.read_text() == before(client)
    assert account.deskhand("connect", client, "--undo", "--yes").code == 4


@requirement("connect:undo")
@pytest.mark.parametrize("client", CLIENTS)
def test_where_the_file_was_changed_since_only_our_entry_goes(
    account: Account, client: str
) -> None:
    account.set_up()
    file = account.folder / FILES[client]
    assert account.deskhand("connect", client, "--yes").code == 0
    made = file.read_text()
    match CLIENTS[client].form:
        case "toml":
            later = f"{made}\n[later]\nx = 1\n"
        case "yaml":
            later = f"{made}later: {{x: 1}}\n"
        case _:
            later = jsonc.with_member(made, ("later",), {"x": 1})
    file.write_text(later)

    assert account.deskhand("connect", client, "--undo", "--yes").code == 0

    assert read(client, file.read_text()).get(TABLE.get(client, "mcpServers"), {}) == {}
    assert read(client, file.read_text())["later"] == {"x": 1}


@requirement("connect:undo")
def test_a_file_that_was_not_there_is_gone_after_undo(account: Account) -> None:
    account.set_up()
    assert account.deskhand("connect", "cursor", "--server", "email", "--yes").code == 0
    file = account.folder / FILES["cursor"]
    assert list(json.loads(file.read_text())["mcpServers"]) == ["deskhand-email"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    assert (
        account.deskhand("connect", "cursor", "--server", "email", "--undo", "--yes").code
        == 0
    )

    assert not file.exists()


@requirement("connect:broken-file")
@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("claude-code", '{"mcpServers": {'),
        ("claude-code", '{"mcpServers": {}} // no comments here'),
        ("claude-desktop", '{"mcpServers": []}'),
        ("vscode", '{"servers": {"deskhand": 3}}'),
        ("gemini", "[1, 2]"),
        ("codex", "a = = 1"),
        ("codex", "mcp_servers = 3"),
        ("cursor", "\xff\xfe"),
        ("claude-code", "[" * 200_000),
        ("codex", "a = " + "[" * 20_000),
        ("goose", "extensions: [1, 2]"),
        ("goose", "extensions: {a: b"),
        ("goose", "- 1"),
        ("copilot", '{"mcpServers": {}} // no comments here'),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_left_alone(
    account: Account, client: str, text: str
) -> None:
    account.set_up()
    file = account.folder / FILES[client]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode("latin-1"))

    done = account.deskhand("connect", client, "--yes")

    assert done.code == 2
    assert str(file) in done.err
    assert "Traceback" not in done.err
    assert file.read_bytes() == text.encode("latin-1")


@requirement("connect:own-file")
def test_a_linked_file_is_changed_where_it_lies_and_nothing_is_asked_in_vain(
    account: Account,
) -> None:
    account.set_up()
    real = account.folder / "dotfiles" / "claude.json"
    real.parent.mkdir()
    real.write_text("{}")
    (account.folder / ".claude.json").symlink_to(real)

    refused = account.deskhand("connect", "claude-code")
    printed = account.deskhand("connect", "claude-code", "--print")
    assert (refused.code, real.read_text()) == (2, "{}")
    assert "--yes" in refused.err
    assert (
        f"claude mcp add --scope user deskhand -e DESKHAND_HOME={account.home} -e DESKHAND_AGENT=claude-code -- "
        in printed.out
    )
    assert real.read_text() == "{}"

    assert account.deskhand("connect", "claude-code", "--yes").code == 0
    assert (account.folder / ".claude.json").is_symlink()
    assert json.loads(real.read_text())["mcpServers"]["deskhand"]["type"] == "stdio"


@requirement("connect:works-anywhere")
@requirement("agents:person")
@pytest.mark.anyio
async def test_the_command_that_was_written_starts_the_server_from_any_folder(
    account: Account, tmp_path: Path
) -> None:
    account.set_up()
    assert account.deskhand("connect", "gemini", "--yes").code == 0
    assert account.deskhand("connect", "gemini", "--server", "obsidian", "--yes").code == 0
    servers = json.loads((account.folder / FILES["gemini"]).read_text())["mcpServers"]
    entry = servers["deskhand"]
    assert "DESKHAND_AGENT" not in servers["deskhand-obsidian"]["env"]
    (account.vault / "a.md").write_text("found\n")

    # What a desktop gives to a program it starts, and nothing of our shell.
    server = StdioServerParameters(
        command=entry["command"],
        args=entry["args"],
        env={"PATH": "/usr/bin:/bin"} | entry["env"],
        cwd="/",
    )
    async with Client(server) as client:
        answer = await client.call_tool("read_note", {"path": "a.md"})
        told = await client.call_tool(
            "send_to_agent", {"recipient": "person", "message": "Which colour?"}
        )

    assert answer.structured_content["body"] == "found\n"
    assert not told.is_error, told.content


@requirement("connect:token")
@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "claude-desktop"])
def test_over_http_a_fresh_token_is_in_the_file_and_nowhere_else(
    account: Account, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.set_up("--user", "ada")
    monkeypatch.setenv("DESKHAND_PORT", "8651")  # whoever uses this machine may run a desk

    file = account.folder / FILES[client]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(before(client))
    file.chmod(0o644)

    done = account.deskhand("connect", client, "--http", "--yes")

    # Whoever else has an account here reads no token.
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    entry = read(client, (account.folder / FILES[client]).read_text())[
        TABLE.get(client, "mcpServers")
    ]["deskhand"]
    (bearer,) = (entry.get("headers") or entry["http_headers"]).values()
    token = bearer.removeprefix("Bearer ")
    assert done.code == 0, done.err
    assert token.startswith("dh_")
    assert token not in done.out + done.err
    assert "http://127.0.0.1:8651/mcp" in entry.values()
    kept = [
        path
        for path in account.home.rglob("*")
        if path.is_file() and token.encode() in path.read_bytes()
    ]
    assert kept == []
    assert f"{client}-deskhand" in account.deskhand("token", "list").out

    assert account.deskhand("connect", client, "--undo", "--yes").code == 0
    assert f"{client}-deskhand" not in account.deskhand("token", "list").out


@requirement("connect:token")
def test_over_http_the_address_is_that_of_the_desk_that_runs_and_the_doctor_sees_another(
    account: Account,
) -> None:
    account.set_up("--user", "ada")
    match acquire(account.home):
        case DeskLock() as lock:
            with lock:
                lock.announce(4711, {})
                account.deskhand("connect", "cursor", "--http", "--yes")
                assert (
                    "http://127.0.0.1:4711/mcp"
                    in (account.folder / FILES["cursor"]).read_text()
                )
                assert "is connected to" not in account.deskhand("doctor").out
                lock.announce(4712, {})
                told = account.deskhand("doctor").out
                assert (
                    "is connected to http://127.0.0.1:4711/mcp, but this desk runs on port 4712"
                    in told
                )


@requirement("connect:token")
def test_a_token_is_made_for_no_address_at_which_somebody_else_answers(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.set_up("--user", "ada")
    file = account.folder / FILES["cursor"]
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("DESKHAND_PORT", str(port))
        refused = account.deskhand("connect", "cursor", "--http", "--yes")
        shown = account.deskhand("connect", "cursor", "--http", "--print")

    assert (refused.code, shown.code) == (7, 7)
    assert f"another program answers at 127.0.0.1:{port}" in refused.err
    assert "deskhand up" in refused.err
    assert not file.exists()
    assert account.deskhand("token", "list", "--json").out == ""

    assert account.deskhand("connect", "cursor", "--http", "--yes").code == 0
    with socket.create_server(("127.0.0.1", port)):
        told = account.deskhand("doctor", "--json").json["findings"]
    says = next(each["says"] for each in told if each["name"] == "clients")
    assert f"http://127.0.0.1:{port}/mcp, where another program answers" in says


@requirement("connect:token")
def test_a_client_that_only_starts_programs_gets_no_address_and_no_token(
    account: Account,
) -> None:
    account.set_up()
    done = account.deskhand("connect", "claude-desktop", "--http", "--yes")

    assert done.code == 2
    assert "starts programs" in done.err
    assert account.deskhand("token", "list", "--json").out == ""


@requirement("connect:own-file")
@pytest.mark.parametrize(
    ("client", "platform", "place"),
    [
        ("vscode", "darwin", "Library/Application Support/Code/User/mcp.json"),
        (
            "claude-desktop",
            "darwin",
            "Library/Application Support/Claude/claude_desktop_config.json",
        ),
        ("claude-desktop", "win32", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("codex", "linux", ".codex/config.toml"),
        ("opencode", "darwin", ".config/opencode/opencode.json"),
        ("goose", "darwin", ".config/goose/config.yaml"),
        ("goose", "win32", "AppData/Roaming/Block/goose/config/config.yaml"),
        ("copilot", "linux", ".copilot/mcp-config.json"),
        ("qwen", "win32", ".qwen/settings.json"),
    ],
)
def test_each_client_is_looked_for_where_it_looks_itself(
    tmp_path: Path, client: str, platform: str, place: str
) -> None:
    assert file_of(CLIENTS[client], {"HOME": str(tmp_path)}, platform) == tmp_path / place
    if client == "codex":
        assert file_of(CLIENTS[client], {"CODEX_HOME": "/elsewhere"}, platform) == Path(
            "/elsewhere/config.toml"
        )


@requirement("connect:own-file")
def test_the_one_file_that_opencode_reads_is_changed(account: Account) -> None:
    account.set_up()
    file = account.folder / ".config" / "opencode" / "opencode.jsonc"
    file.parent.mkdir(parents=True)
    file.write_text('{ "theme": "x" } // mine\n')

    assert account.deskhand("connect", "opencode", "--yes").code == 0

    assert jsonc.loads(file.read_text())["mcp"]["deskhand"]["type"] == "local"
    assert not file.with_suffix(".json").exists()


@requirement("connect:works-anywhere")
def test_what_a_client_needs_beyond_its_entry_is_done_or_said(account: Account) -> None:
    account.set_up()

    gemini = account.deskhand("connect", "gemini", "--yes")
    account.deskhand("connect", "codex", "--yes")
    codex = tomllib.loads((account.folder / FILES["codex"]).read_text())["mcp_servers"][
        "deskhand"
    ]

    assert "folders that you trust" in gemini.out
    # Without it Codex asks its model before the tools are there.
    assert (codex["required"], codex["startup_timeout_sec"]) == (True, 30)


@requirement("connect:own-file")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: 1",
        "extensions:\n",
        "extensions: {}\nb: 2\n",
        "extensions: {x: {y: 1}}  # flow\n",
        "extensions:\n    x:\n        y: 1\n\n    # c\n    z: {}\nb: |\n  text\n  more\n",
        "b: 1\nextensions:\n  x: 1",
        "extensions:\n  deskhand: {old: 1}\n  x: 1\n",
        "extensions:\n  x: 1\n  deskhand:\n    old: 1\nb: 2\n",
        "extensions: {deskhand: {old: 1}, x: 1}\n",
        "extensions: {x: 1, deskhand: {old: 1}}\n",
    ],
)
def test_for_any_yaml_one_member_comes_and_goes_and_the_rest_stays(text: str) -> None:
    whole = yaml.safe_load(text) or {}
    others = {
        name: value
        for name, value in (whole.get("extensions") or {}).items()
        if name != "deskhand"
    }
    new = {"enabled": True, "args": ["a: b", "# c"], "text": "é\n"}

    put = yaml_member.with_member(text, "extensions", "deskhand", new)
    gone = yaml_member.without_member(put, "extensions", "deskhand")

    assert yaml.safe_load(put) == whole | {"extensions": others | {"deskhand": new}}
    assert (yaml.safe_load(gone).get("extensions") or {}) == others
    assert {line for line in text.splitlines() if "#" in line} <= set(gone.splitlines())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@requirement("connect:own-file")
@given(
    st.dictionaries(st.text(max_size=5), VALUES, max_size=4),
    st.sampled_from([None, 1, 4, "\t"]),
    st.booleans(),
)
def test_for_any_json_one_member_comes_and_goes_and_the_rest_stays(
    whole: dict[str, object], indent: int | str | None, comments: bool
) -> None:
    whole.pop("servers", None)
    text = json.dumps(whole, indent=indent)
    if comments:
        text = f'// top\n{text}\n/* end, " */'

    put = jsonc.with_member(text, ("servers", "deskhand"), {"a": [1]})
    assert jsonc.loads(put) == whole | {"servers": {"deskhand": {"a": [1]}}}
    gone = jsonc.without_member(put, ("servers", "deskhand"))
    assert jsonc.loads(gone) == whole | {"servers": {}}


def test_connecting_takes_no_variable_of_this_shell_along_and_says_so(
    account: Account,
) -> None:
    account.set_up()
    environment = os.environ | {"DESKHAND_ADDRESS": "other@example.com"}
    command = [warm_python(), "-m", "deskhand", "connect", "cursor", "--yes"]

    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )

    assert "DESKHAND_ADDRESS is set in this shell only" in done.stderr
    assert "other@example.com" not in (account.folder / FILES["cursor"]).read_text()


THEIRS = """{
  // mine
  "model": "opus",
  "hooks": {
    "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check"}]}],
    "Stop": [{"hooks": [{"type": "command", "command": "bell"}]}]
  }
}
"""


@requirement("claude:connected")
def test_the_hooks_of_claude_code_come_among_those_of_others_and_go_again(
    account: Account,
) -> None:
    account.set_up()
    settings = account.folder / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(THEIRS)
    connect = ("connect", "claude-code", "--permissions")

    done = account.deskhand(*connect, "--yes")

    assert done.code == 0, done.err
    assert "--permission-prompt-tool mcp__deskhand-claude__permission_prompt" in done.out
    hooks = jsonc.loads(settings.read_text())["hooks"]
    own = hooks["PreToolUse"][1]
    assert hooks["PreToolUse"][0]["hooks"] == [{"type": "command", "command": "check"}]
    assert [own["hooks"][0]["timeout"], hooks["PermissionRequest"][0]["hooks"]] == [
        120,
        own["hooks"],
    ]
    assert own["hooks"][0]["command"].endswith("deskhand claude-hook")
    assert f"DESKHAND_HOME={account.home}" in own["hooks"][0]["command"]
    entry = json.loads((account.folder / ".claude.json").read_text())["mcpServers"][
        "deskhand-claude"
    ]
    assert entry["args"][-2:] == ["mcp", "claude"]
    assert "nothing was changed" in account.deskhand(*connect, "--yes").out
    assert account.deskhand(*connect, "--undo", "--yes").code == 0
    assert settings.read_text() == THEIRS
    assert not (account.folder / ".claude.json").exists()
    assert account.deskhand(*connect, "--undo", "--yes").code == 4

    account.deskhand(*connect, "--yes")
    changed = settings.read_text().replace("opus", "sonnet")
    settings.write_text(changed)
    assert account.deskhand(*connect, "--undo", "--yes").code == 0
    assert jsonc.loads(settings.read_text()) == jsonc.loads(
        THEIRS.replace("opus", "sonnet")
    )
    assert "// mine" in settings.read_text()


@requirement("claude:connected")
def test_settings_that_cannot_be_read_are_left_alone_and_others_have_no_such_hooks(
    account: Account,
) -> None:
    account.set_up()
    settings = account.folder / ".claude" / "settings.json"
    settings.parent.mkdir()
    for wrong in (
        "{",
        "[]",
        '{"hooks": []}',
        '{"hooks": {"PreToolUse": {}}}',
        '{"hooks": null}',
    ):
        settings.write_text(wrong)
        assert (
            account.deskhand("connect", "claude-code", "--permissions", "--yes").code == 2
        ), wrong
        assert settings.read_text() == wrong
        assert not (account.folder / ".claude.json").exists()
    settings.unlink()
    assert account.deskhand("connect", "codex", "--permissions", "--yes").code == 2
    shown = account.deskhand(
        "connect", "claude-code", "--permissions", "--print", "--json"
    ).json
    assert "claude-hook" in shown["hooks"]
    assert not settings.exists()
