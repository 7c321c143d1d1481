"""What one call sees of the vaults: no more than its token opens, and of these the one that it names."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VaultView:
    """What a call sees of the vaults; None: all of them."""

    names: frozenset[str] | None = None
    """Those that it may read."""
    opened: frozenset[str] | None = None
    """Those in which it may do what it does."""
    asked: str | None = None
    """The one that the caller names."""


_view: ContextVar[VaultView] = ContextVar("vault_view", default=VaultView())  # noqa: B039 - it is frozen


@contextmanager
def viewing(view: VaultView) -> Iterator[None]:
    """Let whatever is called here see these vaults alone."""
    before = _view.set(view)
    try:
        yield
    finally:
        _view.reset(before)


def current() -> VaultView:
    return _view.get()
