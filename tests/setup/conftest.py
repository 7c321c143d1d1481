"""Each test of this folder gets a new account on a machine."""

import os
from pathlib import Path

import pytest

from tests.setup.account import Account

FOREIGN = (
    "VAULT_PATH",
    "SERVICE_AUTH_TOKEN",
    "TMUX",
    "TMUX_PANE",
    "CODEX_HOME",
    "CLAUDE_CONFIG_DIR",
    "DEV_MODE",
)


@pytest.fixture
def account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Account:
    for name in list(os.environ):
        if name.startswith(("DESKHAND_", "XDG_")) or name in FOREIGN:
            monkeypatch.delenv(name)
    folder, vault = tmp_path / "person", tmp_path / "person" / "vault"
    vault.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("DESKHAND_HOME", str(folder / "desk"))
    return Account(folder, folder / "desk", vault, capsys)
