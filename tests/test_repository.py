"""What holds for the repository as a whole: promises have tests, dependencies reasons, no host is named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import REQUIREMENTS

ROOT = Path(__file__).resolve().parent.parent


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


def test_every_dependency_has_its_reason_in_a_decision() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [*project["project"]["optional-dependencies"].values(), *project["dependency-groups"].values()]
    named = sum(groups, project["project"]["dependencies"])
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


def test_every_lock_is_hashed_and_the_desk_has_its_own() -> None:
    packages = {}
    for file in (ROOT / "locks").glob("*.lock"):
        blocks = re.split(r"\n(?=\S)", file.read_text().strip())
        assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
        packages[file.stem] = {re.match(r"[a-z0-9-]+(?===)", block)[0] for block in blocks}

    assert sorted(packages) == ["desk", "dev", "installer", "notify", "postgresql"]
    assert len(packages["desk"] | packages["dev"]) > 80
    assert not packages["desk"] & {"psycopg", "greenlet", "apprise", "pytest", "mypy", "uv"}


def test_the_module_runs_as_the_command_does() -> None:
    done = subprocess.run([sys.executable, "-m", "deskhand", "--version"], capture_output=True, text=True, check=True)

    assert re.fullmatch(r"deskhand \d+\.\d+\.\d+\n", done.stdout)
