"""`run.py`, as far as it can be tried without building another .venv."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def run() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run", ROOT / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("config", "variables", "expected"),
    [
        ("", {}, []),
        ('database_url = "sqlite:////tmp/desk.db"\n', {}, []),
        ('database_url = "postgresql://db/desk"\n', {}, ["postgresql"]),
        ('database_url = "postgresql://db/desk"\n', {"DESKHAND_DATABASE_URL": "sqlite:////tmp/desk.db"}, []),
        ("", {"DESKHAND_DATABASE_URL": "postgres://db/desk"}, ["postgresql"]),
        ('[inbox]\nnotify = "ntfy://topic"\n', {}, ["notify"]),
        ("", {"DESKHAND_NOTIFY": "ntfy://topic"}, ["notify"]),
        ("this is no TOML", {}, []),
    ],
)
def test_a_clone_installs_the_extras_that_the_desks_options_ask_for(
    run: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: str,
    variables: dict[str, str],
    expected: list[str],
) -> None:
    (tmp_path / "config.toml").write_text(config)
    monkeypatch.delenv("DESKHAND_DATABASE_URL", raising=False)
    monkeypatch.delenv("DESKHAND_NOTIFY", raising=False)
    for name, value in {"DESKHAND_HOME": str(tmp_path), **variables}.items():
        monkeypatch.setenv(name, value)

    assert list(run.extras()) == expected
