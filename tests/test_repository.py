"""What holds for the repository as a whole: promises have tests, docs are complete, no host is named."""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from mcp import Client
from requirements import REQUIREMENTS

from deskhand.app import Desk
from deskhand.cli import parser
from deskhand.config import OPTIONS
from deskhand.errors import MCPErrorCode
from deskhand.servers.desk import desk_server
from deskhand.servers.email import email_server
from deskhand.servers.gmail import gmail_server
from deskhand.servers.obsidian import obsidian_server
from deskhand.servers.tasks import tasks_server

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = (ROOT / "docs" / "reference.md").read_text() if (ROOT / "docs" / "reference.md").exists() else ""


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_every_promise_has_a_test_and_every_test_cites_a_promise_that_was_made() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    cited = set(re.findall(r'requirement\("([\w:-]+)"\)', sources))

    assert sorted(set(REQUIREMENTS) - cited) == []
    assert sorted(cited - set(REQUIREMENTS)) == []


def commands(made: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    groups = [action for action in made._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield words
    for group in groups:
        for name, inner in group.choices.items():
            yield from commands(inner, (*words, name))


def test_every_command_option_and_error_code_is_in_the_reference() -> None:
    wanted = [f"`deskhand {' '.join(words)}" for words in commands(parser())]
    wanted += [f"`{option.key}`" for option in OPTIONS.values()]
    wanted += [f"`{option.variable}`" for option in OPTIONS.values()]
    wanted += [f"`{code}`" for code in get_args(MCPErrorCode)]

    assert [text for text in wanted if text not in REFERENCE] == []


@pytest.mark.anyio
async def test_every_tool_and_argument_is_in_the_reference(desk: Desk) -> None:
    tools = []
    for make in (obsidian_server, email_server, gmail_server, tasks_server, desk_server):
        async with Client(make(desk)) as client:
            tools += (await client.list_tools()).tools

    wanted = [f"`{tool.name}`" for tool in tools]
    wanted += [f"`{argument}`" for tool in tools for argument in tool.input_schema["properties"]]
    assert [text for text in wanted if text not in REFERENCE] == []


def test_every_dependency_has_its_reason_in_a_decision() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    names = [re.split(r"[\[<>=]", name)[0] for name in named]
    decisions = "\n".join(path.read_text() for path in (ROOT / "docs" / "decisions").glob("*.md")).lower()

    assert [name for name in names if name.lower() not in decisions] == []


def test_no_committed_file_names_a_registry_or_a_folder_of_some_machine() -> None:
    hosts = ["pypi" + ".org", "python" + "hosted.org", "registry.npm" + "js.org", "deb.debian" + ".org"]
    homes = re.compile("/" + r"(root|home/\w+|Users/\w+|work)/")

    found = [
        f"{path.relative_to(ROOT)}: {line.strip()[:80]}"
        for path in tracked()
        for line in path.read_text(errors="replace").splitlines()
        if any(host in line for host in hosts) or homes.search(line)
    ]

    assert found == []


def test_the_lock_is_hashed_and_complete() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    packages = re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE)

    assert len(packages) > 40
    assert lock.count("--hash=sha256:") >= len(packages)


def test_the_module_runs_as_the_command_does() -> None:
    done = subprocess.run([sys.executable, "-m", "deskhand", "--version"], capture_output=True, text=True, check=True)

    assert re.fullmatch(r"deskhand \d+\.\d+\.\d+\n", done.stdout)
