"""The protocol's Inspector, from its command line, against all servers of a desk."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.home import TOKEN, Home
from tests.judges.node import INSPECTOR, needs, node
from tests.requirements import requirement

SERVERS = {
    "/mcp": "pending_actions",
    "/gmail/mcp": "list_emails",
    "/email/mcp": "search_email",
    "/obsidian/mcp": "read_note",
    "/tasks/mcp": "create_task",
    "/agentmail/mcp": "list-recipients",
}


def names(home: Home, place: Path, era: str, *target: str) -> set[str]:
    """The tools that the Inspector lists, once it has found no fault with them."""
    listed = node(
        INSPECTOR,
        *(
            "--cli",
            *target,
            "--protocol-era",
            era,
            "--method",
            "tools/list",
            "--strict",
            "--format",
            "json",
        ),
        # The Inspector keeps a catalogue in the home folder of whoever runs it.
        environment={"PATH": home.environment["PATH"], "HOME": str(place)},
    )
    assert listed.returncode == 0, listed.stderr
    return {tool["name"] for tool in json.loads(listed.stdout)["result"]["tools"]}


@requirement("judges:clients")
@needs(INSPECTOR)
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_finds_no_fault_with_the_tools_of_any_server(
    era: str, judged: Home, address: str, tmp_path: Path
) -> None:
    def listed(path: str) -> set[str]:
        place = tmp_path / path.replace("/", "_")
        place.mkdir()
        header = ("--header", f"Authorization: Bearer {TOKEN}")
        return names(judged, place, era, f"{address}{path}", "--transport", "http", *header)

    with ThreadPoolExecutor(2) as judges:
        found = dict(zip(SERVERS, judges.map(listed, SERVERS), strict=True))

    assert [path for path, main in SERVERS.items() if main not in found[path]] == []


def names_on_stdio(name: str, era: str, judged: Home, place: Path, *more: str) -> set[str]:
    variables = [
        f"{name}={judged.environment[name]}"
        for name in ("VAULT_PATH", "DESKHAND_HOME", "DESKHAND_AGENT")
    ]
    given = [part for variable in variables for part in ("-e", variable)]
    return names(
        judged, place, era, sys.executable, "-m", "deskhand", "mcp", name, *more, *given
    )


@requirement("judges:clients")
@needs(INSPECTOR)
def test_the_inspector_finds_no_fault_on_stdio_alone_or_joined(
    judged: Home, address: str, tmp_path: Path
) -> None:
    joined = names_on_stdio("obsidian", "modern", judged, tmp_path)
    contract = {"read_note", "write_note", "list_notes", "move_note", "search_notes"}
    assert joined == contract | {
        *(
            "append_note",
            "edit_note",
            "get_links",
            "list_tags",
            "get_outline",
            "daily_note",
            "create_from_template",
        ),
    }
    assert names_on_stdio("obsidian", "legacy", judged, tmp_path, "--alone") == joined
