"""A call of another server's tool, exactly as it would be made."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal

from pydantic import Field

from deskhand.errors import printable
from deskhand.foreign.arguments import canonical, find_values, list_rows, refuse, write_value
from deskhand.foreign.schemas import find_problem
from deskhand.gate.face import NoMail

SHOWN_IN_TITLE = 80
_GAP = re.compile(r"\{([^{}]{1,200})\}")


class ToolCall(NoMail):
    way_back = "What another server has done, the desk cannot undo; before it was called: move this file to Rejected/."
    caution = ("Another server does it, and the desk cannot take it back.",)
    noun = "call"
    may_be_permitted = True
    done = "been made"
    again = "make"
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

    def digested(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"template", "shape"})

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
            return printable(f"Call {self.tool} of {self.server}")
        values = self.values
        return _GAP.sub(lambda gap: _shown_at(values, gap[1]), self.template)

    @property
    def body(self) -> str:
        """The arguments as the person may edit them."""
        return json.dumps(self.values, indent=2, sort_keys=True, ensure_ascii=False)

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """Each argument by its path; a text as a text."""
        return tuple(list_rows(self.values))

    @property
    def question(self) -> str:
        return self.subject

    @property
    def about(self) -> str:
        return f"The tool {self.tool} of the server {self.server} would be called with exactly these arguments."

    def edit(self, changes: Mapping[str, str]) -> "ToolCall":
        """The same call with other arguments, as the tool's schema allows them."""
        for key in ("to", "subject"):
            if changes.get(key, getattr(self, key)).strip() != getattr(self, key).strip():
                raise refuse(key, "only the arguments of a call can be edited", printable(changes[key], 60))
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
    found = find_values(values, path)
    if not found:
        return "(nothing)"
    return printable(", ".join(map(write_value, found)), SHOWN_IN_TITLE)
