"""`run.py`, as far as it can be tried without building another .venv."""

import importlib.util
import os
import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
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
        (
            'database_url = "postgresql://db/desk"\n',
            {"DESKHAND_DATABASE_URL": "sqlite:////tmp/desk.db"},
            [],
        ),
        ("", {"DESKHAND_DATABASE_URL": "postgres://db/desk"}, ["postgresql"]),
        ('[inbox]\nnotify = "ntfy://topic"\n', {}, ["notify"]),
        ("", {"DESKHAND_NOTIFY": "ntfy://topic"}, ["notify"]),
        ("this is no TOML", {}, []),
    ],
)
def test_a_clone_reads_attachments_and_installs_the_extras_that_the_desks_options_ask_for(
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

    assert list(run.extras()) == ["documents", *expected]


def test_a_false_package_index_runs_nothing(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = re.search(r"^uv==(\S+)", run.locked("installer").read_text(), re.MULTILINE)
    assert version is not None
    wheel = tmp_path / "uv" / f"uv-{version[1]}-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("uv/__init__.py", "")
        made.writestr(
            f"uv-{version[1]}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: uv\nVersion: {version[1]}\n",
        )
        made.writestr(
            f"uv-{version[1]}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        made.writestr(f"uv-{version[1]}.dist-info/RECORD", "")
    (wheel.parent / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path)
    )
    with server, ThreadPoolExecutor() as serving:
        serving.submit(server.serve_forever)
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        with run.uv_for_now() as uv:
            server.shutdown()

    assert uv is None


def test_the_tests_put_their_files_into_memory_where_there_is_room(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(run, "ROOM_IN_MEMORY", 1)
    with run.folder_in_memory() as environment:
        assert (
            not environment or Path(environment["TMPDIR"]).stat().st_mode & 0o777 == 0o755
        )
    monkeypatch.setattr(run, "ROOM_IN_MEMORY", 2**60)
    with run.folder_in_memory() as environment:
        assert environment == {}
