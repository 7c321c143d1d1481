"""The foreign judges: where run.py puts them, and how one is run."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

MODULES = Path(__file__).parents[2] / ".judges" / "node_modules"
NODE = MODULES / ".bin" / "node"
PROTOCOL = MODULES / "@modelcontextprotocol"
CONFORMANCE = PROTOCOL / "conformance" / "dist" / "index.js"
INSPECTOR = PROTOCOL / "inspector" / "clients" / "launcher" / "build" / "index.js"
TYPESCRIPT_SDK = PROTOCOL / "sdk" / "package.json"
TYPESCRIPT_CLIENT = PROTOCOL / "client" / "package.json"


def needs(file: Path) -> pytest.MarkDecorator:
    missing = [str(each) for each in (NODE, file) if not each.is_file()]
    return pytest.mark.skipif(
        bool(missing),
        reason=f"no {' and no '.join(missing)}: `run.py test` brings it where npm is",
    )


def node(
    script: Path, *arguments: str | Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NODE, script, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
