#!/usr/bin/env python3
"""Deskhand from a clone: the first call builds .venv here, every later one starts at once.

python3 run.py test              format, lint, types, import contracts, tests and what the tests reach
python3 run.py test ARGS         the same with ARGS for pytest, which choose some of the tests
python3 run.py bench [NAME]      measure, in ratios against named peers
python3 run.py torture [NAME]    kill, fill and race it for longer than a test run may take
python3 run.py reference         write docs/reference/ from the code; --check says what is stale
python3 run.py build [FOLDER]    wheel, sdist and bill of materials, into dist/
python3 run.py lock              renew locks/ from pyproject.toml
python3 run.py ANYTHING ELSE     goes to the deskhand command (up --demo, mcp obsidian, --help, ...)
"""

import ast
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
JUDGES = ROOT / ".judges"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
# What is installed together, and how uv exports it to locks/NAME.lock: the desk, its extras, and all the rest.
SETS = {
    "desk": ["--no-dev", "--group", "build"],
    "postgresql": ["--no-dev", "--extra", "postgresql"],
    "notify": ["--no-dev", "--extra", "notify"],
    "documents": ["--no-dev", "--extra", "documents"],
    "dev": ["--all-extras"],
}
# What is looked at before a test runs, on two cores. What mypy remembers is for one platform: each has a place for it.
CHECKS = [
    [["mypy"]],
    [
        ["ruff", "format", "--check", "--quiet", "."],
        ["ruff", "check", "--quiet", "."],
        ["lint-imports"],
        ["mypy", "--platform", "darwin", "--cache-dir", ".mypy_cache/darwin", "src"],
    ],
]
# The tests that show each line and branch of audit, gate and store. They run measured, which takes them nearly twice
# as long; the others need not.
MEASURED = [
    "tests/gate",
    "tests/test_audit.py",
    "tests/test_faults.py",
    "tests/test_store.py",
]
# It makes this machine's desk a guarded one for a while, which every other test would notice: it runs before them.
ALONE = "tests/setup/test_guarded.py"
ROOM_IN_MEMORY = 2_000_000_000
# One more than the two cores it has to do with: much of the time a test waits for a clock or another process.
WORKERS = ["-n", "3", "--dist", "worksteal"]
# Programs that some tests or benches drive, and the Debian packages that bring them.
SYSTEM_PACKAGES = {
    "strace": "strace",
    "rg": "ripgrep",
    "tmux": "tmux",
    "dovecot": "dovecot-imapd",
    "chromium": "chromium fonts-liberation",
    "nginx": "nginx-light",
    "zbarimg": "zbar-tools",
    "zsh": "zsh",
    "fish": "fish",
    "setfacl": "acl",
    "systemd-analyze": "systemd",
}
TEST_PROGRAMS = (
    "strace",
    "tmux",
    "dovecot",
    "chromium",
    "nginx",
    "zbarimg",
    "zsh",
    "fish",
    "setfacl",
)
# Mail servers that some tests run against: unpacked, not installed, because Debian lets none of them be beside another.
SERVER_PACKAGES = (
    "courier-imap",
    "cyrus-imapd",
    "sasl2-bin",
    "postfix",
    "exim4-daemon-light",
)
# Foreign judges of the servers, the bundle and the page. Some need Node 22, which comes as a package as well.
NODE_PACKAGES = (
    "node@22",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/client@2.4.0",
    "@anthropic-ai/mcpb@2.1.2",
    "axe-core@4.14.0",
    "http_ece@1.2.1",
)


def main(argv):
    if sys.version_info < (3, 11):
        sys.exit(f"Deskhand needs Python 3.11 or newer; this is {sys.version.split()[0]}.")
    if sys.platform == "win32":
        sys.exit("Deskhand runs on Linux and macOS; on Windows run this inside WSL.")
    match argv:
        case ["test", *rest]:
            set_up(SETS)
            return test(rest)
        case ["bench" | "torture" as kind, *rest]:
            set_up(SETS)
            return long_run(kind, rest)
        case ["reference", *rest]:
            set_up(SETS)
            return subprocess.run(
                [BIN / "python", ROOT / "docs" / "write_reference.py", *rest], check=False
            ).returncode
        case ["build", *rest]:
            set_up(["desk"])
            return subprocess.run(
                [BIN / "python", ROOT / "packaging" / "build.py", *rest], check=False
            ).returncode
        case ["lock"]:
            return lock()
        case _:
            set_up(["desk", *extras()])
            os.execv(BIN / "deskhand", ["deskhand", *argv])


