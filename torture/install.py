"""The built wheel, installed as people install programs: seconds, megabytes, and a demo that answers from each.

    python3 run.py torture install [--only pip|pipx|uv]

Each way starts in an empty folder with an empty cache. pipx and uv themselves are fetched before the clock starts.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from deskhand import __version__

ROOT = Path(__file__).resolve().parent.parent
SYSTEM_PYTHON = Path(sys.base_prefix) / "bin" / "python3"
WAYS = ("pip", "pipx", "uv")


def run(*command: str | Path, **variables: str) -> None:
    environment = clean_environment() | variables
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(
            f"failed: {' '.join(map(str, command))}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )


def clean_environment() -> dict[str, str]:
    """Without what belongs to this clone and to the desk of whoever runs this."""
    ours = ("DESKHAND_", "VIRTUAL_ENV", "PYTHONPATH", "VAULT_PATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def fetch_tool(way: str, place: Path) -> Path:
    """The installer itself, in a virtual environment of its own."""
    run(SYSTEM_PYTHON, "-m", "venv", place)
    if way != "pip":
        run(place / "bin" / "pip", "install", "--quiet", way)
    return place / "bin" / way


def install(way: str, tool: Path, wheel: Path, place: Path) -> Path:
    """The folder with the commands."""
    match way:
        case "pip":
            run(SYSTEM_PYTHON, "-m", "venv", place / "venv")
            run(
                place / "venv" / "bin" / "pip",
                "install",
                "--quiet",
                "--no-cache-dir",
                wheel,
            )
            return place / "venv" / "bin"
        case "pipx":
            folders = {
                "PIPX_HOME": str(place / "home"),
                "PIPX_BIN_DIR": str(place / "bin"),
                "PIP_NO_CACHE_DIR": "1",
            }
            run(tool, "install", "--quiet", "--python", SYSTEM_PYTHON, wheel, **folders)
        case _:
            folders = {
                "UV_TOOL_DIR": str(place / "home"),
                "UV_TOOL_BIN_DIR": str(place / "bin"),
            }
            cached = {
                "UV_CACHE_DIR": str(place / "cache"),
                "UV_LINK_MODE": "copy",
                "UV_SYSTEM_CERTS": "1",
            }
            run(
                tool,
                "tool",
                "install",
                "--quiet",
                "--python",
                SYSTEM_PYTHON,
                wheel,
                **folders,
                **cached,
            )
    return place / "bin"


def megabytes(place: Path) -> float:
    """Of what stays: a cache may go at any time."""
    files = (each for each in place.rglob("*") if each.is_file() and not each.is_symlink())
    return (
        sum(each.stat().st_size for each in files if (place / "cache") not in each.parents)
        / 1e6
    )


@contextmanager
def demo(commands: Path, place: Path):
    """A running demo: its address, and the seconds until /health answered."""
    began = time.perf_counter()
    environment = clean_environment() | {"HOME": str(place), "TMPDIR": str(place)}
    command = [commands / "deskhand", "up", "--demo", "--no-browser", "--json"]
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=place,
        text=True,
    ) as desk:
        assert desk.stdout
        told = json.loads(desk.stdout.readline())
        with urllib.request.urlopen(f"{told['address']}/health") as answer:
            health = json.load(answer)
        yield health, time.perf_counter() - began
        desk.send_signal(signal.SIGTERM)


def try_way(way: str, wheel: Path, place: Path) -> dict[str, str | float]:
    tool = fetch_tool(way, place / "tool")
    target = place / "target"
    target.mkdir()
    began = time.perf_counter()
    commands = install(way, tool, wheel, target)
    seconds = time.perf_counter() - began
    said = subprocess.run(
        [commands / "deskhand", "--version"], capture_output=True, text=True, check=True
    ).stdout
    helped = subprocess.run(
        [commands / "agentmail", "--help"], capture_output=True, text=True, check=True
    ).stderr
    size = megabytes(target)
    (place / "person").mkdir()
    with demo(commands, place / "person") as (health, until_health):
        pass
    works = (
        said == f"deskhand {__version__}\n"
        and helped.startswith("agentmail")
        and health == {"status": "ok"}
    )
    return {
        "way": way,
        "seconds": seconds,
        "megabytes": size,
        "demo_seconds": until_health,
        "works": works,
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=WAYS)
    options = parser.parse_args(argv)
    ways = [options.only] if options.only else list(WAYS)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(sys.executable, ROOT / "packaging" / "build.py", place / "dist")
        (wheel,) = (place / "dist").glob("*.whl")
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB")
        rows = [try_way(way, wheel, place / way) for way in ways]
    for row in rows:
        size = f"{row['seconds']:6.1f} s  {row['megabytes']:6.1f} MB"
        figures = f"{size}  demo answers after {row['demo_seconds']:4.1f} s"
        print(f"{row['way']:<5}{figures}{'' if row['works'] else '  DOES NOT WORK'}")
    return int(not all(row["works"] for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
