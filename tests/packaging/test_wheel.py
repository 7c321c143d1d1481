"""What `python3 run.py build` makes, in the clone and in the sdist that came of it."""

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, metadata, packages_distributions
from pathlib import Path

import pytest

from deskhand import __version__
from tests.requirements import requirement

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
WHEEL = f"deskhand-{__version__}-py3-none-any.whl"
SDIST = f"deskhand-{__version__}.tar.gz"
BILL = f"deskhand-{__version__}.cdx.json"
EXTRAS = ("documents", "notify", "postgresql")


def run_build(root: Path, folder: Path) -> None:
    """As somebody whose new files nobody else may read, and in another time zone."""
    environment = os.environ | {"TZ": "Asia/Tokyo"}
    command = [sys.executable, str(root / "packaging" / "build.py"), str(folder)]
    subprocess.run(
        command,
        env=environment,
        umask=0o077,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=100,
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    run_build(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(built / WHEEL) as wheel:
        wheel.extractall(folder)
    return folder


@requirement("install:same-bytes")
def test_the_sdist_builds_the_same_wheel_the_same_sdist_and_the_same_bill(
    built: Path, tmp_path: Path
) -> None:
    with tarfile.open(built / SDIST) as sdist:
        sdist.extractall(tmp_path, filter="data")
    run_build(tmp_path / f"deskhand-{__version__}", tmp_path / "again")

    assert sorted(each.name for each in built.iterdir()) == sorted([WHEEL, SDIST, BILL])
    for name in (WHEEL, SDIST, BILL):
        assert (tmp_path / "again" / name).read_bytes() == (built / name).read_bytes(), name


@requirement("install:complete")
def test_the_wheel_has_every_file_of_the_sources_and_no_other(unpacked: Path) -> None:
    def files(folder: Path) -> set[str]:
        found = (each.relative_to(folder) for each in folder.rglob("*") if each.is_file())
        return {str(each) for each in found if "__pycache__" not in each.parts}

    described = {each for each in files(unpacked) if ".dist-info/" in each}
    assert files(unpacked) - described == {
        each for each in files(SOURCES) if each.startswith("deskhand/")
    }
    assert {"METADATA", "RECORD", "WHEEL", "entry_points.txt"} < {
        Path(each).name for each in described
    }
    assert any(each.endswith("licenses/LICENSE") for each in described)


@requirement("install:complete")
def test_the_wheel_brings_both_commands_and_declares_its_extras(unpacked: Path) -> None:
    (described,) = unpacked.glob("*.dist-info")
    said = Parser().parsestr((described / "METADATA").read_text())
    commands = re.findall(
        r"^(\w+) = ", (described / "entry_points.txt").read_text(), re.MULTILINE
    )
    assert (said["Name"], said["Version"], said["Requires-Python"]) == (
        "deskhand",
        __version__,
        ">=3.11",
    )
    assert sorted(commands) == ["agentmail", "deskhand"]
    assert sorted(said.get_all("Provides-Extra") or []) == list(EXTRAS)

    program = "import deskhand; print(deskhand.__file__); from deskhand.__main__ import main; main()"
    command = [sys.executable, "-c", program, "--version"]
    environment = os.environ | {"PYTHONPATH": str(unpacked)}
    ran = subprocess.run(
        command, env=environment, cwd=unpacked, capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == [
        str(unpacked / "deskhand" / "__init__.py"),
        f"deskhand {__version__}",
    ]


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(name), level=0):
                yield name


@requirement("install:complete")
def test_whatever_the_wheel_imports_is_installed_with_it_or_with_an_extra() -> None:
    brought = {name for lock in ("desk", *EXTRAS) for name, _, _ in locked(lock)}
    owners = packages_distributions()
    used = {
        name.partition(".")[0] for file in SOURCES.rglob("*.py") for name in imported(file)
    }
    foreign = used - sys.stdlib_module_names - {"deskhand"}
    missing = [
        each
        for each in foreign
        if not brought & {normal(owner) for owner in owners.get(each, [])}
    ]
    assert len(foreign) > 15
    assert missing == []


def locked(lock: str) -> list[tuple[str, str, set[str]]]:
    """Name, version and hashes of each package in a lock."""
    text = (ROOT / "locks" / f"{lock}.lock").read_text()
    found = re.findall(
        r"^([\w.-]+)==([^\s;]+)([^\n]*(?:\n\s+--hash=\S+[^\n]*)*)", text, re.MULTILINE
    )
    return [
        (name, version, set(re.findall(r"sha256:(\w+)", rest)))
        for name, version, rest in found
    ]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@requirement("install:bill")
def test_the_bill_names_each_locked_package_with_version_licence_and_hashes(
    built: Path,
) -> None:
    bill = json.loads((built / BILL).read_text())
    named = {
        (each["name"], each["version"]): {digest["content"] for digest in each["hashes"]}
        for each in bill["components"]
        if each["purl"].startswith("pkg:pypi/")
    }
    locks = [each.stem for each in (ROOT / "locks").glob("*.lock")]
    assert named == {
        (name, version): hashes for lock in locks for name, version, hashes in locked(lock)
    }
    assert all(hashes for hashes in named.values())
    assert all(each["licenses"][0]["expression"] for each in bill["components"])
    (direct,) = bill["dependencies"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [
        *project["dependencies"],
        *(each for some in project["optional-dependencies"].values() for each in some),
    ]
    assert len(direct["dependsOn"]) == len(asked)


@requirement("install:bill")
def test_the_licences_are_those_that_the_packages_name_themselves() -> None:
    licences = tomllib.loads((ROOT / "packaging" / "licences.toml").read_text())
    differ = {}
    for licence, names in licences.items():
        for name in names:
            try:
                own = metadata(name)["License-Expression"]
            except PackageNotFoundError:  # only for another system
                continue
            if own not in (None, licence):
                differ[name] = own
    assert differ == {}
    told = [name for names in licences.values() for name in names]
    assert len(told) == len(set(told))
