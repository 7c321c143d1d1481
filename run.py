#!/usr/bin/env python3
"""Deskhand from a clone: the first call builds .venv here, every later one starts at once.

python3 run.py test [ARGS]       format, lint, types, import contracts and tests (ARGS go to pytest)
python3 run.py bench [NAME]      measure, in ratios against named peers
python3 run.py torture [NAME]    kill, fill and race it for longer than a test run may take
python3 run.py reference         write docs/reference/ from the code; --check says what is stale
python3 run.py lock              renew requirements.lock from pyproject.toml
python3 run.py ANYTHING ELSE     goes to the deskhand command (up --demo, mcp obsidian, --help, ...)
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
LOCK = ROOT / "requirements.lock"
JUDGES = ROOT / ".judges"
UV = "uv==0.13.7"
# Programs that some tests or benches drive, and the Debian packages that bring them.
SYSTEM_PACKAGES = {
    "strace": "strace",
    "rg": "ripgrep",
    "tmux": "tmux",
    "dovecot": "dovecot-imapd",
    "chromium": "chromium",
    "zsh": "zsh",
    "fish": "fish",
}
# Foreign judges of the servers, the bundle and the page. Some need Node 22, which comes as a package as well.
NODE_PACKAGES = (
    "node@22",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/client@2.4.0",
    "@anthropic-ai/mcpb@2.1.2",
    "axe-core@4.14.0",
)


def main(argv):
    if sys.version_info < (3, 11):
        sys.exit(f"Deskhand needs Python 3.11 or newer; this is {sys.version.split()[0]}.")
    set_up()
    match argv:
        case ["test", *rest]:
            return test(rest)
        case ["bench" | "torture" as kind, *rest]:
            return long_run(kind, rest)
        case ["reference", *rest]:
            return subprocess.run([BIN / "python", ROOT / "docs" / "write_reference.py", *rest], check=False).returncode
        case ["lock"]:
            return lock()
        case _:
            os.execv(BIN / "deskhand", ["deskhand", *argv])


def set_up():
    """Build .venv unless the one that is there was made from these very files."""
    wanted = hashlib.sha256(LOCK.read_bytes() + (ROOT / "pyproject.toml").read_bytes() + str(ROOT).encode())
    wanted.update(f"{UV} {sys.version}".encode())
    stamp = VENV / "deskhand.stamp"
    if stamp.is_file() and stamp.read_text() == wanted.hexdigest():
        return
    with (ROOT / ".venv.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if stamp.is_file() and stamp.read_text() == wanted.hexdigest():
            return
        say("setting up .venv (once)")
        # No ensurepip: a bare Debian does not have it.
        venv.EnvBuilder(with_pip=False, clear=True, symlinks=True).create(VENV)
        install()
        stamp.write_text(wanted.hexdigest())


def install():
    """With uv where it works; pip is slower, but knows the mirror, proxy and certificates of its own configuration."""
    python = str(BIN / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "-q", "install"]
    locked = ["--require-hashes", "-r", str(LOCK)]
    say("installing what requirements.lock names")
    # The machine's own certificates: behind a proxy that opens TLS, those that uv brings do not hold.
    uv = [str(BIN / "uv"), "pip", "install", "--quiet", "--system-certs", "--python", python]
    by_uv = not subprocess.run([*pip, UV], check=False).returncode
    by_uv = by_uv and not subprocess.run([*uv, *locked], check=False).returncode
    if not by_uv:
        say("uv cannot install here; pip does it, which takes a minute or two")
        check([*pip, *locked])
    check([*(uv if by_uv else pip), "--no-deps", "--no-build-isolation", "-e", str(ROOT)])
    say("done; where documents and hints say `deskhand`, type `python3 run.py` here")


def test(arguments):
    install_system_packages(["strace", "tmux", "dovecot", "chromium", "zsh", "fish"])
    install_judges()
    steps = [
        ["ruff", "format", "--check", "--quiet", "."],
        ["ruff", "check", "--quiet", "."],
        ["mypy"],
        ["lint-imports"],
        ["pytest", *(arguments or ["-n", "2"])],
    ]
    for step in steps:
        say(" ".join(step))
        done = subprocess.run([BIN / step[0], *step[1:]], cwd=ROOT, check=False)
        if done.returncode:
            return done.returncode
    return 0


def long_run(kind, arguments):
    """Each file bench/NAME.py or torture/NAME.py is a program; without a name all of them run."""
    install_system_packages(["rg", "strace", "tmux", "dovecot", "chromium"])
    install_judges()
    programs = [path.stem for path in sorted((ROOT / kind).glob("*.py")) if "def main(" in path.read_text()]
    names = [arguments[0]] if arguments and not arguments[0].startswith("-") else programs
    flags = arguments[1:] if arguments and not arguments[0].startswith("-") else arguments
    unknown = [name for name in names if name not in programs]
    if unknown:
        sys.exit(f"no {kind} named {unknown[0]}; there are: {', '.join(programs)}")
    worst = 0
    for name in names:
        say(f"{kind} {name}")
        command = [BIN / "python", "-m", f"{kind}.{name}", *flags]
        worst = max(worst, subprocess.run(command, cwd=ROOT, check=False).returncode)
    return worst


def install_system_packages(programs):
    """Only as root on Debian; elsewhere the tests that miss a program say so and are skipped."""
    missing = [SYSTEM_PACKAGES[program] for program in programs if not shutil.which(program)]
    if not missing or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    say(f"installing {' '.join(missing)}")
    quiet = {"check": False, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["apt-get", "update", "-qq"], **quiet)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "install", "-y", "-qq", *missing], env=environment, **quiet)


def install_judges():
    stamp = JUDGES / "stamp"
    if not shutil.which("npm") or (stamp.is_file() and stamp.read_text() == " ".join(NODE_PACKAGES)):
        return
    say("installing the judges from npm (once)")
    JUDGES.mkdir(exist_ok=True)
    command = [
        "npm",
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--no-package-lock",
        "--prefix",
        JUDGES,
    ]
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run([*command, *NODE_PACKAGES], check=False, timeout=300, capture_output=True)
        if done.returncode == 0:
            stamp.write_text(" ".join(NODE_PACKAGES))


def lock():
    """A hashed export names no host, so it installs through any mirror."""
    uv = [str(BIN / "uv"), "--quiet"]
    check([*uv, "lock", "--upgrade"], cwd=ROOT)
    export = [*uv, "export", "--frozen", "--no-emit-project", "--all-groups", "--all-extras", "--no-header"]
    exported = subprocess.run(export, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    (ROOT / "uv.lock").unlink()
    LOCK.write_text(re.sub(r"^ +# via.*\n(?: +#.*\n)*", "", exported, flags=re.MULTILINE))
    return 0


def check(command, **kwargs):
    if subprocess.run(command, check=False, **kwargs).returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")


def say(text):
    print(f"· {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
