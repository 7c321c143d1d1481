"""Files of the vault that are no notes, for whoever attaches one to a mail."""

from pathlib import Path

from deskhand.errors import NotFound, TooLarge, printable
from deskhand.notes import disk, paths


def read_file(root: Path, path: str, limit: int) -> tuple[str, bytes]:
    """A file of any kind and its path as it lies there, by the walls of notes; the desk's own folders are closed."""
    names = paths.file_path(path)
    paths.deny_protected(names)
    with paths.opened(root, names[:-1]) as (folder, found):
        actual = paths.on_disk(folder, names[-1])
        if actual is None:
            raise NotFound(f"there is no file {printable(path)} in the vault", path=printable(path))
        try:
            return "/".join((*found, actual)), disk.read(folder, actual, limit)
        except TooLarge as error:
            hint = "put it where the recipient can fetch it, and send the link"
            raise TooLarge(f"{actual} is too large: at most {limit:,} bytes", hint=hint, **error.details) from error
