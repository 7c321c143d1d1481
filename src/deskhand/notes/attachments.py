"""Files of the vault that are no notes: found as a note names them."""

import os
import posixpath
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from deskhand.errors import DeskError
from deskhand.notes import paths, walk
from deskhand.notes.links import name_key


def find(root: Path, targets: Iterable[str], holder: str) -> dict[str, str]:
    """Where the files are that a note names: beside it, at that path of the vault, else nearest to the top."""
    found: dict[str, str] = {}
    missing: dict[str, list[str]] = {}
    for target in targets:
        near = posixpath.normpath(posixpath.join(posixpath.dirname(holder), target))
        there = _canonical(root, near) or _canonical(root, target.lstrip("/"))
        if there:
            found[target] = there
        elif not target.startswith(("./", "../", "/")):
            missing.setdefault(name_key(posixpath.basename(target)), []).append(target)
    for path in _every_file(root) if missing else ():
        for target in missing.get(name_key(posixpath.basename(path)), ()):
            if f"/{name_key(path)}".endswith(f"/{name_key(target)}"):
                found.setdefault(target, path)
    return found


def _canonical(root: Path, path: str) -> str | None:
    """The path with its folders as they are on the disk, where a file is there."""
    try:
        names = paths.file_path(path)
        with paths.opened(root, names[:-1]) as (folder, found):
            if stat.S_ISREG(
                os.stat(names[-1], dir_fd=folder, follow_symlinks=False).st_mode
            ):
                return "/".join((*found, names[-1]))
    except (DeskError, FileNotFoundError):
        pass  # no path of this vault, or not there
    return None


def _every_file(root: Path) -> Iterator[str]:
    """Every file of the vault, those nearest to the top first."""
    with walk.open_root(root) as opened:
        level = [""]
        while level:
            deeper: list[str] = []
            for folder in sorted(level):
                yield from sorted(_entries(opened, folder, deeper))
            level = deeper


def _entries(root: walk.Root, folder: str, folders: list[str]) -> list[str]:
    """The files of a folder; its folders are added to `folders`."""
    files: list[str] = []
    try:
        with os.scandir(root.reach(folder)) as entries:
            for entry in entries:
                path = posixpath.join(folder, entry.name)
                if not walk.is_visible(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                elif entry.is_file(follow_symlinks=False):
                    files.append(path)
    except OSError:
        return []  # gone, replaced by a link or not ours to read
    return files
