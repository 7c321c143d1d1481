"""A foreign judge: schemathesis holds the backend to its own OpenAPI, on both databases, with all of its checks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.home import TOKEN
from tests.requirements import requirement
from tests.tasks.service import Service

PHASES = ("examples,coverage,fuzzing", "examples,coverage,fuzzing,stateful")
# A fresh If-Match is refused rightly with 412; what contradicts the tasks there are with 409.
CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 404, 409, 412]
"""


@requirement("tasks:rest")
@pytest.mark.timeout(1200)
def test_schemathesis_finds_nothing(
    service: Service, user: str, tmp_path: Path, scale: int
) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"{service.rest}/openapi.json",
        *(
            "--checks",
            "all",
            "--max-examples",
            str(2 * scale),
            "--phases",
            PHASES[scale > 1],
        ),
        *("--header", f"Authorization: Bearer {TOKEN}", "--header", f"X-User-ID: {user}"),
        *("--seed", "20261115", "--request-timeout", "30", "--no-color"),
    ]

    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=1200
    )

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    # Its warnings are about how much of what it made up was accepted, not about an answer.
    counted = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert counted, done.stdout[-3000:]
    assert int(counted[1]) == int(counted[2]) > 500
