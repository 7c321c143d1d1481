"""The notes server under 500 kills and thousands of concurrent writes: the hostile tests, at full length."""

import sys

import pytest


def main(argv: list[str]) -> int:
    chosen = [
        "tests/notes/test_disk.py",
        "tests/notes/test_editing.py",
        "tests/notes/test_paths.py::test_a_symlink_swapped_in_during_the_call_leads_nowhere",
    ]
    return pytest.main([*chosen, "--scale=13", "--timeout=1200", "-v", "-n0", *argv])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
