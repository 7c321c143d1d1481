"""The protocol's Inspector, from its command line, against the notes server on stdio."""

import json
import sys
from pathlib import Path

import pytest
from conftest import Home
from node import INSPECTOR, needs, node
from requirements import requirement

TOOLS = {"read_note", "write_note", "list_notes", "move_note", "search_notes"}


@requirement("judges:clients")
@needs(INSPECTOR)
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_finds_no_fault_with_the_tools(era: str, home: Home, tmp_path: Path) -> None:
    variables = [f"{name}={home.environment[name]}" for name in ("VAULT_PATH", "DESKHAND_HOME")]
    listed = node(
        INSPECTOR,
        *("--cli", sys.executable, "-m", "deskhand", "mcp", "obsidian"),
        *(part for variable in variables for part in ("-e", variable)),
        *("--protocol-era", era, "--method", "tools/list", "--strict", "--format", "json"),
        # The Inspector keeps a catalogue in the home folder of whoever runs it.
        environment={"PATH": home.environment["PATH"], "HOME": str(tmp_path)},
    )
    assert listed.returncode == 0, listed.stderr
    assert {tool["name"] for tool in json.loads(listed.stdout)["result"]["tools"]} == TOOLS
