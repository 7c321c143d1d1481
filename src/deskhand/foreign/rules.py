"""`guard.toml`: the servers behind the gate, and for each of their tools whether a call passes, is asked or denied.

The first rule that fits counts; where none fits, the person is asked. A file that cannot be read opens nothing.
"""

import json
import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from deskhand.errors import BadConfig, printable
from deskhand.foreign.arguments import NOTHING, find_values
from deskhand.foreign.schemas import compile_pattern, is_match

FILE = "guard.toml"
LONGEST_NAME = 40
_NAME = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED = frozenset(
    {"desk", "email", "gmail", "obsidian", "tasks", "agentmail", "claude"}
)
_LONGEST_NUMBER = 100
"""Characters of a text in which a server may find a number."""
Verdict = Literal["pass", "ask", "deny"]


def check_name(name: str) -> str:
    """A server's name is part of addresses, of tools' names and of requests."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ValueError(
            f"{printable(name, 60)!r} is no name: small letters, digits and -, at most {LONGEST_NAME}"
        )
    if name in _RESERVED:
        raise ValueError(f"{name} is the name of a server of the desk's own")
    return name


def check_variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{printable(name, 60)!r} cannot be the name of a variable")
    return name


def _check_pattern(pattern: str) -> str:
    compile_pattern(pattern)
    compile_pattern(_whole(pattern))
    compile_pattern(_whole(_in_any_case(pattern)))
    return pattern


def _whole(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


def _in_any_case(pattern: str) -> str:
    return f"(?i){pattern}"


def _read_condition(given: Any) -> Any:
    """A plain value is what the argument must equal."""
    if isinstance(given, dict):
        return given
    return {"equals": given}


class _GuardTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Condition(_GuardTable):
    """What an argument has to be; of several words each."""

    equals: Any = None
    one_of: list[Any] | None = None
    matches: Annotated[str, AfterValidator(_check_pattern)] | None = None
    """The whole text."""
    at_most: int | float | None = None

    @model_validator(mode="after")
    def _say_something(self) -> "Condition":
        if not self.model_fields_set:
            raise ValueError("a condition needs equals, one_of, matches or at_most")
        return self

    def fits(self, value: Any) -> bool:
        if value is NOTHING:
            return False
        if "equals" in self.model_fields_set and not _is_same(value, self.equals):
            return False
        if self.one_of is not None and not any(
            _is_same(value, each) for each in self.one_of
        ):
            return False
        if self.matches is not None and not is_match(
            compile_pattern(_whole(self.matches)), value
        ):
            return False
        if self.at_most is None:
            return True
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and value <= self.at_most
        )

    def may_fit(self, value: Any) -> bool:
        """Whether a server may take the value for one that fits."""
        loose = self._loosened
        return any(
            loose.fits(each) or loose.fits(_fold(each)) for each in _list_readings(value)
        )

    @cached_property
    def _loosened(self) -> "Condition":
        """The same in whatever letters: many servers take Ann and ann for one."""
        given = self.model_dump(exclude_unset=True)
        if "equals" in given:
            given["equals"] = _fold(self.equals)
        if self.one_of is not None:
            given["one_of"] = [_fold(each) for each in self.one_of]
        if self.matches is not None:
            given["matches"] = _in_any_case(self.matches)
        return Condition.model_construct(_fields_set=set(given), **given)


def _fold(value: Any) -> Any:
    """A text without what tells apart neither names nor addresses: case, blanks around it,
    its spelling in Unicode."""
    if not isinstance(value, str):
        return value
    return unicodedata.normalize("NFKC", value).strip().casefold()


def _is_same(value: Any, wanted: Any) -> bool:
    """As JSON writes it: 1, 1.0 and true are three things."""
    return json.dumps(value, sort_keys=True) == json.dumps(
        wanted, sort_keys=True, default=str
    )


def _list_readings(value: Any) -> Iterator[Any]:
    """All that a server may take it for that is not strict: 1.0 for 1, a text for its number, a number for its text.

    Of a list each of its items: there are servers that take one or several.
    """
    yield value
    if isinstance(value, list):
        for each in value:
            yield from _list_readings(each)
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER:
        value = _read_number(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int | float):
        return
    yield json.dumps(value)
    with suppress(ValueError, OverflowError):  # no end, no number, or too large
        yield from (int(value), float(value))
    if value in (0, 1):
        yield bool(value)


def _read_number(text: str) -> Any:
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return {"true": True, "false": False}.get(text.strip().lower(), text)


class GuardRule(_GuardTable):
    tool: Annotated[str, Field(min_length=1)]
    """A name, or a pattern with * and ?."""
    when: dict[str, Annotated[Condition, BeforeValidator(_read_condition)]] = {}
    """What the arguments must be, each by its path."""
    do: Verdict
    title: str = ""
    """What the card is called, with {path} where an argument stands."""
    idempotent: bool = False
    """The person's word that calling it twice does no harm."""

    def names(self, tool: str) -> bool:
        """A bracket in a name is a letter as any other."""
        return self.tool == "*" or fnmatchcase(tool, self.tool.replace("[", "[[]"))

    def fits(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        if not self.names(tool):
            return False
        return not self.when or all(
            self._fits_at(path, condition, arguments)
            for path, condition in self.when.items()
        )

    def _fits_at(
        self, path: str, condition: Condition, arguments: Mapping[str, Any]
    ) -> bool:
        """Whatever the path can mean has to fit for a call to pass; to stop it, one thing is enough that it can mean
        or be taken for."""
        values = find_values(arguments, path)
        if self.do == "pass":
            return all(condition.fits(value) for value in values)
        return any(condition.may_fit(value) for value in values)


ASK = GuardRule(tool="*", do="ask")
"""Of every tool that the person has not called harmless."""


class ServerEntry(_GuardTable):
    """One server, as the person wrote it down."""

    command: list[str] | None = None
    url: str | None = None
    env: list[Annotated[str, AfterValidator(check_variable)]] = []
    """Names of secrets. A command gets each as a variable; to a URL goes `AUTHORIZATION` as that header."""
    on_desk: bool = False
    """Whether its tools are on the whole-desk server too, as NAME_tool."""
    rules: list[GuardRule] = []

    @model_validator(mode="after")
    def _is_one_server(self) -> "ServerEntry":
        if (self.command is None) == (self.url is None):
            raise ValueError("a server needs a command or a url, and not both")
        if self.command is not None and not any(self.command):
            raise ValueError("the command is empty")
        if self.url is not None and not re.fullmatch(r"https?://[^\s/]+\S*", self.url):
            raise ValueError("the url begins with neither http:// nor https://")
        return self

    def starts_as(self, other: "ServerEntry") -> bool:
        """Whether the running server is the one that the other entry means too."""
        return self is other or (
            (self.command, self.url, self.env) == (other.command, other.url, other.env)
        )

    def rule_for(self, tool: str, arguments: Mapping[str, Any]) -> GuardRule:
        for rule in self.rules:
            if rule.fits(tool, arguments):
                return rule
        return ASK

    def describe_rule(self, tool: str) -> str:
        """Today's rule for a tool, in one line."""
        said: list[str] = []
        for rule in self.rules:
            if not rule.names(tool):
                continue
            if not rule.when:
                return ", ".join([*said, f"else {rule.do}" if said else rule.do])
            said.append(f"{rule.do} where {' and '.join(rule.when)} fits")
        return ", ".join([*said, "else ask"]) if said else "ask"


class _GuardFile(_GuardTable):
    servers: dict[Annotated[str, AfterValidator(check_name)], ServerEntry] = {}


def read_servers(home: Path) -> dict[str, ServerEntry]:
    """The servers that `guard.toml` names; none where there is no such file."""
    place = home / FILE
    try:
        text = place.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{place} cannot be read: {error}") from error
    try:
        return _GuardFile.model_validate(tomllib.loads(text)).servers
    except ValidationError as error:
        why = _describe_problem(error.errors(include_url=False)[0])
        raise BadConfig(
            f"{place} is wrong at {printable(why)}",
            hint="no server behind the gate is open",
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadConfig(
            f"{place} is no TOML: {error}", hint="no server behind the gate is open"
        ) from error


_NOT_SO = {
    "missing": "is missing",
    "extra_forbidden": "there is no such word here",
    "string_type": "is no text",
    "list_type": "is no list",
    "dict_type": "is no table",
    "model_type": "is no table",
    "int_type": "is no number",
    "bool_type": "is neither true nor false",
}
"""What pydantic calls its findings, for whoever wrote the file."""


def _describe_problem(found: Mapping[str, Any]) -> str:
    """Such as: servers.github, rule 2, do: is none of 'pass', 'ask' or 'deny'."""
    place = [each for each in found["loc"] if each != "[key]"]
    if place[-2:-1] == ["at_most"]:
        place.pop()  # as which kind of number it was read
    what = _NOT_SO.get(found["type"], found["msg"].removeprefix("Value error, "))
    match found["type"], place:
        case "extra_forbidden", [*_, "when", path, key]:
            what = (
                "a condition has equals, one_of, matches or at_most; "
                f'a path with a dot in it stands in quotes: "{path}.{key}"'
            )
        case "literal_error", _:
            what = f"is none of {found['ctx']['expected']}"
    return f"{_name_place(place)}: {what}"


def _name_place(place: list[Any]) -> str:
    match place:
        case ["servers", name, "rules", int(number), *rest]:
            words = [f"servers.{name}", f"rule {number + 1}", ".".join(map(str, rest))]
            return ", ".join(filter(None, words))
    return ".".join(map(str, place))
