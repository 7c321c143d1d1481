"""Files of the vault that are no notes, for whoever attaches one to a mail."""

from pathlib import Path

from deskhand.errors import NotFound, TooLarge, printable
from deskhand.notes import disk, paths


def read_file(
    root: Path, path: str, limit: int, inside: paths.Inside = ()
) -> tuple[str, bytes]:
    """A file of any kind and its path as it lies there, by the walls of notes; the desk's
    own folders are closed."""
    paths.deny_protected(paths.file_path(path), inside)
    return read_again(root, path, limit)


def read_again(root: Path, path: str, limit: int) -> tuple[str, bytes]:
    """The same file later: that it is of no closed folder was said before."""
    names = paths.file_path(path)
    with paths.opened(root, names[:-1]) as (folder, found):
        actual = paths.on_disk(folder, names[-1])
        if actual is None:
            raise NotFound(
                f"there is no file {printable(path)} in the vault", path=printable(path)
            )
        try:
            return "/".join((*found, actual)), disk.read(folder, actual, limit)
        except TooLarge as error:
            hint = "put it where the recipient can fetch it, and send the link"
            raise TooLarge(
                f"{actual} is too large: at most {limit:,} bytes",
                hint=hint,
                **error.details,
            ) from error
