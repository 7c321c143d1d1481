"""Both commands on a system without what Windows lacks: one sentence, and no traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from deskhand import __version__
from deskhand.environment import NO_WINDOWS
from tests.requirements import requirement

ROOT = Path(__file__).parents[2]
# Python as it is on Windows: modules and names are missing that Linux and macOS have.
ON_WINDOWS = """
import os, socket, sys
sys.platform = "win32"
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in [each for each in dir(os) if each.startswith(("O_CLO", "O_DIR", "O_NOF", "O_NONB", "posix_"))]:
    delattr(os, name)
for name in ("fork", "getuid", "geteuid", "pread", "pwrite", "fchmod", "setsid"):
    delattr(os, name)
del socket.AF_UNIX
"""


def run_on_windows(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", ON_WINDOWS + program, *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@requirement("install:windows")
@pytest.mark.parametrize("command", [["up"], ["mcp", "desk"], ["status"], ["--help"], []])
def test_deskhand_says_on_windows_where_it_runs(command: list[str]) -> None:
    done = run_on_windows("from deskhand.__main__ import main; sys.exit(main())", *command)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", NO_WINDOWS)


@requirement("install:windows")
def test_what_can_work_on_windows_works() -> None:
    version = run_on_windows(
        "from deskhand.__main__ import main; sys.exit(main())", "--version"
    )
    assert (version.returncode, version.stdout) == (0, f"deskhand {__version__}\n")
    helped = run_on_windows(
        "from deskhand.agentmail import main; sys.exit(main())", "--help"
    )
    assert (helped.returncode, helped.stderr[:10]) == (0, "agentmail ")


@requirement("install:windows")
def test_agentmail_and_the_clone_say_it_too() -> None:
    mail = run_on_windows(
        "from deskhand.agentmail import main; sys.exit(main())", "send", "ann", "hello"
    )
    assert (mail.returncode, mail.stderr) == (1, NO_WINDOWS)
    clone = run_on_windows("import run; sys.exit(run.main(sys.argv[1:]))", "up")
    assert clone.returncode == 1
    assert clone.stderr.count("\n") == 1
    assert "WSL" in clone.stderr
