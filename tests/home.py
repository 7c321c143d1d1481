"""A desk's folders, and the token that its servers ask for."""

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from deskhand.store.sqlite import migrate
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

    def make_database(self) -> None:
        """The file that the desk would make: to copy one takes a fiftieth of the time."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = self.path / "desk.db"
        file.touch(mode=0o600)
        file.write_bytes(_new_database())

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


@cache
def _new_database() -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "desk.db"
        migrate(str(file))
        return file.read_bytes()
