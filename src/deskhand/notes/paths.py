"""Names inside the vault: which are allowed, and how to reach one without being led astray.

A path is walked folder by folder with file descriptors and O_NOFOLLOW, so that neither a symlink that is there
nor one that is swapped in during the call leads out of the vault or into a protected folder.
"""

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from deskhand.durable import sync
from deskhand.errors import (
    Denied,
    FieldProblem,
    InvalidInput,
    NotFound,
    VaultClosed,
    printable,
)
from deskhand.files import private_mode
from deskhand.notes.folders import DASHBOARD, FOLDERS
from deskhand.notes.root import has_same_letters, is_shut, loose, open_folder
from deskhand.unseen import reads_as

PROTECTED = frozenset(
    {"Approved", "Rejected", "Pending_Approval", "Drafts", "Done", "Logs", DASHBOARD}
)
"""What only a person and the desk's own code may change, at the top of the vault."""

_ALIKE = str.maketrans("|i", "ll")
_AS_READ = str.maketrans({"\u017f": "\u0192", "\ufb05": "\u0192t", "\u2017": "_"})
"""What Unicode takes for another letter than a reader does: a long s is an s, and looks like an f."""
_SLASHES = re.compile("[/\u2044\u2215\u29f8\u27cb\u2571\u3033\u30ce\u4e3f\u2f03]")
"""What a reader takes for the end of a folder's name."""
_BETWEEN = frozenset({"Pc", "Pd", "Zs"})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME_BYTES = 255
_DEPTH = 64


def note_path(path: str, field: str = "path") -> tuple[str, ...]:
    """The folder names and the file name of a note's path."""
    names = _names(path, field)
    if not names[-1].lower().endswith(".md"):
        raise InvalidInput(
            f"{printable(path)!r} does not name a note",
            fields=[
                FieldProblem(
                    field,
                    "a note's path ends in .md",
                    printable(path),
                    f"{printable(path)}.md",
                )
            ],
        )
    return names


def file_path(path: str) -> tuple[str, ...]:
    """The folder names and the file name of a path to a file of any kind."""
    return _names(path, "path")


def folder_path(path: str) -> tuple[str, ...]:
    """The folder names of a directory's path; the vault itself is `` or `.`."""
    if path in ("", "."):
        return ()
    # A slash alone is the machine's own root, which is no folder of the vault.
    return _names(path if path == "/" else path.removesuffix("/"), "directory")


Inside = tuple[str, ...] | None
"""The folder of a vault in which the desk's own folders lie, if they lie in one; None where it has none of them."""


def deny_protected(names: tuple[str, ...], inside: Inside = ()) -> None:
    """No tool changes what a person decides by or looks at, nor makes what could be taken
    for something of the desk."""
    if inside is None:
        return
    if inside:
        if resembled(names[0], inside[:1]) is None:
            return
        if loose(names[0]) != loose(inside[0]):
            raise _closed(names, f"{printable(names[0])} could be taken for {inside[0]}")
        names = names[1:] or names
    folder = resembled(names[0], (*FOLDERS, DASHBOARD))
    if folder is None or (folder not in PROTECTED and loose(names[0]) == loose(folder)):
        return
    if folder in PROTECTED:
        raise _closed(
            names,
            f"{printable(names[0])} is changed by the person and the desk, not by tools",
        )
    raise _closed(names, f"{printable(names[0])} could be taken for {folder}")


def _closed(names: tuple[str, ...], why: str) -> Denied:
    hint = "leave it to the person, or choose another name"
    return Denied(why, reason="protected", hint=hint, path="/".join(names))


def resembled(name: str, own: tuple[str, ...] = FOLDERS) -> str | None:
    """The folder of the desk, or what else is its own, that this name is, or that a person could take it for."""
    seen = skeleton(_SLASHES.split(name, maxsplit=1)[0])
    return next((folder for folder in own if _reads_like(seen, skeleton(folder))), None)


def _reads_like(seen: str, folder: str) -> bool:
    return _is_taken_for(seen, folder) or _is_taken_for(_joined(seen), _joined(folder))


def _joined(words: str) -> str:
    """Without the blanks and strokes that only keep words apart."""
    inner = (char for char in words[1:-1] if unicodedata.category(char) not in _BETWEEN)
    return "".join((words[:1], *inner, words[1:][-1:]))


@lru_cache(maxsize=1024)
def skeleton(name: str) -> str:
    """What is left of a name once case, Unicode forms, accents, invisible characters, dots
    and blanks are ignored."""
    marks = frozenset(
        char
        for char in name
        if char in "\n\t" or unicodedata.category(char) in {"Mn", "Me"}
    )
    kept = "".join(char for char in name if char not in marks)
    seen = reads_as(kept.translate(_AS_READ))
    return seen.strip(". \u00a0\u3000").translate(_ALIKE).replace("cl", "d")


