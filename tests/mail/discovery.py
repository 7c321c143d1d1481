"""Google's discovery document as the judge of every request to the double and of every answer from it."""

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

DOCUMENT: dict[str, Any] = json.loads(
    (files("googleapiclient") / "discovery_cache/documents/gmail.v1.json").read_text(
        "utf-8"
    )
)
SCHEMAS = DOCUMENT["schemas"]


class Refused(Exception):
    """What Google answers instead of a result."""

    def __init__(
        self, status: int, reason: str, message: str, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.body = {
            "error": {
                "code": status,
                "message": message,
                "errors": [{"message": message, "domain": "global", "reason": reason}],
            }
        }


@dataclass(frozen=True)
class Method:
    name: str
    """Without `gmail.users.`: `messages.list`."""
    verb: str
    pattern: re.Pattern[str]
    parameters: dict[str, Any]
    request: str | None
    response: str | None
    scopes: frozenset[str]


@cache
def methods() -> tuple[Method, ...]:
    found: list[Method] = []

    def walk(resource: dict[str, Any]) -> None:
        for method in resource.get("methods", {}).values():
            pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", method["flatPath"])
            found.append(
                Method(
                    method["id"].removeprefix("gmail.users."),
                    method["httpMethod"],
                    re.compile(f"/{pattern}"),
                    method["parameters"] | DOCUMENT["parameters"],
                    method.get("request", {}).get("$ref"),
                    method.get("response", {}).get("$ref"),
                    frozenset(method["scopes"]),
                )
            )
        for below in resource.get("resources", {}).values():
            walk(below)

    walk(DOCUMENT)
    # A fixed last segment (messages/send) goes before a free one (messages/{id}).
    return tuple(sorted(found, key=lambda method: method.pattern.pattern.count("(?P")))


def route(verb: str, path: str) -> tuple[Method, dict[str, str]]:
    for method in methods():
        if method.verb == verb and (match := method.pattern.fullmatch(path)):
            return method, {
                name: unquote(value) for name, value in match.groupdict().items()
            }
    raise Refused(404, "notFound", f"no method for {verb} {path}")


def check_query(method: Method, query: dict[str, list[str]]) -> None:
    for name, values in query.items():
        parameter = method.parameters.get(name)
        if parameter is None or parameter["location"] != "query":
            raise _bad(f'Unknown name "{name}": Cannot bind query parameter.')
        if len(values) > 1 and not parameter.get("repeated"):
            raise _bad(f'"{name}" was given more than once.')
        for value in values:
            if parameter["type"] == "integer" and not value.isdecimal():
                raise _bad(f'Invalid value at "{name}" (TYPE_UINT32), "{value}"')
            if parameter["type"] == "boolean" and value not in ("true", "false"):
                raise _bad(f'Invalid value at "{name}" (TYPE_BOOL), "{value}"')
            if "enum" in parameter and value.lower() not in map(
                str.lower, parameter["enum"]
            ):
                raise _bad(f'Invalid value at "{name}", "{value}"')


def check_body(method: Method, body: Any) -> None:
    if method.request is None:
        if body is not None:
            raise _bad("This method takes no body.")
        return
    problem = mismatch({"$ref": method.request}, {} if body is None else body)
    if problem:
        raise _bad(f"Invalid JSON payload received. {problem}")


def mismatch(schema: dict[str, Any], value: Any, place: str = "") -> str | None:  # noqa: C901, PLR0911 - one case a type
    """What in `value` the schema does not know, or None."""
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"]]
    match schema["type"], value:
        case "object", dict():
            for key, item in value.items():
                if key not in schema["properties"]:
                    return f'Unknown name "{key}" at "{place}": Cannot find field.'
                if problem := mismatch(schema["properties"][key], item, f"{place}.{key}"):
                    return problem
            return None
        case "array", list():
            problems = (
                mismatch(schema["items"], item, f"{place}[{number}]")
                for number, item in enumerate(value)
            )
            return next(filter(None, problems), None)
        case "string", str():
            if "enum" in schema and value not in schema["enum"]:
                return f'Invalid value at "{place}": "{value}"'
            if schema.get("format") in ("int64", "uint64") and not value.isdecimal():
                return f'Invalid number at "{place}": "{value}"'
            return None
        case ("integer", int()) | ("boolean", bool()):
            return None
        case kind, _:
            return f'Invalid value at "{place}": {value!r} is not of type {kind}'


Mask = dict[str, "Mask"]


def masked(method: Method, fields: str, value: Any) -> Any:
    """The partial response that `fields` asks for; a field that the schema does not know is refused, as Google does."""
    tokens = re.findall(r"[A-Za-z*]+|[(),/]", fields)
    if "".join(tokens) != fields or not tokens:
        raise _bad(f"Invalid field selection {fields}")
    mask = _mask(tokens)
    if tokens:
        raise _bad(f"Invalid field selection {fields}")
    return _cut(mask, {"$ref": method.response}, value)


def _mask(tokens: list[str]) -> Mask:
    mask: Mask = {}
    while tokens:
        name = tokens.pop(0)
        if tokens and tokens[0] == "(":
            tokens.pop(0)
            mask[name] = _mask(tokens)
            if not tokens or tokens.pop(0) != ")":
                raise _bad("Invalid field selection: unbalanced")
        elif tokens and tokens[0] == "/":
            tokens.pop(0)
            mask[name] = {tokens.pop(0): {}}
        else:
            mask[name] = {}
        if not tokens or tokens[0] != ",":
            break
        tokens.pop(0)
    return mask


def _cut(mask: Mask, schema: dict[str, Any], value: Any) -> Any:
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"]]
    if schema["type"] == "array":
        return [_cut(mask, schema["items"], item) for item in value or ()]
    for name in mask:
        if name not in schema["properties"]:
            raise _bad(f"Invalid field selection {name}")
    if value is None:
        return None
    kept = {name: below for name, below in mask.items() if name in value}
    return {
        name: _cut(below, schema["properties"][name], value[name]) if below else value[name]
        for name, below in kept.items()
    }


def _bad(message: str) -> Refused:
    return Refused(400, "invalidArgument", message)
