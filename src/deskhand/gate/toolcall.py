"""A call of another server's tool, exactly as it would be made."""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from operator import not_
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from deskhand.errors import printable
from deskhand.foreign.arguments import (
    canonical,
    find_values,
    list_rows,
    refuse,
    write_value,
)
from deskhand.foreign.edits import TextEdit, find_edits, find_rewrite
from deskhand.foreign.schemas import find_problem
from deskhand.gate.face import NoMail

SHOWN_IN_TITLE = 80
OWN_LIFETIME = timedelta(days=1)
"""How long a program waits for the yes to a call of its own tool."""
_GAP = re.compile(r"\{([^{}]{1,200})\}")


class Workplace(BaseModel):
    """Where a program works that makes the call itself, as soon as it has the yes."""

    model_config = ConfigDict(frozen=True)

    folder: str
    session: str


class ToolCall(NoMail):
    way_back = "What such a call has done, the desk cannot undo; before it was made: move this file to Rejected/."
    caution = ("Another program does it, and the desk cannot take it back.",)
    noun = "call"
    may_be_permitted = True
    done = "been made"
    again = "make"
    effect = "gives its result"
    where_to_look = "Look at that server whether it was done."
    unknown = "the call may or may not have been made, and it is not made again by itself"
    is_told_again = False
    file_type: ClassVar[str] = "tool_call"

    kind: Literal["call_tool"] = "call_tool"
    server: str
    tool: str
    arguments: str
    """JSON with sorted keys, numbers as they came; see `canonical`."""
    definition: str
    """The digest of the tool's name, description and schemas, as the person has seen them."""
    asker: str
    """Whose call it is, and who alone gets its result."""
    template: str = ""
    """The rule's title, with {path} where an argument stands."""
    shape: dict[str, Any] = Field(default_factory=dict)
    """The schema of the arguments; the definition's digest covers it."""
    hints: dict[str, Any] = Field(default_factory=dict)
    """What the tool says of its effects (`readOnlyHint`, ...); the definition's digest covers it."""
    at: Workplace | None = Field(None, exclude_if=not_)
    """Of a tool that whoever asks has itself; None for another server's."""
    before: str = Field("", exclude_if=not_)
    """What the file holds now that the call would write."""

    def digested(self) -> dict[str, Any]:
        return self.model_dump(
            mode="json", exclude={"template", "shape", "hints", "before"}
        )

    def named(self) -> dict[str, Any]:
        """Without the session: what is permitted in a folder is permitted tomorrow too."""
        fields = self.digested()
        if self.at is not None:
            fields["at"] = {"folder": self.at.folder}
        return fields

    @property
    def is_only_told(self) -> bool:
        return self.at is not None

    @property
    def lifetime(self) -> timedelta | None:
        if self.at is None:
            return None
        return OWN_LIFETIME

    @property
    def values(self) -> dict[str, Any]:
        return read_arguments(self.arguments)

    @property
    def account(self) -> str:
        return self.server

    @property
    def target(self) -> str:
        return f"{self.server}/{self.tool}"

    @property
    def to(self) -> str:
        return f"{self.server}: {self.tool}"

    @property
    def subject(self) -> str:
        """The rule's title with the arguments in it, else what is called."""
        if not self.template:
            return printable(f"Call {self.tool} of {self.server}", 200)
        values = self.values
        return _GAP.sub(lambda gap: _shown_at(values, gap[1]), self.template)

    @property
    def body(self) -> str:
        """The arguments as the person may edit them."""
        return json.dumps(self.values, indent=2, sort_keys=True, ensure_ascii=False)

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """Each argument by its path; a text as a text."""
        arguments = tuple(list_rows(self.values))
        if self.at is None:
            return arguments
        return (("in the folder", self.at.folder), *arguments)

    @property
    def edits(self) -> tuple[TextEdit, ...]:
        """What it would change in a text, where it says what stands there and what shall."""
        found = tuple(find_edits(self.values))
        if self.before and not found:
            return tuple(find_rewrite(self.values, self.before))
        return found

    @property
    def question(self) -> str:
        return self.subject

    @property
    def about(self) -> str:
        if self.at is not None:
            return f"{self.server} would use its own tool {self.tool} with exactly these arguments."
        return f"The tool {self.tool} of the server {self.server} would be called with exactly these arguments."

    def edit(self, changes: Mapping[str, str]) -> "ToolCall":
        """The same call with other arguments, as the tool's schema allows them."""
        for key in ("to", "subject"):
            if changes.get(key, getattr(self, key)).strip() != getattr(self, key).strip():
                raise refuse(
                    key,
                    "only the arguments of a call can be edited",
                    printable(changes[key], 60),
                )
        try:
            values = json.loads(changes.get("body", self.body))
        except (ValueError, RecursionError) as error:
            raise refuse("body", f"the arguments are no JSON: {error}") from error
        if not isinstance(values, dict):
            raise refuse("body", "the arguments must be an object: { … }")
        demand_fitting(self.shape, values)
        return self.model_copy(update={"arguments": canonical(values)})


@lru_cache(maxsize=64)
def read_arguments(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def demand_fitting(shape: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Refuse arguments that the tool's schema does not allow."""
    if problem := find_problem(shape, values):
        raise refuse("body", f"the tool's schema does not allow it: {problem}")


def _shown_at(values: Mapping[str, Any], path: str) -> str:
    return printable(", ".join(map(write_value, find_values(values, path))), SHOWN_IN_TITLE)
