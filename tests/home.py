"""A desk's folders, and the token that its servers ask for."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.warm import warm_python

TOKEN = "a-token-for-tests"


@dataclass(frozen=True)
class Home:
    """A desk's folders and the environment that leads to them."""

    vault: Path
    environment: dict[str, str]

    @property
    def path(self) -> Path:
        return Path(self.environment["DESKHAND_HOME"])

    def command(
        self, *arguments: str, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `deskhand ARGUMENTS` as a person would."""
        return subprocess.run(
            [warm_python(), "-m", "deskhand", *arguments],
            env=self.environment | variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
