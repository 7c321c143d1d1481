"""For any frontmatter and body, write then read gives the same: through the server, on the disk."""

import tempfile
from pathlib import Path
from typing import Any

import anyio
from hypothesis import given, settings
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.servers.obsidian import obsidian_server
from tests.notes.test_frontmatter import bodies, exact, mappings
from tests.requirements import requirement


async def written_and_read(properties: dict[str, Any], body: str) -> list[Any]:
    with tempfile.TemporaryDirectory() as place:
        desk = Desk(load({"DESKHAND_HOME": f"{place}/home", "VAULT_PATH": place}).settings)
        (Path(place) / "there.md").write_text("---\nold: 1 # kept or not\n---\nold body")
        async with Client(obsidian_server(desk)) as client:
            answers = []
            for path in ("new/note.md", "there.md"):
                arguments = {"path": path, "frontmatter": properties, "body": body}
                answers.append(await client.call_tool("write_note", arguments))
                answers.append(await client.call_tool("read_note", {"path": path}))
        desk.close()
    return answers


@requirement("notes:round-trip")
@settings(max_examples=40)
@given(mappings, bodies)
def test_whatever_is_written_is_read_again_from_a_new_and_from_an_existing_note(
    properties: dict[str, Any], body: str
) -> None:
    for answer in anyio.run(written_and_read, properties, body):
        note = answer.structured_content
        assert exact(note["frontmatter"]) == exact(properties)
        assert note["body"] == body
