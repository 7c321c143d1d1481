"""Files that are there whole or not at all."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deskhand.files import create_once, write_atomically


@pytest.mark.parametrize(
    ("mode", "expected"), [(0o600, 0o600), (0o664, 0o664), (None, 0o640)]
)
def test_a_file_has_its_mode_and_nothing_stays_beside_it(
    tmp_path: Path, mode: int | None, expected: int
) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", b"old", mode)
        write_atomically(tmp_path / "a", b"new", mode)
    finally:
        os.umask(before)

    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "a").stat().st_mode & 0o777 == expected
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path,
) -> None:
    write_atomically(tmp_path / "a", b"old")
    work = (
        "import resource, signal, sys; from pathlib import Path; from deskhand.files import write_atomically\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "write_atomically(Path(sys.argv[1]), b'x' * 1000)"
    )

    failed = subprocess.run(
        [sys.executable, "-c", work, str(tmp_path / "a")], capture_output=True, check=False
    )

    assert failed.returncode == 1
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_of_many_makers_one_makes_the_file_and_all_find_the_same(tmp_path: Path) -> None:
    def make(number: int) -> bytes:
        create_once(tmp_path / "key", str(number).encode())
        return (tmp_path / "key").read_bytes()

    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(make, range(40)))

    assert len(found) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