def extras():
    """What reads attachments, and what this desk's own options ask for, in the environment or in its config.toml."""
    yield "documents"
    sys.path.insert(0, str(ROOT / "src"))
    from deskhand import environment

    options = {}
    with contextlib.suppress(
        ValueError
    ):  # a file that cannot be read is the desk's to complain about
        options = environment.read_config(environment.config_file(os.environ))
    database = os.environ.get("DESKHAND_DATABASE_URL") or options.get("database_url")
    if str(database).startswith("postgres"):
        yield "postgresql"
    if os.environ.get("DESKHAND_NOTIFY") or options.get("inbox.notify"):
        yield "notify"


def set_up(names):
    """Install into .venv what is not there yet; a .venv that was made from other files is made again."""
    names = list(names)
    if all(map(is_installed, names)):
        return
    import fcntl

    with (ROOT / ".venv.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if not is_installed("desk"):
            say("setting up .venv (once)")
            names += [name for name in SETS if stamp(name).is_file() and name not in names]
            # No ensurepip: a bare Debian does not have it.
            venv.EnvBuilder(with_pip=False, clear=True, symlinks=True).create(VENV)
        if missing := [name for name in names if not is_installed(name)]:
            install(missing)


def is_installed(name):
    return stamp(name).is_file() and stamp(name).read_text() == fingerprint(name)


def stamp(name):
    return VENV / f"{name}.stamp"


def fingerprint(name):
    files = [locked(name), locked("installer"), ROOT / "pyproject.toml"]
    content = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(content + f"{ROOT} {sys.version}".encode()).hexdigest()


def locked(name):
    return ROOT / "locks" / f"{name}.lock"


def install(names):
    """With uv where it works; pip is slower, but knows the mirror, proxy and certificates of its own configuration."""
    say(f"installing from locks/: {', '.join(names)}")
    python = str(BIN / "python")
    requirements = ["--require-hashes"]
    for name in SETS:
        if name in names or is_installed(
            name
        ):  # a package that is there must have its hash too
            requirements += ["-r", str(locked(name))]
    with uv_for_now() as uv:
        # The machine's own certificates: behind a proxy that opens TLS, those that uv brings do not hold.
        installer = [uv, "pip", "install", "--quiet", "--system-certs", "--python", python]
        if not uv or subprocess.run([*installer, *requirements], check=False).returncode:
            say("uv cannot install here; pip does it, which takes a minute or two")
            installer = [*PIP[:-1], "--python", python, "install"]
            check([*installer, *requirements])
        if "desk" in names:
            check([*installer, "--no-deps", "--no-build-isolation", "-e", str(ROOT)])
    for name in names:
        stamp(name).write_text(fingerprint(name))
    say("done; where documents and hints say `deskhand`, type `python3 run.py` here")


@contextlib.contextmanager
def uv_for_now():
    """The path of uv in a folder that is removed at the end; None where it cannot be had. A desk does not need it."""
    with tempfile.TemporaryDirectory() as folder:
        hashed = ["--require-hashes", "-r", str(locked("installer"))]
        done = subprocess.run(
            [*PIP, "--root-user-action=ignore", "--target", folder, *hashed], check=False
        )
        yield None if done.returncode else str(Path(folder) / "bin" / "uv")


def test(arguments):
    steps = [["pytest", *arguments]] if arguments else whole_run()
    with folder_in_memory() as environment:
        # It looks at all tests to find this one: what it compiles, no worker need compile again.
        alone = [] if arguments else [["pytest", "-k", Path(ALONE).name]]
        return look_and_gather(alone, environment) or run_steps(steps, environment)


def look_and_gather(alone, environment):
    """Packages come from far away: meanwhile the machine looks at the code, and runs what must run alone."""
    with ThreadPoolExecutor() as pool:
        coming = [pool.submit(install_judges)]
        looking = [pool.submit(run_steps, steps) for steps in CHECKS]
        install_system_packages(TEST_PROGRAMS)
        coming.append(pool.submit(unpack_servers))
        failed = [run_steps(alone, environment), *(each.result() for each in looking)]
    for packages in coming:
        packages.result()
    return next(filter(None, failed), 0)


def run_steps(steps, environment=None):
    """Each in its turn, up to the first that fails: its exit code, else 0."""
    variables = os.environ | (environment or {})
    # Hundreds of processes start here: what one of them has compiled, the next ones need not.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    for step in steps:
        say(" ".join(step))
        done = subprocess.run(
            [BIN / step[0], *step[1:]], cwd=ROOT, env=variables, check=False
        )
        if done.returncode:
            return done.returncode
    return 0


@contextlib.contextmanager
def folder_in_memory():
    """Where the tests put their files, if there is room: on a disk they would mostly wait until it has them."""
    memory = Path("/dev/shm")
    if (
        "TMPDIR" in os.environ
        or not os.access(memory, os.W_OK)
        or shutil.disk_usage(memory).free < ROOM_IN_MEMORY
    ):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="deskhand-tests-", dir=memory) as folder:
        # As root PostgreSQL runs as another user, who must get in.
        Path(folder).chmod(0o755)
        yield {"TMPDIR": folder}


