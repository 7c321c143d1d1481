"""The documentation is held to the code: the reference is complete, links lead somewhere, commands exist."""

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.cli import parser
from deskhand.config import OPTIONS, load
from deskhand.errors import ErrorType, MCPErrorCode
from deskhand.servers import SERVERS
from docs import write_reference
from tests.home import Home
from tests.requirements import REQUIREMENTS, requirement

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"


def listed() -> str:
    return "\n".join(page.read_text() for page in sorted(FOLDER.glob("*.md")))


@pytest.mark.anyio
@requirement("docs:fresh")
async def test_the_reference_says_what_the_code_says_today() -> None:
    made = await write_reference.pages()

    stale = [name for name, text in made.items() if write_reference.kept(name) != text]
    assert stale == [], "run `python3 run.py reference`"


@requirement("docs:complete")
def test_every_command_option_and_error_code_is_in_the_reference() -> None:
    found = listed()
    wanted = [
        f"## deskhand {' '.join(words)}\n" for words, _ in write_reference.leaves(parser())
    ]
    wanted += [f"| `{option.key}` | `{option.variable}` |" for option in OPTIONS.values()]
    wanted += [f"`{code}`" for code in (*get_args(MCPErrorCode), *get_args(ErrorType))]

    assert len(wanted) > 70
    assert [text for text in wanted if text not in found] == []


@pytest.mark.anyio
@requirement("docs:complete")
async def test_every_tool_of_every_server_and_its_arguments_are_in_the_reference(
    home: Home,
) -> None:
    page = (FOLDER / "tools.md").read_text()
    person = {
        "DESKHAND_ADDRESS": "me@example.org",
        "DESKHAND_USER": "me",
        "DESKHAND_AGENT": "me",
    }
    desk = Desk(load(home.environment | person).settings)
    missing = []
    for name in sorted(SERVERS):
        async with Client(SERVERS[name].make(desk)) as client:
            for tool in (await client.list_tools()).tools:
                _, _, after = page.partition(f"### {name}: `{tool.name}`\n")
                section = after.partition("\n##")[0]
                arguments = [
                    each
                    for each in tool.input_schema["properties"]
                    if f"| `{each}` |" not in section
                ]
                missing += (
                    [(name, tool.name, arguments)] if arguments or not section else []
                )
    desk.close()

    assert missing == []


def markdown() -> list[Path]:
    known = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if known.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in known.stdout.splitlines() if (ROOT / name).is_file()]


def links(page: Path) -> Iterator[str]:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"\]\(<?([^)\s>]+)>?\)", prose)


def headings(page: Path) -> set[str]:
    return {
        write_reference.anchor(line)
        for line in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    }


@requirement("docs:links")
def test_every_link_between_documents_leads_to_a_file_and_a_heading_that_are_there() -> (
    None
):
    broken = []
    followed = 0
    for page in markdown():
        for link in links(page):
            if re.match(r"[a-z]+:", link):
                continue
            followed += 1
            path, _, heading = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (heading and heading not in headings(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")

    assert followed > 30
    assert broken == []


def shown_commands(page: Path) -> Iterator[list[str]]:
    """The words after `deskhand` or `python3 run.py`, wherever a document shows them as code."""
    text = page.read_text()
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(
        r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    )
    for line in [line for block in blocks for line in block.splitlines()] + spans:
        called = re.match(r"\s*(?:\w+=\S+ )*(?:python3 run\.py|deskhand) ([^#|]+)", line)
        if called:
            yield called[1].split()


def unknown(words: list[str], command: argparse.ArgumentParser) -> str | None:
    """The first word that is no command, or flag that is none of its command."""
    own, _, _ = " ".join(words).partition(" -- ")  # what follows is another program's
    for word in own.split():
        group = next(
            (
                each
                for each in command._actions
                if isinstance(each, argparse._SubParsersAction)
            ),
            None,
        )
        if word.startswith("-"):
            if word.partition("=")[0] not in command._option_string_actions:
                return word
        elif group is not None and word.islower():
            if word not in group.choices:
                return word
            command = group.choices[word]
    return None


@requirement("docs:commands")
def test_every_command_and_flag_that_a_document_shows_is_there() -> None:
    own = re.findall(
        r"^python3 run\.py ([a-z]+)", (ROOT / "run.py").read_text(), re.MULTILINE
    )
    found = [
        (page, words)
        for page in markdown()
        for words in shown_commands(page)
        if words[0] not in own
    ]

    deskhand = parser()
    assert len(found) > 60
    assert [
        f"{page.relative_to(ROOT)}: {' '.join(words)}"
        for page, words in found
        if unknown(words, deskhand) is not None
    ] == []


@requirement("docs:contract")
def test_every_line_of_the_contract_names_promises_that_are_tested() -> None:
    rows = re.findall(
        r"^\| (.*) \| ([^|]*) \|$",
        (ROOT / "docs" / "contract.md").read_text(),
        re.MULTILINE,
    )
    named = {
        text: re.findall(r"`([^`]+)`", last) for text, last in rows if last != "shown by"
    }

    assert len(named) > 80
    assert [
        text
        for text, promises in named.items()
        if not promises or set(promises) - set(REQUIREMENTS)
    ] == []


@requirement("docs:links")
def test_every_file_and_folder_that_a_document_for_contributors_names_is_there() -> None:
    text = "".join(
        (ROOT / name).read_text() for name in ("ARCHITECTURE.md", "CONTRIBUTING.md")
    )
    named = re.findall(r"`((?:src|tests|docs|bench|torture|packaging)/[^`\s]*)`", text)
    tree = text.partition("\nsrc/deskhand/\n")[2].partition("\n\n")[0]
    named += [
        f"src/deskhand/{name}" for name in re.findall(r"^[├└]── (\S+)", tree, re.MULTILINE)
    ]

    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists()] == []


@requirement("docs:links")
def test_the_architecture_draws_every_module_of_the_gate_and_none_that_is_gone() -> None:
    trees = re.findall(
        r"```\n(src/deskhand/.*?)```", (ROOT / "ARCHITECTURE.md").read_text(), re.DOTALL
    )
    drawn = {name for tree in trees for name in re.findall(r"\b\w+\.py\b", tree)}
    every = {path.name for path in (ROOT / "src").rglob("*.py")}
    gate = {path.name for path in (ROOT / "src" / "deskhand" / "gate").glob("*.py")}

    assert gate - drawn == set()
    assert drawn - every == set()
