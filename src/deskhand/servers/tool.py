"""A tool from a function: the signature is the schema, the docstring the prompt; it raises or returns a DeskError."""

import inspect
import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal, get_args, get_origin

from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations

from deskhand.servers.calls import RecordedBy, ToolResult
from deskhand.servers.sdk import make_strict

READS = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
WRITES = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
ADDS = ToolAnnotations(
    read_only_hint=False,
    destructive_hint=False,
    idempotent_hint=False,
    open_world_hint=False,
)


_NAME = {"type": "string", "default": None}
_forms: dict[tuple[Any, str | None, RecordedBy], "DeskTool"] = {}
"""The tools as the source has them, with no function behind them yet: schemas take milliseconds, and each desk and each
of its servers would make the same ones."""


class DeskTool(Tool):
    recorded_by: RecordedBy = "door"
    takes: frozenset[str] = frozenset()
    """What else a caller may name, `account` or `vault`; the function itself only sees what the call sees."""

    def take(self, name: Literal["account", "vault"], *, shown: bool = True) -> None:
        """Let a caller name it; `shown` says whether there is anything to choose."""
        self.takes |= {name}
        if shown:
            self.parameters["properties"][name] = _NAME

    def shorten(self) -> None:
        """Say that null may be given once: a model pays for each character."""
        for said in self.parameters["properties"].values():
            if {"type": "null"} in said.get("anyOf", ()) and said.get("default") is None:
                said.pop("default", None)

    def own_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in arguments.items() if name not in self.takes}

    @property
    def may_wait(self) -> bool:
        """Whether a call may have to wait for the person."""
        return self.recorded_by == "gate"

    @property
    def writes(self) -> bool:
        return not (self.annotations and self.annotations.read_only_hint)


def tool(
    fn: Callable[..., Any],
    *,
    title: str,
    annotations: ToolAnnotations,
    name: str | None = None,
    recorded_by: RecordedBy = "door",
) -> DeskTool:
    """A strict tool: unknown arguments are refused, none is guessed to be JSON in a string.

    One that the gate or the backend records returns a ToolResult, which says whether they did. What the function's
    annotations and defaults say must be the same each time that its definition runs.
    """
    source = (fn.__code__, name, recorded_by)
    if source not in _forms:
        _forms[source] = _make_form(fn, name, recorded_by)
    form = _forms[source]
    own = {"fn": fn, "title": title, "annotations": annotations}
    return form.model_copy(update=own | {"parameters": deepcopy(form.parameters)})


def _make_form(
    fn: Callable[..., Any], name: str | None, recorded_by: RecordedBy
) -> DeskTool:
    _hide_tool_result(fn, recorded_by)
    made = DeskTool.from_function(
        fn, name=name, description=inspect.cleandoc(fn.__doc__ or "")
    )
    assert isinstance(made, DeskTool)  # noqa: S101 - a classmethod that is annotated with its base
    made.recorded_by = recorded_by
    make_strict(made, _trim)
    made.parameters = _in_place(_without_titles(made.parameters))
    return made.model_copy(update={"fn": None})


def demand_complete(made: Tool) -> DeskTool:
    """The tool, if it was made here and leaves no client guessing."""
    hints = (
        made.annotations.model_dump(exclude={"title"}).values()
        if made.annotations
        else [None]
    )
    if not made.title or not made.description or None in hints:
        raise TypeError(
            f"tool {made.name} needs a title, a docstring and all four annotation hints"
        )
    if not isinstance(made, DeskTool):
        raise TypeError(
            f"tool {made.name} is not strict; make it with deskhand.servers.tool"
        )
    return made


def _hide_tool_result(fn: Callable[..., Any], recorded_by: RecordedBy) -> None:
    """Show the SDK the type of the content: that is what goes over the wire."""
    signature = inspect.signature(fn, eval_str=True)
    tells = get_origin(signature.return_annotation) is ToolResult
    if tells != (recorded_by in ("gate", "backend")):
        raise TypeError(
            f"{fn.__name__} is recorded by the {recorded_by}, which its return type does not say"
        )
    if tells:
        (content,) = get_args(signature.return_annotation)
        vars(fn)["__signature__"] = signature.replace(return_annotation=content)


def _without_titles(schema: Any) -> Any:
    """Without the titles pydantic makes from the names: a model pays for each character."""
    match schema:
        case {"properties": dict(properties), **rest}:
            named = {name: _without_titles(value) for name, value in properties.items()}
            return _without_titles(rest) | {"properties": named}
        case dict():
            return {
                key: _without_titles(value)
                for key, value in schema.items()
                if key != "title"
            }
        case list():
            return [_without_titles(item) for item in schema]
        case _:
            return schema


def _trim(schema: Any) -> Any:
    """The schema of an answer without titles, its definitions in place, as short as it can be said."""
    return _shorten(_in_place(_without_titles(schema)))


def _in_place(schema: Any) -> Any:
    """The same schema with each definition where it is used: many clients look up none."""
    definitions = schema.pop("$defs", {}) if isinstance(schema, dict) else {}
    placed = _placed(schema, definitions, ())
    if "$ref" in json.dumps(placed):  # one that names itself keeps its definitions
        return schema | {"$defs": definitions}
    return placed


def _placed(schema: Any, definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    match schema:
        case {"$ref": str(reference), **rest} if (
            name := reference.removeprefix("#/$defs/")
        ) not in inside:
            return _placed(definitions[name], definitions, (*inside, name)) | rest
        case dict():
            return {
                key: _placed(value, definitions, inside) for key, value in schema.items()
            }
        case list():
            return [_placed(item, definitions, inside) for item in schema]
        case _:
            return schema


def _shorten(schema: Any) -> Any:
    match schema:
        case {"anyOf": [{"type": str(first), **narrower}, {"type": "null"}], **rest} if (
            "enum" not in narrower
        ):
            return _shorten(narrower | rest) | {"type": [first, "null"]}
        case dict():
            return {key: _shorten(value) for key, value in schema.items()}
        case list():
            return [_shorten(item) for item in schema]
        case _:
            return schema
