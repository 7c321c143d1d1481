"""The program as a copy that root owns: interpreter, packages and commands of the running installation.

Neither the clone nor the person's own environment is used by what runs from it, and no network is needed.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import deskhand
from deskhand.errors import Unavailable

_EXTRAS = frozenset({"documents", "notify", "postgresql"})
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_REQUIREMENT = re.compile(r"\s*([\w.-]+)\s*(?:\[([^\]]*)\])?[^;]*(?:;(.*))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_COMMANDS = {"deskhand": "deskhand.__main__", "agentmail": "deskhand.agentmail"}
_NOT_NEEDED = shutil.ignore_patterns(
    "__pycache__", "site-packages", "test", "idlelib", "ensurepip", "config-*", "*.a"
)


def copy_program(target: Path, record: tuple[str, bytes]) -> None:
    """Put the program at `target`, with a file beside it; what was there before goes in one step."""
    staged = target.with_name(f".{target.name}.new")
    old = target.with_name(f".{target.name}.old")
    for leftover in (staged, old):
        shutil.rmtree(leftover, ignore_errors=True)
    packages = staged / "lib" / _VERSION / "site-packages"
    packages.mkdir(parents=True)
    (staged / "bin").mkdir()
    python = _find_python() or _copy_python(staged, target)
    (staged / "bin" / "python").symlink_to(python)
    (staged / "pyvenv.cfg").write_text(
        f"home = {python.parent}\ninclude-system-site-packages = false\n"
    )
    for found in _closure("deskhand", _EXTRAS):
        _copy_distribution(found, packages)
    shutil.copytree(
        Path(deskhand.__file__).parent,
        packages / "deskhand",
        ignore=_NOT_NEEDED,
        dirs_exist_ok=True,
    )
    for name, module in _COMMANDS.items():
        text = f"#!{target}/bin/python -I\nimport sys\nfrom {module} import main\nsys.exit(main())\n"
        (staged / "bin" / name).write_text(text)
        (staged / "bin" / name).chmod(0o755)
    (staged / record[0]).write_bytes(record[1])
    _give_to_root(staged)
    if target.exists():
        target.rename(old)
    staged.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    compiled = [
        str(target / "bin" / "python"),
        "-I",
        "-m",
        "compileall",
        "-q",
        str(target / "lib"),
    ]
    subprocess.run(compiled, check=False, capture_output=True)


def writable_parts(place: Path) -> list[Path]:
    """What of the program somebody else than root could change."""
    if not place.is_dir():
        return []
    inside = (
        Path(folder) / name
        for folder, folders, files in os.walk(place)
        for name in (*folders, *files)
    )
    return [path for path in (*place.parents, place, *inside) if not _is_roots(path)]


def _is_roots(path: Path) -> bool:
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        return info.st_uid == 0
    return info.st_uid == 0 and not info.st_mode & _WRITABLE


def _find_python() -> Path | None:
    """An interpreter of this version that others may start and only root can change."""
    running = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    for named in (running, f"/usr/bin/{_VERSION}", f"/usr/local/bin/{_VERSION}"):
        path = Path(named)
        if path.exists() and all(_is_for_all(each) for each in (path, *path.parents)):
            return path
    return None


def _is_for_all(path: Path) -> bool:
    return _is_roots(path) and bool(path.stat().st_mode & stat.S_IXOTH)


def _copy_python(staged: Path, target: Path) -> Path:
    """Where the only interpreter lies in somebody's home: a copy of it."""
    base = Path(sys.base_prefix)
    own = staged / "python"
    (own / "bin").mkdir(parents=True)
    shutil.copy2(base / "bin" / _VERSION, own / "bin" / _VERSION)
    shutil.copytree(base / "lib" / _VERSION, own / "lib" / _VERSION, ignore=_NOT_NEEDED)
    for library in (base / "lib").glob("libpython*"):
        shutil.copy2(library, own / "lib" / library.name)
    return target / "python" / "bin" / _VERSION


def _closure(
    name: str, extras: Iterable[str], seen: set[str] | None = None
) -> Iterator[Distribution]:
    """The distribution and all that it needs and that is there: what is not there is for other machines."""
    seen = set() if seen is None else seen
    wanted = frozenset(extras)
    key = f"{re.sub('[-_.]+', '-', name).lower()} {sorted(wanted)}"
    if key in seen:
        return
    seen.add(key)
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return
    yield found
    for line in found.requires or ():
        if needed := _REQUIREMENT.match(line):
            extra = _EXTRA.search(needed[3] or "")
            if extra is None or extra[1] in wanted:
                more = [
                    each.strip() for each in (needed[2] or "").split(",") if each.strip()
                ]
                yield from _closure(needed[1], more, seen)


def _copy_distribution(found: Distribution, packages: Path) -> None:
    if found.files is None:
        hint = "install deskhand with pip, pipx or uv, and run it from there"
        raise Unavailable(f"nobody knows which files {found.name} consists of", hint=hint)
    for file in found.files:
        is_outside = ".." in file.parts or file.is_absolute()
        if is_outside or file.suffix in (".pyc", ".pth"):
            continue
        source = Path(str(found.locate_file(file)))
        if source.is_file():
            place = packages / file
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)


def _give_to_root(place: Path) -> None:
    """Everybody may read and start it, root alone may change it, whatever the umask was."""
    for folder, folders, files in os.walk(place):
        for name in (*folders, *files, "."):
            path = Path(folder) / name
            os.chown(path, 0, 0, follow_symlinks=False)
            if not path.is_symlink():
                runs = path.is_dir() or bool(path.stat().st_mode & stat.S_IXUSR)
                path.chmod(0o755 if runs else 0o644)
