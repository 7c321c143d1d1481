"""Who asks, in words that a person knows: never the name of a door."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_ASKER: ContextVar[str | None] = ContextVar("asker", default=None)
PERSON = "person"
_DOORS = ("email_mcp", "gmail_mcp", "desk_mcp", "guard_mcp", "claude_mcp")
_WORDS = {
    PERSON: "you",
    "tasks_cli": "you",
    "desk": "the desk",
    "follow_up": "the desk",
    "orchestrator": "the desk",
    **dict.fromkeys(_DOORS, "an assistant"),
    "assistant": "an assistant",
}
"""Of a door that is no rule and no model, whose it is."""


@contextmanager
def asking_as(words: str) -> Iterator[None]:
    """What is asked for within the block is asked for by this one."""
    before = _ASKER.set(words)
    try:
        yield
    finally:
        _ASKER.reset(before)


def current_asker() -> str | None:
    return _ASKER.get()


def describe_actor(
    actor: str, parameters: Mapping[str, Any], askers: Mapping[str, str]
) -> str:
    """Who a line of the record speaks of: the person, or who asked, by the request or by
    the token that it names."""
    asked = askers.get(str(parameters.get("action_id")))
    if asked is not None and actor in _DOORS:
        return asked
    token = parameters.get("client")
    if actor.endswith("_mcp"):
        unnamed = f"an assistant ({token})" if token else "an assistant"
        return str(parameters.get("asker") or unnamed)
    if actor == "tasks_api":
        return f"a program, with the token “{token}”" if token else "a program"
    return describe_asker(None, actor)


def describe_asker(asker: str | None, door: str | None) -> str:
    """Who asked, as it was written down; of an earlier request what its door tells."""
    if asker is not None:
        return asker
    if door is None:
        return "an assistant"
    if door in _WORDS:
        return _WORDS[door]
    kind, _, name = door.partition(":")
    if not name:
        return door
    if kind == "rule":
        return f"your rule “{name}”"
    return f"the model {name} ({kind})"