def whole_run():
    """All other tests; what the measured ones reach is reported, and pyproject.toml says how much it must be."""
    return [
        ["coverage", "erase"],
        ["coverage", "run", "-m", "pytest", *WORKERS, *MEASURED],
        ["coverage", "combine", "--quiet"],
        ["coverage", "report"],
        ["pytest", *WORKERS, *(f"--ignore={path}" for path in [*MEASURED, ALONE])],
    ]


def long_run(kind, arguments):
    """Each file bench/NAME.py or torture/NAME.py is a program; without a name all of them run."""
    programs = [
        path.stem
        for path in sorted((ROOT / kind).glob("*.py"))
        if "def main(" in path.read_text()
    ]
    if arguments and arguments[0] in ("-h", "--help"):
        for name in programs:
            print(f"python3 run.py {kind} {name:14}{first_sentence(ROOT / kind / name)}")
        return 0
    install_system_packages(
        [
            "rg",
            "strace",
            "tmux",
            "dovecot",
            "chromium",
            "nginx",
            "setfacl",
            "systemd-analyze",
        ]
    )
    install_judges()
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


def first_sentence(program):
    text = ast.get_docstring(ast.parse(program.with_suffix(".py").read_text()))
    return " ".join(text.split("\n\n")[0].split())


def install_system_packages(programs):
    """Only as root on Debian; elsewhere the tests that miss a program say so and are skipped."""
    missing = [
        package
        for program in programs
        if not shutil.which(program)
        for package in SYSTEM_PACKAGES[program].split()
    ]
    if not missing or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    say(f"installing {' '.join(missing)}")
    quiet = {"check": False, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["apt-get", "update", "-qq"], **quiet)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    # Without what Chromium recommends: printers, Ghostscript and a newer systemd take most of a minute.
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    subprocess.run(install, env=environment, **quiet)


def unpack_servers():
    """The packages with what they need and this machine lacks, into .judges/servers."""
    place = JUDGES / "servers"
    if place.exists() or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    say(f"unpacking {' '.join(SERVER_PACKAGES)} (once)")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True)
        fetch = [
            "apt-get",
            "install",
            "-y",
            "-qq",
            "--download-only",
            "--no-install-recommends",
        ]
        for package in SERVER_PACKAGES:
            command = [*fetch, "-o", f"Dir::Cache::Archives={folder}", package]
            subprocess.run(command, check=False, capture_output=True, timeout=300)
        for archive in sorted(Path(folder).glob("*.deb")):
            place.mkdir(parents=True, exist_ok=True)
            subprocess.run(["dpkg", "-x", archive, place], check=False, capture_output=True)
    # Some packages have libraries in /lib, which on the machine is a link into /usr.
    for name in ("bin", "lib", "sbin"):
        if (place / name).is_dir():
            shutil.copytree(
                place / name, place / "usr" / name, symlinks=True, dirs_exist_ok=True
            )


def install_judges():
    stamp = JUDGES / "stamp"
    if not shutil.which("npm") or (
        stamp.is_file() and stamp.read_text() == " ".join(NODE_PACKAGES)
    ):
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
        done = subprocess.run(
            [*command, *NODE_PACKAGES], check=False, timeout=300, capture_output=True
        )
        if done.returncode == 0:
            stamp.write_text(" ".join(NODE_PACKAGES))


def lock():
    """A hashed export names no host, so it installs through any mirror. What one lock names, no later one repeats."""
    with uv_for_now() as uv:
        check([uv, "--quiet", "lock", "--upgrade"], cwd=ROOT)
        known = set()
        for name, options in {"installer": ["--only-group", "installer"], **SETS}.items():
            export = [
                uv,
                "--quiet",
                "export",
                "--frozen",
                "--no-emit-project",
                "--no-header",
                "--no-annotate",
                *options,
            ]
            exported = subprocess.run(
                export, cwd=ROOT, check=True, capture_output=True, text=True
            ).stdout
            packages = re.split(r"\n(?=\S)", exported.strip())
            locked(name).write_text(
                "".join(f"{package}\n" for package in packages if package not in known)
            )
            known.update(packages)
    (ROOT / "uv.lock").unlink()
    return 0


def check(command, **kwargs):
    if subprocess.run(command, check=False, **kwargs).returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")


def say(text):
    print(f"· {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
