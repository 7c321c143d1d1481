import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from deskhand import __version__
from deskhand.cli import parser
from deskhand.config import OPTIONS
from tests.requirements import requirement

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGING = ROOT / "packaging"
TOOL = (
    ROOT / ".judges" / "node_modules" / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js"
)
VARIABLES = {option.variable for option in OPTIONS.values()}


def said(*place: str) -> dict[str, Any]:
    return json.loads(PACKAGING.joinpath(*place).read_text())


@requirement("packaging:bundle")
def test_the_bundle_is_packed_by_its_own_tool_and_its_sources_run(tmp_path: Path) -> None:
    if not TOOL.exists() or not shutil.which("node"):
        pytest.skip("@anthropic-ai/mcpb is not installed")
    validated = subprocess.run(
        ["node", str(TOOL), "validate", str(PACKAGING / "mcpb" / "manifest.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert validated.returncode == 0, validated.stdout + validated.stderr
    sys.path.insert(0, str(PACKAGING))
    try:
        from pack import packed  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(PACKAGING))

    bundle = packed(tmp_path / "deskhand.mcpb")

    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path / "unpacked")
    manifest = json.loads((tmp_path / "unpacked" / "manifest.json").read_text())
    assert (tmp_path / "unpacked" / manifest["server"]["entry_point"]).is_file()
    assert (tmp_path / "unpacked" / "pyproject.toml").is_file()
    assert not list((tmp_path / "unpacked").rglob("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "deskhand", "--version"],
        env={
            "PYTHONPATH": str(tmp_path / "unpacked" / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"deskhand {manifest['version']}\n"


@requirement("packaging:agree")
def test_the_packages_name_this_version_and_variables_that_exist() -> None:
    manifest, entry = said("mcpb", "manifest.json"), said("server.json")
    plugin, servers = (
        said("claude-code", ".claude-plugin", "plugin.json"),
        said("claude-code", ".mcp.json"),
    )
    (package,) = entry["packages"]

    assert {each["version"] for each in (manifest, entry, package, plugin)} == {__version__}
    assert set(manifest["server"]["mcp_config"]["env"]) <= VARIABLES
    assert {each["name"] for each in package["environmentVariables"]} <= VARIABLES
    asked = re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(manifest["server"]))
    assert sorted(asked) == sorted(manifest["user_config"])
    assert all(each["required"] for each in manifest["user_config"].values())
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert len(entry["description"]) <= 100
    assert re.fullmatch(r"[a-z0-9-]+", plugin["name"])
    assert list(servers["mcpServers"]) == ["deskhand"]


@requirement("packaging:agree")
def test_the_commands_of_the_packages_are_commands() -> None:
    manifest, (package,) = said("mcpb", "manifest.json"), said("server.json")["packages"]
    config, plugin = (
        manifest["server"]["mcp_config"],
        said("claude-code", ".mcp.json")["mcpServers"]["deskhand"],
    )

    commands = [
        config["args"][config["args"].index("deskhand") + 1 :],
        [argument["value"] for argument in package["packageArguments"]],
        plugin["args"],
    ]
    assert commands == [["mcp", "desk"]] * 3
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {plugin["command"], package["identifier"], project["name"]} == {"deskhand"}
    assert "deskhand" in project["scripts"]
    assert parser().parse_args(["mcp", "desk"]).server == "desk"
    assert manifest["compatibility"]["runtimes"]["python"] == project["requires-python"]
    assert "win32" not in manifest["compatibility"]["platforms"]
