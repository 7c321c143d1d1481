"""The person's tokens and passwords: in the system's keyring, else in a file that only they can read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from deskhand.files import write_atomically
from deskhand.locks import wait_for_lock

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE = "deskhand"
_LONGEST_TURN = 60.0


def keep(home: Path, name: str, text: str) -> str:
    """Keep `text` under `name`, and say where it lies now, in words for the person."""
    from keyring.errors import KeyringError

    keyring = _keyring()
    if keyring is not None:
        try:
            keyring.set_password(SERVICE, _user(home, name), text)
        except KeyringError:
            pass  # a keyring that is locked or broken is no keyring
        else:
            _file(home, name).unlink(missing_ok=True)
            return f"the keyring ({keyring.name})"
    write_private(_file(home, name), text)
    return f"the file {_file(home, name)} (there is no keyring; only you can read it)"


def recall(home: Path, name: str) -> str | None:
    """What was kept under `name`; None where there is nothing, or a keyring that does not open."""
    # `keep` leaves a file only where the keyring failed, so the file is the newer one.
    file = _file(home, name)
    if file.exists():
        return file.read_text(encoding="utf-8")
    from keyring.errors import KeyringError

    keyring = _keyring()
    try:
        return keyring.get_password(SERVICE, _user(home, name)) if keyring else None
    except KeyringError:
        return None


def forget(home: Path, name: str) -> None:
    """Keep nothing under `name` any more."""
    from keyring.errors import KeyringError

    _file(home, name).unlink(missing_ok=True)
    keyring = _keyring()
    if keyring is None:
        return
    with suppress(KeyringError):  # it was never there, or the keyring does not open
        keyring.delete_password(SERVICE, _user(home, name))


@contextmanager
def take_turns(home: Path, name: str) -> Iterator[None]:
    """While one process renews what is kept under `name`, no other of this home does."""
    lock = os.open(home / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        wait_for_lock(lock, "the renewal of a sign-in", _LONGEST_TURN)
        yield
    finally:
        os.close(lock)


def write_private(file: Path, text: str) -> None:
    """Replace `file` whole, readable by its owner only from the first moment."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(file, text.encode())


def _keyring() -> "KeyringBackend | None":
    import keyring
    from keyring.backends.fail import Keyring

    backend = keyring.get_keyring()
    return None if isinstance(backend, Keyring) else backend


def _file(home: Path, name: str) -> Path:
    return home / f"{name}.secret"


def _user(home: Path, name: str) -> str:
    """The name in the keyring, which several desks of one person may share."""
    return f"{name} of {home}"
