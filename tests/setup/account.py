"""A person's account on a machine: an empty home folder, a vault, and the deskhand command."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deskhand.cli import main


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Account:
    folder: Path
    home: Path
    vault: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def own(self) -> Path:
        """Where the desk's own folders lie in a vault that is new to it."""
        return self.vault / "Deskhand"

    def deskhand(self, *arguments: object) -> Done:
        """Run the command in this process."""
        self.capsys.readouterr()
        try:
            code = main([str(each) for each in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        said = self.capsys.readouterr()
        return Done(code, said.out, said.err)

    def set_up(self, *more: str) -> Done:
        done = self.deskhand(
            "init", "--vault", self.vault, "--address", "me@example.com", "--yes", *more
        )
        assert done.code == 0, done.err
        return done