def _is_taken_for(seen: str, folder: str) -> bool:
    """Whether only letters of other alphabets keep them apart; a name in one other
    alphabet is a word of its own."""
    if len(seen) != len(folder):
        return False
    alphabets = {
        unicodedata.name(char, "?").partition(" ")[0] for char in seen if char.isalpha()
    }
    if len(alphabets) == 1 and alphabets != {"LATIN"}:
        return False
    return all(
        not one.isascii() or one == other for one, other in zip(seen, folder, strict=True)
    )


@contextmanager
def opened(
    root: Path, names: tuple[str, ...], *, create: bool = False
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The folder's descriptor and the names as they are on the disk."""
    if is_shut(root, names):
        why = "the desk's home lies there, which no tool enters"
        raise Denied(
            why, reason="protected", hint="leave it to the person", path="/".join(names)
        )
    try:
        folder, found = _walk_into(root, names, create=create)
    except PermissionError as error:
        raise VaultClosed(root.joinpath(*names)) from error
    try:
        yield folder, found
    finally:
        os.close(folder)


def _walk_into(
    root: Path, names: tuple[str, ...], *, create: bool
) -> tuple[int, tuple[str, ...]]:
    folder = open_folder(root)
    found: list[str] = []
    try:
        for name in names:
            actual = on_disk(folder, name) or _make(
                folder, name, create=create, path="/".join(names)
            )
            inner = _enter(folder, actual, "/".join(names))
            os.close(folder)
            folder = inner
            found.append(actual)
    except BaseException:
        os.close(folder)
        raise
    return folder, tuple(found)


def on_disk(folder: int, name: str) -> str | None:
    """The entry that `name` means: exactly it, else the only one that differs in case or Unicode form."""
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        wanted = loose(name)
        alike = [
            entry
            for entry in os.listdir(folder)
            if loose(entry) == wanted and has_same_letters(entry, name)
        ]
        if len(alike) > 1:
            raise Denied(
                f"{printable(name)!r} may mean {len(alike)} files",
                reason="ambiguous",
                hint="use the exact name",
                candidates=sorted(map(printable, alike)),
            ) from None
        return alike[0] if alike else None
    return name


def _names(path: str, field: str) -> tuple[str, ...]:
    if not path:
        raise InvalidInput(
            "the path is empty",
            fields=[
                FieldProblem(field, "must not be empty", "", "Use a vault-relative path")
            ],
        )
    names = tuple(path.split("/"))
    for name in names:
        if why := _refusal(name):
            raise Denied(
                f"{printable(path)!r} is not a path inside the vault: {why}",
                reason="outside",
                hint="use a vault-relative path such as Needs_Action/email-001.md",
                path=printable(path),
            )
    if names[0].startswith("~") or len(names) > _DEPTH:
        raise Denied(
            f"{printable(path)!r} is not a path inside the vault",
            reason="outside",
            path=printable(path),
        )
    return names


def _refusal(name: str) -> str | None:
    lookalike = unicodedata.normalize("NFKC", name)
    checks = {
        "absolute, doubled or relative parts are not followed": name in ("", ".", ".."),
        "names that begin with a dot are closed": lookalike.startswith(".")
        or not skeleton(name),
        "names do not begin or end with a blank or end with a dot": name != name.strip()
        or name.endswith("."),
        "a backslash, colon or look-alike of a slash": any(
            char in lookalike for char in "/\\:"
        ),
        "a control character": any(
            unicodedata.category(char) in {"Cc", "Zl", "Zp"} for char in name
        ),
        "a name is too long": len(name.encode("utf-8", "replace")) > _NAME_BYTES,
    }
    return next((why for why, applies in checks.items() if applies), None)


def _make(folder: int, name: str, *, create: bool, path: str) -> str:
    if not create:
        raise NotFound(f"there is no folder {path}", path=path)
    name = unicodedata.normalize("NFC", name)
    try:
        os.mkdir(name, private_mode(folder, 0o700), dir_fd=folder)
        sync(folder)
    except FileExistsError:
        pass
    return name


def _enter(folder: int, name: str, path: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=folder)
    except FileNotFoundError:
        raise NotFound(f"there is no folder {path}", path=path) from None
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
    with suppress(FileNotFoundError):
        if stat.S_ISREG(os.lstat(name, dir_fd=folder).st_mode):
            raise NotFound(f"{_named_in(path, name)} is not a folder", path=path)
    raise Denied(
        f"{_named_in(path, name)} is a symbolic link",
        reason="symlink",
        hint="links are not followed; use the folder's real place inside the vault",
        path=path,
    )


def _named_in(path: str, name: str) -> str:
    """One part of a path, in words."""
    if name == path:
        return name
    return f"{name} in {path}"
