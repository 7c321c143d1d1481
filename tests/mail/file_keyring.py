"""A keyring that keeps its secrets in a JSON file, for processes of the tests."""

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked


class FileKeyring(KeyringBackend):
    priority = 1
    name = "the tests' keyring"

    @property
    def file(self) -> Path:
        return Path(os.environ["FILE_KEYRING"])

    def get_password(self, service: str, username: str) -> str | None:
        return self._secrets().get(f"{service}: {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self.file.write_text(
            json.dumps(self._secrets() | {f"{service}: {username}": password})
        )

    def _secrets(self) -> dict[str, str]:
        return json.loads(self.file.read_text()) if self.file.exists() else {}


class LockedKeyring(KeyringBackend):
    priority = 1
    name = "a locked keyring"

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked
