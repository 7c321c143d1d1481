"""The tasks at full length: schemathesis in all phases, the model, a hundred callers for half a minute, a restart."""

import sys

import pytest


def main(argv: list[str]) -> int:
    chosen = [
        f"tests/tasks/test_{name}.py" for name in ("load", "state_machine", "openapi")
    ]
    return pytest.main([*chosen, "--scale=11", "--timeout=2400", "-v", "-s", "-n0", *argv])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
