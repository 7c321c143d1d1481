"""The protocol's own conformance suite against the desk's server class."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import yaml

from tests.home import Home
from tests.judges.node import CONFORMANCE, needs, node
from tests.requirements import requirement

APP = Path(__file__).with_name("conformance_app.py")
LISTENING = "listening on "


@pytest.fixture
def fixtures(home: Home) -> Iterator[str]:
    command = [sys.executable, str(APP)]
    with subprocess.Popen(
        command, env=home.environment, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        said: list[str] = []
        while not (line := server.stderr.readline()).startswith(LISTENING):
            assert line, f"the app ended: {''.join(said)}"
            said.append(line)
        # A full pipe would stop the server in the middle of a scenario.
        rest = Thread(target=server.stderr.read)
        rest.start()
        yield line.removeprefix(LISTENING).strip()
        server.terminate()
        rest.join()


def required_scenarios(revision: str) -> list[str]:
    requirements = CONFORMANCE.parents[1] / "requirements" / f"{revision}.yaml"
    return list(yaml.safe_load(requirements.read_text())["server"])


def statuses(reports: Path) -> dict[str, set[str]]:
    """What became of each scenario's checks; a report's folder is named server-SCENARIO-TIME."""
    return {
        re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", report.parent.name): {
            check["status"]
            for check in json.loads(report.read_text())
            if check["status"] != "INFO"
        }
        for report in reports.glob("*/checks.json")
    }


@requirement("judges:conformance")
@needs(CONFORMANCE)
@pytest.mark.parametrize(("revision", "count"), [("2025-11-25", 30), ("2026-07-28", 37)])
def test_every_required_scenario_of_the_revision_passes(
    revision: str, count: int, fixtures: str, home: Home, tmp_path: Path
) -> None:
    reports = tmp_path / "reports"
    judged = node(
        CONFORMANCE,
        *("server", "--url", fixtures, "--requirements", revision, "--output-dir", reports),
        environment=home.environment,
    )
    found = statuses(reports)
    required = required_scenarios(revision)

    assert len(required) == count
    assert {
        name: found.get(name) for name in required if found.get(name) != {"SUCCESS"}
    } == {}, judged.stdout
    assert judged.returncode == 0, judged.stdout
